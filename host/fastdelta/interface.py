# SPDX-License-Identifier: Apache-2.0
"""What a host must know of a kernel: arguments, ports, and the memory banks behind them.

A kernel's folder under ``overlays/`` holds ``kernel.xml`` (Vitis' format: arguments, offsets,
types, ports) and ``interface.toml``::

    instance = "decode"                       # compute units are decode_1, decode_2, ...
    file_list = "../../rtl/decode/decode.f"   # relative to this file; the top module is the kernel

    [simulation_parameters]                   # parameters of the RTL that only simulation sets
    STATE_PITCH = 32

    [hardware_parameters]                     # what a card's kernel has unless its build says else
    H_ITER = 4

    [[compute_units.u55c]]                    # one table for each compute unit the card can have
    m_axi_qk = "HBM[0]"                       # a bank, or a list of banks, for each port
    slr = "SLR0"                              # die to place it on; left out: the tools choose

    [tested.u55c]                             # releases with which a card has run an overlay
    vitis = ["2023.2"]
    xrt = ["2.16"]

Both are read here, checked against each other and against the card, and given out frozen.
"""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast, get_args

from fastdelta.platforms import PLATFORMS, Platform

ControlProtocol = Literal["ap_ctrl_hs", "ap_ctrl_chain"]

FIRST_ARGUMENT_OFFSET: Final = 0x10
# What PYNQ 3.0.1 packs correctly; "unsigned long", for one, is cut to 4 bytes.
SCALAR_BYTES: Final[Mapping[str, int]] = {
    "int": 4,
    "uint": 4,
    "float": 4,
    "unsigned long long": 8,
}
POINTER_BYTES: Final = 8

WIDTH_PARAMETER: Final = "BUS_WIDTH"
"""RTL parameter that, if given, is the width of every memory port."""

_KEYS: Final = {
    "instance",
    "file_list",
    "simulation_parameters",
    "hardware_parameters",
    "compute_units",
    "tested",
}
_PLACEMENT: Final = "slr"


@dataclass(frozen=True)
class Argument:
    """One kernel argument.

    Attributes
    ----------
    name, index
        Name and position.
    offset
        Byte offset of its register.
    type
        C type: ``int``, ``uint``, ``float``, ``unsigned long long``, or a pointer such as
        ``void*``.
    port
        AXI4 master that a pointer is used on; None for scalars.
    """

    name: str
    index: int
    offset: int
    type: str
    port: str | None

    @property
    def size(self) -> int:
        """Bytes of the argument."""
        return POINTER_BYTES if self.port is not None else SCALAR_BYTES[self.type]


Connections = Mapping[str, tuple[str, ...]]
"""Memory banks behind each port of one compute unit."""


@dataclass(frozen=True)
class KernelInterface:
    """Arguments, ports and connections of one kernel.

    Attributes
    ----------
    name
        Kernel, and top module of its RTL.
    vlnv
        Vendor, library, name and version, to which PYNQ drivers bind.
    control
        Control protocol.
    interrupt
        Whether the kernel has an interrupt line.
    control_range
        Bytes of the register space.
    ports
        AXI4 masters.
    data_widths
        Bits of each master's beats, as packaged.
    arguments
        In order of their positions.
    instance
        Compute units are called ``<instance>_1`` and so on.
    file_list
        List of the RTL sources.
    simulation_parameters
        RTL parameters that only simulation sets.
    compute_units
        For each card, the connections of each compute unit it can have.
    hardware_parameters
        RTL parameters of a kernel for a card, unless its build says otherwise.
    placements
        For each card, the die of each compute unit, such as ``SLR0``; None: the tools choose.
    tested
        For each card, the releases of ``vitis`` and ``xrt`` with which one has run an overlay.
    """

    name: str
    vlnv: str
    control: ControlProtocol
    interrupt: bool
    control_range: int
    ports: tuple[str, ...]
    data_widths: Mapping[str, int]
    arguments: tuple[Argument, ...]
    instance: str
    file_list: Path
    simulation_parameters: Mapping[str, int]
    compute_units: Mapping[str, tuple[Connections, ...]]
    hardware_parameters: Mapping[str, int]
    placements: Mapping[str, tuple[str | None, ...]]
    tested: Mapping[str, Mapping[str, tuple[str, ...]]]

    def connections(self, platform: Platform, count: int) -> tuple[Connections, ...]:
        """Return the connections of the first `count` compute units on a card.

        Raises
        ------
        ValueError
            If the kernel has no connections for the card, or not for so many compute units.
        """
        units = self.compute_units.get(platform.name)
        if units is None:
            raise ValueError(
                f"kernel {self.name} has no connections for the {platform.name}; it has them for "
                f"{', '.join(self.compute_units)}"
            )
        if not 1 <= count <= len(units):
            raise ValueError(
                f"{count} compute units of {self.name} on a {platform.name}: allowed are 1 to "
                f"{len(units)}, for which interface.toml has connections"
            )
        return units[:count]

    def unit_name(self, index: int) -> str:
        """Return the name of compute unit `index`, counted from 0."""
        return f"{self.instance}_{index + 1}"


def load_interface(folder: Path) -> KernelInterface:
    """Read the interface of a kernel from its overlay folder.

    Parameters
    ----------
    folder
        Holds ``kernel.xml`` and ``interface.toml``.

    Raises
    ------
    FileNotFoundError
        If one of the two is missing.
    ValueError
        If they do not fit each other, the cards, or what PYNQ 3.0.1 can pass.
    """
    xml_path = folder / "kernel.xml"
    toml_path = folder / "interface.toml"
    for path in (xml_path, toml_path):
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path}; a kernel's folder holds it")
    try:
        kernel = ElementTree.parse(xml_path).getroot().find("kernel")
    except ElementTree.ParseError as error:
        raise ValueError(f"{xml_path}: {error}") from None
    if kernel is None:
        raise ValueError(f"{xml_path}: there is no <kernel>")
    table = tomllib.loads(toml_path.read_text(encoding="utf-8"))
    unknown = table.keys() - _KEYS
    missing = {"instance", "file_list", "compute_units"} - table.keys()
    if unknown or missing:
        raise ValueError(
            f"{toml_path}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}; "
            f"keys are {sorted(_KEYS)}"
        )
    masters = {
        port.attrib["name"]: int(port.attrib["dataWidth"], 0)
        for port in kernel.iterfind("ports/port[@mode='master']")
    }
    slave = kernel.find("ports/port[@mode='slave']")
    if slave is None:
        raise ValueError(f"{xml_path}: the kernel has no control port")
    control_range = int(slave.attrib["range"], 0)
    protocol = kernel.attrib.get("hwControlProtocol", "")
    if protocol not in get_args(ControlProtocol):
        raise ValueError(
            f"{xml_path}: control protocol {protocol!r}; allowed are "
            f"{' and '.join(get_args(ControlProtocol))}"
        )
    return KernelInterface(
        name=kernel.attrib["name"],
        vlnv=kernel.attrib["vlnv"],
        control=cast(ControlProtocol, protocol),
        interrupt=kernel.attrib.get("interrupt") == "true",
        control_range=control_range,
        ports=tuple(masters),
        data_widths=MappingProxyType(masters),
        arguments=_arguments(kernel, xml_path, masters.keys(), control_range),
        instance=_instance(table["instance"], toml_path),
        file_list=(folder / table["file_list"]).resolve(),
        simulation_parameters=MappingProxyType(dict(table.get("simulation_parameters", {}))),
        compute_units=MappingProxyType(
            {
                name: tuple(_connections(unit, name, masters.keys(), toml_path) for unit in units)
                for name, units in table["compute_units"].items()
            }
        ),
        hardware_parameters=MappingProxyType(dict(table.get("hardware_parameters", {}))),
        placements=MappingProxyType(
            {
                name: tuple(_placement(unit, name, toml_path) for unit in units)
                for name, units in table["compute_units"].items()
            }
        ),
        tested=MappingProxyType(
            {
                name: _tested(table.get("tested", {}).get(name, {}), name, toml_path)
                for name in table["compute_units"]
            }
        ),
    )


def _instance(name: Any, path: Path) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ValueError(f"{path}: instance is {name!r}; it must be an identifier")
    return name


def _arguments(
    kernel: ElementTree.Element, path: Path, masters: Any, control_range: int
) -> tuple[Argument, ...]:
    arguments = []
    free = FIRST_ARGUMENT_OFFSET
    for index, element in enumerate(kernel.iterfind("args/arg")):
        name = element.attrib["name"]
        where = f"{path}: argument {name}"
        is_pointer = element.attrib["addressQualifier"] == "1"
        argument = Argument(
            name=name,
            index=int(element.attrib["id"]),
            offset=int(element.attrib["offset"], 0),
            type=element.attrib["type"],
            port=element.attrib["port"] if is_pointer else None,
        )
        if argument.index != index:
            raise ValueError(f"{where}: id is {argument.index}; it must be {index}")
        if is_pointer and argument.port not in masters:
            raise ValueError(f"{where}: the kernel has no port {argument.port}")
        if is_pointer != argument.type.endswith("*") or (
            not is_pointer and argument.type not in SCALAR_BYTES
        ):
            raise ValueError(
                f"{where}: type {argument.type!r}; allowed are {', '.join(SCALAR_BYTES)} for "
                "scalars and pointers for buffers"
            )
        if argument.offset % 4 or argument.offset < free:
            raise ValueError(
                f"{where}: offset {argument.offset:#x}; it must be a multiple of 4 and at least "
                f"{free:#x}, behind the argument before it"
            )
        free = argument.offset + argument.size
        if free > control_range:
            raise ValueError(f"{where}: it is beyond the {control_range} bytes of the control port")
        arguments.append(argument)
    return tuple(arguments)


def _connections(unit: Any, platform_name: str, masters: Any, path: Path) -> Connections:
    platform = PLATFORMS.get(platform_name)
    if platform is None:
        raise ValueError(
            f"{path}: there is no card {platform_name}; cards are {', '.join(PLATFORMS)}"
        )
    ports = {port: banks for port, banks in unit.items() if port != _PLACEMENT}
    if ports.keys() != set(masters):
        raise ValueError(
            f"{path}: a compute unit on the {platform_name} connects {sorted(ports)}; it must "
            f"connect each of {sorted(masters)}"
        )
    connections = {}
    for port, banks in ports.items():
        tags = (banks,) if isinstance(banks, str) else tuple(banks)
        if not tags:
            raise ValueError(f"{path}: port {port} on the {platform_name} has no bank")
        for tag in tags:
            platform.bank_index(tag)
        connections[port] = tags
    return MappingProxyType(connections)


def _placement(unit: Any, platform_name: str, path: Path) -> str | None:
    slr = unit.get(_PLACEMENT)
    allowed = [f"SLR{index}" for index in range(PLATFORMS[platform_name].slrs)]
    if slr is not None and slr not in allowed:
        raise ValueError(
            f"{path}: slr is {slr!r}; the {platform_name} has {', '.join(allowed)}, and without "
            "slr the tools choose"
        )
    return cast(str | None, slr)


def _tested(table: Any, platform_name: str, path: Path) -> Mapping[str, tuple[str, ...]]:
    platform = PLATFORMS[platform_name]
    known = {"vitis": platform.releases, "xrt": platform.xrt_releases}
    for tool, releases in table.items():
        if tool not in known or not set(releases) <= set(known[tool]):
            raise ValueError(
                f"{path}: tested.{platform_name} has {tool} {releases}; allowed are vitis of "
                f"{', '.join(known['vitis'])} and xrt of {', '.join(known['xrt'])}"
            )
    return MappingProxyType({tool: tuple(table.get(tool, ())) for tool in known})
