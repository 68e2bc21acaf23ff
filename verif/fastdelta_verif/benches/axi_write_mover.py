# SPDX-License-Identifier: Apache-2.0
"""Tests of axi_write_mover: memory holds the stream, and the port keeps the rules."""

from __future__ import annotations

import cocotb
import pyuvm
from cocotb.triggers import Timer

from fastdelta_verif.agents.axi4_memory import DECERR, SLVERR, Faults, WriteMemoryAgent, write_bus
from fastdelta_verif.agents.axi_stream import (
    StreamBeat,
    StreamSequence,
    StreamSourceAgent,
    stream_bus,
)
from fastdelta_verif.cells.movers import BASE, SPAN, MoverTest, expected_bursts
from fastdelta_verif.covergroups.cells import WRITE_MOVER

LATE_ANSWER = 200  # cycles


class WriteMoverTest(MoverTest):
    """Source, mover, memory."""

    COVERAGE = WRITE_MOVER

    def build_agents(self) -> None:
        """Create the agents."""
        dut, domain = self.dut, self.domain
        self.port = WriteMemoryAgent(
            "port", self, write_bus(dut, "m_axi"), domain, self.memory, self.new_rng()
        )
        self.source = StreamSourceAgent(
            "source", self, stream_bus(dut, "s_axis"), domain, self.new_rng()
        )
        self.written = bytearray(self.region.data)  # what memory must hold
        self.took: list[StreamBeat] = []

    def connect_phase(self) -> None:
        """Connect monitors."""
        self.scoreboard.subscribe(self.port.monitor.port, self.bursts.append)
        self.scoreboard.subscribe(self.source.monitor.port, self.took.append)
        self.coverage.watch("stream", self.source.monitor.rhythm)
        for channel, rhythm in self.port.monitor.rhythms.items():
            self.coverage.watch(channel, rhythm)

    def data(self, beats: int) -> list[int]:
        """Return random beats."""
        return [self.rng.getrandbits(8 * self.beat_bytes) for _ in range(beats)]

    def stall(
        self,
        *,
        memory: str,
        source: str,
        latency: tuple[int, int] = (2, 20),
        aw_order: str = "any",
    ) -> None:
        """Set the behaviour of both sides."""
        self.port.throttle(memory)
        self.port.responder.faults = Faults(latency=latency, aw_order=aw_order)
        self.source.driver.throttle.mode = source
        self.coverage.hit("stalls", (memory, source))
        self.coverage.latency(latency[1])
        self.coverage.hit("order", aw_order)

    def stall_at_random(self) -> None:
        """Set the behaviour of both sides."""
        self.stall(
            memory=self.random_mode(),
            source=self.random_mode(),
            latency=(0, self.rng.choice([3, 20, 100])),
            aw_order=self.rng.choice(["any", "aw_after_w", "w_after_aw"]),
        )

    async def send(self, beats: list[int]) -> None:
        """Offer beats and wait until all are taken."""
        if beats:
            await StreamSequence("beats", [beats]).start(self.source.sequencer)

    def expect(self, address: int, data: list[int]) -> None:
        """Put beats where memory must hold them."""
        for place, beat in enumerate(data):
            start = address - BASE + place * self.beat_bytes
            self.written[start : start + self.beat_bytes] = beat.to_bytes(self.beat_bytes, "little")

    def check_memory(self) -> None:
        """Compare all of the memory, also what no transfer may touch."""
        self.scoreboard.comparisons += 1
        if self.region.data != self.written:
            place = next(
                place
                for place, (got, expected) in enumerate(
                    zip(self.region.data, self.written, strict=True)
                )
                if got != expected
            )
            raise AssertionError(f"memory differs at {BASE + place:#x}")

    async def transfer(self, address: int, beats: int) -> None:
        """Run one transfer: memory and answers when it is idle, bursts, counters.

        Data may come before the command or after it.
        """
        data = self.data(beats)
        self.expect(address, data)
        sender = cocotb.start_soon(self.send(data))
        early = self.rng.random() < 0.5
        if early:
            await self.domain.cycles(self.rng.randint(1, 100))
        self.coverage.hit("data", f"{'before' if early else 'after'} its command")
        await self.command(address, beats)
        await self.idle()
        self.check_memory()
        assert self.port.monitor.counts.unanswered == 0, "idle before the last answer"
        await sender
        self.check_counters(address, beats)


@pyuvm.test(timeout_time=10, timeout_unit="ms")
class random_transfers(WriteMoverTest):
    """Random ranges with random stalls, latencies and orders of AW and W, one after the other."""

    async def scenario(self) -> None:
        """Run the transfers."""
        for _ in range(self.settings.options["transfers"]):
            self.stall_at_random()
            await self.transfer(*self.random_transfer())


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class page_split(WriteMoverTest):
    """Bursts end at pages, also when a range jumps over one or ends on one."""

    async def scenario(self) -> None:
        """Run the cases."""
        self.stall(memory="none", source="none")
        await self.split_at_pages()


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class zero_length(WriteMoverTest):
    """A command of no beats writes nothing, takes no data and is over in the next cycle."""

    async def scenario(self) -> None:
        """Give such commands between others, with the next one's data waiting."""
        self.stall(memory="none", source="none")
        for beats in (0, 3, 0, 0, 1):
            data = self.data(beats)
            self.expect(BASE, data)
            if beats == 0:
                await self.command(BASE, beats)
                await self.domain.edge
                assert not self.dut.busy.value
                await self.domain.cycles(30)
            else:
                await self.send(data)
                await self.command(BASE, beats)
            await self.idle()
            self.check_memory()
            self.check_counters(BASE, beats)


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class full_rate(WriteMoverTest):
    """One beat a cycle from the first to the last in spite of late answers; a quick start."""

    async def scenario(self) -> None:
        """Write pages on end."""
        self.stall(memory="none", source="none", latency=(128, 128))
        beats = min(SPAN // self.beat_bytes, 1000)
        data = self.data(beats)
        self.expect(BASE, data)
        sender = cocotb.start_soon(self.send(data))
        await self.command(BASE, beats)
        await sender
        await self.idle()
        requested = self.bursts[0].cycle
        assert requested - self.command_cycle <= 2, "the first request came late"
        last_beat = self.port.monitor.counts.last_beat_cycle
        assert last_beat - requested <= beats + 3, "the data had gaps"
        self.coverage.hit("rate", "one command")
        self.check_memory()
        self.check_counters(BASE, beats)


@pyuvm.test(timeout_time=10, timeout_unit="ms")
class queued_commands(WriteMoverTest):
    """Commands that follow each other take the stream in their order and are counted together."""

    async def scenario(self) -> None:
        """Give several, then one to an idle mover."""
        for _ in range(20):
            self.stall_at_random()
            transfers = self.random_queue()
            beats = []
            for transfer in transfers:
                data = self.data(transfer[1])
                self.expect(transfer[0], data)
                beats += data
            sender = cocotb.start_soon(self.send(beats))
            await self.commands(transfers)
            await self.idle()
            await sender
            self.check_memory()
            assert self.port.monitor.counts.unanswered == 0, "idle before the last answer"
            self.check_all_counters(transfers)
            await self.transfer(*self.random_transfer(60))


@pyuvm.test(timeout_time=1, timeout_unit="ms")
class queued_rate(WriteMoverTest):
    """Commands that follow each other take one beat a cycle in spite of late answers."""

    async def scenario(self) -> None:
        """Write blocks on end."""
        latency = self.settings.options["latency"]
        self.stall(memory="none", source="none", latency=(latency, latency))
        step, count, size = self.beat_bytes, 12, 64
        transfers = [(BASE + index * size * step, size) for index in reversed(range(count))]
        data = self.data(count * size)
        for index, (address, beats) in enumerate(transfers):
            self.expect(address, data[index * beats : (index + 1) * beats])
        sender = cocotb.start_soon(self.send(data))
        await self.commands(transfers)
        await sender
        await self.idle()
        cycles = self.port.monitor.counts.last_beat_cycle - self.bursts[0].cycle
        assert cycles <= count * size + 3, f"{count * size} beats took {cycles} cycles"
        self.coverage.hit("rate", "commands in a row")
        self.check_memory()
        self.check_all_counters(transfers)


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class late_answers(WriteMoverTest):
    """Idle only after the last answer, which comes 200 cycles late; memory is complete then."""

    async def scenario(self) -> None:
        """Write with late answers."""
        self.stall(memory="none", source="none", latency=(LATE_ANSWER, LATE_ANSWER))
        for beats in (1, 5, self.max_burst, self.max_burst + 1):
            await self.transfer(BASE + 0x800, beats)
            counts = self.port.monitor.counts
            assert counts.last_answer_cycle - counts.last_beat_cycle >= LATE_ANSWER
            assert self.domain.cycle >= counts.last_answer_cycle
            self.coverage.hit(
                "late_answer", "one burst" if counts.answers == 1 else "several bursts"
            )


@pyuvm.test(timeout_time=2, timeout_unit="ms")
class forbidden_waits(WriteMoverTest):
    """No channel waits for the other: memories that take AW only with W, or W only after AW."""

    async def scenario(self) -> None:
        """Write with each order."""
        for aw_order in ("aw_after_w", "w_after_aw"):
            for memory in ("none", "heavy"):
                self.stall(memory=memory, source="none", aw_order=aw_order)
                for beats in (1, 2, self.max_burst, 3 * self.max_burst + 2):
                    await self.transfer(BASE + 0x1000 - 2 * self.beat_bytes, beats)


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class error_answers(WriteMoverTest):
    """SLVERR and DECERR set the flag, the transfer goes to its end, the next one is clean."""

    async def scenario(self) -> None:
        """Alternate faulty and clean transfers."""
        for response in (SLVERR, DECERR) * 10:
            self.stall_at_random()
            address, beats = self.random_transfer(100)
            data = self.data(beats)
            if beats:
                beat = self.rng.randrange(beats)
                bad = address + beat * self.beat_bytes
                self.coverage.error(response, beat, beats)
                self.port.responder.faults.errors[bad] = response
                # A burst with an error answer is not written by this memory.
                place = address
                for start, length in expected_bursts(
                    address, beats, self.beat_bytes, self.max_burst
                ):
                    end = start + length * self.beat_bytes
                    first = (start - place) // self.beat_bytes
                    if not start <= bad < end:
                        self.expect(start, data[first : first + length])
            sender = cocotb.start_soon(self.send(data))
            await self.command(address, beats)
            await self.idle()
            await sender
            self.check_memory()
            self.check_counters(address, beats, error=beats > 0)
            self.stall_at_random()
            await self.transfer(*self.random_transfer(100))


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class cancelled(WriteMoverTest):
    """A transfer cancelled at any cycle completes its bursts without writing; the next is whole."""

    async def scenario(self) -> None:
        """Cancel at random cycles, for one cycle or until idle, with data or without."""
        dut = self.dut
        for round_ in range(60):
            self.stall_at_random()
            counts = self.port.monitor.counts
            counts.clear()
            address, beats = self.random_transfer()
            data = self.data(beats)
            missing = self.rng.randint(0, beats)
            sender = cocotb.start_soon(self.send(data[: beats - missing]))
            await self.command(address, beats)
            await self.domain.cycles(self.rng.randint(0, 90))
            started = "with bursts" if self.bursts else "no burst yet"
            self.coverage.hit("cancel", ("one cycle" if round_ % 2 else "until idle", started))
            dut.cancel.value = 1
            await Timer(1, unit="ns")
            self.source.driver.abort()
            await self.domain.edge
            busy = dut.busy.value
            await Timer(1, unit="ns")
            self.source.monitor._checker.forget()  # the source withdrew what it offered
            if round_ % 2:
                dut.cancel.value = 0
            while busy:
                assert not dut.s_cmd_ready.value, "a command would be taken"
                await self.domain.edge
                busy = dut.busy.value
            assert counts.unanswered == 0, "idle with bursts out"
            dut.cancel.value = 1  # what the source still had in hand is dropped
            await sender
            await self.domain.cycles(2)
            dut.cancel.value = 0
            possible = expected_bursts(address, beats, self.beat_bytes, self.max_burst)
            asked = [(burst.address, burst.beats) for burst in self.bursts]
            self.scoreboard.compare("bursts", asked, possible[: len(asked)])
            self.scoreboard.compare("beats", counts.beats, sum(length for _, length in asked))
            taken = counts.beats - counts.null_beats
            self.scoreboard.compare("beat counter", int(dut.beats.value), taken)
            self.expect(address, data[:taken])
            self.check_memory()
            self.bursts.clear()
            await self.transfer(*self.random_transfer())


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class reset_in_transfer(WriteMoverTest):
    """After a reset in mid-burst a run is equal to a first run, bursts and cycles."""

    async def scenario(self) -> None:
        """Reset at random cycles."""
        probe = (BASE + 0x1000 - 3 * self.beat_bytes, 2 * self.max_burst + 9)
        runs = []
        for _ in range(25):
            self.stall(memory="none", source="none", latency=(5, 5))
            data = self.data(probe[1])
            self.expect(probe[0], data)
            sender = cocotb.start_soon(self.send(data))
            await self.command(*probe)
            await self.idle()
            await sender
            self.check_memory()
            runs.append(
                [(b.address, b.beats, b.cycle - self.command_cycle) for b in self.bursts]
                + [self.domain.cycle - self.command_cycle]
            )
            self.scoreboard.compare("run after reset", runs[-1], runs[0])
            self.check_counters(*probe)

            self.stall_at_random()
            address, beats = self.random_transfer()
            sender = cocotb.start_soon(self.send(self.data(beats)))
            runner = cocotb.start_soon(self.command(address, beats))
            await self.domain.cycles(self.rng.randint(1, 100))
            self.coverage.hit("reset", "with bursts" if self.bursts else "no burst yet")
            runner.cancel()
            self.dut.s_cmd_valid.value = 0
            self.source.driver.abort()
            await self.interrupt_reset()
            await sender
            await self.domain.reset()
            # The memory has taken whole bursts only; any of them is a legal outcome.
            self.written[:] = self.region.data
