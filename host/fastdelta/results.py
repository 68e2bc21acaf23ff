# SPDX-License-Identifier: Apache-2.0
"""What every result of a card carries beside its figures: times of the host, and their origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from fastdelta.shapes import DecodeShape, PrefillShape


@dataclass(frozen=True)
class Seconds:
    """Wall-clock times of the host, in seconds.

    ``prepare`` quantising, packing and back; ``copy`` transfers to and from the card; ``launch``
    from the start of the runs until the host saw their end. On the simulated card they say how
    fast the simulation is, nothing about a card.
    """

    prepare: float = 0.0
    copy: float = 0.0
    launch: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(
            self.prepare + other.prepare, self.copy + other.copy, self.launch + other.launch
        )


@dataclass(frozen=True)
class Provenance:
    """Where figures come from.

    Attributes
    ----------
    board : str
        Name of the card.
    simulated : bool
        Whether the card is the simulated one.
    shape : DecodeShape or PrefillShape
        Parameters of the kernel.
    clock_mhz : float or None
        Kernel clock of the card; None on the simulated card, which counts cycles only.
    seed : int or None
        Seed of the simulated memory's stalls; None on a card.
    options : mapping
        Other options of the simulated card.
    versions : mapping
        Versions of the kernel, the package, PYNQ and the simulator, and the overlay's uuid.
    """

    board: str
    simulated: bool
    shape: DecodeShape | PrefillShape
    clock_mhz: float | None = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "board": self.board,
            "simulated": self.simulated,
            "config": asdict(self.shape),
            "clock_mhz": self.clock_mhz,
            "seed": self.seed,
            "options": dict(self.options),
            "versions": dict(self.versions),
        }

    def clock(self, clock_mhz: float | None = None) -> float:
        """Return a clock in MHz: the one that is given, else the card's own.

        Raises
        ------
        ValueError
            If neither is there: the simulated card counts cycles and has no clock.
        """
        found = self.clock_mhz if clock_mhz is None else clock_mhz
        if found is None:
            raise ValueError(
                "the simulated card counts cycles and has no clock; name the clock to assume, "
                "such as clock_mhz=300"
            )
        return found
