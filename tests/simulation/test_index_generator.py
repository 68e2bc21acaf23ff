# SPDX-License-Identifier: Apache-2.0
"""Sparse index generation: job lists and decisions equal to the model, to the bit."""

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SOURCES = rtl_sources("prefill")


def index_generator(simulator: str = "verilator", **changes: int) -> Design:
    parameters = {
        "MAX_BLOCKS": 64,
        "MAX_GROUP": 4,
        "SLOTS": 16,
        "SCORE_LANES": 8,
        "MAP_LANES": 8,
        **changes,
    }
    return Design(
        "index_generator", needed_sources("index_generator", SOURCES), parameters, simulator
    )


UNITS = {
    "wide": index_generator(),
    "narrow-icarus": index_generator(
        "icarus", MAX_BLOCKS=16, MAX_GROUP=3, SLOTS=4, SCORE_LANES=2, MAP_LANES=4
    ),
}


@pytest.mark.parametrize("unit", UNITS)
def test_dense_lists(simulate: Simulate, unit: str) -> None:
    lists = 12 if UNITS[unit].simulator == "icarus" else 60
    simulate(UNITS[unit], "index_generator", "dense_lists", {"lists": lists})
