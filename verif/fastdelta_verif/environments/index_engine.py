# SPDX-License-Identifier: Apache-2.0
"""What surrounds ``index_generator``: prompts, and a player of tile engine and memory."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cocotb
import numpy as np
from pyuvm import uvm_component

from fastdelta.arrays import Words
from fastdelta.prefill.job_lists import make_job_lists
from fastdelta.prefill.packing import block_contents, pack_keys, pack_queries
from fastdelta.prefill.quantise import quantise_prompt
from fastdelta.reference.index_model import (
    IndexParameters,
    IndexResult,
    RowPartials,
    generate_index,
    row_partials,
)
from fastdelta.reference.prefill_model import PrefillOperands
from fastdelta.reference.sparse_index import IndexSet, Pattern, vertical_slash_map
from fastdelta.shapes import PrefillShape
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import Throttle
from fastdelta_verif.agents.ports import Fields, PortSink, Transfer
from fastdelta_verif.stimulus import to_beats

JOB_FIELDS = ("kind", "block", "query", "head", "slot", "opens_visit", "last")
VISIT_FIELDS = ("block", "jobs", "k_only")
STATISTICS, POOL = 1, 2
HEADER_SHIFT = 18  # divergence: 49 fraction bits in the model, 31 in the list

KINDS = ("noise", "sink", "local", "columns", "alone", "flat", "loud", "raw", "zero", "extreme")


def random_operands(
    numbers: np.random.Generator, kind: str, group: int, tokens: int, d: int
) -> PrefillOperands:
    """Return operands of one KV head.

    Parameters
    ----------
    kind
        ``noise``, ``sink``, ``local`` and ``columns`` have attention as models have it; ``flat``
        has keys of zeros, so that scores are equal; in ``alone`` a token has all of the attention,
        and most scores are 0; ``loud`` has lengths of tokens that differ by powers; ``raw`` has
        random bits within the formats; ``zero`` is nothing but zeros; ``extreme`` has the largest
        operands.
    """
    if kind in ("raw", "zero", "extreme"):
        return _bits(numbers, kind, group, tokens, d)
    q = numbers.normal(size=(group, tokens, d))
    k = numbers.normal(size=(1, tokens, d))
    if kind == "sink":
        q[:, :, 0], k[:, :, 0] = 6.0, 0.0
        k[:, 0, 0] = numbers.uniform(4, 7)
    elif kind == "local":
        angle = np.arange(tokens) * numbers.uniform(0.01, 0.1)
        for x in (q, k):
            x[:, :, 0], x[:, :, 1] = 5 * np.cos(angle), 5 * np.sin(angle)
    elif kind == "columns":
        q[:, :, 0], k[:, :, 0] = 6.0, 0.0
        k[:, numbers.integers(0, tokens, size=5), 0] = numbers.uniform(3, 6, size=5)
    elif kind == "alone":
        q[:, :, 0], k[:, :, 0] = 40.0, 0.0
        k[:, numbers.integers(0, tokens), 0] = 40.0
    elif kind == "flat":
        k[:] = 0.0
    elif kind == "loud":
        q *= np.exp2(numbers.integers(-12, 4, size=(group, tokens, 1)))
        k *= np.exp2(numbers.integers(-14, 4, size=(1, tokens, 1)))
    return quantise_prompt(q, k, np.zeros_like(k)).operands


def _bits(
    numbers: np.random.Generator, kind: str, group: int, tokens: int, d: int
) -> PrefillOperands:
    """Return operands that no quantisation gives, but that the formats allow."""
    q = numbers.integers(-128, 128, size=(group, tokens, d)).astype(np.int8)
    k = numbers.integers(-128, 128, size=(1, tokens, d)).astype(np.int8)
    multiplier = numbers.integers(1 << 15, 1 << 16, size=(group, tokens))
    exponent = numbers.integers(24, 47, size=(group, tokens))
    k_shift = numbers.integers(0, 16, size=(1, tokens))
    if kind == "raw":
        multiplier[numbers.random((group, tokens)) < 0.2] = 0
    elif kind == "zero":
        q[:], k[:], multiplier[:], k_shift[:] = 0, 0, 0, 15
    else:
        # Scores of -2^23 are in the format, +2^23 would not be.
        q[:], k[:] = 127, numbers.choice([-127, -128, 127])
        multiplier[:], k_shift[:] = (1 << 16) - 1, 0
        exponent[:] = 8 if k[0, 0, 0] < 0 else 26
    v = np.zeros_like(k)
    return PrefillOperands(q, multiplier, exponent, k, k_shift, v, np.zeros_like(k_shift))


@dataclass(frozen=True, eq=False)
class IndexCase:
    """One run of the unit: operands of a KV head, settings, and what the model makes of them."""

    shape: PrefillShape
    operands: PrefillOperands
    parameters: IndexParameters
    window: int
    map_entries: int

    @property
    def group(self) -> int:
        """Query heads."""
        return self.operands.q.shape[0]

    @property
    def tokens(self) -> int:
        """Tokens of the prompt."""
        return self.operands.q.shape[1]

    @property
    def blocks(self) -> int:
        """Blocks of the prompt."""
        return self.shape.blocks(self.tokens)

    @cached_property
    def result(self) -> IndexResult:
        """Index set and decisions of the model."""
        return generate_index(self.operands, self.parameters)

    @cached_property
    def query_aware(self) -> list[int]:
        """Query-aware heads."""
        heads = enumerate(self.result.heads)
        return [h for h, head in heads if head.pattern is Pattern.QUERY_AWARE]

    @property
    def overflows(self) -> bool:
        """Whether a head is query-aware, but there is no place for its map."""
        return bool(self.query_aware) and self._causal_pairs > self.map_entries

    @property
    def _causal_pairs(self) -> int:
        return self.blocks * (self.blocks + 1) // 2

    @property
    def index_set(self) -> IndexSet:
        """Pairs of the job list: those of the model, without those of maps that have no place."""
        if not self.overflows:
            return self.result.index_set
        heads = [
            vertical_slash_map(head.columns, head.distances, self.blocks)
            for head in self.result.heads
        ]
        return IndexSet.from_mask(np.stack(heads))

    @property
    def counts(self) -> tuple[int, ...]:
        """Query-aware bits, score tiles, pooled scores, pairs, whether a map has no place."""
        counters = self.result.counters
        aware = sum(1 << head for head in self.query_aware)
        scores = counters.pooled_scores
        if self.overflows:
            scores -= len(self.query_aware) * self._causal_pairs
        pairs = len(self.index_set.columns)
        return aware, counters.score_tiles, scores, pairs, int(self.overflows)

    @cached_property
    def words(self) -> Words:
        """Job list."""
        (jobs,) = make_job_lists(self.index_set, 1, self.window)
        aware = np.zeros(self.group, np.bool_)
        aware[self.query_aware] = True
        divergence = [head.divergence >> HEADER_SHIFT for head in self.result.heads]
        jobs = replace(jobs, query_aware=aware, divergence=np.array(divergence, np.uint32))
        return jobs.to_words()

    @cached_property
    def partials(self) -> list[RowPartials]:
        """Row sums of every head."""
        return [row_partials(self.operands, head, self.shape.block) for head in range(self.group)]

    @cached_property
    def _queries(self) -> list[list[int]]:
        operands = self.operands
        data = pack_queries(self.shape, operands.q, operands.multiplier, operands.exponent)
        blocks = block_contents(self.shape, data, self.shape.q_block_bytes)
        return [to_beats(block, self.shape.beat_bytes) for block in blocks]

    @cached_property
    def keys(self) -> list[list[int]]:
        """Beats of every K block; the shifts of values are random, nobody may look at them."""
        shifts = np.random.default_rng(1).integers(0, 16, size=self.operands.k_shift.shape)
        data = pack_keys(self.shape, self.operands.k, self.operands.k_shift, shifts)
        blocks = block_contents(self.shape, data, self.shape.k_block_bytes)
        return [to_beats(block, self.shape.beat_bytes) for block in blocks]

    def queries(self, head: int, block: int) -> list[int]:
        """Beats of a Q block; number `blocks` has the representative queries."""
        return self._queries[head * (self.blocks + 1) + block]

    def rows(self, head: int, block: int) -> list[Fields]:
        """Rows of a tile: index, exponent, far, near."""
        partials = self.partials[head]
        exponent = (partials.exponent[block] & 0xFFFF).tolist()
        far, near = partials.far[block].tolist(), partials.near[block].tolist()
        return list(zip(range(self.shape.block), exponent, far, near, strict=True))

    def jobs(self) -> list[Fields]:
        """Jobs that the unit gives, in order; the fields are `JOB_FIELDS`."""
        statistics = [
            (STATISTICS, block, self.blocks, head, head, int(head == 0), 0)
            for block in range(self.blocks)
            for head in range(self.group)
        ]
        pool = [
            (POOL, 0, query, head, head, 0, 0)
            for head in self.query_aware
            for query in range(self.blocks)
            if not self.overflows
        ]
        return statistics + pool

    def visits(self) -> list[Fields]:
        """Visits that the unit opens; the fields are `VISIT_FIELDS`."""
        return [(block, self.group, 1) for block in range(self.blocks)]


class EnginePlayer(uvm_component):
    """Take jobs and visits; give the beats that pass by and the rows that the model computes.

    K blocks come as fast as visits are taken. The rows of a tile come after the beats of its K
    block, tiles in the order of the jobs.
    """

    def __init__(
        self, name: str, parent: uvm_component, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self._dut: Any = cocotb.top
        self._domain, self._rng = domain, rng
        rngs = [random.Random(rng.random()) for _ in range(5)]
        self.jobs = PortSink("jobs", self, domain, rngs[0], "job", JOB_FIELDS)
        self.visits = PortSink("visits", self, domain, rngs[1], "visit", VISIT_FIELDS)
        self._q, self._k, self._rows = (Throttle(rng) for rng in rngs[2:])
        self.throttles = [self.jobs.throttle, self.visits.throttle, self._q, self._k, self._rows]
        self.case: IndexCase | None = None
        self.last_row = 0  # cycle
        self.forget()

    def forget(self) -> None:
        """Drop what is under way."""
        self._q_beats: deque[int] = deque()
        self._k_beats: deque[tuple[int, bool]] = deque()  # and whether it is the last of its block
        self._tiles: deque[tuple[int, int]] = deque()  # head, block
        self._tile_rows: deque[tuple[int, int, Fields]] = deque()
        self._blocks_passed = 0

    def begin(self, case: IndexCase) -> None:
        """Play for a case."""
        self.forget()
        self.case = case

    def job(self, item: Transfer) -> None:
        """Do a job."""
        assert self.case is not None, f"a job without a run: {item}"
        kind, block, query, head, *_ = item.fields
        if kind == POOL or block == 0:
            self._q_beats.extend(self.case.queries(head, query))
        if kind == STATISTICS:
            self._tiles.append((head, block))

    def visit(self, item: Transfer) -> None:
        """Send the keys of a visit."""
        assert self.case is not None, f"a visit without a run: {item}"
        beats = self.case.keys[item.fields[0]]
        self._k_beats.extend((beat, n == len(beats) - 1) for n, beat in enumerate(beats))

    def busy(self) -> bool:
        """Say whether anything is under way."""
        return bool(self._q_beats or self._k_beats or self._tiles or self._tile_rows)

    async def run_phase(self) -> None:
        """Drive every cycle."""
        dut, domain, rng = self._dut, self._domain, self._rng
        ports = (
            (dut.q_beat_valid, (dut.q_beat,)),
            (dut.k_beat_valid, (dut.k_beat,)),
            (
                dut.row_valid,
                (
                    dut.row_head,
                    dut.row_block,
                    dut.row_index,
                    dut.row_exponent,
                    dut.row_far,
                    dut.row_near,
                    dut.row_last,
                ),
            ),
        )
        driven: list[tuple[int, ...] | None] = [(), (), ()]
        while True:
            for port, values in enumerate((self._next_q(), self._next_k(), self._next_row())):
                valid, fields = ports[port]
                if values is None and driven[port] is None:
                    continue
                if (values is None) != (driven[port] is None) or driven[port] == ():
                    valid.value = values is not None
                driven[port] = values
                # Idle fields are random, so that nobody may look at them.
                for place, field in enumerate(fields):
                    field.value = rng.getrandbits(len(field)) if values is None else values[place]
            await domain.edge

    def _next_q(self) -> Fields | None:
        return (self._q_beats.popleft(),) if self._q_beats and self._q.willing() else None

    def _next_k(self) -> Fields | None:
        if not self._k_beats or not self._k.willing():
            return None
        beat, last = self._k_beats.popleft()
        self._blocks_passed += last
        return (beat,)

    def _next_row(self) -> Fields | None:
        if not self._tile_rows and self._tiles and self._tiles[0][1] < self._blocks_passed:
            head, block = self._tiles.popleft()
            assert self.case is not None
            self._tile_rows.extend((head, block, row) for row in self.case.rows(head, block))
        if not self._tile_rows or not self._rows.willing():
            return None
        head, block, row = self._tile_rows.popleft()
        self.last_row = self._domain.cycle
        return (head, block, *row, int(not self._tile_rows))
