# SPDX-License-Identifier: Apache-2.0
"""One test on two simulators, and from several states at power-up: results equal to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastdelta_verif.build import Design, SimulationError, run
from fastdelta_verif.port_trace import compare_traces, first_cycle, read_trace

INITIAL_SEEDS = (1, 2)


@dataclass(frozen=True)
class Agreement:
    """What was compared.

    Attributes
    ----------
    cycles
        Of the test.
    bits
        Bits of ports that Icarus knew, over all cycles after the first reset; each was compared
        with every other run.
    undetermined
        Bits of ports that were unknown in Icarus in these cycles.
    """

    cycles: int
    bits: int
    undetermined: int


def second_opinion(
    design: Design,
    module: str,
    test: str,
    *,
    seed: int,
    options: Mapping[str, Any],
    folder: Path,
    rerun: str = "",
) -> Agreement:
    """Run a test with one stimulus in Icarus, and in Verilator from two random initial states.

    Every run has to pass. From the end of the first reset on, each bit of each port of the top that
    Icarus knows must be the same in the same cycle of all runs, which take equally many cycles.

    Parameters
    ----------
    design
        What to simulate; its ``simulator`` does not count.
    module, test, seed, options, rerun
        As of ``build.run``.
    folder
        Folder for logs and traces.

    Raises
    ------
    SimulationError
        A run failed, or two differ.
    """
    runs = [("icarus", None), *(("verilator", initial) for initial in INITIAL_SEEDS)]
    traces = []
    for simulator, initial in runs:
        place = folder / (simulator if initial is None else f"{simulator}-{initial}")
        place.mkdir(parents=True)
        traces.append(place / "ports")
        run(
            replace(design, simulator=simulator, coverage=""),
            module,
            test,
            seed=seed,
            options=options,
            folder=place,
            rerun=rerun,
            coverage=place / "coverage",
            initial=initial,
            trace=traces[-1],
        )
    bits = 0
    for trace in traces[1:]:
        bits, differences = compare_traces(traces[0], trace)
        if differences:
            reason = f"{trace.parent.name} differs from icarus: {differences[0]}"
            raise SimulationError("\n".join([f"{test}: {reason}", *differences[1:]]), reason)
    names, rows = read_trace(traces[0])
    total = sum(len(value) for row in rows[first_cycle(names, rows) :] for value in row)
    if not bits:
        raise SimulationError(f"{test}: no bit of a port was known", "compared nothing")
    return Agreement(len(rows), bits, total - bits)
