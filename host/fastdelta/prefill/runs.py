# SPDX-License-Identifier: Apache-2.0
"""Runs of the prefill kernel: buffers on the card, and the verdict on each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastdelta.arrays import Bytes, Float32Array
from fastdelta.boards import Board, DeviceBuffer, Kernel, Run
from fastdelta.errors import (
    Aftermath,
    BankFullError,
    BoardError,
    KernelError,
    KernelStatusError,
    MemoryFaultError,
)
from fastdelta.prefill.job_lists import JobList
from fastdelta.prefill.results import (
    RESULT_BLOCK_BYTES,
    RESULT_MAGIC,
    PrefillCounters,
    PrefillCycles,
    ResultBlock,
    status_name,
)
from fastdelta.registers.prefill import STATUS_CODE, Mode, Register, Status
from fastdelta.results import Seconds
from fastdelta.runs import BUFFER_SETS, WAIT_SLICE, Call, Invocation, RunQueue, wrong_bytes

OUTPUT_OFFSET = 4096  # bytes; the result block lies before the output, each on its own page


@dataclass(frozen=True)
class RunParameters:
    """Scalar arguments of one run, as the registers hold them."""

    mode: Mode
    kv_heads: int
    group: int
    tokens: int
    window: int
    gamma: int
    divergence_limit: int
    min_blocks: int
    max_blocks: int
    flags: int
    hot_threshold: int
    job_stride: int
    watchdog: int


class PrefillKernel(Kernel, Protocol):
    """The prefill kernel on a card."""

    def launch(
        self,
        mode: int,
        kv_heads: int,
        group: int,
        tokens: int,
        window: int,
        gamma: int,
        divergence_limit: int,
        min_blocks: int,
        max_blocks: int,
        flags: int,
        hot_threshold: int,
        q: DeviceBuffer,
        k: DeviceBuffer,
        v: DeviceBuffer,
        jobs: DeviceBuffer,
        o: DeviceBuffer,
        result: DeviceBuffer,
        job_stride: int,
        watchdog: int,
    ) -> Run:
        """Start a run with the arguments of docs/prefill_engine.md."""


def copy(board: Board[PrefillKernel], buffer: DeviceBuffer, *, to_card: bool = False) -> Bytes:
    """Copy between the host's and the card's memory; return the host's.

    Raises
    ------
    BoardError
        If the card refuses.
    """
    try:
        if to_card:
            buffer.sync_to_device()
        else:
            buffer.sync_from_device()
    except RuntimeError as error:
        raise BoardError(
            f"{board.info.name} refused a copy ({error}); close the accelerator and open it again"
        ) from error
    return np.asarray(buffer)


class Buffers:
    """Buffers on the card of one run in flight, one for each argument.

    They grow when a run needs more.

    Attributes
    ----------
    runs_seen : int
        Run number in the last result block: a block with the same number is an old one, as the
        kernel wrote none.
    """

    def __init__(self, board: Board[PrefillKernel]) -> None:
        self._board = board
        self._buffers: dict[str, DeviceBuffer] = {}
        self._capacity: dict[str, int] = {}
        self.runs_seen = 0

    def reserve(self, sizes: Mapping[str, int]) -> None:
        """Make room for so many bytes in each buffer that is named; contents are lost if it grows.

        Raises
        ------
        BankFullError
            If a bank has no room; the buffers that are there can be used as before.
        """
        for name, size in sizes.items():
            if size <= self._capacity.get(name, 0):
                continue
            if name in self._buffers:
                self._capacity.pop(name)
                self._buffers.pop(name).freebuffer()
            offset = OUTPUT_OFFSET if name == "o" else 0
            buffer = self._board.allocate(name, offset + size)
            self._buffers[name], self._capacity[name] = buffer, size
            if name == "o":
                # A block that an earlier program left in this memory must not pass for a new one.
                np.asarray(buffer)[:RESULT_BLOCK_BYTES] = 0
                copy(self._board, buffer[:RESULT_BLOCK_BYTES], to_card=True)
                self.runs_seen = 0

    @property
    def held(self) -> bool:
        """Whether there is memory to free."""
        return bool(self._buffers)

    def part(self, name: str, size: int, start: int = 0) -> DeviceBuffer:
        """Return some bytes of a buffer; those of ``o`` come after the result block."""
        start += OUTPUT_OFFSET if name == "o" else 0
        return self._buffers[name][start : start + size]

    @property
    def result(self) -> DeviceBuffer:
        """The result block."""
        return self._buffers["o"][:RESULT_BLOCK_BYTES]

    def free(self) -> None:
        """Give the memory back; the next run allocates anew."""
        self._capacity.clear()
        for name in tuple(self._buffers):
            self._buffers.pop(name).freebuffer()


class PrefillCall(Call):
    """One call of the caller, and what its runs returned so far."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Float32Array] = []
        self.lists: list[JobList] = []
        self.phase_cycles = PrefillCycles()
        self.counters = PrefillCounters()


@dataclass
class PrefillRequest:
    """What one run shall do.

    Attributes
    ----------
    parameters : RunParameters
        Its scalar arguments.
    sizes : mapping
        Bytes of each buffer that the run needs of its own.
    inputs : tuple of str
        Those that `fill` writes.
    resident : callable
        Returns the buffers of the other arguments, which are on the card, or raises a
        `PreparedLostError`.
    fill : callable
        Writes the inputs into the host copies.
    take : callable
        Takes outputs and job lists from the buffers, with copies that it asks for; it returns the
        seconds of these, and raises a `KernelError` if they are not as they should be.
    verify : callable
        Raises a `KernelError` if what is resident is damaged.
    """

    parameters: RunParameters
    sizes: Mapping[str, int]
    inputs: tuple[str, ...]
    resident: Callable[[], Mapping[str, DeviceBuffer]]
    fill: Callable[[Mapping[str, Bytes]], None]
    take: Callable[[Buffers], float]
    verify: Callable[[], None]


@dataclass
class PrefillInvocation(Invocation):
    """One run in flight, with its buffers and the seconds spent so far."""

    call: PrefillCall
    request: PrefillRequest
    buffers: Buffers
    prepare: float
    copy: float
    written: Mapping[str, Bytes]  # copies of the inputs, to compare with


class PrefillQueue(RunQueue[PrefillKernel, PrefillInvocation]):
    """The runs in flight of one prefill kernel, oldest first.

    Parameters
    ----------
    board : Board
        Card with the kernel.
    timeout : float
        Seconds that the oldest run may take.
    explanations : mapping
        For names of status codes, what they mean for this kernel and what to do.

    Attributes
    ----------
    when_reset : list of callable
        Called before the card is reset; each frees memory that it has on the card.
    """

    diagnostic_registers = tuple(register for register in Register if register > Register.ISR)

    def __init__(
        self, board: Board[PrefillKernel], timeout: float, explanations: Mapping[str, str]
    ) -> None:
        super().__init__(board, timeout)
        self._explanations = explanations
        self._idle = [Buffers(board) for _ in range(BUFFER_SETS)]
        self.when_reset: list[Callable[[], None]] = []

    def reserve(self, sizes: Mapping[str, int]) -> None:
        """Make room for so many bytes in the buffers that `launch` takes next.

        Raises
        ------
        BankFullError
            If a bank has no room, even when no other run has buffers; then none has.
        """
        while True:
            while not self._idle:
                self.pump(WAIT_SLICE)
            try:
                self._idle[-1].reserve(sizes)
                return
            except BankFullError:
                if not self.make_room(keep_last=True):
                    self._idle[-1].free()  # of this attempt, which may have filled other banks
                    raise

    def make_room(self, *, keep_last: bool = False) -> bool:
        """Free memory of runs that have ended, or wait for one; say whether there is more now.

        Parameters
        ----------
        keep_last : bool
            Leave the buffers that are taken next alone.
        """
        idle = [b for b in (self._idle[:-1] if keep_last else self._idle) if b.held]
        for buffers in idle:
            buffers.free()
        before = len(self._in_flight)
        if not idle and before:
            while len(self._in_flight) == before:
                self.pump(WAIT_SLICE)
        return bool(idle or before)

    def launch(self, call: PrefillCall, request: PrefillRequest) -> None:
        """Fill a buffer set, copy it to the card and start a run.

        Waits for the oldest run if no buffer set is idle, or memory is short; a call that has
        failed by then gets no further run.

        Raises
        ------
        BankFullError
            If a bank has no room.
        BoardError
            If the card refuses a copy or the start.
        PreparedLostError
            If the card was reset while this run waited for its turn.
        """
        self.reserve(request.sizes)
        if call.error is not None:
            return
        self._require_working_card()
        resident = request.resident()
        buffers = self._idle.pop()
        p = request.parameters
        try:
            began = time.perf_counter()
            parts = {name: buffers.part(name, size) for name, size in request.sizes.items()}
            request.fill({name: np.asarray(parts[name]) for name in request.inputs})
            filled = time.perf_counter()
            for name in request.inputs:
                copy(self._board, parts[name], to_card=True)
            written = {name: np.array(parts[name]) for name in request.inputs if self.check_memory}
            copied = time.perf_counter()
            arguments = {**parts, **resident}
            run = self._board.kernel.launch(
                int(p.mode),
                p.kv_heads,
                p.group,
                p.tokens,
                p.window,
                p.gamma,
                p.divergence_limit,
                p.min_blocks,
                p.max_blocks,
                p.flags,
                p.hot_threshold,
                arguments["q"],
                arguments["k"],
                arguments["v"],
                arguments["jobs"],
                arguments["o"],
                buffers.result,
                p.job_stride,
                p.watchdog,
            )
        except RuntimeError as error:
            self._idle.append(buffers)
            raise BoardError(
                f"{self.board_name} refused a start ({error}); close the accelerator and open it "
                "again"
            ) from error
        except BaseException:
            self._idle.append(buffers)
            raise
        self._put(
            PrefillInvocation(
                call=call,
                description=f"prefill of {p.tokens} tokens for {p.kv_heads} x {p.group} heads",
                run=run,
                started=copied,
                request=request,
                buffers=buffers,
                prepare=filled - began,
                copy=copied - filled,
                written=written,
            )
        )

    def free_buffers(self) -> None:
        """Free every buffer, also what was prepared; runs must not be in flight any more."""
        for buffers in (*self._idle, *(invocation.buffers for invocation in self._in_flight)):
            buffers.free()
        for free in tuple(self.when_reset):
            free()

    def _forget(self, invocations: Iterable[PrefillInvocation]) -> None:
        self._idle += [invocation.buffers for invocation in invocations]

    def _reset_error(
        self,
        kind: type[KernelError],
        message: str,
        invocation: PrefillInvocation,  # noqa: ARG002 - all runs lose the same
    ) -> KernelError:
        return kind(message, aftermath=Aftermath.PREPARED_LOST)

    def _collect(self, invocation: PrefillInvocation) -> None:
        call = invocation.call
        try:
            self._take_results(invocation)
        except KernelError as error:
            call.fail(error)
        finally:
            self._idle.append(invocation.buffers)
            call.pending -= 1

    def _take_results(self, invocation: PrefillInvocation) -> None:
        """Add what a run returned to its call.

        Raises
        ------
        KernelError
            If it failed, or its results cannot be read.
        """
        call, buffers = invocation.call, invocation.buffers
        ended = time.perf_counter()
        try:
            block = ResultBlock.parse(copy(self._board, buffers.result))
            read = time.perf_counter()
            error = self._failure(invocation, block)
            if error is not None:
                raise error
            self._check_inputs(invocation)
            copying = invocation.request.take(buffers)
        except BoardError as cause:
            message = self._copy_error(invocation, cause)
            raise KernelStatusError(message, aftermath=Aftermath.PREPARED_KEPT) from cause
        copying += read - ended
        call.invocations += 1
        call.phase_cycles += block.cycles
        call.counters += block.counters
        call.seconds += Seconds(
            prepare=invocation.prepare + time.perf_counter() - ended - copying,
            copy=invocation.copy + copying,
            launch=ended - invocation.started,
        )

    def _check_inputs(self, invocation: PrefillInvocation) -> None:
        """Compare the inputs on the card with what was written, if that is asked for.

        Raises
        ------
        MemoryFaultError
            If they differ.
        """
        for name, written in invocation.written.items():
            try:
                wrong = wrong_bytes(invocation.buffers.part(name, written.size), written)
            except RuntimeError as cause:
                raise BoardError(str(cause)) from cause
            if wrong:
                message = self._memory_error(invocation, name, wrong)
                raise MemoryFaultError(message, aftermath=Aftermath.PREPARED_KEPT)
        if self.check_memory:
            invocation.request.verify()

    def _failure(self, invocation: PrefillInvocation, block: ResultBlock) -> KernelError | None:
        """Judge an ended run by its result block, or without one by the status register."""
        buffers = invocation.buffers
        fresh = block.magic == RESULT_MAGIC and block.runs != buffers.runs_seen
        if fresh:
            buffers.runs_seen = block.runs
            code = block.status
            heads_done = block.counters.kv_heads_done
            if code == Status.OK and heads_done == invocation.request.parameters.kv_heads:
                return None
        else:
            code = self._board.kernel.read_register(Register.STATUS) & STATUS_CODE
        what = f"{invocation.description} on {self.board_name}"
        done = f" after {block.counters.kv_heads_done} KV heads" if fresh else ""
        ended = f"{what} ended{done} with {status_name(code)}"
        watchdog = invocation.request.parameters.watchdog
        common = self._status_error(ended, status_name(code), watchdog)
        kind: type[KernelError] = KernelStatusError
        if common is not None:
            kind, text = common
        elif status_name(code) in self._explanations:
            text = f"{ended}: {self._explanations[status_name(code)]}."
        elif fresh and code == Status.OK:
            text = f"{what} left a result block that states {heads_done} KV heads."
        elif code == Status.OK:
            text = f"{what} ended without writing a result block. {self._diagnosis()}"
        else:
            text = (
                f"{ended}: the kernel refused what this host asked for. {self._diagnosis()} Load "
                "an overlay built from the same release."
            )
        return kind(text, aftermath=Aftermath.PREPARED_KEPT)
