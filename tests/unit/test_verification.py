# SPDX-License-Identifier: Apache-2.0
"""Parts of the bench that need no simulation: rules of bursts, throttles, memory, coverage."""

import json
import random
from pathlib import Path

import pytest

from fastdelta_verif.agents.axi4_memory import INCR, Memory, burst_fault
from fastdelta_verif.agents.handshake import CLOSED, THROTTLES, HandshakeChecker, Throttle
from fastdelta_verif.build import REPOSITORY, BuildError, Design, build, needed_sources, top_ports
from fastdelta_verif.coverage import (
    CodePoints,
    Exclusion,
    ModuleCoverage,
    load_exclusions,
    merge,
    missing_bins,
    percentage,
    read_code_coverage,
    summarise,
)


@pytest.mark.parametrize("length", range(1, 10))
@pytest.mark.parametrize("address", range(0x0FFC, 0x1005, 4))
def test_burst_around_a_page_is_judged_by_its_first_and_last_byte(
    address: int, length: int
) -> None:
    last = address + 4 * length - 1
    assert bool(burst_fault(address, length, 4)) == (address // 4096 != last // 4096)


@pytest.mark.parametrize(
    ("address", "beats", "beat_bytes", "rule"),
    [
        (0x0010, 512, 16, "512 beats"),
        (0x0010, 0, 16, "0 beats"),
        (0x0F00, 16, 16, ""),  # ends on the page
        (0x0F10, 16, 16, "cross a 4 KiB page"),
        (0x0000, 64, 64, ""),
        (0x0040, 64, 64, "cross a 4 KiB page"),
        (0x0008, 1, 16, "not a multiple"),
    ],
)
def test_rules_of_bursts(address: int, beats: int, beat_bytes: int, rule: str) -> None:
    fault = burst_fault(address, beats, beat_bytes)
    assert (rule in fault) if rule else not fault


def test_rules_of_burst_size_and_kind() -> None:
    assert not burst_fault(0, 1, 64, size=6, burst=INCR)
    assert "AxSIZE" in burst_fault(0, 1, 64, size=5, burst=INCR)
    assert "AxBURST" in burst_fault(0, 1, 64, size=6, burst=0)


def test_memory_refuses_what_is_outside() -> None:
    memory = Memory()
    region = memory.add("buffer", 0x1000, bytes(range(64)))
    assert memory.read(0x1010, 16) == bytes(range(16, 32))
    assert memory.write(0x1000, b"\xff" * 16, 0b101)
    assert region.data[:4] == bytes([0xFF, 1, 0xFF, 3])
    assert memory.write(0x2000, b"\xff" * 16, 0), "a beat that writes no byte touches nothing"
    assert not memory.violations
    assert memory.read(0x1038, 16) is None
    assert not memory.write(0x0FF8, b"\xff" * 16, 1)
    assert len(memory.violations) == 2
    with pytest.raises(ValueError, match="overlaps"):
        memory.add("other", 0x103F, b"\x00")


@pytest.mark.parametrize(("mode", "low", "high"), [("none", 1, 1), ("light", 0.8, 0.95)])
def test_throttle_has_its_rate(mode: str, low: float, high: float) -> None:
    throttle = Throttle(random.Random(1), mode)
    rate = sum(throttle.willing() for _ in range(4000)) / 4000
    assert low <= rate <= high


@pytest.mark.parametrize("mode", THROTTLES)
def test_throttle_always_goes_on(mode: str) -> None:
    throttle = Throttle(random.Random(2), mode)
    assert any(throttle.willing() for _ in range(1000))
    throttle.mode = CLOSED
    assert not any(throttle.willing() for _ in range(1000))


def test_throttle_refuses_an_unknown_mode() -> None:
    with pytest.raises(ValueError, match="allowed are none, light"):
        Throttle(random.Random(3), "often").willing()


def test_handshake_rules() -> None:
    checker = HandshakeChecker("port")
    checker.check(True, True, 1)
    checker.check(True, False, 2)
    checker.check(True, False, 2)
    checker.check(True, True, 2)
    checker.check(False, False, None)
    checker.check(True, False, 3)
    with pytest.raises(AssertionError, match="payload changed while waiting, from 0x3 to 0x4"):
        checker.check(True, True, 4)
    checker.forget()
    checker.check(True, False, 5)
    with pytest.raises(AssertionError, match="valid was withdrawn"):
        checker.check(False, True, None)


def test_coverage_merges(tmp_path: Path) -> None:
    hits = [{"a": {"x": 1, "y": 0}}, {"a": {"x": 2, "y": 0}, "b": {"z": 1}}]
    files = [tmp_path / f"{index}.json" for index in range(len(hits))]
    for file, part in zip(files, hits, strict=True):
        file.write_text(json.dumps(part))
    merged = merge(files)
    assert merged == {"a": {"x": 3, "y": 0}, "b": {"z": 1}}
    assert missing_bins(merged) == ["a: y"]
    assert percentage(merged) == pytest.approx(100 * 2 / 3)


def code_point(module: str, kind: str, line: int, comment: str, count: int) -> str:
    fields = {"f": f"{module}.v", "l": str(line), "n": "5", "t": kind, "o": comment}
    key = "".join(f"\x01{name}\x02{value}" for name, value in fields.items())
    return f"C '{key}' {count}\n"


def test_code_coverage_adds_simulations(tmp_path: Path) -> None:
    cell, other = str(tmp_path / "rtl/common/cell"), str(tmp_path / "verif/stand_in")
    first = code_point(cell, "line", 2, "block", 3) + code_point(cell, "line", 3, "if", 0)
    second = code_point(cell, "line", 2, "block", 0) + code_point(cell, "line", 3, "if", 4)
    bits = [code_point(cell, "toggle", 1, f"a[{bit}]:0->1", bit) for bit in range(3)]
    (tmp_path / "a.dat").write_text("# head\n" + first + code_point(other, "line", 1, "if", 1))
    (tmp_path / "b.dat").write_text("# head\n" + second + "".join(bits))
    points = CodePoints()
    for file in ("a.dat", "b.dat"):
        points.add(read_code_coverage(tmp_path / file, tmp_path / "rtl"))
    toggles = {"a[0]:0->1": 0, "a[1]:0->1": 1, "a[2]:0->1": 2}
    lines = {"2.5 block": 3, "3.5 if": 4}
    assert points.modules == {"common/cell": {"line": lines, "toggle": toggles}}
    (tmp_path / "a.dat").write_text(first[:-1])
    with pytest.raises(ValueError, match="cut off"):
        read_code_coverage(tmp_path / "a.dat", tmp_path / "rtl")


def test_exclusions_stand_for_points_that_were_not_reached(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common/cell.v").write_text("module cell;\nif (never) stop;\nelse go;\nendmodule")
    lines = {"2.5 if": 0, "3.5 else": 0}
    bits = {"a[0]:0->1": 0, "b[0]:0->1": 1}
    points = CodePoints({"common/cell": {"line": lines, "toggle": bits}})
    exclusions = [
        Exclusion("common/cell", "line", r"never", "it is never so"),
        Exclusion("common/cell", "toggle", r"^b\[", "thought to be constant"),
        Exclusion("common/cell", "toggle", r"^c\[", "removed since"),
        Exclusion("common/other", "line", r".", "not in this run"),
    ]
    summary, wrong = summarise(points, exclusions, tmp_path)
    assert summary["common/cell"]["line"] == ModuleCoverage(0, 1, 1, ["3.5 else: else go;"])
    assert summary["common/cell"]["toggle"] == ModuleCoverage(1, 2, 0, ["a[0]:0->1"])
    assert wrong == [
        "common/cell toggle '^b\\[' stands for only reached points",
        "common/cell toggle '^c\\[' stands for no point",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "line"\nreason = ""', "there is no reason"),
        ('kind = "expression"\nreason = "because"', "none of"),
        ('kind = "line"', "reason"),
    ],
)
def test_exclusion_without_a_reason_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "exclusions.toml"
    file.write_text(f'[[exclusion]]\nmodule = "a"\npoints = "b"\n{text}\n')
    with pytest.raises(ValueError, match=message):
        load_exclusions(file)


def test_exclusions_of_the_project_are_well_formed() -> None:
    for exclusion in load_exclusions():
        assert list((REPOSITORY / "rtl").glob(f"{exclusion.module}.*v")), exclusion


def test_sources_are_those_that_the_top_uses(tmp_path: Path) -> None:
    texts = {
        "leaf": "module leaf; endmodule",
        "unused": "module unused; endmodule",
        "top": "module top; leaf one (); endmodule",
    }
    sources = [tmp_path / f"{name}.v" for name in texts]
    for source, text in zip(sources, texts.values(), strict=True):
        source.write_text(text)
    assert [path.stem for path in needed_sources("top", sources)] == ["leaf", "top"]


PORTS = """\
module ports #(
    parameter integer W = 8  // bits (of a beat)
) (
    input  wire         clk,  // the clock, of course
    input  wire [W-1:0] a,
    input  wire [W-1:0] b,
    output reg  [W-1:0] sum
);
  always @(posedge clk) sum <= a + b;
endmodule
"""


def test_ports_of_a_top(tmp_path: Path) -> None:
    source = tmp_path / "ports.v"
    source.write_text(PORTS)
    assert top_ports(source, "ports") == ["clk", "a", "b", "sum"]
    with pytest.raises(BuildError, match="no module other"):
        top_ports(source, "other")


@pytest.mark.sim
def test_a_refused_design_says_why(tmp_path: Path) -> None:
    source = tmp_path / "ports.v"
    source.write_text(PORTS.replace("a + b", "a + missing"))
    with pytest.raises(BuildError, match="missing"):
        build(Design("ports", (source,), {"W": 4}))


@pytest.mark.sim
@pytest.mark.parametrize(("simulator", "model"), [("verilator", "ports"), ("icarus", "sim.vvp")])
def test_a_build_keeps_only_its_model(tmp_path: Path, simulator: str, model: str) -> None:
    source = tmp_path / "ports.v"
    source.write_text(PORTS)
    folder = build(Design("ports", (source,), {"W": 4}, simulator))
    assert {path.name for path in folder.iterdir()} == {model, "build.log", "complete"}
