# SPDX-License-Identifier: Apache-2.0
"""Timeline of what lies before the arrays: KV cache streams, query blocks, tile loader.

Cycles are those of rtl/prefill: kv_directory, kv_stream, block_address, tile_loader.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fastdelta.reference.performance.memory import MemoryTiming, ReadPort
from fastdelta.reference.performance.tile_engine import Outputs, TileEngine
from fastdelta.shapes import PrefillShape

PREFETCH = 4
JOB_QUEUE = 32
FETCH_QUEUE = 5
TARGETS = 9
_START_OF_TIME = -(10**6)


class KVStream:
    """`kv_stream` of K or of V: the beats of the visits in order, from memory or from a line."""

    def __init__(self, port: ReadPort) -> None:
        self.port = port
        self.loaded = float(_START_OF_TIME)  # last beat of the last visit
        self._asked = float(_START_OF_TIME)
        self._loads = deque([float(_START_OF_TIME)] * PREFETCH, maxlen=PREFETCH)

    def room(self) -> float:
        """Cycle from which another visit may be queued."""
        return self._loads[0] + 1

    def visit(self, pushed: float, opened: float, *, from_line: bool) -> float:
        """Return when the last beat of the next visit, opened at `opened`, is taken."""
        port = self.port
        asked = max(pushed, self._asked) + 1
        if from_line:
            self._asked = asked
            arrival = 0.0
        else:
            asked = self._asked = port.asked(asked)
            arrival = port.fetch(asked)
        load = max(asked + 1, self.loaded - 2)
        self._loads.append(load)
        first = max(opened + 1, self.loaded + 1, load + 3, arrival + 2)
        if from_line:
            last = first + port.data_beats - 1
        else:
            last = port.last_beat(arrival + 2, first)
            port.consumed(max(load + 1, arrival), last - 2)
        self.loaded = last
        return last


class VisitOffer(NamedTuple):
    """A visit as it is offered to the cache.

    Attributes
    ----------
    offered
        Cycle from which it is there.
    from_line
        Whether K and V come from the cache.
    """

    offered: float
    from_line: bool


class Loader:
    """Jobs from the job reader to the tile engine.

    Parameters
    ----------
    shape : PrefillShape
    memory : MemoryTiming

    Attributes
    ----------
    engine : TileEngine
    outputs : Outputs
    taken : float
        Cycle in which the last job was taken.
    """

    def __init__(self, shape: PrefillShape, memory: MemoryTiming) -> None:
        beat = shape.beat_bytes
        self.buffers = shape.kv_buffers
        self.outputs = Outputs(shape, memory.port("o").beat_cycles(beat))
        self.engine = TileEngine(shape, self.outputs)
        self.k = KVStream(ReadPort(memory.port("k"), shape.k_block_bytes // beat, beat))
        self.v = KVStream(ReadPort(memory.port("v"), shape.v_block_bytes // beat, beat))
        self.taken = float(_START_OF_TIME)
        self._q = ReadPort(memory.port("q"), shape.q_block_bytes // beat, beat)
        self._q_loaded = float(_START_OF_TIME)
        self._q_asked = deque([float(_START_OF_TIME)] * FETCH_QUEUE, maxlen=FETCH_QUEUE)
        self._q_ends = deque([float(_START_OF_TIME)] * TARGETS, maxlen=TARGETS)
        self._queue = deque([float(_START_OF_TIME)] * (JOB_QUEUE + 1), maxlen=JOB_QUEUE + 1)
        self._slots: dict[int, float] = {}  # open slots: cycle from which their block is there
        self._closed: dict[int, int] = {}  # slots that are being finished: their last tile
        self._decided = float(_START_OF_TIME)
        self._decisions: deque[float] = deque(maxlen=17)
        self._kv_ready = float(_START_OF_TIME)
        self._visit_last: deque[int] = deque()  # last tile of each visit that is not released
        self._visit_opened: deque[float] = deque()
        self._released = float(_START_OF_TIME)
        self._tiles = 0

    def visits_ready(self) -> float:
        """Cycle from which the queue of visits has room for another one."""
        return self._decisions[0] + 1 if len(self._decisions) == 17 else _START_OF_TIME

    def job(
        self,
        there: float,
        slot: int,
        *,
        visit: VisitOffer | None = None,
        statistics: bool = False,
        fetches: bool | None = None,
        last: bool = False,
    ) -> float:
        """Take the next job, which is there at `there`, and run its score tasks.

        Parameters
        ----------
        there : float
        slot : int
        visit : VisitOffer, optional
            Given with the first job of a visit.
        statistics : bool
            Only K is needed, and there are no value tasks.
        fetches : bool, optional
            Whether the slot's query block is fetched; by default if the slot is not open.
        last : bool
            Last job of its slot.

        Returns
        -------
        float
            Cycle in which the job is taken.
        """
        if fetches is None:
            fetches = slot not in self._slots
        # A job leaves the queue with its last score task.
        take = max(there, self.taken + 1, self._queue[0] + 1)
        pushed = 0.0
        if visit is not None:
            self._decided = pushed = self._decide(visit.offered)
            if len(self._visit_opened) == self.buffers:
                take = max(take, self._release_visit() + 1)
        if fetches:
            closed = self._closed.pop(slot, None)
            if closed is not None:
                take = max(take, self._slot_free(closed))
            take = max(take, self._q_asked[0] + 1, self._q_ends[0] + 1)
            self._slots[slot] = self._fetch(take)
        self.taken = take
        if visit is not None:
            loaded = self.k.visit(pushed, take, from_line=visit.from_line)
            if not statistics:
                loaded = max(loaded, self.v.visit(pushed, take, from_line=visit.from_line))
            self._kv_ready = loaded + 1
            self._visit_opened.append(take)
            self._visit_last.append(self._tiles)
        ready = max(take + 2, self._kv_ready, self._slots[slot])
        self._queue.append(self.engine.score(ready, statistics=statistics, last=last))
        self._visit_last[-1] = self._tiles
        if last:
            self._closed[slot] = self._tiles
            del self._slots[slot]
        self._tiles += 1
        return take

    def pool(self, there: float) -> float:
        """Take a job that only fetches a query block; return the cycle of the block's last beat."""
        self.taken = max(there, self.taken + 1, self._q_asked[0] + 1, self._q_ends[0] + 1)
        return self._fetch(self.taken) - 1

    def _decide(self, offered: float) -> float:
        """Directory: cycle in which a visit offered at `offered` is given to the streams."""
        looked = max(offered, self._decided + 1)
        self._decisions.append(looked)
        return max(looked + 2, self.k.room(), self.v.room())

    def _fetch(self, take: float) -> float:
        asked = self._q.asked(take + 2)
        self._q_asked.append(asked)
        arrival = self._q.fetch(asked)
        first = max(arrival, self._q_loaded + 1)
        last = self._q.last_beat(arrival, first)
        self._q.consumed(first, last)
        self._q_loaded = last
        self._q_ends.append(last)
        return last + 1

    def _slot_free(self, tile: int) -> float:
        self.engine.done_at(tile)
        return self.outputs.release(self.engine.finished_slot.pop(tile))

    def _release_visit(self) -> float:
        """Cycle from which the buffers of the oldest visit are seen to be free."""
        done = self.engine.done_at(self._visit_last.popleft())
        self._visit_opened.popleft()
        released = max(done + 1, self._visit_opened[0] + 1, self._released + 1)
        self._released = released
        return released
