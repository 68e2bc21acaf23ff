# SPDX-License-Identifier: Apache-2.0
"""Random wire values for the decode engine, typical and extreme, without a simulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes
from fastdelta.decode.packing import pack_state, pack_tokens
from fastdelta.decode.quantise import (
    GateConstants,
    quantise_given_gates,
    quantise_internal_gates,
    quantise_tokens,
)
from fastdelta.reference.decode_model import (
    SCALE_FRACTION,
    DecodeTokens,
    GivenGates,
    InternalGates,
    StateImage,
)
from fastdelta.shapes import DecodeShape

Exponents = npt.NDArray[np.int8]
Mantissas = npt.NDArray[np.int16]

# Vectors of extreme tokens: each kind is a corner of a format.
VECTOR_KINDS = ("uniform", "zero", "one_hot", "most_positive", "most_negative", "tiny")
# Typical decays per token, from a state that hardly fades to one that is gone at once.
DECAYS = {"weak": 0.999, "medium": 0.9, "strong": 0.05, "tiny": 6.5e-12}
TOTAL_DECAY = 0xFFFF_FFFF  # -log2(g) with all bits set: g = 0
BETA_ONE = 1 << 17


@dataclass
class DecodeStimulus:
    """Source of random tokens and states for one shape.

    Attributes
    ----------
    shape
        Shape of the kernel.
    rng
        Source of randomness.
    """

    shape: DecodeShape
    rng: np.random.Generator

    def typical(
        self,
        count: int,
        *,
        normalised: bool = False,
        given_gates: bool = False,
        decay: str | None = None,
    ) -> DecodeTokens:
        """Return tokens as a language model makes them.

        Parameters
        ----------
        count
            Number of tokens.
        normalised, given_gates
            Whether q and k are normalised and gates computed here, for the bypasses.
        decay
            Key of :data:`DECAYS`; None takes one at random for each head.
        """
        shape, rng = self.shape, self.rng
        q, k = rng.normal(size=(2, count, shape.qk_heads, shape.head_dim))
        if normalised:
            q /= np.linalg.norm(q, axis=-1, keepdims=True)
            k /= np.linalg.norm(k, axis=-1, keepdims=True)
        v = rng.normal(size=(count, shape.value_heads, shape.head_dim))
        gates = self.gates(count, given=given_gates, decay=decay)
        return quantise_tokens(q, k, v, gates, normalised=normalised)

    def gates(
        self, count: int, *, given: bool, decay: str | None = None
    ) -> InternalGates | GivenGates:
        """Return gates [count, value_heads] with random beta and the asked decay."""
        shape, rng = self.shape, self.rng
        size = (count, shape.value_heads)
        names = [decay] if decay else list(DECAYS)
        per_head = rng.choice([DECAYS[name] for name in names], size=shape.value_heads)
        # Around the head's decay: log g varies by a factor of two from token to token.
        log_decay = np.log(per_head) * rng.uniform(0.7, 1.4, size=size)
        b = rng.normal(scale=2.0, size=size)
        if given:
            return quantise_given_gates(log_decay, 1 / (1 + np.exp(-b)))
        # rate * softplus(a) = -log g with rate exp(a_log): solve for a.
        a_log = rng.uniform(0.0, 3.0, size=shape.value_heads)
        softplus = -log_decay / np.exp(a_log)
        a = np.where(softplus > 30, softplus, np.log(np.expm1(np.minimum(softplus, 30))))
        dt_bias = rng.normal(size=shape.value_heads)
        return quantise_internal_gates(a - dt_bias, b, GateConstants.from_float(a_log, dt_bias))

    def extreme(
        self, count: int, *, normalised: bool = False, given_gates: bool = False
    ) -> DecodeTokens:
        """Return tokens at the corners of the formats, every bit pattern that the wire allows."""
        shape = self.shape
        q, k = (self._vectors(count, shape.qk_heads) for _ in range(2))
        v = self._vectors(count, shape.value_heads)
        q_exponent, k_exponent, v_exponent = (
            self._exponents((count, heads))
            for heads in (shape.qk_heads, shape.qk_heads, shape.value_heads)
        )
        size = (count, shape.value_heads)
        gates: InternalGates | GivenGates
        if given_gates:
            gates = GivenGates(
                decay=self._pick(
                    size, [0, 1, (1 << 24) - 1, 1 << 24, 31 << 24, TOTAL_DECAY], 0, 1 << 32
                ),
                beta=self._pick(size, [0, 1, BETA_ONE - 1, BETA_ONE, (1 << 18) - 1], 0, 1 << 18),
            )
        else:
            wide = [-(1 << 31), (1 << 31) - 1, 0, -1, 1]
            gates = InternalGates(
                a=self._pick(size, wide, -(1 << 24), 1 << 24),
                dt_bias=self._pick(size, wide, -(1 << 24), 1 << 24),
                rate_mantissa=self._pick(size, [0, 1, (1 << 24) - 1], 1 << 23, 1 << 24),
                rate_exponent=self._pick(size, [-128, -32, 22, 127], -8, 8),
                b=self._pick(size, [-(1 << 23), (1 << 23) - 1, 0, -1], -(1 << 20), 1 << 20),
            )
        return DecodeTokens(
            q, k, q_exponent, k_exponent, v, v_exponent, gates, normalised=normalised
        )

    def image(self, *, over_range: bool = False) -> StateImage:
        """Return a random state; with ``over_range`` some words exceed the format's 27 bits."""
        shape, rng = self.shape, self.rng
        limit = (1 << 31) - 1 if over_range else (1 << 26) - 1
        size = (shape.value_heads, shape.head_dim, shape.head_dim)
        peak = rng.choice([1 << 18, 1 << 22, limit], size=(shape.value_heads, 1, 1))
        peak[rng.integers(shape.value_heads)] = limit
        mantissa = (rng.integers(-limit - 1, limit, size=size, endpoint=True) * peak) // limit
        scale = self._pick(
            (shape.value_heads,),
            [(1 << 23) + 1, 1 << SCALE_FRACTION],
            (1 << 23) + 1,
            1 << SCALE_FRACTION,
        )
        return StateImage(mantissa.astype(np.int32), scale.astype(np.int32))

    def bad_image(self) -> StateImage:
        """Return a state in which one head's scale is out of range."""
        image = self.image()
        head = int(self.rng.integers(self.shape.value_heads))
        image.scale[head] = self.rng.choice([0, 1 << 23, (1 << 24) + 1, (1 << 25) - 1])
        return image

    def _vectors(self, count: int, heads: int) -> Mantissas:
        """Return int16 [count, heads, d], each vector of a random kind."""
        rng, d = self.rng, self.shape.head_dim
        size = (count, heads, d)
        one_hot = np.where(np.arange(d) == rng.integers(d, size=(count, heads, 1)), 32767, 0)
        choices = {
            "uniform": rng.integers(-32768, 32767, size=size, endpoint=True),
            "zero": np.zeros(size, dtype=np.int64),
            "one_hot": one_hot,
            "most_positive": np.full(size, 32767),
            "most_negative": np.full(size, -32768),
            "tiny": rng.integers(-2, 2, size=size, endpoint=True),
        }
        kind = rng.integers(len(VECTOR_KINDS), size=(1, count, heads, 1))
        stacked = np.stack([choices[name] for name in VECTOR_KINDS])
        return np.take_along_axis(stacked, kind, axis=0)[0].astype(np.int16)

    def _exponents(self, size: tuple[int, ...]) -> Exponents:
        return self._pick(size, [-128, -41, -40, -30, 0, 23, 24, 127], -24, 4).astype(np.int8)

    def _pick(
        self, size: tuple[int, ...], corners: list[int], low: int, high: int
    ) -> npt.NDArray[np.int64]:
        """Return corners for about a third of the elements, uniform [low, high) for the others."""
        rng = self.rng
        plain = rng.integers(low, high, size=size, dtype=np.int64)
        return np.where(rng.random(size) < 0.35, rng.choice(corners, size=size), plain)

    # ------------------------------------------------------------------ packets

    def token_bytes(self, tokens: DecodeTokens) -> tuple[Bytes, Bytes]:
        """Pack tokens with random bits wherever the kernel must not look."""
        shape = self.shape
        qk, v = pack_tokens(shape, tokens)
        count = tokens.count
        if count == 0:
            return qk, v
        packets = qk.reshape(count, shape.qk_heads, shape.qk_packet_beats, shape.beat_bytes)
        self._scramble(packets[..., 0, 2:])
        packets = v.reshape(count, shape.value_heads, shape.v_packet_beats, shape.beat_bytes)
        self._scramble(packets[..., 0, 16:])
        if isinstance(tokens.gates, GivenGates):
            self._scramble(packets[..., 0, 8:15])
        last = shape.head_dim * 2 - (shape.v_packet_beats - 2) * shape.beat_bytes
        self._scramble(packets[..., -1, last:])
        return qk, v

    def _scramble(self, view: Bytes) -> None:
        view[...] = self.rng.integers(0, 256, size=view.shape, dtype=np.uint8)

    def state_bytes(self, image: StateImage) -> Bytes:
        """Pack a state."""
        return pack_state(self.shape, image)


def to_beats(data: Bytes, beat_bytes: int) -> list[int]:
    """Return the beats that carry a buffer, one int each, lane 0 in the low bits."""
    raw = data.tobytes()
    return [
        int.from_bytes(raw[start : start + beat_bytes], "little")
        for start in range(0, len(raw), beat_bytes)
    ]


def from_beats(beats: list[int], beat_bytes: int) -> Bytes:
    """Invert :func:`to_beats`."""
    raw = b"".join(beat.to_bytes(beat_bytes, "little") for beat in beats)
    return np.frombuffer(raw, dtype=np.uint8)
