# SPDX-License-Identifier: Apache-2.0
"""Boards with the vector-add kernel, and short ways to use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastdelta.interface import KernelInterface, load_interface
from fastdelta.platforms import PLATFORMS
from fastdelta.sim.build import build_kernel
from fastdelta.sim.simulated_board import (
    BoardOptions,
    Command,
    CommandState,
    SimulatedBoard,
)

VECTOR_ADD = Path(__file__).resolve().parents[1] / "kernels" / "vector_add"


@cache
def vector_add_interface() -> KernelInterface:
    return load_interface(VECTOR_ADD)


@cache
def vector_add_library(bus_width: int, chain: bool) -> Path:
    parameters = {"BUS_WIDTH": bus_width, "CHAIN": int(chain)}
    return build_kernel(vector_add_interface(), parameters).library


# Registers and misbehaviours of the vector-add kernel.
ERRORS = 0x80
DONE_EARLY, WRONG_LAST, DROP_ADDRESS, NEVER_DONE = 1 << 0, 1 << 1, 1 << 2, 1 << 3
HALF_WIDTH, CHANGE_DATA, FIXED_BURST, EVEN_BYTES = 1 << 4, 1 << 5, 1 << 6, 1 << 7
CHUNK_BEATS = 16

INPUT_BANK, OUTPUT_BANK = 0, 1
U55C = PLATFORMS["u55c"]
A = U55C.banks[INPUT_BANK].base
B = A + (1 << 20)
SUM = U55C.banks[OUTPUT_BANK].base


@dataclass
class VectorAddBoard:
    """A board with vector-add units, and short ways to use them."""

    board: SimulatedBoard
    beat_bytes: int

    def image(
        self, beats: int, *, a: int = A, b: int = B, total: int = SUM, misbehaviour: int = 0
    ) -> list[int]:
        words = [0] * 16
        for offset, address in ((0x10, a), (0x1C, b), (0x28, total)):
            words[offset // 4] = address & 0xFFFF_FFFF
            words[offset // 4 + 1] = address >> 32
        words[0x34 // 4] = beats
        words[0x3C // 4] = misbehaviour
        return words

    def fill(self, beats: int, *, seed: int = 0, a: int = A, b: int = B) -> np.ndarray[Any, Any]:
        """Write random inputs and return their sum."""
        lanes = beats * self.beat_bytes // 4
        random = np.random.default_rng(seed)
        inputs = random.integers(-(2**31), 2**31, (2, lanes), dtype=np.int64).astype(np.int32)
        self.board.write_memory(a, inputs[0].tobytes())
        self.board.write_memory(b, inputs[1].tobytes())
        return inputs[0] + inputs[1]

    def output(self, beats: int, *, total: int = SUM) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.board.read_memory(total, beats * self.beat_bytes), np.int32)

    def run(self, beats: int, *, unit: int = 0, timeout_cycles: int = 0, **options: int) -> Command:
        """Run a command to its end and return what is known of it."""
        image = self.image(beats, **options)
        number = self.board.submit(unit, image, timeout_cycles=timeout_cycles)
        assert self.board.wait(number, 60)
        command = self.board.take(number)
        assert command is not None
        return command

    def check(self, beats: int, *, seed: int = 0) -> Command:
        """Run a correct command and check its result."""
        expected = self.fill(beats, seed=seed)
        command = self.run(beats)
        assert command.state is CommandState.COMPLETED
        np.testing.assert_array_equal(self.output(beats), expected)
        return command


MakeBoard = Callable[..., VectorAddBoard]


def changed(options: BoardOptions | None = None, **values: Any) -> BoardOptions:
    """Return options with some of them changed."""
    return replace(options or BoardOptions(), **values)


def resident_bytes() -> int:
    """Return the memory that this process holds."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux reports VmRSS")


def violations_of(board: SimulatedBoard) -> Mapping[str, int]:
    """Return how often each kind of event happened."""
    kinds = [event.kind.name for event in board.events()]
    return {kind: kinds.count(kind) for kind in kinds}
