# SPDX-License-Identifier: Apache-2.0
"""Bit-exact integer model of the prefill engine's attention over selected blocks.

int8 operands, scores in log2 units, one exponent per row and tile, keyed accumulators whose only
rescaling is a shift; formats and rounding: docs/prefill_engine.md. The order of the tiles of a row
is ascending, so the schedule of the hardware does not change a bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastdelta.reference.fixed_point import IntArray, rshift_round, saturate
from fastdelta.reference.functions import ARGUMENT_BITS, reciprocal
from fastdelta.reference.sparse_index import IndexSet

MULTIPLIER_BITS = 16
EXPONENT_MIN, EXPONENT_MAX = 8, 46
K_SHIFT_MAX = V_SHIFT_MAX = 15
SCORE_FRACTION = 8
SCORE_ONE = 1 << SCORE_FRACTION
SCORE_LIMIT = (1 << 23) - (1 << 13)  # leaves room for v's shift: exponents fit 16 bits
PROBABILITY_BITS = 8  # what the arrays multiply
PROBABILITY_MAX = (1 << PROBABILITY_BITS) - 1
TABLE_FRACTION = 16
DISTANCE_MAX = 47  # whole steps below the exponent; further ones give nothing either
GUARD_BITS = 12
ACCUMULATOR_BITS = 48
OUTPUT_FRACTION = 8
NO_TILE = -(1 << 15)  # running exponent of a row before its first tile: below every exponent

_TABLE = np.rint(np.exp2(TABLE_FRACTION - np.arange(SCORE_ONE) / SCORE_ONE)).astype(np.int64)


@dataclass(frozen=True)
class PrefillOperands:
    """Quantised tensors of one prompt.

    Attributes
    ----------
    q
        int8 [heads, tokens, d], rotated.
    multiplier, exponent
        Score multiplier of every query row, int64 [heads, tokens]: ``multiplier * 2**-exponent``,
        multiplier below 2**16, exponent 8 to 46.
    k
        int8 [kv_heads, tokens, d], centred and rotated.
    k_shift
        int64 [kv_heads, tokens], 0 to 15: the key is ``k * 2**-k_shift``.
    v
        int8 [kv_heads, tokens, d], rotated.
    v_shift
        int64 [kv_heads, tokens], 0 to 15: the value is ``v * 2**-v_shift``.
    """

    q: npt.NDArray[np.int8]
    multiplier: IntArray
    exponent: IntArray
    k: npt.NDArray[np.int8]
    k_shift: IntArray
    v: npt.NDArray[np.int8]
    v_shift: IntArray


@dataclass(frozen=True)
class TileProbabilities:
    """Softmax of one tile, relative to one exponent a row.

    Attributes
    ----------
    exponent
        int64 [rows]; NO_TILE in a row without a key.
    probability
        int64 [rows, columns], 0 to 255, what the arrays multiply: steps of ``2**(exponent - 8)``,
        the weight ``2**-v_shift`` of the column included.
    share
        int64 [rows, columns], the same without the weight, in steps of ``2**(exponent - 16)``.
    """

    exponent: IntArray
    probability: IntArray
    share: IntArray

    @property
    def row_sum(self) -> IntArray:
        """Sum of the shares, int64 [rows]."""
        result: IntArray = self.share.sum(axis=1)
        return result


def score_tile(
    q: npt.NDArray[np.int8],
    k: npt.NDArray[np.int8],
    multiplier: IntArray,
    exponent: IntArray,
    k_shift: IntArray,
) -> IntArray:
    """Scores in log2 units, 8 fraction bits: q [rows, d] against k [columns, d]."""
    # Products of int8 are exact in FP64 (BLAS) as long as d * 127**2 < 2**53.
    product = (q.astype(np.float64) @ k.T.astype(np.float64)).astype(np.int64)
    shift = exponent[:, np.newaxis] + k_shift[np.newaxis, :] - SCORE_FRACTION
    scaled = rshift_round(product * multiplier[:, np.newaxis], shift)
    limited: IntArray = np.clip(scaled, -SCORE_LIMIT, SCORE_LIMIT)
    return limited


def tile_probabilities(
    scores: IntArray, mask: npt.NDArray[np.bool_], v_shift: IntArray | None = None
) -> TileProbabilities:
    """Exponents, P and shares of a tile; ``mask`` is true where a key counts.

    The arrays multiply v without its shift, so P carries ``2**-v_shift``, and the exponent is that
    of the weighted row; the softmax's denominator needs the shares without it.
    """
    columns = np.zeros(scores.shape[1], dtype=np.int64) if v_shift is None else v_shift
    weighted = scores - (columns << SCORE_FRACTION)
    peak = np.where(mask, weighted, np.iinfo(np.int64).min >> 1).max(axis=1)
    exponent = np.where(mask.any(axis=1), (peak + SCORE_ONE - 1) >> SCORE_FRACTION, NO_TILE)
    distance = np.maximum((exponent[:, np.newaxis] << SCORE_FRACTION) - weighted, 0)
    value = np.where(mask, _TABLE[distance & (SCORE_ONE - 1)], 0)
    steps = np.minimum(distance >> SCORE_FRACTION, DISTANCE_MAX)
    probability = np.minimum(
        rshift_round(value, TABLE_FRACTION - PROBABILITY_BITS + steps), PROBABILITY_MAX
    )
    right, left = np.maximum(steps - columns, 0), np.maximum(columns - steps, 0)
    return TileProbabilities(exponent, probability, rshift_round(value, right) << left)


@dataclass
class RowAccumulators:
    """Keyed accumulator of one (head, query block): running exponent, sum and outputs."""

    exponent: IntArray  # [rows]
    row_sum: IntArray  # [rows], units of a tile's row sum with GUARD_BITS fraction bits
    outputs: IntArray  # [rows, d], GUARD_BITS fraction bits

    @classmethod
    def empty(cls, rows: int, head_dim: int) -> RowAccumulators:
        """Return accumulators that have seen no tile."""
        return cls(
            exponent=np.full(rows, NO_TILE, dtype=np.int64),
            row_sum=np.zeros(rows, dtype=np.int64),
            outputs=np.zeros((rows, head_dim), dtype=np.int64),
        )

    def add(self, tile: TileProbabilities, v: npt.NDArray[np.int8]) -> None:
        """Add one tile: v int8 [columns, d]."""
        # The arrays multiply signed bytes: P - 128, with 128 * sum(v) added back, is P v exactly.
        products = (tile.probability.astype(np.float64) @ v.astype(np.float64)).astype(np.int64)
        exponent = np.maximum(self.exponent, tile.exponent)
        keep = np.minimum(exponent - self.exponent, ACCUMULATOR_BITS)
        join = np.minimum(exponent - tile.exponent, ACCUMULATOR_BITS)

        def merged(old: IntArray, new: IntArray, keep: IntArray, join: IntArray) -> IntArray:
            kept = np.where(keep < ACCUMULATOR_BITS, rshift_round(old, keep), 0)
            joined = np.where(join < ACCUMULATOR_BITS, rshift_round(new << GUARD_BITS, join), 0)
            result: IntArray = kept + joined
            return result

        self.row_sum = merged(self.row_sum, tile.row_sum, keep, join)
        self.outputs = merged(self.outputs, products, keep[:, np.newaxis], join[:, np.newaxis])
        self.exponent = exponent

    def finish(self) -> tuple[IntArray, IntArray]:
        """Return outputs [rows, d] with 8 fraction bits, and the number of rows without a key."""
        empty = self.row_sum == 0
        total = np.where(empty, 1, self.row_sum)
        msb, inverse = reciprocal(total)
        inverse = np.where(empty, 0, inverse)
        # A is in steps of 2**-8 and L in steps of 2**-16; |A| <= L / 2, so the quotient needs no
        # more than the leading 36 bits of either.
        drop = np.maximum(msb - 36, 0)[:, np.newaxis]
        numerator = rshift_round(self.outputs, drop)
        finer = TABLE_FRACTION - PROBABILITY_BITS
        shift = ARGUMENT_BITS + msb[:, np.newaxis] - drop - OUTPUT_FRACTION - finer
        quotient = rshift_round(numerator * inverse[:, np.newaxis], shift)
        return saturate(quotient, 16)[0], np.asarray(np.count_nonzero(empty))


def selected_attention(
    operands: PrefillOperands, index_set: IndexSet, block: int
) -> tuple[npt.NDArray[np.int16], int]:
    """Causal attention over the selected blocks.

    Parameters
    ----------
    operands
        Quantised q, k and v.
    index_set
        Selected (query block, KV block) pairs of every head.
    block
        Tokens of a block; the last block may be ragged.

    Returns
    -------
    outputs, empty_rows
        int16 [heads, tokens, d], 8 fraction bits, in units of the KV head's v scale; and how many
        rows saw no key (their output is zero).
    """
    heads, tokens, head_dim = operands.q.shape
    group = heads // operands.k.shape[0]
    outputs = np.zeros((heads, tokens, head_dim), dtype=np.int16)
    empty_rows = 0
    for head in range(heads):
        kv_head = head // group
        for query_block in range(index_set.blocks):
            rows = slice(query_block * block, min((query_block + 1) * block, tokens))
            positions = np.arange(rows.start, rows.stop)
            accumulators = RowAccumulators.empty(positions.size, head_dim)
            for kv_block in index_set.row(head, query_block).tolist():
                columns = slice(kv_block * block, min((kv_block + 1) * block, tokens))
                mask = np.arange(columns.start, columns.stop) <= positions[:, np.newaxis]
                scores = score_tile(
                    operands.q[head, rows],
                    operands.k[kv_head, columns],
                    operands.multiplier[head, rows],
                    operands.exponent[head, rows],
                    operands.k_shift[kv_head, columns],
                )
                tile = tile_probabilities(scores, mask, v_shift=operands.v_shift[kv_head, columns])
                accumulators.add(tile, operands.v[kv_head, columns])
            block_outputs, empty = accumulators.finish()
            outputs[head, rows] = block_outputs
            empty_rows += int(empty)
    return outputs, empty_rows
