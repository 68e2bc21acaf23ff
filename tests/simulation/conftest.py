# SPDX-License-Identifier: Apache-2.0
"""Launching simulations: every test here is marked ``sim``, has a time limit and a seed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fastdelta_verif.build import REPOSITORY, Design, Simulate, run, seed_of
from fastdelta_verif.regression.jobs import Simulation
from fastdelta_verif.regression.record import RECORDER

WALL_CLOCK_LIMIT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sim)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(WALL_CLOCK_LIMIT_S))


@pytest.fixture
def simulate(request: pytest.FixtureRequest, tmp_path: Path) -> Simulate:
    """Run one cocotb test, seeded by the name of the pytest test or ``COCOTB_RANDOM_SEED``.

    With ``fails`` it must fail so. For ``fastdelta regress`` the simulation is recorded instead.
    """
    node = request.node.nodeid
    recorder = request.config.stash.get(RECORDER, None)

    def launch(
        design: Design,
        module: str,
        test: str,
        options: Mapping[str, Any] | None = None,
        fails: str | None = None,
    ) -> None:
        module = f"fastdelta_verif.benches.{module}"
        if recorder is not None:
            recorder.add(node, Simulation(design, module, test, dict(options or {}), fails))
            return
        run(
            design,
            module,
            test,
            seed=seed_of(node),
            options=options,
            folder=tmp_path,
            rerun=f"pytest '{node}'",
            fails=fails,
        )

    return launch


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Folder of the bench's own small designs."""
    return REPOSITORY / "verif" / "fastdelta_verif" / "fixtures"
