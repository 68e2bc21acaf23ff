# SPDX-License-Identifier: Apache-2.0
"""Say what is missing for real and simulated cards, and how to get it.

Nothing is changed and no overlay is loaded. Each check answers for itself, so that one fault does
not hide another; what cannot be looked at because of an earlier fault says so.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from fastdelta.boards import SIMULATED, check_overlay, real_cards
from fastdelta.errors import FastdeltaError, MissingToolError
from fastdelta.overlays.manifest import Manifest, manifest_path
from fastdelta.platforms import PLATFORMS, find_platform, release_number
from fastdelta.sim.build import check_compiler, check_make, check_verilator
from fastdelta.sim.paths import checkout, find_compiler, find_verilator
from fastdelta.sim.xrt import active_prefix
from fastdelta.xclbin import Xclbin, XclbinError

PYNQ: Final = "3.0.1"
PYCPARSER_BELOW: Final = 3
PYTHONS: Final = ((3, 11), (3, 12))
PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
AMD_VENDOR: Final = "0x10ee"

_INSTALL: Final = "pip install 'pynq==3.0.1' 'pycparser<3'"
_SET_UP: Final = "source /opt/xilinx/xrt/setup.sh before Python starts"

Need = Literal["card", "simulation"]
BOTH: Final[tuple[Need, ...]] = ("card", "simulation")


class State(StrEnum):
    """Result of a check."""

    OK = "ok"
    MISSING = "missing"
    WRONG = "wrong"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes
    ----------
    check
        What was looked at.
    state
        Whether it is as it must be.
    found
        What is there.
    remedy
        What to do; empty if nothing.
    needed_for
        ``card``, ``simulation`` or both.
    """

    check: str
    state: State
    found: str
    remedy: str = ""
    needed_for: tuple[Need, ...] = ("card",)


@dataclass(frozen=True)
class Diagnosis:
    """All findings, and what they come to."""

    findings: tuple[Finding, ...]

    def usable(self, need: Need) -> bool:
        """Say whether real cards, or simulated ones, can be used."""
        return all(f.state is State.OK for f in self.findings if need in f.needed_for)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis for programs."""
        return {
            "card_usable": self.usable("card"),
            "simulation_usable": self.usable("simulation"),
            "findings": [asdict(finding) for finding in self.findings],
        }


def diagnose(overlay: Path | None = None, *, pci_devices: Path = PCI_DEVICES) -> Diagnosis:
    """Look at everything that real and simulated cards need.

    Parameters
    ----------
    overlay : path, optional
        An xclbin to check against its manifest and the cards.
    pci_devices : path
        Where the system lists PCIe devices.
    """
    pynq, xrt = _pynq(), _xrt()
    findings = [_python(), pynq, _pycparser(), xrt]
    if xrt.state is State.OK:
        findings.append(_version())
    hindrance = next((f.check for f in (pynq, xrt) if f.state is not State.OK), None)
    names: list[str] = []
    if hindrance is not None:
        findings.append(
            Finding(
                "cards",
                State.NOT_CHECKED,
                _on_the_bus(pci_devices),
                f"put {hindrance} right first",
            )
        )
    else:
        names, cards = _cards(pci_devices)
        findings.append(cards)
    findings += [_platform(name) for name in names]
    if overlay is not None:
        findings.append(_overlay(overlay, names))
    findings += [_checkout(), _verilator(), _compiler(), _make()]
    return Diagnosis(tuple(findings))


def need_of(board: str | None) -> tuple[Need, ...]:
    """Return what a board needs: both kinds if none is named."""
    if board is None:
        return BOTH
    return ("simulation",) if board.startswith(SIMULATED) else ("card",)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] in PYTHONS:
        return Finding("Python", State.OK, version, needed_for=BOTH)
    return Finding(
        "Python",
        State.WRONG,
        version,
        "use Python 3.11 or 3.12: with others, PYNQ 3.0.1 was not tried or does not run",
        BOTH,
    )


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pynq() -> Finding:
    version = _installed("pynq")
    if version is None:
        return Finding("PYNQ", State.MISSING, "not installed", _INSTALL, BOTH)
    if version != PYNQ:
        return Finding(
            "PYNQ",
            State.WRONG,
            version,
            f"{PYNQ} is the last release that drives Alveo cards, and the one this host is "
            f"written for: {_INSTALL}",
            BOTH,
        )
    return Finding("PYNQ", State.OK, version, needed_for=BOTH)


def _pycparser() -> Finding:
    version = _installed("pycparser")
    if version is None:
        return Finding("pycparser", State.MISSING, "not installed", _INSTALL, BOTH)
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) >= PYCPARSER_BELOW:
        return Finding(
            "pycparser",
            State.WRONG,
            version,
            f"PYNQ {PYNQ} imports pycparser.plyparser, which release 3 removed: pip install "
            "'pycparser<3'",
            BOTH,
        )
    return Finding("pycparser", State.OK, version, needed_for=BOTH)


def _xrt() -> Finding:
    """Look for XRT's library where PYNQ will: under ``$XILINX_XRT``."""
    given = os.environ.get("XILINX_XRT")
    if not given:
        return Finding(
            "XRT",
            State.MISSING,
            "XILINX_XRT is not set",
            "install XRT and the card's platform from AMD's page for the card (for a U280, "
            f"XRT {PLATFORMS['u280'].newest_xrt} or older), then {_SET_UP}",
        )
    if active_prefix() is not None:
        return Finding(
            "XRT",
            State.WRONG,
            f"XILINX_XRT is {given}",
            f"these are simulated cards behind XRT; for real ones {_SET_UP}",
        )
    mode = os.environ.get("XCL_EMULATION_MODE")
    if mode not in (None, "hw_emu"):
        return Finding(
            "XRT",
            State.WRONG,
            f"XCL_EMULATION_MODE is {mode}",
            "PYNQ sees no card with it: unset it, or set hw_emu for hardware emulation",
        )
    library = Path(given) / "lib" / ("libxrt_core.so" if mode is None else "libxrt_hwemu.so")
    if not library.is_file():
        return Finding(
            "XRT",
            State.WRONG,
            f"XILINX_XRT is {given}",
            f"there is no {library}, where PYNQ looks: {_SET_UP}. Debian's packages put it "
            "elsewhere; a folder with lib/ of links and version.json stands in for them",
        )
    emulating = "" if mode is None else " for hardware emulation: real cards are not seen"
    return Finding("XRT", State.OK, f"{library}{emulating}")


def _version() -> Finding:
    version = _xrt_version()
    if version is not None:
        return Finding("XRT version", State.OK, version)
    return Finding(
        "XRT version",
        State.WRONG,
        "no version.json in XILINX_XRT that names BUILD_VERSION",
        "PYNQ would take XRT for 0.0.0 and run nothing through the card's scheduler: install XRT "
        'again, or write one, such as {"BUILD_VERSION": "2.16.204"}',
    )


def _xrt_version() -> str | None:
    """Return XRT's version as PYNQ reads it, None if it cannot."""
    try:
        path = Path(os.environ["XILINX_XRT"]) / "version.json"
        version = json.loads(path.read_text(encoding="utf-8"))["BUILD_VERSION"]
        release_number(version)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return str(version)


def _on_the_bus(pci_devices: Path) -> str:
    """Say how many of AMD's FPGA devices PCIe has, with and without a driver."""
    devices = []
    for vendor in sorted(pci_devices.glob("*/vendor")):
        try:
            if vendor.read_text().strip() == AMD_VENDOR:
                devices.append(vendor.parent)
        except OSError:
            continue
    if not devices:
        return "no FPGA card on PCIe"
    bare = [path for path in devices if not (path / "driver").exists()]
    text = f"{len(devices)} PCIe functions of AMD FPGA cards"
    return f"{text}, {len(bare)} without a driver" if bare else text


def _cards(pci_devices: Path) -> tuple[list[str], Finding]:
    try:
        names = [str(card.name) for card in real_cards()]
    except Exception as error:  # whatever PYNQ, or a card that does not answer, raises
        return [], Finding(
            "cards",
            State.WRONG,
            f"PYNQ fails: {error}",
            "see whether 'xbutil examine' lists the card; if not, reset it (xbutil reset) or "
            "restart the machine",
        )
    if names:
        listed = ", ".join(f"{index}: {name}" for index, name in enumerate(names))
        return names, Finding("cards", State.OK, listed)
    found = _on_the_bus(pci_devices)
    if found.startswith("no"):
        remedy = (
            "the machine does not see the card: seat it, connect its power cable, restart, and "
            "look with 'lspci -d 10ee:'. Without a card, use a simulated one: --board sim-u55c"
        )
    else:
        remedy = (
            "XRT does not see the card: look with 'xbutil examine', load its driver (modprobe "
            "xocl; after a new kernel, install the XRT package again), and flash the platform "
            "(xbmgmt program --base) if xbutil asks for it"
        )
    return [], Finding("cards", State.MISSING, found, remedy)


def _platform(name: str) -> Finding:
    check = f"platform of {name}"
    try:
        platform = find_platform(name)
    except ValueError:
        return Finding(
            check,
            State.WRONG,
            "a card without overlays",
            f"there are overlays for {', '.join(PLATFORMS)} only; add the card to platforms.py "
            "and interface.toml, and build",
        )
    if name != platform.shell:
        return Finding(
            check,
            State.WRONG,
            f"a {platform.name} with another shell",
            f"overlays are linked for {platform.vbnv}, whose shell XRT calls {platform.shell}: "
            "flash it (xbmgmt program --base), then cold boot",
        )
    version, newest = _xrt_version(), platform.newest_xrt
    if (
        newest is not None
        and version is not None
        and release_number(version)[:2] > release_number(newest)
    ):
        return Finding(
            check,
            State.WRONG,
            f"a {platform.name} with XRT {version}",
            f"XRT {newest} is the last that knows the {platform.name}: install it in place",
        )
    return Finding(check, State.OK, f"{platform.name}, {platform.vbnv}")


def _overlay(overlay: Path, names: Sequence[str]) -> Finding:
    check = f"overlay {overlay.name}"
    try:
        container = Xclbin.parse(overlay.read_bytes())
        card = names[0] if names else find_platform(container.vbnv).shell
        path = manifest_path(overlay)
        engine = (
            Manifest.parse(path.read_text(encoding="utf-8"), path).engine if path.is_file() else ""
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            check_overlay(overlay, engine, card)
    except (FastdeltaError, XclbinError, OSError, ValueError) as error:
        return Finding(check, State.WRONG, "must not be loaded", str(error))
    if said:
        return Finding(check, State.WRONG, "without a manifest", str(said[0].message))
    return Finding(check, State.OK, f"the {engine} engine for {container.vbnv}")


def _simulation(
    check: str, tool: Callable[[], Path], use: Callable[[Path], object], version: Sequence[str]
) -> Finding:
    """Look at one tool of the simulator."""
    needed: tuple[Need, ...] = ("simulation",)
    try:
        path = tool()
    except MissingToolError as error:
        return Finding(check, State.MISSING, "not installed", str(error), needed)
    try:
        use(path)
        result = subprocess.run(
            [str(path), *version], capture_output=True, text=True, check=True, timeout=30
        )
    except MissingToolError as error:
        found = re.search(r"is (?:version )?('[^']*'|[\d.]+)", str(error))
        said = found[1].strip("'") if found else str(path)
        return Finding(check, State.WRONG, said, str(error), needed)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Finding(check, State.WRONG, str(path), f"it does not run: {error}", needed)
    return Finding(check, State.OK, result.stdout.strip().splitlines()[0], needed_for=needed)


def _checkout() -> Finding:
    try:
        return Finding("checkout", State.OK, str(checkout()), needed_for=("simulation",))
    except MissingToolError as error:
        return Finding("checkout", State.MISSING, "no RTL", str(error), ("simulation",))


def _verilator() -> Finding:
    return _simulation("Verilator", find_verilator, check_verilator, ["--version"])


def _compiler() -> Finding:
    return _simulation("g++", find_compiler, lambda _: check_compiler(), ["--version"])


def _make() -> Finding:
    def find() -> Path:
        check_make()
        return Path(shutil.which("make") or "make")

    return _simulation("make", find, lambda _: None, ["--version"])
