# SPDX-License-Identifier: Apache-2.0
"""Tests of ``index_generator``: job lists and decisions against the bit-exact model.

The design of the launcher must name every parameter.
"""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np
import pyuvm
from cocotb.triggers import Timer
from pyuvm import uvm_test

from fastdelta.prefill.job_lists import Words, make_job_lists
from fastdelta.reference.sparse_index import IndexSet
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.handshake import THROTTLES
from fastdelta_verif.agents.ports import PortSink, Transfer
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


class IndexScoreboard(Scoreboard):
    """Words of the list come in order."""

    def __init__(self, name: str, parent: uvm_test) -> None:
        super().__init__(name, parent)
        self.words = self.queue("words of the list")
        self.cycles: list[int] = []

    def word(self, item: Transfer) -> None:
        """Compare a word of the list."""
        assert self.words, f"no word is expected, but {item} came"
        self.compare("word", f"{item.fields[0]:#010x}", f"{self.words.popleft():#010x}")
        self.cycles.append(item.cycle)


class IndexGeneratorTest(uvm_test):
    """Base: the unit, a sink for its lists, the scoreboard."""

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        self.parameters = self.settings.parameters
        self.dut: Any = cocotb.top
        self.rng = random.Random(self.settings.seed)
        self.numbers = np.random.default_rng(self.settings.seed)
        self.domain = ClockDomain(self.dut.clk, self.dut.rst_n)
        rngs = [random.Random(self.rng.random()) for _ in range(3)]
        self.list = PortSink("list", self, self.domain, rngs[0], "list", ("data",))
        self.scoreboard = IndexScoreboard("scoreboard", self)

    def connect_phase(self) -> None:
        """Connect monitors and scoreboard."""
        self.scoreboard.subscribe(self.list.port, self.scoreboard.word)

    def random_window(self, group: int) -> int:
        """Return a legal window, often the largest."""
        windows = [1 << n for n in range(7) if group << n <= self.parameters["SLOTS"]]
        return self.rng.choice([windows[-1], self.rng.choice(windows)])

    def throttle(self, mode: str | None = None) -> None:
        """Set the rhythm of every port, a random one for each if none is given."""
        self.list.throttle.mode = mode or self.rng.choice(THROTTLES)

    async def generate(self, blocks: int, group: int, window: int, words: Words) -> None:
        """Start the unit and wait for its list, which must be these words."""
        dut, compare = self.dut, self.scoreboard.compare
        self.scoreboard.words.extend(words.tolist())
        dut.blocks.value, dut.group.value, dut.window.value = blocks, group, window
        dut.start.value = 1
        await self.domain.edge
        dut.start.value = 0
        started = 0
        while True:
            await self.domain.edge
            if int(dut.list_start.value):
                started += 1
                compare("words of the list", int(dut.list_words.value), len(words))
                compare("words before its length", len(self.scoreboard.words), len(words))
            if int(dut.done.value):
                break
            compare("busy", int(dut.busy.value), 1)
        compare("list_start", started, 1)
        compare("words that are missing", len(self.scoreboard.words), 0)
        await self.domain.edge
        compare("busy", int(dut.busy.value), 0)

    async def run_phase(self) -> None:
        """Reset, then run the scenario."""
        self.raise_objection()
        self.dut.rst_n.value = 0
        self.dut.start.value = 0
        await Timer(1, unit="ns")
        self.domain.start()
        await self.domain.reset()
        await self.scenario()
        await self.domain.cycles(20)  # nothing may come any more
        self.drop_objection()

    async def scenario(self) -> None:
        """Do what the test is about."""
        raise NotImplementedError


@pyuvm.test(**TIME_LIMIT)
class dense_lists(IndexGeneratorTest):  # noqa: N801 - cocotb takes the class name as the test's name
    """Dense mode lists every causal pair; option ``lists``."""

    async def scenario(self) -> None:
        """Random shapes, with blocks at the edges of windows and of the padding."""
        rng, most = self.rng, min(self.parameters["MAX_BLOCKS"], 40)
        self.dut.mode_dense.value = 1
        for _ in range(self.settings.options["lists"]):
            group = rng.randint(1, self.parameters["MAX_GROUP"])
            window = self.random_window(group)
            blocks = min(rng.choice([1, 15, 16, 17, window, rng.randint(1, most)]), most)
            self.throttle()
            (jobs,) = make_job_lists(IndexSet.dense(group, blocks), 1, window)
            await self.generate(blocks, group, window, jobs.to_words())
