# SPDX-License-Identifier: Apache-2.0
"""Causal attention in float, dense and over selected blocks: the reference of the prefill engine.

Query head ``h`` reads KV head ``h // group`` with ``group = heads / kv_heads``. Query token ``i``
sees key tokens ``j <= i``, of these only the ones in the KV blocks that an index set selects for
the query block of ``i``::

    o_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j

Keys are visited in ascending order, a bounded number at a time, with a running maximum and a
running sum (online softmax), so that memory grows with the number of tokens and not with its
square. A ragged last block holds the tokens that there are; nothing is padded.

The indexing is that of FlexPrefill's block-sparse kernel (Lai et al., arXiv 2502.20766).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastdelta.checks import float_array
from fastdelta.errors import RangeError, ShapeError
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.gated_delta import FloatArray, FloatType

if TYPE_CHECKING:
    from fastdelta.reference.sparse_index import IndexSet

_KEYS_PER_STEP = 2048
_DENSE_QUERY_BLOCK = 128


@dataclass(frozen=True)
class AttentionOutput:
    """Output of block-sparse attention.

    Attributes
    ----------
    output
        Float array [heads, tokens, d].
    empty_rows
        Query tokens, summed over heads, for which no key is selected. Their output is zero.
    """

    output: FloatArray
    empty_rows: int


class OnlineSoftmax:
    """Softmax-weighted sums of values for a set of query rows, one tile of keys at a time.

    Parameters
    ----------
    rows : int
        Query rows.
    value_dim : int
        Length of a value.
    dtype : float32 or float64
        Precision of the running maximum, the running sum and the weighted sum.
    """

    def __init__(self, rows: int, value_dim: int, dtype: FloatType = np.float64) -> None:
        self._maximum: FloatArray = np.full(rows, -np.inf, dtype)
        self._sum: FloatArray = np.zeros(rows, dtype)
        self._weighted: FloatArray = np.zeros((rows, value_dim), dtype)

    def add(self, scores: FloatArray, values: FloatArray) -> None:
        """Add keys.

        Parameters
        ----------
        scores : array [rows, keys]
            Logits; minus infinity where a row does not see a key.
        values : array [keys, value_dim]
            Values of the keys.
        """
        maximum = np.maximum(self._maximum, scores.max(axis=1, initial=-np.inf))
        # A row that saw no key yet has no maximum; any finite stand-in gives weights of zero.
        reference = np.where(np.isneginf(maximum), 0, maximum).astype(maximum.dtype)
        weights = np.exp(scores - reference[:, np.newaxis])
        rescale = np.exp(self._maximum - reference)
        self._sum = self._sum * rescale + weights.sum(axis=1)
        self._weighted = self._weighted * rescale[:, np.newaxis] + weights @ values
        self._maximum = maximum

    def result(self) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the outputs [rows, value_dim], and which rows saw no key: their output is zero."""
        empty = self._sum == 0
        denominator = np.where(empty, 1, self._sum).astype(self._sum.dtype)
        return self._weighted / denominator[:, np.newaxis], empty


def dense_causal_attention(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, dtype: FloatType = np.float64
) -> FloatArray:
    """Attend to every earlier token and the token itself.

    Parameters
    ----------
    q : array [heads, tokens, d]
        Queries, not yet scaled by ``1 / sqrt(d)``.
    k, v : array [kv_heads, tokens, d]
        Keys and values; ``heads`` is a multiple of ``kv_heads``.
    dtype : float32 or float64
        Precision of the calculation and of the result.

    Returns
    -------
    array [heads, tokens, d]

    Raises
    ------
    ShapeError
        If the shapes do not fit each other.
    DtypeError
        If an array is not of a float dtype.
    NonFiniteError, RangeError
        If a value is not finite, or so large that a score could overflow `dtype`.
    """
    q, k = query_and_key(q, k, dtype)
    v = _values(v, k, dtype)
    everything = np.arange(-(-q.shape[1] // _DENSE_QUERY_BLOCK))
    return _attend(q, k, v, _DENSE_QUERY_BLOCK, lambda _, row: everything[: row + 1]).output


def block_sparse_attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    index_set: IndexSet,
    block: int,
    *,
    dtype: FloatType = np.float64,
) -> AttentionOutput:
    """Attend to the tokens of the selected KV blocks, causally within the diagonal block.

    Parameters
    ----------
    q : array [heads, tokens, d]
        Queries, not yet scaled by ``1 / sqrt(d)``.
    k, v : array [kv_heads, tokens, d]
        Keys and values; ``heads`` is a multiple of ``kv_heads``.
    index_set : IndexSet
        KV blocks of every query head and query block, ``ceil(tokens / block)`` blocks.
    block : int
        Tokens of a block.
    dtype : float32 or float64
        Precision of the calculation and of the result.

    Raises
    ------
    ShapeError
        If the shapes, or the index set, do not fit each other.
    DtypeError
        If an array is not of a float dtype.
    NonFiniteError, RangeError
        If a value is not finite, or so large that a score could overflow `dtype`.
    """
    q, k = query_and_key(q, k, dtype)
    v = _values(v, k, dtype)
    _require_fitting(index_set, q, block)
    return _attend(q, k, v, block, index_set.row)


def attention_mass(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    index_set: IndexSet,
    block: int,
    *,
    dtype: FloatType = np.float64,
) -> FloatArray:
    """Share of the dense causal attention that falls on the selected blocks.

    The probabilities of a query token's selected keys are added up and averaged over all query
    tokens of the head: 1 for an index set with every causal block, 0 for an empty one.

    Parameters
    ----------
    q, k, index_set, block, dtype
        As for `block_sparse_attention`.

    Returns
    -------
    array [heads], 0 to 1

    Raises
    ------
    ShapeError, DtypeError, NonFiniteError, RangeError
        As `block_sparse_attention`.
    """
    q, k = query_and_key(q, k, dtype)
    _require_fitting(index_set, q, block)
    return covered_mass(block_attention(q, k, block, dtype=dtype), index_set)


def covered_mass(attention: FloatArray, index_set: IndexSet) -> FloatArray:
    """Share of what `block_attention` returned that falls on the selected blocks, [heads]."""
    total: FloatArray = np.where(index_set.to_mask(), attention, 0).sum(axis=(1, 2))
    return total


def block_attention(
    q: npt.ArrayLike, k: npt.ArrayLike, block: int, *, dtype: FloatType = np.float64
) -> FloatArray:
    """Where the dense causal attention of each head falls, by query block and KV block.

    Parameters
    ----------
    q, k, block, dtype
        As for `block_sparse_attention`.

    Returns
    -------
    array [heads, blocks, blocks]
        Each head sums to 1.
    """
    q, k = query_and_key(q, k, dtype)
    heads, tokens, _ = q.shape
    group = heads // len(k)
    blocks = -(-tokens // block)
    # Dense attention whose values say which block a key is in gives the probability of each block.
    places: FloatArray = np.zeros((tokens, blocks), dtype)
    places[np.arange(tokens), np.arange(tokens) // block] = 1
    shares: FloatArray = np.zeros((heads, blocks, blocks), dtype)
    for head in range(heads):
        for row in range(blocks):
            part, _ = _attend_block(
                q[head], k[head // group], places, block, row, np.arange(row + 1)
            )
            shares[head, row] = part.sum(axis=0)
    return shares / dtype(tokens)


def query_and_key(
    q: npt.ArrayLike, k: npt.ArrayLike, dtype: FloatType
) -> tuple[FloatArray, FloatArray]:
    """Check queries [heads, tokens, d] and keys [kv_heads, tokens, d]; convert them to `dtype`.

    Raises
    ------
    ShapeError
        If an array has not three dimensions or a size of zero, if tokens or d differ, or if
        ``heads`` is not a multiple of ``kv_heads``.
    TypeError
        If `dtype` is neither float32 nor float64; a DtypeError if an array is not of a float dtype.
    NonFiniteError, RangeError
        If a value is not finite, or so large that a score could overflow `dtype`.
    """
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype is {dtype!r}; allowed are numpy.float32 and numpy.float64")
    q_shape, k_shape = np.shape(q), np.shape(k)
    for name, shape, heads in (("q", q_shape, "heads"), ("k", k_shape, "kv_heads")):
        if len(shape) != 3 or 0 in shape:
            raise ShapeError(f"{name} has shape {shape}; expected [{heads}, tokens, d], no size 0")
    if k_shape[1:] != q_shape[1:]:
        raise ShapeError(
            f"k has {k_shape[1]} tokens of {k_shape[2]} values but q has {q_shape[1]} of "
            f"{q_shape[2]}; pass the keys of the same tokens"
        )
    if q_shape[0] % k_shape[0]:
        raise ShapeError(
            f"{q_shape[0]} query heads cannot share {k_shape[0]} KV heads evenly; the number of "
            "query heads must be a multiple"
        )
    # Half of the root: the difference of two scores must not overflow either.
    limit = float(np.sqrt(np.finfo(dtype).max / q_shape[2]) / 2)
    return (
        _bounded("q", q, q_shape, dtype, limit),
        _bounded("k", k, k_shape, dtype, limit),
    )


def _values(v: npt.ArrayLike, k: FloatArray, dtype: FloatType) -> FloatArray:
    if np.shape(v) != k.shape:
        raise ShapeError(f"v has shape {np.shape(v)}; expected that of k, {k.shape}")
    return _bounded("v", v, k.shape, dtype, float(np.finfo(dtype).max) / k.shape[1])


def _bounded(
    name: str, value: npt.ArrayLike, shape: tuple[int, ...], dtype: FloatType, limit: float
) -> FloatArray:
    array = float_array(name, value, shape)
    peak = float(np.abs(array).max())
    if peak >= limit:
        raise RangeError(
            f"{name} goes to {peak:.4g} in magnitude; allowed in {dtype.__name__} is below "
            f"{limit:.4g}: scale it down"
        )
    return array.astype(dtype, copy=False)


def _require_fitting(index_set: IndexSet, q: FloatArray, block: int) -> None:
    heads, tokens, _ = q.shape
    if block < 1:
        raise RangeError(f"block={block}; a block has at least 1 token")
    blocks = -(-tokens // block)
    if (index_set.heads, index_set.blocks) != (heads, blocks):
        raise ShapeError(
            f"the index set has {index_set.heads} heads of {index_set.blocks} blocks; q has "
            f"{heads} heads and {tokens} tokens, which are {blocks} blocks of {block}"
        )


def _attend(
    q: FloatArray,
    k: FloatArray,
    v: FloatArray,
    block: int,
    selected: Callable[[int, int], IntArray],
) -> AttentionOutput:
    """Run every head and query block; ``selected(head, row)`` are its KV blocks, ascending."""
    heads, tokens, _ = q.shape
    group = heads // len(k)
    output = np.empty_like(q)
    empty_rows = 0
    for head in range(heads):
        kv_head = head // group
        for row in range(-(-tokens // block)):
            part, empty = _attend_block(
                q[head], k[kv_head], v[kv_head], block, row, selected(head, row)
            )
            output[head, row * block : (row + 1) * block] = part
            empty_rows += int(np.count_nonzero(empty))
    return AttentionOutput(output, empty_rows)


def _attend_block(
    q: FloatArray, k: FloatArray, v: FloatArray, block: int, row: int, columns: IntArray
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Attend from query block `row` of one head to the KV blocks `columns`.

    Returns the outputs [rows, d_v], and which rows saw no key.
    """
    tokens, d = q.shape
    query_tokens = np.arange(row * block, min((row + 1) * block, tokens))
    queries = q[query_tokens] * q.dtype.type(1 / np.sqrt(d))
    key_tokens = (columns[:, np.newaxis] * block + np.arange(block)).reshape(-1)
    key_tokens = key_tokens[key_tokens < tokens]
    softmax = OnlineSoftmax(len(query_tokens), v.shape[1], q.dtype.type)
    for start in range(0, len(key_tokens), _KEYS_PER_STEP):
        keys = key_tokens[start : start + _KEYS_PER_STEP]
        scores = queries @ k[keys].T
        scores[keys > query_tokens[:, np.newaxis]] = -np.inf
        softmax.add(scores, v[keys])
    return softmax.result()
