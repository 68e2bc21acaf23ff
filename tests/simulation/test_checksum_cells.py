# SPDX-License-Identifier: Apache-2.0
"""Checksums of the memory ports, and check beats: sums, clear, stalls, blocks that are cut off."""

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize("width", [64, 128, 512, 1024])
def test_sums(simulate: Simulate, width: int, simulator: str) -> None:
    sources = needed_sources("beat_checksum", rtl_sources("prefill"))
    design = Design("beat_checksum", sources, {"BUS_WIDTH": width}, simulator=simulator)
    simulate(design, "checksum_cells", "sums")


@pytest.mark.parametrize("test", ["blocks", "cut_off"])
@pytest.mark.parametrize(("beats", "simulator"), [(1, "icarus"), (2, "icarus"), (9, "verilator")])
def test_check_beats(simulate: Simulate, beats: int, simulator: str, test: str) -> None:
    sources = needed_sources("block_check", rtl_sources("prefill"))
    parameters = {"BLOCK_BEATS": beats, "BUS_WIDTH": 64}
    design = Design("block_check", sources, parameters, simulator=simulator)
    simulate(design, "checksum_cells", test, {"beats": beats})
