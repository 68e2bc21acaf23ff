# SPDX-License-Identifier: Apache-2.0
"""FPGA accelerators for long-context language models, on a real or a simulated Alveo card."""

from fastdelta._version import __version__
from fastdelta.accelerator import Accelerator
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import SMALL_DECODE, SMALL_PREFILL, DecodeShape, PrefillShape

__all__ = [
    "SMALL_DECODE",
    "SMALL_PREFILL",
    "Accelerator",
    "DecodeShape",
    "IndexSet",
    "PrefillShape",
    "__version__",
]
