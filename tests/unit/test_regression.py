# SPDX-License-Identifier: Apache-2.0
"""Regressions without simulation: recorded tests, plans, seeds, and what reports say."""

import datetime
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fastdelta_verif.build import Design, seed_of
from fastdelta_verif.coverage import CodePoints, Exclusion, format_percentage
from fastdelta_verif.regression.jobs import FOLDER, Job, RecordedTest, Simulation, parse_seed_line
from fastdelta_verif.regression.page import page
from fastdelta_verif.regression.plans import LeftOut, Plan, fits, load_plans, load_points
from fastdelta_verif.regression.record import record
from fastdelta_verif.regression.report import history_line, junit, make_report, read_history, trend
from fastdelta_verif.regression.results import Result, Status
from fastdelta_verif.regression.runner import JobRun, Outcome
from fastdelta_verif.regression.session import Request, print_summary, select
from fastdelta_verif.testplan import Testpoint, case_of

STARTED = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedTest]:
    """Return the tests of the project."""
    return record(tmp_path_factory.mktemp("recorded"))


def test_launchers_are_recorded_whole(recorded: list[RecordedTest]) -> None:
    without = {test.name.partition("::")[0] for test in recorded if not test.simulations}
    own = {"test_elaboration.py", "test_second_opinion.py"}
    assert without == own, "every other test asks for a simulation"
    assert all(test.time_limit > 0 for test in recorded)
    again = [RecordedTest.from_json(json.loads(json.dumps(test.to_json()))) for test in recorded]
    assert again == recorded
    expected = {
        test.name for test in recorded if any(s.fails is not None for s in test.simulations)
    }
    assert any("test_mutants.py::test_mutant_is_caught" in name for name in expected)
    slugs = {Job(test, seed).slug for test in recorded for seed in (1, 2)}
    assert len(slugs) == len(recorded) + sum(test.is_random for test in recorded)


def test_plans_name_tests_that_exist(recorded: list[RecordedTest]) -> None:
    for plan in load_plans().values():
        for pattern in plan.patterns():
            assert any(fits(pattern, test.name) for test in recorded), f"{plan.name}: {pattern}"


def test_smoke_has_a_test_of_each_testpoint_that_is_not_left_out(
    recorded: list[RecordedTest],
) -> None:
    points = [point for each in load_points().values() for point in each]
    smoke = load_plans()["smoke"]
    chosen = smoke.select(recorded, points)
    missed = {p.id for p in points if not any(t.is_named_by(p.tests) for t in chosen)}
    assert all("size" in name or "shape" in name or "utilisation" in name for name in missed), (
        missed
    )
    everything = load_plans()["nightly"].select(recorded, points)
    assert everything == recorded


def a_test(name: str, time_limit: float = 10) -> RecordedTest:
    design = Design("top", (Path("top.v"),), {"WIDTH": 4})
    return RecordedTest(name, time_limit, (Simulation(design, "bench", "test", {"runs": 3}),))


NAMES = ("test_a.py::test_one[x-1]", "test_a.py::test_one[y-1]", "test_b.py::test_two")


def test_plan_chooses_one_test_for_each_entry() -> None:
    tests = [*map(a_test, NAMES), RecordedTest("test_c.py::test_text", 10)]
    entries = ("test_a.py::test_one", "test_a.py::test_one[y-1]", "test_c.py::test_text")
    points = [Testpoint("area.point", "Is so.", entries)]
    plan = Plan("p", "", choice="one_each", seeds=3, once=("test_b.py::*",))
    chosen = [test.name for test in plan.select(tests, points)]
    assert chosen == [NAMES[0], NAMES[1], "test_c.py::test_text"]
    without = Plan("p", "", choice="one_each", leave_out=(LeftOut("*[x-*", "slow"),))
    assert [test.name for test in without.select(tests, points)] == chosen[1:]
    jobs = plan.jobs(tests, base=1)
    runs = [sum(job.test is test for job in jobs) for test in tests]
    assert runs == [3, 3, 1, 1], "a test without a seed, or that is to run once, runs once"
    fixed = Plan("p", "", seeds=3, fixed=("test_a.py::*",)).jobs(tests, base=1)
    assert [job.seed for job in fixed[:2]] == [test.seed(None, 0) for test in tests[:2]]
    assert [job.test for job in fixed] == [*tests[:2], tests[2], tests[2], tests[2], tests[3]]
    assert fixed[2].seed == tests[2].seed(1, 0)


@pytest.mark.parametrize(
    ("pattern", "test", "fit"),
    [
        ("test_a.py::test_one", NAMES[0], True),
        ("test_a.py::test_one[x-1]", NAMES[0], True),
        ("test_a.py::test_one[x-1]", NAMES[1], False),
        ("test_a.py::*", NAMES[1], True),
        ("*[y-*", NAMES[1], True),
        ("test_a", NAMES[0], False),
        ("test_.*", NAMES[0], False),
    ],
)
def test_patterns(pattern: str, test: str, fit: bool) -> None:
    assert fits(pattern, test) == fit


@pytest.mark.parametrize(
    "text",
    ['choice = "some"', 'coverage = "expression"', 'owner = "x"', 'leave_out = [{tests = "a"}]'],
)
def test_malformed_plan_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plans.toml"
    file.write_text(f'[p]\ndescription = "d"\n{text}\n')
    with pytest.raises(ValueError, match=r"plan p"):
        load_plans(file)


def test_seeds_are_repeatable_and_differ() -> None:
    one, two = a_test(NAMES[0]), a_test(NAMES[1])
    assert one.seed(None, 0) == seed_of(FOLDER + one.name), "smoke runs what pytest runs"
    seeds = [test.seed(base, n) for test in (one, two) for base in (None, 1, 2) for n in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    jobs = Plan("p", "", seeds=4).jobs([one, two], base=9)
    assert jobs == Plan("p", "", seeds=4).jobs([one, two], base=9)


@pytest.mark.parametrize(
    "line",
    [
        "test_a.py::test_one[x-1] seed=7",
        "fastdelta regress --rerun 'test_a.py::test_one[x-1] seed=7'",
        "tests/simulation/test_a.py::test_one[x-1] seed=7",
    ],
)
def test_seed_line(line: str) -> None:
    assert parse_seed_line(line) == (NAMES[0], 7)
    jobs = select(Request(rerun=line), [a_test(name) for name in NAMES]).jobs
    assert jobs == [Job(a_test(NAMES[0]), 7, waves=True)]


def test_seed_line_without_a_seed_means_that_of_pytest() -> None:
    assert parse_seed_line(NAMES[2]) == (NAMES[2], None)
    (job,) = select(Request(rerun=NAMES[2]), [a_test(NAMES[2])]).jobs
    assert job.seed == seed_of(FOLDER + NAMES[2])
    with pytest.raises(ValueError, match="is no job"):
        parse_seed_line("test_a.py")


def test_match_takes_names_of_tests_and_testpoints(recorded: list[RecordedTest]) -> None:
    jobs = select(Request("nightly", match="kv_cache*reset", seeds=1), recorded).jobs
    assert {job.test.name.partition("[")[0] for job in jobs} == {
        "test_kv_cache.py::test_reset_in_list"
    }
    point = next(p for p in load_points()["decode"] if p.id == "results.single_tokens")
    jobs = select(Request("nightly", match=point.id, seeds=2), recorded).jobs
    assert {job.test.name for job in jobs} == set(point.tests)
    assert len(jobs) == 2


POINTS = {
    "engine": [
        Testpoint("area.good", "Is so.", (NAMES[2],), ("core.numbers.sign",)),
        Testpoint(
            "area.bad", "Is not so.", ("test_a.py::test_one",), fault="owner/project#1: broke"
        ),
        Testpoint("area.left", "Was not looked at.", ("test_d.py::test_four",)),
    ]
}


def a_report(
    first: Status = Status.PASSED,
    *,
    stopped: str = "",
    whole: bool = False,
    seconds: float = 1.0,
    sampled: dict[str, set[str]] | None = None,
    goals: dict[str, float] | None = None,
) -> dict[str, Any]:
    results = [Result(first, "got \x1b[1m1 <&> 2\x00" * (first != "passed"), "7 ns", seconds)]
    results += [Result(Status.PASSED), Result(Status.NOT_RUN if stopped else Status.PASSED)]
    runs = [
        JobRun(Job(a_test(name), 5), result, Path("absent"))
        for name, result in zip(NAMES, results, strict=True)
    ]
    code = CodePoints({"common/skid_buffer": {"line": {"1.1 block": 1, "2.1 if": 0}}})
    hits = {"core.numbers.sign": {"plus": 3, "minus": 0}}
    return make_report(
        Outcome(runs, {}, hits, code, 12.5, stopped, sampled or {}),
        POINTS,
        [Exclusion("common/skid_buffer", "line", "no such text", "of the test")],
        plan="smoke",
        description="A plan.",
        base_seed=None,
        selection="all",
        whole=whole,
        started=STARTED,
        goals=goals,
    )


def test_report_judges_testpoints() -> None:
    report = a_report(Status.CRASHED)
    assert report["verdict"] == "failed"
    found = {point["id"]: point["status"] for point in report["testpoints"]}
    assert found == {"area.good": "passed", "area.bad": "failed", "area.left": "not in this run"}
    assert report["functional"]["percent"] == 50
    assert report["code_percent"] == {"line": 50}
    assert a_report()["verdict"] == "passed"


def test_job_without_a_verdict_is_no_pass() -> None:
    report = a_report(Status.NO_SPACE, stopped="stopped: no space left on the disk")
    found = {point["id"]: point["status"] for point in report["testpoints"]}
    assert found["area.bad"] == "not judged"
    assert found["area.good"] == "not judged"
    assert report["verdict"] == "stopped"
    empty = Outcome([], {}, {}, CodePoints(), 0.0)
    assert not empty.passed, "nothing to run is no pass"


def test_exclusion_for_nothing_fails_a_whole_run() -> None:
    report = a_report(whole=True)
    assert report["verdict"] == "failed"
    assert report["wrong_exclusions"] == [
        "common/skid_buffer line 'no such text' stands for no point"
    ]
    assert "no such text" in page(report, trend([], report))


def test_testpoint_shows_its_bins() -> None:
    report = a_report(sampled={NAMES[2]: {"core.numbers.sign"}})
    good = next(point for point in report["testpoints"] if point["id"] == "area.good")
    assert (good["bins"], good["bins_hit"], good["unsampled"]) == (2, 1, [])
    assert good["bins_missing"] == ["core.numbers.sign: minus"]
    assert "core.numbers.sign: minus" in page(report, trend([], report))


def test_whole_run_fails_for_coverage_that_own_tests_do_not_sample() -> None:
    for sampled in (None, {NAMES[0]: {"core.numbers.sign"}}):  # another testpoint's test
        report = a_report(whole=True, sampled=sampled)
        assert report["missed"] == ["area.good: none of its tests samples core.numbers.sign"]
        assert report["verdict"] == "failed"
        assert "none of its tests samples" in page(report, trend([], report))
    assert not a_report(sampled=None)["missed"], "a part of a plan cannot reach everything"
    assert not a_report(whole=True, sampled={NAMES[2]: {"core.numbers.sign"}})["missed"]


def test_goals_are_of_known_kinds() -> None:
    assert load_plans()["nightly"].goals == {"functional": 100, "line": 97, "toggle": 90}
    with pytest.raises(ValueError, match="goals"):
        Plan("name", "What for.", goals={"lines": 97})


def test_whole_run_fails_below_its_goals() -> None:
    sampled = {NAMES[2]: {"core.numbers.sign"}}
    goals = {"functional": 100.0, "line": 50.0, "toggle": 90.0}
    report = a_report(whole=True, sampled=sampled, goals=goals)
    assert report["missed"] == [
        "functional coverage is 50.0 %, 100.0 % are the goal",
        "toggle coverage is 0.0 %, 90.0 % are the goal",
    ]
    assert report["verdict"] == "failed"
    assert not a_report(sampled=sampled, goals=goals)["missed"]


def test_percentages_are_rounded_down_alike() -> None:
    report = a_report()
    report["code_percent"] = {"line": 99.96}
    console = Console(file=io.StringIO(), width=100)
    print_summary(report, None, console)
    for text in (page(report, trend([], report)), console.file.getvalue()):
        assert "99.9" in text
        assert "100.0" not in text, "what is not complete must not read so"
    assert [format_percentage(value) for value in (100.0, 97.0, 0.0)] == ["100.0", "97.0", "0.0"]


def test_test_without_coverage_of_its_own_is_a_bin() -> None:
    assert RecordedTest("test_a.py::test_one[x]", 1.0).is_case
    assert case_of("test_a.py::test_one[x-1]") == ("cases.test_a.test_one", "x-1")
    assert case_of("test_a.py::test_one") == ("cases.test_a.test_one", "passed")


def test_junit_has_every_job() -> None:
    report = a_report(Status.FAILED, stopped="stopped by SIGINT")
    root = ElementTree.fromstring(junit(report))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert list(cases.values()) == [["failure"], [], ["error"]]
    assert "test_one[x-1] seed=5" in cases
    failure = next(suite.iter("failure"))
    assert failure.get("message") == "got ?[1m1 <&> 2?"
    assert "fastdelta regress --rerun" in (failure.text or "")


def test_trend_compares_with_the_last_complete_run() -> None:
    other = {**history_line(a_report(Status.FAILED)), "selection": "another"}
    stopped = history_line(a_report(Status.FAILED, stopped="stopped by SIGINT"))
    history = [history_line(a_report()), stopped, other]
    report = a_report(Status.FAILED, seconds=9)
    found = trend(history, report)
    assert found["newly_failing"] == [NAMES[0]]
    assert found["slower"] == []
    found = trend([history_line(report)], a_report())
    assert found["fixed"] == [NAMES[0]]
    found = trend([history_line(a_report())], a_report(seconds=9))
    assert found["slower"] == [[NAMES[0], 1.0, 9.0]]
    assert "previous" not in trend([other], report)
    assert "previous" not in trend([stopped], report)


def test_history_survives_a_cut_line(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(json.dumps(history_line(a_report())) + '\n{"started": "20')
    assert len(read_history(file)) == 1
    assert read_history(tmp_path / "absent.jsonl") == []


def test_page_escapes_what_a_design_says() -> None:
    report = a_report(Status.FAILED)
    text = page(report, trend([], report))
    assert "1 &lt;&amp;&gt; 2" in text
    assert "<&>" not in text
    assert "\x00" not in text
