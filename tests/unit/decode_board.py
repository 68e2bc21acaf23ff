# SPDX-License-Identifier: Apache-2.0
"""A card for unit tests of the host: the bit-exact model behind the interface of a board.

Host and device memory are apart, runs end only when they are waited for, and faults can be set.
"""

from __future__ import annotations

import itertools

import numpy as np

from fastdelta.boards import BoardInfo
from fastdelta.decode.packing import pack_output, pack_state, unpack_state, unpack_tokens
from fastdelta.decode.results import RESULT_MAGIC
from fastdelta.reference.decode_model import BadStateError, DecodeModel
from fastdelta.registers.decode import (
    FLAGS_BYPASS_GATES,
    FLAGS_BYPASS_NORM,
    VERSION_VALUE,
    Command,
    Register,
    Status,
)
from fastdelta.shapes import DecodeShape

CYCLES_PER_TOKEN = 100
CYCLES_PER_RUN = 40


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
        pointers = [buffer.device_address for buffer in arguments[4:8]]
        run = ModelRun(self.board, (*arguments[:4], *pointers, arguments[8]))
        self.board.queue.append(run)
        return run

    def read_register(self, register):
        return self.board.registers[register]


class ModelBoard:
    """Attributes set by tests: what goes wrong from now on.

    ``stuck`` no run ends; ``fail_next`` status of the next run; ``silent_next`` that run writes
    no result block.
    """

    def __init__(self, shape: DecodeShape, name: str = "model") -> None:
        self.shape = shape
        self.info = BoardInfo(name=name, simulated=True, versions={"model": "1"})
        self.buffers = {}
        self.addresses = itertools.count(1)
        self.transfers = self.resets = 0
        self.closed = self.stuck = self.silent_next = False
        self.refuse_start = self.fail_copies_back = self.reset_fails = False
        self.fail_next = self.scheduler_failure = None
        self.load()

    def load(self):
        shape = self.shape
        self.kernel = ModelKernel(self)
        self.model = DecodeModel(shape)
        self.lost = [False] * shape.contexts
        self.runs = 0
        self.queue = []
        self.registers = dict.fromkeys(Register, 0)
        self.registers[Register.VERSION] = VERSION_VALUE
        self.registers[Register.SHAPE0] = int.from_bytes(
            bytes([shape.head_dim, shape.qk_heads, shape.group_ratio, shape.h_iter]), "little"
        )
        self.registers[Register.SHAPE1] = shape.contexts | shape.bus_width << 16

    def allocate(self, argument, nbytes):
        assert argument in ("qk", "v", "o"), "result blocks lie in the output buffer"
        root = next(self.addresses) << 32
        buffer = np.random.default_rng(root).integers(0, 256, nbytes, np.uint8).view(HostBuffer)
        buffer.board, buffer.root, buffer.device_address = self, root, root
        self.buffers[root] = np.full(nbytes, 0xA5, np.uint8)
        return buffer

    def memory(self, address, nbytes):
        root = address >> 32 << 32
        part = self.buffers[root][address - root : address - root + nbytes]
        assert part.size == nbytes, "access beyond the end of a buffer"
        return part

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

    def execute(self, command, context, tokens, flags, qk, v, o, result, _watchdog):
        shape, model = self.shape, self.model
        self.runs += 1
        status, self.fail_next = self.fail_next or Status.OK, None
        saturations = norm_overflows = 0
        if status == Status.OK and command in (Command.DECODE, Command.DUMP) and self.lost[context]:
            status = Status.CONTEXT_LOST
        if status != Status.OK:
            tokens = 0
            kept = command == Command.DUMP or status in (
                Status.BAD_COMMAND,
                Status.BAD_CONTEXT,
                Status.BAD_TOKENS,
                Status.BAD_ADDRESS,
            )
            self.lost[context] |= not kept
        elif command == Command.DECODE:
            wire = unpack_tokens(
                shape,
                self.memory(qk, tokens * shape.qk_token_bytes),
                self.memory(v, tokens * shape.v_token_bytes),
                normalised=bool(flags & FLAGS_BYPASS_NORM),
                given_gates=bool(flags & FLAGS_BYPASS_GATES),
            )
            words, counts = model.decode(wire, context)
            self.memory(o, tokens * shape.o_token_bytes)[:] = pack_output(shape, words)
            saturations, norm_overflows = counts.saturations, counts.norm_overflows
        elif command == Command.CLEAR:
            model.clear(context)
            self.lost[context] = False
        elif command == Command.LOAD:
            try:
                counts = model.load(unpack_state(shape, self.memory(v, shape.state_bytes)), context)
                saturations = counts.saturations
                self.lost[context] = False
            except BadStateError:
                status = Status.BAD_STATE
                self.lost[context] = True
        elif command == Command.DUMP:
            image, counts = model.dump(context)
            self.memory(o, shape.state_bytes)[:] = pack_state(shape, image)
            saturations = counts.saturations
        self.registers[Register.STATUS] = int(status)
        silent, self.silent_next = self.silent_next, False
        if status != Status.TIMEOUT and not silent:
            cycles = CYCLES_PER_RUN + CYCLES_PER_TOKEN * tokens
            words = [RESULT_MAGIC, status, VERSION_VALUE, tokens, cycles, 0, saturations]
            words += [norm_overflows, 1, 2, 3, 4, 5, 6, sum(self.lost), self.runs]
            self.memory(result, 64)[:] = np.array(words, np.uint32).view(np.uint8)
