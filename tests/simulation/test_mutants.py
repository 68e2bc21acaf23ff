# SPDX-License-Identifier: Apache-2.0
"""Seeded faults of the RTL must all be caught, by tests that the RTL itself passes."""

from pathlib import Path

import pytest

from fastdelta_verif.build import Simulate
from fastdelta_verif.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(simulate: Simulate, tmp_path: Path, name: str) -> None:
    mutant = MUTANTS[name]
    design = mutant.design(tmp_path)
    simulate(design, mutant.bench.module, mutant.test, mutant.bench.options, fails="")


def run_of(mutant: Mutant) -> tuple[str, ...]:
    """Return what makes the run of a mutant's test without the fault."""
    bench = mutant.bench
    values = (bench.parameters, bench.options, mutant.parameters)
    return (bench.module, mutant.test, *map(repr, values))


TESTS = {run_of(mutant): mutant for mutant in MUTANTS.values()}


@pytest.mark.parametrize("mutant", TESTS.values(), ids=lambda m: f"{m.bench.module}-{m.test}")
def test_original_passes_the_tests_of_mutants(simulate: Simulate, mutant: Mutant) -> None:
    simulate(mutant.original(), mutant.bench.module, mutant.test, mutant.bench.options)
