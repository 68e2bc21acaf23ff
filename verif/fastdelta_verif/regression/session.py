# SPDX-License-Identifier: Apache-2.0
"""One regression from request to report."""

from __future__ import annotations

import datetime
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastdelta_verif.build import REPOSITORY
from fastdelta_verif.coverage import Record, format_percentage, load_exclusions, merge_hits
from fastdelta_verif.covergroups.catalogue import no_hits
from fastdelta_verif.regression.console import ConsoleWatcher
from fastdelta_verif.regression.executors import DaskExecutor, Executor, LocalExecutor
from fastdelta_verif.regression.jobs import Job, Json, RecordedTest, parse_seed_line
from fastdelta_verif.regression.page import page
from fastdelta_verif.regression.plans import Plan, load_plans, load_points
from fastdelta_verif.regression.record import record
from fastdelta_verif.regression.report import (
    HISTORY_LINES,
    history_line,
    junit,
    make_report,
    read_history,
    trend,
)
from fastdelta_verif.regression.results import Status
from fastdelta_verif.regression.runner import Outcome, Regression

OUTPUT = REPOSITORY / "build" / "regression"
# Kept free for the reports: a disk that logs have filled must still take them.
BALLAST_BYTES = 8 << 20
RERUN = "rerun"
SHOWN_FAILED = 20


class RequestError(ValueError):
    """A request that cannot be carried out; the message says what is allowed."""


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes
    ----------
    plan
        Name of a plan of ``plans.toml``.
    seeds
        Runs of each random test; the plan's by default.
    jobs
        Processes at once.
    match
        Only tests with this in their name or in that of a testpoint of theirs; ``*`` stands for
        anything.
    rerun
        Line that a failure printed: only that job, with waves.
    seed
        What all seeds follow from; drawn, or fixed by the tests' names, as the plan says.
    coverage
        Code coverage in place of the plan's.
    scheduler
        Address of a Dask scheduler, or ``local``.
    output
        Folder of reports.
    waves
        How many failures are run again with waves.
    """

    plan: str = "smoke"
    seeds: int | None = None
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    match: str = ""
    rerun: str = ""
    seed: int | None = None
    coverage: str | None = None
    scheduler: str = ""
    output: Path = OUTPUT
    waves: int = 3


@dataclass
class Selection:
    """Jobs of a request, and what they are called in the report."""

    plan: Plan
    jobs: list[Job]
    base_seed: int | None
    text: str
    whole: bool


def select(request: Request, tests: list[RecordedTest]) -> Selection:
    """Return the jobs of a request.

    Raises
    ------
    RequestError
        There is no such test, or nothing matches.
    """
    points = load_points()
    if request.rerun:
        name, seed = parse_seed_line(request.rerun)
        found = [test for test in tests if test.name == name]
        if not found:
            raise RequestError(f"there is no test {name}; `pytest --collect-only -q` lists them")
        job = Job(found[0], found[0].seed(None, 0) if seed is None else seed, waves=True)
        return Selection(Plan(RERUN, f"One job again: {job.name}"), [job], None, job.name, False)
    plan = load_plans()[request.plan]
    every = [point for each in points.values() for point in each]
    if request.match:
        text = ".*".join(map(re.escape, request.match.split("*")))
        named = [entry for p in every if re.search(text, p.id) for entry in p.tests]
        tests = [t for t in tests if re.search(text, t.name) or t.is_named_by(named)]
    chosen = plan.select(tests, every)
    if not chosen:
        raise RequestError(f"plan {plan.name} has no test that matches '{request.match}'")
    base = request.seed
    if base is None and plan.fresh_seeds:
        base = random.SystemRandom().randrange(1, 2**31)
    jobs = plan.jobs(chosen, request.seeds, base, request.coverage)
    kind = plan.coverage if request.coverage is None else request.coverage
    text = f"match={request.match} seeds={request.seeds or plan.seeds} coverage={kind}"
    whole = plan.choice == "all" and not request.match
    return Selection(plan, jobs, base, text, whole)


def regress(
    request: Request, console: Console, tests: list[RecordedTest] | None = None
) -> tuple[Json, int]:
    """Run a regression, write its reports, and return the record and the exit code.

    Parameters
    ----------
    request
        What to run.
    console
        For progress and summary.
    tests
        In place of those of ``tests/simulation``.

    Raises
    ------
    RequestError
        The request cannot be carried out.
    """
    _check(request)
    started = datetime.datetime.now(datetime.UTC)
    name = RERUN if request.rerun else request.plan
    folder = request.output / name / f"{started:%Y%m%d-%H%M%S}-{os.getpid()}"
    folder.mkdir(parents=True)
    ballast = Ballast(folder / "ballast")
    try:
        if tests is None:
            with console.status("listing the tests"):
                try:
                    file = parse_seed_line(request.rerun)[0] if request.rerun else ""
                    tests = record(folder / "recorded", file.partition("::")[0])
                except RuntimeError as error:
                    raise RequestError(str(error)) from error
        selection = select(request, tests)
        history = request.output / name / "history.jsonl"
        outcome = _run(request, selection, folder, read_history(history), console)
    except BaseException:
        ballast.release()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder / "recorded", ignore_errors=True)
    for empty in ("builds", "logs"):
        with suppress(OSError):
            (folder / empty).rmdir()
    if selection.whole:
        outcome.functional = merge_hits([no_hits(), outcome.functional])
    report = make_report(
        outcome,
        load_points(),
        load_exclusions(),
        plan=selection.plan.name,
        description=selection.plan.description,
        base_seed=selection.base_seed,
        selection=selection.text,
        whole=selection.whole,
        started=started,
        goals=selection.plan.goals,
    )
    ballast.release()
    reached = Record(outcome.functional, outcome.code)
    written = write_reports(report, reached, folder, history, console)
    print_summary(report, folder if written else None, console)
    code = 0 if report["verdict"] == "passed" and written else 1
    stop = re.fullmatch(r"stopped by (SIG\w+)", outcome.stopped)
    return report, 128 + signal.Signals[stop.group(1)] if stop else code


def _check(request: Request) -> None:
    """Raise what is wrong with a request before any test is looked at."""
    if request.jobs < 1 or (request.seeds is not None and request.seeds < 1):
        raise RequestError("--jobs and --seeds must be at least 1")
    plans = load_plans()
    if request.plan not in plans:
        raise RequestError(f"there is no plan {request.plan}; allowed are {', '.join(plans)}")
    if request.rerun:
        try:
            parse_seed_line(request.rerun)
        except ValueError as error:
            raise RequestError(str(error)) from None


def _run(
    request: Request, selection: Selection, folder: Path, history: list[Json], console: Console
) -> Outcome:
    expected: dict[str, float] = {}
    for line in history:
        expected.update({test: values["seconds"] for test, values in line["tests"].items()})
    executor: Executor
    try:
        executor = (
            DaskExecutor(request.scheduler, request.jobs, folder)
            if request.scheduler
            else LocalExecutor(request.jobs)
        )
    except ImportError:
        raise RequestError("--scheduler needs Dask: pip install 'fastdelta[regress]'") from None
    except RuntimeError as error:
        raise RequestError(str(error)) from error
    try:
        with ConsoleWatcher(console) as watcher:
            return Regression(
                selection.jobs,
                executor,
                folder,
                watcher,
                expected,
                request.waves,
                selection.plan.time_factor if selection.jobs[0].coverage else 1.0,
            ).run()
    finally:
        executor.close()


class Ballast:
    """A file whose place is given back before the reports are written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, BALLAST_BYTES)
        except OSError:
            self.release()  # as much as the disk had would only be missing elsewhere

    def release(self) -> None:
        """Give the place back."""
        with suppress(OSError):
            self._path.unlink()


def write_reports(
    report: Json, coverage: Record, folder: Path, history: Path, console: Console
) -> bool:
    """Write report.json, junit.xml, report.html, the history and, last, coverage.json.

    Say what could not be written.
    """
    lines = read_history(history)
    comparison = trend(lines, report)
    files: list[tuple[Path, Callable[[], bytes]]] = [
        (folder / "junit.xml", lambda: junit(report)),
        (folder / "report.json", lambda: json.dumps(report, indent=1).encode()),
        (folder / "report.html", lambda: page(report, comparison).encode()),
    ]
    if report["plan"] != RERUN:
        kept = [*lines, history_line(report)][-HISTORY_LINES:]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        files.append((history, text.encode))
    files.append((folder / "coverage.json", lambda: json.dumps(coverage.to_json()).encode()))
    written = True
    for path, content in files:
        temporary = path.with_name(path.name + ".part")
        try:
            temporary.write_bytes(content())
            temporary.replace(path)
        except OSError as error:
            written = False
            with suppress(OSError):
                temporary.unlink()
            console.print(Text(f"{path} could not be written: {error.strerror}", style="bold red"))
    return written


def print_summary(report: Json, folder: Path | None, console: Console) -> None:
    """Print the end of a regression for people."""
    style = {"passed": "green", "stopped": "yellow"}.get(report["verdict"], "red")
    table = Table(
        title=Text(f"{report['plan']}: {report['verdict']}", style=f"bold {style}"),
        show_header=False,
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column()
    table.add_column(overflow="fold")
    if report["stopped"]:
        table.add_row("", report["stopped"])
    for status, count in sorted(report["counts"].items(), key=lambda entry: entry[0] != "passed"):
        table.add_row(f"{count:5d}", f"jobs {status}")
    points = [point for point in report["testpoints"] if point["jobs"]]
    good = sum(point["status"] == "passed" for point in points)
    table.add_row(f"{good:5d}", f"of {len(points)} testpoints passed")
    percent = report["functional"]["percent"]
    if percent is not None:
        table.add_row(f"{format_percentage(percent):>5}", "% functional coverage")
    for kind, value in report["code_percent"].items():
        table.add_row(f"{format_percentage(value):>5}", f"% {kind} coverage")
    for text in report["wrong_exclusions"]:
        table.add_row("", Text(f"exclusion {text}", style="red"))
    for text in report["missed"]:
        table.add_row("", Text(text, style="red"))
    again = sum(job["attempts"] > 1 for job in report["jobs"])
    if again:
        table.add_row(f"{again:5d}", "jobs were started again, as workers died")
    if report["base_seed"] is not None:
        table.add_row("seed", str(report["base_seed"]))
    table.add_row("time", f"{report['seconds']:.0f} s")
    console.print(table)
    failed = [j for j in report["jobs"] if j["status"] not in (Status.PASSED, Status.NOT_RUN)]
    lines = [Text(f"{job['status']}: {job['rerun']}", style="red") for job in failed[:SHOWN_FAILED]]
    if len(failed) > SHOWN_FAILED:
        lines.append(Text(f"and {len(failed) - SHOWN_FAILED} more", style="red"))
    if folder is not None:
        if report["plan"] == RERUN:
            lines += [Text(f"log: {folder / job['log']}") for job in report["jobs"] if job["log"]]
        lines.append(Text(f"report: {folder / 'report.html'}"))
    for line in lines:
        console.print(line, soft_wrap=True)  # whole, to be copied
