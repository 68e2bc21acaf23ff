# SPDX-License-Identifier: Apache-2.0
"""The decode kernel on the board model, without a host: AXI, memory behaviour, stuck memory.

What the kernel computes is tested elsewhere; here its results only have to stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastdelta.decode.results import RESULT_BLOCK_BYTES
from fastdelta.interface import load_interface
from fastdelta.platforms import PLATFORMS
from fastdelta.registers.decode import Command, Register, Status
from fastdelta.shapes import SMALL_DECODE
from fastdelta.sim.build import build_kernel, rtl_parameters
from fastdelta.sim.paths import overlay_folder
from fastdelta.sim.simulated_board import (
    BoardOptions,
    CommandState,
    ComputeUnitSpec,
    Fault,
    FaultKind,
    SimulatedBoard,
    Stalls,
)

SHAPE = SMALL_DECODE
TOKENS = 24
QK, V, OUTPUT = (PLATFORMS["u55c"].banks[bank].base for bank in (0, 1, 2))
STATE = V + (1 << 20)
DUMP = OUTPUT + (1 << 20)
RESULT = OUTPUT + (2 << 20)
INTERFACE = load_interface(overlay_folder("decode"))


class DecodeUnit:
    """A board with one decode kernel and random packets in its memory."""

    def __init__(self, options: BoardOptions | None = None) -> None:
        library = build_kernel(INTERFACE, rtl_parameters(SHAPE)).library
        (connections,) = INTERFACE.connections(PLATFORMS["u55c"], 1)
        banks = {
            port: [PLATFORMS["u55c"].bank_index(tag) for tag in tags]
            for port, tags in connections.items()
        }
        unit = ComputeUnitSpec("decode_1", library, banks, INTERFACE.control)
        self.board = SimulatedBoard(PLATFORMS["u55c"], [unit], options)
        random = np.random.default_rng(5)
        self.board.write_memory(QK, self.packets(random, SHAPE.qk_heads, SHAPE.qk_packet_beats))
        self.board.write_memory(V, self.packets(random, SHAPE.value_heads, SHAPE.v_packet_beats))

    @staticmethod
    def packets(random: np.random.Generator, heads: int, beats: int) -> bytes:
        shape = (TOKENS * heads, beats * SHAPE.beat_bytes)
        data = random.integers(0, 256, shape, dtype=np.uint8)
        data[:, : SHAPE.beat_bytes] = 0  # records: exponents, gates
        return data.tobytes()

    def submit(self, command: int, *, context: int = 0, watchdog: int = 0, **pointers: int) -> int:
        """Queue a command and return its number."""
        image = [0] * (Register.WATCHDOG // 4 + 1)
        values: dict[Register, int] = {
            Register.COMMAND: command,
            Register.CONTEXT: context,
            Register.TOKENS: TOKENS,
            Register.WATCHDOG: watchdog,
        }
        addresses = {"qk": QK, "v": V, "o": OUTPUT, "result": RESULT, **pointers}
        for name, address in addresses.items():
            values[Register[f"{name.upper()}_LOW"]] = address & 0xFFFF_FFFF
            values[Register[f"{name.upper()}_HIGH"]] = address >> 32
        for register, value in values.items():
            image[register // 4] = value
        return self.board.submit(0, image)

    def run(self, command: int, **arguments: int) -> Any:
        """Run a command; return what the board knows of it and the result block."""
        number = self.submit(command, **arguments)
        assert self.board.wait(number, 60)
        block = np.frombuffer(self.board.read_memory(RESULT, RESULT_BLOCK_BYTES), np.uint32)
        return self.board.command(number), block

    def decode(self) -> bytes:
        """Clear context 0, decode, dump; return outputs and state."""
        for command, pointers in (
            (Command.CLEAR, {}),
            (Command.DECODE, {}),
            (Command.DUMP, {"o": DUMP}),
        ):
            known, block = self.run(command, **pointers)
            assert known.state is CommandState.COMPLETED
            assert block[1] == Status.OK
        return self.outputs() + self.board.read_memory(DUMP, SHAPE.state_bytes)

    def outputs(self) -> bytes:
        return self.board.read_memory(OUTPUT, TOKENS * SHAPE.o_token_bytes)


@pytest.fixture(scope="module")
def expected() -> bytes:
    unit = DecodeUnit()
    with unit.board:
        result = unit.decode()
    assert np.count_nonzero(np.frombuffer(result, np.uint8)) > len(result) // 2
    return result


@pytest.fixture
def unit() -> Iterator[DecodeUnit]:
    decode = DecodeUnit(BoardOptions(hang_cycles=20_000))
    yield decode
    decode.board.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_latency": 1, "write_latency": 1},
        {"read_latency": 500, "write_latency": 300},
        {"outstanding": 1},
        {"address_waits_for_data": True},
        *({"stalls": Stalls.uniform(0.5), "seed": seed} for seed in range(4)),
        {"stalls": Stalls.uniform(0.95), "seed": 9},
        {"stalls": Stalls(r=0.9)},
        {"stalls": Stalls(w=0.9, b=0.9), "address_waits_for_data": True, "outstanding": 2},
    ],
    ids=lambda options: "-".join(options) or "default",
)
def test_memory_does_not_change_results(options: dict[str, Any], expected: bytes) -> None:
    decode = DecodeUnit(BoardOptions(**options))
    with decode.board:
        assert decode.decode() == expected
        assert [str(event) for event in decode.board.events()] == []


def test_load_after_dump_restores_the_state(unit: DecodeUnit, expected: bytes) -> None:
    assert unit.decode() == expected
    state = unit.board.read_memory(DUMP, SHAPE.state_bytes)
    unit.board.write_memory(STATE, state)
    _, block = unit.run(Command.LOAD, context=2, v=STATE)
    assert block[1] == Status.OK
    unit.board.write_memory(DUMP, bytes(SHAPE.state_bytes))
    unit.run(Command.DUMP, context=2, o=DUMP)
    assert unit.board.read_memory(DUMP, SHAPE.state_bytes) == state
    assert unit.board.events() == []


def test_counters_agree_with_the_board(unit: DecodeUnit) -> None:
    unit.run(Command.CLEAR)
    unit.board.clear_statistics(0)
    command, block = unit.run(Command.DECODE)
    ports = unit.board.statistics(0)
    result_beats = RESULT_BLOCK_BYTES // SHAPE.beat_bytes
    assert block[9] == ports["m_axi_qk"].read_beats
    assert block[10] == ports["m_axi_v"].read_beats
    assert block[11] == ports["m_axi_o"].write_beats - result_beats
    assert ports["m_axi_o"].write_bytes == (block[11] + result_beats) * SHAPE.beat_bytes
    cycles = int(block[4]) | int(block[5]) << 32
    # The block is written, and its write answered, after the cycles in it were counted.
    assert 0 < command.cycles - cycles < 100


@pytest.mark.parametrize("port", ["m_axi_qk", "m_axi_v"])
def test_the_watchdog_ends_a_run_once_memory_answers(
    unit: DecodeUnit, port: str, expected: bytes
) -> None:
    # AXI does not let the kernel abandon a read, so it waits for the answers, and for no more.
    unit.board.configure(replace(unit.board.options, hang_cycles=0))
    unit.run(Command.CLEAR)
    unit.board.inject(0, port, Fault(FaultKind.STUCK, "read", skip=1))
    number = unit.submit(Command.DECODE, watchdog=3000)
    assert not unit.board.wait(number, 0.1)
    unit.board.clear_faults(0)
    assert unit.board.wait(number, 60)
    assert unit.board.command(number).state is CommandState.COMPLETED
    assert unit.board.read_register(0, Register.STATUS) == Status.TIMEOUT
    assert unit.decode() == expected
    assert unit.board.read_register(0, Register.STATUS) == Status.OK


def test_stuck_memory_without_a_watchdog_needs_a_reset(unit: DecodeUnit, expected: bytes) -> None:
    unit.run(Command.CLEAR)
    unit.board.inject(0, "m_axi_qk", Fault(FaultKind.STUCK, "read"))
    command, _ = unit.run(Command.DECODE)
    assert command.state is CommandState.TIMED_OUT
    unit.board.clear_faults(0)
    unit.board.reset(0)
    assert unit.decode() == expected


@pytest.mark.parametrize("kind", [FaultKind.SLVERR, FaultKind.DECERR])
@pytest.mark.parametrize(
    ("port", "direction", "status"),
    [
        ("m_axi_qk", "read", Status.READ_ERROR),
        ("m_axi_v", "read", Status.READ_ERROR),
        ("m_axi_o", "write", Status.WRITE_ERROR),
    ],
)
def test_error_responses(
    unit: DecodeUnit,
    kind: FaultKind,
    port: str,
    direction: Any,
    status: Status,
    expected: bytes,
) -> None:
    unit.run(Command.CLEAR)
    unit.board.inject(0, port, Fault(kind, direction, skip=1, count=1))
    command, block = unit.run(Command.DECODE)
    assert command.state is CommandState.COMPLETED
    assert command.violations == 0
    assert block[1] == status
    assert unit.decode() == expected


def test_a_buffer_outside_its_bank(unit: DecodeUnit, expected: bytes) -> None:
    unit.run(Command.CLEAR)
    command, block = unit.run(Command.DECODE, qk=V)
    assert block[1] == Status.READ_ERROR
    assert command.outside_accesses > 0
    assert unit.decode() == expected
