# SPDX-License-Identifier: Apache-2.0
"""Runs of the prefill kernel: buffers on the card, and the verdict on each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastdelta.arrays import Bytes
from fastdelta.boards import Board, DeviceBuffer, Kernel, Run
from fastdelta.errors import Aftermath, BoardError, KernelError, KernelStatusError
from fastdelta.prefill.results import (
    RESULT_BLOCK_BYTES,
    RESULT_MAGIC,
    ResultBlock,
    status_name,
)
from fastdelta.registers.prefill import STATUS_CODE, Mode, Register, Status
from fastdelta.results import Seconds
from fastdelta.runs import Call, Invocation, RunQueue

ARGUMENTS = ("q", "k", "v", "jobs", "o")
"""Arguments that have a buffer of their own; the result block lies in that of ``o``."""

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
    """Buffers on the card, one for each argument; they grow when a run needs more.

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
    """One run and the result block that it left."""

    block: ResultBlock | None = None


@dataclass
class PrefillInvocation(Invocation):
    """One run in flight."""

    call: PrefillCall
    watchdog: int


class PrefillQueue(RunQueue[PrefillKernel, PrefillInvocation]):
    """The run in flight of one prefill kernel.

    Parameters
    ----------
    board : Board
        Card with the kernel.
    timeout : float
        Seconds that a run may take.
    explanations : mapping
        For names of status codes, what they mean for this kernel and what to do.

    Attributes
    ----------
    buffers : Buffers
        Buffers of the run.
    when_reset : list of callable
        Called before the card is reset; each frees memory that it has on the card.
    """

    diagnostic_registers = tuple(register for register in Register if register > Register.ISR)

    def __init__(
        self, board: Board[PrefillKernel], timeout: float, explanations: Mapping[str, str]
    ) -> None:
        super().__init__(board, timeout)
        self._explanations = explanations
        self.buffers = Buffers(board)
        self.when_reset: list[Callable[[], None]] = []

    def run(
        self, parameters: RunParameters, buffers: Mapping[str, DeviceBuffer]
    ) -> tuple[ResultBlock, Seconds]:
        """Run the kernel on buffers that have been filled and wait for the end.

        Parameters
        ----------
        parameters : RunParameters
        buffers : mapping
            The part of a buffer for each of `ARGUMENTS`.

        Raises
        ------
        KernelError
            If the run failed.
        BoardError
            If the card refuses the start.
        """
        self._require_working_card()
        p = parameters
        call = PrefillCall()
        started = time.perf_counter()
        try:
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
                buffers["q"],
                buffers["k"],
                buffers["v"],
                buffers["jobs"],
                buffers["o"],
                self.buffers.result,
                p.job_stride,
                p.watchdog,
            )
        except RuntimeError as error:
            raise BoardError(
                f"{self.board_name} refused a start ({error}); close the accelerator and open it "
                "again"
            ) from error
        what = f"prefill of {p.tokens} tokens for {p.kv_heads} x {p.group} heads"
        self._put(PrefillInvocation(call, what, run, started, p.watchdog))
        call.launching = False
        self.wait(call)
        if call.error is not None:
            raise call.error
        assert call.block is not None
        return call.block, call.seconds

    def free_buffers(self) -> None:
        """Free every buffer, also what was prepared; runs must not be in flight any more."""
        self.buffers.free()
        for free in tuple(self.when_reset):
            free()

    def _forget(self, invocations: Iterable[PrefillInvocation]) -> None:
        """Nothing to note beside what `free_buffers` frees."""

    def _reset_error(
        self,
        kind: type[KernelError],
        message: str,
        invocation: PrefillInvocation,  # noqa: ARG002 - all runs lose the same
    ) -> KernelError:
        return kind(message, aftermath=Aftermath.PREPARED_LOST)

    def _collect(self, invocation: PrefillInvocation) -> None:
        call = invocation.call
        ended = time.perf_counter()
        call.pending -= 1
        try:
            self.buffers.result.sync_from_device()
        except RuntimeError as cause:
            message = self._copy_error(invocation, cause)
            call.fail(KernelStatusError(message, aftermath=Aftermath.PREPARED_KEPT))
            return
        block = ResultBlock.parse(np.asarray(self.buffers.result))
        error = self._failure(invocation, block)
        if error is not None:
            call.fail(error)
            return
        call.block = block
        call.seconds = Seconds(launch=ended - invocation.started, copy=time.perf_counter() - ended)

    def _failure(self, invocation: PrefillInvocation, block: ResultBlock) -> KernelError | None:
        """Judge an ended run by its result block, or without one by the status register."""
        fresh = block.magic == RESULT_MAGIC and block.runs != self.buffers.runs_seen
        if fresh:
            self.buffers.runs_seen = block.runs
            code = block.status
            if code == Status.OK:
                return None
        else:
            code = self._board.kernel.read_register(Register.STATUS) & STATUS_CODE
        what = f"{invocation.description} on {self.board_name}"
        done = f" after {block.counters.kv_heads_done} KV heads" if fresh else ""
        ended = f"{what} ended{done} with {status_name(code)}"
        common = self._status_error(ended, status_name(code), invocation.watchdog)
        kind: type[KernelError] = KernelStatusError
        if common is not None:
            kind, text = common
        elif status_name(code) in self._explanations:
            text = f"{ended}: {self._explanations[status_name(code)]}."
        elif code == Status.OK:
            text = f"{what} ended without writing a result block. {self._diagnosis()}"
        else:
            text = (
                f"{ended}: the kernel refused what this host asked for. {self._diagnosis()} Load "
                "an overlay built from the same release."
            )
        return kind(text, aftermath=Aftermath.PREPARED_KEPT)
