# SPDX-License-Identifier: Apache-2.0
"""What a regression runs: recorded tests, and jobs, which are tests with a seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastdelta_verif.build import Design, seed_of
from fastdelta_verif.testplan import matches

FOLDER = "tests/simulation/"
SEED_BITS = 31
Json = dict[str, Any]


@dataclass(frozen=True)
class Simulation:
    """One call of the fixture ``simulate``; ``fails`` as in ``build.run``."""

    design: Design
    module: str
    test: str
    options: Mapping[str, Any]
    fails: str | None = None

    def to_json(self) -> Json:
        """Return what ``from_json`` takes."""
        return {
            "design": design_to_json(self.design),
            "module": self.module,
            "test": self.test,
            "options": dict(self.options),
            "fails": self.fails,
        }

    @classmethod
    def from_json(cls, record: Json) -> Simulation:
        """Return the simulation of a record."""
        return cls(**{**record, "design": design_from_json(record["design"])})


def design_to_json(design: Design) -> Json:
    """Return what ``design_from_json`` takes."""
    return {
        "top": design.top,
        "sources": [str(source) for source in design.sources],
        "parameters": dict(design.parameters),
        "simulator": design.simulator,
        "coverage": design.coverage,
        "waves": design.waves,
    }


def design_from_json(record: Json) -> Design:
    """Return the design of a record."""
    return Design(**{**record, "sources": tuple(map(Path, record["sources"]))})


@dataclass(frozen=True)
class RecordedTest:
    """A test of ``tests/simulation``.

    Attributes
    ----------
    name
        Node of pytest below that folder.
    time_limit
        Seconds of wall clock.
    simulations
        What it simulates; nothing for a test that pytest itself has to run.
    """

    name: str
    time_limit: float
    simulations: tuple[Simulation, ...] = ()

    def to_json(self) -> Json:
        """Return what ``from_json`` takes."""
        return {
            "name": self.name,
            "time_limit": self.time_limit,
            "simulations": [simulation.to_json() for simulation in self.simulations],
        }

    @classmethod
    def from_json(cls, record: Json) -> RecordedTest:
        """Return the test of a record."""
        simulations = tuple(map(Simulation.from_json, record["simulations"]))
        return cls(record["name"], float(record["time_limit"]), simulations)

    @property
    def is_random(self) -> bool:
        """Whether another seed gives another run."""
        return bool(self.simulations)

    @property
    def is_case(self) -> bool:
        """Whether it samples nothing itself, so that it is a bin as a whole.

        That is so when pytest runs it, and when every simulation has a fault that is to be noticed.
        """
        return all(simulation.fails is not None for simulation in self.simulations)

    def is_named_by(self, entries: Iterable[str]) -> bool:
        """Say whether one of some entries of testpoints stands for this test."""
        return any(matches(entry, self.name) for entry in entries)

    def seed(self, base: int | None, number: int) -> int:
        """Return a seed: that of pytest for no base and number 0, else one of these and the name.

        The seeds of a run differ from test to test, so that two tests of one bench see different
        stimulus, and all follow from one number.
        """
        if base is None and number == 0:
            return seed_of(FOLDER + self.name)
        text = f"{base} {number} {self.name}"
        digest = hashlib.sha256(text.encode()).digest()
        return int.from_bytes(digest[:8], "little") % (1 << SEED_BITS)


@dataclass(frozen=True)
class Job:
    """A test with a seed."""

    test: RecordedTest
    seed: int
    coverage: str = ""
    waves: bool = False
    time_limit: float = field(default=0.0)

    @property
    def name(self) -> str:
        """Test and seed, which is also what runs it again."""
        return f"{self.test.name} seed={self.seed}" if self.test.is_random else self.test.name

    @property
    def slug(self) -> str:
        """Name of the job's folder."""
        text = re.sub(r"[^\w.-]+", "_", self.name.replace(".py::", "-")).strip("_")
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:6]
        return f"{text[:100]}-{digest}{'-waves' if self.waves else ''}"

    @property
    def simulations(self) -> tuple[Simulation, ...]:
        """The test's simulations with what this job records of each."""
        return tuple(
            replace(
                simulation,
                design=replace(
                    simulation.design,
                    coverage=self.coverage if simulation.design.simulator == "verilator" else "",
                    waves=self.waves,
                ),
            )
            for simulation in self.test.simulations
        )

    def to_json(self) -> Json:
        """Return what the worker takes."""
        return {
            "name": self.name,
            "test": self.test.name,
            "seed": self.seed,
            "simulations": [simulation.to_json() for simulation in self.simulations],
        }


COMMAND = "fastdelta regress --rerun"
SEED_LINE = re.compile(rf"\s*(?:{COMMAND}\s+)?['\"]?(.+?)(?:\s+seed=(\d+))?['\"]?\s*")


def parse_seed_line(line: str) -> tuple[str, int | None]:
    """Return test and seed of a line that a failure printed.

    Raises
    ------
    ValueError
        The line names no test.
    """
    match = SEED_LINE.fullmatch(line)
    if match is None or "::" not in match.group(1):
        raise ValueError(
            f"'{line}' is no job; give a test and its seed, such as "
            "'test_decode_core.py::test_behaviour[random_mix] seed=7'"
        )
    name = match.group(1).removeprefix(FOLDER)
    return name, None if match.group(2) is None else int(match.group(2))
