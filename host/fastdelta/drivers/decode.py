# SPDX-License-Identifier: Apache-2.0
"""PYNQ 3.0.1 driver of the decode kernel."""

from __future__ import annotations

from typing import Any, ClassVar

from fastdelta.drivers.kernel import KernelDriver, PynqRun, kernel_type
from fastdelta.registers.decode import VERSION_VALUE


class DecodeKernel(KernelDriver):
    """Driver of the decode kernel, bound by VLNV."""

    bindto = (kernel_type("decode_kernel", VERSION_VALUE),)
    POINTERS: ClassVar[tuple[str, ...]] = ("qk", "v", "o", "result")

    def launch(
        self,
        command: int,
        context: int,
        tokens: int,
        flags: int,
        qk: Any,
        v: Any,
        o: Any,
        result: Any,
        watchdog: int,
    ) -> PynqRun:
        """Start a run with the arguments of docs/decode_engine.md; pointers are PYNQ buffers.

        Raises
        ------
        WrongBankError
            If a buffer is not in its argument's bank.
        """
        self.check_banks(qk, v, o, result)
        return PynqRun(self.start(command, context, tokens, flags, qk, v, o, result, watchdog))
