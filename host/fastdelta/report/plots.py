# SPDX-License-Identifier: Apache-2.0
"""Pictures of a report as SVG, the same to the byte for the same figures."""

from __future__ import annotations

import io
from typing import Any

from fastdelta.errors import MissingToolError
from fastdelta.report.records import Kind, Line, Picture

# Kinds are told apart by marker and dash, not by colour alone.
_MARKERS = {
    Kind.SIMULATED: "o",
    Kind.MODELLED: "^",
    Kind.COMPUTED: "D",
    Kind.SYNTHESISED: "s",
    Kind.PAPER: "x",
    Kind.SHEET: "",
}
_DASHES = {Kind.PAPER: "--", Kind.MODELLED: "-.", Kind.SHEET: ":"}
_SIZE = (6.4, 3.8)  # inches


def draw(picture: Picture) -> str:
    """Return a picture as an SVG element.

    Raises
    ------
    MissingToolError
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingToolError(
            "pictures need matplotlib; install fastdelta[report], or write the JSON alone with "
            "--json"
        ) from error
    with mpl.rc_context(
        {"svg.hashsalt": picture.name, "svg.fonttype": "none", "font.family": "sans-serif"}
    ):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        bars = [line for line in picture.lines if line.style == "bars"]
        for line in picture.lines:
            if line.style == "bars":
                _draw_bars(axes, line, bars.index(line), len(bars))
            else:
                _draw_line(axes, line)
        axes.set(
            xlabel=picture.x_label,
            ylabel=picture.y_label,
            xscale=picture.x_scale,
            yscale=picture.y_scale,
        )
        if picture.x_ticks:
            axes.set_xticks(
                [place for place, _ in picture.x_ticks], [name for _, name in picture.x_ticks]
            )
            axes.minorticks_off()
        if bars:
            axes.set_ylim(0, 1.4 * max(y for line in bars for y in line.y))  # room for the legend
        axes.grid(visible=True, linewidth=0.4, alpha=0.5)
        axes.legend(fontsize="small", framealpha=0.8)
        output = io.StringIO()
        figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None})
    text = output.getvalue()
    return text[text.index("<svg") :]


def _draw_line(axes: Any, line: Line) -> None:
    name = f"{line.name} ({line.kind.value})"
    marker = _MARKERS.get(line.kind, "")
    if line.style == "points":
        axes.plot(line.x, line.y, linestyle="", marker=marker or "o", label=name)
        for x, y, label in zip(line.x, line.y, line.labels, strict=False):
            axes.annotate(label, (x, y), (4, 4), textcoords="offset points", fontsize="x-small")
    elif line.style == "limit":
        axes.plot(line.x, line.y, color="black", linewidth=1.0, linestyle=":", label=name)
    else:
        dashes = _DASHES.get(line.kind, "-")
        axes.plot(line.x, line.y, marker=marker, linestyle=dashes, label=name)


def _draw_bars(axes: Any, line: Line, number: int, count: int) -> None:
    width = 0.8 / count
    places = [x - 0.4 + (number + 0.5) * width for x in line.x]
    hatch = "//" if line.kind is Kind.PAPER else None
    axes.bar(places, line.y, width, label=f"{line.name} ({line.kind.value})", hatch=hatch)
