# SPDX-License-Identifier: Apache-2.0
"""Draw the datapaths of both kernels as SVG: ``docs/pictures/decode.svg`` and ``prefill.svg``.

``--check`` writes nothing and fails if a picture is not what this script draws.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
LINE = 17  # pixels of a line of text

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1b1f24; }
.name { font-weight: 600; } .small { font-size: 11.5px; fill: #424a53; }
.unit { fill: #ddf4ff; stroke: #0550ae; } .memory { fill: #fff8c5; stroke: #7d4e00; }
.port { fill: #f0f0f0; stroke: #57606a; } .arrays { fill: #dafbe1; stroke: #116329; }
.group { fill: none; stroke: #8c959f; stroke-dasharray: 5 4; }
.data { fill: none; stroke: #1b1f24; stroke-width: 1.6; marker-end: url(#head); }
.control { fill: none; stroke: #6639ba; stroke-width: 1.2; stroke-dasharray: 4 3;
  marker-end: url(#head); }
"""


@dataclass(frozen=True)
class Box:
    """A unit, memory or port: the first line of its text is its name."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    text: tuple[str, ...]

    def svg(self) -> str:
        """Return it as SVG."""
        corner = (
            f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" '
            f'height="{self.height}" rx="6"/>'
        )
        if self.kind == "group":
            name = escape(self.text[0])
            return f'{corner}<text class="small" x="{self.x + 8}" y="{self.y + 16}">{name}</text>'
        middle = self.x + self.width // 2
        first = self.y + (self.height - LINE * len(self.text)) // 2 + 13
        lines = "".join(
            f'<text class="{"small" if n else "name"}" x="{middle}" y="{first + n * LINE}" '
            f'text-anchor="middle">{escape(line)}</text>'
            for n, line in enumerate(self.text)
        )
        return corner + lines


@dataclass(frozen=True)
class Arrow:
    """A path through points, with a text near one of them."""

    kind: str
    points: tuple[tuple[int, int], ...]
    text: str = ""
    at: tuple[int, int] = (0, 0)

    def svg(self) -> str:
        """Return it as SVG."""
        path = " L".join(f"{x} {y}" for x, y in self.points)
        line = f'<path class="{self.kind}" d="M{path}"/>'
        if not self.text:
            return line
        x, y = self.at
        return f'{line}<text class="small" x="{x}" y="{y}">{escape(self.text)}</text>'


def picture(title: str, width: int, height: int, parts: Sequence[Box | Arrow]) -> str:
    """Return a whole picture."""
    body = "\n".join(part.svg() for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 Z" fill="#1b1f24"/></marker>'
        f'</defs>\n<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


DECODE = picture(
    "Datapath of the decode kernel",
    1040,
    600,
    [
        Box("port", 20, 70, 120, 60, ("m_axi_qk", "q, k: int16")),
        Box("port", 20, 250, 120, 60, ("m_axi_v", "v, gates, states")),
        Box("port", 900, 420, 120, 60, ("m_axi_o", "outputs, states")),
        Box("port", 20, 510, 120, 60, ("s_axi_control", "registers")),
        Box("unit", 170, 510, 200, 60, ("decode_control", "decode_sequencer")),
        Box("group", 170, 20, 690, 470, ("decode_core",)),
        Box("unit", 190, 60, 150, 80, ("decode_qk", "decode_normalise", "1 / norm, q . k")),
        Box("unit", 190, 170, 150, 60, ("decode_gates", "decay, beta")),
        Box("unit", 190, 250, 150, 60, ("decode_load", "states from memory")),
        Box("unit", 190, 420, 150, 60, ("decode_dump", "states to memory")),
        Box("group", 370, 45, 470, 350, ("decode_head_slot, one for each of H_ITER heads",)),
        Box("unit", 390, 75, 180, 60, ("decode_unit_vector", "k_i, q_i, pending kp_i")),
        Box(
            "memory",
            390,
            165,
            180,
            80,
            ("state X", "27 bits, d columns a row", "rows of all passes, contexts"),
        ),
        Box(
            "arrays",
            620,
            75,
            200,
            170,
            (
                "decode_lanes",
                "d lanes, three products each",
                "X = (X >> s) + kp up",
                "r += X k",
                "w += X q",
                "one row i a cycle",
            ),
        ),
        Box(
            "unit",
            620,
            290,
            200,
            90,
            ("decode_finish", "dv = beta (v - G g r)", "o = G g w + (q . k) dv", "up = dv / G"),
        ),
        Box("memory", 390, 300, 180, 70, ("v, decay, beta", "scale G, shift s", "of each head")),
        Box("unit", 640, 420, 180, 60, ("decode_output", "H_ITER heads to beats")),
        Arrow("data", ((140, 100), (190, 100))),
        Arrow("data", ((140, 280), (190, 280))),
        Arrow("data", ((140, 270), (165, 270), (165, 200), (190, 200))),
        Arrow("data", ((340, 100), (390, 100)), "q, k", (347, 94)),
        Arrow("data", ((340, 200), (360, 200), (360, 335), (390, 335)), "gates", (345, 194)),
        Arrow("data", ((340, 280), (375, 280), (375, 205), (390, 205)), "load", (343, 274)),
        Arrow("data", ((570, 105), (620, 105)), "k, q, kp", (573, 99)),
        Arrow("data", ((570, 190), (620, 190)), "row i", (580, 184)),
        Arrow("data", ((620, 225), (570, 225)), "write", (572, 240)),
        Arrow("data", ((720, 245), (720, 290)), "sums r, w", (726, 272)),
        Arrow("data", ((570, 335), (620, 335))),
        Arrow("data", ((620, 365), (600, 365), (600, 155), (620, 155)), "pending up", (528, 285)),
        Arrow("data", ((720, 380), (720, 420)), "o", (726, 404)),
        Arrow("data", ((820, 450), (900, 450))),
        Arrow("data", ((480, 245), (480, 262), (380, 262), (380, 450), (340, 450))),
        Arrow(
            "data", ((265, 480), (265, 498), (880, 498), (880, 465), (900, 465)), "dump", (280, 493)
        ),
        Arrow("control", ((140, 540), (170, 540))),
        Arrow(
            "control", ((370, 540), (610, 540), (610, 488)), "command, context, tokens", (385, 534)
        ),
    ],
)

PREFILL = picture(
    "Datapath of the prefill kernel",
    1080,
    700,
    [
        Box("port", 20, 60, 120, 50, ("m_axi_q", "queries")),
        Box("port", 20, 230, 120, 50, ("m_axi_k", "keys")),
        Box("port", 20, 300, 120, 50, ("m_axi_v", "values")),
        Box("port", 20, 470, 120, 50, ("m_axi_jobs", "job lists")),
        Box("port", 940, 560, 120, 50, ("m_axi_o", "outputs")),
        Box("port", 20, 620, 120, 50, ("s_axi_control", "registers")),
        Box("unit", 180, 620, 200, 50, ("prefill_control", "prefill_sequencer")),
        Box("unit", 180, 410, 200, 80, ("job_reader", "checks each record,", "jobs, visits, uses")),
        Box(
            "unit",
            180,
            510,
            200,
            90,
            (
                "index_generator",
                "block scores, divergence,",
                "thresholds, map: which",
                "blocks each query needs",
            ),
        ),
        Box("group", 170, 190, 220, 200, ("kv_cache",)),
        Box("unit", 190, 220, 180, 50, ("kv_directory", "exact uses left, free lines")),
        Box(
            "memory",
            190,
            285,
            180,
            85,
            ("K and V lines", "hot half, cold half;", "kv_stream: lines or memory"),
        ),
        Box("group", 430, 20, 630, 510, ("tile_engine",)),
        Box("unit", 450, 50, 180, 60, ("tile_loader, tile_issue", "buffers, slots, tasks")),
        Box(
            "memory",
            450,
            150,
            180,
            100,
            ("tile_operands", "Q slots, K and V buffers, P;", "one copy a server"),
        ),
        Box(
            "memory",
            450,
            300,
            180,
            80,
            ("block_parameters", "multipliers, exponents,", "shifts, sums of v"),
        ),
        Box(
            "arrays",
            690,
            50,
            350,
            130,
            (
                "matrix_unit",
                "STRIPS servers of ROW_ARRAYS arrays,",
                "32 x 32 INT8 products, INT32 sums",
                "half of the arrays in DSPs, half in LUTs",
                "a task: a strip of keys, or of channels",
            ),
        ),
        Box(
            "unit",
            690,
            230,
            160,
            130,
            (
                "tile_softmax",
                "scores in log2 units,",
                "greatest of each row,",
                "P: 8 bits relative",
                "to the row's exponent",
            ),
        ),
        Box("unit", 690, 410, 160, 60, ("row_statistics", "E, L of each row; shifts")),
        Box(
            "memory",
            880,
            230,
            160,
            130,
            ("keyed_accumulator", "A[slot][channel]", "48 bits, shifted,", "then added to"),
        ),
        Box("unit", 880, 410, 160, 60, ("attention_output", "A / L, 16 bits")),
        Arrow("data", ((140, 85), (450, 85), (450, 85)), "Q blocks, once a window", (180, 79)),
        Arrow("data", ((540, 110), (540, 150))),
        Arrow("data", ((140, 255), (165, 255), (165, 320), (190, 320)), "K", (146, 249)),
        Arrow("data", ((140, 340), (190, 340)), "V", (146, 334)),
        Arrow("data", ((370, 320), (410, 320), (410, 200), (450, 200)), "K, V", (415, 194)),
        Arrow("data", ((410, 320), (410, 340), (450, 340))),
        Arrow("data", ((630, 170), (660, 170), (660, 140), (690, 140)), "A, B", (634, 164)),
        Arrow("data", ((770, 180), (770, 230)), "Q K sums", (776, 208)),
        Arrow("data", ((960, 180), (960, 230)), "P V sums", (966, 208)),
        Arrow("data", ((690, 265), (650, 265), (650, 230), (630, 230)), "P", (660, 259)),
        Arrow("data", ((630, 340), (690, 340))),
        Arrow("data", ((770, 360), (770, 410)), "e, s", (776, 390)),
        Arrow("data", ((850, 430), (862, 430), (862, 300), (880, 300)), "shifts", (870, 384)),
        Arrow("data", ((850, 450), (880, 450))),
        Arrow("data", ((960, 360), (960, 410)), "A", (966, 390)),
        Arrow("data", ((960, 470), (960, 560))),
        Arrow(
            "data",
            ((690, 455), (420, 455), (420, 555), (380, 555)),
            "row sums of the last queries",
            (450, 449),
        ),
        Arrow("data", ((140, 480), (160, 480), (160, 450), (180, 450))),
        Arrow("data", ((180, 550), (160, 550), (160, 505), (140, 505)), "list", (143, 546)),
        Arrow("control", ((280, 410), (280, 390)), "visits", (286, 405)),
        Arrow("control", ((380, 430), (400, 430), (400, 70), (450, 70)), "jobs", (412, 384)),
        Arrow("control", ((140, 645), (180, 645))),
        Arrow(
            "control", ((380, 645), (640, 645), (640, 530)), "phases: index, attention", (400, 639)
        ),
    ],
)


def main() -> int:
    """Write the pictures, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description="Draw the datapaths of both kernels.")
    parser.add_argument("--check", action="store_true", help="fail if a picture is stale")
    arguments = parser.parse_args()
    stale = []
    for name, text in (("decode", DECODE), ("prefill", PREFILL)):
        file = PICTURES / f"{name}.svg"
        if not arguments.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(file.name)
    if stale:
        print(f"stale: {', '.join(stale)}; run python tools/draw_architecture.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
