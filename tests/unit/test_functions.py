# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of the RTL: error bounds, exact corner values, and the committed ROM."""

from pathlib import Path

import numpy as np
import pytest

from fastdelta.reference import functions
from fastdelta.reference.functions import ONE, Function

ROM = Path(__file__).resolve().parents[2] / "rtl" / "common" / "quadratic_rom.v"
SEGMENT = 1 << functions.OFFSET_BITS


@pytest.mark.parametrize("function", Function)
def test_error_is_below_the_bound_of_the_header(function: Function) -> None:
    borders = np.arange(0, ONE, SEGMENT)[:, np.newaxis] + np.array([0, 1, SEGMENT - 2, SEGMENT - 1])
    u = np.concatenate([np.arange(0, ONE, 61), borders.ravel()])
    error = functions.evaluate(function, u) - functions.exact(function, u / ONE) * ONE
    assert np.max(np.abs(error)) <= 0.754  # 0.7535 over all 2**24 arguments


@pytest.mark.parametrize(
    ("function", "at_zero", "at_end"),
    [
        (Function.EXP2_NEGATIVE, ONE, ONE // 2),
        (Function.LOG_ONE_PLUS, 0, 11_629_079),
        (Function.RECIPROCAL_ONE_PLUS, ONE, ONE // 2),
        (Function.RSQRT_EVEN, ONE, round(ONE / np.sqrt(2))),
        (Function.RSQRT_ODD, round(ONE / np.sqrt(2)), ONE // 2),
    ],
)
def test_corner_values_are_exact(function: Function, at_zero: int, at_end: int) -> None:
    """A decay of one must not decay, and a unit scale must stay one."""
    assert functions.evaluate(function, np.array([0, ONE - 1])).tolist() == [at_zero, at_end]


@pytest.mark.parametrize("function", Function)
def test_coefficients_fit_their_fields(function: Function) -> None:
    bits = np.array([functions.C0_BITS, functions.C1_BITS, functions.C2_BITS])
    assert np.all(np.abs(functions.coefficients(function)) < 1 << (bits - 1))


def test_reciprocal_and_logarithm_of_integers() -> None:
    rng = np.random.default_rng(0)
    value = np.concatenate([np.arange(1, 1000), (2 ** rng.uniform(0, 62, 5000)).astype(np.int64)])
    position, inverse = functions.reciprocal(value)
    exact = value.astype(np.float64)
    assert np.max(np.abs(np.ldexp(inverse * exact, -24 - position) - 1)) <= 2.5 / ONE
    assert np.max(np.abs(functions.natural_log(value) / ONE - np.log(exact))) <= 30 / ONE
    assert functions.natural_log(np.array([1, 2])).tolist() == [0, functions.LN_2]


def test_committed_rom_is_current() -> None:
    assert ROM.read_text() == functions.rom_verilog(), (
        "run: python -m fastdelta.reference.functions > rtl/common/quadratic_rom.v"
    )
