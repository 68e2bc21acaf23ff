# SPDX-License-Identifier: Apache-2.0
"""Seeded faults of the cells: each must break a proof with a trace that starts at a reset."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastdelta_verif.build import REPOSITORY


@dataclass(frozen=True)
class Fault:
    """One seeded fault.

    Attributes
    ----------
    proof
        Name of the proof that must fail.
    file
        Source below ``rtl/``.
    old, new
        Text that occurs exactly once, and what takes its place.
    """

    proof: str
    file: str
    old: str
    new: str

    def apply(self, folder: Path) -> None:
        """Copy the RTL to ``rtl`` in a folder, with the fault in it.

        Raises
        ------
        ValueError
            The text does not occur exactly once: the RTL has changed, so must the fault.
        """
        shutil.copytree(REPOSITORY / "rtl", folder / "rtl")
        source = folder / "rtl" / self.file
        text = source.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file}: '{self.old}' occurs {text.count(self.old)} times, it must occur "
                "once; adapt the fault to the RTL"
            )
        source.write_text(text.replace(self.old, self.new))


SKID, FIFO, PLANNER = "common/skid_buffer.v", "common/stream_fifo.v", "common/axi_burst_planner.v"
PACKER = "prefill/word_packer.v"

FAULTS: Mapping[str, Fault] = {
    "skid_buffer_is_ready_when_full": Fault(
        "skid_buffer", SKID, "running && !spare_valid;", "running;"
    ),
    "skid_buffer_forgets_the_spare_beat": Fault(
        "skid_buffer", SKID, "m_axis_tvalid <= spare_valid || take;", "m_axis_tvalid <= take;"
    ),
    "skid_buffer_overtakes": Fault(
        "skid_buffer", SKID, "spare_valid ? spare : s_axis_tdata", "s_axis_tdata"
    ),
    "fifo_takes_one_too_many": Fault(
        "stream_fifo",
        FIFO,
        "s_axis_tready = !level[POINTER_BITS]",
        "s_axis_tready = level <= DEPTH[POINTER_BITS:0]",
    ),
    "fifo_moves_a_beat_that_waits": Fault(
        "stream_fifo", FIFO, "= advance && write_pointer", "= write_pointer"
    ),
    "fifo_keeps_a_beat_in_a_flush": Fault(
        "stream_fifo",
        FIFO,
        "m_axis_tvalid <= 1'b0;\n    end else",
        "m_axis_tvalid <= m_axis_tvalid && rst_n;\n    end else",
    ),
    "burst_crosses_a_page": Fault(
        "axi_burst_planner",
        PLANNER,
        "page_limit > MAX_BURST[11:0] ? MAX_BURST[11:0] : page_limit",
        "MAX_BURST[11:0]",
    ),
    "burst_is_too_long": Fault(
        "axi_burst_planner_odd",
        PLANNER,
        "limit = page_limit > MAX_BURST",
        "limit = page_limit > 12'd1 + MAX_BURST",
    ),
    "transfer_of_none_is_pending": Fault(
        "axi_burst_planner", PLANNER, "pending <= load_beats != 32'd0;", "pending <= 1'b1;"
    ),
    "transfer_ends_a_burst_early": Fault(
        "axi_burst_planner_narrow",
        PLANNER,
        "is_last = left <= {20'b0, limit}",
        "is_last = left <= {20'b0, limit} + 32'd1",
    ),
    "packer_takes_a_word_into_a_full_beat": Fault(
        "word_packer", PACKER, "!m_axis_tvalid || m_axis_tready;", "1'b1;"
    ),
    "packer_counts_from_the_flush_before": Fault(
        "word_packer", PACKER, "count         <= {COUNT_BITS{1'b0}};", "if (!rst_n) count <= 0;"
    ),
    "packer_puts_words_upside_down": Fault(
        "word_packer",
        PACKER,
        "<= {s_axis_tdata, m_axis_tdata[BUS_WIDTH-1:32]};",
        "<= {m_axis_tdata[BUS_WIDTH-33:0], s_axis_tdata};",
    ),
}
