# SPDX-License-Identifier: Apache-2.0
"""Tests of axi_read_mover: the stream is the memory's content, and the port keeps the rules."""

from __future__ import annotations

import cocotb
import pyuvm
from cocotb.triggers import Timer

from fastdelta_verif.agents.axi4_memory import DECERR, SLVERR, Faults, ReadMemoryAgent, read_bus
from fastdelta_verif.agents.axi_stream import StreamBeat, StreamSinkAgent, stream_bus
from fastdelta_verif.cells.movers import BASE, SPAN, MoverTest, expected_bursts
from fastdelta_verif.covergroups.cells import READ_MOVER

READ_LATENCY = 128  # cycles that the mover must cover


class ReadMoverTest(MoverTest):
    """Memory, mover, sink."""

    COVERAGE = READ_MOVER

    def build_agents(self) -> None:
        """Create the agents."""
        dut, domain = self.dut, self.domain
        self.port = ReadMemoryAgent(
            "port", self, read_bus(dut, "m_axi"), domain, self.memory, self.new_rng()
        )
        self.sink = StreamSinkAgent("sink", self, stream_bus(dut, "m_axis"), domain, self.new_rng())
        self.expected = self.scoreboard.queue("expected beats")
        self.cycles: list[int] = []
        self.received: list[int] = []

    def connect_phase(self) -> None:
        """Connect monitors."""
        self.scoreboard.subscribe(self.port.monitor.port, self.bursts.append)
        self.scoreboard.subscribe(self.sink.monitor.port, self.came_out)
        self.coverage.watch("stream", self.sink.monitor.rhythm)
        for channel, rhythm in self.port.monitor.rhythms.items():
            self.coverage.watch(channel, rhythm)

    def came_out(self, beat: StreamBeat) -> None:
        """Compare a beat; None stands for one whose data is worthless."""
        assert self.expected, f"beat 0x{beat.data:x} came out, but none was asked for"
        data = self.expected.popleft()
        if data is not None:
            self.scoreboard.compare("beat", beat.data, data)
        self.cycles.append(beat.cycle)
        self.received.append(beat.data)

    def content(self, address: int, beats: int) -> list[int]:
        """Return the memory's beats."""
        size = self.beat_bytes
        data = self.region.data[address - BASE :][: beats * size]
        return [
            int.from_bytes(data[place : place + size], "little")
            for place in range(0, len(data), size)
        ]

    def stall(self, *, memory: str, sink: str, latency: tuple[int, int] = (2, 20)) -> None:
        """Set the behaviour of both sides."""
        self.port.throttle(memory)
        self.port.responder.faults = Faults(latency=latency)
        self.sink.driver.throttle.mode = sink
        self.coverage.hit("stalls", (memory, sink))
        self.coverage.latency(latency[1])

    def stall_at_random(self) -> None:
        """Set the behaviour of both sides."""
        longest = self.rng.choice([3, 20, 100])
        self.stall(memory=self.random_mode(), sink=self.random_mode(), latency=(0, longest))

    async def transfer(self, address: int, beats: int) -> None:
        """Run one transfer: content, bursts, counters, and idle only after the last beat."""
        self.expected.extend(self.content(address, beats))
        await self.command(address, beats)
        await self.idle()
        assert not self.expected, "idle before the last beat"
        self.check_counters(address, beats)

    async def set_cancel(self) -> None:
        """Assert cancel; the stream may fall silent with it."""
        self.dut.cancel.value = 1
        await Timer(1, unit="ns")
        self.sink.monitor._checker.forget()
        self.expected.clear()


@pyuvm.test(timeout_time=10, timeout_unit="ms")
class random_transfers(ReadMoverTest):
    """Random ranges with random stalls and latencies, one after the other."""

    async def scenario(self) -> None:
        """Run the transfers."""
        for _ in range(self.settings.options["transfers"]):
            self.stall_at_random()
            await self.transfer(*self.random_transfer())


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class page_split(ReadMoverTest):
    """Bursts end at pages, also when a range jumps over one or ends on one."""

    async def scenario(self) -> None:
        """Run the cases."""
        self.stall(memory="none", sink="none")
        await self.split_at_pages()


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class zero_length(ReadMoverTest):
    """A command of no beats asks memory for nothing and is over in the next cycle."""

    async def scenario(self) -> None:
        """Give such commands between others."""
        self.stall(memory="none", sink="none")
        for beats in (0, 3, 0, 0, 1):
            self.expected.extend(self.content(BASE, beats))
            await self.command(BASE, beats)
            if beats == 0:
                await self.domain.edge
                assert not self.dut.busy.value
                await self.domain.cycles(30)
            await self.idle()
            self.check_counters(BASE, beats)


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class full_rate(ReadMoverTest):
    """One beat a cycle from the first to the last in spite of a long latency; a quick start."""

    async def scenario(self) -> None:
        """Read pages on end."""
        self.stall(memory="none", sink="none", latency=(READ_LATENCY, READ_LATENCY))
        beats = min(SPAN // self.beat_bytes, 1000)
        self.expected.extend(self.content(BASE, beats))
        await self.command(BASE, beats)
        await self.idle()
        assert self.cycles[-1] - self.cycles[0] == beats - 1, "the stream had gaps"
        self.coverage.hit("rate", "one command")
        requested = self.bursts[0].cycle
        assert requested - self.command_cycle <= 2, "the first request came late"
        # Data needs the memory's latency and two cycles more.
        assert self.cycles[0] - requested <= READ_LATENCY + 3
        self.check_counters(BASE, beats)


@pyuvm.test(timeout_time=10, timeout_unit="ms")
class queued_commands(ReadMoverTest):
    """Commands that follow each other: one stream in their order, counted together."""

    async def scenario(self) -> None:
        """Give several, then one to an idle mover."""
        for _ in range(20):
            self.stall_at_random()
            transfers = self.random_queue()
            for transfer in transfers:
                self.expected.extend(self.content(*transfer))
            await self.commands(transfers)
            await self.idle()
            assert not self.expected, "idle before the last beat"
            self.check_all_counters(transfers)
            await self.transfer(*self.random_transfer(60))


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class queued_rate(ReadMoverTest):
    """Commands of few beats that follow each other stream without a gap."""

    async def scenario(self) -> None:
        """Read blocks of 2 beats and more, back and forth."""
        latency = self.settings.options["latency"]
        self.stall(memory="none", sink="none", latency=(latency, latency))
        step = self.beat_bytes
        sizes = [2, 2, 2, 17, 9, 33, 2, 66, 130, 5, 262, 2, 2, 64] * 3
        places = [self.rng.randrange(0, SPAN // step - 300) * step for _ in sizes]
        # Bursts that a page cuts to one beat cost more cycles than they move.
        places = [place & ~0xFFF | 2 * step for place in places]
        transfers = [(BASE + place, beats) for place, beats in zip(places, sizes, strict=True)]
        for transfer in transfers:
            self.expected.extend(self.content(*transfer))
        await self.commands(transfers)
        await self.idle()
        gaps = self.cycles[-1] - self.cycles[0] - (sum(sizes) - 1)
        self.scoreboard.compare("idle cycles of the stream", gaps, 0)
        self.coverage.hit("rate", "commands in a row")
        self.check_all_counters(transfers)


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class blocked_sink(ReadMoverTest):
    """A sink that takes nothing never blocks the memory: no more is asked for than has room."""

    async def scenario(self) -> None:
        """Block for long, then go on."""
        dut, room = self.dut, self.settings.parameters["FIFO_BEATS"]
        self.stall(memory="none", sink="none")
        self.sink.driver.throttle.willing = lambda: False
        beats = min(SPAN // self.beat_bytes, 3 * room)
        self.expected.extend(self.content(BASE, beats))
        await self.command(BASE, beats)
        for _ in range(3 * room + 300):
            await self.domain.edge
            assert dut.m_axi_rready.value, "RREADY fell"
        asked = sum(burst.beats for burst in self.bursts)
        assert room - self.max_burst < asked <= room, f"{asked} beats for room of {room}"
        self.coverage.hit("blocked", "sink that takes nothing")
        del self.sink.driver.throttle.willing
        await self.idle()
        self.check_counters(BASE, beats)


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class error_answers(ReadMoverTest):
    """SLVERR and DECERR set the flag, the transfer goes to its end, the next one is clean."""

    async def scenario(self) -> None:
        """Alternate faulty and clean transfers."""
        for response in (SLVERR, DECERR) * 10:
            self.stall_at_random()
            address, beats = self.random_transfer(100)
            content = self.content(address, beats)
            for bad in self.rng.sample(range(beats), min(beats, 2)):
                self.port.responder.faults.errors[address + bad * self.beat_bytes] = response
                content[bad] = None
                self.coverage.error(response, bad, beats)
            self.expected.extend(content)
            await self.command(address, beats)
            await self.idle()
            self.check_counters(address, beats, error=beats > 0)
            self.stall_at_random()
            await self.transfer(*self.random_transfer(100))


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class cancelled(ReadMoverTest):
    """A transfer cancelled at any cycle ends when memory has answered; the next one is whole."""

    async def scenario(self) -> None:
        """Cancel at random cycles, for one cycle or until idle."""
        dut = self.dut
        for round_ in range(60):
            self.stall_at_random()
            address, beats = self.random_transfer()
            self.expected.extend(self.content(address, beats))
            await self.command(address, beats)
            await self.domain.cycles(self.rng.randint(0, 90))
            started = "with bursts" if self.bursts else "no burst yet"
            self.coverage.hit("cancel", ("one cycle" if round_ % 2 else "until idle", started))
            await self.set_cancel()
            await self.domain.edge
            busy = dut.busy.value
            if round_ % 2:
                dut.cancel.value = 0
            while busy:
                assert not dut.m_axis_tvalid.value, "the stream goes on"
                assert not dut.s_cmd_ready.value, "a command would be taken"
                await self.domain.edge
                busy = dut.busy.value
            assert self.port.monitor.counts.unanswered == 0, "idle with requests out"
            dut.cancel.value = 0
            possible = expected_bursts(address, beats, self.beat_bytes, self.max_burst)
            asked = [(burst.address, burst.beats) for burst in self.bursts]
            self.scoreboard.compare("bursts", asked, possible[: len(asked)])
            self.bursts.clear()
            await self.transfer(*self.random_transfer())


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class reset_in_transfer(ReadMoverTest):
    """After a reset in mid-burst a run is equal to a first run, beats and bursts."""

    async def scenario(self) -> None:
        """Reset at random cycles."""
        probe = (BASE + 0x1000 - 3 * self.beat_bytes, 2 * self.max_burst + 9)
        runs = []
        for _ in range(25):
            self.stall(memory="none", sink="none", latency=(5, 5))
            self.received.clear()
            start = len(self.cycles)
            await self.transfer(*probe)
            cycles = [cycle - self.command_cycle for cycle in self.cycles[start:]]
            runs.append((list(self.received), cycles))
            self.scoreboard.compare("run after reset", runs[-1], runs[0])
            self.stall_at_random()
            transfer = self.random_transfer()
            self.expected.extend(self.content(*transfer))
            runner = cocotb.start_soon(self.command(*transfer))
            await self.domain.cycles(self.rng.randint(1, 100))
            self.coverage.hit("reset", "with bursts" if self.bursts else "no burst yet")
            runner.cancel()
            self.dut.s_cmd_valid.value = 0
            await self.interrupt_reset()
            self.expected.clear()
