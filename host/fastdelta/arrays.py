# SPDX-License-Identifier: Apache-2.0
"""Array types of the host, buffers of bytes, and their checksum."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
Float32Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]


def checksum(words: Words) -> int:
    """Return the sum modulo 2**32 of any number of uint32, as the kernels add up their beats."""
    return int(np.add.reduce(words, axis=None, dtype=np.uint32))


def byte_buffer(out: Bytes | None, size: int, name: str) -> Bytes:
    """Return `out`, checked and zeroed, or a new flat uint8 array of `size` zeros.

    Raises
    ------
    ValueError
        If `out` is not flat uint8 of that size.
    """
    if out is None:
        return np.zeros(size, dtype=np.uint8)
    if out.dtype != np.uint8 or out.ndim != 1 or out.size != size:
        raise ValueError(
            f"{name} buffer is {out.dtype} {out.shape}: needed are {size} bytes as flat uint8"
        )
    out[:] = 0
    return out
