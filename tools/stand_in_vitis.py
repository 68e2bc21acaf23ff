# SPDX-License-Identifier: Apache-2.0
"""Stand in for ``vivado``, ``v++`` and ``emconfigutil`` in the dry run of ``overlays/Makefile``.

``stand_in_vitis.py TOOL ARGUMENT ...`` takes only the options that the tool has, records the call
in ``calls.jsonl``, and leaves the files that the tool would: Vivado runs its script on the commands
of ``vivado_commands.tcl``; ``v++`` copies a container and writes a timing report. What they answer
is in ``answers.json``, in the folder that ``STAND_IN_FOLDER`` names.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ["STAND_IN_FOLDER"])
# Options of each tool, with the number of words behind them.
OPTIONS = {
    "vivado": {"-mode": 1, "-notrace": 0, "-nojournal": 0, "-log": 1, "-source": 1},
    "v++": {
        "--link": 0,
        "--package": 0,
        "--target": 1,
        "--platform": 1,
        "--config": 1,
        "--kernel_frequency": 1,
        "--jobs": 1,
        "--save-temps": 0,
        "--temp_dir": 1,
        "--log_dir": 1,
        "--report_dir": 1,
        "--output": 1,
        "--package.out_dir": 1,
    },
    "emconfigutil": {"--platform": 1, "--od": 1},
}
TIMING = """\
------------------------------------------------------------------------------------------------
| Design Timing Summary
| ---------------------
------------------------------------------------------------------------------------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints      WHS(ns)      THS(ns)  THS Failing Endpoints
    -------      -------  ---------------------      -------      -------  ---------------------
{setup:11.3f}        0.000                      0  {hold:11.3f}        0.000                      0
"""


def stop(message: str) -> None:
    """End with a message, as a tool that was called wrongly."""
    sys.exit(f"ERROR: {message}")


def parse(tool: str, words: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return options with their values, plain words, and what follows ``-tclargs``."""
    end = words.index("-tclargs") if "-tclargs" in words else len(words)
    words, script = words[:end], words[end + 1 :]
    options: dict[str, str] = {}
    plain = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-"):
            plain.append(word)
        elif word not in OPTIONS[tool]:
            stop(f"{tool} has no option {word}")
        elif OPTIONS[tool][word] and not queue:
            stop(f"{tool}: {word} has no value")
        else:
            options[word] = queue.pop(0) if OPTIONS[tool][word] else ""
    return options, plain, script


def need(tool: str, options: dict[str, str], *names: str) -> None:
    """Stop if an option is missing."""
    for name in names:
        if name not in options:
            stop(f"{tool} needs {name}")


def run_vivado(options: dict[str, str], script: list[str], tcl: list[str]) -> None:
    """Run a script on the recorded commands."""
    need("vivado", options, "-mode", "-source")
    commands = Path(__file__).with_name("vivado_commands.tcl")
    command = [*tcl, str(commands), str(FOLDER / "tcl.record"), options["-source"], *script]
    result = subprocess.run(command, check=False)
    if result.returncode:
        stop("vivado: the script failed")


def run_vpp(options: dict[str, str], plain: list[str], answers: dict[str, object]) -> None:
    """Link or package: check that what is read is there, and copy the container."""
    need("v++", options, "--target", "--platform", "--output")
    for path in (*plain, *(options[name] for name in ("--config",) if name in options)):
        if not Path(path).is_file():
            stop(f"v++ reads {path}, which is not there")
    if len(plain) != 1 or ("--link" in options) == ("--package" in options):
        stop("v++ takes one file, and either --link or --package")
    if "--link" in options:
        need("v++", options, "--config")
        if not plain[0].endswith(".xo"):
            stop(f"v++ --link reads .xo files, not {plain[0]}")
        if options["--target"] == "hw":
            need("v++", options, "--report_dir")
            folder = Path(options["--report_dir"]) / "link" / "imp"
            folder.mkdir(parents=True, exist_ok=True)
            report = folder / "impl_1_hw_bb_locked_timing_summary_routed.rpt"
            report.write_text(TIMING.format(setup=answers["setup"], hold=answers["hold"]))
    Path(options["--output"]).write_bytes((FOLDER / "answer.xclbin").read_bytes())


def main() -> int:
    """Answer one call."""
    tool, *words = sys.argv[1:]
    answers = json.loads((FOLDER / "answers.json").read_text())
    release = answers["releases"].get(tool)
    if words in (["-version"], ["--version"]):
        print(f"****** {tool} v{release} (64-bit)\n  **** SW Build 1 on a day")
        return 0
    options, plain, script = parse(tool, words)
    with (FOLDER / "calls.jsonl").open("a") as file:
        record = {"tool": tool, "options": options, "plain": plain}
        if "--config" in options and Path(options["--config"]).is_file():
            record["config"] = Path(options["--config"]).read_text()
        file.write(json.dumps(record) + "\n")
    if tool == "vivado":
        run_vivado(options, script, answers["tcl"])
    elif tool == "v++":
        run_vpp(options, plain, answers)
    else:
        need(tool, options, "--platform", "--od")
        (Path(options["--od"]) / "emconfig.json").write_text("{}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
