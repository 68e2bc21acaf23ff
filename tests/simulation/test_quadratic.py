# SPDX-License-Identifier: Apache-2.0
"""Special functions: the RTL against the model, whose error the unit tests bound."""

import pytest

from fastdelta.reference.functions import Function
from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SOURCES = needed_sources("quadratic", rtl_sources("prefill"))


@pytest.mark.parametrize("function", Function, ids=lambda function: function.name.lower())
def test_every_segment(simulate: Simulate, function: Function) -> None:
    design = Design("quadratic", SOURCES, {"FUNCTION": int(function)}, simulator="icarus")
    simulate(design, "quadratic", "every_segment", {"random": 5000})
