# SPDX-License-Identifier: Apache-2.0
"""What the performance model returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fastdelta.prefill.results import PrefillCycles
from fastdelta.shapes import DecodeShape, PrefillShape


@dataclass(frozen=True)
class CalibrationError:
    """Error of the model's cycles against the RTL.

    Attributes
    ----------
    median, worst
        Of the magnitude, relative, over configurations that were not used to fit.
    configurations
        Measured in all.
    held_out
        Of these, not used to fit.
    """

    median: float
    worst: float
    configurations: int
    held_out: int


@dataclass(frozen=True)
class PrefillPerformance:
    """One attention layer on the prefill kernel.

    Attributes
    ----------
    shape, tokens, heads, kv_heads, window, cache
        What is modelled.
    mode
        ``"list"``: the caller chose the blocks; ``"index"``: the kernel; ``"dense"``: all blocks.
    cycles
        As the kernel counts them, rounded.
    phases
        Cycles by phase: ``statistics``, ``scores``, ``divergence``, ``map``, ``selection`` and
        ``list`` of the index phases, ``list_header`` and ``work`` of the attention phases, and
        ``control`` between them.
    memory_bytes
        Bytes moved over each port; those of ``jobs`` are read and written.
    jobs, sampled_jobs
        Tiles of the attention phases, and those over which the recursion ran.
    visits, hits, misses, bypasses
        Of the KV cache.
    attention_steps, index_steps
        Steps of the matrix unit, over all strips.
    index_tiles
        Score tiles of the index phases.
    calibration
        Error of the model.
    """

    shape: PrefillShape
    tokens: int
    heads: int
    kv_heads: int
    window: int
    cache: bool
    mode: str
    cycles: PrefillCycles
    phases: dict[str, float]
    memory_bytes: dict[str, int]
    jobs: int
    sampled_jobs: int
    visits: int
    hits: int
    misses: int
    bypasses: int
    attention_steps: int
    index_steps: int
    index_tiles: int
    calibration: CalibrationError

    @property
    def mpu_utilisation(self) -> float:
        """Products of the selected tiles over those that fit in the attention phases."""
        available = self.cycles.attention * self.shape.macs_per_cycle
        return self.jobs * self.shape.macs_per_job / available if available else 0.0

    @property
    def cache_hit_rate(self) -> float:
        """Share of the visits that find their block in the cache."""
        return self.hits / self.visits if self.visits else 0.0

    @property
    def density(self) -> float:
        """Selected share of the causal blocks."""
        blocks = self.shape.blocks(self.tokens)
        return self.jobs / (self.heads * blocks * (blocks + 1) // 2)

    @property
    def bytes_per_cycle(self) -> float:
        """Memory traffic of all ports over all cycles."""
        return sum(self.memory_bytes.values()) / self.cycles.total

    def milliseconds(self, clock_mhz: float) -> float:
        """Time at a clock."""
        return self.cycles.total / (1000 * clock_mhz)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        return {
            **asdict(self),
            "mpu_utilisation": self.mpu_utilisation,
            "cache_hit_rate": self.cache_hit_rate,
            "density": self.density,
            "bytes_per_cycle": self.bytes_per_cycle,
        }


@dataclass(frozen=True)
class DecodePerformance:
    """A run of the decode kernel.

    Attributes
    ----------
    shape, tokens
        What is modelled.
    command
        ``"decode"``, ``"clear"``, ``"load"`` or ``"dump"``.
    cycles
        Of the run, from start to the end of the last write.
    cycles_per_token
        In the steady state; 0 for other commands than decode.
    first_token_cycles
        Of a run of one token; 0 for other commands.
    phases
        Cycles a token that each of ``qk_port``, ``v_port``, ``passes`` and ``o_port`` would take
        on its own; they overlap, and the greatest is the bound.
    bound
        Name of the greatest.
    memory_bytes
        Bytes moved over each port in the run.
    utilisation
        Share of the cycles in which a row of the state passes the lanes.
    calibration
        Error of the model.
    """

    shape: DecodeShape
    tokens: int
    command: str
    cycles: int
    cycles_per_token: float
    first_token_cycles: int
    phases: dict[str, float]
    bound: str
    memory_bytes: dict[str, int]
    utilisation: float
    calibration: CalibrationError

    def microseconds_per_token(self, clock_mhz: float) -> float:
        """Steady state at a clock."""
        return self.cycles_per_token / clock_mhz

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        return asdict(self)
