# SPDX-License-Identifier: Apache-2.0
"""Progress of a regression: bars on a terminal, lines elsewhere; failures as they come."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fastdelta_verif.regression.report import rerun_line
from fastdelta_verif.regression.results import Result, Status
from fastdelta_verif.regression.runner import JobRun, Watcher

LINE_SECONDS = 30.0  # between lines of progress where there is no terminal
SHOWN_RUNNING = 8


class ConsoleWatcher(Watcher):
    """Shows progress on a console; used as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, transient=True)
        self._running: dict[str, float] = {}
        self._builds = self._built = self._jobs = self._done = self._failed = 0
        self._said = time.monotonic()

    def __enter__(self) -> ConsoleWatcher:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, builds: int, jobs: int) -> None:
        """Show the bars."""
        self._builds, self._jobs = builds, jobs
        self._builds_bar = self._bars.add_task("builds", total=builds, visible=builds > 0)
        self._jobs_bar = self._bars.add_task("jobs", total=jobs)
        self._now = self._bars.add_task("", total=None, visible=False)
        if not self._console.is_terminal:
            self._console.print(f"{builds} builds, {jobs} jobs")

    def started(self, name: str) -> None:
        """Count a job as running."""
        self._running[name] = time.monotonic()

    def built(self, name: str, result: Result) -> None:
        """Move the bar; show a build that failed."""
        self._running.pop(name, None)
        self._built += 1
        self._builds = max(self._builds, self._built)  # waves have builds of their own
        self._bars.update(self._builds_bar, completed=self._built, total=self._builds)
        if result.status not in (Status.PASSED, Status.NOT_RUN, Status.INTERRUPTED):
            self._say(result.status, name, result.reason)

    def ended(self, run: JobRun) -> None:
        """Move the bar; show a failure with the line that runs it again."""
        self._running.pop(run.job.name, None)
        self._done += 1
        result = run.result
        if result.status is not Status.PASSED:
            self._failed += 1
        self._bars.update(self._jobs_bar, completed=self._done, description=self._jobs_text())
        if result.status not in (Status.PASSED, Status.NOT_RUN):
            at = f" at {result.time}" if result.time else ""
            self._say(result.status, f"{run.job.name}{at}", result.reason, rerun_line(run))
        if result.attempts > 1:
            text = f"{run.job.name} was started {result.attempts} times, as workers died"
            self._console.print(Text(text, style="yellow"), soft_wrap=True)

    def waves(self, run: JobRun) -> None:
        """Show where the waves of a failure are, and whether it failed again."""
        assert run.waves is not None
        if run.waves.status in (Status.NOT_RUN, Status.INTERRUPTED):
            return
        if run.waves_file.exists():
            text = f"waves of {run.job.name}: {run.waves_file}"
            self._console.print(Text(text, style="dim"), soft_wrap=True)
        if not run.reproduced:
            text = f"not reproduced: {run.job.name} with waves {run.waves.status}"
            text = f"{text} {run.waves.reason}".strip()
            self._console.print(Text(text, style="bold yellow"), soft_wrap=True)

    def tick(self) -> None:
        """Show what runs."""
        if self._console.is_terminal:
            names = sorted(self._running, key=lambda name: self._running[name])
            now = time.monotonic()
            lines = [f"  {now - self._running[n]:4.0f} s  {n}" for n in names[:SHOWN_RUNNING]]
            text = Text("\n".join(lines)).markup
            self._bars.update(self._now, description=text, visible=bool(lines))
        elif time.monotonic() - self._said > LINE_SECONDS:
            self._said = time.monotonic()
            builds = f"{self._built} of {self._builds} builds, " if self._builds else ""
            self._console.print(f"{builds}{self._done} of {self._jobs} {self._jobs_text()}")

    def _jobs_text(self) -> str:
        return f"jobs, {self._failed} not passed" if self._failed else "jobs"

    def _say(self, status: Status, name: str, reason: str, rerun: str = "") -> None:
        text = Text(f"{status}: ", style="bold red")
        text.append(name, style="default")
        text.append(f"\n  {reason}", style="default not bold")
        if rerun:
            text.append(f"\n  {rerun}", style="cyan not bold")
        self._console.print(text, soft_wrap=True)
