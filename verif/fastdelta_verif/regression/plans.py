# SPDX-License-Identifier: Apache-2.0
"""Plans: which tests a regression runs, how often, and what it records."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdelta_verif.build import COVERAGE_ARGS
from fastdelta_verif.coverage import KINDS
from fastdelta_verif.regression.jobs import Job, RecordedTest
from fastdelta_verif.testplan import TESTPLANS, Testpoint, load, matches

PLANS = Path(__file__).parents[1] / "plans.toml"
CHOICES = ("all", "one_each")


@dataclass(frozen=True)
class LeftOut:
    """Tests that a plan does not run, and why."""

    tests: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """A plan; ``plans.toml`` explains the fields."""

    name: str
    description: str
    choice: str = "all"
    seeds: int = 1
    fresh_seeds: bool = False
    coverage: str = ""
    time_factor: float = 1.0
    leave_out: tuple[LeftOut, ...] = ()
    once: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    goals: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise ValueError(f"plan {self.name}: choice {self.choice!r} is none of {CHOICES}")
        if self.coverage not in COVERAGE_ARGS:
            raise ValueError(f"plan {self.name}: coverage is none of {tuple(COVERAGE_ARGS)}")
        if any(not left.reason.strip() for left in self.leave_out):
            raise ValueError(f"plan {self.name}: what is left out needs a reason")
        if set(self.goals) - {*KINDS, "functional"}:
            raise ValueError(f"plan {self.name}: there are goals of none of {KINDS}")

    def leaves_out(self, test: str) -> bool:
        """Say whether the plan does not run a test."""
        return any(fits(left.tests, test) for left in self.leave_out)

    def select(
        self, tests: Sequence[RecordedTest], points: Iterable[Testpoint]
    ) -> list[RecordedTest]:
        """Return the tests of the plan, in the given order."""
        kept = [test for test in tests if not self.leaves_out(test.name)]
        if self.choice == "all":
            return kept
        chosen = set()
        for point in points:
            for entry in point.tests:
                names = [test.name for test in kept if matches(entry, test.name)]
                chosen.update(names[:1])
        return [test for test in kept if test.name in chosen]

    def jobs(
        self,
        tests: Iterable[RecordedTest],
        seeds: int | None = None,
        base: int | None = None,
        coverage: str | None = None,
    ) -> list[Job]:
        """Return a job for each test and seed; ``seeds`` and ``coverage`` replace the plan's."""
        kind = self.coverage if coverage is None else coverage
        jobs = []
        for test in tests:
            fixed = any(fits(p, test.name) for p in self.fixed)
            single = not test.is_random or fixed or any(fits(p, test.name) for p in self.once)
            recorded = "" if any(fits(p, test.name) for p in self.uncovered) else kind
            for number in range(1 if single else seeds or self.seeds):
                jobs.append(Job(test, test.seed(None if fixed else base, number), recorded))
        return jobs

    def patterns(self) -> list[str]:
        """Return all patterns of the plan."""
        return [left.tests for left in self.leave_out] + [*self.once, *self.fixed, *self.uncovered]


def fits(pattern: str, test: str) -> bool:
    """Say whether a pattern stands for a test: a test, a function, or either with ``*`` in it."""
    expression = ".*".join(map(re.escape, pattern.split("*")))
    return any(re.fullmatch(expression, text) for text in (test, test.partition("[")[0]))


def load_plans(path: Path = PLANS) -> dict[str, Plan]:
    """Read the plans.

    Raises
    ------
    ValueError
        A plan has an unknown key or value, or leaves out something without a reason.
    """
    plans = {}
    for name, table in tomllib.loads(path.read_text()).items():
        try:
            values: dict[str, Any] = {**table, "name": name}
            values["leave_out"] = tuple(LeftOut(**entry) for entry in table.get("leave_out", ()))
            for key in ("once", "fixed", "uncovered"):
                values[key] = tuple(table.get(key, ()))
            plans[name] = Plan(**values)
        except TypeError as error:
            raise ValueError(f"{path.name}: plan {name}: {error}") from None
    return plans


def load_points() -> dict[str, list[Testpoint]]:
    """Return the testpoints of each engine."""
    return {path.stem: load(path) for path in sorted(TESTPLANS.glob("*.toml"))}
