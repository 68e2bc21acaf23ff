# SPDX-License-Identifier: Apache-2.0
"""`fastdelta report` at its small size: page and data, the same twice but for the times."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fastdelta.cli import app
from fastdelta.report.records import Kind

pytestmark = pytest.mark.timeout(900)  # the first test of a shape builds its kernel

KINDS = {kind.value for kind in Kind}


def report(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["report", "--size", "small", *arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Data and page of a report."""
    folder = tmp_path_factory.mktemp("report")
    report("--output", str(folder))
    record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return record, (folder / "index.html").read_text(encoding="utf-8")


def tables(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for section in record["sections"] for table in section["tables"]}


def column(table: dict[str, Any], name: str, kind: Kind | None = None) -> list[Any]:
    places = [
        place
        for place, head in enumerate(table["columns"])
        if head["name"] == name and kind in (None, head["kind"])
    ]
    return [row[places[0]] for row in table["rows"]]


def test_every_part_is_there(made: tuple[dict[str, Any], str]) -> None:
    record, _ = made
    assert [section["name"] for section in record["sections"]] == [
        "first-token",
        "prefill",
        "decode",
        "accuracy",
        "resources",
        "roofline",
        "not-claimed",
    ]
    assert {"first_token", "prefill", "decode", "int8_schemes", "state_formats"} <= set(
        tables(record)
    )


def test_every_figure_says_where_it_comes_from(made: tuple[dict[str, Any], str]) -> None:
    record, _ = made
    for table in tables(record).values():
        for head in table["columns"]:
            assert head["kind"] in KINDS
            assert bool(head["source"]) is (head["kind"] != Kind.LABEL)
    lines = [
        line
        for section in record["sections"]
        for picture in section["pictures"]
        for line in picture["lines"]
    ]
    assert len(lines) > 8
    assert all(line["kind"] in KINDS and line["source"] for line in lines)


def test_commands_are_those_of_the_program(made: tuple[dict[str, Any], str]) -> None:
    record, _ = made
    sources = {head["source"] for table in tables(record).values() for head in table["columns"]}
    commands = {source.split(" --")[0] for source in sources if source.startswith("fastdelta")}
    assert commands == {"fastdelta report", "fastdelta bench prefill", "fastdelta bench decode"}
    for command in commands:
        help_text = CliRunner().invoke(app, [*command.split()[1:], "--help"])
        assert help_text.exit_code == 0
    (decode,) = {s for s in sources if s.startswith("fastdelta bench decode")}
    again = CliRunner().invoke(app, [*decode.split()[1:], "--json", "-"])
    (cycles,) = column(tables(record)["decode"], "cycles per token", Kind.SIMULATED)
    assert json.loads(again.stdout)["cycles_per_token"] == cycles


def test_prefill_command_gives_the_figures_again(made: tuple[dict[str, Any], str]) -> None:
    record, _ = made
    table = tables(record)["prefill"]
    command = table["columns"][1]["source"].replace("SEED", str(table["rows"][0][0]))
    again = CliRunner().invoke(app, [*command.split()[1:], "--json", "-"])
    cycles = json.loads(again.stdout)["cycles"]
    assert [cycles["index"]] == column(table, "index cycles")
    assert [cycles["attention"]] == column(table, "attention cycles")


def test_figures_are_right(made: tuple[dict[str, Any], str]) -> None:
    record, _ = made
    found = tables(record)
    assert all(column(found["prefill"], "equal to the bit-exact model"))
    assert all(column(found["decode"], "equal to the bit-exact model"))
    assert all(ratio > 2 for ratio in column(found["int8_schemes"], "plain / this engine"))
    errors = dict(
        zip(
            column(found["state_formats"], "format of the state"),
            column(found["state_formats"], "error of the logits"),
            strict=True,
        )
    )
    fixed = [errors[f"fixed point, {bits} bits"] for bits in (27, 24, 18)]
    assert 0 < fixed[0] < fixed[1] < fixed[2]
    assert errors["BF16"] > 10 * fixed[1]
    assert all(ratio >= 1 for ratio in column(found["first_token"], "time without cache / with"))


def test_data_is_the_same_but_for_the_times(made: tuple[dict[str, Any], str]) -> None:
    record, _ = made
    again = json.loads(report("--json", "-").stdout)
    assert again.pop("timings").keys() == record["timings"].keys()
    assert again == {name: value for name, value in record.items() if name != "timings"}
    assert not re.search(r'"(seconds|time)\w*":', json.dumps(again))


class Links(HTMLParser):
    """Collects what a page would load, and its headings and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        loaded = values.get("src") or (values.get("href") if tag != "a" else None)
        if loaded and not loaded.startswith("#"):
            self.loads.append(loaded)


def test_page_needs_nothing_else(made: tuple[dict[str, Any], str]) -> None:
    record, page = made
    links = Links()
    links.feed(page)
    assert links.loads == []
    assert "script" not in links.tags
    pictures = sum(len(section["pictures"]) for section in record["sections"])
    assert links.tags.count("svg") == pictures
    for kind in (Kind.SIMULATED, Kind.MODELLED, Kind.SYNTHESISED, Kind.PAPER):
        assert f">{kind.value.replace(chr(39), '&#x27;')}</span>" in page


def test_unknown_size_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", "--size", "huge", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert "full, small" in result.output
