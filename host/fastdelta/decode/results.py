# SPDX-License-Identifier: Apache-2.0
"""What a run of the decode engine returns beside its output: cycles, counters, times."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.registers.decode import Status
from fastdelta.results import Provenance, Seconds

RESULT_BLOCK_BYTES = 64
RESULT_MAGIC = 0x31524446  # "FDR1"

_WORDS = struct.Struct("<16I")


@dataclass(frozen=True)
class KernelCounters:
    """Event counts of one or more runs, as docs/decode_engine.md defines them.

    ``saturations`` (row, head) and (column, head) pairs in which a value was clamped;
    ``norm_overflows`` vectors given as normalised that were not; ``starved_cycles`` without a
    pass because input was missing; ``*_beats`` on the memory ports; ``bursts`` on all ports;
    ``output_stalls`` cycles in which output waited for memory.
    """

    saturations: int = 0
    norm_overflows: int = 0
    starved_cycles: int = 0
    qk_beats: int = 0
    v_beats: int = 0
    o_beats: int = 0
    bursts: int = 0
    output_stalls: int = 0

    def __add__(self, other: KernelCounters) -> KernelCounters:
        # A dataclass holds its fields in order in its dictionary.
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return KernelCounters(*(one + another for one, another in pairs))


@dataclass(frozen=True)
class ResultBlock:
    """The 64 bytes that the kernel writes when a run ends."""

    magic: int
    status: int
    version: int
    tokens_done: int
    cycles: int
    counters: KernelCounters
    contexts_lost: int
    runs: int

    @classmethod
    def parse(cls, block: npt.NDArray[np.uint8]) -> ResultBlock:
        """Read a result block, flat uint8 of 64 bytes."""
        words = _WORDS.unpack_from(block.data)
        magic, status, version, tokens_done, low, high, *counts, lost, runs = words
        return cls(
            magic=magic,
            status=status,
            version=version,
            tokens_done=tokens_done,
            cycles=low | high << 32,
            counters=KernelCounters(*counts),
            contexts_lost=lost,
            runs=runs,
        )

    @property
    def status_name(self) -> str:
        """Name of the status code."""
        return status_name(self.status)


def status_name(code: int) -> str:
    """Name of a status code, also of one that the kernel should never give."""
    return Status(code).name if code in set(Status) else f"unknown status {code}"


@dataclass(frozen=True, eq=False)
class RunReport:
    """Evidence of one call, which is one run of the kernel or, for long inputs, several.

    Attributes
    ----------
    command : str
        ``decode``, ``clear``, ``load`` or ``dump``.
    context : int
        Context that the call worked on.
    tokens : int
        Tokens done.
    invocations : int
        Runs of the kernel.
    kernel_cycles : int
        Cycles from start to the end of the last write, summed over the runs.
    counters : KernelCounters
        Summed over the runs.
    seconds : Seconds
        Times of the host, summed over the runs; runs in flight at once overlap.
    provenance : Provenance
        Card, configuration and versions.
    """

    command: str
    context: int
    tokens: int
    invocations: int
    kernel_cycles: int
    counters: KernelCounters
    seconds: Seconds
    provenance: Provenance

    @property
    def simulated(self) -> bool:
        """Whether the figures come from the simulated card."""
        return self.provenance.simulated

    @property
    def cycles_per_token(self) -> float:
        """Kernel cycles per token of this call, start-up included; NaN without tokens."""
        return self.kernel_cycles / self.tokens if self.tokens else float("nan")

    def microseconds_per_token(self, clock_mhz: float | None = None) -> float:
        """Kernel time per token at a clock.

        Parameters
        ----------
        clock_mhz : float, optional
            Clock to assume; by default the card's own, so the simulated card needs it.
        """
        return self.cycles_per_token / self.provenance.clock(clock_mhz)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the output as JSON types."""
        return {
            "command": self.command,
            "context": self.context,
            "tokens": self.tokens,
            "invocations": self.invocations,
            "kernel_cycles": self.kernel_cycles,
            "cycles_per_token": self.cycles_per_token if self.tokens else None,
            "counters": asdict(self.counters),
            "seconds": asdict(self.seconds),
            **self.provenance.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class DecodeResult(RunReport):
    """A `RunReport` of ``decode`` with its output.

    Attributes
    ----------
    output : array [tokens, value_heads, head_dim] or [value_heads, head_dim], float32
        The 1/sqrt(head_dim) of the attention scale included; without the token axis if the
        inputs had none.
    """

    output: npt.NDArray[np.float32]
