# SPDX-License-Identifier: Apache-2.0
"""Tests that end in every way a job can end, for the tests of the regression runner.

They look at no signal; any design will do. Options name files through which a run tells its
processes, or finds that it is not the first.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import time
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from fastdelta_verif.coverage import CoverageGroup, write_hits
from fastdelta_verif.settings import Settings


def _note_processes(*numbers: int) -> None:
    with Path(Settings.current().options["processes"]).open("a") as stream:
        stream.writelines(f"{number}\n" for number in numbers)


def _is_first() -> bool:
    """Say whether no earlier run was here."""
    mark = Path(Settings.current().options["mark"])
    first = not mark.exists()
    mark.touch()
    return first


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@cocotb.test(timeout_time=1, timeout_unit="us")
async def passes(_: object) -> None:
    """Pass, with a bin of coverage for each parity of the seed."""
    group = CoverageGroup("misbehaving")
    group.point("seed", ("even", "odd"))
    settings = Settings.current()
    group.hit("seed", "odd" if settings.seed % 2 else "even")
    await Timer(1, "ns")
    write_hits(group.hits(), settings.coverage_file)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def mismatches(_: object) -> None:
    """Fail at 7 ns."""
    await Timer(7, "ns")
    raise AssertionError("beat 3: got 1, expected 2\x00 <&>")


@cocotb.test(timeout_time=1, timeout_unit="us")
async def fails_once(_: object) -> None:
    """Fail at the first run of a seed, and pass at the second."""
    await Timer(1, "ns")
    assert not _is_first(), "the first run fails"


@cocotb.test(timeout_time=1, timeout_unit="us")
async def crashes(_: object) -> None:
    """Let the simulator die."""
    await Timer(1, "ns")
    os.kill(os.getpid(), signal.SIGSEGV)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def crashes_after_passing(_: object) -> None:
    """Pass, and let the simulator die at its end."""
    await Timer(1, "ns")
    atexit.register(os.kill, os.getpid(), signal.SIGABRT)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def hangs(_: object) -> None:
    """Never end, with a child that does not either and ignores all but the last signal."""
    ignoring = "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
    child = subprocess.Popen(["python3", "-c", f"{ignoring}time.sleep(3600)"])
    _note_processes(os.getppid(), os.getpid(), child.pid)
    while True:
        time.sleep(1)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def kills_its_job(_: object) -> None:
    """Kill the process of the job, as the kernel does when memory is short, and stay."""
    _note_processes(os.getpid())
    os.kill(os.getppid(), signal.SIGKILL)
    while True:
        time.sleep(1)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def kills_its_machine(_: object) -> None:
    """Kill the Dask worker that the job runs on, the first time or always."""
    _note_processes(os.getppid(), os.getpid())
    if _is_first() or Settings.current().options.get("always"):
        os.kill(_parent(os.getppid()), signal.SIGKILL)
        while True:
            time.sleep(1)
    await Timer(1, "ns")


@cocotb.test(timeout_time=1, timeout_unit="us")
async def fills_the_disk(_: object) -> None:
    """Write until there is no space, and fail for it."""
    with Path("filling").open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(1 << 16))
