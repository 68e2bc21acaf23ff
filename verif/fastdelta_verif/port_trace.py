# SPDX-License-Identifier: Apache-2.0
"""The ports of a design, cycle by cycle, as a simulator saw them, and the comparison of two.

A simulator with four states knows which bits a design determines: all but those that depend on
what registers hold at power-up. From the end of the first reset on those bits must be the same in
any simulator, whatever registers hold at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESETS = ("rst_n", "ap_rst_n")
UNCHANGED = "="
SHOWN = 5  # differences in a message


async def record_ports(design: Any, ports: Sequence[str], edge: Any, path: Path) -> None:
    """Write what each clock edge samples of some ports, a line a cycle, until the test ends.

    Parameters
    ----------
    design
        Handle of the top module.
    ports
        Names of its ports; the first line of the file.
    edge
        Trigger of the clock edge.
    path
        The file.
    """
    handles = [getattr(design, name) for name in ports]
    before: list[str] = []
    with path.open("w", buffering=1) as stream:  # the end of a test is no end of a block
        stream.write(" ".join(ports) + "\n")
        while True:
            await edge
            now = [str(handle.value) for handle in handles]
            stream.write((UNCHANGED if now == before else " ".join(now)) + "\n")
            before = now


def read_trace(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names of the ports, and their values cycle by cycle, as text of ``01xz``."""
    names, *lines = path.read_text().splitlines()
    rows: list[list[str]] = []
    for line in lines:
        rows.append(rows[-1] if line == UNCHANGED else line.split())
    return names.split(), rows


def first_cycle(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the first cycle after the first reset.

    Raises
    ------
    ValueError
        No port is a reset, or it never ends.
    """
    place = next((names.index(name) for name in RESETS if name in names), None)
    if place is not None:
        for cycle, row in enumerate(rows):
            if row[place] == "1":
                return cycle
    raise ValueError(f"no port of {RESETS} goes high: {' '.join(names)}")


def compare_traces(known: Path, other: Path) -> tuple[int, list[str]]:
    """Compare each bit that a four-state simulator knows with what another one has.

    Parameters
    ----------
    known, other
        Files of the four-state and of the other simulator.

    Returns
    -------
    bits, differences
        Number of bits compared, and the first differences, a line each.

    Raises
    ------
    ValueError
        No port is a reset, or it never ends.
    """
    names, rows = read_trace(known)
    other_names, other_rows = read_trace(other)
    if names != other_names:
        return 0, [f"ports {names} against {other_names}"]
    bits, found, start = 0, [], first_cycle(names, rows)
    pairs = list(zip(rows, other_rows, strict=False))
    for cycle, (row, other_row) in enumerate(pairs[start:], start):
        for name, value, other_value in zip(names, row, other_row, strict=True):
            if value == other_value:
                bits += len(value)
                continue
            known_bits = [place for place, bit in enumerate(value) if bit in "01"]
            bits += len(known_bits)
            if len(value) != len(other_value) or any(
                value[place] != other_value[place] for place in known_bits
            ):
                found.append(f"cycle {cycle}: {name} is {value}, but {other_value}")
        if len(found) >= SHOWN:
            break
    if not found and len(rows) != len(other_rows):
        found.append(f"{len(rows)} cycles, but {len(other_rows)}")
    return bits, found[:SHOWN]
