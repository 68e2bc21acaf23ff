# SPDX-License-Identifier: Apache-2.0
"""Queries, keys and values to measure the prefill engine with: of a real model, or made up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Float32Array
from fastdelta.errors import InputError

TOPICS = 6
SEGMENT_TOKENS = 128  # mean length of a stretch on one topic

_SINK_TOKENS = 4
_OUTLIERS = 4  # channels of the keys that stand out
_OUTLIER_SIZE = 6.0

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prompt:
    """Inputs of one attention layer for a whole prompt.

    Attributes
    ----------
    q : array [heads, tokens, head_dim], float32
        Not yet scaled by ``1 / sqrt(head_dim)``.
    k, v : array [kv_heads, tokens, head_dim], float32
    source : dict
        Where they come from.
    """

    q: Float32Array
    k: Float32Array
    v: Float32Array
    source: dict[str, str | int]


def gemma_prompt(tokens: int, layer: int) -> Prompt:
    """Return the attention inputs of a full-attention layer of gemma-3-270m on real text.

    Parameters
    ----------
    tokens : int
        Length of the passage, which is of `fastdelta.gemma.passages`.
    layer : int
        Layer that sees the whole past, counted from 0: 5, 11 or 17.

    Raises
    ------
    InputError
        If the layer has a sliding window, or the text is too short.
    MissingToolError
        If the extra ``gemma`` is not installed.
    """
    from fastdelta.gemma import GemmaModel, load_checkpoint, passages

    checkpoint = load_checkpoint()
    full = checkpoint.weights.shape.full_attention_layers
    if layer not in full:
        raise InputError(
            f"layer is {layer}; layers with full attention are {', '.join(map(str, full))}"
        )
    try:
        passage = passages(checkpoint.tokenizer, tokens)[0]
    except ValueError as error:
        raise InputError(str(error)) from error
    inputs = GemmaModel(checkpoint.weights).capture(passage, [layer])[layer]
    return Prompt(
        inputs.q, inputs.k, inputs.v, {"kind": "gemma", "model": "gemma-3-270m", "layer": layer}
    )


def synthetic_prompt(
    tokens: int, head_dim: int, *, heads: int = 4, kv_heads: int = 1, seed: int = 0
) -> Prompt:
    """Make up attention of the kinds that language models show; the same arguments give the same.

    Keys are the sum of a mean key, a code of the position whose products fall off with the
    distance, the topic of the stretch of text that they are in, noise, and a few channels that
    stand out; the first four tokens are sinks. Queries look for what their head is made for:

    - ``local`` heads at the last few dozen tokens,
    - ``sink`` heads at the first tokens, and weakly at the last few hundred,
    - ``content`` heads at all stretches of the topic of the query,
    - ``spread`` heads at everything, a little more at what is near.

    Head ``h`` is of kind ``h mod 4``. Values are the topic plus noise, of different magnitude.

    Parameters
    ----------
    tokens, head_dim, heads, kv_heads : int
        ``heads`` is a multiple of ``kv_heads``; ``head_dim`` at least 16.
    seed : int
        Of everything that is drawn.
    """
    if tokens < 1 or heads < 1 or kv_heads < 1 or heads % kv_heads or head_dim < 16:
        raise InputError(
            f"tokens={tokens}, heads={heads}, kv_heads={kv_heads}, head_dim={head_dim}: heads must "
            "be a multiple of kv_heads, head_dim at least 16, the others at least 1"
        )
    rng = np.random.default_rng(seed)
    near, wide = (_position_code(rng, tokens, head_dim, reach) for reach in (48.0, 600.0))
    topic_of = _topics(rng, tokens)
    topics = _unit(rng.standard_normal((TOPICS, head_dim)))
    q = np.empty((heads, tokens, head_dim))
    k, v = np.empty((2, kv_heads, tokens, head_dim))
    group = heads // kv_heads
    for kv_head in range(kv_heads):
        mean_key, sink = _unit(rng.standard_normal((2, head_dim)))
        keys = 3 * mean_key + near + wide + topics[topic_of]
        keys += 0.5 * rng.standard_normal((tokens, head_dim)) / np.sqrt(head_dim)
        keys[:_SINK_TOKENS] += sink
        keys[:, rng.choice(head_dim, _OUTLIERS, replace=False)] *= _OUTLIER_SIZE
        k[kv_head] = keys
        loudness = np.exp(0.5 * rng.standard_normal((tokens, 1)))
        v[kv_head] = loudness * (topics[topic_of] + rng.standard_normal((tokens, head_dim)) / 4)
        for head in range(kv_head * group, (kv_head + 1) * group):
            kinds = (12 * near, 9 * sink + 4 * wide, 9 * topics[topic_of] + wide, 3 * wide)
            wanted = kinds[head % len(kinds)]
            noise = rng.standard_normal((tokens, head_dim)) / np.sqrt(head_dim)
            q[head] = np.sqrt(head_dim) * (wanted + noise)
    return Prompt(
        q.astype(np.float32),
        k.astype(np.float32),
        v.astype(np.float32),
        {"kind": "synthetic", "seed": seed},
    )


def _unit(x: Float64Array) -> Float64Array:
    """Scale vectors to length 1."""
    result: Float64Array = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return result


def _position_code(
    rng: np.random.Generator, tokens: int, head_dim: int, reach: float
) -> Float64Array:
    """Return unit vectors [tokens, head_dim] whose products fall off over about `reach` tokens.

    Random Fourier features (Rahimi and Recht, 2007) of a kernel of that width.
    """
    frequencies = rng.standard_normal(head_dim) / reach
    phases = rng.uniform(0, 2 * np.pi, head_dim)
    angles = np.arange(tokens)[:, np.newaxis] * frequencies + phases
    code: Float64Array = np.sqrt(2 / head_dim) * np.cos(angles)
    return code


def _topics(rng: np.random.Generator, tokens: int) -> npt.NDArray[np.int64]:
    """Topic of each token: stretches of random length, each on one of a few topics."""
    lengths = rng.integers(
        SEGMENT_TOKENS // 2, 3 * SEGMENT_TOKENS // 2, 2 * tokens // SEGMENT_TOKENS + 1
    )
    topics = rng.integers(0, TOPICS, len(lengths))
    return np.repeat(topics, lengths)[:tokens].astype(np.int64)
