# SPDX-License-Identifier: Apache-2.0
"""Ports of two simulators are compared where the one with four states knows them."""

from pathlib import Path

import pytest

from fastdelta_verif.port_trace import compare_traces

HEAD = "rst_n valid data"
# Two cycles before and in the reset, which do not count, then three that do.
KNOWN = [HEAD, "z x xxxx", "0 x xxxx", "1 0 xxxx", "=", "1 1 1x01"]


def traces(folder: Path, known: list[str], other: list[str]) -> tuple[int, list[str]]:
    files = folder / "known", folder / "other"
    for file, lines in zip(files, (known, other), strict=True):
        file.write_text("\n".join(lines) + "\n")
    return compare_traces(*files)


def test_bits_that_are_known_are_equal(tmp_path: Path) -> None:
    other = [HEAD, "0 1 1010", "0 1 0110", "1 0 1010", "1 0 0000", "1 1 1101"]
    assert traces(tmp_path, KNOWN, other) == (2 + 2 + 2 + 3, [])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 0 0000", "=", "1 1 1000"], "cycle 4: data is 1x01, but 1000"),
        (["1 1 0000", "1 0 0000", "1 1 1001"], "cycle 2: valid is 0, but 1"),
        (["1 0 0000", "="], "5 cycles, but 4"),
        (["1 0 0000", "=", "1 1 1001", "="], "5 cycles, but 6"),
    ],
    ids=["data", "valid", "early_end", "late_end"],
)
def test_difference_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    _, found = traces(tmp_path, KNOWN, [HEAD, "0 0 0000", "0 0 0000", *lines])
    assert found == [message]


def test_other_ports_differ(tmp_path: Path) -> None:
    _, found = traces(tmp_path, KNOWN, ["rst_n valid", "0 0", "1 0"])
    assert found == ["ports ['rst_n', 'valid', 'data'] against ['rst_n', 'valid']"]


def test_trace_without_the_end_of_a_reset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="goes high: rst_n valid data"):
        traces(tmp_path, KNOWN[:3], KNOWN[:3])
    with pytest.raises(ValueError, match="goes high: valid"):
        traces(tmp_path, ["valid", "1"], ["valid", "1"])
