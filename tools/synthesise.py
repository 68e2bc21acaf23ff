# SPDX-License-Identifier: Apache-2.0
"""Synthesise a kernel for UltraScale+ with Yosys and report what it infers.

DSP48E2 and block memory counts can be compared with a card's totals. LUT and FF are estimates:
Yosys packs no register into a DSP48E2 of this family, and LUT counts move by some 40 % with details
of the flow. There is no clock estimate, routing, memory controller or shell in them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from fastdelta.filelist import read_file_list

REPOSITORY = Path(__file__).resolve().parents[1]

DECODE_HEAD_DIM = 128  # the kernel's default
# Persistent-state GDN decode, Table VI (HLS estimates for U55C): H_ITER -> (BRAM_18K, DSP).
PAPER_DECODE = {2: (523, 570), 4: (1035, 1090), 8: (1035, 2130), 16: (1035, 4162)}


@dataclass(frozen=True)
class Unit:
    """A module after mapping: instances in the design, and cells of one instance with its parts."""

    name: str
    instances: int
    cells: dict[str, int]


def synthesise(sources: list[Path], top: str, parameters: dict[str, int]) -> list[Unit]:
    """Return the mapped modules, the top first; parameter sets of one module are added up.

    Parameters
    ----------
    sources
        Verilog and SystemVerilog files in the order in which to read them.
    top
        Name of the top module.
    parameters
        Values of parameters of the top module that replace its defaults.

    Raises
    ------
    RuntimeError
        Yosys stopped with an error; the message ends with its last lines.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "stat.json"
        script = Path(scratch) / "synthesise.ys"
        # `hierarchy -chparam` fails an assertion of Yosys 0.70 where a module is processed twice.
        changes = "".join(f" -set {name} {value}" for name, value in parameters.items())
        reads = [f"read_verilog{' -sv' * (s.suffix == '.sv')} {s}" for s in sources]
        commands = [
            *reads,
            *([f"chparam{changes} {top}"] if parameters else []),
            f"hierarchy -check -top {top}",
            "synth_xilinx -family xcup -noiopad -noclkbuf",
            f"tee -q -o {report} stat -json",
        ]
        script.write_text("\n".join(commands) + "\n")
        # An error in Yosys ends its process, so it gets one of its own.
        program = (
            "import sys; from pyosys import libyosys as y; y.run_pass(sys.argv[1], y.Design())"
        )
        result = subprocess.run(
            [sys.executable, "-c", program, f"script {script}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0 or not report.is_file():
            tail = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
            raise RuntimeError(f"Yosys could not synthesise {top}:\n{tail}")
        modules = json.loads(report.read_text())["modules"]
    return units_of({plain_name(name): m["num_cells_by_type"] for name, m in modules.items()}, top)


def plain_name(name: str) -> str:
    """Return a module's name in Yosys without escape character."""
    return name.removeprefix("\\")


def units_of(modules: dict[str, dict[str, int]], top: str) -> list[Unit]:
    """Walk the hierarchy: cells that are modules themselves count as instances."""
    instances: Counter[str] = Counter()

    def flat(name: str) -> Counter[str]:
        cells: Counter[str] = Counter()
        for kind, count in modules[name].items():
            if kind in modules:
                for part, number in flat(kind).items():
                    cells[part] += count * number
            else:
                cells[kind] += count
        return cells

    def visit(name: str, count: int) -> None:
        instances[name] += count
        for kind, number in modules[name].items():
            if kind in modules:
                visit(kind, count * number)

    root = next(name for name in modules if base_name(name) == top)
    visit(root, 1)
    units: dict[str, Unit] = {}
    for name, count in instances.items():
        base = base_name(name)
        if base not in units:
            units[base] = Unit(base, count, dict(flat(name)))
        else:
            units[base] = replace(units[base], instances=units[base].instances + count)
    return list(units.values())


def base_name(name: str) -> str:
    r"""Return the module a parameter set belongs to: ``$paramod$hash\module`` -> ``module``."""
    return name.split("\\")[1] if name.startswith("$paramod") else name


def summarise(cells: dict[str, int]) -> dict[str, int]:
    """Return the totals that data sheets list: DSP, BRAM in units of 18 Kbit, URAM, LUT and FF."""
    luts = {f"LUT{inputs}" for inputs in range(1, 7)}
    return {
        "DSP48E2": cells.get("DSP48E2", 0),
        "BRAM_18K": 2 * cells.get("RAMB36E2", 0) + cells.get("RAMB18E2", 0),
        "URAM288": cells.get("URAM288", 0),
        "LUT (estimate)": sum(count for kind, count in cells.items() if kind in luts),
        "FF (upper bound)": sum(n for kind, n in cells.items() if kind in {"FDRE", "FDSE", "FDCE"}),
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
    """Synthesise what the command line names and print the totals; return the exit code."""
    parser = argparse.ArgumentParser(description="Report the cells that Yosys infers (xcup).")
    parser.add_argument("kernel", help="a folder of rtl/ with a file list, such as decode")
    parser.add_argument("--top", help="top module; default: the last file of the list")
    parser.add_argument(
        "--set",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="parameters",
        help="value of a parameter of the top module; repeat for more",
    )
    parser.add_argument("--json", action="store_true", help="print JSON with every cell type")
    arguments = parser.parse_args()

    sources = read_file_list(REPOSITORY / "rtl" / arguments.kernel / f"{arguments.kernel}.f")
    top = arguments.top or sources[-1].stem
    parameters = dict(arguments.parameters)
    try:
        units = synthesise(sources, top, parameters)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    totals = summarise(units[0].cells)
    lane_units = [unit for unit in units if unit.name == "decode_lanes"]
    head_dim = parameters.get("HEAD_DIM", DECODE_HEAD_DIM)
    per_lane = [summarise(unit.cells)["DSP48E2"] / head_dim for unit in lane_units]
    if arguments.json:
        print(
            json.dumps(
                {
                    "top": top,
                    "parameters": parameters,
                    "totals": totals,
                    "dsp_per_lane": per_lane[0] if per_lane else None,
                    "units": [{**vars(u), "totals": summarise(u.cells)} for u in units],
                }
            )
        )
        return 0

    paper = PAPER_DECODE.get(parameters.get("H_ITER", 0)) if arguments.kernel == "decode" else None
    quoted = dict(zip(("BRAM_18K", "DSP48E2"), paper, strict=True)) if paper else {}
    settings = ", ".join(f"{name}={value}" for name, value in parameters.items()) or "defaults"
    print(f"{top} ({settings}), Yosys synth_xilinx -family xcup; a unit's row includes its parts")
    print(f"{'unit':24}{'instances':>10}" + "".join(f"{kind:>18}" for kind in totals))
    for unit in units:
        figures = "".join(f"{count:>18,}" for count in summarise(unit.cells).values())
        print(f"{unit.name:24}{unit.instances:>10}{figures}")
    for kind, count in quoted.items():
        print(f"{kind}: {totals[kind]:,} here, {count:,} in the paper (HLS estimate, FP32)")
    if per_lane:
        print(f"DSP48E2 per lane: {per_lane[0]:.2f} here, about 16 in the paper")
    return 0


if __name__ == "__main__":
    sys.exit(main())
