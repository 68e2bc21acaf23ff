# SPDX-License-Identifier: Apache-2.0
"""Coverage: points of one simulation, merged over simulations and reported.

Functional coverage: a run under pytest writes the hits of each bin as JSON to ``build/coverage``.
``fastdelta regress`` merges that of its own runs, and code coverage of the RTL as Verilator records
it, less listed exclusions; each of its reports has both, unmerged, in ``coverage.json``.
``python -m fastdelta_verif.coverage [PATH ...]`` merges folders of the former and files of the
latter, prints what was not reached, writes ``build/coverage.json``, and fails when less than
``--minimum`` percent of the bins was hit.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cocotb_coverage.coverage import CoverPoint, coverage_db

from fastdelta_verif.build import COVERAGE_FOLDER, REPOSITORY

EXCLUSIONS = Path(__file__).with_name("exclusions.toml")
KINDS = ("line", "branch", "toggle")

Hits = dict[str, dict[str, int]]


@dataclass(frozen=True)
class CoverageModel:
    """What a bench is to reach, known without a simulation.

    Attributes
    ----------
    name
        Prefix of the points, such as ``kv_cache``.
    points
        Bins of each point; a tuple is a bin of a cross.
    """

    name: str
    points: Mapping[str, tuple[Hashable, ...]]


class CoverageGroup:
    """Cover points with a common prefix; each has named bins, a tuple for a cross."""

    def __init__(self, prefix: str, points: Mapping[str, Iterable[Hashable]] | None = None) -> None:
        self._prefix = prefix
        self._bins: dict[str, tuple[Hashable, ...]] = {}
        self._samplers: dict[str, Callable[[Hashable], None]] = {}
        for name, bins in (points or {}).items():
            self.point(name, bins)

    def point(self, name: str, bins: Iterable[Hashable]) -> None:
        """Add a cover point."""
        self._bins[name] = tuple(bins)
        decorate = CoverPoint(f"{self._prefix}.{name}", bins=list(self._bins[name]))
        self._samplers[name] = decorate(lambda _: None)

    def hit(self, name: str, value: Hashable) -> None:
        """Count a bin; a value that is no bin is an error of the coverage model."""
        if value not in self._bins[name]:
            raise ValueError(f"{self._prefix}.{name}: {value!r} is none of {self._bins[name]}")
        self._samplers[name](value)

    def hits(self) -> Hits:
        """Return the hits of every bin."""
        return {
            f"{self._prefix}.{name}": {
                label(bin_): int(coverage_db[f"{self._prefix}.{name}"].detailed_coverage[bin_])
                for bin_ in bins
            }
            for name, bins in self._bins.items()
        }

    def missing(self) -> list[str]:
        """Return the bins without a hit."""
        return missing_bins(self.hits())


def write_hits(hits: Hits, path: str) -> None:
    """Write the hits of a simulation."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(hits, indent=1))


def label(bin_: Hashable) -> str:
    """Return the name of a bin in reports."""
    return " x ".join(map(str, bin_)) if isinstance(bin_, tuple) else str(bin_)


def missing_bins(hits: Hits) -> list[str]:
    """Return the bins without a hit, with their points."""
    return [f"{point}: {bin_}" for point, bins in hits.items() for bin_, n in bins.items() if not n]


def merge(files: Iterable[Path]) -> Hits:
    """Add the hits of equal bins of files."""
    return merge_hits(json.loads(file.read_text()) for file in files)


def merge_hits(parts: Iterable[Hits]) -> Hits:
    """Add the hits of equal bins."""
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for point, bins in part.items():
            counter = total.setdefault(point, Counter())
            for bin_, count in bins.items():
                counter[bin_] += count  # also zero: a bin that was never hit is a bin
    return {point: dict(counter) for point, counter in sorted(total.items())}


def percentage(hits: Hits) -> float:
    """Return the bins with a hit in percent of all bins."""
    bins = [count for point in hits.values() for count in point.values()]
    return 100.0 * sum(count > 0 for count in bins) / len(bins) if bins else 0.0


def format_percentage(percent: float) -> str:
    """Round down to tenths: what is not complete must not read 100.0, nor a missed goal as met."""
    return f"{math.floor(percent * 10) / 10:.1f}"


@dataclass
class CodePoints:
    """Counts of the points of the RTL's code.

    Attributes
    ----------
    modules
        Module, such as ``prefill/kv_cache``; kind of point; point; how often it was reached. A line
        or branch is named by line, column and what is there (``38.5 if``), a toggle by bit and
        direction (``s_axis_tdata[3]:0->1``).
    """

    modules: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def count(self, module: str, kind: str, point: str, count: int) -> None:
        """Add to a point."""
        points = self.modules.setdefault(module, {}).setdefault(kind, {})
        points[point] = points.get(point, 0) + count

    def add(self, other: CodePoints) -> None:
        """Add all points of other runs."""
        for module, kinds in other.modules.items():
            for kind, points in kinds.items():
                for point, count in points.items():
                    self.count(module, kind, point, count)

    def to_json(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return what ``from_json`` takes."""
        return self.modules

    @classmethod
    def from_json(cls, record: dict[str, dict[str, dict[str, int]]]) -> CodePoints:
        """Return the points of a record."""
        return cls(record)


def read_code_coverage(file: Path, root: Path) -> CodePoints:
    """Read a ``coverage.dat`` of Verilator; sources outside of a folder do not count.

    Raises
    ------
    ValueError
        The file is cut off, as by a full disk.
    """
    points = CodePoints()
    text = file.read_text(errors="replace")
    if not text.endswith("\n"):
        raise ValueError(f"{file}: cut off")
    modules: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("C '"):
            continue
        key, _, count = line[3:].rpartition("' ")
        fields = dict(part.split("\x02", 1) for part in key.split("\x01") if "\x02" in part)
        source, kind, comment = fields["f"], fields["t"], fields.get("o", "")
        if source not in modules:
            path = Path(source).resolve()
            inside = path.is_relative_to(root.resolve())
            modules[source] = (
                str(path.relative_to(root.resolve()).with_suffix("")) if inside else ""
            )
        if modules[source]:
            name = comment if kind == "toggle" else f"{fields['l']}.{fields['n']} {comment}"
            points.count(modules[source], kind, name, int(count))
    return points


@dataclass(frozen=True)
class Exclusion:
    """Points that need not be reached, and why.

    Attributes
    ----------
    module
        Such as ``prefill/kv_cache``.
    kind
        ``line``, ``branch`` or ``toggle``.
    points
        Regular expression: of a toggle, found in the name of its bit; else in its source line.
    reason
        Why no test can, or need, reach them.
    """

    module: str
    kind: str
    points: str
    reason: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"exclusion of {self.module}: kind {self.kind!r} is none of {KINDS}")
        if not self.reason.strip():
            raise ValueError(f"exclusion of {self.module} {self.points}: there is no reason")


def load_exclusions(path: Path = EXCLUSIONS) -> list[Exclusion]:
    """Read the exclusions.

    Raises
    ------
    ValueError
        One has an unknown kind or no reason.
    """
    try:
        return [
            Exclusion(**table) for table in tomllib.loads(path.read_text()).get("exclusion", ())
        ]
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}") from None


@dataclass
class ModuleCoverage:
    """Points of one kind of a module: reached, all but the excluded, excluded; and the missing."""

    hit: int
    total: int
    excluded: int
    missing: list[str]


def summarise(
    code: CodePoints, exclusions: Sequence[Exclusion], root: Path
) -> tuple[dict[str, dict[str, ModuleCoverage]], list[str]]:
    """Return coverage by module and kind, and what is wrong with the exclusions, one line each.

    An exclusion that stands for no point, or only for points that were reached, is wrong.
    """
    used: dict[Exclusion, int] = dict.fromkeys(exclusions, 0)
    stood: set[Exclusion] = set()
    summary: dict[str, dict[str, ModuleCoverage]] = {}
    for module, kinds in sorted(code.modules.items()):
        lines = _source_lines(root / module)
        for kind, points in kinds.items():
            mine = [e for e in exclusions if (e.module, e.kind) == (module, kind)]
            result = ModuleCoverage(0, 0, 0, [])
            for point, count in points.items():
                text = point if kind == "toggle" else lines.get(_line(point), "")
                excluded = [e for e in mine if re.search(e.points, text)]
                stood.update(excluded)
                if count:
                    result.hit += 1
                    result.total += 1
                elif excluded:
                    used[excluded[0]] += 1
                    result.excluded += 1
                else:
                    result.total += 1
                    result.missing.append(point if kind == "toggle" else f"{point}: {text}")
            summary.setdefault(module, {})[kind] = result
    wrong = []
    for exclusion, count in used.items():
        seen = exclusion.kind in summary.get(exclusion.module, {})
        if seen and not count:
            what = "only reached points" if exclusion in stood else "no point"
            wrong.append(
                f"{exclusion.module} {exclusion.kind} '{exclusion.points}' stands for {what}"
            )
    return summary, wrong


def _line(point: str) -> int:
    return int(point.partition(".")[0])


def _source_lines(path: Path) -> Mapping[int, str]:
    for suffix in (".v", ".sv"):
        source = path.with_suffix(suffix)
        if source.exists():
            return dict(enumerate(map(str.strip, source.read_text().splitlines()), start=1))
    return {}


@dataclass
class Record:
    """Coverage of some simulations."""

    functional: Hits = field(default_factory=dict)
    code: CodePoints = field(default_factory=CodePoints)

    def to_json(self) -> dict[str, object]:
        """Return what ``from_json`` takes."""
        return {"functional": self.functional, "code": self.code.to_json()}

    @classmethod
    def read(cls, file: Path) -> Record:
        """Read the hits of a simulation, or the ``coverage.json`` of a regression."""
        content = json.loads(file.read_text())
        if content.keys() == cls().to_json().keys():
            return cls(content["functional"], CodePoints.from_json(content["code"]))
        return cls(content)


def merge_records(files: Iterable[Path]) -> Record:
    """Add the coverage of files."""
    total = Record()
    for file in files:
        record = Record.read(file)
        total.functional = merge_hits([total.functional, record.functional])
        total.code.add(record.code)
    return total


def code_percentages(summary: Mapping[str, Mapping[str, ModuleCoverage]]) -> dict[str, float]:
    """Return the reached points in percent of all but the excluded ones, by kind."""
    result = {}
    for kind in KINDS:
        parts = [kinds[kind] for kinds in summary.values() if kind in kinds]
        total = sum(part.total for part in parts)
        if parts:
            result[kind] = 100.0 * sum(part.hit for part in parts) / total if total else 100.0
    return result


def main() -> int:
    """Merge and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[COVERAGE_FOLDER])
    parser.add_argument("--json", type=Path, default=COVERAGE_FOLDER.with_suffix(".json"))
    parser.add_argument("--minimum", type=float, default=0.0, help="percent of all bins")
    parser.add_argument("--missing", action="store_true", help="list the code that was not reached")
    arguments = parser.parse_args()

    files: list[Path] = []
    for path in arguments.paths:
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    record = merge_records(files)
    hits = record.functional
    covered = percentage(hits)
    for point, bins in hits.items():
        print(f"{sum(n > 0 for n in bins.values()):4d} / {len(bins):4d}  {point}")
    for bin_ in missing_bins(hits):
        print(f"not hit: {bin_}")
    print(f"{format_percentage(covered)} % of the bins, from {len(files)} files")
    summary, _ = summarise(record.code, load_exclusions(), REPOSITORY / "rtl")
    for module, kinds in summary.items():
        counts = ", ".join(
            f"{kind} {part.hit} / {part.total}"
            + (f" ({part.excluded} left out)" if part.excluded else "")
            for kind, part in kinds.items()
        )
        print(f"{module}: {counts}")
        for kind, part in kinds.items():
            for point in part.missing if arguments.missing else ():
                print(f"    {kind} {point}")
    for kind, value in code_percentages(summary).items():
        print(f"{format_percentage(value)} % {kind} coverage")
    report = {"percent": covered, "files": len(files), "points": hits}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(covered < arguments.minimum)


if __name__ == "__main__":
    sys.exit(main())
