# SPDX-License-Identifier: Apache-2.0
"""Tests of PYNQ's own XrtDevice: collected only in a process that has simulated cards behind XRT.

``tests/integration/test_front_ends.py`` starts that process, or by hand:
``python -m fastdelta.sim.xrt pytest tests/integration/behind_xrt``.
"""

from __future__ import annotations

from fastdelta.sim.xrt import active_prefix

collect_ignore_glob = [] if active_prefix() is not None else ["test_*.py"]
