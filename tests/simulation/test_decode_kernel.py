# SPDX-License-Identifier: Apache-2.0
"""The decode kernel with its core: memory, registers and faults against the bit-exact model."""

import pytest

from fastdelta_verif.build import Simulate
from fastdelta_verif.designs import BASE, SWEEP, decode_kernel

BEHAVIOURS = [
    "random_runs",
    "registers_hold_arguments",
    "sequence_in_pieces",
    "memory_errors",
    "bad_state_is_refused",
    "time_outs",
    "reset_in_run",
    "done_comes_after_the_last_answer",
    "counters_can_be_read_in_a_run",
    "queued_runs",
    "commands_use_only_their_pointers",
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour(simulate: Simulate, behaviour: str) -> None:
    simulate(decode_kernel(BASE), "decode_kernel", behaviour)


@pytest.mark.parametrize("behaviour", ["random_runs", "reset_in_run"])
@pytest.mark.parametrize("shape", ["three_heads", "below_ratio", "half_beat"])
def test_parameters(simulate: Simulate, shape: str, behaviour: str) -> None:
    options = {"runs": 12, "rounds": 6}
    simulate(decode_kernel(SWEEP[shape]), "decode_kernel", behaviour, options)


def test_coverage_closes(simulate: Simulate) -> None:
    simulate(decode_kernel(BASE), "decode_kernel", "coverage_closure")


def test_second_simulator(simulate: Simulate) -> None:
    """Icarus has unknown values: one on a control signal or in memory fails."""
    design = decode_kernel(BASE, simulator="icarus")
    simulate(design, "decode_kernel", "random_runs", {"runs": 8})
