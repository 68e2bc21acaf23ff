# SPDX-License-Identifier: Apache-2.0
"""Index sets and the two rules that choose them: by hand, in corner cases, and by plain loops."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fastdelta.errors import DtypeError, NonFiniteError, RangeError, ShapeError
from fastdelta.reference.attention import block_sparse_attention, dense_causal_attention
from fastdelta.reference.sparse_index import (
    IndexSet,
    Pattern,
    Selection,
    SelectionParameters,
    best_first,
    block_coverage_selection,
    block_means,
    block_scores,
    coverage_count,
    flexprefill_selection,
    jensen_shannon_divergence,
    pooled_estimate,
    query_aware_pairs,
    token_scores,
    vertical_slash_map,
)

Array = npt.NDArray[Any]
Rule = Callable[..., Selection]

RULES: list[Rule] = [flexprefill_selection, block_coverage_selection]
HEADS = [(12, 12), (32, 32), (32, 8), (28, 4)]
KINDS = ["noise", "sink", "local", "columns", "clusters", "sharp"]


def structured_inputs(
    kind: str, seed: int, tokens: int, heads: int = 2, kv_heads: int = 1, d: int = 6
) -> tuple[Array, Array]:
    """Queries and keys whose attention is flat, or has the shapes that models show."""
    random = np.random.default_rng(seed)
    q = random.normal(size=(heads, tokens, d))
    k = random.normal(size=(kv_heads, tokens, d))
    strength = 8 * math.sqrt(d)
    if kind == "sink":
        q[:, :, 0], k[:, :, 0] = strength, 0
        k[:, 0, 0] = random.uniform(0, 2)
    elif kind == "local":  # the score falls with the distance, as rotary embeddings make it
        angle = np.arange(tokens) * random.uniform(0.05, 0.5)
        for x in (q, k):
            x[:, :, 0], x[:, :, 1] = 6 * np.cos(angle), 6 * np.sin(angle)
    elif kind == "columns":
        q[:, :, 0], k[:, :, 0] = strength, 0
        k[:, random.integers(0, tokens, size=3), 0] = random.uniform(0.5, 1.5, size=3)
    elif kind == "clusters":  # blocks of like tokens: pooling loses little
        for x in (q, k):
            centre = random.normal(scale=1.2, size=(-(-tokens // 4), d))
            x[:] = 0.05 * x + np.repeat(centre, 4, axis=0)[:tokens]
    elif kind == "sharp":  # probabilities underflow to zero
        q *= 40
        k *= 40
    return q, k


def plain_rule(
    q: Array, k: Array, parameters: SelectionParameters, count_divisor: int | None
) -> tuple[list[set[int]], list[str], float]:
    """Choose flat indices and pattern per head with lists and loops over single tokens.

    With a `count_divisor` this is FlexPrefill's released rule, without it the kernel's rule. The
    last result says how near a running sum came to its threshold, relative to the total.
    """
    margin = 1.0
    token_rule = count_divisor is not None
    heads, tokens, d = q.shape
    block, gamma = parameters.block, parameters.gamma
    blocks = math.ceil(tokens / block)
    min_blocks = math.ceil(parameters.min_budget / block)
    max_blocks = blocks
    if parameters.max_budget is not None:
        max_blocks = min(math.ceil(parameters.max_budget / block), blocks)
    if token_rule and tokens <= max(2 * block, min_blocks * block):
        causal = {r * blocks + c for r in range(blocks) for c in range(r + 1)}
        return [causal] * heads, ["dense"] * heads, margin

    def dot(x: Any, y: Any) -> float:
        return sum(float(a) * float(b) for a, b in zip(x, y, strict=True))

    def softmax(scores: list[float]) -> list[float]:
        peak = max(scores)
        weights = [math.exp(score - peak) for score in scores]
        return [weight / sum(weights) for weight in weights]

    def mean(rows: Array) -> list[float]:
        return [sum(float(x) for x in column) / len(rows) for column in rows.T]

    def count(scores: list[float]) -> int:
        nonlocal margin
        running, taken = 0.0, 0
        for score in sorted(scores, reverse=True):
            running += score
            taken += 1
            margin = min(margin, abs(running - gamma)) if gamma < 1 else margin
            if gamma < 1 and (running > gamma if token_rule else running >= gamma):
                return taken
        return taken + 1 if token_rule else taken

    def relative_entropy(x: list[float], y: list[float]) -> float:
        if token_rule and 0 in x:
            return math.nan
        return sum(a * math.log(a / ((a + b) / 2)) for a, b in zip(x, y, strict=True) if a)

    index_sets, patterns = [], []
    representative = range(max(tokens - block, 0), tokens)
    for head in range(heads):
        keys = k[head // (heads // len(k))]
        vertical_tokens, slash_tokens = [0.0] * tokens, [0.0] * tokens  # slash by distance
        for i in representative:
            row = softmax([dot(q[head, i], keys[j]) / math.sqrt(d) for j in range(i + 1)])
            for j, probability in enumerate(row):
                vertical_tokens[j] += probability / len(representative)
                slash_tokens[i - j] += probability / len(representative)
        vertical, slash = [0.0] * blocks, [0.0] * blocks
        for token in range(tokens):
            vertical[token // block] += vertical_tokens[token]
            slash[blocks - 1 - (tokens - 1 - token) // block] += slash_tokens[token]
        pooled_q = [mean(q[head, r * block : (r + 1) * block]) for r in range(blocks)]
        pooled_k = [mean(keys[r * block : (r + 1) * block]) for r in range(blocks)]
        query = mean(q[head, representative.start :])
        estimate = softmax([dot(query, key) / math.sqrt(d) for key in pooled_k])
        divergence = 0.5 * relative_entropy(estimate, vertical)
        divergence += 0.5 * relative_entropy(vertical, estimate)
        if divergence < 0:  # by rounding alone
            divergence = 0.0
        query_aware = divergence < parameters.tau**2
        if query_aware:
            n_columns = n_distances = min_blocks
        elif count_divisor is not None:
            n_columns, n_distances = (
                count(scores) // count_divisor + 1 for scores in (vertical_tokens, slash_tokens)
            )
        else:
            n_columns, n_distances = count(vertical), count(slash)
        if not query_aware:
            n_columns, n_distances = (
                min(max(n, min_blocks), max_blocks) for n in (n_columns, n_distances)
            )
        vertical[0] = slash[0] = math.inf
        by_vertical = sorted(range(blocks), key=lambda b: (-vertical[b], b))
        by_slash = sorted(range(blocks), key=lambda s: (-slash[s], s))
        chosen = {
            r * blocks + c
            for r in range(blocks)
            for c in range(r + 1)
            if c in by_vertical[: max(n_columns, 1)] or r - c in by_slash[: max(n_distances, 1)]
        }
        if query_aware:
            entries = []
            for r in range(blocks):
                row = softmax([dot(pooled_q[r], pooled_k[c]) / math.sqrt(d) for c in range(r + 1)])
                entries += [(-share, r * blocks + c) for c, share in enumerate(row)]
            running = 0.0
            for negative, flat in sorted(entries):
                running -= negative
                margin = min(margin, abs(running / blocks - gamma)) if gamma < 1 else margin
                if gamma < 1 and running > gamma * blocks:
                    break
                chosen.add(flat)
        index_sets.append(chosen)
        patterns.append("query-aware" if query_aware else "vertical-slash")
    return index_sets, patterns, margin


def assert_chooses(selection: Selection, expected: list[set[int]], patterns: list[str]) -> None:
    assert [head.pattern.value for head in selection.heads] == patterns
    for head, flat in enumerate(expected):
        assert set(selection.index_set.flat(head).tolist()) == flat


# --- index sets -----------------------------------------------------------------------------


def test_index_set_of_two_heads_in_compressed_rows() -> None:
    # Head 0: rows {0}, {0, 1}, {2}; head 1: rows {0}, {1}, {0, 2}. Flat: r * 3 + c.
    index_set = IndexSet.from_flat([[8, 0, 4, 3], [0, 4, 6, 8]], blocks=3)
    np.testing.assert_array_equal(index_set.offsets, [0, 1, 3, 4, 5, 6, 8])
    np.testing.assert_array_equal(index_set.columns, [0, 0, 1, 2, 0, 1, 0, 2])
    assert (index_set.heads, index_set.blocks) == (2, 3)
    np.testing.assert_array_equal(index_set.row(0, 1), [0, 1])
    np.testing.assert_array_equal(index_set.row(1, 2), [0, 2])
    np.testing.assert_array_equal(index_set.flat(0), [0, 3, 4, 8])
    np.testing.assert_array_equal(index_set.flat(1), [0, 4, 6, 8])
    np.testing.assert_array_equal(index_set.pairs_per_head, [4, 4])
    np.testing.assert_allclose(index_set.density_per_head, [4 / 6, 4 / 6])
    assert index_set.density == pytest.approx(4 / 6)
    assert IndexSet(3, index_set.offsets, index_set.columns) == index_set


def test_overlap_of_index_sets() -> None:
    one = IndexSet.from_flat([[0, 3, 4, 8], [0]], blocks=3)
    two = IndexSet.from_flat([[0, 4, 6, 8], []], blocks=3)
    # Head 0: 3 in common of 5; head 1: 0 of 1; together 3 of 6.
    np.testing.assert_allclose(one.jaccard_per_head(two), [3 / 5, 0])
    assert one.jaccard(two) == pytest.approx(3 / 6)
    assert one.jaccard(one) == 1
    empty = IndexSet.from_flat([[], []], blocks=3)
    assert empty.jaccard(empty) == 1
    np.testing.assert_array_equal(empty.jaccard_per_head(two), [0, 1])
    both = one.union(two)
    assert both == IndexSet.from_flat([[0, 3, 4, 6, 8], [0]], blocks=3)
    assert both.contains(one)
    assert both.contains(two)
    assert not one.contains(two)
    assert IndexSet.dense(2, 3).contains(both)
    assert len({one, IndexSet.from_mask(one.to_mask()), two}) == 2


@given(heads=st.integers(1, 3), blocks=st.integers(1, 7), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_masks_rows_and_flat_indices_hold_the_same_pairs(
    heads: int, blocks: int, seed: int
) -> None:
    chosen = np.random.default_rng(seed).uniform(size=(heads, blocks, blocks)) < 0.5
    mask = chosen & np.tri(blocks, dtype=np.bool_)
    index_set = IndexSet.from_mask(mask)
    np.testing.assert_array_equal(index_set.to_mask(), mask)
    flat = [index_set.flat(head) for head in range(heads)]
    assert IndexSet.from_flat([indices[::-1] for indices in flat], blocks) == index_set
    for head in range(heads):
        np.testing.assert_array_equal(flat[head], np.flatnonzero(mask[head]))
        for row in range(blocks):
            np.testing.assert_array_equal(index_set.row(head, row), np.flatnonzero(mask[head, row]))


def test_dense_index_set_is_every_causal_pair() -> None:
    dense = IndexSet.dense(2, 3)
    np.testing.assert_array_equal(dense.flat(1), [0, 3, 4, 6, 7, 8])
    assert dense.density == 1


def test_index_sets_cannot_be_changed() -> None:
    given_columns = np.array([0, 0, 1])
    index_set = IndexSet(2, np.array([0, 1, 3]), given_columns)
    given_columns[0] = 1
    np.testing.assert_array_equal(index_set.columns, [0, 0, 1])
    with pytest.raises(ValueError, match="read-only"):
        index_set.columns[0] = 1


@pytest.mark.parametrize(
    ("offsets", "columns", "error", "message"),
    [
        ([0, 1, 2], [0, 2], RangeError, "head 0, query block 1 selects KV block 2"),
        ([0, 1, 2], [-1, 0], RangeError, "head 0, query block 0 selects KV block -1"),
        ([0, 0, 0, 1, 2], [1, 1], RangeError, "head 1, query block 0 selects KV block 1"),
        ([0, 1, 3], [0, 1, 0], RangeError, "repeat or descend"),
        ([0, 1, 3], [0, 1, 1], RangeError, "repeat or descend"),
        ([0, 2, 1, 1, 3], [0, 0, 0], RangeError, "offsets decrease"),
        ([0, 1, 2], [0], ShapeError, "offsets go from 0 to 2; expected 0 to 1"),
        ([1, 1, 1], [0], ShapeError, "offsets go from 1 to 1"),
        ([0, 1], [0], ShapeError, r"expected heads \* 2 \+ 1"),
        ([0, 1, 1, 1], [0], ShapeError, r"expected heads \* 2 \+ 1"),
        ([0, 1, 2], [0.0, 1.0], ShapeError, "columns has dtype float64"),
        ([0, 1, 2], [[0, 1]], ShapeError, r"columns has dtype int64 and shape \(1, 2\)"),
    ],
)
def test_invalid_index_sets_are_refused(
    offsets: list[int], columns: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        IndexSet(2, np.array(offsets), np.array(columns))


def test_invalid_conversions_are_refused() -> None:
    with pytest.raises(RangeError, match="indices of head 1 go from 0 to 4; allowed are 0 to 3"):
        IndexSet.from_flat([[0], [0, 4]], blocks=2)
    with pytest.raises(RangeError, match="indices of head 0 repeat"):
        IndexSet.from_flat([[0, 3, 0]], blocks=2)
    with pytest.raises(RangeError, match="head 0, query block 0 selects KV block 1"):
        IndexSet.from_flat([[1]], blocks=2)
    with pytest.raises(ShapeError, match="no heads"):
        IndexSet.from_flat([], blocks=2)
    with pytest.raises(ShapeError, match="indices of head 0 have dtype float64"):
        IndexSet.from_flat([[0.5]], blocks=2)
    with pytest.raises(ShapeError, match="mask has dtype int64"):
        IndexSet.from_mask(np.zeros((1, 2, 2), np.int64))
    with pytest.raises(ShapeError, match=r"shape \(1, 2, 3\)"):
        IndexSet.from_mask(np.zeros((1, 2, 3), np.bool_))
    with pytest.raises(RangeError, match="blocks=0"):
        IndexSet(0, np.array([0]), np.array([], np.int64))
    index_set = IndexSet.dense(2, 3)
    for head, row in ((2, 0), (-1, 0), (0, 3)):
        with pytest.raises(RangeError, match="there are 2 heads of 3 blocks"):
            index_set.row(head, row)
    for method in (index_set.union, index_set.contains, index_set.jaccard):
        with pytest.raises(ShapeError, match="cannot be combined"):
            method(IndexSet.dense(2, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 0.0}, "gamma=0.0; allowed are values above 0, up to 1"),
        ({"gamma": 1.01}, "gamma=1.01"),
        ({"gamma": math.nan}, "gamma=nan"),
        ({"tau": -0.1}, "tau=-0.1; allowed are 0 to 1"),
        ({"tau": math.nan}, "tau=nan"),
        ({"min_budget": -1}, "min_budget=-1"),
        ({"max_budget": 1023}, "max_budget=1023 is below min_budget=1024"),
        ({"block": 0}, "block=0"),
    ],
)
def test_invalid_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        SelectionParameters(**change)


@pytest.mark.parametrize("rule", RULES)
def test_invalid_queries_and_keys_are_refused(rule: Rule) -> None:
    q, k = structured_inputs("noise", 1, 20, heads=4, kv_heads=2)
    parameters = SelectionParameters(block=4, min_budget=4)
    for bad_q, bad_k, error, message in (
        (q[:3], k, ShapeError, "3 query heads cannot share 2 KV heads"),
        (q, k[:, :19], ShapeError, "k has 19 tokens of 6 values but q has 20"),
        (q * np.nan, k, NonFiniteError, "q has NaN"),
        (q, k.astype(np.int64), DtypeError, "k has dtype int64"),
    ):
        with pytest.raises(error, match=message):
            rule(bad_q, bad_k, parameters)
    with pytest.raises(RangeError, match="count_divisor=0"):
        flexprefill_selection(q, k, parameters, count_divisor=0)


# --- scores ---------------------------------------------------------------------------------

# d = 1 and q = 1, so that key j has weight exp(k_j). Block 2, 6 tokens, 3 blocks; the
# representative queries are tokens 4 and 5. Weights 4 1 1 1 1 8:
#   token 4 sees 4 1 1 1 1   of  8:  1/2  1/8  1/8  1/8  1/8   0
#   token 5 sees 4 1 1 1 1 8 of 16:  1/4 1/16 1/16 1/16 1/16  1/2
# Token verticals (mean of the rows), in 1/32:  12 3 3 3 3 8
# Distance x of token 4: key 4 - x; of token 5: key 5 - x. Token slashes, in 1/32, x = 0 to 5:
#   (1/8 + 1/2)/2 = 10, (1/8 + 1/16)/2 = 3, 3, 3, (1/2 + 1/16)/2 = 9, (0 + 1/4)/2 = 4
# Block verticals: 15 6 11. Block slashes by distance (x = 0 1 | 2 3 | 4 5): 13 6 13.
HAND_WEIGHTS = [4.0, 1.0, 1.0, 1.0, 1.0, 8.0]


def hand_inputs(weights: list[float] | None = None) -> tuple[Array, Array]:
    k = np.log(HAND_WEIGHTS if weights is None else weights).reshape(1, -1, 1)
    return np.ones_like(k), k


def test_scores_worked_by_hand() -> None:
    q, k = hand_inputs()
    vertical, slash = token_scores(q, k, 2)
    np.testing.assert_allclose(vertical[0] * 32, [12, 3, 3, 3, 3, 8])
    np.testing.assert_allclose(slash[0, ::-1] * 32, [10, 3, 3, 3, 9, 4])
    vertical, slash = block_scores(q, k, 2)
    np.testing.assert_allclose(vertical[0] * 32, [15, 6, 11])
    np.testing.assert_allclose(slash[0] * 32, [13, 6, 13])
    # Mean keys: (ln 4 + ln 1)/2 = ln 2, ln 1, (ln 1 + ln 8)/2 = ln sqrt(8).
    weights = np.array([2, 1, math.sqrt(8)])
    np.testing.assert_allclose(pooled_estimate(q, k, 2)[0], weights / weights.sum())


def test_ragged_scores_worked_by_hand() -> None:
    # The first 5 tokens, block 2: blocks of 2, 2 and 1; representative queries are tokens 3 and 4,
    # in two blocks. Weights 4 1 1 1 2:
    #   token 3 sees 4 1 1 1   of 7: 4/7 1/7 1/7 1/7
    #   token 4 sees 4 1 1 1 2 of 9: 4/9 1/9 1/9 1/9 2/9
    q, k = hand_inputs([4.0, 1.0, 1.0, 1.0, 2.0])
    vertical, slash = block_scores(q, k, 2)
    # Columns 0 1 | 2 3 | 4: (5/7 + 5/9)/2, (2/7 + 2/9)/2, (2/9)/2.
    np.testing.assert_allclose(vertical[0] * 63, [40, 16, 7])
    # Distances 0 | 1 2 | 3 4 (grouped from the far end):
    # 0: (1/7 + 2/9)/2; 1, 2: (1/7 + 1/7 + 1/9 + 1/9)/2; 3, 4: (4/7 + 1/9 + 4/9)/2.
    np.testing.assert_allclose(slash[0] * 63, [11.5, 16, 35.5])
    # Mean query 1; mean keys ln 2, 0 and ln 2, the last block's from the one token it has.
    np.testing.assert_allclose(pooled_estimate(q, k, 2)[0] * 5, [2, 1, 2])
    np.testing.assert_allclose(block_means(k, 2)[0, :, 0], np.log([2, 1, 2]))


@given(
    kind=st.sampled_from(KINDS),
    tokens=st.integers(1, 70),
    block=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_tiles_that_stream_by_give_the_pooled_token_scores(
    kind: str, tokens: int, block: int, seed: int
) -> None:
    q, k = structured_inputs(kind, seed, tokens, heads=4, kv_heads=2)
    starts = np.arange(0, tokens, block)
    token_vertical, token_slash = token_scores(q, k, block)
    vertical, slash = block_scores(q, k, block)
    tolerance: dict[str, Any] = {"rtol": 0, "atol": 1e-13}
    np.testing.assert_allclose(
        vertical, np.add.reduceat(token_vertical, starts, axis=1), **tolerance
    )
    np.testing.assert_allclose(
        slash, np.add.reduceat(token_slash, starts, axis=1)[:, ::-1], **tolerance
    )
    for scores in (vertical, slash, token_vertical, token_slash, pooled_estimate(q, k, block)):
        np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-12)


def test_two_partial_sums_of_a_tile_feed_two_slash_bins() -> None:
    # Only key 9 (block 2 of 4, second in its block of 4) matters to every representative query.
    tokens, block = 16, 4
    k = np.zeros((1, tokens, 1))
    k[0, 9] = 1000
    vertical, slash = block_scores(np.ones_like(k), k, block)
    np.testing.assert_array_equal(vertical[0], [0, 0, 1, 0])
    # Rows i = 1, 2, 3 have j = 1 <= i: distance 4 - 1 - 2 = 1. Row 0 has j > i: distance 0.
    np.testing.assert_array_equal(slash[0], [1 / 4, 3 / 4, 0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_have_the_chosen_precision(dtype: Any) -> None:
    q, k = structured_inputs("noise", 2, 21, heads=4, kv_heads=2)
    exact = block_scores(q, k, 4)
    for scores in (
        *block_scores(q, k, 4, dtype=dtype),
        *token_scores(q, k, 4, dtype=dtype),
        pooled_estimate(q, k, 4, dtype=dtype),
    ):
        assert scores.dtype == dtype
    for scores, reference in zip(block_scores(q, k, 4, dtype=dtype), exact, strict=True):
        np.testing.assert_allclose(scores, reference, rtol=0, atol=1e-6)


def test_divergence_worked_by_hand() -> None:
    half, one, other = np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert jensen_shannon_divergence(half, half) == 0
    assert jensen_shannon_divergence(one, other) == pytest.approx(math.log(2))
    # Mean (3/4, 1/4): (ln(2/3)/2 + ln(2)/2) / 2 + ln(4/3) / 2 = ln(4/3) * 3/4.
    assert jensen_shannon_divergence(half, one) == pytest.approx(0.75 * math.log(4 / 3))
    assert jensen_shannon_divergence(one, half) == pytest.approx(0.75 * math.log(4 / 3))
    tiny = np.array([1.0, 5e-324])
    assert jensen_shannon_divergence(tiny, one) == 0


def test_divergence_of_nearly_equal_distributions_is_not_negative() -> None:
    random = np.random.default_rng(17)
    for _ in range(200):
        p = random.dirichlet(np.ones(9))
        assert 0 <= jensen_shannon_divergence(p, np.nextafter(p, random.uniform(size=9))) < 1e-15


# --- selection ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "gamma", "count"),
    [
        ([0.25, 0.5, 0.25], 0.5, 1),  # reached exactly by the best one
        ([0.25, 0.5, 0.25], 0.51, 2),
        ([0.25, 0.5, 0.25], 0.75, 2),
        ([0.25, 0.5, 0.25], 0.76, 3),
        ([2, 4, 2], 0.75, 2),  # relative to the total
        ([0.0, 1.0, 0.0], 0.99, 1),
        ([0.0, 1.0, 0.0], 1.0, 3),
    ],
)
def test_coverage_counts_the_crossing_block(scores: list[float], gamma: float, count: int) -> None:
    assert coverage_count(np.array(scores, np.float64), gamma) == count


def test_ranking_puts_index_0_first_and_ties_to_the_lower_index() -> None:
    scores = np.array([0.0, 0.2, 0.4, 0.2, 0.4])
    np.testing.assert_array_equal(best_first(scores, 5), [0, 2, 4, 1, 3])
    np.testing.assert_array_equal(best_first(scores, 2), [0, 2])
    for none in (0, 1):
        np.testing.assert_array_equal(best_first(scores, none), [0])


def test_columns_and_distances_make_a_causal_map() -> None:
    selected = vertical_slash_map([1], [0, 2], 4)
    expected = [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [1, 1, 1, 0],  # (2, 0) at distance 2, (2, 1) in column 1
        [0, 1, 0, 1],  # (3, 1) in both
    ]
    np.testing.assert_array_equal(selected, np.array(expected, np.bool_))


def test_vertical_slash_worked_by_hand() -> None:
    # Scores as above HAND_WEIGHTS; gamma 0.7 = 22.4/32, tau 0, no budgets.
    q, k = hand_inputs()
    parameters = SelectionParameters(gamma=0.7, tau=0, min_budget=0, block=2)
    # In blocks: verticals 15, 15 + 11 = 26 >= 22.4: 2 columns, 0 and 2.
    # Slashes 13, 13 + 13 = 26: 2 distances, 0 and 2. All pairs but (2, 1), flat 7.
    selection = block_coverage_selection(q, k, parameters)
    (head,) = selection.heads
    assert head.pattern is Pattern.VERTICAL_SLASH
    np.testing.assert_array_equal(head.columns, [0, 2])
    np.testing.assert_array_equal(head.distances, [0, 2])
    np.testing.assert_array_equal(selection.index_set.flat(0), [0, 3, 4, 6, 8])
    # In tokens: verticals 12, 20, 23: two prefix sums <= 22.4, count 3; 3 // 2 + 1 = 2 columns.
    # Slashes 10, 19, 23: count 3 too, 2 distances.
    paper = flexprefill_selection(q, k, parameters, count_divisor=2)
    np.testing.assert_array_equal(paper.heads[0].columns, [0, 2])
    np.testing.assert_array_equal(paper.heads[0].distances, [0, 2])
    assert paper.index_set == selection.index_set
    # The released code divides by 128: 3 // 128 + 1 = 1, the forced column and diagonal.
    released = flexprefill_selection(q, k, parameters)
    np.testing.assert_array_equal(released.index_set.flat(0), [0, 3, 4, 6, 8])


def test_forced_column_takes_a_place_of_the_count() -> None:
    # Weights 1 1 1 1 8 8: the sink block is the worst, yet it is one of the two columns.
    q, k = hand_inputs([1.0, 1.0, 1.0, 1.0, 8.0, 8.0, 1.0, 1.0])
    # Rows: 22ths of token 6 (1 1 1 1 8 8 1 0 => 21), of token 7 (.. 1 1 => 22).
    # Block 2 holds 16/21 and 16/22, mean 0.745; gamma 0.8 needs one more block of 0.09.
    parameters = SelectionParameters(gamma=0.8, tau=0, min_budget=0, block=2)
    (head,) = block_coverage_selection(q, k, parameters).heads
    np.testing.assert_array_equal(head.columns, [0, 2])
    assert head.scores is not None
    assert coverage_count(head.scores.vertical, 0.8) == 2


def test_query_aware_worked_by_hand() -> None:
    # d = 1, q = 1, weights 1 1 4 4 1 1, block 2: pooled weights 1 4 1.
    # Rows of the pooled map: 1; 1/5 4/5; 1/6 4/6 1/6. In descending order with running sums:
    # (0,0) 1; (1,1) 1.8; (2,1) 2.4667; (1,0) 2.6667; (2,0) 2.8333; (2,2) 3, ties by flat index.
    q, k = hand_inputs([1.0, 1.0, 4.0, 4.0, 1.0, 1.0])
    flat_order = [0, 4, 7, 3, 6, 8]
    for gamma, kept in ((0.3, 0), (0.34, 1), (0.85, 3), (0.95, 5), (1.0, 6)):
        pairs = query_aware_pairs(q[0], k[0], 2, gamma)  # thresholds 0.9 1.02 2.55 2.85 3
        np.testing.assert_array_equal(pairs, flat_order[:kept])
    # Verticals by rows (1 1 4 4 1)/11, (1 1 4 4 1 1)/12: 0.174, 0.697, 0.129, near 1/6 4/6 1/6.
    for rule in RULES:
        for gamma, kept in ((0.34, 1), (0.85, 3)):
            parameters = SelectionParameters(gamma=gamma, tau=0.1, min_budget=0, block=2)
            selection = rule(q, k, parameters)
            (head,) = selection.heads
            assert head.pattern is Pattern.QUERY_AWARE
            np.testing.assert_array_equal(head.query_aware_pairs, flat_order[:kept])
            # Column 0 and the diagonal are 0 3 6 and 0 4 8; the map adds (2, 1).
            expected = [0, 3, 4, 6, 7, 8] if kept == 3 else [0, 3, 4, 6, 8]
            np.testing.assert_array_equal(selection.index_set.flat(0), expected)


@pytest.mark.parametrize("rule", RULES)
@given(
    kind=st.sampled_from(KINDS),
    tokens=st.integers(1, 70),
    block=st.sampled_from([1, 2, 4, 5, 8]),
    groups=st.sampled_from([(1, 1), (2, 2), (4, 2)]),
    gamma=st.sampled_from([0.01, 0.3, 0.5, 0.8, 0.9, 0.95, 0.999, 1.0]),
    tau=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    budgets=st.tuples(st.integers(0, 30), st.none() | st.integers(0, 40)),
    divisor_is_block=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_rules_equal_the_plain_loops(
    rule: Rule,
    kind: str,
    tokens: int,
    block: int,
    groups: tuple[int, int],
    gamma: float,
    tau: float,
    budgets: tuple[int, int | None],
    divisor_is_block: bool,
    seed: int,
) -> None:
    q, k = structured_inputs(kind, seed, tokens, *groups)
    min_budget, spare = budgets
    max_budget = None if spare is None else min_budget + spare
    parameters = SelectionParameters(gamma, tau, min_budget, max_budget, block)
    options: dict[str, int] = {}
    if rule is flexprefill_selection and divisor_is_block:
        options["count_divisor"] = block
    divisor = options.get("count_divisor", 128) if rule is flexprefill_selection else None
    expected, patterns, margin = plain_rule(q, k, parameters, divisor)
    # A sum that equals its threshold is on either side by rounding. Whole rows of the query-aware
    # map sum to 1, so that it happens when gamma times the number of blocks is whole.
    assume(margin > 1e-9)
    selection = rule(q, k, parameters, **options)
    assert_chooses(selection, expected, patterns)
    index_set = selection.index_set
    assert selection.parameters is parameters
    for head in range(index_set.heads):
        np.testing.assert_array_equal(index_set.row(head, 0), [0])
        for row in range(index_set.blocks):
            columns = index_set.row(head, row)
            assert columns[0] == 0
            assert columns[-1] == row


def test_inputs_of_the_comparison_reach_every_pattern() -> None:
    parameters = SelectionParameters(0.9, 0.3, 8, block=4)
    for rule in RULES:
        selections = [
            rule(*structured_inputs(kind, seed, 61), parameters)
            for kind in KINDS
            for seed in range(5)
        ]
        for pattern in (Pattern.VERTICAL_SLASH, Pattern.QUERY_AWARE):
            assert sum(selection.heads_with(pattern) for selection in selections) >= 5
        assert sum(selection.index_set.density < 0.8 for selection in selections) >= 5


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tokens", [640, 700])
@pytest.mark.parametrize(("kind", "seed"), [("local", 3), ("columns", 4)])
def test_rules_equal_the_plain_loops_at_block_128(
    rule: Rule, tokens: int, kind: str, seed: int
) -> None:
    q, k = structured_inputs(kind, seed, tokens, heads=1, d=2)
    parameters = SelectionParameters(gamma=0.7, tau=0.1, min_budget=128)
    divisor = 128 if rule is flexprefill_selection else None
    expected, patterns, margin = plain_rule(q, k, parameters, divisor)
    assert margin > 1e-9
    selection = rule(q, k, parameters)
    assert_chooses(selection, expected, patterns)
    assert selection.index_set.density < 1


def test_released_rule_counts_in_units_of_128_tokens() -> None:
    # Block 1, one representative query of zeros: all 256 tokens have probability 1/256.
    q = np.zeros((1, 256, 1))
    for gamma, columns in ((126.5, 1), (127, 2), (254.5, 2), (255, 3)):
        # Prefix sums at most gamma: floor(256 gamma); the count is one more; // 128 + 1 blocks.
        parameters = SelectionParameters(gamma / 256, tau=0, min_budget=0, block=1)
        (head,) = flexprefill_selection(q, q, parameters).heads
        np.testing.assert_array_equal(head.columns, np.arange(columns))
        np.testing.assert_array_equal(head.distances, np.arange(columns))


@pytest.mark.parametrize("rule", RULES)
def test_coverage_reached_by_one_token_is_raised_to_the_minimum_budget(rule: Rule) -> None:
    q, k = np.ones((1, 40, 1)), np.zeros((1, 40, 1))
    k[0, 21] = 20  # block 5 of 10 holds nearly everything
    for min_budget, count in ((0, 1), (4, 1), (5, 2), (9, 3)):
        (head,) = rule(q, k, SelectionParameters(0.9, 0, min_budget, block=4)).heads
        assert head.pattern is Pattern.VERTICAL_SLASH
        assert len(head.columns) == count
        np.testing.assert_array_equal(head.columns[:2], [0, 5][:count])


@pytest.mark.parametrize("rule", RULES)
def test_maximum_budget_limits_columns_and_diagonals(rule: Rule) -> None:
    q, k = structured_inputs("noise", 5, 64)
    options = {"count_divisor": 4} if rule is flexprefill_selection else {}
    for max_budget, most in ((0, 1), (1, 1), (4, 1), (5, 2), (12, 3)):
        parameters = SelectionParameters(0.99, 0, 0, max_budget, block=4)
        for head in rule(q, k, parameters, **options).heads:
            assert len(head.columns) == len(head.distances) == most


def test_budget_of_zero_selects_nothing_beyond_the_forced_blocks_when_all_scores_tie() -> None:
    q = np.zeros((2, 24, 4))
    k = np.random.default_rng(6).normal(size=(1, 24, 4))
    for rule in RULES:
        for budget, chosen in ((0, [0]), (1, [0]), (4, [0]), (8, [0, 1]), (12, [0, 1, 2])):
            parameters = SelectionParameters(0.9, 0, budget, budget, block=4)
            selection = rule(q, k, parameters)
            for head in selection.heads:
                np.testing.assert_array_equal(head.columns, chosen)  # ties to the lower index
                np.testing.assert_array_equal(head.distances, chosen)
            expected = vertical_slash_map(chosen, chosen, 6)
            np.testing.assert_array_equal(selection.index_set.to_mask()[1], expected)


def test_query_aware_sum_may_equal_its_threshold() -> None:
    q = np.zeros((2, 1))  # map 1; 1/2 1/2: running sums 1, 1.5 and 2 of 2
    for gamma, kept in ((0.49, 0), (0.5, 1), (0.74, 1), (0.75, 2), (0.99, 2), (1, 3)):
        np.testing.assert_array_equal(query_aware_pairs(q, q, 1, gamma), [0, 2, 3][:kept])


def test_equal_pairs_of_the_query_aware_map_rank_by_flat_index() -> None:
    # Queries of zeros: row r of the map is r + 1 times 1 / (r + 1). Values 1; 1/2 1/2; 1/4 x 4.
    q = np.zeros((4, 1))
    # Flat 0 (1), 4 and 5 (1/2), 8 9 10 (1/3), 12 13 14 15 (1/4); total 4.
    for threshold, kept in ((0.9, 0), (1.4, 1), (1.6, 2), (2.1, 3), (2.4, 4), (3.6, 8)):
        pairs = query_aware_pairs(q, q, 1, threshold / 4)
        np.testing.assert_array_equal(pairs, [0, 4, 5, 8, 9, 10, 12, 13, 14, 15][:kept])


def test_threshold_of_the_divergence_is_strict() -> None:
    q, k = structured_inputs("noise", 7, 64, heads=1)
    base: dict[str, Any] = {"gamma": 0.9, "min_budget": 0, "block": 4}
    for rule in RULES:
        root = math.sqrt(rule(q, k, SelectionParameters(**base)).heads[0].divergence)
        for tau, pattern in (
            (root * (1 - 1e-12), Pattern.VERTICAL_SLASH),
            (root * (1 + 1e-12), Pattern.QUERY_AWARE),
        ):
            assert rule(q, k, SelectionParameters(tau=tau, **base)).heads[0].pattern is pattern
    exact = SelectionParameters(
        tau=math.sqrt(flexprefill_selection(q, k, SelectionParameters(**base)).heads[0].divergence),
        **base,
    )
    assert flexprefill_selection(q, k, exact).heads[0].pattern is Pattern.VERTICAL_SLASH


@pytest.mark.parametrize("rule", RULES)
def test_tau_of_zero_is_never_query_aware(rule: Rule) -> None:
    q = np.zeros((1, 16, 1))  # estimate and verticals are equal: divergence 0
    selection = rule(q, q, SelectionParameters(0.9, 0, 0, block=1))
    assert selection.heads[0].divergence == 0
    assert selection.heads_with(Pattern.VERTICAL_SLASH) == 1
    assert rule(q, q, SelectionParameters(0.9, 1e-6, 0, block=1)).heads_with(Pattern.QUERY_AWARE)


def test_zero_probabilities_make_the_divergence_nan_or_nothing() -> None:
    q, k = structured_inputs("sharp", 8, 64)
    parameters = SelectionParameters(0.9, 1.0, 8, block=4)
    released = flexprefill_selection(q, k, parameters)
    kernel = block_coverage_selection(q, k, parameters)
    for head in range(2):
        scores = kernel.heads[head].scores
        assert scores is not None
        assert not scores.vertical.all()
        assert math.isnan(released.heads[head].divergence)
        assert released.heads[head].pattern is Pattern.VERTICAL_SLASH
        assert kernel.heads[head].divergence <= math.log(2)
        assert kernel.heads[head].pattern is Pattern.QUERY_AWARE


def test_query_aware_heads_keep_the_minimum_budget() -> None:
    q, k = structured_inputs("clusters", 9, 61)
    parameters = SelectionParameters(0.5, 1.0, 9, block=4)
    for rule in RULES:
        selection = rule(q, k, parameters)
        assert selection.heads_with(Pattern.QUERY_AWARE) == 2
        for number, head in enumerate(selection.heads):
            assert len(head.columns) == len(head.distances) == 3  # ceil(9 / 4)
            kept = vertical_slash_map(head.columns, head.distances, 16)
            kept.reshape(-1)[head.query_aware_pairs] = True
            np.testing.assert_array_equal(selection.index_set.to_mask()[number], kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 13, 16, 17, 61, 64])
def test_coverage_of_everything_selects_every_causal_block(kind: str, tokens: int) -> None:
    q, k = structured_inputs(kind, 10, tokens, heads=4, kv_heads=2)
    v = np.random.default_rng(11).normal(size=k.shape)
    parameters = SelectionParameters(gamma=1, tau=0, min_budget=0, block=4)
    everything = IndexSet.dense(4, -(-tokens // 4))
    for selection in (
        block_coverage_selection(q, k, parameters),
        flexprefill_selection(q, k, parameters, count_divisor=4),
    ):
        assert selection.index_set == everything
        sparse = block_sparse_attention(q, k, v, selection.index_set, 4)
        np.testing.assert_allclose(
            sparse.output, dense_causal_attention(q, k, v), rtol=0, atol=1e-12
        )


def test_coverage_of_everything_at_block_128_equals_dense_attention_to_the_bit() -> None:
    q, k = structured_inputs("sharp", 12, 450)
    parameters = SelectionParameters(gamma=1, tau=0, min_budget=0)
    for rule in RULES:
        selection = rule(q, k, parameters)
        sparse = block_sparse_attention(q, k, k, selection.index_set, 128)
        np.testing.assert_array_equal(sparse.output, dense_causal_attention(q, k, k))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize(
    ("tokens", "min_budget"), [(1, 0), (3, 0), (4, 0), (5, 0), (8, 0), (12, 9), (11, 12)]
)
def test_short_sequences_are_dense(rule: Rule, tau: float, tokens: int, min_budget: int) -> None:
    q, k = structured_inputs("noise", 13, tokens)
    selection = rule(q, k, SelectionParameters(0.1, tau, min_budget, block=4))
    assert selection.index_set == IndexSet.dense(2, -(-tokens // 4))
    if rule is flexprefill_selection:
        assert selection.heads_with(Pattern.DENSE) == 2
        assert all(math.isnan(h.divergence) and h.scores is None for h in selection.heads)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("tokens", "min_budget"), [(9, 0), (13, 12)])
def test_one_token_more_than_a_short_sequence_is_sparse(
    rule: Rule, tokens: int, min_budget: int
) -> None:
    q, k = structured_inputs("sink", 14, tokens)
    selection = rule(q, k, SelectionParameters(0.1, 0, min_budget, block=4))
    assert selection.heads_with(Pattern.VERTICAL_SLASH) == 2


def test_representative_queries_of_a_ragged_sequence_are_the_last_tokens() -> None:
    # 22 tokens, block 4: representative are tokens 18 to 21, of blocks 4 and 5. Only token 18
    # looks at block 2; tokens before it look at block 1 and must not count.
    q, k = np.zeros((1, 22, 3)), np.zeros((1, 22, 3))
    q[0, :18, 0] = q[0, 18, 1] = q[0, 19:, 2] = 100
    k[0, 4:8, 0] = k[0, 8:12, 1] = k[0, 12:16, 2] = 1
    vertical, _ = block_scores(q, k, 4)
    np.testing.assert_allclose(vertical[0], [0, 0, 0.25, 0.75, 0, 0], atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_every_kv_head_is_read_by_its_own_group(rule: Rule, heads: int, kv_heads: int) -> None:
    # KV head n has its heavy key in block n + 1.
    tokens = 2 * (kv_heads + 3)
    q, k = np.ones((heads, tokens, 1)), np.zeros((kv_heads, tokens, 1))
    k[np.arange(kv_heads), 2 * (np.arange(kv_heads) + 1)] = 20
    selection = rule(q, k, SelectionParameters(0.9, 0, 4, block=2))
    read = [int(head.columns[1]) - 1 for head in selection.heads]
    assert read == [head // (heads // kv_heads) for head in range(heads)]
    assert set(read) == set(range(kv_heads))
    aware = rule(q, k, SelectionParameters(0.9, 1, 4, block=2))
    heaviest = [int(head.query_aware_pairs[1]) % (kv_heads + 3) for head in aware.heads]
    assert all(head.pattern is Pattern.QUERY_AWARE for head in aware.heads)
    assert [column - 1 for column in heaviest] == read


@pytest.mark.parametrize("logit", [-200.0, -2.45e5])
@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 17, 61])
def test_strongly_negative_scores_select_as_their_shifted_copy(tokens: int, logit: float) -> None:
    # One more dimension adds the same `logit` to every score, which a softmax ignores. A key of
    # zeros in the padding of the last block would outweigh all others.
    q, k = structured_inputs("noise", 15, tokens, heads=4, kv_heads=2)
    d = q.shape[2]
    root = math.sqrt(-logit) * (d + 1) ** 0.25
    low_q = np.concatenate([q * math.sqrt((d + 1) / d), np.full((4, tokens, 1), root)], axis=2)
    low_k = np.concatenate([k, np.full((2, tokens, 1), -root)], axis=2)
    for scores, low_scores in zip(
        block_scores(q, k, 8), block_scores(low_q, low_k, 8), strict=True
    ):
        np.testing.assert_allclose(low_scores, scores, rtol=0, atol=1e-8)
    for rule in RULES:
        for tau in (0.0, 1.0):
            parameters = SelectionParameters(0.7, tau, 8, block=8)
            assert rule(low_q, low_k, parameters).index_set == rule(q, k, parameters).index_set


@pytest.mark.parametrize("rule", RULES)
def test_single_precision_selects_the_same_on_scores_that_are_apart(rule: Rule) -> None:
    q, k = structured_inputs("columns", 16, 61, heads=4, kv_heads=2)
    parameters = SelectionParameters(0.9, 0.1, 8, block=4)
    single = rule(q, k, parameters, dtype=np.float32)
    assert single.index_set == rule(q, k, parameters).index_set
    assert single.heads[0].scores is not None
    assert single.heads[0].scores.vertical.dtype == np.float32
