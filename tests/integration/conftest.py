# SPDX-License-Identifier: Apache-2.0
"""Simulated cards: every test here is marked ``sim`` and has a time limit."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from vector_add_board import (
    INPUT_BANK,
    OUTPUT_BANK,
    U55C,
    MakeBoard,
    VectorAddBoard,
    vector_add_library,
)

from fastdelta.sim.simulated_board import BoardOptions, ComputeUnitSpec, SimulatedBoard

WALL_CLOCK_LIMIT_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.sim)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(WALL_CLOCK_LIMIT_S))


@pytest.fixture
def make_board() -> Iterator[MakeBoard]:
    """Make boards with one or two vector-add units; they are closed after the test."""
    with ExitStack() as stack:

        def make(
            options: BoardOptions | None = None,
            *,
            units: int = 1,
            bus_width: int = 512,
            chain: bool = True,
            input_banks: Sequence[int] = (INPUT_BANK,),
        ) -> VectorAddBoard:
            library = vector_add_library(bus_width, chain)
            specs = [
                ComputeUnitSpec(
                    f"vector_add_{i + 1}",
                    library,
                    {"m_axi_in": input_banks, "m_axi_out": [OUTPUT_BANK]},
                    "ap_ctrl_chain" if chain else "ap_ctrl_hs",
                )
                for i in range(units)
            ]
            board = stack.enter_context(SimulatedBoard(U55C, specs, options))
            return VectorAddBoard(board, bus_width // 8)

        yield make
