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


TESTS = {(m.bench.module, m.test, tuple(m.parameters.items())): m for m in MUTANTS.values()}


@pytest.mark.parametrize("mutant", TESTS.values(), ids=lambda m: f"{m.bench.module}-{m.test}")
def test_original_passes_the_tests_of_mutants(simulate: Simulate, mutant: Mutant) -> None:
    simulate(mutant.original(), mutant.bench.module, mutant.test, mutant.bench.options)
