# SPDX-License-Identifier: Apache-2.0
"""Tests of ``job_reader``: uses, jobs and visits against the model, of legal and broken lists.

The design of the launcher must name every parameter.
"""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np
import pyuvm
from pyuvm import uvm_monitor, uvm_test

from fastdelta.arrays import Words
from fastdelta.reference.job_reader_model import Job, ListShape, padded, read_job_list
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import CLOSED, THROTTLES
from fastdelta_verif.agents.ports import Fields, PortSink, RequestedBeats, Transfer
from fastdelta_verif.covergroups import some
from fastdelta_verif.covergroups.prefill import JOB_READER, JobReaderCoverage
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.job_lists import (
    FAULTS,
    broken_list,
    list_of,
    random_header,
    random_pairs,
    records_of,
)
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}
JOB_FIELDS = ("kind", "block", "query", "head", "slot", "opens_visit", "last")
VISIT_FIELDS = ("block", "jobs", "k_only")


class UsesMonitor(uvm_monitor):
    """Collect the uses that are written."""

    def __init__(self, name: str, parent: uvm_test, domain: ClockDomain) -> None:
        super().__init__(name, parent)
        self._domain = domain
        self.written: list[Fields] = []

    async def run_phase(self) -> None:
        """Watch every cycle."""
        dut: Any = cocotb.top
        while True:
            await self._domain.edge
            if not self._domain.in_reset and int(dut.uses_write.value):
                self.written.append((int(dut.uses_block.value), int(dut.uses_value.value)))


class ReaderScoreboard(Scoreboard):
    """Jobs, visits and requests come as expected, each in its order."""

    def __init__(self, name: str, parent: uvm_test) -> None:
        super().__init__(name, parent)
        self.jobs, self.visits = self.queue("jobs"), self.queue("visits")
        self.requests = self.queue("requests")
        self.cycles: dict[str, list[int]] = {"job": [], "visit": []}

    def _take(self, what: str, item: Transfer) -> None:
        queue = {"job": self.jobs, "visit": self.visits, "request": self.requests}[what]
        assert queue, f"no {what} is expected, but {item} came"
        self.compare(what, item.fields, queue.popleft())

    def job(self, item: Transfer) -> None:
        """Compare a job."""
        self.cycles["job"].append(item.cycle)
        self._take("job", item)

    def visit(self, item: Transfer) -> None:
        """Compare a visit."""
        self.cycles["visit"].append(item.cycle)
        self._take("visit", item)

    def request(self, item: Transfer) -> None:
        """Compare a request."""
        self._take("request", item)

    def forget(self) -> None:
        """Expect nothing, as after reset."""
        for queue in (self.jobs, self.visits, self.requests):
            queue.clear()


class JobReaderTest(ScenarioTest):
    """Base: the reader, a memory with one list, two sinks."""

    idle_inputs = ("rst_n", "start", "blocks", "group", "window", "list_valid")

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        parameters = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.slots, self.max_blocks = parameters["SLOTS"], parameters["MAX_BLOCKS"]
        self.beat_words = parameters["BUS_WIDTH"] // 32
        self.words: Words = np.zeros(0, np.uint32)
        self.beat_cycles: list[int] = []
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        rngs = [random.Random(self.rng.random()) for _ in range(3)]
        self.memory = RequestedBeats(
            "memory",
            self,
            self.domain,
            rngs[0],
            "list_request",
            ("offset", "beats"),
            ("list_valid", "list_ready", "list_data"),
            self.beats,
        )
        self.jobs = PortSink("jobs", self, self.domain, rngs[1], "job", JOB_FIELDS)
        self.visits = PortSink("visits", self, self.domain, rngs[2], "visit", VISIT_FIELDS)
        self.uses = UsesMonitor("uses", self, self.domain)
        self.scoreboard = ReaderScoreboard("scoreboard", self)
        self.coverage = JobReaderCoverage("coverage", self, JOB_READER)
        self.coverage.simulator()
        self.coverage.hit("bus_width", parameters["BUS_WIDTH"])
        self.was_bad = False

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        subscribe = self.scoreboard.subscribe
        subscribe(self.jobs.port, self.scoreboard.job)
        subscribe(self.visits.port, self.scoreboard.visit)
        subscribe(self.memory.requests, self.scoreboard.request)
        subscribe(self.memory.beats, lambda beat: self.beat_cycles.append(beat.cycle))
        for port, rhythm in (
            ("request", self.memory.request_rhythm),
            ("beat", self.memory.rhythm),
            ("job", self.jobs.rhythm),
            ("visit", self.visits.rhythm),
        ):
            self.coverage.watch(port, rhythm)

    def beats(self, request: Fields) -> list[int]:
        """Return the beats of a request, of the list that is set."""
        offset, count = request
        first, beat_words = offset // 4, self.beat_words
        words = self.words[first : first + count * beat_words]
        assert len(words) == count * beat_words, f"a request for {request} leaves the list"
        return [
            int.from_bytes(words[n : n + beat_words].astype("<u4").tobytes(), "little")
            for n in range(0, len(words), beat_words)
        ]

    def random_shape(self, most_blocks: int = 40) -> ListShape:
        """Return a shape that the reader takes, often with a window that fills the slots."""
        group = self.rng.randint(1, min(8, self.slots))
        windows = [1 << n for n in range(7) if group << n <= self.slots]
        window = self.rng.choice([windows[-1], self.rng.choice(windows)])
        blocks = self.rng.choice([1, 2, 16, self.rng.randint(1, most_blocks), window])
        return ListShape(min(blocks, self.max_blocks), group, window)

    def legal(self, shape: ListShape) -> Words:
        """Return a legal list of random density."""
        pairs = random_pairs(self.rng, shape, self.rng.choice([0.0, 0.1, 0.4, 1.0]))
        header = random_header(self.rng, shape)
        return list_of(records_of(pairs, shape.window), shape, header)

    def throttle(self, mode: str | None = None) -> None:
        """Set the rhythm of every port, a random one for each if none is given."""
        for agent in (self.memory, self.jobs, self.visits):
            agent.throttle.mode = mode or self.rng.choice(THROTTLES)
        self.memory.request_throttle.mode = mode or self.rng.choice(THROTTLES)
        self.memory.latency = (1, 1) if mode == "none" else (1, self.rng.choice([2, 30, 200]))
        most = self.memory.latency[1]
        self.coverage.hit("latency", "1" if most == 1 else f"up to {30 if most <= 30 else 200}")

    def begin(self, words: Words, shape: ListShape) -> bool:
        """Set a list, expect what the model gives of it, and start; return whether it is broken."""
        dut, reading = self.dut, read_job_list(words, shape)
        self.words = words
        for visit in reading.visits:
            self.scoreboard.visits.append((visit[0].block, len(visit), 0))
            self.scoreboard.jobs.extend(
                self.job_fields(job, shape, opens=job is visit[0]) for job in visit
            )
        head_beats = (16 + padded(shape.blocks)) // self.beat_words
        self.scoreboard.requests.append((0, head_beats))
        if reading.job_words:
            self.scoreboard.requests.append(
                (4 * shape.head_words, reading.job_words // self.beat_words)
            )
        self.uses.written.clear()
        self.beat_cycles.clear()
        self.expected_uses = list(enumerate(reading.uses))
        dut.blocks.value, dut.group.value, dut.window.value = (
            shape.blocks,
            shape.group,
            shape.window,
        )
        dut.start.value = 1
        return reading.bad

    @staticmethod
    def job_fields(job: Job, shape: ListShape, *, opens: bool) -> Fields:
        """Return the fields of a job on the port."""
        slot = job.query % shape.window * shape.group + job.head
        return (0, job.block, job.query, job.head, slot, int(opens), int(job.last))

    async def read(self, words: Words, shape: ListShape) -> None:
        """Read a list and look at everything that it must have led to."""
        dut, compare = self.dut, self.scoreboard.compare
        bad = self.begin(words, shape)
        await self.domain.edge
        dut.start.value = 0
        await self.domain.edge
        while not int(dut.done.value):
            compare("busy", int(dut.busy.value), 1)
            await self.domain.edge
        compare("busy after done", int(dut.busy.value), 0)
        compare("bad_job", int(dut.bad_job.value), int(bad))
        compare("beats that were not taken", self.memory.outstanding, 0)
        for what in ("jobs", "visits", "requests"):
            compare(f"{what} left", len(getattr(self.scoreboard, what)), 0)
        self.sample(words, shape)
        if not bad:
            compare("uses", self.uses.written, self.expected_uses)
        await self.domain.edge
        compare("done for one cycle", int(dut.done.value), 0)
        compare("bad_job stays", int(dut.bad_job.value), int(bad))

    def sample(self, words: Words, shape: ListShape) -> None:
        """Sample a list that was read."""
        coverage, reading = self.coverage, read_job_list(words, shape)
        if reading.bad:
            coverage.hit("list", "broken")
            coverage.hit("visits_before_fault", some(len(reading.visits)))
        else:
            coverage.hit("list", "legal after a broken one" if self.was_bad else "legal")
            coverage.shape(shape, self.slots)
            sizes = [len(visit) for visit in reading.visits]
            coverage.legal(int(words[0]), sizes, shape, self.slots)
        self.was_bad = reading.bad


@pyuvm.test(**TIME_LIMIT)
class random_lists(JobReaderTest):
    """Legal lists of random shape and density with random stalls; ``lists`` of them."""

    async def scenario(self) -> None:
        """Read them."""
        for _ in range(self.settings.options["lists"]):
            self.throttle()
            shape = self.random_shape()
            await self.read(self.legal(shape), shape)


@pyuvm.test(**TIME_LIMIT)
class broken_lists(JobReaderTest):
    """Lists with each fault, ``rounds`` of each; sometimes a legal list in between."""

    async def scenario(self) -> None:
        """Read them."""
        for fault in list(FAULTS) * self.settings.options["rounds"]:
            self.throttle()
            group = self.rng.randint(1, min(6, self.slots // 2))
            windows = [1 << n for n in range(1, 4) if group << n <= self.slots]
            shape = ListShape(self.rng.choice([9, 13, 23]), group, self.rng.choice(windows))
            self.logger.info(f"{fault}: {shape}")
            await self.read(broken_list(self.rng, shape, fault), shape)
            self.coverage.hit("fault", fault)
            if self.rng.random() < 0.3:
                shape = self.random_shape(12)
                await self.read(self.legal(shape), shape)


@pyuvm.test(**TIME_LIMIT)
class full_rate(JobReaderTest):
    """Without stalls a job is given every cycle, and the first after the stated latency."""

    async def scenario(self) -> None:
        """Read dense lists whose second record ends a visit, so that the beat is known."""
        self.throttle("none")
        for window in (1, self.slots):
            shape = ListShape(33, 1, window)
            pairs = [(0, q, b) for q in range(33) for b in range(q + 1)]
            for cycles in self.scoreboard.cycles.values():
                cycles.clear()
            await self.read(list_of(records_of(pairs, window), shape), shape)
            jobs, visits = self.scoreboard.cycles["job"], self.scoreboard.cycles["visit"]
            words = len(self.words) - shape.head_words
            head_beats = shape.head_words // self.beat_words
            first_beat = self.beat_cycles[head_beats]
            # Windows of one query block have visits of one job, which the next record completes.
            first = 1 if window == 1 else min(window, 33)
            due = self.beat_cycles[head_beats + first // self.beat_words] + first % self.beat_words
            self.scoreboard.compare("cycle of the first job", jobs[0], due + 4)
            self.scoreboard.compare("cycle of the first visit", visits[0], due + 4)
            cycles = jobs[-1] - first_beat
            self.logger.info(f"{len(jobs)} jobs, {words} words, {cycles} cycles")
            assert cycles <= words + window + 12
            visits_have = "of one job" if window == 1 else "that fill the slots"
            self.coverage.hit("rate", f"visits {visits_have}")


@pyuvm.test(**TIME_LIMIT)
class blocked_ports(JobReaderTest):
    """Jobs or visits that nobody takes do not hold up the others, and none is lost."""

    async def scenario(self) -> None:
        """Close one port for a while; the list of one-job visits outgrows every buffer."""
        for closed in ("jobs", "visits"):
            shape = ListShape(min(40, self.max_blocks), 1, 1)
            pairs = random_pairs(self.rng, shape, 0.5)
            reading = cocotb.start_soon(self.read(list_of(records_of(pairs, 1), shape), shape))
            self.throttle("none")
            getattr(self, closed).throttle.mode = CLOSED
            await self.domain.cycles(400)
            open_port = self.scoreboard.jobs if closed == "visits" else self.scoreboard.visits
            given = len(pairs) - len(open_port)
            self.logger.info(f"{given} given while {closed} were closed")
            assert given >= 16, f"{closed} that wait hold up the other port"
            assert not reading.done()
            self.throttle()
            await reading
            self.coverage.hit("blocked", closed)
        await self.full_at_the_end()

    async def full_at_the_end(self) -> None:
        """Let the last visit be the one that the buffer has no place for, at some length."""
        for blocks in range(1, min(28, self.max_blocks)):
            shape = ListShape(blocks, 1, 1)
            pairs = [(0, query, self.rng.randint(0, query)) for query in range(blocks)]
            self.throttle("none")
            self.visits.throttle.mode = CLOSED
            reading = cocotb.start_soon(self.read(list_of(records_of(pairs, 1), shape), shape))
            await self.domain.cycles(120)
            assert not reading.done(), "a list is over before its visits were taken"
            self.visits.throttle.mode = "none"
            await reading
        self.coverage.hit("blocked", "visits at the end")


@pyuvm.test(**TIME_LIMIT)
class most_uses(JobReaderTest):
    """The longest prompt of eight heads, all on block 0: the greatest use, and wide counts."""

    async def scenario(self) -> None:
        """Read the list, then one with a use more than that."""
        self.throttle("none")
        shape = ListShape(self.max_blocks, 8, 8)
        pairs = [(head, query, 0) for head in range(8) for query in range(self.max_blocks)]
        words = list_of(records_of(pairs, 8), shape)
        await self.read(words, shape)
        self.coverage.hit("greatest_use", "read")
        words[16] += 1
        words[0] += 1
        await self.read(words, shape)
        self.coverage.hit("greatest_use", "one more refused")


@pyuvm.test(**TIME_LIMIT)
class reset_in_list(JobReaderTest):
    """After a reset at any cycle the reader is as new."""

    async def scenario(self) -> None:
        """Interrupt at random cycles."""
        for _ in range(self.settings.options["resets"]):
            self.throttle()
            shape = self.random_shape()
            self.begin(self.legal(shape), shape)
            await self.domain.edge
            self.dut.start.value = 0
            await self.domain.cycles(self.rng.randint(1, 300))
            state = "in the list" if int(self.dut.busy.value) else "after the list"
            self.coverage.hit("reset", state if self.beat_cycles else "before a beat")
            self.dut.rst_n.value = 0
            await self.domain.cycles(2)
            self.scoreboard.forget()
            self.memory.forget()
            await self.domain.reset()
            self.throttle()
            shape = self.random_shape(12)
            await self.read(self.legal(shape), shape)
