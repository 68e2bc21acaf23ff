# SPDX-License-Identifier: Apache-2.0
"""Bit-exact integer model of the decode kernel: the specification of ``rtl/decode``.

The recurrence is the reference form (decay first, then delta) with the rank-1 update deferred by
one token, so that the state is read once and written once a token::

    S = G * ((X >> s) + kp up^T)
    pass:    X <- sat(round(X >> s) + round(kp up^T));  r = X^T k;  w = X^T q
    finish:  r, w <- G g r, G g w;  dv = beta (v - r);  o = w + (q.k) dv
             G g = G' 2^-s';  up <- dv / G';  kp <- k

Formats, rounding and the packets that carry these values: docs/decode_engine.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastdelta.reference.fixed_point import (
    EXPONENT_MAX,
    EXPONENT_MIN,
    IntArray,
    rshift_round,
    saturate,
    wrap,
)
from fastdelta.reference.functions import ONE, Function, evaluate
from fastdelta.shapes import DecodeShape

STATE_BITS, STATE_FRACTION = 27, 21
SCALE_FRACTION = 24
UNIT_VECTOR_FRACTION, UNIT_VECTOR_LIMIT = 17, (1 << 17) - 1
UPDATE_BITS, UPDATE_FRACTION = 27, 21
ACCUMULATOR_BITS = 48
FINISH_BITS, FINISH_FRACTION = 32, 24
DOT_BITS, DOT_FRACTION = 25, 22
BETA_FRACTION = 17
GATE_FRACTION, B_FRACTION, DECAY_FRACTION = 20, 18, 24
OUTPUT_FRACTION = 24
SHIFT_GONE = 31
EPSILON = 1_099_512  # 1e-6 * 2**40, Qwen3-Next's epsilon of the L2 normalisation
EPSILON_FRACTION = 40
LOG2_E = 24_204_406  # log2(e) * 2**24
RATE_EXPONENT_MIN, RATE_EXPONENT_MAX = -32, 22
POWER_MAX = 40


@dataclass(frozen=True)
class InternalGates:
    """Gate inputs on the wire, each [tokens, value_heads].

    ``a``, ``dt_bias`` signed with 20 fraction bits; rate = exp(A_log) log2(e) =
    ``rate_mantissa * 2**(rate_exponent - 24)``; ``b`` signed 24 bits, 18 fraction bits.
    """

    a: IntArray
    dt_bias: IntArray
    rate_mantissa: IntArray
    rate_exponent: IntArray
    b: IntArray


@dataclass(frozen=True)
class GivenGates:
    """Gates computed by the host, each [tokens, value_heads].

    ``decay`` = -log2(g), unsigned, 24 fraction bits; ``beta`` 17 fraction bits, 0 to 2**17.
    """

    decay: IntArray
    beta: IntArray


@dataclass(frozen=True)
class DecodeTokens:
    """Wire values of tokens: mantissas int16, exponents int8.

    ``q``, ``k`` [tokens, qk_heads, d] with exponents [tokens, qk_heads]; ``v``
    [tokens, value_heads, d] with exponents [tokens, value_heads]. With ``normalised`` q and k
    are used as they are. ``gates`` decides whether the kernel computes decay and beta.
    """

    q: npt.NDArray[np.int16]
    k: npt.NDArray[np.int16]
    q_exponent: npt.NDArray[np.int8]
    k_exponent: npt.NDArray[np.int8]
    v: npt.NDArray[np.int16]
    v_exponent: npt.NDArray[np.int8]
    gates: InternalGates | GivenGates
    normalised: bool = False

    @property
    def count(self) -> int:
        """Number of tokens."""
        return int(self.q.shape[0])

    def slice(self, start: int, stop: int) -> DecodeTokens:
        """Return the tokens ``start`` to ``stop - 1``."""
        part = {name: getattr(self, name)[start:stop] for name in _TOKEN_ARRAYS}
        gates = type(self.gates)(**{n: a[start:stop] for n, a in vars(self.gates).items()})
        return DecodeTokens(**part, gates=gates, normalised=self.normalised)


_TOKEN_ARRAYS = ("q", "k", "q_exponent", "k_exponent", "v", "v_exponent")


@dataclass(frozen=True)
class StateImage:
    """State of one context as loaded and dumped, pending updates applied.

    ``mantissa`` int32 [value_heads, d_k, d_v] (27 bits, 21 fraction bits), ``scale`` int32
    [value_heads] (24 fraction bits, in (2**23, 2**24]); S = mantissa * scale * 2**-45.
    """

    mantissa: npt.NDArray[np.int32]
    scale: npt.NDArray[np.int32]

    def to_float(self) -> npt.NDArray[np.float64]:
        """Return S exactly, FP64 [value_heads, d_k, d_v], in units of the heads' value scale."""
        fraction = STATE_FRACTION + SCALE_FRACTION
        product = self.mantissa.astype(np.float64) * self.scale[:, np.newaxis, np.newaxis]
        return np.ldexp(product, -fraction)


@dataclass
class DecodeCounts:
    """Event counts of one command, as the kernel reports them."""

    saturations: int = 0
    norm_overflows: int = 0


class BadStateError(ValueError):
    """A loaded scale is outside (1/2, 1]; the kernel answers BAD_STATE."""


def _normalisation(
    mantissas: IntArray, exponent: IntArray, normalised: bool
) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Return R (24 fraction bits), power p and the overflow flag: unit vector = m R 2^-p."""
    squares = np.sum(mantissas * mantissas, axis=-1)
    exponent = np.clip(exponent, EXPONENT_MIN, EXPONENT_MAX)
    if normalised:
        power = np.clip(-exponent, 0, POWER_MAX)
        limit = np.int64(3) << np.minimum(2 * power, POWER_MAX)
        overflow = 2 * squares > limit
        return np.full_like(squares, ONE), power, overflow
    shift = EPSILON_FRACTION + 2 * exponent
    right = rshift_round(np.full_like(squares, EPSILON), np.clip(shift, 0, 62))
    left = np.int64(EPSILON) << np.maximum(-shift, 0)
    total = squares + np.where(shift >= 0, right, left)
    msb = np.zeros_like(total)
    for step in (32, 16, 8, 4, 2, 1):
        high = (total >> (msb + step)) > 0
        msb += np.where(high, step, 0)
    rest = total - (np.int64(1) << msb)
    argument = np.where(msb >= 24, rest >> np.maximum(msb - 24, 0), rest << np.maximum(24 - msb, 0))
    argument = np.where(total > 0, argument, 0)
    reciprocal_root = np.where(
        msb & 1, evaluate(Function.RSQRT_ODD, argument), evaluate(Function.RSQRT_EVEN, argument)
    )
    reciprocal_root = np.where(total > 0, reciprocal_root, 0)
    return reciprocal_root, msb >> 1, np.zeros(squares.shape, dtype=bool)


def unit_vector(mantissas: IntArray, root: IntArray, power: IntArray) -> IntArray:
    """Scale mantissas [..., d] to 18-bit unit vectors with 17 fraction bits."""
    product = mantissas * root[..., np.newaxis]
    scaled = rshift_round(product, (7 + power)[..., np.newaxis])
    result: IntArray = np.clip(scaled, -UNIT_VECTOR_LIMIT, UNIT_VECTOR_LIMIT)
    return result


def dot_product(
    q: IntArray, k: IntArray, q_scale: tuple[IntArray, IntArray], k_scale: tuple[IntArray, IntArray]
) -> IntArray:
    """q.k of the normalised vectors from the raw mantissas; 25 bits, 22 fraction bits."""
    raw = np.sum(q * k, axis=-1)
    (q_root, q_power), (k_root, k_power) = q_scale, k_scale
    partial = saturate(rshift_round(raw * q_root, q_power + 6), 38)[0]
    return saturate(rshift_round(partial * k_root, k_power + 20), DOT_BITS)[0]


def _exp2_negative(value: IntArray) -> IntArray:
    """2**-value for value >= 0 with 24 fraction bits; result 24 fraction bits."""
    integer = np.minimum(value >> DECAY_FRACTION, 62)
    return rshift_round(
        evaluate(Function.EXP2_NEGATIVE, value & (ONE - 1)), np.minimum(integer, 31)
    )


def decay_exponent(gates: InternalGates) -> IntArray:
    """-log2(g) = rate * softplus(a + dt_bias), unsigned 32 bits, 24 fraction bits."""
    x = saturate(gates.a + gates.dt_bias, 32)[0]
    magnitude = np.minimum(np.abs(x), (1 << 31) - 1)
    z = _exp2_negative(rshift_round(magnitude * LOG2_E, GATE_FRACTION))
    tail = evaluate(Function.LOG_ONE_PLUS, np.minimum(z, ONE - 1))
    softplus = (np.maximum(x, 0) << (SCALE_FRACTION - GATE_FRACTION)) + tail
    exponent = np.clip(gates.rate_exponent, RATE_EXPONENT_MIN, RATE_EXPONENT_MAX)
    product = rshift_round(gates.rate_mantissa * softplus, 24 - exponent)
    result: IntArray = np.minimum(product, (1 << 32) - 1)
    return result


def write_gate(b: IntArray) -> IntArray:
    """Sigmoid of b (18 fraction bits); result 17 fraction bits, 0 to 2**17."""
    magnitude = np.minimum(np.abs(b), (1 << 23) - 1)
    z = _exp2_negative(rshift_round(magnitude * LOG2_E, B_FRACTION))
    positive = evaluate(Function.RECIPROCAL_ONE_PLUS, np.minimum(z, ONE - 1))
    return rshift_round(np.where(b >= 0, positive, ONE - positive), SCALE_FRACTION - BETA_FRACTION)


def advance_scale(scale: IntArray, decay: IntArray) -> tuple[IntArray, IntArray]:
    """G g = G' 2**-s: return G' in (2**23, 2**24] and s in 0..31 (31: everything is gone)."""
    mantissa = evaluate(Function.EXP2_NEGATIVE, decay & (ONE - 1))
    product = scale * mantissa
    plain = rshift_round(product, SCALE_FRACTION)
    renormalise = plain <= ONE // 2
    doubled = np.minimum(rshift_round(product, SCALE_FRACTION - 1), ONE)
    shift = np.minimum(decay >> DECAY_FRACTION, SHIFT_GONE) + renormalise
    return np.where(renormalise, doubled, plain), np.minimum(shift, SHIFT_GONE)


def reciprocal_scale(scale: IntArray) -> IntArray:
    """1 / G for G in (2**23, 2**24]; 24 fraction bits, in [2**24, 2**25)."""
    argument = np.minimum((scale - ONE // 2) * 2, ONE - 1)
    return 2 * evaluate(Function.RECIPROCAL_ONE_PLUS, argument)


def align_value(mantissas: IntArray, exponent: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Bring v mantissas [..., d] to 32 bits with 24 fraction bits; say which were clamped."""
    shift = FINISH_FRACTION + np.clip(exponent, EXPONENT_MIN, EXPONENT_MAX)[..., np.newaxis]
    left = mantissas << np.clip(shift, 0, 31)
    right = rshift_round(mantissas, np.maximum(-shift, 0))
    return saturate(np.where(shift >= 0, left, right), FINISH_BITS)


@dataclass
class _Context:
    """Resident state of one context, every value head."""

    x: IntArray
    scale: IntArray
    shift: IntArray
    pending_k: IntArray
    pending_update: IntArray


@dataclass
class DecodeModel:
    """State of a decode kernel: contexts and the four commands on them."""

    shape: DecodeShape
    _contexts: list[_Context] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._contexts = [self._empty() for _ in range(self.shape.contexts)]

    def _empty(self) -> _Context:
        heads, d = self.shape.value_heads, self.shape.head_dim
        return _Context(
            x=np.zeros((heads, d, d), dtype=np.int64),
            scale=np.full(heads, ONE, dtype=np.int64),
            shift=np.full(heads, SHIFT_GONE, dtype=np.int64),
            pending_k=np.zeros((self.shape.qk_heads, d), dtype=np.int64),
            pending_update=np.zeros((heads, d), dtype=np.int64),
        )

    def clear(self, context: int = 0) -> None:
        """Forget the context's state."""
        self._contexts[context] = self._empty()

    def load(self, image: StateImage, context: int = 0) -> DecodeCounts:
        """Replace the context's state.

        Raises
        ------
        BadStateError
            If a scale is outside (2**23, 2**24]; the context is lost (left cleared here).
        """
        self.clear(context)
        scale = image.scale.astype(np.int64)
        if np.any((scale <= ONE // 2) | (scale > ONE)):
            raise BadStateError(f"scale must be in ({ONE // 2}, {ONE}]")
        x, clamped = saturate(image.mantissa.astype(np.int64), STATE_BITS)
        state = self._contexts[context]
        state.x, state.scale = x, scale
        state.shift = np.zeros_like(scale)
        words = self.shape.bus_width // 32
        padding = -self.shape.head_dim % words
        beats = np.pad(clamped, ((0, 0), (0, 0), (0, padding))).reshape(*x.shape[:2], -1, words)
        return DecodeCounts(saturations=int(np.count_nonzero(beats.any(axis=-1))))

    def dump(self, context: int = 0) -> tuple[StateImage, DecodeCounts]:
        """Apply pending updates and return the state."""
        state = self._contexts[context]
        counts = DecodeCounts()
        self._apply_pending(state, counts)
        state.shift = np.zeros_like(state.shift)
        state.pending_update = np.zeros_like(state.pending_update)
        return StateImage(state.x.astype(np.int32), state.scale.astype(np.int32)), counts

    def _apply_pending(self, state: _Context, counts: DecodeCounts) -> None:
        pending_k = np.repeat(state.pending_k, self.shape.group_ratio, axis=0)
        shift = state.shift[:, np.newaxis, np.newaxis]
        kept = np.where(shift == SHIFT_GONE, 0, rshift_round(state.x, shift))
        update = rshift_round(
            pending_k[:, :, np.newaxis] * state.pending_update[:, np.newaxis, :],
            UNIT_VECTOR_FRACTION + UPDATE_FRACTION - STATE_FRACTION,
        )
        state.x, clamped = saturate(kept + update, STATE_BITS)
        counts.saturations += int(np.count_nonzero(clamped.any(axis=-1)))

    def decode(
        self, tokens: DecodeTokens, context: int = 0
    ) -> tuple[npt.NDArray[np.int32], DecodeCounts]:
        """Run tokens through the context's state.

        Returns
        -------
        o, counts
            int32 [tokens, value_heads, d], o * sqrt(d) with 24 fraction bits in units of the
            heads' value scale; and the event counts.
        """
        shape, state, counts = self.shape, self._contexts[context], DecodeCounts()
        output = np.zeros((tokens.count, shape.value_heads, shape.head_dim), dtype=np.int32)
        if tokens.count == 0:
            return output, counts
        q, k, v = (array.astype(np.int64) for array in (tokens.q, tokens.k, tokens.v))
        q_root, q_power, q_over = _normalisation(
            q, tokens.q_exponent.astype(np.int64), tokens.normalised
        )
        k_root, k_power, k_over = _normalisation(
            k, tokens.k_exponent.astype(np.int64), tokens.normalised
        )
        counts.norm_overflows = int(np.count_nonzero(q_over) + np.count_nonzero(k_over))
        q_unit, k_unit = unit_vector(q, q_root, q_power), unit_vector(k, k_root, k_power)
        dots = dot_product(q, k, (q_root, q_power), (k_root, k_power))
        if isinstance(tokens.gates, GivenGates):
            decay, beta = tokens.gates.decay, np.minimum(tokens.gates.beta, 1 << BETA_FRACTION)
        else:
            decay, beta = decay_exponent(tokens.gates), write_gate(tokens.gates.b)
        values, value_clamped = align_value(v, tokens.v_exponent.astype(np.int64))
        for token in range(tokens.count):
            output[token] = self._step(
                state,
                q_unit[token],
                k_unit[token],
                dots[token],
                decay[token],
                beta[token],
                values[token],
                value_clamped[token],
                counts,
            )
        return output, counts

    def _step(
        self,
        state: _Context,
        q: IntArray,
        k: IntArray,
        dot: IntArray,
        decay: IntArray,
        beta: IntArray,
        value: IntArray,
        clamped: npt.NDArray[np.bool_],
        counts: DecodeCounts,
    ) -> npt.NDArray[np.int32]:
        ratio = self.shape.group_ratio
        self._apply_pending(state, counts)
        q_heads, k_heads = np.repeat(q, ratio, axis=0), np.repeat(k, ratio, axis=0)
        r_sum = wrap(np.einsum("hij,hi->hj", state.x, k_heads), ACCUMULATOR_BITS)
        w_sum = wrap(np.einsum("hij,hi->hj", state.x, q_heads), ACCUMULATOR_BITS)
        state.scale, state.shift = advance_scale(state.scale, decay)
        drop = STATE_FRACTION + UNIT_VECTOR_FRACTION - FINISH_FRACTION
        r, r_clamped = saturate(rshift_round(r_sum, drop), FINISH_BITS)
        w, w_clamped = saturate(rshift_round(w_sum, drop), FINISH_BITS)
        scale, shift = state.scale[:, np.newaxis], state.shift[:, np.newaxis]
        r = rshift_round(r * scale, SCALE_FRACTION + shift)
        w = rshift_round(w * scale, SCALE_FRACTION + shift)
        delta = rshift_round((value - r) * beta[:, np.newaxis], BETA_FRACTION)
        inverse = reciprocal_scale(state.scale)[:, np.newaxis]
        update_shift = FINISH_FRACTION + SCALE_FRACTION - UPDATE_FRACTION
        update, update_clamped = saturate(rshift_round(delta * inverse, update_shift), UPDATE_BITS)
        dots = np.repeat(dot, ratio)[:, np.newaxis]
        o, o_clamped = saturate(w + rshift_round(delta * dots, DOT_FRACTION), FINISH_BITS)
        state.pending_update, state.pending_k = update, k
        any_clamped = clamped | r_clamped | w_clamped | update_clamped | o_clamped
        counts.saturations += int(np.count_nonzero(any_clamped))
        return o.astype(np.int32)
