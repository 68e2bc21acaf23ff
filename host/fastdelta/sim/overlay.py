# SPDX-License-Identifier: Apache-2.0
"""Build overlays for the simulated card, and open cards that can load them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fastdelta.errors import BoardNotFoundError
from fastdelta.interface import WIDTH_PARAMETER, KernelInterface, load_interface
from fastdelta.platforms import Platform, find_platform
from fastdelta.sim.build import build_kernel, rtl_parameters
from fastdelta.sim.device import DEFAULT_TIMEOUT_SECONDS, SimDevice, simulation_manifest
from fastdelta.sim.front_ends import FrontEnd, check_front_end, open_xrt_device
from fastdelta.sim.paths import cache_folder, overlay_folder
from fastdelta.sim.simulated_board import BoardOptions, Stalls
from fastdelta.xclbin import Xclbin, build_xclbin


class OpenedDevice(NamedTuple):
    """A simulated card, by either front end, and the overlay to load on it."""

    device: Any
    xclbin: Path


def build_overlay(
    interface: KernelInterface,
    platform: Platform,
    parameters: Mapping[str, int] | None = None,
    *,
    compute_units: int = 1,
    clock_mhz: int = 300,
    trace: bool = False,
    cache: Path | None = None,
    quiet: bool = False,
) -> Path:
    """Build a kernel and write its container for a simulated card.

    Parameters
    ----------
    interface
        The kernel.
    platform
        The card.
    parameters
        RTL parameters.
    compute_units
        Copies of the kernel.
    clock_mhz
        Clock that the container names; nothing is simulated in real time.
    trace
        Whether waveforms can be written.
    cache
        Folder for builds; by default that of `fastdelta.sim.paths.cache_folder`.
    quiet
        Whether to say nothing while building.

    Returns
    -------
    Path
        The xclbin, ``<cache>/overlays/<uuid>/<instance>.xclbin``.

    Raises
    ------
    MissingToolError, BuildError
        As for `fastdelta.sim.build.build_kernel`.
    ValueError
        If the kernel has no connections for so many compute units on the card.
    """
    width = (parameters or {}).get(WIDTH_PARAMETER)
    if width is not None:
        widths = MappingProxyType(dict.fromkeys(interface.ports, width))
        interface = replace(interface, data_widths=widths)
    interface.connections(platform, compute_units)
    build = build_kernel(interface, parameters, trace=trace, cache=cache, quiet=quiet)
    data = build_xclbin(
        interface,
        platform,
        bitstream=simulation_manifest({interface.name: build.key}),
        compute_units=compute_units,
        clock_mhz=clock_mhz,
    )
    folder = (cache or cache_folder()) / "overlays" / Xclbin.parse(data).uuid
    path = folder / f"{interface.instance}.xclbin"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(scratch).rename(path)
    return path


def open_device(
    board: str = "u55c",
    kernel: str | Path = "decode",
    shape: Any = None,
    *,
    parameters: Mapping[str, int] | None = None,
    compute_units: int = 1,
    read_latency: int = 64,
    write_latency: int = 16,
    outstanding: int = 32,
    stalls: float | Stalls = 0.0,
    seed: int = 0,
    address_waits_for_data: bool = False,
    hang_cycles: int = 1_000_000,
    report_unwritten: bool = False,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    clock_mhz: int = 300,
    trace: bool = False,
    cache: Path | None = None,
    quiet: bool = False,
    front_end: FrontEnd | None = None,
) -> OpenedDevice:
    """Open a simulated card and build the overlay to load on it.

    Parameters
    ----------
    board : str
        ``u55c`` or ``u280``, also as ``sim-u55c`` and ``sim-u280``.
    kernel : str or path
        Name of a kernel under ``overlays/``, or the folder of one.
    shape : dataclass, optional
        Shape of the kernel, such as a `fastdelta.shapes.DecodeShape`: its fields are the RTL
        parameters. Without it the RTL's defaults hold.
    parameters : mapping, optional
        More RTL parameters.
    compute_units : int
        Copies of the kernel.
    read_latency, write_latency, outstanding, seed
        As in `BoardOptions`.
    address_waits_for_data, hang_cycles, report_unwritten
        As in `BoardOptions`.
    stalls : float or Stalls
        Probability that a channel of the memory stalls in a cycle, for all channels or each.
    timeout_seconds : float
        Wall-clock time after which `SimWaitHandle.wait` gives up; PYNQ's own handles have none.
    clock_mhz, trace, cache, quiet
        As for `build_overlay`.
    front_end : "pynq" or "xrt", optional
        `SimDevice`, or PYNQ's own ``XrtDevice`` in a process that was started on the cards of
        `fastdelta.sim.xrt`. By default the latter in such a process, otherwise the former.

    Returns
    -------
    OpenedDevice
        The device and the path of the xclbin, which ``pynq.Overlay(str(xclbin), device=device)``
        loads.

    Raises
    ------
    BoardNotFoundError
        If there is no such card, or no free one behind XRT.
    MissingToolError, BuildError
        As for `fastdelta.sim.build.build_kernel`.
    ValueError
        If another argument cannot be used.
    """
    try:
        platform = find_platform(board.removeprefix("sim-"))
    except ValueError as error:
        raise BoardNotFoundError(str(error)) from None
    options = BoardOptions(
        read_latency=read_latency,
        write_latency=write_latency,
        outstanding=outstanding,
        stalls=stalls if isinstance(stalls, Stalls) else Stalls.uniform(stalls),
        seed=seed,
        address_waits_for_data=address_waits_for_data,
        hang_cycles=hang_cycles,
        report_unwritten=report_unwritten,
    )
    front_end = check_front_end(front_end)
    folder = kernel if isinstance(kernel, Path) else overlay_folder(kernel)
    sizes = {} if shape is None else rtl_parameters(shape)
    xclbin = build_overlay(
        load_interface(folder),
        platform,
        {**sizes, **(parameters or {})},
        compute_units=compute_units,
        clock_mhz=clock_mhz,
        trace=trace,
        cache=cache,
        quiet=quiet,
    )
    if front_end == "xrt":
        return OpenedDevice(open_xrt_device(platform, options), xclbin)
    device = SimDevice(platform.name, options, timeout_seconds=timeout_seconds, cache=cache)
    return OpenedDevice(device, xclbin)
