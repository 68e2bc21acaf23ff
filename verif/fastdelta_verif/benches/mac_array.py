# SPDX-License-Identifier: Apache-2.0
"""Tests of ``mac_array`` in either form of its product against numpy."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
import pyuvm
from cocotb.triggers import ClockCycles

from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES, Throttle
from fastdelta_verif.covergroups import Coverage
from fastdelta_verif.covergroups.prefill import FORMS, MAC_ARRAY, steps_bin
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

Bytes = npt.NDArray[np.int8]

HOLD_EDGES = (
    3  # from the edge that samples a last step to the one that writes the holding registers
)


class MacArrayTest(ScenarioTest):
    """Base: clock, reset and a driver that runs tasks and compares what is drained."""

    idle_inputs = (
        "step_valid",
        "step_first",
        "step_last",
        "a",
        "b",
        "drain_read",
        "drain_column",
    )

    def build_phase(self) -> None:
        """Read the settings."""
        settings = Settings.current()
        self.dut: Any = cocotb.top
        self.rows, self.columns = settings.parameters["ROWS"], settings.parameters["COLUMNS"]
        self.sum_width = settings.parameters["SUM_WIDTH"]
        self.rng = random.Random(settings.seed)
        self.numbers = np.random.default_rng(settings.seed)
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.coverage = Coverage("coverage", self, MAC_ARRAY)
        self.coverage.simulator()
        self.form = FORMS[settings.parameters["LUT"]]
        self.expected = self.scoreboard.queue("columns to drain")

    def random_operands(self, steps: int) -> tuple[Bytes, Bytes]:
        """Return A [steps, rows] and B [steps, columns], corners among them."""
        a, b = (
            self.numbers.integers(-128, 128, size=(steps, size)).astype(np.int8)
            for size in (self.rows, self.columns)
        )
        for operand in (a, b):
            operand[self.numbers.random(operand.shape) < 0.2] = -128
        return a, b

    def sample(self, a: Bytes, b: Bytes) -> None:
        """Sample the operands of a task."""
        self.coverage.hit("steps", (self.form, steps_bin(len(a))))
        low, other = a == -128, (b == -128, b == 127)
        for name, right in zip(("-128 and -128", "-128 and 127"), other, strict=True):
            if (low.any(axis=1) & right.any(axis=1)).any():
                self.coverage.hit("operands", (self.form, name))
        if ((a != -128).any(axis=1) & (b != -128).any(axis=1)).any():
            self.coverage.hit("operands", (self.form, "others"))

    async def run(self, tasks: list[tuple[Bytes, Bytes]], steps: str, drain: str) -> None:
        """Run tasks back to back; throttle modes of the steps and of the drain.

        With an unthrottled drain, a last step comes as early as the holding registers allow.
        """
        dut = self.dut
        step_throttle, drain_throttle = Throttle(self.rng, steps), Throttle(self.rng, drain)
        work = deque(
            (a[step], b[step], step == 0, step == len(a) - 1, a, b)
            for a, b in tasks
            for step in range(len(a))
        )
        reads: deque[tuple[int, int]] = deque()  # first possible edge, column
        read_before = False
        edge = 0
        for a, b in tasks:
            self.sample(a, b)
        self.coverage.hit("stalls", (self.form, steps, drain))
        held = False  # a last step, for the holding registers
        while work or reads or self.expected:
            edge += 1
            fits = not reads or (
                drain == "none" and max(reads[0][0], edge) + len(reads) - 1 <= edge + HOLD_EDGES
            )
            send = bool(work) and step_throttle.willing() and (fits or not work[0][3])
            held = held or bool(work and work[0][3] and not fits)
            operands = [self.rng.getrandbits(8 * size) for size in (self.rows, self.columns)]
            first, last = self.rng.getrandbits(1), self.rng.getrandbits(1)
            if send:
                row, column, first, last, a, b = work.popleft()
                operands = [int.from_bytes(v.tobytes(), "little") for v in (row, column)]
                if last:
                    when = "as early as may be" if held else "later"
                    self.coverage.hit("next_last_step", (self.form, when))
                    held = False
                    sums = b.astype(np.int64).T @ a.astype(np.int64)
                    self.expected.extend(sums.astype(np.int32))
                    reads.extend((edge + HOLD_EDGES + 1, n) for n in range(self.columns))
            dut.step_valid.value, dut.step_first.value, dut.step_last.value = send, first, last
            dut.a.value, dut.b.value = operands
            read = bool(reads) and edge >= reads[0][0] and drain_throttle.willing()
            dut.drain_read.value = read
            if read:
                dut.drain_column.value = reads.popleft()[1]
            else:
                dut.drain_column.value = self.rng.randrange(self.columns)
            await self.domain.edge
            if read_before:
                got = np.frombuffer(
                    int(dut.drain_sums.value).to_bytes(4 * self.rows, "little"), dtype="<i4"
                )
                self.scoreboard.compare("column", list(got), list(self.expected.popleft()))
            read_before = read
        dut.step_valid.value = dut.drain_read.value = 0


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class all_products(MacArrayTest):
    """Every pair of signed bytes, as tasks of one step."""

    async def scenario(self) -> None:
        """Run all slices of A against all slices of B."""
        every = np.arange(-128, 128).astype(np.int8)
        tasks = [
            (a[None, :], b[None, :])
            for a in every.reshape(-1, self.rows)
            for b in every.reshape(-1, self.columns)
        ]
        assert len(tasks) * self.rows * self.columns == 65536
        await self.run(tasks, "none", "none")
        self.coverage.hit("products", (self.form, "each pair of signed bytes"))


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class random_tasks(MacArrayTest):
    """Random tasks with all modes of gaps between steps and between drained columns."""

    async def scenario(self) -> None:
        """Run some tasks in each pair of modes."""
        for steps in THROTTLES:
            for drain in THROTTLES:
                lengths = [self.rng.choice([1, 2, self.rng.randint(1, 60)]) for _ in range(6)]
                await self.run([self.random_operands(n) for n in lengths], steps, drain)
        await self.run([self.random_operands(100)], "mixed", "mixed")


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class longest_extremes(MacArrayTest):
    """The largest sums of either sign over the longest task that SUM_WIDTH allows do not wrap."""

    async def scenario(self) -> None:
        """Hold -128 against -128 and against 127 for the longest depth."""
        dut = self.dut
        width = self.sum_width
        steps = 2 ** (width - 15) - 1
        b = np.where(np.arange(self.columns) % 2, 127, -128).astype(np.int8)
        dut.a.value = int.from_bytes(b"\x80" * self.rows, "little")
        dut.b.value = int.from_bytes(b.tobytes(), "little")
        dut.step_valid.value = dut.step_first.value = 1
        dut.step_last.value = 0
        await self.domain.edge
        dut.step_first.value = 0
        await ClockCycles(dut.clk, steps - 2)
        dut.step_last.value = 1
        await self.domain.edge
        dut.step_valid.value = 0
        await self.domain.cycles(HOLD_EDGES)
        for column in range(self.columns):
            dut.drain_read.value, dut.drain_column.value = 1, column
            await self.domain.cycles(2)
            got = np.frombuffer(
                int(dut.drain_sums.value).to_bytes(4 * self.rows, "little"), dtype="<i4"
            )
            expected = [-128 * int(b[column]) * steps] * self.rows
            self.scoreboard.compare(f"column {column}", got.tolist(), expected)
            sign = "lowest" if expected[0] < 0 else "highest"
            self.coverage.hit("longest_sums", (self.form, width, sign))
