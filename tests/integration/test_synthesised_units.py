# SPDX-License-Identifier: Apache-2.0
"""The committed synthesis figures count every unit as often as the RTL instantiates it."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from fastdelta.report.build import synthesis
from fastdelta_verif.build import VERILATOR_BIN, rtl_sources


def cells(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the instances below a node of Verilator's tree."""
    if isinstance(node, list):
        for part in node:
            yield from cells(part)
    elif isinstance(node, dict):
        if node["type"] == "CELL":
            yield node
        for value in node.values():
            if isinstance(value, list):
                yield from cells(value)


def elaborated_instances(
    sources: Sequence[Path], top: str, parameters: Mapping[str, int], folder: Path
) -> Counter[str]:
    """Return how often a design has each module, the top included."""
    options = ["--json-only", "-Wno-fatal", "-Wno-lint", "--quiet", "--unroll-count", "4"]
    values = [f"-G{name}={value}" for name, value in parameters.items()]
    program = str(VERILATOR_BIN / "verilator")
    subprocess.run(
        [
            program,
            *options,
            "--Mdir",
            str(folder),
            "--top-module",
            top,
            *values,
            *map(str, sources),
        ],
        check=True,
    )
    tree = json.loads((folder / f"V{top}.tree.json").read_text())
    modules = {module["addr"]: module for module in tree["modulesp"]}
    found: Counter[str] = Counter()

    def visit(module: dict[str, Any]) -> None:
        found[module["origName"]] += 1
        for cell in cells(module["stmtsp"]):
            assert not cell["rangep"], "an array of instances is one cell"
            visit(modules[cell["modp"]])

    visit(next(module for module in modules.values() if module["origName"] == top))
    return found


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_figures_count_the_instances_of_the_rtl(
    kernel: Literal["decode", "prefill"], tmp_path: Path
) -> None:
    record = synthesis(kernel)
    recorded = {unit["unit"]: unit["instances"] for unit in record["units"]}
    top = f"{kernel}_kernel"
    found = elaborated_instances(rtl_sources(kernel), top, record["parameters"], tmp_path)
    assert recorded == found, f"run: make synth-{kernel}"
