# SPDX-License-Identifier: Apache-2.0
"""Testplans: which simulations show which behaviour.

A testplan is a TOML file of ``[[testpoint]]`` tables; ``testplans/decode.toml`` explains the keys.
``python -m fastdelta_verif.testplan`` prints them.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TESTPLANS = Path(__file__).with_name("testplans")
CASES = "cases"


@dataclass(frozen=True)
class Testpoint:
    """One behaviour, the tests that show it, and the coverage that tells how well.

    Attributes
    ----------
    id, description
        Name, and what is true.
    tests
        Entries for tests.
    coverage
        Points of functional coverage, or models, which stand for all of their points.
    fault
        Public report of a fault of this kind.
    """

    __test__ = False  # not a test class of pytest's

    id: str
    description: str
    tests: tuple[str, ...]
    coverage: tuple[str, ...] = ()
    fault: str = ""


def load(path: Path) -> list[Testpoint]:
    """Read a testplan.

    Raises
    ------
    ValueError
        A testpoint has a key that there is none of, lacks one, has no test, or an identifier that
        another one has.
    """
    points: list[Testpoint] = []
    for table in tomllib.loads(path.read_text())["testpoint"]:
        try:
            lists = {"tests": tuple(table["tests"]), "coverage": tuple(table.get("coverage", ()))}
            point = Testpoint(**{**table, **lists})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name}: testpoint {table.get('id', '?')}: {error}") from None
        if not point.tests:
            raise ValueError(f"{path.name}: testpoint {point.id} names no test")
        if any(other.id == point.id for other in points):
            raise ValueError(f"{path.name}: there are two testpoints {point.id}")
        points.append(point)
    return points


def matches(entry: str, test: str) -> bool:
    """Say whether an entry of a testpoint stands for a test."""
    return entry == test or entry == test.partition("[")[0]


def covers(entry: str, point: str) -> bool:
    """Say whether an entry of a testpoint stands for a point of the functional coverage."""
    return point == entry or point.startswith(f"{entry}.")


def case_of(test: str) -> tuple[str, str]:
    """Return point and bin of a test that counts as a whole, as one with a planted fault does."""
    name, _, parameters = test.partition("[")
    return f"{CASES}.{name.replace('.py::', '.')}", parameters.removesuffix("]") or "passed"


def coverage_faults(
    points: Iterable[Testpoint], known: Iterable[str], tests: Iterable[str]
) -> list[str]:
    """Return what is wrong between a testplan and the coverage that exists, one line each.

    Parameters
    ----------
    points
        Testpoints.
    known
        Points of the models of coverage.
    tests
        Tests that exist.
    """
    points, all_points = list(points), {*known, *(case_of(test)[0] for test in tests)}
    lines = [f"testpoint {point.id} names no coverage" for point in points if not point.coverage]
    lines += [
        f"testpoint {point.id}: there is no coverage {entry}"
        for point in points
        for entry in point.coverage
        if not any(covers(entry, other) for other in all_points)
    ]
    entries = [entry for point in points for entry in point.coverage]
    lines += [
        f"coverage {point} is in no testpoint"
        for point in sorted(known)
        if not any(covers(entry, point) for entry in entries)
    ]
    return lines


def faults(points: Iterable[Testpoint], tests: Iterable[str]) -> list[str]:
    """Return what is wrong between a testplan and the tests that exist, one line each."""
    points, tests = list(points), list(tests)
    entries = [(point.id, entry) for point in points for entry in point.tests]
    lines = [
        f"testpoint {name}: there is no test {entry}"
        for name, entry in entries
        if not any(matches(entry, test) for test in tests)
    ]
    lines += [
        f"test {test} is in no testpoint"
        for test in tests
        if not any(matches(entry, test) for _, entry in entries)
    ]
    return lines


def main() -> int:
    """Print all testplans."""
    for path in sorted(TESTPLANS.glob("*.toml")):
        points = load(path)
        print(f"{path.stem}: {len(points)} testpoints")
        for point in points:
            print(f"  {point.id}: {point.description}")
            if point.fault:
                print(f"    seen in {point.fault}")
            for test in point.tests:
                print(f"    {test}")
            for name in point.coverage:
                print(f"    covered by {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
