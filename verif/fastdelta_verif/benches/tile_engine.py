# SPDX-License-Identifier: Apache-2.0
"""Tests of ``tile_engine``: outputs and row statistics against the bit-exact model.

The design of the launcher must name every parameter.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
import pyuvm
from pyuvm import uvm_component, uvm_monitor

from fastdelta.arrays import Bytes
from fastdelta.prefill.job_lists import JobFields, make_job_lists
from fastdelta.prefill.packing import block_contents, pack_keys, pack_queries, pack_values
from fastdelta.prefill.quantise import quantise_prompt
from fastdelta.reference.prefill_model import (
    EXPONENT_MAX,
    EXPONENT_MIN,
    K_SHIFT_MAX,
    NO_TILE,
    V_SHIFT_MAX,
    PrefillOperands,
    score_tile,
    selected_attention,
    tile_probabilities,
)
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import PrefillShape
from fastdelta_verif.agents.axi_stream import StreamBeat, StreamMonitor, StreamSinkDriver
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES, Rhythm, Throttle
from fastdelta_verif.agents.ports import (
    Fields,
    PortSink,
    PortSource,
    RequestedBeats,
    Transfer,
    stream_names,
)
from fastdelta_verif.covergroups.prefill import OPERANDS, TILE_ENGINE, TileEngineCoverage
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}
QUIET_CYCLES = 10_000
ATTEND, STATISTICS, POOL = range(3)
JOB_FIELDS = ("kind", "block", "query", "head", "slot", "opens_visit", "last")
ROW_FIELDS = ("block", "head", "index", "last", "exponent", "far", "near")


class BeatSource(uvm_component):
    """Offer beats of a stream in order; the data is random while valid is low."""

    def __init__(
        self, name: str, parent: uvm_component, domain: ClockDomain, rng: random.Random, prefix: str
    ) -> None:
        super().__init__(name, parent)
        dut: Any = cocotb.top
        self._domain, self._rng = domain, rng
        self._valid, self._ready, self._data = (
            getattr(dut, f"{prefix}_{part}") for part in ("tvalid", "tready", "tdata")
        )
        self.throttle, self.rhythm = Throttle(rng), Rhythm()
        self.waiting: deque[int] = deque()

    async def run_phase(self) -> None:
        """Drive every cycle."""
        width, offered = len(self._data), False
        while True:
            offered = bool(self.waiting) and (offered or self.throttle.willing())
            if self._domain.in_reset:
                offered = False
            self._valid.value = offered
            self._data.value = self.waiting[0] if offered else self._rng.getrandbits(width)
            await self._domain.edge
            taken = offered and not self._domain.in_reset and int(self._ready.value)
            self.rhythm.see(offered, taken)
            if taken:
                self.waiting.popleft()
                offered = False


class RowMonitor(uvm_monitor):
    """Collect the row stream, which has no ready."""

    def __init__(
        self, name: str, parent: uvm_component, domain: ClockDomain, scoreboard: EngineScoreboard
    ) -> None:
        super().__init__(name, parent)
        self._domain, self._scoreboard = domain, scoreboard

    async def run_phase(self) -> None:
        """Watch every cycle."""
        dut: Any = cocotb.top
        ports = [getattr(dut, f"row_{field}") for field in ROW_FIELDS]
        while True:
            await self._domain.edge
            if not self._domain.in_reset and int(dut.row_valid.value):
                self._scoreboard.row(tuple(int(port.value) for port in ports))


class EngineScoreboard(Scoreboard):
    """Rows of statistics in order, output blocks in the order of their requests."""

    def __init__(self, name: str, parent: uvm_component, shape: PrefillShape) -> None:
        super().__init__(name, parent)
        self._beats_of_block = shape.head_dim * shape.block * 16 // shape.bus_width
        self._shape = shape
        self.rows = self.queue("rows")
        self.blocks: dict[tuple[int, int], npt.NDArray[np.int16]] = {}
        self.requested = self.queue("requested blocks")
        self.beats: list[int] = []

    def row(self, row: Fields) -> None:
        """Compare a row of statistics."""
        assert self.rows, f"no row is expected, but {row} came"
        self.compare("row", row, self.rows.popleft())

    def request(self, transfer: Transfer) -> None:
        """Note which block comes next."""
        self.requested.append(transfer.fields)
        self._complete()

    def beat(self, beat: StreamBeat) -> None:
        """Collect the beats of outputs."""
        self.beats.append(beat.data)
        self._complete()

    def _complete(self) -> None:
        """Compare a block when both its name and all its beats are there."""
        while self.requested and len(self.beats) >= self._beats_of_block:
            head, query = key = self.requested.popleft()
            size = self._beats_of_block
            beats, self.beats = self.beats[:size], self.beats[size:]
            width = self._shape.bus_width // 8
            data = b"".join(beat.to_bytes(width, "little") for beat in beats)
            words = np.frombuffer(data, np.int16).reshape(self._shape.head_dim, -1)
            assert key in self.blocks, f"head {head}, query block {query} is not expected"
            expected = self.blocks.pop(key)
            got = words.T[: len(expected)]
            wrong = np.argwhere(got != expected)
            self.compare(
                f"head {head}, query block {query}: (row, channel) that differ first",
                [(tuple(at), int(got[tuple(at)])) for at in wrong[:3].tolist()],
                [(tuple(at), int(expected[tuple(at)])) for at in wrong[:3].tolist()],
            )

    def check_phase(self) -> None:
        """Fail on blocks and beats that are left over, too."""
        super().check_phase()
        assert not self.blocks, f"{len(self.blocks)} output blocks did not come"
        assert not self.beats, f"{len(self.beats)} beats are left over"


class TileEngineTest(ScenarioTest):
    """Base: jobs, the three operand streams, outputs, rows."""

    idle_inputs = ("clear_counts",)

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        p = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.numbers = np.random.default_rng(self.settings.seed)
        self.shape = PrefillShape(
            **{name.lower(): value for name, value in p.items() if name != "TILES"}
        )
        domain = self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        rngs = [random.Random(self.rng.random()) for _ in range(8)]
        self.jobs = PortSource("jobs", self, domain, rngs[0], "s_job", JOB_FIELDS)
        self.queries = RequestedBeats(
            "queries",
            self,
            domain,
            rngs[1],
            "q_request",
            ("head", "query"),
            ("s_q_tvalid", "s_q_tready", "s_q_tdata"),
            self.query_beats,
        )
        self.keys = BeatSource("keys", self, domain, rngs[2], "s_k")
        self.values = BeatSource("values", self, domain, rngs[3], "s_v")
        self.requests = PortSink("requests", self, domain, rngs[4], "o_request", ("head", "query"))
        bus = stream_names("m_o_tvalid", "m_o_tready", "m_o_tdata")
        self.output_sink = StreamSinkDriver("output_sink", self, bus, domain, rngs[5])
        self.outputs = StreamMonitor("outputs", self, bus, domain)
        self.scoreboard = EngineScoreboard("scoreboard", self, self.shape)
        self.rows = RowMonitor("rows", self, domain, self.scoreboard)
        self.coverage = TileEngineCoverage("coverage", self, TILE_ENGINE)
        self.coverage.simulator()
        self.coverage.parameters(p)
        self.throttles = (
            self.jobs.throttle,
            self.queries.throttle,
            self.queries.request_throttle,
            self.keys.throttle,
            self.values.throttle,
            self.requests.throttle,
            self.output_sink.throttle,
        )

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        self.scoreboard.subscribe(self.requests.port, self.scoreboard.request)
        self.scoreboard.subscribe(self.outputs.port, self.scoreboard.beat)
        for port, rhythm in (
            ("job", self.jobs.rhythm),
            ("q_request", self.queries.request_rhythm),
            ("q", self.queries.rhythm),
            ("k", self.keys.rhythm),
            ("v", self.values.rhythm),
            ("o_request", self.requests.rhythm),
            ("o", self.outputs.rhythm),
        ):
            self.coverage.watch(port, rhythm)

    # ------------------------------------------------------------ prompts

    def random_operands(self, group: int, tokens: int) -> PrefillOperands:
        """Return any legal operands, extremes included."""
        numbers, d = self.numbers, self.shape.head_dim
        q, k, v = (
            numbers.integers(-128, 128, size=(heads, tokens, d)).astype(np.int8)
            for heads in (group, 1, 1)
        )
        for tensor in (q, k, v):
            for extreme in (-128, 127, 0):
                tensor[numbers.random(tensor.shape[:2]) < 0.05] = extreme
        v_shift = numbers.integers(0, V_SHIFT_MAX + 1, size=(1, tokens))
        if numbers.random() < 0.2:  # outputs at either end of their range
            v[:], v_shift[:] = numbers.choice([-128, 127]), 0
        wide = numbers.random((group, tokens)) < 0.1
        return PrefillOperands(
            q=q,
            multiplier=numbers.integers(1 << 15, 1 << 16, size=(group, tokens))
            * (numbers.random((group, tokens)) > 0.03),
            exponent=np.where(
                wide,
                numbers.choice(
                    [EXPONENT_MIN, numbers.integers(EXPONENT_MIN, EXPONENT_MAX + 1), EXPONENT_MAX],
                    size=(group, tokens),
                ),
                numbers.integers(24, 34, size=(group, tokens)),
            ),
            k=k,
            k_shift=numbers.integers(0, K_SHIFT_MAX + 1, size=(1, tokens)),
            v=v,
            v_shift=v_shift,
        )

    def real_operands(self, group: int, tokens: int) -> PrefillOperands:
        """Return operands quantised from floats with outliers, as a model gives them."""
        q, k, v = (
            self.numbers.standard_normal((heads, tokens, self.shape.head_dim))
            for heads in (group, 1, 1)
        )
        k[:, 0] *= 4.0
        return quantise_prompt(3.0 * q, k + 1.0, v).operands

    def load(self, operands: PrefillOperands) -> None:
        """Put a prompt of one KV head into the memories."""
        self.operands = operands
        self.group, self.tokens = operands.q.shape[:2]
        multiplier, exponent = operands.multiplier, operands.exponent
        for point, name, seen in (
            ("query_multiplier", "zero", multiplier == 0),
            ("query_multiplier", "others", multiplier != 0),
            ("query_exponent", "lowest", exponent == EXPONENT_MIN),
            ("query_exponent", "highest", exponent == EXPONENT_MAX),
            ("query_exponent", "between", (exponent > EXPONENT_MIN) & (exponent < EXPONENT_MAX)),
        ):
            if seen.any():
                self.coverage.hit(point, name)
        shape = self.shape
        self.blocks = shape.blocks(self.tokens)
        q_bytes = pack_queries(shape, operands.q, operands.multiplier, operands.exponent)
        q_blocks = block_contents(shape, q_bytes, shape.q_block_bytes)
        self.q_blocks = q_blocks.reshape(self.group, self.blocks + 1, -1)
        k_bytes = pack_keys(shape, operands.k, operands.k_shift, operands.v_shift)
        self.k_blocks = block_contents(shape, k_bytes, shape.k_block_bytes)
        self.v_blocks = block_contents(shape, pack_values(shape, operands.v), shape.v_block_bytes)
        self.dut.blocks.value = self.blocks
        self.dut.padding.value = self.blocks * shape.block - self.tokens

    def beats(self, block: Bytes) -> list[int]:
        """Return the beats of a block."""
        width = self.shape.bus_width // 8
        data = block.tobytes()
        return [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]

    def query_beats(self, fields: Fields) -> list[int]:
        """Answer a request for a query block."""
        return self.beats(self.q_blocks[fields])

    # ------------------------------------------------------------ work

    def attend(self, index_set: IndexSet, window: int) -> None:
        """Queue the jobs of an index set, their operands and the outputs to come."""
        (job_list,) = make_job_lists(index_set, 1, window)
        fields = JobFields.from_words(job_list.jobs)
        before = None
        for b, q, h, last in zip(
            *(array.tolist() for array in (fields.kv_block, fields.query_block, fields.head)),
            fields.last.tolist(),
            strict=True,
        ):
            opens = before != (b, q // window)
            before = (b, q // window)
            slot = q % window * self.group + h
            self.jobs.waiting.append((ATTEND, b, q, h, slot, int(opens), int(last)))
            if opens:
                self.keys.waiting.extend(self.beats(self.k_blocks[b]))
                self.values.waiting.extend(self.beats(self.v_blocks[b]))
        outputs, _ = selected_attention(self.operands, index_set, self.shape.block)
        self.coverage.jobs(fields, window, self.blocks)
        self.coverage.rows(index_set, self.group, self.blocks)
        self.coverage.outputs(outputs)
        for head in range(self.group):
            for query in range(self.blocks):
                rows = slice(query * self.shape.block, (query + 1) * self.shape.block)
                self.scoreboard.blocks[head, query] = outputs[head, rows]

    def measure(self) -> None:
        """Queue the statistics jobs of the prompt and the rows to come."""
        rest = self.tokens % self.shape.block
        below = "fewer than a block" if self.tokens < self.shape.block else "straddle two"
        self.coverage.hit("representative_rows", below if rest else "one block")
        for b in range(self.blocks):
            self.keys.waiting.extend(self.beats(self.k_blocks[b]))
            for head in range(self.group):
                job = (STATISTICS, b, self.blocks, head, head, int(head == 0), 0)
                self.jobs.waiting.append(job)
                self.scoreboard.rows.extend(self.expected_rows(head, b))

    def pool(self, head: int, queries: list[int]) -> None:
        """Queue pool jobs, which only fetch."""
        self.jobs.waiting.extend((POOL, 0, q, head, 0, 0, 0) for q in queries)

    def expected_rows(self, head: int, kv_block: int) -> list[Fields]:
        """Return the row stream of a tile of the representative queries."""
        operands, block, tokens = self.operands, self.shape.block, self.tokens
        rows = min(block, tokens)
        queries = slice(tokens - rows, tokens)
        columns = slice(kv_block * block, min((kv_block + 1) * block, tokens))
        scores = score_tile(
            operands.q[head, queries],
            operands.k[0, columns],
            operands.multiplier[head, queries],
            operands.exponent[head, queries],
            operands.k_shift[0, columns],
        )
        mask = (
            np.arange(columns.start, columns.stop)
            <= np.arange(tokens - rows, tokens)[:, np.newaxis]
        )
        tile = tile_probabilities(scores, mask)
        index = np.arange(block - rows, block)
        far = np.where(np.arange(scores.shape[1]) <= index[:, np.newaxis], tile.share, 0).sum(
            axis=1
        )
        near = tile.row_sum - far
        missing = block - rows
        exponents = [NO_TILE] * missing + tile.exponent.tolist()
        fars, nears = ([0] * missing + array.tolist() for array in (far, near))
        return [
            (kv_block, head, i, int(i == block - 1), exponents[i] & 0xFFFF, fars[i], nears[i])
            for i in range(block)
        ]

    def random_set(self, density: float) -> IndexSet:
        """Return a random causal index set with a block for every query block."""
        blocks = self.blocks
        mask = self.numbers.random((self.group, blocks, blocks)) < density
        mask &= np.tri(blocks, dtype=np.bool_)
        for head, query in np.argwhere(~mask.any(axis=2)):
            mask[head, query, self.numbers.integers(0, query + 1)] = True
        return IndexSet.from_mask(mask)

    def throttle(self, mode: str | None = None) -> None:
        """Set the mode of every port, a random one for each if none is given."""
        for throttle in self.throttles:
            throttle.mode = mode or self.rng.choice(THROTTLES)
        self.queries.latency = (1, self.rng.choice((1, 20)))

    async def _watch(self) -> None:
        """Fail when nothing has moved for long, whatever waits."""
        before = None
        while True:
            await self.domain.cycles(QUIET_CYCLES)
            sources = (self.jobs.waiting, self.keys.waiting, self.values.waiting)
            now = (self.scoreboard.comparisons, len(self.scoreboard.beats), *map(len, sources))
            assert now != before, f"nothing has moved in {QUIET_CYCLES} cycles"
            before = now

    async def drained(self) -> None:
        """Wait until everything has gone in and the engine says that it is idle."""
        waiting = (self.jobs.waiting, self.keys.waiting, self.values.waiting)
        while any(waiting):
            await self.domain.edge
        await self.domain.cycles(2)  # a job that was just taken
        while not int(self.dut.idle.value):
            await self.domain.edge

    def random_tokens(self, most_blocks: int) -> int:
        """Return a number of tokens, often one, or at an edge of a block."""
        block, rng = self.shape.block, self.rng
        whole = rng.randint(1, most_blocks) * block
        edge = whole + rng.choice([-1, 0, 1]) if whole < most_blocks * block else whole - 1
        return rng.choice([1, block - 1, block, edge, rng.randint(1, most_blocks * block)])

    def sample(self, work: str, is_real: bool) -> None:
        """Sample the prompt for a kind of work."""
        kind = OPERANDS[is_real]
        self.coverage.prompt(work, kind, self.tokens, self.group, self.shape.block)
        self.coverage.hit("work", work)

    def window(self) -> int:
        """Return a random legal window."""
        largest = (self.shape.slots // self.group).bit_length() - 1
        return 1 << self.rng.randint(0, largest)

    def start_of_simulation_phase(self) -> None:
        """Give the ports of the operands values."""
        self.load(self.real_operands(1, 1))

    async def prepare(self) -> None:
        """Watch that something moves."""
        cocotb.start_soon(self._watch())


class AttentionScenario(TileEngineTest):
    """Random prompts, index sets and windows with random stalls."""

    async def scenario(self) -> None:
        """Attend a number of prompts."""
        options = self.settings.options
        for prompt in range(options["prompts"]):
            group = self.rng.randint(1, min(4, self.shape.slots))
            tokens = self.random_tokens(options["blocks"])
            make = self.rng.choice([self.random_operands, self.real_operands])
            self.load(make(group, tokens))
            self.sample("attention", make == self.real_operands)
            self.throttle("none" if prompt == 0 else None)
            self.attend(self.random_set(self.rng.choice([0.2, 0.6, 1.0])), self.window())
            await self.drained()


class StatisticsScenario(TileEngineTest):
    """Statistics, pooling and attention in turn, as a run of the kernel does."""

    async def scenario(self) -> None:
        """Measure and attend a number of prompts."""
        options = self.settings.options
        for prompt in range(options["prompts"]):
            group = self.rng.randint(1, min(4, self.shape.slots))
            tokens = self.random_tokens(options["blocks"])
            make = self.rng.choice([self.random_operands, self.real_operands])
            self.load(make(group, tokens))
            self.sample("statistics", make == self.real_operands)
            self.throttle("none" if prompt == 0 else None)
            self.measure()
            await self.drained()
            self.pool(self.rng.randrange(group), list(range(self.blocks)))
            await self.drained()
            self.coverage.hit("work", "pooling")
            self.attend(self.random_set(0.5), self.window())
            await self.drained()


class ResetScenario(TileEngineTest):
    """A reset in the middle of a prompt leaves nothing behind."""

    async def scenario(self) -> None:
        """Reset at a random time, several times, then attend."""
        block = self.shape.block
        for number in range(self.settings.options["resets"]):
            self.load(self.random_operands(2, 3 * block))
            self.throttle("none")
            self.attend(self.random_set(1.0), self.window())
            whole = len(self.keys.waiting) - len(self.beats(self.k_blocks[0]))
            if number % 2:
                while len(self.keys.waiting) >= whole:
                    await self.domain.edge
                await self.domain.cycles(self.rng.randint(1, 4 * block))
            else:
                await self.domain.cycles(self.rng.randint(10, 40 * block))
            state = "with outputs" if self.scoreboard.beats else "in tiles"
            started = len(self.keys.waiting) < whole
            self.coverage.hit("reset", state if started else "waiting for operands")
            for source in (self.jobs, self.keys, self.values):
                source.waiting.clear()
            self.queries.forget()
            self.scoreboard.blocks.clear()
            await self.domain.reset()
            self.scoreboard.beats.clear()
            self.scoreboard.requested.clear()
        self.load(self.real_operands(2, 3 * block))
        self.attend(self.random_set(1.0), self.window())


class SlowOutputScenario(TileEngineTest):
    """Outputs that wait for memory while the next block of their slot is at hand."""

    async def scenario(self) -> None:
        """Attend in windows of one query block, one KV block each."""
        for mode in ("heavy", "bursts"):
            self.load(self.random_operands(1, 8 * self.shape.block))
            self.throttle("none")
            self.output_sink.throttle.mode = mode
            self.attend(self.random_set(0.0), 1)
            await self.drained()
            self.coverage.hit("work", "slow outputs")


class UtilisationScenario(TileEngineTest):
    """The matrix unit is busy from the first job to the last output if memory never waits."""

    async def scenario(self) -> None:
        """Attend one prompt, measure the share of steps in the cycles of all servers."""
        options = self.settings.options
        self.load(self.real_operands(options["group"], options["blocks"] * self.shape.block))
        self.throttle("none")
        self.queries.latency = (1, 1)
        self.attend(self.random_set(options["density"]), options["window"])
        start = self.domain.cycle
        await self.drained()
        cycles = self.domain.cycle - start
        share = int(self.dut.matrix_steps.value) / (self.shape.strips * cycles)
        enough = f"{share:.3f} in {cycles} cycles is at least {options['least']}"
        self.scoreboard.compare(enough, share >= options["least"], True)
        self.coverage.hit("work", "at full size")


@pyuvm.test(**TIME_LIMIT)
class attention(AttentionScenario):
    """Outputs of random prompts to the bit."""


@pyuvm.test(**TIME_LIMIT)
class statistics(StatisticsScenario):
    """Row statistics, pooled fetches and outputs to the bit."""


@pyuvm.test(**TIME_LIMIT)
class reset_in_work(ResetScenario):
    """Works as new after a reset in the middle of tiles."""


@pyuvm.test(**TIME_LIMIT)
class utilisation(UtilisationScenario):
    """Share of steps over a prompt."""


@pyuvm.test(**TIME_LIMIT)
class slow_outputs(SlowOutputScenario):
    """Outputs of a slot are not touched before they have left."""
