# SPDX-License-Identifier: Apache-2.0
"""Model of the prefill engine's KV cache: what it decides for each visit, and its counters.

The cache knows how often each KV block of a KV head will still be used, so it keeps blocks that
come again, gives a line back with the last use, and never drops a live one. Rules:
docs/prefill_engine.md, "Cache". Decisions depend on the order of the visits only, not on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from fastdelta.errors import RangeError


class Tier(Enum):
    """Half of the cache that a line belongs to."""

    HOT = "hot"
    COLD = "cold"


@dataclass(frozen=True)
class Visit:
    """Work on one KV block.

    Attributes
    ----------
    block
        KV block.
    jobs
        Jobs of the visit, by which the uses of the block go down.
    k_only
        Whether only K is needed and the block does not count as used, as in index generation.
    """

    block: int
    jobs: int
    k_only: bool = False


@dataclass(frozen=True)
class Decision:
    """What the cache does for a visit.

    Attributes
    ----------
    hit
        Whether K and V come from the cache.
    admitted
        Half that the blocks are written to while they pass by; None if they are not kept.
    freed
        Whether the line is given back after the visit.
    """

    hit: bool
    admitted: Tier | None = None
    freed: bool = False


@dataclass
class CacheCounters:
    """Counters of the cache; visits without V do not count.

    Attributes
    ----------
    visits, hits, misses
        Visits, and of these those from the cache and from memory.
    hot, cold
        Blocks admitted to each half.
    bypasses
        Misses of blocks with uses left, with the cache on, that found no free line.
    evictions
        Lines given back.
    """

    visits: int = 0
    hits: int = 0
    misses: int = 0
    hot: int = 0
    cold: int = 0
    bypasses: int = 0
    evictions: int = 0


@dataclass
class KVCache:
    """The cache.

    Attributes
    ----------
    lines
        Lines, each for K and V of one block, half hot and half cold: a power of two from 2 to 1024.
    hot_threshold
        A block belongs into the hot half if more jobs than this are left: 0 to 65535.
    enabled
        Whether anything is kept.
    counters
        Counters, which go on over KV heads.
    uses
        Jobs that are left of each block.
    resident
        Half that holds each block in the cache.

    Raises
    ------
    RangeError
        For a value outside these ranges.
    """

    lines: int
    hot_threshold: int
    enabled: bool = True
    counters: CacheCounters = field(default_factory=CacheCounters)
    uses: list[int] = field(default_factory=list)
    resident: dict[int, Tier] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 2 <= self.lines <= 1024 or self.lines & (self.lines - 1):
            raise RangeError(f"lines={self.lines}; allowed are powers of two from 2 to 1024")
        if not 0 <= self.hot_threshold <= 0xFFFF:
            raise RangeError(f"hot_threshold={self.hot_threshold}; allowed are 0 to 65535")

    def start(self, uses: Sequence[int]) -> None:
        """Begin a KV head: the cache is empty, and block ``b`` has ``uses[b]`` jobs to come."""
        self.uses = list(uses)
        self.resident = {}

    def free(self, tier: Tier) -> int:
        """Lines of a half that hold nothing."""
        return self.lines // 2 - list(self.resident.values()).count(tier)

    def visit(self, visit: Visit) -> Decision:
        """Decide for the next visit.

        Raises
        ------
        RangeError
            If the block has fewer uses left than the visit has jobs.
        """
        if visit.k_only:
            return Decision(hit=False)
        counters, block = self.counters, visit.block
        counters.visits += 1
        if not self.enabled:
            counters.misses += 1
            return Decision(hit=False)
        left = self.uses[block] - visit.jobs
        if left < 0:
            raise RangeError(
                f"a visit of {visit.jobs} jobs to block {block}, of which {self.uses[block]} are "
                "left; uses count every job"
            )
        self.uses[block] = left
        if block in self.resident:
            counters.hits += 1
            if left:
                return Decision(hit=True)
            del self.resident[block]
            counters.evictions += 1
            return Decision(hit=True, freed=True)
        counters.misses += 1
        if not left:
            return Decision(hit=False)
        if left > self.hot_threshold and self.free(Tier.HOT):
            counters.hot += 1
            self.resident[block] = Tier.HOT
        elif self.free(Tier.COLD):
            counters.cold += 1
            self.resident[block] = Tier.COLD
        else:
            counters.bypasses += 1
            return Decision(hit=False)
        return Decision(hit=False, admitted=self.resident[block])
