# SPDX-License-Identifier: Apache-2.0
"""Launching simulations: every test here is marked ``sim``, has a time limit and a seed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fastdelta_verif.build import REPOSITORY, Design, Simulate, run, seed_of

WALL_CLOCK_LIMIT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sim)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(WALL_CLOCK_LIMIT_S))


@pytest.fixture
def simulate(request: pytest.FixtureRequest, tmp_path: Path) -> Simulate:
    """Run one cocotb test, seeded by the name of the pytest test or ``COCOTB_RANDOM_SEED``."""
    node = request.node.nodeid

    def launch(
        design: Design, module: str, test: str, options: Mapping[str, Any] | None = None
    ) -> None:
        run(
            design,
            f"fastdelta_verif.benches.{module}",
            test,
            seed=seed_of(node),
            options=options,
            folder=tmp_path,
            rerun=f"pytest '{node}'",
        )

    return launch


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Folder of the bench's own small designs."""
    return REPOSITORY / "verif" / "fastdelta_verif" / "fixtures"
