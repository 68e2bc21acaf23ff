# SPDX-License-Identifier: Apache-2.0
"""The installed command: what goes to which stream, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fastdelta

COMMAND = Path(sys.executable).with_name("fastdelta")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_version() -> None:
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout == f"fastdelta {fastdelta.__version__}\n"


def test_help_names_the_commands() -> None:
    result = run("--help")
    assert result.returncode == 0
    for command in ("bench", "demo", "devices", "doctor"):
        assert command in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "decode", "--board", "u250"], "there is no board 'u250'"),
        (["bench", "decode", "--board", "0"], "there is no card 0"),
        (["bench", "decode", "--overlay", "d.xclbin"], "overlay is for real cards"),
        (["bench", "prefill", "--source", "synthetic", "--overlay", "p.xclbin"], "for real cards"),
        (["bench", "decode", "--tokens", "3"], "24 or more"),
        (["demo", "--read-bytes", "1"], "read_bytes is 1"),
        (["bench", "prefill", "--source", "synthetic", "--board", "u250"], "no board 'u250'"),
        (["bench", "prefill", "--source", "gemma", "--layer", "4"], "layers with full attention"),
        (["bench", "prefill", "--source", "gemma", "--tokens", "99999"], "the text has"),
        (["bench", "first-token", "--board", "model", "--tokens", "1"], ">= 2"),
    ],
)
def test_foreseen_errors_are_one_message_on_standard_error(
    arguments: list[str], words: str
) -> None:
    result = run(*arguments, "--json", "-")
    assert result.returncode == 1
    assert result.stdout == ""
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--source", "llama"], "allowed are gemma and synthetic"),
        (["--source", "gemma", "--head-dim", "128"], "gemma has 256"),
        (["--source", "synthetic", "--set", "slots"], "NAME=VALUE"),
        (["--source", "synthetic", "--set", "slots=12"], "power of two"),
        (["--source", "synthetic", "--set", "lanes=12"], "lanes"),
    ],
)
def test_illegal_prefill_benches_are_usage_errors(arguments: list[str], words: str) -> None:
    result = run("bench", "prefill", "--tokens", "64", *arguments)
    assert result.returncode == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("h_iter", ["5", "x", "8,", "0"])
def test_illegal_shapes_are_usage_errors(h_iter: str) -> None:
    result = run("bench", "decode", "--h-iter", h_iter)
    assert result.returncode == 2
    assert "--h-iter" in result.stderr or "h_iter" in result.stderr
