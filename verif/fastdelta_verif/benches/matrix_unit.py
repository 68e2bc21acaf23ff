# SPDX-License-Identifier: Apache-2.0
"""Tests of ``matrix_unit``: every result against numpy, to the bit and in order.

The design of the launcher must name every parameter.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
import pyuvm
from cocotb_bus.bus import Bus
from pyuvm import uvm_analysis_port, uvm_component, uvm_monitor

from fastdelta_verif.agents.axi_stream import StreamSinkDriver
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import (
    CLOSED,
    THROTTLES,
    HandshakeChecker,
    Rhythm,
    Throttle,
)
from fastdelta_verif.covergroups import Coverage, share_of
from fastdelta_verif.covergroups.prefill import KINDS, MATRIX_UNIT, steps_bin
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


@dataclass(frozen=True, eq=False)
class Task:
    """One strip product.

    Attributes
    ----------
    kind
        0 scores, 1 values.
    tag
        Unique among the tasks in the unit.
    a, b
        int8 operands, [steps, rows] and [steps, columns].
    """

    kind: int
    tag: int
    a: npt.NDArray[np.int8]
    b: npt.NDArray[np.int8]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.a)

    def columns(self) -> list[int]:
        """Return each column of the product as its word on the port."""
        sums = self.b.astype(np.int64).T @ self.a.astype(np.int64)
        assert abs(sums).max() < 2**31, "the case itself overflows"
        return [int.from_bytes(column.astype("<i4").tobytes(), "little") for column in sums]


@dataclass(frozen=True)
class ResultColumn:
    """One transferred column of a result."""

    kind: int
    tag: int
    column: int
    last: bool
    sums: int


class TaskDriver(uvm_component):
    """Offer tasks in order; the fields are random while valid is low."""

    def __init__(
        self, name: str, parent: uvm_component, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self._dut: Any = cocotb.top
        self._domain, self._rng = domain, rng
        self.throttle, self.rhythm = Throttle(rng), Rhythm()
        self.waiting: deque[Task] = deque()
        self.inside: dict[int, Task] = {}
        self.accepted = uvm_analysis_port("accepted", self)

    def _drive(self, task: Task | None) -> None:
        dut, rng = self._dut, self._rng
        dut.s_task_valid.value = task is not None
        fields = (
            (task.kind, task.tag, task.steps - 1)
            if task
            else tuple(
                rng.getrandbits(len(port))
                for port in (dut.s_task_kind, dut.s_task_tag, dut.s_task_last_step)
            )
        )
        dut.s_task_kind.value, dut.s_task_tag.value, dut.s_task_last_step.value = fields

    async def run_phase(self) -> None:
        """Drive every cycle."""
        offered: Task | None = None
        while True:
            if offered is None and self.waiting and self.throttle.willing():
                offered = self.waiting[0]
            if self._domain.in_reset:
                offered = None
            self._drive(offered)
            await self._domain.edge
            if offered is None or self._domain.in_reset:
                self.rhythm.see(False, False)
                continue
            ready = int(self._dut.s_task_ready.value)
            self.rhythm.see(True, ready)
            if ready:
                self.waiting.popleft()
                self.inside[offered.tag] = offered
                self.accepted.write(offered)
                offered = None


class OperandMemory(uvm_component):
    """Answer requests after the fixed latency, with random bytes where nobody asked."""

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        domain: ClockDomain,
        rng: random.Random,
        tasks: dict[int, Task],
    ) -> None:
        super().__init__(name, parent)
        self._dut: Any = cocotb.top
        self._domain, self._rng, self._tasks = domain, rng, tasks
        parameters = Settings.current().parameters
        self.strips = parameters["STRIPS"]
        self._a_bytes = parameters["ROW_ARRAYS"] * parameters["ARRAY_ROWS"]
        self._b_bytes = parameters["ARRAY_COLUMNS"]
        self._latency = parameters["OPERAND_LATENCY"]
        self._tag_bits, self._step_bits = parameters["TAG_WIDTH"], parameters["DEPTH_WIDTH"]
        self.forget()

    def forget(self) -> None:
        """Start anew, as after reset."""
        self.running: list[tuple[int, int] | None] = [None] * self.strips  # tag, next step
        self.requested = [0] * self.strips

    def _answer(self, strip: int, tag: int, kind: int, step: int) -> tuple[bytes, bytes]:
        """Check a request and return the two operands."""
        task = self._tasks.get(tag)
        assert task is not None, f"server {strip} asks for unknown task {tag}"
        assert kind == task.kind, f"task {tag}: kind {kind} asked, {task.kind} sent"
        expected = self.running[strip] or (tag, 0)
        assert (tag, step) == expected, f"server {strip} asks for {(tag, step)}, not {expected}"
        self.running[strip] = None if step == task.steps - 1 else (tag, step + 1)
        self.requested[strip] += 1
        return task.a[step].tobytes(), task.b[step].tobytes()

    async def run_phase(self) -> None:
        """Watch every cycle."""
        dut, domain, randbytes = self._dut, self._domain, self._rng.randbytes
        delay: deque[tuple[int, int]] = deque([(0, 0)] * (self._latency - 1))
        while True:
            await domain.edge
            a = [randbytes(self._a_bytes) for _ in range(self.strips)]
            b = [randbytes(self._b_bytes) for _ in range(self.strips)]
            valid = 0 if domain.in_reset else int(dut.request_valid.value)
            if valid:
                tags, steps = int(dut.request_tag.value), int(dut.request_step.value)
                kinds = int(dut.request_kind.value)
                for strip in range(self.strips):
                    if valid >> strip & 1:
                        tag = tags >> strip * self._tag_bits & (1 << self._tag_bits) - 1
                        step = steps >> strip * self._step_bits & (1 << self._step_bits) - 1
                        a[strip], b[strip] = self._answer(strip, tag, kinds >> strip & 1, step)
            delay.append(
                (int.from_bytes(b"".join(a), "little"), int.from_bytes(b"".join(b), "little"))
            )
            dut.operand_a.value, dut.operand_b.value = delay.popleft()


class ResultMonitor(uvm_monitor):
    """Publish the transferred columns of one port and check its handshake."""

    def __init__(self, name: str, parent: uvm_component, domain: ClockDomain, kind: int) -> None:
        super().__init__(name, parent)
        self._domain, self._kind = domain, kind
        names = ("valid", "ready", "tag", "column", "last", "sums")
        self._bus = Bus(cocotb.top, None, {signal: f"m_{KINDS[kind]}_{signal}" for signal in names})
        self._checker = HandshakeChecker(f"m_{KINDS[kind]}")
        self.rhythm = self._checker.rhythm
        self.port = uvm_analysis_port("port", self)

    async def run_phase(self) -> None:
        """Watch every cycle."""
        bus, checker = self._bus, self._checker
        while True:
            await self._domain.edge
            if self._domain.in_reset:
                checker.forget()
            elif int(bus.valid.value):
                ready = bool(int(bus.ready.value))
                fields = tuple(
                    int(port.value) for port in (bus.tag, bus.column, bus.last, bus.sums)
                )
                checker.check(True, ready, fields)
                if ready:
                    tag, column, last, sums = fields
                    self.port.write(ResultColumn(self._kind, tag, column, bool(last), sums))
            else:
                checker.check(False, False, None)


class MatrixUnitScoreboard(Scoreboard):
    """Results of a kind come in the order of its tasks, columns ascending, equal to numpy."""

    def __init__(self, name: str, parent: uvm_component, inside: dict[int, Task]) -> None:
        super().__init__(name, parent)
        self._inside = inside
        self.expected = [self.queue(f"columns of {kind}") for kind in KINDS]

    def task(self, task: Task) -> None:
        """Expect the columns of a task."""
        words = task.columns()
        self.expected[task.kind].extend(
            ResultColumn(task.kind, task.tag, column, column == len(words) - 1, word)
            for column, word in enumerate(words)
        )

    def result(self, result: ResultColumn) -> None:
        """Compare a column with the oldest expected one of its kind."""
        assert self.expected[result.kind], f"nothing is expected, but {result} came"
        self.compare("column", result, self.expected[result.kind].popleft())
        if result.last:
            del self._inside[result.tag]


class MatrixUnitTest(ScenarioTest):
    """Base: the unit with operands, two sinks, and the scoreboard."""

    idle_inputs = ("clear_counts",)

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        parameters = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.numbers = np.random.default_rng(self.settings.seed)
        self.rows = parameters["ROW_ARRAYS"] * parameters["ARRAY_ROWS"]
        self.columns = parameters["ARRAY_COLUMNS"]
        self.strips = parameters["STRIPS"]
        self.longest = 1 << parameters["DEPTH_WIDTH"]
        self.tag_bits = parameters["TAG_WIDTH"]
        self.tag = 0
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        self.last_cycles += self.columns
        rngs = [random.Random(self.rng.random()) for _ in range(4)]
        self.tasks = TaskDriver("tasks", self, self.domain, rngs[0])
        self.memory = OperandMemory("memory", self, self.domain, rngs[1], self.tasks.inside)
        self.sinks = [
            StreamSinkDriver(
                f"{kind}_sink",
                self,
                Bus(self.dut, None, {"tready": f"m_{kind}_ready"}),
                self.domain,
                rng,
            )
            for kind, rng in zip(KINDS, rngs[2:], strict=True)
        ]
        self.monitors = [
            ResultMonitor(f"{name}_monitor", self, self.domain, kind)
            for kind, name in enumerate(KINDS)
        ]
        self.scoreboard = MatrixUnitScoreboard("scoreboard", self, self.tasks.inside)
        coverage = self.coverage = Coverage("coverage", self, MATRIX_UNIT)
        coverage.simulator()
        fabric = share_of(parameters["LUT_ARRAYS"], parameters["ROW_ARRAYS"])
        coverage.hit("fabric_arrays", fabric)
        coverage.hit("operand_latency", parameters["OPERAND_LATENCY"])
        coverage.hit("arrays", f"{parameters['ARRAY_ROWS']}x{parameters['ARRAY_COLUMNS']}")
        self.before: Task | None = None

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        self.scoreboard.subscribe(self.tasks.accepted, self.accepted)
        self.coverage.watch("task", self.tasks.rhythm)
        for kind, monitor in zip(KINDS, self.monitors, strict=True):
            self.scoreboard.subscribe(monitor.port, self.scoreboard.result)
            self.coverage.watch(kind, monitor.rhythm)

    def accepted(self, task: Task) -> None:
        """Expect the columns of a task that was taken, and sample it."""
        self.scoreboard.task(task)
        kind, inside = KINDS[task.kind], len(self.tasks.inside)
        self.coverage.hit("steps", (kind, steps_bin(task.steps)))
        if self.before is not None:
            self.coverage.hit("after", (KINDS[self.before.kind], kind))
        self.before = task
        many = "more" if inside > self.strips else "fewer"
        self.coverage.hit("tasks_inside", f"{many} than servers")

    def make(self, kind: int, steps: int, value: int | None = None) -> Task:
        """Return a task with random operands, or with all of them equal to a value."""
        self.tag = (self.tag + self.rng.randint(1, 5)) % (1 << self.tag_bits)
        while self.tag in self.tasks.inside or self.tag in (t.tag for t in self.tasks.waiting):
            self.tag = (self.tag + 1) % (1 << self.tag_bits)
        a, b = (
            self.numbers.integers(-128, 128, size=(steps, size)).astype(np.int8)
            if value is None
            else np.full((steps, size), value, dtype=np.int8)
            for size in (self.rows, self.columns)
        )
        return Task(kind, self.tag, a, b)

    def send(self, *tasks: tuple[int, int]) -> None:
        """Queue tasks, given as kind and steps."""
        for kind, steps in tasks:
            self.tasks.waiting.append(self.make(kind, steps))

    def random_task(self) -> tuple[int, int]:
        """Return kind and steps."""
        most = min(300, self.longest)
        return self.rng.randint(0, 1), self.rng.choice([1, 2, self.rng.randint(1, most)])

    def throttle(self, mode: str | None = None) -> None:
        """Set the mode of source and sinks, a random one for each if none is given."""
        for agent in (self.tasks, *self.sinks):
            agent.throttle.mode = mode or self.rng.choice(THROTTLES)
        for port, agent in zip(("tasks", *KINDS), (self.tasks, *self.sinks), strict=True):
            self.coverage.hit("stalls", (port, agent.throttle.mode))

    async def drained(self) -> None:
        """Wait until every task has come out."""
        while self.tasks.waiting or self.tasks.inside:
            await self.domain.edge

    def counts(self) -> list[int]:
        """Return the step counter of each server."""
        word = int(self.dut.step_counts.value)
        return [word >> 32 * strip & 0xFFFFFFFF for strip in range(self.strips)]

    def finish(self) -> None:
        """Compare the counters with the steps that were asked for."""
        self.scoreboard.compare("step counts", self.counts(), self.memory.requested)
        for strip, count in enumerate(self.counts()):
            if count:
                self.coverage.hit("server", strip)


@pyuvm.test(**TIME_LIMIT)
class random_tasks(MatrixUnitTest):
    """Mixed kinds and depths with random stalls of tasks and results; ``tasks`` of them."""

    async def scenario(self) -> None:
        """Run batches, each with its own stalls; the queue does not run dry between them."""
        left = self.settings.options["tasks"]
        while left > 0:
            self.throttle()
            batch = min(left, self.rng.randint(1, 12))
            self.send(*(self.random_task() for _ in range(batch)))
            left -= batch
            while len(self.tasks.waiting) > 4:
                await self.domain.edge


@pyuvm.test(**TIME_LIMIT)
class extremes(MatrixUnitTest):
    """All operands -128, at depth 256 and at the greatest depth."""

    async def scenario(self) -> None:
        """Give every server tasks of both kinds."""
        for steps in (256, self.longest):
            for kind in (0, 1) * self.strips:
                self.tasks.waiting.append(self.make(kind, steps, -128))
            await self.drained()
            for kind in KINDS:
                many = "the most steps" if steps == self.longest else f"{steps} steps"
                self.coverage.hit("extremes", (kind, many))


@pyuvm.test(**TIME_LIMIT)
class utilisation(MatrixUnitTest):
    """With free drains the servers are busy; ``jobs`` of ``pattern``, pairs of kind and steps."""

    async def scenario(self) -> None:
        """Count useful steps from the first request to the last one taken from a full queue."""
        options = self.settings.options
        pattern = [tuple(pair) for pair in options["pattern"]]
        self.send(*(pattern * options["jobs"]))
        while not int(self.dut.request_valid.value):
            await self.domain.edge
        start, before = self.domain.cycle, self.counts()
        while self.tasks.waiting:
            await self.domain.edge
        cycles = self.domain.cycle - start
        steps = sum(self.counts()) - sum(before)
        share = steps / (cycles * self.strips)
        self.logger.info(f"utilisation {share:.4f} over {cycles} cycles, pattern {pattern}")
        assert cycles > 20 * pattern[0][1], "too short to tell"
        assert share >= options["least"], f"utilisation {share:.4f}, {options['least']} is needed"
        longest = max(count for _, count in pattern)
        self.coverage.hit("utilisation", options.get("name", str(longest)))


@pyuvm.test(**TIME_LIMIT)
class latency(MatrixUnitTest):
    """An idle unit takes the cycles that its header states, for tasks of one step and of more."""

    async def scenario(self) -> None:
        """Time single tasks; the first column comes while nothing else moves."""
        dut, edge = self.dut, self.domain.edge
        expected = (3, self.settings.parameters["OPERAND_LATENCY"] + 5)
        for kind, steps in ((0, 1), (1, 1), (0, 7), (1, 20)):
            await self.drained()
            await self.domain.cycles(4)
            valid = dut.m_values_valid if kind else dut.m_scores_valid
            taken = first = last = None
            self.send((kind, steps))
            while True:
                await edge
                cycle = self.domain.cycle
                if int(dut.s_task_valid.value) and int(dut.s_task_ready.value):
                    taken = cycle
                if int(dut.request_valid.value):
                    first, last = first or cycle, cycle
                if int(valid.value):
                    break
            assert None not in (taken, first, last)
            self.scoreboard.compare("latencies", (first - taken, cycle - last), expected)
            self.scoreboard.compare("cycles of steps", last - first + 1, steps)
            self.coverage.hit("latency", (KINDS[kind], "one step" if steps == 1 else "more"))


@pyuvm.test(**TIME_LIMIT)
class blocked_port(MatrixUnitTest):
    """A closed port keeps its results; all older ones leave by the other, and none is lost."""

    async def scenario(self) -> None:
        """Close one port, send a task for it between tasks of the other kind; open it again."""
        for kind in (0, 1):
            self.throttle("none")
            self.sinks[kind].throttle.mode = CLOSED
            others = [(1 - kind, 20)] * (3 * self.strips)
            self.send(*others, (kind, 9), *others)
            kept = self.tasks.waiting[len(others)]
            older = {task.tag for task in list(self.tasks.waiting)[: len(others)]}
            await self.domain.cycles(4 * len(others) * (20 + self.columns))
            left = {task.tag for task in self.tasks.waiting} | set(self.tasks.inside)
            self.scoreboard.compare("kept task is inside", kept.tag in self.tasks.inside, True)
            self.scoreboard.compare("older tasks left", left & older, set())
            self.sinks[kind].throttle.mode = "light"
            await self.drained()
            self.coverage.hit("blocked_port", KINDS[kind])


@pyuvm.test(**TIME_LIMIT)
class reset_in_task(MatrixUnitTest):
    """After a reset at any cycle the unit is as new."""

    async def scenario(self) -> None:
        """Interrupt at random cycles, then run a few tasks."""
        for _ in range(self.settings.options["resets"]):
            self.throttle()
            self.send(*(self.random_task() for _ in range(4 * self.strips)))
            await self.domain.cycles(self.rng.randint(1, 400))
            self.tasks.waiting.clear()
            waits = int(self.dut.m_scores_valid.value) or int(self.dut.m_values_valid.value)
            state = "in a task" if self.tasks.inside else "idle"
            self.coverage.hit("reset", "results wait" if waits else state)
            self.dut.rst_n.value = 0
            await self.domain.cycles(2)
            self.tasks.inside.clear()
            self.memory.forget()
            for expected in self.scoreboard.expected:
                expected.clear()
            await self.domain.reset()
            self.throttle("none")
            self.send(*(self.random_task() for _ in range(2 * self.strips)))
            await self.drained()
