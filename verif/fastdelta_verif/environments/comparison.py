# SPDX-License-Identifier: Apache-2.0
"""Comparison of arrays to the bit, with the first mismatch in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def first_mismatch(
    got: npt.NDArray[np.int32], expected: npt.NDArray[np.int32], axes: Sequence[str]
) -> str:
    """Say where two integer arrays of equal shape differ first; empty when they are equal.

    Parameters
    ----------
    got, expected
        Integer arrays of the same shape.
    axes
        What each axis counts, such as ``("token", "head", "column")``.
    """
    different = np.argwhere(got != expected)
    if not len(different):
        return ""
    place = tuple(int(index) for index in different[0])
    where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, place, strict=True))
    return (
        f"{where}: got {int(got[place])}, expected {int(expected[place])} "
        f"({len(different)} of {got.size} differ)"
    )
