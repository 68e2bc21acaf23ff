# SPDX-License-Identifier: Apache-2.0
"""Test of ``quadratic``: every function against the model, to the bit."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
import numpy as np
import pyuvm
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from pyuvm import uvm_test

from fastdelta.reference.functions import OFFSET_BITS, ONE, Function, evaluate
from fastdelta_verif.covergroups import Coverage
from fastdelta_verif.covergroups.prefill import QUADRATIC, sample_quadratic
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings

LATENCY = 4
TIME_LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


@pyuvm.test(**TIME_LIMIT)
class every_segment(uvm_test):
    """Both ends and the middle of every segment, and random arguments, one a cycle."""

    def build_phase(self) -> None:
        """Create the components."""
        self.settings = Settings.current()
        self.scoreboard = Scoreboard("scoreboard", self)
        self.coverage = Coverage("coverage", self, QUADRATIC)

    async def run_phase(self) -> None:
        """Drive arguments and compare what comes LATENCY cycles later."""
        self.raise_objection()
        dut: Any = cocotb.top
        rng = random.Random(self.settings.seed)
        function = Function(self.settings.parameters["FUNCTION"])
        starts = np.arange(0, ONE, 1 << OFFSET_BITS)
        half = 1 << (OFFSET_BITS - 1)
        edges = np.concatenate([starts, starts + half - 1, starts + half, starts + 2 * half - 1])
        drawn = [rng.randrange(ONE) for _ in range(self.settings.options["random"])]
        arguments = np.concatenate([edges, np.array(drawn, dtype=np.int64)])
        expected = deque(evaluate(function, arguments).tolist())
        Clock(dut.clk, 4, unit="ns", impl="gpi").start(start_high=False)
        for number, u in enumerate([*arguments.tolist(), *[0] * LATENCY]):
            dut.u.value = u
            await RisingEdge(dut.clk)
            if number >= LATENCY:
                got = int(dut.y.value)
                self.scoreboard.compare(f"argument {number - LATENCY}", got, expected.popleft())
        self.scoreboard.compare("results left", len(expected), 0)
        sample_quadratic(self.coverage, function, arguments)
        self.drop_objection()
