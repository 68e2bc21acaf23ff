# SPDX-License-Identifier: Apache-2.0
"""The bench is tested too: agents pass a correct design, and each fault or silence fails."""

from pathlib import Path

import pytest

from fastdelta_verif.build import Design, Simulate


def stream_register(fixtures: Path, **parameters: int) -> Design:
    """Return the one-beat stream register."""
    return Design("stream_register", (fixtures / "stream_register.v",), parameters)


@pytest.mark.parametrize("width", [128, 512])
def test_stream_agents_pass_a_correct_design(
    simulate: Simulate, fixtures: Path, width: int
) -> None:
    design = stream_register(fixtures, WIDTH=width, FAULT=0)
    simulate(design, "stream_register", "copy", {"packets": 50})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (1, "valid was withdrawn"),
        (2, "payload changed while waiting"),
        (3, "beat: got"),
        (4, "beat: got"),
    ],
    ids=["valid_withdrawn", "payload_changed", "beat_lost", "beat_twice"],
)
def test_stream_fault_is_caught(
    simulate: Simulate, fixtures: Path, fault: int, message: str
) -> None:
    design = stream_register(fixtures, WIDTH=128, FAULT=fault)
    simulate(design, "stream_register", "copy", {"packets": 20}, fails=message)


def test_unknown_control_signal_is_caught(simulate: Simulate, fixtures: Path) -> None:
    parameters = {"WIDTH": 128, "FAULT": 5}
    design = Design(
        "stream_register", (fixtures / "stream_register.v",), parameters, simulator="icarus"
    )
    simulate(design, "stream_register", "copy", {"packets": 20}, fails="Cannot convert")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"packets": 0}, "compared nothing"),
        ({"packets": 20, "disconnect": "sink"}, "compared nothing"),
        ({"packets": 20, "disconnect": "source"}, "but none is inside"),
        ({"packets": 1, "throttles": ["none"], "drain": False}, "left over"),
    ],
    ids=["no_stimulus", "sink_monitor_disconnected", "source_monitor_disconnected", "leftover"],
)
def test_silence_fails(
    simulate: Simulate, fixtures: Path, options: dict[str, object], message: str
) -> None:
    design = stream_register(fixtures, WIDTH=128, FAULT=0)
    simulate(design, "stream_register", "copy", options, fails=message)


def test_run_of_an_absent_test_fails(simulate: Simulate, fixtures: Path) -> None:
    design = stream_register(fixtures, WIDTH=128, FAULT=0)
    simulate(design, "stream_register", "absent", fails=r"without a result|0 tests ran")
