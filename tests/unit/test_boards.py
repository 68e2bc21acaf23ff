# SPDX-License-Identifier: Apache-2.0
"""Choice of cards and overlays, and PYNQ's wait handles, without a card."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pynq
import pytest
from pynq import Device
from pynq.pl_server.xrt_device import ErtWaitHandle, XrtDevice

from fastdelta.accelerator import Accelerator
from fastdelta.boards import ENGINES, PynqBoard, open_board
from fastdelta.drivers.kernel import PynqRun
from fastdelta.errors import (
    BoardError,
    BoardNotFoundError,
    CardBusyError,
    InputError,
    MissingToolError,
    OverlayError,
    WrongBoardError,
)
from fastdelta.interface import load_interface
from fastdelta.platforms import PLATFORMS
from fastdelta.sim.paths import overlay_folder
from fastdelta.xclbin import build_xclbin


class NamedCard(XrtDevice):
    """A card of which only the name is known."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (PLATFORMS["u280"].shell, PLATFORMS["u55c"].shell)
    found = [SimpleNamespace(name="pynq-z2"), *map(NamedCard, names)]
    monkeypatch.setattr(Device, "_devices", found, raising=False)


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """An overlay for the U55C."""
    path = tmp_path / "decode.xclbin"
    interface = load_interface(overlay_folder("decode"))
    path.write_bytes(build_xclbin(interface, PLATFORMS["u55c"], bitstream=b"bits"))
    return path


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("board", ["u280", 0])
def test_overlay_of_another_card_is_refused(overlay: Path, board: str | int) -> None:
    with pytest.raises(WrongBoardError, match=r"is for the u55c .*, the card is a u280"):
        Accelerator.open("decode", board=board, overlay=overlay)


@pytest.mark.usefixtures("cards")
def test_missing_or_damaged_overlays_are_named(overlay: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a real card needs overlay="):
        Accelerator.open("decode", board="u55c")
    with pytest.raises(OverlayError, match="there is no overlay"):
        Accelerator.open("decode", board="u55c", overlay=tmp_path / "other.xclbin")
    overlay.write_bytes(overlay.read_bytes()[:-1])
    with pytest.raises(OverlayError, match="was cut off"):
        Accelerator.open("decode", board="u55c", overlay=overlay)


class LoadableCard(NamedCard):
    """A card on which loading an overlay succeeds or not, and nothing else can be done."""

    def __init__(self, name: str, refusal: Exception | None = None) -> None:
        super().__init__(name)
        self.refusal = refusal
        self.freed = 0

    def free_bitstream(self) -> None:
        self.freed += 1


@pytest.fixture
def loadable(monkeypatch: pytest.MonkeyPatch) -> list[LoadableCard]:
    """Two U55C; what a loaded overlay needs is left out, so that a board can be made."""
    found = [LoadableCard(PLATFORMS["u55c"].shell) for _ in range(2)]
    monkeypatch.setattr(Device, "_devices", found, raising=False)
    description = {"xclbin_uuid": "0", "type": "fastdelta:kernel:decode_kernel:2.0"}

    def load(_path: str, device: LoadableCard) -> SimpleNamespace:
        if device.refusal is not None:
            raise device.refusal
        ip = {"decode_1": description}
        return SimpleNamespace(ip_dict=ip, clock_dict={}, decode_1=object())

    monkeypatch.setattr(pynq, "Overlay", load)
    return found


def open_decode(board: str | int, overlay: Path) -> PynqBoard:
    return open_board(board, ENGINES["decode"], shape=None, overlay=overlay, options={})


@pytest.mark.filterwarnings("ignore::fastdelta.boards.UnverifiedOverlayWarning")
def test_a_name_means_the_next_free_card_of_its_kind(
    loadable: list[LoadableCard], overlay: Path
) -> None:
    boards = [open_decode("u55c", overlay) for _ in range(2)]
    assert [board.device for board in boards] == loadable
    for board in ("u55c", 0, 1, loadable[0].name):
        with pytest.raises(CardBusyError, match=r"has card .* open already"):
            open_decode(board, overlay)
    boards[1].close()
    again = open_decode("u55c", overlay)
    assert again.device is loadable[1]
    again.close()
    boards[0].close()
    for index in (1, 0):
        with_index = open_decode(index, overlay)
        assert with_index.device is loadable[index]
        with_index.close()
    by_name = open_decode(loadable[0].name, overlay)
    assert by_name.device is loadable[0]
    by_name.close()


@pytest.mark.filterwarnings("ignore::fastdelta.boards.UnverifiedOverlayWarning")
@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        ("Programming Device failed: EBUSY (-16)", CardBusyError, "another program uses the card"),
        ("Could not open CU context - -16, 0", CardBusyError, "another program uses the card"),
        ("Programming Device failed: EINVAL (-22)", OverlayError, "cannot load .*EINVAL"),
    ],
)
def test_a_refused_load_is_explained_and_leaves_the_card_free(
    loadable: list[LoadableCard],
    overlay: Path,
    refusal: str,
    kind: type[BoardError],
    words: str,
) -> None:
    loadable[0].refusal = RuntimeError(refusal)
    with pytest.raises(kind, match=words) as caught:
        open_decode(0, overlay)
    assert type(caught.value) is kind
    assert loadable[0].freed == 1
    loadable[0].refusal = None
    open_decode(0, overlay).close()


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("board", [2, -1])
def test_index_without_a_card_lists_the_cards(board: int) -> None:
    with pytest.raises(BoardNotFoundError, match=r"PYNQ sees 0: xilinx_u280\S+, 1: xilinx_u55c"):
        Accelerator.open("decode", board=board)


def test_missing_pynq_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(MissingToolError, match=r"pip install 'fastdelta\[card\]'"):
        Accelerator.open("decode")


class OneCommand:
    """What PYNQ's handle needs of a device: the command ends when events are handled."""

    def __init__(self, state: int | None) -> None:
        self.state = state
        self.waits: list[int] = []

    def _handle_events(self, timeout: int) -> None:
        self.waits.append(timeout)
        if self.state is not None:
            self.handle._complete(self.state)


def pynq_run(state: int | None) -> tuple[PynqRun, OneCommand]:
    device = OneCommand(state)
    future = asyncio.new_event_loop().create_future()
    device.handle = ErtWaitHandle(object(), future, device)
    return PynqRun(device.handle), device


def test_wait_on_a_card_has_a_time_out() -> None:
    run, device = pynq_run(None)
    assert not run.wait(0.02)
    assert device.waits == [20]
    assert run.failure is not None


@pytest.mark.parametrize(
    ("state", "failure"),
    [
        (4, None),
        (5, "ended in error"),
        (6, "aborted"),
        (8, "hangs"),
        (9, "hangs"),
        (7, "failed: 7"),
    ],
)
def test_state_that_pynq_swallows_is_reported(state: int, failure: str | None) -> None:
    run, _ = pynq_run(state)
    assert run.wait(0.0)
    if failure is None:
        assert run.failure is None
    else:
        assert failure in str(run.failure)


def test_xrt_that_cannot_be_loaded_is_explained(tmp_path: Path) -> None:
    """PYNQ loads the library when it is imported, so this is a process of its own."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libxrt_core.so").touch()
    code = "from fastdelta import Accelerator; Accelerator.open('decode', board='u55c')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XILINX_XRT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"MissingToolError: PYNQ cannot load XRT from XILINX_XRT={tmp_path}" in result.stderr
    assert "fastdelta doctor says what is missing" in result.stderr
