# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML page that needs nothing else: style and pictures are inside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fastdelta.report.plots import draw
from fastdelta.report.records import Column, Kind, Picture, Report, Section, Table, Value

_EXPLANATIONS = {
    Kind.SIMULATED: "cycles and counters of the RTL on the simulated card",
    Kind.MODELLED: "by fastdelta.reference.performance; its error against the RTL is stated",
    Kind.COMPUTED: "by the floating-point or the bit-exact reference, no cycles",
    Kind.SYNTHESISED: "by Yosys for UltraScale+, unit by unit; no placement, no clock",
    Kind.PAPER: "as printed in the paper, never measured here",
    Kind.SHEET: "of the card's data sheet",
}

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h1 { margin-bottom: 0; } h2 { border-bottom: 2px solid #d0d7de; margin-top: 2.5rem; }
nav a { margin-right: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: 14px; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid #d0d7de; padding: .25rem .5rem; text-align: right; white-space: nowrap; }
th { background: #f6f8fa; vertical-align: bottom; white-space: normal; max-width: 11rem; }
td:first-child, th:first-child { text-align: left; }
.kind { display: inline-block; border-radius: .6rem; padding: 0 .45rem; font-size: 11px;
  font-weight: 500; border: 1px solid; white-space: nowrap; }
.simulated { background: #dafbe1; color: #116329; }
.modelled { background: #ddf4ff; color: #0550ae; }
.computed { background: #fbefff; color: #6639ba; }
.synthesised { background: #fff8c5; color: #7d4e00; }
.paper { background: #ffebe9; color: #a40e26; } .sheet { background: #f0f0f0; color: #444; }
figure { margin: 1rem 0; display: inline-block; max-width: 100%; }
figcaption { font-weight: 600; }
figure svg { max-width: 100%; height: auto; }
.sources, .notes { font-size: 13px; color: #57606a; margin: .2rem 0 1rem; padding-left: 1.2rem; }
code { background: #f6f8fa; padding: 0 .25rem; }
"""


def render_page(report: Report) -> str:
    """Return the page of a report.

    Raises
    ------
    MissingToolError
        If matplotlib is not installed.
    """
    links = "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in report.sections)
    kinds = "".join(
        f"<li>{_badge(kind)} {escape(text)}</li>" for kind, text in _EXPLANATIONS.items()
    )
    versions = ", ".join(f"{name} {value}" for name, value in report.versions.items())
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in report.timings.items())
    body = "".join(_section(section) for section in report.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>fastdelta: figures</title><style>{_STYLE}</style></head><body>"
        "<h1>fastdelta: figures</h1>"
        "<p>Every column and every line says how its figures came to be, and what gives them "
        f"again.</p><nav>{links}</nav><ul>{kinds}</ul>{body}"
        f"<hr><p class=notes>{escape(versions)}. Time to make this page: {escape(seconds)}.</p>"
        "</body></html>\n"
    )


def _section(section: Section) -> str:
    tables = "".join(_table(table) for table in section.tables)
    pictures = "".join(_picture(picture) for picture in section.pictures)
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2>'
        f"<p>{escape(section.text)}</p>{tables}{pictures}</section>\n"
    )


def _badge(kind: Kind) -> str:
    return f'<span class="kind {kind.name.lower()}">{escape(kind.value)}</span>'


def _table(table: Table) -> str:
    heads = "".join(
        f"<th>{escape(c.name)}{'' if c.kind is Kind.LABEL else '<br>' + _badge(c.kind)}</th>"
        for c in table.columns
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{_value(value, column)}</td>"
            for value, column in zip(row, table.columns, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    sources = [(c.name, c.kind, c.source) for c in table.columns if c.kind is not Kind.LABEL]
    return (
        f'<div class="scroll"><table><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{_notes(table.notes)}{_sources(sources)}"
    )


def _picture(picture: Picture) -> str:
    sources = [(line.name, line.kind, line.source) for line in picture.lines]
    return (
        f"<figure><figcaption>{escape(picture.title)}</figcaption>{draw(picture)}</figure>"
        f"{_sources(sources)}"
    )


def _notes(notes: tuple[str, ...]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _sources(sources: Sequence[tuple[str, Kind, str]]) -> str:
    """List what gives figures, those with the same source together."""
    names: dict[tuple[Kind, str], list[str]] = {}
    for name, kind, source in sources:
        names.setdefault((kind, source), []).append(name)
    items = "".join(
        f"<li>{_badge(kind)} {escape('; '.join(dict.fromkeys(of)))}: "
        f"<code>{escape(source)}</code></li>"
        for (kind, source), of in names.items()
    )
    return f'<ul class="sources">{items}</ul>'


def _value(value: Value, column: Column) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and column.decimals is not None:
        return f"{value:,.{column.decimals}f}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else escape(value)
