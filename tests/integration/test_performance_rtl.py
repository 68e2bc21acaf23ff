# SPDX-License-Identifier: Apache-2.0
"""The record that the performance model is calibrated with still holds on the simulated card."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from fastdelta.bench.calibrate import AnyCase, DecodeCase, Memory, PrefillCase, measure
from fastdelta.reference.performance.calibration import RECORD

pytestmark = pytest.mark.timeout(1800)  # the first test of a shape builds its kernel

PREFILL = (
    PrefillCase("fit-16x32", 300, 4, 2, density=0.3, seed=2),
    PrefillCase("fit-16x32", 300, 4, 2, "index", tau=1, seed=8),
    PrefillCase("fit-16x32", 400, 4, 1, density=0.5, memory=Memory(64, 16, 0.5), seed=26),
)
DECODE = (DecodeCase("fit-d32-h2", 30), DecodeCase("fit-d32-h2", 0, "dump"))

ADVICE = (
    "the RTL takes other cycles or moves other bytes than recorded; if it was meant to change, "
    "run `python -m fastdelta.bench.calibrate --write` and see the errors that it prints"
)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return values


def entry_of(record: dict[str, Any], kind: str, case: AnyCase) -> dict[str, Any]:
    """Return the entry of a case in the record."""
    entries = [entry for entry in record[kind] if entry["case"] == asdict(case)]
    assert len(entries) == 1, f"{case} is {len(entries)} times in the record"
    entry: dict[str, Any] = entries[0]
    return entry


@pytest.mark.parametrize("case", PREFILL, ids=lambda case: f"{case.mode}-{case.seed}")
def test_prefill_takes_the_recorded_cycles(record: dict[str, Any], case: PrefillCase) -> None:
    assert measure([case], [])["prefill"] == [entry_of(record, "prefill", case)], ADVICE


def test_decode_takes_the_recorded_cycles(record: dict[str, Any]) -> None:
    assert measure([], DECODE)["decode"] == [entry_of(record, "decode", case) for case in DECODE], (
        ADVICE
    )
