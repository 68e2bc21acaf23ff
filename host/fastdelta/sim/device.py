# SPDX-License-Identifier: Apache-2.0
"""The simulated card as a device of PYNQ 3.0.1.

``pynq.Overlay("file.xclbin", device=SimDevice("u55c"))`` loads a container that
`fastdelta.sim.overlay.build_overlay` wrote; kernels are then called as on a card. The model is
stricter than a card where a card is silent: host and device memory are apart, so a forgotten sync
shows; accesses outside the connected banks fail; violations of AXI make a call fail; no wait is
endless.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import mmap
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from pynq import Device
from pynq._3rdparty import ert
from pynq.buffer import PynqBuffer
from pynq.pl_server.xclbin_parser import XclBin

from fastdelta.errors import (
    BankFullError,
    BoardError,
    BoardNotFoundError,
    CardBusyError,
    OverlayError,
    WrongBoardError,
)
from fastdelta.platforms import PLATFORMS, Platform, find_platform
from fastdelta.sim.build import find_kernel
from fastdelta.sim.simulated_board import (
    BoardOptions,
    Command,
    CommandState,
    ComputeUnitSpec,
    EventKind,
    SimulatedBoard,
    SimulationError,
)
from fastdelta.xclbin import Section, Xclbin, XclbinError

ALIGNMENT: Final = 4096
"""Buffers start at multiples of this many bytes."""

DEFAULT_TIMEOUT_SECONDS: Final = 600.0
SIMULATION_FORMAT: Final = 1
SIMULATION_KEY: Final = "fastdelta_simulation"

_EXEC_BUFFER_BYTES: Final = 4096
_SHOWN_EVENTS: Final = 3
_NO_COMMAND: Final = -1


class CommandError(SimulationError):
    """A command of a kernel did not end as it should."""


class CommandTimeoutError(CommandError, TimeoutError):
    """A command has not ended within the wall-clock time of a wait; it goes on."""


class OutsideBanksWarning(UserWarning):
    """A kernel used addresses outside the memory banks that its port is connected to."""


def simulation_manifest(kernels: Mapping[str, str]) -> bytes:
    """Return what a simulated container has in place of a bitstream.

    Parameters
    ----------
    kernels
        Key of the built simulation of each kernel.
    """
    return json.dumps({SIMULATION_KEY: SIMULATION_FORMAT, "kernels": dict(kernels)}).encode()


@dataclass(frozen=True)
class _Overlay:
    """A container that fits the card."""

    container: Xclbin
    libraries: Mapping[str, Path]


@dataclass(frozen=True)
class _BufferObject:
    """Device memory with its host mapping."""

    address: int
    size: int
    mapping: mmap.mmap


class SimMemory:
    """A memory bank of the loaded overlay; two for the same bank are equal."""

    def __init__(self, device: SimDevice, desc: Mapping[str, Any]) -> None:
        self.device = device
        self.desc = desc
        self.idx: int = desc["idx"]
        self.size: int = desc["size"]
        self.base_address: int = desc["base_address"]

    def allocate(self, shape: Any, dtype: Any) -> PynqBuffer:
        """Allocate an array in this bank.

        Parameters
        ----------
        shape : int or tuple of int
            Shape.
        dtype
            Element type.

        Returns
        -------
        PynqBuffer
            Zeros in its host copy; what was there before on the device.

        Raises
        ------
        BankFullError
            If the bank has no room for it, or it is larger than a bank.
        """
        return self.device._allocate(self, shape, np.dtype(dtype))

    @property
    def mem_used(self) -> int:
        """Bytes allocated in this bank."""
        return self.device.board.usage(self.idx).used

    @property
    def num_buffers(self) -> int:
        """Buffers in this bank."""
        return self.device.board.usage(self.idx).buffers

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SimMemory) and self.device is other.device and self.idx == other.idx
        )

    def __hash__(self) -> int:
        return hash((id(self.device), self.idx))

    def __repr__(self) -> str:
        return f"<memory bank {self.desc['tag']} of {self.device.tag}>"


class ExecBuffer:
    """Memory of a command packet."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(_EXEC_BUFFER_BYTES)

    def as_packet(self, ptype: Any) -> Any:
        """Return the packet as a structure of PYNQ's ``ert`` module."""
        return ctypes.cast(self._memory, ctypes.POINTER(ptype))[0]


class SimWaitHandle:
    """A command in progress, with the interface of PYNQ's handles and time-outs.

    Attributes
    ----------
    device
        Where it runs.
    command
        What is known of the command, once it has ended.
    failure
        What went wrong, once it has ended; None if nothing did.
    """

    def __init__(self, device: SimDevice, number: int, buffer: ExecBuffer) -> None:
        self.device = device
        self.command: Command | None = None
        self.failure: str | None = None
        self._number = number
        self._buffer: ExecBuffer | None = buffer
        self._lock = threading.Lock()

    @property
    def _has_bo(self) -> bool:
        return self._buffer is not None

    @property
    def done(self) -> bool:
        """Whether the command has ended."""
        return self._poll()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the command.

        Parameters
        ----------
        timeout : float, optional
            Seconds of wall-clock time; by default the `timeout_seconds` of the device.

        Raises
        ------
        CommandTimeoutError
            If it has not ended by then; it goes on.
        CommandError
            If it failed.
        """
        seconds = self.device.timeout_seconds if timeout is None else timeout
        if self._buffer is not None:
            self.device._wait_for(self._number, seconds)
            if not self._poll():
                raise CommandTimeoutError(
                    f"the command has not ended within {seconds:g} s of wall-clock time and goes "
                    "on; wait longer (timeout_seconds of the device), or reset the compute unit"
                )
        self._raise()
        if self.command is not None and self.command.outside_accesses:
            warnings.warn(
                f"{self.command.compute_unit} used addresses outside the memory banks of its "
                f"ports: {self.device._describe([EventKind.OUTSIDE_BANKS], self.command)}. Check "
                "that each buffer is in the bank of its argument",
                OutsideBanksWarning,
                stacklevel=2,
            )

    async def wait_async(self) -> None:
        """Wait for the end of the command; errors as for `wait`."""
        if not self._poll():
            await asyncio.get_running_loop().run_in_executor(None, self.wait)
        self._raise()

    def _raise(self) -> None:
        if self.failure is not None:
            raise CommandError(self.failure)

    def _poll(self) -> bool:
        with self._lock:
            if self._buffer is None:
                return True
            ended, command = self.device._take(self._number)
            if not ended:
                return False
            self.command = command
            self.failure = self.device._failure(command)
            state = CommandState.ABORTED if command is None else command.state
            if state is CommandState.COMPLETED and self.failure is not None:
                state = CommandState.ERROR
            self._buffer.as_packet(ert.ert_cmd_struct).state = state
            self.device.return_exec_bo(self._buffer)
            self._buffer = None
            return True


class SimDevice(Device):  # type: ignore[misc]  # PYNQ has no types
    """A simulated card.

    Parameters
    ----------
    platform : str
        ``u55c`` or ``u280``.
    options : BoardOptions, optional
        How its memory behaves.
    timeout_seconds : float
        Wall-clock time after which `SimWaitHandle.wait` gives up.
    cache : path, optional
        Folder of the built simulations.

    Notes
    -----
    Loading an overlay resets the card. The buffers of another overlay must be freed before; those
    of the same overlay stay.
    """

    _probe_priority_ = 900  # behind real cards
    _numbers: ClassVar[dict[str, itertools.count[int]]] = {}

    @classmethod
    def _probe_(cls) -> list[SimDevice]:
        return [cls(name) for name in PLATFORMS]

    def __init__(
        self,
        platform: str = "u55c",
        options: BoardOptions | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        cache: Path | None = None,
    ) -> None:
        try:
            self.platform: Platform = find_platform(platform.removeprefix("sim-"))
        except ValueError as error:
            raise BoardNotFoundError(str(error)) from None
        number = next(self._numbers.setdefault(self.platform.name, itertools.count()))
        super().__init__(f"sim-{self.platform.name}-{number}")
        self.capabilities = {"REGISTER_RW": True, "CALLABLE": True, "ERT": True}
        self.timeout_seconds = timeout_seconds
        self.contexts: dict[str, dict[str, Any]] = {}
        self._options = options or BoardOptions()
        self._cache = cache
        self._lock = threading.RLock()
        self._board: SimulatedBoard | None = None
        self._container: Xclbin | None = None
        self._objects: dict[int, _BufferObject] = {}
        self._object_numbers = itertools.count(1)
        self._exec_buffers: list[ExecBuffer] = []
        self._active: dict[int, SimWaitHandle] = {}

    def __repr__(self) -> str:
        return f"<simulated card {self.tag}>"

    # What PYNQ asks of every device.

    @property
    def name(self) -> str:
        """Name of the shell, as XRT reports it for the real card."""
        return self.platform.shell

    @property
    def clocks(self) -> dict[str, dict[str, int]]:
        """Clocks that the loaded overlay asks for, in MHz; nothing is simulated in real time."""
        clocks = () if self._container is None else self._container.clocks
        return {f"clock{i}": {"frequency": clock.mhz} for i, clock in enumerate(clocks)}

    @property
    def sensors(self) -> dict[str, Any]:
        """A simulated card has no sensors."""
        return {}

    def get_bitfile_metadata(self, bitfile_name: str) -> XclBin:
        """Return PYNQ's view of a container, after checking that it is one for this card."""
        self._read(Path(bitfile_name))
        return XclBin(bitfile_name)

    def gen_cache(self, bitstream: Any, parser: Any = None) -> None:
        """Do nothing: a container carries its metadata."""

    def download(self, bitstream: Any, parser: Any = None) -> None:
        """Load an overlay; see the class for what happens to buffers.

        Raises
        ------
        WrongBoardError
            If it is for another card.
        OverlayError
            If it is damaged, is not for simulation, or its simulation is not in the cache.
        BoardError
            If buffers of another overlay are still allocated, or another process uses the card.
        """
        overlay = self._read(Path(bitstream.bitfile_name))
        busy = [] if self._board is None else [*filter(self._board.is_busy, self._board.units)]
        if busy:
            raise CardBusyError(
                f"{', '.join(busy)} on {self.tag} is in use by another process, so that no overlay "
                "can be loaded; wait until it has ended"
            )
        abandoned = self._abandon_commands()
        with self._lock:
            same = self._container is not None and self._container.uuid == overlay.container.uuid
            self.contexts = {}
            if same and self._board is not None:
                for unit in self._board.units:
                    self._board.reset(unit)
                for number in abandoned:
                    self._board.take(number)
            else:
                if self._objects:
                    raise BoardError(
                        f"{len(self._objects)} buffers of the overlay before are still allocated "
                        f"on {self.tag}; free them (freebuffer, or drop every reference) and load "
                        "again"
                    )
                self._load(overlay)
        super().post_download(bitstream, parser)

    def free_bitstream(self) -> None:
        """Close the contexts of all compute units."""
        self.contexts = {}

    def close(self) -> None:
        """Stop the card and free its memory; loading an overlay opens it again."""
        self._abandon_commands()
        with self._lock:
            board, self._board = self._board, None
            self._container = None
            self.contexts = {}
            self._objects = {}
        if board is not None:
            board.close()

    def open_context(self, description: dict[str, Any], shared: bool = True) -> int:
        """Open a compute unit and return its index."""
        name = description["cu_name"]
        with self._lock:
            container = self._loaded()
            if description["xclbin_uuid"] != container.uuid:
                raise OverlayError(
                    f"{name} belongs to overlay {description['xclbin_uuid']}, but "
                    f"{container.uuid} is loaded on {self.tag}; load its overlay again"
                )
            names = [unit.name for unit in container.compute_units]
            if name not in names:
                raise OverlayError(
                    f"the loaded overlay has no compute unit {name}; it has {', '.join(names)}"
                )
            index = names.index(name)
            if self.board.is_busy(index):
                raise CardBusyError(
                    f"{name} on {self.tag} is in use by another process; wait until it has ended"
                )
            description["cu_index"] = index
            self.contexts[name] = {"cu": name, "idx": index, "shared": shared}
            return index

    def close_context(self, cu_name: str) -> None:
        """Close a compute unit."""
        if self.contexts.pop(cu_name, None) is None:
            raise OverlayError(f"compute unit {cu_name} is not open")

    @property
    def default_memory(self) -> SimMemory:
        """The only memory bank that the overlay uses."""
        used = [desc for desc in self.mem_dict.values() if desc["used"]]
        if len(used) != 1:
            raise BoardError(
                f"the overlay uses {len(used)} memory banks; say which one, for example "
                "pynq.allocate(shape, target=overlay.HBM0)"
            )
        return self.get_memory(used[0])

    def get_memory(self, desc: Mapping[str, Any]) -> SimMemory:
        """Return the memory of an entry of ``mem_dict``."""
        return SimMemory(self, desc)

    def get_memory_by_idx(self, idx: int) -> SimMemory:
        """Return a memory by its index in the topology."""
        return self._find_memory("idx", idx)

    def get_memory_by_name(self, name: str) -> SimMemory:
        """Return a memory by its tag, such as ``HBM[0]``."""
        return self._find_memory("tag", name)

    def _find_memory(self, key: str, value: Any) -> SimMemory:
        for desc in self.mem_dict.values():
            if desc[key] == value:
                return self.get_memory(desc)
        tags = [desc["tag"] for desc in self.mem_dict.values()]
        raise BoardError(f"there is no memory with {key} {value!r}; there are {', '.join(tags)}")

    def read_registers(self, address: int, length: int) -> bytes:
        """Read registers over the bus of the compute unit at an address."""
        unit, offset = self._locate(address, length)
        words = [self.board.read_register(unit, offset + i) for i in range(0, length, 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)

    def write_registers(self, address: int, data: bytes) -> None:
        """Write registers over the bus of the compute unit at an address."""
        unit, offset = self._locate(address, len(data))
        for i in range(0, len(data), 4):
            value = int.from_bytes(data[i : i + 4], "little")
            self.board.write_register(unit, offset + i, value)

    def flush(self, bo: int, offset: int, ptr: int, size: int) -> None:
        """Copy from the host to the device."""
        address = self._place(bo, offset, size)
        self.board.copy_to_memory(address, ptr, size)

    def invalidate(self, bo: int, offset: int, ptr: int, size: int) -> None:
        """Copy from the device to the host."""
        address = self._place(bo, offset, size)
        self.board.copy_from_memory(address, ptr, size)

    def get_exec_bo(self) -> ExecBuffer:
        """Return memory for a command packet."""
        with self._lock:
            return self._exec_buffers.pop() if self._exec_buffers else ExecBuffer()

    def return_exec_bo(self, bo: ExecBuffer) -> None:
        """Take memory of a command packet back."""
        with self._lock:
            self._exec_buffers.append(bo)

    def execute_bo(self, bo: ExecBuffer) -> SimWaitHandle:
        """Queue the command of a packet.

        Raises
        ------
        CommandError
            If it is not a start of one open compute unit.
        """
        packet = bo.as_packet(ert.ert_start_kernel_cmd)
        header = packet.m_uert.m_start_cmd_struct
        if header.opcode != ert.ert_cmd_opcode.ERT_START_CU or header.extra_cu_masks:
            raise CommandError(
                f"a packet with opcode {header.opcode} and {header.extra_cu_masks} extra masks; "
                "the simulated card knows ERT_START_CU with one mask"
            )
        open_units = {context["idx"] for context in self.contexts.values()}
        units = [index for index in range(32) if packet.cu_mask >> index & 1]
        if len(units) != 1 or units[0] not in open_units:
            raise CommandError(
                f"a packet for the compute units {units}; it must name one that is open: "
                f"{sorted(open_units)}"
            )
        words = header.count - 1  # without the mask
        data = ctypes.cast(packet.data, ctypes.POINTER(ctypes.c_uint32))
        with self._lock:
            board = self.board
            header.state = ert.ert_cmd_state.ERT_CMD_STATE_QUEUED
            number = board.submit(units[0], data[:words])
            handle = SimWaitHandle(self, number, bo)
            self._active[number] = handle
        return handle

    def execute_bo_with_waitlist(self, bo: ExecBuffer, waitlist: Sequence[Any]) -> SimWaitHandle:
        """Refuse: XRT 2.11 and newer do so too."""
        del bo, waitlist
        raise CommandError("XRT has no dependent commands (waitfor) since 2.11; wait on the host")

    def _handle_events(self, timeout: int = 0) -> None:
        """Wait until a command has ended, but no longer than `timeout` milliseconds."""
        board = self.board
        ended = board.wait_any(_NO_COMMAND, 0.0)
        if not any(handle._poll() for handle in list(self._active.values())):
            board.wait_any(ended, timeout / 1000)
        for handle in list(self._active.values()):
            handle._poll()

    # Beyond PYNQ.

    @property
    def board(self) -> SimulatedBoard:
        """The board model: faults, statistics, events, traces.

        Raises
        ------
        BoardError
            If no overlay is loaded.
        """
        if self._board is None:
            raise BoardError(f"no overlay is loaded on {self.tag}; load one first")
        return self._board

    @property
    def options(self) -> BoardOptions:
        """How the memory behaves; set it while no command is running."""
        return self._options

    @options.setter
    def options(self, options: BoardOptions) -> None:
        self._options = options
        if self._board is not None:
            self._board.configure(options)

    @property
    def live_buffers(self) -> int:
        """Buffers that are allocated."""
        return len(self._objects)

    def reset_compute_unit(self, name: str) -> None:
        """Reset a compute unit, such as ``decode_1``; its commands fail as aborted."""
        self.board.reset(name)

    # Overlays

    def _read(self, path: Path) -> _Overlay:
        data = path.read_bytes()
        try:
            container = Xclbin.parse(data)
        except XclbinError as error:
            raise OverlayError(f"{path}: {error}") from None
        if not container.vbnv.startswith(self.platform.prefix):
            raise WrongBoardError(
                f"{path} is for {container.vbnv or 'an unknown card'}, but {self.tag} simulates a "
                f"{self.platform.shell}; build the overlay for the {self.platform.name}, or open "
                "the other card"
            )
        try:
            manifest = json.loads(container.section(Section.BITSTREAM))
            format_number = manifest[SIMULATION_KEY]
        except (ValueError, TypeError, KeyError):
            raise OverlayError(
                f"{path} holds a bitstream for a real {self.platform.name}, which cannot be "
                "simulated; build the simulated overlay with fastdelta.sim.open_device"
            ) from None
        if format_number != SIMULATION_FORMAT:
            raise OverlayError(
                f"{path} has simulation format {format_number}, this package reads "
                f"{SIMULATION_FORMAT}; build the overlay again with fastdelta.sim.open_device"
            )
        if not container.is_intact(data):
            raise OverlayError(f"{path} was changed after it was written; build it again")
        libraries = {}
        for kernel, key in manifest["kernels"].items():
            library = find_kernel(key, cache=self._cache)
            if library is None:
                raise OverlayError(
                    f"the simulation of {kernel} in {path} is not in the cache of this machine; "
                    "build it again with fastdelta.sim.open_device"
                )
            libraries[kernel] = library
        return _Overlay(container, libraries)

    def _load(self, overlay: _Overlay) -> None:
        units = [
            ComputeUnitSpec(
                unit.instance,
                overlay.libraries[unit.kernel],
                overlay.container.port_memories(unit),
                unit.control,
            )
            for unit in overlay.container.compute_units
        ]
        board, self._board, self._container = self._board, None, None
        if board is not None:
            board.close()
        self._board = SimulatedBoard(self.platform, units, self._options)
        self._container = overlay.container

    def _loaded(self) -> Xclbin:
        if self._container is None:
            raise BoardError(f"no overlay is loaded on {self.tag}; load one first")
        return self._container

    def _locate(self, address: int, length: int) -> tuple[str, int]:
        container = self._loaded()
        for unit in container.compute_units:
            offset = address - unit.base
            if offset >= 0 and offset + length <= container.control_range(unit):
                if offset % 4 or length % 4:
                    break
                return unit.instance, offset
        raise BoardError(
            f"{length} bytes at {address:#x} are not whole registers of a compute unit; "
            "the units are at "
            + ", ".join(f"{unit.instance} {unit.base:#x}" for unit in container.compute_units)
        )

    # Memory

    def _allocate(self, memory: SimMemory, shape: Any, dtype: np.dtype[Any]) -> PynqBuffer:
        sizes = tuple(shape) if np.iterable(shape) else (shape,)
        size = prod(int(n) for n in sizes) * dtype.itemsize
        tag = memory.desc["tag"]
        what = f"an array of shape {sizes} and type {dtype}, {size:,} bytes"
        if size <= 0:
            raise BankFullError(f"{what}, cannot be allocated; a buffer has at least one byte")
        if size > memory.size:
            raise BankFullError(
                f"{what}, is larger than bank {tag} of the {self.platform.name} "
                f"({memory.size:,} bytes), and a buffer cannot span banks; split it"
            )
        with self._lock:
            address = self.board.allocate(memory.idx, size)
            if address is None:
                usage = self.board.usage(memory.idx)
                raise BankFullError(
                    f"{what}, does not fit into bank {tag} of the {self.platform.name}: "
                    f"{usage.buffers} buffers take {usage.used:,} of its {memory.size:,} bytes and "
                    f"the largest gap is {usage.largest:,} bytes; free buffers, or use another bank"
                )
            bo = next(self._object_numbers)
            mapping = mmap.mmap(
                -1,
                size + -size % ALIGNMENT,
                flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
            )
            self._objects[bo] = _BufferObject(address, size, mapping)
        buffer = PynqBuffer(
            sizes,
            dtype,
            bo=bo,
            device=self,
            buffer=mapping,
            device_address=address,
            coherent=False,
        )
        buffer.memory = memory
        # PYNQ unmaps memory itself unless both say that it must not.
        buffer.pointer = bo
        buffer.return_to = self
        buffer.freed = True
        return buffer

    def return_pointer(self, pointer: int) -> None:
        """Free a buffer; PYNQ calls this. The host copy lives as long as arrays refer to it."""
        with self._lock:
            freed = self._objects.pop(pointer, None)  # none: the card was closed before
            if freed is not None:
                with suppress(SimulationError):  # the driver freed it, as if we had been killed
                    self.board.free(freed.address)

    def _place(self, bo: int, offset: int, size: int) -> int:
        found = self._objects.get(bo)
        if found is None:
            raise BoardError("the buffer was freed, or its card was closed; allocate it again")
        if offset < 0 or offset + size > found.size:
            raise BoardError(
                f"{size} bytes from offset {offset} are outside the buffer of {found.size} bytes"
            )
        return found.address + offset

    # Commands

    def _take(self, number: int) -> tuple[bool, Command | None]:
        """Say whether a command has ended, and what is known of it then.

        That is nothing if the card was closed or loaded anew.
        """
        with self._lock:
            if self._board is None or number not in self._active:
                return True, None
            command = self._board.take(number)
            if command is None:
                return False, None
            del self._active[number]
            return True, command

    def _wait_for(self, number: int, seconds: float) -> None:
        with self._lock:
            board = self._board if number in self._active else None
        if board is not None:
            try:
                board.wait(number, seconds)
            except SimulationError:
                # Another thread may have taken the end of the command, or closed the card.
                if number in self._active and not board.closed:
                    raise

    def _abandon_commands(self) -> list[int]:
        """Let every command that is waiting or running fail; return their numbers."""
        with self._lock:
            abandoned, self._active = self._active, {}
        for handle in abandoned.values():  # not under the lock, which handles take inside theirs
            handle._poll()
        return list(abandoned)

    def _describe(self, kinds: Sequence[EventKind], command: Command) -> str:
        events = [
            event
            for event in ([] if self._board is None else self._board.events())
            if event.kind in kinds and event.compute_unit == command.compute_unit
        ]
        shown = "; ".join(map(str, events[-_SHOWN_EVENTS:]))
        return shown or "see the events of the board"

    def _failure(self, command: Command | None) -> str | None:
        """Say what went wrong in an ended command, None if nothing did."""
        if command is None:
            return "the card was closed or loaded anew while the command was running"
        unit = command.compute_unit
        remedy = f"reset it: device.reset_compute_unit({unit!r}), or load the overlay again"
        match command.state:
            case CommandState.COMPLETED if command.violations:
                kinds = [kind for kind in EventKind if kind.is_violation]
                return (
                    f"{unit} violated AXI or the kernel's contract {command.violations} times: "
                    f"{self._describe(kinds, command)}. Its results cannot be trusted; this is a "
                    "fault of the RTL"
                )
            case CommandState.COMPLETED:
                return None
            case CommandState.TIMED_OUT:
                stolen = (
                    f" The host read its control register {command.control_reads} times "
                    "meanwhile, which can take the end of a run from the card."
                    if command.control_reads
                    else ""
                )
                return (
                    f"{unit} hangs: {command.cycles:,} cycles after its start it was not done, and "
                    f"nothing had moved on its memory ports for {self._options.hang_cycles:,} "
                    f"cycles.{stolen} {remedy}"
                )
            case CommandState.ABORTED:
                return f"{unit} was reset while the command was waiting or running; submit it again"
            case _ if self._board is not None and not self._board.is_hung(unit):
                return (
                    f"{unit} refused the start: a run that was started through its registers, as "
                    "start_sw does, was not acknowledged. Write 16 (ap_continue) to its register 0 "
                    "after the end of such a run, or start it with start or call"
                )
            case _:
                return f"{unit} hangs since an earlier command, or does not answer; {remedy}"
