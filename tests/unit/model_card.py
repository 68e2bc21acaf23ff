# SPDX-License-Identifier: Apache-2.0
"""What cards for unit tests of the host share: memory, runs, and faults that tests set.

Host and device memory are apart, and runs end only when they are waited for.
"""

from __future__ import annotations

import itertools

import numpy as np

from fastdelta.boards import BoardInfo
from fastdelta.errors import BankFullError
from fastdelta.sensors import SensorReading


class HostBuffer(np.ndarray):
    """Host copy; slices know where they are on the card."""

    def __array_finalize__(self, parent):
        self.board = getattr(parent, "board", None)
        self.root = getattr(parent, "root", None)
        start = getattr(parent, "device_address", None)
        if start is not None:
            start += self.ctypes.data - parent.ctypes.data
        self.device_address = start

    def sync_to_device(self):
        if self.board.fail_copies_to:
            raise RuntimeError("Flush Failed: 4294967291")
        self.board.transfers += 1
        self.board.memory(self.device_address, self.nbytes)[:] = np.asarray(self)

    def sync_from_device(self):
        if self.board.fail_copies_back:
            raise RuntimeError("Invalidate Failed: 4294967291")
        self.board.transfers += 1
        np.asarray(self)[:] = self.board.memory(self.device_address, self.nbytes)

    def freebuffer(self):
        del self.board.buffers[self.root]


class ModelRun:
    def __init__(self, board, arguments):
        self.board = board
        self.arguments = arguments
        self.ended = False
        self.failure = None

    def wait(self, _seconds):
        board = self.board
        if not self.ended and not board.stuck:
            assert board.queue.pop(0) is self, "runs end in order"
            board.execute(*self.arguments)
            self.ended = True
            self.failure = board.scheduler_failure
        return self.ended


class ModelKernel:
    """The kernel's registers; `launch` as the driver has it."""

    def __init__(self, board):
        self.board = board

    def launch(self, *arguments):
        if self.board.refuse_start:
            raise RuntimeError("Buffer submit failed: -22")
        addresses = [getattr(argument, "device_address", argument) for argument in arguments]
        run = ModelRun(self.board, addresses)
        self.board.queue.append(run)
        return run

    def read_register(self, register):
        return self.board.registers[register]


class ModelCard:
    """Attributes set by tests: what goes wrong from now on.

    ``stuck`` no run ends; ``fail_next`` status of the next run; ``silent_next`` that run writes
    no result block; ``banks`` bytes of the bank of an argument, where it matters; ``reading`` what
    the sensors say.
    """

    arguments: tuple[str, ...]

    def __init__(self, name: str = "model") -> None:
        self.info = BoardInfo(name=name, simulated=True, versions={"model": "1"})
        self.buffers = {}
        self.banks = {}
        self.addresses = itertools.count(1)
        self.transfers = self.resets = 0
        self.closed = self.stuck = self.silent_next = False
        self.refuse_start = self.fail_copies_back = self.fail_copies_to = self.reset_fails = False
        self.fail_next = self.scheduler_failure = None
        self.owners = {}
        self.reading = SensorReading()
        self.load()

    def load(self):
        """Bring the kernel to its state after loading."""
        self.kernel = ModelKernel(self)
        self.runs = 0
        self.queue = []

    def allocate(self, argument, nbytes):
        assert argument in self.arguments, "result blocks lie in the output buffer"
        if argument in self.banks:
            used = sum(
                self.buffers[root].size
                for root, owner in self.owners.items()
                if owner == argument and root in self.buffers
            )
            if used + nbytes > self.banks[argument]:
                raise BankFullError(f"bank of {argument} has no room for the {nbytes:,} bytes")
        root = next(self.addresses) << 32
        buffer = np.random.default_rng(root).integers(0, 256, nbytes, np.uint8).view(HostBuffer)
        buffer.board, buffer.root, buffer.device_address = self, root, root
        self.buffers[root] = np.full(nbytes, 0xA5, np.uint8)
        self.owners[root] = argument
        return buffer

    def memory(self, address, nbytes):
        root = address >> 32 << 32
        part = self.buffers[root][address - root : address - root + nbytes]
        assert part.size == nbytes, "access beyond the end of a buffer"
        return part

    def sensors(self):
        return self.reading

    def reset(self):
        assert not self.buffers, "buffers are freed before a reset"
        self.resets += 1
        if self.reset_fails:
            raise RuntimeError("Programming Device failed: EBUSY (-16)")
        self.stuck = False
        self.load()

    def close(self):
        assert not self.buffers, "buffers are freed before the card"
        self.closed = True
