# SPDX-License-Identifier: Apache-2.0
"""The proofs, by name."""

from __future__ import annotations

from collections.abc import Mapping

from fastdelta_verif.formal.sby import Proof

PROOFS: Mapping[str, Proof] = {
    "skid_buffer": Proof("skid_buffer", "common", {"WIDTH": 3}, depth=3),
    "stream_fifo": Proof("stream_fifo", "common", {"WIDTH": 3, "DEPTH": 4}, depth=3),
    "stream_fifo_of_two": Proof("stream_fifo", "common", {"WIDTH": 3, "DEPTH": 2}, depth=3),
    "axi_burst_planner": Proof(
        "axi_burst_planner",
        "common",
        {"ADDRESS_WIDTH": 64, "DATA_WIDTH": 512, "MAX_BURST": 16},
        depth=3,
    ),
    "axi_burst_planner_narrow": Proof(
        "axi_burst_planner",
        "common",
        {"ADDRESS_WIDTH": 32, "DATA_WIDTH": 32, "MAX_BURST": 256},
        depth=3,
    ),
    "axi_burst_planner_odd": Proof(
        "axi_burst_planner",
        "common",
        {"ADDRESS_WIDTH": 33, "DATA_WIDTH": 1024, "MAX_BURST": 3},
        depth=3,
    ),
    "word_packer": Proof("word_packer", "prefill", {"BUS_WIDTH": 128}, depth=3),
}
