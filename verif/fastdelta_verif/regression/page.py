# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file that needs nothing else: style and charts are inside."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape

from fastdelta_verif.coverage import KINDS, format_percentage
from fastdelta_verif.regression.jobs import Json
from fastdelta_verif.regression.results import Status, printable

SLOWEST = 15
SHOWN_MISSING = 200

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b2330; --soft: #5c6675;
  --line: #dfe3e9; --good: #1a7f4b; --good-soft: #d8f0e3; --bad: #b42318; --bad-soft: #fbe1de;
  --warn: #9a6700; --warn-soft: #fbeec8; --mute-soft: #e9ecf1; --accent: #2f5fd0; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b2129; --ink: #e6eaf0;
  --soft: #98a3b3; --line: #2e3742; --good: #4cc38a; --good-soft: #143727; --bad: #ff8b7f;
  --bad-soft: #44201d; --warn: #e5b95c; --warn-soft: #3d3216; --mute-soft: #272f39;
  --accent: #86a8ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 36px 0 10px; }
h3 { font-size: 15px; margin: 18px 0 6px; }
p { margin: 6px 0; } .soft, .count { color: var(--soft); }
.count { white-space: nowrap; }
code, pre { font: 13px/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; }
pre { margin: 8px 0; padding: 10px 12px; border-radius: 6px; background: var(--page);
  white-space: pre-wrap; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 14px 0 0; font-size: 14px; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
header { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; }
.chip { display: inline-block; padding: 1px 9px; border-radius: 10px; font-size: 13px;
  background: var(--mute-soft); color: var(--soft); white-space: nowrap; }
.chip.good { background: var(--good-soft); color: var(--good); }
.chip.bad { background: var(--bad-soft); color: var(--bad); }
.chip.warn { background: var(--warn-soft); color: var(--warn); }
header .chip { font-size: 16px; padding: 3px 14px; border-radius: 16px; font-weight: 600; }
.tiles { display: grid; gap: 12px; margin: 18px 0 0;
  grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px; } .tile b { display: block; font-size: 18px; line-height: 1.3;
  white-space: nowrap; }
.tile span { display: block; font-size: 13px; color: var(--soft); }
.tile .up { color: var(--good); } .tile .down { color: var(--bad); }
.card { padding: 12px 16px; margin: 0 0 12px; overflow-wrap: anywhere; }
.card .scroll { overflow-wrap: normal; } .card.bad .chip { white-space: normal; }
.card.bad { border-left: 4px solid var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child > td { border-bottom: 0; } .number { text-align: right; white-space: nowrap; }
td.name { overflow-wrap: anywhere; } td.chips { white-space: nowrap; width: 1%; }
details > summary { cursor: pointer; } .area { padding: 5px 0; }
.area + .area { border-top: 1px solid var(--line); } details details { margin-left: 14px; }
details > summary:focus-visible { outline: 2px solid var(--accent); }
.bar { display: inline-block; width: 64px; height: 8px; border-radius: 4px; overflow: hidden;
  background: var(--mute-soft); vertical-align: middle; margin-right: 8px; }
.bar i { display: block; height: 100%; background: var(--good); }
.bar i.warn { background: var(--warn); } .bar i.bad { background: var(--bad); }
.charts { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
@media print { body { background: #fff; } details { display: block; } }
"""

CLASSES = {
    "passed": "good",
    "failed": "bad",
    "crashed": "bad",
    "timed out": "bad",
    "build failed": "bad",
    "died": "bad",
    "error": "bad",
    "no space left": "warn",
    "stopped": "warn",
    "interrupted": "warn",
    "not judged": "warn",
}


def page(report: Json, trend: Json) -> str:
    """Return the HTML of a report with its trend."""
    title = f"Regression {report['plan']}: {report['verdict']}"
    sections = [
        ("failures", "Failures", _failures(report)),
        ("changes", "Changes and trends", _trends(trend)),
        ("testpoints", "Testpoints", _testpoints(report)),
        ("functional", "Functional coverage", _functional(report)),
        ("code", "Code coverage", _code(report)),
        ("durations", "Durations and seeds", _durations(report)),
        ("environment", "Environment", _environment(report)),
    ]
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in sections)
    body = "".join(f'<h2 id="{key}">{name}</h2>\n{text}\n' for key, name, text in sections)
    return printable(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{_head(report)}<nav>{links}</nav>\n{_tiles(report, trend)}\n{body}"
        "</main>\n</body>\n</html>\n"
    )


def _chip(status: str) -> str:
    return f'<span class="chip {CLASSES.get(status, "")}">{escape(status)}</span>'


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _when(text: str) -> str:
    return f"{datetime.datetime.fromisoformat(text):%Y-%m-%d %H:%M UTC}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of cells that are HTML."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if index in numbers else ''}>{cell}</{tag}>"
            for index, cell in enumerate(row)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>" if any(heads) else ""
    return f'<div class="scroll"><table>{head}<tbody>\n{lines}</tbody></table></div>'


def _bar(percent: float, *, goal: float = 100.0) -> str:
    kind = "" if percent >= goal else "warn" if percent >= goal - 20 else "bad"
    return (
        f'<span class="bar"><i class="{kind}" style="width:{percent:.1f}%"></i></span>'
        f"{format_percentage(percent)} %"
    )


def _head(report: Json) -> str:
    commit = report["provenance"]["commit"][:10] or "no commit"
    changed = report["provenance"]["changed_files"]
    uncommitted = f", {changed} uncommitted files" if changed else ""
    stopped = f"<p><b>{escape(report['stopped'])}</b></p>" if report["stopped"] else ""
    return (
        f"<header><h1>Regression <i>{escape(report['plan'])}</i></h1>{_chip(report['verdict'])}"
        f'</header>\n<p class="soft">{escape(report["description"])}</p>\n'
        f'<p class="soft">{_when(report["started"])}, {_duration(report["seconds"])}, commit '
        f"<code>{escape(commit)}</code>{uncommitted}</p>\n{stopped}"
    )


def _tiles(report: Json, trend: Json) -> str:
    before = trend.get("previous")
    passed, jobs = report["counts"].get(Status.PASSED, 0), len(report["jobs"])
    points = [p for p in report["testpoints"] if p["jobs"]]
    good = sum(p["status"] == "passed" for p in points)
    tiles = [
        (f"{passed} / {jobs}", "jobs passed", _change(before, "passed", passed)),
        (f"{good} / {len(points)}", "testpoints passed", ""),
    ]
    percent = report["functional"]["percent"]
    if percent is not None:
        delta = _change(before, "functional", percent)
        tiles.append((f"{format_percentage(percent)} %", "functional coverage", delta))
    for kind, value in report["code_percent"].items():
        earlier = {"code": before["code"].get(kind)} if before else None
        tiles.append(
            (f"{format_percentage(value)} %", f"{kind} coverage", _change(earlier, "code", value))
        )
    tiles.append((_duration(report["seconds"]), "wall clock", ""))
    cells = "".join(
        f'<div class="tile"><b>{value}</b><span>{name}</span>{change}</div>'
        for value, name, change in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _change(before: Json | None, key: str, now: float) -> str:
    if not before or before.get(key) is None:
        return ""
    change = now - before[key]
    if abs(change) < 0.05:
        return "<span>as before</span>"
    text = f"{change:+.1f}" if isinstance(now, float) else f"{change:+d}"
    return f'<span class="{"up" if change > 0 else "down"}">{text} since the last run</span>'


def _failures(report: Json) -> str:
    failed = [job for job in report["jobs"] if job["status"] != Status.PASSED]
    wrong = "".join(
        f'<div class="card bad">Exclusion {escape(text)}</div>'
        for text in report["wrong_exclusions"]
    )
    wrong += "".join(f'<div class="card bad">{escape(text)}</div>' for text in report["missed"])
    if not failed and not wrong:
        said = "Every job passed." if report["jobs"] else "There was no job to run."
        return f'<div class="card">{said}</div>'
    rest = [job for job in failed if job["status"] == Status.NOT_RUN]
    cards = "".join(_failure(report, job) for job in failed if job["status"] != Status.NOT_RUN)
    if rest:
        names = "\n".join(job["name"] for job in rest)
        cards += (
            f'<div class="card"><details><summary>{len(rest)} jobs were not run</summary>'
            f"<pre>{escape(names)}</pre></details></div>"
        )
    return wrong + cards


def _failure(report: Json, job: Json) -> str:
    number = report["jobs"].index(job)
    points = ", ".join(p["id"] for p in report["testpoints"] if number in p["jobs"])
    at = f" at {escape(job['time'])}" if job["time"] else ""
    facts = [f"{_duration(job['seconds'])}"]
    if job["where"]:
        facts.append(f"on {escape(job['where'])}")
    if job["attempts"] > 1:
        facts.append(f"started {job['attempts']} times, as workers died")
    if job["log"]:
        facts.append(f'<a href="{escape(job["log"])}">log</a>')
    waves = job.get("waves")
    if waves and waves["file"]:
        facts.append(f'<a href="{escape(waves["file"])}">waves</a>')
    if waves and not waves["reproduced"]:
        facts.append(
            f'<span class="chip warn">not reproduced: the run with waves {escape(waves["status"])}'
            f"{': ' if waves['reason'] else ''}{escape(waves['reason'])}</span>"
        )
    return (
        f'<div class="card bad">{_chip(job["status"])} <b>{escape(job["name"])}</b>'
        f'<span class="soft">{at}; {"; ".join(facts)}</span>'
        f"<pre>{escape(job['reason'] or job['status'])}</pre>"
        f"<pre>{escape(job['rerun'])}</pre>"
        f'<span class="soft">{escape(points)}</span></div>'
    )


def _trends(trend: Json) -> str:
    lines = trend["lines"]
    before = trend.get("previous")
    if before is None:
        return '<div class="card">There is no earlier report of this selection.</div>'
    parts = [
        f'<p class="soft">Against {_when(before["started"])}, commit '
        f"<code>{escape(before['commit'][:10])}</code>, {_duration(before['seconds'])}.</p>"
    ]
    for key, name in (
        ("newly_failing", "Newly failing"),
        ("still_failing", "Still failing"),
        ("fixed", "Fixed"),
        ("new", "New"),
        ("gone", "No longer there"),
    ):
        if trend[key]:
            tests = "\n".join(trend[key])
            opened = " open" if key in ("newly_failing", "fixed") else ""
            parts.append(
                f"<details{opened}><summary>{name}: {len(trend[key])}</summary>"
                f"<pre>{escape(tests)}</pre></details>"
            )
    if trend["slower"]:
        rows = [(escape(n), f"{a:.1f} s", f"{b:.1f} s") for n, a, b in trend["slower"]]
        table = _table(("test", "before", "now"), rows, (1, 2))
        parts.append(f"<details><summary>Slower: {len(rows)}</summary>{table}</details>")
    if len(parts) == 1:
        parts.append(
            "<p>Nothing changed: no test fails anew, none was fixed, added or removed.</p>"
        )
    charts = [
        _chart("jobs that did not pass", [line["jobs"] - line["passed"] for line in lines], str),
        _chart("wall clock", [line["seconds"] for line in lines], _duration),
    ]
    if all(line["functional"] is not None for line in lines):
        functional = [line["functional"] for line in lines]
        charts.append(
            _chart("functional coverage", functional, lambda v: f"{format_percentage(v)} %")
        )
    for kind in KINDS:
        if all(kind in line["code"] for line in lines):
            values = [line["code"][kind] for line in lines]
            charts.append(_chart(f"{kind} coverage", values, lambda v: f"{format_percentage(v)} %"))
    return (
        f'<div class="card">{"".join(parts)}</div><div class="charts">'
        + "".join(f'<div class="card">{chart}</div>' for chart in charts)
        + "</div>"
    )


def _chart(title: str, values: Sequence[float], show: Callable[[float], str]) -> str:
    """Return a line over the last runs, with its largest and last value."""
    width, height, top, bottom = 320, 90, 14, 10
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = (width - 20) / max(1, len(values) - 1)
    places = [
        (10 + step * i, top + (height - top - bottom) * (1 - (v - low) / span))
        if high > low
        else (10 + step * i, height / 2)
        for i, v in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places)
    ends = f"between {show(low)} and {show(high)}" if high > low else "unchanged"
    label = f"{title} of the last {len(values)} runs: {ends}, now {show(values[-1])}"
    return (
        f"<b>{escape(title)}</b> {escape(show(values[-1]))}"
        f'<br><span class="soft">{len(values)} runs, {escape(ends)}</span>'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f'<polyline points="{line}" fill="none" stroke="var(--accent)" stroke-width="1.6"/>'
        f'<g fill="var(--accent)">{dots}</g></svg>'
    )


def _testpoints(report: Json) -> str:
    engines: dict[str, dict[str, list[Json]]] = defaultdict(lambda: defaultdict(list))
    for point in report["testpoints"]:
        engines[point["engine"]][point["id"].partition(".")[0]].append(point)
    parts = []
    for engine, areas in engines.items():
        every = [point for points in areas.values() for point in points]
        run = [point for point in every if point["jobs"]]
        good = sum(point["status"] == "passed" for point in run)
        left = f", {len(every) - len(run)} not in this run" if len(every) > len(run) else ""
        parts.append(f"<h3>{escape(engine)}: {good} of {len(run)} passed{left}</h3>")
        listed = "".join(_area(report, area, points) for area, points in areas.items())
        parts.append(f'<div class="card">{listed}</div>')
    return "".join(parts)


def _area(report: Json, area: str, points: Sequence[Json]) -> str:
    rows = []
    for point in points:
        jobs = [report["jobs"][number] for number in point["jobs"]]
        passed = sum(job["status"] == Status.PASSED for job in jobs)
        fault = f'<br><span class="soft">seen in {escape(point["fault"])}</span>'
        listing = _table(
            ("", "test", "seed", "time"),
            [
                (
                    _chip(job["status"]),
                    escape(job["test"]),
                    "" if job["seed"] is None else str(job["seed"]),
                    f"{job['seconds']:.1f} s",
                )
                for job in jobs
            ],
            (2, 3),
        )
        bins = point["bins"] if jobs else 0
        missing = escape("\n".join(point["bins_missing"]) or "Every bin was reached.")
        covered = escape(", ".join(point["coverage"]))
        detail = f"<details><summary>coverage</summary>{covered}<pre>{missing}</pre></details>"
        rows.append(
            (
                _chip(point["status"]),
                f"<b>{escape(point['id'])}</b><br>"
                f"{escape(point['description'])}{fault if point['fault'] else ''}"
                + (f"<details><summary>{_count(jobs)}</summary>{listing}</details>{detail}")
                * bool(jobs),
                f"{point['bins_hit']} / {bins}" if bins else "-",
                f"{passed} / {len(jobs)}" if jobs else "-",
                _duration(sum(job["seconds"] for job in jobs)) if jobs else "-",
            )
        )
    run = [point for point in points if point["jobs"]]
    good = sum(point["status"] == "passed" for point in run)
    chip = "good" if run and good == len(run) else "bad" if run else ""
    bad = " open" if good < len(run) else ""
    table = _table(("", "testpoint", "bins", "jobs", "time"), rows, (2, 3, 4))
    return (
        f'<details class="area"{bad}><summary><b>{escape(area)}</b> <span class="chip {chip}">'
        f"{good} / {len(run)}</span></summary>{table}</details>"
    )


def _count(jobs: Sequence[Json]) -> str:
    tests = len({job["test"] for job in jobs})
    return f"{tests} test{'s' * (tests > 1)}, {len(jobs)} job{'s' * (len(jobs) > 1)}"


def _functional(report: Json) -> str:
    points = report["functional"]["points"]
    if not points:
        return '<div class="card">No functional coverage was recorded in this run.</div>'
    modules: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    for name, bins in points.items():
        module, _, point = name.partition(".")
        modules[module][point] = bins
    rows = []
    for module, each in modules.items():
        bins = [count for point in each.values() for count in point.values()]
        listing = _table(
            ("point", "bins reached", "not reached"),
            [
                (
                    escape(point),
                    f"{sum(n > 0 for n in values.values())} / {len(values)}",
                    escape(", ".join(name for name, n in values.items() if not n)),
                )
                for point, values in each.items()
            ],
            (1,),
        )
        rows.append(
            (
                f"<details><summary>{escape(module)}</summary>{listing}</details>",
                f"{sum(n > 0 for n in bins)} / {len(bins)}",
                _bar(100.0 * sum(n > 0 for n in bins) / len(bins)),
            )
        )
    table = _table(("module", "bins reached", ""), rows, (1,))
    return f'<div class="card">{table}</div>'


def _code(report: Json) -> str:
    if not report["code"]:
        return (
            '<div class="card">No code coverage was recorded in this run; '
            "<code>--coverage line</code> or <code>toggle</code> does.</div>"
        )
    kinds = [kind for kind in KINDS if kind in report["code_percent"]]
    rows = []
    for module, parts in report["code"].items():
        missing = [f"{kind} {name}" for kind in kinds for name in _missing(parts.get(kind))]
        name = escape(module)
        if missing:
            shown = "\n".join(missing[:SHOWN_MISSING])
            more = len(missing) - SHOWN_MISSING
            shown += f"\nand {more} more" if more > 0 else ""
            name = f"<details><summary>{name}</summary><pre>{escape(shown)}</pre></details>"
        cells = []
        for kind in kinds:
            part = parts.get(kind)
            if part is None or not part["total"]:
                cells.append("-")
                continue
            left = f" <span class=count>({part['excluded']} left out)</span>"
            cells.append(
                _bar(100.0 * part["hit"] / part["total"], goal=90.0 if kind == "toggle" else 97.0)
                + f" <span class=count>{part['hit']} / {part['total']}</span>"
                + (left if part["excluded"] else "")
            )
        rows.append((name, *cells))
    table = _table(("module", *kinds), rows)
    exclusions = report["exclusions"]
    listing = _table(
        ("module", "kind", "points", "reason"),
        [
            tuple(escape(e[key]) for key in ("module", "kind", "points", "reason"))
            for e in exclusions
        ],
    )
    listed = (
        f"<details><summary>{len(exclusions)} exclusions, with their reasons</summary>{listing}"
        "</details>"
        if exclusions
        else '<span class="soft">Nothing is excluded.</span>'
    )
    return (
        f'<div class="card">{table}</div><div class="card">{listed}</div><p class="soft">Branches '
        "are the arms of if, case and ?:. A toggle is one bit in one direction; bits that only a "
        "wider parameter has count once. Tests with a planted fault do not count.</p>"
    )


def _missing(part: Json | None) -> list[str]:
    """Return the missing points; toggles of one signal in one line."""
    if part is None:
        return []
    signals: dict[str, list[str]] = defaultdict(list)
    for point in part["missing"]:
        name, _, direction = point.rpartition(":")
        if direction in ("0->1", "1->0"):
            signals[name.partition("[")[0]].append(point)
        else:
            signals[point].append(point)
    return [
        points[0] if len(points) == 1 else f"{name}: {len(points)} bits and directions"
        for name, points in signals.items()
    ]


def _durations(report: Json) -> str:
    tests: dict[str, list[Json]] = defaultdict(list)
    for job in report["jobs"]:
        tests[job["test"]].append(job)
    longest = {test: max(job["seconds"] for job in jobs) for test, jobs in tests.items()}
    slowest = sorted(longest, key=lambda test: -longest[test])[:SLOWEST]
    most = max([longest[test] for test in slowest], default=1.0) or 1.0
    rows = [
        (
            escape(test),
            f"{len(tests[test])}",
            f'<span class="bar"><i style="width:{100 * longest[test] / most:.0f}%"></i></span>'
            f"{longest[test]:.1f} s",
        )
        for test in slowest
    ]
    builds = report["builds"].values()
    total = sum(build["cpu_seconds"] for build in builds)
    work = sum(job["cpu_seconds"] for job in report["jobs"])
    cost = (
        f"Processor time: {_duration(work)} for {len(report['jobs'])} jobs and {_duration(total)} "
        f"for {len(builds)} builds, in {_duration(report['seconds'])} of wall clock."
    )
    base = report["base_seed"]
    seeds = (
        "Seeds are fixed by the tests' names."
        if base is None
        else f"All seeds follow from <code>--seed {base}</code>."
    )
    return (
        f'<div class="card"><p>{cost} {seeds} The seed of each job is in the table of its '
        "testpoint.</p>"
        f"{_table(('slowest tests', 'runs', 'longest'), rows, (1,))}</div>"
    )


def _environment(report: Json) -> str:
    rows = [
        (escape(name.replace("_", " ")), f"<code>{escape(str(value))}</code>")
        for name, value in report["provenance"].items()
    ]
    return f'<div class="card">{_table(("", ""), rows)}</div>'
