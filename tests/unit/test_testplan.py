# SPDX-License-Identifier: Apache-2.0
"""The testplans are complete: every testpoint has its tests, every simulation its testpoint."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastdelta_verif.build import REPOSITORY
from fastdelta_verif.covergroups.catalogue import points as coverage_points
from fastdelta_verif.testplan import TESTPLANS, Testpoint, coverage_faults, faults, load


@pytest.fixture(scope="module")
def simulations() -> list[str]:
    """Return the simulations that pytest collects, without their folder."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/simulation"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    folder = "tests/simulation/"
    return [line[len(folder) :] for line in result.stdout.splitlines() if line.startswith(folder)]


def test_testpoints_and_simulations_belong_together(simulations: list[str]) -> None:
    points = [point for path in TESTPLANS.glob("*.toml") for point in load(path)]
    assert points
    assert simulations
    assert not faults(points, simulations), "\n".join(faults(points, simulations))


def test_testpoints_and_coverage_belong_together(simulations: list[str]) -> None:
    """Every testpoint names points that exist, and every point is named by one.

    That the tests of a testpoint sample them is known after a run: a nightly one fails without.
    """
    points = [point for path in TESTPLANS.glob("*.toml") for point in load(path)]
    found = coverage_faults(points, coverage_points(), simulations)
    assert not found, "\n".join(found)


def test_every_point_of_coverage_is_sampled_by_a_bench() -> None:
    folder = REPOSITORY / "verif" / "fastdelta_verif"
    names = ("benches", "cells", "covergroups", "environments")
    files = [file for name in names for file in (folder / name).glob("*.py")]
    text = "".join(file.read_text() for file in files)
    # The name of the point is the first argument, or an f-string that begins with a variable.
    calls = re.findall(r"\.(?:hit|reached|blocks|words)\(\s*f?\"([\w{}]+)\"", text)
    patterns = [re.sub(r"\{\w+\}", r"\\w+", call) for call in calls]
    by_variable = {"query_multiplier", "query_exponent"} | {
        point.rpartition(".")[2] for point in coverage_points() if point.startswith("core.param")
    }
    silent = [
        point
        for point in coverage_points()
        if (name := point.rpartition(".")[2]) not in by_variable
        and not any(re.fullmatch(pattern, name) for pattern in patterns)
    ]
    assert not silent, f"nothing samples {silent}"


def test_faults_of_the_coverage_of_a_testplan_are_seen() -> None:
    tests = ["test_a.py::test_one[x]"]
    good = [
        Testpoint("area.known", "Is so.", ("test_a.py::test_one",), ("unit",)),
        Testpoint("area.case", "Is so.", ("test_a.py::test_one",), ("cases.test_a.test_one",)),
    ]
    assert not coverage_faults(good, ["unit.a", "unit.b"], tests)
    bare = [Testpoint("area.bare", "Is so.", ("test_a.py::test_one",))]
    assert coverage_faults(bare, [], tests) == ["testpoint area.bare names no coverage"]
    wrong = [Testpoint("area.wrong", "Is so.", ("test_a.py::test_one",), ("uni",))]
    assert coverage_faults(wrong, ["unit.a"], tests) == [
        "testpoint area.wrong: there is no coverage uni",
        "coverage unit.a is in no testpoint",
    ]


def test_faults_of_a_testplan_are_seen() -> None:
    points = [Testpoint("area.known", "Is so.", ("test_a.py::test_one", "test_a.py::test_two[x]"))]
    assert not faults(points, ["test_a.py::test_one[a]", "test_a.py::test_two[x]"])
    assert faults(points, ["test_a.py::test_one[a]"]) == [
        "testpoint area.known: there is no test test_a.py::test_two[x]"
    ]
    tests = ["test_a.py::test_one", "test_a.py::test_two[x]", "test_a.py::test_two[y]"]
    assert faults(points, tests) == ["test test_a.py::test_two[y] is in no testpoint"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id = "a"\ndescription = "b"\ntests = []', "names no test"),
        ('id = "a"\ndescription = "b"', "testpoint a: 'tests'"),
        ('id = "a"\ndescription = "b"\ntests = ["t"]\nowner = "c"', "owner"),
    ],
)
def test_malformed_testpoint_is_refused(tmp_path: Path, text: str, message: str) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f"[[testpoint]]\n{text}\n")
    with pytest.raises(ValueError, match=message):
        load(plan)


def test_identifier_is_used_once(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[[testpoint]]\nid = "a"\ndescription = "b"\ntests = ["t"]\n' * 2)
    with pytest.raises(ValueError, match="two testpoints a"):
        load(plan)
