# SPDX-License-Identifier: Apache-2.0
"""The decode core against the bit-exact model: behaviours, then every parameter."""

import pytest

from fastdelta_verif.build import Simulate
from fastdelta_verif.designs import BASE, FULL, SWEEP, decode_core

BEHAVIOURS = [
    "random_mix",
    "many_tokens",
    "single_tokens",
    "zero_tokens",
    "split_equals_whole",
    "clear_isolates_sequences",
    "contexts_are_isolated",
    "unused_contexts_are_clear",
    "dump_after_load_is_the_identity",
    "bad_scale_is_refused",
    "bypasses",
    "norm_overflow_is_counted",
    "extreme_numbers",
    "largest_operands",
    "gate_limits",
    "gates_far_out",
    "saturation_is_counted",
    "value_exponents",
    "value_heads_use_their_key_head",
    "back_pressure",
    "starved_cycles_are_counted",
    "output_is_never_lost",
]


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour(simulate: Simulate, behaviour: str) -> None:
    simulate(decode_core(BASE), "decode_core", behaviour)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "flush"])
def test_run_after_an_interrupted_one_equals_a_first_one(simulate: Simulate, reset: bool) -> None:
    simulate(decode_core(BASE), "decode_core", "interrupted_runs", {"reset": reset})


@pytest.mark.parametrize(
    "behaviour",
    ["random_mix", "extreme_numbers", "value_heads_use_their_key_head", "zero_tokens"],
)
@pytest.mark.parametrize("shape", SWEEP)
def test_parameters(simulate: Simulate, shape: str, behaviour: str) -> None:
    simulate(decode_core(SWEEP[shape]), "decode_core", behaviour, {"commands": 25, "rounds": 3})


def test_several_key_heads_at_once(simulate: Simulate) -> None:
    """Where several query/key heads have slots of their own, each value head finds its own."""
    design = decode_core({**BASE, "H_ITER": 4}, simulator="icarus")
    simulate(design, "decode_core", "value_heads_use_their_key_head", {"commands": 16})


@pytest.mark.parametrize("shape", ["wide_head", "narrow_bus"])
def test_largest_operands_over_the_longest_sums(simulate: Simulate, shape: str) -> None:
    simulate(decode_core(SWEEP[shape]), "decode_core", "largest_operands")


@pytest.mark.parametrize("shape", ["below_ratio", "sixteen_heads", "half_beat"])
def test_parameters_after_a_flush(simulate: Simulate, shape: str) -> None:
    options = {"reset": False, "rounds": 12}
    simulate(decode_core(SWEEP[shape]), "decode_core", "interrupted_runs", options)


def test_full_shape(simulate: Simulate) -> None:
    simulate(decode_core(FULL), "decode_core", "full_shape")


def test_coverage_closes(simulate: Simulate) -> None:
    simulate(decode_core(BASE), "decode_core", "coverage_closure")


@pytest.mark.parametrize("behaviour", ["random_mix", "zero_tokens"])
def test_second_simulator(simulate: Simulate, behaviour: str) -> None:
    """Icarus has unknown values: one on a control signal or in a result fails."""
    options = {"commands": 8}
    simulate(decode_core(BASE, simulator="icarus"), "decode_core", behaviour, options)
