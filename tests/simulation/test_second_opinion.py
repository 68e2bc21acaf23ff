# SPDX-License-Identifier: Apache-2.0
"""Icarus, which has unknown values, and Verilator from two states at power-up agree to the bit."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastdelta.shapes import SMALL_DECODE, PrefillShape
from fastdelta_verif.build import Design, SimulationError, needed_sources, rtl_sources, seed_of
from fastdelta_verif.cells.stand_in import stand_in_kernel
from fastdelta_verif.cells.stand_in.prefill import stand_in_prefill
from fastdelta_verif.designs import (
    BASE,
    CACHE_BASE,
    INDEX_BASE,
    MATRIX_BASE,
    PREFILL_BASE,
    READER_BASE,
    TILE_BASE,
    decode_core,
    decode_kernel,
)
from fastdelta_verif.second_opinion import second_opinion


@dataclass(frozen=True)
class Case:
    """A design, and one of its tests: module of ``fastdelta_verif.benches``, name, options."""

    design: Design
    module: str
    test: str
    options: Mapping[str, Any]


def common(top: str, **parameters: int) -> Design:
    return Design(top, rtl_sources("common"), parameters)


def prefill(top: str, parameters: Mapping[str, int]) -> Design:
    return Design(top, needed_sources(top, rtl_sources("prefill")), parameters)


# Where it costs nothing, shapes are those of other tests, whose builds serve here too.
READ_MOVER = {"DATA_WIDTH": 32, "MAX_BURST": 256, "FIFO_BEATS": 512}
WRITE_MOVER = {"DATA_WIDTH": 32, "MAX_BURST": 256, "FIFO_BEATS": 64, "OUTSTANDING": 4}
ARRAY = {"ROWS": 4, "COLUMNS": 4, "LUT": 0, "COLUMN_WIDTH": 2, "SUM_WIDTH": 24}
THRESHOLD = {"VALUE_BITS": 25, "LANES": 4, "ADDRESS_BITS": 6, "COUNT_BITS": 8}
POOLING = {"BLOCK": 8, "HEAD_DIM": 16, "BUS_WIDTH": 64, "LANES": 8, "QUERIES": 1}
PREFILL_SHELL = PrefillShape(
    head_dim=16,
    strips=1,
    row_arrays=2,
    lut_arrays=1,
    array_rows=4,
    array_columns=4,
    slots=8,
    kv_buffers=2,
    cache_lines=2,
    max_blocks=8,
    max_group=8,
    bus_width=64,
)

CASES = {
    "skid_buffer": Case(
        common("skid_buffer", WIDTH=72),
        "stream_buffer",
        "random_stalls",
        {"latency": 1, "capacity": 2},
    ),
    "stream_fifo": Case(
        common("stream_fifo", WIDTH=33, DEPTH=16),
        "stream_buffer",
        "random_stalls",
        {"latency": 2, "capacity": 17},
    ),
    "read_mover": Case(
        common("axi_read_mover", **READ_MOVER),
        "axi_read_mover",
        "random_transfers",
        {"transfers": 20},
    ),
    "write_mover": Case(
        common("axi_write_mover", **WRITE_MOVER),
        "axi_write_mover",
        "random_transfers",
        {"transfers": 20},
    ),
    "decode_core": Case(decode_core(BASE), "decode_core", "random_mix", {"commands": 6}),
    "decode_kernel": Case(decode_kernel(BASE), "decode_kernel", "random_runs", {"runs": 5}),
    "decode_shell": Case(
        stand_in_kernel(SMALL_DECODE), "kernel_shell", "random_runs", {"runs": 10}
    ),
    "mac_array": Case(prefill("mac_array", ARRAY), "mac_array", "random_tasks", {"tasks": 20}),
    "matrix_unit": Case(
        prefill("matrix_unit", MATRIX_BASE), "matrix_unit", "random_tasks", {"tasks": 20}
    ),
    "index_threshold": Case(
        prefill("index_threshold", THRESHOLD), "index_units", "thresholds", {"runs": 10}
    ),
    "index_pooling": Case(
        prefill("index_pooling", POOLING), "index_units", "pooled_blocks", {"runs": 4}
    ),
    "index_generator": Case(
        prefill("index_generator", INDEX_BASE),
        "index_generator",
        "random_runs",
        {"runs": 3, "blocks": 9},
    ),
    "job_reader": Case(
        prefill("job_reader", READER_BASE), "job_reader", "random_lists", {"lists": 6}
    ),
    "kv_cache": Case(
        prefill("kv_cache", {**CACHE_BASE, "CACHE_LINES": 8}),
        "kv_cache",
        "random_lists",
        {"heads": 4},
    ),
    "tile_engine": Case(
        prefill("tile_engine", TILE_BASE), "tile_engine", "attention", {"prompts": 2, "blocks": 3}
    ),
    "prefill_shell": Case(
        stand_in_prefill(PREFILL_SHELL), "prefill_shell", "random_runs", {"runs": 2}
    ),
    "prefill_kernel": Case(
        prefill("prefill_kernel", {**PREFILL_BASE, "MAP_ENTRIES": 32896}),
        "prefill_kernel",
        "random_runs",
        {"runs": 2, "blocks": 2},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_simulators_agree(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    case, node = CASES[name], request.node.nodeid
    agreement = second_opinion(
        case.design,
        f"fastdelta_verif.benches.{case.module}",
        case.test,
        seed=seed_of(node),
        options=case.options,
        folder=tmp_path,
        rerun=f"pytest '{node}'",
    )
    assert agreement.cycles > 100
    assert agreement.bits > agreement.undetermined, "most of what ports show must be determined"
    print(name, agreement)


def test_result_that_hangs_on_the_initial_state_is_seen(fixtures: Path, tmp_path: Path) -> None:
    """The bench does not look at that port, and Icarus takes an unknown condition as false."""
    parameters = {"WIDTH": 128, "FAULT": 6}
    design = Design("stream_register", (fixtures / "stream_register.v",), parameters)
    bench = "fastdelta_verif.benches.stream_register"
    with pytest.raises(SimulationError, match=r"differs from icarus: cycle .* reset_is_missing"):
        second_opinion(design, bench, "copy", seed=1, options={"packets": 20}, folder=tmp_path)
