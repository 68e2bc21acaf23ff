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
    "deep": index_generator(
        BLOCK=24,
        HEAD_DIM=48,
        MAX_BLOCKS=32,
        MAX_GROUP=8,
        SLOTS=8,
        BUS_WIDTH=64,
        POOL_LANES=32,
        REPLAY_ROWS=8,
        SCORE_LANES=1,
        MAP_ENTRIES=54,
        MAP_LANES=1,
    ),
    "narrow-icarus": index_generator(
        "icarus",
        BLOCK=8,
        HEAD_DIM=16,
        MAX_BLOCKS=16,
        MAX_GROUP=3,
        SLOTS=4,
        BUS_WIDTH=64,
        POOL_LANES=1,
        REPLAY_ROWS=1,
        SCORE_LANES=2,
        MAP_ENTRIES=136,
        MAP_LANES=4,
    ),
}
FULL = index_generator(
    BLOCK=128, HEAD_DIM=256, MAX_BLOCKS=256, BUS_WIDTH=512, POOL_LANES=64, MAP_ENTRIES=32896
)


@pytest.mark.parametrize("unit", UNITS)
def test_dense_lists(simulate: Simulate, unit: str) -> None:
    lists = 60 if unit == "wide" else 12
    simulate(UNITS[unit], "index_generator", "dense_lists", {"lists": lists})


def runs(unit: str, most: int) -> int:
    """Take fewer where runs are long: Icarus, or one score and one entry of the map a cycle."""
    return {"wide": most, "deep": most // 3, "narrow-icarus": 3}[unit]


@pytest.mark.parametrize("unit", UNITS)
def test_vertical_slash(simulate: Simulate, unit: str) -> None:
    options = {"runs": runs(unit, 12), "blocks": 12, "limit": 0}
    simulate(UNITS[unit], "index_generator", "random_runs", options)


@pytest.mark.parametrize("unit", UNITS)
def test_query_aware(simulate: Simulate, unit: str) -> None:
    options = {"runs": runs(unit, 12), "blocks": 9, "limit": 1 << 24}
    simulate(UNITS[unit], "index_generator", "random_runs", options)


@pytest.mark.parametrize("unit", UNITS)
def test_both_patterns(simulate: Simulate, unit: str) -> None:
    options = {"runs": runs(unit, 20), "blocks": 20}
    simulate(UNITS[unit], "index_generator", "random_runs", options)


@pytest.mark.parametrize("unit", UNITS)
def test_shortest_prompts(simulate: Simulate, unit: str) -> None:
    simulate(UNITS[unit], "index_generator", "shortest_prompts")


def test_map_without_place(simulate: Simulate) -> None:
    simulate(UNITS["deep"], "index_generator", "overflowing_maps", {"runs": 4})


def test_reset_in_run(simulate: Simulate) -> None:
    simulate(UNITS["wide"], "index_generator", "reset_in_run", {"resets": 8})


def test_full_size(simulate: Simulate) -> None:
    """A third of the cycles of the tiles, 341 each, suffices, and of a query-aware head twice that.

    Fetching the query blocks of a head takes 32 * 259 * 2 cycles of the latter.
    """
    options = {"blocks": 32, "group": 4, "most": [4 * 32 * 341 * 3 // 10, 4 * 32 * 341 * 2]}
    simulate(FULL, "index_generator", "cycles_beside_tiles", options)


def unit(top: str, **parameters: int) -> Design:
    return Design(top, needed_sources(top, SOURCES), parameters, "icarus")


SCORES = {"BLOCK": 8, "MAX_BLOCKS": 16, "MAX_GROUP": 3, "REPLAY_ROWS": 2, "SCORE_LANES": 4}
POOLING = {"BLOCK": 8, "HEAD_DIM": 16, "BUS_WIDTH": 64, "LANES": 8}
THRESHOLD = {"VALUE_BITS": 40, "LANES": 4, "ADDRESS_BITS": 6, "COUNT_BITS": 8}


@pytest.mark.parametrize(
    "shape",
    [{}, {"BLOCK": 24, "REPLAY_ROWS": 8, "MAX_GROUP": 1, "SCORE_LANES": 1}],
    ids=["8", "24"],
)
def test_row_scores(simulate: Simulate, shape: dict[str, int]) -> None:
    simulate(unit("index_scores", **SCORES | shape), "index_units", "row_scores", {"runs": 8})


@pytest.mark.parametrize("queries", [0, 1], ids=["keys", "queries"])
@pytest.mark.parametrize(
    "shape",
    [{}, {"LANES": 16}, {"BLOCK": 48, "BUS_WIDTH": 128, "HEAD_DIM": 48, "LANES": 32}],
    ids=["8", "8-one-word", "48"],
)
def test_pooled_blocks(simulate: Simulate, shape: dict[str, int], queries: int) -> None:
    design = unit("index_pooling", QUERIES=queries, **POOLING | shape)
    simulate(design, "index_units", "pooled_blocks", {"runs": 10})


@pytest.mark.parametrize(("d", "lanes"), [(48, 16), (16, 32)])
def test_dot_scores(simulate: Simulate, d: int, lanes: int) -> None:
    design = unit("index_dot", MAX_BLOCKS=8, HEAD_DIM=d, LANES=lanes, SLOTS=3)
    simulate(design, "index_units", "dot_scores", {"runs": 10})


def test_softmax_rows(simulate: Simulate) -> None:
    simulate(unit("index_softmax", MAX_BLOCKS=16), "index_units", "softmax_rows", {"runs": 12})


def test_divergences(simulate: Simulate) -> None:
    design = unit("index_divergence", MAX_BLOCKS=16, SCORE_LANES=4)
    simulate(design, "index_units", "divergences", {"runs": 30})


@pytest.mark.parametrize("bits", [40, 25])
def test_thresholds(simulate: Simulate, bits: int) -> None:
    design = unit("index_threshold", **THRESHOLD | {"VALUE_BITS": bits})
    simulate(design, "index_units", "thresholds", {"runs": 40})
