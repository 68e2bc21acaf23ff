# SPDX-License-Identifier: Apache-2.0
"""Parameter sets of the engines that the regression sweeps, and their designs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fastdelta_verif.build import Design, needed_sources, rtl_sources

# Most tests run on this one: two passes a token, two value heads a query/key head, and a v packet
# of several beats.
BASE: Mapping[str, int] = {
    "HEAD_DIM": 16,
    "QK_HEADS": 2,
    "GROUP_RATIO": 2,
    "H_ITER": 2,
    "CONTEXTS": 2,
    "BUS_WIDTH": 128,
    "POST_COLUMNS": 2,
    "STATE_PITCH": 32,
}

# head dimension, query/key heads, ratio, H_ITER, contexts, bus width, columns finished at once,
# pitch of the state: every value of each parameter, H_ITER below, at and above the ratio, one pass
# and several, numbers of heads that are no power of two.
_SWEEP = {
    "one_head": (32, 1, 1, 1, 1, 128, 1, 32),
    "three_heads": (48, 3, 1, 3, 1, 256, 4, 32),
    "below_ratio": (16, 2, 4, 1, 2, 128, 2, 27),
    "two_of_four": (32, 2, 4, 2, 3, 256, 1, 32),
    "at_ratio": (64, 1, 4, 4, 1, 512, 4, 32),
    "eight_heads": (64, 4, 2, 8, 1, 512, 2, 32),
    "sixteen_heads": (16, 4, 4, 16, 3, 512, 2, 27),
    "half_beat": (16, 1, 1, 1, 2, 512, 4, 32),
    "five_beats": (80, 1, 2, 2, 1, 512, 2, 32),
    "wide_head": (128, 1, 2, 1, 2, 512, 1, 27),
    "narrow_bus": (128, 2, 1, 2, 1, 128, 4, 32),
}
SWEEP: Mapping[str, Mapping[str, int]] = {
    name: dict(zip(BASE, values, strict=True)) for name, values in _SWEEP.items()
}

# Qwen3-Next's layer.
FULL: Mapping[str, int] = {
    "HEAD_DIM": 128,
    "QK_HEADS": 16,
    "GROUP_RATIO": 2,
    "H_ITER": 8,
    "CONTEXTS": 1,
    "BUS_WIDTH": 512,
    "POST_COLUMNS": 2,
    "STATE_PITCH": 32,
}

# Small prefill units: one server of one fabric array, and an engine with arrays of both forms.
MATRIX_BASE: Mapping[str, int] = {
    "STRIPS": 1,
    "ROW_ARRAYS": 1,
    "LUT_ARRAYS": 1,
    "ARRAY_ROWS": 4,
    "ARRAY_COLUMNS": 4,
    "COLUMN_WIDTH": 2,
    "DEPTH_WIDTH": 9,
    "TAG_WIDTH": 16,
    "QUEUE_DEPTH": 8,
    "OPERAND_LATENCY": 1,
}
READER_BASE: Mapping[str, int] = {"SLOTS": 16, "MAX_BLOCKS": 64, "BUS_WIDTH": 64}
INDEX_BASE: Mapping[str, int] = {
    "BLOCK": 8,
    "HEAD_DIM": 16,
    "MAX_BLOCKS": 16,
    "MAX_GROUP": 3,
    "SLOTS": 4,
    "BUS_WIDTH": 64,
    "POOL_LANES": 1,
    "REPLAY_ROWS": 1,
    "SCORE_LANES": 2,
    "MAP_ENTRIES": 136,
    "MAP_LANES": 4,
}
CACHE_BASE: Mapping[str, int] = {
    "BLOCK": 8,
    "HEAD_DIM": 16,
    "CACHE_LINES": 4,
    "MAX_BLOCKS": 64,
    "BUS_WIDTH": 64,
    "PREFETCH": 4,
}
TILE_BASE: Mapping[str, int] = {
    "STRIPS": 3,
    "ROW_ARRAYS": 2,
    "LUT_ARRAYS": 1,
    "ARRAY_ROWS": 4,
    "ARRAY_COLUMNS": 4,
    "HEAD_DIM": 16,
    "SLOTS": 8,
    "KV_BUFFERS": 4,
    "TILES": 4,
    "BUS_WIDTH": 64,
}


def decode_core(
    parameters: Mapping[str, int],
    simulator: str = "verilator",
    sources: Sequence[Path] | None = None,
) -> Design:
    """Return the decode core; ``sources`` replace those of the file list."""
    used = needed_sources("decode_core", sources or rtl_sources("decode"))
    return Design("decode_core", used, parameters, simulator=simulator)


def decode_kernel(
    parameters: Mapping[str, int],
    simulator: str = "verilator",
    sources: Sequence[Path] | None = None,
) -> Design:
    """Return the decode kernel with its core; ``sources`` replace those of the file list."""
    used = needed_sources("decode_kernel", sources or rtl_sources("decode"))
    return Design("decode_kernel", used, parameters, simulator=simulator)


# The whole prefill kernel at its smallest.
PREFILL_BASE: Mapping[str, int] = {
    "HEAD_DIM": 16,
    "STRIPS": 2,
    "ROW_ARRAYS": 2,
    "LUT_ARRAYS": 1,
    "ARRAY_ROWS": 4,
    "ARRAY_COLUMNS": 4,
    "SLOTS": 8,
    "KV_BUFFERS": 2,
    "CACHE_LINES": 4,
    "MAX_BLOCKS": 16,
    "MAX_GROUP": 4,
    "BUS_WIDTH": 64,
}
