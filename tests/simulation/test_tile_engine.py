# SPDX-License-Identifier: Apache-2.0
"""Tile engine: attention and statistics of tiles to the bit, over its parameters."""

from dataclasses import replace

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources
from fastdelta_verif.designs import TILE_BASE

SOURCES = rtl_sources("prefill")


def tile_engine(**parameters: int) -> Design:
    assert parameters.keys() <= TILE_BASE.keys()
    return Design(
        "tile_engine", needed_sources("tile_engine", SOURCES), {**TILE_BASE, **parameters}
    )


ENGINES = {
    "block_8": tile_engine(),
    "block_8_unknown_values": replace(tile_engine(), simulator="icarus"),
    "one_server": tile_engine(STRIPS=1, ROW_ARRAYS=1, LUT_ARRAYS=0, ARRAY_ROWS=8, TILES=2),
    "four_servers": tile_engine(
        STRIPS=4, ROW_ARRAYS=4, ARRAY_COLUMNS=8, HEAD_DIM=32, BUS_WIDTH=128, KV_BUFFERS=2
    ),
    "head_dim_48": tile_engine(
        ROW_ARRAYS=4,
        ARRAY_ROWS=8,
        ARRAY_COLUMNS=16,
        HEAD_DIM=48,
        BUS_WIDTH=128,
        KV_BUFFERS=3,
        TILES=3,
    ),
    "block_24": tile_engine(ROW_ARRAYS=3, ARRAY_ROWS=8, ARRAY_COLUMNS=8, SLOTS=2, TILES=8),
    "narrow_head": tile_engine(
        ROW_ARRAYS=4, ARRAY_ROWS=16, ARRAY_COLUMNS=16, HEAD_DIM=16, BUS_WIDTH=128, KV_BUFFERS=8
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_attention(simulate: Simulate, engine: str) -> None:
    simulate(ENGINES[engine], "tile_engine", "attention", {"prompts": 8, "blocks": 5})


@pytest.mark.parametrize("engine", ENGINES)
def test_statistics(simulate: Simulate, engine: str) -> None:
    simulate(ENGINES[engine], "tile_engine", "statistics", {"prompts": 6, "blocks": 4})


def test_slow_outputs(simulate: Simulate) -> None:
    simulate(ENGINES["block_8"], "tile_engine", "slow_outputs")


def test_reset(simulate: Simulate) -> None:
    simulate(ENGINES["block_8"], "tile_engine", "reset_in_work", {"resets": 8})


@pytest.mark.parametrize(
    ("head_dim", "blocks", "least"), [(64, 8, 0.87), (128, 8, 0.90), (256, 7, 0.90)]
)
def test_full_size(simulate: Simulate, head_dim: int, blocks: int, least: float) -> None:
    engine = tile_engine(
        ROW_ARRAYS=4,
        LUT_ARRAYS=2,
        ARRAY_ROWS=32,
        ARRAY_COLUMNS=32,
        HEAD_DIM=head_dim,
        SLOTS=16,
        BUS_WIDTH=512,
    )
    options = {"group": 4, "blocks": blocks, "window": 4, "density": 0.8, "least": least}
    simulate(engine, "tile_engine", "utilisation", options)
