# SPDX-License-Identifier: Apache-2.0
"""The decode bench on the simulated card: its figures, and its output as JSON."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fastdelta.accelerator import Accelerator
from fastdelta.bench.decode import DecodeInputs, bench_decode
from fastdelta.bench.overhead import do_nothing_kernel, measure_overhead
from fastdelta.cli import app
from fastdelta.errors import InputError
from fastdelta.shapes import DecodeShape

pytestmark = pytest.mark.timeout(900)  # the first test of a shape builds its kernel

SMALL = {"head_dim": 16, "qk_heads": 2, "group_ratio": 2, "h_iter": 2, "bus_width": 128}
ERROR_BOUND = 2e-4

# H_ITER: cycles per token that must not be exceeded at the full shape, and the paper's figure.
FULL_SHAPE_BOUNDS = {2: (2250, 42_538), 4: (1130, 26_252), 8: (565, 18_978), 16: (300, 23_206)}
FIRST_TOKEN_BOUND = 1000  # at H_ITER 8
OVERHEAD_BOUND_US = 300


def invoke(*arguments: str) -> tuple[Any, str]:
    """Run the command and return its JSON and what it says on standard error."""
    result = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def small_arguments(**changes: Any) -> list[str]:
    options = {**SMALL, "contexts": 3, "tokens": 40, **changes}
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def test_json_has_every_figure() -> None:
    record, progress = invoke("bench", "decode", *small_arguments(seed=3, clock_mhz=250))
    assert record["simulated"] is True
    assert record["board"] == "sim-u55c"
    assert record["config"] == {**SMALL, "contexts": 3}
    assert record["bit_exact"] is True
    assert record["rel_l2_error"] <= ERROR_BOUND
    assert record["saturations"] == 0
    assert record["paper_cycles_per_token"] is None
    assert record["clock_mhz_assumed"] == 250
    assert record["microseconds_per_token"] == record["cycles_per_token"] / 250
    assert record["seed"] == 3
    assert record["options"]["read_latency"] == 64
    assert record["steady_tokens"] >= 16
    assert record["tokens"] == 40 + 8 + 1
    assert record["simulated_tokens_per_second"] > 0
    assert set(record["seconds"]) == {"setup", "prepare", "copy", "launch"}
    assert {"kernel", "fastdelta", "pynq", "simulator", "overlay"} <= set(record["versions"])
    assert "kernel on tokens" in progress
    overhead = record["host_overhead"]
    assert overhead["calls"] >= 50
    assert overhead["total_us"] == overhead["around_us"] + overhead["do_nothing_us"]
    assert 0 < overhead["copy_us"] < overhead["prepare_us"] < overhead["around_us"]


def test_overhead_leaves_the_kernel_out() -> None:
    """A slow memory makes calls longer, not the host's share of them."""
    shape = DecodeShape(**SMALL, contexts=3)
    inputs = DecodeInputs.synthetic(shape, 8, seed=1)
    options = {"shape": shape, "a_log": inputs.a_log, "dt_bias": inputs.dt_bias}
    found = []
    for latency in (1, 3000):
        with (
            Accelerator.open("decode", **options, read_latency=latency) as engine,
            do_nothing_kernel("sim-u55c") as nothing,
        ):
            overhead = measure_overhead(engine, inputs.tokens(0, 8), nothing, calls=30)
            calls = []
            for _ in range(20):
                began = time.perf_counter()
                engine.decode(*inputs.tokens(0, 1))
                calls.append(1e6 * (time.perf_counter() - began))
            found.append((overhead.total_us, min(calls)))  # other work only adds to a call
            with do_nothing_kernel("u55c") as none:
                assert none is None
                without = measure_overhead(engine, inputs.tokens(0, 8), none, calls=5)
            assert without.total_us is without.do_nothing_us is None
    (near, near_call), (far, far_call) = found
    assert far_call > near_call + 1000
    assert far < 5 * near


def test_figures_depend_on_the_memory_and_not_on_the_run() -> None:
    near, far = (
        bench_decode(DecodeShape(**SMALL, contexts=3), tokens=40, read_latency=latency)
        for latency in (1, 200)
    )
    again = bench_decode(DecodeShape(**SMALL, contexts=3), tokens=40, read_latency=200)
    assert far.first_token_latency_cycles >= near.first_token_latency_cycles + 199
    assert far.cycles_per_token == near.cycles_per_token, "the steady state hides the latency"
    assert (again.cycles_per_token, again.first_token_latency_cycles, again.rel_l2_error) == (
        far.cycles_per_token,
        far.first_token_latency_cycles,
        far.rel_l2_error,
    )


def test_several_configurations_make_a_list(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    arguments = ["bench", "decode", *small_arguments(h_iter="2,2"), "--json", str(file)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "SIMULATED" in result.stdout
    assert "cycles per token" in result.stdout
    records = json.loads(file.read_text())
    assert [record["config"]["h_iter"] for record in records] == [2, 2]


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(InputError, match="24 or more"):
        bench_decode(DecodeShape(**SMALL), tokens=23)
    with pytest.raises(InputError, match="clock"):
        bench_decode(DecodeShape(**SMALL), clock_mhz=0)


@pytest.mark.alone
@pytest.mark.slow
def test_host_overhead_of_the_full_shape_meets_its_bound() -> None:
    shape = DecodeShape()
    inputs = DecodeInputs.synthetic(shape, 8, seed=1)
    constants = {"a_log": inputs.a_log, "dt_bias": inputs.dt_bias}
    with (
        Accelerator.open("decode", shape=shape, **constants) as engine,
        do_nothing_kernel("sim-u55c") as nothing,
    ):
        # How fast the machine is at the moment is no property of the host: a virtual one was seen
        # to be half as fast for seconds, with nothing else on it.
        best, end = math.inf, time.monotonic() + 60
        while best > OVERHEAD_BOUND_US and time.monotonic() < end:
            total = measure_overhead(engine, inputs.tokens(0, 8), nothing).total_us
            assert total is not None
            best = min(best, total)
    assert best <= OVERHEAD_BOUND_US


@pytest.mark.slow
@pytest.mark.parametrize("h_iter", FULL_SHAPE_BOUNDS)
def test_full_shape_meets_its_bounds(h_iter: int) -> None:
    record, _ = invoke("bench", "decode", "--h-iter", str(h_iter), "--tokens", "40")
    bound, paper = FULL_SHAPE_BOUNDS[h_iter]
    assert record["cycles_per_token"] <= bound
    assert record["paper_cycles_per_token"] == paper
    assert record["bit_exact"] is True
    assert record["rel_l2_error"] <= ERROR_BOUND
    assert record["saturations"] == 0
    assert record["clock_mhz_assumed"] == 300
    if h_iter == 8:
        assert record["first_token_latency_cycles"] <= FIRST_TOKEN_BOUND
