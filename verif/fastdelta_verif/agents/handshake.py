# SPDX-License-Identifier: Apache-2.0
"""What every valid/ready channel has in common: throttling and the rules of the handshake."""

from __future__ import annotations

import random
from collections.abc import Iterator

THROTTLES = ("none", "light", "heavy", "bursts", "mixed")
CLOSED = "closed"


class Throttle:
    """Decide each cycle whether a side of a handshake is willing.

    Parameters
    ----------
    rng
        Source of randomness.
    mode
        ``none``: always willing; ``light``: unwilling one cycle in eight; ``heavy``: willing one
        cycle in four; ``bursts``: runs of either, up to 48 cycles; ``mixed``: a new mode of these
        every 16 to 200 cycles; ``closed``: never willing.
    """

    def __init__(self, rng: random.Random, mode: str = "none") -> None:
        self._rng = rng
        self.mode = mode

    @property
    def mode(self) -> str:
        """Present mode; setting it takes effect at once."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._mode = mode
        self._pattern = self._make(mode)

    def willing(self) -> bool:
        """Return the decision for the coming cycle."""
        return next(self._pattern)

    def _make(self, mode: str) -> Iterator[bool]:
        rng = self._rng
        if mode == "none":
            while True:
                yield True
        elif mode == CLOSED:
            while True:
                yield False
        elif mode == "light":
            while True:
                yield rng.random() >= 0.125
        elif mode == "heavy":
            while True:
                yield rng.random() < 0.25
        elif mode == "bursts":
            while True:
                for willing in (True, False):
                    for _ in range(rng.randint(1, 48)):
                        yield willing
        elif mode == "mixed":
            while True:
                part = self._make(rng.choice(THROTTLES[:-1]))
                for _ in range(rng.randint(16, 200)):
                    yield next(part)
        else:
            raise ValueError(f"throttle mode '{mode}': allowed are {', '.join(THROTTLES)}")


RHYTHMS = AFTER_GAP, BACK_TO_BACK, WAITED = ("after a gap", "back to back", "after waiting")


class Rhythm:
    """In which ways the transfers of a channel came: ``seen`` has some of ``RHYTHMS``."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._before = AFTER_GAP

    def see(self, valid: object, ready: object) -> None:
        """Look at one cycle."""
        if valid and ready:
            self.seen.add(self._before)
            self._before = BACK_TO_BACK
        else:
            self._before = WAITED if valid else AFTER_GAP


class HandshakeChecker:
    """Check one channel: once valid, it stays valid with the same payload until it is taken.

    Attributes
    ----------
    rhythm
        In which ways transfers came.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: object = None
        self.rhythm = Rhythm()

    def forget(self) -> None:
        """Start anew, as reset lets valid drop."""
        self._held = None
        self.rhythm.see(False, False)

    def check(self, valid: bool, ready: bool, payload: object) -> None:
        """Check one cycle; ``payload`` matters while valid only."""
        if self._held is not None:
            assert valid, f"{self._name}: valid was withdrawn before the transfer"
            assert payload == self._held, (
                f"{self._name}: payload changed while waiting, from {_show(self._held)} "
                f"to {_show(payload)}"
            )
        self._held = payload if valid and not ready else None
        self.rhythm.see(valid, ready)


def _show(payload: object) -> str:
    if isinstance(payload, tuple):
        return "(" + ", ".join(map(_show, payload)) + ")"
    return f"0x{payload:x}" if isinstance(payload, int) else str(payload)
