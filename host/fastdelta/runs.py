# SPDX-License-Identifier: Apache-2.0
"""Runs of the decode kernel in flight: buffers, order, time-outs, and the verdict on each run.

The queue knows which contexts a failed run has cost, so that nobody decodes on with a wrong state.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from fastdelta.arrays import Bytes
from fastdelta.boards import Board, DeviceBuffer, Run
from fastdelta.errors import (
    Aftermath,
    AxiError,
    BoardError,
    CardResetError,
    ContextLostError,
    FastdeltaError,
    KernelError,
    KernelStatusError,
    KernelTimeoutError,
)
from fastdelta.registers.decode import STATUS_CODE, Command, Register, Status
from fastdelta.results import (
    RESULT_BLOCK_BYTES,
    RESULT_MAGIC,
    KernelCounters,
    ResultBlock,
    Seconds,
    status_name,
)

BUFFER_SETS = 2  # one is packed or unpacked while the kernel works on the other
OUTPUT_OFFSET = 4096  # bytes; the result block lies before the output, each on its own page
WAIT_SLICE = 0.02  # seconds of waiting at a stretch, after which other threads get their turn

_SMALLEST_BUFFER = 4096  # bytes; also what a command points to that does not use the pointer
_MOST_VIEWS = 64  # kept for reuse
_DIAGNOSTIC_REGISTERS = tuple(register for register in Register if register > Register.ISR)


class ContextState(Enum):
    """What the host knows of the state of a context."""

    CLEARED = "cleared"
    RESIDENT = "resident"
    LOST = "lost"


@dataclass(frozen=True)
class RunViews:
    """The parts of a buffer set that one run uses: on the card, and their host copies."""

    qk: DeviceBuffer
    v: DeviceBuffer
    o: DeviceBuffer
    returned: DeviceBuffer  # result block and output, copied back together
    qk_host: Bytes
    v_host: Bytes
    o_host: Bytes
    block_host: Bytes


class BufferSet:
    """Buffers of one run in flight; they grow when a run needs more.

    Attributes
    ----------
    runs_seen : int
        Run number in the last result block taken from this set: a block with the same number is
        an old one, as the kernel wrote none.
    """

    def __init__(self, board: Board) -> None:
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
        o_host = np.asarray(o_buffer)
        return RunViews(
            qk=qk_buffer[: qk or _SMALLEST_BUFFER],
            v=v_buffer[: v or _SMALLEST_BUFFER],
            o=o_buffer[OUTPUT_OFFSET:],
            returned=o_buffer[: OUTPUT_OFFSET + o if o else RESULT_BLOCK_BYTES],
            qk_host=np.asarray(qk_buffer)[:qk],
            v_host=np.asarray(v_buffer)[:v],
            o_host=o_host[OUTPUT_OFFSET : OUTPUT_OFFSET + o],
            block_host=o_host[:RESULT_BLOCK_BYTES],
        )

    def free(self) -> None:
        """Give the memory back; the next run allocates anew."""
        self._views.clear()
        for name in tuple(self._buffers):
            self._buffers.pop(name).freebuffer()


class Call:
    """One call of the caller: runs of the kernel, and what they returned so far.

    Attributes
    ----------
    launching : bool
        More runs are to be launched.
    error : KernelError or None
        The first failure.
    """

    def __init__(self, command: Command, context: int) -> None:
        self.command = command
        self.context = context
        self.launching = True
        self.pending = 0
        self.error: KernelError | None = None
        self.tokens = 0
        self.invocations = 0
        self.cycles = 0
        self.counters = KernelCounters()
        self.seconds = Seconds()

    @property
    def finished(self) -> bool:
        """Whether all of its runs have ended."""
        return not self.launching and self.pending == 0

    def add(self, block: ResultBlock, seconds: Seconds) -> None:
        """Add what a good run returned."""
        self.tokens += block.tokens_done
        self.invocations += 1
        self.cycles += block.cycles
        self.counters += block.counters
        self.seconds += seconds

    def fail(self, error: KernelError) -> None:
        """Note a failure; the first one counts."""
        if self.error is None:
            self.error = error

    def report_fields(self) -> dict[str, Any]:
        """Return the fields of a `fastdelta.results.RunReport` that the call knows."""
        return {
            "command": self.command.name.lower(),
            "context": self.context,
            "tokens": self.tokens,
            "invocations": self.invocations,
            "kernel_cycles": self.cycles,
            "counters": self.counters,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
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
    unpack: Callable[[Bytes], None] | None = None


@dataclass(frozen=True)
class _Invocation:
    """One run in flight."""

    call: Call
    request: RunRequest
    buffers: BufferSet
    views: RunViews
    run: Run
    started: float
    prepare: float
    copy: float

    @property
    def description(self) -> str:
        name = self.call.command.name.lower()
        return f"{name} of {self.request.tokens} tokens" if name == "decode" else name


class RunQueue:
    """The runs in flight of one kernel, oldest first.

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
    lock : RLock
        Held by whoever changes the queue.
    states : list of ContextState
        State of each context after the runs that have been collected.
    broken : str or None
        Why the card cannot be used any more.
    """

    def __init__(self, board: Board, contexts: int, timeout: float) -> None:
        self.lock = threading.RLock()
        self.states = [ContextState.LOST] * contexts
        self.broken: str | None = None
        self.timeout = timeout
        self.last_call: Call | None = None
        self._board = board
        self._idle = [BufferSet(board) for _ in range(BUFFER_SETS)]
        self._in_flight: deque[_Invocation] = deque()
        self._oldest_since = 0.0

    @property
    def board_name(self) -> str:
        """Name of the card, for messages."""
        return self._board.info.name

    def launch(self, call: Call, request: RunRequest) -> None:
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
        if self.broken is not None:
            raise BoardError(self.broken)
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
            if request.fill is not None:
                request.fill(views)
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
        if not self._in_flight:
            self._oldest_since = time.monotonic()
        call.pending += 1
        self._in_flight.append(
            _Invocation(call, request, buffers, views, run, copied, filled - began, copied - filled)
        )

    def advance(self, call: Call) -> bool:
        """Collect what has ended, without waiting, and say whether the call has."""
        with self.lock:
            while not call.finished and self.pump(0.0):
                pass
            return call.finished

    def wait(self, call: Call, timeout: float | None = None) -> None:
        """Wait for a call, by default as long as each run may take."""
        deadline = 0.0 if timeout is None else time.monotonic() + timeout
        while True:
            with self.lock:  # taken anew for each slice, so that other threads get their turn
                if call.finished:
                    return
                if timeout is None:
                    self.pump(WAIT_SLICE)
                    continue
                left = deadline - time.monotonic()
                if not self.pump(min(max(left, 0.0), WAIT_SLICE)) and left <= 0:
                    self._time_out(timeout)

    def drain(self) -> None:
        """Collect every run in flight."""
        while self._in_flight:
            self.pump(WAIT_SLICE)

    def free_buffers(self) -> None:
        """Free every buffer; runs in flight must not be needed any more."""
        for buffers in (*self._idle, *(invocation.buffers for invocation in self._in_flight)):
            buffers.free()

    def pump(self, seconds: float) -> bool:
        """Wait for the oldest run, but no longer than `seconds`; collect it if it has ended."""
        if not self._in_flight:
            return False
        oldest = self._in_flight[0]
        if oldest.run.wait(seconds):
            failure = oldest.run.failure
            if failure is None:
                self._collect(self._in_flight.popleft())
            else:
                kind = KernelTimeoutError if "hangs" in failure else KernelStatusError
                self._give_up(kind, f"was given up by the card's scheduler: {failure}")
            self._oldest_since = time.monotonic()
            return True
        if time.monotonic() - self._oldest_since > self.timeout:
            self._time_out(self.timeout)
        return False

    def _collect(self, invocation: _Invocation) -> None:
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

    def _take_results(self, invocation: _Invocation, ended: float) -> KernelError | None:
        call, views = invocation.call, invocation.views
        try:
            views.returned.sync_from_device()
        except RuntimeError as cause:
            return KernelStatusError(
                f"{self.board_name} could not copy the results of {invocation.description} back "
                f"({cause}).",
                context=call.context,
                aftermath=Aftermath.CONTEXT_LOST,
            )
        copied = time.perf_counter()
        block = ResultBlock.parse(views.block_host)
        error = self._failure(invocation, block)
        if error is not None:
            return error
        if invocation.request.unpack is not None:
            invocation.request.unpack(views.o_host)
        call.add(
            block,
            Seconds(
                prepare=invocation.prepare + time.perf_counter() - copied,
                copy=invocation.copy + copied - ended,
                launch=ended - invocation.started,
            ),
        )
        return None

    def _failure(self, invocation: _Invocation, block: ResultBlock) -> KernelError | None:
        """Judge an ended run by its result block, or without one by the status register."""
        buffers, call = invocation.buffers, invocation.call
        fresh = block.magic == RESULT_MAGIC and block.runs != buffers.runs_seen
        if fresh:
            buffers.runs_seen = block.runs
            code = block.status
            if code == Status.OK:
                return None
        else:
            code = self._board.kernel.read_register(Register.STATUS) & STATUS_CODE
        what = f"{invocation.description} on {self.board_name}"
        progress = f" after {block.tokens_done} tokens" if fresh else ""
        ended = f"{what} ended{progress} with {status_name(code)}"
        aftermath = Aftermath.CONTEXT_LOST
        kind: type[KernelError] = KernelStatusError
        if code in (Status.READ_ERROR, Status.WRITE_ERROR):
            kind = AxiError
            text = (
                f"{ended}: the memory answered an access of the kernel with an error. Check the "
                "card's memory and the bank connections of the overlay."
            )
            if call.command is Command.DUMP and code == Status.WRITE_ERROR:
                aftermath = Aftermath.UNTOUCHED
        elif code == Status.TIMEOUT:
            kind = KernelTimeoutError
            text = (
                f"{ended}: the kernel's watchdog gave it up after {invocation.request.watchdog} "
                f"cycles. {self._diagnosis()} If the memory is only slow, raise watchdog_cycles."
            )
        elif code == Status.CONTEXT_LOST:
            kind = ContextLostError
            text = f"{ended}: an earlier run on it failed."
        elif code == Status.BAD_STATE:
            text = f"{ended}: a scale of the image is out of range. Load one from dump_state."
        elif code == Status.OK:
            text = f"{what} ended without writing a result block. {self._diagnosis()}"
        else:
            aftermath = Aftermath.UNTOUCHED
            text = (
                f"{ended}: the kernel refused a command of this host. {self._diagnosis()} Load an "
                "overlay built from the same release."
            )
        return kind(text, context=call.context, aftermath=aftermath)

    def _diagnosis(self) -> str:
        """Return registers and counters in one sentence, as far as they can be read."""
        try:
            read = self._board.kernel.read_register
            values = [f"{register.name}={read(register):#x}" for register in _DIAGNOSTIC_REGISTERS]
        except RuntimeError as error:
            return f"The registers cannot be read ({error})."
        return f"Registers: {', '.join(values)}."

    def _time_out(self, timeout: float) -> None:
        self._give_up(KernelTimeoutError, f"did not end within {timeout:g} s")

    def _give_up(self, kind: type[KernelError], reason: str) -> None:
        """Fail the oldest run, and with it all others in flight, and reset the card."""
        diagnosis = self._diagnosis()
        stuck = self._in_flight[0]
        for invocation in self._in_flight:
            call = invocation.call
            if invocation is stuck:
                text = f"{stuck.description} on {self.board_name} {reason}. {diagnosis}"
            else:
                kind = CardResetError
                text = (
                    f"{self.board_name} was reset, because {stuck.description} before this run "
                    f"{reason}."
                )
            call.fail(kind(text, context=call.context, aftermath=Aftermath.ALL_CONTEXTS_LOST))
            call.pending -= 1
            self._idle.append(invocation.buffers)
        self._in_flight.clear()
        self.states = [ContextState.LOST] * len(self.states)
        self.free_buffers()
        try:
            self._board.reset()
        except (FastdeltaError, RuntimeError, OSError) as error:
            self.broken = (
                f"{self.board_name} did not come back after a reset ({error}); close this "
                "accelerator and reset the card (a real one with xbutil reset)"
            )
