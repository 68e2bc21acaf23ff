# SPDX-License-Identifier: Apache-2.0
"""Tests of the stream agents and the scoreboard on a one-beat register, with and without faults."""

from __future__ import annotations

import random

import cocotb
import pyuvm
from pyuvm import uvm_env, uvm_test

from fastdelta_verif.agents.axi_stream import (
    StreamBeat,
    StreamSequence,
    StreamSinkAgent,
    StreamSourceAgent,
    stream_bus,
)
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.covergroups import Coverage
from fastdelta_verif.covergroups.cells import STREAM_REGISTER
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings


class CopyScoreboard(Scoreboard):
    """What comes out is what went in; every fourth beat is last."""

    def __init__(self, name: str, parent: uvm_env) -> None:
        super().__init__(name, parent)
        self._expected = self.queue("beats that went in")
        self._place = 0

    def went_in(self, beat: StreamBeat) -> None:
        """Expect a beat."""
        self._expected.append(beat.data)

    def came_out(self, beat: StreamBeat) -> None:
        """Compare a beat with the oldest expected one."""
        assert self._expected, f"beat 0x{beat.data:x} came out, but none is inside"
        self.compare("beat", beat.data, self._expected.popleft())
        self._place += 1
        self.compare("last", beat.last, self._place % 4 == 0)


class Environment(uvm_env):
    """Source, sink, scoreboard; ``disconnect`` leaves one monitor unconnected."""

    def build_phase(self) -> None:
        """Create the agents."""
        settings, dut = Settings.current(), cocotb.top
        rng = random.Random(settings.seed)
        self.domain = ClockDomain(dut.clk, dut.rst_n)
        self.source = StreamSourceAgent(
            "source", self, stream_bus(dut, "s_axis"), self.domain, random.Random(rng.random())
        )
        self.sink = StreamSinkAgent(
            "sink", self, stream_bus(dut, "m_axis"), self.domain, random.Random(rng.random())
        )
        self.scoreboard = CopyScoreboard("scoreboard", self)
        self.coverage = Coverage("coverage", self, STREAM_REGISTER)

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        self.coverage.watch("source", self.source.monitor.rhythm)
        self.coverage.watch("sink", self.sink.monitor.rhythm)
        disconnect = Settings.current().options.get("disconnect")
        scoreboard = self.scoreboard
        if disconnect != "source":
            scoreboard.subscribe(self.source.monitor.port, scoreboard.went_in)
        if disconnect != "sink":
            scoreboard.subscribe(self.sink.monitor.port, scoreboard.came_out)


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class copy(uvm_test):
    """Random beats with random stalls on both sides; ``beats`` of them."""

    def build_phase(self) -> None:
        """Create the environment."""
        self.environment = Environment("environment", self)

    async def run_phase(self) -> None:
        """Send packets in each throttle mode."""
        self.raise_objection()
        environment, settings = self.environment, Settings.current()
        rng = random.Random(settings.seed)
        environment.domain.start()
        await environment.domain.reset()
        width = settings.parameters["WIDTH"]
        for mode in settings.options.get("throttles", ["none", "light", "heavy", "bursts"]):
            environment.source.driver.throttle.mode = mode
            environment.sink.driver.throttle.mode = rng.choice(["none", "light", "heavy", "mixed"])
            packets = [
                [rng.getrandbits(width) for _ in range(rng.randint(1, 16))]
                for _ in range(settings.options["packets"])
            ]
            await StreamSequence("packets", packets).start(environment.source.sequencer)
        if settings.options.get("drain", True):
            await environment.domain.cycles(200)
        self.drop_objection()
