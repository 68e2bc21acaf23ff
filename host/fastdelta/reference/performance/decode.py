# SPDX-License-Identifier: Apache-2.0
"""Performance of the decode kernel: a recursion over the passes of its tokens.

Cycles are those of rtl/decode: decode_sequencer, decode_core, decode_qk, decode_gates,
decode_output, and of the movers.
"""

from __future__ import annotations

import math
from typing import Literal

from fastdelta.errors import InputError
from fastdelta.reference.performance.calibration import calibration_error
from fastdelta.reference.performance.memory import MOVER_CYCLES, MemoryTiming
from fastdelta.reference.performance.results import DecodePerformance
from fastdelta.shapes import DecodeShape

Command = Literal["decode", "clear", "load", "dump"]

POST_COLUMNS = 2
BUNDLES = 4
"""Bundles of q and k, or of v, that the core holds."""
LAUNCH = 2
"""Cycle in which the movers and the core get their commands; start is cycle 0."""
QK_CYCLES = 14
GATE_CYCLES = 26
HOLD_CYCLES = 5
FINISH_CYCLES = 9
WRITE_CYCLES = 5
"""From a beat at the write mover to the end of the run, beside the latency of the write."""
EXACT_TOKENS = 64
"""Tokens that the recursion runs over; the steady state goes on beyond them."""
_SHORT = 32


def decode_performance(
    shape: DecodeShape,
    memory: MemoryTiming | None = None,
    *,
    tokens: int = 64,
    command: Command = "decode",
) -> DecodePerformance:
    """Model a run of the decode kernel.

    Parameters
    ----------
    shape : DecodeShape
    memory : MemoryTiming, optional
        Ports of the memory; by default the simulated card's.
    tokens : int
        Tokens of the run, 1 or more.
    command : {"decode", "clear", "load", "dump"}

    Raises
    ------
    InputError
        If there is no token.
    """
    memory = memory or MemoryTiming()
    if tokens < 1:
        raise InputError(f"tokens is {tokens}; give 1 or more")
    if command != "decode":
        return _other(shape, memory, command)
    exact = min(tokens, EXACT_TOKENS)
    ends = _run(shape, memory, max(exact, EXACT_TOKENS))
    steady = (ends[EXACT_TOKENS - 1] - ends[_SHORT - 1]) / (EXACT_TOKENS - _SHORT)
    cycles = ends[exact - 1] + (tokens - exact) * steady
    beat = shape.beat_bytes
    qk, v, o = (memory.port(name).beat_cycles(beat) for name in ("qk", "v", "o"))
    phases = {
        "qk_port": shape.qk_token_bytes / beat * qk,
        "v_port": shape.v_token_bytes / beat * v,
        "passes": float(shape.passes * shape.head_dim),
        "o_port": shape.o_token_bytes / beat * o,
    }
    return DecodePerformance(
        shape=shape,
        tokens=tokens,
        command=command,
        cycles=round(cycles),
        cycles_per_token=steady,
        first_token_cycles=round(ends[0]),
        phases=phases,
        bound=max(phases, key=phases.__getitem__),
        memory_bytes={
            "qk": tokens * shape.qk_token_bytes,
            "v": tokens * shape.v_token_bytes,
            "o": tokens * shape.o_token_bytes,
        },
        utilisation=tokens * shape.passes * shape.head_dim / cycles,
        calibration=calibration_error("decode"),
    )


class _Intake:
    """Bundles of one stream: each is taken when there is room, beats in order."""

    def __init__(self, beats: int, beat_cycles: float, first: float) -> None:
        self.beats = beats
        self.beat_cycles = beat_cycles
        self.first = first
        self.written: list[float] = []
        self.last_record: list[float] = []

    def bundle(self, room: float, record: int) -> None:
        """Take the next bundle from `room` on; `record` is the place of its last record beat."""
        number = len(self.written)
        begin = max(self.written[-1] + 1 if number else self.first, room)
        arrival = math.ceil(self.first + number * self.beats * self.beat_cycles)
        rest = math.ceil((self.beats - 1) * self.beat_cycles)
        last = max(begin + self.beats - 1, arrival + rest)
        self.written.append(last)
        self.last_record.append(last - (self.beats - 1 - record))


def _run(shape: DecodeShape, memory: MemoryTiming, tokens: int) -> list[float]:
    """Cycles of runs of 1, 2, ... tokens, to the end of their last write."""
    d, beat, h_iter = shape.head_dim, shape.beat_bytes, shape.h_iter
    qk_slots = max(h_iter // shape.group_ratio, 1)
    passes_per_qk = max(shape.group_ratio // h_iter, 1)
    ports = {name: memory.port(name) for name in ("qk", "v", "o")}
    qk, v = (
        _Intake(
            beats,
            ports[name].read_beat_cycles(beat),
            LAUNCH + MOVER_CYCLES + ports[name].read_latency,
        )
        for name, beats in (
            ("qk", qk_slots * shape.qk_packet_beats),
            ("v", h_iter * shape.v_packet_beats),
        )
    )
    o_beat = ports["o"].beat_cycles(beat)
    columns = d // POST_COLUMNS
    beat_columns = shape.bus_width // 32 // POST_COLUMNS
    passes = shape.passes
    last_v_record = (h_iter - 1) * shape.v_packet_beats
    qk_released: list[float] = []
    v_released: list[float] = []
    sent: list[float] = []
    pass_end = sums_free = 0.0
    read = 0.0  # last beat that left the output buffer
    ends: list[float] = []
    for number in range(tokens * passes):
        bundle = number // passes_per_qk
        if bundle == len(qk.written):
            room = qk_released[bundle - BUNDLES] + 1 if bundle >= BUNDLES else 0.0
            qk.bundle(room, 0)
        room = v_released[number - BUNDLES] + 1 if number >= BUNDLES else 0.0
        v.bundle(room, last_v_record)
        ready = max(
            qk.written[bundle] + QK_CYCLES + 1,
            v.written[number] + 1,
            v.last_record[number] + GATE_CYCLES + 1,
        )
        if passes == 1:
            ready = max(ready, sums_free)
        begin = max(ready, pass_end + 1)
        pass_end = max(begin + d - 1, sums_free)
        if number % passes_per_qk == passes_per_qk - 1:
            qk_released.append(pass_end)
        start = pass_end + HOLD_CYCLES
        if number >= 2:
            start = max(start, sent[number - 2] + 1)
        complete = start + columns + FINISH_CYCLES + 1
        v_released.append(complete)
        sums_free = complete + 1
        # The first head's beats leave as they are whole, the others' behind them.
        for place in range(shape.word_beats):
            whole = start + FINISH_CYCLES + (place + 1) * beat_columns
            read = max(read + o_beat, whole + 1)
        read += (h_iter - 1) * shape.word_beats * o_beat
        sent.append(read + 1)
        if number % passes == passes - 1:
            ends.append(math.ceil(read) + 1 + WRITE_CYCLES + ports["o"].write_latency)
    return ends


def _other(shape: DecodeShape, memory: MemoryTiming, command: Command) -> DecodePerformance:
    beats = shape.value_heads * shape.state_packet_beats
    moved = {"qk": 0, "v": 0, "o": 0}
    heads, d = shape.value_heads, shape.head_dim
    if command == "clear":
        cycles: float = LAUNCH + heads + 3
    elif command == "load":
        port = memory.port("v")
        moved["v"] = shape.state_bytes
        first = LAUNCH + MOVER_CYCLES + port.read_latency
        cycles = first + math.ceil((beats - 1) * port.read_beat_cycles(shape.beat_bytes)) + 5
    else:
        port = memory.port("o")
        moved["o"] = shape.state_bytes
        settle = shape.passes * (2 * shape.h_iter + d + 5)
        send = max(heads * d * (shape.word_beats + 1), beats * port.beat_cycles(shape.beat_bytes))
        cycles = LAUNCH + 1 + settle + math.ceil(send) + WRITE_CYCLES + port.write_latency
    return DecodePerformance(
        shape=shape,
        tokens=0,
        command=command,
        cycles=round(cycles),
        cycles_per_token=0.0,
        first_token_cycles=0,
        phases={},
        bound="",
        memory_bytes=moved,
        utilisation=0.0,
        calibration=calibration_error("decode"),
    )
