# SPDX-License-Identifier: Apache-2.0
"""Fixed-point primitives shared by the bit-exact models; each mirrors one idiom of the RTL."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

MANTISSA_LIMIT = 32767
EXPONENT_MIN = -40
EXPONENT_MAX = 23


def rshift_round(value: IntArray, shift: int | IntArray) -> IntArray:
    """Shift right by ``shift`` >= 0 bits, rounding to nearest, ties towards plus infinity.

    ``(value + 2**(shift-1)) >> shift``; a shift of 0 returns the value. Shifts must be below 63
    and ``value + 2**(shift-1)`` must fit 64 bits, as it must in the RTL.
    """
    count = np.asarray(shift, dtype=np.int64)
    half = np.where(count > 0, np.int64(1) << np.maximum(count - 1, 0), np.int64(0))
    result: IntArray = (value + half) >> count
    return result


def saturate(value: IntArray, bits: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Clamp to ``bits``-bit two's complement; also say which elements were clamped."""
    limit = (1 << (bits - 1)) - 1
    clamped: IntArray = np.clip(value, -limit - 1, limit)
    return clamped, clamped != value


def wrap(value: IntArray, bits: int) -> IntArray:
    """Keep the low ``bits`` bits as two's complement, as an adder of that width does."""
    shift = 64 - bits
    result: IntArray = (value << shift) >> shift
    return result


def block_float(
    values: npt.NDArray[np.floating[Any]],
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int8]]:
    """Quantise vectors to int16 mantissas with one power-of-two exponent each.

    Parameters
    ----------
    values
        Finite floats, shape [..., d], magnitude below 2**38.

    Returns
    -------
    mantissas, exponents
        int16 [..., d] and int8 [...], ``values ~ mantissas * 2**exponents``; rounding to
        nearest even, exponent the smallest that holds the largest magnitude, at least -40.

    Raises
    ------
    ValueError
        If a magnitude needs an exponent above 23.
    """
    peak = np.max(np.abs(values), axis=-1)
    exponent = np.frexp(peak)[1] - 15
    if np.any(exponent > EXPONENT_MAX):
        raise ValueError(
            f"magnitude {float(np.max(peak)):.3g} is too large for the wire format: "
            f"allowed is below 2**{EXPONENT_MAX + 15}; scale the input down"
        )
    exponent = np.maximum(exponent, EXPONENT_MIN)
    scaled = np.rint(np.ldexp(values, -exponent[..., np.newaxis]))
    mantissas = np.clip(scaled, -MANTISSA_LIMIT, MANTISSA_LIMIT).astype(np.int16)
    return mantissas, exponent.astype(np.int8)
