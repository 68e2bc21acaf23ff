# SPDX-License-Identifier: Apache-2.0
"""The board model for Python: one simulated card, without PYNQ.

A thin, typed layer over the C interface in ``board/board.h``, which says what each call does.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from fastdelta.errors import BoardError, MissingToolError
from fastdelta.platforms import Platform
from fastdelta.sim.build import build_board

BOARD_ABI: Final = 2
MAX_SEED: Final = (1 << 53) - 1
ALL_ADDRESSES: Final = (1 << 64) - 1

Direction = Literal["read", "write"]

_INTERRUPTIBLE: Final = 0.2  # seconds in the library at a stretch, so that Ctrl-C works
_CONTROL_PORT: Final = "s_axi_control"


class SimulationError(BoardError, RuntimeError):
    """The board model refused a call, or a register of a simulated kernel did not answer."""


@dataclass(frozen=True)
class Stalls:
    """Probability, 0 to 1, that each channel of the memory stalls in a cycle."""

    ar: float = 0.0
    r: float = 0.0
    aw: float = 0.0
    w: float = 0.0
    b: float = 0.0

    @classmethod
    def uniform(cls, probability: float) -> Stalls:
        """Return the same probability for every channel."""
        return cls(*([probability] * 5))


@dataclass(frozen=True)
class BoardOptions:
    """How the memory behind the kernels behaves.

    Attributes
    ----------
    read_latency
        Cycles from an accepted read address to the first beat that can be taken, at least 1.
    write_latency
        Cycles from the last write beat to the response, at least 1.
    outstanding
        Bursts in flight per port and direction, at least 1.
    stalls
        Random stalls; the same seed gives the same stalls.
    seed
        Seed of the stalls, 0 to 2**53 - 1.
    address_waits_for_data
        Whether write addresses are accepted only when data is waiting, as AXI allows.
    hang_cycles
        Cycles without a beat on any memory port after which a command is given up; 0: never.
    report_unwritten
        Whether a kernel that reads memory which nothing has written since it was allocated makes
        an event: a copy to the card was forgotten.
    """

    read_latency: int = 64
    write_latency: int = 16
    outstanding: int = 32
    stalls: Stalls = field(default_factory=Stalls)
    seed: int = 0
    address_waits_for_data: bool = False
    hang_cycles: int = 1_000_000
    report_unwritten: bool = False

    def __post_init__(self) -> None:
        for name in ("read_latency", "write_latency", "outstanding"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: it must be at least 1")
        if self.hang_cycles < 0:
            raise ValueError(f"hang_cycles={self.hang_cycles}: it must be at least 0 (0: never)")
        if not 0 <= self.seed <= MAX_SEED:
            raise ValueError(f"seed={self.seed}: allowed are 0 to {MAX_SEED}")
        for name, probability in asdict(self.stalls).items():
            if not 0.0 <= probability <= 1.0:
                raise ValueError(f"stall of {name} is {probability}: it is a probability, 0 to 1")


class CommandState(IntEnum):
    """State of a command; the numbers are XRT's."""

    QUEUED = 2
    RUNNING = 3
    COMPLETED = 4
    ERROR = 5
    ABORTED = 6
    TIMED_OUT = 8

    @property
    def ended(self) -> bool:
        """Whether the command goes on no more."""
        return self not in (CommandState.QUEUED, CommandState.RUNNING)


class EventKind(IntEnum):
    """What the board model noticed; from `CROSSES_4K` on these are violations of protocols."""

    OUTSIDE_BANKS = 0
    INJECTED = 1
    REGISTER_ERROR = 2
    UNWRITTEN = 3
    CROSSES_4K = 16
    BURST_TYPE = 17
    BURST_SIZE = 18
    UNALIGNED = 19
    UNSTABLE_ADDRESS = 20
    UNSTABLE_DATA = 21
    WRONG_LAST = 22
    VALID_IN_RESET = 23
    DONE_TOO_EARLY = 24

    @property
    def is_violation(self) -> bool:
        """Whether AXI or the kernel contract was violated."""
        return self >= EventKind.CROSSES_4K


_EXPLANATIONS: Final[Mapping[EventKind, str]] = {
    EventKind.OUTSIDE_BANKS: "{detail} bytes are outside the banks of the port, answered DECERR",
    EventKind.INJECTED: "struck by an injected fault of kind {detail}",
    EventKind.REGISTER_ERROR: "the register was answered with error {detail}",
    EventKind.UNWRITTEN: (
        "{detail} lines of 64 bytes were not written since they were allocated; a copy to the "
        "card was forgotten"
    ),
    EventKind.CROSSES_4K: "the burst of {detail} bytes crosses a 4 KiB boundary",
    EventKind.BURST_TYPE: "burst type {detail} is not INCR",
    EventKind.BURST_SIZE: "AxSIZE {detail} is not the width of the port",
    EventKind.UNALIGNED: "the address is not a multiple of the beat",
    EventKind.UNSTABLE_ADDRESS: "the address changed or was withdrawn before it was accepted",
    EventKind.UNSTABLE_DATA: "write data changed or was withdrawn before it was accepted",
    EventKind.WRONG_LAST: "WLAST is wrong in beat {detail}",
    EventKind.VALID_IN_RESET: "VALID is high in reset",
    EventKind.DONE_TOO_EARLY: "the kernel was done before {detail} of its writes were answered",
}


class FaultKind(IntEnum):
    """Faults of the memory behind a port; the first numbers are AXI's responses."""

    SLVERR = 2
    DECERR = 3
    STUCK = 4
    FLIP = 5


class UnitFaultKind(IntEnum):
    """Faults of a compute unit while it runs a command."""

    DROPPED_INTERRUPT = 16
    STUCK = 17
    DEAD = 18


@dataclass(frozen=True)
class Fault:
    """A fault of the memory behind one port.

    Attributes
    ----------
    kind
        Error response; `STUCK`: bursts are accepted and not answered; `FLIP`: one bit of the data
        is wrong.
    direction
        Whether it affects reads or writes.
    first_address, last_address
        Bursts that touch a byte of this range are affected.
    skip
        Matching bursts that go through before.
    count
        Matching bursts affected after these; 0: all.
    bit
        For `FLIP`: which bit of the burst; beyond its end it is counted round.
    """

    kind: FaultKind
    direction: Direction
    first_address: int = 0
    last_address: int = ALL_ADDRESSES
    skip: int = 0
    count: int = 0
    bit: int = 0


@dataclass(frozen=True)
class UnitFault:
    """A fault of a compute unit.

    Attributes
    ----------
    kind
        `DROPPED_INTERRUPT`: the card does not see the end of the command; `STUCK`: nothing moves
        on the memory ports any more, registers answer; `DEAD`: registers do not answer either.
    skip
        Commands that run well before.
    count
        Commands affected after these; 0: all.
    """

    kind: UnitFaultKind
    skip: int = 0
    count: int = 1


@dataclass(frozen=True)
class BankUsage:
    """What is allocated in a memory bank; sizes in bytes.

    Attributes
    ----------
    size
        Of the bank.
    used
        Allocated, in whole pages.
    buffers
        How many buffers.
    largest
        What the next buffer can have.
    """

    size: int
    used: int
    buffers: int
    largest: int


@dataclass(frozen=True)
class Command:
    """What is known of a command.

    Attributes
    ----------
    state
        Where it is.
    compute_unit
        Name of the compute unit.
    cycles
        From the start being accepted to the interrupt, once the command has ended.
    violations
        Protocol violations recorded while it ran.
    outside_accesses
        Bursts outside the connected banks while it ran.
    control_reads
        Reads of the control register by the host while it ran; with ``ap_ctrl_hs`` such a read
        can take the end of the command from the card.
    unwritten_reads
        Bursts that read memory which nothing had written, if `report_unwritten` is set.
    """

    state: CommandState
    compute_unit: str
    cycles: int
    violations: int
    outside_accesses: int
    control_reads: int
    unwritten_reads: int = 0


@dataclass(frozen=True)
class Event:
    """Something that the board model noticed."""

    kind: EventKind
    compute_unit: str
    port: str
    direction: Direction
    address: int
    cycle: int
    detail: int

    def __str__(self) -> str:
        what = _EXPLANATIONS[self.kind].format(detail=self.detail)
        return (
            f"{self.compute_unit}.{self.port}: {self.direction} at {self.address:#x}, "
            f"cycle {self.cycle}: {what}"
        )


@dataclass(frozen=True)
class PortStatistics:
    """Traffic of one memory port since it was last cleared; stalls in cycles.

    An address or write data stalls while the kernel waits for memory, read data or a write
    response while memory waits for the kernel.
    """

    read_bursts: int
    read_beats: int
    read_bytes: int
    write_bursts: int
    write_beats: int
    write_bytes: int
    read_address_stalls: int
    read_data_stalls: int
    write_address_stalls: int
    write_data_stalls: int
    write_response_stalls: int
    max_reads_outstanding: int
    max_writes_outstanding: int


@dataclass(frozen=True)
class ComputeUnitSpec:
    """A compute unit to put on a board.

    Attributes
    ----------
    name
        Such as ``decode_1``.
    library
        Kernel built by `fastdelta.sim.build.build_kernel`.
    connections
        Indices of the memory banks behind each port.
    control
        Control protocol of the kernel.
    """

    name: str
    library: Path
    connections: Mapping[str, Sequence[int]]
    control: Literal["ap_ctrl_hs", "ap_ctrl_chain"] = "ap_ctrl_chain"


class _CommandStruct(ctypes.Structure):
    _fields_ = (
        ("state", c_uint32),
        ("compute_unit", c_uint32),
        ("cycles", c_uint64),
        ("violations", c_uint64),
        ("outside", c_uint64),
        ("control_reads", c_uint64),
        ("unwritten", c_uint64),
    )


class _EventStruct(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("compute_unit", c_uint32),
        ("port", ctypes.c_int32),
        ("write", c_uint32),
        ("address", c_uint64),
        ("cycle", c_uint64),
        ("detail", c_uint64),
    )


_STATISTICS: Final = tuple(PortStatistics.__dataclass_fields__)


class _StatisticsStruct(ctypes.Structure):
    _fields_ = tuple((name, c_uint64) for name in _STATISTICS)


class _FaultStruct(ctypes.Structure):
    _fields_ = (
        ("kind", c_uint32),
        ("write", c_uint32),
        ("first_address", c_uint64),
        ("last_address", c_uint64),
        ("skip", c_uint64),
        ("count", c_uint64),
        ("bit", c_uint64),
    )


class _UnitFaultStruct(ctypes.Structure):
    _fields_ = (("kind", c_uint32), ("skip", c_uint64), ("count", c_uint64))


class _UsageStruct(ctypes.Structure):
    _fields_ = (
        ("bytes", c_uint64),
        ("used", c_uint64),
        ("buffers", c_uint64),
        ("largest", c_uint64),
    )


_SIGNATURES: Final[Mapping[str, tuple[Any, Sequence[Any]]]] = {
    "fd_board_create": (c_void_p, ()),
    "fd_board_destroy": (None, (c_void_p,)),
    "fd_add_bank": (c_int, (c_void_p, c_uint64, c_uint64)),
    "fd_add_compute_unit": (c_int, (c_void_p, c_char_p, c_int)),
    "fd_port_count": (c_int, (c_void_p, c_int)),
    "fd_port_name": (c_char_p, (c_void_p, c_int, c_int)),
    "fd_port_bytes": (c_int, (c_void_p, c_int, c_int)),
    "fd_connect": (c_int, (c_void_p, c_int, c_int, c_int)),
    "fd_set_option": (c_int, (c_void_p, c_char_p, c_double)),
    "fd_memory_write": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64)),
    "fd_memory_read": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64)),
    "fd_flip_bit": (c_int, (c_void_p, c_uint64, c_uint32)),
    "fd_allocate": (c_int, (c_void_p, c_int, c_uint64, POINTER(c_uint64))),
    "fd_free": (c_int, (c_void_p, c_uint64)),
    "fd_usage": (c_int, (c_void_p, c_int, POINTER(_UsageStruct))),
    "fd_limit_bank": (c_int, (c_void_p, c_int, c_uint64)),
    "fd_register_write": (c_int, (c_void_p, c_int, c_uint32, c_uint32)),
    "fd_register_read": (c_int, (c_void_p, c_int, c_uint32, POINTER(c_uint32))),
    "fd_submit": (c_int64, (c_void_p, c_int, POINTER(c_uint32), c_uint32, c_uint64)),
    "fd_wait": (c_int, (c_void_p, c_int64, c_double)),
    "fd_wait_any": (c_int64, (c_void_p, c_int64, c_double)),
    "fd_command_info": (c_int, (c_void_p, c_int64, POINTER(_CommandStruct))),
    "fd_command_take": (c_int, (c_void_p, c_int64, POINTER(_CommandStruct))),
    "fd_last_command": (c_int, (c_void_p, c_int, POINTER(_CommandStruct))),
    "fd_reset": (c_int, (c_void_p, c_int)),
    "fd_abandon": (c_int, (c_void_p, c_int)),
    "fd_kill_client": (c_int, (c_void_p,)),
    "fd_set_busy": (c_int, (c_void_p, c_int, c_int)),
    "fd_is_busy": (c_int, (c_void_p, c_int)),
    "fd_clock": (c_int, (c_void_p, c_int, c_uint64)),
    "fd_is_hung": (c_int, (c_void_p, c_int)),
    "fd_cycles": (c_int64, (c_void_p, c_int)),
    "fd_statistics": (c_int, (c_void_p, c_int, c_int, POINTER(_StatisticsStruct))),
    "fd_clear_statistics": (c_int, (c_void_p, c_int)),
    "fd_event_count": (c_int64, (c_void_p,)),
    "fd_event_get": (c_int, (c_void_p, c_int64, POINTER(_EventStruct))),
    "fd_clear_events": (c_int, (c_void_p,)),
    "fd_inject": (c_int, (c_void_p, c_int, c_int, POINTER(_FaultStruct))),
    "fd_inject_unit": (c_int, (c_void_p, c_int, POINTER(_UnitFaultStruct))),
    "fd_clear_faults": (c_int, (c_void_p, c_int)),
    "fd_open_trace": (c_int, (c_void_p, c_int, c_char_p)),
}


def board_options(options: BoardOptions) -> dict[str, float]:
    """Return the options under the names that the board model knows."""
    values = asdict(options)
    stalls = {f"stall_{name}": value for name, value in values.pop("stalls").items()}
    return {name: float(value) for name, value in {**values, **stalls}.items()}


@cache
def load_board_library(path: Path) -> ctypes.CDLL:
    """Load the board model and declare its functions.

    Raises
    ------
    MissingToolError
        If the library is of another version than this module.
    """
    library = ctypes.CDLL(str(path))
    library.fd_abi_version.restype = c_uint32
    library.fd_last_error.restype = c_char_p
    if library.fd_abi_version() != BOARD_ABI:
        raise MissingToolError(
            f"{path} has board interface {library.fd_abi_version()}, this package needs "
            f"{BOARD_ABI}; install the package again ('pip install -e .')"
        )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = list(arguments)
    return library


def _destroy(library: ctypes.CDLL, board: int, process: int) -> None:
    # The threads of a board do not exist in a forked process, which can only leave it alone.
    if os.getpid() == process:
        library.fd_board_destroy(board)


class SimulatedBoard:
    """One simulated card with memory banks and compute units.

    Parameters
    ----------
    platform : Platform
        The card, for its memory banks.
    units : sequence of ComputeUnitSpec
        Its compute units.
    options : BoardOptions
        How the memory behaves.
    library : path, optional
        Board model; built when it is not given.

    Notes
    -----
    Each compute unit has its own clock, which runs only during commands and register accesses.
    All methods may be called from several threads.
    """

    def __init__(
        self,
        platform: Platform,
        units: Sequence[ComputeUnitSpec],
        options: BoardOptions | None = None,
        *,
        library: Path | None = None,
    ) -> None:
        library_ = load_board_library(library or build_board().library)
        board = library_.fd_board_create()
        self._bind(platform, [unit.name for unit in units], library_, board, _destroy)
        try:
            self.configure(options or BoardOptions())
            for bank in platform.banks:
                self._call("fd_add_bank", bank.base, bank.size)
            for unit in units:
                self._add(unit)
        except BaseException:
            self.close()
            raise

    @classmethod
    def attach(
        cls,
        platform: Platform,
        units: Sequence[str],
        library: ctypes.CDLL,
        board: int,
        options: BoardOptions,
        release: Callable[[ctypes.CDLL, int, int], None],
    ) -> Self:
        """Return a view of a board that other code made.

        Parameters
        ----------
        platform, units
            The card and the names of its compute units.
        library
            From `load_board_library`.
        board
            Address of the board.
        options
            How its memory behaves now.
        release
            Gives the board back, with the library, the address and the number of this process.
        """
        view = cls.__new__(cls)
        view._bind(platform, units, library, board, release)
        view.options = options
        for index in range(len(units)):
            view._find_ports(index)
        return view

    def _bind(
        self,
        platform: Platform,
        units: Sequence[str],
        library: ctypes.CDLL,
        board: int,
        release: Callable[[ctypes.CDLL, int, int], None],
    ) -> None:
        self.platform = platform
        self.units = tuple(units)
        self._library = library
        self._board: int | None = board
        self._process = os.getpid()
        self._finalizer = weakref.finalize(self, release, library, board, self._process)
        self._calls = 0  # in the library now; closing waits until there are none
        # Entered by its own name: a condition's methods are Python, and every call enters it twice.
        self._calls_lock = threading.Lock()
        self._calls_changed = threading.Condition(self._calls_lock)
        self._ports: list[dict[str, int]] = []
        self._port_bytes: list[dict[str, int]] = []

    def _add(self, unit: ComputeUnitSpec) -> None:
        chain = unit.control == "ap_ctrl_chain"
        index = self._call("fd_add_compute_unit", str(unit.library).encode(), chain)
        self._find_ports(index)
        for port, banks in unit.connections.items():
            for bank in banks:
                self._call("fd_connect", index, self._port(index, port), bank)

    def _find_ports(self, index: int) -> None:
        count = self._call("fd_port_count", index)
        names = [self._library.fd_port_name(self._board, index, i).decode() for i in range(count)]
        self._ports.append({name: i for i, name in enumerate(names)})
        self._port_bytes.append(
            {name: self._call("fd_port_bytes", index, i) for i, name in enumerate(names)}
        )

    def _call(self, name: str, *arguments: Any) -> int:
        with self._calls_lock:
            board = self._board
            if board is None:
                raise SimulationError("the simulated card is closed; open it again")
            if os.getpid() != self._process:
                raise SimulationError(
                    "the simulated card was opened in another process; open one in each process"
                )
            self._calls += 1
        try:
            result: int = getattr(self._library, name)(board, *arguments)
            if result < 0:
                raise SimulationError(self._library.fd_last_error().decode())
            return result
        finally:
            with self._calls_lock:
                self._calls -= 1
                if self._board is None:
                    self._calls_changed.notify_all()

    def _unit(self, unit: str | int) -> int:
        if isinstance(unit, int):
            return unit
        if unit not in self.units:
            raise SimulationError(
                f"there is no compute unit {unit}; there are {', '.join(self.units)}"
            )
        return self.units.index(unit)

    def _port(self, unit: int, port: str) -> int:
        ports = self._ports[unit]
        if port not in ports:
            raise SimulationError(
                f"{self.units[unit]} has no memory port {port}; it has {', '.join(ports)}"
            )
        return ports[port]

    def configure(self, options: BoardOptions) -> None:
        """Change how the memory behaves; the sequences of random stalls start anew."""
        self.options = options
        for name, value in board_options(options).items():
            self._call("fd_set_option", name.encode(), value)

    @property
    def closed(self) -> bool:
        """Whether the board was closed."""
        return self._board is None

    def close(self) -> None:
        """Stop every command and free the memory."""
        with self._calls_changed:
            self._board = None
            self._calls_changed.wait_for(lambda: self._calls == 0)
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def port_bytes(self, unit: str | int, port: str) -> int:
        """Return the bytes of a beat on a port."""
        index = self._unit(unit)
        self._port(index, port)
        return self._port_bytes[index][port]

    def write_memory(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes to device memory, within one bank."""
        view = memoryview(data).cast("B")
        if view.readonly:
            self._call("fd_memory_write", address, bytes(view), len(view))
        else:
            self._call(
                "fd_memory_write",
                address,
                (ctypes.c_char * len(view)).from_buffer(view),
                len(view),
            )

    def read_memory(self, address: int, count: int) -> bytes:
        """Return bytes of device memory, within one bank."""
        data = ctypes.create_string_buffer(count)
        self._call("fd_memory_read", address, data, count)
        return data.raw

    def copy_to_memory(self, address: int, pointer: int, count: int) -> None:
        """Write bytes at a host address to device memory, within one bank."""
        self._call("fd_memory_write", address, pointer, count)

    def copy_from_memory(self, address: int, pointer: int, count: int) -> None:
        """Copy device memory, within one bank, to a host address."""
        self._call("fd_memory_read", address, pointer, count)

    def flip_bit(self, address: int, bit: int) -> None:
        """Invert one bit, 0 to 7, of a byte of device memory."""
        self._call("fd_flip_bit", address, bit)

    def allocate(self, bank: int, count: int) -> int | None:
        """Take bytes of a bank for a buffer; return their address, None if there is no room."""
        address = c_uint64()
        return None if self._call("fd_allocate", bank, count, byref(address)) else address.value

    def free(self, address: int) -> None:
        """Give the buffer at an address back."""
        self._call("fd_free", address)

    def usage(self, bank: int) -> BankUsage:
        """Return what is allocated in a bank."""
        usage = _UsageStruct()
        self._call("fd_usage", bank, byref(usage))
        return BankUsage(usage.bytes, usage.used, usage.buffers, usage.largest)

    def limit_bank(self, bank: int, count: int | None) -> None:
        """Let a bank have room for so many bytes in all only; None: its size again."""
        self._call("fd_limit_bank", bank, ALL_ADDRESSES if count is None else count)

    def write_register(self, unit: str | int, offset: int, value: int) -> None:
        """Write a register of a compute unit over its bus.

        Raises
        ------
        SimulationError
            If the kernel does not answer, or with an error.
        """
        self._call("fd_register_write", self._unit(unit), offset, value)

    def read_register(self, unit: str | int, offset: int) -> int:
        """Read a register of a compute unit over its bus; errors as for writing."""
        value = c_uint32()
        self._call("fd_register_read", self._unit(unit), offset, byref(value))
        return value.value

    def submit(self, unit: str | int, image: Sequence[int], *, timeout_cycles: int = 0) -> int:
        """Queue a command and return its number.

        Parameters
        ----------
        unit : str or int
            Compute unit, by name or index.
        image : sequence of int
            Register image: word i goes to offset 4 i; the first four are control and interrupt
            registers and are left out.
        timeout_cycles : int
            Cycles after which the command is given up; 0: none, beside `hang_cycles`.
        """
        words = (c_uint32 * len(image))(*image)
        return self._call("fd_submit", self._unit(unit), words, len(image), timeout_cycles)

    def wait(self, command: int, seconds: float) -> bool:
        """Wait until a command has ended, but no longer than `seconds`; say whether it has."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if self._call("fd_wait", command, max(0.0, min(left, _INTERRUPTIBLE))):
                return True
            if left <= _INTERRUPTIBLE:
                return False

    def wait_any(self, seen: int, seconds: float) -> int:
        """Wait until more than `seen` commands have ended, or for `seconds`; say how many have."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            ended = self._call("fd_wait_any", seen, max(0.0, min(left, _INTERRUPTIBLE)))
            if ended > seen or left <= _INTERRUPTIBLE:
                return ended

    def command(self, command: int) -> Command:
        """Return what is known of a command."""
        info = _CommandStruct()
        self._call("fd_command_info", command, byref(info))
        return self._described(info)

    def last_command(self, unit: str | int) -> Command | None:
        """Return the command of a compute unit that ended last, None if none did."""
        info = _CommandStruct()
        found = self._call("fd_last_command", self._unit(unit), byref(info))
        return self._described(info) if found else None

    def _described(self, info: _CommandStruct) -> Command:
        return Command(
            CommandState(info.state),
            self.units[info.compute_unit],
            info.cycles,
            info.violations,
            info.outside,
            info.control_reads,
            info.unwritten,
        )

    def take(self, command: int) -> Command | None:
        """Return what is known of an ended command and forget it; None: it has not ended."""
        info = _CommandStruct()
        ended = self._call("fd_command_take", command, byref(info))
        return self._described(info) if ended else None

    def reset(self, unit: str | int) -> None:
        """Reset a compute unit; its commands are aborted. Device memory stays as it is."""
        self._call("fd_reset", self._unit(unit))

    def abandon(self, unit: str | int) -> None:
        """Abort the commands of a compute unit; one that was running leaves it hung."""
        self._call("fd_abandon", self._unit(unit))

    def kill_client(self) -> None:
        """Do what the driver does when the process that used the card was killed.

        The commands of every unit are abandoned and all buffers are free.
        """
        self._call("fd_kill_client")

    def set_busy(self, unit: str | int, busy: bool) -> None:
        """Let a unit be held by another process: commands wait, and nobody can open it."""
        self._call("fd_set_busy", self._unit(unit), busy)

    def is_busy(self, unit: str | int) -> bool:
        """Say whether another process holds a unit."""
        return bool(self._call("fd_is_busy", self._unit(unit)))

    def clock(self, unit: str | int, cycles: int) -> None:
        """Let the clock of an idle compute unit run."""
        self._call("fd_clock", self._unit(unit), cycles)

    def is_hung(self, unit: str | int) -> bool:
        """Say whether a compute unit hangs; it then refuses commands until it is reset."""
        return bool(self._call("fd_is_hung", self._unit(unit)))

    def cycles(self, unit: str | int) -> int:
        """Return the clock cycles of a compute unit since the board was made."""
        return self._call("fd_cycles", self._unit(unit))

    def statistics(self, unit: str | int) -> dict[str, PortStatistics]:
        """Return the traffic of each memory port of a compute unit."""
        index = self._unit(unit)
        result = {}
        for name, port in self._ports[index].items():
            counts = _StatisticsStruct()
            self._call("fd_statistics", index, port, byref(counts))
            result[name] = PortStatistics(**{f: getattr(counts, f) for f in _STATISTICS})
        return result

    def clear_statistics(self, unit: str | int) -> None:
        """Start the statistics of a compute unit anew."""
        self._call("fd_clear_statistics", self._unit(unit))

    @property
    def event_count(self) -> int:
        """Events since the last `clear_events`; the first 1000 are kept."""
        return self._call("fd_event_count")

    def events(self) -> list[Event]:
        """Return the events that are kept."""
        result: list[Event] = []
        struct = _EventStruct()
        while self._call("fd_event_get", len(result), byref(struct)):
            names = list(self._ports[struct.compute_unit])
            result.append(
                Event(
                    EventKind(struct.kind),
                    self.units[struct.compute_unit],
                    names[struct.port] if struct.port >= 0 else _CONTROL_PORT,
                    "write" if struct.write else "read",
                    struct.address,
                    struct.cycle,
                    struct.detail,
                )
            )
        return result

    def clear_events(self) -> None:
        """Forget the events."""
        self._call("fd_clear_events")

    def inject(self, unit: str | int, port: str, fault: Fault) -> None:
        """Let the memory behind a port fail; of several faults the first that applies counts."""
        index = self._unit(unit)
        struct = _FaultStruct(
            fault.kind,
            fault.direction == "write",
            fault.first_address,
            fault.last_address,
            fault.skip,
            fault.count,
            fault.bit,
        )
        self._call("fd_inject", index, self._port(index, port), byref(struct))

    def inject_unit(self, unit: str | int, fault: UnitFault) -> None:
        """Let a compute unit fail in commands that start from now on."""
        struct = _UnitFaultStruct(fault.kind, fault.skip, fault.count)
        self._call("fd_inject_unit", self._unit(unit), byref(struct))

    def clear_faults(self, unit: str | int) -> None:
        """Take injected faults of a unit and its ports away; what was stuck goes on."""
        self._call("fd_clear_faults", self._unit(unit))

    def open_trace(self, unit: str | int, path: Path) -> None:
        """Write the waveforms of a compute unit, from now on, as FST; needs a `trace` build."""
        self._call("fd_open_trace", self._unit(unit), str(path).encode())
