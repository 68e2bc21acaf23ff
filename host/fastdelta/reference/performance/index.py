# SPDX-License-Identifier: Apache-2.0
"""Index phase of one KV head: statistics, scores, divergence, map, selection, job list.

Cycles are those of rtl/prefill: index_generator and its units. What depends on data beside the
index set, equal scores at the edge of a selection, is taken as one entry each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastdelta.prefill.job_lists import JobFields
from fastdelta.reference.performance.attention import WRITE_CYCLES
from fastdelta.reference.performance.loader import Loader, VisitOffer
from fastdelta.reference.performance.memory import MemoryTiming
from fastdelta.shapes import JOB_SECTION_WORDS, PrefillShape

POOL_LANES = 64
REPLAY_ROWS = 2
SCORE_LANES = 8
MAP_LANES = 8
SCORE_BITS = 40
SHARE_BITS = 25
_POOLING = 12  # index_pooling: last beat to last word, beside head_dim


@dataclass(frozen=True)
class IndexCycles:
    """Cycles of the steps of an index phase; `total` is their sum.

    Attributes
    ----------
    statistics
        Score tiles of the representative queries.
    scores
        Replay of the rows beside the estimate.
    divergence
    map
        Query-aware heads: query blocks, scores and selection of pairs.
    selection
        Columns and distances, as far as not beside the map.
    list
        Both scans and the words, to the answer of the last write.
    """

    statistics: float = 0
    scores: float = 0
    divergence: float = 0
    map: float = 0
    selection: float = 0
    list: float = 0

    @property
    def total(self) -> float:
        """Cycles of the phase."""
        return (
            self.statistics + self.scores + self.divergence + self.map + self.selection + self.list
        )


def index_cycles(
    fields: JobFields,
    blocks: int,
    group: int,
    window: int,
    query_aware: Sequence[bool],
    shape: PrefillShape,
    memory: MemoryTiming,
    *,
    dense: bool,
    take_all: bool = False,
) -> IndexCycles:
    """Model the index phase that makes a job list.

    Parameters
    ----------
    fields : JobFields
        Jobs of the list.
    blocks, group, window : int
    query_aware : sequence of bool [group]
    shape : PrefillShape
    memory : MemoryTiming
    dense : bool
        The generator takes every causal pair and looks at nothing.
    take_all : bool
        gamma is 1.
    """
    answer = memory.port("jobs").write_latency
    if dense:
        return IndexCycles(list=1 + _list_cycles(fields, blocks, window, with_pairs=False) + answer)
    loader = Loader(shape, memory)
    statistics = _statistics(loader, blocks, group, shape)
    scores = divergence = map_cycles = selection = 0.0
    now = statistics
    for head in range(group):
        pool_words = -(-shape.head_dim // POOL_LANES)
        replay = blocks * shape.block // REPLAY_ROWS + 12
        estimate = 26 + (pool_words + 2) * blocks
        scores += max(replay, estimate) + 2
        divergence += 3 * blocks + 21
        now = statistics + scores + divergence + map_cycles + selection + 1
        words = -(-blocks // SCORE_LANES)
        aware = query_aware[head]
        once = (words + 4) * (SCORE_BITS + 1) + 3
        chosen = once + words + 5 + (0 if aware or take_all else once + 1)
        if aware:
            mapped = _map(loader, now, blocks, shape, take_all=take_all) - now
            map_cycles += mapped
            selection += max(chosen - mapped, 0) + 2
        else:
            selection += chosen + 2
    listed = _list_cycles(fields, blocks, window, with_pairs=any(query_aware)) + answer
    return IndexCycles(statistics, scores, divergence, map_cycles, selection, listed)


def _statistics(loader: Loader, blocks: int, group: int, shape: PrefillShape) -> float:
    """First cycle of the scores of head 0."""
    for block in range(blocks):
        for head in range(group):
            loader.job(
                1,
                head,
                visit=VisitOffer(1, from_line=False) if head == 0 else None,
                statistics=True,
                fetches=block == 0,
            )
    rows = loader.engine.done_at(blocks * group - 1) + 8
    keys = loader.k.loaded - 2 + shape.head_dim + _POOLING + 2
    return max(rows, keys)


def _map(
    loader: Loader, begin: float, blocks: int, shape: PrefillShape, *, take_all: bool
) -> float:
    """Cycle in which the pairs of a head that begins its map at `begin` are marked."""
    pool_words = -(-shape.head_dim // POOL_LANES)
    scored = [begin - 1, begin - 1]  # of the two rows before
    freed = [begin - 1, begin - 1]  # buffers of the softmax
    shares = begin
    for row in range(blocks):
        last_beat = loader.pool(max(begin + 1, scored[-2] + 1))
        pooled = last_beat + shape.head_dim + _POOLING
        start = max(pooled + 1, scored[-1] + 1, freed[-2] + 1)
        count = row + 1
        last_score = start + 6 + pool_words * count
        scored.append(last_score)
        work = max(last_score + 1, freed[-1] + 1)
        freed.append(work + 2 * count + 15)
        shares = work + 2 * count + 19
    words = int(sum(-(-(row + 1) // MAP_LANES) for row in range(blocks)))
    passes = words + 3 if take_all else (words + 4) * (SHARE_BITS + 1) + 3 + words + 2
    return shares + 2 + passes


def _list_cycles(fields: JobFields, blocks: int, window: int, *, with_pairs: bool) -> float:
    """Cycles from the first of the list state to the end of its last write, less the latency."""
    windows = -(-blocks // window)
    jobs = np.bincount(
        fields.query_block // window * blocks + fields.kv_block, minlength=windows * blocks
    ).reshape(windows, blocks)
    ends = np.minimum((np.arange(windows) + 1) * window, blocks)
    pair_words = window + 3 if with_pairs else 0
    fetches = -(-ends // MAP_LANES) if with_pairs else np.zeros(windows, np.int64)
    # First scan: nothing holds it up.
    scan = int((window + ends + fetches * pair_words).sum())
    length = scan + 4  # from the start of the scan
    uses = -(-blocks // JOB_SECTION_WORDS) * JOB_SECTION_WORDS
    emission = length + 1 + JOB_SECTION_WORDS + uses
    step = float(length)
    taken = 0.0  # visit whose jobs leave
    emitted = emission - 1.0  # last job that left
    waiting = 0.0  # visit in the register of the scan is taken
    for number, end in enumerate(ends.tolist()):
        step += window
        row = jobs[number, :end].tolist()
        for block, count in enumerate(row):
            if pair_words and block % MAP_LANES == 0:
                step += pair_words
            step = max(step + 1, waiting)
            if count:
                taken = max(emitted, step + 1) if emitted >= emission else max(taken, step + 1)
                emitted = max(taken, emission - 1) + count
                waiting = taken
    total = len(fields.kv_block)
    padding = -total % JOB_SECTION_WORDS
    return emitted + padding + WRITE_CYCLES - 1
