# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from end to end on the simulated card, and are stored without outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((REPOSITORY / "overlays" / "notebooks").glob("*.ipynb"))
names = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def code_of(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(notebook: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--nbmake", "--nbmake-timeout=500", "-q"]
    return subprocess.run(
        [*command, "-n", "0", "-p", "no:cacheprovider", str(notebook)],
        cwd=REPOSITORY,
        env={**os.environ, "FASTDELTA_NOTEBOOKS": "small"},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )


def test_every_notebook_is_there() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == [
        "bring_up_on_a_card",
        "decode_benchmark",
        "design_space_exploration",
        "prefill_benchmark",
        "quick_start",
    ]


@pytest.mark.timeout(600)  # the first to open a kernel builds it
@names
def test_notebook_runs(notebook: Path) -> None:
    result = run(notebook)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout


def test_a_notebook_that_fails_is_noticed(tmp_path: Path) -> None:
    record = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    record["cells"] = [{**code_of(NOTEBOOKS[0])[0], "source": ["assert 1 == 2"]}]
    broken = tmp_path / "broken.ipynb"
    broken.write_text(json.dumps(record), encoding="utf-8")
    assert run(broken).returncode != 0


@names
def test_notebook_is_stored_without_outputs(notebook: Path) -> None:
    for cell in code_of(notebook):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@names
def test_one_variable_names_the_card(notebook: Path) -> None:
    first, *others = ("".join(cell["source"]) for cell in code_of(notebook))
    assert re.search(r'^BOARD = "sim-(u55c|u280)"', first, re.MULTILINE)
    assert not re.search(r"sim-u|\bBOARD\s*=", "".join(others))
