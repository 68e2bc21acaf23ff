# SPDX-License-Identifier: Apache-2.0
"""Command port of the decode core: one command at a time, counts valid with ``cmd_done``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import IntEnum
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
from fastdelta_verif.agents.handshake import HandshakeChecker

FIELDS = ("opcode", "context", "tokens", "bypass_norm", "bypass_gates")
COUNTERS = ("saturations", "norm_overflows", "starved_cycles", "tokens_done", "bad_state")


class Opcode(IntEnum):
    """Commands of the decode core."""

    DECODE = 0
    CLEAR = 1
    LOAD = 2
    DUMP = 3


def command_bus(dut: Any) -> Bus:
    """Return the signal group of the command port with the counts."""
    signals = {name: f"s_cmd_{name}" for name in ("valid", "ready", *FIELDS)}
    signals |= {name: name for name in ("cmd_done", *COUNTERS)}
    return Bus(dut, None, signals)


@dataclass(frozen=True)
class Command:
    """One command as it is on the port."""

    opcode: Opcode
    context: int = 0
    tokens: int = 0
    bypass_norm: bool = False
    bypass_gates: bool = False


@dataclass(frozen=True)
class Finished:
    """A finished command with the counts that the core reported."""

    command: Command
    saturations: int
    norm_overflows: int
    starved_cycles: int
    tokens_done: int
    bad_state: bool
    start_cycle: int
    done_cycle: int


class CommandItem(uvm_sequence_item):
    """A command and the cycles to wait before it is offered."""

    def __init__(self, name: str, command: Command, gap: int = 0) -> None:
        super().__init__(name)
        self.command, self.gap = command, gap


class CommandSequence(uvm_sequence):
    """Offer commands one after the other; each as soon as the one before was taken."""

    def __init__(self, name: str, commands: list[Command], gaps: list[int]) -> None:
        super().__init__(name)
        self._work = list(zip(commands, gaps, strict=True))
        self.stopped = False

    async def body(self) -> None:
        """Send the commands."""
        for command, gap in self._work:
            if self.stopped:
                break
            item = CommandItem("command", command, gap)
            await self.start_item(item)
            await self.finish_item(item)


class CommandDriver(uvm_driver):
    """Offer commands; their fields are random while valid is low."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self._bus, self._domain, self._rng = bus, domain, rng
        self._aborted = False

    def abort(self) -> None:
        """Withdraw the command that is offered."""
        self._aborted = True

    def _idle(self) -> None:
        self._bus.valid.value = 0
        for name in FIELDS:
            signal = getattr(self._bus, name)
            signal.value = self._rng.getrandbits(len(signal))

    async def run_phase(self) -> None:
        """Drive items as they come."""
        bus, edge = self._bus, self._domain.edge
        self._idle()
        while True:
            item = await self.seq_item_port.get_next_item()
            self._aborted = False
            for _ in range(item.gap):
                await edge
            if not self._aborted:
                for name in FIELDS:
                    getattr(bus, name).value = int(getattr(item.command, name))
                bus.valid.value = 1
                await edge
                while not self._aborted and not int(bus.ready.value):
                    await edge
            self._idle()
            self.seq_item_port.item_done()


class CommandMonitor(uvm_monitor):
    """Publish a :class:`Command` when it is taken and a :class:`Finished` when it is done."""

    def __init__(self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain) -> None:
        super().__init__(name, parent)
        self._bus, self._domain = bus, domain
        self.taken = uvm_analysis_port("taken", self)
        self.done = uvm_analysis_port("done", self)
        self.running: Command | None = None
        self.finished = 0

    async def run_phase(self) -> None:
        """Watch every cycle."""
        bus, domain = self._bus, self._domain
        checker = HandshakeChecker("s_cmd")
        start_cycle = 0
        while True:
            await domain.edge
            if domain.in_reset:
                checker.forget()
                self.running = None
                continue
            if int(bus.cmd_done.value):
                assert self.running is not None, "cmd_done without a command"
                counts = {name: int(getattr(bus, name).value) for name in COUNTERS}
                counts["bad_state"] = bool(counts["bad_state"])
                command, self.running = self.running, None
                self.finished += 1
                self.done.write(
                    Finished(command, **counts, start_cycle=start_cycle, done_cycle=domain.cycle)
                )
            if not int(bus.valid.value):
                checker.check(False, False, None)
                continue
            fields = tuple(int(getattr(bus, name).value) for name in FIELDS)
            ready = bool(int(bus.ready.value))
            checker.check(True, ready, fields)
            if ready:
                assert self.running is None, "a command was taken while another one runs"
                opcode, context, tokens, norm, gates = fields
                self.running = Command(Opcode(opcode), context, tokens, bool(norm), bool(gates))
                start_cycle = domain.cycle
                self.taken.write(self.running)


class CommandAgent(uvm_agent):
    """Master of the command port."""

    def __init__(
        self, name: str, parent: uvm_component, bus: Bus, domain: ClockDomain, rng: random.Random
    ) -> None:
        super().__init__(name, parent)
        self.sequencer = uvm_sequencer("sequencer", self)
        self.driver = CommandDriver("driver", self, bus, domain, rng)
        self.monitor = CommandMonitor("monitor", self, bus, domain)

    def connect_phase(self) -> None:
        """Connect driver and sequencer."""
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)
