# SPDX-License-Identifier: Apache-2.0
"""AXI-Stream agents: a source that drives packets, a sink that drives ready, and their monitor."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from cocotb_bus.bus import Bus
from pyuvm import (
    uvm_agent,
    uvm_analysis_port,
    uvm_component,
    uvm_driver,
    uvm_monitor,
    uvm_sequence,
    uvm_sequence_item,
    uvm_sequencer,
)

from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import HandshakeChecker, Throttle


def stream_bus(dut: Any, name: str) -> Bus:
    """Return the signal group of a stream port."""
    return Bus(dut, name, ["tdata", "tvalid", "tready"], ["tlast"])


class StreamItem(uvm_sequence_item):
    """Beats to send back to back, as far as the throttle lets them."""

    def __init__(self, name: str, beats: list[int]) -> None:
        super().__init__(name)
        self.beats = beats


@dataclass(frozen=True)
class StreamBeat:
    """One transferred beat; ``last`` is false on a stream without tlast."""

    data: int
    last: bool
    cycle: int


class StreamSequence(uvm_sequence):
    """Send items one after the other."""

    def __init__(self, name: str, packets: list[list[int]]) -> None:
        super().__init__(name)
        self._packets = packets
        self.stopped = False

    async def body(self) -> None:
        """Send the packets."""
        for beats in self._packets:
            if self.stopped:
                break
            item = StreamItem("packet", beats)
            await self.start_item(item)
            await self.finish_item(item)


class StreamSourceDriver(uvm_driver):
    """Drive items; while valid is low the payload is random, so that nobody may look at it."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain, self._rng = bus, domain, rng
        self._width = len(bus.tdata)
        self._aborted = False
        self.throttle = Throttle(rng)

    def _idle(self) -> None:
        self._bus.tvalid.value = 0
        self._bus.tdata.value = self._rng.getrandbits(self._width)

    def abort(self) -> None:
        """Withdraw the item in progress, as a master does in reset."""
        self._aborted = True

    async def run_phase(self) -> None:
        """Drive items as they come."""
        self._idle()
        while True:
            item = await self.seq_item_port.get_next_item()
            self._aborted = False
            await self._send(item.beats)
            self._idle()
            self.seq_item_port.item_done()

    async def _send(self, beats: list[int]) -> None:
        bus, edge, willing = self._bus, self._domain.edge, self.throttle.willing
        valid, data, ready = bus.tvalid, bus.tdata, bus.tready
        for beat in beats:
            while not willing():
                self._idle()
                await edge
                if self._aborted:
                    return
            valid.value = 1
            data.value = beat
            await edge
            while not ready.value:
                await edge
                if self._aborted:
                    return
            if self._aborted:
                return


class StreamSinkDriver(uvm_component):
    """Drive ready by the throttle, without looking at valid."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain = bus, domain
        self.throttle = Throttle(rng)

    async def run_phase(self) -> None:
        """Drive ready every cycle."""
        ready, edge, driven = self._bus.tready, self._domain.edge, None
        while True:
            wanted = int(self.throttle.willing())
            if wanted != driven:
                ready.value = driven = wanted
            await edge


class StreamMonitor(uvm_monitor):
    """Publish transferred beats and check the handshake."""

    def __init__(self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain) -> None:
        super().__init__(name, parent)
        self._bus, self._domain = bus, domain
        self._checker = HandshakeChecker(f"{self.get_full_name()} ({bus._name})")
        self.rhythm = self._checker.rhythm
        self.port = uvm_analysis_port("port", self)
        self.stalled_cycles = 0

    async def run_phase(self) -> None:
        """Watch every cycle."""
        bus, domain, edge, checker = self._bus, self._domain, self._domain.edge, self._checker
        last = getattr(bus, "tlast", None)
        while True:
            await edge
            if domain.in_reset:
                checker.forget()
                continue
            valid, ready = int(bus.tvalid.value), int(bus.tready.value)
            if not valid:
                checker.check(False, bool(ready), None)
                continue
            beat = (int(bus.tdata.value), int(last.value) if last is not None else 0)
            checker.check(True, bool(ready), beat)
            if ready:
                self.port.write(StreamBeat(beat[0], bool(beat[1]), domain.cycle))
            else:
                self.stalled_cycles += 1


class StreamSourceAgent(uvm_agent):
    """Source of a stream: sequencer, driver, monitor."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self.sequencer = uvm_sequencer("sequencer", self)
        self.driver = StreamSourceDriver("driver", self, bus, domain, rng)
        self.monitor = StreamMonitor("monitor", self, bus, domain)

    def connect_phase(self) -> None:
        """Connect driver and sequencer."""
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class StreamSinkAgent(uvm_agent):
    """Sink of a stream: ready driver, monitor."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self.driver = StreamSinkDriver("driver", self, bus, domain, rng)
        self.monitor = StreamMonitor("monitor", self, bus, domain)
