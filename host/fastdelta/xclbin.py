# SPDX-License-Identifier: Apache-2.0
"""Write and read xclbin containers (format ``axlf``), as PYNQ 3.0.1 and XRT read them.

The layout is that of XRT's public header ``xclbin.h``. A container is written from a kernel's
interface and a card; the simulated card puts a description of the simulation where a card's
container has its bitstream. The uuid is computed from the content, so equal content gives equal
files.
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from fastdelta import __version__
from fastdelta.interface import ControlProtocol, KernelInterface
from fastdelta.platforms import Platform

MAGIC: Final = b"xclbin2\0"

# Magic, signature length, reserved, key block, unique id.
_FILE = struct.Struct("<8s i 28s 256s Q")
# Length, time stamp, feature ROM time stamp, patch, major, minor, mode, action mask, interface
# uuid, platform, uuid, debug file, number of sections.
_HEADER = struct.Struct("<Q Q Q H B B H H 16s 64s 16s 16s I 4x")
_SECTION = struct.Struct("<I 16s 4x Q Q")  # kind, name, offset, size
_MEMORY = struct.Struct("<B B 6x Q Q 16s")  # type, used, KiB, base, tag
_CONNECTION = struct.Struct("<i i i")  # argument, entry of IP_LAYOUT, entry of the topology
_IP = struct.Struct("<I I Q 64s")  # type, properties, base, name
_CLOCK = struct.Struct("<H B 5x 128s")  # MHz, type, name

_UUID_OFFSET: Final = _FILE.size + 24 + 8 + 16 + 64
_ALIGNMENT: Final = 8
_VERSION: Final = (2, 13, 466)  # of the format: XRT 2.13

_IP_KERNEL: Final = 1
_INTERRUPT_ENABLED: Final = 1
_CONTROL_SHIFT: Final = 8
_CONTROL_CODES: Final[Mapping[ControlProtocol, int]] = {"ap_ctrl_hs": 0, "ap_ctrl_chain": 1}
_MEMORY_CODES: Final[Mapping[str, int]] = {"DDR": 1, "HBM": 6}
_KERNEL_CLOCKS: Final = (("DATA_CLK", 1), ("KERNEL_CLK", 2))
_SECOND_KERNEL_CLOCK_MHZ: Final = 500

FIRST_UNIT_ADDRESS: Final = 0x180_0000
UNIT_ADDRESS_STRIDE: Final = 0x1_0000


class Section(IntEnum):
    """Kinds of sections that are written and read here."""

    BITSTREAM = 0
    EMBEDDED_METADATA = 2
    MEM_TOPOLOGY = 6
    CONNECTIVITY = 7
    IP_LAYOUT = 8
    CLOCK_FREQ_TOPOLOGY = 11
    BUILD_METADATA = 14
    GROUP_TOPOLOGY = 26
    GROUP_CONNECTIVITY = 27


class Mode(IntEnum):
    """What a container is for."""

    FLAT = 0
    HARDWARE_EMULATION = 4


@dataclass(frozen=True)
class Memory:
    """An entry of the memory topology; sizes in bytes."""

    tag: str
    type_code: int
    used: bool
    base: int
    size: int


@dataclass(frozen=True)
class ComputeUnit:
    """An entry of the IP layout: ``name`` is ``kernel:instance``."""

    name: str
    base: int
    properties: int

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.name.partition(":")[0]

    @property
    def instance(self) -> str:
        """Name of the compute unit."""
        return self.name.partition(":")[2]

    @property
    def control(self) -> ControlProtocol:
        """Control protocol."""
        code = self.properties >> _CONTROL_SHIFT & 0xFF
        for protocol, known in _CONTROL_CODES.items():
            if code == known:
                return protocol
        raise XclbinError(f"{self.name} has control protocol {code}, which is not supported")


@dataclass(frozen=True)
class Connection:
    """Argument `argument` of IP layout entry `unit` reaches memory topology entry `memory`."""

    argument: int
    unit: int
    memory: int


@dataclass(frozen=True)
class Clock:
    """A clock of the container; `type_code` 1 is the data clock, 2 the kernel's second clock."""

    name: str
    mhz: int
    type_code: int


class XclbinError(ValueError):
    """A file is not an xclbin container, or a damaged one."""


def _table(count_format: str, record: struct.Struct, rows: Sequence[tuple[object, ...]]) -> bytes:
    return struct.pack(count_format, len(rows)) + b"".join(record.pack(*row) for row in rows)


def _memory_rows(platform: Platform, used: set[int]) -> list[tuple[object, ...]]:
    return [
        (_MEMORY_CODES[b.memory_type], i in used, b.size // 1024, b.base, b.tag.encode())
        for i, b in enumerate(platform.banks)
    ]


def _group_row(platform: Platform, banks: tuple[int, ...]) -> tuple[object, ...]:
    """Return the topology entry that stands for several banks together."""
    first, last = platform.banks[banks[0]], platform.banks[banks[-1]]
    size = sum(platform.banks[bank].size for bank in banks)
    if last.base + last.size - first.base != size:
        raise ValueError(
            f"{first.tag} to {last.tag} are not one range of addresses; a port that reaches "
            "several banks needs neighbours, in ascending order"
        )
    tag = f"{first.tag[:-1]}:{banks[-1]}]"
    return (_MEMORY_CODES[first.memory_type], 1, size // 1024, first.base, tag.encode())


def _metadata(
    interface: KernelInterface, platform: Platform, count: int, mode: Mode, clock_mhz: int
) -> bytes:
    """Return the XML that names kernels, arguments, ports and compute units."""
    element = ElementTree.SubElement
    project = ElementTree.Element("project", name=interface.instance)
    vendor, board, *_ = platform.vbnv.split("_")
    root = element(
        project, "platform", vendor=vendor, boardid=board, name=platform.vbnv, featureRomTime="0"
    )
    element(root, "version", major="0", minor="1")
    device = element(root, "device", name="fpga0", fpgaDevice=platform.part, addrWidth="0")
    core = element(
        device,
        "core",
        name="OCL_REGION_0",
        target="hw" if mode is Mode.FLAT else "hw_em",
        type="clc_region",
        clockFreq=f"{clock_mhz}MHz",
        numComputeUnits=str(count),
    )
    kernel = element(
        core,
        "kernel",
        name=interface.name,
        language="ip_c",
        vlnv=interface.vlnv,
        attributes="",
        preferredWorkGroupSizeMultiple="0",
        workGroupSize="1",
        debug="false",
        interrupt="true" if interface.interrupt else "false",
        hwControlProtocol=interface.control,
    )
    for port in interface.ports:
        element(
            kernel,
            "port",
            name=port,
            mode="master",
            range="0xFFFFFFFFFFFFFFFF",
            dataWidth=str(interface.data_widths[port]),
            portType="addressable",
            base="0x0",
        )
    control_range = f"{interface.control_range:#x}"
    element(
        kernel,
        "port",
        name="s_axi_control",
        mode="slave",
        range=control_range,
        dataWidth="32",
        portType="addressable",
        base="0x0",
    )
    for argument in interface.arguments:
        size = f"{argument.size:#x}"
        element(
            kernel,
            "arg",
            name=argument.name,
            addressQualifier="0" if argument.port is None else "1",
            id=str(argument.index),
            port=argument.port or "s_axi_control",
            size=size,
            offset=f"{argument.offset:#x}",
            hostOffset="0x0",
            hostSize=size,
            type=argument.type,
        )
    for index in range(count):
        instance = element(kernel, "instance", name=interface.unit_name(index))
        base = f"{FIRST_UNIT_ADDRESS + index * UNIT_ADDRESS_STRIDE:#x}"
        element(instance, "addrRemap", base=base, range=control_range, port="s_axi_control")
    ElementTree.indent(project)
    xml: bytes = ElementTree.tostring(project, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def build_xclbin(
    interface: KernelInterface,
    platform: Platform,
    *,
    bitstream: bytes,
    compute_units: int = 1,
    clock_mhz: int = 300,
    mode: Mode = Mode.HARDWARE_EMULATION,
) -> bytes:
    """Write a container with one kernel.

    Parameters
    ----------
    interface
        The kernel.
    platform
        The card.
    bitstream
        Content of the bitstream section.
    compute_units
        Copies of the kernel, each connected as its interface says.
    clock_mhz
        Clock of the kernel.
    mode
        What the container is for.

    Returns
    -------
    bytes
        The file.

    Raises
    ------
    ValueError
        If the kernel has no connections for so many compute units on the card.
    """
    units = interface.connections(platform, compute_units)
    used: set[int] = set()
    groups: list[tuple[int, ...]] = []
    plain_rows: list[tuple[object, ...]] = []
    group_rows: list[tuple[object, ...]] = []
    for unit, connections in enumerate(units):
        for argument in interface.arguments:
            if argument.port is None:
                continue
            banks = tuple(platform.bank_index(tag) for tag in connections[argument.port])
            used.update(banks)
            plain_rows += [(argument.index, unit, bank) for bank in banks]
            if len(banks) == 1:
                group_rows.append((argument.index, unit, banks[0]))
            else:
                if banks not in groups:
                    groups.append(banks)
                entry = len(platform.banks) + groups.index(banks)
                group_rows.append((argument.index, unit, entry))

    properties = _CONTROL_CODES[interface.control] << _CONTROL_SHIFT
    if interface.interrupt:
        properties |= _INTERRUPT_ENABLED
    unit_rows: list[tuple[object, ...]] = [
        (
            _IP_KERNEL,
            properties,
            FIRST_UNIT_ADDRESS + unit * UNIT_ADDRESS_STRIDE,
            f"{interface.name}:{interface.unit_name(unit)}".encode(),
        )
        for unit in range(compute_units)
    ]
    memory_rows = _memory_rows(platform, used)
    clock_rows: list[tuple[object, ...]] = [
        (mhz, code, name.encode())
        for (name, code), mhz in zip(
            _KERNEL_CLOCKS, (clock_mhz, _SECOND_KERNEL_CLOCK_MHZ), strict=True
        )
    ]
    build = {
        "build_metadata": {
            "xclbin": {
                "generated_by": {"name": "fastdelta", "version": __version__},
                "platform": platform.vbnv,
                "kernels": [
                    {
                        "name": interface.name,
                        "instances": [interface.unit_name(unit) for unit in range(compute_units)],
                    }
                ],
            }
        }
    }
    all_groups = memory_rows + [_group_row(platform, banks) for banks in groups]
    sections: list[tuple[Section, bytes]] = [
        (Section.BITSTREAM, bitstream),
        (Section.MEM_TOPOLOGY, _table("<i4x", _MEMORY, memory_rows)),
        (Section.IP_LAYOUT, _table("<i4x", _IP, unit_rows)),
        (Section.CONNECTIVITY, _table("<i", _CONNECTION, plain_rows)),
        (Section.CLOCK_FREQ_TOPOLOGY, _table("<h", _CLOCK, clock_rows)),
        (Section.BUILD_METADATA, json.dumps(build, indent=1).encode()),
        (
            Section.EMBEDDED_METADATA,
            _metadata(interface, platform, compute_units, mode, clock_mhz),
        ),
        (Section.GROUP_TOPOLOGY, _table("<i4x", _MEMORY, all_groups)),
        (Section.GROUP_CONNECTIVITY, _table("<i", _CONNECTION, group_rows)),
    ]
    return _container(platform, mode, sections)


def _container(platform: Platform, mode: Mode, sections: Sequence[tuple[Section, bytes]]) -> bytes:
    start = _FILE.size + _HEADER.size + len(sections) * _SECTION.size
    headers = b""
    body = b""
    for kind, data in sections:
        body += bytes(-(start + len(body)) % _ALIGNMENT)
        headers += _SECTION.pack(kind, b"", start + len(body), len(data))
        body += data
    patch, major, minor = _VERSION[2], _VERSION[0], _VERSION[1]
    interface_uuid = uuid_module.uuid5(uuid_module.NAMESPACE_OID, platform.vbnv).bytes

    def assemble(identity: bytes) -> bytes:
        unique = int.from_bytes(identity[:8], "little")
        return (
            _FILE.pack(MAGIC, -1, b"\xff" * 28, b"\xff" * 256, unique)
            + _HEADER.pack(
                start + len(body),
                0,  # no time stamps: equal content gives equal files
                0,
                patch,
                major,
                minor,
                mode,
                0,
                interface_uuid,
                platform.vbnv.encode(),
                identity,
                b"",
                len(sections),
            )
            + headers
            + body
        )

    return assemble(_identity(assemble(bytes(16))))


def _identity(without: bytes) -> bytes:
    """Return the uuid (version 8, custom) of a file whose uuid and unique id are zero."""
    digest = bytearray(hashlib.sha256(without).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)


@dataclass(frozen=True)
class Xclbin:
    """A container that was read.

    Attributes
    ----------
    uuid
        32 hexadecimal digits, as PYNQ writes it.
    vbnv
        Platform that it was linked for.
    mode
        What it is for; an unknown code stays a number.
    sections
        Content by kind. Of several sections of one kind the first counts, as in XRT.
    """

    uuid: str
    vbnv: str
    mode: int
    sections: Mapping[int, bytes]

    @classmethod
    def parse(cls, data: bytes) -> Xclbin:
        """Read a container.

        Raises
        ------
        XclbinError
            If the data is no container, or one that was cut off or changed.
        """
        if len(data) < _FILE.size + _HEADER.size:
            raise XclbinError(
                f"{len(data)} bytes are too few for an xclbin, which has a header of "
                f"{_FILE.size + _HEADER.size} bytes"
            )
        magic = _FILE.unpack_from(data)[0]
        if magic != MAGIC:
            raise XclbinError(f"this is no xclbin: it starts with {magic!r}, not with {MAGIC!r}")
        fields = _HEADER.unpack_from(data, _FILE.size)
        length, mode, vbnv, identity, count = (fields[i] for i in (0, 6, 9, 10, 12))
        if length > len(data):
            raise XclbinError(
                f"the xclbin was cut off: {len(data)} of {length} bytes are there; copy it again"
            )
        sections: dict[int, bytes] = {}
        for index in range(count):
            at = _FILE.size + _HEADER.size + index * _SECTION.size
            if at + _SECTION.size > length:
                raise XclbinError(f"the xclbin says it has {count} sections, which do not fit in")
            kind, _, offset, size = _SECTION.unpack_from(data, at)
            if offset + size > length:
                raise XclbinError(f"section {kind} of the xclbin ends behind the end of the file")
            sections.setdefault(kind, data[offset : offset + size])
        return cls(
            uuid=identity.hex(),
            vbnv=_text(vbnv),
            mode=mode,
            sections=sections,
        )

    def section(self, kind: Section) -> bytes:
        """Return the content of a section.

        Raises
        ------
        XclbinError
            If the container has none of that kind.
        """
        try:
            return self.sections[kind]
        except KeyError:
            raise XclbinError(f"the xclbin has no section {kind.name}") from None

    def memories(self, kind: Section = Section.MEM_TOPOLOGY) -> tuple[Memory, ...]:
        """Return the memory topology, or with ``GROUP_TOPOLOGY`` that of groups."""
        return tuple(
            Memory(_text(tag), code, bool(used), base, kib * 1024)
            for code, used, kib, base, tag in self._rows(kind, "<i4x", _MEMORY)
        )

    @property
    def compute_units(self) -> tuple[ComputeUnit, ...]:
        """Compute units, in the order of their addresses."""
        return tuple(
            ComputeUnit(_text(name), base, properties)
            for code, properties, base, name in self._rows(Section.IP_LAYOUT, "<i4x", _IP)
            if code == _IP_KERNEL
        )

    def connections(self, kind: Section = Section.CONNECTIVITY) -> tuple[Connection, ...]:
        """Return which argument reaches which memory."""
        return tuple(Connection(*row) for row in self._rows(kind, "<i", _CONNECTION))

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """Clocks of the kernels."""
        return tuple(
            Clock(_text(name), mhz, code)
            for mhz, code, name in self._rows(Section.CLOCK_FREQ_TOPOLOGY, "<h", _CLOCK)
        )

    def control_range(self, unit: ComputeUnit) -> int:
        """Return the bytes of a compute unit's register space."""
        slave = self._kernel(unit).find("port[@mode='slave']")
        if slave is None:
            raise XclbinError(f"the metadata of the xclbin names no control port of {unit.kernel}")
        return int(slave.attrib["range"], 0)

    def port_memories(self, unit: ComputeUnit) -> dict[str, tuple[int, ...]]:
        """Return the memory topology entries behind each port of a compute unit."""
        ports = {
            int(argument.attrib["id"]): argument.attrib["port"]
            for argument in self._kernel(unit).iterfind("arg")
        }
        index = self.compute_units.index(unit)
        memories: dict[str, tuple[int, ...]] = {}
        for connection in self.connections():
            if connection.unit == index:
                port = ports[connection.argument]
                memories[port] = tuple(sorted({*memories.get(port, ()), connection.memory}))
        return memories

    @cached_property
    def _metadata(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.section(Section.EMBEDDED_METADATA))

    def _kernel(self, unit: ComputeUnit) -> ElementTree.Element:
        for kernel in self._metadata.iterfind("platform/device/core/kernel"):
            if kernel.attrib["name"] == unit.kernel:
                return kernel
        raise XclbinError(f"the metadata of the xclbin has no kernel {unit.kernel}")

    def is_intact(self, data: bytes) -> bool:
        """Say whether the uuid of a container written here still fits its content."""
        blank = bytearray(data)
        blank[_FILE.size - 8 : _FILE.size] = bytes(8)
        blank[_UUID_OFFSET : _UUID_OFFSET + 16] = bytes(16)
        return _identity(bytes(blank)).hex() == self.uuid

    def _rows(
        self, kind: Section, count_format: str, record: struct.Struct
    ) -> list[tuple[Any, ...]]:
        data = self.section(kind)
        start = struct.calcsize(count_format)
        if len(data) < start:
            raise XclbinError(f"section {kind.name} of the xclbin is empty")
        (count,) = struct.unpack_from(count_format, data)
        if count < 0 or start + count * record.size > len(data):
            raise XclbinError(
                f"section {kind.name} of the xclbin says it has {count} entries, "
                "which do not fit in"
            )
        return [record.unpack_from(data, start + i * record.size) for i in range(count)]


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")
