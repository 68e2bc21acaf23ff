# SPDX-License-Identifier: Apache-2.0
"""Which KV blocks each query block attends to: index sets, and the two rules that choose them.

Both rules look at the attention of the *representative queries*, the last ``min(block, tokens)``
tokens, to all keys (``P``, rows softmaxed, causal), and at block means of the keys:

- vertical score of block column ``b``: mean over the rows of ``P`` summed over the keys of ``b``;
- slash score of block distance ``s``: the same summed over the diagonals that belong to ``s``;
- estimate: softmax over blocks of mean representative query times mean key of each block.

A head whose estimate is close to its vertical scores (Jensen-Shannon divergence below ``tau**2``)
is *query-aware*: pooled queries times pooled keys choose single (query block, KV block) pairs.
Other heads are *vertical-slash*: whole block columns and whole block diagonals. Column 0 (the
attention sink) and the main diagonal are always selected.

`flexprefill_selection` is the rule of FlexPrefill's released code (Lai et al., arXiv 2502.20766),
which counts coverage in tokens. `block_coverage_selection` is the rule of the prefill kernel: the
same, but coverage is counted in blocks, as in FAST-Prefill (arXiv 2602.20515).

Slash scores are kept by block distance, 0 being the main diagonal. Token diagonals are grouped
from the far end: the diagonal of distance ``x`` belongs to block distance
``blocks - 1 - (tokens - 1 - x) // block``. When tokens is not a multiple of block, the
representative queries straddle two blocks, and distance 0 holds fewer than ``block`` diagonals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from fastdelta.errors import RangeError, ShapeError
from fastdelta.reference.attention import query_and_key
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.gated_delta import FloatArray, FloatType

BoolArray = npt.NDArray[np.bool_]

FLEXPREFILL_COUNT_DIVISOR = 128


@dataclass(frozen=True, eq=False)
class IndexSet:
    """Selected (query block, KV block) pairs of every query head, in compressed sparse rows.

    Row ``head * blocks + r`` is query block ``r`` of ``head``; its KV blocks are
    ``columns[offsets[row] : offsets[row + 1]]``, ascending.

    Attributes
    ----------
    blocks
        Query blocks, and KV blocks, of a head.
    offsets
        Int64 [heads * blocks + 1], from 0 to the number of pairs. Read-only.
    columns
        Int64 [pairs], KV blocks, causal: at most the query block of their row. Read-only.

    Raises
    ------
    ShapeError
        If the arrays are not one-dimensional or do not fit each other and `blocks`.
    RangeError
        If an offset decreases, or if a row is not causal or not strictly ascending.
    """

    blocks: int
    offsets: IntArray
    columns: IntArray

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise RangeError(f"blocks={self.blocks}; a head has at least 1 block")
        for name in ("offsets", "columns"):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
                raise ShapeError(
                    f"{name} has dtype {given.dtype} and shape {given.shape}; expected integers "
                    "in one dimension"
                )
            array = given.astype(np.int64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        rows = len(self.offsets) - 1
        if rows < self.blocks or rows % self.blocks:
            raise ShapeError(
                f"offsets has {len(self.offsets)} entries; expected heads * {self.blocks} + 1 "
                "for at least 1 head"
            )
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.columns):
            raise ShapeError(
                f"offsets go from {self.offsets[0]} to {self.offsets[-1]}; expected 0 to "
                f"{len(self.columns)}, the number of pairs"
            )
        if np.any(np.diff(self.offsets) < 0):
            raise RangeError("offsets decrease; each row starts where the one before ends")
        head, row = self._heads_and_rows()
        bad = np.flatnonzero((self.columns < 0) | (self.columns > row))
        if bad.size:
            raise RangeError(
                f"head {head[bad[0]]}, query block {row[bad[0]]} selects KV block "
                f"{self.columns[bad[0]]}; allowed are 0 to the query block itself"
            )
        if np.any(np.diff((head * self.blocks + row) * self.blocks + self.columns) <= 0):
            raise RangeError(
                "KV blocks of a row repeat or descend; pass each once, in ascending order"
            )

    @classmethod
    def from_mask(cls, mask: BoolArray) -> IndexSet:
        """Take the pairs that are true in a mask [heads, query blocks, KV blocks].

        Raises
        ------
        ShapeError
            If the mask is not of booleans in three dimensions, the last two equal.
        RangeError
            If a pair is not causal.
        """
        mask = np.asarray(mask)
        if mask.dtype != np.bool_ or mask.ndim != 3 or mask.shape[1] != mask.shape[2]:
            raise ShapeError(
                f"mask has dtype {mask.dtype} and shape {mask.shape}; expected booleans "
                "[heads, blocks, blocks]"
            )
        per_row = mask.sum(axis=2, dtype=np.int64).reshape(-1)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_row)])
        return cls(mask.shape[1], offsets, np.nonzero(mask)[2])

    @classmethod
    def from_flat(cls, indices: Sequence[npt.ArrayLike], blocks: int) -> IndexSet:
        """Take flat indices ``r * blocks + c``, one list per head, in any order, each once.

        Raises
        ------
        ShapeError
            If there is no head, or a list is not of integers in one dimension.
        RangeError
            If an index repeats, is outside the map of blocks, or is not causal.
        """
        if not indices:
            raise ShapeError("indices has no heads; pass one list of flat indices per head")
        mask = np.zeros((len(indices), blocks * blocks), np.bool_)
        for head, given in enumerate(indices):
            flat = np.asarray(given)
            if flat.ndim != 1 or (flat.dtype.kind not in "iu" and flat.size):
                raise ShapeError(
                    f"indices of head {head} have dtype {flat.dtype} and shape {flat.shape}; "
                    "expected integers in one dimension"
                )
            flat = flat.astype(np.int64)
            if np.any((flat < 0) | (flat >= blocks * blocks)):
                raise RangeError(
                    f"indices of head {head} go from {flat.min()} to {flat.max()}; allowed are "
                    f"0 to {blocks * blocks - 1} for {blocks} blocks"
                )
            mask[head, flat] = True
            if np.count_nonzero(mask[head]) != flat.size:
                raise RangeError(f"indices of head {head} repeat; pass each pair once")
        return cls.from_mask(mask.reshape(len(indices), blocks, blocks))

    @classmethod
    def dense(cls, heads: int, blocks: int) -> IndexSet:
        """Select every causal pair of every head."""
        return cls.from_mask(np.repeat(_causal_map(blocks)[np.newaxis], heads, axis=0))

    @property
    def heads(self) -> int:
        """Query heads."""
        return (len(self.offsets) - 1) // self.blocks

    @property
    def pairs_per_head(self) -> IntArray:
        """Selected pairs of each head, int64 [heads]."""
        return np.diff(self.offsets[:: self.blocks])

    @property
    def density_per_head(self) -> npt.NDArray[np.float64]:
        """Selected share of the ``blocks (blocks + 1) / 2`` causal pairs of each head, [heads]."""
        return self.pairs_per_head / (self.blocks * (self.blocks + 1) / 2)

    @property
    def density(self) -> float:
        """Selected share of the causal pairs, over all heads."""
        return float(self.density_per_head.mean())

    def row(self, head: int, query_block: int) -> IntArray:
        """KV blocks of one query block, ascending."""
        row = self._row(head, query_block)
        return self.columns[self.offsets[row] : self.offsets[row + 1]]

    def flat(self, head: int) -> IntArray:
        """Flat indices ``r * blocks + c`` of one head, ascending."""
        first = self._row(head, 0)
        rows = self.offsets[first : first + self.blocks + 1]
        query_blocks = np.repeat(np.arange(self.blocks), np.diff(rows))
        return query_blocks * self.blocks + self.columns[rows[0] : rows[-1]]

    def to_mask(self) -> BoolArray:
        """Return the pairs as a mask [heads, query blocks, KV blocks]."""
        mask = np.zeros((self.heads, self.blocks, self.blocks), np.bool_)
        mask[(*self._heads_and_rows(), self.columns)] = True
        return mask

    def union(self, other: IndexSet) -> IndexSet:
        """Pairs in either set; both must have the same heads and blocks."""
        self._require_same_shape(other)
        return IndexSet.from_mask(self.to_mask() | other.to_mask())

    def contains(self, other: IndexSet) -> bool:
        """Say whether every pair of `other` is in this set; both have the same heads and blocks."""
        self._require_same_shape(other)
        return not np.any(other.to_mask() & ~self.to_mask())

    def jaccard_per_head(self, other: IndexSet) -> npt.NDArray[np.float64]:
        """Size of the intersection over size of the union of each head, [heads]; 1 if both empty.

        Both sets must have the same heads and blocks.
        """
        self._require_same_shape(other)
        mine, theirs = self.to_mask(), other.to_mask()
        common = np.count_nonzero(mine & theirs, axis=(1, 2))
        either = np.count_nonzero(mine | theirs, axis=(1, 2))
        return np.where(either == 0, 1.0, common / np.maximum(either, 1))

    def jaccard(self, other: IndexSet) -> float:
        """Size of the intersection over size of the union of all heads' pairs; 1 if both empty."""
        self._require_same_shape(other)
        mine, theirs = self.to_mask(), other.to_mask()
        either = np.count_nonzero(mine | theirs)
        return float(np.count_nonzero(mine & theirs) / either) if either else 1.0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexSet):
            return NotImplemented
        return (
            self.blocks == other.blocks
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.columns, other.columns)
        )

    def __hash__(self) -> int:
        return hash((self.blocks, self.offsets.tobytes(), self.columns.tobytes()))

    def _row(self, head: int, query_block: int) -> int:
        if not (0 <= head < self.heads and 0 <= query_block < self.blocks):
            raise RangeError(
                f"head {head}, query block {query_block}; there are {self.heads} heads of "
                f"{self.blocks} blocks, counted from 0"
            )
        return head * self.blocks + query_block

    def _heads_and_rows(self) -> tuple[IntArray, IntArray]:
        rows = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return rows // self.blocks, rows % self.blocks

    def _require_same_shape(self, other: IndexSet) -> None:
        if (self.heads, self.blocks) != (other.heads, other.blocks):
            raise ShapeError(
                f"index sets of {self.heads} heads x {self.blocks} blocks and {other.heads} x "
                f"{other.blocks} cannot be combined; both must cover the same heads and tokens"
            )


@dataclass(frozen=True)
class SelectionParameters:
    """Parameters of index generation, the same for both rules.

    Attributes
    ----------
    gamma
        Share of the attention to cover: above 0, to 1. At 1 every causal block is selected.
    tau
        A head is query-aware when the square root of its Jensen-Shannon divergence (in nats) is
        below tau: 0 to 1; 0 makes every head vertical-slash.
    min_budget, max_budget
        Fewest and most tokens of the selected columns, and of the selected diagonals, rounded up
        to blocks; 0 or more, None for no upper limit. A budget of 0 leaves the forced column and
        diagonal alone.
    block
        Tokens of a query block and of a KV block.

    Raises
    ------
    RangeError
        For a value outside these ranges.
    """

    gamma: float = 0.9
    tau: float = 0.1
    min_budget: int = 1024
    max_budget: int | None = None
    block: int = 128

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise RangeError(f"gamma={self.gamma}; allowed are values above 0, up to 1")
        if not 0 <= self.tau <= 1:
            raise RangeError(f"tau={self.tau}; allowed are 0 to 1")
        if self.min_budget < 0:
            raise RangeError(f"min_budget={self.min_budget}; allowed are 0 or more tokens")
        if self.max_budget is not None and self.max_budget < self.min_budget:
            raise RangeError(
                f"max_budget={self.max_budget} is below min_budget={self.min_budget}; raise it, "
                "or pass None for no limit"
            )
        if self.block < 1:
            raise RangeError(f"block={self.block}; a block has at least 1 token")

    def blocks(self, tokens: int) -> int:
        """Blocks of a sequence, a ragged last one included."""
        return _ceil_div(tokens, self.block)

    @property
    def min_blocks(self) -> int:
        """`min_budget` in blocks."""
        return _ceil_div(self.min_budget, self.block)

    def clamp(self, count: int, blocks: int) -> int:
        """Bring a number of columns or diagonals of `blocks` within the budgets."""
        most = blocks if self.max_budget is None else _ceil_div(self.max_budget, self.block)
        return min(max(count, self.min_blocks), most, blocks)


class Pattern(Enum):
    """How the blocks of a head were chosen."""

    DENSE = "dense"
    VERTICAL_SLASH = "vertical-slash"
    QUERY_AWARE = "query-aware"


@dataclass(frozen=True)
class HeadScores:
    """Block scores of one query head; each sums to 1.

    Attributes
    ----------
    vertical
        Float [blocks] by KV block: attention of the representative queries to it.
    slash
        Float [blocks] by block distance: attention of the representative queries at it.
    estimate
        Float [blocks] by KV block: softmax of the pooled representative query and pooled keys.
    """

    vertical: FloatArray
    slash: FloatArray
    estimate: FloatArray


@dataclass(frozen=True)
class HeadSelection:
    """What a rule decided for one query head.

    Attributes
    ----------
    pattern
        How the blocks were chosen.
    divergence
        Jensen-Shannon divergence of estimate and vertical scores in nats, 0 to ln 2. NaN if the
        rule defines it so, or does not look at it (`Pattern.DENSE`).
    columns
        Int64, selected block columns, best first, the forced column 0 before all others.
    distances
        Int64, selected block distances, best first, the forced distance 0 before all others.
    query_aware_pairs
        Int64, flat indices ``r * blocks + c`` that the query-aware selection kept, best first;
        empty for other patterns.
    scores
        Scores that the decision rests on; None for `Pattern.DENSE`.
    """

    pattern: Pattern
    divergence: float
    columns: IntArray
    distances: IntArray
    query_aware_pairs: IntArray
    scores: HeadScores | None


@dataclass(frozen=True)
class Selection:
    """Index set of a layer, and how it came about.

    Attributes
    ----------
    parameters
        Parameters of the rule.
    index_set
        Selected pairs.
    heads
        Decision for each query head.
    """

    parameters: SelectionParameters
    index_set: IndexSet
    heads: tuple[HeadSelection, ...]

    def heads_with(self, pattern: Pattern) -> int:
        """Count the heads that follow a pattern."""
        return sum(head.pattern is pattern for head in self.heads)


def flexprefill_selection(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    parameters: SelectionParameters,
    *,
    count_divisor: int = FLEXPREFILL_COUNT_DIVISOR,
    dtype: FloatType = np.float64,
) -> Selection:
    """Choose blocks as FlexPrefill's released code does: coverage counted in tokens.

    - Short sequences, ``tokens <= max(2 block, min_budget rounded up to blocks)``, are dense.
    - Columns, and likewise diagonals: ``count = 1 + (token prefix sums, best first, that are at
      most gamma)``; ``count // count_divisor + 1`` blocks, within the budgets.
    - Divergence: a zero probability makes it NaN (0 log 0), hence the head vertical-slash.
    - Query-aware heads take the minimum budget of columns and diagonals, and besides all pairs of
      pooled queries and keys, best first, whose running sum is at most gamma times the total; the
      pair that crosses is dropped.

    Where the released code depends on rounding or on the sort, this is defined: prefix sums are
    relative to their total, so that none exceeds 1; a divergence rounded below 0 is 0; equal
    scores rank by lower column, lower distance or lower flat index; only causal pairs are ranked.

    Parameters
    ----------
    q : array [heads, tokens, d]
        Queries, not yet scaled by ``1 / sqrt(d)``.
    k : array [kv_heads, tokens, d]
        Keys; query head ``h`` reads KV head ``h // (heads / kv_heads)``.
    parameters : SelectionParameters
        Coverage, threshold, budgets and block size.
    count_divisor : int
        Tokens that count as one block of coverage. The released code divides by 128 whatever
        the block size; pass the block size for the coverage that the paper of FlexPrefill means.
    dtype : float32 or float64
        Precision of the scores.

    Raises
    ------
    ShapeError, DtypeError, NonFiniteError, RangeError
        As `fastdelta.reference.attention.query_and_key`; RangeError also for the divisor.
    """
    q, k = query_and_key(q, k, dtype)
    if count_divisor < 1:
        raise RangeError(f"count_divisor={count_divisor}; allowed are 1 token or more")
    heads, tokens, _ = q.shape
    group = heads // len(k)
    block, blocks = parameters.block, parameters.blocks(tokens)
    if tokens <= max(2 * block, parameters.min_blocks * block):
        everything = np.arange(blocks)
        decision = HeadSelection(
            Pattern.DENSE, np.nan, everything, everything, np.zeros(0, np.int64), None
        )
        return Selection(parameters, IndexSet.dense(heads, blocks), (decision,) * heads)

    def token_count(scores: FloatArray) -> int:
        return 1 + int(np.count_nonzero(_prefix_shares(scores) <= parameters.gamma))

    token_vertical, token_slash = token_scores(q, k, block, dtype=dtype)
    starts = np.arange(0, tokens, block)
    vertical = np.add.reduceat(token_vertical, starts, axis=1)
    slash = np.add.reduceat(token_slash, starts, axis=1)[:, ::-1]
    estimate = pooled_estimate(q, k, block, dtype=dtype)
    decisions = []
    for head in range(heads):
        scores = HeadScores(vertical[head], slash[head], estimate[head])
        has_zero = not (np.all(scores.vertical) and np.all(scores.estimate))
        divergence = (
            np.nan if has_zero else jensen_shannon_divergence(scores.estimate, scores.vertical)
        )
        decisions.append(
            _decide(
                q[head],
                k[head // group],
                parameters,
                scores,
                divergence,
                bool(np.sqrt(divergence) < parameters.tau),
                token_count(token_vertical[head]) // count_divisor + 1,
                token_count(token_slash[head]) // count_divisor + 1,
            )
        )
    return _selection(parameters, decisions, blocks)


def block_coverage_selection(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    parameters: SelectionParameters,
    *,
    dtype: FloatType = np.float64,
) -> Selection:
    """Choose blocks as the prefill kernel does: coverage counted in blocks.

    - Columns, and likewise diagonals: the smallest number of blocks, best first, whose scores
      together reach gamma times the total (the block that crosses is included; gamma = 1 takes
      every block, also those without score), within the budgets. The count is taken on the plain
      scores; then column 0 and distance 0 rank before all others and use up one of the count. A
      count of 0 still selects them.
    - Divergence: 0 log 0 = 0; compared as ``divergence < tau**2``.
    - Query-aware heads take the minimum budget of columns and diagonals, and besides all causal
      pairs of pooled queries and keys, best first, while their running sum is at most gamma times
      the total, which is the number of blocks; the pair that crosses is dropped.
    - Equal scores rank by lower column, lower distance, or lower flat index ``r * blocks + c``.

    Short sequences are no special case: two blocks, or no more blocks than the minimum budget,
    come out dense by themselves.

    Parameters
    ----------
    q : array [heads, tokens, d]
        Queries, not yet scaled by ``1 / sqrt(d)``.
    k : array [kv_heads, tokens, d]
        Keys; query head ``h`` reads KV head ``h // (heads / kv_heads)``.
    parameters : SelectionParameters
        Coverage, threshold, budgets and block size.
    dtype : float32 or float64
        Precision of the scores.

    Raises
    ------
    ShapeError, DtypeError, NonFiniteError, RangeError
        As `fastdelta.reference.attention.query_and_key`.
    """
    q, k = query_and_key(q, k, dtype)
    heads, tokens, _ = q.shape
    group = heads // len(k)
    vertical, slash = block_scores(q, k, parameters.block, dtype=dtype)
    estimate = pooled_estimate(q, k, parameters.block, dtype=dtype)
    decisions = []
    for head in range(heads):
        scores = HeadScores(vertical[head], slash[head], estimate[head])
        divergence = jensen_shannon_divergence(scores.estimate, scores.vertical)
        decisions.append(
            _decide(
                q[head],
                k[head // group],
                parameters,
                scores,
                divergence,
                divergence < parameters.tau**2,
                coverage_count(scores.vertical, parameters.gamma),
                coverage_count(scores.slash, parameters.gamma),
            )
        )
    return _selection(parameters, decisions, parameters.blocks(tokens))


def token_scores(
    q: npt.ArrayLike, k: npt.ArrayLike, block: int, *, dtype: FloatType = np.float64
) -> tuple[FloatArray, FloatArray]:
    """Attention of the representative queries by key token and by token diagonal.

    Returns
    -------
    vertical : array [heads, tokens]
        Mean probability of each key.
    slash : array [heads, tokens]
        Entry ``t`` is the sum of the probabilities at distance ``tokens - 1 - t`` between query
        and key, divided by the number of representative queries.
    """
    q, k = query_and_key(q, k, dtype)
    heads, tokens, d = q.shape
    group, rows = heads // len(k), min(block, tokens)
    query_tokens = np.arange(tokens - rows, tokens)
    future = np.arange(tokens) > query_tokens[:, np.newaxis]
    vertical, slash = np.zeros((2, heads, tokens), dtype)
    for head in range(heads):
        scores = q[head, query_tokens] * dtype(1 / np.sqrt(d)) @ k[head // group].T
        scores[future] = -np.inf
        probability = _softmax(scores)
        vertical[head] = probability.sum(axis=0) / rows
        for row in range(rows):
            far = rows - 1 - row  # the last row's distances begin at 0, this row's earlier
            slash[head, far:] += probability[row, : tokens - far]
        slash[head] /= rows
    return vertical, slash


def block_scores(
    q: npt.ArrayLike, k: npt.ArrayLike, block: int, *, dtype: FloatType = np.float64
) -> tuple[FloatArray, FloatArray]:
    """Block scores from keys that stream by, one tile at a time, as the kernel does it.

    A first pass finds maximum and sum of every representative row, a second one adds up the
    probabilities of each tile (representative queries x KV block ``b``). In a tile the entries
    ``j <= i`` (``i``, ``j`` counted within the tile) lie at block distance ``blocks - 1 - b``, the
    others at ``blocks - 2 - b``: two partial sums feed two slash bins, and their total the
    vertical bin. This holds for any number of tokens, as the grouping of diagonals follows the
    representative queries and not the query blocks; what lies in the future is masked, in the
    last tile and, if the last block is ragged, in the one before.

    Returns
    -------
    vertical : array [heads, blocks]
        By KV block; sums to 1.
    slash : array [heads, blocks]
        By block distance; sums to 1.
    """
    q, k = query_and_key(q, k, dtype)
    heads, tokens, d = q.shape
    kv_heads, rows = len(k), min(block, tokens)
    queries = q[:, tokens - rows :] * dtype(1 / np.sqrt(d))
    grouped = queries.reshape(kv_heads, heads // kv_heads, rows, d)
    shares = [_group_block_scores(*group, block) for group in zip(grouped, k, strict=True)]
    vertical, slash = (np.concatenate(part) for part in zip(*shares, strict=True))
    return vertical, slash


def _group_block_scores(
    queries: FloatArray, k: FloatArray, block: int
) -> tuple[FloatArray, FloatArray]:
    """Vertical and slash scores [group, blocks] of the query heads of one KV head.

    `queries` [group, rows, d] are the representative queries divided by ``sqrt(d)``, `k`
    [tokens, d] the keys.
    """
    group, rows, _ = queries.shape
    tokens = len(k)
    blocks = _ceil_div(tokens, block)
    query_tokens = np.arange(tokens - rows, tokens)
    dtype = queries.dtype.type

    def tile(b: int) -> FloatArray:
        """Logits [group, rows, keys of block b], minus infinity in the future."""
        key_tokens = np.arange(b * block, min((b + 1) * block, tokens))
        scores: FloatArray = queries @ k[key_tokens].T
        scores[:, key_tokens > query_tokens[:, np.newaxis]] = -np.inf
        return scores

    maximum = np.full((group, rows, 1), -np.inf, dtype)
    total: FloatArray = np.zeros((group, rows, 1), dtype)
    for b in range(blocks):  # every row sees key 0, so that its maximum is finite from here on
        scores = tile(b)
        higher = np.maximum(maximum, scores.max(axis=2, keepdims=True))
        total = total * np.exp(maximum - higher)
        total += np.exp(scores - higher).sum(axis=2, keepdims=True)
        maximum = higher
    vertical, slash = np.zeros((2, group, blocks), dtype)
    lower = np.tri(rows, block, dtype=np.bool_)
    for b in range(blocks):
        probability = np.exp(tile(b) - maximum) / total
        on_or_below = lower[:, : probability.shape[2]]
        far = (probability * on_or_below).sum(axis=(1, 2)) / dtype(rows)
        near = (probability * ~on_or_below).sum(axis=(1, 2)) / dtype(rows)
        vertical[:, b] = near + far
        slash[:, blocks - 1 - b] += far
        if b < blocks - 1:  # in the last tile they are all in the future
            slash[:, blocks - 2 - b] += near
    return vertical, slash


def pooled_estimate(
    q: npt.ArrayLike, k: npt.ArrayLike, block: int, *, dtype: FloatType = np.float64
) -> FloatArray:
    """Attention estimated from block means, [heads, blocks], each head summing to 1.

    Softmax over KV blocks of the mean representative query times the mean key of each block (of
    the tokens that a ragged last block has), divided by ``sqrt(d)``.
    """
    q, k = query_and_key(q, k, dtype)
    heads, tokens, d = q.shape
    query = q[:, tokens - min(block, tokens) :].mean(axis=1) * dtype(1 / np.sqrt(d))
    keys = np.repeat(block_means(k, block), heads // len(k), axis=0)
    return _softmax((keys @ query[:, :, np.newaxis])[:, :, 0])


def block_means(x: FloatArray, block: int) -> FloatArray:
    """Mean over the tokens of each block: [..., tokens, d] to [..., blocks, d].

    A ragged last block counts the tokens that it has.
    """
    starts = np.arange(0, x.shape[-2], block)
    sizes = np.minimum(block, x.shape[-2] - starts).astype(x.dtype)
    means: FloatArray = np.add.reduceat(x, starts, axis=-2) / sizes[:, np.newaxis]
    return means


def jensen_shannon_divergence(p: FloatArray, q: FloatArray) -> float:
    """Jensen-Shannon divergence of two distributions [n] in nats: 0 to ln 2, with 0 log 0 = 0."""

    def relative_to_mean(a: FloatArray, b: FloatArray) -> float:
        present = a > 0
        a, b = a[present], b[present]
        return float(np.sum(a * np.log(2 * a / (a + b))))

    return max(0.0, 0.5 * relative_to_mean(p, q) + 0.5 * relative_to_mean(q, p))


def coverage_count(scores: FloatArray, gamma: float) -> int:
    """Smallest number of scores, best first, whose sum reaches ``gamma`` times their total.

    The one that crosses is included. With gamma = 1 it is all of them, zeros too.
    """
    if gamma == 1:
        return len(scores)
    return 1 + int(np.count_nonzero(_prefix_shares(scores) < gamma))


def best_first(scores: FloatArray, count: int) -> IntArray:
    """Return the indices of the `count` best scores, index 0 first; ties to the lower index.

    Index 0 (sink column or main diagonal) is there for a count of 0 too.
    """
    others = 1 + np.argsort(-scores[1:], kind="stable")
    ranking: IntArray = np.concatenate([np.zeros(1, np.int64), others])
    return ranking[: max(count, 1)]


def vertical_slash_map(
    columns: Iterable[int] | IntArray, distances: Iterable[int] | IntArray, blocks: int
) -> BoolArray:
    """Causal pairs in the given block columns and at the given block distances: [blocks, blocks].

    The pair (r, c) is selected if c is one of the columns or ``r - c`` one of the distances.
    """
    in_columns, in_distances = np.zeros((2, blocks), np.bool_)
    in_columns[np.fromiter(columns, np.int64)] = True
    in_distances[np.fromiter(distances, np.int64)] = True
    distance = np.arange(blocks)[:, np.newaxis] - np.arange(blocks)
    selected: BoolArray = _causal_map(blocks) & (in_columns | in_distances[distance])
    return selected


def query_aware_pairs(q: FloatArray, k: FloatArray, block: int, gamma: float) -> IntArray:
    """Flat indices ``r * blocks + c`` that the query-aware selection keeps, best first.

    The map is softmax over ``c <= r`` of mean query of block ``r`` times mean key of block ``c``,
    divided by ``sqrt(d)``: each row sums to 1, the map to the number of blocks. Causal pairs are
    kept, best first and equal ones in the order of their flat index, while the running sum is at
    most gamma times the total; the pair that crosses is dropped, and so are all after it.
    As whole rows sum to 1, a running sum can equal that threshold; rounding then decides.

    Parameters
    ----------
    q, k : array [tokens, d]
        Queries and keys of one head.
    block : int
        Tokens of a block.
    gamma : float
        Share of the total to cover at most.
    """
    scores = block_means(q, block) * q.dtype.type(1 / np.sqrt(q.shape[1])) @ block_means(k, block).T
    causal = _causal_map(len(scores))
    scores[~causal] = -np.inf
    flat = np.flatnonzero(causal)
    probability = _softmax(scores)[causal]
    order = np.argsort(-probability, kind="stable")
    kept = np.count_nonzero(_prefix_shares(probability) <= gamma)
    best: IntArray = flat[order[:kept]]
    return best


def _decide(
    q: FloatArray,
    k: FloatArray,
    parameters: SelectionParameters,
    scores: HeadScores,
    divergence: float,
    query_aware: bool,
    column_count: int,
    distance_count: int,
) -> HeadSelection:
    """Turn scores and counts of one head (before the budgets) into its decision."""
    blocks = len(scores.vertical)
    if query_aware:
        pattern = Pattern.QUERY_AWARE
        column_count = distance_count = parameters.min_blocks
        pairs = query_aware_pairs(q, k, parameters.block, parameters.gamma)
    else:
        pattern = Pattern.VERTICAL_SLASH
        column_count = parameters.clamp(column_count, blocks)
        distance_count = parameters.clamp(distance_count, blocks)
        pairs = np.zeros(0, np.int64)
    return HeadSelection(
        pattern,
        divergence,
        best_first(scores.vertical, column_count),
        best_first(scores.slash, distance_count),
        pairs,
        scores,
    )


def _selection(
    parameters: SelectionParameters, decisions: Sequence[HeadSelection], blocks: int
) -> Selection:
    mask = np.empty((len(decisions), blocks, blocks), np.bool_)
    for selected, decision in zip(mask, decisions, strict=True):
        selected[:] = vertical_slash_map(decision.columns, decision.distances, blocks)
        selected.reshape(-1)[decision.query_aware_pairs] = True
    return Selection(parameters, IndexSet.from_mask(mask), tuple(decisions))


def _prefix_shares(scores: FloatArray) -> FloatArray:
    """Add up the best 1, 2, ... scores, relative to the total: rounding puts none above 1."""
    prefix = np.cumsum(-np.sort(-scores))
    shares: FloatArray = prefix / prefix[-1]
    return shares


def _softmax(scores: FloatArray) -> FloatArray:
    """Softmax over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probability: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return probability


def _causal_map(blocks: int) -> BoolArray:
    return np.tri(blocks, dtype=np.bool_)


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
