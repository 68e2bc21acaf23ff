# SPDX-License-Identifier: Apache-2.0
"""PYNQ 3.0.1 driver of the prefill kernel."""

from __future__ import annotations

from typing import Any, ClassVar

from fastdelta.drivers.kernel import KernelDriver, PynqRun, kernel_type
from fastdelta.registers.prefill import VERSION_VALUE


class PrefillKernel(KernelDriver):
    """Driver of the prefill kernel, bound by VLNV."""

    bindto = (kernel_type("prefill_kernel", VERSION_VALUE),)
    POINTERS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "jobs", "o", "result")

    def launch(
        self,
        mode: int,
        kv_heads: int,
        group: int,
        tokens: int,
        window: int,
        gamma: int,
        divergence_limit: int,
        min_blocks: int,
        max_blocks: int,
        flags: int,
        hot_threshold: int,
        q: Any,
        k: Any,
        v: Any,
        jobs: Any,
        o: Any,
        result: Any,
        job_stride: int,
        watchdog: int,
    ) -> PynqRun:
        """Start a run with the arguments of docs/prefill_engine.md; pointers are PYNQ buffers.

        Raises
        ------
        WrongBankError
            If a buffer is not in its argument's bank.
        """
        self.check_banks(q, k, v, jobs, o, result)
        return PynqRun(
            self.start(
                mode,
                kv_heads,
                group,
                tokens,
                window,
                gamma,
                divergence_limit,
                min_blocks,
                max_blocks,
                flags,
                hot_threshold,
                q,
                k,
                v,
                jobs,
                o,
                result,
                job_stride,
                watchdog,
            )
        )
