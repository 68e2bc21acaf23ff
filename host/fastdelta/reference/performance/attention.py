# SPDX-License-Identifier: Apache-2.0
"""Attention phase of one KV head: the job reader, and all behind it, over a job list.

Short lists are run from end to end. Of long ones, parts spread evenly over the list are run, and
those in between cost as much a job as their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fastdelta.prefill.job_lists import JobFields
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.performance.cache import Visits
from fastdelta.reference.performance.loader import Loader, VisitOffer
from fastdelta.reference.performance.memory import MemoryTiming
from fastdelta.shapes import JOB_SECTION_WORDS, PrefillShape

WRITE_CYCLES = 7
"""From the last part of an output to the end of the phase, beside the latency of the write."""
_PART = 1000  # jobs of a part of the list, or one window if that has more
_WARM_UP, _HEAD, _MIDDLE = 300, 1500, 800  # jobs that are run of a part


@dataclass(frozen=True)
class AttentionCycles:
    """Cycles of an attention phase.

    Attributes
    ----------
    total
        Of the phase.
    header
        Of these, before the first record of the list is read.
    jobs
        Over which the recursion ran.
    """

    total: float
    header: float
    jobs: int


class AttentionPhase:
    """The phase of one KV head.

    Parameters
    ----------
    fields : JobFields
        Jobs of the list.
    visits : Visits
        Its visits.
    blocks, group, window : int
    shape : PrefillShape
    memory : MemoryTiming
    """

    def __init__(
        self,
        fields: JobFields,
        visits: Visits,
        blocks: int,
        group: int,
        window: int,
        shape: PrefillShape,
        memory: MemoryTiming,
    ) -> None:
        self.shape, self.memory, self.visits = shape, memory, visits
        self._slots = (fields.query_block % window) * group + fields.head
        self._lasts = fields.last
        port = memory.port("jobs")
        beat_cycles = port.read_beat_cycles(shape.beat_bytes)
        self._word_cycles = max(1, 4 / shape.beat_bytes * beat_cycles)
        header_words = JOB_SECTION_WORDS * (1 + -(-blocks // JOB_SECTION_WORDS))
        self.header = 14 + 2 * port.read_latency + round(header_words * self._word_cycles)
        self._depth = 16 if shape.slots < 8 else 2 * shape.slots

    def cycles(self, exact_jobs: int) -> AttentionCycles:
        """Model the phase; of a list of more than `exact_jobs` jobs, a sample."""
        number = int(self.visits.first[-1])
        if number <= exact_jobs:
            _, end = self.run(0, self.visits.number)
            return AttentionCycles(end, self.header, number)
        return self._sampled(exact_jobs)

    def run(self, first: int, stop: int) -> tuple[list[float], float]:
        """Run the recursion over some visits.

        Returns
        -------
        taken : list of float
            Cycle in which each visit is opened.
        end : float
            Last cycle of the phase, if the list ended with these visits.
        """
        loader = Loader(self.shape, self.memory)
        bounds = self.visits.first[first : stop + 1].tolist()
        base, number = bounds[0], bounds[-1] - bounds[0]
        hits = self.visits.hit[first:stop].tolist()
        slots = self._slots[base : bounds[-1]].tolist()
        lasts = self._lasts[base : bounds[-1]].tolist()
        begin, depth, word_cycles = self.header, self._depth, self._word_cycles
        left: list[float] = []  # when each job leaves the reader's queue
        opened = []
        checked = begin - 1.0  # record that was accepted last
        accepted = 0
        take = fetched = 0.0
        for visit, from_line in enumerate(hits):
            start, end = bounds[visit] - base, bounds[visit + 1] - base
            # A visit is given when the first record of the next one is accepted.
            while accepted <= min(end, number - 1):
                checked = max(checked + 1, begin + accepted * word_cycles)
                if accepted >= depth:
                    checked = max(checked, left[accepted - depth] + 1)
                accepted += 1
            if end < number:
                give = checked = max(checked, loader.visits_ready())
            else:
                padding = -number % JOB_SECTION_WORDS
                give = max(checked + padding + 2, loader.visits_ready())
            offer: VisitOffer | None = VisitOffer(give + 2, from_line)
            for job in range(start, end):
                fetched = max(give + 1, fetched + 1, take)
                left.append(fetched)
                take = loader.job(fetched + 1, slots[job], visit=offer, last=lasts[job])
                if offer:
                    opened.append(take)
                    offer = None
        loader.engine.drain()
        answer = WRITE_CYCLES + self.memory.port("o").write_latency
        return opened, loader.outputs.drain() + answer

    def _sampled(self, exact_jobs: int) -> AttentionCycles:
        """Run parts of the list, each of whole windows; those between cost as their neighbours."""
        bounds = self._parts()
        jobs = self.visits.first[bounds]
        sizes = np.diff(jobs)
        cost = np.minimum(sizes, _HEAD + _MIDDLE + _WARM_UP) + _WARM_UP
        wanted = max(2, int(exact_jobs // cost.max()))
        # First and last are unlike the others and stand for themselves; the rest is spread evenly.
        last = len(sizes) - 1
        inner = max(wanted - 2, 1)
        targets = (np.arange(inner) + 0.5) / inner * jobs[-1]
        spread = np.unique(np.searchsorted(jobs, targets, side="right") - 1)
        spread = spread[(spread > 0) & (spread < last)] if last > 1 else np.zeros(0, np.int64)
        least = self.shape.macs_per_job / self.shape.macs_per_cycle
        ran = 0
        cycles: dict[int, float] = {}
        for part in sorted({0, last, *spread.tolist()}):
            measured, number = self._whole_or_sampled(int(bounds[part]), int(bounds[part + 1]))
            # A part ends at a visit, give or take one; no job is faster than the arrays.
            cycles[part] = max(measured, least * int(sizes[part]))
            ran += number
        total = self.header + sum(cycles.values())
        edges = [0, *spread.tolist(), last]
        for before, after in pairwise(edges):
            near = [part for part in (before, after) if 0 < part < last] or [0]
            per_job = sum(cycles[part] for part in near) / int(sizes[near].sum())
            total += per_job * int(sizes[before + 1 : after].sum())
        return AttentionCycles(total, self.header, ran)

    def _parts(self) -> IntArray:
        """First visits of parts of the list, and the end: whole windows, many jobs each."""
        windows = np.arange(int(self.visits.window[-1]) + 2)
        first_visit = np.searchsorted(self.visits.window, windows)
        jobs = self.visits.first[first_visit]
        starts = np.unique(np.searchsorted(jobs, np.arange(0, int(jobs[-1]), _PART)))
        bounds: IntArray = np.append(first_visit[starts[starts < len(jobs) - 1]], first_visit[-1])
        return bounds

    def _whole_or_sampled(self, start: int, stop: int) -> tuple[float, int]:
        """Cycles of the visits of a part, and the jobs that were run to find them."""
        first = self.visits.first
        size = int(first[stop] - first[start])
        if size <= _HEAD + _MIDDLE + _WARM_UP:
            return self._part(start, stop)
        head = self._visit_at(int(first[start]) + _HEAD)
        middle = self._visit_at(int(first[start]) + (size + _HEAD - _MIDDLE) // 2)
        middle_end = self._visit_at(int(first[middle]) + _MIDDLE)
        opening, opening_ran = self._part(start, head)
        steady, steady_ran = self._part(middle, middle_end)
        rest = int(first[stop] - first[head])
        per_job = steady / int(first[middle_end] - first[middle])
        return opening + rest * per_job, opening_ran + steady_ran

    def _part(self, start: int, stop: int) -> tuple[float, int]:
        """Cycles from the first visit of a part to the one after its last, after a warm-up."""
        first = self.visits.first
        warm = self._visit_at(int(first[start]) - _WARM_UP)
        behind = min(stop + 1, self.visits.number)
        opened, end = self.run(warm, behind)
        until = opened[stop - warm] if stop < behind else end
        return until - opened[start - warm], int(first[behind] - first[warm])

    def _visit_at(self, job: int) -> int:
        """Visit of a job, or the first one."""
        return max(int(np.searchsorted(self.visits.first, job, side="right")) - 1, 0)
