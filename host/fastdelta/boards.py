# SPDX-License-Identifier: Apache-2.0
"""Cards that hold a kernel: the narrow interface the accelerators use, and its form on PYNQ.

A simulated and a real card differ only in the PYNQ device that is behind them.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import inspect
import os
import subprocess
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fastdelta._version import __version__
from fastdelta.arrays import Bytes
from fastdelta.errors import (
    BankFullError,
    BoardError,
    BoardNotFoundError,
    CardBusyError,
    InputError,
    ManifestError,
    MissingToolError,
    OverlayError,
    WrongBoardError,
)
from fastdelta.overlays.manifest import Manifest, check_manifest, manifest_path
from fastdelta.platforms import PLATFORMS, Platform, find_platform
from fastdelta.sensors import SensorReading, read_sensors
from fastdelta.shapes import DecodeShape, PrefillShape
from fastdelta.xclbin import Mode, Xclbin, XclbinError

SIMULATED = "sim-"
"""Prefix of the names of simulated cards."""


class UnverifiedOverlayWarning(UserWarning):
    """An overlay has no manifest, so what it is was not checked."""


class DeviceBuffer(Protocol):
    """Memory on the card with a host copy, as PYNQ's ``allocate`` returns it.

    The two copies are apart: each transfer is asked for. Slices share the memory and transfer
    their part only.
    """

    device_address: int

    def __getitem__(self, part: slice) -> DeviceBuffer: ...

    def __array__(self) -> Bytes: ...

    def sync_to_device(self) -> None:
        """Copy from the host to the card."""

    def sync_from_device(self) -> None:
        """Copy from the card to the host."""

    def freebuffer(self) -> None:
        """Give the memory back."""


class Run(Protocol):
    """A run that was handed to the card."""

    def wait(self, seconds: float) -> bool:
        """Wait until the run has ended, but no longer; say whether it has."""

    @property
    def failure(self) -> str | None:
        """What the card's scheduler says went wrong, once the run has ended."""


class Kernel(Protocol):
    """A kernel on a card; runs end in the order in which they were launched.

    Each engine's protocol adds ``launch`` with the arguments of its kernel.
    """

    def read_register(self, register: int) -> int:
        """Read one register."""


KernelType = TypeVar("KernelType", bound=Kernel, covariant=True)


@dataclass(frozen=True)
class Engine:
    """What a board must know of an engine.

    Attributes
    ----------
    name
        Folder under ``overlays``, and module under ``fastdelta.drivers``.
    driver
        Class in that module; it is imported when a card is opened, because it needs PYNQ.
    default_shape
        Shape of a simulated card when none is given.
    """

    name: str
    driver: str
    default_shape: Callable[[], DecodeShape | PrefillShape]

    def load_driver(self) -> Any:
        """Import the driver, which binds it to its kernel in overlays that are loaded later."""
        return getattr(import_module(f"fastdelta.drivers.{self.name}"), self.driver)


ENGINES: Mapping[str, Engine] = {
    "decode": Engine("decode", "DecodeKernel", DecodeShape),
    "prefill": Engine("prefill", "PrefillKernel", PrefillShape),
}


@dataclass(frozen=True)
class BoardInfo:
    """What is known of a card when it is opened; see `fastdelta.results.Provenance`."""

    name: str
    simulated: bool
    clock_mhz: float | None = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


class Board(Protocol[KernelType]):
    """A card with one kernel."""

    @property
    def info(self) -> BoardInfo:
        """What is known of the card."""

    @property
    def kernel(self) -> KernelType:
        """The kernel; another object after a reset."""

    def allocate(self, argument: str, nbytes: int) -> DeviceBuffer:
        """Allocate bytes in the bank of a kernel argument."""

    def sensors(self) -> SensorReading:
        """Read power and temperature; a card without sensors gives an empty reading."""

    def reset(self) -> None:
        """Bring the kernel to its state after loading; every buffer must be free before."""

    def close(self) -> None:
        """Release the card; every buffer must be free before."""


class PynqBoard:
    """A card through PYNQ 3.0.1: loads an overlay and finds the kernel in it.

    Parameters
    ----------
    device
        PYNQ device, of a real or the simulated card.
    engine : Engine
        Whose kernel it is.
    overlay : path
        The xclbin.
    describe : callable
        Returns what is known of the card, once the overlay is loaded.
    release : callable
        Gives the device up.

    Attributes
    ----------
    device
        The PYNQ device.
    """

    def __init__(
        self,
        device: Any,
        engine: Engine,
        overlay: Path,
        describe: Callable[[Any], BoardInfo],
        release: Callable[[], None],
    ) -> None:
        self.device = device
        self._engine = engine
        self._path = overlay
        self._release = release
        self._driver: Any = None
        try:
            loaded = self._load()
            self._info = describe(loaded)
        except BaseException:
            release()
            raise

    def _load(self) -> Any:
        """Load the overlay, which resets the card, and bind the driver; return the overlay."""
        from pynq import Overlay

        driver = self._engine.load_driver()
        try:
            overlay = Overlay(str(self._path), device=self.device)
        # PYNQ's own handling of a refused load fails with a ValueError.
        except (RuntimeError, OSError, ValueError) as error:
            raise self._refusal(error) from error
        names = [
            name
            for name, description in overlay.ip_dict.items()
            if description["type"] in driver.bindto
        ]
        if not names:
            found = sorted({description["type"] for description in overlay.ip_dict.values()})
            raise OverlayError(
                f"{self._path} holds no {self._engine.name} kernel but "
                f"{', '.join(found) or 'no kernel'}; load the overlay of the {self._engine.name} "
                "engine"
            )
        try:
            self._driver = getattr(overlay, names[0])  # opens the compute unit
        except RuntimeError as error:
            raise self._refusal(error) from error
        return overlay

    def _refusal(self, cause: Exception) -> BoardError:
        """Return the error for an overlay that the card does not load, or a unit that is not open.

        A refused load is a number that PYNQ puts into words, or loses in its own error path; the
        context says it then.
        """
        texts = [str(error) for error in (cause, cause.__context__) if error is not None]
        what = f"{self.device.name} cannot load {self._path} ({'; '.join(texts)})"
        if any("EBUSY" in text or "context - -16," in text for text in texts):
            return CardBusyError(
                f"{what}: another program uses the card; wait until it has ended, or choose "
                "another card"
            )
        return OverlayError(what)

    @property
    def info(self) -> BoardInfo:
        """What is known of the card."""
        return self._info

    @property
    def kernel(self) -> Any:
        """The driver of the kernel."""
        return self._driver

    def allocate(self, argument: str, nbytes: int) -> DeviceBuffer:
        """Allocate bytes in the bank of a kernel argument."""
        from pynq import allocate

        memory = self._driver.memory(argument)
        try:
            buffer: DeviceBuffer = allocate((nbytes,), "u1", target=memory)
        except (RuntimeError, MemoryError, BankFullError) as error:
            bank = self._driver.bank(argument)
            raise BankFullError(
                f"bank {bank} of {self._info.name} ({memory.size:,} bytes) has no room for the "
                f"{nbytes:,} bytes of argument {argument} ({error}); close what uses the card, or "
                "use smaller buffers (decode: open with smaller buffer_bytes)"
            ) from error
        return buffer

    def sensors(self) -> SensorReading:
        """Read power and temperature; see `fastdelta.sensors.read_sensors`."""
        return read_sensors(self.device)

    def reset(self) -> None:
        """Reset the card and load the overlay again."""
        _reset_device(self.device)
        self._load()

    def close(self) -> None:
        """Give the device up."""
        self._driver = None
        self._release()


def _reset_device(device: Any) -> None:
    """Bring a card behind XRT to its state before loading; a `SimDevice` resets when it loads.

    XRT's driver does not load again what is loaded, and loads nothing while a kernel hangs.
    """
    from pynq._3rdparty import xrt
    from pynq.pl_server.xrt_device import XrtDevice

    if not isinstance(device, XrtDevice):
        return
    device.free_bitstream()  # the driver aborts the commands of a unit that nobody holds
    # Packets must be freed now: afterwards their numbers belong to other buffers.
    while device.active_bos:
        device.active_bos.pop()[1]._bo = None
    device._bo_cache.clear()
    function = xrt.libc.xclResetDevice  # PYNQ's wrapper loses the result
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]
    status = function(device.handle, xrt.xclResetKind.XCL_USER_RESET)
    if status != 0:
        raise BoardError(f"XRT refuses to reset {device.name}: {os.strerror(abs(status))}")


def import_pynq() -> None:
    """Import PYNQ, to say early what is wrong with it.

    Raises
    ------
    MissingToolError
        If it is not installed, or cannot load the library of XRT.
    """
    try:
        import pynq  # noqa: F401
    except ImportError as error:
        raise MissingToolError(
            f"PYNQ cannot be imported ({error}); it drives real and simulated cards: pip install "
            "'fastdelta[card]' brings pynq 3.0.1 and pycparser below 3, which it needs"
        ) from error
    except OSError as error:  # from loading XRT's library
        raise MissingToolError(
            f"PYNQ cannot load XRT from XILINX_XRT={os.environ.get('XILINX_XRT')} ({error}); "
            "fastdelta doctor says what is missing. Simulated cards need no XRT: unset XILINX_XRT"
        ) from error


def open_board(
    board: str | int,
    engine: Engine,
    *,
    shape: DecodeShape | PrefillShape | None,
    overlay: Path | None,
    options: Mapping[str, Any],
) -> PynqBoard:
    """Open a card by name or index and load the kernel of an engine; see `Accelerator.open`."""
    import_pynq()
    if isinstance(board, str) and board.startswith(SIMULATED):
        if overlay is not None:
            raise InputError("overlay is for real cards; a simulated one is built from the RTL")
        return _open_simulated(board, engine, shape or engine.default_shape(), options)
    if options:
        raise InputError(
            f"{', '.join(options)}: these are options of simulated cards; leave them out for "
            f"{board!r}, or open board='sim-u55c'"
        )
    return _open_card(board, engine, overlay)


def _versions(**more: str) -> Mapping[str, str]:
    return {
        "fastdelta": __version__,
        "pynq": importlib.metadata.version("pynq"),
        **more,
    }


def _open_simulated(
    board: str, engine: Engine, shape: DecodeShape | PrefillShape, options: Mapping[str, Any]
) -> PynqBoard:
    from fastdelta.sim import board_of, close_device, open_device
    from fastdelta.sim.paths import find_verilator

    own = {"board", "kernel", "shape"}
    allowed = [name for name in inspect.signature(open_device).parameters if name not in own]
    unknown = options.keys() - set(allowed)
    if unknown:
        raise InputError(
            f"unknown options {', '.join(sorted(unknown))}; allowed are {', '.join(allowed)}"
        )
    try:
        device, xclbin = open_device(board, engine.name, shape, **options)
    except ValueError as error:
        raise InputError(str(error)) from error

    command = [str(find_verilator()), "--version"]
    simulator = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def describe(loaded: Any) -> BoardInfo:
        behaviour = asdict(board_of(device).options)
        return BoardInfo(
            name=board,
            simulated=True,
            seed=behaviour.pop("seed"),
            options=behaviour,
            versions=_versions(simulator=simulator, overlay=_overlay_uuid(loaded)),
        )

    return PynqBoard(device, engine, xclbin, describe, lambda: close_device(device))


def _overlay_uuid(overlay: Any) -> str:
    return str(next(iter(overlay.ip_dict.values()))["xclbin_uuid"])


def _open_card(board: str | int, engine: Engine, overlay: Path | None) -> PynqBoard:
    found = _find_cards(board)
    if overlay is None:
        raise InputError(
            f"a real card needs overlay=, the xclbin of the {engine.name} engine for "
            f"{found[0].name}; docs/run_on_a_card.md says how to build it"
        )
    container = check_overlay(overlay, engine.name, found[0].name)
    # XRT's library can be that of the simulator (fastdelta.sim.xrt).
    simulated = container.mode == Mode.HARDWARE_EMULATION
    device = _IN_USE.take(found, board)

    def describe(loaded: Any) -> BoardInfo:
        clocks = [clock["frequency"] for clock in loaded.clock_dict.values()]
        return BoardInfo(
            name=device.name,
            simulated=simulated,
            clock_mhz=float(clocks[0]) if clocks and not simulated else None,
            versions=_versions(overlay=_overlay_uuid(loaded)),
        )

    def release() -> None:
        # PYNQ keeps one device object for the life of the process: contexts are closed, it is not.
        device.free_bitstream()
        _IN_USE.give_back(device)

    return PynqBoard(device, engine, overlay, describe, release)


def check_overlay(overlay: Path, engine: str, device_name: str) -> Xclbin:
    """Refuse an overlay that a card must not load, before the card sees it.

    Parameters
    ----------
    overlay : path
        The xclbin; its manifest is beside it.
    engine : str
        Engine that is to be opened.
    device_name : str
        What XRT calls the card.

    Returns
    -------
    Xclbin
        The container.

    Raises
    ------
    OverlayError
        If the xclbin is missing or damaged; as `ManifestError` if its manifest forbids it: failed
        timing, another platform, another xclbin, an unknown register map.
    WrongBoardError
        If it is for another card.
    """
    if not overlay.is_file():
        raise OverlayError(
            f"there is no overlay {overlay}; docs/run_on_a_card.md says how to build it"
        )
    data = overlay.read_bytes()
    try:
        container = Xclbin.parse(data)
    except XclbinError as error:
        raise OverlayError(f"{overlay} cannot be loaded: {error}") from error
    try:
        built_for, card = find_platform(container.vbnv), find_platform(device_name)
    except ValueError as error:
        raise WrongBoardError(f"{overlay} on {device_name}: {error}") from error
    if built_for is not card:
        raise WrongBoardError(
            f"{overlay} is for the {built_for.name} ({container.vbnv}), the card is a {card.name} "
            f"({device_name}); load the overlay of this card"
        )
    _check_manifest(overlay, data, container, engine, card)
    return container


def _check_manifest(
    overlay: Path, data: bytes, container: Xclbin, engine: str, card: Platform
) -> None:
    path = manifest_path(overlay)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if container.mode != Mode.HARDWARE_EMULATION:
            warnings.warn(
                f"{overlay} has no manifest {path.name} beside it, so whether it met its timing "
                "and is the file that was built was not checked; copy the manifest of its build",
                UnverifiedOverlayWarning,
                stacklevel=2,
            )
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path} cannot be read: {error}") from error
    check_manifest(Manifest.parse(text, path), path, data, container, engine, card)


def real_cards() -> list[Any]:
    """Return PYNQ's devices of real cards, in the order of their indices.

    Raises
    ------
    MissingToolError
        As for `import_pynq`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # callers say in full what PYNQ says of missing devices
        import_pynq()
        from pynq import Device
        from pynq.pl_server.xrt_device import XrtDevice

        return [device for device in Device.devices if isinstance(device, XrtDevice)]


class _CardsInUse:
    """Real cards that this process has open; PYNQ has one device object for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: list[Any] = []

    def take(self, candidates: Sequence[Any], board: str | int) -> Any:
        """Return the first of the cards that is free.

        Raises
        ------
        CardBusyError
            If all are open.
        """
        with self._lock:
            for device in candidates:
                if not any(device is used for used in self._devices):
                    self._devices.append(device)
                    return device
        raise CardBusyError(
            f"this process has card {board!r} open already, and a card holds one engine; close it "
            "(leave its with block), or choose another card by its index"
        )

    def give_back(self, device: Any) -> None:
        """Let others take the card."""
        with self._lock:
            self._devices = [used for used in self._devices if used is not device]


_IN_USE = _CardsInUse()


def _find_cards(board: str | int) -> list[Any]:
    """Return PYNQ's devices of the real cards that a name or an index may mean, at least one."""
    cards = real_cards()
    names = ", ".join(f"{index}: {card.name}" for index, card in enumerate(cards)) or "none"
    if isinstance(board, int):
        found = cards[board : board + 1] if board >= 0 else []
    elif board in PLATFORMS:
        found = [card for card in cards if card.name.startswith(PLATFORMS[board].prefix)]
    else:
        found = [card for card in cards if card.name == board]
        if not found:
            known = [*PLATFORMS, *(SIMULATED + name for name in PLATFORMS)]
            raise BoardNotFoundError(
                f"there is no board {board!r}; known are {', '.join(known)}, and names and indices "
                f"of real cards, of which PYNQ sees {names}"
            )
    if not found:
        raise BoardNotFoundError(
            f"there is no card {board!r}; PYNQ sees {names}. XRT must be installed and its "
            "setup.sh sourced before Python starts; fastdelta doctor says what is missing. "
            "Without a card, open board='sim-u55c'"
        )
    return found
