# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 in numpy FP32, with replaceable attention in the layers that see the whole past.

Every block is ``x + norm(attention(norm(x)))`` and then ``x + norm(mlp(norm(x)))``, with a GELU
gate in the MLP. Queries and keys are normalised per head and rotated. Five of six layers see a
sliding window only; the sixth sees all the past and is what a prefill accelerator is for.

Gemma Team, "Gemma 3 Technical Report", 2025, arXiv:2503.19786.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastdelta.gemma.attention import sliding_window_attention
from fastdelta.gemma.weights import SLIDING_ROPE_BASE, GemmaBlockWeights, GemmaWeights
from fastdelta.reference.attention import dense_causal_attention
from fastdelta.reference.layer import Float32Array, rms_norm

_MLP_TOKENS = 1024
_VOCABULARY_ROWS = 8192


class FullAttention(Protocol):
    """Causal attention of one full-attention layer over a whole prompt."""

    def __call__(
        self, layer_index: int, q: Float32Array, k: Float32Array, v: Float32Array
    ) -> Float32Array:
        """Return ``softmax(q k^T / sqrt(head_dim)) v`` over the past of each query, or nearly so.

        Parameters
        ----------
        layer_index : int
            Layer, counted from 0.
        q : array [heads, tokens, head_dim], float32
            After norm and rotary embedding, not yet scaled: the callee multiplies by
            ``1 / sqrt(head_dim)``.
        k, v : array [kv_heads, tokens, head_dim], float32
            k after norm and rotary embedding. Head ``h`` of q uses head
            ``h // (heads / kv_heads)``.

        Returns
        -------
        array [heads, tokens, head_dim], float32
        """


def float_full_attention(
    layer_index: int,  # noqa: ARG001 - part of the protocol
    q: Float32Array,
    k: Float32Array,
    v: Float32Array,
) -> Float32Array:
    """Compute dense causal attention in FP32; the default `FullAttention`."""
    return dense_causal_attention(q, k, v, dtype=np.float32).astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Inputs of the attention of one layer, as `FullAttention` gets them.

    Attributes
    ----------
    q : array [heads, tokens, head_dim], float32
    k, v : array [kv_heads, tokens, head_dim], float32
    """

    q: Float32Array
    k: Float32Array
    v: Float32Array


@dataclass(frozen=True, eq=False)
class Prediction:
    """The token that is expected after a prompt.

    Attributes
    ----------
    token : int
        The most likely token.
    logits : array [vocabulary], float32
    """

    token: int
    logits: Float32Array


class GemmaModel:
    """The model, for prompts of tokens; it keeps nothing from one call to the next.

    Parameters
    ----------
    weights : GemmaWeights
    full_attention : FullAttention, optional
        Computes the attention of the full-attention layers; by default dense in FP32.
    """

    def __init__(
        self, weights: GemmaWeights, full_attention: FullAttention = float_full_attention
    ) -> None:
        self.weights = weights
        self._full_attention = full_attention

    def next_token(self, prompt: Sequence[int]) -> Prediction:
        """Read a prompt and predict the token after it.

        Parameters
        ----------
        prompt : sequence of int
            At least one token; the first should be the tokenizer's ``bos``.
        """
        logits = self.logits(self.forward(prompt)[-1:])[0]
        return Prediction(int(np.argmax(logits)), logits)

    def generate(self, prompt: Sequence[int], length: int) -> list[int]:
        """Continue a prompt by the most likely tokens, and return only these.

        Every token reads the whole text again, so this is for a few tokens.
        """
        if length < 0:
            raise ValueError(f"length is {length}; it must be >= 0")
        text = list(prompt)
        for _ in range(length):
            text.append(self.next_token(text).token)
        return text[len(prompt) :]

    def capture(self, prompt: Sequence[int], layers: Collection[int]) -> dict[int, AttentionInputs]:
        """Return the inputs of the attention of some layers, for every token of a prompt.

        Parameters
        ----------
        prompt : sequence of int
        layers : collection of int
            Counted from 0; at least one. Layers after the last of them are not computed.
        """
        known = range(self.weights.shape.layers)
        if not layers or any(layer not in known for layer in layers):
            raise ValueError(
                f"layers are {sorted(layers)}; give at least one, each 0 to {known[-1]}"
            )
        captured = {}
        x = self._embed(prompt)
        for index in range(max(layers) + 1):
            inputs = self._attention_inputs(index, x)
            if index in layers:
                captured[index] = inputs
            if index < max(layers):
                x = self._block(index, x, inputs)
        return captured

    def forward(self, prompt: Sequence[int]) -> Float32Array:
        """Read a prompt and return the final hidden vectors.

        Returns
        -------
        array [tokens, hidden], float32
            After the final norm, as `logits` needs them.
        """
        x = self._embed(prompt)
        for index in range(self.weights.shape.layers):
            x = self._block(index, x, self._attention_inputs(index, x))
        return rms_norm(x, self.weights.final_norm)

    def logits(self, final: Float32Array) -> Float32Array:
        """Return the logits of the token after each final hidden vector.

        Parameters
        ----------
        final : array [tokens, hidden], float32
            Some rows of what `forward` returned.

        Returns
        -------
        array [tokens, vocabulary], float32
        """
        logits = np.empty((len(final), self.weights.shape.vocabulary), np.float32)
        for rows, embedding in self._vocabulary_blocks():
            logits[:, rows] = final @ embedding.T
        return logits

    def bits_per_token(self, text: Sequence[int]) -> float:
        """Return the mean code length of every token of a text but the first, in bits.

        The perplexity is two to the power of it.
        """
        if len(text) < 2:
            raise ValueError(f"the text has {len(text)} tokens; at least two are needed")
        final = self.forward(text)[:-1]
        following = np.asarray(text[1:])
        peak = np.full(len(final), -np.inf)
        total = np.zeros(len(final))
        chosen = np.empty(len(final))
        # One pass over the vocabulary with a running maximum: all logits would not fit in memory.
        for rows, embedding in self._vocabulary_blocks():
            logits = (final @ embedding.T).astype(np.float64)
            new_peak = np.maximum(peak, logits.max(axis=1))
            total *= np.exp(peak - new_peak)
            total += np.exp(logits - new_peak[:, np.newaxis]).sum(axis=1)
            peak = new_peak
            here = np.flatnonzero((following >= rows.start) & (following < rows.stop))
            chosen[here] = logits[here, following[here] - rows.start]
        return float(np.mean(peak + np.log(total) - chosen) / np.log(2))

    def _embed(self, prompt: Sequence[int]) -> Float32Array:
        tokens = np.asarray(prompt)
        shape = self.weights.shape
        if tokens.ndim != 1 or not tokens.size or tokens.dtype.kind not in "iu":
            raise ValueError(
                f"the prompt has shape {tokens.shape} and dtype {tokens.dtype}; expected one or "
                "more token numbers, as GemmaTokenizer.encode returns them"
            )
        if tokens.min() < 0 or tokens.max() >= shape.vocabulary:
            raise ValueError(
                f"the prompt has tokens {tokens.min()} to {tokens.max()}; "
                f"allowed are 0 to {shape.vocabulary - 1}"
            )
        embedding = self.weights.embedding.dequantise(tokens.astype(np.int64))
        return embedding * np.float32(np.sqrt(shape.hidden))

    def _vocabulary_blocks(self) -> Iterator[tuple[slice, Float32Array]]:
        for start in range(0, self.weights.shape.vocabulary, _VOCABULARY_ROWS):
            rows = slice(start, min(start + _VOCABULARY_ROWS, self.weights.shape.vocabulary))
            yield rows, self.weights.embedding.dequantise(rows)

    def _attention_inputs(self, index: int, x: Float32Array) -> AttentionInputs:
        shape, block = self.weights.shape, self.weights.blocks[index]
        y = rms_norm(x, block.attention_norm)
        q = _split_heads(y @ block.q_projection, shape.heads)
        k = _split_heads(y @ block.k_projection, shape.kv_heads)
        v = _split_heads(y @ block.v_projection, shape.kv_heads)
        full = index in shape.full_attention_layers
        base = shape.rope_base if full else SLIDING_ROPE_BASE
        return AttentionInputs(
            q=rotary_embedding(rms_norm(q, block.q_norm), base),
            k=rotary_embedding(rms_norm(k, block.k_norm), base),
            v=v,
        )

    def _block(self, index: int, x: Float32Array, inputs: AttentionInputs) -> Float32Array:
        shape, block = self.weights.shape, self.weights.blocks[index]
        q, k, v = inputs.q, inputs.k, inputs.v
        if index in shape.full_attention_layers:
            o = self._full_attention(index, q, k, v)
            if o.shape != q.shape or o.dtype != np.float32:
                raise ValueError(
                    f"the attention of layer {index} returned {o.dtype} of shape {o.shape}; "
                    f"expected float32 of shape {q.shape}"
                )
        else:
            o = sliding_window_attention(q, k, v, shape.sliding_window)
        joined = o.transpose(1, 0, 2).reshape(len(x), shape.heads * shape.head_dim)
        x = x + rms_norm(joined @ block.output_projection, block.post_attention_norm)
        for start in range(0, len(x), _MLP_TOKENS):
            rows = slice(start, start + _MLP_TOKENS)
            x[rows] += rms_norm(_mlp(rms_norm(x[rows], block.mlp_norm), block), block.post_mlp_norm)
        return x


def rotary_embedding(x: Float32Array, base: float) -> Float32Array:
    """Rotate vectors by angles that grow with their place in the text.

    Components ``i`` and ``i + head_dim / 2`` form a plane; at token ``t`` it is turned by
    ``t base^(-2 i / head_dim)``. A scalar product of two rotated vectors depends on the distance
    of their tokens only. Su et al., "RoFormer", 2021, with the pairing of halves.

    Parameters
    ----------
    x : array [heads, tokens, head_dim], float32
        Token 0 is the first of the text.
    base : float

    Returns
    -------
    array [heads, tokens, head_dim], float32
    """
    _, tokens, head_dim = x.shape
    half = head_dim // 2
    # In FP64, because FP32 angles of thousands of turns would be coarse.
    frequencies = float(base) ** (-np.arange(half) / half)
    angles = np.arange(tokens)[:, np.newaxis] * frequencies
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def gelu(x: Float32Array) -> Float32Array:
    """Return the GELU in its tanh form (Hendrycks and Gimpel, 2016), which Gemma uses."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    activated: Float32Array = np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))
    return activated


def _mlp(y: Float32Array, block: GemmaBlockWeights) -> Float32Array:
    output: Float32Array = (gelu(y @ block.mlp_gate) * (y @ block.mlp_up)) @ block.mlp_down
    return output


def _split_heads(x: Float32Array, heads: int) -> Float32Array:
    """Turn [tokens, heads x head_dim] into [heads, tokens, head_dim]."""
    split: npt.NDArray[np.float32] = x.reshape(len(x), heads, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(split)
