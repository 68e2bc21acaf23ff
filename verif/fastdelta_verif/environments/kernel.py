# SPDX-License-Identifier: Apache-2.0
"""Base of the tests of a whole kernel: control port, one memory behind all ports, runs.

Every run has its own memory regions of exactly the bytes that it may touch.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar

import cocotb
import numpy as np

from fastdelta.arrays import checksum
from fastdelta.registers.decode import (  # equal for all kernels: overlays/kernel.rdl
    CTRL_AP_CONTINUE,
    CTRL_AP_DONE,
    CTRL_AP_IDLE,
    CTRL_AP_START,
    GIE_ENABLE,
    IER_AP_DONE,
    IER_AP_READY,
    ISR_AP_DONE,
    ISR_AP_READY,
)
from fastdelta_verif.agents.axi4_memory import (
    Burst,
    Faults,
    Memory,
    ReadMemoryAgent,
    WriteMemoryAgent,
    read_bus,
    write_bus,
)
from fastdelta_verif.agents.axi_lite import (
    LiteAccess,
    LiteAgent,
    LiteItem,
    LiteSequence,
    axi_lite_bus,
)
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.coverage import CoverageModel
from fastdelta_verif.covergroups.kernels import KernelCoverage
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

MAX_BURST = 64
WORD = (1 << 32) - 1


class KernelTest(ScenarioTest):
    """Control port, memory on every port, runs.

    Attributes
    ----------
    READ_PORTS, WRITE_PORTS
        Names of the memory ports by direction, without ``m_axi_``. A port that does both is in
        both; the agent of its writes is called ``<name>_write``.
    COVERAGE
        What the tests are to reach.
    COMMAND
        Register of the command or mode, and its names.
    REGISTERS
        Registers of the kernel.
    FIRST_COUNTER
        Counters are the registers from here on; the result block holds them in this order behind
        magic, status and version.
    RESULT_BYTES, MAGIC, VERSION
        Size and first words of the result block.
    RUN_LIMIT_CYCLES
        A run that takes longer hangs.
    """

    READ_PORTS: ClassVar[tuple[str, ...]]
    WRITE_PORTS: ClassVar[tuple[str, ...]]
    COVERAGE: ClassVar[CoverageModel]
    COMMAND: ClassVar[tuple[IntEnum, type[IntEnum]]]
    REGISTERS: ClassVar[type[IntEnum]]
    FIRST_COUNTER: ClassVar[IntEnum]
    RESULT_BYTES: ClassVar[int]
    MAGIC: ClassVar[int]
    VERSION: ClassVar[int]
    RUN_LIMIT_CYCLES: ClassVar[int] = 60_000
    idle_inputs = ("ap_rst_n",)

    def build_phase(self) -> None:
        """Create agents and models."""
        self.settings = Settings.current()
        self.rng = random.Random(self.settings.seed)
        self.dut: Any = cocotb.top
        self.domain = ClockDomain(self.dut.ap_clk, self.dut.ap_rst_n)
        self.memory = Memory()
        control = axi_lite_bus(self.dut, "s_axi_control")
        self.control = LiteAgent("control", self, control, self.domain, self.new_rng())
        self.ports: dict[str, Any] = {}
        for name in self.READ_PORTS:
            bus = read_bus(self.dut, f"m_axi_{name}")
            self.ports[name] = ReadMemoryAgent(name, self, bus, *self._common())
        for port in self.WRITE_PORTS:
            bus = write_bus(self.dut, f"m_axi_{port}")
            name = f"{port}_write" if port in self.READ_PORTS else port
            self.ports[name] = WriteMemoryAgent(name, self, bus, *self._common())
        self.counter_registers = [r for r in self.REGISTERS if r >= self.FIRST_COUNTER]
        self.bursts: list[Burst] = []
        self.start_cycle = self.end_cycle = 0
        self.runs = 0
        self.scoreboard = Scoreboard("scoreboard", self)
        self.compare = self.scoreboard.compare
        self.coverage = KernelCoverage("coverage", self, self.COVERAGE)
        self.build_model()
        self.after_reset()

    def _common(self) -> tuple[ClockDomain, Memory, random.Random]:
        return self.domain, self.memory, self.new_rng()

    def build_model(self) -> None:
        """Create what the kernel's own tests need."""

    def new_rng(self) -> random.Random:
        """Return a source of randomness for one agent."""
        return random.Random(self.rng.random())

    def after_reset(self) -> None:
        """Set the models to the state after reset."""
        self.runs = 0
        self.coverage.forget()

    def connect_phase(self) -> None:
        """Connect monitors."""
        for port in self.ports.values():
            self.scoreboard.subscribe(port.monitor.port, self.bursts.append)
        self.scoreboard.subscribe(self.control.monitor.port, self.accessed)
        for name, port in self.ports.items():
            for channel, rhythm in port.monitor.rhythms.items():
                self.coverage.watch(f"{name} {channel}", rhythm)

    def accessed(self, access: LiteAccess) -> None:
        """Keep the cycle of the last start; every access is answered OKAY."""
        self.compare("response", access.response, 0)
        if access.write and access.address == 0 and access.data & CTRL_AP_START:
            self.start_cycle = access.cycle

    async def prepare(self) -> None:
        """Answer at once, and see the ends of runs."""
        self.stall("none")
        await self.enable_interrupt()

    def finish(self) -> None:
        """Look at what the memory found wrong."""
        assert not self.memory.violations, self.memory.violations

    # Registers

    async def write(self, register: int, value: int, strobe: int = 0xF) -> None:
        """Write a register."""
        item = LiteItem("write", register, write=True, data=value, strobe=strobe)
        await LiteSequence("write", item).start(self.control.sequencer)

    async def read(self, register: int) -> int:
        """Read a register."""
        item = LiteItem("read", register, write=False)
        await LiteSequence("read", item).start(self.control.sequencer)
        return item.data

    async def enable_interrupt(self) -> None:
        """Let the end of a run raise the interrupt."""
        await self.write(self.REGISTERS["GIE"], GIE_ENABLE)
        await self.write(self.REGISTERS["IER"], IER_AP_DONE)

    async def check_interrupts(self, start: Callable[[], Awaitable[None]]) -> None:
        """Try the enables, toggling, and the level of the line, with short runs."""
        interrupt = self.dut.interrupt
        ctrl, gie, ier, isr = (self.REGISTERS[name] for name in ("CTRL", "GIE", "IER", "ISR"))
        for enables in range(4):
            for global_enable in (0, 1):
                await self.write(ier, enables)
                await self.write(gie, global_enable)
                await start()
                await self.domain.cycles(250)
                self.compare("events", await self.read(isr), enables)
                self.compare("line", int(interrupt.value), int(global_enable and enables > 0))
                self.coverage.hit("interrupts", (enables, global_enable))
                await self.write(ctrl, CTRL_AP_CONTINUE)
                for event in (ISR_AP_DONE, ISR_AP_READY):
                    if enables & event:
                        await self.write(isr, event)
                self.compare("events", await self.read(isr), 0)
                self.compare("line", int(interrupt.value), 0)
        await self.write(ier, IER_AP_DONE | IER_AP_READY)
        await self.write(isr, ISR_AP_READY)
        self.compare("toggled on", await self.read(isr), ISR_AP_READY)
        self.coverage.hit("protocol", "event toggled on")
        self.compare("line", int(interrupt.value), 1)
        await self.write(gie, 0)
        await self.domain.cycles(2)
        self.compare("line", int(interrupt.value), 0)

    async def counters(self) -> dict[IntEnum, int]:
        """Read all counters."""
        return {register: await self.read(register) for register in self.counter_registers}

    # Memory

    def stall(self, mode: str, latency: tuple[int, int] = (2, 20), aw_order: str = "any") -> None:
        """Set stalls and latency of all ports, without faults."""
        for port in self.ports.values():
            port.throttle(mode)
            port.responder.faults = Faults(latency=latency, aw_order=aw_order)
        for name in self.ports:
            self.coverage.memory(name, mode, latency[1])

    def stall_at_random(self) -> None:
        """Set stalls and latency of each port."""
        for name, port in self.ports.items():
            mode, latency = self.rng.choice(THROTTLES), self.rng.choice([3, 20, 70])
            port.throttle(mode)
            port.responder.faults = Faults(latency=(0, latency))
            self.coverage.memory(name, mode, latency)

    def region(self, name: str) -> bytes:
        """Return the present content of a region, empty without one."""
        for region in self.memory.regions:
            if region.name == name:
                return bytes(region.data)
        return b""

    # Runs

    async def launch(self, arguments: Mapping[int, int]) -> None:
        """Write the arguments in random order and start."""
        self.bursts.clear()
        for port in self.ports.values():
            port.monitor.counts.clear()
        items = list(arguments.items())
        register, names = self.COMMAND
        known = {command.value: command.name for command in names}
        self.coverage.command = known.get(arguments[register], "other")
        self.rng.shuffle(items)
        for register, value in items:
            await self.write(register, value)
        await self.write(self.REGISTERS["CTRL"], CTRL_AP_START)
        self.runs += 1

    async def ended(self) -> None:
        """Wait for the interrupt; then every request must have been answered."""
        for _ in range(self.RUN_LIMIT_CYCLES):
            if int(self.dut.interrupt.value):
                break
            await self.domain.edge
        else:
            raise AssertionError(f"no interrupt within {self.RUN_LIMIT_CYCLES} cycles")
        self.end_cycle = self.domain.cycle
        for name, port in self.ports.items():
            assert port.monitor.counts.unanswered == 0, f"done with requests out on {name}"

    async def acknowledge(self) -> None:
        """Acknowledge interrupt and run, as the runtime does."""
        isr, ctrl = self.REGISTERS["ISR"], self.REGISTERS["CTRL"]
        pending = await self.read(isr)
        self.compare("interrupt status", pending, ISR_AP_DONE)
        await self.write(isr, pending)
        control = await self.read(ctrl)
        self.compare(
            "control after the run",
            control & (CTRL_AP_START | CTRL_AP_DONE | CTRL_AP_IDLE),
            CTRL_AP_DONE | CTRL_AP_IDLE,
        )
        await self.write(ctrl, CTRL_AP_CONTINUE)
        control = await self.read(ctrl)
        self.compare("control after continue", control, CTRL_AP_IDLE)

    async def check_result_block(self, status: IntEnum, *, report: bool) -> dict[IntEnum, int]:
        """Check status and runs, and the result block against the registers.

        Parameters
        ----------
        status
            What the run must have ended with.
        report
            Whether a result block was written; without one its region is still zero.

        Returns
        -------
        dict
            The counters.
        """
        got = await self.read(self.REGISTERS["STATUS"])
        self.compare("status", type(status)(got).name, status.name)
        self.sample(status)
        counters = await self.counters()
        self.compare("runs", counters[self.REGISTERS["RUNS"]], self.runs)
        expected = bytes(self.RESULT_BYTES)
        if report:
            words = [self.MAGIC, status, self.VERSION, *counters.values()]
            words += [0] * (self.RESULT_BYTES // 4 - len(words) - 1)
            words.append(-sum(words) & WORD)  # all words add up to zero
            expected = b"".join(word.to_bytes(4, "little") for word in words)
        self.compare("result block", self.region("result"), expected)
        return counters

    def sample(self, status: IntEnum) -> None:
        """Sample a run that has ended, and what its ports did."""
        self.coverage.ended(status.name)
        self.coverage.bursts(
            self.bursts, self.settings.parameters["BUS_WIDTH"] // 8, self.READ_PORTS
        )
        for name, port in self.ports.items():
            responder = port.responder
            self.coverage.errors(name, responder.errors_sent, responder.faults.errors.values())

    async def reset_run(self) -> None:
        """Reset in a run, and go on as after power-up."""
        started, done = bool(self.bursts), bool(int(self.dut.interrupt.value))
        self.coverage.reset(started=started, done=done)
        await self.domain.reset()
        self.after_reset()
        await self.enable_interrupt()

    def port_checksums(self, result: int, beat_bytes: int) -> dict[str, int]:
        """Add up the words of all bursts by port, from what memory holds now.

        Parameters
        ----------
        result
            Address of the result block, which does not count.
        beat_bytes
            Bytes of a beat.

        Returns
        -------
        dict
            By name of the port, with ``_write`` where it does both.
        """
        sums = dict.fromkeys(self.ports, 0)
        for burst in self.bursts:
            if result <= burst.address < result + self.RESULT_BYTES:
                continue
            name = burst.port.removeprefix("m_axi_")
            if burst.write and name in self.READ_PORTS:
                name += "_write"
            data = self.memory.read(burst.address, burst.beats * beat_bytes)
            assert data is not None, "a run that went through touched what it must not"
            words = np.frombuffer(data, np.uint32)
            sums[name] = sums[name] + checksum(words) & WORD
        return sums
