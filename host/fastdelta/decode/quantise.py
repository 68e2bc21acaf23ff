# SPDX-License-Identifier: Apache-2.0
"""Floats of the caller to wire values of the decode kernel, and back.

Vectors become int16 mantissas with one power-of-two exponent each; the state and the output are
in units of a value scale ``2**value_exponent`` per head (docs/decode_engine.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import FloatArray
from fastdelta.reference.decode_model import (
    B_FRACTION,
    BETA_FRACTION,
    DECAY_FRACTION,
    GATE_FRACTION,
    OUTPUT_FRACTION,
    RATE_EXPONENT_MAX,
    RATE_EXPONENT_MIN,
    STATE_BITS,
    STATE_FRACTION,
    DecodeTokens,
    GivenGates,
    InternalGates,
    StateImage,
)
from fastdelta.reference.fixed_point import IntArray, block_float
from fastdelta.reference.functions import ONE
from fastdelta.shapes import DecodeShape

LOG2_E = float(1.0 / np.log(2.0))


def _fixed(values: FloatArray, fraction: int, low: int, high: int) -> IntArray:
    """Round to ``fraction`` bits and clamp to [low, high]."""
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), fraction))
    result: IntArray = np.clip(scaled, low, high).astype(np.int64)
    return result


@dataclass(frozen=True)
class GateConstants:
    """Per-layer gate constants on the wire, each int64 [value_heads]."""

    dt_bias: IntArray
    rate_mantissa: IntArray
    rate_exponent: IntArray

    @classmethod
    def from_float(cls, a_log: FloatArray, dt_bias: FloatArray) -> GateConstants:
        """Quantise ``A_log`` and ``dt_bias``, float [value_heads].

        Raises
        ------
        ValueError
            If exp(A_log) is above 2**21 (the decay would be total anyway).
        """
        rate = np.exp(np.asarray(a_log, dtype=np.float64)) * LOG2_E
        fraction, exponent = np.frexp(rate)
        mantissa = np.rint(np.ldexp(fraction, 24)).astype(np.int64)
        carry = mantissa == ONE
        mantissa, exponent = np.where(carry, ONE // 2, mantissa), exponent + carry
        if np.any(exponent > RATE_EXPONENT_MAX):
            raise ValueError(
                f"a_log up to {float(np.max(a_log)):.3g}: exp(a_log) must be below 2**21"
            )
        tiny = exponent < RATE_EXPONENT_MIN
        return cls(
            dt_bias=_fixed(dt_bias, GATE_FRACTION, -(1 << 31), (1 << 31) - 1),
            rate_mantissa=np.where(tiny, 0, mantissa),
            rate_exponent=np.where(tiny, 0, exponent).astype(np.int64),
        )

    @cached_property
    def record_words(self) -> npt.NDArray[np.uint32]:
        """The second and third word of the record of a v packet, [value_heads, 2]."""
        rate = self.rate_mantissa | (self.rate_exponent & 0xFF) << 24
        words: IntArray = np.stack([self.dt_bias, rate], axis=-1) & 0xFFFFFFFF
        return words.astype(np.uint32)


def quantise_internal_gates(
    a: FloatArray, b: FloatArray, constants: GateConstants
) -> InternalGates:
    """Raw gate inputs, float [tokens, value_heads], for gates computed by the kernel.

    Values outside the wire range (|a| >= 2048, |b| >= 32) saturate the gates and are clamped.
    """
    shape = a.shape
    return InternalGates(
        a=_fixed(a, GATE_FRACTION, -(1 << 31), (1 << 31) - 1),
        dt_bias=np.broadcast_to(constants.dt_bias, shape),
        rate_mantissa=np.broadcast_to(constants.rate_mantissa, shape),
        rate_exponent=np.broadcast_to(constants.rate_exponent, shape),
        b=_fixed(b, B_FRACTION, -(1 << 23), (1 << 23) - 1),
    )


def quantise_given_gates(log_decay: FloatArray, beta: FloatArray) -> GivenGates:
    """Gates of the caller: natural log of the decay (<= 0) and beta in [0, 1]."""
    exponent = np.asarray(log_decay, dtype=np.float64) * -LOG2_E
    return GivenGates(
        decay=_fixed(exponent, DECAY_FRACTION, 0, (1 << 32) - 1),
        beta=_fixed(beta, BETA_FRACTION, 0, 1 << BETA_FRACTION),
    )


def quantise_tokens(
    q: FloatArray,
    k: FloatArray,
    v: FloatArray,
    gates: InternalGates | GivenGates,
    *,
    normalised: bool = False,
    value_exponent: int | npt.NDArray[np.int64] = 0,
) -> DecodeTokens:
    """Quantise q, k [tokens, qk_heads, d] and v [tokens, value_heads, d]; inputs must be finite."""
    q_mantissa, q_exponent = block_float(q)
    k_mantissa, k_exponent = block_float(k)
    scaled_v = np.ldexp(v, -np.asarray(value_exponent)[..., np.newaxis])
    v_mantissa, v_exponent = block_float(scaled_v)
    return DecodeTokens(
        q=q_mantissa,
        k=k_mantissa,
        q_exponent=q_exponent,
        k_exponent=k_exponent,
        v=v_mantissa,
        v_exponent=v_exponent,
        gates=gates,
        normalised=normalised,
    )


def dequantise_output(
    shape: DecodeShape,
    output: npt.NDArray[np.int32],
    *,
    value_exponent: int | npt.NDArray[np.int64] = 0,
) -> npt.NDArray[np.float32]:
    """Return o, FP32 [tokens, value_heads, d], the 1/sqrt(d) of the attention scale included."""
    result: npt.NDArray[np.float32] = (output * output_scale(shape, value_exponent)).astype(
        np.float32
    )
    return result


def output_scale(
    shape: DecodeShape, value_exponent: int | npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return what the kernel's output words are multiples of, [1] or [value_heads, 1]."""
    exponent = np.asarray(value_exponent) - OUTPUT_FRACTION
    scale: npt.NDArray[np.float64] = np.ldexp(1.0 / np.sqrt(shape.head_dim), exponent)
    return scale[..., np.newaxis]


def quantise_state(
    state: FloatArray, *, value_exponent: int | npt.NDArray[np.int64] = 0
) -> StateImage:
    """Quantise S [value_heads, d_k, d_v] with scale 1.

    Raises
    ------
    ValueError
        If an element does not fit: |S| < 32 in units of the value scale.
    """
    exponent = np.asarray(value_exponent)[..., np.newaxis, np.newaxis]
    mantissa = np.rint(np.ldexp(np.asarray(state, dtype=np.float64), STATE_FRACTION - exponent))
    limit = (1 << (STATE_BITS - 1)) - 1
    if np.any(np.abs(mantissa) > limit):
        peak = float(np.max(np.abs(state)))
        raise ValueError(
            f"state element of magnitude {peak:.4g} does not fit: allowed is below 32 in units of "
            f"the head's value scale; open the accelerator with a larger value_exponent"
        )
    heads = mantissa.shape[0]
    return StateImage(mantissa.astype(np.int32), np.full(heads, ONE, dtype=np.int32))
