# SPDX-License-Identifier: Apache-2.0
"""The C++ example on the simulated card, through the xrt:: interface of an unmodified XRT.

Only with Debian's libxrt1 and libxrt-dev (XRT 2.13), which nothing else here needs.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_decode_on_board import QK, SHAPE, TOKENS, DecodeUnit, V

from fastdelta.registers.decode import Command
from fastdelta.sim import open_device
from fastdelta.sim.paths import find_compiler
from fastdelta.sim.xrt import environment, has_xrt_cpp, make_prefix

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp" / "decode.cpp"
HEADERS = Path("/usr/include/xrt")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (has_xrt_cpp() and HEADERS.is_dir()),
        reason="Debian's libxrt1 and libxrt-dev are missing",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cpp") / "decode"
    command = [str(find_compiler()), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    command += ["-isystem", str(HEADERS), str(EXAMPLE), "-o", str(path), "-lxrt_coreutil"]
    subprocess.run([*command, "-pthread"], check=True)
    return path


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *map(str, arguments)],
        env=environment(make_prefix(quiet=True)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_bytes_and_cycles_are_those_of_the_board(program: Path, tmp_path: Path) -> None:
    _, overlay = open_device("u55c", "decode", SHAPE)
    unit = DecodeUnit()
    with unit.board:
        unit.run(Command.CLEAR)
        _, block = unit.run(Command.DECODE)
        expected = unit.outputs()
        for name, address, size in (
            ("qk", QK, SHAPE.qk_token_bytes),
            ("v", V, SHAPE.v_token_bytes),
        ):
            (tmp_path / name).write_bytes(unit.board.read_memory(address, TOKENS * size))
    inputs = (overlay, TOKENS, tmp_path / "qk", tmp_path / "v")
    result = run(program, *inputs, tmp_path / "o", len(expected))
    assert result.returncode == 0, result.stderr
    cycles = int(block[4]) | int(block[5]) << 32
    assert json.loads(result.stdout) == {"tokens": TOKENS, "cycles": cycles}
    assert (tmp_path / "o").read_bytes() == expected
    missing = run(program, *inputs[:3], tmp_path / "missing", tmp_path / "o", 64)
    assert (missing.returncode, "cannot read" in missing.stderr) == (1, True)


def test_an_overlay_of_another_card_is_refused(program: Path, tmp_path: Path) -> None:
    _, overlay = open_device("u280", "decode", SHAPE)
    data = tmp_path / "data"
    data.write_bytes(bytes(4096))
    result = run(program, overlay, 1, data, data, tmp_path / "o", 64)
    assert result.returncode == 1
    assert "the xclbin is for xilinx_u280" in result.stderr
    assert run(program, overlay).returncode == 2
