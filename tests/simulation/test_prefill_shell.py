# SPDX-License-Identifier: Apache-2.0
"""The prefill kernel around stand-in units: registers, checks, faults, control protocol."""

from dataclasses import replace

import pytest

from fastdelta.shapes import PrefillShape
from fastdelta_verif.build import Simulate
from fastdelta_verif.cells.stand_in.prefill import stand_in_prefill

SHAPES = {
    "W64": PrefillShape(
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
    ),
    "W128": PrefillShape(
        head_dim=32,
        strips=2,
        row_arrays=3,
        lut_arrays=0,
        array_rows=16,
        array_columns=16,
        slots=4,
        kv_buffers=3,
        cache_lines=4,
        max_blocks=4,
        max_group=4,
        bus_width=128,
    ),
    "W512": PrefillShape(
        head_dim=64,
        strips=4,
        row_arrays=4,
        lut_arrays=4,
        array_rows=16,
        array_columns=32,
        slots=64,
        kv_buffers=8,
        cache_lines=1024,
        max_blocks=2048,
        max_group=5,
        bus_width=512,
    ),
}


@pytest.mark.parametrize(("shape", "runs"), [("W64", 15), ("W128", 3), ("W512", 3)])
def test_random_runs(simulate: Simulate, shape: str, runs: int) -> None:
    simulate(stand_in_prefill(SHAPES[shape]), "prefill_shell", "random_runs", {"runs": runs})


@pytest.mark.parametrize("shape", ["W64", "W128"])
def test_refusals(simulate: Simulate, shape: str) -> None:
    small = replace(SHAPES[shape], max_blocks=4)
    simulate(stand_in_prefill(small), "prefill_shell", "refusals")


@pytest.mark.parametrize("shape", SHAPES)
def test_control_protocol(simulate: Simulate, shape: str) -> None:
    simulate(stand_in_prefill(SHAPES[shape]), "prefill_shell", "control_protocol")


def test_list_faults(simulate: Simulate) -> None:
    small_map = replace(SHAPES["W64"], map_entries=3)
    simulate(stand_in_prefill(small_map), "prefill_shell", "list_faults")


def test_memory_errors(simulate: Simulate) -> None:
    simulate(stand_in_prefill(SHAPES["W64"]), "prefill_shell", "memory_errors")


def test_time_outs(simulate: Simulate) -> None:
    simulate(stand_in_prefill(SHAPES["W64"]), "prefill_shell", "time_outs", {"rounds": 1})


def test_reset_in_run(simulate: Simulate) -> None:
    simulate(stand_in_prefill(SHAPES["W64"]), "prefill_shell", "reset_in_run", {"rounds": 10})


@pytest.mark.parametrize("shape", ["W64", "W128"])
def test_blocks_follow_each_other(simulate: Simulate, shape: str) -> None:
    many = replace(SHAPES[shape], max_blocks=64)
    simulate(stand_in_prefill(many), "prefill_shell", "block_rate")
