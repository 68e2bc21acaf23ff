# SPDX-License-Identifier: Apache-2.0
"""The soak bench: a short one passes, and what it looks for is found when it is there."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fastdelta.bench import soak
from fastdelta.bench.soak import ProcessReport, SoakOptions, SoakReport, run_process, run_soak
from fastdelta.cli import app
from fastdelta.decode.runs import BufferSet
from fastdelta.errors import InputError
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.runs import Buffers

pytestmark = pytest.mark.timeout(600)  # the first test builds two kernels

OPTIONS = SoakOptions(
    seconds=5, prefill_threads=2, seed=3, decode_board="sim-u55c", prefill_board="sim-u280"
)
KINDS = {
    "clear", "decode", "decode awaited", "decode job", "decode of one token", "dump", "load",
    "prefill awaited", "prefill by rule", "prefill dense", "prefill job by rule",
    "prefill of given blocks", "prefill prepared by rule",
}  # fmt: skip


def test_a_short_soak_passes() -> None:
    arguments = ["bench", "soak", "--seconds", "24", "--json", "-"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    record = json.loads(result.stdout)
    assert record["faults"] == []
    assert record["passed"], json.dumps(record["processes"])
    assert result.exit_code == 0
    assert (record["wrong"], record["errors"], record["leaked_buffers"]) == (0, 0, 0)
    assert record["memory_growth"] < 0.01
    assert set(record["calls"]) == KINDS
    assert record["calls_in_all"] == sum(record["calls"].values()) > 1000
    assert len(record["processes"]) == record["options"]["processes"] == 2
    for process in record["processes"]:
        assert process["rounds"] >= 3
        assert process["warm_mib"] > 10


@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_wrong_results_are_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "decode":
        made = soak._Sequence.of

        def sequence(seed: int):
            good = made(seed)
            outputs = good.outputs.copy()
            outputs[7, 1, 2] = np.nextafter(outputs[7, 1, 2], np.float32(np.inf))
            return dataclasses.replace(good, outputs=outputs)

        monkeypatch.setattr(soak._Sequence, "of", sequence)
    else:
        known = soak._KnownPrompt.of

        def prompt(*sizes: int, seed: int):
            good = known(*sizes, seed=seed)
            dense = good.dense.copy()
            dense[0, -1, 0] += 1
            return dataclasses.replace(good, dense=dense)

        monkeypatch.setattr(soak._KnownPrompt, "of", prompt)
    report = run_process(OPTIONS)
    assert report.wrong > 0
    assert any(fault.startswith(kind) for fault in report.faults)
    assert not SoakReport({}, (report,), 5.0).passed
    assert report.leaked_buffers == 0


@pytest.mark.parametrize("kind", [BufferSet, Buffers])
def test_buffers_that_are_left_are_found(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    kept = []

    def keep(buffers) -> None:
        kept.extend(buffers._buffers.values())
        buffers._buffers.clear()

    monkeypatch.setattr(kind, "free", keep)
    monkeypatch.setattr(soak, "_FEWEST_ROUNDS", 1)
    report = run_process(OPTIONS)
    assert report.leaked_buffers == len(kept) > 0
    assert report.wrong == report.errors == 0
    assert not SoakReport({}, (report,), 5.0).passed


def test_errors_of_threads_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments) -> None:
        raise InputError("refused")

    monkeypatch.setattr(PrefillAccelerator, "prepare", refuse)
    # It ends with the first error; a loaded machine may need long until the first call.
    report = run_process(dataclasses.replace(OPTIONS, seconds=60))
    assert report.errors == 1 or report.errors == 2  # threads of both kinds of prompts
    assert "refused" in report.faults[0]
    assert report.rounds == 1


@pytest.mark.parametrize("growth", [0.005, 0.02])
def test_growth_is_found(growth: float) -> None:
    steady = ProcessReport(calls={"decode": 1}, warm_mib=80, final_mib=80)
    grown = ProcessReport(calls={"decode": 1}, warm_mib=80, final_mib=80 * (1 + growth))
    report = SoakReport({}, (steady, grown), 5.0)
    assert report.growth == pytest.approx(growth)
    assert report.passed == (growth < 0.01)


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "no number")  # no process of Python starts with it
    report = run_soak(5.0, processes=2)
    assert report.errors == 2
    assert "PYTHONHASHSEED" in report.faults[0]
    assert not report.passed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seconds": 1.0}, "allowed is 5"),
        ({"processes": 0}, "at least 1"),
        ({"decode_board": "u55c"}, "simulated"),
    ],
)
def test_impossible_options_are_refused(arguments: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run_soak(**arguments)
