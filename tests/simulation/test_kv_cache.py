# SPDX-License-Identifier: Apache-2.0
"""KV cache: decisions of the model, the blocks of the visits in order, memory latency hidden."""

import pytest

from fastdelta_verif.build import Design, Simulate, needed_sources, rtl_sources

SOURCES = needed_sources("kv_cache", rtl_sources("prefill"))


def cache(
    block: int, head_dim: int, bus: int, lines: int, prefetch: int, simulator: str = "verilator"
) -> Design:
    parameters = {
        "BLOCK": block,
        "HEAD_DIM": head_dim,
        "CACHE_LINES": lines,
        "MAX_BLOCKS": 64,
        "BUS_WIDTH": bus,
        "PREFETCH": prefetch,
    }
    return Design("kv_cache", SOURCES, parameters, simulator)


CACHES = {
    "8x16-8-lines": cache(8, 16, 64, 8, 4),
    "16x32-16-lines": cache(16, 32, 128, 16, 5),
    "8x24-2-lines-icarus": cache(8, 24, 64, 2, 1, "icarus"),
}


@pytest.mark.parametrize("name", CACHES)
def test_random_lists(simulate: Simulate, name: str) -> None:
    heads = 8 if CACHES[name].simulator == "icarus" else 18
    simulate(CACHES[name], "kv_cache", "random_lists", {"heads": heads})


@pytest.mark.parametrize("name", CACHES)
def test_on_and_off(simulate: Simulate, name: str) -> None:
    simulate(CACHES[name], "kv_cache", "on_and_off", {"heads": 2})


@pytest.mark.parametrize("name", CACHES)
def test_index_visits(simulate: Simulate, name: str) -> None:
    simulate(CACHES[name], "kv_cache", "index_visits")


@pytest.mark.parametrize("name", ["8x16-8-lines", "16x32-16-lines"])
def test_full_rate(simulate: Simulate, name: str) -> None:
    simulate(CACHES[name], "kv_cache", "full_rate")


@pytest.mark.parametrize("name", CACHES)
def test_latency(simulate: Simulate, name: str) -> None:
    simulate(CACHES[name], "kv_cache", "latency")


@pytest.mark.parametrize("name", CACHES)
def test_blocked_outputs(simulate: Simulate, name: str) -> None:
    simulate(CACHES[name], "kv_cache", "blocked_outputs")


@pytest.mark.parametrize("name", CACHES)
def test_reset_in_list(simulate: Simulate, name: str) -> None:
    simulate(CACHES[name], "kv_cache", "reset_in_list", {"resets": 5})
