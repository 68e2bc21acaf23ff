# SPDX-License-Identifier: Apache-2.0
"""Shapes of the engines: the only place where sizes are validated.

Every size of the RTL is a parameter; a shape object holds one consistent set of them and the
sizes in memory that follow (docs/decode_engine.md, docs/prefill_engine.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


@dataclass(frozen=True)
class DecodeShape:
    """Parameters of one decode kernel; the defaults are Qwen3-Next's layer on one U55C.

    Attributes
    ----------
    head_dim
        Key and value dimension d of a head: 16 to 128, a multiple of 16.
    qk_heads
        Query/key heads: 1 to 64.
    group_ratio
        Value heads per query/key head: 1, 2 or 4. Value head h reads query/key head
        ``h // group_ratio``.
    h_iter
        Value heads computed at once: 1 to 16; divides ``value_heads`` and is a multiple or a
        divisor of ``group_ratio``.
    contexts
        Resident states (layer x sequence): 1 to 64.
    bus_width
        Width of every stream and memory port in bits: 128, 256 or 512.

    Raises
    ------
    ValueError
        For an illegal combination; the message names the rule.
    """

    head_dim: int = 128
    qk_heads: int = 16
    group_ratio: int = 2
    h_iter: int = 8
    contexts: int = 1
    bus_width: int = 512

    def __post_init__(self) -> None:
        _require(
            self.head_dim % 16 == 0 and 16 <= self.head_dim <= 128,
            f"head_dim={self.head_dim}: allowed are multiples of 16 from 16 to 128",
        )
        _require(1 <= self.qk_heads <= 64, f"qk_heads={self.qk_heads}: allowed are 1 to 64")
        _require(
            self.group_ratio in (1, 2, 4),
            f"group_ratio={self.group_ratio}: allowed are 1, 2 and 4",
        )
        _require(1 <= self.h_iter <= 16, f"h_iter={self.h_iter}: allowed are 1 to 16")
        _require(
            self.value_heads % self.h_iter == 0,
            f"h_iter={self.h_iter} must divide the {self.value_heads} value heads",
        )
        _require(
            self.h_iter % self.group_ratio == 0 or self.group_ratio % self.h_iter == 0,
            f"h_iter={self.h_iter} must be a multiple or a divisor of "
            f"group_ratio={self.group_ratio}",
        )
        _require(1 <= self.contexts <= 64, f"contexts={self.contexts}: allowed are 1 to 64")
        _require(
            self.bus_width in (128, 256, 512),
            f"bus_width={self.bus_width}: allowed are 128, 256 and 512",
        )

    @property
    def value_heads(self) -> int:
        """Value heads of a layer."""
        return self.qk_heads * self.group_ratio

    @property
    def passes(self) -> int:
        """State passes a token: groups of ``h_iter`` value heads."""
        return self.value_heads // self.h_iter

    @property
    def beat_bytes(self) -> int:
        """Bytes of one beat; every buffer address is a multiple of it."""
        return self.bus_width // 8

    @property
    def word_beats(self) -> int:
        """Beats of a vector of ``head_dim`` 32-bit words."""
        return _ceil_div(self.head_dim, self.bus_width // 32)

    @property
    def qk_packet_beats(self) -> int:
        """Beats of one q/k packet: record and interleaved mantissas."""
        return 1 + _ceil_div(self.head_dim, self.bus_width // 32)

    @property
    def v_packet_beats(self) -> int:
        """Beats of one v packet: record and mantissas."""
        return 1 + _ceil_div(self.head_dim, self.bus_width // 16)

    @property
    def state_packet_beats(self) -> int:
        """Beats of one head's state: record and ``head_dim`` rows of words."""
        return 1 + self.head_dim * self.word_beats

    @property
    def qk_token_bytes(self) -> int:
        """Bytes of one token on the q/k port."""
        return self.qk_heads * self.qk_packet_beats * self.beat_bytes

    @property
    def v_token_bytes(self) -> int:
        """Bytes of one token on the v port."""
        return self.value_heads * self.v_packet_beats * self.beat_bytes

    @property
    def o_token_bytes(self) -> int:
        """Bytes of one token on the output port."""
        return self.value_heads * self.word_beats * self.beat_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of one context's state as loaded and dumped."""
        return self.value_heads * self.state_packet_beats * self.beat_bytes


BUFFER_ALIGNMENT = 64
"""Every buffer of the prefill kernel starts at a multiple of so many bytes."""

JOB_SECTION_WORDS = 16
"""Sections of a job list are padded to a multiple of so many 32-bit words."""


@dataclass(frozen=True)
class PrefillShape:
    """Parameters of one prefill kernel; the defaults are those of docs/prefill_engine.md.

    Attributes
    ----------
    head_dim
        Dimension d of a head: 16 to 256, a multiple of ``array_columns`` and of the bytes of a
        beat.
    strips
        Servers of the matrix unit: 1 to 4.
    row_arrays, lut_arrays
        Arrays stacked in a server, 1 to 16, and how many of them have no DSP blocks.
    array_rows, array_columns
        Rows and columns of an array: 2 to 64 each.
    slots
        Keyed accumulators, query heads of a KV head times query blocks of a window: a power of
        two, 2 to 64.
    kv_buffers
        K and V blocks beside the arrays: 2 to 8.
    cache_lines
        Lines of the KV cache, one K and one V block each: a power of two, 2 to 1024.
    max_blocks
        Blocks of the longest prompt: a power of two, 2 to 2048.
    max_group
        Most query heads of a KV head: 1 to 8.
    bus_width
        Bits of every memory port's beats: 64 to 512, a power of two; its bytes divide a block.
    map_entries
        Entries of the largest map of a query-aware head, ``N (N + 1) / 2`` with N blocks: 3 to
        2,098,176.

    Raises
    ------
    ValueError
        For an illegal combination; the message names the rule.
    """

    head_dim: int = 128
    strips: int = 3
    row_arrays: int = 4
    lut_arrays: int = 2
    array_rows: int = 32
    array_columns: int = 32
    slots: int = 16
    kv_buffers: int = 4
    cache_lines: int = 256
    max_blocks: int = 256
    max_group: int = 8
    bus_width: int = 512
    map_entries: int = 32_896

    def __post_init__(self) -> None:
        for name, low, high in (
            ("head_dim", 16, 256),
            ("strips", 1, 4),
            ("row_arrays", 1, 16),
            ("lut_arrays", 0, self.row_arrays),
            ("array_rows", 2, 64),
            ("array_columns", 2, 64),
            ("slots", 2, 64),
            ("kv_buffers", 2, 8),
            ("cache_lines", 2, 1024),
            ("max_blocks", 2, 2048),
            ("max_group", 1, 8),
            ("bus_width", 64, 512),
            ("map_entries", 3, 2_098_176),
        ):
            value = getattr(self, name)
            _require(low <= value <= high, f"{name}={value}: allowed are {low} to {high}")
        for name in ("slots", "cache_lines", "max_blocks", "bus_width"):
            value = getattr(self, name)
            _require(value & (value - 1) == 0, f"{name}={value}: it must be a power of two")
        _require(
            8 <= self.block <= 128,
            f"row_arrays={self.row_arrays} times array_rows={self.array_rows} is a block of "
            f"{self.block} tokens: allowed are 8 to 128",
        )
        _require(
            self.head_dim % self.array_columns == 0,
            f"head_dim={self.head_dim} must be a multiple of array_columns={self.array_columns}",
        )
        _require(
            self.block % self.beat_bytes == 0 and self.head_dim % self.beat_bytes == 0,
            f"bus_width={self.bus_width}: its {self.beat_bytes} bytes must divide the block of "
            f"{self.block} tokens and head_dim={self.head_dim}",
        )

    @property
    def block(self) -> int:
        """Tokens of a block, B."""
        return self.row_arrays * self.array_rows

    @property
    def beat_bytes(self) -> int:
        """Bytes of one beat."""
        return self.bus_width // 8

    @property
    def max_tokens(self) -> int:
        """Tokens of the longest prompt."""
        return self.max_blocks * self.block

    @property
    def macs_per_cycle(self) -> int:
        """Products that the matrix unit can add up in a cycle."""
        return self.strips * self.block * self.array_columns

    @property
    def macs_per_job(self) -> int:
        """Products of one query block with one KV block: scores and values, whole tiles."""
        return 2 * self.block * self.block * self.head_dim

    def blocks(self, tokens: int) -> int:
        """Blocks of a prompt, a ragged last one included."""
        return _ceil_div(tokens, self.block)

    def window(self, group: int) -> int:
        """Query blocks of the largest window for a group of query heads; 0 if not even one fits."""
        blocks = self.slots // group
        return 1 << (blocks.bit_length() - 1) if blocks else 0

    @property
    def q_block_bytes(self) -> int:
        """Bytes of one query block: multipliers, exponents and channels, and a check beat."""
        return (3 + self.head_dim) * self.block + self.beat_bytes

    @property
    def k_block_bytes(self) -> int:
        """Bytes of one key block: shifts and channels, and a check beat."""
        return (1 + self.head_dim) * self.block + self.beat_bytes

    @property
    def v_block_bytes(self) -> int:
        """Bytes of one value block, with a check beat."""
        return self.head_dim * self.block + self.beat_bytes

    @property
    def o_block_bytes(self) -> int:
        """Bytes of one output block."""
        return 2 * self.head_dim * self.block

    def q_head_bytes(self, tokens: int) -> int:
        """Bytes of one query head: its blocks, and the representative queries as one more."""
        return (self.blocks(tokens) + 1) * self.q_block_bytes

    def k_head_bytes(self, tokens: int) -> int:
        """Bytes of the keys of one KV head."""
        return self.blocks(tokens) * self.k_block_bytes

    def v_head_bytes(self, tokens: int) -> int:
        """Bytes of the values of one KV head."""
        return self.blocks(tokens) * self.v_block_bytes

    def o_head_bytes(self, tokens: int) -> int:
        """Bytes of the outputs of one query head."""
        return self.blocks(tokens) * self.o_block_bytes


SMALL_DECODE: Final = DecodeShape(
    head_dim=16, qk_heads=2, group_ratio=2, h_iter=2, contexts=3, bus_width=128
)
"""A decode kernel that is built in seconds, for checks of everything but speed."""

SMALL_PREFILL: Final = PrefillShape(
    head_dim=32,
    strips=1,
    row_arrays=2,
    lut_arrays=1,
    array_rows=8,
    array_columns=8,
    slots=8,
    cache_lines=8,
    max_blocks=32,
    max_group=4,
    bus_width=128,
    map_entries=300,
)
"""A prefill kernel that is built in seconds, with blocks of 16 tokens."""
