# SPDX-License-Identifier: Apache-2.0
"""Run tests of the bench ``misbehaving`` as a regression, in a process that a test can stop.

The report goes to standard output, also if the disk of the output folder is gone afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from fastdelta_verif.build import REPOSITORY, Design
from fastdelta_verif.regression.jobs import RecordedTest, Simulation
from fastdelta_verif.regression.session import Request, regress

REGISTER = REPOSITORY / "verif/fastdelta_verif/fixtures/stream_register.v"
MODULE = "fastdelta_verif.benches.misbehaving"


def misbehaving(
    test: str,
    options: dict[str, Any] | None = None,
    *,
    name: str = "",
    width: int = 8,
    limit: float = 30,
    fails: str | None = None,
    source: Path = REGISTER,
) -> RecordedTest:
    """Return a test of the bench around the stream register, in Icarus, which builds at once."""
    design = Design(source.stem, (source,), {"WIDTH": width, "FAULT": 0}, simulator="icarus")
    simulation = Simulation(design, MODULE, test, options or {}, fails)
    return RecordedTest(f"test_misbehaving.py::{name or test}", limit, (simulation,))


def main() -> None:
    """Run what the JSON in the first argument says."""
    arguments = json.loads(sys.argv[1])
    tests = [misbehaving(**test) for test in arguments["tests"]]
    request = Request(
        "nightly",
        seeds=1,
        seed=7,
        coverage="",
        jobs=arguments.get("jobs", 2),
        scheduler=arguments.get("scheduler", ""),
        output=Path(arguments["output"]),
        waves=0,
    )
    report, code = regress(request, Console(stderr=True), tests)
    sys.stdout.write(json.dumps(report))
    sys.exit(code)


if __name__ == "__main__":
    main()
