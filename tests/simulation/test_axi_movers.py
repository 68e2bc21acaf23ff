# SPDX-License-Identifier: Apache-2.0
"""AXI4 read and write movers, and the kinds of failures known of such blocks."""

import pytest

from fastdelta_verif.build import Design, Simulate, rtl_sources


def read_mover(width: int, burst: int, fifo: int, simulator: str = "verilator") -> Design:
    parameters = {"DATA_WIDTH": width, "MAX_BURST": burst, "FIFO_BEATS": fifo}
    return Design("axi_read_mover", rtl_sources("common"), parameters, simulator=simulator)


READ_MOVERS = {
    "32x256": read_mover(32, 256, 512),
    "128x16-icarus": read_mover(128, 16, 16, "icarus"),
    "256x1": read_mover(256, 1, 2),
    "512x64": read_mover(512, 64, 256),
}
READ_TESTS = (
    "page_split",
    "queued_commands",
    "zero_length",
    "blocked_sink",
    "error_answers",
    "cancelled",
    "reset_in_transfer",
)


@pytest.mark.parametrize("mover", READ_MOVERS)
def test_read_random_transfers(simulate: Simulate, mover: str) -> None:
    simulate(READ_MOVERS[mover], "axi_read_mover", "random_transfers", {"transfers": 80})


@pytest.mark.parametrize("test", READ_TESTS)
@pytest.mark.parametrize("mover", READ_MOVERS)
def test_read(simulate: Simulate, mover: str, test: str) -> None:
    simulate(READ_MOVERS[mover], "axi_read_mover", test)


def test_read_full_rate_at_a_latency_of_128_cycles(simulate: Simulate) -> None:
    simulate(READ_MOVERS["512x64"], "axi_read_mover", "full_rate")


def test_read_commands_follow_each_other_without_a_gap(simulate: Simulate) -> None:
    simulate(READ_MOVERS["512x64"], "axi_read_mover", "queued_rate", {"latency": 128})


def write_mover(
    width: int, burst: int, fifo: int, outstanding: int, simulator: str = "verilator"
) -> Design:
    parameters = {
        "DATA_WIDTH": width,
        "MAX_BURST": burst,
        "FIFO_BEATS": fifo,
        "OUTSTANDING": outstanding,
    }
    return Design("axi_write_mover", rtl_sources("common"), parameters, simulator=simulator)


WRITE_MOVERS = {
    "32x256": write_mover(32, 256, 64, 4),
    "128x16-icarus": write_mover(128, 16, 4, 2, "icarus"),
    "256x1": write_mover(256, 1, 2, 16),
    "512x64": write_mover(512, 64, 64, 16),
}
WRITE_TESTS = (
    "page_split",
    "queued_commands",
    "zero_length",
    "late_answers",
    "forbidden_waits",
    "error_answers",
    "cancelled",
    "reset_in_transfer",
)


@pytest.mark.parametrize("mover", WRITE_MOVERS)
def test_write_random_transfers(simulate: Simulate, mover: str) -> None:
    simulate(WRITE_MOVERS[mover], "axi_write_mover", "random_transfers", {"transfers": 80})


@pytest.mark.parametrize("test", WRITE_TESTS)
@pytest.mark.parametrize("mover", WRITE_MOVERS)
def test_write(simulate: Simulate, mover: str, test: str) -> None:
    simulate(WRITE_MOVERS[mover], "axi_write_mover", test)


def test_write_full_rate_with_answers_after_128_cycles(simulate: Simulate) -> None:
    simulate(WRITE_MOVERS["512x64"], "axi_write_mover", "full_rate")


def test_write_commands_follow_each_other_without_a_gap(simulate: Simulate) -> None:
    simulate(WRITE_MOVERS["512x64"], "axi_write_mover", "queued_rate", {"latency": 128})
