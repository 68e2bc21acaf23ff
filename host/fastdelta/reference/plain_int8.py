# SPDX-License-Identifier: Apache-2.0
"""Attention in plain INT8, the scheme that the prefill engine is compared with.

Queries, keys and values are rounded to int8 with one scale per block; probabilities are rounded to
7 bits relative to the largest of their row. There is no rotation, no mean key is taken away, and no
row of a tile has a scale of its own. Softmax itself is in floating point, so that only the rounding
of operands counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import FloatArray
from fastdelta.reference.sparse_index import IndexSet

_INT8_LIMIT = 127
_PROBABILITY_STEPS = 127


def plain_int8_attention(
    q: FloatArray, k: FloatArray, v: FloatArray, index_set: IndexSet, block: int
) -> npt.NDArray[np.float64]:
    """Causal attention over selected blocks with plainly rounded operands.

    Parameters
    ----------
    q : array [heads, tokens, d]
        Not yet scaled by ``1 / sqrt(d)``.
    k, v : array [kv_heads, tokens, d]
        Head ``h`` of q uses KV head ``h // (heads / kv_heads)``.
    index_set : IndexSet
        Each query block needs a KV block; its rows see a key then.
    block : int
        Tokens of a block.

    Returns
    -------
    array [heads, tokens, d], float64
    """
    q, k, v = (_rounded(x, block) for x in (q, k, v))
    heads, tokens, d = q.shape
    group = heads // len(k)
    output = np.zeros((heads, tokens, d))
    for head in range(heads):
        for row in range(index_set.blocks):
            rows = np.arange(row * block, min((row + 1) * block, tokens))
            keys = (index_set.row(head, row)[:, np.newaxis] * block + np.arange(block)).reshape(-1)
            keys = keys[keys < tokens]
            scores = q[head, rows] @ k[head // group, keys].T / np.sqrt(d)
            scores[keys > rows[:, np.newaxis]] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares = np.rint(shares * _PROBABILITY_STEPS)
            output[head, rows] = shares @ v[head // group, keys] / shares.sum(axis=1, keepdims=True)
    return output


def _rounded(x: FloatArray, block: int) -> npt.NDArray[np.float64]:
    """Round to int8 with a scale per head and block, and return floats."""
    rounded = np.array(x, dtype=np.float64)
    for start in range(0, x.shape[1], block):
        part = rounded[:, start : start + block]
        scale = np.abs(part).max(axis=(1, 2), keepdims=True) / _INT8_LIMIT
        part[:] = np.rint(part / np.where(scale > 0, scale, 1)) * scale
    return rounded
