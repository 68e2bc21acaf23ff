# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: sections of tables and pictures, all of it plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

Value = float | int | str | bool | None


class Kind(StrEnum):
    """How figures came to be."""

    SIMULATED = "RTL-simulated"
    MODELLED = "modelled"
    COMPUTED = "computed in numpy"
    SYNTHESISED = "Yosys estimate"
    PAPER = "the paper's"
    SHEET = "data sheet"
    LABEL = "label"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name
        Its heading, with the unit.
    kind
        How its figures came to be.
    source
        The command that gives them again, or the table of a paper; empty for labels.
    decimals
        Digits after the point; None leaves integers and texts as they are.
    """

    name: str
    kind: Kind = Kind.LABEL
    source: str = ""
    decimals: int | None = None


@dataclass(frozen=True)
class Table:
    """A table; each row has a value for each column, None where there is none."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column in self.columns:
            if column.kind is not Kind.LABEL and not column.source:
                raise ValueError(f"column {column.name!r} of {self.name} names no source")
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of {self.name} has not {len(self.columns)} values")


@dataclass(frozen=True)
class Line:
    """Points of a picture, with how they came to be and what gives them again."""

    name: str
    kind: Kind
    source: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: str = "line"  # line, points, bars or limit
    labels: tuple[str, ...] = ()  # of its points


@dataclass(frozen=True)
class Picture:
    """Lines over common axes."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_scale: str = "linear"
    y_scale: str = "linear"
    x_ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Report:
    """All sections, what they were made with, and the times it took (the only part that varies)."""

    settings: dict[str, Any]
    versions: dict[str, str]
    sections: tuple[Section, ...]
    timings: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types, times apart under ``timings``."""
        record = asdict(self)
        return {"report": "fastdelta", **record}


def table_of(
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Value]],
    notes: Sequence[str] = (),
) -> Table:
    """Return a table of any sequences."""
    return Table(name, title, tuple(columns), tuple(tuple(row) for row in rows), tuple(notes))
