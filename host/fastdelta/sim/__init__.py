# SPDX-License-Identifier: Apache-2.0
"""The simulated card: our kernels, compiled from their RTL, behind a PYNQ device.

`open_device` gives a card and an overlay to load on it; `SimulatedBoard` is the board model
without PYNQ. `fastdelta.sim.xrt` puts the same board behind XRT's core library. PYNQ is imported
when the names that need it are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastdelta.errors import MissingToolError
from fastdelta.sim.build import Build, BuildError, build_board, build_kernel
from fastdelta.sim.simulated_board import (
    BankUsage,
    BoardOptions,
    CommandState,
    ComputeUnitSpec,
    Event,
    EventKind,
    Fault,
    FaultKind,
    PortStatistics,
    SimulatedBoard,
    SimulationError,
    Stalls,
    UnitFault,
    UnitFaultKind,
)

if TYPE_CHECKING:
    from fastdelta.sim.device import (
        CommandError,
        CommandTimeoutError,
        OutsideBanksWarning,
        SimDevice,
    )
    from fastdelta.sim.front_ends import board_of, close_device, live_buffers
    from fastdelta.sim.overlay import OpenedDevice, build_overlay, open_device

__all__ = [
    "BankUsage",
    "BoardOptions",
    "Build",
    "BuildError",
    "CommandError",
    "CommandState",
    "CommandTimeoutError",
    "ComputeUnitSpec",
    "Event",
    "EventKind",
    "Fault",
    "FaultKind",
    "OpenedDevice",
    "OutsideBanksWarning",
    "PortStatistics",
    "SimDevice",
    "SimulatedBoard",
    "SimulationError",
    "Stalls",
    "UnitFault",
    "UnitFaultKind",
    "board_of",
    "build_board",
    "build_kernel",
    "build_overlay",
    "close_device",
    "live_buffers",
    "open_device",
]

_NEED_PYNQ = {
    "CommandError": "device",
    "CommandTimeoutError": "device",
    "OutsideBanksWarning": "device",
    "SimDevice": "device",
    "board_of": "front_ends",
    "close_device": "front_ends",
    "live_buffers": "front_ends",
    "OpenedDevice": "overlay",
    "build_overlay": "overlay",
    "open_device": "overlay",
}


def __getattr__(name: str) -> Any:
    if name not in _NEED_PYNQ:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_NEED_PYNQ[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("pynq", "pycparser"):
            raise
        raise MissingToolError(
            f"a simulated card needs PYNQ 3.0.1, and {error.name} is missing: "
            "pip install 'fastdelta[card]'"
        ) from error
    return getattr(module, name)
