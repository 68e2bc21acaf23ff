# SPDX-License-Identifier: Apache-2.0
"""The prefill kernel with all its units: memory to memory, to the bit."""

import pytest

from fastdelta.shapes import PrefillShape
from fastdelta.sim.build import rtl_parameters
from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SHAPES = {
    "block_8": PrefillShape(
        head_dim=16,
        strips=2,
        row_arrays=2,
        lut_arrays=1,
        array_rows=4,
        array_columns=4,
        slots=8,
        kv_buffers=2,
        cache_lines=4,
        max_blocks=16,
        max_group=4,
        bus_width=64,
    ),
    "block_16": PrefillShape(
        head_dim=32,
        strips=3,
        row_arrays=2,
        lut_arrays=1,
        array_rows=8,
        array_columns=8,
        slots=16,
        kv_buffers=4,
        cache_lines=8,
        max_blocks=16,
        max_group=8,
        bus_width=128,
    ),
}


def prefill_kernel(shape: str, simulator: str = "verilator") -> Design:
    sources = needed_sources("prefill_kernel", rtl_sources("prefill"))
    return Design("prefill_kernel", sources, rtl_parameters(SHAPES[shape]), simulator)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_runs(simulate: Simulate, shape: str) -> None:
    simulate(prefill_kernel(shape), "prefill_kernel", "random_runs", {"runs": 9})


def test_one_prompt_many_ways(simulate: Simulate) -> None:
    simulate(prefill_kernel("block_8"), "prefill_kernel", "one_prompt_many_ways", {"prompts": 1})


@pytest.mark.parametrize("shape", SHAPES)
def test_limits_of_shape(simulate: Simulate, shape: str) -> None:
    simulate(prefill_kernel(shape), "prefill_kernel", "limits_of_shape")


def test_interruptions(simulate: Simulate) -> None:
    simulate(prefill_kernel("block_8"), "prefill_kernel", "interruptions", {"rounds": 1})


def test_second_simulator(simulate: Simulate) -> None:
    options = {"runs": 3, "blocks": 2}
    simulate(prefill_kernel("block_8", "icarus"), "prefill_kernel", "random_runs", options)
