# SPDX-License-Identifier: Apache-2.0
"""What differs between the two front ends of the board model, for code that serves both.

``"pynq"`` is `fastdelta.sim.device.SimDevice`; ``"xrt"`` is PYNQ's own ``XrtDevice`` over the
library of `fastdelta.sim.xrt`.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from fastdelta.errors import InputError
from fastdelta.platforms import Platform
from fastdelta.sim.device import SimDevice
from fastdelta.sim.simulated_board import BoardOptions, SimulatedBoard
from fastdelta.sim.xrt import active_prefix, xrt_cards

FrontEnd = Literal["pynq", "xrt"]


def default_front_end() -> FrontEnd:
    """Return the front end of this process: XRT's if PYNQ was started on simulated cards."""
    return "pynq" if active_prefix() is None else "xrt"


def check_front_end(front_end: str | None) -> FrontEnd:
    """Return a front end by name, None for that of this process.

    Raises
    ------
    InputError
        If there is no such front end.
    """
    if front_end is None:
        return default_front_end()
    for known in get_args(FrontEnd):
        if front_end == known:
            return known  # type: ignore[no-any-return]
    raise InputError(f"front_end={front_end!r}: allowed are {', '.join(get_args(FrontEnd))}")


def open_xrt_device(platform: Platform, options: BoardOptions) -> Any:
    """Return PYNQ's ``XrtDevice`` of a simulated card; see `fastdelta.sim.xrt.XrtCards.take`."""
    return xrt_cards().take(platform, options)


def board_of(device: Any) -> SimulatedBoard:
    """Return the board model behind a simulated card that has an overlay."""
    return device.board if isinstance(device, SimDevice) else xrt_cards().board(device._index)


def live_buffers(device: Any) -> int:
    """Return how many buffers are allocated on a simulated card."""
    if isinstance(device, SimDevice):
        return device.live_buffers
    return xrt_cards().live_buffers(device._index)


def close_device(device: Any) -> None:
    """Give a card from `fastdelta.sim.open_device` back."""
    if isinstance(device, SimDevice):
        device.close()
    else:
        xrt_cards().give_back(device)
