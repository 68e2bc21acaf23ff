# SPDX-License-Identifier: Apache-2.0
"""Open accelerators: closing them in order, also after an error and as Python ends."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

ABANDON_SECONDS: Final = 1.0
"""How long closing waits for runs whose results nobody will ask for."""


class OpenCard(ABC):
    """What holds a card: a context manager that is closed at the end of Python at the latest.

    Attributes
    ----------
    closed : bool
        Whether it has been closed.
    """

    closed: bool = False

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Free the buffers, then the card; may be called again."""

    def _opened(self) -> None:
        """Take note that it holds a card from now on."""
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(None if kind is None else ABANDON_SECONDS)


class _OpenCards:
    """Weak references to what is open, in the order of opening."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[tuple[weakref.ref[OpenCard], int]] = []

    def add(self, card: OpenCard) -> None:
        """Add one; only the process that opened it closes it, not one that was forked since."""
        with self._lock:
            self._entries = [entry for entry in self._entries if entry[0]() is not None]
            self._entries.append((weakref.ref(card), os.getpid()))

    def close_all(self) -> None:
        """Close the last opened first."""
        with self._lock:
            entries, self._entries = self._entries, []
        for reference, process in reversed(entries):
            card = reference()
            if card is None or card.closed or process != os.getpid():
                continue
            with suppress(Exception):  # the others are closed all the same
                card.close(ABANDON_SECONDS)


_OPEN = _OpenCards()
atexit.register(_OPEN.close_all)
