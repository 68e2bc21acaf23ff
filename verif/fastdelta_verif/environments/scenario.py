# SPDX-License-Identifier: Apache-2.0
"""Base of the tests of a unit and of a kernel: reset, what a test is about, and the end."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import Timer
from pyuvm import uvm_test

from fastdelta_verif.agents.clock_domain import ClockDomain


class ScenarioTest(uvm_test):
    """A test that a subclass fills with its `scenario`; its ``build_phase`` sets the attributes.

    Attributes
    ----------
    idle_inputs
        Inputs that are 0 from the start: in a four-state simulator they are unknown before.
    last_cycles
        Cycles at the end, in which nothing may come any more.
    dut, domain
        The design, and its clock and reset.
    """

    idle_inputs: tuple[str, ...] = ("rst_n",)
    last_cycles: int = 20
    dut: Any
    domain: ClockDomain

    async def run_phase(self) -> None:
        """Reset, run the scenario, wait for what must not come."""
        self.raise_objection()
        for name in self.idle_inputs:
            getattr(self.dut, name).value = 0
        await Timer(1, unit="ns")
        self.domain.start()
        await self.domain.reset()
        await self.prepare()
        await self.scenario()
        await self.drained()
        await self.domain.cycles(self.last_cycles)
        self.finish()
        self.drop_objection()

    async def prepare(self) -> None:
        """Do what comes before every scenario of the design."""

    async def scenario(self) -> None:
        """Do what the test is about."""
        raise NotImplementedError  # abstract, but pyuvm's metaclass excludes that of ABC

    async def drained(self) -> None:
        """Wait until all work of the scenario is done; by default it waits for itself."""

    def finish(self) -> None:
        """Look at what must hold after every test."""
