# SPDX-License-Identifier: Apache-2.0
"""Job reader: legal lists are given whole, broken ones end it without a hang."""

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SOURCES = needed_sources("job_reader", rtl_sources("prefill"))


def reader(slots: int, max_blocks: int, bus: int, simulator: str = "verilator") -> Design:
    parameters = {"SLOTS": slots, "MAX_BLOCKS": max_blocks, "BUS_WIDTH": bus}
    return Design("job_reader", SOURCES, parameters, simulator)


READERS = {
    "16-slots-64-bit": reader(16, 64, 64),
    "64-slots-512-bit": reader(64, 2048, 512),
    "4-slots-128-bit-icarus": reader(4, 64, 128, "icarus"),
}


@pytest.mark.parametrize("name", READERS)
def test_legal_lists(simulate: Simulate, name: str) -> None:
    lists = 12 if READERS[name].simulator == "icarus" else 30
    simulate(READERS[name], "job_reader", "random_lists", {"lists": lists})


@pytest.mark.parametrize("name", READERS)
def test_broken_lists(simulate: Simulate, name: str) -> None:
    rounds = 1 if READERS[name].simulator == "icarus" else 3
    simulate(READERS[name], "job_reader", "broken_lists", {"rounds": rounds})


@pytest.mark.parametrize("name", READERS)
def test_full_rate(simulate: Simulate, name: str) -> None:
    simulate(READERS[name], "job_reader", "full_rate")


@pytest.mark.parametrize("name", READERS)
def test_blocked_ports(simulate: Simulate, name: str) -> None:
    simulate(READERS[name], "job_reader", "blocked_ports")


def test_most_uses(simulate: Simulate) -> None:
    simulate(READERS["64-slots-512-bit"], "job_reader", "most_uses")


@pytest.mark.parametrize("name", READERS)
def test_reset_in_list(simulate: Simulate, name: str) -> None:
    simulate(READERS[name], "job_reader", "reset_in_list", {"resets": 6})
