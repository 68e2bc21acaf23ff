# SPDX-License-Identifier: Apache-2.0
"""Floats of the caller to int8 operands of the prefill engine, and back.

Keys are centred; queries, keys and values are rotated by a Hadamard matrix, and outputs back. That
changes nothing in exact arithmetic and spreads outliers over the channels (docs/prefill_engine.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import FloatArray
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.prefill_model import (
    EXPONENT_MAX,
    EXPONENT_MIN,
    K_SHIFT_MAX,
    MULTIPLIER_BITS,
    OUTPUT_FRACTION,
    V_SHIFT_MAX,
    PrefillOperands,
)

INT8_LIMIT = 127


@dataclass(frozen=True)
class QuantisedQueries:
    """Queries as the engine takes them, as in `PrefillOperands`: int8 and a multiplier a row."""

    q: npt.NDArray[np.int8]
    multiplier: IntArray
    exponent: IntArray


@dataclass(frozen=True)
class QuantisedKeysValues:
    """Keys and values as the engine takes them, as in `PrefillOperands`, with their scales.

    Attributes
    ----------
    k_scale, v_scale
        Float64 [kv_heads]. The first goes into the multipliers of the queries, the second turns
        outputs into floats.
    """

    k: npt.NDArray[np.int8]
    k_shift: IntArray
    v: npt.NDArray[np.int8]
    v_shift: IntArray
    k_scale: npt.NDArray[np.float64]
    v_scale: npt.NDArray[np.float64]


@dataclass(frozen=True)
class QuantisedPrompt:
    """Operands of the engine, and the v scale [kv_heads] that turns outputs into floats."""

    operands: PrefillOperands
    v_scale: npt.NDArray[np.float64]


def hadamard_rotate(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Multiply the last axis by an orthonormal Hadamard matrix (its own inverse).

    For a length that is not a power of two the matrix is block diagonal, with blocks of the
    largest power of two that divides it.
    """
    length = x.shape[-1]
    size = length & -length
    rotated = x.reshape(*x.shape[:-1], length // size, size)
    half = 1
    while half < size:
        pairs = rotated.reshape(*rotated.shape[:-1], size // (2 * half), 2, half)
        upper, lower = pairs[..., 0, :], pairs[..., 1, :]
        rotated = np.stack([upper + lower, upper - lower], axis=-2).reshape(rotated.shape)
        half *= 2
    result: npt.NDArray[np.float64] = (rotated / np.sqrt(size)).reshape(x.shape)
    return result


def _to_int8(
    values: npt.NDArray[np.float64], scale: npt.NDArray[np.float64]
) -> npt.NDArray[np.int8]:
    safe = np.where(scale > 0, scale, 1.0)
    result: npt.NDArray[np.int8] = np.clip(np.rint(values / safe), -INT8_LIMIT, INT8_LIMIT).astype(
        np.int8
    )
    return result


def _token_scales(
    x: npt.NDArray[np.float64], shift_max: int
) -> tuple[npt.NDArray[np.float64], IntArray, npt.NDArray[np.float64]]:
    """Return scale [heads], shift [heads, tokens] and step [heads, tokens]: scale 2**-shift.

    The shift is the largest at which the token's vector still fits int8.
    """
    peak = np.abs(x).max(axis=2)
    scale = peak.max(axis=1) / INT8_LIMIT
    scale = np.where(scale > 0, scale, 1.0)
    fitting = INT8_LIMIT * scale[:, np.newaxis] / np.where(peak > 0, peak, np.inf)
    shift = np.zeros(peak.shape, dtype=np.int64)
    for power in range(1, shift_max + 1):
        shift = np.where(fitting >= 1 << power, power, shift)
    return scale, shift, scale[:, np.newaxis] * np.exp2(-shift.astype(np.float64))


def quantise_keys_values(k: FloatArray, v: FloatArray) -> QuantisedKeysValues:
    """Quantise k and v [kv_heads, tokens, d] of a whole prompt; inputs must be finite."""
    keys = np.asarray(k, dtype=np.float64)
    keys = hadamard_rotate(keys - keys.mean(axis=1, keepdims=True))
    values = hadamard_rotate(np.asarray(v, dtype=np.float64))
    k_scale, k_shift, key_steps = _token_scales(keys, K_SHIFT_MAX)
    v_scale, v_shift, value_steps = _token_scales(values, V_SHIFT_MAX)
    return QuantisedKeysValues(
        k=_to_int8(keys, key_steps[..., np.newaxis]),
        k_shift=k_shift,
        v=_to_int8(values, value_steps[..., np.newaxis]),
        v_shift=v_shift,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def quantise_queries(q: FloatArray, k_scale: npt.NDArray[np.float64]) -> QuantisedQueries:
    """Quantise q [heads, tokens, d] for keys of the scales [kv_heads]; inputs must be finite.

    Scores are ``q . k / sqrt(d)``: a model with another softmax scale multiplies q beforehand.

    Raises
    ------
    ValueError
        If the scores of a row are beyond the multiplier's range (steps of 256 and more in log2
        units, far outside what a softmax can use).
    """
    heads, _, head_dim = q.shape
    queries = hadamard_rotate(np.asarray(q, dtype=np.float64))
    q_scale = np.abs(queries).max(axis=2) / INT8_LIMIT
    group_scale = np.repeat(k_scale, heads // len(k_scale))[:, np.newaxis]
    step = q_scale * group_scale / (np.sqrt(head_dim) * np.log(2.0))
    exponent = MULTIPLIER_BITS - np.frexp(step)[1].astype(np.int64)
    if np.any(exponent < EXPONENT_MIN):
        raise ValueError(
            f"a score step of {float(step.max()):.3g} in log2 units is out of range: allowed is "
            f"below {1 << (MULTIPLIER_BITS - EXPONENT_MIN)}; q or k is scaled wrongly"
        )
    exponent = np.clip(exponent, EXPONENT_MIN, EXPONENT_MAX)
    multiplier = np.minimum(np.rint(np.ldexp(step, exponent)), (1 << MULTIPLIER_BITS) - 1)
    return QuantisedQueries(
        q=_to_int8(queries, q_scale[..., np.newaxis]),
        multiplier=multiplier.astype(np.int64),
        exponent=exponent,
    )


def quantise_prompt(q: FloatArray, k: FloatArray, v: FloatArray) -> QuantisedPrompt:
    """Quantise q [heads, tokens, d] and k, v [kv_heads, tokens, d]; inputs must be finite.

    Raises
    ------
    ValueError
        As `quantise_queries`.
    """
    past = quantise_keys_values(k, v)
    queries = quantise_queries(q, past.k_scale)
    operands = PrefillOperands(
        q=queries.q,
        multiplier=queries.multiplier,
        exponent=queries.exponent,
        k=past.k,
        k_shift=past.k_shift,
        v=past.v,
        v_shift=past.v_shift,
    )
    return QuantisedPrompt(operands, past.v_scale)


def dequantise_attention(
    outputs: npt.NDArray[np.int16], v_scale: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return FP32 [heads, tokens, d] from the engine's outputs."""
    group = outputs.shape[0] // v_scale.shape[0]
    scale = np.repeat(np.ldexp(v_scale, -OUTPUT_FRACTION), group)[:, np.newaxis, np.newaxis]
    result: npt.NDArray[np.float32] = hadamard_rotate(outputs * scale).astype(np.float32)
    return result
