# SPDX-License-Identifier: Apache-2.0
"""Matrix unit and its arrays: products to the bit, order, stalls, utilisation, reset."""

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SOURCES = rtl_sources("prefill")


def mac_array(
    rows: int, columns: int, lut: int, simulator: str = "icarus", sum_width: int = 24
) -> Design:
    parameters = {
        "ROWS": rows,
        "COLUMNS": columns,
        "LUT": lut,
        "COLUMN_WIDTH": (columns - 1).bit_length(),
        "SUM_WIDTH": sum_width,
    }
    return Design("mac_array", needed_sources("mac_array", SOURCES), parameters, simulator)


def matrix_unit(
    strips: int,
    row_arrays: int,
    lut_arrays: int,
    rows: int,
    columns: int,
    latency: int,
    simulator: str = "verilator",
) -> Design:
    parameters = {
        "STRIPS": strips,
        "ROW_ARRAYS": row_arrays,
        "LUT_ARRAYS": lut_arrays,
        "ARRAY_ROWS": rows,
        "ARRAY_COLUMNS": columns,
        "COLUMN_WIDTH": (columns - 1).bit_length(),
        "DEPTH_WIDTH": 9,
        "TAG_WIDTH": 16,
        "QUEUE_DEPTH": 8,
        "OPERAND_LATENCY": latency,
    }
    return Design("matrix_unit", needed_sources("matrix_unit", SOURCES), parameters, simulator)


UNITS = {
    "1x1-dsp-4x4-icarus": matrix_unit(1, 1, 0, 4, 4, 1, "icarus"),
    "2x1-lut-4x4": matrix_unit(2, 1, 1, 4, 4, 3),
    "3x4-hybrid-8x8": matrix_unit(3, 4, 2, 8, 8, 2),
    "4x3-hybrid-3x5": matrix_unit(4, 3, 1, 3, 5, 16),
    "2x2-hybrid-16x16": matrix_unit(2, 2, 1, 16, 16, 2),
}
FULL = matrix_unit(3, 4, 2, 32, 32, 2)

# One job of block 128: pairs of kind and steps. Scores are 128 keys in strips of 32, values are
# head_dim channels in strips of 32.
JOBS = {
    64: [(0, 64)] * 4 + [(1, 128)] * 2,
    128: [(0, 128)] * 4 + [(1, 128)] * 4,
    256: [(0, 256)] * 4 + [(1, 128)] * 8,
}


@pytest.mark.parametrize("lut", [0, 1], ids=["dsp", "lut"])
def test_all_products(simulate: Simulate, lut: int) -> None:
    simulate(mac_array(16, 16, lut, "verilator"), "mac_array", "all_products")


@pytest.mark.parametrize("lut", [0, 1], ids=["dsp", "lut"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7)])
def test_array(simulate: Simulate, rows: int, columns: int, lut: int) -> None:
    simulate(mac_array(rows, columns, lut), "mac_array", "random_tasks")


@pytest.mark.parametrize("width", [17, 24, 32])
@pytest.mark.parametrize("lut", [0, 1], ids=["dsp", "lut"])
def test_sums_do_not_wrap(simulate: Simulate, lut: int, width: int) -> None:
    simulate(mac_array(4, 4, lut, "verilator", width), "mac_array", "longest_extremes")


@pytest.mark.parametrize("unit", UNITS)
def test_random_tasks(simulate: Simulate, unit: str) -> None:
    tasks = 40 if UNITS[unit].simulator == "icarus" else 150
    simulate(UNITS[unit], "matrix_unit", "random_tasks", {"tasks": tasks})


def test_extreme_operands(simulate: Simulate) -> None:
    simulate(UNITS["3x4-hybrid-8x8"], "matrix_unit", "extremes")


@pytest.mark.parametrize("unit", UNITS)
def test_latency(simulate: Simulate, unit: str) -> None:
    simulate(UNITS[unit], "matrix_unit", "latency")


@pytest.mark.parametrize("unit", ["1x1-dsp-4x4-icarus", "3x4-hybrid-8x8"])
def test_blocked_port(simulate: Simulate, unit: str) -> None:
    simulate(UNITS[unit], "matrix_unit", "blocked_port")


@pytest.mark.parametrize("unit", ["1x1-dsp-4x4-icarus", "3x4-hybrid-8x8"])
def test_reset_in_task(simulate: Simulate, unit: str) -> None:
    simulate(UNITS[unit], "matrix_unit", "reset_in_task", {"resets": 12})


@pytest.mark.parametrize("steps", [64, 128, 256])
def test_utilisation_of_equal_tasks(simulate: Simulate, steps: int) -> None:
    options = {"pattern": [(0, steps), (1, steps)], "jobs": 50, "least": 0.97}
    simulate(FULL, "matrix_unit", "utilisation", options)


@pytest.mark.parametrize("head_dim", JOBS)
def test_utilisation_of_jobs(simulate: Simulate, head_dim: int) -> None:
    options = {"pattern": JOBS[head_dim], "jobs": 15, "least": 0.97, "name": f"job of {head_dim}"}
    simulate(FULL, "matrix_unit", "utilisation", options)


def test_full_size(simulate: Simulate) -> None:
    simulate(FULL, "matrix_unit", "random_tasks", {"tasks": 40})
