# SPDX-License-Identifier: Apache-2.0
"""Tests of the units of ``index_generator``, each against its part of the bit-exact model.

A selected set shows few bits of the numbers that led to it; here all of them are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
import pyuvm

from fastdelta.prefill.packing import block_contents, pack_keys, pack_queries
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.index_model import (
    PooledVectors,
    RowPartials,
    best_blocks,
    coverage_count,
    covered_entries,
    divergence,
    pool_keys,
    pool_queries,
    pooled_scores,
    scores_of_rows,
    shares,
    softmax_shares,
)
from fastdelta.reference.prefill_model import NO_TILE
from fastdelta.shapes import PrefillShape
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES, Throttle
from fastdelta_verif.covergroups import share_of, some
from fastdelta_verif.covergroups.prefill import EXPONENTS, INDEX_UNITS, IndexUnitsCoverage
from fastdelta_verif.environments.index_engine import KINDS, random_operands
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings
from fastdelta_verif.stimulus import to_beats

TIME_LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}
WHOLE = 1 << 16
COVER, BEST, PAIRS = range(3)


def packed(values: npt.ArrayLike, bits: int) -> int:
    """Return integers as one word, the first in the low bits."""
    word = 0
    for place, value in enumerate(np.asarray(values).tolist()):
        word |= (value & (1 << bits) - 1) << place * bits
    return word


def unpacked(word: int, count: int, bits: int, *, signed: bool = False) -> list[int]:
    """Invert :func:`packed`."""
    values = [word >> place * bits & (1 << bits) - 1 for place in range(count)]
    return [value - (value >> bits - 1 << bits) for value in values] if signed else values


class UnitTest(ScenarioTest):
    """Base: clock, reset, random numbers, a scoreboard."""

    def build_phase(self) -> None:
        """Create what every test has."""
        self.settings = Settings.current()
        self.parameters = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.numbers = np.random.default_rng(self.settings.seed)
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        self.scoreboard = Scoreboard("scoreboard", self)
        self.coverage = IndexUnitsCoverage("coverage", self, INDEX_UNITS)
        self.rhythm = "none"  # of what was sent last
        self.number = 0  # of the run

    async def scenario(self) -> None:
        """Do all runs."""
        for number in range(self.settings.options["runs"]):
            self.number = number
            await self.one_run()

    async def one_run(self) -> None:
        """Do what the test is about, once."""
        raise NotImplementedError  # abstract, as `scenario` is in `ScenarioTest`

    def throttle(self) -> Throttle:
        """Return a random rhythm, full speed as often as any other."""
        return Throttle(self.rng, self.rng.choice(["none", *THROTTLES]))

    async def pulse(self, name: str) -> int:
        """Raise an input for one cycle, and return that cycle."""
        getattr(self.dut, name).value = 1
        await self.domain.edge
        getattr(self.dut, name).value = 0
        return self.domain.cycle

    async def send(self, valid: str, items: list[dict[str, int]]) -> None:
        """Drive items in a random rhythm, random bits between them."""
        dut, throttle = self.dut, self.throttle()
        self.rhythm = throttle.mode
        for item in items:
            while not throttle.willing():
                getattr(dut, valid).value = 0
                for name in item:
                    port = getattr(dut, name)
                    port.value = self.rng.getrandbits(len(port))
                await self.domain.edge
            getattr(dut, valid).value = 1
            for name, value in item.items():
                getattr(dut, name).value = value
            await self.domain.edge
        getattr(dut, valid).value = 0

    def collect(self, valid: str, read: Callable[[], Any], into: list[Any]) -> None:
        """Start to read something in every cycle in which a port is valid."""

        async def watch() -> None:
            while True:
                await self.domain.edge
                if int(getattr(self.dut, valid).value):
                    into.append(read())

        cocotb.start_soon(watch())

    async def wait(self, name: str) -> int:
        """Wait for an output to be high, and return the cycle in which it is."""
        await self.domain.edge
        while not int(getattr(self.dut, name).value):
            await self.domain.edge
        return self.domain.cycle


@pyuvm.test(**TIME_LIMIT)
class row_scores(UnitTest):
    """``index_scores``: every vertical and slash score of random rows."""

    idle_inputs = ("rst_n", "row_valid", "start", "vertical_read", "slash_read")

    def partials(self, blocks: int) -> RowPartials:
        """Return rows whose exponents stay, wander or leap, with rows without a key among them."""
        rng, block = self.numbers, self.parameters["BLOCK"]
        spread = rng.choice([0, 2, 14, 20, 70, 3000])
        size = (blocks, block)
        exponent = rng.integers(-spread, spread + 1, size=size)
        if rng.random() < 0.3:
            exponent += np.sort(rng.integers(-32768 + spread, 32767 - spread, size=block))
        # A row has a share of 2^15 or more in every tile in which it sees a key.
        # The smallest sums show the rounding of L best.
        most = 1 << int(rng.choice([16, 16, 20, 23]))
        total = rng.integers(1 << 15, most, size=size)
        edge = rng.random(size)
        total[edge < 0.3], total[edge > 0.95] = most, 1 << 15
        far = rng.integers(0, total + 1)
        blind = rng.random(size) < rng.choice([0, 0.1])
        blind[:, : rng.integers(0, block)] |= rng.random() < 0.2  # rows before the first token
        exponent[blind], total[blind], far[blind] = NO_TILE, 0, 0
        leap = 2 if spread > 100 else 1 if spread else 0
        self.coverage.hit("row_exponents", EXPONENTS[leap])
        self.coverage.hit("rows_without_a_key", some(np.count_nonzero(blind)))
        least = (total == 1 << 15) & ~blind
        largest = (total == most) & (most == 1 << 23) & ~blind
        for name, seen in (("least", least), ("most", largest), ("others", ~(least | largest))):
            if seen.any():
                self.coverage.hit("row_sums", name)
        return RowPartials(exponent, far, total - far)

    async def read(self, name: str, blocks: int) -> list[int]:
        """Return all scores of a memory."""
        dut, lanes = self.dut, self.parameters["SCORE_LANES"]
        values: list[int] = []
        getattr(dut, f"{name}_read").value = 1
        for word in range(-(-blocks // lanes)):
            getattr(dut, f"{name}_word").value = word
            await self.domain.cycles(2)
            count = min(lanes, blocks - word * lanes)
            bits = getattr(dut, name).value[count * 40 - 1 : 0]
            values += unpacked(int(bits), count, 40)
        getattr(dut, f"{name}_read").value = 0
        return values

    async def one_run(self) -> None:
        """Send the rows of a group, then replay its heads in any order."""
        dut, rng, compare = self.dut, self.rng, self.scoreboard.compare
        blocks = rng.randint(1, min(9, self.parameters["MAX_BLOCKS"]))
        heads = [self.partials(blocks) for _ in range(rng.randint(1, self.parameters["MAX_GROUP"]))]
        rows = [
            {
                "row_block": block,
                "row_head": head,
                "row_index": row,
                "row_exponent": int(partials.exponent[block, row]) & 0xFFFF,
                "row_far": int(partials.far[block, row]),
                "row_near": int(partials.near[block, row]),
            }
            for block in range(blocks)
            for head, partials in enumerate(heads)
            for row in range(self.parameters["BLOCK"])
        ]
        await self.send("row_valid", rows)
        await self.domain.cycles(4)
        dut.blocks.value = blocks
        self.coverage.hit("rows_a_cycle", self.parameters["REPLAY_ROWS"])
        self.coverage.blocks("score_blocks", blocks)
        order = rng.sample(range(len(heads)), len(heads))
        self.coverage.hit("replay", "in order" if order == sorted(order) else "in another order")
        for head in order:
            dut.head.value = head
            cycles = -await self.pulse("start") + await self.wait("done")
            replayed = blocks * self.parameters["BLOCK"] // self.parameters["REPLAY_ROWS"]
            compare("latency", cycles, replayed + 12)
            for name, expected in zip(
                ("vertical", "slash"), scores_of_rows(heads[head]), strict=True
            ):
                total = int(getattr(dut, f"{name}_total").value)
                compare(f"{name} total", total, int(expected.sum()))
                compare(name, await self.read(name, blocks), expected.tolist())


@pyuvm.test(**TIME_LIMIT)
class pooled_blocks(UnitTest):
    """``index_pooling``: mantissas and scale of every block of random prompts."""

    idle_inputs = ("rst_n", "beat_valid", "clear")

    def build_phase(self) -> None:
        """Create what every test has, and the list of words."""
        super().build_phase()
        self.words: list[tuple[int, int, int]] = []
        parameters = self.parameters
        self.shape = PrefillShape(
            head_dim=parameters["HEAD_DIM"],
            row_arrays=parameters["BLOCK"] // 8,
            array_rows=8,
            lut_arrays=0,
            array_columns=2,
            bus_width=parameters["BUS_WIDTH"],
        )

    def vectors(self, words: list[tuple[int, int, int]]) -> tuple[list[list[int]], list[int]]:
        """Return mantissas and scales of the words that came."""
        d, lanes = self.shape.head_dim, self.parameters["LANES"]
        per_block = -(-d // lanes)
        mantissas, scales = [], []
        assert len(words) % per_block == 0, f"{len(words)} words"
        for start in range(0, len(words), per_block):
            part = words[start : start + per_block]
            self.scoreboard.compare(
                "last", [last for _, last, _ in part], [0] * (per_block - 1) + [1]
            )
            values = [v for word, _, _ in part for v in unpacked(word, lanes, 16, signed=True)]
            self.scoreboard.compare("padding", values[d:], [0] * (len(values) - d))
            mantissas.append(values[:d])
            scales.append(part[-1][2])
        return mantissas, scales

    async def one_run(self) -> None:
        """Send a prompt, back to back half of the time."""
        dut, shape, rng = self.dut, self.shape, self.rng
        if not self.words:
            read = ("word", "word_last")

            def word() -> tuple[int, int, int]:
                self.last_word = self.domain.cycle
                fields = (int(getattr(dut, name).value) for name in read)
                return (*fields, dut.scale.value.to_signed())

            self.collect("word_valid", word, self.words)
        blocks = rng.randint(1, 5)
        tokens = blocks * shape.block - rng.choice([0, 0, rng.randrange(shape.block)])
        kind = KINDS[self.number % len(KINDS)]
        operands = random_operands(self.numbers, kind, 1, tokens, shape.head_dim)
        if self.parameters["QUERIES"]:
            data = pack_queries(shape, operands.q, operands.multiplier, operands.exponent)
            data = data[: blocks * shape.q_block_bytes]  # without the representative ones
            size = shape.q_block_bytes
            expected = pool_queries(
                operands.q[0], operands.multiplier[0], operands.exponent[0], shape.block
            )
        else:
            data = pack_keys(shape, operands.k, operands.k_shift, operands.v_shift)
            size = shape.k_block_bytes
            expected = pool_keys(operands.k[0], operands.k_shift[0], shape.block)
        beats = to_beats(block_contents(shape, data, size), shape.beat_bytes)
        sizes = np.minimum(shape.block, tokens - np.arange(blocks) * shape.block)
        per_beat = np.repeat(sizes, len(beats) // blocks).tolist()
        before = len(self.words)
        items = [{"beat": b, "tokens": n} for b, n in zip(beats, per_beat, strict=True)]
        await self.send("beat_valid", items)
        sent = self.domain.cycle
        what = "queries" if self.parameters["QUERIES"] else "keys"
        self.coverage.hit("pooled", (what, kind))
        ragged = "ragged last" if tokens % shape.block else "whole blocks"
        self.coverage.hit("pooled_tokens", (what, ragged))
        gaps = "back to back" if self.rhythm == "none" else "with gaps"
        self.coverage.hit("pooled_beats", (what, gaps))
        self.coverage.words("pooled_words", shape.head_dim, self.parameters["LANES"])
        await self.domain.cycles(shape.head_dim + 20)
        self.scoreboard.compare("latency", self.last_word - sent, shape.head_dim + 12)
        mantissas, scales = self.vectors(self.words[before:])
        self.scoreboard.compare("scales", scales, expected.scale.tolist())
        self.scoreboard.compare("mantissas", mantissas, expected.mantissa.tolist())


@pyuvm.test(**TIME_LIMIT)
class dot_scores(UnitTest):
    """``index_dot``: scores of random pooled vectors, with both saturations and left shifts."""

    idle_inputs = ("rst_n", "key_valid", "query_valid", "clear", "start")

    def build_phase(self) -> None:
        """Create what every test has, and the list of scores."""
        super().build_phase()
        self.scores: list[int] | None = None

    def vectors(self, count: int, least: int, most: int) -> PooledVectors:
        """Return vectors with scales in a range; some are extreme."""
        rng, size = self.numbers, (count, self.parameters["HEAD_DIM"])
        mantissa = rng.integers(-(1 << 14), (1 << 14) + 1, size=size)
        corners = rng.random(count) < 0.3
        mantissa[corners] = rng.choice([-1, 1], size=(count, 1))[corners] << 14
        return PooledVectors(mantissa, rng.integers(least, most + 1, size=count))

    def items(self, name: str, vectors: PooledVectors, block: int) -> list[dict[str, int]]:
        """Return the words of a vector."""
        d, lanes = self.parameters["HEAD_DIM"], self.parameters["LANES"]
        words = [
            packed(vectors.mantissa[block, start : start + lanes], 16)
            for start in range(0, d, lanes)
        ]
        scale = int(vectors.scale[block]) & 0x7F
        return [
            {f"{name}_word": word, f"{name}_last": int(n == len(words) - 1), f"{name}_scale": scale}
            for n, word in enumerate(words)
        ]

    async def one_run(self) -> None:
        """Store vectors, then compute rows of them."""
        dut, rng = self.dut, self.rng
        if self.scores is None:
            self.scores = []
            self.collect("score_valid", lambda: dut.score.value.to_signed(), self.scores)
        blocks = rng.randint(1, self.parameters["MAX_BLOCKS"])
        slots = self.parameters["SLOTS"]
        keys = self.vectors(blocks, 6, 22)  # what int8 can give; shifts are -12 and more
        queries = self.vectors(slots, *rng.choice([(-2, 12), (-2, 53)]))
        expected = pooled_scores(queries, keys)
        await self.pulse("clear")
        for block in range(blocks):
            await self.send("key_valid", self.items("key", keys, block))
        for slot in range(slots):
            dut.query_slot.value = slot
            await self.send("query_valid", self.items("query", queries, slot))
        for _ in range(4):
            count, slot = rng.randint(1, blocks), rng.randrange(slots)
            dut.slot.value, dut.count.value = slot, count
            self.scores.clear()
            cycles = -await self.pulse("start") + await self.wait("score_last")
            words = -(-self.parameters["HEAD_DIM"] // self.parameters["LANES"])
            self.scoreboard.compare("latency", cycles, count * words + 6)
            await self.domain.edge
            self.scoreboard.compare("scores", self.scores, expected[slot, :count].tolist())
            self.coverage.dots(expected[slot, :count], queries.scale[slot], keys.scale[:count])
            largest = abs(np.stack([queries.mantissa[slot], keys.mantissa[0]])) == 1 << 14
            self.coverage.hit("dot_mantissas", "largest" if largest.all() else "others")
            d, lanes = self.parameters["HEAD_DIM"], self.parameters["LANES"]
            self.coverage.hit("dot_words", "not full" if d % lanes else "full")


@pyuvm.test(**TIME_LIMIT)
class softmax_rows(UnitTest):
    """``index_softmax``: every share of random rows that follow each other closely."""

    idle_inputs = ("rst_n", "score_valid", "clear")

    def row(self) -> IntArray:
        """Return scores: close to each other, far apart, equal, or extreme."""
        rng, size = self.numbers, self.rng.randint(1, self.parameters["MAX_BLOCKS"])
        spread = 1 << int(rng.integers(0, 32))
        scores = rng.integers(-spread, spread, size=size) >> int(rng.integers(0, 2))
        if rng.random() < 0.3:  # whole steps, so that powers are exact
            scores = (rng.integers(0, 30, size=size) << 16) - (1 << 20)
        elif rng.random() < 0.2:
            scores = rng.choice([-(1 << 31), -1, 0, (1 << 31) - 1], size=size)
        elif rng.random() < 0.2:
            scores[:] = scores[0]
        return np.clip(scores, -(1 << 31), (1 << 31) - 1)

    async def one_run(self) -> None:
        """Send a few rows, each as soon as the unit is free."""
        dut = self.dut
        got: list[tuple[int, int]] = []
        self.collect("share_valid", lambda: (int(dut.share.value), int(dut.share_last.value)), got)
        expected: list[tuple[int, int]] = []
        rows = self.rng.randint(1, 5)
        for _ in range(rows):
            row = self.row()
            self.coverage.softmax(row)
            last = [0] * (len(row) - 1) + [1]
            expected += zip(softmax_shares(row).tolist(), last, strict=True)
            while not int(dut.free.value):
                await self.domain.edge
            words = [int(score) & 0xFFFFFFFF for score in row]
            await self.send(
                "score_valid",
                [{"score": s, "score_last": e} for s, e in zip(words, last, strict=True)],
            )
            sent = self.domain.cycle
            await self.domain.edge
        while len(got) < len(expected):
            await self.domain.edge
        self.scoreboard.compare("shares", got, expected)
        self.coverage.hit("softmax_rows", "alone" if rows == 1 else "one after the other")
        if rows == 1:
            self.scoreboard.compare("latency", self.domain.cycle - sent, 2 * len(row) + 20)


@pyuvm.test(**TIME_LIMIT)
class divergences(UnitTest):
    """``index_divergence``: equal to the last bit, also of equal and of disjoint distributions."""

    idle_inputs = ("rst_n", "estimate_valid", "start")

    def build_phase(self) -> None:
        """Create what every test has, and the memory of scores."""
        super().build_phase()
        self.vertical: IntArray = np.zeros(1, np.int64)
        self.serving = False

    async def serve(self) -> None:
        """Answer reads of score words after one cycle."""
        dut, lanes = self.dut, self.parameters["SCORE_LANES"]
        while True:
            await self.domain.edge
            if int(dut.read.value):
                first = int(dut.word.value) * lanes
                dut.scores.value = packed(self.vertical[first : first + lanes], 40)

    async def one_run(self) -> None:
        """Send an estimate, then compute."""
        dut, rng, numbers = self.dut, self.rng, self.numbers
        if not self.serving:
            cocotb.start_soon(self.serve())
            self.serving = True
        blocks = rng.randint(1, self.parameters["MAX_BLOCKS"])
        vertical = numbers.integers(0, 1 << int(numbers.integers(1, 38)), size=blocks)
        vertical[numbers.random(blocks) < 0.2] = 0
        vertical[rng.randrange(blocks)] += 1 << int(numbers.integers(0, 38))
        kind = rng.choice(["equal", "close", "close", "random", "disjoint"])
        if kind in ("equal", "close"):
            estimate = shares(vertical)
            if kind == "close":  # rounding of the logarithms may make it less than 0
                estimate = np.maximum(estimate + numbers.integers(-1, 2, size=blocks), 0)
        elif kind == "random":
            estimate = softmax_shares(numbers.integers(-(1 << 20), 1 << 20, size=blocks))
        else:
            estimate = shares(np.where(vertical == vertical.max(), 0, vertical) + (vertical == 0))
            estimate = estimate if estimate.any() else np.full(blocks, (1 << 24) // blocks)
        self.vertical = vertical
        last = [0] * (blocks - 1) + [1]
        items = [
            {"estimate": e, "estimate_last": n}
            for e, n in zip(estimate.tolist(), last, strict=True)
        ]
        await self.send("estimate_valid", items)
        dut.blocks.value, dut.total.value = blocks, int(vertical.sum())
        cycles = -await self.pulse("start") + await self.wait("done")
        self.scoreboard.compare("latency", cycles, 3 * blocks + 20)
        await self.domain.edge
        expected = divergence(estimate, shares(vertical))
        self.scoreboard.compare("divergence", int(dut.divergence.value), expected)
        self.coverage.hit("divergence", kind)
        self.coverage.hit("divergence_value", "others" if expected else "zero")
        self.coverage.blocks("divergence_blocks", blocks)


@pyuvm.test(**TIME_LIMIT)
class thresholds(UnitTest):
    """``index_threshold``: counts and marks, of entries of which many are equal."""

    idle_inputs = ("rst_n", "start")

    def build_phase(self) -> None:
        """Create what every test has, the memory of entries and the list of marks."""
        super().build_phase()
        self.entries: IntArray = np.ones(1, np.int64)
        self.marks: list[tuple[int, int]] | None = None

    async def serve(self) -> None:
        """Answer reads after one cycle; lanes behind the last entry have random bits."""
        dut, lanes, bits = self.dut, self.parameters["LANES"], self.parameters["VALUE_BITS"]
        while True:
            await self.domain.edge
            if int(dut.read.value):
                first = int(dut.address.value) * lanes
                values = self.entries[first : first + lanes].tolist()
                values += [self.rng.getrandbits(bits) for _ in range(lanes - len(values))]
                dut.values.value = packed(values, bits)

    def values(self, count: int, bits: int) -> IntArray:
        """Return entries whose sum is below 2^40 and not 0."""
        rng = self.numbers
        most = (1 << min(bits, 34)) - 1
        choice = [0, 1, 2, 3, most, most // 3, int(rng.integers(0, most + 1))]
        entries = rng.choice(choice[: int(rng.integers(2, 8))], size=count)
        spread = rng.random(count) < rng.choice([0.0, 0.5, 1.0])
        entries[spread] = rng.integers(0, most + 1, size=count)[spread]
        entries[self.rng.randrange(count)] |= 1
        return entries

    async def one_run(self) -> None:
        """Compute one of each kind."""
        dut, rng, lanes = self.dut, self.rng, self.parameters["LANES"]
        if self.marks is None:
            self.marks = []
            self.collect(
                "mark_valid",
                lambda: (int(dut.mark_address.value), int(dut.mark_bits.value)),
                self.marks,
            )
            cocotb.start_soon(self.serve())
        count = rng.choice([1, 2, *(rng.randint(1, 40) for _ in range(8))])
        self.entries = entries = self.values(count, self.parameters["VALUE_BITS"])
        gamma = rng.choice([1, WHOLE - 1, WHOLE // 2, rng.randint(1, WHOLE - 1)])
        met = False
        if rng.random() < 0.5:  # a gamma that a running sum meets exactly
            entries[:] = self.numbers.integers(0, 4, size=count)
            total = 1 << int(entries.sum()).bit_length()
            entries[rng.randrange(count)] += total - entries.sum()
            exact = np.cumsum(np.sort(entries)[::-1]) * (WHOLE // total)
            gamma = int(rng.choice([g for g in exact.tolist() if g < WHOLE] or [gamma]))
            met = gamma in exact
        # Pairs are shares of 25 bits; block scores have 40.
        for mode in (COVER, BEST, PAIRS)[: 3 if self.parameters["VALUE_BITS"] == 25 else 2]:
            wanted = rng.randint(0, count)  # entry 0 among them
            whole = mode == PAIRS and rng.random() < 0.2
            dut.mode.value, dut.wanted.value = mode, max(wanted, 1) - 1
            dut.gamma.value = WHOLE if whole else gamma
            dut.total.value = int(entries.sum())
            dut.last_word.value = (count - 1) // lanes
            dut.last_lanes.value = (1 << (count - 1) % lanes + 1) - 1
            self.coverage.threshold(mode, self.parameters["VALUE_BITS"], entries)
            if mode == BEST:
                self.coverage.hit("threshold_wanted", share_of(wanted, count))
            else:
                self.coverage.gamma(WHOLE if whole else gamma, met=met and not whole)
            self.marks.clear()
            cycles = -await self.pulse("start") + await self.wait("done")
            words, passes = (count - 1) // lanes + 1, self.parameters["VALUE_BITS"] + 1
            if whole:
                self.scoreboard.compare("latency", cycles, words + 3)
            elif mode == BEST:
                self.scoreboard.compare("latency", cycles, (words + 4) * passes + words + 3)
            await self.domain.edge
            if mode == COVER:
                expected = coverage_count(entries, gamma)
                self.scoreboard.compare("count", int(dut.count.value), expected)
                least = np.sort(entries)[-expected]
                equal = expected - int(np.count_nonzero(entries > least))
                self.scoreboard.compare("latency", cycles, (words + 4) * passes + equal + 3)
                continue
            words = [word for word, _ in self.marks]
            self.scoreboard.compare("words", words, list(range(-(-count // lanes))))
            bits = sum(mark << word * lanes for word, mark in self.marks)
            chosen = [n for n in range(count) if bits >> n & 1]
            if mode == BEST:
                self.scoreboard.compare("best", chosen, best_blocks(entries, wanted).tolist())
            else:
                kept = covered_entries(entries, WHOLE if whole else gamma)
                self.scoreboard.compare("kept", chosen, kept.tolist())
