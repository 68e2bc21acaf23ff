# SPDX-License-Identifier: Apache-2.0
"""The process of one job: ``python -m fastdelta_verif.regression.worker LIFELINE_FD``.

It reads the job as JSON from standard input, and writes its result as one line of JSON to standard
output, not to a file: a full disk must not hide a verdict. Everything else that it and the
simulator say goes to ``job.log``. It leads a process group; when the other end of the lifeline
closes, because whoever started it is gone, it kills the whole group, itself included.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastdelta_verif.build import (
    NO_SPACE_LEFT,
    REPOSITORY,
    BuildError,
    SimulationError,
    build,
    run,
)
from fastdelta_verif.coverage import CodePoints, merge, read_code_coverage
from fastdelta_verif.regression.jobs import FOLDER, Json, Simulation, design_from_json
from fastdelta_verif.regression.results import Status

LARGEST_FILE_BYTES = 2 << 30  # of a log or waves: a runaway must not fill the disk


def build_task(task: Json) -> Json:
    """Build a design."""
    build(design_from_json(task["design"]))
    return {"status": Status.PASSED}


def simulation_task(task: Json) -> Json:
    """Run the simulations of a test, and return its coverage."""
    folder, seed = Path(task["folder"]), int(task["seed"])
    functional, code = [], CodePoints()
    for number, record in enumerate(task["simulations"]):
        simulation = Simulation.from_json(record)
        coverage = folder / f"coverage-{number}"
        run(
            simulation.design,
            simulation.module,
            simulation.test,
            seed=seed,
            options=simulation.options,
            folder=folder,
            rerun=f"pytest '{FOLDER}{task['test']}'",
            fails=simulation.fails,
            coverage=coverage,
        )
        if simulation.fails is None:  # a faulty design's coverage says nothing of the right one
            functional += [file for file in [coverage.with_suffix(".json")] if file.exists()]
            if simulation.design.coverage:
                code.add(read_code_coverage(coverage.with_suffix(".dat"), REPOSITORY / "rtl"))
    return {"status": Status.PASSED, "functional": merge(functional), "code": code.to_json()}


def pytest_task(task: Json) -> Json:
    """Run a test that only pytest can run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--basetemp", str(Path(task["folder"]) / "tmp"), f"{FOLDER}{task['test']}"]
    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(result.stdout, flush=True)
    if result.returncode == 0 and re.search(r"\b1 passed\b", result.stdout):
        return {"status": Status.PASSED}
    if NO_SPACE_LEFT in result.stdout:
        raise OSError(errno.ENOSPC, NO_SPACE_LEFT)
    said = re.findall(r"^E\s+(.*)", result.stdout, flags=re.MULTILINE)
    reason = said[0] if said else (result.stdout.strip().splitlines() or ["it said nothing"])[-1]
    crashed = result.returncode < 0
    return {"status": Status.CRASHED if crashed else Status.FAILED, "reason": reason}


TASKS: dict[str, Callable[[Json], Json]] = {
    "build": build_task,
    "simulation": simulation_task,
    "pytest": pytest_task,
}


def perform(task: Json) -> Json:
    """Run a task and return its result; whatever it raises becomes a status and a reason."""
    try:
        return TASKS[task["kind"]](task)
    except SimulationError as error:
        print(error, flush=True)
        status = Status.CRASHED if error.crashed else Status.FAILED
        return {"status": status, "reason": error.reason, "time": error.time}
    except BuildError as error:
        print(error, flush=True)
        status = Status.NO_SPACE if NO_SPACE_LEFT in str(error) else Status.BUILD_FAILED
        return {"status": status, "reason": _first_error(str(error))}
    except OSError as error:
        print(traceback.format_exc(), flush=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {"status": Status.NO_SPACE if full else Status.ERROR, "reason": str(error)}
    except Exception as error:
        print(traceback.format_exc(), flush=True)
        return {"status": Status.ERROR, "reason": f"{type(error).__name__}: {error}"}


def _first_error(output: str) -> str:
    """Return the first line of a compiler's output that tells an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"%Error|\berror\b", line)), lines[0])


def _hold(lifeline: int) -> None:
    """Kill the process group when the other end of the lifeline closes."""
    while os.read(lifeline, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _redirect(path: Path) -> None:
    """Send standard output and error to a file, or to nowhere when it cannot be opened."""
    sys.stdout.flush()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


class _Forgiving:
    """Standard output that loses what the disk has no place for."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        """Do nothing: each write was flushed."""


def main() -> None:
    """Run the job on standard input."""
    lifeline = int(sys.argv[1])
    threading.Thread(target=_hold, args=(lifeline,), daemon=True).start()
    answer = os.dup(1)  # not inherited: the simulator must not hold it open
    task = json.loads(sys.stdin.read())
    _redirect(Path(task["folder"]) / "job.log")
    sys.stdout = sys.stderr = _Forgiving(sys.stdout)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, hard))
    start = time.monotonic()
    result = perform(task)
    result["seconds"] = time.monotonic() - start
    usages = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result["cpu_seconds"] = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    with os.fdopen(answer, "w") as stream:
        stream.write(json.dumps(result) + "\n")
    os._exit(0)  # not waiting for the thread


if __name__ == "__main__":
    main()
