# SPDX-License-Identifier: Apache-2.0
"""Errors of the host. Each message says what was wrong, what is allowed and what to do.

``InputError`` and ``BoardError`` are raised before anything reaches the card. A ``KernelError``
comes from a run: its ``aftermath`` says what became of what was on the card.
"""

from __future__ import annotations

from enum import Enum


class FastdeltaError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(FastdeltaError, ValueError):
    """An argument cannot be used; nothing was changed."""


class ShapeError(InputError):
    """An array has the wrong number of dimensions or the wrong sizes."""


class DtypeError(InputError, TypeError):
    """An array is not of a float dtype."""


class NonFiniteError(InputError):
    """An array has NaN or infinite values."""


class RangeError(InputError):
    """A value is outside what the number formats or the kernel hold."""


class BoardError(FastdeltaError):
    """A card, its overlay or its memory cannot be used."""


class BoardNotFoundError(BoardError):
    """There is no such card, or no such name of a card."""


class CardBusyError(BoardError):
    """The card is in use, by this process or another."""


class WrongBoardError(BoardError):
    """The overlay was built for another card than the one chosen."""


class OverlayError(BoardError):
    """The overlay does not hold the kernel that was asked for, or cannot be loaded."""


class ManifestError(OverlayError):
    """The manifest of an overlay cannot be read, is another's, or forbids to load the overlay."""


class WrongBankError(BoardError):
    """A buffer lies in another memory bank than the one its argument is connected to."""


class BankFullError(BoardError):
    """A memory bank has no room for a buffer."""


class MissingToolError(FastdeltaError):
    """A program or package that is needed is not installed."""


class AcceleratorClosedError(FastdeltaError):
    """The accelerator was closed before the call."""


class PreparedLostError(FastdeltaError):
    """Prepared keys and values are not on the card any more."""


class Aftermath(Enum):
    """What a failed run did to states, or to prepared keys and values, on the card."""

    UNTOUCHED = "every state is as before the run"
    CONTEXT_LOST = "the state of the context is lost; clear or load it before the next decode"
    ALL_CONTEXTS_LOST = (
        "the card was reset and the states of all contexts are lost; "
        "clear or load each before its next decode"
    )
    PREPARED_KEPT = "prepared keys and values are on the card as before"
    PREPARED_DAMAGED = "prepared keys and values are damaged; prepare them again"
    PREPARED_LOST = "the card was reset and prepared keys and values are lost; prepare them again"


class KernelError(FastdeltaError):
    """A run on the card failed.

    Attributes
    ----------
    aftermath : Aftermath
        What became of what was on the card.
    context : int or None
        Context of the run; None for engines without contexts.
    """

    def __init__(self, message: str, *, aftermath: Aftermath, context: int | None = None) -> None:
        after = aftermath.value
        where = f"Context {context}: {after}" if context is not None else after.capitalize()
        super().__init__(f"{message} {where}.")
        self.context = context
        self.aftermath = aftermath


class KernelStatusError(KernelError):
    """The kernel refused a command, or its status makes no sense."""


class AxiError(KernelError):
    """The memory answered a read or a write of the kernel with an error."""


class MemoryFaultError(KernelError):
    """Memory of the card does not hold what the host wrote there."""


class ContextLostError(KernelError):
    """The state of the context was lost by an earlier failure."""


class KernelTimeoutError(KernelError, TimeoutError):
    """A run did not end in time."""


class CardResetError(KernelError):
    """The run was waiting for the card when another run's time-out reset it."""
