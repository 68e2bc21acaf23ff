# SPDX-License-Identifier: Apache-2.0
"""Packets of the decode kernel's memory ports: wire values to bytes and back.

The byte layout is that of docs/decode_engine.md, section "Streams". Buffers are flat uint8
arrays; packing writes straight into a buffer of the board when one is given.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, byte_buffer
from fastdelta.reference.decode_model import (
    DecodeTokens,
    GivenGates,
    InternalGates,
    StateImage,
)
from fastdelta.reference.fixed_point import IntArray
from fastdelta.shapes import DecodeShape


def _packets(buffer: Bytes, packets: tuple[int, ...], beats: int, shape: DecodeShape) -> Bytes:
    """View a flat buffer as [*packets, beats, beat_bytes]."""
    return buffer.reshape(*packets, beats, shape.beat_bytes)


def pack_tokens(
    shape: DecodeShape,
    tokens: DecodeTokens,
    out_qk: Bytes | None = None,
    out_v: Bytes | None = None,
) -> tuple[Bytes, Bytes]:
    """Pack tokens for ``m_axi_qk`` and ``m_axi_v``.

    Returns
    -------
    qk, v
        Flat uint8 of ``tokens * shape.qk_token_bytes`` and ``tokens * shape.v_token_bytes``;
        the given buffers where there are any.
    """
    count, d = tokens.count, shape.head_dim
    qk_flat = byte_buffer(out_qk, count * shape.qk_token_bytes, "q/k")
    v_flat = byte_buffer(out_v, count * shape.v_token_bytes, "v")

    qk = _packets(qk_flat, (count, shape.qk_heads), shape.qk_packet_beats, shape)
    qk[..., 0, 0] = tokens.q_exponent.view(np.uint8)
    qk[..., 0, 1] = tokens.k_exponent.view(np.uint8)
    pairs = shape.bus_width // 32
    beats = shape.qk_packet_beats - 1
    halves = qk[..., 1:, :].view(np.int16).reshape(count, shape.qk_heads, beats, 2, pairs)
    for half, mantissas in enumerate((tokens.q, tokens.k)):
        for beat in range(beats):
            part = mantissas[..., beat * pairs : (beat + 1) * pairs]
            halves[..., beat, half, : part.shape[-1]] = part

    v = _packets(v_flat, (count, shape.value_heads), shape.v_packet_beats, shape)
    record = v[..., 0, :16].view(np.uint32)
    record[...] = _gate_record(tokens.gates)
    v[..., 0, 15] = tokens.v_exponent.view(np.uint8)
    body = v[..., 1:, :].view(np.int16)
    body = body.reshape(count, shape.value_heads, (shape.v_packet_beats - 1) * 2 * pairs)
    body[..., :d] = tokens.v
    return qk_flat, v_flat


def _gate_record(gates: InternalGates | GivenGates) -> npt.NDArray[np.uint32]:
    """Return the first 120 bits of the v record as words [tokens, value_heads, 4]."""
    if isinstance(gates, GivenGates):
        words = [gates.decay, gates.beta, np.zeros_like(gates.beta), np.zeros_like(gates.beta)]
    else:
        rate = gates.rate_mantissa | (gates.rate_exponent & 0xFF) << 24
        words = [gates.a, gates.dt_bias, rate, gates.b & 0xFFFFFF]
    stacked = np.stack(words, axis=-1)
    result: npt.NDArray[np.uint32] = (stacked & 0xFFFFFFFF).astype(np.uint32)
    return result


def unpack_tokens(
    shape: DecodeShape, qk_bytes: Bytes, v_bytes: Bytes, *, normalised: bool, given_gates: bool
) -> DecodeTokens:
    """Invert :func:`pack_tokens`; a monitor uses it to rebuild what it saw on the streams."""
    d = shape.head_dim
    count = qk_bytes.size // shape.qk_token_bytes
    qk = _packets(qk_bytes, (count, shape.qk_heads), shape.qk_packet_beats, shape)
    pairs = shape.bus_width // 32
    halves = np.ascontiguousarray(qk[..., 1:, :]).view(np.int16)
    halves = halves.reshape(count, shape.qk_heads, shape.qk_packet_beats - 1, 2, pairs)
    q, k = (
        np.ascontiguousarray(halves[..., half, :]).reshape(count, shape.qk_heads, d)
        for half in (0, 1)
    )
    v = _packets(v_bytes, (count, shape.value_heads), shape.v_packet_beats, shape)
    record = np.ascontiguousarray(v[..., 0, :16])
    signed = record.view(np.int32).astype(np.int64)
    unsigned = record.view(np.uint32).astype(np.int64)
    gates: InternalGates | GivenGates
    if given_gates:
        gates = GivenGates(decay=unsigned[..., 0], beta=unsigned[..., 1] & 0x3FFFF)
    else:
        gates = InternalGates(
            a=signed[..., 0],
            dt_bias=signed[..., 1],
            rate_mantissa=unsigned[..., 2] & 0xFFFFFF,
            rate_exponent=signed[..., 2] >> 24,
            b=(signed[..., 3] << 40) >> 40,
        )
    body = np.ascontiguousarray(v[..., 1:, :]).view(np.int16)
    return DecodeTokens(
        q=q,
        k=k,
        q_exponent=np.ascontiguousarray(qk[..., 0, 0]).view(np.int8),
        k_exponent=np.ascontiguousarray(qk[..., 0, 1]).view(np.int8),
        v=body.reshape(count, shape.value_heads, (shape.v_packet_beats - 1) * 2 * pairs)[..., :d],
        v_exponent=np.ascontiguousarray(v[..., 0, 15]).view(np.int8),
        gates=gates,
        normalised=normalised,
    )


def _rows(words: IntArray | npt.NDArray[np.int32], shape: DecodeShape) -> Bytes:
    """Lay out int32 words [..., d] in whole beats: uint8 [..., word_beats * beat_bytes]."""
    padding = shape.word_beats * (shape.bus_width // 32) - shape.head_dim
    widths = [(0, 0)] * (words.ndim - 1) + [(0, padding)]
    return np.pad(words.astype(np.int32), widths).view(np.uint8)


def pack_output(shape: DecodeShape, output: npt.NDArray[np.int32]) -> Bytes:
    """Pack output words [tokens, value_heads, d] as the kernel writes them."""
    return _rows(output, shape).reshape(-1)


def unpack_output(shape: DecodeShape, o_bytes: Bytes) -> npt.NDArray[np.int32]:
    """Return int32 [tokens, value_heads, d] from what ``m_axi_o`` wrote."""
    words = o_bytes.view(np.int32).reshape(
        -1, shape.value_heads, shape.word_beats * shape.beat_bytes // 4
    )
    return words[..., : shape.head_dim]


def pack_state(shape: DecodeShape, image: StateImage, out: Bytes | None = None) -> Bytes:
    """Pack a state for a load; flat uint8 of ``shape.state_bytes``."""
    flat = byte_buffer(out, shape.state_bytes, "state")
    packets = _packets(flat, (shape.value_heads,), shape.state_packet_beats, shape)
    packets[:, 0, :4] = image.scale.astype(np.int32)[:, np.newaxis].view(np.uint8)
    packets[:, 1:, :] = _rows(image.mantissa, shape).reshape(packets[:, 1:, :].shape)
    return flat


def unpack_state(shape: DecodeShape, state_bytes: Bytes) -> StateImage:
    """Invert :func:`pack_state`."""
    packets = _packets(state_bytes, (shape.value_heads,), shape.state_packet_beats, shape)
    scale = np.ascontiguousarray(packets[:, 0, :4]).view(np.int32)[:, 0]
    words = np.ascontiguousarray(packets[:, 1:, :]).view(np.int32)
    words = words.reshape(shape.value_heads, shape.head_dim, -1)[..., : shape.head_dim]
    return StateImage(mantissa=words.copy(), scale=scale.copy())
