# SPDX-License-Identifier: Apache-2.0
"""Tables, pictures and page of a report, of made-up figures."""

from __future__ import annotations

import json

import pytest

from fastdelta.report import papers
from fastdelta.report.page import render_page
from fastdelta.report.plots import draw
from fastdelta.report.records import Column, Kind, Line, Picture, Report, Section, table_of
from fastdelta.report.sections import resources

TABLE = table_of(
    "made_up",
    "A <table>",
    [Column("what"), Column("cycles", Kind.SIMULATED, "run this"), Column("s", Kind.PAPER, "P", 1)],
    [["a & b", 1234, 2.345], ["c", None, None]],
    ["a note"],
)
PICTURE = Picture(
    "lines",
    "Lines",
    "x",
    "y",
    (
        Line("one", Kind.SIMULATED, "run this", (1.0, 2.0), (3.0, 4.0)),
        Line("two", Kind.PAPER, "P", (1.0, 2.0), (5.0, 6.0)),
        Line("three", Kind.MODELLED, "run this", (1.0,), (2.0,), "points", ("its label",)),
    ),
)


def page() -> str:
    section = Section("part", "A part", "Text.", (TABLE,), (PICTURE,))
    return render_page(Report({}, {"fastdelta": "1"}, (section,), {"part": 1.5}))


def test_page_escapes_and_formats() -> None:
    text = page()
    assert "A &lt;table&gt;" in text
    assert "<td>a &amp; b</td><td>1,234</td><td>2.3</td>" in text
    assert "<td>-</td>" in text
    assert "<code>run this</code>" in text
    assert "part 2 s" in text


def test_picture_is_the_same_twice() -> None:
    assert draw(PICTURE) == draw(PICTURE)
    assert "one (RTL-simulated)" in draw(PICTURE)
    assert draw(PICTURE).count("its label") == 1
    assert page() == page()


def test_a_figure_without_source_is_refused() -> None:
    with pytest.raises(ValueError, match="names no source"):
        table_of("t", "T", [Column("cycles", Kind.SIMULATED)], [[1]])
    with pytest.raises(ValueError, match="has not 1 values"):
        table_of("t", "T", [Column("cycles")], [[1, 2]])


def record(kernel: str, lut: int, **parameters: int) -> dict[str, object]:
    amounts = {"LUT": lut, "FF": 10, "DSP": 20, "BRAM36": 1.5, "URAM": 0}
    return {
        "kernel": kernel,
        "command": f"synthesise {kernel}",
        "flow": "made up",
        "parameters": parameters,
        "packed": ["lanes"] if kernel == "decode" else [],
        "totals": amounts,
        "units": [{"unit": "lanes", "instances": 8, **amounts}],
    }


def test_resources_say_what_breaks_the_limit() -> None:
    section = resources([record("decode", 1_200_000, H_ITER=8), record("prefill", 1000)])
    by_name = {table.name: table for table in section.tables}
    assert by_name["decode_resources"].notes == ("More than 80 % of the U55C: LUT.",)
    assert by_name["prefill_resources"].notes == ("Nothing is above 80 % of the U280.",)
    rows = {row[0]: row for row in by_name["decode_resources"].rows}
    assert rows["DSP"][3] == papers.DECODE_RESOURCES[8][1]
    assert rows["URAM"][3] is None
    assert by_name["decode_units"].rows[0][:3] == ("lanes", 8, 1_200_000)
    assert "restarts of lanes are packed" in by_name["decode_units"].notes[1]
    assert len(by_name["prefill_units"].notes) == 1


def test_record_is_json() -> None:
    section = Section("part", "A part", "Text.", (TABLE,), (PICTURE,))
    report = Report({}, {}, (section,), {"part": 1.5}).to_dict()
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again["timings"] == {"part": 1.5}
    assert again["sections"][0]["tables"][0]["columns"][1]["kind"] == "RTL-simulated"
