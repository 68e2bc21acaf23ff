# SPDX-License-Identifier: Apache-2.0
"""Lint every file list under ``rtl/`` with Verilator, and every hand-written file with Verible.

Each module of a list is linted as a top module of its own, with its default parameters, so that a
cell is clean by itself and not only where a kernel happens to use it. Waivers are ``lint.vlt``
beside the list; each one names a place and has its reason. Sources in a folder ``generated`` are
checked by Verilator alone, as their style is their generator's, with the waivers of
``tools/generated.vlt``.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fastdelta.filelist import SOURCE_SUFFIXES, read_file_list

REPOSITORY = Path(__file__).resolve().parents[1]
RTL = REPOSITORY / "rtl"
GENERATED_WAIVERS = REPOSITORY / "tools" / "generated.vlt"
VERIBLE_RULES = REPOSITORY / "tools" / "verible.rules"


def run(command: list[str]) -> str:
    """Run a linter and return what it reports, empty when the sources are clean."""
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    report = (result.stdout + result.stderr).strip()
    if result.returncode == 0 and not report:
        return ""
    return f"$ {' '.join(command)}\n{report or f'ended with code {result.returncode}'}"


def relative(path: Path) -> str:
    """Return a path as seen from the repository, as reports and waivers name it."""
    return str(path.relative_to(REPOSITORY))


def verilator_commands(file_list: Path) -> list[list[str]]:
    """Return one Verilator command for each module of a file list."""
    sources = read_file_list(file_list)
    own_waivers = file_list.with_name("lint.vlt")
    waivers = [GENERATED_WAIVERS, *([own_waivers] if own_waivers.is_file() else [])]
    files = [relative(path) for path in [*waivers, *sources]]
    # Loops over arrays stay loops, as in simulation builds: unrolled, a large array takes minutes.
    base = ["verilator", "--lint-only", "-Wall", "--quiet", "--unroll-count", "4"]
    return [[*base, "--top-module", source.stem, *files] for source in sources]


def main() -> int:
    """Lint the RTL and return the number of failed checks, at most 1 as an exit code."""
    file_lists = sorted(RTL.glob("*/*.f"))
    listed = {source for file_list in file_lists for source in read_file_list(file_list)}
    present = {path for suffix in SOURCE_SUFFIXES for path in RTL.rglob(f"*{suffix}")}

    reports = [f"{relative(path)} is in no file list; add it to one" for path in present - listed]
    commands = [command for file_list in file_lists for command in verilator_commands(file_list)]
    hand_written = sorted(path for path in present if "generated" not in path.parts)
    if hand_written:
        commands.append(
            [
                "verible-verilog-lint",
                "--ruleset=default",
                f"--rules_config={relative(VERIBLE_RULES)}",
                *map(relative, hand_written),
            ]
        )
    with ThreadPoolExecutor(max_workers=2) as pool:
        reports += [report for report in pool.map(run, commands) if report]

    for report in reports:
        print(report, end="\n\n")
    print(f"{len(present)} RTL files, {len(commands)} lint runs, {len(reports)} with findings")
    return min(len(reports), 1)


if __name__ == "__main__":
    sys.exit(main())
