# SPDX-License-Identifier: Apache-2.0
"""The regression runner around simulations that end in every way: the report is true."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from misbehaving_regression import misbehaving
from typer.testing import CliRunner

from fastdelta.cli import app
from fastdelta_verif.build import BUILD_ROOT
from fastdelta_verif.regression import executors
from fastdelta_verif.regression.executors import DaskExecutor, LocalExecutor
from fastdelta_verif.regression.jobs import Job, RecordedTest, parse_seed_line
from fastdelta_verif.regression.report import rerun_line
from fastdelta_verif.regression.results import Status
from fastdelta_verif.regression.runner import Outcome, Regression
from fastdelta_verif.regression.session import Request, RequestError, select

SCRIPT = Path(__file__).with_name("misbehaving_regression.py")
pytestmark = pytest.mark.sim


def is_alive(process: int) -> bool:
    """Say whether a process runs; one that only waits to be read by its parent does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Path]:
    """File that lists the processes of simulations; none of them may outlive the test."""
    file = tmp_path / "processes"
    yield file
    numbers = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
    wait_until(lambda: not any(map(is_alive, numbers)), 3)  # a killed process takes a moment
    orphans = [number for number in numbers if is_alive(number)]
    for number in orphans:
        os.kill(number, signal.SIGKILL)
    assert not orphans
    assert numbers, "no simulation ran"


def run(folder: Path, *jobs: Job | RecordedTest, waves: int = 0, slots: int = 2) -> Outcome:
    """Run jobs on this machine."""
    executor = LocalExecutor(slots)
    every = [job if isinstance(job, Job) else Job(job, 1) for job in jobs]
    try:
        return Regression(every, executor, folder, waves=waves).run()
    finally:
        executor.close()


def statuses(outcome: Outcome) -> list[Status]:
    return [each.result.status for each in outcome.runs]


def test_passing_jobs_leave_coverage_and_no_logs(tmp_path: Path) -> None:
    shutil.rmtree(BUILD_ROOT / misbehaving("passes").simulations[0].design.key(), True)
    tests = [misbehaving("passes"), misbehaving("passes", name="again")]
    outcome = run(tmp_path, *(Job(test, seed) for test in tests for seed in (1, 2, 3)))
    assert statuses(outcome) == [Status.PASSED] * 6
    assert outcome.passed
    assert len(outcome.builds) == 1, "all six share one build"
    assert outcome.functional == {"misbehaving.seed": {"even": 2, "odd": 4}}
    assert not list(tmp_path.rglob("*.log"))


def test_failure_says_its_first_mismatch_and_records_waves(tmp_path: Path) -> None:
    outcome = run(tmp_path, misbehaving("mismatches"), misbehaving("passes"), waves=1)
    failed, passed = outcome.runs
    assert (failed.result.status, passed.result.status) == (Status.FAILED, Status.PASSED)
    assert failed.result.reason.startswith("beat 3: got 1, expected 2")
    assert failed.result.time == "7.0 ns"
    assert "beat 3" in (failed.folder / "mismatches.log").read_text()
    assert failed.reproduced
    assert failed.waves_file.stat().st_size > 0
    assert not outcome.passed
    assert parse_seed_line(rerun_line(failed)) == ("test_misbehaving.py::mismatches", 1)


def test_failure_that_does_not_come_again_stays_a_failure(tmp_path: Path) -> None:
    test = misbehaving("fails_once", {"mark": str(tmp_path / "mark")})
    outcome = run(tmp_path, test, waves=1)
    assert statuses(outcome) == [Status.FAILED]
    assert outcome.runs[0].waves is not None
    assert outcome.runs[0].waves.status is Status.PASSED
    assert not outcome.runs[0].reproduced


def test_crashed_simulator(tmp_path: Path) -> None:
    outcome = run(tmp_path, misbehaving("crashes"), misbehaving("crashes_after_passing"))
    assert statuses(outcome) == [Status.CRASHED] * 2
    assert "killed by SIGSEGV" in outcome.runs[0].result.reason
    assert "after the test had passed (killed by SIGABRT)" in outcome.runs[1].result.reason


def test_expected_failure(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        misbehaving("mismatches", name="any", fails=""),
        misbehaving("mismatches", name="said", fails="got 1, expected"),
        misbehaving("mismatches", name="other", fails="got 5"),
        misbehaving("passes", fails=""),
        misbehaving("crashes", fails=""),  # a crash shows no fault of the design
    )
    good, bad = Status.PASSED, Status.FAILED
    assert statuses(outcome) == [good, good, bad, bad, Status.CRASHED]
    assert "had to fail with 'got 5', but: beat 3" in outcome.runs[2].result.reason
    assert "passed, but had to fail" in outcome.runs[3].result.reason
    # What has to fail covers nothing of the design; that it was noticed is a bin.
    noticed = {"any": 1, "said": 1, "other": 0, "passes": 0, "crashes": 0}
    assert outcome.functional == {
        f"cases.test_misbehaving.{name}": {"passed": count} for name, count in noticed.items()
    }


def test_runaway_is_stopped_with_all_its_processes(tmp_path: Path, processes: Path) -> None:
    hanging = misbehaving("hangs", {"processes": str(processes)}, limit=10)
    outcome = run(tmp_path, hanging, misbehaving("passes"))
    assert statuses(outcome) == [Status.TIMED_OUT, Status.PASSED]
    assert "still running after 10 s" in outcome.runs[0].result.reason


def test_killed_job_leaves_no_simulator(tmp_path: Path, processes: Path) -> None:
    killing = misbehaving("kills_its_job", {"processes": str(processes)})
    outcome = run(tmp_path, killing, misbehaving("passes"))
    assert statuses(outcome) == [Status.DIED, Status.PASSED]
    assert "killed by SIGKILL" in outcome.runs[0].result.reason


def test_design_that_does_not_build(tmp_path: Path) -> None:
    broken = tmp_path / "broken_register.v"
    broken.write_text("module broken_register (input clk);\n  assign missing = ;\nendmodule\n")
    tests = [misbehaving("passes", name=name, source=broken) for name in ("one", "other")]
    outcome = run(tmp_path / "run", *tests, misbehaving("passes"))
    assert statuses(outcome) == [Status.BUILD_FAILED] * 2 + [Status.PASSED]
    assert "broken_register.v:2" in outcome.runs[0].result.reason
    assert len([b for b in outcome.builds.values() if b.status is Status.BUILD_FAILED]) == 1


def test_log_that_cannot_be_written_hides_no_verdict(tmp_path: Path) -> None:
    jobs = [Job(misbehaving(test), 1) for test in ("mismatches", "passes")]
    for job in jobs:
        folder = tmp_path / "logs" / job.slug
        folder.mkdir(parents=True)
        (folder / "job.log").symlink_to("/dev/full")
        (folder / f"{job.test.simulations[0].test}.log").symlink_to("/dev/full")
    outcome = run(tmp_path, *jobs)
    assert statuses(outcome) == [Status.FAILED, Status.PASSED]
    assert outcome.runs[0].result.reason.startswith("beat 3")


def start(prefix: list[str] | None = None, **arguments: Any) -> subprocess.Popen[str]:
    """Start a regression of its own process group."""
    command = [*(prefix or []), sys.executable, str(SCRIPT), json.dumps(arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """Return the report and the messages of a regression."""
    output, messages = process.communicate(timeout=60)
    assert output, messages
    report: dict[str, Any] = json.loads(output)
    return report, messages


def test_full_disk_ends_the_regression_with_a_report(tmp_path: Path) -> None:
    """A small disk that one job fills: the rest is not run, and the reports have their place."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=12m tmpfs {disk} && "
    check = f"ls {disk}/nightly/*/*.* >&2; exit $code"
    prefix = ["unshare", "-rm", "sh", "-c", f'{mount}"$@"; code=$?; {check}', "sh"]
    tests = [{"test": "fills_the_disk"}, {"test": "passes"}, {"test": "mismatches"}]
    report, messages = finish(start(prefix, tests=tests, jobs=1, output=str(disk)))
    found = {job["test"].partition("::")[2]: job["status"] for job in report["jobs"]}
    assert found["fills_the_disk"] == Status.NO_SPACE
    assert Status.NOT_RUN in found.values()
    assert report["verdict"] == "stopped"
    assert "no space left" in report["stopped"]
    for name in ("report.json", "report.html", "junit.xml"):
        assert f"{name}\n" in messages, messages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signal_ends_the_regression_with_a_report(
    tmp_path: Path, processes: Path, number: signal.Signals
) -> None:
    options = {"processes": str(processes)}
    tests = [{"test": "hangs", "options": options, "name": f"hangs_{n}"} for n in range(3)]
    process = start(tests=tests, output=str(tmp_path / "out"))
    assert wait_until(lambda: processes.exists() and len(processes.read_text().split()) == 6)
    os.killpg(process.pid, number)
    report, _ = finish(process)
    assert process.returncode == 128 + number
    assert report["verdict"] == "stopped"
    assert report["stopped"] == f"stopped by {number.name}"
    found = sorted(job["status"] for job in report["jobs"])
    assert found == [Status.INTERRUPTED, Status.INTERRUPTED, Status.NOT_RUN]
    (junit,) = (tmp_path / "out").rglob("junit.xml")
    assert 'tests="3" failures="0" errors="3"' in junit.read_text()


def test_killed_regression_leaves_no_process(tmp_path: Path, processes: Path) -> None:
    tests = [{"test": "hangs", "options": {"processes": str(processes)}}]
    process = start(tests=tests, output=str(tmp_path / "out"))
    assert wait_until(lambda: processes.exists() and len(processes.read_text().split()) == 3)
    process.kill()
    process.communicate()
    numbers = [int(line) for line in processes.read_text().split()]
    assert wait_until(lambda: not any(map(is_alive, numbers)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two Dask workers of this machine, of which one more starts when one dies."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as started:
        yield started


def run_on(cluster: Any, folder: Path, *tests: RecordedTest) -> Outcome:
    """Run tests on a cluster."""
    executor = DaskExecutor(cluster.scheduler_address, 0, folder)
    try:
        return Regression([Job(test, 1) for test in tests], executor, folder).run()
    finally:
        executor.close()


def test_worker_without_the_repository_is_refused(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "REPOSITORY", tmp_path / "elsewhere")
    with pytest.raises(RuntimeError, match=r"has no .*elsewhere; all workers .* must share"):
        DaskExecutor(cluster.scheduler_address, 0, tmp_path / "out")
    assert not (tmp_path / "out" / "running").exists()


def test_signal_ends_a_regression_on_a_cluster(
    cluster: Any, tmp_path: Path, processes: Path
) -> None:
    options = {"processes": str(processes)}
    tests = [{"test": "hangs", "options": options, "name": f"hangs_{n}"} for n in range(3)]
    process = start(tests=tests, output=str(tmp_path / "out"), scheduler=cluster.scheduler_address)
    assert wait_until(lambda: processes.exists() and len(processes.read_text().split()) >= 3)
    process.send_signal(signal.SIGINT)
    report, _ = finish(process)
    assert process.returncode == 128 + signal.SIGINT
    assert {job["status"] for job in report["jobs"]} == {Status.INTERRUPTED, Status.NOT_RUN}


def test_cluster_loses_no_job_of_a_worker_that_dies(
    cluster: Any, tmp_path: Path, processes: Path
) -> None:
    options = {"processes": str(processes), "mark": str(tmp_path / "mark")}
    killing = misbehaving("kills_its_machine", options)
    others = [misbehaving("passes", name=f"passes_{n}") for n in range(3)]
    outcome = run_on(cluster, tmp_path / "out", killing, *others, misbehaving("mismatches"))
    assert statuses(outcome) == [Status.PASSED] * 4 + [Status.FAILED]
    assert outcome.runs[0].result.attempts == 2, "not silently"
    assert outcome.runs[0].result.where
    assert outcome.runs[4].result.reason.startswith("beat 3")


def test_job_that_kills_every_worker_is_given_up(
    cluster: Any, tmp_path: Path, processes: Path
) -> None:
    options = {"processes": str(processes), "mark": str(tmp_path / "mark"), "always": True}
    outcome = run_on(cluster, tmp_path / "out", misbehaving("kills_its_machine", options))
    assert statuses(outcome) == [Status.DIED]
    assert "Dask workers died" in outcome.runs[0].result.reason


def test_absent_scheduler_is_said(tmp_path: Path) -> None:
    process = start(tests=[{"test": "passes"}], output=str(tmp_path), scheduler="tcp://127.0.0.1:9")
    _, messages = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "scheduler tcp://127.0.0.1:9" in messages


class Reader(HTMLParser):
    """Checks that elements nest, and collects what a browser would fetch."""

    VOID = frozenset({"meta", "br", "circle", "polyline", "link", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "data", "srcset") or (tag, name) == ("link", "href"):
                self.fetched.append(f"{tag} {value}")
            elif name == "href":
                self.links.append(value or "")
            elif name == "id":
                self.ids.add(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(path: Path) -> Reader:
    """Read a page and check what every page must be."""
    reader = Reader()
    reader.feed(path.read_text())
    assert not reader.open
    assert not reader.fetched, "the page needs nothing else"
    assert "url(" not in path.read_text()
    inside = {link.removeprefix("#") for link in reader.links if link.startswith("#")}
    assert inside <= reader.ids
    for link in reader.links:
        assert link.startswith("#") or (path.parent / link).exists(), link
    return reader


def test_page_of_a_failure_says_all(tmp_path: Path) -> None:
    tests = [{"test": "mismatches"}, {"test": "passes"}]
    report, _ = finish(start(tests=tests, output=str(tmp_path)))
    assert report["verdict"] == "failed"
    (path,) = tmp_path.rglob("report.html")
    text = read_page(path).text
    assert "beat 3: got 1, expected 2" in text
    assert "<&>" in text
    assert report["jobs"][0]["rerun"] in text
    assert "no earlier report" in text


def test_page_compares_itself_with_the_report_before(tmp_path: Path) -> None:
    for test in ("mismatches", "passes"):
        tests = [{"test": test, "name": "same"}, {"test": "passes", "name": test}]
        finish(start(tests=tests, output=str(tmp_path)))
    last = max(tmp_path.rglob("report.html"))
    text = read_page(last).text
    for said in (
        "Fixed: 1",
        "New: 1",
        "No longer there: 1",
        "jobs that did not pass 02 runs, between 0 and 1",
    ):
        assert said in text, said


def test_command_runs_and_reports(tmp_path: Path) -> None:
    file, line = tmp_path / "report.json", "test_bench.py::test_silence_fails[leftover] seed=5"
    command = ["regress", "--output", str(tmp_path), "--json", str(file), "--rerun", line]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text())
    assert report["verdict"] == "passed"
    assert [(job["name"], job["status"]) for job in report["jobs"]] == [(line, "passed")]
    (point,) = [point for point in report["testpoints"] if point["jobs"]]
    assert point["status"] == "passed"
    (path,) = tmp_path.rglob("report.html")
    assert point["id"] in read_page(path).text
    assert list(tmp_path.rglob("dump.fst")), "a job that is run again records waves"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plan", "weekly"], "allowed are smoke, nightly, full"),
        (["--rerun", "decode"], "is no job"),
        (["--jobs", "-1"], "at least 1"),
    ],
)
def test_request_that_makes_no_sense(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["regress", "--output", str(tmp_path), *arguments])
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert not list(tmp_path.rglob("report.html"))


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Request("nightly", match="no_such_test"), "no test that matches"),
        (Request(rerun="test_misbehaving.py::absent seed=1"), "there is no test"),
    ],
)
def test_request_for_what_is_not_there(wish: Request, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        select(wish, [misbehaving("passes")])
