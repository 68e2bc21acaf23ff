# SPDX-License-Identifier: Apache-2.0
"""Rounding, saturation and block floats: ties, limits and vectors that do not fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdelta.reference.fixed_point import block_float, rshift_round, saturate, wrap


def test_ties_go_up() -> None:
    value = np.array([-3, -2, -1, 0, 1, 2, 3])
    assert rshift_round(value, 1).tolist() == [-1, -1, 0, 0, 1, 1, 2]
    assert rshift_round(value, 0).tolist() == value.tolist()


@given(st.integers(-(1 << 40), 1 << 40), st.integers(0, 50))
def test_rounding_is_the_nearest_multiple(value: int, shift: int) -> None:
    rounded = int(rshift_round(np.array(value), shift))
    assert -(1 << shift) <= 2 * (value - (rounded << shift)) < 1 << shift


def test_saturation_says_which_values_it_clamped() -> None:
    clamped, flags = saturate(np.array([-129, -128, 127, 128]), 8)
    assert clamped.tolist() == [-128, -128, 127, 127]
    assert flags.tolist() == [True, False, False, True]


@given(st.integers(-(1 << 60), 1 << 60))
def test_wrap_is_congruent(value: int) -> None:
    wrapped = int(wrap(np.array(value), 48))
    assert (wrapped - value) % (1 << 48) == 0
    assert -(1 << 47) <= wrapped < 1 << 47


def test_block_float_uses_the_whole_mantissa() -> None:
    values = np.array([[1.0, -0.5, 0.0], [3e-5, 1e-5, -2e-5], [0.0, 0.0, 0.0]])
    mantissa, exponent = block_float(values)
    assert np.all(np.abs(mantissa[:2]).max(axis=-1) >= 1 << 14)
    restored = np.ldexp(mantissa.astype(float), exponent[:, np.newaxis])
    np.testing.assert_allclose(restored, values, rtol=0, atol=3e-5)
    assert mantissa[2].tolist() == [0, 0, 0]


def test_block_float_clamps_the_mantissa_that_rounds_out_of_range() -> None:
    mantissa, exponent = block_float(np.array([[np.nextafter(1.0, 0.0)]]))
    assert (mantissa.item(), exponent.item()) == (32767, -15)


def test_block_float_keeps_tiny_vectors_at_the_smallest_exponent() -> None:
    mantissa, exponent = block_float(np.array([[2.0**-40, 2.0**-42]]))
    assert (mantissa.tolist(), exponent.item()) == ([[1, 0]], -40)


def test_block_float_refuses_what_the_wire_cannot_carry() -> None:
    with pytest.raises(
        ValueError, match=r"too large for the wire format: allowed is below 2\*\*38"
    ):
        block_float(np.array([[2.0**38]]))
