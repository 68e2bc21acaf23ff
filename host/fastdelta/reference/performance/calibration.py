# SPDX-License-Identifier: Apache-2.0
"""Calibration of the performance model: recorded measurements, and the errors over them.

The record holds runs of the RTL and what the model says of each. ``python -m
fastdelta.bench.calibrate --write`` makes it anew.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from fastdelta.reference.performance.results import CalibrationError

RECORD = Path(__file__).with_name("calibration.json")


@cache
def calibration_error(kernel: str) -> CalibrationError:
    """Error of the model's cycles of a kernel, ``"prefill"`` or ``"decode"``, as recorded.

    Not a number while there is no record.
    """
    if not RECORD.exists():
        return CalibrationError(math.nan, math.nan, 0, 0)
    errors: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))["errors"]
    return CalibrationError(**errors[kernel])
