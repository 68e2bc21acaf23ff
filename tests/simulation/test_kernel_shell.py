# SPDX-License-Identifier: Apache-2.0
"""The decode kernel around a stand-in core: registers, checks, faults, control protocol."""

import pytest

from fastdelta.shapes import SMALL_DECODE, DecodeShape
from fastdelta_verif.build import Simulate
from fastdelta_verif.cells.stand_in import stand_in_kernel

SHAPES = {
    "W128": SMALL_DECODE,
    "W256": DecodeShape(48, qk_heads=3, group_ratio=1, h_iter=1, contexts=1, bus_width=256),
    "W512": DecodeShape(32, qk_heads=1, group_ratio=4, h_iter=4, contexts=64, bus_width=512),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_random_runs(simulate: Simulate, shape: str) -> None:
    simulate(stand_in_kernel(SHAPES[shape]), "kernel_shell", "random_runs", {"runs": 40})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("test", ["refusals", "zero_tokens", "control_protocol", "start_latency"])
def test_shell(simulate: Simulate, shape: str, test: str) -> None:
    simulate(stand_in_kernel(SHAPES[shape]), "kernel_shell", test)


@pytest.mark.parametrize("shape", ["W128", "W256"])
def test_memory_errors(simulate: Simulate, shape: str) -> None:
    simulate(stand_in_kernel(SHAPES[shape]), "kernel_shell", "memory_errors")


def test_time_outs(simulate: Simulate) -> None:
    simulate(stand_in_kernel(SHAPES["W128"]), "kernel_shell", "time_outs", {"rounds": 3})


@pytest.mark.parametrize("shape", ["W128", "W512"])
def test_reset_in_run(simulate: Simulate, shape: str) -> None:
    simulate(stand_in_kernel(SHAPES[shape]), "kernel_shell", "reset_in_run", {"rounds": 15})
