# SPDX-License-Identifier: Apache-2.0
"""What a run of the decode engine returns beside its output: cycles, counters, times."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, checksum
from fastdelta.registers.decode import Status
from fastdelta.results import Provenance, Seconds

RESULT_BLOCK_BYTES = 128
RESULT_MAGIC = 0x31524446  # "FDR1"

_WORDS = struct.Struct("<32I")


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


NO_COUNTERS = KernelCounters()  # made once: making one costs a call of one token a microsecond


class ResultBlock(NamedTuple):
    """The 128 bytes that the kernel writes when a run ends.

    ``checksums`` are the sums of the words that went over ``m_axi_qk``, ``m_axi_v`` and
    ``m_axi_o``; ``intact`` says whether the words of the block add up to zero, as they must.
    """

    magic: int
    status: int
    version: int
    tokens_done: int
    cycles: int
    counters: KernelCounters
    contexts_lost: int
    runs: int
    checksums: tuple[int, int, int] = (0, 0, 0)
    intact: bool = True

    @classmethod
    def parse(cls, block: npt.NDArray[np.uint8]) -> ResultBlock:
        """Read a result block, flat uint8 of 128 bytes."""
        words = _WORDS.unpack_from(block.data)
        magic, status, version, tokens_done, low, high, *counts = words[:14]
        lost, runs, *sums = words[14:19]
        return cls(
            magic=magic,
            status=status,
            version=version,
            tokens_done=tokens_done,
            cycles=low | high << 32,
            counters=KernelCounters(*counts),
            contexts_lost=lost,
            runs=runs,
            checksums=(sums[0], sums[1], sums[2]),
            intact=not sum(words) & 0xFFFFFFFF,
        )

    def to_bytes(self) -> Bytes:
        """Return the block as the kernel writes it."""
        words = np.zeros(RESULT_BLOCK_BYTES // 4, np.uint32)
        words[:4] = self.magic, self.status, self.version, self.tokens_done
        words[4:6] = self.cycles & 0xFFFFFFFF, self.cycles >> 32
        words[6:14] = tuple(vars(self.counters).values())
        words[14:19] = self.contexts_lost, self.runs, *self.checksums
        words[-1] = -checksum(words) & 0xFFFFFFFF
        return words.view(np.uint8)

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
