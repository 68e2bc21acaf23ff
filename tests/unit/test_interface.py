# SPDX-License-Identifier: Apache-2.0
"""Kernel interfaces and cards: what is read, and what is refused."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fastdelta.filelist import read_file_list
from fastdelta.interface import KernelInterface, load_interface
from fastdelta.platforms import MEBIBYTE, PLATFORMS, find_platform
from fastdelta.registers.decode import Register
from fastdelta.sim.paths import overlay_folder

KERNEL = Path(__file__).resolve().parents[1] / "kernels" / "vector_add"

Edit = Callable[[str, str, str], KernelInterface]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """Load the vector-add interface with one text replaced in one of its files."""

    def load(file: str, old: str, new: str) -> KernelInterface:
        folder = tmp_path / "vector_add"
        shutil.copytree(KERNEL, folder)
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new, 1))
        return load_interface(folder)

    return load


def test_vector_add() -> None:
    interface = load_interface(KERNEL)
    assert interface.name == "vector_add_kernel"
    assert interface.control == "ap_ctrl_chain"
    assert interface.ports == ("m_axi_in", "m_axi_out")
    names = [argument.name for argument in interface.arguments]
    assert names == ["a", "b", "sum", "beats", "misbehaviour"]
    assert [a.port for a in interface.arguments][2:4] == ["m_axi_out", None]
    assert [a.size for a in interface.arguments][2:4] == [8, 4]
    (unit,) = interface.connections(PLATFORMS["u280"], 1)
    assert unit == {"m_axi_in": ("HBM[0]",), "m_axi_out": ("DDR[1]",)}
    assert interface.unit_name(1) == "vector_add_2"


def test_every_overlay_loads_and_its_sources_exist() -> None:
    folders = [path.parent for path in overlay_folder("decode").parent.glob("*/interface.toml")]
    assert folders
    for folder in folders:
        interface = load_interface(folder)
        assert read_file_list(interface.file_list)[-1].stem == interface.name
        assert set(interface.compute_units) <= set(PLATFORMS)


def test_decode_arguments_are_at_their_registers() -> None:
    arguments = load_interface(overlay_folder("decode")).arguments
    for argument in arguments:
        name = argument.name.upper() + ("_LOW" if argument.port else "")
        assert Register[name] == argument.offset
    assert len(arguments) == 9


def test_compute_units_do_not_share_banks() -> None:
    interface = load_interface(overlay_folder("decode"))
    for units in interface.compute_units.values():
        tags = [tag for unit in units for banks in unit.values() for tag in banks]
        assert len(tags) == len(set(tags))


def test_units_of_a_card_are_placed_apart() -> None:
    decode = load_interface(overlay_folder("decode"))
    for units in decode.placements.values():
        assert len(set(units)) == len(units) == 2
    prefill = load_interface(overlay_folder("prefill"))
    assert prefill.placements == {"u55c": (None,), "u280": (None,)}, "it is larger than a die"
    assert prefill.hardware_parameters == {}
    assert decode.hardware_parameters == {"H_ITER": 4}


def test_releases_that_know_a_card() -> None:
    u55c, u280 = PLATFORMS["u55c"], PLATFORMS["u280"]
    assert u280.releases == ("2022.1", "2022.2", "2023.1", "2023.2")
    assert set(u55c.releases) > set(u280.releases)
    assert u280.newest_xrt == "2.16"
    assert u55c.newest_xrt is None
    assert u55c.knows("2030.1")
    assert not u55c.knows("2021.2")
    with pytest.raises(ValueError, match="'now' is no release"):
        u55c.knows("now")


def test_too_many_compute_units() -> None:
    interface = load_interface(KERNEL)
    with pytest.raises(ValueError, match=r"2 compute units.*allowed are 1 to 1"):
        interface.connections(PLATFORMS["u280"], 2)
    with pytest.raises(ValueError, match="allowed are 1 to 2"):
        interface.connections(PLATFORMS["u55c"], 0)


def test_a_card_without_connections(edited: Edit) -> None:
    interface = edited(
        "interface.toml",
        '[[compute_units.u280]]\nm_axi_in = "HBM[0]"\nm_axi_out = "DDR[1]"\n',
        "",
    )
    with pytest.raises(ValueError, match="no connections for the u280; it has them for u55c"):
        interface.connections(PLATFORMS["u280"], 1)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("interface.toml", "instance =", "instant =", "unknown keys.*instant"),
        ("interface.toml", 'instance = "vector_add"', 'instance = "2"', "must be an identifier"),
        ("interface.toml", '"DDR[1]"', '"DDR[2]"', r"u280 has no memory bank DDR\[2\]"),
        ("interface.toml", '"HBM[0]"', "[]", "port m_axi_in on the u55c has no bank"),
        ("interface.toml", "m_axi_in =", "m_axi_im =", r"must connect each of \['m_axi_in'"),
        ("interface.toml", "compute_units.u280", "compute_units.u250", "no card u250; cards are"),
        ("interface.toml", '"HBM[1]"', '"HBM[1]"\nslr = "SLR3"', "the u55c has SLR0, SLR1, SLR2"),
        ("interface.toml", '"DDR[1]"', '"DDR[1]"\nslr = 0', "slr is 0; the u280 has SLR0"),
        (
            "interface.toml",
            "[[compute_units.u280]]",
            '[tested.u280]\nvitis = ["2024.1"]\n[[compute_units.u280]]',
            r"tested.u280 has vitis \['2024.1'\]; allowed are vitis of 2022",
        ),
        ("kernel.xml", "</args>", "", "kernel.xml: mismatched tag"),
        ("kernel.xml", "ap_ctrl_chain", "ap_ctrl_none", "'ap_ctrl_none'; allowed are ap_ctrl_hs"),
        ("kernel.xml", 'offset="0x1C"', 'offset="0x14"', "argument b: offset 0x14.*at least 0x18"),
        ("kernel.xml", 'offset="0x3C"', 'offset="0xFFE"', "multiple of 4"),
        ("kernel.xml", 'offset="0x3C"', 'offset="0x1000"', "beyond the 4096 bytes"),
        ("kernel.xml", 'type="uint"', 'type="unsigned long"', "'unsigned long'; allowed are int"),
        ("kernel.xml", 'type="int*"', 'type="int"', "pointers for buffers"),
        ("kernel.xml", 'id="3"', 'id="4"', "argument beats: id is 4; it must be 3"),
        ("kernel.xml", 'id="0" port="m_axi_in"', 'id="0" port="m_axi_x"', "no port m_axi_x"),
        ("kernel.xml", 'mode="slave"', 'mode="master"', "no control port"),
    ],
)
def test_mistakes_are_refused(edited: Edit, file: str, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        edited(file, old, new)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"kernel\.xml"):
        load_interface(tmp_path)
    shutil.copy(KERNEL / "kernel.xml", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"interface\.toml"):
        load_interface(tmp_path)


def test_cards() -> None:
    u55c, u280 = PLATFORMS["u55c"], PLATFORMS["u280"]
    assert sum(bank.size for bank in u55c.banks) == 16 * 1024 * MEBIBYTE
    assert [bank.size for bank in u280.banks] == [256 * MEBIBYTE] * 32 + [16384 * MEBIBYTE] * 2
    for platform in (u55c, u280):
        spans = [(bank.base, bank.base + bank.size) for bank in platform.banks]
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        # The name that XRT reports and the platform of the tools mean the same card.
        for name in (platform.name, platform.shell, platform.vbnv):
            assert find_platform(name) is platform
    with pytest.raises(ValueError, match="no card 'u250'; known are u55c, u280"):
        find_platform("u250")
