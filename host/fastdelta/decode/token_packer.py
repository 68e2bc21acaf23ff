# SPDX-License-Identifier: Apache-2.0
"""Floats of the caller straight into packets of the decode kernel, in few passes.

Equal to the bit to `fastdelta.decode.packing.pack_tokens` of
`fastdelta.decode.quantise.quantise_tokens`, which say what the bytes mean. A call for one token is
dominated by the number of numpy calls, so q, k and v are one array from their check on, and all
memory for it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, FloatArray
from fastdelta.decode.quantise import LOG2_E, GateConstants
from fastdelta.reference.decode_model import (
    B_FRACTION,
    BETA_FRACTION,
    DECAY_FRACTION,
    GATE_FRACTION,
)
from fastdelta.reference.fixed_point import EXPONENT_MAX, EXPONENT_MIN, MANTISSA_LIMIT
from fastdelta.shapes import DecodeShape

TOKENS_AT_ONCE = 8
"""Tokens that are worked on together, so that the memory for it stays in the cache."""

_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_FLOAT64: np.dtype[Any] = np.dtype(np.float64)
_MANTISSA_BITS = 15
_CLAMPED_FROM = (MANTISSA_LIMIT + 0.5) / (MANTISSA_LIMIT + 1)
"""Fraction of a peak, as frexp gives it, from which its mantissa rounds to MANTISSA_LIMIT + 1."""

# Exponent of a vector and the factor that makes mantissas, by the exponent that frexp gives for
# its peak; that of the smallest number is -1073, and negative ones count from the end.
_PEAK_EXPONENTS = np.concatenate((np.arange(2048), np.arange(-2048, 0)))
_LOW_EXPONENTS = np.clip(_PEAK_EXPONENTS - _MANTISSA_BITS, EXPONENT_MIN, EXPONENT_MAX)
_EXPONENTS = _LOW_EXPONENTS.astype(np.int8)
_FACTORS: dict[np.dtype[Any], FloatArray] = {
    dtype: np.ldexp(np.ones(1, dtype), -_LOW_EXPONENTS) for dtype in (_FLOAT32, _FLOAT64)
}


@dataclass(frozen=True, eq=False)
class _GateFormat:
    """Factors and ranges of the two fixed-point gate words of a record, each [2, 1].

    ``safe`` is a magnitude up to which no word leaves its range.
    """

    factor: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    safe: float

    @classmethod
    def of(cls, *words: tuple[float, float, float], safe: float) -> _GateFormat:
        factor, low, high = np.array(words).T[..., np.newaxis]
        return cls(factor, low, high, safe)


_INTERNAL = _GateFormat.of(
    (2.0**GATE_FRACTION, -(2.0**31), 2.0**31 - 1),
    (2.0**B_FRACTION, -(2.0**23), 2.0**23 - 1),
    safe=2.0**23 - 1,
)
_GIVEN = _GateFormat.of(
    (-LOG2_E * 2.0**DECAY_FRACTION, 0.0, 2.0**32 - 1),
    (2.0**BETA_FRACTION, 0.0, 2.0**BETA_FRACTION),
    safe=2.0**BETA_FRACTION,
)


@dataclass(frozen=True, eq=False)
class PacketViews:
    """Fields of the packets of some tokens, as views of the buffers that hold them.

    ``qk`` int16 [tokens, 2, qk_heads, beats, pairs]; ``qk_exponent`` int8 [tokens, 2, qk_heads];
    ``v`` int16 [tokens, value_heads, d]; ``record`` uint32 [tokens, value_heads, 4], whose last
    byte is ``v_exponent``, int8 [tokens, value_heads]; ``raw_gates`` int32 and ``given_gates``
    uint32 [tokens, 2, value_heads], the words of the record for the one and the other kind.
    """

    qk: npt.NDArray[np.int16]
    qk_exponent: npt.NDArray[np.int8]
    v: npt.NDArray[np.int16]
    v_exponent: npt.NDArray[np.int8]
    record: npt.NDArray[np.uint32]
    raw_gates: npt.NDArray[np.int32]
    given_gates: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, shape: DecodeShape, qk_bytes: Bytes, v_bytes: Bytes) -> PacketViews:
        """View flat buffers of whole tokens, and set them to zero; padding stays so."""
        qk_bytes[:] = 0
        v_bytes[:] = 0
        count, d = qk_bytes.size // shape.qk_token_bytes, shape.head_dim
        pairs = shape.beat_bytes // 4
        beats = shape.qk_packet_beats - 1
        assert beats * pairs == d, "a multiple of 16 channels fills beats of 4, 8 or 16 pairs"
        qk = qk_bytes.reshape(count, shape.qk_heads, shape.qk_packet_beats, shape.beat_bytes)
        halves = qk[:, :, 1:].view(np.int16).reshape(count, shape.qk_heads, beats, 2, pairs)
        v = v_bytes.reshape(count, shape.value_heads, shape.v_packet_beats, shape.beat_bytes)
        body = v[:, :, 1:].view(np.int16)
        body = body.reshape(count, shape.value_heads, (shape.v_packet_beats - 1) * 2 * pairs)
        record = v[:, :, 0, :16]
        return cls(
            qk=halves.transpose(0, 3, 1, 2, 4),
            qk_exponent=qk[:, :, 0, :2].view(np.int8).transpose(0, 2, 1),
            v=body[:, :, :d],
            v_exponent=v[:, :, 0, 15].view(np.int8),
            record=record.view(np.uint32),
            raw_gates=record.view(np.int32)[:, :, ::3].transpose(0, 2, 1),
            given_gates=record.view(np.uint32)[:, :, :2].transpose(0, 2, 1),
        )

    def slice(self, start: int, stop: int) -> PacketViews:
        """Return the fields of some of the tokens."""
        return PacketViews(*(getattr(self, name)[start:stop] for name in self.__dataclass_fields__))


class _Scratch:
    """Memory for some tokens of one float type, and views of its parts."""

    def __init__(self, shape: DecodeShape, count: int, dtype: np.dtype[Any]) -> None:
        qk, heads, d = 2 * shape.qk_heads, 2 * shape.qk_heads + shape.value_heads, shape.head_dim
        pairs = shape.beat_bytes // 4
        self.vectors: FloatArray = np.empty((count, heads, d), dtype)
        self.gates: npt.NDArray[np.float64] = np.empty((count, 2 * shape.value_heads))
        # The same without the axis of tokens.
        self.single = (self.vectors[0], self.gates[0])
        self.words = self.gates.reshape(count, 2, shape.value_heads)
        self.gate_magnitudes = np.empty_like(self.words)
        # |x| for the peaks, and later the mantissas
        self.magnitudes: FloatArray = np.empty_like(self.vectors)
        beats = self.magnitudes.reshape(count, heads, d // pairs, pairs)
        self.qk = beats[:, :qk].reshape(count, 2, shape.qk_heads, d // pairs, pairs)
        self.v = self.magnitudes[:, qk:]
        self.peaks: FloatArray = np.empty((count, heads), dtype)
        self.v_peaks = self.peaks[:, qk:]
        self.fractions = np.empty_like(self.peaks)
        self.peak_exponents: npt.NDArray[np.int32] = np.empty((count, heads), np.int32)
        self.exponents: npt.NDArray[np.int8] = np.empty((count, heads), np.int8)
        self.qk_exponents = self.exponents[:, :qk].reshape(count, 2, shape.qk_heads)
        self.v_exponents = self.exponents[:, qk:]
        self.factors: FloatArray = np.empty((count, heads, 1), dtype)
        self.flat_factors = self.factors.reshape(count, heads)
        self.v_factors = self.flat_factors[:, qk:]
        self.table = _FACTORS[dtype]


class TokenPacker:
    """Quantises and packs tokens of one shape; it is not for several threads at once.

    Parameters
    ----------
    shape : DecodeShape
        Parameters of the kernel.
    """

    def __init__(self, shape: DecodeShape) -> None:
        self._shape = shape
        self._scratch: dict[tuple[int, np.dtype[Any]], _Scratch] = {}
        self._loaded: _Scratch | None = None
        self._gates_in_range = False

    def load(
        self,
        vectors: tuple[FloatArray, FloatArray, FloatArray],
        gates: tuple[FloatArray, FloatArray],
        *,
        given_gates: bool = False,
        value_exponent: int | npt.NDArray[np.int64] = 0,
    ) -> tuple[float, bool]:
        """Copy up to `TOKENS_AT_ONCE` tokens, and look at their range.

        Parameters
        ----------
        vectors
            q, k and v, float32 or float64, [tokens, heads, d], or [heads, d] for one token.
        gates
            Two arrays [tokens, value_heads] or [value_heads].
        given_gates : bool
            They are the logarithm of the decay and beta, not a and b.
        value_exponent : int or array [value_heads]
            Power of two of v's unit.

        Returns
        -------
        peak : float
            Largest magnitude, of v in its unit; NaN if there is a NaN.
        finite : bool
            Whether the gates are.
        """
        q, k, v = vectors
        single = q.ndim == 2
        count = 1 if single else len(q)
        dtype = _FLOAT32
        if q.dtype != dtype or k.dtype != dtype or v.dtype != dtype:
            dtype = _FLOAT64
        scratch = self._scratch.get((count, dtype))
        if scratch is None:
            scratch = self._scratch[count, dtype] = _Scratch(self._shape, count, dtype)
        self._loaded = scratch
        into = scratch.single if single else (scratch.vectors, scratch.gates)
        np.concatenate(vectors, axis=-2, out=into[0])
        np.concatenate(gates, axis=-1, out=into[1])

        np.abs(scratch.vectors, out=scratch.magnitudes)
        np.maximum.reduce(scratch.magnitudes, axis=-1, out=scratch.peaks)  # passes a NaN on
        if not (isinstance(value_exponent, int) and value_exponent == 0):
            with np.errstate(over="ignore", under="ignore"):
                np.ldexp(scratch.v_peaks, -np.asarray(value_exponent), out=scratch.v_peaks)
        gate_format = _GIVEN if given_gates else _INTERNAL
        with_factor = np.multiply(scratch.words, gate_format.factor, out=scratch.words)
        np.abs(with_factor, out=scratch.gate_magnitudes)
        largest = float(scratch.gate_magnitudes.max())
        self._gates_in_range = largest <= gate_format.safe
        return float(scratch.peaks.max()), largest < np.inf

    def store(
        self,
        packets: PacketViews,
        constants: GateConstants | None,
        *,
        value_exponent: int | npt.NDArray[np.int64] = 0,
    ) -> None:
        """Write the tokens that were loaded last; they are gone then.

        Parameters
        ----------
        packets : PacketViews
            Of as many tokens.
        constants : GateConstants, optional
            For gates computed by the kernel; None: the gates were given.
        value_exponent
            As for `load`.
        """
        scratch, self._loaded = self._loaded, None
        assert scratch is not None, "each store needs its load"

        fixed = scratch.words
        np.rint(fixed, out=fixed)
        if not self._gates_in_range:
            gate_format = _GIVEN if constants is None else _INTERNAL
            np.maximum(fixed, gate_format.low, out=fixed)
            np.minimum(fixed, gate_format.high, out=fixed)
        if constants is None:
            np.copyto(packets.given_gates, fixed, casting="unsafe")
            packets.record[..., 2:] = 0
        else:
            np.copyto(packets.raw_gates, fixed, casting="unsafe")
            packets.record[..., 1:3] = constants.record_words

        np.frexp(scratch.peaks, out=(scratch.fractions, scratch.peak_exponents))
        _EXPONENTS.take(scratch.peak_exponents, out=scratch.exponents, mode="wrap")
        packets.qk_exponent[:] = scratch.qk_exponents
        packets.v_exponent[:] = scratch.v_exponents  # over the sign of b in the record
        scratch.table.take(scratch.peak_exponents, out=scratch.flat_factors, mode="wrap")
        if not (isinstance(value_exponent, int) and value_exponent == 0):
            unit = -np.asarray(value_exponent)
            np.ldexp(scratch.v_factors, unit, out=scratch.v_factors)
        mantissas = scratch.magnitudes
        np.multiply(scratch.vectors, scratch.factors, out=mantissas)
        np.rint(mantissas, out=mantissas)
        if scratch.fractions.max() >= _CLAMPED_FROM:
            mantissas.clip(-MANTISSA_LIMIT, MANTISSA_LIMIT, out=mantissas)
        np.copyto(packets.qk, scratch.qk, casting="unsafe")
        np.copyto(packets.v, scratch.v, casting="unsafe")
