# SPDX-License-Identifier: Apache-2.0
"""The board model with the vector-add kernel: results, timing, checks of AXI, faults, time-outs."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from vector_add_board import (
    CHANGE_DATA,
    CHUNK_BEATS,
    DONE_EARLY,
    DROP_ADDRESS,
    ERRORS,
    EVEN_BYTES,
    FIXED_BURST,
    HALF_WIDTH,
    INPUT_BANK,
    NEVER_DONE,
    OUTPUT_BANK,
    SUM,
    U55C,
    WRONG_LAST,
    A,
    B,
    MakeBoard,
    changed,
    resident_bytes,
    vector_add_interface,
    vector_add_library,
    violations_of,
)

from fastdelta.sim.build import build_kernel
from fastdelta.sim.simulated_board import (
    BoardOptions,
    CommandState,
    ComputeUnitSpec,
    EventKind,
    Fault,
    FaultKind,
    SimulatedBoard,
    SimulationError,
    Stalls,
    UnitFault,
    UnitFaultKind,
)

READ_LATENCY = BoardOptions().read_latency
WRITE_LATENCY = BoardOptions().write_latency


class TestResults:
    @pytest.mark.parametrize("beats", [1, 2, 15, 16, 17, 100])
    def test_sum_is_right(self, make_board: MakeBoard, beats: int) -> None:
        card = make_board()
        card.check(beats)
        assert card.board.events() == []

    @pytest.mark.parametrize(("bus_width", "chain"), [(64, True), (128, False)])
    def test_narrow_buses_and_plain_handshake(
        self, make_board: MakeBoard, bus_width: int, chain: bool
    ) -> None:
        card = make_board(bus_width=bus_width, chain=chain)
        assert card.board.port_bytes(0, "m_axi_in") == bus_width // 8
        for seed in range(3):
            card.check(33, seed=seed)
        assert card.board.events() == []

    def test_no_beats_change_nothing(self, make_board: MakeBoard) -> None:
        card = make_board()
        card.board.write_memory(SUM, b"\x55" * 64)
        assert card.run(0).state is CommandState.COMPLETED
        assert card.board.read_memory(SUM, 64) == b"\x55" * 64
        assert card.board.statistics(0)["m_axi_in"].read_bursts == 0

    def test_strobes_choose_bytes(self, make_board: MakeBoard) -> None:
        card = make_board()
        expected = card.fill(20).view(np.uint8).copy()
        card.board.write_memory(SUM, b"\x33" * 20 * 64)
        card.run(20, misbehaviour=EVEN_BYTES)
        expected[1::2] = 0x33
        np.testing.assert_array_equal(card.output(20).view(np.uint8), expected)
        assert card.board.statistics(0)["m_axi_out"].write_bytes == 20 * 32

    def test_commands_of_a_unit_run_in_order(self, make_board: MakeBoard) -> None:
        card = make_board(input_banks=[INPUT_BANK, OUTPUT_BANK])
        expected = card.fill(CHUNK_BEATS)
        size = CHUNK_BEATS * card.beat_bytes
        # Each command adds b to the result of the one before.
        images = [card.image(CHUNK_BEATS)] + [
            card.image(CHUNK_BEATS, a=SUM + i * size, total=SUM + (i + 1) * size) for i in range(9)
        ]
        numbers = [card.board.submit(0, image) for image in images]
        assert card.board.wait(numbers[-1], 60)
        states = {card.board.command(number).state for number in numbers}
        assert states == {CommandState.COMPLETED}
        b = np.frombuffer(card.board.read_memory(B, size), np.int32)
        last = card.output(CHUNK_BEATS, total=SUM + 9 * size)
        np.testing.assert_array_equal(last, expected + 9 * b)

    def test_two_units_run_beside_each_other(self, make_board: MakeBoard) -> None:
        card = make_board(units=2)
        expected = card.fill(4096)
        second = SUM + (1 << 24)
        numbers = [
            card.board.submit(0, card.image(4096)),
            card.board.submit(1, card.image(4096, total=second)),
        ]
        assert all(card.board.wait(number, 60) for number in numbers)
        np.testing.assert_array_equal(card.output(4096), expected)
        np.testing.assert_array_equal(card.output(4096, total=second), expected)
        cycles = {card.board.command(number).cycles for number in numbers}
        assert len(cycles) == 1


class TestTiming:
    def test_latencies_count_in_cycles(self, make_board: MakeBoard) -> None:
        card = make_board()
        base = card.check(1).cycles
        for more in (1, 100):
            card.board.configure(changed(read_latency=READ_LATENCY + more))
            assert card.check(1).cycles == base + more
            card.board.configure(changed(write_latency=WRITE_LATENCY + more))
            assert card.check(1).cycles == base + more

    def test_shortest_latencies(self, make_board: MakeBoard) -> None:
        base = make_board().check(1).cycles
        card = make_board(changed(read_latency=1, write_latency=1))
        assert card.check(1).cycles == base - (READ_LATENCY - 1) - (WRITE_LATENCY - 1)

    def test_one_beat_a_cycle(self, make_board: MakeBoard) -> None:
        card = make_board()
        # Fifteen more beats of a, of b, and of the sum.
        assert card.check(CHUNK_BEATS).cycles == card.check(1).cycles + 3 * 15

    def test_bursts_wait_when_too_many_are_outstanding(self, make_board: MakeBoard) -> None:
        card = make_board(changed(outstanding=1))
        reference = make_board().check(CHUNK_BEATS).cycles
        assert card.check(CHUNK_BEATS).cycles > reference + READ_LATENCY - CHUNK_BEATS
        statistics = card.board.statistics(0)["m_axi_in"]
        assert statistics.max_reads_outstanding == 1
        assert statistics.read_address_stalls > READ_LATENCY

    def test_cycles_do_not_depend_on_the_host(self, make_board: MakeBoard) -> None:
        card = make_board()
        quiet = card.check(2048).cycles
        reads = 0
        while not reads:  # a busy machine may let a whole run pass before this thread looks
            expected = card.fill(2048)
            number = card.board.submit(0, card.image(2048))
            while not card.board.command(number).state.ended:
                card.board.read_register(0, 0x34)
                reads += 1
            assert card.board.command(number).cycles == quiet
            np.testing.assert_array_equal(card.output(2048), expected)

    def test_an_idle_unit_stands_still(self, make_board: MakeBoard) -> None:
        card = make_board()
        card.check(16)
        before = card.board.cycles(0)
        time.sleep(0.05)
        assert card.board.cycles(0) == before
        card.board.clock(0, 123)
        assert card.board.cycles(0) == before + 123

    def test_stalls_are_random_and_repeat_with_their_seed(self, make_board: MakeBoard) -> None:
        def cycles(seed: int, probability: float) -> list[int]:
            options = changed(stalls=Stalls.uniform(probability), seed=seed)
            card = make_board(options)
            result = [card.check(64, seed=i).cycles for i in range(3)]
            assert card.board.events() == []
            return result

        first = cycles(1, 0.5)
        assert first == cycles(1, 0.5)
        assert first != cycles(2, 0.5)
        assert len(set(first)) > 1
        assert min(first) > cycles(1, 0.0)[0]

    @pytest.mark.parametrize("channel", ["ar", "r", "aw", "w", "b"])
    def test_each_channel_stalls(self, make_board: MakeBoard, channel: str) -> None:
        base = make_board().check(64).cycles
        card = make_board(changed(stalls=Stalls(**{channel: 0.9})))
        assert card.check(64).cycles > base
        assert card.board.events() == []

    def test_statistics(self, make_board: MakeBoard) -> None:
        card = make_board()
        card.check(40)
        statistics = card.board.statistics(0)
        read, write = statistics["m_axi_in"], statistics["m_axi_out"]
        assert (read.read_bursts, read.read_beats, read.read_bytes) == (6, 80, 80 * 64)
        assert (write.write_bursts, write.write_beats, write.write_bytes) == (3, 40, 40 * 64)
        assert read.write_bursts == write.read_bursts == 0
        assert read.max_reads_outstanding == 2
        card.board.clear_statistics(0)
        assert set(asdict(card.board.statistics(0)["m_axi_in"]).values()) == {0}


class TestProtocolChecks:
    @pytest.mark.parametrize(
        ("misbehaviour", "kind", "stalls"),
        [
            (DONE_EARLY, EventKind.DONE_TOO_EARLY, Stalls()),
            (WRONG_LAST, EventKind.WRONG_LAST, Stalls()),
            (HALF_WIDTH, EventKind.BURST_SIZE, Stalls()),
            (FIXED_BURST, EventKind.BURST_TYPE, Stalls()),
            (DROP_ADDRESS, EventKind.UNSTABLE_ADDRESS, Stalls(ar=0.9)),
            (CHANGE_DATA, EventKind.UNSTABLE_DATA, Stalls(w=0.9)),
        ],
    )
    def test_a_violation_is_recorded(
        self, make_board: MakeBoard, misbehaviour: int, kind: EventKind, stalls: Stalls
    ) -> None:
        card = make_board(changed(stalls=stalls))
        command = card.run(64, misbehaviour=misbehaviour)
        assert set(violations_of(card.board)) == {kind.name}
        assert command.violations == card.board.event_count
        card.board.clear_events()
        card.check(64)
        assert card.board.events() == []

    def test_a_burst_across_4_kib_is_recorded(self, make_board: MakeBoard) -> None:
        card = make_board()
        beats, beat = CHUNK_BEATS, card.beat_bytes
        # Ends on the boundary, then crosses it by one beat, then lies right behind it.
        for offset, count in ((4096 - beats * beat, 0), (4096 - (beats - 1) * beat, 1), (4096, 0)):
            card.board.clear_events()
            card.run(beats, a=A + offset)
            assert violations_of(card.board).get("CROSSES_4K", 0) == count
        card.board.clear_events()
        card.run(beats, total=SUM + 4096 - beat)
        (event,) = card.board.events()
        assert (event.port, event.direction, event.detail) == ("m_axi_out", "write", 1024)
        assert "4 KiB" in str(event)

    def test_an_unaligned_burst_is_recorded(self, make_board: MakeBoard) -> None:
        card = make_board()
        card.run(1, b=B + 4)
        assert violations_of(card.board) == {"UNALIGNED": 1}

    def test_writes_appear_with_their_response(self, make_board: MakeBoard) -> None:
        card = make_board(changed(write_latency=5000))
        expected = card.fill(16)
        card.run(16, misbehaviour=DONE_EARLY)
        assert not card.output(16).any()
        card.board.clock(0, 5000)
        np.testing.assert_array_equal(card.output(16), expected)

    def test_addresses_that_wait_for_data(self, make_board: MakeBoard) -> None:
        # The kernel offers data only after its address was accepted, which AXI forbids.
        card = make_board(changed(address_waits_for_data=True, hang_cycles=2000))
        assert card.run(16).state is CommandState.TIMED_OUT

    def test_events_are_kept_up_to_a_limit(self, make_board: MakeBoard) -> None:
        card = make_board()
        card.run(16 * 700, misbehaviour=HALF_WIDTH)
        assert card.board.event_count == 1400
        assert len(card.board.events()) == 1000


class TestMemory:
    def test_access_outside_the_connected_banks(self, make_board: MakeBoard) -> None:
        card = make_board()
        other = U55C.banks[2].base
        card.board.write_memory(other, b"\x77" * 4096)
        command = card.run(16, a=other, total=other)
        assert command.state is CommandState.COMPLETED
        assert command.outside_accesses == 2
        assert card.board.read_register(0, ERRORS) == 0b11
        assert card.board.read_memory(other, 4096) == b"\x77" * 4096
        read, write = card.board.events()
        assert (read.port, read.direction, read.address) == ("m_axi_in", "read", other)
        assert (write.port, write.direction, write.address) == ("m_axi_out", "write", other)
        assert {read.kind, write.kind} == {EventKind.OUTSIDE_BANKS}
        assert card.check(16).outside_accesses == 0
        assert card.board.read_register(0, ERRORS) == 0

    @pytest.mark.parametrize("address", [U55C.banks[-1].base + U55C.banks[-1].size, 1 << 60])
    def test_access_outside_the_card(self, make_board: MakeBoard, address: int) -> None:
        card = make_board()
        assert card.run(16, b=address).outside_accesses == 1
        assert card.board.read_register(0, ERRORS) == 0b01

    def test_the_end_of_a_bank(self, make_board: MakeBoard) -> None:
        card = make_board()
        end = U55C.banks[0].base + U55C.banks[0].size
        assert card.run(16, a=end - 1024).outside_accesses == 0
        assert card.run(17, a=end - 1024).outside_accesses == 1

    def test_the_host_cannot_leave_a_bank(self, make_board: MakeBoard) -> None:
        board = make_board().board
        end = U55C.banks[0].base + U55C.banks[0].size
        board.write_memory(end - 4, b"abcd")
        assert board.read_memory(end - 4, 4) == b"abcd"
        with pytest.raises(SimulationError, match="within one bank"):
            board.write_memory(end - 4, b"abcde")
        with pytest.raises(SimulationError, match="within one bank"):
            board.read_memory(1 << 60, 1)

    def test_unused_memory_costs_nothing(self, make_board: MakeBoard) -> None:
        before = resident_bytes()
        board = make_board().board
        last = U55C.banks[-1]
        board.write_memory(last.base + last.size - 8, b"the end.")
        assert resident_bytes() - before < 64 << 20
        assert board.read_memory(last.base + last.size - 8, 8) == b"the end."

    def test_closed_boards_leave_nothing(self, make_board: MakeBoard) -> None:
        def cycle() -> None:
            card = make_board()
            card.board.write_memory(A, bytes(8 << 20))
            card.check(64)
            card.board.close()

        for _ in range(3):
            cycle()
        before = resident_bytes()
        for _ in range(10):
            cycle()
        assert resident_bytes() - before < 8 << 20


class TestFaults:
    @pytest.mark.parametrize("kind", [FaultKind.SLVERR, FaultKind.DECERR])
    @pytest.mark.parametrize(
        ("port", "direction", "errors"), [("m_axi_in", "read", 1), ("m_axi_out", "write", 2)]
    )
    def test_error_response(
        self, make_board: MakeBoard, kind: FaultKind, port: str, direction: str, errors: int
    ) -> None:
        card = make_board()
        first = card.check(64).cycles
        card.board.write_memory(SUM, bytes(64 * 64))
        card.board.inject(0, port, Fault(kind, direction, skip=1, count=1))
        command = card.run(64)
        assert command.state is CommandState.COMPLETED
        assert card.board.read_register(0, ERRORS) == errors
        (event,) = card.board.events()
        assert (event.kind, event.detail) == (EventKind.INJECTED, kind)
        assert command.violations == command.outside_accesses == 0
        if direction == "write":  # the second chunk was not written
            assert not card.output(64).reshape(4, -1)[1].any()
        assert card.check(64).cycles == first

    def test_a_fault_hits_its_addresses_only(self, make_board: MakeBoard) -> None:
        card = make_board()
        chunk = CHUNK_BEATS * 64
        fault = Fault(FaultKind.SLVERR, "read", A + 2 * chunk + 5, A + 2 * chunk + 5)
        card.board.inject(0, "m_axi_in", fault)
        card.run(64)
        assert [event.address for event in card.board.events()] == [A + 2 * chunk]

    @pytest.mark.parametrize(("port", "direction"), [("m_axi_in", "read"), ("m_axi_out", "write")])
    def test_stuck_memory_is_noticed_and_reset_helps(
        self, make_board: MakeBoard, port: str, direction: str
    ) -> None:
        card = make_board(changed(hang_cycles=3000))
        first = card.check(64).cycles
        card.board.inject(0, port, Fault(FaultKind.STUCK, direction, skip=2))
        assert card.run(64).state is CommandState.TIMED_OUT
        assert card.board.is_hung(0)
        assert card.run(64).state is CommandState.ERROR
        card.board.clear_faults(0)
        card.board.reset(0)
        assert not card.board.is_hung(0)
        assert card.check(64, seed=1).cycles == first

    def test_stuck_memory_that_recovers(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0))
        expected = card.fill(64)
        card.board.inject(0, "m_axi_in", Fault(FaultKind.STUCK, "read"))
        number = card.board.submit(0, card.image(64))
        assert not card.board.wait(number, 0.1)
        assert card.board.command(number).state is CommandState.RUNNING
        card.board.clear_faults(0)
        assert card.board.wait(number, 60)
        assert card.board.command(number).state is CommandState.COMPLETED
        np.testing.assert_array_equal(card.output(64), expected)

    def test_time_out_in_cycles(self, make_board: MakeBoard) -> None:
        card = make_board()
        command = card.run(16, misbehaviour=NEVER_DONE, timeout_cycles=5000)
        assert command.state is CommandState.TIMED_OUT
        assert 5000 < command.cycles < 6000
        card.board.reset(0)
        card.check(16)

    def test_a_long_run_is_no_hang(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=1000))
        assert card.check(4096).cycles > 10_000

    def test_reset_aborts_commands(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0))
        first = card.check(64).cycles
        numbers = [card.board.submit(0, card.image(16, misbehaviour=NEVER_DONE)) for _ in range(3)]
        assert not card.board.wait(numbers[0], 0.05)
        assert card.board.take(numbers[0]) is None
        card.board.reset(0)
        states = [card.board.command(number).state for number in numbers]
        assert states == [CommandState.ABORTED] * 3
        taken = card.board.take(numbers[0])
        assert taken is not None
        assert taken.state is CommandState.ABORTED
        with pytest.raises(SimulationError, match="there is no command"):
            card.board.command(numbers[0])
        assert card.check(64).cycles == first

    @pytest.mark.parametrize("at", range(0, 400, 57))
    def test_reset_in_mid_run(self, make_board: MakeBoard, at: int) -> None:
        card = make_board(changed(stalls=Stalls.uniform(0.3), seed=at))
        card.fill(64)
        # Starts without a command, so that the clock can be stopped at a chosen cycle.
        for word, value in enumerate(card.image(64)):
            if word >= 4:
                card.board.write_register(0, 4 * word, value)
        card.board.write_register(0, 0, 1)
        card.board.clock(0, at)
        card.board.reset(0)
        card.board.configure(BoardOptions())
        assert card.check(64).cycles == make_board().check(64).cycles
        assert card.board.events() == []


class TestFaultsOfTheCard:
    """Each leaves a card on which the next run is as the first."""

    @pytest.mark.parametrize(("bus_width", "chain"), [(512, True), (128, False)])
    def test_a_dropped_interrupt(self, make_board: MakeBoard, bus_width: int, chain: bool) -> None:
        card = make_board(changed(hang_cycles=3000), bus_width=bus_width, chain=chain)
        first = card.check(64).cycles
        expected = card.fill(64, seed=1)
        card.board.inject_unit(0, UnitFault(UnitFaultKind.DROPPED_INTERRUPT))
        command = card.run(64)
        assert command.state is CommandState.TIMED_OUT
        assert first < command.cycles
        np.testing.assert_array_equal(card.output(64), expected)  # it was done, nobody saw it
        assert card.board.read_register(0, 0xC) == 1
        assert violations_of(card.board) == {"INJECTED": 1}
        card.board.reset(0)
        assert card.check(64, seed=2).cycles == first

    def test_a_dropped_interrupt_that_comes_late(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0))
        card.board.inject_unit(0, UnitFault(UnitFaultKind.DROPPED_INTERRUPT))
        number = card.board.submit(0, card.image(64))
        assert not card.board.wait(number, 0.1)
        card.board.clear_faults(0)
        assert card.board.wait(number, 60)
        assert card.board.command(number).state is CommandState.COMPLETED

    @pytest.mark.parametrize("beats", [0, 64])
    def test_a_stuck_kernel(self, make_board: MakeBoard, beats: int) -> None:
        card = make_board(changed(hang_cycles=3000))
        first = card.check(64).cycles
        card.board.inject_unit(0, UnitFault(UnitFaultKind.STUCK, skip=1))
        assert card.check(64).cycles == first
        command = card.run(beats)
        assert command.state is CommandState.TIMED_OUT
        assert command.violations == 0
        assert card.board.read_register(0, 0x34) == beats
        assert card.run(64).state is CommandState.ERROR
        card.board.reset(0)
        assert card.check(64, seed=1).cycles == first

    def test_a_stuck_kernel_that_goes_on(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0, stalls=Stalls.uniform(0.3)))
        expected = card.fill(64)
        card.board.inject_unit(0, UnitFault(UnitFaultKind.STUCK))
        number = card.board.submit(0, card.image(64))
        assert not card.board.wait(number, 0.1)
        card.board.clear_faults(0)
        assert card.board.wait(number, 60)
        np.testing.assert_array_equal(card.output(64), expected)
        assert violations_of(card.board) == {"INJECTED": 1}

    def test_a_dead_kernel(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=3000))
        first = card.check(64).cycles
        card.board.inject_unit(0, UnitFault(UnitFaultKind.DEAD))
        assert card.run(64).state is CommandState.TIMED_OUT
        with pytest.raises(SimulationError, match="read of register 0x034 got no answer"):
            card.board.read_register(0, 0x34)
        card.board.reset(0)
        assert card.check(64, seed=1).cycles == first

    @pytest.mark.parametrize("bit", [0, 7, 511, 512, 5555, 16 * 512 - 1])
    def test_a_flipped_bit_on_the_way(self, make_board: MakeBoard, bit: int) -> None:
        card = make_board()
        first = card.check(64).cycles
        for port, direction in (("m_axi_in", "read"), ("m_axi_out", "write")):
            expected = card.fill(64, seed=1)
            # Reads of a and b take turns.
            skip = 2 if direction == "read" else 1
            fault = Fault(FaultKind.FLIP, direction, skip=skip, count=1, bit=bit)
            card.board.inject(0, port, fault)
            assert card.run(64).cycles == first
            wrong = np.flatnonzero(card.output(64) != expected)
            assert list(wrong) == [CHUNK_BEATS * 16 + bit // 32]
            if direction == "write":
                change = card.output(64)[wrong[0]] ^ expected[wrong[0]]
                assert np.uint32(change & 0xFFFF_FFFF) == np.uint32(1 << bit % 32)
            card.board.clear_faults(0)
        card.check(64, seed=2)

    def test_a_flipped_bit_in_memory(self, make_board: MakeBoard) -> None:
        card = make_board()
        expected = card.fill(64)
        card.board.flip_bit(A + 130, 3)
        card.run(64)
        assert list(np.flatnonzero(card.output(64) != expected)) == [130 // 4]
        card.board.flip_bit(A + 130, 3)
        card.run(64)
        np.testing.assert_array_equal(card.output(64), expected)
        with pytest.raises(SimulationError, match="bits 0 to 7"):
            card.board.flip_bit(A, 8)

    def test_a_busy_card(self, make_board: MakeBoard) -> None:
        card = make_board(units=2)
        expected = card.fill(64)
        card.board.set_busy(0, True)
        assert [card.board.is_busy(unit) for unit in (0, 1)] == [True, False]
        number = card.board.submit(0, card.image(64))
        assert not card.board.wait(number, 0.1)
        assert card.board.command(number).state is CommandState.QUEUED
        assert card.run(64, unit=1).state is CommandState.COMPLETED
        card.board.set_busy(0, False)
        assert card.board.wait(number, 60)
        np.testing.assert_array_equal(card.output(64), expected)
        card.board.set_busy(0, True)
        number = card.board.submit(0, card.image(64))
        card.board.reset(0)
        assert card.board.command(number).state is CommandState.ABORTED

    def test_a_full_bank(self, make_board: MakeBoard) -> None:
        board = make_board().board
        size = U55C.banks[3].size
        assert board.allocate(3, size + 1) is None
        first = board.allocate(3, 5000)
        assert first == U55C.banks[3].base
        usage = board.usage(3)
        assert (usage.size, usage.used, usage.buffers) == (size, 8192, 1)
        assert usage.largest == size - 8192
        board.limit_bank(3, 3 * 4096)
        assert board.usage(3).largest == 4096
        assert board.allocate(3, 4097) is None
        second = board.allocate(3, 4096)
        assert board.allocate(3, 1) is None
        assert board.usage(4).largest == size
        board.limit_bank(3, None)
        for address in (first, second):
            assert address is not None
            board.free(address)
        assert board.usage(3).used == board.usage(3).buffers == 0
        assert board.allocate(3, size) == first
        for address in (0, 1 << 60):
            with pytest.raises(SimulationError, match="no buffer at"):
                board.free(address)

    def test_a_forgotten_sync(self, make_board: MakeBoard) -> None:
        card = make_board(changed(report_unwritten=True))
        a, b, total = (card.board.allocate(bank, 4096) for bank in (0, 0, 1))
        assert a is not None
        assert b is not None
        assert total is not None
        card.board.write_memory(b, bytes(4096))
        card.board.write_memory(a, bytes(100))
        command = card.run(32, a=a, b=b, total=total)
        assert command.unwritten_reads == 2
        assert [(event.kind, event.address, event.detail) for event in card.board.events()] == [
            (EventKind.UNWRITTEN, a, 14),
            (EventKind.UNWRITTEN, a + 1024, 16),
        ]
        card.board.write_memory(a, bytes(2048))
        assert card.run(32, a=a, b=b, total=total).unwritten_reads == 0
        # What a kernel has written counts as well; memory that was given back does not.
        reader = make_board(changed(report_unwritten=True), input_banks=[0, 1])
        reader.fill(64)
        reader.run(64)
        assert reader.run(64, a=SUM, b=SUM, total=SUM + 8192).unwritten_reads == 0
        card.board.free(a)
        assert card.board.allocate(0, 4096) == a
        assert card.run(32, a=a, b=b, total=total).unwritten_reads == 2

    def test_a_client_that_was_killed(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0), units=2)
        first = card.check(64).cycles
        for bank in range(3):
            card.board.allocate(bank, 10_000)
        card.board.inject_unit(0, UnitFault(UnitFaultKind.STUCK))
        numbers = [card.board.submit(0, card.image(64)) for _ in range(3)]
        assert not card.board.wait(numbers[0], 0.05)
        card.board.kill_client()
        states = [card.board.command(number).state for number in numbers]
        assert states == [CommandState.ABORTED] * 3
        assert [card.board.usage(bank).buffers for bank in range(3)] == [0, 0, 0]
        assert [card.board.is_hung(unit) for unit in (0, 1)] == [True, False]
        assert card.run(64).state is CommandState.ERROR
        card.board.reset(0)
        assert card.check(64, seed=1).cycles == first

    def test_a_process_that_is_killed(self, make_board: MakeBoard) -> None:
        program = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from vector_add_board import *\n"
            "from fastdelta.sim.simulated_board import ComputeUnitSpec\n"
            "banks = {'m_axi_in': [0], 'm_axi_out': [1]}\n"
            "unit = ComputeUnitSpec('unit', vector_add_library(512, True), banks)\n"
            "board = SimulatedBoard(U55C, [unit], BoardOptions(hang_cycles=0))\n"
            "card = VectorAddBoard(board, 64)\n"
            "card.check(64)\n"
            "board.submit(0, card.image(64, misbehaviour=NEVER_DONE))\n"
            "print('running', flush=True)\n"
            "board.wait(1, 60)\n"
        )
        first = make_board().check(64).cycles
        command = [sys.executable, "-c", program, str(Path(__file__).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"running\n"
            process.send_signal(signal.SIGKILL)
            assert process.wait(20) == -signal.SIGKILL
        assert make_board().check(64).cycles == first

    def test_unknown_faults_are_refused(self, make_board: MakeBoard) -> None:
        board = make_board().board
        with pytest.raises(SimulationError, match="no such fault"):
            board.inject_unit(0, UnitFault(UnitFaultKind.DEAD + 1))
        with pytest.raises(SimulationError, match="no memory bank 32"):
            board.allocate(32, 1)
        with pytest.raises(SimulationError, match="at least one byte"):
            board.allocate(0, 0)


class TestRegisters:
    def test_registers_are_read_and_written(self, make_board: MakeBoard) -> None:
        board = make_board().board
        board.write_register("vector_add_1", 0x10, 0xDEAD_BEEF)
        assert board.read_register("vector_add_1", 0x10) == 0xDEAD_BEEF

    def test_an_error_response_is_an_error(self, make_board: MakeBoard) -> None:
        board = make_board().board
        with pytest.raises(SimulationError, match="read of register 0x200 was answered SLVERR"):
            board.read_register(0, 0x200)
        with pytest.raises(SimulationError, match="write of register 0x200 was answered SLVERR"):
            board.write_register(0, 0x200, 1)
        assert violations_of(board) == {"REGISTER_ERROR": 2}

    def test_reads_of_control_during_a_run_are_counted(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0))
        card.board.inject(0, "m_axi_in", Fault(FaultKind.STUCK, "read"))
        number = card.board.submit(0, card.image(1))
        assert not card.board.wait(number, 0.05)
        for _ in range(3):
            card.board.read_register(0, 0)
        card.board.clear_faults(0)
        assert card.board.wait(number, 60)
        assert card.board.command(number).control_reads == 3


class TestLife:
    def test_names_are_checked(self, make_board: MakeBoard) -> None:
        board = make_board().board
        with pytest.raises(SimulationError, match=r"no compute unit other.*vector_add_1"):
            board.read_register("other", 0)
        with pytest.raises(SimulationError, match="no compute unit 7"):
            board.read_register(7, 0)
        with pytest.raises(SimulationError, match=r"no memory port m_axi_x.*m_axi_in, m_axi_out"):
            board.inject(0, "m_axi_x", Fault(FaultKind.SLVERR, "read"))
        with pytest.raises(SimulationError, match="no command 99"):
            board.wait(99, 1)

    @pytest.mark.parametrize(
        "options",
        [
            {"read_latency": 0},
            {"write_latency": -1},
            {"outstanding": 0},
            {"hang_cycles": -1},
            {"seed": -1},
            {"stalls": Stalls(w=1.5)},
        ],
    )
    def test_options_are_checked(self, options: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"must be|allowed|probability"):
            changed(**options)

    def test_a_closed_board_says_so(self, make_board: MakeBoard) -> None:
        board = make_board().board
        board.close()
        board.close()
        assert board.closed
        with pytest.raises(SimulationError, match="closed"):
            board.read_memory(0, 4)

    def test_closing_ends_waits_of_other_threads(self, make_board: MakeBoard) -> None:
        card = make_board(changed(hang_cycles=0))
        number = card.board.submit(0, card.image(16, misbehaviour=NEVER_DONE))
        ended: list[object] = []

        def wait() -> None:
            try:
                ended.append(card.board.wait(number, 60))
            except SimulationError as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        card.board.close()
        thread.join(10)
        assert not thread.is_alive()
        assert isinstance(ended[0], SimulationError)

    def test_a_board_belongs_to_its_process(self, make_board: MakeBoard) -> None:
        card = make_board()
        card.check(16)  # the unit has its thread now

        def child(results: multiprocessing.SimpleQueue[str]) -> None:
            try:
                card.board.read_memory(A, 4)
            except SimulationError as error:
                results.put(str(error))

        context = multiprocessing.get_context("fork")
        results: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
        process = context.Process(target=child, args=(results,))
        process.start()
        assert "another process" in results.get()
        process.join(20)
        assert process.exitcode == 0
        card.check(16)

    def test_a_library_that_is_no_kernel(self) -> None:
        for library in (Path("/nonexistent.so"), Path("/lib/x86_64-linux-gnu/libm.so.6")):
            with pytest.raises(SimulationError, match=r"cannot load|not a simulated kernel"):
                SimulatedBoard(U55C, [ComputeUnitSpec("unit", library, {})])

    def test_a_kernel_without_connections_reaches_no_memory(self) -> None:
        unit = ComputeUnitSpec("unit", vector_add_library(512, True), {})
        with SimulatedBoard(U55C, [unit]) as board:
            words = [0] * 16
            words[0x34 // 4] = 1
            number = board.submit("unit", words)
            assert board.wait(number, 60)
            assert board.command(number).outside_accesses == 3


class TestTraces:
    def test_waveforms_are_written(self, tmp_path: Path) -> None:
        build = build_kernel(vector_add_interface(), {"BUS_WIDTH": 64, "CHAIN": 1}, trace=True)
        unit = ComputeUnitSpec("unit", build.library, {"m_axi_in": [0], "m_axi_out": [1]})
        path = tmp_path / "unit.fst"
        with SimulatedBoard(U55C, [unit]) as board:
            board.open_trace("unit", path)
            board.clock("unit", 100)
        assert path.stat().st_size > 500

    def test_a_build_without_traces_refuses(self, make_board: MakeBoard, tmp_path: Path) -> None:
        with pytest.raises(SimulationError, match="built without traces"):
            make_board().board.open_trace(0, tmp_path / "unit.fst")
