# SPDX-License-Identifier: Apache-2.0
"""Skid buffer and FIFO: order, rate, capacity, stalls, reset and flush."""

import pytest

from fastdelta_verif.build import Design, Simulate, rtl_sources

# latency in cycles, capacity in beats
SKID = {"latency": 1, "capacity": 2}


def skid_buffer(simulator: str, width: int) -> tuple[Design, dict[str, int]]:
    sources = rtl_sources("common")
    return Design("skid_buffer", sources, {"WIDTH": width}, simulator=simulator), SKID


def stream_fifo(simulator: str, width: int, depth: int) -> tuple[Design, dict[str, int]]:
    parameters = {"WIDTH": width, "DEPTH": depth}
    design = Design("stream_fifo", rtl_sources("common"), parameters, simulator=simulator)
    return design, {"latency": 2, "capacity": depth + 1}


BUFFERS = {
    "skid-1-icarus": skid_buffer("icarus", 1),
    "skid-72-icarus": skid_buffer("icarus", 72),
    "skid-512": skid_buffer("verilator", 512),
    "fifo-8x2-icarus": stream_fifo("icarus", 8, 2),
    "fifo-33x16-icarus": stream_fifo("icarus", 33, 16),
    "fifo-512x64": stream_fifo("verilator", 512, 64),
}


@pytest.mark.parametrize("test", ["random_stalls", "full_rate", "capacity", "emptied"])
@pytest.mark.parametrize("buffer", BUFFERS)
def test_stream_buffer(simulate: Simulate, buffer: str, test: str) -> None:
    design, options = BUFFERS[buffer]
    simulate(design, "stream_buffer", test, options)
