# SPDX-License-Identifier: Apache-2.0
"""Error of the bit-exact decode model against FP64 over a long sequence."""

import dataclasses

import numpy as np
import pytest

from fastdelta.bench.decode import DecodeInputs, relative_error
from fastdelta.shapes import DecodeShape

TOKENS = 2000
ERROR_BOUND = 2e-4
DRIFT_BOUND = 1.1  # second half over first half


@pytest.mark.parametrize("slower", [0.0, 3.0], ids=["rates 0.01 to 400", "rates 0.0005 to 20"])
def test_error_stays_small_and_does_not_drift(slower: float) -> None:
    shape = DecodeShape(qk_heads=4)
    inputs = DecodeInputs.synthetic(shape, TOKENS, seed=1)
    inputs = dataclasses.replace(inputs, a_log=inputs.a_log - np.float32(slower))
    found, _ = inputs.model_outputs(shape)
    expected = inputs.float_outputs()
    assert relative_error(found, expected) <= ERROR_BOUND
    for head in range(shape.value_heads):
        first, second = (
            relative_error(found[half, head], expected[half, head])
            for half in (slice(0, TOKENS // 2), slice(TOKENS // 2, None))
        )
        assert max(first, second) <= ERROR_BOUND, f"head {head}"
        assert second <= DRIFT_BOUND * first, f"head {head}"
