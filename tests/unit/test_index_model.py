# SPDX-License-Identifier: Apache-2.0
"""Bit-exact index generation: against the rule in FP64, and its selections against sorting."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.errors import RangeError
from fastdelta.prefill.quantise import quantise_prompt
from fastdelta.reference import sparse_index
from fastdelta.reference.attention import attention_mass
from fastdelta.reference.index_model import (
    BLOCK_SCORE_BITS,
    BLOCK_SCORE_FRACTION,
    DIVERGENCE_FRACTION,
    GAMMA_FRACTION,
    POOLED_BITS,
    POOLED_SCORE_FRACTION,
    SHARE_BITS,
    SHARE_FRACTION,
    IndexParameters,
    IndexResult,
    best_blocks,
    bisect_threshold,
    block_scores,
    coverage_count,
    covered_entries,
    divergence,
    generate_index,
    pool_keys,
    pool_queries,
    pooled_scores,
    shares,
    softmax_shares,
)
from fastdelta.reference.prefill_model import PrefillOperands
from fastdelta.reference.sparse_index import (
    IndexSet,
    Pattern,
    Selection,
    SelectionParameters,
    block_coverage_selection,
)

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

KINDS = ["noise", "sink", "local", "motif", "columns"]
ONE_SHARE = 1 << SHARE_FRACTION
WHOLE = 1 << GAMMA_FRACTION


def prompt(
    kind: str, seed: int, tokens: int, *, heads: int = 4, kv_heads: int = 2, d: int = 32
) -> tuple[Array, Array]:
    """Queries and keys whose attention is flat, or has the shapes that models show."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(heads, tokens, d))
    k = rng.normal(size=(kv_heads, tokens, d))
    if kind == "sink":
        q[:, :, 0], k[:, :, 0] = 6.0, 0.0
        k[:, 0, 0] = rng.uniform(4, 7)
    elif kind == "local":
        angle = np.arange(tokens) * rng.uniform(0.01, 0.03)
        for x in (q, k):
            x[:, :, 0], x[:, :, 1] = 5 * np.cos(angle), 5 * np.sin(angle)
    elif kind == "motif":  # the same phrase comes back: some distances stand out
        period = int(rng.integers(20, 60))
        phrase = 0.9 * rng.normal(size=(period, d))
        for x in (q, k):
            x += np.tile(phrase, (-(-tokens // period), 1))[:tokens]
    elif kind == "columns":
        q[:, :, 0], k[:, :, 0] = 6.0, 0.0
        k[:, rng.integers(0, tokens, size=5), 0] = rng.uniform(3, 6, size=5)
    return q, k


def both_rules(
    q: Array, k: Array, parameters: SelectionParameters
) -> tuple[IndexResult, Selection]:
    operands = quantise_prompt(q, k, np.zeros_like(k)).operands
    found = generate_index(operands, IndexParameters.from_selection(parameters, q.shape[1]))
    return found, block_coverage_selection(q, k, parameters)


def dequantised(operands: PrefillOperands) -> tuple[Array, Array]:
    """Queries and keys in FP64 whose scores are those of the operands."""
    natural = np.log(2.0) * np.sqrt(operands.q.shape[2])
    step = np.ldexp(operands.multiplier * natural, -operands.exponent)
    return operands.q * step[..., np.newaxis], np.ldexp(
        operands.k.astype(np.float64), -operands.k_shift[..., np.newaxis]
    )


def assert_equal_thirds(estimate: IntArray) -> None:
    assert len(set(estimate.tolist())) == 1
    assert np.all(np.abs(estimate - ONE_SHARE / 3) <= 1)


def is_separated(scores: Array, count: int, gamma: float, margin: float) -> bool:
    """Say whether no selection changes when every score and running sum moves by `margin`."""
    ranked = -np.sort(-scores)
    others = -np.sort(-scores[1:])
    sums = np.cumsum(ranked) / ranked.sum()
    gaps = (others[:-1] - others[1:])[max(count - 2, 0) : count]
    return bool(np.abs(sums - gamma).min() > margin and np.all(gaps > margin))


# --- against the rule in FP64 ---------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.1, 1.0])
def test_index_set_follows_the_rule_in_fp64(kind: str, tau: float) -> None:
    """Mean over prompts; a single one may differ where a sum is close to its threshold."""
    overlap, overlap_of_operands, mass = [], [], []
    for seed, tokens in enumerate((320, 333, 400, 511)):
        q, k = prompt(kind, seed, tokens)
        operands = quantise_prompt(q, k, np.zeros_like(k)).operands
        for gamma in (0.5, 0.9):
            parameters = SelectionParameters(gamma=gamma, tau=tau, min_budget=32, block=16)
            found, expected = both_rules(q, k, parameters)
            overlap.append(found.index_set.jaccard_per_head(expected.index_set))
            mass.append(
                attention_mass(q, k, found.index_set, 16)
                - attention_mass(q, k, expected.index_set, 16)
            )
            same_operands = block_coverage_selection(*dequantised(operands), parameters)
            overlap_of_operands.append(found.index_set.jaccard(same_operands.index_set))
    assert np.mean(overlap) >= 0.97
    assert abs(np.mean(mass)) <= 0.005
    assert np.mean(overlap_of_operands) >= 0.99


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [7, 16, 17, 100, 160, 173])
def test_scores_and_divergence_follow_fp64_on_the_same_operands(kind: str, tokens: int) -> None:
    q, k = prompt(kind, tokens, tokens)
    operands = quantise_prompt(q, k, np.zeros_like(k)).operands
    exact = dequantised(operands)
    vertical, slash = sparse_index.block_scores(*exact, 16)
    estimate = sparse_index.pooled_estimate(*exact, 16)
    parameters = IndexParameters(16, 1 << 15, 0, 0, 1 << 10)
    for head, found in enumerate(generate_index(operands, parameters).heads):
        rows = min(tokens, 16) << BLOCK_SCORE_FRACTION
        assert found.vertical.sum() == found.slash.sum()
        np.testing.assert_allclose(found.vertical / rows, vertical[head], rtol=0, atol=2e-4)
        np.testing.assert_allclose(found.slash / rows, slash[head], rtol=0, atol=2e-4)
        np.testing.assert_allclose(found.estimate / ONE_SHARE, estimate[head], rtol=0, atol=2e-4)
        expected = sparse_index.jensen_shannon_divergence(estimate[head], vertical[head])
        assert abs(found.divergence / 2**DIVERGENCE_FRACTION - expected) <= 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_well_separated_scores_of_the_operands_select_the_same_columns(kind: str) -> None:
    """The rule in FP64 reads the dequantised operands: only the arithmetic differs."""
    separated = 0
    for seed, tokens in enumerate((64, 90, 128, 160, 173, 200)):
        q, k = prompt(kind, seed, tokens)
        operands = quantise_prompt(q, k, np.zeros_like(k)).operands
        parameters = SelectionParameters(gamma=0.8, tau=0.0, min_budget=0, block=16)
        found = generate_index(operands, IndexParameters.from_selection(parameters, tokens))
        expected = block_coverage_selection(*dequantised(operands), parameters)
        for mine, theirs in zip(found.heads, expected.heads, strict=True):
            assert theirs.scores is not None
            for chosen, ranking, scores in (
                (mine.columns, theirs.columns, theirs.scores.vertical),
                (mine.distances, theirs.distances, theirs.scores.slash),
            ):
                if is_separated(scores, len(ranking), parameters.gamma, 1e-3):
                    separated += 1
                    assert chosen.tolist() == sorted(ranking.tolist())
    assert separated >= 12


def test_well_separated_pairs_of_the_map_are_the_same() -> None:
    """Block means fall off along the columns, each row at its own rate."""
    block, blocks = 16, 6
    tokens = block * blocks
    q, k = np.zeros((1, tokens, 16)), np.zeros((1, tokens, 16))
    q[0, :, 0] = np.repeat([1.0, 1.3, 1.7, 2.1, 2.6, 3.2], block)
    k[0, :, 0] = np.repeat(np.arange(blocks), block)
    for gamma in (0.3, 0.7, 0.95):
        parameters = SelectionParameters(gamma=gamma, tau=1.0, min_budget=0, block=block)
        found, expected = both_rules(q, k, parameters)
        assert found.heads[0].pattern is Pattern.QUERY_AWARE
        pairs = expected.heads[0].query_aware_pairs
        assert found.heads[0].query_aware_pairs.tolist() == sorted(pairs.tolist())
        assert found.index_set == expected.index_set


def test_both_patterns_occur_and_are_counted() -> None:
    q, k = prompt("noise", 0, 200)
    q[0] *= 0.01  # flat, and so is its estimate
    q[1, :, 0] = 40.0  # one key takes all: its block mean does not show it
    k[0, :, 0] = 0.0
    k[0, 77, 0] = 4.0
    found, expected = both_rules(
        q, k, SelectionParameters(gamma=0.8, tau=0.3, min_budget=16, block=16)
    )
    patterns = [head.pattern for head in found.heads]
    assert patterns[:2] == [Pattern.QUERY_AWARE, Pattern.VERTICAL_SLASH]
    assert patterns == [head.pattern for head in expected.heads]
    blocks = 13
    assert found.counters.query_aware_heads == patterns.count(Pattern.QUERY_AWARE)
    assert found.counters.score_tiles == 4 * blocks
    assert found.counters.pooled_scores == (
        4 * blocks + found.counters.query_aware_heads * blocks * (blocks + 1) // 2
    )
    assert found.counters.pairs == len(found.index_set.columns)


# --- corners --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 61, 128])
def test_coverage_of_everything_selects_every_causal_block(kind: str, tokens: int) -> None:
    q, k = prompt(kind, 1, tokens)
    parameters = SelectionParameters(gamma=1.0, tau=0.0, min_budget=0, block=16)
    found, _ = both_rules(q, k, parameters)
    assert found.index_set == IndexSet.dense(4, -(-tokens // 16))


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_prompt_of_one_block(tau: float, tokens: int) -> None:
    q, k = prompt("noise", 2, tokens)
    found, _ = both_rules(q, k, SelectionParameters(gamma=0.5, tau=tau, min_budget=0, block=16))
    assert found.index_set == IndexSet.dense(4, 1)
    assert all(head.divergence < 1e-6 * 2**DIVERGENCE_FRACTION for head in found.heads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_sink_column_and_diagonal_are_always_selected(kind: str, tau: float) -> None:
    q, k = prompt(kind, 3, 150)
    parameters = SelectionParameters(gamma=1e-6, tau=tau, min_budget=0, max_budget=0, block=16)
    found, _ = both_rules(q, k, parameters)
    for head in range(4):
        assert found.index_set.row(head, 0).tolist() == [0]
        for row in range(1, 10):
            assert found.index_set.row(head, row).tolist() == [0, row]


def test_budgets_bound_columns_and_distances() -> None:
    q, k = prompt("noise", 4, 256)
    for gamma in (0.01, 0.99):
        parameters = SelectionParameters(
            gamma=gamma, tau=0.0, min_budget=40, max_budget=80, block=16
        )
        found, _ = both_rules(q, k, parameters)
        expected = 3 if gamma == 0.01 else 5
        for head in found.heads:
            assert len(head.columns) == len(head.distances) == expected


@pytest.mark.parametrize("blocks", [2, 4, 8, 16])
def test_uniform_scores_take_the_first_blocks(blocks: int) -> None:
    """Keys of zeros: equal vertical scores but for the causal last block, ties to the lower."""
    tokens = 16 * blocks
    q, k = prompt("noise", 5, tokens)
    k[:] = 0
    parameters = SelectionParameters(gamma=0.6, tau=0.0, min_budget=0, block=16)
    found, _ = both_rules(q, k, parameters)
    count = len(found.heads[0].columns)
    assert abs(count - 0.6 * blocks) <= 1
    for head in found.heads:
        assert head.columns.tolist() == list(range(count))
        assert len(set(head.vertical[:-1].tolist())) == 1
        assert len(set(head.estimate.tolist())) == 1


def test_zero_queries_and_keys_pool_to_zero_scores() -> None:
    operands = quantise_prompt(*np.zeros((3, 1, 40, 16))).operands
    result = generate_index(operands, IndexParameters(16, WHOLE // 2, ONE_SHARE, 0, 3))
    assert result.heads[0].pattern is Pattern.QUERY_AWARE
    assert_equal_thirds(result.heads[0].estimate)


def test_largest_operands_stay_in_their_formats() -> None:
    tokens, d, block = 384, 256, 128
    shape = (1, tokens, d)
    operands = PrefillOperands(
        q=np.full(shape, 127, np.int8),
        multiplier=np.full((1, tokens), (1 << 16) - 1),
        exponent=np.full((1, tokens), 8),
        k=np.full(shape, -127, np.int8),
        k_shift=np.zeros((1, tokens), np.int64),
        v=np.zeros(shape, np.int8),
        v_shift=np.zeros((1, tokens), np.int64),
    )
    result = generate_index(operands, IndexParameters(block, WHOLE // 2, ONE_SHARE, 1, 3))
    vertical, slash = block_scores(operands, 0, block)
    assert 0 <= vertical.min() <= vertical.max() < 1 << BLOCK_SCORE_BITS
    assert 0 <= slash.min() <= slash.max() < 1 << BLOCK_SCORE_BITS
    assert_equal_thirds(result.heads[0].estimate)
    keys = pool_keys(operands.k[0], operands.k_shift[0], block)
    queries = pool_queries(operands.q[0], operands.multiplier[0], operands.exponent[0], block)
    assert max(np.abs(keys.mantissa).max(), np.abs(queries.mantissa).max()) <= 1 << POOLED_BITS
    assert np.all(pooled_scores(queries, keys) == -(1 << 31))


@pytest.mark.parametrize(
    "change",
    [
        {"block": 0},
        {"block": 129},
        {"gamma": 0},
        {"gamma": WHOLE + 1},
        {"divergence_limit": -1},
        {"divergence_limit": ONE_SHARE + 1},
        {"min_blocks": -1},
        {"min_blocks": 5},
    ],
)
def test_invalid_parameters_are_refused(change: dict[str, int]) -> None:
    valid = {"block": 16, "gamma": 1, "divergence_limit": 0, "min_blocks": 0, "max_blocks": 4}
    with pytest.raises(RangeError, match="allowed"):
        IndexParameters(**valid | change)


# --- units ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 15, 16, 40, 64])
def test_pooled_scores_are_dot_products_of_block_means(tokens: int) -> None:
    q, k = prompt("noise", tokens, tokens, heads=1, kv_heads=1)
    q *= np.exp(np.random.default_rng(0).normal(size=(1, tokens, 1)))
    operands = quantise_prompt(q, k, k).operands
    queries = pool_queries(operands.q[0], operands.multiplier[0], operands.exponent[0], 16)
    keys = pool_keys(operands.k[0], operands.k_shift[0], 16)
    exact_q, exact_k = (sparse_index.block_means(x[0], 16) for x in dequantised(operands))
    expected = exact_q @ exact_k.T / (np.sqrt(32) * np.log(2.0))
    found = pooled_scores(queries, keys) / 2**POOLED_SCORE_FRACTION
    lengths = np.linalg.norm(exact_q, axis=1)[:, np.newaxis] * np.linalg.norm(exact_k, axis=1)
    assert np.all(np.abs(found - expected) <= 1e-4 * lengths / np.sqrt(32) + 2e-5)


def test_shares_of_a_power_of_two_are_exact() -> None:
    values = np.array([1, 3, 4, 0, 8])
    for left in (0, 20, 43):
        assert shares(values << left).tolist() == (values << 20).tolist()


@given(st.lists(st.integers(0, (1 << 37) - 1), min_size=1, max_size=64))
@settings(max_examples=200, deadline=None)
def test_shares_are_quotients(values: list[int]) -> None:
    array = np.array([*values, 1])
    exact = array / array.sum() * ONE_SHARE
    assert np.all(np.abs(shares(array) - exact) <= 3)


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=64))
@settings(max_examples=200, deadline=None)
def test_softmax_shares_follow_fp64(scores: list[int]) -> None:
    array = np.array(scores)
    weights = np.exp2((array - array.max()) / 2.0**POOLED_SCORE_FRACTION)
    exact = weights / weights.sum() * ONE_SHARE
    assert np.all(np.abs(softmax_shares(array) - exact) <= 40)


@given(
    st.integers(1, 64).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, 1000), min_size=n, max_size=n)] * 2)
    )
)
@settings(max_examples=200, deadline=None)
def test_divergence_follows_fp64(pair: tuple[list[int], list[int]]) -> None:
    p, q = (np.array([*values, 1], float) for values in pair)
    p, q = p / p.sum(), q / q.sum()
    found = divergence(*(np.rint(x * ONE_SHARE).astype(np.int64) for x in (p, q)))
    expected = sparse_index.jensen_shannon_divergence(p, q)
    assert abs(found / 2**DIVERGENCE_FRACTION - expected) <= 1e-5


def test_divergence_of_disjoint_and_of_equal_distributions() -> None:
    """0 log 0 is 0: two distributions without a common block are ln 2 apart."""
    p, q = np.array([ONE_SHARE, 0]), np.array([0, ONE_SHARE])
    assert abs(divergence(p, q) / 2**DIVERGENCE_FRACTION - np.log(2.0)) <= 1e-6
    assert divergence(p, p) == 0


# --- selection by threshold equals the sorted definition ---------------------------------------

# Few distinct values, so that ties are the rule; some that fill the format.
SCORES = st.lists(
    st.one_of(st.integers(0, 5), st.integers(0, (1 << (BLOCK_SCORE_BITS - 1)) - 1)),
    min_size=1,
    max_size=40,
).filter(any)
GAMMAS = st.one_of(st.integers(1, WHOLE), st.sampled_from([1, WHOLE // 2, WHOLE - 1, WHOLE]))


@given(SCORES, st.integers(0, 41))
@settings(max_examples=200, deadline=None)
def test_bisection_finds_the_value_of_a_rank(values: list[int], wanted: int) -> None:
    array = np.array(values)
    threshold = bisect_threshold(
        array, BLOCK_SCORE_BITS, lambda selected: np.count_nonzero(selected) >= wanted
    )
    if 1 <= wanted <= len(values):
        assert threshold == sorted(values, reverse=True)[wanted - 1]
    else:
        assert threshold == (0 if wanted else (1 << BLOCK_SCORE_BITS) - 1)


@given(SCORES, GAMMAS)
@settings(max_examples=300, deadline=None)
def test_coverage_count_is_that_of_sorted_scores(values: list[int], gamma: int) -> None:
    prefix = np.cumsum(sorted(values, reverse=True)).tolist()
    target = gamma * sum(values)
    expected = 1 + sum(partial * WHOLE < target for partial in prefix)
    assert coverage_count(np.array(values), gamma) == (len(values) if gamma == WHOLE else expected)


@given(SCORES, st.integers(0, 41))
@settings(max_examples=300, deadline=None)
def test_best_blocks_are_those_of_a_stable_sort(values: list[int], count: int) -> None:
    expected = sparse_index.best_first(np.array(values), count)
    assert best_blocks(np.array(values), count).tolist() == sorted(expected.tolist())


@given(
    st.lists(
        st.one_of(st.integers(0, 5), st.integers(0, (1 << SHARE_BITS) - 1)), min_size=1, max_size=40
    ).filter(any),
    GAMMAS,
)
@settings(max_examples=300, deadline=None)
def test_covered_entries_are_those_of_a_stable_sort(values: list[int], gamma: int) -> None:
    target, running, expected = gamma * sum(values), 0, []
    for position in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        running += values[position]
        if running * WHOLE > target:
            break
        expected.append(position)
    assert covered_entries(np.array(values), gamma).tolist() == sorted(expected)
