# SPDX-License-Identifier: Apache-2.0
"""AXI4-Lite master agent with an adapter for the register model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from cocotb_bus.bus import Bus
from pyuvm import (
    uvm_access_e,
    uvm_agent,
    uvm_analysis_port,
    uvm_component,
    uvm_driver,
    uvm_monitor,
    uvm_reg_adapter,
    uvm_reg_bus_op,
    uvm_sequence,
    uvm_sequence_item,
    uvm_sequencer,
    uvm_status_e,
)

from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import HandshakeChecker

OKAY = 0
WAIT_LIMIT_CYCLES = 500
# The answer to a start tells when a run began, and benches bound how late it may be.
MOST_UNWILLING = 3


def axi_lite_bus(dut: Any, name: str) -> Bus:
    """Return the signal group of an AXI4-Lite port."""
    signals = "awaddr awvalid awready wdata wstrb wvalid wready bresp bvalid bready"
    return Bus(dut, name, f"{signals} araddr arvalid arready rdata rresp rvalid rready".split())


class LiteItem(uvm_sequence_item):
    """One register access; the driver fills ``data`` of a read and ``response``."""

    def __init__(
        self, name: str, address: int, *, write: bool, data: int = 0, strobe: int = 0xF
    ) -> None:
        super().__init__(name)
        self.address, self.write, self.data, self.strobe = address, write, data, strobe
        self.response = OKAY


class LiteSequence(uvm_sequence):
    """Run one access that goes around the register model."""

    def __init__(self, name: str, item: LiteItem) -> None:
        super().__init__(name)
        self.item = item

    async def body(self) -> None:
        """Send the access."""
        await self.start_item(self.item)
        await self.finish_item(self.item)


@dataclass(frozen=True)
class LiteAccess:
    """A finished access as the monitor saw it; ``cycle`` is that of the response."""

    address: int
    write: bool
    data: int
    response: int
    cycle: int


class LiteAdapter(uvm_reg_adapter):
    """Translate between the register model and the agent."""

    def reg2bus(self, rw: uvm_reg_bus_op) -> LiteItem:
        """Return the bus item of a register operation."""
        write = rw.kind == uvm_access_e.UVM_WRITE
        return LiteItem("register", rw.addr, write=write, data=rw.data if write else 0)

    def bus2reg(self, bus_item: LiteItem, rw: uvm_reg_bus_op) -> None:
        """Fill the result of a register operation from its bus item."""
        rw.addr, rw.data = bus_item.address, bus_item.data
        okay = bus_item.response == OKAY
        rw.status = uvm_status_e.UVM_IS_OK if okay else uvm_status_e.UVM_NOT_OK


class LiteDriver(uvm_driver):
    """Drive accesses; address and data of a write come in any order, ready is random."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain, self._rng = bus, domain, rng

    async def run_phase(self) -> None:
        """Run accesses one at a time."""
        bus = self._bus
        for channel in ("aw", "w", "ar"):
            self._end(channel)
        bus.bready.value = bus.rready.value = 0
        while True:
            item = await self.seq_item_port.get_next_item()
            await (self._write(item) if item.write else self._read(item))
            self.seq_item_port.item_done()

    def _begin(self, channel: str, item: LiteItem) -> None:
        bus = self._bus
        if channel == "w":
            bus.wdata.value, bus.wstrb.value = item.data, item.strobe
        else:
            getattr(bus, f"{channel}addr").value = item.address
        getattr(bus, f"{channel}valid").value = 1

    def _end(self, channel: str) -> None:
        bus, rng = self._bus, self._rng
        getattr(bus, f"{channel}valid").value = 0
        if channel == "w":
            bus.wdata.value, bus.wstrb.value = rng.getrandbits(32), rng.getrandbits(4)
        else:
            address = getattr(bus, f"{channel}addr")
            address.value = rng.getrandbits(len(address))

    async def _send(self, delays: dict[str, int], item: LiteItem) -> None:
        """Present each channel after its delay and wait until all are taken."""
        driven: set[str] = set()
        for cycle in range(WAIT_LIMIT_CYCLES):
            for channel, delay in delays.items():
                if delay == cycle:
                    self._begin(channel, item)
                    driven.add(channel)
            await self._domain.edge
            # In order: what follows is drawn, and the order of a set differs from run to run.
            taken = [name for name in sorted(driven) if getattr(self._bus, f"{name}ready").value]
            for channel in taken:
                self._end(channel)
                del delays[channel]
            driven.difference_update(taken)
            if not delays:
                return
        raise AssertionError(f"s_axi_control: {item.address:#x} was not taken")

    async def _response(self, channel: str) -> None:
        """Wait for a response with random ready, at most `MOST_UNWILLING` cycles without it."""
        ready, valid = getattr(self._bus, f"{channel}ready"), getattr(self._bus, f"{channel}valid")
        unwilling = 0
        for _ in range(WAIT_LIMIT_CYCLES):
            willing = self._rng.random() < 0.7 or unwilling == MOST_UNWILLING
            unwilling += bool(valid.value) and not willing
            ready.value = int(willing)
            await self._domain.edge
            if willing and valid.value:
                return
        raise AssertionError("s_axi_control: no response")

    async def _write(self, item: LiteItem) -> None:
        first, second = self._rng.choice([(0, 0), (0, 0), (0, 1), (1, 0), (0, 3), (2, 0)])
        await self._send({"aw": first, "w": second}, item)
        await self._response("b")
        item.response = int(self._bus.bresp.value)
        self._bus.bready.value = 0

    async def _read(self, item: LiteItem) -> None:
        await self._send({"ar": 0}, item)
        await self._response("r")
        item.data, item.response = int(self._bus.rdata.value), int(self._bus.rresp.value)
        self._bus.rready.value = 0


class LiteMonitor(uvm_monitor):
    """Publish finished accesses and check the handshake of all five channels."""

    PAYLOADS = {  # noqa: RUF012
        "aw": ("awaddr",),
        "w": ("wdata", "wstrb"),
        "b": ("bresp",),
        "ar": ("araddr",),
        "r": ("rdata", "rresp"),
    }

    def __init__(self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain) -> None:
        super().__init__(name, parent)
        self._bus, self._domain = bus, domain
        self.port = uvm_analysis_port("port", self)

    async def run_phase(self) -> None:
        """Watch every cycle."""
        bus, domain = self._bus, self._domain
        channels = [
            (
                channel,
                getattr(bus, f"{channel}valid"),
                getattr(bus, f"{channel}ready"),
                [getattr(bus, signal) for signal in signals],
                HandshakeChecker(f"s_axi_control {channel}"),
            )
            for channel, signals in self.PAYLOADS.items()
        ]
        seen: dict[str, tuple[int, ...]] = {}
        while True:
            await domain.edge
            for channel, valid, ready, signals, checker in channels:
                if domain.in_reset:
                    checker.forget()
                    seen.clear()
                    continue
                is_valid = int(valid.value)
                if not is_valid:
                    checker.check(False, False, None)
                    continue
                payload = tuple(int(signal.value) for signal in signals)
                is_ready = int(ready.value)
                checker.check(True, bool(is_ready), payload)
                if is_ready:
                    seen[channel] = payload
            if "b" in seen:
                self._publish(seen, write=True)
            if "r" in seen:
                self._publish(seen, write=False)

    def _publish(self, seen: dict[str, tuple[int, ...]], *, write: bool) -> None:
        if write:
            assert {"aw", "w"} <= seen.keys(), "s_axi_control: response without a write"
            (address,), (data, _), (response,) = seen.pop("aw"), seen.pop("w"), seen.pop("b")
        else:
            assert "ar" in seen, "s_axi_control: response without a read"
            (address,), (data, response) = seen.pop("ar"), seen.pop("r")
        self.port.write(LiteAccess(address, write, data, response, self._domain.cycle))


class LiteAgent(uvm_agent):
    """Master of an AXI4-Lite port."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self.sequencer = uvm_sequencer("sequencer", self)
        self.driver = LiteDriver("driver", self, bus, domain, rng)
        self.monitor = LiteMonitor("monitor", self, bus, domain)

    def connect_phase(self) -> None:
        """Connect driver and sequencer."""
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)
