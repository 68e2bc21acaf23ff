# SPDX-License-Identifier: Apache-2.0
"""Tests of beat_checksum and block_check: sums of what passed, and blocks without check beats.

Options: ``beats`` of a block without its check beat, for block_check.
"""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np
import pyuvm
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from pyuvm import uvm_test

from fastdelta.arrays import checksum
from fastdelta_verif.agents.axi_stream import StreamBeat
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.benches.stream_buffer import BufferTest
from fastdelta_verif.covergroups import Coverage
from fastdelta_verif.covergroups.cells import BEAT_CHECKSUM, BLOCK_CHECK
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

LATENCY = 3
WORD = (1 << 32) - 1


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class sums(uvm_test):
    """Random and extreme beats with gaps; every single bit counts; clear forgets also the last."""

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        self.rng = random.Random(self.settings.seed)
        self.dut: Any = cocotb.top
        self.width = self.settings.parameters["BUS_WIDTH"]
        self.scoreboard = Scoreboard("scoreboard", self)
        self.coverage = Coverage("coverage", self, BEAT_CHECKSUM)
        self.coverage.hit("width", self.width)

    async def beat(self, data: int | None) -> None:
        """Offer a beat for one cycle, or none; inputs change between the edges of the clock."""
        self.dut.valid.value = data is not None
        self.dut.data.value = self.rng.getrandbits(self.width) if data is None else data
        await FallingEdge(self.dut.clk)

    async def clear(self) -> None:
        """Set the sum to zero."""
        self.dut.clear.value = 1
        await self.beat(None)
        self.dut.clear.value = 0

    async def total(self, beats: list[int | None]) -> int:
        """Send beats after a clear and return the sum that is there LATENCY cycles after them."""
        await self.clear()
        for data in beats:
            await self.beat(data)
        self.dut.valid.value = 0
        for _ in range(LATENCY - 1):
            await FallingEdge(self.dut.clk)
        return int(self.dut.checksum.value)

    async def run_phase(self) -> None:
        """Compare sums with numpy's."""
        self.raise_objection()
        self.dut.valid.value, self.dut.clear.value = 0, 1
        Clock(self.dut.clk, 4, unit="ns", impl="gpi").start()
        await FallingEdge(self.dut.clk)
        draws: dict[str, Any] = {
            "random": lambda: self.rng.getrandbits(self.width),
            "all ones": lambda: (1 << self.width) - 1,
            "one bit": lambda: 1 << self.rng.randrange(self.width),
        }
        for kind, draw in draws.items():
            for gaps in (False, True):
                beats = [draw() if not gaps or self.rng.random() < 0.5 else None for _ in range(60)]
                data = b"".join(
                    b.to_bytes(self.width // 8, "little") for b in beats if b is not None
                )
                wanted = checksum(np.frombuffer(data, np.uint32))
                self.scoreboard.compare(f"{kind}, gaps {gaps}", await self.total(beats), wanted)
                self.coverage.hit("beats", (kind, "with gaps" if gaps else "in a row"))
        for bit in range(self.width):
            found = await self.total([1 << bit])
            self.scoreboard.compare(f"bit {bit} alone", found, 1 << bit % 32)
        for age in range(LATENCY):
            await self.clear()
            await self.beat(draws["random"]())
            for _ in range(age):
                await self.beat(None)
            await self.clear()
            for _ in range(LATENCY):
                await self.beat(None)
            self.scoreboard.compare("sum after a clear", int(self.dut.checksum.value), 0)
            self.coverage.hit("cleared", age)
        self.drop_objection()


class BlockTest(BufferTest):
    """Source, block_check, sink; the scoreboard expects all but every last beat of a block."""

    def watch_coverage(self) -> Coverage:
        """Sample what block_check has in place of a buffer's."""
        coverage = Coverage("coverage", self, BLOCK_CHECK)
        coverage.simulator()
        return coverage

    def build_phase(self) -> None:
        """Create the agents."""
        super().build_phase()
        self.block = self.settings.options["beats"] + 1
        self.place = 0

    def connect_phase(self) -> None:
        """Let only beats that must come out reach the scoreboard."""
        self.scoreboard.subscribe(self.source.monitor.port, self.went_in)
        self.scoreboard.subscribe(self.sink.monitor.port, self.scoreboard.came_out)
        self.coverage.watch("source", self.source.monitor.rhythm)
        self.coverage.watch("sink", self.sink.monitor.rhythm)

    def went_in(self, beat: StreamBeat) -> None:
        """Expect a beat unless it is a check beat."""
        self.place += 1
        if self.place == self.block:
            self.place = 0
        else:
            self.scoreboard.went_in(beat)


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class blocks(BlockTest):
    """Blocks in every mode of stalls; check beats are taken while the sink is blocked."""

    async def scenario(self) -> None:
        """Send blocks in each pair of modes, then a check beat to a blocked sink."""
        for source in THROTTLES:
            for sink in THROTTLES:
                self.source.driver.throttle.mode = source
                self.open_sink(sink)
                await self.send(self.beats(4 * self.block))
                self.coverage.hit("stalls", (source, sink))
        self.open_sink("none")
        self.source.driver.throttle.mode = "none"
        await self.send(self.beats(self.block - 1))
        self.block_sink()
        await self.domain.cycles(3)
        cocotb.start_soon(self.send(self.beats(1)))
        await self.domain.cycles(10)
        assert self.place == 0, "a check beat waits for the sink"
        self.coverage.hit("check_beat", "sink blocked")
        self.open_sink("none")
        await self.send(self.beats(self.block))
        await self.domain.cycles(10)


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class cut_off(BlockTest):
    """After a flush or a reset in any place of a block the next beat is the first of one."""

    async def scenario(self) -> None:
        """Cut a block off after each number of beats."""
        self.open_sink("none")
        for place in range(self.block + 1):
            for kind in ("flush", "reset"):
                await self.send(self.beats(place))
                await self.domain.cycles(3)
                await (self.domain.pulse_flush() if kind == "flush" else self.domain.reset())
                self.place = 0
                await self.send(self.beats(2 * self.block))
                await self.domain.cycles(3)
                where = "whole" if place % self.block == 0 else "cut"
                self.coverage.hit("cut_off", (kind, where))
