# SPDX-License-Identifier: Apache-2.0
"""The repository's own tools: file lists, lint, generated registers, synthesis report, set-up."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fastdelta.filelist import read_file_list

REPOSITORY = Path(__file__).resolve().parents[2]

COUNTER = """\
`default_nettype none
module counter #(
    parameter integer WIDTH = 8
) (
    input wire clk,
    input wire rst_n,
    output reg [WIDTH-1:0] count
);
  always @(posedge clk)
    if (!rst_n) count <= {WIDTH{1'b0}};
    else count <= count + {{WIDTH - 1{1'b0}}, 1'b1};
endmodule
`default_nettype wire
"""

MULTIPLIER = """\
`default_nettype none
module multiplier #(
    parameter integer COPIES = 2
) (
    input wire clk,
    input wire signed [26:0] a,
    input wire signed [18*COPIES-1:0] b,
    output reg signed [45*COPIES-1:0] product
);
  genvar i;
  generate
    for (i = 0; i < COPIES; i = i + 1) begin : g_copy
      wire signed [17:0] factor = b[18*i+:18];
      always @(posedge clk) product[45*i+:45] <= a * factor;
    end
  endgenerate
endmodule
`default_nettype wire
"""

REGISTERS = """\
property scalar_argument { component = reg; type = boolean; };
property memory_port { component = regfile; type = string; };
property kernel_version { component = addrmap; type = string; };
property memory_width { component = addrmap; type = longint unsigned; };
enum unit_mode { FAST = 1'd0; EXACT = 1'd1 { desc = "No rounding."; }; };
addrmap unit_registers {
  name = "Registers of the unit";
  kernel_version = "2.5";
  memory_width = 256;
  default regwidth = 32; default sw = rw; default hw = r;
  reg {
    field { onwrite = woset; hwclr; reset = 0; } ap_start[0:0];
    field { sw = r; onread = rclr; hwset; precedence = hw; reset = 0; } ap_done[1:1];
  } control @ 0x0;
  reg argument { field { reset = 0; } value[31:0]; };
  regfile { argument lo @ 0x0; argument hi @ 0x4; memory_port = "m_axi_data"; } address @ 0x10;
  reg { scalar_argument; field { reset = 0; encode = unit_mode; } value[0:0]; } mode @ 0x1C;
  reg { field { sw = r; hw = r; reset = 7; } value[31:0]; } revision @ 0x80;
};
"""


PAIR = """\
`default_nettype none
module pair (
    input wire clk,
    input wire signed [26:0] a,
    input wire signed [53:0] b,
    output wire signed [134:0] p,
    output wire signed [134:0] q
);
  multiplier #(.COPIES(3)) first (.clk(clk), .a(a), .b(b), .product(p));
  multiplier #(.COPIES(3)) second (.clk(clk), .a(~a), .b(b), .product(q));
endmodule
`default_nettype wire
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project with this repository's tools and one file list."""
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    (tmp_path / "rtl/unit").mkdir(parents=True)
    (tmp_path / "rtl/unit/counter.v").write_text(COUNTER)
    (tmp_path / "rtl/unit/unit.f").write_text("# one cell\nunit/counter.v  # the top\n")
    return tmp_path


def run_tool(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    script, *arguments = command
    return subprocess.run(
        [sys.executable, str(project / "tools" / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_test_files_have_names_of_their_own() -> None:
    """Pytest imports a test file by its name alone, so two of a name end a run of all tests."""
    names = Counter(path.name for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert names
    assert [name for name, count in names.items() if count > 1] == []


def test_file_list_gives_sources_in_order(project: Path) -> None:
    (project / "rtl/unit/multiplier.v").write_text(MULTIPLIER)
    file_list = project / "rtl/unit/unit.f"
    file_list.write_text("\n# cells\nunit/multiplier.v\n  unit/counter.v # the top\n")
    assert [source.name for source in read_file_list(file_list)] == ["multiplier.v", "counter.v"]
    assert all(source.is_absolute() for source in read_file_list(file_list))


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("unit/absent.v", FileNotFoundError, r"unit\.f:2: there is no file .*absent\.v"),
        ("unit/unit.f", ValueError, r"unit\.f:2: 'unit/unit\.f' is not a Verilog source"),
        ("unit/counter.v", ValueError, r"unit\.f:2: 'unit/counter\.v' is in the list already"),
    ],
)
def test_file_list_refuses(project: Path, line: str, error: type[Exception], message: str) -> None:
    file_list = project / "rtl/unit/unit.f"
    file_list.write_text(f"unit/counter.v\n{line}\n")
    with pytest.raises(error, match=message):
        read_file_list(file_list)


def test_lint_passes_clean_sources(project: Path) -> None:
    result = run_tool(project, "lint_rtl.py")
    assert result.returncode == 0, result.stdout
    assert "1 RTL files, 2 lint runs, 0 with findings" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("{{WIDTH - 1{1'b0}}, 1'b1}", "16'd1", "WIDTHEXPAND"),
        ("count <= {WIDTH{1'b0}}", "count = {WIDTH{1'b0}}", "BLKSEQ"),
        ("module counter", "module other", "module-filename"),
    ],
)
def test_lint_finds(project: Path, old: str, new: str, finding: str) -> None:
    source = project / "rtl/unit/counter.v"
    assert old in COUNTER
    source.write_text(COUNTER.replace(old, new))
    result = run_tool(project, "lint_rtl.py")
    assert result.returncode == 1
    assert finding in result.stdout


def test_lint_finds_a_source_in_no_list(project: Path) -> None:
    (project / "rtl/unit/multiplier.v").write_text(MULTIPLIER)
    result = run_tool(project, "lint_rtl.py")
    assert result.returncode == 1
    assert "rtl/unit/multiplier.v is in no file list" in result.stdout


def test_committed_registers_are_current() -> None:
    result = run_tool(REPOSITORY, "generate_registers.py", "--check")
    assert result.returncode == 0, result.stdout


def test_registers_are_generated_and_their_age_is_seen(project: Path) -> None:
    source = project / "overlays/unit/registers.rdl"
    source.parent.mkdir(parents=True)
    source.write_text(REGISTERS)
    block = project / "rtl/unit/generated/unit_registers.sv"
    constants = project / "host/fastdelta/registers/unit.py"

    assert run_tool(project, "generate_registers.py", "--check").returncode == 1
    assert not block.exists(), "--check must not write"
    assert run_tool(project, "generate_registers.py").returncode == 0
    assert run_tool(project, "generate_registers.py", "--check").returncode == 0

    namespace: dict[str, object] = {}
    exec(constants.read_text(), namespace)
    assert {r.name: r.value for r in namespace["Register"]} == {
        "CONTROL": 0x00,
        "ADDRESS_LO": 0x10,
        "ADDRESS_HI": 0x14,
        "MODE": 0x1C,
        "REVISION": 0x80,
    }
    assert namespace["CONTROL_AP_DONE"] == 0b10
    assert namespace["REVISION_VALUE"] == 7
    assert {code.name: code.value for code in namespace["Mode"]} == {"FAST": 0, "EXACT": 1}

    file_list = project / "rtl/unit/unit.f"
    file_list.write_text("unit/counter.v\nunit/generated/unit_registers.sv\n")
    lint = run_tool(project, "lint_rtl.py")
    assert lint.returncode == 0, lint.stdout

    source.write_text(REGISTERS.replace("address @ 0x10", "address @ 0x20"))
    stale = run_tool(project, "generate_registers.py", "--check")
    assert stale.returncode == 1
    assert "unit_registers.sv is stale; run 'make registers'" in stale.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unit_registers", "other_registers", "call it 'unit_registers'"),
        ("regwidth = 32", "regwidth = 33", "registers.rdl"),
    ],
)
def test_registers_refuse(project: Path, old: str, new: str, message: str) -> None:
    source = project / "overlays/unit/registers.rdl"
    source.parent.mkdir(parents=True)
    source.write_text(REGISTERS.replace(old, new))
    result = run_tool(project, "generate_registers.py")
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_synthesis_counts_multipliers(project: Path) -> None:
    (project / "rtl/unit/multiplier.v").write_text(MULTIPLIER)
    (project / "rtl/unit/unit.f").write_text("unit/counter.v\nunit/multiplier.v\n")
    result = run_tool(project, "synthesise.py", "unit", "--set", "COPIES=3", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["top"] == "multiplier"
    assert report["totals"]["DSP48E2"] == 3


def test_synthesis_adds_up_the_hierarchy(project: Path) -> None:
    """Two instances of a module with three multipliers: six in the top, three in the unit."""
    (project / "rtl/unit/multiplier.v").write_text(MULTIPLIER)
    (project / "rtl/unit/pair.v").write_text(PAIR)
    (project / "rtl/unit/unit.f").write_text("unit/multiplier.v\nunit/pair.v\n")
    result = run_tool(project, "synthesise.py", "unit", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    rows = {
        unit["name"]: (unit["instances"], unit["totals"]["DSP48E2"]) for unit in report["units"]
    }
    assert rows == {"pair": (1, 6), "multiplier": (2, 3)}
    assert report["totals"]["DSP48E2"] == 6


def test_a_decode_lane_needs_three_multipliers_and_block_memory() -> None:
    """A small slice of the lanes at full depth: 3 DSP48E2 a lane, the state in RAMB36E2."""
    shape = {"HEAD_DIM": 16, "ROWS": 512, "GROUPS": 32, "GROUP_WIDTH": 5}
    shape |= {"COLUMN_WIDTH": 4, "BEAT_WIDTH": 1}
    settings = [f"--set={name}={value}" for name, value in shape.items()]
    result = run_tool(
        REPOSITORY, "synthesise.py", "decode", "--top=decode_lanes", "--json", *settings
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["dsp_per_lane"] == 3
    assert report["units"][0]["cells"]["RAMB36E2"] == 6  # 16 * 27 bits, 72 bits each


def test_synthesis_reports_the_error(project: Path) -> None:
    result = run_tool(project, "synthesise.py", "unit", "--top", "absent")
    assert result.returncode == 1
    assert "Module `absent' not found" in result.stderr


def test_verilator_set_up_is_repeatable(tmp_path: Path) -> None:
    script = REPOSITORY / "tools/setup_verilator.sh"
    command = [str(script), str(tmp_path / "verilator"), sys.executable]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "is ready" in first.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["verilator"], "left-over files"

    verilator = tmp_path / "verilator/bin/verilator"
    version = subprocess.run([verilator, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("Verilator 5.048 ")
