# SPDX-License-Identifier: Apache-2.0
"""Tests of ``index_generator``: job lists and decisions against the bit-exact model.

The design of the launcher must name every parameter.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
import pyuvm
from pyuvm import uvm_test

from fastdelta.arrays import Words
from fastdelta.prefill.job_lists import make_job_lists
from fastdelta.reference.index_model import IndexParameters
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import PrefillShape
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.agents.ports import PortSink, Transfer
from fastdelta_verif.covergroups.prefill import (
    INDEX_GENERATOR,
    PATTERNS,
    IndexCoverage,
    tokens_bin,
)
from fastdelta_verif.environments.index_engine import (
    KINDS,
    EnginePlayer,
    IndexCase,
    random_operands,
)
from fastdelta_verif.environments.scenario import ScenarioTest
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}
WHOLE = 1 << 16  # gamma of all blocks
ALWAYS = 1 << 24  # divergence limit that makes every head query-aware


class IndexScoreboard(Scoreboard):
    """Jobs, visits and words of the list come in order."""

    def __init__(self, name: str, parent: uvm_test) -> None:
        super().__init__(name, parent)
        self.jobs, self.visits = self.queue("jobs"), self.queue("visits")
        self.words = self.queue("words of the list")
        self.cycles: list[int] = []  # of the words

    def job(self, item: Transfer) -> None:
        """Compare a job."""
        assert self.jobs, f"no job is expected, but {item} came"
        self.compare("job", item.fields, self.jobs.popleft())

    def visit(self, item: Transfer) -> None:
        """Compare a visit."""
        assert self.visits, f"no visit is expected, but {item} came"
        self.compare("visit", item.fields, self.visits.popleft())

    def word(self, item: Transfer) -> None:
        """Compare a word of the list."""
        assert self.words, f"no word is expected, but {item} came"
        self.compare("word", f"{item.fields[0]:#010x}", f"{self.words.popleft():#010x}")
        self.cycles.append(item.cycle)

    def forget(self) -> None:
        """Expect nothing, as after reset."""
        for queue in (self.jobs, self.visits, self.words):
            queue.clear()


class IndexGeneratorTest(ScenarioTest):
    """Base: the unit, a player of its surroundings, a sink for its lists, the scoreboard."""

    idle_inputs = ("rst_n", "start")

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        self.parameters = parameters = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.numbers = np.random.default_rng(self.settings.seed)
        self.shape = PrefillShape(
            head_dim=parameters["HEAD_DIM"],
            row_arrays=parameters["BLOCK"] // 8,
            array_rows=8,
            lut_arrays=0,
            array_columns=2,
            slots=parameters["SLOTS"],
            max_blocks=parameters["MAX_BLOCKS"],
            max_group=parameters["MAX_GROUP"],
            bus_width=parameters["BUS_WIDTH"],
        )
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        rngs = [random.Random(self.rng.random()) for _ in range(2)]
        self.list = PortSink("list", self, self.domain, rngs[0], "list", ("data",))
        self.player = EnginePlayer("player", self, self.domain, rngs[1])
        self.scoreboard = IndexScoreboard("scoreboard", self)
        self.coverage = IndexCoverage("coverage", self, INDEX_GENERATOR)
        self.coverage.simulator()
        self.coverage.hit("block_size", self.shape.block)
        self.list_started = 0  # cycle
        self.kind_of: dict[IndexCase, str] = {}

    def connect_phase(self) -> None:
        """Connect monitors, player and scoreboard."""
        subscribe = self.scoreboard.subscribe
        subscribe(self.list.port, self.scoreboard.word)
        subscribe(self.player.jobs.port, self._job)
        subscribe(self.player.visits.port, self._visit)
        self.coverage.watch("list", self.list.rhythm)
        self.coverage.watch("job", self.player.jobs.rhythm)
        self.coverage.watch("visit", self.player.visits.rhythm)

    def _job(self, item: Transfer) -> None:
        self.scoreboard.job(item)
        self.player.job(item)

    def _visit(self, item: Transfer) -> None:
        self.scoreboard.visit(item)
        self.player.visit(item)

    def random_window(self, group: int) -> int:
        """Return a legal window, often the largest."""
        windows = [1 << n for n in range(7) if group << n <= self.parameters["SLOTS"]]
        return self.rng.choice([windows[-1], self.rng.choice(windows)])

    def throttle(self, mode: str | None = None) -> None:
        """Set the rhythm of every port, a random one for each if none is given."""
        for throttle in (self.list.throttle, *self.player.throttles):
            throttle.mode = mode or self.rng.choice(THROTTLES)

    def case(
        self,
        kind: str,
        tokens: int,
        group: int,
        *,
        gamma: int,
        limit: int,
        budgets: tuple[int, int] = (0, 4095),
    ) -> IndexCase:
        """Return a run with a random window."""
        operands = random_operands(self.numbers, kind, group, tokens, self.shape.head_dim)
        settings = IndexParameters(self.shape.block, gamma, limit, *budgets)
        window, entries = self.random_window(group), self.parameters["MAP_ENTRIES"]
        case = IndexCase(self.shape, operands, settings, window, entries)
        self.kind_of[case] = kind
        return case

    def random_tokens(self, most_blocks: int) -> int:
        """Return a number of tokens, often at the edge of a block."""
        block, rng = self.shape.block, self.rng
        most = min(most_blocks, self.parameters["MAX_BLOCKS"])
        blocks = rng.choice([rng.randint(1, most), rng.randint(most // 2 + 1, most)])
        short = rng.choice([0, 0, 1, block - 1, rng.randint(0, block - 1)])
        return blocks * block - short

    def random_case(self, most_blocks: int, limit: int | None = None) -> IndexCase:
        """Return a run with random settings; without a limit it is between those of the heads."""
        rng = self.rng
        tokens = self.random_tokens(most_blocks)
        blocks = self.shape.blocks(tokens)
        least = rng.choice([0, 0, 0, 0, 1, rng.randint(0, blocks + 1)])
        most = rng.choice([4095, 4095, 4095, least, rng.randint(least, least + blocks)])
        usual = [rng.randint(1 << 13, 63000) for _ in range(6)]
        case = self.case(
            rng.choice(KINDS),
            tokens,
            rng.randint(1, self.parameters["MAX_GROUP"]),
            gamma=rng.choice([1, WHOLE, WHOLE - 1, *usual]),
            limit=limit or 0,
            budgets=(least, most),
        )
        if limit is None:
            lowest = min(head.divergence for head in case.result.heads)
            between = min((lowest >> 25) + rng.randint(0, 2), ALWAYS)
            kind = self.kind_of[case]
            case = replace(case, parameters=replace(case.parameters, divergence_limit=between))
            self.kind_of[case] = kind
        return case

    def settings_of(self, case: IndexCase) -> dict[str, int]:
        """Return the settings of a run."""
        return {
            "mode_dense": 0,
            "gamma": case.parameters.gamma,
            "divergence_limit": case.parameters.divergence_limit,
            "min_blocks": case.parameters.min_blocks,
            "max_blocks": case.parameters.max_blocks,
            "blocks": case.blocks,
            "padding": case.blocks * self.shape.block - case.tokens,
            "group": case.group,
            "window": case.window,
        }

    def begin(self, case: IndexCase) -> None:
        """Set a run up and expect what the model says."""
        self.player.begin(case)
        self.scoreboard.jobs.extend(case.jobs())
        self.scoreboard.visits.extend(case.visits())

    async def run_case(self, case: IndexCase) -> None:
        """Run a case; list, jobs, visits, decisions and counts must be those of the model."""
        self.begin(case)
        await self.generate(self.settings_of(case), case.words)
        compare, dut = self.scoreboard.compare, self.dut
        compare("player has anything left", self.player.busy(), False)
        counts = (dut.query_aware, dut.index_tiles, dut.pooled_scores, dut.pairs, dut.map_overflow)
        compare("counts", tuple(int(count.value) for count in counts), case.counts)
        self.coverage.case(case, self.kind_of[case])

    async def generate(self, settings: dict[str, int], words: Words) -> None:
        """Start the unit and wait for its list, which must be these words."""
        dut, compare = self.dut, self.scoreboard.compare
        self.scoreboard.words.extend(words.tolist())
        for name, value in settings.items():
            getattr(dut, name).value = value
        dut.start.value = 1
        await self.domain.edge
        dut.start.value = 0
        started = 0
        while True:
            await self.domain.edge
            if int(dut.list_start.value):
                started += 1
                self.list_started = self.domain.cycle
                compare("words of the list", int(dut.list_words.value), len(words))
                compare("words before its length", len(self.scoreboard.words), len(words))
            if int(dut.done.value):
                break
            compare("busy", int(dut.busy.value), 1)
        compare("list_start", started, 1)
        compare("words that are missing", len(self.scoreboard.words), 0)
        await self.domain.edge
        compare("busy", int(dut.busy.value), 0)


@pyuvm.test(**TIME_LIMIT)
class dense_lists(IndexGeneratorTest):
    """Dense mode lists every causal pair; option ``lists``."""

    async def scenario(self) -> None:
        """Random shapes, with blocks at the edges of windows and of the padding."""
        rng, most = self.rng, min(self.parameters["MAX_BLOCKS"], 40)
        for _ in range(self.settings.options["lists"]):
            group = rng.randint(1, self.parameters["MAX_GROUP"])
            window = self.random_window(group)
            blocks = min(rng.choice([1, 15, 16, 17, window, rng.randint(1, most)]), most)
            self.throttle()
            (jobs,) = make_job_lists(IndexSet.dense(group, blocks), 1, window)
            settings = {
                "mode_dense": 1,
                "blocks": blocks,
                "padding": 0,
                "group": group,
                "window": window,
            }
            await self.generate(settings, jobs.to_words())
            self.coverage.dense(blocks, group, window)


@pyuvm.test(**TIME_LIMIT)
class random_runs(IndexGeneratorTest):
    """Random prompts and settings; options ``runs``, ``blocks`` and, to fix it, ``limit``."""

    async def scenario(self) -> None:
        """Every kind of prompt in turn, all ports with random stalls."""
        options = self.settings.options
        for _ in range(options["runs"]):
            self.throttle()
            await self.run_case(self.random_case(options["blocks"], options.get("limit")))


@pyuvm.test(**TIME_LIMIT)
class shortest_prompts(IndexGeneratorTest):
    """Prompts of a token to three blocks at full speed: every step is at its shortest."""

    async def scenario(self) -> None:
        """Both patterns of one head, gamma in the middle and at its ends."""
        block = self.shape.block
        self.throttle("none")
        for tokens in (1, block - 1, block, block + 1, 2 * block, 3 * block - 1):
            for limit in (0, ALWAYS):
                gamma = self.rng.choice([1, 40000, WHOLE])
                await self.run_case(self.case("noise", tokens, 1, gamma=gamma, limit=limit))
                size = "one block" if tokens <= block else "several blocks"
                pattern = PATTERNS[limit == ALWAYS]
                one = tokens_bin(tokens, block) == "one"
                self.coverage.hit("shortest", (pattern, "one token" if one else size))
        # All blocks are wanted, those of score 0 as well.
        await self.run_case(self.case("alone", 4 * block, 1, gamma=WHOLE, limit=0))


@pyuvm.test(**TIME_LIMIT)
class overflowing_maps(IndexGeneratorTest):
    """Maps up to the largest, and one block more; option ``runs``."""

    async def scenario(self) -> None:
        """Query-aware heads at the limit; vertical-slash heads have none."""
        entries, seen = self.parameters["MAP_ENTRIES"], []
        fitting = next(n for n in range(1, 4096) if (n + 1) * (n + 2) // 2 > entries)
        for run in range(self.settings.options["runs"]):
            self.throttle()
            tokens = (fitting + run % 2) * self.shape.block - self.rng.randint(0, 1)
            group = self.rng.randint(1, self.parameters["MAX_GROUP"])
            limit = 0 if run % 4 == 3 else ALWAYS
            case = self.case("noise", tokens, group, gamma=58982, limit=limit)
            seen.append(case.overflows)
            await self.run_case(case)
            fits = "just fits" if run % 2 == 0 else "overflows"
            self.coverage.hit("map", fits if limit else "not needed")
        assert True in seen
        assert False in seen


@pyuvm.test(**TIME_LIMIT)
class reset_in_run(IndexGeneratorTest):
    """After a reset at any cycle the unit is as new; option ``resets``."""

    async def scenario(self) -> None:
        """Interrupt runs of both patterns, then finish one."""
        for _ in range(self.settings.options["resets"]):
            self.throttle("light")
            case = self.random_case(4)
            self.begin(case)
            self.scoreboard.words.extend(case.words.tolist())
            for name, value in self.settings_of(case).items():
                getattr(self.dut, name).value = value
            self.dut.start.value = 1
            await self.domain.edge
            self.dut.start.value = 0
            if self.rng.random() < 0.3:
                while self.player.busy() or self.scoreboard.jobs:
                    await self.domain.edge
            await self.domain.cycles(self.rng.choice([5, 60, self.rng.randint(1, 3000)]))
            in_tiles = self.player.busy() or self.scoreboard.jobs
            self.coverage.hit("reset", "in tiles" if in_tiles else "after the tiles")
            self.dut.rst_n.value = 0
            await self.domain.cycles(2)
            self.player.forget()
            self.scoreboard.forget()
            await self.domain.reset()
            self.throttle()
            await self.run_case(self.random_case(4))


@pyuvm.test(**TIME_LIMIT)
class cycles_beside_tiles(IndexGeneratorTest):
    """From the last row of the last tile to the list; options ``blocks``, ``group``, ``most``.

    ``most`` has the cycles that are allowed, for vertical-slash and for query-aware heads.
    """

    async def scenario(self) -> None:
        """Nothing stalls; equal scores take longest."""
        options = self.settings.options
        self.throttle("none")
        tokens = options["blocks"] * self.shape.block
        for kind, limit, most in zip(("flat", "noise"), (0, ALWAYS), options["most"], strict=True):
            case = self.case(kind, tokens, options["group"], gamma=58982, limit=limit)
            await self.run_case(case)
            cycles = self.list_started - self.player.last_row
            self.logger.info(f"{cycles} cycles, {kind}, {options}")
            self.scoreboard.compare("too many cycles", cycles > most, False)
            self.coverage.hit("cycles", PATTERNS[limit == ALWAYS])
