# SPDX-License-Identifier: Apache-2.0
"""What a job can come to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fastdelta_verif.coverage import CodePoints, Hits

# XML 1.0 and HTML have no place for these, and a log may hold any of them.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Return a text with a question mark for each control character."""
    return FORBIDDEN.sub("?", text)


class Status(StrEnum):
    """How a job ended; everything but PASSED makes a regression fail."""

    PASSED = "passed"
    FAILED = "failed"  # the test said so
    CRASHED = "crashed"  # the simulator died, or gave no verdict
    TIMED_OUT = "timed out"
    BUILD_FAILED = "build failed"
    DIED = "died"  # the job's process, or the machine it was on, was gone
    NO_SPACE = "no space left"
    ERROR = "error"  # of the bench or the runner, before a verdict
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"


# These say something of the design; the others, that it was not judged.
VERDICTS = frozenset({Status.PASSED, Status.FAILED, Status.CRASHED, Status.TIMED_OUT})


@dataclass
class Result:
    """The end of a task.

    Attributes
    ----------
    status
        How it ended.
    reason
        First mismatch, or what else was wrong, in a line.
    time
        Simulated time of the mismatch.
    seconds, cpu_seconds
        Wall clock, and processor time of all processes; the latter only of jobs that ended.
    where
        Machine, with a Dask cluster.
    attempts
        Starts of the job: more than one if a worker died and another took it over.
    functional, code
        Coverage of a job that passed.
    """

    status: Status
    reason: str = ""
    time: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    where: str = ""
    attempts: int = 1
    functional: Hits = field(default_factory=dict)
    code: CodePoints = field(default_factory=CodePoints)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Result:
        """Return the result that a worker wrote."""
        record = {**record, "status": Status(record["status"])}
        if "code" in record:
            record["code"] = CodePoints.from_json(record["code"])
        return cls(**record)
