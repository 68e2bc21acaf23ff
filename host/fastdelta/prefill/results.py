# SPDX-License-Identifier: Apache-2.0
"""What a run of the prefill engine returns beside its output: cycles, counters, blocks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, Float32Array, checksum
from fastdelta.reference.sparse_index import IndexSet, Pattern
from fastdelta.registers.prefill import Register, Status
from fastdelta.results import Provenance, Seconds
from fastdelta.shapes import PrefillShape

RESULT_BLOCK_BYTES = 256
RESULT_MAGIC = 0x31504446  # "FDP1"

_LOW, _HIGH = "_LOW", "_HIGH"
_COUNTER_REGISTERS = tuple(register for register in Register if register >= Register.CYCLES_LOW)
_HEADER_WORDS = 3  # magic, status, version


@dataclass(frozen=True)
class PrefillCycles:
    """Kernel cycles, summed over the runs of a call.

    ``index`` and ``attention`` are the phases of all KV heads; ``total`` is from start to the end
    of the last write, what lies between the phases included.
    """

    index: int = 0
    attention: int = 0
    total: int = 0

    def __add__(self, other: PrefillCycles) -> PrefillCycles:
        return PrefillCycles(**_sums(self, other))


@dataclass(frozen=True)
class PrefillCounters:
    """Event counts of one or more runs, as docs/registers_prefill.md defines them."""

    jobs_done: int = 0
    index_tiles: int = 0
    attention_steps: int = 0
    index_steps: int = 0
    cache_visits: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_hot: int = 0
    cache_cold: int = 0
    cache_bypasses: int = 0
    cache_evictions: int = 0
    cache_prefetches: int = 0
    q_beats: int = 0
    k_beats: int = 0
    v_beats: int = 0
    o_beats: int = 0
    jobs_beats_read: int = 0
    jobs_beats_written: int = 0
    bursts: int = 0
    starved_cycles: int = 0
    empty_rows: int = 0
    kv_heads_done: int = 0

    def __add__(self, other: PrefillCounters) -> PrefillCounters:
        return PrefillCounters(**_sums(self, other))


def _sums(one: Any, other: Any) -> dict[str, int]:
    return {f.name: getattr(one, f.name) + getattr(other, f.name) for f in fields(one)}


@dataclass(frozen=True)
class PrefillChecksums:
    """Sums modulo 2**32 of the words that went over each port in one direction."""

    q_checksum: int = 0
    k_checksum: int = 0
    v_checksum: int = 0
    o_checksum: int = 0
    jobs_read_checksum: int = 0
    jobs_written_checksum: int = 0


@dataclass(frozen=True)
class ResultBlock:
    """The 256 bytes that the kernel writes when a run ends: header, then the counter registers.

    ``intact`` says whether the words of the block add up to zero, as they must.
    """

    magic: int
    status: int
    version: int
    cycles: PrefillCycles
    counters: PrefillCounters
    runs: int
    checksums: PrefillChecksums = field(default_factory=PrefillChecksums)
    intact: bool = True

    @classmethod
    def parse(cls, block: Bytes) -> ResultBlock:
        """Read a result block, flat uint8 of 256 bytes."""
        words = block.view(np.uint32).tolist()
        by_name = {
            register.name: word
            for register, word in zip(_COUNTER_REGISTERS, words[_HEADER_WORDS:], strict=False)
        }
        values = {
            name.removesuffix(_LOW).lower(): word | by_name.get(wide_name(name), 0) << 32
            for name, word in by_name.items()
            if not name.endswith(_HIGH)
        }
        counters = {each.name: values[each.name] for each in fields(PrefillCounters)}
        checksums = {each.name: values[each.name] for each in fields(PrefillChecksums)}
        return cls(
            magic=words[0],
            status=words[1],
            version=words[2],
            cycles=PrefillCycles(
                values["index_cycles"], values["attention_cycles"], values["cycles"]
            ),
            counters=PrefillCounters(**counters),
            runs=values["runs"],
            checksums=PrefillChecksums(**checksums),
            intact=not sum(words) & 0xFFFFFFFF,
        )

    def to_bytes(self) -> Bytes:
        """Return the block as the kernel writes it."""
        values = {
            "index_cycles": self.cycles.index,
            "attention_cycles": self.cycles.attention,
            "cycles": self.cycles.total,
            "runs": self.runs,
            **asdict(self.counters),
            **asdict(self.checksums),
        }
        words = np.zeros(RESULT_BLOCK_BYTES // 4, np.uint32)
        words[:_HEADER_WORDS] = self.magic, self.status, self.version
        for place, register in enumerate(_COUNTER_REGISTERS, start=_HEADER_WORDS):
            high = register.name.endswith(_HIGH)
            name = register.name.removesuffix(_HIGH).removesuffix(_LOW).lower()
            words[place] = values[name] >> 32 if high else values[name] & 0xFFFFFFFF
        words[-1] = -checksum(words) & 0xFFFFFFFF
        return words.view(np.uint8)


def wide_name(low: str) -> str:
    """Return the name of the register with the upper half of a counter; none if it has 32 bits."""
    return low.removesuffix(_LOW) + _HIGH if low.endswith(_LOW) else ""


def status_name(code: int) -> str:
    """Name of a status code, also of one that the kernel should never give."""
    return Status(code).name if code in set(Status) else f"unknown status {code}"


@dataclass(frozen=True, eq=False)
class PrefillResult:
    """Output of one call, with its evidence: one run of the kernel or, for large tensors, several.

    Attributes
    ----------
    output : array [heads, tokens, head_dim], float32
    index_set : IndexSet
        Blocks that were attended to; those that the kernel chose are read back from its job lists.
    patterns : tuple of Pattern or None, one for each head
        None if the caller chose the blocks.
    divergences : array [heads], float64
        Jensen-Shannon divergence in nats that decided the pattern; NaN if the kernel did not
        choose the blocks.
    tokens : int
    kv_heads : int
    window : int
        Query blocks that were worked on together.
    cache : bool
        Whether K and V blocks were kept on chip for later uses.
    invocations : int
        Runs of the kernel.
    cycles : PrefillCycles
    counters : PrefillCounters
    seconds : Seconds
        Times of the host.
    provenance : Provenance
        Card, configuration and versions.
    """

    output: Float32Array
    index_set: IndexSet
    patterns: tuple[Pattern | None, ...]
    divergences: npt.NDArray[np.float64]
    tokens: int
    kv_heads: int
    window: int
    cache: bool
    invocations: int
    cycles: PrefillCycles
    counters: PrefillCounters
    seconds: Seconds
    provenance: Provenance

    @property
    def simulated(self) -> bool:
        """Whether the figures come from the simulated card."""
        return self.provenance.simulated

    @property
    def shape(self) -> PrefillShape:
        """Parameters of the kernel."""
        shape = self.provenance.shape
        assert isinstance(shape, PrefillShape)
        return shape

    @property
    def density(self) -> float:
        """Selected share of the causal blocks."""
        return self.index_set.density

    @property
    def mpu_utilisation(self) -> float:
        """Useful products over those that fit in the attention phases.

        Useful are the products of scores and of values of every selected tile, which the engine
        computes whole: a diagonal tile counts in full, although the mask takes half of it away.
        """
        available = self.cycles.attention * self.shape.macs_per_cycle
        return self.counters.jobs_done * self.shape.macs_per_job / available if available else 0.0

    @property
    def unmasked_share(self) -> float:
        """Share of these products that belong to a query and a key that it sees."""
        shape, index_set = self.shape, self.index_set
        sizes = np.full(index_set.blocks, shape.block)
        sizes[-1] = self.tokens - (index_set.blocks - 1) * shape.block
        rows = np.repeat(np.arange(len(index_set.offsets) - 1), np.diff(index_set.offsets))
        query_block = rows % index_set.blocks
        seen = sizes[query_block] * sizes[index_set.columns]
        diagonal = query_block == index_set.columns
        seen[diagonal] = (sizes * (sizes + 1) // 2)[query_block[diagonal]]
        return float(seen.sum() / (len(seen) * shape.block**2))

    @property
    def cache_hit_rate(self) -> float:
        """Share of the visits to a KV block that found it in the cache; 0 without a visit."""
        visits = self.counters.cache_visits
        return self.counters.cache_hits / visits if visits else 0.0

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes moved over each memory port; those of ``jobs`` are read and written."""
        beat, counters = self.shape.beat_bytes, self.counters
        return {
            "q": beat * counters.q_beats,
            "k": beat * counters.k_beats,
            "v": beat * counters.v_beats,
            "jobs": beat * (counters.jobs_beats_read + counters.jobs_beats_written),
            "o": beat * counters.o_beats,
        }

    def milliseconds(self, clock_mhz: float | None = None) -> float:
        """Kernel time of the call at a clock.

        Parameters
        ----------
        clock_mhz : float, optional
            Clock to assume; by default the card's own, so the simulated card needs it.
        """
        return self.cycles.total / (1000 * self.provenance.clock(clock_mhz))

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the output and the blocks as JSON types."""
        return {
            "tokens": self.tokens,
            "heads": self.index_set.heads,
            "kv_heads": self.kv_heads,
            "window": self.window,
            "cache": self.cache,
            "invocations": self.invocations,
            "cycles": asdict(self.cycles),
            "mpu_utilisation": self.mpu_utilisation,
            "unmasked_share": self.unmasked_share,
            "cache_hit_rate": self.cache_hit_rate,
            "memory_bytes": self.memory_bytes,
            "density": self.density,
            "patterns": [pattern and pattern.value for pattern in self.patterns],
            "divergences": [None if np.isnan(d) else float(d) for d in self.divergences],
            "counters": asdict(self.counters),
            "seconds": asdict(self.seconds),
            **self.provenance.to_dict(),
        }
