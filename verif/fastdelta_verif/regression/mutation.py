# SPDX-License-Identifier: Apache-2.0
"""Who kills each mutant: its own test, which nightly runs, and the tests of a plan for its unit.

``python -m fastdelta_verif.regression.mutation`` takes each mutant of ``mutants.py`` and runs, with
the fault in the RTL, its own test, and then the plan's jobs whose design has the faulty file, until
one fails. Seeds are those of the plan, so a run of smoke gives the same table again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fastdelta_verif.build import BUILD_ROOT, REPOSITORY, Design
from fastdelta_verif.mutants import MUTANTS, Mutant
from fastdelta_verif.regression.jobs import Job, Json, RecordedTest, Simulation, design_to_json
from fastdelta_verif.regression.process import supervise
from fastdelta_verif.regression.record import record
from fastdelta_verif.regression.results import Status
from fastdelta_verif.regression.runner import BUILD_LIMIT_SECONDS
from fastdelta_verif.regression.session import Request, RequestError, select

OUTPUT = REPOSITORY / "build" / "mutants"
OWN_TEST = "test_mutants.py::test_mutant_is_caught"
BENCHES = "fastdelta_verif.benches."
OWN_LIMIT_SECONDS = 300.0
# Share of the mutants that must die.
LEAST = {"smoke": 0.85}


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes
    ----------
    mutant, file
        Its name, and the source below ``rtl/`` that it changes.
    own_test, own_reason
        Its own test, and the first mismatch there; no mismatch when it survived.
    killer, reason
        The plan's test that failed on it, and the first mismatch; empty when it survived.
    tried
        Jobs of the plan that ran.
    problems
        Jobs that gave no verdict, with the reason: a mutant that does not build, a time-out.
    seconds
        Wall clock of all of it.
    """

    mutant: str
    file: str
    own_test: str
    own_reason: str
    killer: str
    reason: str
    tried: int
    problems: tuple[str, ...]
    seconds: float


def own_job(name: str, mutant: Mutant, folder: Path) -> Job:
    """Return the mutant's own test, which has to fail, with the fault in a copy of the RTL."""
    bench = mutant.bench
    simulation = Simulation(
        mutant.design(folder), f"{BENCHES}{bench.module}", mutant.test, bench.options
    )
    test = RecordedTest(f"{OWN_TEST}[{name}]", OWN_LIMIT_SECONDS, (simulation,))
    return Job(test, test.seed(None, 0))


def candidates(mutant: Mutant, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs whose designs have the mutant's file, those likely to fail first.

    Jobs on one design follow each other, as it is built once; tests that are to fail, as those of
    other mutants are, do not count.
    """
    file = REPOSITORY / "rtl" / mutant.file
    fitting = [
        job
        for job in jobs
        if not job.test.name.startswith("test_mutants.py")
        and any(file in simulation.design.sources for simulation in job.simulations)
        and all(simulation.fails is None for simulation in job.simulations)
    ]

    def design_of(job: Job) -> str:
        return repr(design_to_json(job.simulations[0].design))

    alike = {design_of(job) for job in fitting if job.simulations[0].test == mutant.test}

    def order(job: Job) -> tuple[bool, bool, bool, int, str, bool]:
        first = job.simulations[0]
        return (
            first.module != f"{BENCHES}{mutant.bench.module}",
            first.design.simulator != "icarus",  # which builds in no time
            design_of(job) not in alike,
            len(first.design.sources),
            design_of(job),
            first.test != mutant.test,
        )

    return sorted(fitting, key=order)


def with_fault(job: Job, folder: Path) -> Job:
    """Return a job with the RTL of a folder in place of the repository's."""
    rtl = REPOSITORY / "rtl"

    def changed(design: Design) -> Design:
        sources = (
            folder / "rtl" / source.relative_to(rtl) if source.is_relative_to(rtl) else source
            for source in design.sources
        )
        return replace(design, sources=tuple(sources))

    simulations = tuple(replace(s, design=changed(s.design)) for s in job.test.simulations)
    return replace(job, test=replace(job.test, simulations=simulations), coverage="")


class Judge:
    """Runs jobs on mutants.

    Parameters
    ----------
    jobs
        Jobs of a plan.
    folder
        Folder for logs and copies of the RTL; emptied mutant by mutant.
    """

    def __init__(self, jobs: Sequence[Job], folder: Path) -> None:
        self._jobs, self._folder = jobs, folder
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Kill what runs."""
        self._stopped.set()

    def judge(self, name: str, mutant: Mutant) -> Verdict:
        """Run the tests on a mutant until one of the plan fails."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self._folder) as made:
            folder = Path(made)
            own = own_job(name, mutant, folder)
            status, own_reason = self._run(own, folder)
            problems = [] if status in (Status.FAILED, Status.PASSED) else [f"own: {own_reason}"]
            killer = reason = ""
            tried, designs = 0, {s.design.key() for s in own.simulations}
            for job in candidates(mutant, self._jobs):
                faulty = with_fault(job, folder)
                designs |= {simulation.design.key() for simulation in faulty.simulations}
                status, said = self._run(faulty, folder)
                tried += 1
                if status is Status.FAILED:
                    killer, reason = job.test.name, said
                    break
                if status is not Status.PASSED:
                    problems.append(f"{job.test.name}: {status}: {said}")
                if self._stopped.is_set():
                    break
            for key in designs:  # nobody builds these again
                shutil.rmtree(BUILD_ROOT / key, ignore_errors=True)
                with suppress(OSError):
                    (BUILD_ROOT / key).with_suffix(".lock").unlink()
        return Verdict(
            name,
            mutant.file,
            f"{mutant.bench.module}.{mutant.test}",
            own_reason if not problems or not problems[0].startswith("own: ") else "",
            killer,
            reason,
            tried,
            tuple(problems),
            round(time.monotonic() - start, 1),
        )

    def _run(self, job: Job, folder: Path) -> tuple[Status, str]:
        """Build what a job needs and run it; return its status and its first mismatch."""
        logs = str(folder / "logs")
        for simulation in job.simulations:
            task: Json = {"kind": "build", "design": design_to_json(simulation.design)}
            result = supervise({**task, "folder": logs}, BUILD_LIMIT_SECONDS, self._stopped.is_set)
            if Status(result["status"]) is not Status.PASSED:
                return Status(result["status"]), result.get("reason", "")
        task = {**job.to_json(), "kind": "simulation", "folder": logs}
        result = supervise(task, job.test.time_limit, self._stopped.is_set)
        shutil.rmtree(logs, ignore_errors=True)
        return Status(result["status"]), result.get("reason", "")


def judge_all(
    mutants: Mapping[str, Mutant], jobs: Sequence[Job], folder: Path, slots: int
) -> Iterator[Verdict]:
    """Judge mutants, some at once, and yield each verdict as it comes."""
    judge = Judge(jobs, folder)
    with ThreadPoolExecutor(slots) as pool:
        futures = [pool.submit(judge.judge, name, mutant) for name, mutant in mutants.items()]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            judge.stop()
            for future in futures:
                future.cancel()
            raise


def summary(verdicts: Sequence[Verdict], plan: str) -> tuple[list[str], bool]:
    """Return what the verdicts say in lines, and whether enough mutants died."""
    count = len(verdicts)
    own = sum(bool(verdict.own_reason) for verdict in verdicts)
    killed = sum(bool(verdict.killer) for verdict in verdicts)
    least = LEAST.get(plan, 0.0)
    lines = [
        f"{own} of {count} mutants fail their own test, which nightly runs",
        f"{killed} of {count} ({killed / max(count, 1):.1%}) are killed by other tests of {plan}"
        + (f"; at least {least:.0%} must be" if least else ""),
    ]
    return lines, count > 0 and own == count and killed >= least * count


def table(verdicts: Sequence[Verdict], plan: str) -> str:
    """Return the table of who killed each mutant, in Markdown."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")[:120]

    lines = [f"| mutant | file | own test | killed in {plan} by | first mismatch there |"]
    lines.append("|---|---|---|---|---|")
    for verdict in sorted(verdicts, key=lambda v: (v.file, v.mutant)):
        own = verdict.own_test if verdict.own_reason else f"**survives {verdict.own_test}**"
        killer = verdict.killer or f"**survives** {verdict.tried} jobs"
        cells = (verdict.mutant, verdict.file, own, killer, verdict.reason)
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the mutants of the command line; 0 when enough of them died."""
    parser = argparse.ArgumentParser(prog="python -m fastdelta_verif.regression.mutation")
    parser.add_argument("--plan", default="smoke", help="whose tests have to kill; default smoke")
    parser.add_argument("--match", default="", help="only mutants with this in name or file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at once")
    parser.add_argument("--seed", type=int, help="what seeds follow from, of a plan with new ones")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the table")
    options = parser.parse_args(arguments)
    mutants = {
        name: mutant
        for name, mutant in MUTANTS.items()
        if options.match in name or options.match in mutant.file
    }
    if not mutants or options.jobs < 1:
        parser.error("no mutant has that in its name or file, or --jobs is below 1")
    options.output.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(dir=options.output) as made:
        try:
            tests = record(Path(made) / "recorded")
            selection = select(Request(plan=options.plan, seed=options.seed), tests)
        except (RequestError, RuntimeError) as error:
            parser.error(str(error))
        print(f"{len(mutants)} mutants, {len(selection.jobs)} jobs of {options.plan}", flush=True)
        for verdict in judge_all(mutants, selection.jobs, Path(made), options.jobs):
            verdicts.append(verdict)
            end = verdict.killer or f"SURVIVES {verdict.tried} jobs"
            own = "" if verdict.own_reason else "; SURVIVES its own test"
            print(f"{verdict.mutant}: {end}{own} ({verdict.seconds:.0f} s)", flush=True)
            for problem in verdict.problems:
                print(f"  no verdict: {problem}", flush=True)
            _write(verdicts, options.output, options.plan, selection.base_seed)
    lines, enough = summary(verdicts, options.plan)
    print(*lines, f"table: {options.output / f'{options.plan}.md'}", sep="\n")
    return 0 if enough else 1


def _write(verdicts: Sequence[Verdict], folder: Path, plan: str, seed: int | None) -> None:
    lines, enough = summary(verdicts, plan)
    report = {
        "plan": plan,
        "base_seed": seed,
        "enough": enough,
        "summary": lines,
        "mutants": [asdict(verdict) for verdict in verdicts],
    }
    (folder / f"{plan}.json").write_text(json.dumps(report, indent=1))
    (folder / f"{plan}.md").write_text("\n\n".join([*lines, table(verdicts, plan)]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
