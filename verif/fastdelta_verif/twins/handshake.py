# SPDX-License-Identifier: Apache-2.0
"""Twin of the skid buffer."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, instances, intbv


@block
def skid_buffer(
    clk: Any,
    rst_n: Any,
    s_axis_tdata: Any,
    s_axis_tvalid: Any,
    s_axis_tready: Any,
    m_axis_tdata: Any,
    m_axis_tvalid: Any,
    m_axis_tready: Any,
) -> Any:
    """Buffer of two beats between two streams, as a queue with its length.

    Parameters
    ----------
    clk, rst_n
        Clock; reset, low.
    s_axis_tdata, s_axis_tvalid, s_axis_tready
        Stream in, AXI4-Stream.
    m_axis_tdata, m_axis_tvalid, m_axis_tready
        Stream out.
    """
    bits = len(s_axis_tdata)
    level = Signal(intbv(0)[2:])
    second = Signal(intbv(0)[bits:])
    first = Signal(intbv(0)[bits:])
    awake = Signal(bool(0))
    taken, given = Signal(bool(0)), Signal(bool(0))

    @always_comb
    def outputs() -> None:
        s_axis_tready.next = awake and level < 2
        m_axis_tvalid.next = level > 0
        m_axis_tdata.next = first

    @always_comb
    def handshakes() -> None:
        taken.next = s_axis_tvalid and awake and level < 2
        given.next = m_axis_tready and level > 0

    @always(clk.posedge)
    def queue() -> None:
        awake.next = rst_n
        if not rst_n:
            level.next = 0
        elif taken and not given:
            level.next = level + 1
        elif given and not taken:
            level.next = level - 1
        if given and level == 2:
            first.next = second
        elif taken and (level == 0 or given):
            first.next = s_axis_tdata
        if taken:
            second.next = s_axis_tdata

    return instances()
