# SPDX-License-Identifier: Apache-2.0
"""Shapes of the engines: the only place where sizes are validated.

Every size of the RTL is a parameter; a shape object holds one consistent set of them and the
packet sizes that follow (docs/decode_engine.md).
"""

from __future__ import annotations

from dataclasses import dataclass


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
