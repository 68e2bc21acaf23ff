# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of the cells that all kernels use: stream buffers and AXI4 movers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from fastdelta_verif.agents.axi4_memory import DECERR, PAGE_BYTES, SLVERR, Burst
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.coverage import CoverageModel
from fastdelta_verif.covergroups import (
    SIMULATORS,
    Coverage,
    cross,
    place_in,
    rhythms,
    rhythms_at_once,
)

STREAM_REGISTER = CoverageModel("stream_register", {"rhythm": rhythms("source", "sink")})

STREAM_BUFFER = CoverageModel(
    "stream_buffer",
    {
        "cell": cross(("skid_buffer", "stream_fifo"), ("a bit or byte", "wide")),
        "stalls": cross(THROTTLES, THROTTLES),
        "level": ("empty", "between", "full"),
        "emptied": (
            *cross(("reset",), ("empty", "holding beats")),
            *cross(("flush",), ("empty", "holding beats")),
        ),
        "rhythm": rhythms("source", "sink"),
        "simulator": SIMULATORS,
    },
)

BEAT_CHECKSUM = CoverageModel(
    "beat_checksum",
    {
        "width": (64, 128, 512, 1024),
        "beats": cross(("random", "all ones", "one bit"), ("in a row", "with gaps")),
        "cleared": (0, 1, 2),  # cycles since the last beat
    },
)

BLOCK_CHECK = CoverageModel(
    "block_check",
    {
        "stalls": cross(THROTTLES, THROTTLES),
        "check_beat": ("sink blocked",),
        "cut_off": cross(("flush", "reset"), ("whole", "cut")),
        "rhythm": rhythms("source", "sink"),
        "simulator": SIMULATORS,
    },
)

RESPONSES = {SLVERR: "SLVERR", DECERR: "DECERR"}
LATENCIES = ("up to 3", "up to 20", "up to 127", "128 and more")


def _mover(name: str, other: Mapping[str, tuple[Hashable, ...]]) -> CoverageModel:
    return CoverageModel(
        name,
        {
            "width": (32, 128, 256, 512),
            "transfer": ("no beats", "one beat", "one burst", "several bursts"),
            "burst": ("one beat", "between", "the longest"),
            "page": ("inside", "begins one", "ends one", "in two", "over a whole one"),
            "upper_address": ("stays", "carries"),
            "stalls": cross(THROTTLES, THROTTLES),
            "latency": LATENCIES,
            "command": ("to an idle mover", "in a row"),
            "error": cross(RESPONSES.values(), ("first", "between", "last")),
            "cancel": cross(("one cycle", "until idle"), ("no burst yet", "with bursts")),
            "reset": ("no burst yet", "with bursts"),
            "rate": ("one command", "commands in a row"),
            "simulator": SIMULATORS,
            **other,
        },
    )


READ_MOVER = _mover(
    "axi_read_mover",
    {
        "blocked": ("sink that takes nothing",),
        "rhythm": (*rhythms("ar", "stream"), *rhythms_at_once("r")),
    },
)
WRITE_MOVER = _mover(
    "axi_write_mover",
    {
        "order": ("any", "aw_after_w", "w_after_aw"),
        "data": ("before its command", "after its command"),
        "late_answer": ("one burst", "several bursts"),
        "rhythm": (*rhythms("aw", "w", "stream"), *rhythms_at_once("b")),
    },
)


class MoverCoverage(Coverage):
    """Samples a mover's transfers and bursts."""

    def latency(self, most: int) -> None:
        """Sample the longest latency of a memory, in cycles."""
        limits = (3, 20, 127)
        self.hit("latency", LATENCIES[sum(most > limit for limit in limits)])

    def transfer(self, address: int, beats: int, beat_bytes: int, bursts: int) -> None:
        """Sample a transfer: its place and how many bursts it takes."""
        size = "no beats" if beats == 0 else "one beat" if beats == 1 else "one burst"
        self.hit("transfer", "several bursts" if bursts > 1 else size)
        if beats == 0:
            return
        end = address + beats * beat_bytes
        first, last = address // PAGE_BYTES, (end - 1) // PAGE_BYTES
        pages = ("inside", "in two", "over a whole one")
        self.hit("page", pages[min(last - first, 2)])
        if address % PAGE_BYTES == 0:
            self.hit("page", "begins one")
        if end % PAGE_BYTES == 0:
            self.hit("page", "ends one")
        self.hit("upper_address", "stays" if address >> 32 == (end - 1) >> 32 else "carries")

    def burst(self, burst: Burst, longest: int) -> None:
        """Sample a burst; one beat is the longest of a mover that has no longer ones."""
        if burst.beats == longest and longest > 1:
            self.hit("burst", "the longest")
        else:
            self.hit("burst", "one beat" if burst.beats == 1 else "between")

    def error(self, response: int, beat: int, beats: int) -> None:
        """Sample an error answer at a beat of a transfer."""
        self.hit("error", (RESPONSES[response], place_in(beat, beats)))
