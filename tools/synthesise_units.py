# SPDX-License-Identifier: Apache-2.0
"""Synthesise a whole kernel for UltraScale+, each of its units once, out of context, with Yosys.

The kernel is elaborated with its real parameters, then every distinct unit is mapped alone, its
parts as black boxes, and multiplied by its instances. Nothing is optimised across units.

- DSP is the number of DSP48E2 cells that Yosys infers.
- LUT is what Yosys' mapping needs, LUTs used as memory or shift register included; it moves by
  some 40 % with details of the flow. Yosys packs no register, adder or accumulator into a DSP48E2
  of this family, so LUT and FF are upper bounds where a product is summed. In the units of `PACKED`
  its pass for the DSP48E1 of the 7 series packs them: all that it uses, a DSP48E2 has alike. Wide
  selections of these units end in multiplexers of the slices, which are no LUTs: MUXF7, MUXF8 and
  MUXF9, which Yosys calls MUXF8 as well.
- A memory of 128 rows or more is counted by its size: where the attribute ram_style says ultra, as
  URAM288 of 4,096 rows by 72 bits, else as BRAM36 in halves, in the best of their shapes; once for
  each read port. Smaller ones, and tables, are as Yosys infers them.
- A unit of many equal rows (`REPEATED`) is mapped with few, twice, and extended linearly.
- There is no clock estimate, placement, routing, memory controller or shell in them.

Units are mapped in processes of their own; results are kept in ``build/synthesis`` under a hash of
what went into them, so that a second run only maps what has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastdelta.filelist import read_file_list
from fastdelta.report.papers import CARDS

REPOSITORY = Path(__file__).resolve().parents[1]
CACHE = REPOSITORY / "build" / "synthesis"
FLOW = 2  # part of the hash: another way of mapping makes older results stale

BATCH_CHARACTERS = 300_000  # of RTLIL: smaller modules share a process
BATCH = 24
COUNTED = "counted_memory"  # what such a memory is called until it is counted
MEMORY_SIZES = ("SIZE", "WIDTH", "RD_PORTS")
RULE_ROWS = 128  # memories from here on are counted by the rule
BRAM_ROWS = {72: 512, 36: 1024, 18: 2048, 9: 4096, 4: 8192, 2: 16_384, 1: 32_768}
URAM_ROWS = 4096
URAM_WIDTH = 72

REPEATED = {
    "decode_lanes": (("HEAD_DIM",), 16, 32),
    "mac_array": (("ROWS",), 2, 4),
    "block_parameters": (("BUS_WIDTH", "BLOCK", "HEAD_DIM"), 64, 128),
    "tile_softmax": (("BLOCK",), 8, 16),
    "keyed_accumulator": (("BLOCK",), 8, 16),
}
"""Units of equal rows: the parameter that counts these, with others that grow in proportion to it,
and the two numbers of rows that are mapped."""

PACKED = frozenset({"mac_array"})
"""Units with registers, sums and restarts packed into their DSPs, and with wide multiplexers."""

PACKING = ("chtype -set DSP48E1 t:DSP48E2", "xilinx_dsp -family xc7")
"""What packs; from here on, cells are called DSP48E1."""

LUT_CELLS = {"LUT": 1} | {f"LUT{inputs}": 1 for inputs in range(1, 7)}
LUT_MEMORY_CELLS = {
    "SRL16E": 1,
    "SRLC16E": 1,
    "SRLC32E": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32X16DR8": 8,
    "RAM64X8SW": 8,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
}
REGISTER_CELLS = {"FF", "FDRE", "FDSE", "FDCE", "FDPE"}
RESOURCES = ("LUT", "FF", "DSP", "BRAM36", "URAM")


@dataclass(frozen=True)
class Memory:
    """A large memory of a unit: rows, bits of a row, read ports, and whether it is of URAM."""

    name: str
    rows: int
    width: int
    reads: int = 1
    ultra: bool = False

    def uram(self) -> int:
        """URAM288 that it takes."""
        if not self.ultra:
            return 0
        return self.reads * -(-self.width // URAM_WIDTH) * -(-self.rows // URAM_ROWS)

    def bram36(self) -> float:
        """BRAM36 that it takes, in halves, by the best of the shapes that these have."""
        if self.uram():
            return 0.0
        counts = []
        for bits in BRAM_ROWS:
            rows = BRAM_ROWS[bits]
            full, rest = divmod(self.width, bits)
            columns = full + (0.0 if rest == 0 else 0.5 if rest <= bits // 2 else 1.0)
            counts.append(columns * -(-self.rows // rows))
        return self.reads * min(counts)


@dataclass(frozen=True)
class Module:
    """An elaborated module: RTLIL of it and of its ports, parts, and left-out parts."""

    name: str
    text: str
    ports: str
    parts: Counter[str]
    repeated: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()


@dataclass(frozen=True)
class Mapped:
    """What one instance of a module takes: cells, and memories that are counted by the rule."""

    cells: dict[str, int]
    memories: tuple[Memory, ...] = ()

    def resources(self) -> dict[str, float]:
        """Return LUT, FF, DSP, BRAM36 and URAM."""
        lut_like = LUT_CELLS | LUT_MEMORY_CELLS
        cells, memories = self.cells, self.memories
        inferred = cells.get("RAMB36E2", 0) + cells.get("RAMB18E2", 0) / 2
        return {
            "LUT": sum(count * lut_like.get(kind, 0) for kind, count in cells.items()),
            "FF": sum(count for kind, count in cells.items() if kind in REGISTER_CELLS),
            "DSP": cells.get("DSP48E2", 0),
            "BRAM36": inferred + sum(memory.bram36() for memory in memories),
            "URAM": cells.get("URAM288", 0) + sum(memory.uram() for memory in memories),
        }


@dataclass
class Unit:
    """Modules of one name: their instances in the kernel, and what all of these take."""

    name: str
    instances: int = 0
    resources: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RESOURCES, 0))

    def add(self, count: int, mapped: Mapped) -> None:
        """Add instances of one module, without their parts."""
        self.instances += count
        for kind, number in mapped.resources().items():
            self.resources[kind] += count * number


def run_yosys(script: str, folder: Path, name: str) -> None:
    """Run a Yosys script in a process of its own, as an error ends the process.

    Raises
    ------
    RuntimeError
        Yosys stopped with an error; the message ends with its last lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.ys"
    file.write_text(script)
    program = "import sys; from pyosys import libyosys as y; y.run_pass(sys.argv[1], y.Design())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, f"script {file}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its mapper is a process of its own
            process.wait()
    if process.returncode != 0:
        tail = "\n".join(output.splitlines()[-15:])
        raise RuntimeError(f"{name}: Yosys stopped:\n{tail}")


def elaborate(
    sources: Iterable[Path],
    top: str,
    parameters: Mapping[str, int],
    folder: Path,
    repeated: Iterable[str] = (),
) -> dict[str, Module]:
    """Return the modules of a design by name, with the parameters that they have in it.

    Modules named in `repeated` are black boxes; the modules that use them say with what parameters.
    """
    output = folder / f"{top}.il"
    changes = "".join(f" -set {name} {value}" for name, value in parameters.items())
    left_out = set(repeated)

    def read(source: Path) -> str:
        options = " -sv" * (source.suffix == ".sv") + " -lib" * (source.stem in left_out)
        return f"read_verilog{options} {source}"

    commands = [
        *map(read, sources),
        # `hierarchy -chparam` fails an assertion of Yosys 0.70 where a module is processed twice.
        *([f"chparam{changes} {top}"] if parameters else []),
        f"hierarchy -check -top {top}",
        f"write_rtlil {output}",
    ]
    run_yosys("\n".join(commands) + "\n", folder, f"elaborate_{top}")
    modules = split_modules(output.read_text())
    output.unlink()
    return modules


WIRE = re.compile(r"  wire .*\b(?:input|output|inout) \d+ ")
CELL = re.compile(r"  cell (\S+) ")
PARAMETER = re.compile(r"    parameter (?:signed )?\\(\S+) (\d+)$")


def split_modules(text: str) -> dict[str, Module]:
    """Split RTLIL into its modules, and mark memories that count as URAM."""
    found: dict[str, Module] = {}
    head: list[str] = []
    lines: list[str] = []
    name = ""
    for line in text.splitlines():
        if not name:
            if line.startswith("attribute"):
                head.append(line)
            elif line.startswith("module "):
                name = line.split()[1]
                lines = [line]
            continue
        lines.append(line)
        if line == "end":
            found[name] = _parsed(name, head, lines)
            head, name = [], ""
    names = set(found)
    return {
        name: replace(m, parts=Counter({k: n for k, n in m.parts.items() if k in names}))
        for name, m in found.items()
    }


def _parsed(name: str, head: list[str], lines: list[str]) -> Module:
    """Read one module of RTLIL; its parts are all kinds of cells."""
    ports = ["attribute \\blackbox 1", lines[0]]
    body = list(head)
    parts: Counter[str] = Counter()
    cells: list[tuple[str, dict[str, int]]] = []
    for line in lines:
        if match := CELL.match(line):
            parts[match[1]] += 1
            cells.append((plain_name(match[1]), {}))
        elif match := PARAMETER.match(line):
            cells[-1][1][match[1]] = int(match[2])
            if cells[-1][0] in REPEATED:
                continue  # its stand-in has none
        elif WIRE.match(line):
            ports.append(line)
        body.append(line)
    repeated = tuple(
        (kind, tuple(sorted(parameters.items()))) for kind, parameters in cells if kind in REPEATED
    )
    text, stand_in = "\n".join(body) + "\n", "\n".join([*ports, "end"]) + "\n"
    return Module(name, text, stand_in, parts, repeated)


def synthesise_modules(
    modules: Iterable[Module], design: Mapping[str, Module], cache: Path
) -> dict[str, Mapped]:
    """Map modules, their parts as black boxes; return what each takes by name.

    Raises
    ------
    RuntimeError
        Yosys stopped.
    """
    kept = {module.name: kept_file(cache, module, design) for module in modules}
    wanted = [name for name, file in kept.items() if not file.is_file()]
    for packed in (False, True):
        alike = [name for name in wanted if (base_name(name) in PACKED) == packed]
        if alike:
            for name, record in _run_flow(alike, design, cache, packed=packed).items():
                kept[name].write_text(json.dumps(record))
    records = {name: json.loads(file.read_text()) for name, file in kept.items()}
    return {
        name: Mapped(record["cells"], tuple(Memory(**memory) for memory in record["memories"]))
        for name, record in records.items()
    }


def _run_flow(
    wanted: Sequence[str], design: Mapping[str, Module], cache: Path, *, packed: bool
) -> dict[str, dict[str, Any]]:
    """Run Yosys on modules; return what is kept of each."""
    parts = {part for name in wanted for part in design[name].parts} - set(wanted)
    texts = [design[name].text for name in wanted]
    texts += [design[name].ports for name in sorted(parts)]
    cells = "".join(
        f"  attribute \\keep 1\n  cell {name} \\unit_{n}\n  end\n" for n, name in enumerate(wanted)
    )
    folder = cache / digest_of(*wanted)
    folder.mkdir(parents=True, exist_ok=True)
    source, report, large = (folder / name for name in ("units.il", "stat.json", "large.il"))
    source.write_text("".join([*texts, f"module \\units\n{cells}end\n"]))
    flow = flow_command(packed=packed)
    begin = [f"{flow} begin:map_memory"]
    if packed:
        back = "chtype -set DSP48E2 t:DSP48E1"
        begin = [f"{flow} begin:coarse", *PACKING, back, f"{flow} coarse:map_memory"]
    run_yosys(
        f"read_rtlil {source}\n"
        "hierarchy -top units\n" + "\n".join(begin) + "\n"
        f"chtype -set {COUNTED} t:$mem_v2 r:SIZE>={RULE_ROWS} %i r:WR_PORTS>=1 %i\n"
        f"tee -q -o {large} dump -m t:{COUNTED}\n"
        f"{flow} map_memory:check\ntee -q -o {report} stat -json\n",
        folder,
        base_name(wanted[0]) if len(wanted) == 1 else f"{len(wanted)}_units",
    )
    names = {plain_name(name) for name in design} | {COUNTED}
    memories = counted_memories(large.read_text())
    statistics = json.loads(report.read_text())["modules"]
    by_name = {plain_name(n): module["num_cells_by_type"] for n, module in statistics.items()}
    source.unlink()
    report.unlink()
    return {
        name: {
            "module": plain_name(name),
            "cells": {
                kind: count
                for kind, count in by_name.get(plain_name(name), {}).items()
                if plain_name(kind) not in names
            },
            "memories": [asdict(memory) for memory in memories.get(name, ())],
        }
        for name in wanted
    }


def flow_command(*, packed: bool) -> str:
    """Return the command that runs a part of the flow, without the part's name."""
    wide = " -widemux 5" if packed else ""
    return f"synth_xilinx -family xcup{wide} -noiopad -noclkbuf -run"


def counted_memories(text: str) -> dict[str, list[Memory]]:
    """Read the memories that are counted by the rule from RTLIL, by module."""
    found: dict[str, list[Memory]] = {}
    name, ultra = "", False
    values: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if line.startswith("module "):
            name = words[1]
        elif line.startswith("  attribute \\ram_style"):
            ultra = "ultra" in line
        elif line.startswith("  cell "):
            cell, values = plain_name(words[2]), {}
        elif line.startswith("    parameter ") and words[-2].lstrip("\\") in MEMORY_SIZES:
            digits = words[-1].partition("'")
            values[words[-2].lstrip("\\")] = int(digits[2], 2) if digits[1] else int(digits[0])
        elif line == "  end" and values:
            rows, width, reads = (values[size] for size in MEMORY_SIZES)
            found.setdefault(name, []).append(Memory(cell, rows, width, reads, ultra))
            values, ultra = {}, False
    return found


def kept_file(cache: Path, module: Module, design: Mapping[str, Module]) -> Path:
    """Return where it is kept what a mapped module takes."""
    return cache / f"{digest(module, design)}.json"


def digest(module: Module, design: Mapping[str, Module]) -> str:
    """Return a hash of all that a module's cells depend on."""
    ports = (design[part].ports for part in sorted(module.parts))
    packing = PACKING if base_name(module.name) in PACKED else ()
    return digest_of(
        str(FLOW), *packing, without_sources(module.text), *map(without_sources, ports)
    )


def digest_of(*texts: str) -> str:
    """Return a hash of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def plain_name(name: str) -> str:
    """Return a module's name in Yosys without escape character."""
    return name.removeprefix("\\")


def without_sources(text: str) -> str:
    """Drop places in sources from RTLIL, and number its own names anew: neither changes a thing."""
    lines = (line for line in text.splitlines() if "attribute \\src" not in line)
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        return f"${numbers.setdefault(match[1], len(numbers))}"

    places = re.sub(r"[^\s$]*/([^\s$/]+):[\d.|-]+\$", r"\1$", "\n".join(lines))
    return re.sub(r"\$(\d+)(?![0-9a-zA-Z])", numbered, places)


def base_name(name: str) -> str:
    r"""Return the module a parameter set belongs to: ``$paramod$hash\module`` -> ``module``."""
    return name.split("\\")[1]


def extended(
    kind: str, parameters: Mapping[str, int], sources: Iterable[Path], cache: Path
) -> Mapped:
    """Return what a unit of `REPEATED` rows takes."""
    names, few, more = REPEATED[kind]
    rows = parameters[names[0]]
    own = [source for source in sources if source.stem == kind]  # it has no parts

    def module_of(count: int) -> Module:
        sizes = {name: parameters[name] * count // rows for name in names}
        (module,) = elaborate(own, kind, {**parameters, **sizes}, cache / kind).values()
        return module

    counts = [rows] if rows <= more else [few, more]
    modules = [module_of(count) for count in counts]
    found = [synthesise_modules([module], {module.name: module}, cache) for module in modules]
    results = [one for each in found for one in each.values()]
    if len(results) == 1:
        return results[0]
    low, high = results
    memories = (
        replace(
            one,
            rows=_line(one.rows, other.rows, few, more, rows),
            width=_line(one.width, other.width, few, more, rows),
        )
        for one, other in zip(low.memories, high.memories, strict=True)
    )
    cells = extend(low.cells, high.cells, few, more, rows)
    return Mapped(cells, tuple(memories))


def _line(low: int, high: int, few: int, more: int, rows: int) -> int:
    return low + round((high - low) * (rows - few) / (more - few))


def extend(
    low: Mapping[str, int], high: Mapping[str, int], few: int, more: int, rows: int
) -> dict[str, int]:
    """Extend counts of cells with `few` and with `more` rows linearly to `rows`, none below 0."""
    kinds = {**low, **high}
    return {
        kind: max(0, _line(low.get(kind, 0), high.get(kind, 0), few, more, rows)) for kind in kinds
    }


def synthesise_kernel(
    sources: Sequence[Path],
    top: str,
    parameters: Mapping[str, int],
    cache: Path,
    *,
    only: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> list[Unit]:
    """Return the units of a kernel, or `only` one, each with what all of its instances take.

    Raises
    ------
    RuntimeError
        Yosys stopped.
    """
    design = elaborate(sources, top, parameters, cache / top, REPEATED)
    root = next(name for name in design if base_name(name) == top)
    instances = count_instances(design, root)
    wanted = [name for name in instances if only in ("", base_name(name))]
    single = (design[name] for name in wanted if base_name(name) not in REPEATED)
    modules = sorted(single, key=lambda module: len(module.text))
    small = [module for module in modules if len(module.text) < BATCH_CHARACTERS]
    batches = [small[n : n + BATCH] for n in range(0, len(small), BATCH)]
    batches += [[module] for module in modules if module not in small]
    units: dict[str, Unit] = {}

    def add(kind: str, count: int, mapped: Mapped) -> None:
        units.setdefault(kind, Unit(kind)).add(count, mapped)
        tell(f"{kind} x {count}: {mapped.resources()}")

    for number, batch in enumerate(batches):
        tell(f"batch {number + 1} of {len(batches)}")
        for name, mapped in synthesise_modules(batch, design, cache).items():
            add(base_name(name), instances[name], mapped)
    rows: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
    for name, count in instances.items():
        for part in design[name].repeated:
            if only in ("", part[0]):
                rows[part] += count
    for (kind, values), count in sorted(rows.items()):
        add(kind, count, extended(kind, dict(values), sources, cache))
    return sorted(units.values(), key=lambda unit: (-unit.resources["LUT"], unit.name))


def count_instances(design: Mapping[str, Module], root: str) -> Counter[str]:
    """Count the instances of each module below and with the root."""
    instances: Counter[str] = Counter()

    def visit(name: str, count: int) -> None:
        instances[name] += count
        for part, number in design[name].parts.items():
            visit(part, count * number)

    visit(root, 1)
    return instances


def row_of(unit: Unit) -> dict[str, Any]:
    """Return a unit's figures as JSON types."""
    return {"unit": unit.name, "instances": unit.instances, **unit.resources}


def totals_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all units take together."""
    rows = list(rows)
    return {kind: sum(row[kind] for row in rows) for kind in RESOURCES}


def renewed(record: Mapping[str, Any], unit: Unit, parameters: Mapping[str, int]) -> dict[str, Any]:
    """Return a kernel's figures with those of one unit replaced.

    Raises
    ------
    ValueError
        The record is of other parameters or a unit is missing in it.
    """
    rows = [row for row in record["units"] if row["unit"] != unit.name]
    if record["parameters"] != dict(parameters) or len(rows) != len(record["units"]) - 1:
        raise ValueError(f"the figures have other parameters than {parameters}, or no {unit.name}")
    rows = sorted([*rows, row_of(unit)], key=lambda row: (-row["LUT"], row["unit"]))
    names = {row["unit"] for row in rows}
    new = {"packed": sorted(PACKED & names), "totals": totals_of(rows), "units": rows}
    return {**record, **new}


def record_of(
    kernel: str, units: Sequence[Unit], parameters: Mapping[str, int], command: str
) -> dict[str, Any]:
    """Return a kernel's figures as JSON types."""
    per_unit = [row_of(unit) for unit in units]
    return {
        "kernel": kernel,
        "command": command,
        "flow": f"Yosys {version('pyosys')}, synth_xilinx -family xcup, each unit out of context",
        "parameters": dict(parameters),
        "repeated": {
            unit.name: dict(zip(("parameters", "few", "more"), REPEATED[unit.name], strict=True))
            for unit in units
            if unit.name in REPEATED
        },
        "packed": sorted(PACKED & {unit.name for unit in units}),
        "totals": totals_of(per_unit),
        "units": per_unit,
    }


def assignment(text: str) -> tuple[str, int]:
    """Return name and value of ``NAME=VALUE``."""
    name, _, value = text.partition("=")
    try:
        return name, int(value, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not NAME=VALUE with an integer value, such as H_ITER=8"
        ) from None


def main() -> int:
    """Synthesise a kernel and print its units beside a card; return the exit code."""
    parser = argparse.ArgumentParser(description="Report what each unit of a kernel takes (xcup).")
    parser.add_argument("kernel", help="a folder of rtl/ with a file list, such as decode")
    parser.add_argument(
        "--set",
        type=assignment,
        action="append",
        default=[],
        dest="parameters",
        metavar="NAME=VALUE",
        help="a parameter of the kernel; repeat for more",
    )
    parser.add_argument("--card", choices=sorted(CARDS), default="U55C", help="totals to compare")
    parser.add_argument("--output", type=Path, help="write the figures to this JSON file")
    parser.add_argument(
        "--only", metavar="UNIT", default="", help="map one unit, and renew it in --output"
    )
    arguments = parser.parse_args()
    if arguments.only and not (arguments.output and arguments.output.is_file()):
        parser.error("--only renews a unit of the figures that --output has")
    parameters = dict(arguments.parameters)
    sources = read_file_list(REPOSITORY / "rtl" / arguments.kernel / f"{arguments.kernel}.f")

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    top = f"{arguments.kernel}_kernel"
    try:
        units = synthesise_kernel(sources, top, parameters, CACHE, only=arguments.only, tell=tell)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    settings = "".join(f" --set {name}={value}" for name, value in parameters.items())
    command = f"python tools/synthesise_units.py {arguments.kernel}{settings}"
    if arguments.only:
        (unit,) = units
        record = renewed(json.loads(arguments.output.read_text()), unit, parameters)
    else:
        record = record_of(arguments.kernel, units, parameters, command)
    if arguments.output:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    card = CARDS[arguments.card]
    print(f"{'unit':24}{'instances':>10}" + "".join(f"{kind:>12}" for kind in RESOURCES))
    for row in record["units"]:
        print(
            f"{row['unit']:24}{row['instances']:>10}" + "".join(f"{row[k]:>12,}" for k in RESOURCES)
        )
    for title, row in (("total", record["totals"]), (arguments.card, card)):
        print(f"{title:34}" + "".join(f"{row[kind]:>12,}" for kind in RESOURCES))
    shares = (f"{100 * record['totals'][kind] / card[kind]:>10.1f} %" for kind in RESOURCES)
    print(f"{'share':34}" + "".join(shares))
    return 0


if __name__ == "__main__":
    sys.exit(main())
