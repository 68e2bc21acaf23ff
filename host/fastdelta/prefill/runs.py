# SPDX-License-Identifier: Apache-2.0
"""Runs of the prefill kernel: buffers on the card, and the verdict on each run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastdelta.arrays import Bytes, Float32Array, checksum
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
    PrefillChecksums,
    PrefillCounters,
    PrefillCycles,
    ResultBlock,
    status_name,
)
from fastdelta.registers.prefill import STATUS_CODE, Mode, Register, Status
from fastdelta.results import Seconds
from fastdelta.runs import BUFFER_SETS, WAIT_SLICE, Call, Invocation, RunQueue
from fastdelta.shapes import PrefillShape

OUTPUT_OFFSET = 4096  # bytes; the result block lies before the output, each on its own page

_WORD = (1 << 32) - 1


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


class ChecksumError(Exception):
    """What came back is not as the kernel wrote it; the text names it."""


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
    resident_tag : int
        Tag of the blocks that are on the card.
    fill : callable
        Writes the inputs into the host copies, blocks with the tag that it is given.
    take : callable
        Takes outputs and job lists from the buffers, with copies that it asks for, and their
        checksums of the kernel; returns the seconds of these copies, or raises a
        `ChecksumError`.
    verify : callable
        Raises a `KernelError` if what is resident is damaged.
    """

    parameters: RunParameters
    sizes: Mapping[str, int]
    inputs: tuple[str, ...]
    resident: Callable[[], Mapping[str, DeviceBuffer]]
    resident_tag: int
    fill: Callable[[Mapping[str, Bytes], int], None]
    take: Callable[[Buffers, PrefillChecksums], float]
    verify: Callable[[], None]


@dataclass
class PrefillInvocation(Invocation):
    """One run in flight, with its buffers and the seconds spent so far."""

    call: PrefillCall
    request: PrefillRequest
    buffers: Buffers
    prepare: float
    copy: float
    tag: int  # of the blocks that this run brings along
    lists_checksum: int | None  # of the job lists, if it brings them


class PrefillQueue(RunQueue[PrefillKernel, PrefillInvocation]):
    """The runs in flight of one prefill kernel, oldest first.

    Parameters
    ----------
    board : Board
        Card with the kernel.
    timeout : float
        Seconds that the oldest run may take.
    shape : PrefillShape
        Parameters of the kernel.
    explanations : mapping
        For names of status codes, what they mean for this kernel and what to do.

    Attributes
    ----------
    when_reset : list of callable
        Called before the card is reset; each frees memory that it has on the card.
    """

    diagnostic_registers = tuple(register for register in Register if register > Register.ISR)

    def __init__(
        self,
        board: Board[PrefillKernel],
        timeout: float,
        shape: PrefillShape,
        explanations: Mapping[str, str],
    ) -> None:
        super().__init__(board, timeout)
        self._shape = shape
        self._tags = itertools.count(1)
        self._explanations = explanations
        self._idle = [Buffers(board) for _ in range(BUFFER_SETS)]
        self.when_reset: list[Callable[[], None]] = []

    def new_tag(self) -> int:
        """Return a tag for blocks, another than all before: what is left of them shows."""
        return next(self._tags)

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
            hosts = {name: np.asarray(parts[name]) for name in request.inputs}
            tag = self.new_tag()
            request.fill(hosts, tag)
            lists = checksum(hosts["jobs"].view(np.uint32)) if "jobs" in hosts else None
            filled = time.perf_counter()
            for name in request.inputs:
                copy(self._board, parts[name], to_card=True)
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
                tag=tag,
                lists_checksum=lists,
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
            self._check_inputs(invocation, block)
            copying = invocation.request.take(buffers, block.checksums)
        except ChecksumError as what:
            raise MemoryFaultError(
                self._output_error(invocation, str(what)), aftermath=Aftermath.PREPARED_KEPT
            ) from None
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

    def _check_inputs(self, invocation: PrefillInvocation, block: ResultBlock) -> None:
        """Compare the checksums of what the kernel read with those of what was written.

        Raises
        ------
        MemoryFaultError
            If they differ.
        """
        request, shape, counters, sums = (
            invocation.request,
            self._shape,
            block.counters,
            block.checksums,
        )
        resident = "k" not in request.inputs
        past_tag = request.resident_tag if resident else invocation.tag
        for name, found, beats, block_bytes, tag in (
            ("q", sums.q_checksum, counters.q_beats, shape.q_block_bytes, invocation.tag),
            ("k", sums.k_checksum, counters.k_beats, shape.k_block_bytes, past_tag),
            ("v", sums.v_checksum, counters.v_beats, shape.v_block_bytes, past_tag),
        ):
            blocks = beats * shape.beat_bytes // block_bytes
            if found == blocks * tag & _WORD:
                continue
            if resident and name != "q":
                request.verify()  # says so if they are damaged for good
            raise MemoryFaultError(
                self._input_error(invocation, name), aftermath=Aftermath.PREPARED_KEPT
            )
        lists = invocation.lists_checksum
        if lists is None:
            lists = sums.jobs_written_checksum
        if sums.jobs_read_checksum != lists:
            raise MemoryFaultError(
                self._input_error(invocation, "jobs"), aftermath=Aftermath.PREPARED_KEPT
            )

    def _failure(self, invocation: PrefillInvocation, block: ResultBlock) -> KernelError | None:
        """Judge an ended run by its result block, or without one by the status register."""
        buffers = invocation.buffers
        if not block.intact:
            message = self._output_error(invocation, "the result block")
            return MemoryFaultError(message, aftermath=Aftermath.PREPARED_KEPT)
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
        elif code == Status.BAD_JOB:
            kind = MemoryFaultError
            text = (
                f"{ended}: a job list breaks the rules, but neither host nor kernel writes such a "
                "one: memory has changed it, or it was not copied to the card."
            )
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
