# SPDX-License-Identifier: Apache-2.0
"""One job in its own process group: time limit, stop, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from fastdelta_verif.build import REPOSITORY
from fastdelta_verif.regression.jobs import Json
from fastdelta_verif.regression.results import Status

POLL_SECONDS = 0.05
GONE_SECONDS = 1.0
WORKER = "fastdelta_verif.regression.worker"


def supervise(task: Json, time_limit: float, stopped: Callable[[], bool]) -> Json:
    """Run a task and return the result that the worker wrote, or what became of it.

    Parameters
    ----------
    task
        What ``worker`` takes.
    time_limit
        Seconds of wall clock, then the process group is killed.
    stopped
        Asked often; when it says yes, the process group is killed.
    """
    start = time.monotonic()
    lifeline_read, lifeline_write = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(lifeline_read)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(lifeline_read,),
            start_new_session=True,
            cwd=REPOSITORY,
        )
    except OSError as error:
        os.close(lifeline_read)
        os.close(lifeline_write)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {"status": Status.NO_SPACE if full else Status.ERROR, "reason": str(error)}
    os.close(lifeline_read)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output, complaint = _Reader(process.stdout), _Reader(process.stderr)
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(task).encode())
    with suppress(BrokenPipeError):
        process.stdin.close()

    ended, status = False, Status.DIED
    while not ended:
        # The process is not yet waited for: its number, and so its group's, is not given again.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, process.pid, options) is not None
        if not ended and stopped():
            status = Status.INTERRUPTED
            break
        if not ended and time.monotonic() - start > time_limit:
            status = Status.TIMED_OUT
            break
        if not ended:
            time.sleep(POLL_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    _await_end(process.pid)
    os.close(lifeline_write)
    seconds = time.monotonic() - start
    if ended:
        with suppress(json.JSONDecodeError, UnicodeDecodeError):
            answer: Json = json.loads(output.text())
            return answer
    reason = {
        Status.INTERRUPTED: "stopped by the end of the regression",
        Status.TIMED_OUT: f"still running after {time_limit:g} s, killed",
        Status.DIED: f"the job's process {_ending(code)}{complaint.last_line()}",
    }[status]
    return {"status": status, "reason": reason, "seconds": seconds}


def _await_end(group: int) -> None:
    """Wait until the killed processes of a group are gone, which takes a moment."""
    end = time.monotonic() + GONE_SECONDS
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(POLL_SECONDS / 10)


class _Reader:
    """Thread that reads a pipe to its end, so that the other side never waits."""

    def __init__(self, pipe: object) -> None:
        self._pipe, self._data = pipe, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        self._data = self._pipe.read()  # type: ignore[attr-defined]
        self._pipe.close()  # type: ignore[attr-defined]

    def text(self) -> str:
        """Return everything that was read; the group that could write is gone."""
        self._thread.join()
        return self._data.decode()

    def last_line(self) -> str:
        """Return the last line, after a colon, if there is one."""
        self._thread.join()
        lines = self._data.decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code} and no result"
    names = {member.value: member.name for member in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
