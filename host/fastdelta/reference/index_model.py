# SPDX-License-Identifier: Apache-2.0
"""Bit-exact integer model of the prefill engine's sparse index generation (SIGU).

The rule is `fastdelta.reference.sparse_index.block_coverage_selection`, computed from the int8
operands with integer units that see every K block once, in ascending order, and that never sort:
row sums of the tiles are kept until the normalisers of the rows are known, and every "best" is
found by bisection on a threshold. Formats and rounding: docs/prefill_engine.md,
"Sparse index generation". Semantics: FlexPrefill (Lai et al., arXiv 2502.20766) with coverage in
blocks, as in FAST-Prefill (arXiv 2602.20515).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdelta.errors import RangeError
from fastdelta.reference.fixed_point import IntArray, rshift_round, saturate
from fastdelta.reference.functions import (
    ARGUMENT_BITS,
    LN_2,
    Function,
    evaluate,
    natural_log,
    normalise,
    reciprocal,
)
from fastdelta.reference.prefill_model import (
    ACCUMULATOR_BITS,
    GUARD_BITS,
    K_SHIFT_MAX,
    NO_TILE,
    PrefillOperands,
    RowAccumulators,
    TileProbabilities,
    score_tile,
    tile_probabilities,
)
from fastdelta.reference.sparse_index import (
    BoolArray,
    IndexSet,
    Pattern,
    SelectionParameters,
    vertical_slash_map,
)

GAMMA_FRACTION = 16
ROW_SHARE_BITS = 49  # sum of shares (24 bits) times a reciprocal (25 bits)
BLOCK_SCORE_FRACTION = 32  # of one row's probability; a block score adds up to 128 rows
BLOCK_SCORE_BITS = 40
SHARE_FRACTION = 24
SHARE_BITS = SHARE_FRACTION + 1
POOLED_BITS = 14  # magnitude bits of a pooled vector
POOLED_SCORE_BITS, POOLED_SCORE_FRACTION = 32, 16
DIVISION_BITS = 32
DIVERGENCE_FRACTION = 2 * SHARE_FRACTION + 1


@dataclass(frozen=True)
class IndexParameters:
    """Parameters of index generation as the registers of the kernel hold them.

    Attributes
    ----------
    block
        Tokens of a block.
    gamma
        Share to cover, 16 fraction bits: 1 to 2**16. At 2**16 every block is taken.
    divergence_limit
        tau squared, 24 fraction bits: 0 (never query-aware) to 2**24.
    min_blocks, max_blocks
        Fewest and most block columns, and block diagonals: ``0 <= min_blocks <= max_blocks``.

    Raises
    ------
    RangeError
        For a value outside these ranges.
    """

    block: int
    gamma: int
    divergence_limit: int
    min_blocks: int
    max_blocks: int

    def __post_init__(self) -> None:
        if not 1 <= self.block <= 128:
            raise RangeError(f"block={self.block}; allowed are 1 to 128 tokens")
        if not 1 <= self.gamma <= 1 << GAMMA_FRACTION:
            raise RangeError(f"gamma={self.gamma}; allowed are 1 to {1 << GAMMA_FRACTION}")
        if not 0 <= self.divergence_limit <= 1 << SHARE_FRACTION:
            raise RangeError(
                f"divergence_limit={self.divergence_limit}; allowed are 0 to {1 << SHARE_FRACTION}"
            )
        if not 0 <= self.min_blocks <= self.max_blocks:
            raise RangeError(
                f"min_blocks={self.min_blocks}, max_blocks={self.max_blocks}; allowed are "
                "0 <= min_blocks <= max_blocks"
            )

    @classmethod
    def from_selection(cls, parameters: SelectionParameters, tokens: int) -> IndexParameters:
        """Round the parameters of the float rule for a prompt of `tokens`."""
        blocks = parameters.blocks(tokens)
        return cls(
            block=parameters.block,
            gamma=max(1, round(parameters.gamma * (1 << GAMMA_FRACTION))),
            divergence_limit=round(parameters.tau**2 * (1 << SHARE_FRACTION)),
            min_blocks=parameters.clamp(0, blocks),
            max_blocks=parameters.clamp(blocks, blocks),
        )

    def clamp(self, count: int, blocks: int) -> int:
        """Bring a number of columns or diagonals of `blocks` within the budgets."""
        return min(max(count, self.min_blocks), self.max_blocks, blocks)


@dataclass(frozen=True)
class RowPartials:
    """What the unit keeps of every row of every score tile of a head, int64 [blocks, block].

    Rows without a token, the first ones of a short prompt, have the exponent NO_TILE and no sums,
    as rows without a key.

    Attributes
    ----------
    exponent
        Exponent of the row in the tile; 16 bits.
    far, near
        Sums of the shares of keys up to the row's own place in its block, and of those after it,
        in steps of ``2**(exponent - 16)``; 24 bits.
    """

    exponent: IntArray
    far: IntArray
    near: IntArray


@dataclass(frozen=True)
class PooledVectors:
    """Block means in block floating point: ``mantissa * 2**-scale``.

    Attributes
    ----------
    mantissa
        Int64 [blocks, d], magnitude at most 2**14.
    scale
        Int64 [blocks].
    """

    mantissa: IntArray
    scale: IntArray


@dataclass(frozen=True)
class HeadIndex:
    """Decision for one query head.

    Attributes
    ----------
    pattern
        `Pattern.VERTICAL_SLASH` or `Pattern.QUERY_AWARE`.
    divergence
        Jensen-Shannon divergence in nats, 49 fraction bits.
    columns, distances
        Int64, selected block columns and block distances, ascending; 0 is always there.
    query_aware_pairs
        Int64, flat indices ``r * blocks + c`` from the query-aware map, ascending.
    vertical, slash
        Int64 [blocks], block scores: sums over the representative rows, 32 fraction bits.
    estimate
        Int64 [blocks], softmax of the pooled estimate, 24 fraction bits.
    """

    pattern: Pattern
    divergence: int
    columns: IntArray
    distances: IntArray
    query_aware_pairs: IntArray
    vertical: IntArray
    slash: IntArray
    estimate: IntArray


@dataclass(frozen=True)
class IndexCounters:
    """Work done: score tiles, pooled dot products, query-aware heads, pairs."""

    score_tiles: int
    pooled_scores: int
    query_aware_heads: int
    pairs: int


@dataclass(frozen=True)
class IndexResult:
    """Index set of a layer, the decision for each query head, and counters."""

    index_set: IndexSet
    heads: tuple[HeadIndex, ...]
    counters: IndexCounters


def generate_index(operands: PrefillOperands, parameters: IndexParameters) -> IndexResult:
    """Choose the blocks of every query head, bit for bit as the kernel does.

    Parameters
    ----------
    operands
        Quantised prompt; v is not read.
    parameters
        Coverage, divergence limit, budgets and block size.
    """
    heads, tokens, _ = operands.q.shape
    group = heads // operands.k.shape[0]
    blocks = -(-tokens // parameters.block)
    pooled_keys = [
        pool_keys(keys, shift, parameters.block)
        for keys, shift in zip(operands.k, operands.k_shift, strict=True)
    ]
    mask = np.zeros((heads, blocks, blocks), np.bool_)
    decisions = []
    for head in range(heads):
        decision = _head_index(operands, head, pooled_keys[head // group], parameters)
        mask[head] = vertical_slash_map(decision.columns, decision.distances, blocks)
        mask[head].reshape(-1)[decision.query_aware_pairs] = True
        decisions.append(decision)
    index_set = IndexSet.from_mask(mask)
    query_aware = sum(decision.pattern is Pattern.QUERY_AWARE for decision in decisions)
    counters = IndexCounters(
        score_tiles=heads * blocks,
        pooled_scores=heads * blocks + query_aware * blocks * (blocks + 1) // 2,
        query_aware_heads=query_aware,
        pairs=len(index_set.columns),
    )
    return IndexResult(index_set, tuple(decisions), counters)


def row_partials(operands: PrefillOperands, head: int, block: int) -> RowPartials:
    """Row sums of the tiles of the representative queries with every K block, ascending."""
    tokens = operands.q.shape[1]
    kv_head = head // (operands.q.shape[0] // operands.k.shape[0])
    rows, blocks = min(block, tokens), -(-tokens // block)
    queries = slice(tokens - rows, tokens)
    positions = np.arange(tokens - rows, tokens)[:, np.newaxis]
    exponent = np.full((blocks, block), NO_TILE, np.int64)
    far, near = np.zeros((2, blocks, block), np.int64)
    lower = np.arange(block) <= np.arange(block - rows, block)[:, np.newaxis]
    for kv_block in range(blocks):
        columns = slice(kv_block * block, min((kv_block + 1) * block, tokens))
        scores = score_tile(
            operands.q[head, queries],
            operands.k[kv_head, columns],
            operands.multiplier[head, queries],
            operands.exponent[head, queries],
            operands.k_shift[kv_head, columns],
        )
        mask = np.arange(columns.start, columns.stop) <= positions
        tile = tile_probabilities(scores, mask)
        on_or_below = lower[:, : tile.share.shape[1]]
        exponent[kv_block, block - rows :] = tile.exponent
        far[kv_block, block - rows :] = np.where(on_or_below, tile.share, 0).sum(axis=1)
        near[kv_block, block - rows :] = np.where(on_or_below, 0, tile.share).sum(axis=1)
    return RowPartials(exponent, far, near)


def block_scores(operands: PrefillOperands, head: int, block: int) -> tuple[IntArray, IntArray]:
    """Vertical scores by KV block and slash scores by block distance of one query head.

    Returns
    -------
    vertical, slash
        Int64 [blocks], sums over the representative rows, 32 fraction bits. Both have the same
        total, about the number of rows.
    """
    return scores_of_rows(row_partials(operands, head, block))


def scores_of_rows(partials: RowPartials) -> tuple[IntArray, IntArray]:
    """Vertical and slash scores of the rows of a head, as `block_scores`."""
    statistics = RowAccumulators.empty(partials.exponent.shape[1], 0)
    for exponent, far, near in zip(partials.exponent, partials.far, partials.near, strict=True):
        share = np.stack([far, near], axis=1)
        tile = TileProbabilities(exponent, np.zeros_like(share), share)
        statistics.add(tile, np.zeros((2, 0), np.int8))
    # A row without a token has sums of 0, and so scores of 0.
    leading, inverse = reciprocal(np.maximum(statistics.row_sum, 1))
    # The best share of a row reaches 2**15, so the leading one of the sum is at bit 27 or above.
    base = leading + ARGUMENT_BITS - GUARD_BITS - BLOCK_SCORE_FRACTION
    shift = base + np.minimum(statistics.exponent - partials.exponent, ACCUMULATOR_BITS)
    shift = np.clip(shift, 0, ROW_SHARE_BITS + 1)  # nothing remains from here on
    far, near = (
        rshift_round(sums * inverse, shift).sum(axis=1) for sums in (partials.far, partials.near)
    )
    slash = far[::-1].copy()
    slash[:-1] += near[-2::-1]  # in the last tile the upper triangle is in the future
    return far + near, slash


def pool_keys(keys: npt.NDArray[np.int8], k_shift: IntArray, block: int) -> PooledVectors:
    """Mean key of every block: keys int8 [tokens, d], k_shift [tokens]."""
    aligned = keys.astype(np.int64) << (K_SHIFT_MAX - k_shift)[:, np.newaxis]
    return _pool(aligned, block, K_SHIFT_MAX)


def pool_queries(
    queries: npt.NDArray[np.int8], multiplier: IntArray, exponent: IntArray, block: int
) -> PooledVectors:
    """Mean query of every block in log2 units: queries int8 [tokens, d], the others [tokens]."""
    scaled = queries.astype(np.int64) * multiplier[:, np.newaxis]
    # A query of zeros has the multiplier 0, and an exponent that says nothing.
    effective = np.where(multiplier > 0, exponent, np.iinfo(np.int64).max)
    starts = np.arange(0, len(queries), block)
    lowest = np.minimum.reduceat(effective, starts)
    lowest = np.where(lowest == np.iinfo(np.int64).max, 0, lowest)
    down = np.where(multiplier > 0, exponent - np.repeat(lowest, block)[: len(queries)], 0)
    return _pool(rshift_round(scaled, down[:, np.newaxis]), block, lowest)


def _pool(aligned: IntArray, block: int, fraction: int | IntArray) -> PooledVectors:
    """Average blocks of integers [tokens, d] that have `fraction` fraction bits."""
    starts = np.arange(0, len(aligned), block)
    total = np.add.reduceat(aligned, starts, axis=0)
    leading, inverse = reciprocal(np.minimum(block, len(aligned) - starts))
    mean = rshift_round(total * inverse[:, np.newaxis], ARGUMENT_BITS)
    length = normalise(np.maximum(np.abs(mean).max(axis=1), 1))[0] + 1
    shift = np.maximum(length - POOLED_BITS, 0)
    return PooledVectors(
        rshift_round(mean, shift[:, np.newaxis]), np.asarray(fraction) + leading - shift
    )


def pooled_scores(queries: PooledVectors, keys: PooledVectors) -> IntArray:
    """Scores in log2 units, 16 fraction bits, 32 bits: [query blocks, key blocks]."""
    product = queries.mantissa @ keys.mantissa.T
    shift = queries.scale[:, np.newaxis] + keys.scale[np.newaxis, :] - POOLED_SCORE_FRACTION
    up, down = np.maximum(-shift, 0), np.maximum(shift, 0)
    return saturate(rshift_round(product << up, down), POOLED_SCORE_BITS)[0]


def shares(values: IntArray) -> IntArray:
    """Divide values >= 0 [..., n] by their sum over the last axis: 24 fraction bits.

    The sum must be above 0 and at most 2**47.
    """
    total = values.sum(axis=-1, keepdims=True)
    leading, inverse = reciprocal(total)
    excess = leading - (DIVISION_BITS - 1)
    aligned = rshift_round(values << np.maximum(-excess, 0), np.maximum(excess, 0))
    return rshift_round(aligned * inverse, DIVISION_BITS - 1 + ARGUMENT_BITS - SHARE_FRACTION)


def softmax_shares(scores: IntArray) -> IntArray:
    """Base-two softmax of pooled scores [n], 24 fraction bits."""
    distance = scores.max() - scores
    fraction = distance & ((1 << POOLED_SCORE_FRACTION) - 1)
    argument = fraction << (ARGUMENT_BITS - POOLED_SCORE_FRACTION)
    whole = np.minimum(distance >> POOLED_SCORE_FRACTION, ARGUMENT_BITS + 2)
    return shares(rshift_round(evaluate(Function.EXP2_NEGATIVE, argument), whole))


def divergence(p: IntArray, q: IntArray) -> int:
    """Jensen-Shannon divergence of shares [n] with 24 fraction bits: nats, 49 fraction bits.

    ``sum of p ln p + q ln q - (p + q) ln((p + q) / 2)`` with 0 ln 0 = 0; half of it is the
    divergence. The scale of the shares cancels out of the logarithms.
    """

    def weighted_log(x: IntArray, offset: int) -> IntArray:
        result: IntArray = x * np.where(x > 0, natural_log(np.maximum(x, 1)) - offset, 0)
        return result

    terms = weighted_log(p, 0) + weighted_log(q, 0) - weighted_log(p + q, LN_2)
    return max(int(terms.sum()), 0)


def bisect_threshold(values: IntArray, bits: int, holds: Callable[[BoolArray], bool]) -> int:
    """Largest threshold of `bits` bits for which `holds` is true of ``values >= threshold``.

    One pass over the values for each bit, from the highest. `holds` must be true for all values,
    and stay true when values are added.
    """
    threshold = 0
    for bit in reversed(range(bits)):
        candidate = threshold | 1 << bit
        if holds(values >= candidate):
            threshold = candidate
    return threshold


def coverage_count(scores: IntArray, gamma: int) -> int:
    """Smallest number of scores, best first, whose sum reaches gamma times their total.

    The one that crosses is included; all of them for gamma = 2**16.
    """
    if gamma == 1 << GAMMA_FRACTION:
        return len(scores)
    target = gamma * int(scores.sum())

    def reaches(selected: BoolArray) -> bool:
        return int(scores[selected].sum()) << GAMMA_FRACTION >= target

    threshold = bisect_threshold(scores, BLOCK_SCORE_BITS, reaches)
    above = scores > threshold
    count, running = int(np.count_nonzero(above)), int(scores[above].sum())
    while running << GAMMA_FRACTION < target:
        running += threshold
        count += 1
    return count


def best_blocks(scores: IntArray, count: int) -> IntArray:
    """Index 0 and the best others, `count` in all and at least index 0, ascending.

    Ties go to the lower index.
    """
    wanted = min(max(count, 1), len(scores)) - 1
    others = scores[1:]
    threshold = bisect_threshold(
        others, BLOCK_SCORE_BITS, lambda selected: np.count_nonzero(selected) >= wanted
    )
    above = others > threshold
    ties = np.flatnonzero(others == threshold)[: max(wanted - np.count_nonzero(above), 0)]
    above[ties] = True
    return np.concatenate([np.zeros(1, np.int64), 1 + np.flatnonzero(above)])


def covered_entries(entries: IntArray, gamma: int) -> IntArray:
    """Positions of the entries kept best first while their sum is at most gamma times the total.

    The one that crosses is dropped, and all after it; ties go to the lower position. Ascending.
    """
    if gamma == 1 << GAMMA_FRACTION:
        return np.arange(len(entries))
    target = gamma * int(entries.sum())

    def crosses(selected: BoolArray) -> bool:
        return int(entries[selected].sum()) << GAMMA_FRACTION > target

    threshold = bisect_threshold(entries, SHARE_BITS, crosses)
    kept = entries > threshold
    running = int(entries[kept].sum())
    for position in np.flatnonzero(entries == threshold):
        running += threshold
        if running << GAMMA_FRACTION > target:
            break
        kept[position] = True
    return np.flatnonzero(kept)


def query_aware_pairs(queries: PooledVectors, keys: PooledVectors, gamma: int) -> IntArray:
    """Flat indices ``r * blocks + c``, ascending, that the query-aware map of one head keeps."""
    scores = pooled_scores(queries, keys)
    blocks = len(scores)
    rows = [softmax_shares(scores[row, : row + 1]) for row in range(blocks)]
    flat = np.flatnonzero(np.tri(blocks, dtype=np.bool_))
    pairs: IntArray = flat[covered_entries(np.concatenate(rows), gamma)]
    return pairs


def _head_index(
    operands: PrefillOperands, head: int, keys: PooledVectors, parameters: IndexParameters
) -> HeadIndex:
    block, tokens = parameters.block, operands.q.shape[1]
    vertical, slash = block_scores(operands, head, block)
    blocks = len(vertical)
    last = slice(tokens - min(block, tokens), tokens)
    representative = pool_queries(
        operands.q[head, last],
        operands.multiplier[head, last],
        operands.exponent[head, last],
        block,
    )
    estimate = softmax_shares(pooled_scores(representative, keys)[0])
    distance = divergence(estimate, shares(vertical))
    limit = parameters.divergence_limit << (DIVERGENCE_FRACTION - SHARE_FRACTION)
    if distance < limit:
        pattern = Pattern.QUERY_AWARE
        column_count = distance_count = parameters.clamp(0, blocks)
        queries = pool_queries(
            operands.q[head], operands.multiplier[head], operands.exponent[head], block
        )
        pairs = query_aware_pairs(queries, keys, parameters.gamma)
    else:
        pattern = Pattern.VERTICAL_SLASH
        column_count, distance_count = (
            parameters.clamp(coverage_count(scores, parameters.gamma), blocks)
            for scores in (vertical, slash)
        )
        pairs = np.zeros(0, np.int64)
    return HeadIndex(
        pattern,
        distance,
        best_blocks(vertical, column_count),
        best_blocks(slash, distance_count),
        pairs,
        vertical,
        slash,
        estimate,
    )
