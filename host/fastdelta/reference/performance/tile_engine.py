# SPDX-License-Identifier: Apache-2.0
"""Timeline of the arrays, the softmax, the accumulators and the outputs of the tile engine.

A recursion over tasks in the order in which they enter the queue of the matrix unit. Every cycle
named here is that of rtl/prefill: tile_issue, matrix_unit and its strips and drains, tile_softmax,
row_statistics, keyed_accumulator, attention_output. A task depends on tasks before it only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from fastdelta.shapes import PrefillShape

TILES = 4
TASK_QUEUE = 4
RESULT_CYCLES = 6
"""From the request of a task's last step to its result (operand latency 2)."""
SETTLE_CYCLES = 4
"""From the last score column of a tile to the hand-over to the second pass of the softmax."""
SPREAD_CYCLES = 4
"""From the last column of the second pass to the end of its pipeline."""
DIVISION_CYCLES = 8
WRITE_BUFFER_BEATS = 64
_START_OF_TIME = -(10**6)


class Outputs:
    """`attention_output`: reciprocals, then words of the accumulators that become beats.

    The words are read in cycles in which no value column is added; the port of the outputs takes
    `beat_cycles` cycles for each of their beats.
    """

    def __init__(self, shape: PrefillShape, beat_cycles: float) -> None:
        self.rows = shape.block
        self.words = shape.head_dim
        self.word_cycles = shape.block * 2 // shape.beat_bytes
        self.beat_cycles = beat_cycles
        self.beats = self.words * self.word_cycles
        self.written = float(_START_OF_TIME)  # last part of the last block
        self._sent = float(_START_OF_TIME)  # and when it has left the buffer of the write mover
        self._written_before = float(_START_OF_TIME)
        self._divided = float(_START_OF_TIME)
        self._waiting: deque[tuple[int, float]] = deque()  # number and cycle of finished slots
        self._taken: deque[tuple[float, float]] = deque()  # when value columns are added
        self._released: dict[int, float] = {}
        self.finished = 0
        self.run_values: Callable[[float], None] = lambda _: None  # of the tile engine

    def add(self, first: float, last: float) -> None:
        """Value columns are added from `first` to `last`."""
        self._taken.append((first, last))

    def finish(self, time: float) -> int:
        """Queue a slot whose last tile is done at `time`; return its number."""
        self._waiting.append((self.finished, time))
        self.finished += 1
        return self.finished - 1

    def release(self, number: int) -> float:
        """Cycle in which the slot of that number is seen to be free."""
        while number not in self._released:
            self._write()
        return self._released.pop(number)

    def drain(self) -> float:
        """Write what is left; return the cycle of the last part."""
        while self._waiting:
            self._write()
        return max(self.written, math.ceil(self._sent))

    def _write(self) -> None:
        number, time = self._waiting.popleft()
        settled = self.rows + DIVISION_CYCLES
        divide = max(time + 2, self._divided + settled, self._written_before + 1)
        self._divided = divide
        begin = max(divide + settled, self.written + 1)
        read, current = begin + 1, begin + 4 - self.word_cycles
        taken, pitch, left = self._taken, self.word_cycles, self.words
        steady = False
        while True:
            while taken and taken[0][1] < read:
                taken.popleft()
            if not taken:
                # Value tasks that are offered before the slot is free wait for nothing behind it.
                self.run_values(read + (left - 1) * pitch)
                if taken:
                    continue
            if taken and taken[0][0] <= read:
                read = taken[0][1] + 1
                steady = False
                continue
            if steady and pitch >= 2 and left > 1:
                ahead = left - 1
                if taken:
                    ahead = min(ahead, int((taken[0][0] - read - 1) // pitch))
                if ahead > 0:
                    read += ahead * pitch
                    current += ahead * pitch
                    left -= ahead
                    steady = False
                    continue
            steady = read + 3 <= current + pitch
            current = max(read + 3, current + pitch)
            left -= 1
            if left == 0:
                break
            read = max(read + 2, current - 1)
        last = current + pitch - 1
        if self.beat_cycles > 1:
            # The buffer takes part of a block at full speed, the rest waits for memory.
            start = max(begin, self._sent)
            late = start + (self.beats - WRITE_BUFFER_BEATS) * self.beat_cycles - last
            if late > 0:
                read, last = read + math.ceil(late), last + math.ceil(late)
            self._sent = max(start + self.beats * self.beat_cycles, last)
        self._released[number] = read + 3
        self._written_before, self.written = self.written, last


class TileEngine:
    """Score and value tasks of tiles in order.

    Parameters
    ----------
    shape : PrefillShape
    outputs : Outputs
        Told when value columns are added and when slots are finished.

    Attributes
    ----------
    done : list of float
        Cycle in which each tile is done, as far as known.
    """

    def __init__(self, shape: PrefillShape, outputs: Outputs) -> None:
        self.block = shape.block
        self.columns = shape.array_columns
        self.score_steps, self.value_steps = shape.head_dim, shape.block
        self.score_tasks = shape.block // shape.array_columns
        self.value_tasks = shape.head_dim // shape.array_columns
        self.outputs = outputs
        outputs.run_values = self.values_until
        self.done: list[float] = []
        self.finished_slot: dict[int, int] = {}  # number of the output of a tile that is a last one
        self.scored_at = float(_START_OF_TIME)
        self._free = [float(_START_OF_TIME)] * shape.strips
        self._release = [float(_START_OF_TIME)] * shape.strips
        self._enqueued = self._fetched = self._took = float(_START_OF_TIME)
        self._fetches = deque([float(_START_OF_TIME)] * TASK_QUEUE, maxlen=TASK_QUEUE)
        self._score_taken = float(_START_OF_TIME)
        self._hand_over = float(_START_OF_TIME)
        self._value_taken = float(_START_OF_TIME)
        self._added = float(_START_OF_TIME)
        self._strip = 0
        # Tiles whose values are due: first cycle of the offer, of the shifts, tile, last of slot.
        self._due: deque[tuple[float, float, int, bool]] = deque()
        self._tiles = 0

    def score(self, ready: float, *, statistics: bool, last: bool) -> float:
        """Run the score tasks of the next tile, ready at `ready`; return the last one's entry.

        Value tasks that are due go first, as in tile_issue.
        """
        tile = self._tiles
        self._tiles += 1
        if tile >= TILES:
            while len(self.done) <= tile - TILES:
                self.value()
            ready = max(ready, self.done[tile - TILES] + 1)
        columns = self.columns
        for strip in range(self.score_tasks):
            while True:
                entry = max(ready, self._enqueued + 1, self._fetches[0] + 1)
                if not self._due or self._due[0][0] > entry:
                    break
                self.value()
            result, server = self._task(entry, self.score_steps)
            if strip == 0:
                shown = max(result, self._score_taken) + 1
                first = max(shown, self._hand_over + 1) + 1
            else:
                first = max(result, self._score_taken) + 1
            self._score_taken = self._release[server] = first + columns - 1
        block = self.block
        hand_over = max(self._score_taken + SETTLE_CYCLES, self._hand_over + block + SPREAD_CYCLES)
        self._hand_over = hand_over
        self.scored_at = hand_over + block + SPREAD_CYCLES
        if statistics:
            self.done.append(hand_over + 2 * block + SPREAD_CYCLES)
        else:
            self._due.append((self.scored_at + 1, hand_over + 2 * block + 7, tile, last))
        return self._enqueued

    def value(self) -> None:
        """Run the next value task that is due."""
        offer, shifts, tile, last_of_slot = self._due[0]
        entry = max(offer, self._enqueued + 1, self._fetches[0] + 1)
        result, server = self._task(entry, self.value_steps)
        if self._strip == 0:
            shown = max(result, self._value_taken) + 1
            first = max(shown, shifts, self._added + 3) + 1
        else:
            first = max(result, self._value_taken) + 1
        last = first + self.columns - 1
        self._value_taken = self._release[server] = last
        self.outputs.add(first, last)
        self._strip += 1
        if self._strip == self.value_tasks:
            self._strip = 0
            self._due.popleft()
            self._added = last
            self.done.append(last + 3)
            if last_of_slot:
                self.finished_slot[tile] = self.outputs.finish(last + 3)

    def values_until(self, time: float) -> None:
        """Run the value tasks that are offered at `time` or before."""
        while self._due and self._due[0][0] <= time:
            self.value()

    def done_at(self, tile: int) -> float:
        """Cycle in which a tile is done; runs the value tasks that it waits for."""
        while len(self.done) <= tile:
            self.value()
        return self.done[tile]

    def drain(self) -> None:
        """Run all value tasks that are left."""
        while self._due:
            self.value()

    def _task(self, entry: float, steps: int) -> tuple[float, int]:
        """Queue a task at `entry`; return the cycle of its result and its server."""
        self._enqueued = entry
        fetched = max(entry + 1, self._fetched + 1, self._took)
        self._fetched = fetched
        self._fetches.append(fetched)
        free = self._free
        took = max(fetched + 1, min(free))
        self._took = took
        server = 0
        while free[server] > took:
            server += 1
        requested = max(took + steps, self._release[server] + 1)
        free[server] = requested
        return requested + RESULT_CYCLES, server
