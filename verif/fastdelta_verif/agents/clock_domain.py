# SPDX-License-Identifier: Apache-2.0
"""Clock and reset of a test bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, ValueChange
from cocotb.utils import get_sim_time

from fastdelta_verif.port_trace import record_ports
from fastdelta_verif.settings import Settings

CLOCK_PERIOD_NS = 4


class ClockDomain:
    """Clock, synchronous active-low reset and, where the design has one, flush.

    ``in_reset`` is true while reset or flush is asserted; monitors forget what they hold then.
    Values read after ``await domain.edge`` are those that the edge samples.
    """

    def __init__(self, clk: Any, rst_n: Any, flush: Any = None) -> None:
        self.clk = clk
        self.rst_n = rst_n
        self.flush = flush
        self.in_reset = True
        self.edge = RisingEdge(clk)

    def start(self) -> None:
        """Assert reset and start the clock, low first, so that reset comes before an edge.

        The ports of the design are recorded from then on, when the settings say so.
        """
        self.rst_n.value = 0
        if self.flush is not None:
            self.flush.value = 0
            cocotb.start_soon(self._watch(self.flush))
        cocotb.start_soon(self._watch(self.rst_n))
        settings = Settings.current()
        if settings.trace_file:
            file = Path(settings.trace_file)
            cocotb.start_soon(record_ports(cocotb.top, settings.ports, self.edge, file))
        Clock(self.clk, CLOCK_PERIOD_NS, unit="ns", impl="gpi").start(start_high=False)

    @property
    def cycle(self) -> int:
        """Return the number of the present clock cycle."""
        return int(get_sim_time("ns")) // CLOCK_PERIOD_NS

    async def _watch(self, signal: Any) -> None:
        while True:
            await ValueChange(signal)
            asserted = str(self.rst_n.value) != "1"  # unknown before the first write
            if self.flush is not None:
                asserted = asserted or str(self.flush.value) != "0"
            self.in_reset = asserted

    async def cycles(self, count: int) -> None:
        """Wait for a number of clock edges."""
        for _ in range(count):
            await self.edge

    async def reset(self, cycles: int = 4) -> None:
        """Hold reset for a number of cycles and release it after a clock edge."""
        self.rst_n.value = 0
        await self.cycles(cycles)
        self.rst_n.value = 1
        await self.edge

    async def pulse_flush(self) -> None:
        """Assert flush for one cycle."""
        self.flush.value = 1
        await self.edge
        self.flush.value = 0
        await self.edge
