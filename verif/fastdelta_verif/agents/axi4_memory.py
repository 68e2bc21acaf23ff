# SPDX-License-Identifier: Apache-2.0
"""AXI4 memory: sparse memory, reactive slaves with stalls and faults, and passive monitors.

A kernel's ports may share one memory or have one each. Every beat of a legal burst is full width.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cocotb_bus.bus import Bus
from pyuvm import uvm_agent, uvm_analysis_port, uvm_component, uvm_monitor

from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import HandshakeChecker, Rhythm, Throttle

OKAY, SLVERR, DECERR = 0, 2, 3
PAGE_BYTES = 4096
MAX_BURST_BEATS = 256
INCR = 1


def read_bus(dut: Any, name: str) -> Bus:
    """Return the read channels of an AXI4 master port."""
    required = [
        "araddr",
        "arlen",
        "arvalid",
        "arready",
        "rdata",
        "rresp",
        "rlast",
        "rvalid",
        "rready",
    ]
    return Bus(dut, name, required, ["arid", "arsize", "arburst", "rid"])


def write_bus(dut: Any, name: str) -> Bus:
    """Return the write channels of an AXI4 master port."""
    required = "awaddr awlen awvalid awready wdata wstrb wlast wvalid wready bresp bvalid bready"
    return Bus(dut, name, required.split(), ["awid", "awsize", "awburst", "bid"])


@dataclass(frozen=True)
class Burst:
    """One address of a port; ``write`` tells AW from AR."""

    port: str
    write: bool
    address: int
    beats: int
    cycle: int


def burst_fault(
    address: int, beats: int, beat_bytes: int, *, size: int | None = None, burst: int | None = None
) -> str:
    """Say which rule a burst breaks, or return an empty string.

    Parameters
    ----------
    address, beats, beat_bytes
        First byte, number of beats, and bytes of the data bus.
    size, burst
        AxSIZE and AxBURST where the port has them.
    """
    if not 1 <= beats <= MAX_BURST_BEATS:
        return f"{beats} beats: allowed are 1 to {MAX_BURST_BEATS}"
    if address % beat_bytes:
        return f"address {address:#x} is not a multiple of {beat_bytes} bytes"
    if address // PAGE_BYTES != (address + beats * beat_bytes - 1) // PAGE_BYTES:
        return f"{beats} beats at {address:#x} cross a 4 KiB page"
    if size is not None and 1 << size != beat_bytes:
        return f"AxSIZE {size}: beats must be {beat_bytes} bytes"
    if burst is not None and burst != INCR:
        return f"AxBURST {burst}: must be INCR"
    return ""


@dataclass
class Region:
    """Bytes that may be accessed."""

    name: str
    address: int
    data: bytearray

    @property
    def end(self) -> int:
        """Return the first address behind the region."""
        return self.address + len(self.data)


@dataclass
class Memory:
    """Sparse memory: only regions exist; whatever touches other bytes is recorded and refused."""

    regions: list[Region] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def add(self, name: str, address: int, data: bytes | bytearray) -> Region:
        """Place bytes at an address; regions must not overlap."""
        region = Region(name, address, bytearray(data))
        for other in self.regions:
            if region.address < other.end and other.address < region.end:
                raise ValueError(f"region {name} overlaps region {other.name}")
        self.regions.append(region)
        return region

    def clear(self) -> None:
        """Remove all regions."""
        self.regions.clear()

    def find(self, address: int, size: int) -> Region | None:
        """Return the region that holds all of a range."""
        for region in self.regions:
            if region.address <= address and address + size <= region.end:
                return region
        return None

    def read(self, address: int, size: int) -> bytes | None:
        """Return bytes, or None outside the regions."""
        region = self.find(address, size)
        if region is None:
            self.violations.append(f"read of {size} bytes at {address:#x}")
            return None
        start = address - region.address
        return bytes(region.data[start : start + size])

    def write(self, address: int, data: bytes, strobe: int) -> bool:
        """Write the bytes that the strobe selects; false outside the regions."""
        if strobe == 0:
            return True
        region = self.find(address, len(data))
        if region is None:
            self.violations.append(f"write of {len(data)} bytes at {address:#x}")
            return False
        start = address - region.address
        if strobe == (1 << len(data)) - 1:
            region.data[start : start + len(data)] = data
        else:
            for byte, value in enumerate(data):
                if strobe >> byte & 1:
                    region.data[start + byte] = value
        return True


@dataclass
class Faults:
    """What a slave does wrong or late.

    Attributes
    ----------
    errors
        Response by address: a beat (read) or a burst (write) that contains it is answered so.
    stuck
        Channels that make no progress any more: ``ar``, ``r``, ``aw``, ``w``, ``b``.
    latency
        Least and most cycles from an address to the first data, and from the last data to B.
    aw_order
        ``any``; ``w_after_aw``: W is taken only after its AW; ``aw_after_w``: so too, and AW is
        taken only while W is valid.
    """

    errors: dict[int, int] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    latency: tuple[int, int] = (2, 20)
    aw_order: str = "any"


@dataclass
class _Read:
    address: int
    left: int
    ready_cycle: int


class ReadResponder(uvm_component):
    """Slave of the read channels: answers in order, stalls AR and R at random."""

    OUTSTANDING = 32

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        bus: Bus,
        domain: ClockDomain,
        memory: Memory,
        rng: random.Random,
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain, self._memory, self._rng = bus, domain, memory, rng
        self.faults = Faults()
        self.ar_throttle, self.r_throttle = Throttle(rng), Throttle(rng)
        self.errors_sent = 0
        self._pending: deque[_Read] = deque()

    async def run_phase(self) -> None:
        """Answer, one cycle at a time."""
        bus, domain, rng, pending = self._bus, self._domain, self._rng, self._pending
        width = len(bus.rdata)
        beat_bytes = width // 8
        arready, presented = None, False
        bus.rvalid.value = 0
        while True:
            wanted = (
                "ar" not in self.faults.stuck
                and len(pending) < self.OUTSTANDING
                and self.ar_throttle.willing()
            )
            if wanted != arready:
                bus.arready.value = arready = wanted
            if not presented:
                go = pending and pending[0].ready_cycle <= domain.cycle
                if go and "r" not in self.faults.stuck and self.r_throttle.willing():
                    self._present(pending[0], beat_bytes)
                    presented = True
                else:
                    bus.rvalid.value = 0
                    bus.rdata.value = rng.getrandbits(width)
            await domain.edge
            if domain.in_reset:
                pending.clear()
                presented = False
                continue
            if presented and int(bus.rready.value):
                presented = False
                read = pending[0]
                read.address += beat_bytes
                read.left -= 1
                if read.left == 0:
                    pending.popleft()
            if arready and int(bus.arvalid.value):
                cycle = domain.cycle + rng.randint(*self.faults.latency)
                pending.append(_Read(int(bus.araddr.value), int(bus.arlen.value) + 1, cycle))

    def _present(self, read: _Read, beat_bytes: int) -> None:
        bus = self._bus
        data = self._memory.read(read.address, beat_bytes)
        response = self.faults.errors.get(read.address, OKAY) if data is not None else DECERR
        if response != OKAY:
            self.errors_sent += 1
        if data is None or response != OKAY:
            data = self._rng.randbytes(beat_bytes)
        bus.rvalid.value = 1
        bus.rdata.value = int.from_bytes(data, "little")
        bus.rresp.value = response
        bus.rlast.value = int(read.left == 1)
        if hasattr(bus, "rid"):
            bus.rid.value = 0


class WriteResponder(uvm_component):
    """Slave of the write channels; memory changes when a burst is answered, not earlier."""

    OUTSTANDING = 32

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        bus: Bus,
        domain: ClockDomain,
        memory: Memory,
        rng: random.Random,
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain, self._memory, self._rng = bus, domain, memory, rng
        self.faults = Faults()
        self.aw_throttle, self.w_throttle, self.b_throttle = (Throttle(rng) for _ in range(3))
        self.errors_sent = 0
        self._addresses: deque[tuple[int, int]] = deque()
        self._data: deque[list[tuple[int, int]]] = deque([[]])
        self._answers: deque[tuple[int, int, list[tuple[int, int]]]] = deque()

    def _forget(self) -> None:
        self._addresses.clear()
        self._data.clear()
        self._data.append([])
        self._answers.clear()

    async def run_phase(self) -> None:
        """Answer, one cycle at a time."""
        bus, domain, faults = self._bus, self._domain, self.faults
        awready, wready, presented = None, None, False
        w_is_valid = False
        bus.bvalid.value = 0
        if hasattr(bus, "bid"):
            bus.bid.value = 0
        while True:
            faults = self.faults
            wanted = "aw" not in faults.stuck and len(self._addresses) < self.OUTSTANDING
            wanted = wanted and (faults.aw_order != "aw_after_w" or w_is_valid)
            wanted = wanted and self.aw_throttle.willing()
            if wanted != awready:
                bus.awready.value = awready = wanted
            wanted = "w" not in faults.stuck and len(self._data) <= self.OUTSTANDING
            if faults.aw_order != "any":
                wanted = wanted and len(self._addresses) >= len(self._data)
            wanted = wanted and self.w_throttle.willing()
            if wanted != wready:
                bus.wready.value = wready = wanted
            if not presented:
                presented = self._answer()
            await domain.edge
            if domain.in_reset:
                self._forget()
                presented = False
                continue
            if presented and int(bus.bready.value):
                presented = False
            if awready and int(bus.awvalid.value):
                self._addresses.append((int(bus.awaddr.value), int(bus.awlen.value) + 1))
            w_is_valid = bool(int(bus.wvalid.value))
            if w_is_valid and wready:
                self._data[-1].append((int(bus.wdata.value), int(bus.wstrb.value)))
                if int(bus.wlast.value):
                    self._data.append([])
            self._match()

    def _match(self) -> None:
        """Pair an address with its finished data."""
        while self._addresses and len(self._data) > 1:
            (address, beats), data = self._addresses.popleft(), self._data.popleft()
            assert len(data) == beats, (
                f"{self._bus._name}: WLAST after {len(data)} beats, AWLEN says {beats}"
            )
            cycle = self._domain.cycle + self._rng.randint(*self.faults.latency)
            self._answers.append((cycle, address, data))

    def _answer(self) -> bool:
        """Commit and answer the oldest finished burst if its time has come."""
        bus, faults = self._bus, self.faults
        due = self._answers and self._answers[0][0] <= self._domain.cycle
        if not due or "b" in faults.stuck or not self.b_throttle.willing():
            bus.bvalid.value = 0
            return False
        _, address, data = self._answers.popleft()
        beat_bytes = len(bus.wdata) // 8
        addresses = range(address, address + len(data) * beat_bytes, beat_bytes)
        response = max((faults.errors.get(beat, OKAY) for beat in addresses), default=OKAY)
        if response == OKAY:
            for beat_address, (word, strobe) in zip(addresses, data, strict=True):
                written = word.to_bytes(beat_bytes, "little")
                if not self._memory.write(beat_address, written, strobe):
                    response = DECERR
        if response != OKAY:
            self.errors_sent += 1
        bus.bvalid.value = 1
        bus.bresp.value = response
        return True


@dataclass
class PortCounts:
    """What a monitor saw since the last :meth:`clear`."""

    bursts: int = 0
    beats: int = 0
    null_beats: int = 0
    answers: int = 0
    unanswered: int = 0
    answer_cycles: list[int] = field(default_factory=list)
    last_beat_cycle: int = 0

    @property
    def last_answer_cycle(self) -> int:
        """Return the cycle of the latest answer, 0 without one."""
        return self.answer_cycles[-1] if self.answer_cycles else 0

    def clear(self) -> None:
        """Start anew; what is unanswered stays so."""
        unanswered = self.unanswered
        self.__init__()
        self.unanswered = unanswered


class MemoryMonitor(uvm_monitor):
    """Check the master's side of one port, publish its bursts, count beats and answers."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, *, write: bool
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain, self._write = bus, domain, write
        self.port = uvm_analysis_port("port", self)
        self.counts = PortCounts()
        self._lengths: deque[int] = deque()
        self._beat_bytes = len(bus.wdata if write else bus.rdata) // 8
        self._address_checker = HandshakeChecker(f"{bus._name} {'aw' if write else 'ar'}")
        self._data_checker = HandshakeChecker(f"{bus._name} w")
        # By channel: in which ways transfers came.
        self.rhythms = {"aw" if write else "ar": self._address_checker.rhythm}
        if write:
            self.rhythms |= {"w": self._data_checker.rhythm, "b": Rhythm()}
        else:
            self.rhythms["r"] = Rhythm()

    async def run_phase(self) -> None:
        """Watch every cycle."""
        bus, domain, counts = self._bus, self._domain, self.counts
        channel = "aw" if self._write else "ar"
        valid, ready = getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready")
        names = [f"{channel}{field}" for field in ("addr", "len", "size", "burst")]
        signals = [getattr(bus, name) for name in names if hasattr(bus, name)]
        address_checker, data_checker = self._address_checker, self._data_checker
        watch_data = self._watch_write if self._write else self._watch_read
        while True:
            await domain.edge
            if domain.in_reset:
                address_checker.forget()
                data_checker.forget()
                self._lengths.clear()
                counts.unanswered = 0
                continue
            if int(valid.value):
                payload = tuple(int(signal.value) for signal in signals)
                taken = bool(int(ready.value))
                address_checker.check(True, taken, payload)
                if taken:
                    self._address(payload)
            else:
                address_checker.check(False, False, None)
            watch_data(data_checker)

    def _address(self, payload: tuple[int, ...]) -> None:
        address, length, *rest = payload
        kind = dict(zip(("size", "burst"), rest, strict=False))
        fault = burst_fault(address, length + 1, self._beat_bytes, **kind)
        assert not fault, f"{self._bus._name}: {fault}"
        self.counts.bursts += 1
        self.counts.unanswered += 1
        if not self._write:
            self._lengths.append(length + 1)
        self.port.write(
            Burst(self._bus._name, self._write, address, length + 1, self._domain.cycle)
        )

    def _watch_read(self, _: HandshakeChecker) -> None:
        bus, counts = self._bus, self.counts
        valid = int(bus.rvalid.value)
        ready = valid and int(bus.rready.value)
        self.rhythms["r"].see(valid, ready)
        if ready:
            counts.beats += 1
            counts.last_beat_cycle = self._domain.cycle
            if int(bus.rlast.value):
                counts.answers += 1
                counts.unanswered -= 1
                counts.answer_cycles.append(self._domain.cycle)

    def _watch_write(self, checker: HandshakeChecker) -> None:
        bus, counts = self._bus, self.counts
        if int(bus.wvalid.value):
            taken = bool(int(bus.wready.value))
            payload = (int(bus.wdata.value), int(bus.wstrb.value), int(bus.wlast.value))
            checker.check(True, taken, payload)
            if taken:
                counts.beats += 1
                counts.null_beats += payload[1] == 0
                counts.last_beat_cycle = self._domain.cycle
        else:
            checker.check(False, False, None)
        valid = int(bus.bvalid.value)
        ready = valid and int(bus.bready.value)
        self.rhythms["b"].see(valid, ready)
        if ready:
            counts.answers += 1
            counts.unanswered -= 1
            counts.answer_cycles.append(self._domain.cycle)


class ReadMemoryAgent(uvm_agent):
    """Memory on the read channels of a port."""

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        bus: Bus,
        domain: ClockDomain,
        memory: Memory,
        rng: random.Random,
    ) -> None:
        super().__init__(name, parent)
        self.responder = ReadResponder("responder", self, bus, domain, memory, rng)
        self.monitor = MemoryMonitor("monitor", self, bus, domain, write=False)

    def throttle(self, mode: str) -> None:
        """Stall both channels so."""
        self.responder.ar_throttle.mode = self.responder.r_throttle.mode = mode


class WriteMemoryAgent(uvm_agent):
    """Memory on the write channels of a port."""

    def __init__(
        self,
        name: str,
        parent: uvm_component,
        bus: Bus,
        domain: ClockDomain,
        memory: Memory,
        rng: random.Random,
    ) -> None:
        super().__init__(name, parent)
        self.responder = WriteResponder("responder", self, bus, domain, memory, rng)
        self.monitor = MemoryMonitor("monitor", self, bus, domain, write=True)

    def throttle(self, mode: str) -> None:
        """Stall all three channels so."""
        responder = self.responder
        for throttle in (responder.aw_throttle, responder.w_throttle, responder.b_throttle):
            throttle.mode = mode
