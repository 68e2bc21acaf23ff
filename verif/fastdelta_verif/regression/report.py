# SPDX-License-Identifier: Apache-2.0
"""What a regression found, as a record for JSON, as JUnit XML, and as a line of history."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fastdelta_verif.build import REPOSITORY, simulator_version
from fastdelta_verif.coverage import (
    Exclusion,
    code_percentages,
    format_percentage,
    missing_bins,
    percentage,
    summarise,
)
from fastdelta_verif.regression.jobs import COMMAND, Json
from fastdelta_verif.regression.results import VERDICTS, Status, printable
from fastdelta_verif.regression.runner import JobRun, Outcome
from fastdelta_verif.testplan import Testpoint, covers, matches

SCHEMA = 1
HISTORY_LINES = 100
PACKAGES = ("cocotb", "pyuvm", "cocotb-coverage", "numpy")


def make_report(
    outcome: Outcome,
    points: Mapping[str, Sequence[Testpoint]],
    exclusions: Sequence[Exclusion],
    *,
    plan: str,
    description: str,
    base_seed: int | None,
    selection: str,
    whole: bool,
    started: datetime.datetime,
    goals: Mapping[str, float] | None = None,
) -> Json:
    """Return the record of a regression.

    Parameters
    ----------
    outcome
        What it found.
    points
        Testpoints of each engine.
    exclusions
        Of the code coverage.
    plan, description
        The plan.
    base_seed
        What all seeds follow from; ``None`` when from the tests' names alone.
    selection
        What was run of the plan; only equal selections are compared with each other.
    whole
        Whether the run is to reach everything, so that a wrong exclusion, a missed goal, or a
        testpoint whose own tests do not sample its coverage, is a failure.
    goals
        Least percentages of the coverage of a whole run, by kind; ``functional`` is one.
    started
        When it began.
    """
    code, wrong = summarise(outcome.code, exclusions, REPOSITORY / "rtl")
    judged = whole and not outcome.stopped
    wrong = wrong if judged else []
    jobs = [_job(run) for run in outcome.runs]
    statuses = Counter(str(run.result.status) for run in outcome.runs)
    testpoints = [
        _testpoint(engine, point, jobs, outcome)
        for engine, each in points.items()
        for point in each
    ]
    percents = code_percentages(code)
    if outcome.functional:
        percents["functional"] = percentage(outcome.functional)
    missed = [
        f"{kind} coverage is {format_percentage(percents.get(kind, 0.0))} %, {least} % are the goal"
        for kind, least in (goals or {}).items()
        if judged and percents.get(kind, 0.0) < least
    ]
    missed += [
        f"{point['id']}: none of its tests samples {entry}"
        for point in testpoints
        if judged
        for entry in point["unsampled"]
    ]
    passed = outcome.passed and not wrong and not missed
    return {
        "schema": SCHEMA,
        "plan": plan,
        "description": description,
        "selection": selection,
        "verdict": "passed" if passed else "stopped" if outcome.stopped else "failed",
        "stopped": outcome.stopped,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 1),
        "base_seed": base_seed,
        "counts": dict(statuses),
        "jobs": jobs,
        "testpoints": testpoints,
        "builds": {
            key: {
                "status": str(build.status),
                "reason": build.reason,
                "seconds": round(build.seconds, 2),
                "cpu_seconds": round(build.cpu_seconds, 2),
            }
            for key, build in outcome.builds.items()
        },
        "functional": {
            "percent": percents.pop("functional", None),
            "points": outcome.functional,
        },
        "code": {
            module: {
                kind: {
                    "hit": part.hit,
                    "total": part.total,
                    "excluded": part.excluded,
                    "missing": part.missing,
                }
                for kind, part in kinds.items()
            }
            for module, kinds in code.items()
        },
        "code_percent": percents,
        "exclusions": [vars(exclusion) for exclusion in exclusions],
        "wrong_exclusions": wrong,
        "missed": missed,
        "provenance": provenance(),
    }


def _job(run: JobRun) -> Json:
    result = run.result
    record: Json = {
        "name": run.job.name,
        "test": run.job.test.name,
        "seed": run.job.seed if run.job.test.is_random else None,
        "status": str(result.status),
        "reason": result.reason,
        "time": result.time,
        "seconds": round(result.seconds, 2),
        "cpu_seconds": round(result.cpu_seconds, 2),
        "where": result.where,
        "attempts": result.attempts,
        "rerun": rerun_line(run),
        "log": f"logs/{run.folder.name}" if run.folder.is_dir() else "",
    }
    if run.waves is not None:
        record["waves"] = {
            "status": str(run.waves.status),
            "reason": run.waves.reason,
            "reproduced": run.reproduced,
            "file": f"logs/{run.waves_file.parent.name}/dump.fst"
            if run.waves_file.exists()
            else "",
        }
    return record


def rerun_line(run: JobRun) -> str:
    """Return the line that runs a job again, with waves."""
    return f"{COMMAND} '{run.job.name}'"


def _testpoint(engine: str, point: Testpoint, jobs: Sequence[Json], outcome: Outcome) -> Json:
    mine = [
        number
        for number, job in enumerate(jobs)
        if any(matches(entry, job["test"]) for entry in point.tests)
    ]
    statuses = {jobs[number]["status"] for number in mine}
    if not statuses:
        status = "not in this run"
    elif statuses == {Status.PASSED}:
        status = "passed"
    elif statuses & (VERDICTS - {Status.PASSED}):
        status = "failed"
    else:
        status = "not judged"
    covered = {
        name: bins
        for name, bins in outcome.functional.items()
        if any(covers(entry, name) for entry in point.coverage)
    }
    own = {jobs[number]["test"] for number in mine}
    sampled = set().union(*(outcome.sampled.get(test, set()) for test in own))
    return {
        "engine": engine,
        "id": point.id,
        "description": point.description,
        "fault": point.fault,
        "status": status,
        "jobs": mine,
        "coverage": list(point.coverage),
        "bins": sum(map(len, covered.values())),
        "bins_hit": sum(count > 0 for bins in covered.values() for count in bins.values()),
        "bins_missing": missing_bins(covered),
        "unsampled": [
            entry for entry in point.coverage if not any(covers(entry, name) for name in sampled)
        ],
    }


def provenance() -> Json:
    """Return commit, versions and machine."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.stdout.strip() if result.returncode == 0 else ""

    def package(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "none"

    def simulator(name: str) -> str:
        try:
            return simulator_version(name)
        except (OSError, subprocess.CalledProcessError):
            return "none"

    return {
        "commit": git("rev-parse", "HEAD"),
        "changed_files": len(git("status", "--porcelain").splitlines()),
        "python": platform.python_version(),
        **{name: package(name) for name in PACKAGES},
        "verilator": simulator("verilator"),
        "icarus": simulator("icarus"),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "command": " ".join(["fastdelta", *sys.argv[1:]]),
    }


def junit(report: Json) -> bytes:
    """Return JUnit XML; everything but a pass is a failure or an error, also what did not run."""
    jobs = report["jobs"]
    failures = sum(job["status"] == Status.FAILED for job in jobs)
    errors = sum(job["status"] not in (Status.FAILED, Status.PASSED) for job in jobs)
    totals = {"tests": len(jobs), "failures": failures, "errors": errors, "skipped": 0}
    counts = {name: str(value) for name, value in totals.items()}
    root = ElementTree.Element("testsuites", {"name": "fastdelta regress", **counts})
    times = {"time": str(report["seconds"]), "timestamp": report["started"]}
    suite = ElementTree.SubElement(root, "testsuite", {"name": report["plan"], **times, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("verdict", "stopped", "base_seed"):
        ElementTree.SubElement(properties, "property", name=name, value=str(report[name]))
    for job in jobs:
        file, _, name = job["name"].partition("::")
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=file.removesuffix(".py"),
            name=printable(name),
            time=f"{job['seconds']}",
        )
        if job["status"] == Status.PASSED:
            continue
        tag = "failure" if job["status"] == Status.FAILED else "error"
        message = printable(job["reason"] or job["status"])
        element = ElementTree.SubElement(case, tag, type=job["status"], message=message)
        element.text = printable(f"{job['reason']}\nrun again: {job['rerun']}\nlog: {job['log']}")
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def history_line(report: Json) -> Json:
    """Return what later reports compare themselves with."""
    tests: dict[str, Json] = {}
    for job in report["jobs"]:
        test = tests.setdefault(job["test"], {"seconds": 0.0, "status": "passed"})
        test["seconds"] = max(test["seconds"], job["seconds"])
        if job["status"] != Status.PASSED and test["status"] == "passed":
            test["status"] = job["status"]
    return {
        "started": report["started"],
        "commit": report["provenance"]["commit"],
        "selection": report["selection"],
        "verdict": report["verdict"],
        "seconds": report["seconds"],
        "jobs": len(report["jobs"]),
        "passed": report["counts"].get(Status.PASSED, 0),
        "functional": report["functional"]["percent"],
        "code": report["code_percent"],
        "tests": tests,
    }


def read_history(path: Path) -> list[Json]:
    """Return the lines of a history; a line that was cut off by a full disk is left out."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def trend(history: Sequence[Json], report: Json) -> Json:
    """Compare a report with the last complete one of the same selection."""
    now = history_line(report)
    alike = [line for line in history if line["selection"] == report["selection"]]
    complete = [line for line in alike if line["verdict"] != "stopped"]
    result: Json = {
        "lines": [
            {name: value for name, value in line.items() if name != "tests"}
            for line in [*alike[-29:], now]
        ]
    }
    if not complete:
        return result
    before, after = complete[-1]["tests"], now["tests"]
    both = before.keys() & after.keys()
    failing = {name for name in after if after[name]["status"] != "passed"}
    failed = {name for name in before if before[name]["status"] != "passed"}
    unjudged = {n for n in after if after[n]["status"] in (Status.NOT_RUN, Status.INTERRUPTED)}
    result["previous"] = {
        key: complete[-1][key]
        for key in ("started", "commit", "seconds", "jobs", "passed", "functional", "code")
    }
    result["newly_failing"] = sorted((failing & both) - failed - unjudged)
    result["still_failing"] = sorted((failing & failed) - unjudged)
    result["fixed"] = sorted((failed & both) - failing)
    result["new"] = sorted(after.keys() - before.keys())
    result["gone"] = sorted(before.keys() - after.keys())
    result["slower"] = sorted(
        (
            [name, before[name]["seconds"], after[name]["seconds"]]
            for name in both - failing - failed
            if after[name]["seconds"] > 1.5 * before[name]["seconds"] + 2
        ),
        key=lambda entry: entry[1] - entry[2],
    )
    return result
