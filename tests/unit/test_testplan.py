# SPDX-License-Identifier: Apache-2.0
"""The testplans are complete: every testpoint has its tests, every simulation its testpoint."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastdelta_verif.build import REPOSITORY
from fastdelta_verif.testplan import TESTPLANS, Testpoint, faults, load


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
