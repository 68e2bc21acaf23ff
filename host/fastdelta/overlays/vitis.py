# SPDX-License-Identifier: Apache-2.0
"""What ``overlays/Makefile`` asks for around Vitis: versions, settings of a build, its manifest."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from fastdelta.boards import ENGINES
from fastdelta.errors import InputError, ManifestError, MissingToolError
from fastdelta.interface import WIDTH_PARAMETER, KernelInterface, load_interface
from fastdelta.overlays.manifest import (
    HARDWARE,
    Build,
    Manifest,
    check_manifest,
    manifest_path,
    sha256,
    template,
)
from fastdelta.platforms import PLATFORMS, Platform
from fastdelta.sim.paths import overlay_folder
from fastdelta.xclbin import Xclbin

_VERSIONS: Final[Mapping[str, tuple[str, str]]] = {
    "vivado": ("-version", r"\bvivado v(\d{4}\.\d)"),
    "v++": ("--version", r"\bv\+\+ v(\d{4}\.\d)"),
}
_SET_UP: Final = "source settings64.sh of Vitis before make"
_SLACK: Final = re.compile(
    r"^\| Design Timing Summary$.*?^ *WNS\(ns\)(?P<names>[^\n]*)\n *-[- ]*\n(?P<values>[^\n]*)",
    re.M | re.S,
)
# The later a stage, the nearer its figures are to the bitstream.
_STAGES: Final = ("postroute_physopted", "routed")


def find_card(name: str) -> Platform:
    """Return a card by its short name.

    Raises
    ------
    InputError
        If there is none.
    """
    try:
        return PLATFORMS[name]
    except KeyError:
        raise InputError(f"CARD is {name!r}; cards are {', '.join(PLATFORMS)}") from None


def find_interface(kernel: str) -> KernelInterface:
    """Return a kernel of the checkout by the name of its folder.

    Raises
    ------
    InputError
        If there is none.
    """
    try:
        return load_interface(overlay_folder(kernel))
    except ValueError as error:
        raise InputError(f"KERNEL: {error}") from None


def tool_release(tool: str) -> str:
    """Ask a tool for its release, such as ``2023.2``.

    Raises
    ------
    MissingToolError
        If it is not in the PATH, or its answer makes no sense.
    """
    option, pattern = _VERSIONS[tool]
    path = shutil.which(tool)
    if path is None:
        raise MissingToolError(f"{tool} is not in the PATH; install Vitis, and {_SET_UP}")
    result = subprocess.run([path, option], capture_output=True, text=True, check=False)
    said = result.stdout + result.stderr
    found = re.search(pattern, said, re.I)
    if found is None:
        raise MissingToolError(
            f"{path} {option} names no release ({said.strip()[:200]!r}); {_SET_UP}"
        )
    return found[1]


def check_tools(platform: Platform, tools: Sequence[str]) -> str:
    """Return the release of the tools, if all are of one that knows a card.

    Raises
    ------
    MissingToolError
        If a tool is missing, two differ, or they do not know the card.
    """
    releases = {tool: tool_release(tool) for tool in tools}
    if len(set(releases.values())) > 1:
        found = ", ".join(f"{tool} is {release}" for tool, release in releases.items())
        raise MissingToolError(f"the tools are of several releases: {found}; {_SET_UP}, only one")
    release = next(iter(releases.values()))
    if not platform.knows(release):
        last = f" to {platform.newest_tools}" if platform.newest_tools else " and newer"
        why = ", the last that knows the card" if platform.newest_tools else ""
        raise MissingToolError(
            f"{' and '.join(tools)}: release {release} does not know the {platform.name}; it needs "
            f"{platform.oldest_tools}{last}{why}"
        )
    return release


def hardware_parameters(interface: KernelInterface, settings: Sequence[str]) -> dict[str, int]:
    """Return the RTL parameters of a kernel for a card.

    Parameters
    ----------
    interface
        The kernel, with those that cards have by default.
    settings
        ``NAME=VALUE`` of others.

    Raises
    ------
    InputError
        For an unknown name or a combination that the kernel does not have.
    """
    given = dict(interface.hardware_parameters)
    shape = ENGINES[interface.instance].default_shape()
    names = {field.name.upper(): field.name for field in fields(shape)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if not value.isdecimal():
            raise InputError(f"PARAMETERS: {setting!r} is not NAME=VALUE, such as H_ITER=4")
        given[name] = int(value)
    unknown = given.keys() - names.keys()
    if unknown:
        raise InputError(
            f"PARAMETERS: {interface.name} has no {', '.join(sorted(unknown))}; it has "
            f"{', '.join(names)}"
        )
    width = given.get(WIDTH_PARAMETER)
    if width is not None and {width} != set(interface.data_widths.values()):
        raise InputError(
            f"PARAMETERS: {WIDTH_PARAMETER} is {width}, but kernel.xml describes ports of other "
            "widths; change memory_width in registers.rdl, then make registers overlays"
        )
    try:
        type(shape)(**{names[name]: value for name, value in given.items()})
    except ValueError as error:
        raise InputError(f"PARAMETERS: {error}") from None
    return given


def build_settings(
    kernel: str,
    card: str,
    *,
    units: int,
    clock_mhz: int,
    settings: Sequence[str],
    platform_file: str = "",
) -> str:
    """Check the settings of a build and return them as variables of a shell.

    Parameters
    ----------
    kernel, card
        Names of kernel and card.
    units
        Compute units.
    clock_mhz
        Clock to ask for.
    settings
        ``NAME=VALUE`` of RTL parameters.
    platform_file
        The platform's ``.xpfm``, if Vitis does not find it by its name.

    Raises
    ------
    InputError
        If one of them cannot be built.
    """
    interface, platform = find_interface(kernel), find_card(card)
    try:
        interface.connections(platform, units)
    except ValueError as error:
        raise InputError(f"UNITS: {error}") from None
    if not 50 <= clock_mhz <= 500:
        raise InputError(f"CLOCK_MHZ is {clock_mhz}; allowed are 50 to 500")
    if platform_file and Path(platform_file).stem != platform.vbnv:
        raise InputError(
            f"PLATFORM is {platform_file}; for the {card} it is {platform.vbnv}.xpfm, or nothing"
        )
    parameters = hardware_parameters(interface, settings)
    values = {
        "PLATFORM": platform_file or platform.vbnv,
        "PART": platform.part,
        "UNITS": str(units),
        "CLOCK_MHZ": str(clock_mhz),
        "PARAMETERS": " ".join(f"{name}={value}" for name, value in parameters.items()),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def timing(reports: Path) -> tuple[float, float]:
    """Return the worst setup and hold slack of a build in nanoseconds.

    Parameters
    ----------
    reports
        Folder in which ``v++ --link`` left its reports.

    Raises
    ------
    ManifestError
        If there is no timing summary of a routed design, or none that can be read.
    """
    for stage in _STAGES:
        found = sorted(reports.rglob(f"*timing_summary_{stage}.rpt"))
        if found:
            break
    else:
        raise ManifestError(
            f"there is no timing summary of a routed design under {reports}, so nobody knows "
            "whether the overlay met its timing; see the logs of v++ beside it"
        )
    slacks = []
    for path in found:
        summary = _SLACK.search(path.read_text(encoding="utf-8", errors="replace"))
        if summary is None:
            raise ManifestError(f"{path} has no design timing summary that can be read")
        names = ["WNS(ns)", *re.split(r"  +", summary["names"].strip())]
        values = dict(zip(names, summary["values"].split(), strict=False))
        try:
            slacks.append((float(values["WNS(ns)"]), float(values["WHS(ns)"])))
        except (KeyError, ValueError):
            raise ManifestError(
                f"{path} names no setup and hold slack: {summary['values'].strip()!r}"
            ) from None
    return min(setup for setup, _ in slacks), min(hold for _, hold in slacks)


def write_manifest(
    kernel: str,
    card: str,
    xclbin: Path,
    *,
    target: str,
    release: str,
    units: int,
    clock_mhz: int,
    settings: Sequence[str],
    reports: Path,
) -> Path:
    """Write the manifest of a build beside its xclbin, and return its path.

    Parameters
    ----------
    kernel, card
        Names of kernel and card.
    xclbin
        What was built.
    target
        ``hw`` or ``hw_emu``.
    release
        Release of the tools.
    units, clock_mhz, settings
        As for `build_settings`.
    reports
        As for `timing`.

    Raises
    ------
    ManifestError
        If the timing of a build for hardware is not known.
    InputError, XclbinError
        If a setting or the xclbin is wrong.
    """
    interface, platform = find_interface(kernel), find_card(card)
    data = xclbin.read_bytes()
    container = Xclbin.parse(data)
    setup, hold = timing(reports) if target == HARDWARE else (None, None)
    empty = template(interface, platform)
    manifest = replace(
        empty,
        target=target,
        platform=container.vbnv,
        build=Build(
            vitis=release,
            compute_units=units,
            parameters=hardware_parameters(interface, settings),
            requested_clock_mhz=clock_mhz,
            clock_mhz=container.clocks[0].mhz,
            worst_negative_slack_ns=setup,
            worst_hold_slack_ns=hold,
            uuid=container.uuid,
            sha256=sha256(data),
        ),
    )
    path = manifest_path(xclbin)
    path.write_text(manifest.to_toml(), encoding="utf-8")
    return path


def verify(kernel: str, card: str, xclbin: Path) -> Manifest:
    """Check a build as the host does before it loads it, and return its manifest.

    Raises
    ------
    ManifestError
        If the host would refuse it.
    """
    path = manifest_path(xclbin)
    data = xclbin.read_bytes()
    manifest = Manifest.parse(path.read_text(encoding="utf-8"), path)
    check_manifest(manifest, path, data, Xclbin.parse(data), kernel, find_card(card))
    return manifest
