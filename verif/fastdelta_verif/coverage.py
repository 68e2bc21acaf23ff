# SPDX-License-Identifier: Apache-2.0
"""Functional coverage: points of one simulation, merged over simulations and reported.

A run writes the hits of each bin as JSON to ``build/coverage``. ``python -m
fastdelta_verif.coverage`` merges that folder, prints what was not hit, writes
``build/coverage.json``, and fails below ``--minimum`` percent. Line coverage of the RTL, when the
runs recorded it, is reported beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

from cocotb_coverage.coverage import CoverPoint, coverage_db

from fastdelta_verif.build import COVERAGE_FOLDER

Hits = dict[str, dict[str, int]]


class CoverageGroup:
    """Cover points with a common prefix; each has named bins, a tuple for a cross."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._bins: dict[str, tuple[Hashable, ...]] = {}
        self._samplers: dict[str, Callable[[Hashable], None]] = {}

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
                _label(bin_): int(coverage_db[f"{self._prefix}.{name}"].detailed_coverage[bin_])
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


def _label(bin_: Hashable) -> str:
    return " x ".join(map(str, bin_)) if isinstance(bin_, tuple) else str(bin_)


def missing_bins(hits: Hits) -> list[str]:
    """Return the bins without a hit, with their points."""
    return [f"{point}: {bin_}" for point, bins in hits.items() for bin_, n in bins.items() if not n]


def merge(files: Iterable[Path]) -> Hits:
    """Add the hits of equal bins."""
    total: dict[str, Counter[str]] = {}
    for file in files:
        for point, bins in json.loads(file.read_text()).items():
            counter = total.setdefault(point, Counter())
            for bin_, count in bins.items():
                counter[bin_] += count  # also zero: a bin that was never hit is a bin
    return {point: dict(counter) for point, counter in sorted(total.items())}


def percentage(hits: Hits) -> float:
    """Return the bins with a hit in percent of all bins."""
    bins = [count for point in hits.values() for count in point.values()]
    return 100.0 * sum(count > 0 for count in bins) / len(bins) if bins else 0.0


def line_coverage(files: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Return (hit, all) points of each RTL source from Verilator's ``coverage.dat`` files."""
    counts: Counter[tuple[str, str]] = Counter()
    for file in files:
        for line in file.read_text(errors="replace").splitlines():
            if not line.startswith("C '"):
                continue
            key, _, count = line[3:].rpartition("' ")
            fields = dict(part.split("\x02", 1) for part in key.split("\x01") if "\x02" in part)
            place = ":".join(fields.get(name, "") for name in "ln")
            counts[Path(fields["f"]).stem, place] += int(count)
    sources: dict[str, tuple[int, int]] = {}
    for (source, _), count in counts.items():
        hit, every = sources.get(source, (0, 0))
        sources[source] = (hit + (count > 0), every + 1)
    return sources


def main() -> int:
    """Merge and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=COVERAGE_FOLDER)
    parser.add_argument("--json", type=Path, default=COVERAGE_FOLDER.with_suffix(".json"))
    parser.add_argument("--minimum", type=float, default=0.0, help="percent of all bins")
    arguments = parser.parse_args()

    files = sorted(arguments.folder.glob("*.json"))
    hits = merge(files)
    covered = percentage(hits)
    for point, bins in hits.items():
        print(f"{sum(n > 0 for n in bins.values()):4d} / {len(bins):4d}  {point}")
    missing = missing_bins(hits)
    for bin_ in missing:
        print(f"not hit: {bin_}")
    lines = line_coverage(arguments.folder.glob("*.dat"))
    for source, (hit, every) in sorted(lines.items()):
        print(f"{hit:4d} / {every:4d}  lines of {source}")
    print(f"{covered:.1f} % of the bins, from {len(files)} simulations")
    report = {"percent": covered, "simulations": len(files), "points": hits, "lines": lines}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(covered < arguments.minimum)


if __name__ == "__main__":
    sys.exit(main())
