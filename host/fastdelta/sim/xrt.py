# SPDX-License-Identifier: Apache-2.0
"""The simulated card behind XRT's core library, for PYNQ's own ``XrtDevice``.

`make_prefix` makes a folder like the one that XRT installs. PYNQ loads the library in it when
``XILINX_XRT`` names the folder as Python starts, and then finds simulated cards where it would
find real ones. ``python -m fastdelta.sim.xrt COMMAND`` runs a command in such an environment.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_double, c_int, c_int64, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastdelta.errors import BoardError, BoardNotFoundError, InputError
from fastdelta.platforms import PLATFORMS, Platform, find_platform
from fastdelta.sim.build import build_shim
from fastdelta.sim.paths import cache_folder
from fastdelta.sim.simulated_board import (
    BoardOptions,
    SimulatedBoard,
    board_options,
    load_board_library,
)

XRT_VERSION: Final = "2.13.466"
"""The version that PYNQ reads; from it PYNQ knows that commands go through the scheduler."""

DEFAULT_CARDS: Final = ("u55c", "u55c", "u280", "u280")

PREFIX_VARIABLE: Final = "XILINX_XRT"
EMULATION_VARIABLE: Final = "XCL_EMULATION_MODE"

_CARDS_FILE: Final = "cards.txt"
_LIBRARY_FILE: Final = "libxrt_core.so"
_CPP_LIBRARY_FILE: Final = "libxrt_core.so.2"
# Of Debian's package libxrt1: the only XRT that the bridge is made for.
_NOOP_LIBRARY: Final = Path("/usr/lib/x86_64-linux-gnu/libxrt_noop.so.2.13.0")
_CARDS_FORMAT: Final = 1


def has_xrt_cpp() -> bool:
    """Say whether this machine has the XRT whose C++ interface can run on simulated cards.

    That is XRT 2.13 as in Debian's package libxrt1, on x86-64.
    """
    return _NOOP_LIBRARY.is_file()


def make_prefix(
    cards: Sequence[str] = DEFAULT_CARDS, *, cache: Path | None = None, quiet: bool = False
) -> Path:
    """Make a folder for ``XILINX_XRT``.

    Parameters
    ----------
    cards : sequence of str
        Names of the cards, such as ``u55c``, in the order of their indices.
    cache : path, optional
        Folder of the built simulations; by default that of `fastdelta.sim.paths.cache_folder`.
    quiet : bool
        Whether to say nothing while building.

    Returns
    -------
    Path
        ``<cache>/xilinx_xrt/<key>`` with ``lib/libxrt_core.so``, ``version.json`` and a
        description of the cards; also ``lib/libxrt_core.so.2`` if `has_xrt_cpp`.

    Raises
    ------
    BoardNotFoundError
        If a card is not known.
    MissingToolError, BuildError
        As for `fastdelta.sim.build.build_board`.
    """
    root = cache or cache_folder()
    try:
        platforms = [find_platform(name) for name in cards]
    except ValueError as error:
        raise BoardNotFoundError(str(error)) from None
    libraries = {_LIBRARY_FILE: build_shim(cache=cache, quiet=quiet)}
    if has_xrt_cpp():
        libraries[_CPP_LIBRARY_FILE] = build_shim(bridge=True, cache=cache, quiet=quiet)
    lines = [f"format {_CARDS_FORMAT}", f"cache {root}"]
    for platform in platforms:
        lines.append(f"card {platform.name} {platform.shell}")
        lines += [f"bank {bank.base} {bank.size}" for bank in platform.banks]
    description = "\n".join(lines) + "\n"
    keys = [build.key for build in libraries.values()]
    key = hashlib.sha256(f"{keys}\n{description}".encode()).hexdigest()[:32]
    final = root / "xilinx_xrt" / key
    if not final.is_dir():
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent) as scratch:
            made = Path(scratch) / "made"
            (made / "lib").mkdir(parents=True)
            # Copies: the library finds the description of the cards beside itself.
            for name, build in libraries.items():
                shutil.copyfile(build.library, made / "lib" / name)
            (made / "version.json").write_text(json.dumps({"BUILD_VERSION": XRT_VERSION}) + "\n")
            (made / _CARDS_FILE).write_text(description)
            try:
                made.rename(final)
            except OSError:
                if not final.is_dir():  # otherwise another process made it meanwhile
                    raise
    return final


def environment(prefix: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a process that shall find the cards of a folder.

    Parameters
    ----------
    prefix : path
        From `make_prefix`.
    base : mapping, optional
        What to start from; by default the environment of this process.
    """
    result = dict(os.environ if base is None else base)
    result.pop(EMULATION_VARIABLE, None)
    result[PREFIX_VARIABLE] = str(prefix)
    return result


def active_prefix() -> Path | None:
    """Return the folder of simulated cards that PYNQ uses in this process, None if it uses none."""
    given = os.environ.get(PREFIX_VARIABLE)
    if not given or EMULATION_VARIABLE in os.environ:
        return None
    prefix = Path(given)
    return prefix if (prefix / _CARDS_FILE).is_file() else None


_SIGNATURES: Final[Mapping[str, tuple[Any, Sequence[Any]]]] = {
    "fd_card_count": (c_uint, ()),
    "fd_card_name": (c_char_p, (c_uint,)),
    "fd_card_board": (c_void_p, (c_uint,)),
    "fd_card_release_board": (None, (c_void_p,)),
    "fd_card_units": (c_char_p, (c_uint,)),
    "fd_card_set_option": (c_int, (c_uint, c_char_p, c_double)),
    "fd_card_power_cycle": (c_int, (c_uint,)),
    "fd_card_live_buffers": (c_int64, (c_uint,)),
}


def _release(library: ctypes.CDLL, board: int, process: int) -> None:
    if os.getpid() == process:
        library.fd_card_release_board(board)


class XrtCards:
    """The simulator's side of the cards that PYNQ finds in this process: `xrt_cards` gives it.

    Parameters
    ----------
    prefix : path
        Folder that ``XILINX_XRT`` names.
    """

    def __init__(self, prefix: Path) -> None:
        self._library = load_board_library(prefix / "lib" / _LIBRARY_FILE)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype = result
            function.argtypes = list(arguments)
        count = self._library.fd_card_count()
        names = [self._library.fd_card_name(index).decode() for index in range(count)]
        self.platforms: tuple[Platform, ...] = tuple(PLATFORMS[name] for name in names)
        self._options = [BoardOptions()] * count
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    def take(self, platform: Platform, options: BoardOptions) -> Any:
        """Return PYNQ's device of a card that nobody uses, as new.

        Raises
        ------
        BoardNotFoundError
            If there is no such card, or all are in use.
        """
        from pynq import Device
        from pynq.pl_server.xrt_device import XrtDevice

        with self._lock:
            for device in Device.devices:
                if not isinstance(device, XrtDevice):
                    continue
                index = device._index
                if self.platforms[index] is not platform or index in self._taken:
                    continue
                if self._library.fd_card_power_cycle(index) != 0:
                    continue  # something outside still has buffers on it
                self.configure(index, options)
                self._taken.add(index)
                return device
        raise BoardNotFoundError(
            f"no simulated {platform.name} is free behind XRT: there are "
            f"{self.platforms.count(platform)}; close what uses them, or make the folder for "
            f"{PREFIX_VARIABLE} with more cards"
        )

    def give_back(self, device: Any) -> None:
        """Close the compute units of a card and let others take it."""
        device.free_bitstream()
        with self._lock:
            self._taken.discard(device._index)

    def configure(self, index: int, options: BoardOptions) -> None:
        """Say how the memory of a card behaves."""
        for name, value in board_options(options).items():
            if self._library.fd_card_set_option(index, name.encode(), value) != 0:
                raise BoardError(f"simulated card {index} refuses {name}={value:g}")
        self._options[index] = options

    def board(self, index: int) -> SimulatedBoard:
        """Return the board model of a card; it stays that of the overlay that is loaded now.

        Raises
        ------
        BoardError
            If nothing is loaded.
        """
        board = self._library.fd_card_board(index)
        if not board:
            raise BoardError(f"no overlay is loaded on simulated card {index}; load one first")
        units = self._library.fd_card_units(index).decode().split()
        return SimulatedBoard.attach(
            self.platforms[index], units, self._library, board, self._options[index], _release
        )

    def live_buffers(self, index: int) -> int:
        """Return how many buffers are allocated on a card."""
        return int(self._library.fd_card_live_buffers(index))


@cache
def xrt_cards() -> XrtCards:
    """Return the cards of this process.

    Raises
    ------
    InputError
        If this process was not started with ``XILINX_XRT`` naming a folder of `make_prefix`.
    """
    prefix = active_prefix()
    if prefix is None:
        raise InputError(
            f"{PREFIX_VARIABLE} names no simulated cards, and PYNQ looks at it only when it is "
            "imported: start the program with 'python -m fastdelta.sim.xrt python PROGRAM'"
        )
    return XrtCards(prefix)


def main(arguments: Sequence[str]) -> None:
    """Run a command with simulated cards in place of XRT's; it replaces this process."""
    if not arguments:
        raise SystemExit("usage: python -m fastdelta.sim.xrt COMMAND [ARGUMENT ...]")
    os.execvpe(arguments[0], list(arguments), environment(make_prefix()))


if __name__ == "__main__":
    main(sys.argv[1:])
