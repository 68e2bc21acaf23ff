# SPDX-License-Identifier: Apache-2.0
"""Runs jobs: builds first, each once; then the simulations; then failures again with waves."""

from __future__ import annotations

import queue
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from fastdelta_verif.build import BUILD_ROOT, Design
from fastdelta_verif.coverage import CodePoints, Hits, merge_hits
from fastdelta_verif.regression.executors import STARTED, Executor
from fastdelta_verif.regression.jobs import Job, design_to_json
from fastdelta_verif.regression.results import Result, Status
from fastdelta_verif.testplan import case_of

BUILD_LIMIT_SECONDS = 1200.0
DRAIN_SECONDS = 20.0
TICK_SECONDS = 0.2
UNKNOWN_SECONDS = 10.0  # expected duration of a job that has no history
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class JobRun:
    """A job and what became of it.

    Attributes
    ----------
    job
        The job.
    result
        How it ended.
    folder
        Where its log is, if it did not pass.
    waves
        Result of the second run that recorded waves, of a failure.
    """

    job: Job
    result: Result
    folder: Path
    waves: Result | None = None

    @property
    def waves_file(self) -> Path:
        """Waves of the second run."""
        return self.folder.with_name(f"{self.folder.name}-waves") / "dump.fst"

    @property
    def reproduced(self) -> bool:
        """Whether the second run failed as the first did."""
        return self.waves is not None and (self.waves.status, self.waves.reason) == (
            self.result.status,
            self.result.reason,
        )


@dataclass
class Outcome:
    """Everything a regression found out.

    Attributes
    ----------
    runs
        Each job, in the given order.
    builds
        Designs that had to be built, by key, with their results.
    functional, code
        Merged coverage of the jobs that passed.
    sampled
        Points of the functional coverage that a test of these hit.
    stopped
        Why the regression ended early; empty when it did not.
    """

    runs: list[JobRun]
    builds: dict[str, Result]
    functional: Hits
    code: CodePoints
    seconds: float
    stopped: str = ""
    sampled: dict[str, set[str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether there was something to run, and all of it passed."""
        good = all(run.result.status is Status.PASSED for run in self.runs)
        return bool(self.runs) and good and not self.stopped


class Watcher:
    """What a regression tells while it runs; this one does not listen."""

    def begin(self, builds: int, jobs: int) -> None:
        """Hear how much there is to do."""

    def started(self, name: str) -> None:
        """Hear that a build or job began."""

    def built(self, name: str, result: Result) -> None:
        """Hear that a build ended."""

    def ended(self, run: JobRun) -> None:
        """Hear that a job ended."""

    def waves(self, run: JobRun) -> None:
        """Hear that the second run of a failure ended."""

    def tick(self) -> None:
        """Be called a few times a second."""


@dataclass
class _Waiting:
    job: Job
    builds: set[str]
    second: bool = False


@dataclass
class Regression:
    """Runs jobs on an executor.

    Parameters
    ----------
    jobs
        What to run.
    executor
        Where.
    folder
        Folder of the run; logs are kept below it for jobs that did not pass.
    watcher
        Told of progress.
    expected
        Seconds that tests took before: the longest start first.
    waves
        How many failures to run again with waves.
    time_factor
        Of the tests' time limits, for runs that record much.
    """

    jobs: Sequence[Job]
    executor: Executor
    folder: Path
    watcher: Watcher = field(default_factory=Watcher)
    expected: Mapping[str, float] = field(default_factory=dict)
    waves: int = 0
    time_factor: float = 1.0
    _builds: dict[str, Result] = field(default_factory=dict, init=False)
    _designs: dict[str, Design] = field(default_factory=dict, init=False)
    _keys: dict[str, str] = field(default_factory=dict, init=False)
    _waiting: dict[str, _Waiting] = field(default_factory=dict, init=False)
    _submitted: dict[str, Job | None] = field(default_factory=dict, init=False)
    _runs: dict[str, JobRun] = field(default_factory=dict, init=False)
    _stopped: str = field(default="", init=False)
    _signals: int = field(default=0, init=False)
    _functional: Hits = field(default_factory=dict, init=False)
    _code: CodePoints = field(default_factory=CodePoints, init=False)
    _sampled: dict[str, set[str]] = field(default_factory=dict, init=False)

    def run(self) -> Outcome:
        """Run until everything has ended, a signal says stop, or the disk is full."""
        start = time.monotonic()
        names = [job.name for job in self.jobs]
        if len(set(names)) != len(names):
            raise ValueError("a job is given twice")
        with self._signals_stop():
            for job in self.jobs:
                self._designs.update(self._designs_of(job))
                if job.test.is_case:  # a bin that is there also if the test does not pass
                    point, bin_ = case_of(job.test.name)
                    self._functional.setdefault(point, {}).setdefault(bin_, 0)
            absent = [key for key in self._designs if not _is_built(key)]
            self.watcher.begin(len(absent), len(self.jobs))
            for job in self.jobs:
                self._add(job)
            self._loop()
        self._give_up_rest()
        runs = [self._runs[name] for name in names]
        return Outcome(
            runs,
            self._builds,
            self._functional,
            self._code,
            time.monotonic() - start,
            self._stopped,
            self._sampled,
        )

    @contextmanager
    def _signals_stop(self) -> Iterator[None]:
        """Let signals end the regression, not the process."""

        def stop(number: int, _: FrameType | None) -> None:
            self._signals += 1
            self._stopped = self._stopped or f"stopped by {signal.Signals(number).name}"

        before = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _designs_of(self, job: Job) -> dict[str, Design]:
        """Return what a job needs to be built, by key."""
        designs = {}
        for simulation in job.simulations:
            text = repr(design_to_json(simulation.design))
            if text not in self._keys:  # a key reads all sources, and many jobs share a design
                self._keys[text] = simulation.design.key()
            designs[self._keys[text]] = simulation.design
        return designs

    def _seconds(self, job: Job) -> float:
        return self.expected.get(job.test.name, UNKNOWN_SECONDS)

    def _add(self, job: Job, *, second: bool = False) -> None:
        """Submit a job, or the builds that it needs first."""
        designs = self._designs_of(job)
        self._designs.update(designs)
        needed = {key for key in designs if key not in self._builds and not _is_built(key)}
        for key in sorted(needed):
            if key not in self._submitted:
                self._submitted[key] = None
                # Builds go first; among them, those that long jobs wait for.
                self.executor.submit(
                    key,
                    {
                        "kind": "build",
                        "design": design_to_json(self._designs[key]),
                        "folder": str(self.folder / "builds" / key),
                    },
                    BUILD_LIMIT_SECONDS,
                    1e6 + self._seconds(job),
                )
        name = _second(job.name) if second else job.name
        self._waiting[name] = _Waiting(job, needed, second)
        self._start_ready(name)

    def _start_ready(self, name: str) -> None:
        """Submit a job that waits for no build any more, or end it if one failed."""
        waiting = self._waiting[name]
        if waiting.builds:
            return
        del self._waiting[name]
        job = waiting.job
        for key in self._designs_of(job):
            build = self._builds.get(key)
            if build is None or build.status is Status.PASSED:
                continue
            if build.status in (Status.INTERRUPTED, Status.NOT_RUN):
                self._end(name, job, Result(Status.NOT_RUN))
            else:
                self._end(name, job, Result(build.status, f"its build: {build.reason}"))
            return
        self._submitted[name] = job
        kind = "simulation" if job.simulations else "pytest"
        task = {**job.to_json(), "kind": kind, "folder": str(self._folder(job))}
        limit = job.time_limit or job.test.time_limit
        self.executor.submit(name, task, limit * self.time_factor, self._seconds(job))

    def _folder(self, job: Job) -> Path:
        return self.folder / "logs" / job.slug

    def _loop(self) -> None:
        deadline = float("inf")
        while self._submitted and time.monotonic() < deadline:
            if self._stopped and deadline == float("inf"):
                self.executor.stop()
                deadline = time.monotonic() + DRAIN_SECONDS
            if self._signals > 1:
                deadline = min(deadline, time.monotonic() + 1.0)
                self._signals = 1
            self.watcher.tick()
            try:
                key, record = self.executor.events.get(timeout=TICK_SECONDS)
            except queue.Empty:
                continue
            if record["status"] == STARTED:
                job = self._submitted[key]
                self.watcher.started(key if job is not None else _title(self._designs[key]))
                continue
            self._take(key, Result.from_json(record))

    def _take(self, key: str, result: Result) -> None:
        job = self._submitted.pop(key)
        if result.status is Status.NO_SPACE:
            self._stopped = self._stopped or "stopped: no space left on the disk"
        if job is not None:
            self._end(key, job, result)
            return
        self._builds[key] = result
        self.watcher.built(_title(self._designs[key]), result)
        if result.status is Status.PASSED:
            _remove(self.folder / "builds" / key)
        for name, waiting in list(self._waiting.items()):
            if key in waiting.builds:
                waiting.builds.remove(key)
                self._start_ready(name)

    def _end(self, name: str, job: Job, result: Result) -> None:
        """Note the end of a job, and run a failure again with waves."""
        if name.endswith(SECOND):
            run = self._runs[name.removesuffix(SECOND)]
            run.waves = result
            self.watcher.waves(run)
            return
        folder = self._folder(job)
        run = self._runs[name] = JobRun(job, result, folder)
        if result.status is Status.PASSED:
            self._cover(job, result)
            self._code.add(result.code)
            result.functional, result.code = {}, CodePoints()
            if not job.waves:
                _remove(folder)
        elif result.status in (Status.NO_SPACE, Status.INTERRUPTED):
            _remove(folder)  # it says nothing of the design, and its place is needed
        self.watcher.ended(run)
        again = result.status in (Status.FAILED, Status.CRASHED) and job.simulations
        if again and not job.waves and not self._stopped and self.waves > 0:
            self.waves -= 1
            self._add(replace(job, waves=True, coverage=""), second=True)

    def _cover(self, job: Job, result: Result) -> None:
        """Add the functional coverage of a job that passed."""
        hits = result.functional
        if job.test.is_case:
            point, bin_ = case_of(job.test.name)
            hits = {point: {bin_: 1}}
        self._functional = merge_hits([self._functional, hits])
        sampled = {point for point, bins in hits.items() if any(bins.values())}
        self._sampled.setdefault(job.test.name, set()).update(sampled)

    def _give_up_rest(self) -> None:
        """Say of what did not end that it did not."""
        for key, job in list(self._submitted.items()):
            if job is not None:
                self._end(key, job, Result(Status.INTERRUPTED, "no answer when it was stopped"))
        for name, waiting in list(self._waiting.items()):
            self._end(name, waiting.job, Result(Status.NOT_RUN))
        self._submitted.clear()
        self._waiting.clear()
        for run in self._runs.values():
            if run.result.status is Status.NOT_RUN:
                run.result.reason = run.result.reason or self._stopped


SECOND = " (again, with waves)"


def _second(name: str) -> str:
    return f"{name}{SECOND}"


def _title(design: Design) -> str:
    values = " ".join(f"{name}={value}" for name, value in design.parameters.items())
    what = "".join([f" {design.coverage}" if design.coverage else "", " waves" * design.waves])
    return f"build {design.top} ({design.simulator}{what}) {values}"


def _is_built(key: str) -> bool:
    return (BUILD_ROOT / key / "complete").exists()


def _remove(folder: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(folder)
