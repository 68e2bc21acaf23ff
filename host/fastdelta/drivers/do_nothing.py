# SPDX-License-Identifier: Apache-2.0
"""PYNQ 3.0.1 driver of the kernel that does nothing."""

from __future__ import annotations

from typing import Any, ClassVar

from fastdelta.drivers.kernel import KernelDriver, PynqRun


class DoNothingKernel(KernelDriver):
    """Driver of the kernel that ends as soon as it is started, bound by VLNV."""

    bindto = ("fastdelta:kernel:do_nothing_kernel:1.0",)
    POINTERS: ClassVar[tuple[str, ...]] = ("memory",)

    def launch(self, memory: Any) -> PynqRun:
        """Start a run; the buffer is not used."""
        self.check_banks(memory)
        return PynqRun(self.start(memory))
