# SPDX-License-Identifier: Apache-2.0
"""Calibration of the performance model: the recorded measurements and the errors over them."""

from __future__ import annotations

from fastdelta.reference.performance.results import CalibrationError

PREFILL_ERROR = CalibrationError(float("nan"), float("nan"), 0, 0)
DECODE_ERROR = CalibrationError(float("nan"), float("nan"), 0, 0)
