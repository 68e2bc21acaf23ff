# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of whole kernels: runs, ports, faults and the control protocol."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from fastdelta.registers import decode, prefill
from fastdelta_verif.agents.axi4_memory import PAGE_BYTES, Burst
from fastdelta_verif.agents.handshake import BACK_TO_BACK, THROTTLES
from fastdelta_verif.coverage import CoverageModel
from fastdelta_verif.covergroups import (
    SIMULATORS,
    Coverage,
    cross,
    rhythms,
    rhythms_at_once,
)
from fastdelta_verif.covergroups.cells import RESPONSES
from fastdelta_verif.covergroups.prefill import (
    GROUPS,
    TOKENS,
    WINDOWS,
    group_bin,
    tokens_bin,
    window_bin,
)

ANY = "any"  # command of a status that few runs end with
RESET_TIMES = ("before a burst", "with bursts", "after done")
WATCHDOGS = ("below 10", "10 to 29", "30 and more", "long enough")
LATENCIES = ("up to 5", "up to 20", "more")
LENGTHS = ("one beat", "2 to 15", "16 to 63", "64")
PROTOCOL = (
    "idle after reset",
    "constants",
    "addresses without a register",
    "bits that are read only",
    "byte strobes",
    "queued run",
    "counters read in a run",
    "event toggled on",
)
DECODE_PORTS = {"qk": "r", "v": "r", "o": "w"}
PREFILL_PORTS = {"q": "r", "k": "r", "v": "r", "jobs": "r", "jobs_write": "w", "o": "w"}
CHANNELS = {"r": ("ar", "r"), "w": ("aw", "w", "b")}


def token_count_bin(tokens: int) -> str:
    """Return the bin of the tokens of a decode."""
    return str(tokens) if tokens < 3 else "3 and more"


def _on_ports(ports: Mapping[str, str]) -> dict[str, tuple[Hashable, ...]]:
    """Return the points about memory ports, given as name and direction."""
    channels = [(port, channel) for port, kind in ports.items() for channel in CHANNELS[kind]]
    # The kernels take data and answers whenever they come.
    waits = [f"{port} {channel}" for port, channel in channels if channel not in ("r", "b")]
    never_wait = [f"{port} {channel}" for port, channel in channels if channel in ("r", "b")]
    return {
        "burst": cross(ports, LENGTHS),
        "burst_ends_page": cross(ports, ("no", "yes")),
        "stalls": cross(ports, THROTTLES),
        "latency": LATENCIES,
        "error": cross(ports, RESPONSES.values()),
        "stuck": tuple(channels),
        "rhythm": tuple(
            rhythm
            for rhythm in (*rhythms(*waits), *rhythms_at_once(*never_wait))
            if rhythm != ("jobs_write b", BACK_TO_BACK)  # a list is few bursts
        ),
    }


def _without(ports: Mapping[str, str], *names: str) -> dict[str, tuple[Hashable, ...]]:
    return {name: bins for name, bins in _on_ports(ports).items() if name not in names}


_DECODE_STATUSES = {
    "DECODE": ("BAD_TOKENS", "BAD_ADDRESS", "READ_ERROR", "WRITE_ERROR", "TIMEOUT", "CONTEXT_LOST"),
    "CLEAR": ("BAD_ADDRESS", "WRITE_ERROR"),
    "LOAD": ("BAD_ADDRESS", "READ_ERROR", "TIMEOUT", "BAD_STATE"),
    "DUMP": ("BAD_ADDRESS", "WRITE_ERROR", "TIMEOUT", "CONTEXT_LOST"),
}
DECODE_SHELL = CoverageModel(
    "decode_shell",
    {
        "status": (
            *[(c, s) for c, few in _DECODE_STATUSES.items() for s in ("OK", "BAD_CONTEXT", *few)],
            ("other", "BAD_COMMAND"),
        ),
        "after": cross(("OK", "failed"), ("OK", "failed")),
        "tokens": ("0", "1", "2", "3 and more"),
        "refused": ("command", "context", "tokens", "qk", "v", "o", "result"),
        "several_wrong": ("BAD_TOKENS", "BAD_CONTEXT", "BAD_COMMAND"),
        "unused_pointers": tuple(command.name for command in decode.Command),
        "result_block": ("not written", "first reason stays"),
        "lost_context": ("cleared", "loaded", "another one works"),
        "interrupts": cross(range(4), range(2)),
        "protocol": tuple(step for step in PROTOCOL if step != "counters read in a run"),
        "start_latency": ("qk", "v", "o"),
        "reset": RESET_TIMES,
        "watchdog": WATCHDOGS,
        "bus_width": (128, 256, 512),
        **_on_ports(DECODE_PORTS),
    },
)

_MODES = tuple(mode.name for mode in prefill.Mode)
_ARGUMENTS = {
    "mode": "BAD_MODE",
    "kv_heads": "BAD_SHAPE",
    "group": "BAD_SHAPE",
    "window": "BAD_SHAPE",
    "tokens": "BAD_TOKENS",
    "gamma": "BAD_PARAMETER",
    "divergence_limit": "BAD_PARAMETER",
    "min_blocks": "BAD_PARAMETER",
    "max_blocks": "BAD_PARAMETER",
    "hot_threshold": "BAD_PARAMETER",
    **dict.fromkeys(("q", "k", "v", "jobs", "o", "result", "job_stride"), "BAD_ADDRESS"),
}
LIMITS = ("one token", "a token less", "a block", "a token more", "largest group")
_RUN = {
    "mode": cross(_MODES, ("cache off", "cache on")),
    "mode_after": cross(_MODES, _MODES),
    "tokens": cross(_MODES, TOKENS),
    "group": cross(_MODES, GROUPS),
    "window": cross(_MODES, WINDOWS),
    "kv_heads": cross(_MODES, ("1", "2 and more")),
    "threshold": ("0", "between", "65535"),
}
PREFILL_SHELL = CoverageModel(
    "prefill_shell",
    {
        "status": (
            *cross(_MODES, ("OK", "READ_ERROR", "WRITE_ERROR", "TIMEOUT")),
            ("LIST", "BAD_JOB"),
            ("DENSE", "BAD_ADDRESS"),
            ("INDEX", "MAP_OVERFLOW"),
            *[("INDEX", s) for s in ("BAD_SHAPE", "BAD_TOKENS", "BAD_PARAMETER", "BAD_ADDRESS")],
            ("other", "BAD_MODE"),
        ),
        "after": cross(("OK", "failed"), ("OK", "failed")),
        "refused": tuple(_ARGUMENTS),
        "several_wrong": tuple(dict.fromkeys(_ARGUMENTS.values())),
        "unused_arguments": ("LIST", "DENSE"),
        "limits": (
            "largest parameters",
            "smallest parameters",
            "one token",
            "the longest prompt",
            "the largest group",
        ),
        "list_fault": cross(
            ("map overflow", "too long to write", "too long to read", "broken"),
            ("first KV head", "a later one"),
        ),
        "result_block": ("not written", "first reason stays"),
        "interrupts": cross(range(4), range(2)),
        "protocol": PROTOCOL,
        "block_rate": ("k", "v"),
        "reset": RESET_TIMES,
        "watchdog": WATCHDOGS,
        "bus_width": (64, 128, 512),
        **_RUN,
        **_on_ports(PREFILL_PORTS),
    },
)

PREFILL_KERNEL = CoverageModel(
    "prefill_kernel",
    {
        "status": (
            *cross(_MODES, ("OK",)),
            *cross((ANY,), ("READ_ERROR", "WRITE_ERROR", "TIMEOUT", "BAD_JOB")),
        ),
        "after": (("OK", "OK"), ("OK", "failed"), ("failed", "OK")),
        "pattern": ("vertical-slash", "query-aware", "both"),
        "cache": ("hits", "bypasses", "hot", "cold"),
        "ways": (
            "window of 1",
            "window of 2",
            "window of 4",
            "list of the host",
            "full coverage",
            "dense",
        ),
        "limit": (
            *cross(_MODES, LIMITS),
            ("INDEX", "the longest prompt"),
        ),
        "interrupted": (
            *cross(PREFILL_PORTS, ("error", "time-out")),
            ("jobs", "broken list"),
        ),
        "reset": RESET_TIMES,
        "simulator": SIMULATORS,
        **_RUN,
        # Bursts and faults of every kind are those of the kernel around stand-ins.
        **_without(PREFILL_PORTS, "stuck", "error", "burst", "burst_ends_page", "rhythm"),
        "rhythm": tuple(
            rhythm
            for rhythm in _on_ports(PREFILL_PORTS)["rhythm"]
            # A list of a short prompt is one burst, seldom two.
            if rhythm not in cross(("jobs ar", "jobs_write aw"), (BACK_TO_BACK,))
        ),
    },
)


class KernelCoverage(Coverage):
    """Samples runs of a kernel.

    Attributes
    ----------
    command
        Name of the command or mode of the run that was launched last; ``other`` for none.
    """

    command = "other"

    def __init__(self, name: str, parent: object, *models: CoverageModel) -> None:
        super().__init__(name, parent, *models)
        self._failed: bool | None = None
        self._mode = ""
        self._sent: dict[str, int] = {}

    def prefill_run(
        self, mode: str, tokens: int, block: int, group: int, window: int, kv_heads: int
    ) -> None:
        """Sample the shape of a run of the prefill kernel that went through."""
        self.hit("tokens", (mode, tokens_bin(tokens, block)))
        self.hit("group", (mode, group_bin(group)))
        self.hit("window", (mode, window_bin(window, -(-tokens // block))))
        self.hit("kv_heads", (mode, "1" if kv_heads == 1 else "2 and more"))
        if self._mode:
            self.hit("mode_after", (self._mode, mode))
        self._mode = mode

    def prefill_cache(self, mode: str, flags: int, threshold: int) -> None:
        """Sample the settings of the cache of a run."""
        self.hit("mode", (mode, "cache on" if flags & 1 else "cache off"))
        if flags & 1:
            self.hit("threshold", {0: "0", 0xFFFF: "65535"}.get(threshold, "between"))

    def ended(self, status: str) -> None:
        """Sample the status of a run."""
        value = (self.command, status)
        self.hit("status", value if value in self.bins("status") else (ANY, status))
        failed = status != "OK"
        if self._failed is not None:
            words = ("OK", "failed")
            self.hit("after", (words[self._failed], words[failed]))
        self._failed = failed

    def forget(self) -> None:
        """Note a reset: what was before does not count."""
        self._failed, self._mode = None, ""

    def memory(self, name: str, mode: str, latency: int) -> None:
        """Sample how the memory of a port stalls, and its longest latency in cycles."""
        self.hit("stalls", (name, mode))
        self.hit("latency", LATENCIES[sum(latency > limit for limit in (5, 20))])

    def errors(self, name: str, sent: int, responses: Iterable[int]) -> None:
        """Sample the error answers of a port's memory since the last call."""
        if sent > self._sent.get(name, 0):
            for response in set(responses) if self.bins("error") else ():
                self.hit("error", (name, RESPONSES[response]))
        self._sent[name] = sent

    def bursts(self, bursts: Sequence[Burst], beat_bytes: int, both: Iterable[str]) -> None:
        """Sample bursts; ``both`` has the ports that read and write."""
        for burst in bursts if self.bins("burst") else ():
            name = burst.port.removeprefix("m_axi_")
            if burst.write and name in both:
                name += "_write"
            beats = burst.beats
            short = "one beat" if beats == 1 else "2 to 15"
            self.hit("burst", (name, short if beats < 16 else "16 to 63" if beats < 64 else "64"))
            end = burst.address + beats * beat_bytes
            self.hit("burst_ends_page", (name, "no" if end % PAGE_BYTES else "yes"))

    def reset(self, *, started: bool, done: bool) -> None:
        """Sample a reset in a run."""
        self.hit("reset", "after done" if done else RESET_TIMES[started])

    def watchdog(self, cycles: int) -> None:
        """Sample a watchdog that ended a run."""
        self.hit("watchdog", WATCHDOGS[0 if cycles < 10 else 1 if cycles < 30 else 2])
