# SPDX-License-Identifier: Apache-2.0
"""xclbin containers: our reader and PYNQ's parser agree on what was written."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import replace
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from pynq._3rdparty import xclbin as pynq_xclbin
from pynq.pl_server.xclbin_parser import XclBin

from fastdelta.interface import KernelInterface, load_interface
from fastdelta.platforms import PLATFORMS, Platform
from fastdelta.sim.paths import overlay_folder
from fastdelta.xclbin import Connection, Mode, Section, Xclbin, XclbinError, build_xclbin

KERNEL = Path(__file__).resolve().parents[1] / "kernels" / "vector_add"
U55C, U280 = PLATFORMS["u55c"], PLATFORMS["u280"]
BITSTREAM = b"the bitstream"


@pytest.fixture(params=["vector_add", "decode"])
def interface(request: pytest.FixtureRequest) -> KernelInterface:
    return load_interface(KERNEL if request.param == "vector_add" else overlay_folder("decode"))


@pytest.fixture
def vector_add() -> KernelInterface:
    return load_interface(KERNEL)


@pytest.mark.parametrize("platform", [U55C, U280], ids=lambda platform: platform.name)
def test_pynq_reads_what_was_written(
    interface: KernelInterface, platform: Platform, tmp_path: Path
) -> None:
    count = len(interface.compute_units[platform.name])
    path = tmp_path / "kernel.xclbin"
    data = build_xclbin(interface, platform, bitstream=BITSTREAM, compute_units=count)
    path.write_bytes(data)
    parsed = XclBin(str(path))
    read = Xclbin.parse(data)

    assert list(parsed.ip_dict) == [interface.unit_name(i) for i in range(count)]
    for unit, (connections, ip) in enumerate(
        zip(interface.compute_units[platform.name], parsed.ip_dict.values(), strict=True)
    ):
        assert ip["type"] == interface.vlnv
        assert ip["hw_control_protocol"] == interface.control
        assert ip["addr_range"] == interface.control_range
        assert ip["cu_index"] == ip["index"] == unit
        assert ip["xclbin_uuid"] == read.uuid
        assert ip["cu_name"] == read.compute_units[unit].name
        assert ip["phys_addr"] == read.compute_units[unit].base
        assert ip["registers"].keys() == {"CTRL", *(a.name for a in interface.arguments)}
        for argument in interface.arguments:
            register = ip["registers"][argument.name]
            assert register["address_offset"] == argument.offset
            assert register["type"] == argument.type
            banks = connections.get(argument.port or "", (None,))
            assert register.get("memory") == banks[-1]
    assert [
        (tag, desc["base_address"], desc["size"], desc["type"], desc["idx"])
        for tag, desc in parsed.mem_dict.items()
    ] == [(b.tag, b.base, b.size, {"HBM": "HBM", "DDR": "DDR4"}[b.memory_type], i)
          for i, b in enumerate(platform.banks)]  # fmt: skip
    used = {tag for tag, desc in parsed.mem_dict.items() if desc["used"]}
    units = interface.compute_units[platform.name]
    assert used == {tag for unit in units for banks in unit.values() for tag in banks}


def test_our_reader_reads_what_was_written(vector_add: KernelInterface) -> None:
    data = build_xclbin(
        vector_add, U280, bitstream=BITSTREAM, clock_mhz=275, mode=Mode.HARDWARE_EMULATION
    )
    read = Xclbin.parse(data)
    assert read.vbnv == U280.vbnv
    assert read.mode == Mode.HARDWARE_EMULATION
    assert read.section(Section.BITSTREAM) == BITSTREAM
    assert [(m.tag, m.base, m.size) for m in read.memories()] == [
        (b.tag, b.base, b.size) for b in U280.banks
    ]
    assert [m.tag for m in read.memories() if m.used] == ["HBM[0]", "DDR[1]"]
    assert read.connections() == (Connection(0, 0, 0), Connection(1, 0, 0), Connection(2, 0, 33))
    (unit,) = read.compute_units
    assert (unit.kernel, unit.instance) == ("vector_add_kernel", "vector_add_1")
    assert unit.control == "ap_ctrl_chain"
    assert read.control_range(unit) == 4096
    assert read.port_memories(unit) == {"m_axi_in": (0,), "m_axi_out": (33,)}
    assert (read.clocks[0].name, read.clocks[0].mhz) == ("DATA_CLK", 275)


def test_groups_stand_behind_the_plain_banks(vector_add: KernelInterface) -> None:
    connections = {"m_axi_in": ("HBM[4]", "HBM[5]", "HBM[6]"), "m_axi_out": ("HBM[7]",)}
    interface = replace(vector_add, compute_units={"u55c": (connections,)})
    read = Xclbin.parse(build_xclbin(interface, U55C, bitstream=BITSTREAM))
    assert read.memories(Section.GROUP_TOPOLOGY)[:32] == read.memories()
    (group,) = read.memories(Section.GROUP_TOPOLOGY)[32:]
    assert (group.tag, group.base, group.size) == ("HBM[4:6]", 4 << 29, 3 << 29)
    assert read.port_memories(read.compute_units[0])["m_axi_in"] == (4, 5, 6)
    assert read.connections(Section.GROUP_CONNECTIVITY) == (
        Connection(0, 0, 32),
        Connection(1, 0, 32),
        Connection(2, 0, 7),
    )
    apart = {"m_axi_in": ("HBM[4]", "HBM[6]"), "m_axi_out": ("HBM[7]",)}
    interface = replace(vector_add, compute_units={"u55c": (apart,)})
    with pytest.raises(ValueError, match=r"HBM\[4\] to HBM\[6\] are not one range"):
        build_xclbin(interface, U55C, bitstream=BITSTREAM)


def test_plain_handshake(vector_add: KernelInterface) -> None:
    interface = replace(vector_add, control="ap_ctrl_hs", interrupt=False)
    (unit,) = Xclbin.parse(build_xclbin(interface, U55C, bitstream=BITSTREAM)).compute_units
    assert unit.control == "ap_ctrl_hs"
    assert unit.properties == 0
    with pytest.raises(XclbinError, match="control protocol 2"):
        _ = replace(unit, properties=0x200).control


def test_the_uuid_follows_the_content(vector_add: KernelInterface) -> None:
    def build(**changes: object) -> bytes:
        arguments = {"bitstream": BITSTREAM, **changes}
        return build_xclbin(vector_add, U55C, **arguments)

    assert build() == build()
    variants = [
        build(),
        build(bitstream=b"another"),
        build(compute_units=2),
        build(clock_mhz=250),
        build(mode=Mode.FLAT),
        build_xclbin(vector_add, U280, bitstream=BITSTREAM),
    ]
    uuids = [Xclbin.parse(data).uuid for data in variants]
    assert all(a != b for a, b in itertools.combinations(uuids, 2))


def test_headers_are_as_large_as_in_xrt(vector_add: KernelInterface) -> None:
    data = build_xclbin(vector_add, U55C, bitstream=BITSTREAM)
    header = pynq_xclbin.axlf.from_buffer(bytearray(data))
    assert header.m_magic == b"xclbin2"
    assert header.m_header.m_length == len(data)
    assert header.m_header.m_numSections == len(Xclbin.parse(data).sections) == 9
    assert bytes(header.m_header.m_platformVBNV).rstrip(b"\0").decode() == U55C.vbnv
    assert bytes(header.m_header.u2.uuid).hex() == Xclbin.parse(data).uuid
    first = header.m_sections
    assert data[first.m_sectionOffset :][: first.m_sectionSize] == BITSTREAM
    assert ctypes.sizeof(pynq_xclbin.axlf) == 496


def test_a_change_shows(vector_add: KernelInterface) -> None:
    data = build_xclbin(vector_add, U55C, bitstream=BITSTREAM)
    assert Xclbin.parse(data).is_intact(data)
    changed = data.replace(b"the bitstream", b"the bitsteram")
    assert not Xclbin.parse(changed).is_intact(changed)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "too few"),
        (lambda data: data[:100], "too few"),
        (lambda data: b"xclbin1\0" + data[8:], "starts with b'xclbin1"),
        (lambda data: data[:-1], "was cut off: "),
        (lambda data: data[:448] + b"\xff\xff" + data[450:], "ends behind the end"),
    ],
)
def test_damage_is_refused(vector_add: KernelInterface, damage: object, message: str) -> None:
    data = build_xclbin(vector_add, U55C, bitstream=BITSTREAM)
    with pytest.raises(XclbinError, match=message):
        Xclbin.parse(damage(data))


def test_a_missing_section(vector_add: KernelInterface) -> None:
    read = Xclbin.parse(build_xclbin(vector_add, U55C, bitstream=BITSTREAM))
    without = replace(read, sections={})
    with pytest.raises(XclbinError, match="no section MEM_TOPOLOGY"):
        without.memories()
    short = replace(read, sections={Section.MEM_TOPOLOGY: b"\x02\0\0\0\0\0\0\0"})
    with pytest.raises(XclbinError, match="2 entries, which do not fit"):
        short.memories()


@hypothesis.given(
    position=st.integers(min_value=0, max_value=20_000),
    value=st.integers(min_value=0, max_value=255),
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_any_changed_byte_is_refused_or_shows(position: int, value: int) -> None:
    data = bytearray(build_xclbin(load_interface(KERNEL), U55C, bitstream=BITSTREAM))
    position %= len(data)
    hypothesis.assume(data[position] != value)
    data[position] = value
    try:
        read = Xclbin.parse(bytes(data))
    except XclbinError:
        return
    unique_id = range(296, 304)
    assert position in unique_id or not read.is_intact(bytes(data))
