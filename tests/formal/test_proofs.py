# SPDX-License-Identifier: Apache-2.0
"""The properties of ``verif/formal`` hold, can be met, and do not hold of broken cells."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fastdelta_verif.formal.faults import FAULTS, Fault
from fastdelta_verif.formal.proofs import PROOFS
from fastdelta_verif.formal.sby import PROPERTIES, Outcome, Proof, ToolMissingError, run

# What `make test` runs; `make formal` runs all.
SMALL = (
    "skid_buffer",
    "burst_crosses_a_page",
    "axi_burst_planner",
    "mac_array_twin",
    "fabric_product_drops_the_sign_of_a_digit",
)


def cases(names: Iterable[str]) -> list[Any]:
    marked = pytest.mark.formal
    return [pytest.param(name, marks=() if name in SMALL else marked) for name in names]


def said(outcome: Outcome) -> str:
    tail = "\n".join(outcome.log.splitlines()[-30:])
    return f"{outcome.status} in {outcome.folder}: {', '.join(outcome.findings)}\n{tail}"


@pytest.mark.parametrize("name", cases(PROOFS))
def test_properties_hold(name: str) -> None:
    outcome = run(PROOFS[name], name)
    assert outcome.status == "PASS", said(outcome)


@pytest.mark.parametrize("name", cases(PROOFS))
def test_assumptions_leave_room(name: str) -> None:
    """Each cover is reached from a reset: no assumption excludes what a proof speaks of."""
    outcome = run(PROOFS[name], name, "cover")
    assert outcome.status == "PASS", said(outcome)


@pytest.mark.parametrize("name", cases(FAULTS))
def test_fault_breaks_the_proof(name: str, tmp_path: Path) -> None:
    """Not only does the induction fail: there is a trace that starts at a reset."""
    fault = FAULTS[name]
    fault.apply(tmp_path)
    outcome = run(PROOFS[fault.proof], f"fault-{name}", "bmc", root=tmp_path)
    assert outcome.status == "FAIL", said(outcome)
    assert outcome.findings, said(outcome)
    assert list(outcome.folder.rglob("trace*.vcd")), "a failed proof leaves a trace"


def test_every_proof_has_a_fault() -> None:
    assert set(PROOFS) == {fault.proof for fault in FAULTS.values()}


def test_every_file_of_properties_is_proved() -> None:
    used = {file for proof in PROOFS.values() for file in proof.files}
    present = {path.name for path in PROPERTIES.glob("*.sv")}
    assert used == present


def test_fault_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        Fault("skid_buffer", "common/skid_buffer.v", "no such text", "").apply(tmp_path)


def test_broken_source_is_an_error(tmp_path: Path) -> None:
    Fault("skid_buffer", "common/skid_buffer.v", "endmodule", "end").apply(tmp_path)
    outcome = run(PROOFS["skid_buffer"], "broken-source", root=tmp_path)
    assert outcome.status == "ERROR"
    assert "skid_buffer.v" in outcome.log


def test_failed_induction_is_no_pass() -> None:
    """Without the cycle before, the properties of a stalled beat do not follow."""
    shallow = Proof("skid_buffer", "common", {"WIDTH": 3}, depth=1)
    assert run(shallow, "shallow-induction").status == "UNKNOWN"


def test_endless_run_is_stopped() -> None:
    outcome = run(PROOFS["skid_buffer"], "stopped-run", timeout=0.01)
    assert outcome.status == "TIMEOUT"


def test_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="yowasp-sby is not installed"):
        run(PROOFS["skid_buffer"], "missing-tool")


def test_missing_yosys_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ToolMissingError, match="pyosys is not installed"):
        run(PROOFS["skid_buffer"], "missing-yosys")
