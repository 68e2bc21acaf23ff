# SPDX-License-Identifier: Apache-2.0
"""Build a design once for each set of parameters, and run cocotb tests on it.

A build is a folder ``build/simulation/<top>-<key>``; the key is made of everything that decides
the result (sources, parameters, simulator, flags), so tests that ask for the same design share
one build, and a changed source makes a new one. A file lock lets several processes ask at once.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cocotb_tools.config
import cocotb_tools.runner

from fastdelta.filelist import read_file_list
from fastdelta_verif.settings import SETTINGS_VARIABLE, Settings

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_ROOT = REPOSITORY / "build" / "simulation"
COVERAGE_FOLDER = REPOSITORY / "build" / "coverage"
VERILATOR_BIN = REPOSITORY / ".tools" / "verilator" / "bin"

VERILATOR_ARGS = (
    "-O3",
    "--unroll-count",
    "4",
    "--output-split",
    "20000",
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    "--quiet",
    "-Wno-fatal",  # style is lint's business; a mutant must run, not fail to build
)
# Code coverage that a build can record. A toggle is counted for each bit and direction. With
# toggles, Verilator 5.048 simulates decode cores of dimension 64 and more wrongly, always at the
# same place; not so without its data-flow optimiser, nor with lines alone. The cause is not known;
# verilator/verilator#8377 is a fault of that optimiser.
COVERAGE_ARGS = {
    "": (),
    "line": ("--coverage-line",),
    "toggle": ("--coverage-line", "--coverage-toggle", "-fno-dfg"),
}
LOG_TAIL_LINES = 60
NO_SPACE_LEFT = os.strerror(errno.ENOSPC)
LEAST_FREE_BYTES = 1 << 16

Simulate = Callable[..., None]  # the fixture of tests/simulation: run, with seed and folder set


class BuildError(RuntimeError):
    """A simulator refused to build a design; the message holds its output."""


class SimulationError(AssertionError):
    """A simulation failed; the message says where its log is and how to run it again.

    Attributes
    ----------
    reason
        The first mismatch, or how the simulator ended, in one line.
    time
        Simulated time of the failure, such as ``62.0 ns``; empty when not known.
    crashed
        Whether the simulator ended by a signal, an error, or without a result.
    """

    def __init__(
        self, message: str, reason: str = "", *, time: str = "", crashed: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.time, self.crashed = time, crashed


def rtl_sources(kernel: str, root: Path = REPOSITORY) -> tuple[Path, ...]:
    """Return the sources of a kernel in the order of its file list."""
    return tuple(read_file_list(root / "rtl" / kernel / f"{kernel}.f"))


def needed_sources(top: str, sources: Sequence[Path]) -> tuple[Path, ...]:
    """Return the sources that a top module uses, itself included, in the given order.

    A file is named after its module, so a file is used when the text of a used one names it.
    """
    texts = {source.stem: source.read_text() for source in sources}
    used, found = {top}, [top]
    while found:
        words = set(re.findall(r"\w+", texts[found.pop()]))
        found += (words & texts.keys()) - used
        used |= words & texts.keys()
    return tuple(source for source in sources if source.stem in used)


@dataclass(frozen=True)
class Design:
    """A top module with its sources and parameters.

    Attributes
    ----------
    top
        Name of the top module; only its ports are visible to a test bench.
    sources
        Verilog files, a file before the files that instantiate it.
    parameters
        Values of the top module's parameters.
    simulator
        ``verilator`` or ``icarus``.
    coverage
        Code coverage that a run records: a key of ``COVERAGE_ARGS`` (Verilator only).
    waves
        Whether a run can write waves.
    """

    top: str
    sources: tuple[Path, ...]
    parameters: Mapping[str, int] = field(default_factory=dict)
    simulator: str = "verilator"
    coverage: str = ""
    waves: bool = False

    @property
    def top_source(self) -> Path:
        """File that holds the top module."""
        return next(source for source in self.sources if source.stem == self.top)

    def key(self) -> str:
        """Name of the build: equal for designs that build to the same."""
        digest = hashlib.sha256()
        for part in (
            self.simulator,
            simulator_version(self.simulator),
            cocotb_tools.config.libs_dir,
            VERILATOR_ARGS,
            COVERAGE_ARGS[self.coverage],
            self.waves,
            self.top,
            sorted(self.parameters.items()),
        ):
            digest.update(repr(part).encode())
        for source in self.sources:
            digest.update(source.name.encode() + source.read_bytes())
        return f"{self.top}-{digest.hexdigest()[:16]}"


def simulator_version(simulator: str) -> str:
    """Return what the simulator says of its version."""
    command = {"verilator": ["verilator", "--version"], "icarus": ["iverilog", "-V"]}[simulator]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
    return result.stdout.splitlines()[0]


def top_ports(source: Path, top: str) -> list[str]:
    """Return the port names of a module with an ANSI port list."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", source.read_text(), flags=re.DOTALL)
    header = re.search(rf"\bmodule\s+{top}\b(.*?)\)\s*;", text, flags=re.DOTALL)
    if header is None:
        raise BuildError(f"{source}: there is no module {top} in it")
    return re.findall(r"\b(?:input|output|inout)\b[^,)]*?\b(\w+)\s*(?=[,)]|\Z)", header.group(1))


class _TopPortsVerilator(cocotb_tools.runner.Verilator):
    """Verilator with the top's ports public and nothing else, and with optimised C++.

    cocotb makes every signal public, which costs about half of the speed of a large design.
    A core of 16 heads takes 24 s of processor time to compile so, 39 s with -O2, which does not
    make a test faster: the Python side decides its speed.
    """

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        verilate = [argument for argument in verilate if argument != "--public-flat-rw"]
        return [verilate, [*make, "OPT_FAST=-O1"]]


def _environment() -> dict[str, str]:
    """Return the process environment with this project's Verilator and ccache in use."""
    environment = dict(os.environ)
    if VERILATOR_BIN.is_dir():
        environment["PATH"] = f"{VERILATOR_BIN}{os.pathsep}{environment['PATH']}"
    if "OBJCACHE" not in environment and shutil.which("ccache"):
        environment["OBJCACHE"] = "ccache"
    return environment


@contextmanager
def _process_environment() -> Iterator[None]:
    """Give cocotb's runner, which reads the process environment, ours."""
    before = dict(os.environ)
    os.environ.update(_environment())
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # or the runner judges the result itself
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _runner(design: Design) -> cocotb_tools.runner.Runner:
    if design.simulator == "verilator":
        return _TopPortsVerilator()
    return cocotb_tools.runner.get_runner(design.simulator)


def _public_ports(design: Design, folder: Path) -> Path:
    """Write the Verilator control file that makes the top's ports visible."""
    lines = ["`verilator_config"]
    for port in top_ports(design.top_source, design.top):
        lines.append(f'public_flat_rw -module "{design.top}" -var "{port}"')
    path = folder / "public.vlt"
    path.write_text("\n".join(lines) + "\n")
    return path


def build(design: Design) -> Path:
    """Build a design if that has not been done, and return its folder.

    Raises
    ------
    BuildError
        The simulator refused the design.
    """
    folder = BUILD_ROOT / design.key()
    complete = folder / "complete"
    with _locked(folder.with_suffix(".lock")):
        if complete.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log = folder / "build.log"
        if design.simulator == "verilator":
            sources = [_public_ports(design, folder), *design.sources]
            arguments = [*VERILATOR_ARGS]
            arguments += COVERAGE_ARGS[design.coverage]
            arguments += ["--trace-fst"] if design.waves else []
        else:
            sources, arguments = list(design.sources), ["-g2012", "-gno-assertions"]
        try:
            with _process_environment():
                _runner(design).build(
                    sources=sources,
                    hdl_toplevel=design.top,
                    parameters=dict(design.parameters),
                    build_args=arguments,
                    build_dir=folder,
                    timescale=("1ns", "1ps"),
                    waves=design.waves,
                    log_file=log,
                )
        except (RuntimeError, subprocess.CalledProcessError, SystemExit) as error:
            output = log.read_text() if log.exists() else str(error)
            raise BuildError(f"{design.top} {dict(design.parameters)}:\n{output}") from None
        _keep_only(folder, {design.top, "sim.vvp", log.name})
        complete.touch()
    return folder


def _keep_only(folder: Path, names: Set[str]) -> None:
    """Delete all other files of a folder: a model is 1 to 3 MB, what it was made from up to 200."""
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()


def run(
    design: Design,
    module: str,
    test: str,
    *,
    seed: int,
    options: Mapping[str, Any] | None = None,
    folder: Path,
    rerun: str = "",
    fails: str | None = None,
    coverage: Path | None = None,
    initial: int | None = None,
    trace: Path | None = None,
) -> None:
    """Run one cocotb test and check its result.

    Parameters
    ----------
    design
        What to simulate; built first if needed.
    module
        Python module with the test, such as ``fastdelta_verif.benches.decode_core``.
    test
        Name of the test in the module.
    seed
        Seed of the random stimulus.
    options
        Settings of the test, readable there as ``Settings.options``; JSON values only.
    folder
        Folder for the log, the result and waves.
    rerun
        Command that runs the same again, printed when the test fails.
    fails
        When given, the test must fail: by its own verdict when empty, else with a message that this
        regular expression is found in.
    coverage
        Where coverage goes, with ``.json`` and ``.dat`` added; by default below ``build/coverage``.
    initial
        Seed of what registers hold at first, which Verilator draws; by default that of the
        stimulus.
    trace
        File for the ports of the top, cycle by cycle.

    Raises
    ------
    SimulationError
        The test failed, or did not run, or passed although it had to fail.
    OSError
        The disk was full, so that there is no verdict.
    """
    coverage = coverage or COVERAGE_FOLDER / f"{_slug(rerun or test)}-{seed}"
    again = f"COCOTB_RANDOM_SEED={seed} {rerun}"
    try:
        settings = Settings(
            test=test,
            seed=seed,
            parameters=dict(design.parameters),
            options=dict(options or {}),
            coverage_file=f"{coverage}.json",
            trace_file=str(trace or ""),
            ports=top_ports(design.top_source, design.top) if trace else [],
        )
        _simulate(design, module, settings, folder, coverage, again, initial)
    except SimulationError as error:
        if fails is None:
            raise
        if (error.crashed and not fails) or not re.search(fails, str(error)):
            error.reason = f"had to fail with '{fails}', but: {error.reason}"
            raise
        return
    if fails is not None:
        reason = "the simulation passed, but had to fail"
        raise SimulationError(f"{test}: {reason}\nrun again: {again}", reason)


def _simulate(
    design: Design,
    module: str,
    settings: Settings,
    folder: Path,
    coverage: Path,
    again: str,
    initial: int | None,
) -> None:
    """Run one cocotb test; raise if it did not pass."""
    test, seed = settings.test, settings.seed
    design = replace(design, waves=design.waves or _is_set("WAVES"))
    build_folder = build(design)
    folder.mkdir(parents=True, exist_ok=True)
    log, results = folder / f"{test}.log", folder / f"{test}.xml"
    arguments = []
    if design.simulator == "verilator":
        drawn = (seed if initial is None else initial) % 2**31 or 1
        arguments = ["+verilator+rand+reset+2", f"+verilator+seed+{drawn}"]
    elif design.waves:
        arguments = [f"+dumpfile_path={folder / 'dump.fst'}"]
    if design.coverage:
        coverage.parent.mkdir(parents=True, exist_ok=True)
        arguments.append(f"+verilator+coverage+file+{coverage}.dat")
    ended = ""
    with _process_environment():
        try:
            _runner(design).test(
                test_module=module,
                hdl_toplevel=design.top,
                hdl_toplevel_lang="verilog",
                test_filter=rf"\.{re.escape(test)}$",
                seed=seed,
                build_dir=build_folder,
                test_dir=folder,
                results_xml=str(results),
                plusargs=arguments,
                extra_env={
                    SETTINGS_VARIABLE: settings.to_json(),
                    # Rewriting the assertions of every imported module takes three seconds.
                    "COCOTB_REWRITE_ASSERTION_FILES": "",
                },
                waves=design.waves,
                log_file=log,
            )
        except (RuntimeError, SystemExit) as error:
            ended = _ending(error)
    failure, time, crashed = _failure(results)
    text = log.read_text(errors="replace") if log.is_file() else ""
    if crashed:
        said = re.findall(r"^\s*(\w*(?:Error|Exception|ERROR)\b.*)", text, flags=re.MULTILINE)
        failure += f": {said[-1]}" if said else ""
    if ended and (crashed or not failure):
        failure = f"{failure or 'the simulator failed after the test had passed'}{ended}"
        crashed = True
    if not failure:
        return
    if NO_SPACE_LEFT in failure + text or _is_full(folder):
        raise OSError(errno.ENOSPC, NO_SPACE_LEFT, str(folder))
    tail = "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
    raise SimulationError(
        f"{test}: {failure}\n{tail}\n\nlog: {log}\nrun again: {again}\nwith waves: WAVES=1 {again}",
        failure,
        time=time,
        crashed=crashed,
    )


def _ending(error: BaseException) -> str:
    """Say how a simulator ended, from what cocotb's runner raised."""
    code = re.search(r"return code: -(\d+)$", str(error))
    if code is None:
        return f" ({error})"
    number = int(code.group(1))
    names = {member.value: member.name for member in signal.Signals}
    return f" (killed by {names.get(number, f'signal {number}')})"


def _failure(results: Path) -> tuple[str, str, bool]:
    """Judge a result file that must be that of exactly one passed test.

    Returns what is wrong (empty if nothing is), the simulated time of a failed test, and whether
    there is no verdict in it.
    """
    if not results.exists():
        return "the simulator ended without a result", "", True
    try:
        cases = list(ElementTree.parse(results).iter("testcase"))
    except ElementTree.ParseError:
        return "the simulator ended within its result", "", True
    if len(cases) != 1:
        return f"{len(cases)} tests ran instead of one", "", True
    for child in cases[0]:
        if child.tag in ("failure", "error", "skipped"):
            values = {p.get("name"): p.get("value") for p in cases[0].iter("property")}
            stop = values.get("sim_time_stop")
            time = f"{stop} {values.get('sim_time_unit', '')}".strip() if stop else ""
            return child.get("message") or child.get("error_msg") or child.tag, time, False
    return "", "", False


def _is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("_")


def seed_of(name: str) -> int:
    """Return the seed of a test: ``COCOTB_RANDOM_SEED`` when set, else one fixed by its name."""
    given = os.environ.get("COCOTB_RANDOM_SEED")
    return int(given) if given else random.Random(name).getrandbits(31)
