# SPDX-License-Identifier: Apache-2.0
"""Both front ends of the board model: the same host tests, the same bytes, the same cycles.

PYNQ chooses XRT's library when it is imported, so what runs behind XRT runs in processes of its
own. The tests in ``behind_xrt`` are collected only there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pynq.pl_server.xrt_device import XrtDevice

from fastdelta.errors import BoardNotFoundError, InputError
from fastdelta.sim import SimDevice, open_device
from fastdelta.sim.xrt import XRT_VERSION, active_prefix, environment, main, make_prefix

HERE = Path(__file__).resolve().parent
VECTOR_ADD = HERE.parent / "kernels" / "vector_add"

pytestmark = pytest.mark.timeout(1800)  # the first run builds the kernels of all shapes


def run(*command: str, prefix: Path | None) -> subprocess.CompletedProcess[str]:
    """Run Python with or without simulated cards behind XRT."""
    given = environment(prefix) if prefix is not None else None
    return subprocess.run(
        [sys.executable, *command],
        env=given,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def prefix() -> Path:
    return make_prefix(quiet=True)


@pytest.mark.parametrize(
    "tests", ["test_decode_accelerator.py", "test_prefill_accelerator.py", "behind_xrt"]
)
def test_host_tests_pass_behind_xrt(prefix: Path, tests: str) -> None:
    options = ("-q", "-n", "0", "-p", "no:cacheprovider")
    result = run("-m", "pytest", *options, str(HERE / tests), prefix=prefix)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    summary = result.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"\d+ passed in .*", summary), summary
    assert int(summary.split()[0]) >= 20


def test_bytes_and_cycles_are_the_same(prefix: Path) -> None:
    def lines(chosen: Path | None) -> list[dict[str, Any]]:
        result = run(str(HERE / "front_end_program.py"), prefix=chosen)
        assert result.returncode == 0, result.stderr[-4000:]
        return [json.loads(line) for line in result.stdout.splitlines()]

    pynq, xrt = lines(None), lines(prefix)
    assert pynq.pop(0) == {"device": f"{SimDevice.__module__}.SimDevice"}
    assert xrt.pop(0) == {"device": f"{XrtDevice.__module__}.XrtDevice"}
    assert [line["run"] for line in pynq] == ["decode"] * 4 + ["prefill"] * 4 + ["vector_add"] * 4
    for ours, theirs in zip(pynq, xrt, strict=True):
        assert ours == theirs
        assert ours["events"] == []
        assert ours["board_cycles"] > 100
    # Stalls reach the card: they change the cycles and not the output.
    for plain, stalled in zip(xrt[::2], xrt[1::2], strict=True):
        assert plain["output"] == stalled["output"]
        assert plain["unit_cycles"] < stalled["unit_cycles"]


class TestPrefix:
    def test_folder(self, prefix: Path) -> None:
        assert make_prefix(quiet=True) == prefix
        assert json.loads((prefix / "version.json").read_text()) == {"BUILD_VERSION": XRT_VERSION}
        assert (prefix / "lib" / "libxrt_core.so").is_file()
        other = make_prefix(["u280"], quiet=True)
        assert other != prefix
        assert "card u280 xilinx_u280" in (other / "cards.txt").read_text()
        with pytest.raises(BoardNotFoundError, match="u250"):
            make_prefix(["u55c", "u250"])

    def test_environment(self, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        base = {"XILINX_XRT": "/opt/xilinx/xrt", "XCL_EMULATION_MODE": "sw_emu", "HOME": "/home"}
        assert environment(prefix, base) == {"XILINX_XRT": str(prefix), "HOME": "/home"}
        assert base["XILINX_XRT"] == "/opt/xilinx/xrt"
        monkeypatch.setenv("XILINX_XRT", str(prefix))
        monkeypatch.delenv("XCL_EMULATION_MODE", raising=False)
        assert active_prefix() == prefix
        monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
        assert active_prefix() is None
        monkeypatch.delenv("XCL_EMULATION_MODE")
        monkeypatch.setenv("XILINX_XRT", "/opt/xilinx/xrt")
        assert active_prefix() is None

    def test_command_line(self) -> None:
        program = "import os, pynq; print(os.environ['XILINX_XRT'], len(pynq.Device.devices))"
        result = run("-m", "fastdelta.sim.xrt", sys.executable, "-c", program, prefix=None)
        assert result.returncode == 0, result.stderr
        assert result.stdout.split()[1] == "4"
        with pytest.raises(SystemExit, match="usage"):
            main([])

    def test_a_process_without_xrt_is_told(self) -> None:
        with pytest.raises(InputError, match=r"python -m fastdelta\.sim\.xrt python PROGRAM"):
            open_device("u55c", VECTOR_ADD, front_end="xrt")
        with pytest.raises(InputError, match="front_end='opencl': allowed are pynq, xrt"):
            open_device("u55c", VECTOR_ADD, front_end="opencl")

    @pytest.mark.parametrize("damage", ["missing", "format", "line", "number"])
    def test_a_damaged_folder_shows_no_cards(self, damage: str, tmp_path: Path) -> None:
        made = make_prefix(["u55c"], quiet=True)
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "libxrt_core.so").symlink_to(made / "lib" / "libxrt_core.so")
        text = (made / "cards.txt").read_text()
        changed = {
            "format": text.replace("format 1", "format 2"),
            "line": text + "fan 3\n",
            "number": text + "bank x 1\n",
        }
        if damage != "missing":
            (tmp_path / "cards.txt").write_text(changed[damage])
        program = "from pynq._3rdparty import xrt; print(xrt.xclProbe())"
        result = run("-c", program, prefix=tmp_path)
        assert result.stdout == "0\n"
        assert "cards.txt" in result.stderr
