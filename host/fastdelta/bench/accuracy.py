# SPDX-License-Identifier: Apache-2.0
"""What number formats cost, on real models: the state of a language model, INT8 of its attention.

`compare_state_formats` lets the shipped Gated DeltaNet language model read held-out text with its
recurrent state rounded after every token. `compare_int8_schemes` compares the scheme of the prefill
engine with the plain one, on queries, keys and values of gemma-3-270m. Both are numpy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdelta.bench.decode import Progress, relative_error
from fastdelta.bench.prompts import Prompt
from fastdelta.decode.recurrence import ValueRange
from fastdelta.demo.decode import CALIBRATION_BYTES, next_byte_agreement
from fastdelta.errors import InputError
from fastdelta.language_model import LanguageModel, bits_per_byte, held_out_text, load_weights
from fastdelta.prefill.quantise import (
    QuantisedPrompt,
    dequantise_attention,
    hadamard_rotate,
    quantise_prompt,
)
from fastdelta.reference.attention import block_sparse_attention
from fastdelta.reference.gated_delta import (
    FloatArray,
    decay_and_write_gates,
    gated_delta_recurrence,
)
from fastdelta.reference.layer import Float32Array
from fastdelta.reference.plain_int8 import plain_int8_attention
from fastdelta.reference.prefill_model import selected_attention
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import PrefillShape

Rounding = Callable[[FloatArray], FloatArray]
"""Rounds a state [value_heads, d_k, d_v] that is in units of its heads' value scales."""

STATE_LIMIT = 32.0  # magnitudes of the fixed-point formats, in units of the value scale


def fixed_point(bits: int) -> Rounding:
    """Return the rounding of signed numbers of so many bits below 32, ties up, clamped."""
    fraction = bits - 6

    def rounded(state: FloatArray) -> FloatArray:
        words = np.floor(np.ldexp(state, fraction) + 0.5)
        limit = 2.0 ** (bits - 1)
        clamped: FloatArray = np.ldexp(np.clip(words, -limit, limit - 1), -fraction)
        return clamped

    return rounded


def bfloat16(state: FloatArray) -> FloatArray:
    """Round to BF16, ties to even."""
    words = np.asarray(state, np.float32).view(np.uint32)
    words = (words + 0x7FFF + ((words >> 16) & 1)) & np.uint32(0xFFFF0000)
    return words.view(np.float32).astype(state.dtype)


STATE_FORMATS: dict[str, Rounding] = {
    "FP32": lambda state: np.asarray(state, np.float32).astype(state.dtype),
    "fixed point, 27 bits": fixed_point(27),
    "fixed point, 24 bits": fixed_point(24),
    "fixed point, 18 bits": fixed_point(18),
    "BF16": bfloat16,
}
"""Formats by name; the engine's own is the one of 27 bits."""


class RoundedRecurrence:
    """`fastdelta.reference.layer.Recurrence` in FP64 with a state that is rounded after each token.

    Parameters
    ----------
    a_log, dt_bias : array [layers, value_heads]
        Gate constants of every layer.
    rounding : callable
        Format of the state.
    value_exponents : array [layers, value_heads]
        Value scales; a state is rounded in units of its head's.
    """

    def __init__(
        self,
        a_log: Float32Array,
        dt_bias: Float32Array,
        rounding: Rounding,
        value_exponents: npt.NDArray[np.int64],
    ) -> None:
        self._constants = list(zip(a_log, dt_bias, strict=True))
        self._scales = np.exp2(value_exponents.astype(np.float64))[:, :, None, None]
        self._rounding = rounding
        self._states: list[FloatArray | None] = [None] * len(a_log)

    def __call__(
        self,
        layer_index: int,
        q: Float32Array,
        k: Float32Array,
        v: Float32Array,
        a: Float32Array,
        b: Float32Array,
    ) -> Float32Array:
        """Advance one layer; see `fastdelta.reference.layer.Recurrence`."""
        a_log, dt_bias = self._constants[layer_index]
        log_decay, beta = decay_and_write_gates(a, b, a_log, dt_bias, dtype=np.float64)
        state, scale = self._states[layer_index], self._scales[layer_index]
        output = np.empty(v.shape, np.float32)
        for token in range(len(v)):
            at = slice(token, token + 1)
            output[at], state = gated_delta_recurrence(
                q[at], k[at], v[at], log_decay[at], beta[at], state=state, dtype=np.float64
            )
            state = self._rounding(state / scale) * scale
        self._states[layer_index] = state
        return output

    def clear(self) -> None:
        """Set the states of all layers to zero."""
        self._states = [None] * len(self._states)


@dataclass(frozen=True)
class StateFormatFigures:
    """A language model whose state has some format.

    Attributes
    ----------
    name
        Format.
    bits_per_byte
        Of the text.
    same_next_byte
        Share of the bytes after which it expects the same one as with an FP64 state.
    logit_error
        Relative L2 difference of the logits from those with an FP64 state.
    """

    name: str
    bits_per_byte: float
    same_next_byte: float
    logit_error: float


def compare_state_formats(
    text_bytes: int, *, progress: Progress | None = None
) -> list[StateFormatFigures]:
    """Let the shipped language model read held-out text with each format of the state.

    Parameters
    ----------
    text_bytes : int
        Bytes of the text, at least 2.
    progress : callable, optional
        Told how far it is.
    """
    text = held_out_text()
    if not 2 <= text_bytes <= len(text):
        raise InputError(f"text_bytes is {text_bytes}; allowed are 2 to {len(text)}")
    text = text[:text_bytes]
    tell = progress or (lambda *_: None)
    weights = load_weights()
    calibration = ValueRange(weights.a_log, weights.dt_bias)
    LanguageModel(weights, calibration).forward(text[:CALIBRATION_BYTES])
    exponents = calibration.value_exponents()

    def logits(rounding: Rounding) -> Float32Array:
        recurrence = RoundedRecurrence(weights.a_log, weights.dt_bias, rounding, exponents)
        return LanguageModel(weights, recurrence).forward(text)

    exact = logits(lambda state: state)
    figures: list[StateFormatFigures] = []
    for name, rounding in STATE_FORMATS.items():
        tell("state formats", len(figures), len(STATE_FORMATS))
        found = logits(rounding)
        figures.append(
            StateFormatFigures(
                name=name,
                bits_per_byte=bits_per_byte(found[:-1], text[1:]),
                same_next_byte=next_byte_agreement(found, exact),
                logit_error=relative_error(found, exact),
            )
        )
    tell("state formats", len(figures), len(STATE_FORMATS))
    return figures


@dataclass(frozen=True)
class Int8Figures:
    """Relative L2 errors of an attention layer against FP64, all causal blocks attended to.

    Attributes
    ----------
    source
        Which layer.
    plain
        `fastdelta.reference.plain_int8`: a scale for each block, P against the row's maximum.
    rotated
        The same after the mean key is taken away and q, k and v are rotated.
    operands
        The engine's operands, everything after them in FP64.
    engine
        The engine, by its bit-exact model.
    """

    source: str
    plain: float
    rotated: float
    operands: float
    engine: float


def compare_int8_schemes(
    prompts: Sequence[tuple[str, Prompt]], *, progress: Progress | None = None
) -> list[Int8Figures]:
    """Compare the engine's INT8 scheme with the plain one and steps between, over all blocks.

    Parameters
    ----------
    prompts : sequence of (str, Prompt)
        Layers and their names; blocks are those of the full engine, 128 tokens.
    progress : callable, optional
        Told how far it is.
    """
    tell = progress or (lambda *_: None)
    block = PrefillShape().block
    figures: list[Int8Figures] = []
    for number, (name, prompt) in enumerate(prompts):
        tell("INT8 schemes", number, len(prompts))
        q, k, v = (np.asarray(x, np.float64) for x in (prompt.q, prompt.k, prompt.v))
        heads, tokens, _ = q.shape
        dense = IndexSet.dense(heads, -(-tokens // block))
        expected = block_sparse_attention(q, k, v, dense, block).output
        plain = plain_int8_attention(q, k, v, dense, block)
        centred = k - k.mean(axis=1, keepdims=True)
        turned_q, turned_k, turned_v = map(hadamard_rotate, (q, centred, v))
        rotated = plain_int8_attention(turned_q, turned_k, turned_v, dense, block)
        quantised = quantise_prompt(prompt.q, prompt.k, prompt.v)
        rounded_q, rounded_k, rounded_v = _operand_values(quantised)
        operands = block_sparse_attention(rounded_q, rounded_k, rounded_v, dense, block).output
        words, _ = selected_attention(quantised.operands, dense, block)
        engine = dequantise_attention(words, quantised.v_scale)
        figures.append(
            Int8Figures(
                name,
                plain=relative_error(plain, expected),
                rotated=relative_error(hadamard_rotate(rotated), expected),
                operands=relative_error(hadamard_rotate(operands), expected),
                engine=relative_error(engine, expected),
            )
        )
    tell("INT8 schemes", len(prompts), len(prompts))
    return figures


def _operand_values(quantised: QuantisedPrompt) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return q, k and v that the engine's operands stand for, rotated as they are.

    The scale of the keys is in the multipliers of the queries, where softmax takes it from.
    """
    operands = quantised.operands
    head_dim = operands.q.shape[2]
    to_natural = np.sqrt(head_dim) * np.log(2.0)
    q_steps = np.ldexp(operands.multiplier.astype(np.float64), -operands.exponent) * to_natural
    k_steps = np.exp2(-operands.k_shift.astype(np.float64))
    v_steps = quantised.v_scale[:, np.newaxis] * np.exp2(-operands.v_shift.astype(np.float64))
    return (
        operands.q * q_steps[..., np.newaxis],
        operands.k * k_steps[..., np.newaxis],
        operands.v * v_steps[..., np.newaxis],
    )
