# SPDX-License-Identifier: Apache-2.0
"""The proofs, by name."""

from __future__ import annotations

from collections.abc import Mapping

from fastdelta_verif.formal.sby import Proof

PROOFS: Mapping[str, Proof] = {
    "skid_buffer": Proof("skid_buffer", "common", {"WIDTH": 3}, depth=3),
    "stream_fifo": Proof("stream_fifo", "common", {"WIDTH": 3, "DEPTH": 4}, depth=3),
    "stream_fifo_of_two": Proof("stream_fifo", "common", {"WIDTH": 3, "DEPTH": 2}, depth=3),
    "axi_burst_planner": Proof(
        "axi_burst_planner",
        "common",
        {"ADDRESS_WIDTH": 64, "DATA_WIDTH": 512, "MAX_BURST": 16},
        depth=3,
    ),
    "axi_burst_planner_narrow": Proof(
        "axi_burst_planner",
        "common",
        {"ADDRESS_WIDTH": 32, "DATA_WIDTH": 32, "MAX_BURST": 256},
        depth=3,
    ),
    "axi_burst_planner_odd": Proof(
        "axi_burst_planner",
        "common",
        {"ADDRESS_WIDTH": 33, "DATA_WIDTH": 1024, "MAX_BURST": 3},
        depth=3,
    ),
    "kv_free_lines": Proof(
        "kv_free_lines", "prefill", {"LINES": 4, "FIRST": 4, "LINE_BITS": 3}, depth=3, reach=22
    ),
    "kv_free_lines_one": Proof(
        "kv_free_lines", "prefill", {"LINES": 1, "FIRST": 1, "LINE_BITS": 1}, depth=3
    ),
    "kv_directory": Proof(
        "kv_directory",
        "prefill",
        {"CACHE_LINES": 4, "LINE_BITS": 2, "MAX_BLOCKS": 4},
        depth=2,
        reach=24,
    ),
    "kv_directory_two_lines": Proof(
        "kv_directory",
        "prefill",
        {"CACHE_LINES": 2, "LINE_BITS": 1, "MAX_BLOCKS": 4},
        depth=2,
        reach=24,
    ),
    "matrix_drain": Proof(
        "matrix_drain",
        "prefill",
        {"STRIPS": 3, "COLUMNS": 3, "TAG_WIDTH": 4, "COLUMN_WIDTH": 2},
        depth=3,
        reach=16,
    ),
    "axi_read_mover": Proof(
        "axi_read_mover",
        "common",
        {"ADDRESS_WIDTH": 32, "DATA_WIDTH": 32, "MAX_BURST": 2, "FIFO_BEATS": 4},
        depth=3,
        reach=16,
    ),
    "axi_write_mover": Proof(
        "axi_write_mover",
        "common",
        {
            "ADDRESS_WIDTH": 32,
            "DATA_WIDTH": 32,
            "MAX_BURST": 2,
            "FIFO_BEATS": 2,
            "OUTSTANDING": 2,
        },
        depth=3,
        reach=16,
    ),
    "decode_control": Proof(
        "decode_control",
        "decode",
        {},
        depth=3,
        reach=20,
        properties=("kernel_control_checks.sv", "bind_decode_control.sv"),
    ),
    "prefill_control": Proof(
        "prefill_control",
        "prefill",
        {},
        depth=3,
        reach=20,
        properties=("kernel_control_checks.sv", "bind_prefill_control.sv"),
    ),
    "index_threshold": Proof(
        "index_threshold",
        "prefill",
        {"VALUE_BITS": 2, "LANES": 2, "ADDRESS_BITS": 1, "COUNT_BITS": 3},
        depth=36,
        reach=36,
        bounded=True,
    ),
    "matrix_unit": Proof(
        "matrix_unit",
        "prefill",
        {
            "STRIPS": 2,
            "ROW_ARRAYS": 1,
            "LUT_ARRAYS": 0,
            "ARRAY_ROWS": 2,
            "ARRAY_COLUMNS": 2,
            "COLUMN_WIDTH": 1,
            "DEPTH_WIDTH": 1,
            "TAG_WIDTH": 4,
            "QUEUE_DEPTH": 2,
            "OPERAND_LATENCY": 1,
        },
        depth=18,
        reach=18,
        bounded=True,
    ),
    "word_packer": Proof("word_packer", "prefill", {"BUS_WIDTH": 128}, depth=3),
    "skid_buffer_twin": Proof(
        "skid_buffer",
        "common",
        {"WIDTH": 3},
        depth=3,
        properties=("skid_buffer_twin_checks.sv",),
        twins=("skid_buffer_twin",),
    ),
    "mac_array_twin": Proof(
        "mac_array",
        "prefill",
        {"ROWS": 2, "COLUMNS": 2, "COLUMN_WIDTH": 1, "LUT": 1},
        depth=2,
        properties=("mac_array_twin_checks.sv",),
        twins=("digit_product_twin",),
    ),
    "decode_lanes_twin": Proof(
        "decode_lanes",
        "decode",
        {
            "HEAD_DIM": 2,
            "ROWS": 2,
            "GROUPS": 2,
            "POST_COLUMNS": 1,
            "BUS_WIDTH": 128,
            "ROW_WIDTH": 1,
            "GROUP_WIDTH": 1,
            "COLUMN_WIDTH": 1,
            "BEAT_WIDTH": 1,
        },
        depth=2,
        properties=("decode_lanes_twin_checks.sv",),
        twins=("rounded_shift_twin", "saturated_sum_twin"),
    ),
    "quadratic_twin": Proof(
        "quadratic",
        "common",
        {"FUNCTION": 0},
        depth=2,
        properties=("quadratic_twin_checks.sv",),
        twins=("exp2_table_twin", "exp2_slope_twin", "exp2_product_twin", "exp2_sum_twin"),
        any_product=True,
    ),
    "index_threshold_twin": Proof(
        "index_threshold",
        "prefill",
        {"VALUE_BITS": 3, "LANES": 2, "ADDRESS_BITS": 2, "COUNT_BITS": 4},
        depth=2,
        reach=32,
        properties=("index_threshold_twin_checks.sv",),
        twins=("selector_twin",),
    ),
}
