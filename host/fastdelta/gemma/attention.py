# SPDX-License-Identifier: Apache-2.0
"""Causal attention over a sliding window, in FP32."""

import numpy as np

from fastdelta.reference.layer import Float32Array

_QUERY_BLOCK = 128


def sliding_window_attention(
    q: Float32Array, k: Float32Array, v: Float32Array, window: int
) -> Float32Array:
    """Return ``softmax(q k^T / sqrt(head_dim)) v`` over the last keys of each query.

    One block of queries at a time is computed against the keys that it sees, so that time and
    memory grow with the tokens times the window.

    Parameters
    ----------
    q : array [heads, tokens, head_dim], float32
        Not yet scaled: the factor ``1 / sqrt(head_dim)`` is applied here.
    k, v : array [kv_heads, tokens, head_dim], float32
        Head ``h`` of q uses head ``h // (heads / kv_heads)``.
    window : int
        A query sees this many keys at most, its own among them; at least 1.

    Returns
    -------
    array [heads, tokens, head_dim], float32
    """
    heads, tokens, head_dim = q.shape
    kv_heads = len(k)
    if k.shape != v.shape or k.shape != (kv_heads, tokens, head_dim) or heads % kv_heads:
        raise ValueError(
            f"q, k, v have shapes {q.shape}, {k.shape}, {v.shape}; k and v must be alike and have "
            "the tokens and head_dim of q, and the heads of q be a multiple of theirs"
        )
    if window < 1:
        raise ValueError(f"window is {window}; it must be >= 1")
    group = heads // kv_heads
    o = np.empty_like(q)
    for start in range(0, tokens, _QUERY_BLOCK):
        end = min(start + _QUERY_BLOCK, tokens)
        first_key = max(0, start - window + 1)
        distance = np.arange(start, end)[:, np.newaxis] - np.arange(first_key, end)
        unseen = (distance < 0) | (distance >= window)
        for head in range(heads):
            scaled = q[head, start:end] / np.float32(np.sqrt(head_dim))
            scores = scaled @ k[head // group, first_key:end].T
            scores[unseen] = -np.inf
            scores -= scores.max(axis=1, keepdims=True)
            weights = np.exp(scores, out=scores)
            mixed = weights @ v[head // group, first_key:end]
            o[head, start:end] = mixed / weights.sum(axis=1, keepdims=True)
    return o
