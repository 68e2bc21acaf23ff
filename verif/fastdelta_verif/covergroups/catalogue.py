# SPDX-License-Identifier: Apache-2.0
"""All models of functional coverage, for the testplan to be checked against."""

from __future__ import annotations

from fastdelta_verif.coverage import CoverageModel, Hits, label
from fastdelta_verif.covergroups import cells, kernels, prefill
from fastdelta_verif.environments import decode_coverage


def models() -> list[CoverageModel]:
    """Return all models."""
    found = [
        value
        for module in (cells, kernels, prefill, decode_coverage)
        for value in vars(module).values()
        if isinstance(value, CoverageModel)
    ]
    return sorted(found, key=lambda model: model.name)


def no_hits() -> Hits:
    """Return all bins without a hit, so that what nothing samples is missed as well."""
    return {
        f"{model.name}.{point}": dict.fromkeys(map(label, bins), 0)
        for model in models()
        for point, bins in model.points.items()
    }


def points() -> list[str]:
    """Return the names of all points."""
    return list(no_hits())
