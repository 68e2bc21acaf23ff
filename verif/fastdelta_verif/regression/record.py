# SPDX-License-Identifier: Apache-2.0
"""pytest plugin that records what the tests of a folder would simulate, and simulates nothing.

``pytest -p fastdelta_verif.regression.record --record-simulations FILE tests/simulation`` runs each
test that uses the fixture ``simulate``, which then only records its calls. Other tests are listed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastdelta_verif.build import REPOSITORY
from fastdelta_verif.regression.jobs import FOLDER, RecordedTest, Simulation

FIXTURE = "simulate"


class Recorder:
    """Tests in the order of collection, with the simulations that each asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limits: dict[str, float] = {}
        self._simulations: dict[str, list[Simulation]] = {}

    def add(self, node: str, simulation: Simulation) -> None:
        """Record a simulation of a test."""
        self._simulations[node].append(simulation)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note all tests, and leave those that would do something else than simulate."""
        for item in items:
            limit = item.get_closest_marker("timeout")
            self._limits[item.nodeid] = limit.args[0] if limit and limit.args else 0
            self._simulations[item.nodeid] = []
        items[:] = [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        tests = [
            RecordedTest(node.removeprefix(FOLDER), self._limits[node], tuple(simulations))
            for node, simulations in self._simulations.items()
        ]
        self._path.write_text(json.dumps([test.to_json() for test in tests]))


RECORDER = pytest.StashKey[Recorder]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--record-simulations", type=Path, metavar="FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Record when asked to."""
    path = config.getoption("--record-simulations", None)
    if path is not None:
        config.stash[RECORDER] = Recorder(path)
        config.pluginmanager.register(config.stash[RECORDER])


def record(folder: Path, file: str = "") -> list[RecordedTest]:
    """Return the tests of ``tests/simulation``, or of one file there.

    Mutants that they make are left in the folder.

    Raises
    ------
    RuntimeError
        A test could not be recorded; the message is pytest's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tests.json"
    command = [sys.executable, "-m", "pytest", "-p", "fastdelta_verif.regression.record"]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(folder / "tmp")]
    command += ["--record-simulations", str(path), FOLDER + file]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"recording {FOLDER} failed:\n{result.stdout}{result.stderr}")
    return [RecordedTest.from_json(record) for record in json.loads(path.read_text())]
