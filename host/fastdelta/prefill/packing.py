# SPDX-License-Identifier: Apache-2.0
"""Blocks on the memory ports of the prefill kernel: operands to bytes, bytes to outputs, and back.

The layout is that of docs/prefill_engine.md, section "Memory formats"; job lists are in
`fastdelta.prefill.job_lists`. Buffers are flat uint8; packing writes straight into a buffer of the
board when one is given. Queries, keys and outputs are stored by channel, values by token.

Blocks that the kernel reads end with a check beat: it makes the 32-bit words of a block add up to
a tag. So the sum of all that was read must be the tag times the number of blocks, whichever
blocks the kernel took, and however often.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, byte_buffer
from fastdelta.reference.fixed_point import IntArray
from fastdelta.shapes import PrefillShape

_RECORDS = 3  # words of a query block before its channels: multipliers (two) and exponents
_V_SHIFT_POSITION = 4


def pack_queries(
    shape: PrefillShape,
    q: npt.NDArray[np.int8],
    multiplier: IntArray,
    exponent: IntArray,
    tag: int = 0,
    out: Bytes | None = None,
) -> Bytes:
    """Pack queries for ``m_axi_q``, the representative queries as one more block of each head.

    Parameters
    ----------
    shape : PrefillShape
    q : array [heads, tokens, head_dim], int8
    multiplier, exponent : array [heads, tokens], int
        Score multipliers of the rows, below 2**16, and their exponents, below 2**8.
    tag : int
        What the words of each block add up to, modulo 2**32.
    out : array of uint8, optional
        Flat buffer to write to.

    Returns
    -------
    array of uint8, flat, ``heads * shape.q_head_bytes(tokens)`` long
    """
    heads, tokens, d = q.shape
    block, blocks = shape.block, shape.blocks(tokens)
    flat = byte_buffer(out, heads * shape.q_head_bytes(tokens), "q")
    words = _contents(flat, shape, heads, shape.q_block_bytes)
    words = words.reshape(heads, blocks + 1, _RECORDS + d, block)
    rows = (multiplier & 0xFF, multiplier >> 8, exponent)
    for record, values in enumerate(rows):
        _put_rows(words[:, :blocks, record], values.astype(np.uint8))
    _put_channels(words[:, :blocks, _RECORDS:], q)

    representative = min(block, tokens)
    last = slice(block - representative, block)
    for record, values in enumerate(rows):
        words[:, blocks, record, last] = values[:, tokens - representative :]
    channels = words[:, blocks, _RECORDS:, last].view(np.int8)
    channels[...] = q[:, tokens - representative :].transpose(0, 2, 1)
    _seal(flat, shape, shape.q_block_bytes, tag)
    return flat


def unpack_queries(
    shape: PrefillShape, q_bytes: Bytes, tokens: int
) -> tuple[npt.NDArray[np.int8], IntArray, IntArray]:
    """Invert :func:`pack_queries`: q, multiplier and exponent.

    The block of representative queries is left out; `unpack_representatives` reads it.
    """
    words = _query_words(shape, q_bytes, tokens)[:, :-1]
    q = _get_channels(words[:, :, _RECORDS:], tokens)
    low, high, exponent = (
        _get_rows(words[:, :, record], tokens).astype(np.int64) for record in range(_RECORDS)
    )
    return q, low | high << 8, exponent


def unpack_representatives(
    shape: PrefillShape, q_bytes: Bytes, tokens: int
) -> tuple[npt.NDArray[np.int8], IntArray, IntArray]:
    """Return the representative queries: q [heads, block, head_dim], then the [heads, block] ones.

    The others are multiplier and exponent. Rows before the first token of a short prompt are zero.
    """
    words = _query_words(shape, q_bytes, tokens)[:, -1]
    low, high, exponent = (words[:, record].astype(np.int64) for record in range(_RECORDS))
    q = np.ascontiguousarray(words[:, _RECORDS:].transpose(0, 2, 1)).view(np.int8)
    return q, low | high << 8, exponent


def pack_keys(
    shape: PrefillShape,
    k: npt.NDArray[np.int8],
    k_shift: IntArray,
    v_shift: IntArray,
    tag: int = 0,
    out: Bytes | None = None,
) -> Bytes:
    """Pack keys for ``m_axi_k``, with the shifts of keys and values.

    Parameters
    ----------
    shape : PrefillShape
    k : array [kv_heads, tokens, head_dim], int8
    k_shift, v_shift : array [kv_heads, tokens], int
        0 to 15.
    tag : int
        What the words of each block add up to, modulo 2**32.
    out : array of uint8, optional
        Flat buffer to write to.

    Returns
    -------
    array of uint8, flat, ``kv_heads * shape.k_head_bytes(tokens)`` long
    """
    heads, tokens, d = k.shape
    flat = byte_buffer(out, heads * shape.k_head_bytes(tokens), "k")
    words = _contents(flat, shape, heads, shape.k_block_bytes)
    words = words.reshape(heads, shape.blocks(tokens), 1 + d, shape.block)
    _put_rows(words[:, :, 0], (k_shift | v_shift << _V_SHIFT_POSITION).astype(np.uint8))
    _put_channels(words[:, :, 1:], k)
    _seal(flat, shape, shape.k_block_bytes, tag)
    return flat


def unpack_keys(
    shape: PrefillShape, k_bytes: Bytes, tokens: int
) -> tuple[npt.NDArray[np.int8], IntArray, IntArray]:
    """Invert :func:`pack_keys`: k, k_shift and v_shift."""
    heads = k_bytes.size // shape.k_head_bytes(tokens)
    words = _contents(k_bytes, shape, heads, shape.k_block_bytes)
    words = words.reshape(heads, shape.blocks(tokens), 1 + shape.head_dim, shape.block)
    shifts = _get_rows(words[:, :, 0], tokens).astype(np.int64)
    low = (1 << _V_SHIFT_POSITION) - 1
    return _get_channels(words[:, :, 1:], tokens), shifts & low, shifts >> _V_SHIFT_POSITION


def pack_values(
    shape: PrefillShape, v: npt.NDArray[np.int8], tag: int = 0, out: Bytes | None = None
) -> Bytes:
    """Pack values, int8 [kv_heads, tokens, head_dim], for ``m_axi_v``; the rest as `pack_keys`.

    Returns
    -------
    array of uint8, flat, ``kv_heads * shape.v_head_bytes(tokens)`` long
    """
    heads, tokens, d = v.shape
    block, whole = shape.block, tokens // shape.block
    flat = byte_buffer(out, heads * shape.v_head_bytes(tokens), "v")
    rows = _contents(flat, shape, heads, shape.v_block_bytes).reshape(heads, -1, block, d)
    rows = rows.view(np.int8)
    rows[:, :whole] = v[:, : whole * block].reshape(heads, whole, block, d)
    if tokens % block:
        rows[:, whole, : tokens % block] = v[:, whole * block :]
    _seal(flat, shape, shape.v_block_bytes, tag)
    return flat


def unpack_values(shape: PrefillShape, v_bytes: Bytes, tokens: int) -> npt.NDArray[np.int8]:
    """Invert :func:`pack_values`."""
    heads = v_bytes.size // shape.v_head_bytes(tokens)
    rows = _contents(v_bytes, shape, heads, shape.v_block_bytes)
    rows = rows.reshape(heads, shape.blocks(tokens) * shape.block, shape.head_dim)
    return np.ascontiguousarray(rows[:, :tokens]).view(np.int8)


def block_contents(shape: PrefillShape, packed: Bytes, block_bytes: int) -> Bytes:
    """Return packed blocks of `block_bytes` without their check beats: uint8 [blocks, bytes]."""
    return packed.reshape(-1, block_bytes)[:, : -shape.beat_bytes]


def pack_outputs(
    shape: PrefillShape, outputs: npt.NDArray[np.int16], out: Bytes | None = None
) -> Bytes:
    """Pack outputs, int16 [heads, tokens, head_dim], as the kernel writes them.

    Returns
    -------
    array of uint8, flat, ``heads * shape.o_head_bytes(tokens)`` long
    """
    heads, tokens, d = outputs.shape
    flat = byte_buffer(out, heads * shape.o_head_bytes(tokens), "o")
    words = flat.view(np.int16).reshape(heads, shape.blocks(tokens), d, shape.block)
    _put_channels(words, outputs)
    return flat


def unpack_outputs(shape: PrefillShape, o_bytes: Bytes, tokens: int) -> npt.NDArray[np.int16]:
    """Return int16 [heads, tokens, head_dim] from what ``m_axi_o`` wrote."""
    words = o_bytes.view(np.int16)
    words = words.reshape(-1, shape.blocks(tokens), shape.head_dim, shape.block)
    blocks = np.ascontiguousarray(words.transpose(0, 1, 3, 2))
    return blocks.reshape(len(words), -1, shape.head_dim)[:, :tokens]


def _query_words(shape: PrefillShape, q_bytes: Bytes, tokens: int) -> Bytes:
    heads = q_bytes.size // shape.q_head_bytes(tokens)
    words = _contents(q_bytes, shape, heads, shape.q_block_bytes)
    return words.reshape(heads, -1, _RECORDS + shape.head_dim, shape.block)


def _contents(flat: Bytes, shape: PrefillShape, heads: int, block_bytes: int) -> Bytes:
    """View blocks without their check beats, uint8 [heads, blocks, bytes]."""
    return flat.reshape(heads, -1, block_bytes)[..., : -shape.beat_bytes]


def _seal(flat: Bytes, shape: PrefillShape, block_bytes: int, tag: int) -> None:
    """Write the check beats; the buffer was zero before."""
    words = flat.view(np.uint32).reshape(-1, block_bytes // 4)
    sums = words.sum(axis=1, dtype=np.uint32)
    words[:, -(shape.beat_bytes // 4)] = np.uint32(tag & 0xFFFFFFFF) - sums


def _put_rows(words: Bytes, values: Bytes) -> None:
    """Write one byte a token: words [heads, blocks, block], values [heads, tokens]."""
    tokens, block = values.shape[1], words.shape[2]
    whole = tokens // block
    words[:, :whole] = values[:, : whole * block].reshape(len(values), whole, block)
    if tokens % block:
        words[:, whole, : tokens % block] = values[:, whole * block :]


def _get_rows(words: Bytes, tokens: int) -> Bytes:
    return np.ascontiguousarray(words).reshape(len(words), -1)[:, :tokens]


def _put_channels(words: npt.NDArray[np.generic], x: npt.NDArray[np.generic]) -> None:
    """Write tokens as words of channels: words [heads, blocks, d, block], x [heads, tokens, d]."""
    heads, tokens, d = x.shape
    block = words.shape[3]
    words = words.view(x.dtype)
    whole = tokens // block
    words[:, :whole] = x[:, : whole * block].reshape(heads, whole, block, d).transpose(0, 1, 3, 2)
    if tokens % block:
        words[:, whole, :, : tokens % block] = x[:, whole * block :].transpose(0, 2, 1)


def _get_channels(words: Bytes, tokens: int) -> npt.NDArray[np.int8]:
    heads, _, d, _ = words.shape
    blocks = np.ascontiguousarray(words.transpose(0, 1, 3, 2)).view(np.int8)
    return blocks.reshape(heads, -1, d)[:, :tokens]
