# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documents are what their script draws, and name units that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DRAW = REPOSITORY / "tools" / "draw_architecture.py"


def check() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DRAW), "--check"], capture_output=True, text=True, check=False
    )


def test_pictures_are_not_stale() -> None:
    result = check()
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_units_of_a_picture_exist(kernel: str) -> None:
    text = (REPOSITORY / "docs" / "pictures" / f"{kernel}.svg").read_text(encoding="utf-8")
    shown = set(re.findall(r"\b[a-z]{2,}(?:_[a-z]{2,})+\b", text))
    units = {file.stem for file in (REPOSITORY / "rtl" / kernel).glob("*.v")}
    assert len(shown & units) > 8
    assert shown <= units
