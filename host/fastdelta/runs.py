# SPDX-License-Identifier: Apache-2.0
"""Runs of a kernel in flight: order, time-outs, and the reset of a card that hangs.

What an engine needs beside (its buffers, its result block, what a failure costs) is added by the
queues in ``fastdelta.decode.runs`` and ``fastdelta.prefill.runs``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from fastdelta.boards import Board, KernelType, Run
from fastdelta.errors import (
    AxiError,
    BoardError,
    CardResetError,
    FastdeltaError,
    KernelError,
    KernelStatusError,
    KernelTimeoutError,
)
from fastdelta.results import Seconds

WAIT_SLICE = 0.02  # seconds of waiting at a stretch, after which other threads get their turn
BUFFER_SETS = 2  # one is filled or read while the kernel works on the other

_TURN = 1e-4  # seconds for another thread to take the lock


class Call:
    """One call of the caller: runs of the kernel, and what they returned so far.

    Attributes
    ----------
    launching : bool
        More runs are to be launched.
    pending : int
        Runs in flight.
    error : KernelError or None
        The first failure.
    invocations, cycles, seconds
        Of the runs that ended well.
    """

    def __init__(self) -> None:
        self.launching = True
        self.pending = 0
        self.error: KernelError | None = None
        self.invocations = 0
        self.cycles = 0
        self.seconds = Seconds()

    @property
    def finished(self) -> bool:
        """Whether all of its runs have ended."""
        return not self.launching and self.pending == 0

    def fail(self, error: KernelError) -> None:
        """Note a failure; the first one counts."""
        if self.error is None:
            self.error = error


@dataclass
class Invocation:
    """One run in flight.

    Attributes
    ----------
    call : Call
        The call that it belongs to.
    description : str
        What it does, for messages, such as ``decode of 5 tokens``.
    run : Run
        The run on the card.
    started : float
        Time of the start.
    """

    call: Call
    description: str
    run: Run
    started: float


InvocationType = TypeVar("InvocationType", bound=Invocation)


class RunQueue(ABC, Generic[KernelType, InvocationType]):
    """The runs in flight of one kernel, oldest first.

    Parameters
    ----------
    board : Board
        Card with the kernel.
    timeout : float
        Seconds that the oldest run may take.

    Attributes
    ----------
    lock : RLock
        Held by whoever changes the queue.
    broken : str or None
        Why the card cannot be used any more.
    """

    diagnostic_registers: Iterable[IntEnum]
    """Registers that are printed when a run fails for no known reason."""

    def __init__(self, board: Board[KernelType], timeout: float) -> None:
        self.lock = threading.RLock()
        self.broken: str | None = None
        self.timeout = timeout
        self._board = board
        self._in_flight: deque[InvocationType] = deque()
        self._oldest_since = 0.0

    @property
    def board_name(self) -> str:
        """Name of the card, for messages."""
        return self._board.info.name

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
                    ended = self.pump(WAIT_SLICE)
                else:
                    left = deadline - time.monotonic()
                    ended = self.pump(min(max(left, 0.0), WAIT_SLICE))
                    if not ended and left <= 0:
                        self._time_out(timeout)
            if not ended:
                time.sleep(_TURN)  # otherwise this thread has the lock again before others wake

    def drain(self, timeout: float | None = None) -> None:
        """Collect every run in flight, or give up what has not ended after some seconds."""
        deadline = 0.0 if timeout is None else time.monotonic() + timeout
        while self._in_flight:
            if not self.pump(WAIT_SLICE) and timeout is not None and time.monotonic() > deadline:
                self._time_out(timeout)

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

    @abstractmethod
    def free_buffers(self) -> None:
        """Free every buffer; runs in flight must not be needed any more."""

    @abstractmethod
    def _collect(self, invocation: InvocationType) -> None:
        """Take over the results of a run that has ended."""

    @abstractmethod
    def _reset_error(
        self, kind: type[KernelError], message: str, invocation: InvocationType
    ) -> KernelError:
        """Return the error of a run that ended because the card is reset."""

    @abstractmethod
    def _forget(self, invocations: Iterable[InvocationType]) -> None:
        """Take note that the card is reset, and that these runs were in flight."""

    def _require_working_card(self) -> None:
        if self.broken is not None:
            raise BoardError(self.broken)

    def _put(self, invocation: InvocationType) -> None:
        """Add a run that was started."""
        if not self._in_flight:
            self._oldest_since = time.monotonic()
        invocation.call.pending += 1
        self._in_flight.append(invocation)

    def _diagnosis(self) -> str:
        """Return registers and counters in one sentence, as far as they can be read."""
        try:
            read = self._board.kernel.read_register
            values = [
                f"{register.name}={read(register):#x}" for register in self.diagnostic_registers
            ]
        except RuntimeError as error:
            return f"The registers cannot be read ({error})."
        return f"Registers: {', '.join(values)}."

    def _copy_error(self, invocation: InvocationType, cause: Exception) -> str:
        """Return the message for results that cannot be copied back."""
        return (
            f"{self.board_name} could not copy the results of {invocation.description} back "
            f"({cause})."
        )

    def _input_error(self, invocation: InvocationType, argument: str) -> str:
        """Return the message for an input of which the kernel read something else."""
        return (
            f"the kernel did not read from the bank of {argument} what the host wrote for "
            f"{invocation.description} on {self.board_name}, as the checksums differ: memory has "
            "changed it, or it was not copied to the card. The result is thrown away."
        )

    def _output_error(self, invocation: InvocationType, what: str) -> str:
        """Return the message for something that is not as the kernel wrote it."""
        return (
            f"{what} of {invocation.description} on {self.board_name} did not come back as the "
            "kernel wrote it, as the checksums differ: memory has changed it, or it was not copied "
            "from the card. The result is thrown away."
        )

    def _status_error(
        self, ended: str, status: str, watchdog: int
    ) -> tuple[type[KernelError], str] | None:
        """Return kind and message for the codes that mean the same to every kernel.

        Parameters
        ----------
        ended : str
            What ended and how, such as ``decode of 5 tokens on u280 ended with TIMEOUT``.
        status : str
            Name of the code.
        watchdog : int
            Cycles that the run was given.
        """
        if status in ("READ_ERROR", "WRITE_ERROR"):
            return AxiError, (
                f"{ended}: the memory answered an access of the kernel with an error. Check the "
                "card's memory and the bank connections of the overlay."
            )
        if status == "TIMEOUT":
            return KernelTimeoutError, (
                f"{ended}: the kernel's watchdog gave it up after {watchdog} cycles. "
                f"{self._diagnosis()} If the memory is only slow, raise watchdog_cycles."
            )
        return None

    def _time_out(self, timeout: float) -> None:
        self._give_up(KernelTimeoutError, f"did not end within {timeout:g} s")

    def _give_up(self, kind: type[KernelError], reason: str) -> None:
        """Fail the oldest run, and with it all others in flight, and reset the card."""
        diagnosis = self._diagnosis()
        stuck = self._in_flight[0]
        for invocation in self._in_flight:
            if invocation is stuck:
                text = f"{stuck.description} on {self.board_name} {reason}. {diagnosis}"
            else:
                kind = CardResetError
                text = (
                    f"{self.board_name} was reset, because {stuck.description} before this run "
                    f"{reason}."
                )
            invocation.call.fail(self._reset_error(kind, text, invocation))
            invocation.call.pending -= 1
        self._forget(self._in_flight)
        self._in_flight.clear()
        self.free_buffers()
        try:
            self._board.reset()
        except (FastdeltaError, RuntimeError, OSError) as error:
            self.broken = (
                f"{self.board_name} did not come back after a reset ({error}); close this "
                "accelerator and reset the card (a real one with xbutil reset)"
            )


ResultType = TypeVar("ResultType")


class Job(ABC, Generic[ResultType]):
    """A call that was submitted: look with `done`, wait with `wait`, or ``await`` it."""

    def __init__(self, queue: RunQueue[Any, Any], call: Call) -> None:
        self._queue = queue
        self._call = call
        self._result: ResultType | None = None

    @abstractmethod
    def _make_result(self) -> ResultType:
        """Return the result of the call, which has ended well."""

    @property
    def done(self) -> bool:
        """Whether the job has ended, well or not; answers at once."""
        return self._queue.advance(self._call)

    def wait(self, timeout: float | None = None) -> ResultType:
        """Wait for the end and return the result.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait in all; by default each run may take the accelerator's `timeout`.
            When it is over, the run that the card is at is given up: the card is reset, and what
            was on it is lost. `done` looks without that consequence.

        Raises
        ------
        KernelError
            If a run failed; ``aftermath`` says what became of what was on the card.
        """
        self._queue.wait(self._call, timeout)
        return self._finished_result()

    def __await__(self) -> Generator[Any, None, ResultType]:
        """Wait as a coroutine; the event loop stays free."""
        return self._wait_async().__await__()

    async def _wait_async(self) -> ResultType:
        pause = _TURN
        while not self.done:
            await asyncio.sleep(pause)
            pause = min(2 * pause, WAIT_SLICE)
        return self._finished_result()

    def _finished_result(self) -> ResultType:
        if self._call.error is not None:
            raise self._call.error
        if self._result is None:
            self._result = self._make_result()
        return self._result
