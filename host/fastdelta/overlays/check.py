# SPDX-License-Identifier: Apache-2.0
"""Check everything that Vitis will read of an overlay, without Vitis.

For each kernel and card: generated files are current; ``kernel.xml`` follows the grammar and the
ports of the RTL; link files name units, ports, banks and dies that exist; ``package_kernel.tcl``
runs to its end on recorded stand-ins of Vivado's commands, and what it did is what kernel.xml and
file list say; and ``overlays/Makefile`` runs to the manifest with tools that only take options they
have. Timing, placement, Vivado's own integrity check and the card itself cannot be checked so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fastdelta.errors import FastdeltaError, MissingToolError
from fastdelta.filelist import read_file_list
from fastdelta.interface import KernelInterface, load_interface
from fastdelta.overlays.generate import kernels, stale
from fastdelta.overlays.manifest import EMULATION, HARDWARE, Manifest, check_manifest
from fastdelta.overlays.rtl_ports import module_ports
from fastdelta.platforms import PLATFORMS, Platform
from fastdelta.xclbin import Mode, Xclbin, build_xclbin

_Signals = Mapping[str, tuple[str, int | str]]

# Signals of an AXI4 channel pair with their direction at the master; D is the data width.
_READ: Final[_Signals] = {
    "araddr": ("output", 64),
    "arlen": ("output", 8),
    "arvalid": ("output", 1),
    "arready": ("input", 1),
    "rdata": ("input", "D"),
    "rlast": ("input", 1),
    "rvalid": ("input", 1),
    "rready": ("output", 1),
}
_WRITE: Final[_Signals] = {
    "awaddr": ("output", 64),
    "awlen": ("output", 8),
    "awvalid": ("output", 1),
    "awready": ("input", 1),
    "wdata": ("output", "D"),
    "wstrb": ("output", "D/8"),
    "wlast": ("output", 1),
    "wvalid": ("output", 1),
    "wready": ("input", 1),
    "bvalid": ("input", 1),
    "bready": ("output", 1),
}
_CONTROL: Final[_Signals] = {
    "awaddr": ("input", "A"),
    "awvalid": ("input", 1),
    "awready": ("output", 1),
    "wdata": ("input", 32),
    "wstrb": ("input", 4),
    "wvalid": ("input", 1),
    "wready": ("output", 1),
    "bresp": ("output", 2),
    "bvalid": ("output", 1),
    "bready": ("input", 1),
    "araddr": ("input", "A"),
    "arvalid": ("input", 1),
    "arready": ("output", 1),
    "rdata": ("output", 32),
    "rresp": ("output", 2),
    "rvalid": ("output", 1),
    "rready": ("input", 1),
}
# tclsh's work by the library that Python may have.
_TKINTER: Final = (
    "import sys, tkinter; tcl = tkinter.Tcl().tk; tcl.call('set', 'argv', tuple(sys.argv[2:])); "
    "tcl.call('set', 'argc', len(sys.argv) - 2); tcl.call('source', sys.argv[1])"
)
_STEPS: Final = ("--link", "--package")
_STAND_IN_SLACK: Final = {"setup": 0.021, "hold": 0.012}
_MAKE_TIMEOUT: Final = 120


def tcl_command() -> list[str] | None:
    """Return the command that runs Tcl scripts, None if there is none."""
    tclsh = shutil.which("tclsh")
    if tclsh is not None:
        return [tclsh]
    try:
        import tkinter  # noqa: F401 - some Pythons come without it
    except ImportError:
        return None
    return [sys.executable, "-c", _TKINTER]


def check_overlays(root: Path, *, dry_run: bool = True) -> tuple[list[str], list[str]]:
    """Run every check.

    Parameters
    ----------
    root
        A checkout, or a copy of its ``overlays``, ``rtl`` and ``tools``.
    dry_run
        Whether to run the Makefile too, which takes seconds for each overlay.

    Returns
    -------
    tuple of two lists of str
        Faults, and what was done or could not be done.
    """
    faults: list[str] = []
    done: list[str] = []
    names = kernels(root)
    if not names:
        faults.append(f"there is no kernel under {root / 'overlays'}")
    tcl = tcl_command()
    if tcl is None:
        done.append(
            "not run: packaging and dry runs, which need Tcl: apt-get install tcl, or a Python "
            "with tkinter"
        )
    builds = 0
    for name in names:
        folder = root / "overlays" / name
        own = check_grammar(folder / "kernel.xml", root / "overlays" / "kernel.rng")
        try:
            interface = load_interface(folder)
            own += check_generated(root, name)
            own += check_ports(interface)
        except (ValueError, OSError, KeyError) as error:
            own.append(f"overlays/{name}: {error}")
            faults += own
            continue
        for card in interface.compute_units:
            platform = PLATFORMS[card]
            for path in sorted((folder / card).glob("link_*.cfg")):
                text = path.read_text(encoding="utf-8")
                found = check_link(text, interface, platform)
                own += [f"{path.relative_to(root)}: {fault}" for fault in found]
            if tcl is not None:
                own += check_packaging(root, name, interface, platform, tcl)
                if dry_run:
                    own += check_build(root, name, interface, platform, tcl)
            builds += 1
        faults += own
    done.append(f"{len(names)} kernels, {builds} overlays checked, {len(faults)} faults")
    return faults, done


def check_generated(root: Path, kernel: str) -> list[str]:
    """Return the generated files of a kernel that are stale."""
    return [
        f"{path.relative_to(root)} is stale; run 'make overlays'"
        for path in stale(root)
        if path.is_relative_to(root / "overlays" / kernel)
    ]


def check_grammar(path: Path, grammar: Path) -> list[str]:
    """Return where a ``kernel.xml`` does not follow the grammar.

    Raises
    ------
    MissingToolError
        If lxml is not installed.
    """
    try:
        from lxml import etree
    except ImportError as error:
        raise MissingToolError(
            f"lxml, which reads the grammar of kernel.xml, is not installed ({error}): "
            "pip install 'fastdelta[overlays]'"
        ) from None
    where = f"overlays/{path.parent.name}/{path.name}"
    try:
        document = etree.parse(str(path))
    except (etree.XMLSyntaxError, OSError) as error:
        return [f"{where}: {error}"]
    schema = etree.RelaxNG(etree.parse(str(grammar)))
    if schema.validate(document):
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        f"{where}:{entry.line}: {entry.message}: {lines[entry.line - 1].strip()}"
        for entry in schema.error_log
    ]


def check_ports(interface: KernelInterface) -> list[str]:
    """Return where ``kernel.xml`` and the ports of the RTL differ."""
    sources = [path for path in read_file_list(interface.file_list) if path.stem == interface.name]
    if not sources:
        return [f"{interface.file_list} has no {interface.name}.v, the top module"]
    ports = module_ports(sources[0].read_text(encoding="utf-8"), interface.name)
    where = f"{sources[0].name} against kernel.xml"
    faults = []

    def compare(prefix: str, signals: _Signals, **widths: int) -> None:
        for signal, (direction, width) in signals.items():
            bits = widths[width] if isinstance(width, str) else width
            port = ports.get(f"{prefix}_{signal}")
            if port is None:
                faults.append(f"{where}: there is no port {prefix}_{signal}")
            elif (port.direction, port.width) != (direction, bits):
                faults.append(
                    f"{where}: {prefix}_{signal} is {port.direction} of {port.width} bits, it "
                    f"must be {direction} of {bits}"
                )

    singles = {"ap_clk": "input", "ap_rst_n": "input"}
    if interface.interrupt:
        singles["interrupt"] = "output"
    for name, direction in singles.items():
        port = ports.get(name)
        if port is None or (port.direction, port.width) != (direction, 1):
            faults.append(f"{where}: {name} must be an {direction} of one bit")
    compare("s_axi_control", _CONTROL, A=(interface.control_range - 1).bit_length())
    for master in interface.ports:
        width = interface.data_widths[master]
        used = [
            group
            for group, first in ((_READ, "araddr"), (_WRITE, "awaddr"))
            if f"{master}_{first}" in ports
        ]
        if not used:
            faults.append(f"{where}: there is no port {master}_araddr or {master}_awaddr")
        for group in used:
            compare(master, group, **{"D": width, "D/8": width // 8})
    found = {match[1] for name in ports if (match := re.match(r"(m_axi_\w+)_a[rw]addr$", name))}
    faults += [
        f"{where}: kernel.xml has no port {name}" for name in sorted(found - {*interface.ports})
    ]
    return faults


def check_link(text: str, interface: KernelInterface, platform: Platform) -> list[str]:
    """Return what is wrong in a link configuration.

    Parameters
    ----------
    text
        The configuration.
    interface, platform
        Kernel and card that it is for.
    """
    faults: list[str] = []
    units: list[str] = []
    connected: dict[str, str] = {}
    placed: dict[str, str] = {}
    section = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            section = line
            if section != "[connectivity]":
                faults.append(f"line {number}: section {section}; allowed is [connectivity]")
            continue
        key, _, value = line.partition("=")
        if not section:
            faults.append(f"line {number}: {key} is in no section")
        if key == "nk":
            name, count, given = ([*value.split(":"), "", ""])[:3]
            units += given.split(".")
            if name != interface.name:
                faults.append(f"line {number}: there is no kernel {name}, only {interface.name}")
            if count != str(len(units)):
                faults.append(f"line {number}: {count} units, but {len(units)} names")
        elif key == "sp":
            found = _memory(value, units, connected, interface, platform)
            faults += [f"line {number}: {fault}" for fault in found]
        elif key == "slr":
            unit, _, slr = value.partition(":")
            dies = [f"SLR{index}" for index in range(platform.slrs)]
            if unit not in units:
                faults.append(f"line {number}: there is no unit {unit}; units are {units}")
            if slr not in dies:
                faults.append(f"line {number}: the {platform.name} has no {slr}, only {dies}")
            if unit in placed:
                faults.append(f"line {number}: {unit} is placed twice")
            placed[unit] = slr
        else:
            faults.append(f"line {number}: {key!r} is none of nk, sp, slr")
    wanted = [interface.unit_name(index) for index in range(len(units))]
    if units != wanted or not units:
        faults.append(f"units are {units}; the host looks for {wanted or ['one at least']}")
    for unit in units:
        missing = [port for port in interface.ports if f"{unit}.{port}" not in connected]
        if missing:
            faults.append(f"{unit} has no memory at {', '.join(missing)}")
    return faults


def _memory(
    value: str,
    units: Sequence[str],
    connected: dict[str, str],
    interface: KernelInterface,
    platform: Platform,
) -> list[str]:
    """Return what is wrong with one ``sp``, and note it."""
    place, _, bank = value.partition(":")
    unit, _, port = place.partition(".")
    faults = []
    if unit not in units:
        faults.append(f"there is no unit {unit}; units are {', '.join(units)}")
    if port not in interface.ports:
        faults.append(f"{interface.name} has no port {port}, only {', '.join(interface.ports)}")
    if place in connected:
        faults.append(f"{place} is connected twice")
    kind, indices = re.fullmatch(r"(\w+)\[(.*)\]", bank), None
    if kind is not None:
        indices = re.fullmatch(r"(\d+)(?::(\d+))?", kind[2])
    if kind is None or indices is None:
        return [*faults, f"{bank!r} is no memory bank, such as HBM[0] or HBM[0:3]"]
    first, last = int(indices[1]), int(indices[2] or indices[1])
    for index in sorted({first, last}):
        try:
            platform.bank_index(f"{kind[1]}[{index}]")
        except ValueError as error:
            faults.append(str(error))
    connected[place] = bank
    return faults


def check_packaging(
    root: Path, kernel: str, interface: KernelInterface, platform: Platform, tcl: Sequence[str]
) -> list[str]:
    """Run the packaging script on recorded commands; return what is wrong with what it did."""
    folder = root / "overlays" / kernel
    where = f"packaging {kernel} for the {platform.name}"
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record"
        result = subprocess.run(
            [
                *tcl,
                str(root / "tools" / "vivado_commands.tcl"),
                str(record),
                str(root / "overlays" / "package_kernel.tcl"),
                str(folder),
                platform.part,
                str(Path(scratch) / "work"),
                str(Path(scratch) / "out" / f"{kernel}.xo"),
                *(f"{name}={value}" for name, value in interface.hardware_parameters.items()),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            return [f"{where}: {(result.stderr or result.stdout).strip()}"]
        calls = [line.split("\x1f") for line in record.read_text(encoding="utf-8").splitlines()]
    return [f"{where}: {fault}" for fault in packaging_faults(calls, folder, interface, platform)]


def packaging_faults(
    calls: Sequence[Sequence[str]], folder: Path, interface: KernelInterface, platform: Platform
) -> list[str]:
    """Compare the Vivado commands of a packaging run with the kernel; return what differs."""
    order = [call[0] for call in calls]
    faults = []

    def option(command: str, name: str) -> list[str]:
        found = [list(call) for call in calls if call[0] == command and name in call]
        return [call[call.index(name) + 1] for call in found]

    def expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            faults.append(f"{what} is {found}, it must be {wanted}")

    properties: dict[tuple[str, str], str] = {}
    sizes: dict[str, list[Any]] = {}
    current = ""
    for call in calls:
        if call[0] == "ipx::add_register":
            current = call[-2]
            sizes[current] = [None, None, None]
        elif call[0] == "set_property":
            _, name, value, target = call
            kind, _, key = target.partition(":")
            properties[target, name] = value
            if kind == "register":
                sizes[key][("address_offset", "size").index(name)] = int(value, 0)
            elif kind == "register_parameter":
                sizes[current][2] = value
    registers = {name: (at, bits, port) for name, (at, bits, port) in sizes.items()}

    vendor, library, name, version = interface.vlnv.split(":")
    expect("part", option("create_project", "-part"), [platform.part])
    sources = [call[2:] for call in calls if call[0] == "add_files"]
    wanted_sources = [str(path) for path in read_file_list(interface.file_list)]
    expect("list of sources", sources and list(sources[0][0].split(" ")), wanted_sources)
    expect("top module", properties.get(("fileset:sources_1", "top")), interface.name)
    expect("vendor", option("ipx::package_project", "-vendor"), [vendor])
    expect("library", option("ipx::package_project", "-library"), [library])
    for key, value in {
        "name": name,
        "version": version,
        "sdx_kernel": "true",
        "sdx_kernel_type": "rtl",
        "ipi_drc": "ignore_freq_hz true",
        "vitis_drc": f"ctrl_protocol {interface.control}",
    }.items():
        expect(f"property {key} of the core", properties.get(("core", key)), value)
    for key, number in interface.hardware_parameters.items():
        for kind in ("user_parameter", "hdl_parameter"):
            expect(f"{kind} {key}", properties.get((f"{kind}:{key}", "value")), str(number))
    clocked = option("ipx::associate_bus_interfaces", "-busif")
    expect("list of clocked interfaces", clocked, ["s_axi_control", *interface.ports])
    expect("reset", option("ipx::associate_bus_interfaces", "-reset"), ["ap_rst_n"])
    span = properties.get(("address_block:reg0", "range"))
    expect("range of the registers", span, str(interface.control_range))
    wanted: dict[str, tuple[int, int, str | None]] = {
        register: (4 * index, 32, None)
        for index, register in enumerate(("CTRL", "GIER", "IP_IER", "IP_ISR"))
    }
    for argument in interface.arguments:
        wanted[argument.name] = (argument.offset, 8 * argument.size, argument.port)
    for register in sorted(registers.keys() | wanted.keys()):
        expect(f"register {register}", registers.get(register), wanted.get(register))
    expect("kernel of package_xo", option("package_xo", "-kernel_name"), [interface.name])
    expect("kernel.xml", option("package_xo", "-kernel_xml"), [str(folder / "kernel.xml")])
    expect(
        "IP of package_xo",
        option("package_xo", "-ip_directory"),
        option("ipx::package_project", "-root_dir"),
    )
    for earlier, later in (
        ("ipx::check_integrity", "ipx::save_core"),
        ("ipx::save_core", "package_xo"),
    ):
        if not (earlier in order and later in order and order.index(earlier) < order.index(later)):
            faults.append(f"{earlier} must come before {later}")
    if order and "ipx::save_core" in order:
        changes = [index for index, command in enumerate(order) if command == "set_property"]
        if changes[-1] > order.index("ipx::save_core"):
            faults.append("a property is set after the core was saved, so it is lost")
    return faults


class StandInTools:
    """A folder with ``vivado``, ``v++`` and ``emconfigutil`` that only record how they are called.

    Parameters
    ----------
    folder
        Where to make them.
    tools
        The checkout's folder ``tools``.
    tcl
        Command that runs Tcl scripts.
    container
        What ``v++`` writes.
    release
        Release that the tools name, for all or each.
    setup, hold
        Slacks in nanoseconds that the timing report names.
    """

    def __init__(
        self,
        folder: Path,
        tools: Path,
        tcl: Sequence[str],
        container: bytes,
        *,
        release: str | Mapping[str, str],
        setup: float = _STAND_IN_SLACK["setup"],
        hold: float = _STAND_IN_SLACK["hold"],
    ) -> None:
        self.folder = folder
        bin_folder = folder / "bin"
        bin_folder.mkdir(parents=True)
        names = ("vivado", "v++", "emconfigutil")
        script = tools / "stand_in_vitis.py"
        for name in names:
            path = bin_folder / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{script}" {name} "$@"\n')
            path.chmod(0o755)
        answers = {
            "releases": dict.fromkeys(names, release) if isinstance(release, str) else release,
            "tcl": list(tcl),
            "setup": setup,
            "hold": hold,
        }
        (folder / "answers.json").write_text(json.dumps(answers))
        (folder / "answer.xclbin").write_bytes(container)

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which the tools are found first."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        kept = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS")}
        return {**kept, "PATH": path, "STAND_IN_FOLDER": str(self.folder)}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Calls so far: tool, options, plain words, and the text of the link configuration."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def make(self, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``overlays/Makefile`` on the tools; everything is built in their folder."""
        return subprocess.run(
            [
                "make",
                "-C",
                str(root / "overlays"),
                f"PYTHON={sys.executable}",
                f"BUILD={self.folder / 'build'}",
                *arguments,
            ],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAKE_TIMEOUT,
        )


def check_build(
    root: Path, kernel: str, interface: KernelInterface, platform: Platform, tcl: Sequence[str]
) -> list[str]:
    """Run the Makefile on stand-in tools up to the manifests; return what is wrong."""
    where = f"dry run of {kernel} for the {platform.name}"
    container = build_xclbin(interface, platform, bitstream=b"stand-in", mode=Mode.FLAT)
    with tempfile.TemporaryDirectory() as scratch:
        tools = StandInTools(
            Path(scratch) / "tools", root / "tools", tcl, container, release=platform.releases[-1]
        )
        result = tools.make(root, "xclbin", "hw_emu", f"KERNEL={kernel}", f"CARD={platform.name}")
        if result.returncode != 0:
            said = (result.stdout + result.stderr).strip().splitlines()[-8:]
            return [f"{where}: make ended with {result.returncode}: " + " / ".join(said)]
        faults = build_faults(tools.calls, interface, platform)
        for target in (HARDWARE, EMULATION):
            path = tools.folder / "build" / target / f"{kernel}.manifest.toml"
            try:
                manifest = Manifest.parse(path.read_text(encoding="utf-8"), path.name)
                if target == HARDWARE:
                    read = Xclbin.parse(container)
                    check_manifest(manifest, path.name, container, read, kernel, platform)
            except (FastdeltaError, OSError) as error:
                faults.append(str(error))
    return [f"{where}: {fault}" for fault in faults]


def build_faults(
    calls: Sequence[Mapping[str, Any]], interface: KernelInterface, platform: Platform
) -> list[str]:
    """Compare how the tools were called with kernel and card; return what differs."""
    faults = []
    steps = [
        (
            call["tool"] + "".join(f" {name}" for name in _STEPS if name in call["options"]),
            call["options"].get("--target"),
        )
        for call in calls
    ]
    wanted: list[tuple[str, str | None]] = [("vivado", None)]
    for target in (HARDWARE, EMULATION):
        wanted += [(f"v++ {name}", target) for name in _STEPS]
    wanted.append(("emconfigutil", None))
    if steps != wanted:
        faults.append(f"the tools were called as {steps}, they must be as {wanted}")
    for call in calls:
        options = call["options"]
        if call["tool"] != "vivado" and options.get("--platform") != platform.vbnv:
            faults.append(
                f"{call['tool']} links for {options.get('--platform')}, not for {platform.vbnv}"
            )
        if "--link" in options:
            if "--kernel_frequency" not in options:
                faults.append("v++ --link is given no --kernel_frequency")
            faults += check_link(call.get("config", ""), interface, platform)
    return faults
