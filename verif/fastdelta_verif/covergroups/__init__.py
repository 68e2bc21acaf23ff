# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of the benches: models of what each is to reach, and what samples them.

A testpoint names points, or models, of these; ``catalogue`` has all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable

import cocotb
from pyuvm import uvm_component

from fastdelta_verif.agents.handshake import RHYTHMS, WAITED, Rhythm
from fastdelta_verif.coverage import CoverageGroup, CoverageModel, write_hits
from fastdelta_verif.settings import Settings

NO_SOME = ("none", "some")
SIMULATORS = ("verilator", "icarus")


def some(count: int) -> str:
    """Return the bin of a count that only matters for being 0 or not."""
    return NO_SOME[bool(count)]


def cross(*bins: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the bins of a cross of points."""
    return tuple(itertools.product(*bins))


def rhythms(*ports: str) -> tuple[Hashable, ...]:
    """Return the bins of the rhythms of ports: each in each way."""
    return cross(ports, RHYTHMS)


def rhythms_at_once(*ports: str) -> tuple[Hashable, ...]:
    """Return the bins of the rhythms of ports that never let a transfer wait."""
    return cross(ports, [rhythm for rhythm in RHYTHMS if rhythm != WAITED])


def simulator() -> str:
    """Return the bin of the simulator that runs."""
    name = str(cocotb.SIM_NAME).lower()
    return next(known for known in SIMULATORS if known in name)


def share_of(value: int, whole: int) -> str:
    """Return whether a part is none, some or all of a whole."""
    return "none" if value == 0 else "all" if value >= whole else "some"


def place_in(index: int, count: int) -> str:
    """Return where an element is in a row of some; one alone is the last."""
    return "last" if index == count - 1 else "first" if index == 0 else "between"


class Coverage(uvm_component):
    """Samples models, and writes what was hit when the simulation ends.

    The names of the points differ among the models of one bench.
    """

    def __init__(self, name: str, parent: uvm_component, *models: CoverageModel) -> None:
        super().__init__(name, parent)
        self.groups = [CoverageGroup(model.name, model.points) for model in models]
        self._of = {
            point: group
            for model, group in zip(models, self.groups, strict=True)
            for point in model.points
        }
        self._bins = {point: bins for model in models for point, bins in model.points.items()}
        assert len(self._of) == sum(len(model.points) for model in models)
        self._watched: list[tuple[str, Rhythm]] = []

    def bins(self, point: str) -> tuple[Hashable, ...]:
        """Return the bins of a point, none if there is no such point."""
        return self._bins.get(point, ())

    def hit(self, point: str, value: Hashable) -> None:
        """Count a bin."""
        self._of[point].hit(point, value)

    def watch(self, port: str, rhythm: Rhythm) -> None:
        """Sample the point ``rhythm`` with the ways in which transfers came in this simulation."""
        self._watched.append((port, rhythm))

    def simulator(self) -> None:
        """Sample the point ``simulator``."""
        self.hit("simulator", simulator())

    def report_phase(self) -> None:
        """Write the hits."""
        for port, rhythm in self._watched:
            for kind in sorted(rhythm.seen):
                # A model need not ask for all; but a port that is never to wait must not.
                if kind == WAITED or (port, kind) in self.bins("rhythm"):
                    self.hit("rhythm", (port, kind))
        merged = {point: bins for group in self.groups for point, bins in group.hits().items()}
        write_hits(merged, Settings.current().coverage_file)
