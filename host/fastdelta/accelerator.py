# SPDX-License-Identifier: Apache-2.0
"""Open an engine on a card: numpy in, numpy out, whatever card is behind.

>>> with Accelerator.open("decode", board="sim-u55c", a_log=a_log, dt_bias=dt_bias) as engine:
...     result = engine.decode(q, k, v, a, b)
...     result.output, result.kernel_cycles

>>> with Accelerator.open("prefill", board="sim-u280", head_dim=64) as engine:
...     result = engine.prefill(q, k, v)
...     result.output, result.cycles.total
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy.typing as npt

from fastdelta.boards import ENGINES, SIMULATED, open_board
from fastdelta.decode.accelerator import DEFAULT_BUFFER_BYTES, DEFAULT_TIMEOUT, DecodeAccelerator
from fastdelta.errors import InputError
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.shapes import DecodeShape, PrefillShape

Shape = TypeVar("Shape", DecodeShape, PrefillShape)

_PREFILL_HANG_CYCLES = 4_000_000  # selection works long without memory on the largest prompts


class Accelerator:
    """Opens the engines."""

    @overload
    @staticmethod
    def open(
        kernel: Literal["decode"],
        *,
        board: str | int = ...,
        shape: DecodeShape | None = ...,
        overlay: Path | None = ...,
        timeout: float | None = ...,
        watchdog_cycles: int | None = ...,
        a_log: npt.ArrayLike | None = ...,
        dt_bias: npt.ArrayLike | None = ...,
        value_exponent: int | npt.ArrayLike = ...,
        buffer_bytes: int = ...,
        **options: Any,
    ) -> DecodeAccelerator: ...

    @overload
    @staticmethod
    def open(
        kernel: Literal["prefill"],
        *,
        board: str | int = ...,
        shape: PrefillShape | None = ...,
        overlay: Path | None = ...,
        timeout: float | None = ...,
        watchdog_cycles: int | None = ...,
        **options: Any,
    ) -> PrefillAccelerator: ...

    @staticmethod
    def open(
        kernel: Literal["decode", "prefill"],
        *,
        board: str | int = "sim-u55c",
        shape: DecodeShape | PrefillShape | None = None,
        overlay: Path | None = None,
        timeout: float | None = None,
        watchdog_cycles: int | None = None,
        **options: Any,
    ) -> DecodeAccelerator | PrefillAccelerator:
        """Open a kernel on a card. Contexts of a decode engine start cleared.

        Parameters
        ----------
        kernel : "decode" or "prefill"
            Engine to open.
        board : str or int
            ``"sim-u55c"`` or ``"sim-u280"``, a new simulated card; ``"u55c"`` or ``"u280"``, the
            first real one of its kind that this process does not use; or the index of a real card
            or its name as XRT has it (``fastdelta devices`` lists them).
        shape : DecodeShape or PrefillShape, optional
            Parameters of the kernel. The simulated card is built with them (by default those of
            Qwen3-Next, or the full prefill engine with 128 channels a head); the kernel on a real
            card must have them if they are given.
        overlay : path, optional
            The xclbin to load on a real card.
        timeout : float, optional
            Seconds after which a run that has not ended is given up and the card reset; by default
            60, and 3,600 for prefill on a simulated card.
        watchdog_cycles : int, optional
            Cycles after which the kernel gives up a run by itself; by default many times what
            the run needs.
        **options
            Sizes of the shape by name in place of, or changing, `shape`, such as
            ``head_dim=256``; options of the simulated card (`fastdelta.sim.open_device`), such as
            ``read_latency`` and ``seed``; and for decode:

            a_log, dt_bias : array [value_heads] or [contexts, value_heads], optional
                Gate constants, for all contexts or for each; see `DecodeAccelerator.configure`.
            value_exponent : int or array [value_heads] or [contexts, value_heads]
                Value scale 2**value_exponent per head: state and output are held in units of it.
            buffer_bytes : int
                Largest buffer on the card; longer inputs are cut into several runs.

        Raises
        ------
        InputError
            If an argument cannot be used.
        BoardError
            If the card or its overlay cannot be used.
        MissingToolError
            If a package or program is missing that the board needs.
        """
        common: dict[str, Any] = {
            "board": board,
            "overlay": overlay,
            "watchdog_cycles": watchdog_cycles,
        }
        if kernel == "decode":
            seconds = DEFAULT_TIMEOUT if timeout is None else timeout
            decode_shape, options = _sized(DecodeShape, shape, options)
            return _open_decode(decode_shape, timeout=seconds, **common, **options)
        if kernel == "prefill":
            prefill_shape, options = _sized(PrefillShape, shape, options)
            return _open_prefill(prefill_shape, timeout=timeout, options=options, **common)
        raise InputError(f"kernel is {kernel!r}; available are {', '.join(ENGINES)}")


def _sized(
    kind: type[Shape], shape: DecodeShape | PrefillShape | None, options: dict[str, Any]
) -> tuple[Shape | None, dict[str, Any]]:
    """Return the shape with the sizes among the options, and the other options."""
    if shape is not None and not isinstance(shape, kind):
        raise InputError(f"shape is {shape}; this engine needs a {kind.__name__}")
    names = {field.name for field in fields(kind)}
    sizes = {name: value for name, value in options.items() if name in names}
    others = {name: value for name, value in options.items() if name not in names}
    if not sizes:
        return shape, others
    try:
        return replace(shape or kind(), **sizes), others
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def _open_decode(
    shape: DecodeShape | None,
    *,
    board: str | int,
    overlay: Path | None,
    timeout: float,
    watchdog_cycles: int | None,
    a_log: npt.ArrayLike | None = None,
    dt_bias: npt.ArrayLike | None = None,
    value_exponent: int | npt.ArrayLike = 0,
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    **options: Any,
) -> DecodeAccelerator:
    opened = open_board(board, ENGINES["decode"], shape=shape, overlay=overlay, options=options)
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


def _open_prefill(
    shape: PrefillShape | None,
    *,
    board: str | int,
    overlay: Path | None,
    timeout: float | None,
    watchdog_cycles: int | None,
    options: Mapping[str, Any],
) -> PrefillAccelerator:
    if isinstance(board, str) and board.startswith(SIMULATED):
        options = {"hang_cycles": _PREFILL_HANG_CYCLES, **options}
    opened = open_board(board, ENGINES["prefill"], shape=shape, overlay=overlay, options=options)
    try:
        return PrefillAccelerator(
            opened,
            shape,
            timeout=timeout,
            watchdog_cycles=watchdog_cycles,
        )
    except BaseException:
        opened.close()
        raise
