# SPDX-License-Identifier: Apache-2.0
"""Performance model of both kernels: cycles, memory bytes, hits and utilisation without simulation.

The prefill kernel is modelled by a recursion over the jobs of a list that follows the RTL's own
schedule, the decode kernel by one over the passes of its tokens. What is modelled, how far it can
be trusted, and how it is calibrated: docs/performance_model.md.
"""

from fastdelta.reference.performance.decode import decode_performance
from fastdelta.reference.performance.memory import MemoryTiming, Port
from fastdelta.reference.performance.models import (
    DECODE_MODELS,
    PREFILL_MODELS,
    DecodeModel,
    ModelPrefillPerformance,
    ModelShape,
    model_decode_performance,
    model_prefill_performance,
    model_shape,
)
from fastdelta.reference.performance.prefill import prefill_performance
from fastdelta.reference.performance.results import (
    CalibrationError,
    DecodePerformance,
    PrefillPerformance,
)

__all__ = [
    "DECODE_MODELS",
    "PREFILL_MODELS",
    "CalibrationError",
    "DecodeModel",
    "DecodePerformance",
    "MemoryTiming",
    "ModelPrefillPerformance",
    "ModelShape",
    "Port",
    "PrefillPerformance",
    "decode_performance",
    "model_decode_performance",
    "model_prefill_performance",
    "model_shape",
    "prefill_performance",
]
