# SPDX-License-Identifier: Apache-2.0
"""The Python examples of the documents run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", ["README.md", "docs/host.md"])
def test_examples_run(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = EXAMPLE.findall((REPOSITORY / document).read_text(encoding="utf-8"))
    assert examples
    for example in examples:
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(example, document, "exec"), names)
    assert capsys.readouterr().out.strip(), "the examples print what they found"
