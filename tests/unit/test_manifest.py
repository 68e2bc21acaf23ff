# SPDX-License-Identifier: Apache-2.0
"""Manifests of overlays: what is refused, in which words, before the card sees anything."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from pynq import Device
from pynq.pl_server.xrt_device import XrtDevice

from fastdelta.accelerator import Accelerator
from fastdelta.boards import UnverifiedOverlayWarning, check_overlay
from fastdelta.errors import ManifestError, WrongBoardError
from fastdelta.interface import load_interface
from fastdelta.overlays.manifest import (
    Build,
    Manifest,
    manifest_path,
    register_map,
    sha256,
    template,
)
from fastdelta.platforms import PLATFORMS
from fastdelta.registers import decode
from fastdelta.sim.paths import overlay_folder
from fastdelta.xclbin import Mode, Xclbin, build_xclbin

U55C, U280 = PLATFORMS["u55c"], PLATFORMS["u280"]


class NamedCard(XrtDevice):
    """A card of which only the name is known: whatever loads an overlay on it fails."""

    @property
    def name(self) -> str:
        return U55C.shell

    def __init__(self) -> None:
        pass


class Built:
    """An overlay with its manifest in a folder."""

    def __init__(self, folder: Path, mode: Mode = Mode.FLAT) -> None:
        interface = load_interface(overlay_folder("decode"))
        self.path = folder / "decode.xclbin"
        self.data = build_xclbin(interface, U55C, bitstream=b"bits", mode=mode)
        self.path.write_bytes(self.data)
        self.build = Build(
            vitis="2023.2",
            compute_units=1,
            parameters={"H_ITER": 4},
            requested_clock_mhz=300,
            clock_mhz=300,
            worst_negative_slack_ns=0.0,
            worst_hold_slack_ns=0.01,
            uuid=Xclbin.parse(self.data).uuid,
            sha256=sha256(self.data),
        )
        self.manifest = replace(template(interface, U55C), build=self.build)

    def write(self, **changes: object) -> None:
        """Write the manifest; changes are to the build's values where it has such ones."""
        of_build = {k: v for k, v in changes.items() if hasattr(self.build, k)}
        others = {k: v for k, v in changes.items() if k not in of_build}
        build = replace(self.build, **of_build)
        manifest = replace(self.manifest, **{"build": build, **others})
        manifest_path(self.path).write_text(manifest.to_toml())

    def check(self, card: str = U55C.shell) -> None:
        check_overlay(self.path, "decode", card)


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return Built(tmp_path)


def test_an_overlay_that_fits_its_manifest_is_accepted(built: Built) -> None:
    built.write()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built.check()
    read = manifest_path(built.path)
    assert read.name == "decode.manifest.toml"
    assert Manifest.parse(read.read_text(), read) == built.manifest


def test_dashes_in_the_uuid_do_not_matter(built: Built) -> None:
    uuid = built.build.uuid
    built.write(uuid=f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}".upper())
    built.check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"worst_negative_slack_ns": -0.012},
            r"timing failed: the worst negative slack is -0\.012 ns at 300 MHz.*lower CLOCK_MHZ",
        ),
        ({"worst_hold_slack_ns": -0.2}, r"timing failed: the worst hold slack is -0\.2 ns"),
        ({"worst_negative_slack_ns": None}, "names no worst negative slack"),
        ({"register_map": "3.0"}, r"register map 3\.0, which this host does not know: it has 2\.0"),
        ({"platform": U280.vbnv, "card": "u280"}, r"for platform xilinx_u280\S+, the xclbin for x"),
        ({"platform": "xilinx_u250_gen3x16_xdma_4_1"}, "no card 'xilinx_u250"),
        ({"platform": "xilinx_u55c_gen3x16_xdma_2_202110_1"}, "built for this card"),
        ({"sha256": "0" * 64}, "is of another xclbin: its sha256 is 000"),
        ({"uuid": "0" * 32}, "is of another xclbin: its uuid is 000"),
        ({"engine": "prefill"}, "is of the prefill engine; load the overlay of the decode engine"),
        ({"target": "hw_emu"}, "is for target 'hw_emu', but XCL_EMULATION_MODE is None"),
        ({"build": None}, "is a template: its overlay was not built"),
    ],
)
def test_an_overlay_that_must_not_be_loaded_is_refused(
    built: Built, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], words: str
) -> None:
    built.write(**changes)
    monkeypatch.setattr(Device, "_devices", [NamedCard()], raising=False)
    monkeypatch.delenv("XCL_EMULATION_MODE", raising=False)
    with pytest.raises(ManifestError, match=rf"decode\.manifest\.toml .*{words}"):
        Accelerator.open("decode", board="u55c", overlay=built.path)


def test_a_newer_minor_register_map_is_accepted(built: Built) -> None:
    built.write(register_map="2.7")
    built.check()


def test_the_register_map_is_that_of_the_registers() -> None:
    version = f"{decode.VERSION_VALUE >> 16}.{decode.VERSION_VALUE & 0xFFFF}"
    assert register_map("decode") == version
    for kernel in ("decode", "prefill"):
        path = overlay_folder(kernel) / "u55c/manifest.toml"
        manifest = Manifest.parse(path.read_text(), path)
        assert manifest.register_map == register_map(kernel)
        assert manifest.build is None


def test_a_changed_overlay_is_refused(built: Built) -> None:
    built.write()
    built.path.write_bytes(built.data.replace(b"bits", b"bots"))
    with pytest.raises(ManifestError, match="its sha256 is"):
        built.check()


def test_another_card_is_refused(built: Built) -> None:
    built.write()
    with pytest.raises(WrongBoardError, match=r"is for the u55c .*, the card is a u280"):
        built.check(U280.shell)


def test_an_overlay_without_manifest_is_loaded_with_a_warning(built: Built) -> None:
    with pytest.warns(UnverifiedOverlayWarning, match=r"no manifest decode\.manifest\.toml beside"):
        built.check()


def test_a_simulated_overlay_needs_no_manifest(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Built(tmp_path, Mode.HARDWARE_EMULATION).check()


def test_emulation_has_no_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = Built(tmp_path, Mode.HARDWARE_EMULATION)
    none = {"worst_negative_slack_ns": None, "worst_hold_slack_ns": None}
    built.write(target="hw_emu", **none)
    monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    built.check()
    built.write(target="hw", **none)
    with pytest.raises(ManifestError, match="is for target 'hw', but XCL_EMULATION_MODE is 'hw_e"):
        built.check()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("format = 1", "format = 2", "has format 2, this host reads 1"),
        ("format = 1", "format 1", "is not TOML"),
        ('state = "built"', 'state = "not built"', r"state 'not built' and has a table \[build\]"),
        ('state = "built"', 'state = "ready"', "says state 'ready'"),
        ("sha256 =", "sha512 =", "lacks a value .*'sha256'"),
        ("clock_mhz = 300\nworst", 'clock_mhz = "fast"\nworst', "has one of a wrong kind"),
        ("worst_hold_slack_ns = 0.01", "worst_hold_slack_ns = true", "True is no number"),
        ("worst_hold_slack_ns = 0.01", "worst_hold_slack_ns = nan", "timing failed"),
        ('engine = "decode"', "engine = 1", "1 is no string"),
        ("[build.parameters]", "[build.parameter]", "lacks a value .*'parameters'"),
    ],
)
def test_damaged_manifests_are_refused(built: Built, old: str, new: str, words: str) -> None:
    built.write()
    path = manifest_path(built.path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ManifestError, match=words):
        built.check()


def test_an_unreadable_manifest_is_refused(built: Built) -> None:
    manifest_path(built.path).write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="cannot be read"):
        built.check()
