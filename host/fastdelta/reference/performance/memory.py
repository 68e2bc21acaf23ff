# SPDX-License-Identifier: Apache-2.0
"""Memory of the performance model: ports with a bandwidth and a latency, and the read movers.

Times are kernel cycles. A read mover (rtl/common/axi_read_mover.v) takes a command once the last
burst of the one before is asked for, and asks for a burst only when its buffer has room for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastdelta.errors import RangeError

READ_BUFFER_BEATS = 256
BURST_BEATS = 64
CHECK_BEATS = 1
ADDRESS_CYCLES = 3
"""From a request for a block to the command of its mover (block_address.v)."""
MOVER_CYCLES = 4
"""From a command to its first beat, beside the latency: burst, address, and two in the buffer."""
_HISTORY = 16  # blocks whose consumption is remembered; the buffer holds fewer


@dataclass(frozen=True)
class Port:
    """One memory port.

    Attributes
    ----------
    bytes_per_cycle
        Bandwidth in each direction; None for a beat a cycle, which is also the most there can be.
    read_latency
        Cycles from an accepted address to the first beat.
    write_latency
        Cycles from the last beat of a burst to its answer.

    Raises
    ------
    RangeError
        For a bandwidth that is not above 0, or a latency below 1.
    """

    bytes_per_cycle: float | None = None
    read_latency: int = 64
    write_latency: int = 16

    def __post_init__(self) -> None:
        if self.bytes_per_cycle is not None and not self.bytes_per_cycle > 0:
            raise RangeError(f"bytes_per_cycle={self.bytes_per_cycle}; it must be above 0")
        for name in ("read_latency", "write_latency"):
            if getattr(self, name) < 1:
                raise RangeError(f"{name}={getattr(self, name)}; it must be 1 cycle or more")

    def beat_cycles(self, beat_bytes: int) -> float:
        """Cycles of one beat at this bandwidth, at least 1."""
        if self.bytes_per_cycle is None:
            return 1
        cycles = max(1.0, beat_bytes / self.bytes_per_cycle)
        return int(cycles) if cycles.is_integer() else cycles

    def read_beat_cycles(self, beat_bytes: int) -> float:
        """Cycles of one beat of a long read: bandwidth, or a full buffer of requests on the way."""
        round_trip = self.read_latency + MOVER_CYCLES + 1 + BURST_BEATS
        return max(self.beat_cycles(beat_bytes), round_trip / READ_BUFFER_BEATS)


@dataclass(frozen=True)
class MemoryTiming:
    """Ports of a kernel by name: ``q k v jobs o`` of prefill, ``qk v o`` of decode.

    Attributes
    ----------
    default
        Of every port that `ports` does not name.
    ports
        By name.
    """

    default: Port = Port()
    ports: Mapping[str, Port] = field(default_factory=dict)

    @classmethod
    def uniform(
        cls,
        bytes_per_cycle: float | None = None,
        read_latency: int = 64,
        write_latency: int = 16,
    ) -> MemoryTiming:
        """All ports alike; the defaults are the simulated card's."""
        return cls(Port(bytes_per_cycle, read_latency, write_latency))

    def port(self, name: str) -> Port:
        """Return the port of that name."""
        return self.ports.get(name, self.default)


class ReadPort:
    """Blocks that one mover reads in order, each `beats` long.

    `fetch` is called in the order of the blocks, each after `consumed` of the one before.

    Parameters
    ----------
    port : Port
    beats, beat_bytes : int
        Of a block with its check beat, and of a beat.

    Attributes
    ----------
    data_beats : int
        Beats of a block that reach the units: the check beat ends behind the mover
        (block_check.v), but takes its turn.
    """

    def __init__(self, port: Port, beats: int, beat_bytes: int) -> None:
        self.beats = beats
        self.data_beats = beats - CHECK_BEATS
        self.beat_cycles = port.read_beat_cycles(beat_bytes)
        self._memory_cycles = port.beat_cycles(beat_bytes)
        self.latency = port.read_latency + MOVER_CYCLES
        self.blocks = 0
        self._bursts = math.ceil(beats / BURST_BEATS)
        self._command = -1.0
        self._arrived = -1.0
        self._left = -1.0  # the last beat leaves the mover
        self._taken: deque[tuple[int, float, float]] = deque(maxlen=_HISTORY)

    def asked(self, time: float) -> float:
        """Cycle in which a request that is ready at `time` is taken."""
        return max(time, self._command + 1) if self.blocks else time

    def fetch(self, time: float) -> float:
        """Request the next block, taken at `time`: the cycle of its first beat."""
        command = max(time + ADDRESS_CYCLES, self._mover_free())
        self._command = command
        self.blocks += 1
        first = max(command + self.latency, self._arrived + 1, self._left + 1)
        self._arrived = math.ceil(first + (self.beats - 1) * self._memory_cycles)
        return first

    def last_beat(self, arrival: float, first: float) -> float:
        """Cycle of the last data of a block that arrives at `arrival` and is taken from `first`."""
        rest = self.data_beats - 1
        if self.beat_cycles == 1:
            return first + rest
        # What waits in the buffer leaves at once; the rest at the speed of memory.
        return max(first + rest, math.ceil(arrival + rest * self.beat_cycles))

    def consumed(self, first: float, last: float) -> None:
        """Tell when the data of the block fetched last leave the mover."""
        self._left = last + CHECK_BEATS
        self._taken.append((self.blocks * self.beats, first, self._left))

    def _mover_free(self) -> float:
        """Cycle from which the next command is taken: the last burst is asked for."""
        if not self.blocks:
            return 0
        free = self._command + self._bursts + 1
        needed = self.blocks * self.beats - READ_BUFFER_BEATS  # beats that must have left
        if needed > 0:
            for end, first, last in self._taken:
                if end >= needed:
                    start = end - self.beats
                    share = max(needed - 1 - start, 0) / max(self.beats - 1, 1)
                    free = max(free, math.ceil(first + share * (last - first)) + 2)
                    break
        return free
