# SPDX-License-Identifier: Apache-2.0
"""Synthesis unit by unit: instances, memories by the rule, linear extension, committed figures."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyosys
import pytest

from fastdelta.filelist import read_file_list
from fastdelta.report.build import synthesis
from fastdelta.report.papers import CARDS

REPOSITORY = Path(__file__).resolve().parents[2]


def load_tool() -> ModuleType:
    """Import the script."""
    path = REPOSITORY / "tools" / "synthesise_units.py"
    spec = importlib.util.spec_from_file_location("synthesise_units", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()

DESIGN = """\
`default_nettype none
module multiplier #(
    parameter WIDTH = 18
) (
    input wire clk,
    input wire signed [26:0] a,
    input wire signed [WIDTH-1:0] b,
    output reg signed [26+WIDTH:0] product
);
  always @(posedge clk) product <= a * b;
endmodule

module store #(
    parameter ROWS = 16,
    parameter WIDTH = 8,
    parameter ADDRESS = 4,
    parameter RAM_STYLE = "block"
) (
    input wire clk,
    input wire write,
    input wire [ADDRESS-1:0] address,
    input wire [WIDTH-1:0] data,
    output reg [WIDTH-1:0] found
);
  (* ram_style = RAM_STYLE *) reg [WIDTH-1:0] memory[0:ROWS-1];
  always @(posedge clk) begin
    if (write) memory[address] <= data;
    found <= memory[address];
  end
endmodule

module pair #(
    parameter WIDTH = 18
) (
    input wire clk,
    input wire signed [26:0] a,
    input wire signed [WIDTH-1:0] b,
    output wire signed [26+WIDTH:0] x,
    output wire signed [26+WIDTH:0] y
);
  multiplier #(.WIDTH(WIDTH)) one (.clk(clk), .a(a), .b(b), .product(x));
  multiplier #(.WIDTH(WIDTH)) two (.clk(clk), .a(~a), .b(b), .product(y));
endmodule

module demo_kernel #(
    parameter PAIRS = 2
) (
    input wire clk,
    input wire write,
    input wire [12:0] address,
    input wire [511:0] data,
    output wire [511:0] found,
    output wire [71:0] small_found,
    input wire signed [26:0] a,
    input wire signed [17:0] b,
    output wire signed [45*PAIRS-1:0] x,
    output wire signed [45*PAIRS-1:0] y
);
  store #(.ROWS(8192), .WIDTH(512), .ADDRESS(13), .RAM_STYLE("ultra")) large (
      .clk(clk), .write(write), .address(address), .data(data), .found(found));
  store #(.ROWS(512), .WIDTH(72), .ADDRESS(9)) small (
      .clk(clk), .write(write), .address(address[8:0]), .data(data[71:0]), .found(small_found));
  genvar n;
  generate
    for (n = 0; n < PAIRS; n = n + 1) begin : g_pair
      pair pair (.clk(clk), .a(a), .b(b), .x(x[45*n+:45]), .y(y[45*n+:45]));
    end
  endgenerate
endmodule
`default_nettype wire
"""


@pytest.fixture
def design(tmp_path: Path) -> Path:
    file = tmp_path / "demo_kernel.v"
    file.write_text(DESIGN)
    return file


@pytest.mark.timeout(300)
def test_units_are_multiplied_by_their_instances(design: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    units = tool.synthesise_kernel([design], "demo_kernel", {"PAIRS": 3}, cache)
    found = {unit.name: unit for unit in units}
    assert {name: unit.instances for name, unit in found.items()} == {
        "demo_kernel": 1,
        "store": 2,
        "pair": 3,
        "multiplier": 6,
    }
    assert found["multiplier"].resources["DSP"] == 6
    assert found["pair"].resources["DSP"] == 0, "a unit's parts are counted apart"
    # 8,192 rows of 512 bits are 2 by 8 URAM, as they ask for; 512 rows of 72 bits are one BRAM36.
    assert found["store"].resources["URAM"] == 16
    assert found["store"].resources["BRAM36"] == 1
    began = {file: file.stat().st_mtime_ns for file in cache.glob("*.json")}
    assert [vars(u) for u in tool.synthesise_kernel([design], "demo_kernel", {"PAIRS": 3}, cache)]
    assert began == {file: file.stat().st_mtime_ns for file in cache.glob("*.json")}


@pytest.mark.timeout(300)
def test_only_what_changed_is_mapped_again(design: Path, tmp_path: Path) -> None:
    cache, other = tmp_path / "cache", tmp_path / "other" / "demo_kernel.v"
    tool.synthesise_kernel([design], "demo_kernel", {}, cache)
    before = set(cache.glob("*.json"))
    other.parent.mkdir()
    other.write_text("// moved\n" + DESIGN.replace("product <= a * b", "product <= a * b + 1'b1"))
    tool.synthesise_kernel([other], "demo_kernel", {}, cache)
    after = set(cache.glob("*.json"))
    assert before < after
    assert len(after - before) == 1, "the multiplier alone"


def test_an_error_of_yosys_is_told(design: Path, tmp_path: Path) -> None:
    design.write_text(DESIGN.replace("module store", "module shop"))
    with pytest.raises(RuntimeError, match="store"):
        tool.synthesise_kernel([design], "demo_kernel", {}, tmp_path)


def test_memories_are_counted_by_their_size() -> None:
    memory = tool.Memory
    assert memory("m", 512, 512).bram36() == 7.5
    assert memory("m", 1024, 18).bram36() == 0.5
    assert memory("m", 128, 8, reads=2).bram36() == 1
    assert memory("m", 4096, 6144, ultra=True).uram() == 86
    assert memory("m", 4096, 6144, ultra=True).bram36() == 0
    assert memory("m", 4096, 6144).uram() == 0
    assert memory("m", 4096, 6144).bram36() == 683


def test_cells_are_extended_linearly() -> None:
    low, high = {"LUT6": 100, "FDRE": 32, "CARRY4": 7}, {"LUT6": 180, "FDRE": 64, "DSP48E2": 4}
    extended = tool.extend(low, high, 2, 4, 32)
    assert extended == {"LUT6": 100 + 40 * 30, "FDRE": 512, "CARRY4": 0, "DSP48E2": 60}
    assert tool.extend(low, high, 2, 4, 4) == {**high, "CARRY4": 0}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_extension_foretells_a_larger_array(tmp_path: Path) -> None:
    """What 2 and 4 rows say of 8 is what 8 rows take."""
    sources = read_file_list(REPOSITORY / "rtl" / "prefill" / "prefill.f")
    parameters = {"ROWS": 8, "COLUMNS": 2, "COLUMN_WIDTH": 1, "LUT": 1}
    told = tool.extended("mac_array", parameters, sources, tmp_path)
    own = [source for source in sources if source.stem == "mac_array"]
    design = tool.elaborate(own, "mac_array", parameters, tmp_path)
    (module,) = design.values()
    real = tool.synthesise_modules([module], design, tmp_path)[module.name]
    for kind in ("FF", "DSP", "BRAM36"):
        assert told.resources()[kind] == real.resources()[kind]
    assert told.resources()["LUT"] == pytest.approx(real.resources()["LUT"], rel=0.05)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_lanes_of_a_small_decode_kernel(tmp_path: Path) -> None:
    sizes = {"HEAD_DIM": 16, "QK_HEADS": 2, "GROUP_RATIO": 2, "H_ITER": 2, "BUS_WIDTH": 128}
    sources = read_file_list(REPOSITORY / "rtl" / "decode" / "decode.f")
    units = tool.synthesise_kernel(sources, "decode_kernel", sizes, tmp_path, only="decode_lanes")
    record = tool.record_of("decode", units, sizes, "a command")
    (lanes,) = record["units"]
    assert lanes["instances"] == 2
    assert lanes["DSP"] == 3 * 16 * 2, "three multipliers a lane"
    assert lanes["FF"] > 2 * 16 * (27 + 2 * 48), "a lane keeps its state word and two sums"
    check_sums(record)


BENCH = """\
module bench;
  reg clk = 0, rst_n = 0, valid = 0, first = 0, last = 0, read = 0;
  reg [15:0] a = 0;
  reg [15:0] b = 0;
  reg column = 0;
  wire [63:0] expected, found;
  integer n, bad = 0, seen = 0;
  mac_array #(.ROWS(2), .COLUMNS(2), .COLUMN_WIDTH(1), .SUM_WIDTH(24), .LUT(FORM)) rtl (
      clk, rst_n, valid, first, last, a, b, read, column, expected);
  mapped netlist (
      .clk(clk), .rst_n(rst_n), .step_valid(valid), .step_first(first), .step_last(last),
      .a(a), .b(b), .drain_read(read), .drain_column(column), .drain_sums(found));
  always #5 clk = ~clk;
  initial begin
    repeat (5) @(negedge clk);
    rst_n = 1;
    for (n = 0; n < 5000; n = n + 1) begin
      @(negedge clk);
      if (n > 200) begin
        if (expected !== found) bad = bad + 1;
        if (^expected !== 1'bx && expected != 0) seen = seen + 1;
      end
      valid = ($random & 3) != 0;
      first = ($random & 15) == 0 || n < 20;
      last = ($random & 7) == 0;
      a = $random;
      b = $random;
      if (($random & 3) == 0) a[7:0] = 8'h80;
      if (($random & 3) == 0) b[7:0] = 8'h80;
      read = $random;
      column = $random;
    end
    $display("%0d bad of %0d", bad, seen);
    $finish;
  end
endmodule
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", [0, 1], ids=["dsp", "lut"])
def test_mapped_array_computes_the_same(form: int, tmp_path: Path) -> None:
    """The cells that are counted, in Yosys' own models of them, are the array cycle by cycle."""
    source = REPOSITORY / "rtl" / "prefill" / "mac_array.v"
    flow = tool.flow_command(packed=True)
    sizes = f"-set ROWS 2 -set COLUMNS 2 -set COLUMN_WIDTH 1 -set SUM_WIDTH 24 -set LUT {form}"
    script = [
        f"read_verilog {source}",
        f"chparam {sizes} mac_array",
        "hierarchy -check -top mac_array",
        f"{flow} begin:coarse",
        *tool.PACKING,
        "setparam -unset AMULTSEL -unset BMULTSEL t:DSP48E1",  # unknown to the older cell
        f"{flow} coarse:check",
        "select -assert-count 0 t:$*",
        f"select -assert-count {0 if form else 4} t:DSP48E1",
        f"select -assert-{'min 1' if form else 'none'} t:CARRY4",
        "rename mac_array mapped",
        f"write_verilog -noattr {tmp_path / 'netlist.v'}",
    ]
    tool.run_yosys("\n".join(script) + "\n", tmp_path, "netlist")
    bench = tmp_path / "bench.v"
    bench.write_text(BENCH.replace("FORM", str(form)))
    models = Path(pyosys.__file__).parent / "share" / "xilinx" / "cells_sim.v"
    files = [str(file) for file in (bench, source, tmp_path / "netlist.v", models)]
    program = str(tmp_path / "bench")
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", program, *files], check=True)
    told = subprocess.run(["vvp", program], check=True, capture_output=True, text=True).stdout
    bad, seen = map(int, re.findall(r"\d+", told.splitlines()[-1]))
    assert bad == 0, told
    assert seen > 3000, told


def test_one_unit_of_the_figures_is_renewed() -> None:
    rows = [
        {"unit": name, "instances": 1, **dict.fromkeys(tool.RESOURCES, number)}
        for name, number in (("large", 9), ("mac_array", 5), ("small", 1))
    ]
    record = {"parameters": {"A": 1}, "flow": "a flow", "units": rows, "totals": {}}
    new = tool.Unit("mac_array", 12, dict.fromkeys(tool.RESOURCES, 30))
    found = tool.renewed(record, new, {"A": 1})
    assert [row["unit"] for row in found["units"]] == ["mac_array", "large", "small"]
    assert found["units"][0]["instances"] == 12
    assert found["totals"] == dict.fromkeys(tool.RESOURCES, 40)
    assert found["packed"] == ["mac_array"]
    assert found["flow"] == "a flow"
    for other, parameters in (("unknown", {"A": 1}), ("mac_array", {"A": 2})):
        with pytest.raises(ValueError, match="the figures have other parameters"):
            tool.renewed(record, tool.Unit(other), parameters)


def check_sums(record: dict[str, Any]) -> None:
    for kind, total in record["totals"].items():
        assert total == sum(unit[kind] for unit in record["units"])


@pytest.mark.parametrize(("kernel", "card"), [("decode", "U55C"), ("prefill", "U280")])
def test_committed_figures(kernel: Any, card: str) -> None:
    record = synthesis(kernel)
    check_sums(record)
    names = Counter(unit["unit"] for unit in record["units"])
    modules = {file.stem for file in read_file_list(REPOSITORY / "rtl" / kernel / f"{kernel}.f")}
    assert set(names) == modules
    assert max(names.values()) == 1
    assert record["command"].startswith(f"python tools/synthesise_units.py {kernel}")
    shares = {kind: total / CARDS[card][kind] for kind, total in record["totals"].items()}
    assert max(shares.values()) <= 0.8, "the shell and the router need the rest"
    assert json.dumps(record, allow_nan=False)


def test_lanes_have_three_multipliers() -> None:
    record = synthesis("decode")
    (lanes,) = (unit for unit in record["units"] if unit["unit"] == "decode_lanes")
    assert lanes["DSP"] == 3 * 128 * record["parameters"]["H_ITER"]
    assert lanes["instances"] == record["parameters"]["H_ITER"]


def test_matrix_unit_is_half_dsp() -> None:
    record = synthesis("prefill")
    (arrays,) = (unit for unit in record["units"] if unit["unit"] == "mac_array")
    assert arrays["instances"] == 12
    assert arrays["DSP"] == 6 * 32 * 32
