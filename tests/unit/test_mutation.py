# SPDX-License-Identifier: Apache-2.0
"""Who kills each mutant: which jobs are tried, in which order, and what the table says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastdelta_verif.build import REPOSITORY, Design
from fastdelta_verif.mutants import MUTANTS
from fastdelta_verif.regression import mutation
from fastdelta_verif.regression.jobs import Job, RecordedTest, Simulation
from fastdelta_verif.regression.mutation import (
    BENCHES,
    Judge,
    Verdict,
    candidates,
    own_job,
    summary,
    table,
    with_fault,
)
from fastdelta_verif.regression.results import Status

NAME = "fabric_product_drops_a_sign"
MUTANT = MUTANTS[NAME]
OTHER = REPOSITORY / "rtl" / "prefill" / "kv_cache.v"
STAND_IN = REPOSITORY / "verif" / "fastdelta_verif" / "fixtures" / "stream_register.v"


def a_job(name: str, module: str, test: str, simulator: str = "verilator", **options: Any) -> Job:
    sources = options.get("sources", (STAND_IN, REPOSITORY / "rtl" / MUTANT.file))
    design = Design(module, sources, {}, simulator)
    simulation = Simulation(design, BENCHES + module, test, {}, options.get("fails"))
    return Job(RecordedTest(f"test_x.py::{name}", 10, (simulation,)), 5, coverage="line")


def test_jobs_on_the_file_are_tried_and_those_of_its_bench_first() -> None:
    jobs = [
        a_job("kernel", "prefill_kernel", "random_runs"),
        a_job("elsewhere", "kv_cache", "random_lists", sources=(OTHER,)),
        a_job("to_fail", "matrix_unit", "random_tasks", fails=""),
        a_job("unit", "matrix_unit", "latency"),
        a_job("unit_as_its_own", "matrix_unit", MUTANT.test),
        a_job("unit_icarus", "matrix_unit", "latency", "icarus"),
    ]
    jobs.append(replace(jobs[3], test=replace(jobs[3].test, name="test_mutants.py::one")))
    tried = [job.test.name.partition("::")[2] for job in candidates(MUTANT, jobs)]
    assert tried == ["unit_icarus", "unit_as_its_own", "unit", "kernel"]


def test_faulty_rtl_takes_the_place_of_the_repositorys(tmp_path: Path) -> None:
    job = with_fault(a_job("unit", "matrix_unit", "latency"), tmp_path)
    (simulation,) = job.simulations
    assert simulation.design.sources == (STAND_IN, tmp_path / "rtl" / MUTANT.file)
    assert simulation.design.coverage == "", "a faulty design's coverage says nothing"
    assert job.seed == 5, "the fault is to be the only difference"


def test_own_test_has_the_fault_in_it(tmp_path: Path) -> None:
    job = own_job(NAME, MUTANT, tmp_path)
    (simulation,) = job.simulations
    faulty = next(s for s in simulation.design.sources if s.name == "mac_array.v")
    assert MUTANT.new in faulty.read_text()
    assert simulation.fails is None, "the mismatch itself is wanted"
    assert job.test.name == f"test_mutants.py::test_mutant_is_caught[{NAME}]"


@pytest.mark.parametrize(
    ("answers", "killer", "own_reason", "problems"),
    [
        ({"own": "failed", "b": "failed"}, "test_x.py::b", "wrong", ()),
        ({"own": "passed"}, "", "", ()),
        ({"own": "build failed", "a": "failed"}, "test_x.py::a", "", ("own: wrong",)),
        (
            {"own": "failed", "a": "timed out", "b": "crashed"},
            "",
            "wrong",
            ("test_x.py::a: timed out: wrong", "test_x.py::b: crashed: wrong"),
        ),
    ],
    ids=["killed", "survives", "does_not_build", "no_verdict"],
)
def test_only_a_failed_test_kills(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answers: dict[str, str],
    killer: str,
    own_reason: str,
    problems: tuple[str, ...],
) -> None:
    def supervise(task: dict[str, Any], *_: object) -> dict[str, Any]:
        if task["kind"] == "build":
            return {"status": Status.PASSED}
        name = task["test"].partition("::")[2]
        status = answers.get("own" if name.startswith("test_mutant") else name, "passed")
        return {"status": status, "reason": "" if status == "passed" else "wrong"}

    monkeypatch.setattr(mutation, "supervise", supervise)
    jobs = [a_job(name, "matrix_unit", "latency") for name in ("a", "b", "c")]
    verdict = Judge(jobs, tmp_path).judge(NAME, MUTANT)
    assert (verdict.killer, verdict.own_reason) == (killer, own_reason)
    assert verdict.problems == problems
    assert verdict.tried == (["a", "b"].index(killer[-1]) + 1 if killer else 3)
    assert not list(tmp_path.iterdir()), "copies of the RTL are removed"


def a_verdict(name: str, killer: str, own_reason: str = "wrong") -> Verdict:
    return Verdict(name, "common/a.v", "bench.test", own_reason, killer, "a | b", 3, (), 1.0)


def test_summary_asks_for_all_by_their_own_test_and_for_a_share_in_smoke() -> None:
    verdicts = [a_verdict(f"m{n}", "test_x.py::a" if n < 17 else "") for n in range(20)]
    lines, enough = summary(verdicts, "smoke")
    assert enough
    assert "17 of 20 (85.0%)" in lines[1]
    assert not summary([*verdicts, a_verdict("one_more", "")], "smoke")[1]
    assert not summary([*verdicts[1:], a_verdict("unseen", "test_x.py::a", "")], "smoke")[1]
    assert not summary([], "smoke")[1]


def test_table_shows_survivors_and_killers() -> None:
    text = table([a_verdict("b", "test_x.py::a"), a_verdict("a", "", "")], "smoke")
    rows = text.splitlines()[2:]
    assert rows[0].startswith("| a | common/a.v | **survives bench.test** | **survives** 3 jobs |")
    assert rows[1] == "| b | common/a.v | bench.test | test_x.py::a | a \\| b |"
