# SPDX-License-Identifier: Apache-2.0
"""Sparse index generation: job lists and decisions equal to the model, to the bit."""

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SOURCES = rtl_sources("prefill")


def index_generator(simulator: str = "verilator", **changes: int) -> Design:
    parameters = {
        "BLOCK": 16,
        "HEAD_DIM": 32,
        "MAX_BLOCKS": 64,
        "MAX_GROUP": 4,
        "SLOTS": 16,
        "BUS_WIDTH": 128,
        "POOL_LANES": 16,
        "REPLAY_ROWS": 2,
        "SCORE_LANES": 8,
        "MAP_ENTRIES": 2080,
        "MAP_LANES": 8,
        **changes,
    }
    return Design(
        "index_generator", needed_sources("index_generator", SOURCES), parameters, simulator
    )


UNITS = {
    "wide": index_generator(),
    "narrow-icarus": index_generator(
        "icarus",
        BLOCK=8,
        HEAD_DIM=16,
        MAX_BLOCKS=16,
        MAX_GROUP=3,
        SLOTS=4,
        BUS_WIDTH=64,
        POOL_LANES=4,
        REPLAY_ROWS=1,
        SCORE_LANES=2,
        MAP_ENTRIES=136,
        MAP_LANES=4,
    ),
}


@pytest.mark.parametrize("unit", UNITS)
def test_dense_lists(simulate: Simulate, unit: str) -> None:
    lists = 12 if UNITS[unit].simulator == "icarus" else 60
    simulate(UNITS[unit], "index_generator", "dense_lists", {"lists": lists})


@pytest.mark.parametrize("unit", UNITS)
def test_vertical_slash(simulate: Simulate, unit: str) -> None:
    runs = 3 if UNITS[unit].simulator == "icarus" else 12
    options = {"runs": runs, "blocks": 12, "limit": 0}
    simulate(UNITS[unit], "index_generator", "random_runs", options)


@pytest.mark.parametrize("unit", UNITS)
def test_query_aware(simulate: Simulate, unit: str) -> None:
    runs = 3 if UNITS[unit].simulator == "icarus" else 12
    options = {"runs": runs, "blocks": 12, "limit": 1 << 24}
    simulate(UNITS[unit], "index_generator", "random_runs", options)


@pytest.mark.parametrize("unit", UNITS)
def test_both_patterns(simulate: Simulate, unit: str) -> None:
    runs = 3 if UNITS[unit].simulator == "icarus" else 20
    simulate(UNITS[unit], "index_generator", "random_runs", {"runs": runs, "blocks": 20})
