# SPDX-License-Identifier: Apache-2.0
"""Checks of the caller's arrays, with messages that say what to do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import FloatArray
from fastdelta.errors import DtypeError, NonFiniteError, RangeError, ShapeError


def float_array(
    name: str,
    value: npt.ArrayLike,
    shape: tuple[int, ...],
    *,
    limit: float = np.inf,
    infinite: bool = False,
    remedy: str = "scale it down",
) -> FloatArray:
    """Return an array as float32 or float64 after checking it; it is not copied needlessly.

    Parameters
    ----------
    name : str
        What the messages call it.
    value : array of a float dtype
        What the caller gave.
    shape : tuple
        The only shape allowed.
    limit : float
        Magnitudes must be below it.
    infinite : bool
        Leave out the check for NaN, infinity and `limit`.
    remedy : str
        What to do about magnitudes that reach `limit`.

    Raises
    ------
    DtypeError, ShapeError, NonFiniteError, RangeError
        Each with what was found, what is allowed and what to do.
    """
    array = np.asarray(value)
    if array.dtype.kind != "f":
        raise DtypeError(f"{name} has dtype {array.dtype}; pass an array of a float dtype")
    if array.shape != shape:
        raise ShapeError(f"{name} has shape {array.shape}; expected {shape}")
    if array.dtype.itemsize < 4:
        array = array.astype(np.float32)
    elif array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if infinite or not array.size:
        return array
    peak = max(float(array.max()), -float(array.min()))  # max and min pass a NaN on
    if not peak < np.inf:
        raise NonFiniteError(
            f"{name} has NaN or infinite values; mask or clip them before the call"
        )
    if not peak < limit:
        raise RangeError(
            f"{name} goes to {peak:.4g} in magnitude; allowed is below {limit:.4g}: {remedy}"
        )
    return array
