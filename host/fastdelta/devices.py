# SPDX-License-Identifier: Apache-2.0
"""List the cards that can be opened, real and simulated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fastdelta.boards import SIMULATED, real_cards
from fastdelta.platforms import PLATFORMS, Platform, find_platform
from fastdelta.sim.xrt import active_prefix


@dataclass(frozen=True)
class DeviceEntry:
    """One card.

    Attributes
    ----------
    board
        What ``Accelerator.open(board=...)`` takes: the index of a real card, or the name of a
        simulated one.
    name
        What XRT calls the card, or the name of the simulated one.
    card
        ``u55c`` or ``u280``; None for a card without overlays.
    simulated
        Whether it is simulated, also behind XRT (`fastdelta.sim.xrt`).
    memory_bytes
        Memory on the card; None if it is not known.
    """

    board: str | int
    name: str
    card: str | None
    simulated: bool
    memory_bytes: int | None


@dataclass(frozen=True)
class DeviceList:
    """The cards, real ones first, and why there are no real ones if there are none."""

    devices: tuple[DeviceEntry, ...]
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the list for programs."""
        return asdict(self)


def list_devices() -> DeviceList:
    """Return every card that can be opened."""
    entries = []
    note = "no real card is seen; fastdelta doctor says what is missing"
    try:
        names = [str(card.name) for card in real_cards()]
    except Exception as error:  # whatever PYNQ, or a card that does not answer, raises
        names = []
        note = f"real cards cannot be listed: {error}"
    simulated = active_prefix() is not None  # XRT's library is that of the simulator
    for index, name in enumerate(names):
        try:
            platform = find_platform(name)
        except ValueError:
            entries.append(DeviceEntry(index, name, None, simulated, memory_bytes=None))
        else:
            entries.append(_entry(index, name, platform, simulated=simulated))
    for short, platform in PLATFORMS.items():
        name = SIMULATED + short
        entries.append(_entry(name, name, platform, simulated=True))
    return DeviceList(tuple(entries), None if names else note)


def _entry(board: str | int, name: str, platform: Platform, *, simulated: bool) -> DeviceEntry:
    memory = sum(bank.size for bank in platform.banks)
    return DeviceEntry(board, name, platform.name, simulated, memory)
