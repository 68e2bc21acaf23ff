# SPDX-License-Identifier: Apache-2.0
"""Float attention, dense and block-sparse: its invariants, contracts, and another way to it."""

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.errors import DtypeError, NonFiniteError, RangeError, ShapeError
from fastdelta.reference.attention import (
    OnlineSoftmax,
    attention_mass,
    block_sparse_attention,
    dense_causal_attention,
)
from fastdelta.reference.sparse_index import IndexSet

Array = npt.NDArray[Any]

HEADS = [(12, 12), (32, 32), (32, 8), (28, 4)]
BLOCK = 8
EDGES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1]


def random_inputs(
    seed: int, tokens: int = 21, heads: int = 4, kv_heads: int = 2, d: int = 6
) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    q = random.normal(scale=2, size=(heads, tokens, d))
    k, v = random.normal(scale=2, size=(2, kv_heads, tokens, d))
    return q, k, v


def random_index_set(seed: int, heads: int, blocks: int, share: float = 0.5) -> IndexSet:
    random = np.random.default_rng(seed)
    chosen = random.uniform(size=(heads, blocks, blocks)) < share
    return IndexSet.from_mask(chosen & np.tri(blocks, dtype=np.bool_))


def probabilities(q: Array, k: Array, visible: Array) -> Array:
    """Softmax over whole rows, [heads, tokens, tokens]; zero in a row that sees nothing."""
    keys = np.repeat(k, len(q) // len(k), axis=0)
    scores = np.einsum("hid,hjd->hij", q, keys) / np.sqrt(q.shape[2])
    scores = np.where(visible, scores, -np.inf)
    peak = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(peak), 0, peak))
    total = weights.sum(axis=2, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 0)


def visible_tokens(index_set: IndexSet, tokens: int, block: int) -> Array:
    token_map = np.repeat(np.repeat(index_set.to_mask(), block, axis=1), block, axis=2)
    return token_map[:, :tokens, :tokens] & np.tri(tokens, dtype=np.bool_)


def whole_matrix_attention(q: Array, k: Array, v: Array, visible: Array) -> Array:
    values = np.repeat(v, len(q) // len(v), axis=0)
    return np.einsum("hij,hjd->hid", probabilities(q, k, visible), values)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-5)])
@pytest.mark.parametrize("tokens", [*EDGES, 150, 300])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 2), (3, 1)])
def test_dense_attention_is_the_whole_matrix(
    dtype: Any, tolerance: float, tokens: int, heads: int, kv_heads: int
) -> None:
    q, k, v = random_inputs(1, tokens, heads, kv_heads)
    output = dense_causal_attention(q, k, v, dtype=dtype)
    expected = whole_matrix_attention(q, k, v, np.tri(tokens, dtype=np.bool_))
    assert output.dtype == dtype
    np.testing.assert_allclose(output, expected, rtol=0, atol=tolerance * np.abs(v).max())


@given(
    tokens=st.integers(1, 50),
    block=st.integers(1, 20),
    share=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_block_sparse_attention_is_the_whole_matrix_under_a_mask(
    tokens: int, block: int, share: float, seed: int
) -> None:
    q, k, v = random_inputs(seed, tokens)
    index_set = random_index_set(seed, len(q), -(-tokens // block), share)
    result = block_sparse_attention(q, k, v, index_set, block)
    visible = visible_tokens(index_set, tokens, block)
    expected = whole_matrix_attention(q, k, v, visible)
    np.testing.assert_allclose(result.output, expected, rtol=0, atol=1e-12)
    assert result.empty_rows == np.count_nonzero(~visible.any(axis=2))


def test_every_block_selected_equals_dense_attention_to_the_bit() -> None:
    q, k, v = random_inputs(2, tokens=300)
    sparse = block_sparse_attention(q, k, v, IndexSet.dense(4, 3), 128)
    np.testing.assert_array_equal(sparse.output, dense_causal_attention(q, k, v))
    assert sparse.empty_rows == 0


def test_sequence_longer_than_one_step_of_keys() -> None:
    q, k, v = random_inputs(3, tokens=2300, heads=1, kv_heads=1, d=4)
    expected = whole_matrix_attention(q, k, v, np.tri(2300, dtype=np.bool_))
    np.testing.assert_allclose(dense_causal_attention(q, k, v), expected, rtol=0, atol=1e-12)


def test_worked_by_hand() -> None:
    # d = 1 and q = 1: token j has weight exp(k_j) = 1, 3, 4, and value 8, 4, 0.
    q = np.ones((1, 3, 1))
    k = np.log([1.0, 3.0, 4.0]).reshape(1, 3, 1)
    v = np.array([8.0, 4.0, 0.0]).reshape(1, 3, 1)
    # Rows: 8; (8 + 3*4) / 4 = 5; (8 + 12 + 0) / 8 = 2.5.
    np.testing.assert_allclose(dense_causal_attention(q, k, v)[0, :, 0], [8, 5, 2.5])
    # Block 2: query block 1 is token 2. Without KV block 0 it sees itself alone: 0.
    diagonal = IndexSet.from_flat([[0, 3]], blocks=2)
    sparse = block_sparse_attention(q, k, v, diagonal, block=2)
    np.testing.assert_allclose(sparse.output[0, :, 0], [8, 5, 0], atol=1e-15)
    # Dense mass in the diagonal blocks: 1, 1 and 4/8.
    np.testing.assert_allclose(attention_mass(q, k, diagonal, 2), [2.5 / 3])


def test_scale_is_the_root_of_the_head_dimension() -> None:
    q = np.full((1, 2, 16), 0.5)
    k = np.zeros((1, 2, 16))
    k[0, 1] = np.log(3) / 2  # score 16 * 0.5 * ln(3) / 2 / sqrt(16) = ln 3
    v = np.zeros((1, 2, 16))
    v[0, 1] = 1
    np.testing.assert_allclose(dense_causal_attention(q, k, v)[0, 1], 3 / 4)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_neighbouring_query_heads_share_a_kv_head_and_all_kv_heads_are_read(
    heads: int, kv_heads: int
) -> None:
    q, k, v = random_inputs(4, 5, heads, kv_heads)
    group = heads // kv_heads
    number = np.broadcast_to(np.arange(kv_heads, dtype=np.float64)[:, None, None], v.shape)
    dense = dense_causal_attention(q, k, number)
    sparse = block_sparse_attention(q, k, number, IndexSet.dense(heads, 3), 2).output
    read = np.repeat(np.arange(kv_heads), group)
    for output in (dense, sparse):
        np.testing.assert_allclose(output, np.broadcast_to(read[:, None, None], output.shape))
    assert set(np.rint(dense[:, 0, 0])) == set(range(kv_heads))
    whole = dense_causal_attention(q, k, v)
    for head in range(heads):
        own = slice(head // group, head // group + 1)
        alone = dense_causal_attention(q[head : head + 1], k[own], v[own])
        np.testing.assert_array_equal(whole[head : head + 1], alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("logit", [-200.0, -2.45e5])
@pytest.mark.parametrize("tokens", EDGES)
def test_no_zero_leaks_into_rows_of_strongly_negative_scores(
    tokens: int, logit: float, dtype: Any
) -> None:
    # Every true score is `logit`: a single padded key with score 0 would take all the weight.
    q = np.full((2, tokens, 4), np.sqrt(-logit / 2))
    k = -q[:1]
    v = np.random.default_rng(6).normal(size=(1, tokens, 4))
    expected = np.cumsum(v[0], axis=0) / np.arange(1, tokens + 1)[:, np.newaxis]
    tolerance: dict[str, Any] = {"rtol": 0, "atol": 1e-5 if dtype is np.float32 else 1e-12}
    blocks = -(-tokens // BLOCK)
    everything = IndexSet.dense(2, blocks)
    dense = dense_causal_attention(q, k, v, dtype=dtype)
    sparse = block_sparse_attention(q, k, v, everything, BLOCK, dtype=dtype)
    assert sparse.empty_rows == 0
    for head in range(2):
        np.testing.assert_allclose(dense[head], expected, **tolerance)
        np.testing.assert_allclose(sparse.output[head], expected, **tolerance)
    np.testing.assert_allclose(attention_mass(q, k, everything, BLOCK, dtype=dtype), 1, **tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("logit", [-200.0, -2.45e5])
def test_running_maximum_survives_a_first_tile_that_is_fully_masked(
    logit: float, dtype: Any
) -> None:
    masked = np.full((3, 4), -np.inf, dtype)
    softmax = OnlineSoftmax(3, 2, dtype)
    softmax.add(masked, np.full((4, 2), 7, dtype))
    values = np.arange(8, dtype=dtype).reshape(4, 2)
    seen = np.full((3, 4), logit, dtype)
    seen[2] = -np.inf
    softmax.add(seen, values)
    softmax.add(masked, np.full((4, 2), 9, dtype))
    output, empty = softmax.result()
    np.testing.assert_allclose(output, [[3, 4], [3, 4], [0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(empty, [False, False, True])
    assert output.dtype == dtype


@given(split=st.integers(0, 12), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_online_softmax_does_not_depend_on_the_split_into_tiles(split: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(scale=300, size=(5, 12))
    scores[random.uniform(size=scores.shape) < 0.3] = -np.inf
    values = random.normal(size=(12, 3))
    whole, parts = OnlineSoftmax(5, 3), OnlineSoftmax(5, 3)
    whole.add(scores, values)
    parts.add(scores[:, split:], values[split:])
    parts.add(scores[:, :split], values[:split])
    np.testing.assert_allclose(parts.result()[0], whole.result()[0], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(parts.result()[1], np.isneginf(scores).all(axis=1))


def test_rows_without_a_key_are_zero_and_counted() -> None:
    q, k, v = random_inputs(7, tokens=2 * BLOCK + 3, heads=2, kv_heads=1)
    # Head 0 selects nothing for the ragged query block 2, head 1 nothing at all.
    index_set = IndexSet.from_flat([[0, 3, 4], []], blocks=3)
    result = block_sparse_attention(q, k, v, index_set, BLOCK)
    assert result.empty_rows == 3 + (2 * BLOCK + 3)
    np.testing.assert_array_equal(result.output[0, 2 * BLOCK :], 0)
    np.testing.assert_array_equal(result.output[1], 0)
    np.testing.assert_allclose(
        result.output[0, : 2 * BLOCK],
        dense_causal_attention(q, k, v)[0, : 2 * BLOCK],
        rtol=0,
        atol=1e-12,
    )
    mass = attention_mass(q, k, index_set, BLOCK)
    np.testing.assert_allclose(mass, [2 * BLOCK / (2 * BLOCK + 3), 0], rtol=1e-12)


def test_later_tokens_do_not_change_earlier_rows() -> None:
    q, k, v = random_inputs(8, tokens=40)
    changed = [array.copy() for array in (q, k, v)]
    for array in changed:
        array[:, 27:] += 100
    before = dense_causal_attention(q, k, v)[:, :27]
    np.testing.assert_allclose(dense_causal_attention(*changed)[:, :27], before, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        dense_causal_attention(q[:, :27], k[:, :27], v[:, :27]), before, rtol=0, atol=1e-14
    )


@given(tokens=st.integers(1, 40), block=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_attention_mass_is_the_probability_of_the_selected_keys(
    tokens: int, block: int, seed: int
) -> None:
    q, k, _ = random_inputs(seed, tokens)
    index_set = random_index_set(seed, 4, -(-tokens // block))
    everywhere = probabilities(q, k, np.tri(tokens, dtype=np.bool_))
    selected = np.where(visible_tokens(index_set, tokens, block), everywhere, 0)
    np.testing.assert_allclose(
        attention_mass(q, k, index_set, block),
        selected.sum(axis=(1, 2)) / tokens,
        rtol=0,
        atol=1e-12,
    )


def test_memory_is_bounded_by_a_step_of_keys() -> None:
    tokens = 6000  # a full FP64 score matrix would take 288 MB
    q, k, v = random_inputs(9, tokens, heads=1, kv_heads=1, d=2)
    tracemalloc.start()
    dense_causal_attention(q, k, v)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6  # one block of queries against all keys would take 18 MB


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("q", lambda x: x[0], ShapeError, r"q has shape \(21, 6\); expected \[heads, tokens, d\]"),
        ("q", lambda x: x[:3], ShapeError, "3 query heads cannot share 2 KV heads"),
        ("q", lambda x: x[:, :20], ShapeError, "k has 21 tokens of 6 values but q has 20 of 6"),
        ("k", lambda x: x[:, :, :5], ShapeError, "k has 21 tokens of 5 values but q has 21 of 6"),
        ("k", lambda x: x[:0], ShapeError, r"k has shape \(0, 21, 6\)"),
        ("v", lambda x: x[:, :, :5], ShapeError, r"v has shape \(2, 21, 5\); expected"),
        ("q", lambda x: x * np.nan, NonFiniteError, "q has NaN or infinite"),
        ("k", lambda x: x * np.inf, NonFiniteError, "k has NaN or infinite"),
        ("v", lambda x: x * np.nan, NonFiniteError, "v has NaN or infinite"),
        ("q", lambda x: x.astype(np.int64), DtypeError, "q has dtype int64"),
        ("k", lambda x: x * 1e200, RangeError, "k goes to .* allowed in float64 is below"),
        ("v", lambda x: x * 1e307, RangeError, "v goes to .* allowed in float64 is below"),
    ],
)
def test_bad_values_are_refused(
    name: str, change: Any, error: type[Exception], message: str
) -> None:
    inputs = dict(zip("qkv", random_inputs(10), strict=True))
    inputs[name] = change(inputs[name])
    with pytest.raises(error, match=message):
        dense_causal_attention(**inputs)
    with pytest.raises(error, match=message):
        block_sparse_attention(**inputs, index_set=IndexSet.dense(4, 3), block=8)


def test_largest_allowed_values_stay_finite() -> None:
    limit = np.sqrt(np.finfo(np.float32).max / 6) / 2
    q, k, v = (np.full_like(x, 0.99 * limit) for x in random_inputs(11))
    q[:, ::2] *= -1
    k[:, 1::3] *= -1
    assert np.all(np.isfinite(dense_causal_attention(q, k, v, dtype=np.float32)))
    with pytest.raises(RangeError, match="allowed in float32"):
        dense_causal_attention(q * 1.02, k, v, dtype=np.float32)


def test_index_sets_and_dtypes_that_do_not_fit_are_refused() -> None:
    q, k, v = random_inputs(12)
    message = "index set has 4 heads of 2 blocks; q has 4 heads and 21 tokens, which are 3 blocks"
    with pytest.raises(ShapeError, match=message):
        block_sparse_attention(q, k, v, IndexSet.dense(4, 2), 8)
    with pytest.raises(ShapeError, match="index set has 2 heads"):
        attention_mass(q, k, IndexSet.dense(2, 3), 8)
    with pytest.raises(RangeError, match="block=0"):
        block_sparse_attention(q, k, v, IndexSet.dense(4, 3), 0)
    half: Any = np.float16
    with pytest.raises(TypeError, match=r"allowed are numpy\.float32"):
        dense_causal_attention(q, k, v, dtype=half)
