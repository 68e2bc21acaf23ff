# SPDX-License-Identifier: Apache-2.0
"""The doctor names what is missing and the fix; devices are listed, real and simulated."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pynq import Device
from pynq.pl_server.xrt_device import XrtDevice
from typer.testing import CliRunner

from fastdelta.cli import app
from fastdelta.devices import DeviceEntry, list_devices
from fastdelta.doctor import Diagnosis, Finding, State, diagnose
from fastdelta.interface import load_interface
from fastdelta.overlays.manifest import Build, manifest_path, sha256, template
from fastdelta.platforms import PLATFORMS
from fastdelta.sim.paths import CHECKOUT_VARIABLE, overlay_folder
from fastdelta.xclbin import Mode, Xclbin, build_xclbin

U55C, U280 = PLATFORMS["u55c"], PLATFORMS["u280"]
GIBIBYTE = 1 << 30


class Card(XrtDevice):
    """A card of which only the name is known."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        if self._name == "dead":
            raise RuntimeError("the card does not answer")
        return self._name


class Machine:
    """A machine with XRT and cards, from which things can be taken away."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.xrt = folder / "xrt"
        (self.xrt / "lib").mkdir(parents=True)
        (self.xrt / "lib/libxrt_core.so").touch()
        self.xrt_version("2.16.204")
        self.pci = folder / "pci"
        self.pci.mkdir()
        monkeypatch.setenv("XILINX_XRT", str(self.xrt))
        monkeypatch.delenv("XCL_EMULATION_MODE", raising=False)
        self.cards(U55C.shell)

    def xrt_version(self, version: str) -> None:
        (self.xrt / "version.json").write_text(json.dumps({"BUILD_VERSION": version}))

    def cards(self, *names: str) -> None:
        cards = [Card(name) for name in names]
        self.monkeypatch.setattr(Device, "_devices", cards, raising=False)

    def package(self, name: str, version: str) -> None:
        """Let another release of a package be installed."""
        info = self.folder / "site" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        self.monkeypatch.syspath_prepend(str(self.folder / "site"))

    def without_package(self, name: str) -> None:
        version = importlib.metadata.version

        def look_up(wanted: str) -> str:
            if wanted == name:
                raise importlib.metadata.PackageNotFoundError(wanted)
            return version(wanted)

        self.monkeypatch.setattr(importlib.metadata, "version", look_up)

    def tools(self, **scripts: str) -> None:
        """Let these be the only programs, each a line of shell."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name, script in scripts.items():
            path = folder / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        self.monkeypatch.setenv("PATH", str(folder))
        root = self.folder / "checkout"
        for part in ("rtl", "overlays"):
            (root / part).mkdir(parents=True)
        self.monkeypatch.setenv(CHECKOUT_VARIABLE, str(root))

    def pcie(self, name: str, vendor: str, *, driver: bool) -> None:
        device = self.pci / name
        device.mkdir()
        (device / "vendor").write_text(vendor + "\n")
        if driver:
            (device / "driver").mkdir()

    def diagnose(self, overlay: Path | None = None) -> Diagnosis:
        return diagnose(overlay, pci_devices=self.pci)

    def fault(self, check: str) -> Finding:
        """Return the finding of a check, which must be the only one that is not as it should be."""
        faults = [f for f in self.diagnose().findings if f.state is not State.OK]
        assert check in [fault.check for fault in faults], faults
        assert all(f.check == check or f.state is State.NOT_CHECKED for f in faults), faults
        return next(fault for fault in faults if fault.check == check)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_machine_with_all_it_needs(machine: Machine) -> None:
    diagnosis = machine.diagnose()
    assert [f for f in diagnosis.findings if f.state is not State.OK or f.remedy] == []
    assert diagnosis.usable("card")
    assert diagnosis.usable("simulation")
    checks = [finding.check for finding in diagnosis.findings]
    assert checks == [
        "Python",
        "PYNQ",
        "pycparser",
        "XRT",
        "XRT version",
        "cards",
        f"platform of {U55C.shell}",
        "checkout",
        "Verilator",
        "g++",
        "make",
    ]


Fault = Callable[[Machine], None]

# What is wrong, the check that says so, its state, words of what was found, words of the fix.
FAULTS: dict[str, tuple[Fault, str, State, str, str]] = {
    "no XRT": (
        lambda m: m.monkeypatch.delenv("XILINX_XRT"),
        "XRT",
        State.MISSING,
        "XILINX_XRT is not set",
        "source /opt/xilinx/xrt/setup.sh",
    ),
    "XRT elsewhere": (
        lambda m: (m.xrt / "lib/libxrt_core.so").unlink(),
        "XRT",
        State.WRONG,
        "XILINX_XRT is",
        "there is no",
    ),
    "XRT without version": (
        lambda m: (m.xrt / "version.json").unlink(),
        "XRT version",
        State.WRONG,
        "no version.json",
        '{"BUILD_VERSION": "2.16.204"}',
    ),
    "XRT with a strange version": (
        lambda m: m.xrt_version("new"),
        "XRT version",
        State.WRONG,
        "no version.json",
        "PYNQ would take XRT for 0.0.0",
    ),
    "software emulation": (
        lambda m: m.monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu"),
        "XRT",
        State.WRONG,
        "XCL_EMULATION_MODE is sw_emu",
        "unset it",
    ),
    "no PYNQ": (
        lambda m: m.without_package("pynq"),
        "PYNQ",
        State.MISSING,
        "not installed",
        "pip install 'pynq==3.0.1' 'pycparser<3'",
    ),
    "newest PYNQ": (
        lambda m: m.package("pynq", "4.0.0"),
        "PYNQ",
        State.WRONG,
        "4.0.0",
        "3.0.1 is the last release that drives Alveo cards",
    ),
    "older PYNQ": (
        lambda m: m.package("pynq", "2.7.0"),
        "PYNQ",
        State.WRONG,
        "2.7.0",
        "pip install 'pynq==3.0.1' 'pycparser<3'",
    ),
    "no pycparser": (
        lambda m: m.without_package("pycparser"),
        "pycparser",
        State.MISSING,
        "not installed",
        "pip install",
    ),
    "newest pycparser": (
        lambda m: m.package("pycparser", "3.00"),
        "pycparser",
        State.WRONG,
        "3.00",
        "pip install 'pycparser<3'",
    ),
    "no card": (
        lambda m: m.cards(),
        "cards",
        State.MISSING,
        "no FPGA card on PCIe",
        "lspci -d 10ee:",
    ),
    "a card that does not answer": (
        lambda m: m.cards("dead"),
        "cards",
        State.WRONG,
        "PYNQ fails: the card does not answer",
        "xbutil examine",
    ),
    "a card without overlays": (
        lambda m: m.cards("xilinx_u250_gen3x16_base_4"),
        "platform of xilinx_u250_gen3x16_base_4",
        State.WRONG,
        "a card without overlays",
        "there are overlays for u55c, u280 only",
    ),
    "another shell": (
        lambda m: m.cards("xilinx_u55c_gen3x16_xdma_base_2"),
        "platform of xilinx_u55c_gen3x16_xdma_base_2",
        State.WRONG,
        "a u55c with another shell",
        f"XRT calls {U55C.shell}: flash it",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_fix(machine: Machine, name: str) -> None:
    break_it, check, state, found, remedy = FAULTS[name]
    break_it(machine)
    finding = machine.fault(check)
    assert finding.state is state
    assert found in finding.found
    assert remedy in finding.remedy
    diagnosis = machine.diagnose()
    assert not diagnosis.usable("card")
    assert diagnosis.usable("simulation") == ("simulation" not in finding.needed_for)


def test_a_card_without_driver_is_told_from_no_card(machine: Machine) -> None:
    machine.cards()
    machine.pcie("0000:3b:00.0", "0x10ee", driver=False)
    machine.pcie("0000:3b:00.1", "0x10ee", driver=True)
    machine.pcie("0000:00:01.0", "0x8086", driver=False)
    finding = machine.fault("cards")
    assert finding.found == "2 PCIe functions of AMD FPGA cards, 1 without a driver"
    assert "modprobe xocl" in finding.remedy
    assert "xbmgmt program --base" in finding.remedy


def test_xrt_that_no_longer_knows_the_card(machine: Machine) -> None:
    machine.cards(U55C.shell, U280.shell)
    assert machine.diagnose().usable("card")
    machine.xrt_version("2.17.319")
    finding = machine.fault(f"platform of {U280.shell}")
    assert finding.found == "a u280 with XRT 2.17.319"
    assert "XRT 2.16 is the last that knows the u280" in finding.remedy


def test_hardware_emulation_needs_its_own_library(machine: Machine) -> None:
    machine.monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    assert "libxrt_hwemu.so" in machine.fault("XRT").remedy
    (machine.xrt / "lib/libxrt_hwemu.so").touch()
    finding = next(f for f in machine.diagnose().findings if f.check == "XRT")
    assert finding.state is State.OK
    assert "real cards are not seen" in finding.found


def test_one_fault_does_not_hide_another(machine: Machine) -> None:
    machine.monkeypatch.delenv("XILINX_XRT")
    machine.package("pynq", "4.0.0")
    machine.package("pycparser", "3.00")
    machine.tools()
    states = {f.check: f.state for f in machine.diagnose().findings}
    assert states == {
        "Python": State.OK,
        "PYNQ": State.WRONG,
        "pycparser": State.WRONG,
        "XRT": State.MISSING,
        "cards": State.NOT_CHECKED,
        "checkout": State.OK,
        "Verilator": State.MISSING,
        "g++": State.MISSING,
        "make": State.MISSING,
    }


GOOD_TOOLS = {
    "verilator": "echo Verilator 5.048 2026-05-16",
    "g++": 'test "$1" = -dumpversion && echo 12 || echo g++ 12.2.0',
    "make": "echo GNU Make 4.3",
}


@pytest.mark.parametrize(
    ("tools", "check", "state", "found", "remedy"),
    [
        ({"verilator": None}, "Verilator", State.MISSING, "not installed", "run 'make setup'"),
        (
            {"verilator": "echo Verilator 5.006 2023-01-22"},
            "Verilator",
            State.WRONG,
            "Verilator 5.006 2023-01-22",
            "need Verilator 5.036 or newer: run 'make setup'",
        ),
        ({"verilator": "exit 3"}, "Verilator", State.WRONG, "verilator", "it does not run"),
        ({"g++": None}, "g++", State.MISSING, "not installed", "apt-get install g++ make"),
        ({"g++": "echo 9"}, "g++", State.WRONG, "9", "need g++ 11 or newer"),
        ({"make": None}, "make", State.MISSING, "not installed", "apt-get install make"),
    ],
)
def test_tools_of_the_simulation(
    machine: Machine,
    tools: dict[str, str | None],
    check: str,
    state: State,
    found: str,
    remedy: str,
) -> None:
    scripts = {name: script for name, script in {**GOOD_TOOLS, **tools}.items() if script}
    machine.tools(**scripts)
    finding = machine.fault(check)
    assert finding.state is state
    assert finding.found.endswith(found)
    assert remedy in finding.remedy
    assert not machine.diagnose().usable("simulation")
    assert machine.diagnose().usable("card"), "a real card needs no simulator"


def test_no_checkout(machine: Machine) -> None:
    machine.monkeypatch.setenv(CHECKOUT_VARIABLE, str(machine.folder))
    findings = {f.check: f for f in machine.diagnose().findings}
    assert findings["checkout"].state is State.MISSING
    assert "Clone the repository" in findings["checkout"].remedy


def write_overlay(folder: Path, *, slack: float = 0.1) -> Path:
    interface = load_interface(overlay_folder("decode"))
    data = build_xclbin(interface, U55C, bitstream=b"bits", mode=Mode.FLAT)
    path = folder / "decode.xclbin"
    path.write_bytes(data)
    build = Build("2023.2", 1, {}, 300, 300, slack, slack, Xclbin.parse(data).uuid, sha256(data))
    manifest = replace(template(interface, U55C), build=build)
    manifest_path(path).write_text(manifest.to_toml())
    return path


def test_an_overlay_is_checked_too(machine: Machine) -> None:
    path = write_overlay(machine.folder)

    def finding() -> Finding:
        findings = machine.diagnose(path).findings
        return next(f for f in findings if f.check == "overlay decode.xclbin")

    assert finding().state is State.OK
    assert finding().found == f"the decode engine for {U55C.vbnv}"
    machine.cards(U280.shell)
    assert "the card is a u280" in finding().remedy
    machine.cards()
    assert finding().state is State.OK, "without a card, it is checked against its manifest"
    write_overlay(machine.folder, slack=-0.1)
    assert finding().state is State.WRONG
    assert "timing failed" in finding().remedy
    manifest_path(path).unlink()
    assert finding().found == "without a manifest"
    path.unlink()
    assert finding().state is State.WRONG


@pytest.mark.parametrize(
    ("cards", "arguments", "code"),
    [
        ([U55C.shell], [], 0),
        ([], [], 0),  # simulated cards can be used
        ([], ["--board", "u55c"], 1),
        ([], ["--board", "0"], 1),
        ([], ["--board", "sim-u55c"], 0),
    ],
)
def test_the_exit_code_says_whether_the_board_can_be_used(
    machine: Machine, cards: list[str], arguments: list[str], code: int
) -> None:
    machine.cards(*cards)
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert result.exit_code == code
    usable = "can be used" if cards else "cannot be used"
    assert f"Real cards {usable}, simulated cards can be used" in result.stdout


def test_the_command_names_everything_as_json(tmp_path: Path) -> None:
    """In a process of its own: no XRT, PYNQ 4 and pycparser 3 installed, no card."""
    for name, version in (("pynq", "4.0.0"), ("pycparser", "3.00")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    environment = {k: v for k, v in os.environ.items() if k != "XILINX_XRT"}
    result = subprocess.run(
        [str(Path(sys.executable).with_name("fastdelta")), "doctor", "--json", "-"],
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 1, "neither kind of card can be used"
    record = json.loads(result.stdout)
    assert not record["card_usable"]
    assert not record["simulation_usable"]
    states = {f["check"]: (f["state"], f["found"]) for f in record["findings"]}
    assert states["PYNQ"] == ("wrong", "4.0.0")
    assert states["pycparser"] == ("wrong", "3.00")
    assert states["XRT"] == ("missing", "XILINX_XRT is not set")
    assert states["cards"][0] == "not checked"
    remedies = {f["check"]: f["remedy"] for f in record["findings"]}
    assert all(remedies[check] for check, (state, _) in states.items() if state != "ok")


def test_devices_real_and_simulated(machine: Machine) -> None:
    machine.cards(U280.shell, "xilinx_u250_gen3x16_base_4")
    listed = list_devices()
    assert listed.note is None
    assert listed.devices == (
        DeviceEntry(0, U280.shell, "u280", simulated=False, memory_bytes=40 * GIBIBYTE),
        DeviceEntry(1, "xilinx_u250_gen3x16_base_4", None, simulated=False, memory_bytes=None),
        DeviceEntry("sim-u55c", "sim-u55c", "u55c", simulated=True, memory_bytes=16 * GIBIBYTE),
        DeviceEntry("sim-u280", "sim-u280", "u280", simulated=True, memory_bytes=40 * GIBIBYTE),
    )
    result = CliRunner().invoke(app, ["devices", "--json", "-"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(json.dumps(listed.to_dict()))
    table = CliRunner().invoke(app, ["devices"]).stdout
    for word in (U280.shell, "no overlays", "sim-u55c", "40 GiB"):
        assert word in table


@pytest.mark.parametrize(
    ("cards", "note"),
    [
        ([], "no real card is seen; fastdelta doctor says what is missing"),
        (["dead"], "real cards cannot be listed: the card does not answer"),
    ],
)
def test_devices_without_a_real_card(machine: Machine, cards: list[str], note: str) -> None:
    machine.cards(*cards)
    listed = list_devices()
    assert [device.board for device in listed.devices] == ["sim-u55c", "sim-u280"]
    assert listed.note == note


def test_devices_without_pynq(machine: Machine) -> None:
    machine.monkeypatch.setitem(sys.modules, "pynq", None)
    listed = list_devices()
    assert [device.board for device in listed.devices] == ["sim-u55c", "sim-u280"]
    assert listed.note is not None
    assert "pip install 'fastdelta[card]'" in listed.note
