# SPDX-License-Identifier: Apache-2.0
"""The files of overlays are right, and a mistake seeded in any kind of them is found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fastdelta.errors import InputError, ManifestError
from fastdelta.interface import load_interface
from fastdelta.overlays import check, vitis
from fastdelta.overlays.check import StandInTools, check_overlays, tcl_command
from fastdelta.overlays.generate import link_configuration, stale
from fastdelta.overlays.manifest import Manifest
from fastdelta.overlays.rtl_ports import Port, module_ports
from fastdelta.platforms import PLATFORMS
from fastdelta.xclbin import build_xclbin

REPOSITORY = Path(__file__).resolve().parents[2]
TCL = tcl_command()
U55C, U280 = PLATFORMS["u55c"], PLATFORMS["u280"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with the decode kernel only, to seed mistakes in."""
    root = tmp_path / "checkout"
    for folder in ("rtl/common", "rtl/decode", "overlays/decode"):
        shutil.copytree(REPOSITORY / folder, root / folder)
    for name in ("Makefile", "kernel.rng", "package_kernel.tcl"):
        shutil.copy(REPOSITORY / "overlays" / name, root / "overlays")
    (root / "tools").mkdir()
    for name in ("vivado_commands.tcl", "stand_in_vitis.py"):
        shutil.copy(REPOSITORY / "tools" / name, root / "tools")
    return root


def seed(root: Path, file: str, old: str, new: str) -> None:
    path = root / file
    text = path.read_text()
    assert old in text, f"{file} has no {old!r} any more; seed another mistake"
    path.write_text(text.replace(old, new))


def test_tcl_is_there() -> None:
    """Without it the packaging script would not be checked at all."""
    assert TCL is not None


def test_committed_overlays_have_no_fault() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fastdelta.overlays", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.fullmatch(r"\d+ kernels, \d+ overlays checked, 0 faults\n", result.stdout)


def test_without_a_mistake_the_copy_has_no_fault(tree: Path) -> None:
    assert check_overlays(tree) == ([], ["1 kernels, 2 overlays checked, 0 faults"])


XML = "overlays/decode/kernel.xml"
TOML = "overlays/decode/interface.toml"
LINK = "overlays/decode/u55c/link_2.cfg"
TCL_DATA = "overlays/decode/kernel.tcl"
PACKAGE = "overlays/package_kernel.tcl"
TOP = "rtl/decode/decode_kernel.v"

MISTAKES = {
    # kernel.xml against the grammar
    "forbidden type": (XML, 'type="uint"', 'type="unsigned long"', "kernel.xml:12: "),
    "unknown attribute": (XML, "hostSize=", "hostsize=", " hostsize="),
    "missing attribute": (XML, ' hostOffset="0x0"', "", "kernel.xml:12: "),
    "unknown protocol": (XML, "ap_ctrl_chain", "ap_ctrl_none", "kernel.xml:4: Element kernel"),
    "not XML": (XML, "</args>", "", "kernel.xml: "),
    "arguments overlap": (XML, 'offset="0x18"', 'offset="0x12"', "argument context: offset"),
    # kernel.xml against the RTL
    "other width": (XML, 'dataWidth="512"', 'dataWidth="256"', "rdata is input of 512 bits"),
    "larger range": (XML, 'range="0x1000"', 'range="0x2000"', "of 12 bits, it must be input of 13"),
    "port of the RTL renamed": (TOP, "m_axi_v_", "m_axi_w_", "no port m_axi_v_araddr"),
    "port of the RTL not described": (
        TOP,
        "input wire ap_rst_n,",
        "input wire ap_rst_n, output wire [63:0] m_axi_x_awaddr,",
        "kernel.xml has no port m_axi_x",
    ),
    "narrow address": (TOP, "[         63:0] m_axi_qk_araddr", "[31:0] m_axi_qk_araddr", "32 bits"),
    "no interrupt": (TOP, "output wire        interrupt,", "", "interrupt must be an output"),
    "no clock": (TOP, "input wire ap_clk", "input wire clk", "ap_clk must be an input"),
    # interface.toml against kernel.xml and the cards
    "bank of no card": (TOML, '"HBM[0]"', '"HBM[32]"', "no memory bank HBM[32]"),
    "die of no card": (TOML, '"SLR1"', '"SLR3"', "slr is 'SLR3'; the u55c has SLR0, SLR1, SLR2"),
    "port of no kernel": (TOML, "m_axi_v =", "m_axi_w =", "it must connect each of"),
    # generated against committed
    "edited registers": (TCL_DATA, "{watchdog 0x60", "{watchdog 0x64", "kernel.tcl is stale"),
    "connections not generated": (TOML, '"HBM[5]"', '"HBM[7]"', "u55c/link_2.cfg is stale"),
    "manifest that boasts": (
        "overlays/decode/u55c/manifest.toml",
        "vitis_tested = []",
        'vitis_tested = ["2023.2"]',
        "manifest.toml is stale",
    ),
    # link files against kernel, RTL ports, banks and dies
    "link: unknown bank": (LINK, "HBM[5]", "HBM[32]", "the u55c has no memory bank HBM[32]"),
    "link: no bank": (LINK, ":HBM[5]", ":HBM", "'HBM' is no memory bank"),
    "link: unknown port": (LINK, "decode_2.m_axi_o", "decode_2.m_axi_p", "has no port m_axi_p"),
    "link: port left out": (LINK, "sp=decode_1.m_axi_v:HBM[1]\n", "", "no memory at m_axi_v"),
    "link: connected twice": (LINK, "sp=decode_2.m_axi_v", "sp=decode_2.m_axi_o", "twice"),
    "link: unknown kernel": (LINK, "nk=decode_kernel", "nk=decode", "there is no kernel decode"),
    "link: number of units": (LINK, ":2:", ":3:", "3 units, but 2 names"),
    "link: name of a unit": (LINK, "decode_2", "decode_b", "the host looks for"),
    "link: unknown die": (LINK, ":SLR1", ":SLR4", "the u55c has no SLR4"),
    "link: unit of a die": (LINK, "slr=decode_2", "slr=decode_3", "no unit decode_3"),
    "link: unknown key": (LINK, "nk=", "kn=", "'kn' is none of nk, sp, slr"),
    "link: unknown section": (LINK, "[connectivity]", "[connections]", "section [connections]"),
    # package_kernel.tcl on recorded commands, and what it did
    "Tcl: unknown command": (PACKAGE, "ipx::save_core", "ipx::store_core", "invalid command name"),
    "Tcl: unknown option": (PACKAGE, "-kernel_xml", "-kernel_file", "unknown option -kernel_file"),
    "Tcl: unknown property": (PACKAGE, "sdx_kernel true", "sdx_kernal true", "sdx_kernal"),
    "Tcl: syntax": (PACKAGE, "close_project", "close_project {", "missing close-brace"),
    "Tcl: no RTL kernel": (PACKAGE, "sdx_kernel_type rtl", "sdx_kernel_type hls", "is hls"),
    "Tcl: no clock": (PACKAGE, "-busif $bus -clock ap_clk", "-clock ap_clk", "clocked interfaces"),
    "Tcl: registers without ports": (PACKAGE, 'if {$master ne ""}', "if {0}", "register qk is"),
    "Tcl: not saved": (PACKAGE, "ipx::save_core $core\n", "", "save_core must come before"),
    "Tcl: saved too early": (
        PACKAGE,
        "set_property sdx_kernel true $core",
        "ipx::check_integrity $core\nipx::save_core $core\nset_property sdx_kernel true $core",
        "after the core was saved",
    ),
    "Tcl: other kernel.xml": (PACKAGE, "$folder kernel.xml", "$work kernel.xml", "kernel.xml is ["),
    "file list": ("rtl/decode/decode.f", "decode/decode_qk.v", "decode/decode_kq.v", "no file"),
    "top not in the list": ("rtl/decode/decode.f", "decode/decode_kernel.v", "", "the top module"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_seeded_mistake_is_found(tree: Path, mistake: str) -> None:
    file, old, new, message = MISTAKES[mistake]
    seed(tree, file, old, new)
    faults, done = check_overlays(tree, dry_run=False)
    assert any(message in fault for fault in faults), faults
    assert done[-1].endswith(f" overlays checked, {len(faults)} faults")


MAKEFILE_MISTAKES = {
    "option": ("--kernel_frequency", "--kernel-frequency", "has no option --kernel-frequency"),
    "no clock": ("--kernel_frequency $$CLOCK_MHZ", "", "is given no --kernel_frequency"),
    "no link configuration": ("--config ../link.cfg", "", "v++ needs --config"),
    "other configuration": ("--config ../link.cfg", "--config ../settings", "is in no section"),
    "target": ("--target $* --platform $$PLATFORM --config", "--target hw --config", "platform"),
    "platform": ("--platform $$PLATFORM --od", "--platform $$PART --od", "links for xcu55c"),
    "step left out": ("v++ --package", "true v++ --package", "decode.xclbin"),
    "order": ("--output $(@F) ../$(KERNEL).xo", "--output $(@F) ../settings", "reads .xo files"),
    "reports": ("--report_dir reports", "--report_dir elsewhere", "no timing summary"),
    "syntax": ("$(XO): $(SETTINGS)", "$(XO) $(SETTINGS)", "make ended with 2"),
}


@pytest.mark.parametrize("mistake", MAKEFILE_MISTAKES)
def test_a_mistake_in_the_makefile_is_found(tree: Path, mistake: str) -> None:
    old, new, message = MAKEFILE_MISTAKES[mistake]
    seed(tree, "overlays/Makefile", old, new)
    interface = load_interface(tree / "overlays/decode")
    faults = check.check_build(tree, "decode", interface, U55C, TCL or [])
    assert any(message in fault for fault in faults), faults


def test_a_mistake_ends_the_command(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(tree, *MISTAKES["not XML"][:3])
    monkeypatch.setenv("FASTDELTA_CHECKOUT", str(tree))
    command = [sys.executable, "-m", "fastdelta.overlays", "check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "overlays/decode/kernel.xml: " in result.stdout
    assert "Traceback" not in result.stderr


def test_tkinter_runs_the_same_script(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tkinter")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    command = tcl_command()
    assert command is not None
    assert command[0] == sys.executable
    interface = load_interface(REPOSITORY / "overlays/decode")
    assert check.check_packaging(REPOSITORY, "decode", interface, U55C, command) == []


def test_without_tcl_the_check_says_what_it_did_not_do(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "tcl_command", lambda: None)
    faults, done = check_overlays(tree)
    assert not faults
    assert done[0].startswith("not run: packaging and dry runs, which need Tcl: apt-get install")


def test_generated_files_are_written_and_left_overs_removed(tree: Path) -> None:
    left_over = tree / "overlays/decode/u55c/link_3.cfg"
    left_over.write_text("[connectivity]\n")
    changed = tree / LINK
    before = changed.read_text()
    changed.write_text("")
    assert sorted(stale(tree)) == sorted([left_over, changed])
    assert changed.read_text() == "", "a check must not write"
    stale(tree, write=True)
    assert changed.read_text() == before
    assert not left_over.exists()
    assert stale(tree) == []


def test_tested_releases_go_to_the_template_and_the_manifests(tree: Path) -> None:
    path = tree / "overlays/decode/interface.toml"
    path.write_text(path.read_text() + '\n[tested.u55c]\nvitis = ["2023.2"]\nxrt = ["2.16"]\n')
    changed = stale(tree, write=True)
    assert changed == [tree / "overlays/decode/u55c/manifest.toml"]
    manifest = Manifest.parse(changed[0].read_text(), changed[0])
    assert (manifest.vitis_tested, manifest.xrt_tested) == (("2023.2",), ("2.16",))
    assert "2023.2" not in manifest.vitis_not_tested
    assert "2.16" not in manifest.xrt_not_tested
    assert set(manifest.vitis_not_tested) | {"2023.2"} == set(U55C.releases)


def test_neighbouring_banks_are_one_range() -> None:
    vector_add = load_interface(REPOSITORY / "tests/kernels/vector_add")
    several = {"m_axi_in": ("HBM[4]", "HBM[5]", "HBM[6]"), "m_axi_out": ("HBM[7]",)}
    object.__setattr__(vector_add, "compute_units", {"u55c": (several,)})
    text = link_configuration(vector_add, U55C, 1)
    assert "sp=vector_add_1.m_axi_in:HBM[4:6]\n" in text
    assert check.check_link(text, vector_add, U55C) == []
    several["m_axi_in"] = ("HBM[4]", "HBM[6]")
    with pytest.raises(ValueError, match=r"HBM\[4\], HBM\[6\] are not neighbours"):
        link_configuration(vector_add, U55C, 1)


def test_ports_are_read_with_their_widths() -> None:
    source = """
    module other (input wire a); endmodule
    module unit #(parameter integer WIDTH = 2 * 4, /* bits */ parameter LANES = WIDTH / 2) (
        input wire clk,  // a clock, said with a comma
        output reg [WIDTH*LANES-1:0] data,
        output wire [7:4] part
    ); endmodule
    """
    assert module_ports(source, "unit") == {
        "clk": Port("input", 1),
        "data": Port("output", 32),
        "part": Port("output", 4),
    }
    with pytest.raises(ValueError, match="no module absent"):
        module_ports(source, "absent")
    with pytest.raises(ValueError, match="'DEPTH-1' is not arithmetic"):
        module_ports("module unit (input wire [DEPTH-1:0] a);", "unit")
    with pytest.raises(ValueError, match="port 'inout wire a' of unit cannot be read"):
        module_ports("module unit (inout wire a);", "unit")


Tools = Callable[..., StandInTools]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Make stand-in tools of a release, with the slacks of their timing report."""
    interface = load_interface(REPOSITORY / "overlays/decode")

    def make(card: str = "u55c", **answers: object) -> StandInTools:
        container = build_xclbin(interface, PLATFORMS[card], bitstream=b"stand-in", mode=0)
        folder = REPOSITORY / "tools"
        return StandInTools(tmp_path / "tools", folder, TCL or [], container, **answers)

    return make


def test_a_build_ends_with_its_manifest(tools: Tools) -> None:
    stand_in = tools(release="2024.2")
    result = stand_in.make(REPOSITORY, "xclbin", "CLOCK_MHZ=300", "UNITS=1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "decode.xclbin: 300 MHz, uuid " in result.stdout
    assert "Vitis 2024.2 were not yet tested on a card" in result.stdout
    path = stand_in.folder / "build/hw/decode.manifest.toml"
    manifest = Manifest.parse(path.read_text(), path)
    build = manifest.build
    assert build is not None
    assert (build.vitis, build.clock_mhz, build.compute_units) == ("2024.2", 300, 1)
    assert (build.worst_negative_slack_ns, build.worst_hold_slack_ns) == (0.021, 0.012)
    assert build.parameters == {"H_ITER": 4}
    assert manifest.vitis_tested == manifest.xrt_tested == ()
    assert Manifest.parse(manifest.to_toml(), "again") == manifest

    count = len(stand_in.calls)
    assert count == 3
    again = stand_in.make(REPOSITORY, "xclbin")
    assert again.returncode == 0, again.stderr
    assert len(stand_in.calls) == count, "nothing changed, so nothing is built again"
    changed = stand_in.make(REPOSITORY, "xclbin", "PARAMETERS=H_ITER=8", "PIN=no")
    assert changed.returncode == 0, changed.stderr
    assert len(stand_in.calls) == 2 * count
    assert "slr=" in stand_in.calls[1]["config"]
    assert "slr=" not in stand_in.calls[count + 1]["config"]


def test_failed_timing_ends_the_build_and_is_kept(tools: Tools) -> None:
    stand_in = tools(release="2023.2", setup=-0.104)
    for _ in range(2):  # the second time nothing is built, and it is said again
        result = stand_in.make(REPOSITORY, "xclbin")
        assert result.returncode == 2
        assert "timing failed: the worst negative slack is -0.104 ns at 300 MHz" in result.stderr
        assert "lower CLOCK_MHZ" in result.stderr
    assert len(stand_in.calls) == 3


@pytest.mark.parametrize(
    ("card", "release", "words"),
    [
        ("u280", "2024.1", "release 2024.1 does not know the u280; it needs 2022.1 to 2023.2"),
        ("u55c", "2021.2", "release 2021.2 does not know the u55c; it needs 2022.1 and newer"),
        ("u55c", {"vivado": "2023.1", "v++": "2023.2"}, "vivado is 2023.1, v++ is 2023.2"),
        ("u55c", "of today", "names no release"),
    ],
)
def test_wrong_tools_are_refused(
    tools: Tools, card: str, release: str | dict[str, str], words: str
) -> None:
    stand_in = tools(card, release=release)
    result = stand_in.make(REPOSITORY, "xclbin", f"CARD={card}")
    assert result.returncode == 2
    assert words in result.stderr
    assert stand_in.calls == []


def test_missing_tools_are_named(tools: Tools) -> None:
    stand_in = tools(release="2023.2")
    (stand_in.folder / "bin/v++").unlink()
    result = stand_in.make(REPOSITORY, "xclbin")
    assert result.returncode == 2
    assert "v++ is not in the PATH; install Vitis, and source settings64.sh" in result.stderr
    assert stand_in.make(REPOSITORY, "xo").returncode == 0, "packaging needs no v++"
    assert [call["tool"] for call in stand_in.calls] == ["vivado"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("KERNEL=encode", "KERNEL: there is no kernel 'encode'; known are decode"),
        ("CARD=u250", "CARD is 'u250'; cards are u55c, u280"),
        ("UNITS=3", "UNITS: 3 compute units of decode_kernel on a u55c: allowed are 1 to 2"),
        ("CLOCK_MHZ=3000", "CLOCK_MHZ is 3000; allowed are 50 to 500"),
        ("PARAMETERS=H_ITER=5", "PARAMETERS: h_iter=5 must divide the 32 value heads"),
        ("PARAMETERS=H_ITER", "PARAMETERS: 'H_ITER' is not NAME=VALUE"),
        ("PARAMETERS=LANES=5", "PARAMETERS: decode_kernel has no LANES; it has HEAD_DIM"),
        ("PARAMETERS=BUS_WIDTH=256", "BUS_WIDTH is 256, but kernel.xml describes ports of other"),
        ("PLATFORM=/opt/u55c.xpfm", "for the u55c it is xilinx_u55c_gen3x16_xdma_3_202210_1.xpfm"),
        ("PYTHON=/nowhere/python", "there is no /nowhere/python: run 'make setup'"),
    ],
)
def test_wrong_settings_are_refused(tools: Tools, setting: str, words: str) -> None:
    stand_in = tools(release="2023.2")
    result = stand_in.make(REPOSITORY, setting, "xclbin")
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert stand_in.calls == []


def test_the_list_of_targets_needs_no_tools(tools: Tools) -> None:
    result = tools(release="2023.2").make(REPOSITORY)
    assert result.returncode == 0
    for word in ("make xo ", "make xclbin ", "make hw_emu ", "CLOCK_MHZ=300"):
        assert word in result.stdout


SUMMARY = """
| Clock Summary
| Design Timing Summary
| ---------------------
-----------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints      WHS(ns)      THS(ns)
    -------      -------  ---------------------      -------      -------
{}

"""


def write_report(folder: Path, stage: str, values: str) -> None:
    path = folder / "link/imp" / f"impl_1_hw_bb_locked_timing_summary_{stage}.rpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SUMMARY.format(values))


def test_the_last_stage_decides_the_slack(tmp_path: Path) -> None:
    write_report(tmp_path, "placed", "  0.900  0.000  0  0.900  0.000")
    with pytest.raises(ManifestError, match="no timing summary of a routed design"):
        vitis.timing(tmp_path)
    write_report(tmp_path, "routed", "  -0.100  -5.000  12  0.010  0.000")
    assert vitis.timing(tmp_path) == (-0.1, 0.01)
    write_report(tmp_path, "postroute_physopted", "  0.003  0.000  0  0.011  0.000")
    assert vitis.timing(tmp_path) == (0.003, 0.011)
    write_report(tmp_path, "postroute_physopted", "  NA  NA  0  NA  NA")
    with pytest.raises(ManifestError, match="names no setup and hold slack"):
        vitis.timing(tmp_path)


def test_parameters_of_prefill_are_those_of_its_shape() -> None:
    prefill = load_interface(REPOSITORY / "overlays/prefill")
    assert vitis.hardware_parameters(prefill, ["HEAD_DIM=256", "STRIPS=2"]) == {
        "HEAD_DIM": 256,
        "STRIPS": 2,
    }
    with pytest.raises(InputError, match="strips=5: allowed are 1 to 4"):
        vitis.hardware_parameters(prefill, ["STRIPS=5"])
