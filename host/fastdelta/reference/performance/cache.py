# SPDX-License-Identifier: Apache-2.0
"""Visits of a job list, and which of them the KV cache serves.

The rule is that of `fastdelta.reference.kv_cache_model`, in a loop that is fast enough for the
lists of long prompts; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastdelta.prefill.job_lists import JobFields, JobList
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.sparse_index import BoolArray


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits of a job list.

    Attributes
    ----------
    first
        Int64 [visits + 1], number of the first job of each, and of all jobs.
    window
        Int64 [visits], window of query blocks.
    hit
        Bool [visits], whether K and V come from the cache.
    bypasses
        Misses of blocks with later uses that find no line.
    """

    first: IntArray
    window: IntArray
    hit: BoolArray
    bypasses: int

    @property
    def number(self) -> int:
        """Visits in all."""
        return len(self.hit)

    @property
    def hits(self) -> int:
        """Visits that the cache serves."""
        return int(np.count_nonzero(self.hit))


def list_visits(
    jobs: JobList, fields: JobFields, window: int, lines: int, hot_threshold: int, *, cache: bool
) -> Visits:
    """Find the visits of a list and decide each as the cache does.

    Parameters
    ----------
    jobs : JobList
    fields : JobFields
        Its jobs taken apart.
    window : int
        Query blocks of a window.
    lines, hot_threshold : int
        Of the cache; a block with more uses left than the threshold belongs into the hot half.
    cache : bool
        Whether it is on.
    """
    number = len(fields.kv_block)
    of_window = fields.query_block // window
    opens = np.ones(number, np.bool_)
    opens[1:] = (np.diff(fields.kv_block) != 0) | (np.diff(of_window) != 0)
    starts = np.flatnonzero(opens)
    first = np.append(starts, number)
    hit = np.zeros(len(starts), np.bool_)
    bypasses = 0
    if cache:
        uses = jobs.uses.tolist()
        tier: list[int | None] = [None] * jobs.blocks  # half that holds a block: 0 cold, 1 hot
        free = [lines // 2, lines // 2]
        found = []
        blocks, sizes = fields.kv_block[starts].tolist(), np.diff(first).tolist()
        for visit, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
            uses[block] -= size
            left, held = uses[block], tier[block]
            if held is not None:
                found.append(visit)
                if not left:
                    free[held] += 1
                    tier[block] = None
            elif left:
                half = 1 if left > hot_threshold and free[1] else 0
                if free[half]:
                    free[half] -= 1
                    tier[block] = half
                else:
                    bypasses += 1
        hit[found] = True
    return Visits(first, of_window[starts], hit, bypasses)
