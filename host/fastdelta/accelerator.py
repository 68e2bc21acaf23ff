# SPDX-License-Identifier: Apache-2.0
"""Open an engine on a card: numpy in, numpy out, whatever card is behind.

>>> with Accelerator.open("decode", board="sim-u55c", a_log=a_log, dt_bias=dt_bias) as engine:
...     result = engine.decode(q, k, v, a, b)
...     result.output, result.kernel_cycles
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from fastdelta.boards import ENGINES, open_board
from fastdelta.decode.accelerator import DEFAULT_BUFFER_BYTES, DEFAULT_TIMEOUT, DecodeAccelerator
from fastdelta.errors import InputError
from fastdelta.shapes import DecodeShape


class Accelerator:
    """Opens the engines."""

    @staticmethod
    def open(
        kernel: Literal["decode"],
        *,
        board: str | int = "sim-u55c",
        shape: DecodeShape | None = None,
        overlay: Path | None = None,
        a_log: npt.ArrayLike | None = None,
        dt_bias: npt.ArrayLike | None = None,
        value_exponent: int | npt.ArrayLike = 0,
        timeout: float = DEFAULT_TIMEOUT,
        watchdog_cycles: int | None = None,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        **options: Any,
    ) -> DecodeAccelerator:
        """Open a kernel on a card; every context starts cleared.

        Parameters
        ----------
        kernel : "decode"
            Engine to open.
        board : str or int
            ``"sim-u55c"``, ``"sim-u280"``, ``"u55c"``, ``"u280"``, or the index of a real card.
        shape : DecodeShape, optional
            Parameters of the kernel. The simulated card is built with them (by default those of
            Qwen3-Next); the kernel on a real card must have them if they are given.
        overlay : path, optional
            The xclbin to load on a real card.
        a_log, dt_bias : array [value_heads] or [contexts, value_heads], optional
            Gate constants, for all contexts or for each; see `DecodeAccelerator.configure`.
        value_exponent : int or array [value_heads] or [contexts, value_heads]
            Value scale 2**value_exponent per head: state and output are held in units of it.
        timeout : float
            Seconds after which a run that has not ended is given up and the card reset.
        watchdog_cycles : int, optional
            Cycles after which the kernel gives up a run by itself; by default many times what
            the run needs.
        buffer_bytes : int
            Largest buffer on the card; longer inputs are cut into several runs.
        **options
            Sizes of `DecodeShape` by name in place of, or changing, `shape`; and options of the
            simulated card (`fastdelta.sim.open_device`), such as ``read_latency`` and ``seed``.

        Raises
        ------
        InputError
            If an argument cannot be used.
        BoardError
            If the card or its overlay cannot be used.
        MissingToolError
            If a package or program is missing that the board needs.
        """
        if kernel != "decode":
            raise InputError(f'kernel is {kernel!r}; available is "decode"')
        sizes = {field.name for field in fields(DecodeShape)} & options.keys()
        if sizes:
            changes = {name: options.pop(name) for name in sizes}
            try:
                shape = replace(shape or DecodeShape(), **changes)
            except (TypeError, ValueError) as error:
                raise InputError(str(error)) from error
        opened = open_board(board, ENGINES[kernel], shape=shape, overlay=overlay, options=options)
        try:
            accelerator = DecodeAccelerator(
                opened,
                shape,
                timeout=timeout,
                watchdog_cycles=watchdog_cycles,
                buffer_bytes=buffer_bytes,
            )
            accelerator.configure_all(a_log, dt_bias, value_exponent)
        except BaseException:
            opened.close()
            raise
        return accelerator
