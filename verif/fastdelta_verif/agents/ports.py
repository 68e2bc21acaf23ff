# SPDX-License-Identifier: Apache-2.0
"""Agents for the ports between units: valid and ready with named fields, and requested beats."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb_bus.bus import Bus
from pyuvm import uvm_analysis_port, uvm_component, uvm_monitor, uvm_subscriber

from fastdelta_verif.agents.axi_stream import StreamMonitor, StreamSinkDriver
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import HandshakeChecker, Rhythm, Throttle

Fields = tuple[int, ...]


@dataclass(frozen=True)
class Transfer:
    """One transfer: the fields in the order of the port, and its clock cycle."""

    fields: Fields
    cycle: int


def stream_names(valid: str, ready: str, data: str) -> Bus:
    """Return ports of the top module as a stream, for the AXI-Stream agents."""
    return Bus(cocotb.top, None, {"tvalid": valid, "tready": ready, "tdata": data})


class PortMonitor(uvm_monitor):
    """Publish the transfers of ``<prefix>_valid``, ``<prefix>_ready`` and its fields."""

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        domain: ClockDomain,
        prefix: str,
        fields: Sequence[str],
    ) -> None:
        super().__init__(name, parent)
        dut: Any = cocotb.top
        self._domain, self._checker = domain, HandshakeChecker(prefix)
        self._valid, self._ready = getattr(dut, f"{prefix}_valid"), getattr(dut, f"{prefix}_ready")
        self._fields = [getattr(dut, f"{prefix}_{field}") for field in fields]
        self.rhythm = self._checker.rhythm
        self.port = uvm_analysis_port("port", self)

    async def run_phase(self) -> None:
        """Watch every cycle."""
        domain, checker = self._domain, self._checker
        while True:
            await domain.edge
            if domain.in_reset:
                checker.forget()
            elif int(self._valid.value):
                ready = bool(int(self._ready.value))
                fields = tuple(int(field.value) for field in self._fields)
                checker.check(True, ready, fields)
                if ready:
                    self.port.write(Transfer(fields, domain.cycle))
            else:
                checker.check(False, False, None)


class PortSink(uvm_component):
    """Take what a port gives, in the rhythm of a throttle, and publish it."""

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        domain: ClockDomain,
        rng: random.Random,
        prefix: str,
        fields: Sequence[str],
    ) -> None:
        super().__init__(name, parent)
        bus = Bus(cocotb.top, None, {"tready": f"{prefix}_ready"})
        self._driver = StreamSinkDriver("driver", self, bus, domain, rng)
        self._monitor = PortMonitor("monitor", self, domain, prefix, fields)
        self.throttle, self.port = self._driver.throttle, self._monitor.port
        self.rhythm = self._monitor.rhythm


class PortSource(uvm_component):
    """Offer items in order; the fields are random while valid is low."""

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        domain: ClockDomain,
        rng: random.Random,
        prefix: str,
        fields: Sequence[str],
    ) -> None:
        super().__init__(name, parent)
        dut: Any = cocotb.top
        self._domain, self._rng = domain, rng
        self._valid, self._ready = getattr(dut, f"{prefix}_valid"), getattr(dut, f"{prefix}_ready")
        self._fields = [getattr(dut, f"{prefix}_{field}") for field in fields]
        self.throttle, self.rhythm = Throttle(rng), Rhythm()
        self.waiting: deque[Fields] = deque()
        self.taken = uvm_analysis_port("taken", self)

    def _drive(self, item: Fields | None) -> None:
        self._valid.value = item is not None
        values = item or [self._rng.getrandbits(len(field)) for field in self._fields]
        for field, value in zip(self._fields, values, strict=True):
            field.value = value

    async def run_phase(self) -> None:
        """Drive every cycle."""
        offered: Fields | None = None
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
            ready = int(self._ready.value)
            self.rhythm.see(True, ready)
            if ready:
                self.waiting.popleft()
                self.taken.write(Transfer(offered, self._domain.cycle))
                offered = None


class RequestedBeats(uvm_component):
    """A memory behind a request port: the beats of the requests, in order, after a latency.

    Parameters
    ----------
    prefix, fields
        Request port.
    stream
        Names of valid, ready and data of the beats.
    answer
        Beats of a request with these fields.
    """

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        domain: ClockDomain,
        rng: random.Random,
        prefix: str,
        fields: Sequence[str],
        stream: tuple[str, str, str],
        answer: Callable[[Fields], list[int]],
    ) -> None:
        super().__init__(name, parent)
        dut: Any = cocotb.top
        self._domain, self._rng, self._answer = domain, rng, answer
        self._requests = PortSink("requests", self, domain, rng, prefix, fields)
        self._beats = StreamMonitor("beats", self, stream_names(*stream), domain)
        self._valid, self._ready, self._data = (getattr(dut, signal) for signal in stream)
        self._receiver = _Receiver("receiver", self, self._request)
        self._waiting: deque[tuple[int, list[int]]] = deque()
        self.request_throttle, self.throttle = self._requests.throttle, Throttle(rng)
        self.requests, self.beats = self._requests.port, self._beats.port
        self.request_rhythm, self.rhythm = self._requests.rhythm, self._beats.rhythm
        self.latency = (1, 1)
        self.outstanding = 0  # beats asked for and not yet taken

    def connect_phase(self) -> None:
        """Answer each request."""
        self._requests.port.connect(self._receiver.analysis_export)

    def _request(self, request: Transfer) -> None:
        beats = self._answer(request.fields)
        self.outstanding += len(beats)
        if beats:
            self._waiting.append((request.cycle + self._rng.randint(*self.latency), beats))

    def forget(self) -> None:
        """Drop what was asked for, as reset does."""
        self._waiting.clear()
        self.outstanding = 0

    async def run_phase(self) -> None:
        """Drive every cycle."""
        width = len(self._data)
        beats: deque[int] = deque()
        offered = False
        while True:
            if self._domain.in_reset:
                beats.clear()
                offered = False
            if not beats and self._waiting and self._waiting[0][0] <= self._domain.cycle + 1:
                beats.extend(self._waiting.popleft()[1])
            offered = bool(beats) and (offered or self.throttle.willing())
            self._valid.value = offered
            self._data.value = beats[0] if offered else self._rng.getrandbits(width)
            await self._domain.edge
            if offered and not self._domain.in_reset and int(self._ready.value):
                beats.popleft()
                self.outstanding -= 1
                offered = False


class _Receiver(uvm_subscriber):
    """Analysis export that hands each transfer to a function."""

    def __init__(
        self, name: str, parent: uvm_component, function: Callable[[Transfer], None]
    ) -> None:
        self._function = function
        super().__init__(name, parent)

    def write(self, item: Transfer) -> None:
        """Hand a transfer on."""
        self._function(item)
