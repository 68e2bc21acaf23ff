# SPDX-License-Identifier: Apache-2.0
"""What the benches of the AXI4 movers share: commands, expected bursts, and the cases to split."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import cocotb

from fastdelta_verif.agents.axi4_memory import PAGE_BYTES, Burst, Memory
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.coverage import CoverageModel
from fastdelta_verif.covergroups.cells import MoverCoverage
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

BASE = 0x7_FFFF_E000  # so that the upper half of an address is seen, and a carry into it
SPAN = 1 << 16
IDLE_LIMIT_CYCLES = 20_000


def expected_bursts(
    address: int, beats: int, beat_bytes: int, max_burst: int
) -> list[tuple[int, int]]:
    """Return address and beats of each burst of a transfer, beat after beat.

    A burst ends when it is full or when the next beat is in another page.
    """
    bursts: list[tuple[int, int]] = []
    for beat in range(address, address + beats * beat_bytes, beat_bytes):
        if not bursts or bursts[-1][1] == max_burst or beat % PAGE_BYTES == 0:
            bursts.append((beat, 0))
        bursts[-1] = (bursts[-1][0], bursts[-1][1] + 1)
    return bursts


def split_cases(beat_bytes: int) -> list[tuple[int, int]]:
    """Return transfers (offset in bytes, beats) around a page boundary.

    For 4-byte beats these are 0x0FFC to 0x1004 with 1 to 9 beats, 8,192 bytes from 0x0010, which
    jumps over a whole page, and 0x100 bytes from 0x0F00, which ends on a page and needs no split.
    """
    near = [PAGE_BYTES + step * beat_bytes for step in (-1, 0, 1)]
    cases = [(offset, beats) for offset in near for beats in range(1, 10)]
    cases.append((max(0x10, beat_bytes), 8192 // beat_bytes))
    cases.append((0xF00, 0x100 // beat_bytes))
    return cases


class MoverTest(ScenarioTest):
    """Base of the tests of a mover: clock, memory, command port.

    Attributes
    ----------
    COVERAGE
        What the tests of this mover are to reach.
    """

    COVERAGE: ClassVar[CoverageModel]
    idle_inputs = ("rst_n", "cancel", "s_cmd_valid", "s_cmd_address", "s_cmd_beats")

    def build_phase(self) -> None:
        """Create what both movers need; :meth:`build_agents` creates the rest."""
        self.settings = Settings.current()
        self.rng = random.Random(self.settings.seed)
        self.dut: Any = cocotb.top
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        self.memory = Memory()
        self.region = self.memory.add("range", BASE, self.rng.randbytes(SPAN))
        self.beat_bytes = self.settings.parameters["DATA_WIDTH"] // 8
        self.max_burst = self.settings.parameters["MAX_BURST"]
        self.bursts: list[Burst] = []
        self.command_cycle = 0
        self.scoreboard = Scoreboard("scoreboard", self)
        self.coverage = MoverCoverage("coverage", self, self.COVERAGE)
        self.coverage.simulator()
        self.coverage.hit("width", self.settings.parameters["DATA_WIDTH"])
        self.build_agents()

    def build_agents(self) -> None:
        """Create the agents of the memory port and the stream."""
        raise NotImplementedError

    def new_rng(self) -> random.Random:
        """Return a source of randomness for one agent."""
        return random.Random(self.rng.random())

    def random_transfer(self, most_beats: int = 300) -> tuple[int, int]:
        """Return address and beats inside the region, often near a page boundary."""
        beats = self.rng.choice([0, 1, 2, self.rng.randint(1, 20), self.rng.randint(1, most_beats)])
        last = SPAN // self.beat_bytes - beats
        place = self.rng.randint(0, last)
        if self.rng.random() < 0.5:
            pages = self.rng.randint(1, SPAN // PAGE_BYTES - 1) * PAGE_BYTES // self.beat_bytes
            place = min(last, max(0, pages - self.rng.randint(0, beats + 1)))
        return BASE + place * self.beat_bytes, beats

    def random_mode(self) -> str:
        """Return a mode of stalls."""
        return self.rng.choice(THROTTLES)

    def finish(self) -> None:
        """Look at what the memory found wrong."""
        assert not self.memory.violations, self.memory.violations

    async def command(self, address: int, beats: int) -> None:
        """Give a command and wait until it is taken."""
        dut = self.dut
        dut.s_cmd_address.value, dut.s_cmd_beats.value = address, beats
        dut.s_cmd_valid.value = 1
        await self.domain.edge
        busy = dut.busy.value
        while not dut.s_cmd_ready.value:
            await self.domain.edge
        self.command_cycle = self.domain.cycle
        self.coverage.hit("command", "in a row" if busy else "to an idle mover")
        dut.s_cmd_valid.value = 0
        dut.s_cmd_address.value = self.rng.getrandbits(64)
        dut.s_cmd_beats.value = self.rng.getrandbits(32)

    async def idle(self) -> None:
        """Wait until the mover is not busy; values are those of the first idle cycle."""
        for _ in range(IDLE_LIMIT_CYCLES):
            await self.domain.edge
            if not self.dut.busy.value:
                return
        raise AssertionError(f"busy for {IDLE_LIMIT_CYCLES} cycles")

    def check_counters(self, address: int, beats: int, *, error: bool = False) -> None:
        """Compare bursts and counters with those that the transfer must have."""
        self.check_all_counters([(address, beats)], error=error)

    def check_all_counters(self, transfers: list[tuple[int, int]], *, error: bool = False) -> None:
        """Compare bursts and counters with those that transfers without a pause must have."""
        expected = []
        for address, beats in transfers:
            bursts = expected_bursts(address, beats, self.beat_bytes, self.max_burst)
            self.coverage.transfer(address, beats, self.beat_bytes, len(bursts))
            expected += bursts
        for burst in self.bursts:
            self.coverage.burst(burst, self.max_burst)
        compare = self.scoreboard.compare
        compare("bursts", [(b.address, b.beats) for b in self.bursts], expected)
        compare("burst counter", int(self.dut.bursts.value), len(expected))
        compare("beat counter", int(self.dut.beats.value), sum(beats for _, beats in transfers))
        compare("error", int(self.dut.error.value), int(error))
        self.bursts.clear()

    def random_queue(self) -> list[tuple[int, int]]:
        """Return transfers for commands that follow each other; no two of no beats in a row.

        So the mover cannot be idle between them, where its counters would start anew.
        """
        queue: list[tuple[int, int]] = []
        while len(queue) < 8:
            transfer = self.random_transfer(60)
            if transfer[1] or (queue and queue[-1][1]):
                queue.append(transfer)
        return queue

    async def commands(self, transfers: list[tuple[int, int]]) -> None:
        """Give commands without waiting until the mover is idle."""
        for transfer in transfers:
            await self.command(*transfer)

    async def interrupt_reset(self) -> None:
        """Reset and forget what was asked for."""
        await self.domain.reset()
        await self.domain.cycles(2)
        self.bursts.clear()

    async def split_at_pages(self) -> None:
        """Run every case of :func:`split_cases`."""
        for offset, beats in split_cases(self.beat_bytes):
            await self.transfer(BASE + offset, beats)

    async def transfer(self, address: int, beats: int) -> None:
        """Run one transfer and check everything about it."""
        raise NotImplementedError
