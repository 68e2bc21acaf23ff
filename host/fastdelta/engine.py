# SPDX-License-Identifier: Apache-2.0
"""What the accelerators of both engines are: a kernel of known parameters and its runs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from fastdelta.boards import Board, KernelType
from fastdelta.errors import OverlayError, RangeError
from fastdelta.lifetime import OpenCard
from fastdelta.results import Provenance
from fastdelta.runs import RunQueue
from fastdelta.shapes import DecodeShape, PrefillShape

ShapeType = TypeVar("ShapeType", DecodeShape, PrefillShape)

WATCHDOG_MAX = (1 << 32) - 1  # cycles


class Engine(OpenCard, Generic[KernelType, ShapeType]):
    """The kernel of one card. Leaving a ``with`` block frees the buffers and then the card.

    A subclass makes `_queue`, and calls `_opened` once it holds the card.

    Parameters
    ----------
    board : Board
    expected : DecodeShape or PrefillShape, optional
        Parameters that the kernel must have.
    timeout : float
        Seconds after which a run that has not ended is given up.
    watchdog_cycles : int, optional
        See the attribute.

    Attributes
    ----------
    shape : DecodeShape or PrefillShape
        Parameters of the kernel.
    provenance : Provenance
        Card, configuration and versions, as in every result.
    board : Board
        The card; through PYNQ its ``device`` is PYNQ's.
    watchdog_cycles : int or None
        Cycles after which the kernel gives up a run; None for many times what the run needs. It
        ends a run once what the memory owes has come; a memory that never answers needs `timeout`.

    Raises
    ------
    RangeError
        `timeout` or `watchdog_cycles` is outside its range.
    OverlayError
        The kernel is of another release, or not as expected.
    """

    _VERSION_REGISTER: ClassVar[int]
    _VERSION: ClassVar[int]  # that this host needs: major in the upper half, minor in the lower
    _queue: RunQueue[Any, Any]
    shape: ShapeType

    def __init__(
        self,
        board: Board[KernelType],
        expected: ShapeType | None,
        *,
        timeout: float,
        watchdog_cycles: int | None,
    ) -> None:
        if not timeout > 0:
            raise RangeError(f"timeout is {timeout}; it must be above 0 seconds")
        if watchdog_cycles is not None and not 0 <= watchdog_cycles <= WATCHDOG_MAX:
            raise RangeError(f"watchdog_cycles is {watchdog_cycles}; allowed are 0 to 2**32 - 1")
        self.board = board
        self.watchdog_cycles = watchdog_cycles
        version = self._read_version()
        self.shape = self._identify(expected)
        self.provenance = Provenance(
            board=board.info.name,
            simulated=board.info.simulated,
            shape=self.shape,
            clock_mhz=board.info.clock_mhz,
            seed=board.info.seed,
            options=board.info.options,
            versions={"kernel": version, **board.info.versions},
        )

    @property
    def timeout(self) -> float:
        """Seconds after which a run that has not ended is given up and the card reset."""
        return self._queue.timeout

    def close(self, timeout: float | None = None) -> None:
        """Wait for runs in flight, free all buffers, then the card; may be called again.

        Parameters
        ----------
        timeout : float, optional
            Seconds after which runs in flight are given up, which resets the card; by default each
            may take the accelerator's `timeout`. An error that leaves the ``with`` block, and the
            end of Python, give them a second.
        """
        with self._queue.lock:
            if self.closed:
                return
            self.closed = True
            try:
                self._queue.drain(timeout)
            finally:
                self._queue.free_buffers()
                self.board.close()

    @abstractmethod
    def _read_shape(self) -> ShapeType:
        """Read the kernel's parameters from its registers; a ValueError if they are impossible."""

    def _read_version(self) -> str:
        """Return the kernel's version, and refuse one that this host does not know."""
        version = self.board.kernel.read_register(self._VERSION_REGISTER)
        name = f"{version >> 16}.{version & 0xFFFF}"
        if version >> 16 != self._VERSION >> 16:
            raise OverlayError(
                f"kernel on {self.board.info.name} has version {name}; this host needs "
                f"{self._VERSION >> 16}.x: load an overlay built from the same release"
            )
        return name

    def _identify(self, expected: ShapeType | None) -> ShapeType:
        """Return the kernel's parameters, and refuse another kernel than expected."""
        where = f"kernel on {self.board.info.name}"
        try:
            found = self._read_shape()
        except ValueError as error:
            raise OverlayError(
                f"{where} reports impossible parameters ({error}); load an overlay built from the "
                "same release"
            ) from error
        if expected is not None and found != expected:
            raise OverlayError(
                f"{where} was built as {found}, not as {expected}; load the overlay of that "
                "shape, or open without a shape"
            )
        return found
