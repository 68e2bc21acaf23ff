# SPDX-License-Identifier: Apache-2.0
"""Tests of ``kv_cache``: each decision against the model, and every beat of K and V.

The design of the launcher must name every parameter.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import cocotb
import pyuvm
from pyuvm import uvm_monitor, uvm_test

from fastdelta.reference.job_reader_model import ListShape, read_job_list
from fastdelta.reference.kv_cache_model import CacheCounters, KVCache, Visit
from fastdelta_verif.agents.axi_stream import StreamBeat, StreamSinkAgent
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import CLOSED, THROTTLES
from fastdelta_verif.agents.ports import (
    Fields,
    PortSource,
    RequestedBeats,
    Transfer,
    stream_names,
)
from fastdelta_verif.covergroups import some
from fastdelta_verif.covergroups.prefill import KV_CACHE, KVCacheCoverage
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.job_lists import list_of, random_pairs, records_of
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}
COUNTS = ("visits", "hits", "misses", "hot", "cold", "bypasses", "evictions")
PIPELINE_BEATS = 3  # of a visit that no longer counts as streaming: in two registers, and leaving


class CountsMonitor(uvm_monitor):
    """Collect each new state of the counters, with the lines that hold a block."""

    def __init__(self, name: str, parent: uvm_test, domain: ClockDomain) -> None:
        super().__init__(name, parent)
        dut: Any = cocotb.top
        self._domain = domain
        self._signals = [getattr(dut, f"count_{name}") for name in COUNTS]
        self._signals.append(dut.live_lines)
        self.seen: list[Fields] = []

    def now(self) -> Fields:
        """Return the present state."""
        return tuple(int(signal.value) for signal in self._signals)

    async def run_phase(self) -> None:
        """Watch every cycle."""
        last: Fields | None = None
        while True:
            await self._domain.edge
            if self._domain.in_reset:
                last = None
                continue
            now = self.now()
            if last is not None and now[:-1] != last[:-1]:
                self.seen.append(now)
            last = now


class CacheScoreboard(Scoreboard):
    """Requests and beats come as expected, each in its order."""

    def __init__(self, name: str, parent: uvm_test) -> None:
        super().__init__(name, parent)
        self.requests = {which: self.queue(f"requests of {which}") for which in "kv"}
        self.beats = {which: self.queue(f"beats of {which}") for which in "kv"}
        self.cycles: dict[str, list[int]] = {"k": [], "v": []}
        self.request_cycles: dict[str, list[int]] = {"k": [], "v": []}
        # Beats of K that belong to visits before the one of each request to come.
        self.k_before_request: deque[int] = deque()
        self.prefetches = [0, 0]  # at least, at most

    def request(self, which: str, item: Transfer) -> None:
        """Compare a request of K or V."""
        queue = self.requests[which]
        assert queue, f"{which} of block {item.fields} was asked for without need"
        self.compare(f"request of {which}", item.fields, (queue.popleft(),))
        self.request_cycles[which].append(item.cycle)
        if which == "k":
            waiting = self.k_before_request.popleft() - len(self.cycles["k"])
            self.prefetches[0] += waiting > PIPELINE_BEATS
            self.prefetches[1] += waiting > 0

    def beat(self, which: str, item: StreamBeat) -> None:
        """Compare a beat of K or V."""
        queue = self.beats[which]
        assert queue, f"a beat of {which} is left over"
        self.compare(f"beat of {which}", item.data, queue.popleft())
        self.cycles[which].append(item.cycle)

    def forget(self) -> None:
        """Expect nothing, as after reset."""
        for queue in (*self.requests.values(), *self.beats.values(), self.k_before_request):
            queue.clear()
        for cycles in (*self.cycles.values(), *self.request_cycles.values()):
            cycles.clear()
        self.prefetches = [0, 0]


class KVCacheTest(ScenarioTest):
    """Base: the cache between visits, two memories and two sinks."""

    idle_inputs = (
        "rst_n",
        "start",
        "cache_enable",
        "hot_threshold",
        "uses_write",
        "clear_counts",
        "visit_valid",
        "s_k_tvalid",
        "s_v_tvalid",
    )

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        parameters = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.lines, self.max_blocks = parameters["CACHE_LINES"], parameters["MAX_BLOCKS"]
        self.prefetch, self.bus = parameters["PREFETCH"], parameters["BUS_WIDTH"]
        v_beats = parameters["HEAD_DIM"] * parameters["BLOCK"] * 8 // self.bus
        self.block_beats = {"k": v_beats + parameters["BLOCK"] * 8 // self.bus, "v": v_beats}
        self.contents: dict[str, list[list[int]]] = {"k": [], "v": []}
        self.cache = KVCache(self.lines, 0)
        self.states: list[Fields] = []
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        rngs = [random.Random(self.rng.random()) for _ in range(5)]
        self.visits = PortSource(
            "visits", self, self.domain, rngs[0], "visit", ("block", "jobs", "k_only")
        )
        self.memories = {
            which: RequestedBeats(
                f"{which}_memory",
                self,
                self.domain,
                rng,
                f"{which}_request",
                ("block",),
                (f"s_{which}_tvalid", f"s_{which}_tready", f"s_{which}_tdata"),
                lambda request, which=which: self.contents[which][request[0]],
            )
            for which, rng in zip("kv", rngs[1:3], strict=True)
        }
        self.sinks = {
            which: StreamSinkAgent(
                f"{which}_sink",
                self,
                stream_names(f"m_{which}_tvalid", f"m_{which}_tready", f"m_{which}_tdata"),
                self.domain,
                rng,
            )
            for which, rng in zip("kv", rngs[3:], strict=True)
        }
        self.counts = CountsMonitor("counts", self, self.domain)
        self.scoreboard = CacheScoreboard("scoreboard", self)
        self.coverage = KVCacheCoverage("coverage", self, KV_CACHE)
        self.coverage.simulator()
        self.coverage.hit("lines", self.lines)
        self.counters_cleared = False

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        board = self.scoreboard
        for which in "kv":
            board.subscribe(
                self.memories[which].requests, lambda item, w=which: board.request(w, item)
            )
            board.subscribe(
                self.sinks[which].monitor.port, lambda item, w=which: board.beat(w, item)
            )
            self.coverage.watch(f"{which}_request", self.memories[which].request_rhythm)
            self.coverage.watch(f"s_{which}", self.memories[which].rhythm)
            self.coverage.watch(f"m_{which}", self.sinks[which].monitor.rhythm)
        self.coverage.watch("visit", self.visits.rhythm)

    # ---------------------------------------------------------------- stimulus

    def random_list(self) -> tuple[tuple[int, ...], list[Visit]]:
        """Return uses and visits of a random job list, often of few blocks in small windows."""
        rng = self.rng
        group = rng.choice([1, 2, 3, 8])
        window = rng.choice([1, 1, 2, 4, 8])
        blocks = rng.choice([rng.randint(1, 3), rng.randint(2, 8), rng.randint(6, 24)])
        shape = ListShape(min(blocks, self.max_blocks), group, window)
        pairs = random_pairs(rng, shape, rng.choice([0.1, 0.4, 0.8]))
        reading = read_job_list(list_of(records_of(pairs, window), shape), shape)
        visits = [Visit(visit[0].block, len(visit)) for visit in reading.visits]
        most = self.settings.options.get("visits", 60)
        self.coverage.hit("list", "cut short" if len(visits) > most else "whole")
        return reading.uses, visits[:most]

    def with_k_only(self, visits: list[Visit], blocks: int) -> list[Visit]:
        """Return the visits with some for K only in between."""
        mixed = []
        for visit in visits:
            if self.rng.random() < 0.2:
                mixed.append(Visit(self.rng.randrange(blocks), self.rng.randint(1, 8), True))
            mixed.append(visit)
        return mixed

    def throttle(self, mode: str | None = None, latency: int | None = None) -> None:
        """Set the rhythm of every port, a random one for each if none is given."""
        for memory in self.memories.values():
            memory.request_throttle.mode = mode or self.rng.choice(THROTTLES)
            memory.throttle.mode = mode or self.rng.choice(THROTTLES)
            most = self.rng.choice([1, 10, 120])
            memory.latency = (latency, latency) if latency else (1, most)
            longest = memory.latency[1]
            bins = "1" if longest == 1 else f"up to {10 if longest <= 10 else 120}"
            self.coverage.hit("memory_latency", bins)
        for sink in self.sinks.values():
            sink.driver.throttle.mode = mode or self.rng.choice(THROTTLES)
        self.visits.throttle.mode = mode or self.rng.choice(THROTTLES)

    async def begin(
        self, uses: Sequence[int], *, enabled: bool = True, threshold: int = 0, gaps: bool = True
    ) -> None:
        """Start a KV head: new contents of memory, and its uses."""
        dut, rng = self.dut, self.rng
        self.contents = {
            which: [[rng.getrandbits(self.bus) for _ in range(beats)] for _ in uses]
            for which, beats in self.block_beats.items()
        }
        self.cache = KVCache(self.lines, threshold, enabled, self.cache.counters)
        self.cache.start(uses)
        self.coverage.begin(threshold)
        self.coverage.hit("counters", "cleared" if self.counters_cleared else "go on")
        self.counters_cleared = False
        dut.cache_enable.value, dut.hot_threshold.value = int(enabled), threshold
        dut.start.value = 1
        await self.domain.edge
        dut.start.value = 0
        for block, value in enumerate(uses):
            while gaps and rng.random() < 0.2:
                await self.domain.edge
            dut.uses_write.value, dut.uses_block.value, dut.uses_value.value = 1, block, value
            await self.domain.edge
            dut.uses_write.value = 0
            dut.uses_block.value, dut.uses_value.value = rng.getrandbits(12), rng.getrandbits(16)

    def expect(self, visits: Sequence[Visit]) -> int:
        """Queue visits and what they must lead to; return how many come from memory."""
        board, misses = self.scoreboard, 0
        for visit in visits:
            decision = self.cache.visit(visit)
            misses += not decision.hit
            if self.cache.enabled:
                self.coverage.decision(
                    visit,
                    decision,
                    self.cache.uses[visit.block],
                    self.cache.hot_threshold,
                    live=len(self.cache.resident),
                    lines=self.lines,
                )
            elif not visit.k_only:
                self.coverage.hit("decision", ("off", "miss"))
            for which in "k" if visit.k_only else "kv":
                if not decision.hit:
                    board.requests[which].append(visit.block)
                    if which == "k":
                        board.k_before_request.append(
                            len(board.cycles["k"]) + len(board.beats["k"])
                        )
                board.beats[which].extend(self.contents[which][visit.block])
            if not visit.k_only:
                self.states.append((*astuple(self.cache.counters), len(self.cache.resident)))
            self.visits.waiting.append((visit.block, visit.jobs, int(visit.k_only)))
        return misses

    async def drained(self) -> None:
        """Wait until all is done, then look at everything that must hold."""
        board, compare = self.scoreboard, self.scoreboard.compare
        taken = False
        while self.visits.waiting or any(board.beats.values()):
            if taken:
                compare("busy before the last beat", int(self.dut.busy.value), 1)
            taken = not self.visits.waiting
            await self.domain.edge
        await self.domain.cycles(3)
        compare("busy", int(self.dut.busy.value), 0)
        compare("counters, visit after visit", self.counts.seen, self.states)
        if self.states:
            compare("counters and live lines", self.counts.now(), self.states[-1])
        least, most = board.prefetches
        prefetches = int(self.dut.count_prefetches.value)
        assert least <= prefetches <= most, f"{prefetches} prefetches, {least} to {most} seen"
        self.coverage.hit("prefetches", some(prefetches))
        for which in "kv":
            compare(f"requests of {which} left", len(board.requests[which]), 0)
            compare(f"beats of {which} not taken", self.memories[which].outstanding, 0)

    async def run_list(
        self, uses: Sequence[int], visits: Sequence[Visit], *, enabled: bool, threshold: int
    ) -> int:
        """Run a KV head to its end; return how many visits came from memory."""
        await self.begin(uses, enabled=enabled, threshold=threshold)
        misses = self.expect(visits)
        await self.drained()
        return misses

    async def clear_counts(self) -> None:
        """Clear the counters here and there."""
        self.dut.clear_counts.value = 1
        await self.domain.edge
        self.dut.clear_counts.value = 0
        await self.domain.edge
        await self.domain.edge
        self.scoreboard.compare("cleared counters", self.counts.now()[:-1], (0,) * len(COUNTS))
        self.scoreboard.compare("cleared prefetches", int(self.dut.count_prefetches.value), 0)
        self.counters_cleared = True
        self.forget_counts()

    def forget_counts(self) -> None:
        """Count anew."""
        self.cache.counters = CacheCounters()
        self.states.clear()
        self.counts.seen.clear()
        self.scoreboard.prefetches = [0, 0]


@pyuvm.test(**TIME_LIMIT)
class random_lists(KVCacheTest):
    """KV heads of random job lists and thresholds with random stalls; ``heads`` of them."""

    async def scenario(self) -> None:
        """Run them; the lists may end early, as broken ones do, and visits for K come between."""
        rng = self.rng
        for _ in range(self.settings.options["heads"]):
            self.throttle()
            uses, visits = self.random_list()
            # Often what some block has left after its first visit, where hot and cold meet.
            met = dict(reversed([(visit.block, visit.jobs) for visit in visits]))
            left = [uses[block] - jobs for block, jobs in met.items()]
            threshold = rng.choice([0, max(uses) // 2, rng.choice(left), rng.choice(left), 0xFFFF])
            if rng.random() < 0.3:
                visits = self.with_k_only(visits, len(uses))
            enabled = rng.random() < 0.9
            await self.run_list(uses, visits, enabled=enabled, threshold=threshold)
            if rng.random() < 0.2:
                await self.clear_counts()


@pyuvm.test(**TIME_LIMIT)
class on_and_off(KVCacheTest):
    """Whole lists with the cache on take fewer blocks from memory, give the same, and end empty."""

    async def scenario(self) -> None:
        """Run every list both ways."""
        self.throttle("light", 20)
        for _ in range(self.settings.options["heads"]):
            shape = ListShape(min(12, self.max_blocks), 2, 2)
            pairs = random_pairs(self.rng, shape, 0.4)
            reading = read_job_list(list_of(records_of(pairs, 2), shape), shape)
            visits = [Visit(visit[0].block, len(visit)) for visit in reading.visits]
            threshold = self.rng.choice([0, 4])
            run = self.run_list
            misses = await run(reading.uses, visits, enabled=True, threshold=threshold)
            self.scoreboard.compare("live lines at the end", int(self.dut.live_lines.value), 0)
            all_visits = await run(reading.uses, visits, enabled=False, threshold=threshold)
            self.scoreboard.compare("visits without cache", all_visits, len(visits))
            self.logger.info(f"{misses} of {len(visits)} visits from memory")
            assert misses < len(visits)
            self.coverage.hit("both_ways", "fewer from memory")


@pyuvm.test(**TIME_LIMIT)
class index_visits(KVCacheTest):
    """Visits for K alone, ascending and twice, ask for K only and leave the cache as it was."""

    async def scenario(self) -> None:
        """Run them on an empty cache, and between visits that are kept."""
        for _ in range(3):
            self.throttle()
            blocks = self.rng.randint(1, 9)
            await self.begin([2] * blocks, threshold=1)
            k_only = [Visit(block, self.rng.randint(1, 8), True) for block in range(blocks)] * 2
            self.expect(k_only)
            await self.drained()
            self.expect([Visit(block, 1) for block in range(blocks)])
            self.expect(k_only)
            self.expect([Visit(block, 1) for block in range(blocks)])
            await self.drained()


@pyuvm.test(**TIME_LIMIT)
class full_rate(KVCacheTest):
    """With visits known ahead each output has a beat a cycle, from memory and from lines."""

    async def scenario(self) -> None:
        """Fill the cache, then run visits with a latency that the visits ahead just cover."""
        board = self.scoreboard
        latency = self.prefetch * self.block_beats["v"] - 8
        self.throttle("none", latency)
        # The first half of the lines is filled; then hits and misses come in every order.
        kept = self.lines // 2
        blocks = min(kept + 20, self.max_blocks)
        uses = [1000] * kept + [2] * (blocks - kept)
        await self.begin(uses, threshold=2, gaps=False)
        self.expect([Visit(block, 1) for block in range(kept)])
        await self.drained()
        others = list(range(kept, blocks))
        # A block from memory comes first, so that the others are known before its beats.
        order = [others.pop()] + [
            self.rng.randrange(kept) if self.rng.random() < 0.5 else others.pop()
            for _ in range(len(others))
        ]
        for cycles in board.cycles.values():
            cycles.clear()
        prefetches = int(self.dut.count_prefetches.value)
        misses = self.expect([Visit(block, 1) for block in order])
        assert 2 < misses < len(order)
        await self.drained()
        prefetches = int(self.dut.count_prefetches.value) - prefetches
        self.scoreboard.compare("prefetches of all but the first", prefetches, misses - 1)
        for which in "kv":
            cycles = board.cycles[which]
            idle = cycles[-1] - cycles[0] + 1 - len(cycles)
            self.logger.info(f"{which}: {len(cycles)} beats, {idle} idle cycles, latency {latency}")
            # V has fewer beats than K, and waits for it.
            shorter = self.block_beats["k"] - self.block_beats[which]
            assert idle <= shorter * len(order), f"{which} stands still"
        sources = ["line" if block < kept else "memory" for block in order]
        for pair in itertools.pairwise(sources):
            self.coverage.hit("rate", pair)


@pyuvm.test(**TIME_LIMIT)
class latency(KVCacheTest):
    """An idle unit takes the cycles that its header states."""

    async def scenario(self) -> None:
        """Time one visit from memory and one from a line."""
        board = self.scoreboard
        taken: list[int] = []
        board.subscribe(self.visits.taken, lambda item: taken.append(item.cycle))
        self.throttle("none", 9)
        await self.begin([3, 3])
        for block in (0, 1, 0, 1):
            for cycles in (taken, *board.cycles.values(), *board.request_cycles.values()):
                cycles.clear()
            misses = self.expect([Visit(block, 1)])
            await self.drained()
            for which in "kv":
                if misses:
                    asked = board.request_cycles[which][0] - taken[0]
                    self.scoreboard.compare("cycles to the request", asked, 3)
                    first = board.cycles[which][0] - board.request_cycles[which][0]
                    self.scoreboard.compare("cycles from the request", first, 9 + 2)
                else:
                    first = board.cycles[which][0] - taken[0]
                    self.scoreboard.compare("cycles to the first beat of a line", first, 7)
            self.coverage.hit("latency", "memory" if misses else "line")


@pyuvm.test(**TIME_LIMIT)
class blocked_outputs(KVCacheTest):
    """K that nobody takes leaves V going as far as the queue, and the other way round."""

    async def scenario(self) -> None:
        """Close one output for a while."""
        for closed, other in (("k", "v"), ("v", "k")):
            self.throttle("none", 5)
            uses, visits = [40, 40], [Visit(n % 2, 1) for n in range(40)]
            await self.begin(uses)
            self.sinks[closed].driver.throttle.mode = CLOSED
            before = len(self.scoreboard.cycles[other])
            self.expect(visits)
            await self.domain.cycles(60 * self.block_beats[other])
            given = (len(self.scoreboard.cycles[other]) - before) // self.block_beats[other]
            self.scoreboard.compare("visits given meanwhile", given, self.prefetch + 1)
            self.coverage.hit("blocked", closed)
            self.throttle()
            await self.drained()


@pyuvm.test(**TIME_LIMIT)
class reset_in_list(KVCacheTest):
    """After a reset at any cycle, and the start of a KV head, the cache is as new."""

    async def scenario(self) -> None:
        """Interrupt at random cycles."""
        for _ in range(self.settings.options["resets"]):
            self.throttle()
            uses, visits = self.random_list()
            await self.begin(uses, threshold=max(uses) // 2)
            self.expect(visits)
            await self.domain.cycles(self.rng.randint(1, 400))
            self.visits.waiting.clear()
            live = "with live lines" if int(self.dut.live_lines.value) else "before a line"
            self.coverage.hit("reset", live if int(self.dut.busy.value) else "idle")
            self.dut.rst_n.value = 0
            await self.domain.cycles(2)
            self.scoreboard.forget()
            for memory in self.memories.values():
                memory.forget()
            await self.domain.reset()
            self.forget_counts()
            self.throttle()
            uses, visits = self.random_list()
            await self.run_list(uses, visits, enabled=True, threshold=max(uses) // 2)
