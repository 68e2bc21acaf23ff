# SPDX-License-Identifier: Apache-2.0
"""Tests of skid_buffer and stream_fifo: what comes out is what went in, at full rate.

Options: ``latency`` and ``capacity`` of the buffer in cycles and beats.
"""

from __future__ import annotations

import random

import cocotb
import pyuvm
from cocotb.triggers import Timer
from pyuvm import uvm_env

from fastdelta_verif.agents.axi_stream import (
    StreamBeat,
    StreamSequence,
    StreamSinkAgent,
    StreamSourceAgent,
    stream_bus,
)
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.covergroups import Coverage
from fastdelta_verif.covergroups.cells import STREAM_BUFFER
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings


class BufferScoreboard(Scoreboard):
    """Beats come out in order; the cycles of the last run of beats are kept."""

    def __init__(self, name: str, parent: uvm_env, coverage: Coverage) -> None:
        super().__init__(name, parent)
        self.coverage = coverage
        self.inside = self.queue("beats that went in")
        self.in_cycles: list[int] = []
        self.out_cycles: list[int] = []

    def went_in(self, beat: StreamBeat) -> None:
        """Expect a beat."""
        self.inside.append(beat.data)
        self.in_cycles.append(beat.cycle)

    def came_out(self, beat: StreamBeat) -> None:
        """Compare a beat with the oldest expected one."""
        assert self.inside, f"beat 0x{beat.data:x} came out, but none is inside"
        self.compare("beat", beat.data, self.inside.popleft())
        if self.coverage.bins("level"):
            self.coverage.hit("level", "between" if self.inside else "empty")
        self.out_cycles.append(beat.cycle)

    def forget(self) -> None:
        """Drop what is inside, as reset and flush do."""
        self.inside.clear()
        self.in_cycles.clear()
        self.out_cycles.clear()


class BufferTest(ScenarioTest):
    """Source, buffer, sink."""

    def build_phase(self) -> None:
        """Create the agents."""
        self.settings = Settings.current()
        self.rng = random.Random(self.settings.seed)
        dut = self.dut = cocotb.top
        self.domain = ClockDomain(dut.clk, dut.rst_n, getattr(dut, "flush", None))
        if self.domain.flush is not None:
            self.idle_inputs = ("rst_n", "flush")
        rngs = [random.Random(self.rng.random()) for _ in range(2)]
        self.source = StreamSourceAgent(
            "source", self, stream_bus(dut, "s_axis"), self.domain, rngs[0]
        )
        self.sink = StreamSinkAgent("sink", self, stream_bus(dut, "m_axis"), self.domain, rngs[1])
        self.coverage = self.watch_coverage()
        self.scoreboard = BufferScoreboard("scoreboard", self, self.coverage)

    def watch_coverage(self) -> Coverage:
        """Create the coverage, and sample what is being tested."""
        coverage = Coverage("coverage", self, STREAM_BUFFER)
        coverage.simulator()
        cell = "stream_fifo" if "DEPTH" in self.settings.parameters else "skid_buffer"
        wide = self.settings.parameters["WIDTH"] > 8
        coverage.hit("cell", (cell, "wide" if wide else "a bit or byte"))
        return coverage

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        self.scoreboard.subscribe(self.source.monitor.port, self.scoreboard.went_in)
        self.scoreboard.subscribe(self.sink.monitor.port, self.scoreboard.came_out)
        self.coverage.watch("source", self.source.monitor.rhythm)
        self.coverage.watch("sink", self.sink.monitor.rhythm)

    def beats(self, count: int) -> list[int]:
        """Return random beats."""
        parameters = self.settings.parameters
        width = parameters.get("WIDTH") or parameters["BUS_WIDTH"]
        return [self.rng.getrandbits(width) for _ in range(count)]

    def block_sink(self) -> None:
        """Let the sink take nothing until its throttle gets a mode."""
        self.sink.driver.throttle.willing = lambda: False

    def open_sink(self, mode: str) -> None:
        """Let the sink take beats."""
        vars(self.sink.driver.throttle).pop("willing", None)
        self.sink.driver.throttle.mode = mode

    async def send(self, beats: list[int]) -> None:
        """Offer beats and wait until all are taken."""
        await StreamSequence("beats", [beats]).start(self.source.sequencer)


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class random_stalls(BufferTest):
    """Every mode of stalls at the source against every mode at the sink."""

    async def scenario(self) -> None:
        """Send beats in each pair of modes."""
        for source in THROTTLES:
            for sink in THROTTLES:
                self.source.driver.throttle.mode = source
                self.open_sink(sink)
                await self.send(self.beats(80))
                self.coverage.hit("stalls", (source, sink))
        self.open_sink("none")
        await self.domain.cycles(2 * self.settings.options["capacity"] + 10)


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class full_rate(BufferTest):
    """Without stalls a beat goes in and comes out each cycle, after the stated latency."""

    async def scenario(self) -> None:
        """Send a long run and look at the cycles of the beats."""
        await self.send(self.beats(200))
        await self.domain.cycles(20)
        came_in, came_out = self.scoreboard.in_cycles, self.scoreboard.out_cycles
        assert came_in[-1] - came_in[0] == 199, "the buffer stalled its source"
        latency = self.settings.options["latency"]
        assert {o - i for i, o in zip(came_in, came_out, strict=True)} == {latency}


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class capacity(BufferTest):
    """A blocked buffer takes its capacity and no more, and loses nothing."""

    async def scenario(self) -> None:
        """Fill, look, drain; several times, so that pointers wrap at each place."""
        depth = self.settings.options["capacity"]
        for _ in range(5):
            self.scoreboard.in_cycles.clear()
            self.block_sink()
            sender = cocotb.start_soon(self.send(self.beats(2 * depth + 3)))
            await self.domain.cycles(2 * depth + 20)
            assert len(self.scoreboard.in_cycles) == depth
            self.coverage.hit("level", "full")
            self.open_sink("mixed")
            await sender
            self.open_sink("none")
            await self.domain.cycles(2 * depth + 20)


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class emptied(BufferTest):
    """Reset, and flush where there is one, in the middle of a transfer leave an empty buffer."""

    async def scenario(self) -> None:
        """Interrupt at random cycles; what follows is as after the first reset."""
        for round_ in range(12):
            self.source.driver.throttle.mode = self.rng.choice(THROTTLES)
            self.open_sink(self.rng.choice(THROTTLES))
            sender = cocotb.start_soon(self.send(self.beats(100)))
            await self.domain.cycles(self.rng.randint(1, 60))
            self.source.driver.abort()
            held = "holding beats" if self.scoreboard.inside else "empty"
            if self.domain.flush is not None and round_ % 2:
                self.coverage.hit("emptied", ("flush", held))
                await self.domain.pulse_flush()
            else:
                self.coverage.hit("emptied", ("reset", held))
                await self.domain.reset()
            await sender
            await Timer(1, unit="ns")
            self.scoreboard.forget()
            self.open_sink("none")
            # A beat that was offered while the interruption ended may still be inside.
            await self.domain.cycles(self.settings.options["capacity"] + 10)
            assert not self.scoreboard.inside
            self.source.driver.throttle.mode = "none"
            await self.send(self.beats(20))
            await self.domain.cycles(20)
