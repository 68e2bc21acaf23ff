# SPDX-License-Identifier: Apache-2.0
"""Runs of the decode kernel: buffers, and the verdict on each run.

The queue knows which contexts a failed run has cost, so that nobody decodes on with a wrong state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, Words, checksum
from fastdelta.boards import Board, DeviceBuffer, Kernel, Run
from fastdelta.decode.results import (
    NO_COUNTERS,
    RESULT_BLOCK_BYTES,
    RESULT_MAGIC,
    ResultBlock,
    status_name,
)
from fastdelta.decode.token_packer import PacketViews
from fastdelta.errors import (
    Aftermath,
    BoardError,
    ContextLostError,
    KernelError,
    KernelStatusError,
    MemoryFaultError,
)
from fastdelta.registers.decode import STATUS_CODE, Command, Register, Status
from fastdelta.results import Seconds
from fastdelta.runs import BUFFER_SETS, WAIT_SLICE, Call, Invocation, RunQueue

OUTPUT_OFFSET = 4096  # bytes; the result block lies before the output, each on its own page

_SMALLEST_BUFFER = 4096  # bytes; also what a command points to that does not use the pointer
_MOST_VIEWS = 64  # kept for reuse


class ContextState(Enum):
    """What the host knows of the state of a context."""

    CLEARED = "cleared"
    RESIDENT = "resident"
    LOST = "lost"


@dataclass
class RunViews:
    """The parts of a buffer set that one run uses: on the card, and their host copies.

    ``packets`` and ``output`` are the host copies of inputs and output as `decode` fills and reads
    them, once it has.
    """

    qk: DeviceBuffer
    v: DeviceBuffer
    o: DeviceBuffer
    returned: DeviceBuffer  # result block and output, copied back together
    qk_host: Bytes
    v_host: Bytes
    o_host: Bytes
    block_host: Bytes
    qk_words: Words
    v_words: Words
    o_words: Words
    packets: PacketViews | None = None
    output: npt.NDArray[np.int32] | None = None


class BufferSet:
    """Buffers of one run in flight; they grow when a run needs more.

    Attributes
    ----------
    runs_seen : int
        Run number in the last result block taken from this set: a block with the same number is
        an old one, as the kernel wrote none.
    """

    def __init__(self, board: Board[Any]) -> None:
        self._board = board
        self._buffers: dict[str, DeviceBuffer] = {}
        self._capacity: dict[str, int] = {}
        self._views: dict[tuple[int, int, int], RunViews] = {}
        self.runs_seen = 0

    def views(self, qk: int, v: int, o: int) -> RunViews:
        """Return buffers of these sizes in bytes; `o` is without the result block before it."""
        key = (qk, v, o)
        cached = self._views.get(key)
        if cached is None:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            self._reserve(key)
            cached = self._views[key] = self._make_views(*key)
        return cached

    def _reserve(self, sizes: tuple[int, int, int]) -> None:
        for name, size in zip(("qk", "v", "o"), sizes, strict=True):
            if name in self._buffers and size <= self._capacity[name]:
                continue
            self._views.clear()
            if name in self._buffers:
                self._buffers.pop(name).freebuffer()
            capacity = max(size, _SMALLEST_BUFFER)
            offset = OUTPUT_OFFSET if name == "o" else 0
            buffer = self._board.allocate(name, offset + capacity)
            self._buffers[name], self._capacity[name] = buffer, capacity
            if name == "o":
                # A block that an earlier program left in this memory must not pass for a new one.
                np.asarray(buffer)[:RESULT_BLOCK_BYTES] = 0
                buffer[:RESULT_BLOCK_BYTES].sync_to_device()
                self.runs_seen = 0

    def _make_views(self, qk: int, v: int, o: int) -> RunViews:
        qk_buffer, v_buffer, o_buffer = (self._buffers[name] for name in ("qk", "v", "o"))
        qk_host, v_host = np.asarray(qk_buffer)[:qk], np.asarray(v_buffer)[:v]
        returned_host = np.asarray(o_buffer)
        o_host = returned_host[OUTPUT_OFFSET : OUTPUT_OFFSET + o]
        return RunViews(
            qk=qk_buffer[: qk or _SMALLEST_BUFFER],
            v=v_buffer[: v or _SMALLEST_BUFFER],
            o=o_buffer[OUTPUT_OFFSET:],
            returned=o_buffer[: OUTPUT_OFFSET + o if o else RESULT_BLOCK_BYTES],
            qk_host=qk_host,
            v_host=v_host,
            o_host=o_host,
            block_host=returned_host[:RESULT_BLOCK_BYTES],
            qk_words=qk_host.view(np.uint32),
            v_words=v_host.view(np.uint32),
            o_words=o_host.view(np.uint32),
        )

    def forget_packets(self) -> None:
        """Take note that something else than packets of tokens is written into the buffers."""
        for views in self._views.values():
            views.packets = None

    def free(self) -> None:
        """Give the memory back; the next run allocates anew."""
        self._views.clear()
        for name in tuple(self._buffers):
            self._buffers.pop(name).freebuffer()


class DecodeCall(Call):
    """One call of the caller to a context."""

    def __init__(self, command: Command, context: int) -> None:
        super().__init__()
        self.command = command
        self.context = context
        self.tokens = 0
        self.counters = NO_COUNTERS

    def add(self, block: ResultBlock, seconds: Seconds) -> None:
        """Add what a good run returned."""
        self.tokens += block.tokens_done
        self.cycles += block.cycles
        first = not self.invocations  # by far most calls are one run
        self.counters = block.counters if first else self.counters + block.counters
        self.seconds = seconds if first else self.seconds + seconds
        self.invocations += 1

    def report_fields(self) -> dict[str, Any]:
        """Return the fields of a `fastdelta.decode.results.RunReport` that the call knows."""
        return {
            "command": self.command.name.lower(),
            "context": self.context,
            "tokens": self.tokens,
            "invocations": self.invocations,
            "kernel_cycles": self.cycles,
            "counters": self.counters,
            "seconds": self.seconds,
        }


@dataclass(slots=True)  # not frozen: that costs as much as all else in making one
class RunRequest:
    """What one run shall do.

    ``qk``, ``v`` and ``o`` are bytes to copy to the card and back; ``fill`` writes the inputs
    into the host copies, ``unpack`` takes the output from its host copy.
    """

    tokens: int = 0
    flags: int = 0
    watchdog: int = 0
    qk: int = 0
    v: int = 0
    o: int = 0
    fill: Callable[[RunViews], None] | None = None
    unpack: Callable[[RunViews], None] | None = None


@dataclass
class DecodeInvocation(Invocation):
    """One run in flight, with its buffers and the seconds spent so far."""

    call: DecodeCall
    request: RunRequest
    buffers: BufferSet
    views: RunViews
    prepare: float
    copy: float
    written: tuple[int, int]  # checksums of the inputs


class DecodeKernel(Kernel, Protocol):
    """The decode kernel on a card."""

    def launch(
        self,
        command: int,
        context: int,
        tokens: int,
        flags: int,
        qk: DeviceBuffer,
        v: DeviceBuffer,
        o: DeviceBuffer,
        result: DeviceBuffer,
        watchdog: int,
    ) -> Run:
        """Start a run with the arguments of docs/decode_engine.md."""


class DecodeQueue(RunQueue[DecodeKernel, DecodeInvocation]):
    """The runs in flight of one decode kernel, oldest first.

    Parameters
    ----------
    board : Board
        Card with the kernel.
    contexts : int
        Contexts of the kernel; all count as lost until they are cleared.
    timeout : float
        Seconds that the oldest run may take.

    Attributes
    ----------
    states : list of ContextState
        State of each context after the runs that have been collected.
    last_call : DecodeCall or None
        The call that ended last.
    """

    diagnostic_registers = tuple(register for register in Register if register > Register.ISR)

    def __init__(self, board: Board[DecodeKernel], contexts: int, timeout: float) -> None:
        super().__init__(board, timeout)
        self.states = [ContextState.LOST] * contexts
        self.last_call: DecodeCall | None = None
        self._idle = [BufferSet(board) for _ in range(BUFFER_SETS)]

    def launch(self, call: DecodeCall, request: RunRequest) -> None:
        """Fill a buffer set, copy it to the card and start a run.

        Waits for the oldest run if no buffer set is idle; a call that has failed by then gets no
        further run.

        Raises
        ------
        ContextLostError
            If the run needs the state of a context that is lost.
        BoardError
            If the card refuses memory, a copy or the start: no state was changed.
        """
        while not self._idle:
            self.pump(WAIT_SLICE)
        if call.error is not None:
            return
        self._require_working_card()
        needs_state = call.command in (Command.DECODE, Command.DUMP)
        if needs_state and self.states[call.context] is ContextState.LOST:
            raise ContextLostError(
                f"{call.command.name.lower()} on {self.board_name} was not started.",
                context=call.context,
                aftermath=Aftermath.CONTEXT_LOST,
            )
        buffers = self._idle.pop()
        try:
            began = time.perf_counter()
            views = buffers.views(request.qk, request.v, request.o)
            if call.command is Command.LOAD:
                buffers.forget_packets()
            if request.fill is not None:
                request.fill(views)
            written = checksum(views.qk_words), checksum(views.v_words)
            filled = time.perf_counter()
            if request.qk:
                views.qk.sync_to_device()
            if request.v:
                views.v.sync_to_device()
            copied = time.perf_counter()
            run = self._board.kernel.launch(
                int(call.command),
                call.context,
                request.tokens,
                request.flags,
                views.qk,
                views.v,
                views.o,
                views.returned,
                request.watchdog,
            )
        except RuntimeError as error:
            self._idle.append(buffers)
            raise BoardError(
                f"{self.board_name} refused a copy or a start ({error}); this run changed no "
                "state. Close the accelerator and open it again"
            ) from error
        except BaseException:
            self._idle.append(buffers)
            raise
        name = call.command.name.lower()
        self._put(
            DecodeInvocation(
                call=call,
                description=f"{name} of {request.tokens} tokens" if name == "decode" else name,
                run=run,
                started=copied,
                request=request,
                buffers=buffers,
                views=views,
                prepare=filled - began,
                copy=copied - filled,
                written=written,
            )
        )

    def free_buffers(self) -> None:
        """Free every buffer; runs in flight must not be needed any more."""
        for buffers in (*self._idle, *(invocation.buffers for invocation in self._in_flight)):
            buffers.free()

    def _forget(self, invocations: Iterable[DecodeInvocation]) -> None:
        self._idle += [invocation.buffers for invocation in invocations]
        self.states = [ContextState.LOST] * len(self.states)

    def _reset_error(
        self, kind: type[KernelError], message: str, invocation: DecodeInvocation
    ) -> KernelError:
        return kind(message, context=invocation.call.context, aftermath=Aftermath.ALL_CONTEXTS_LOST)

    def _collect(self, invocation: DecodeInvocation) -> None:
        """Take over the results of a run that has ended."""
        call = invocation.call
        state = ContextState.LOST  # until the results are in
        ended = time.perf_counter()
        try:
            error = self._take_results(invocation, ended)
            if error is not None:
                call.fail(error)
            if error is not None and error.aftermath is Aftermath.UNTOUCHED:
                state = self.states[call.context]
            elif error is None and call.command is Command.CLEAR:
                state = ContextState.CLEARED
            elif error is None and (call.command is Command.LOAD or invocation.request.tokens):
                state = ContextState.RESIDENT
            elif error is None:
                state = self.states[call.context]
        finally:
            self.states[call.context] = state
            self._idle.append(invocation.buffers)
            call.pending -= 1
            if call.finished:
                self.last_call = call

    def _take_results(self, invocation: DecodeInvocation, ended: float) -> KernelError | None:
        call, views = invocation.call, invocation.views
        try:
            views.returned.sync_from_device()
        except RuntimeError as cause:
            return KernelStatusError(
                self._copy_error(invocation, cause),
                context=call.context,
                aftermath=Aftermath.CONTEXT_LOST,
            )
        copied = time.perf_counter()
        block = ResultBlock.parse(views.block_host)
        error = self._failure(invocation, block) or self._memory_fault(invocation, block)
        if error is not None:
            return error
        if invocation.request.unpack is not None:
            invocation.request.unpack(views)
        call.add(
            block,
            Seconds(
                prepare=invocation.prepare + time.perf_counter() - copied,
                copy=invocation.copy + copied - ended,
                launch=ended - invocation.started,
            ),
        )
        return None

    @staticmethod
    def _did_nothing(command: Command, block: ResultBlock) -> bool:
        """Whether the rest of the block bears out that a command was refused.

        A status that memory has changed must not pass for a refusal. A clear leaves no traces.
        """
        counters = block.counters
        moved = counters.qk_beats or counters.v_beats or counters.o_beats
        return command is not Command.CLEAR and not block.tokens_done and not moved

    def _memory_fault(self, invocation: DecodeInvocation, block: ResultBlock) -> KernelError | None:
        """Compare what the kernel read with what was written, and the output with its own."""
        command, context = invocation.call.command, invocation.call.context
        qk, v, o = block.checksums
        if (qk, v) != invocation.written:
            message = self._input_error(invocation, "v" if qk == invocation.written[0] else "qk")
        elif o != checksum(invocation.views.o_words):
            message = self._output_error(invocation, "the output")
            if command is Command.DUMP:
                return MemoryFaultError(message, context=context, aftermath=Aftermath.UNTOUCHED)
        else:
            return None
        return MemoryFaultError(message, context=context, aftermath=Aftermath.CONTEXT_LOST)

    def _failure(self, invocation: DecodeInvocation, block: ResultBlock) -> KernelError | None:
        """Judge an ended run by its result block, or without one by the status register."""
        buffers, call = invocation.buffers, invocation.call
        if not block.intact:
            return MemoryFaultError(
                self._output_error(invocation, "the result block"),
                context=call.context,
                aftermath=Aftermath.CONTEXT_LOST,
            )
        fresh = block.magic == RESULT_MAGIC and block.runs != buffers.runs_seen
        if fresh:
            buffers.runs_seen = block.runs
            code = block.status
            if code == Status.OK and block.tokens_done == invocation.request.tokens:
                return None
        else:
            code = self._board.kernel.read_register(Register.STATUS) & STATUS_CODE
        what = f"{invocation.description} on {self.board_name}"
        progress = f" after {block.tokens_done} tokens" if fresh else ""
        ended = f"{what} ended{progress} with {status_name(code)}"
        aftermath = Aftermath.CONTEXT_LOST
        kind: type[KernelError] = KernelStatusError
        common = self._status_error(ended, status_name(code), invocation.request.watchdog)
        if common is not None:
            kind, text = common
            if call.command is Command.DUMP and code == Status.WRITE_ERROR:
                aftermath = Aftermath.UNTOUCHED
        elif code == Status.CONTEXT_LOST:
            kind = ContextLostError
            text = f"{ended}: an earlier run on it failed."
        elif code == Status.BAD_STATE:
            text = f"{ended}: a scale of the image is out of range. Load one from dump_state."
        elif fresh and code == Status.OK:
            text = f"{what} left a result block that states {block.tokens_done} tokens."
        elif code == Status.OK:
            text = f"{what} ended without writing a result block. {self._diagnosis()}"
        else:
            if not fresh or self._did_nothing(call.command, block):
                aftermath = Aftermath.UNTOUCHED
            text = (
                f"{ended}: the kernel refused a command of this host. {self._diagnosis()} Load an "
                "overlay built from the same release."
            )
        return kind(text, context=call.context, aftermath=aftermath)
