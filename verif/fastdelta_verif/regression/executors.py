# SPDX-License-Identifier: Apache-2.0
"""Where tasks run: processes of this machine, or a Dask cluster. Both use ``process.supervise``."""

from __future__ import annotations

import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fastdelta_verif.build import REPOSITORY
from fastdelta_verif.regression.jobs import Json
from fastdelta_verif.regression.process import supervise
from fastdelta_verif.regression.results import Status

if TYPE_CHECKING:
    from distributed import Future

STOP_POLL_SECONDS = 0.5
CONNECT_SECONDS = 10
WORKER_SECONDS = 600  # a queue of a batch system may take its time
STARTED = "started"  # status of the event that a task began

Events = queue.SimpleQueue[tuple[str, Json]]


class Executor(Protocol):
    """Runs tasks; what becomes of each comes out of a queue with its key, in any order.

    Attributes
    ----------
    events
        Results of tasks, and, from the local executor, notices that one began.
    """

    events: Events

    def submit(self, key: str, task: Json, time_limit: float, priority: float) -> None:
        """Take a task; those of higher priority run first."""

    def stop(self) -> None:
        """Kill what runs and run nothing else; results of killed tasks still come out."""

    def close(self) -> None:
        """Stop, and release everything."""


class LocalExecutor:
    """Processes of this machine, a given number at once."""

    def __init__(self, slots: int) -> None:
        self.events: Events = queue.SimpleQueue()
        self._tasks: queue.PriorityQueue[tuple[float, int, tuple[str, Json, float] | None]]
        self._tasks = queue.PriorityQueue()
        self._order = itertools.count()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(slots)]
        for thread in self._threads:
            thread.start()

    def submit(self, key: str, task: Json, time_limit: float, priority: float) -> None:
        """Take a task."""
        self._tasks.put((-priority, next(self._order), (key, task, time_limit)))

    def _work(self) -> None:
        while True:
            _, _, entry = self._tasks.get()
            if entry is None:
                return
            key, task, time_limit = entry
            if self._stopped.is_set():
                self.events.put((key, {"status": Status.NOT_RUN}))
                continue
            self.events.put((key, {"status": STARTED}))
            try:
                result = supervise(task, time_limit, self._stopped.is_set)
            except Exception as error:
                result = {"status": Status.ERROR, "reason": f"{type(error).__name__}: {error}"}
            self.events.put((key, result))

    def stop(self) -> None:
        """Kill what runs; what waits is not run."""
        self._stopped.set()

    def close(self) -> None:
        """Stop, and wait until every process is gone."""
        self.stop()
        for _ in self._threads:
            self._tasks.put((float("inf"), next(self._order), None))
        for thread in self._threads:
            thread.join()


def run_remotely(task: Json, time_limit: float, token: str) -> Json:
    """Run a task on a worker of a cluster, as long as a file of the shared folder is there.

    The task's folder counts the starts: when its worker dies, Dask gives the task to another.
    """
    if not Path(token).exists():
        return {"status": Status.NOT_RUN}
    attempts = Path(task["folder"]) / "attempts"
    with suppress(OSError):
        attempts.parent.mkdir(parents=True, exist_ok=True)
        with attempts.open("a") as stream:
            stream.write(f"{socket.gethostname()} {os.getpid()}\n")
    asked, gone = 0.0, False

    def stopped() -> bool:
        nonlocal asked, gone
        if time.monotonic() - asked > STOP_POLL_SECONDS:
            asked, gone = time.monotonic(), not Path(token).exists()
        return gone

    result = supervise(task, time_limit, stopped)
    result["where"] = socket.gethostname()
    with suppress(OSError):
        result["attempts"] = max(1, len(attempts.read_text().splitlines()))
    return result


def sees(token: str, repository: str) -> str:
    """Say what a worker of a cluster does not share with this machine; empty when nothing."""
    missing = [path for path in (token, repository) if not Path(path).exists()]
    return ", ".join(missing)


class DaskExecutor:
    """Workers of a Dask cluster that share the repository's file system.

    Parameters
    ----------
    address
        Of a scheduler, or ``local`` for a cluster of this machine.
    slots
        Workers of a local cluster.
    folder
        Of the regression.

    Raises
    ------
    RuntimeError
        There is no scheduler, it has no worker, or a worker does not see the folder.
    """

    def __init__(self, address: str, slots: int, folder: Path) -> None:
        from distributed import Client, LocalCluster

        self.events: Events = queue.SimpleQueue()
        self._client: Any = None
        self._cluster: Any = None
        self._futures: dict[str, Future] = {}
        self._stopped = False
        folder.mkdir(parents=True, exist_ok=True)
        self._token = folder / "running"
        self._token.touch()
        if address == "local":
            self._cluster = LocalCluster(
                n_workers=slots, threads_per_worker=1, dashboard_address=None, silence_logs=50
            )
            address = self._cluster.scheduler_address
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, name="fastdelta")
            self._check(address)
        except (OSError, TimeoutError, RuntimeError) as error:
            self.close()
            raise RuntimeError(f"scheduler {address}: {error}") from error

    def _check(self, address: str) -> None:
        answers: dict[str, str] = {}
        end = time.monotonic() + WORKER_SECONDS
        while not answers and time.monotonic() < end:
            self._client.wait_for_workers(1, timeout=WORKER_SECONDS)
            # A worker that is just leaving gives no answer.
            question = (sees, str(self._token), str(REPOSITORY))
            answers = self._client.run(*question, on_error="ignore")
        for worker, missing in answers.items():
            if missing:
                raise RuntimeError(
                    f"worker {worker} has no {missing}; all workers of {address} must share the "
                    "repository and the output folder with this machine"
                )

    def submit(self, key: str, task: Json, time_limit: float, priority: float) -> None:
        """Take a task."""
        if self._stopped:
            self.events.put((key, {"status": Status.NOT_RUN}))
            return
        future = self._client.submit(
            run_remotely,
            task,
            time_limit,
            str(self._token),
            key=f"{key}-{self._token.parent.name}",
            pure=False,
            priority=priority,
        )
        self._futures[key] = future
        future.add_done_callback(self._callback(key))

    def _callback(self, key: str) -> Callable[[Future], None]:
        def done(future: Future) -> None:
            if future.status == "finished":
                result: Json = future.result()
            elif future.status == "error":
                error = future.exception()
                lost = type(error).__name__ == "KilledWorker"
                result = {
                    "status": Status.DIED if lost else Status.ERROR,
                    "reason": "its Dask workers died again and again"
                    if lost
                    else f"{type(error).__name__}: {error}",
                }
            elif self._stopped:
                result = {"status": Status.NOT_RUN}
            else:
                result = {"status": Status.DIED, "reason": "the Dask scheduler lost it"}
            self.events.put((key, result))

        return done

    def stop(self) -> None:
        """Kill what runs, by removing the file that says the regression runs."""
        if self._stopped:
            return
        self._stopped = True
        self._token.unlink(missing_ok=True)  # tasks that wait see this, and end at once

    def close(self) -> None:
        """Stop, and leave the cluster; a local one ends."""
        self.stop()
        with suppress(Exception):
            if self._client is not None:
                self._client.close()
        if self._cluster is not None:
            self._cluster.close()
