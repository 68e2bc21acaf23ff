# SPDX-License-Identifier: Apache-2.0
"""Formats of the state and INT8 schemes: the roundings, and what they cost on a model."""

from __future__ import annotations

import numpy as np
import pytest

from fastdelta.bench.accuracy import (
    STATE_FORMATS,
    bfloat16,
    compare_int8_schemes,
    compare_state_formats,
    fixed_point,
)
from fastdelta.bench.prompts import synthetic_prompt
from fastdelta.errors import InputError


def test_fixed_point_rounds_and_clamps() -> None:
    step = 2.0**-21
    given = np.array([0.4 * step, 0.5 * step, -0.5 * step, -0.6 * step, 31.9999999, -32.0, 40.0])
    expected = np.array([0.0, step, 0.0, -step, 32.0 - step, -32.0, 32.0 - step])
    np.testing.assert_array_equal(fixed_point(27)(given), expected)
    assert fixed_point(18)(np.array([2.0**-12]))[0] == 2.0**-12
    assert fixed_point(18)(np.array([2.0**-14]))[0] == 0


def test_bfloat16_keeps_eight_bits_and_rounds_ties_to_even() -> None:
    given = np.array([1.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, -1.0 - 2.0**-7, 1.0 + 2.0**-20])
    expected = np.array([1.0, 1.0, 1.0 + 2.0**-6, -1.0 - 2.0**-7, 1.0])
    np.testing.assert_array_equal(bfloat16(given), expected)
    assert bfloat16(given).dtype == np.float64


def test_fewer_bits_of_state_cost_more() -> None:
    figures = {row.name: row for row in compare_state_formats(200)}
    assert list(figures) == list(STATE_FORMATS)
    errors = [figures[f"fixed point, {bits} bits"].logit_error for bits in (27, 24, 18)]
    assert 0 < errors[0] < errors[1] / 4 < errors[2] / 64
    assert errors[0] < 2e-5
    assert figures["BF16"].logit_error > 10 * errors[1]
    assert figures["fixed point, 27 bits"].same_next_byte == 1
    assert len({row.bits_per_byte for row in figures.values()}) > 1


@pytest.mark.parametrize("text_bytes", [1, 10**9])
def test_a_text_that_is_not_there_is_refused(text_bytes: int) -> None:
    with pytest.raises(InputError, match="text_bytes"):
        compare_state_formats(text_bytes)


def test_each_step_of_the_scheme_helps() -> None:
    prompt = synthetic_prompt(300, 64, heads=4, kv_heads=2, seed=3)
    told: list[tuple[str, int, int]] = []
    (row,) = compare_int8_schemes([("made up", prompt)], progress=lambda *step: told.append(step))
    assert row.source == "made up"
    assert 0 < row.operands < row.engine < row.rotated < row.plain
    assert told[-1] == ("INT8 schemes", 1, 1)
