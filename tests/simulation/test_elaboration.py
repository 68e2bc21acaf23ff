# SPDX-License-Identifier: Apache-2.0
"""Illegal parameters stop Verilator, Icarus and Yosys; legal ones elaborate in all of them.

A module instantiates, in a generate block that only illegal values enter, a module that does not
exist and whose name says the rule: all tools refuse that, and print the name.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fastdelta_verif.build import REPOSITORY, rtl_sources

LEGAL: dict[tuple[str, str], list[dict[str, int | str]]] = {
    ("common", "skid_buffer"): [{"WIDTH": 1}, {"WIDTH": 600}],
    ("common", "stream_fifo"): [{"WIDTH": 1, "DEPTH": 2}, {"DEPTH": 65536}],
    ("common", "axi_read_mover"): [
        {"DATA_WIDTH": 32, "MAX_BURST": 256, "FIFO_BEATS": 256},
        {"DATA_WIDTH": 1024, "ADDRESS_WIDTH": 32, "MAX_BURST": 1, "FIFO_BEATS": 2},
    ],
    ("common", "axi_write_mover"): [
        {"DATA_WIDTH": 32, "MAX_BURST": 256, "FIFO_BEATS": 2, "OUTSTANDING": 256},
        {"DATA_WIDTH": 1024, "ADDRESS_WIDTH": 32, "MAX_BURST": 1, "OUTSTANDING": 2},
    ],
    ("common", "beat_checksum"): [{"BUS_WIDTH": 64}, {"BUS_WIDTH": 1024}],
    ("common", "result_block"): [
        {"BUS_WIDTH": 64, "BLOCK_WIDTH": 2048},
        {"BUS_WIDTH": 1024, "BLOCK_WIDTH": 1024},
    ],
    ("decode", "decode_kernel"): [
        {"HEAD_DIM": 16, "QK_HEADS": 1, "GROUP_RATIO": 4, "H_ITER": 2, "BUS_WIDTH": 128},
        {"HEAD_DIM": 48, "QK_HEADS": 3, "GROUP_RATIO": 1, "H_ITER": 3, "CONTEXTS": 64},
    ],
    ("prefill", "block_check"): [
        {"BLOCK_BEATS": 1, "BUS_WIDTH": 64},
        {"BLOCK_BEATS": 65535},
    ],
    ("prefill", "job_reader"): [
        {"SLOTS": 2, "MAX_BLOCKS": 2, "BUS_WIDTH": 64},
        {"SLOTS": 64, "MAX_BLOCKS": 2048, "BUS_WIDTH": 256},
    ],
    ("prefill", "index_generator"): [
        {
            "BLOCK": 8,
            "HEAD_DIM": 16,
            "MAX_BLOCKS": 2,
            "MAX_GROUP": 1,
            "SLOTS": 2,
            "BUS_WIDTH": 64,
            "POOL_LANES": 1,
            "REPLAY_ROWS": 8,
            "SCORE_LANES": 1,
            "MAP_ENTRIES": 3,
            "MAP_LANES": 1,
        },
        {"HEAD_DIM": 48, "MAX_BLOCKS": 2048, "MAX_GROUP": 8, "SCORE_LANES": 64, "MAP_LANES": 64},
    ],
    ("prefill", "block_buffer"): [{"RAM_STYLE": "ultra"}],
    ("prefill", "kv_cache"): [
        {"BLOCK": 8, "HEAD_DIM": 16, "CACHE_LINES": 2, "BUS_WIDTH": 64, "PREFETCH": 1},
        {"HEAD_DIM": 192, "CACHE_LINES": 1024, "MAX_BLOCKS": 2048, "PREFETCH": 16},
    ],
    ("prefill", "prefill_kernel"): [
        {
            "HEAD_DIM": 16,
            "ROW_ARRAYS": 2,
            "LUT_ARRAYS": 1,
            "ARRAY_ROWS": 4,
            "ARRAY_COLUMNS": 4,
            "CACHE_LINES": 2,
            "MAX_BLOCKS": 4,
            "BUS_WIDTH": 64,
        },
        {
            "HEAD_DIM": 48,
            "STRIPS": 4,
            "ROW_ARRAYS": 1,
            "LUT_ARRAYS": 0,
            "ARRAY_ROWS": 16,
            "ARRAY_COLUMNS": 16,
            "SLOTS": 4,
            "KV_BUFFERS": 8,
            "MAX_GROUP": 3,
            "BUS_WIDTH": 128,
        },
    ],
    ("prefill", "matrix_unit"): [
        {"STRIPS": 1, "ROW_ARRAYS": 1, "LUT_ARRAYS": 0, "ARRAY_ROWS": 2, "DEPTH_WIDTH": 1},
        {"STRIPS": 4, "ROW_ARRAYS": 1, "LUT_ARRAYS": 1, "ARRAY_ROWS": 3, "OPERAND_LATENCY": 16},
    ],
}
ILLEGAL = [
    ("common", "skid_buffer", {"WIDTH": 0}, "WIDTH"),
    ("common", "stream_fifo", {"WIDTH": 0}, "WIDTH"),
    ("common", "stream_fifo", {"DEPTH": 1}, "DEPTH"),
    ("common", "stream_fifo", {"DEPTH": 48}, "DEPTH"),
    ("common", "stream_fifo", {"DEPTH": 131072}, "DEPTH"),
    ("common", "axi_burst_planner", {"ADDRESS_WIDTH": 31}, "ADDRESS_WIDTH"),
    ("common", "axi_burst_planner", {"DATA_WIDTH": 16}, "DATA_WIDTH"),
    ("common", "axi_burst_planner", {"DATA_WIDTH": 96}, "DATA_WIDTH"),
    ("common", "axi_burst_planner", {"DATA_WIDTH": 2048}, "DATA_WIDTH"),
    ("common", "axi_burst_planner", {"MAX_BURST": 0}, "MAX_BURST"),
    ("common", "axi_burst_planner", {"MAX_BURST": 257}, "MAX_BURST"),
    ("common", "axi_read_mover", {"MAX_BURST": 64, "FIFO_BEATS": 32}, "FIFO_BEATS"),
    ("common", "axi_write_mover", {"OUTSTANDING": 1}, "OUTSTANDING"),
    ("common", "axi_write_mover", {"OUTSTANDING": 12}, "OUTSTANDING"),
    ("common", "beat_checksum", {"BUS_WIDTH": 32}, "BUS_WIDTH"),
    ("common", "beat_checksum", {"BUS_WIDTH": 192}, "BUS_WIDTH"),
    ("common", "result_block", {"BUS_WIDTH": 1024, "BLOCK_WIDTH": 512}, "BLOCK_WIDTH"),
    ("common", "result_block", {"BUS_WIDTH": 64, "BLOCK_WIDTH": 4096}, "BLOCK_WIDTH"),
    ("common", "result_block", {"BUS_WIDTH": 64, "BLOCK_WIDTH": 160}, "BLOCK_WIDTH"),
    ("prefill", "block_check", {"BLOCK_BEATS": 0}, "BLOCK_BEATS"),
    ("prefill", "block_check", {"BLOCK_BEATS": 65536}, "BLOCK_BEATS"),
    ("decode", "decode_kernel", {"HEAD_DIM": 8}, "HEAD_DIM"),
    ("decode", "decode_kernel", {"HEAD_DIM": 40}, "HEAD_DIM"),
    ("decode", "decode_kernel", {"HEAD_DIM": 144}, "HEAD_DIM"),
    ("decode", "decode_kernel", {"QK_HEADS": 0}, "QK_HEADS"),
    ("decode", "decode_kernel", {"QK_HEADS": 65}, "QK_HEADS"),
    ("decode", "decode_kernel", {"GROUP_RATIO": 3, "H_ITER": 1}, "GROUP_RATIO"),
    ("decode", "decode_kernel", {"H_ITER": 0}, "H_ITER"),
    ("decode", "decode_kernel", {"QK_HEADS": 16, "H_ITER": 32}, "H_ITER"),
    ("decode", "decode_kernel", {"H_ITER": 3}, "H_ITER"),
    ("decode", "decode_kernel", {"QK_HEADS": 3, "GROUP_RATIO": 4, "H_ITER": 6}, "H_ITER"),
    ("decode", "decode_kernel", {"CONTEXTS": 0}, "CONTEXTS"),
    ("decode", "decode_kernel", {"CONTEXTS": 65}, "CONTEXTS"),
    ("decode", "decode_kernel", {"BUS_WIDTH": 1024}, "BUS_WIDTH"),
    ("decode", "decode_kernel", {"BUS_WIDTH": 192}, "BUS_WIDTH"),
    ("decode", "decode_core", {"HEAD_DIM": 24}, "HEAD_DIM"),
    ("decode", "decode_core", {"QK_HEADS": 65, "H_ITER": 2}, "QK_HEADS"),
    ("decode", "decode_core", {"GROUP_RATIO": 3, "H_ITER": 1}, "GROUP_RATIO"),
    ("decode", "decode_core", {"H_ITER": 6}, "H_ITER"),
    ("decode", "decode_core", {"CONTEXTS": 65}, "CONTEXTS"),
    ("decode", "decode_core", {"BUS_WIDTH": 64}, "BUS_WIDTH"),
    ("decode", "decode_core", {"POST_COLUMNS": 3}, "POST_COLUMNS"),
    ("decode", "decode_core", {"STATE_PITCH": 26}, "STATE_PITCH"),
    ("decode", "decode_core", {"STATE_PITCH": 33}, "STATE_PITCH"),
    ("prefill", "block_buffer", {"RAM_STYLE": "ultro"}, "RAM_STYLE"),
    ("prefill", "mac_array", {"ROWS": 1}, "ROWS"),
    ("prefill", "mac_array", {"COLUMNS": 65}, "COLUMNS"),
    ("prefill", "mac_array", {"LUT": 2}, "LUT"),
    ("prefill", "mac_array", {"COLUMN_WIDTH": 4}, "COLUMN_WIDTH"),
    ("prefill", "mac_array", {"SUM_WIDTH": 16}, "SUM_WIDTH"),
    ("prefill", "mac_array", {"SUM_WIDTH": 33}, "SUM_WIDTH"),
    ("prefill", "matrix_unit", {"STRIPS": 0}, "STRIPS"),
    ("prefill", "matrix_unit", {"STRIPS": 5}, "STRIPS"),
    ("prefill", "matrix_unit", {"ROW_ARRAYS": 17}, "ROW_ARRAYS"),
    ("prefill", "matrix_unit", {"LUT_ARRAYS": 5}, "LUT_ARRAYS"),
    ("prefill", "matrix_unit", {"ARRAY_ROWS": 65}, "ARRAY_ROWS"),
    ("prefill", "matrix_unit", {"ARRAY_COLUMNS": 1}, "ARRAY_COLUMNS"),
    ("prefill", "matrix_unit", {"COLUMN_WIDTH": 4}, "COLUMN_WIDTH"),
    ("prefill", "matrix_unit", {"DEPTH_WIDTH": 17}, "DEPTH_WIDTH"),
    ("prefill", "matrix_unit", {"TAG_WIDTH": 0}, "TAG_WIDTH"),
    ("prefill", "job_reader", {"SLOTS": 128}, "SLOTS"),
    ("prefill", "job_reader", {"SLOTS": 12}, "SLOTS"),
    ("prefill", "job_reader", {"MAX_BLOCKS": 4096}, "MAX_BLOCKS"),
    ("prefill", "job_reader", {"MAX_BLOCKS": 100}, "MAX_BLOCKS"),
    ("prefill", "job_reader", {"BUS_WIDTH": 32}, "BUS_WIDTH"),
    ("prefill", "job_reader", {"BUS_WIDTH": 1024}, "BUS_WIDTH"),
    ("prefill", "index_generator", {"BLOCK": 12}, "BLOCK"),
    ("prefill", "index_generator", {"HEAD_DIM": 257}, "HEAD_DIM"),
    ("prefill", "index_generator", {"MAX_BLOCKS": 48}, "MAX_BLOCKS"),
    ("prefill", "index_generator", {"MAX_GROUP": 9}, "MAX_GROUP"),
    ("prefill", "index_generator", {"SLOTS": 12}, "SLOTS"),
    ("prefill", "index_generator", {"BUS_WIDTH": 32}, "BUS_WIDTH"),
    ("prefill", "index_generator", {"POOL_LANES": 48}, "LANES"),
    ("prefill", "index_generator", {"REPLAY_ROWS": 3}, "REPLAY_ROWS"),
    ("prefill", "index_generator", {"SCORE_LANES": 3}, "LANES"),
    ("prefill", "index_generator", {"MAP_ENTRIES": 2}, "MAP_ENTRIES"),
    ("prefill", "index_generator", {"MAP_LANES": 128}, "LANES"),
    ("prefill", "kv_cache", {"BLOCK": 256}, "BLOCK"),
    ("prefill", "kv_cache", {"BLOCK": 32}, "BLOCK"),
    ("prefill", "kv_cache", {"HEAD_DIM": 320}, "HEAD_DIM"),
    ("prefill", "kv_cache", {"HEAD_DIM": 96}, "HEAD_DIM"),
    ("prefill", "kv_cache", {"CACHE_LINES": 1}, "CACHE_LINES"),
    ("prefill", "kv_cache", {"CACHE_LINES": 48}, "CACHE_LINES"),
    ("prefill", "kv_cache", {"MAX_BLOCKS": 96}, "MAX_BLOCKS"),
    ("prefill", "kv_cache", {"BUS_WIDTH": 32}, "BUS_WIDTH"),
    ("prefill", "kv_cache", {"PREFETCH": 0}, "PREFETCH"),
    ("prefill", "kv_cache", {"PREFETCH": 17}, "PREFETCH"),
    ("prefill", "prefill_kernel", {"HEAD_DIM": 8}, "HEAD_DIM"),
    ("prefill", "prefill_kernel", {"HEAD_DIM": 264}, "HEAD_DIM"),
    ("prefill", "prefill_kernel", {"HEAD_DIM": 20}, "HEAD_DIM"),
    ("prefill", "prefill_kernel", {"ROW_ARRAYS": 1}, "ROW_ARRAYS_times_ARRAY_ROWS"),
    ("prefill", "prefill_kernel", {"ROW_ARRAYS": 3}, "ROW_ARRAYS_times_ARRAY_ROWS"),
    ("prefill", "prefill_kernel", {"SLOTS": 12}, "SLOTS"),
    ("prefill", "prefill_kernel", {"KV_BUFFERS": 1}, "KV_BUFFERS"),
    ("prefill", "prefill_kernel", {"CACHE_LINES": 12}, "CACHE_LINES"),
    ("prefill", "prefill_kernel", {"MAX_BLOCKS": 4096}, "MAX_BLOCKS"),
    ("prefill", "prefill_kernel", {"MAX_GROUP": 0}, "MAX_GROUP"),
    ("prefill", "prefill_kernel", {"MAX_GROUP": 9}, "MAX_GROUP"),
    ("prefill", "prefill_kernel", {"BUS_WIDTH": 32}, "BUS_WIDTH"),
    ("prefill", "prefill_kernel", {"MAP_ENTRIES": 2}, "MAP_ENTRIES"),
    ("prefill", "matrix_unit", {"QUEUE_DEPTH": 12}, "QUEUE_DEPTH"),
    ("prefill", "matrix_unit", {"OPERAND_LATENCY": 0}, "OPERAND_LATENCY"),
]
# Yosys takes minutes for the defaults of these tops; lint elaborates them.
LARGE = {"prefill_kernel"}
# These tops are large; each illegal value is one change to these shapes.
SMALL: dict[str, dict[str, int | str]] = {
    "decode_kernel": {
        "HEAD_DIM": 16,
        "QK_HEADS": 2,
        "GROUP_RATIO": 2,
        "H_ITER": 2,
        "CONTEXTS": 1,
        "BUS_WIDTH": 128,
    },
    "prefill_kernel": {
        "HEAD_DIM": 16,
        "STRIPS": 1,
        "ROW_ARRAYS": 2,
        "LUT_ARRAYS": 1,
        "ARRAY_ROWS": 4,
        "ARRAY_COLUMNS": 4,
        "SLOTS": 8,
        "KV_BUFFERS": 2,
        "CACHE_LINES": 2,
        "MAX_BLOCKS": 4,
        "MAX_GROUP": 4,
        "BUS_WIDTH": 64,
    },
    "index_generator": {"BLOCK": 16, "HEAD_DIM": 16, "MAX_BLOCKS": 4, "BUS_WIDTH": 64},
    "mac_array": {"ROWS": 4, "COLUMNS": 20},
    "matrix_unit": {"ARRAY_ROWS": 4, "ARRAY_COLUMNS": 20},
}


def command(
    tool: str, kernel: str, top: str, parameters: Mapping[str, int | str], scratch: Path
) -> list[str]:
    """Return the command that elaborates a module with some parameters."""
    sources = [str(source) for source in rtl_sources(kernel)]
    literals = {n: f'"{v}"' if isinstance(v, str) else v for n, v in parameters.items()}
    if tool == "verilator":
        values = [f"-G{name}={value}" for name, value in literals.items()]
        # Without the bound, loops over whole arrays are unrolled, which takes a minute.
        options = ["--lint-only", "-Wno-fatal", "--unroll-count", "4", "--top-module", top, *values]
        return [str(REPOSITORY / ".tools/verilator/bin/verilator"), *options, *sources]
    if tool == "icarus":
        values = [f"-P{top}.{name}={value}" for name, value in literals.items()]
        return ["iverilog", "-g2012", "-t", "null", "-s", top, *values, *sources]
    script = scratch / "elaborate.ys"
    reads = [f"read_verilog -defer{' -sv' * source.endswith('.sv')} {source}" for source in sources]
    # The pass hierarchy takes no strings; chparam does, but makes large modules twice.
    texts = [f'chparam -set {n} "{v}" {top}' for n, v in parameters.items() if isinstance(v, str)]
    numbers = [f"-chparam {n} {v}" for n, v in parameters.items() if isinstance(v, int)]
    hierarchy = f"hierarchy -check -top {top} {' '.join(numbers)}"
    script.write_text("\n".join([*reads, *texts, hierarchy]) + "\n")
    program = "import sys; from pyosys import libyosys as y; y.run_pass(sys.argv[1], y.Design())"
    return [sys.executable, "-c", program, f"script {script}"]


def elaborate(
    tool: str, kernel: str, top: str, parameters: Mapping[str, int | str], scratch: Path
) -> tuple[int, str]:
    """Return exit code and output of a tool."""
    result = subprocess.run(
        command(tool, kernel, top, parameters, scratch),
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("tool", ["verilator", "icarus", "yosys"])
@pytest.mark.parametrize(("kernel", "top"), LEGAL)
def test_legal_parameters(kernel: str, top: str, tool: str, tmp_path: Path) -> None:
    defaults: list[dict[str, int | str]] = [] if top in LARGE else [{}]
    for parameters in [*defaults, *LEGAL[kernel, top]]:
        code, output = elaborate(tool, kernel, top, parameters, tmp_path)
        assert code == 0, f"{parameters}: {output}"


@pytest.mark.parametrize("tool", ["verilator", "icarus", "yosys"])
def test_illegal_parameters(tool: str, tmp_path: Path) -> None:
    for kernel, top, parameters, rule in ILLEGAL:
        base = SMALL.get(top, {})
        code, output = elaborate(tool, kernel, top, {**base, **parameters}, tmp_path)
        assert code != 0, f"{tool} takes {top} with {parameters}"
        named = re.findall(r"illegal_parameter_\w+|\w+_needs_\w+", output)
        assert any(rule in word for word in named), f"{top} {parameters}: {output}"
