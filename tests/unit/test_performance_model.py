# SPDX-License-Identifier: Apache-2.0
"""The performance model: its error over the recorded runs of the RTL, and its own rules."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from fastdelta.bench.calibrate import (
    DECODE_CASES,
    KERNELS,
    PREFILL_CASES,
    calibration,
    case_errors,
    model_prefill,
)
from fastdelta.errors import InputError, RangeError
from fastdelta.prefill.job_lists import JobFields, make_job_lists
from fastdelta.reference.kv_cache_model import KVCache, Visit
from fastdelta.reference.performance import (
    DECODE_MODELS,
    PREFILL_MODELS,
    MemoryTiming,
    Port,
    decode_performance,
    model_decode_performance,
    model_prefill_performance,
    model_shape,
    prefill_performance,
)
from fastdelta.reference.performance.cache import list_visits
from fastdelta.reference.performance.calibration import RECORD, calibration_error
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import DecodeShape, PrefillShape

MEDIAN, WORST = 0.03, 0.08
SMALL = PrefillShape(
    head_dim=32,
    row_arrays=2,
    lut_arrays=1,
    array_rows=8,
    array_columns=16,
    slots=8,
    cache_lines=8,
    max_blocks=256,
    max_group=4,
    bus_width=128,
)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return values


def random_indices(blocks: int, heads: int, density: float, seed: int = 0) -> IndexSet:
    """Blocks drawn with a density, diagonal included."""
    mask = np.random.default_rng(seed).random((heads, blocks, blocks)) < density
    return IndexSet.from_mask((mask | np.eye(blocks, dtype=bool)) & np.tri(blocks, dtype=bool))


# ---------------------------------------------------------------- calibration


def test_record_has_every_case(record: dict[str, Any]) -> None:
    for kind, cases in (("prefill", PREFILL_CASES), ("decode", DECODE_CASES)):
        assert [entry["case"] for entry in record[kind]] == [asdict(case) for case in cases], (
            "run `python -m fastdelta.bench.calibrate --write`"
        )
    assert sum(len(record[kind]) for kind in KERNELS) >= 30


@pytest.mark.parametrize("kernel", KERNELS)
def test_error_over_held_out_cases(record: dict[str, Any], kernel: str) -> None:
    found = calibration(record, kernel)
    assert found.held_out >= 8
    assert found.held_out < found.configurations
    assert found.median <= MEDIAN
    assert found.worst <= WORST
    stated = calibration_error(kernel)
    assert asdict(found) == pytest.approx(asdict(stated), abs=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_cases_of_an_even_memory_are_met_to_the_cycle(record: dict[str, Any], kernel: str) -> None:
    errors = [abs(e) for case, e in case_errors(record, kernel) if not case.memory.stall]
    assert max(errors) < 1e-4  # an equal score more or less in a selection is a cycle
    assert errors.count(0.0) >= 0.9 * len(errors)


def test_traffic_hits_and_steps_are_those_of_the_rtl(record: dict[str, Any]) -> None:
    for entry in record["prefill"]:
        modelled = model_prefill(entry)
        for name in ("memory_bytes", "visits", "hits", "bypasses", "jobs", "attention_steps"):
            assert getattr(modelled, name) == entry[name], (name, entry["case"])
        assert modelled.index_steps == entry["index_steps"], entry["case"]


def test_phases_add_up(record: dict[str, Any]) -> None:
    for entry in record["prefill"]:
        modelled = model_prefill(entry)
        assert sum(modelled.phases.values()) == pytest.approx(modelled.cycles.total, abs=1)
        assert modelled.sampled_jobs == modelled.jobs
        assert modelled.calibration == calibration_error("prefill")


# ---------------------------------------------------------------- prefill


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(("lines", "threshold"), [(4, 3), (8, 40), (16, 10**4), (2, 0)])
def test_cache_decides_as_its_model(lines: int, threshold: int, cache: bool) -> None:
    window, group = 4, 2
    for seed in range(5):
        indices = random_indices(30, group, 0.3, seed)
        (jobs,) = make_job_lists(indices, 1, window)
        fields = JobFields.from_words(jobs.jobs)
        found = list_visits(jobs, fields, window, lines, threshold, cache=cache)
        model = KVCache(lines, threshold, enabled=cache)
        model.start(jobs.uses.tolist())
        sizes = np.diff(found.first).tolist()
        blocks = fields.kv_block[found.first[:-1]].tolist()
        hits = [model.visit(Visit(*visit)).hit for visit in zip(blocks, sizes, strict=True)]
        assert found.hit.tolist() == hits
        assert found.bypasses == model.counters.bypasses
        assert found.hits == model.counters.hits


@pytest.mark.parametrize(("density", "blocks"), [(0.15, 240), (0.5, 150)])
def test_sample_of_a_long_list_is_near_the_whole(density: float, blocks: int) -> None:
    shape = PrefillShape(head_dim=64)
    indices = random_indices(blocks, 4, density)
    arguments: dict[str, Any] = {"tokens": 128 * blocks, "kv_heads": 1}
    whole = prefill_performance(indices, shape, exact_jobs=10**9, **arguments)
    sample = prefill_performance(indices, shape, exact_jobs=8000, **arguments)
    assert whole.sampled_jobs == whole.jobs == sample.jobs
    assert sample.sampled_jobs < whole.jobs / 2
    assert sample.cycles.attention == pytest.approx(whole.cycles.attention, rel=0.01)
    assert (sample.hits, sample.memory_bytes) == (whole.hits, whole.memory_bytes)


def test_memory_that_is_slower_or_farther_takes_longer() -> None:
    indices = random_indices(30, 4, 0.4)
    times = [
        prefill_performance(
            indices, SMALL, MemoryTiming.uniform(speed, latency), tokens=480, kv_heads=1
        ).cycles.attention
        for speed, latency in ((None, 8), (None, 64), (None, 400), (8, 400), (2, 400))
    ]
    assert times == sorted(times)
    assert times[0] < times[-1] / 2


def test_one_slow_port_is_the_bound() -> None:
    indices = random_indices(40, 1, 1.0)
    arguments: dict[str, Any] = {"tokens": 640, "kv_heads": 1, "cache": False}
    fast = prefill_performance(indices, SMALL, **arguments)
    for name in ("k", "v", "o"):
        slow = MemoryTiming(ports={name: Port(bytes_per_cycle=2)})
        found = prefill_performance(indices, SMALL, slow, **arguments)
        assert found.cycles.attention > fast.cycles.attention
        least = fast.memory_bytes[name] / 2
        assert least <= found.cycles.attention
        if name != "o":  # few outputs: other things bound the phase
            assert found.cycles.attention < 1.3 * least


def test_modes_have_their_phases() -> None:
    arguments: dict[str, Any] = {"tokens": 480, "kv_heads": 1}
    indices = random_indices(30, 2, 0.4)
    listed = prefill_performance(indices, SMALL, mode="list", **arguments)
    assert listed.cycles.index == 0
    chosen = prefill_performance(indices, SMALL, mode="index", **arguments)
    assert chosen.cycles.attention == listed.cycles.attention
    assert chosen.phases["map"] == 0
    aware = prefill_performance(
        indices, SMALL, mode="index", query_aware=[True, False], **arguments
    )
    assert aware.phases["map"] > 0
    assert aware.cycles.index > chosen.cycles.index
    assert aware.memory_bytes["q"] == chosen.memory_bytes["q"] + 30 * SMALL.q_block_bytes
    dense = prefill_performance("dense", SMALL, heads=2, mode="dense", **arguments)
    assert dense.density == 1
    assert dense.phases["statistics"] == 0
    assert dense.cycles.index > 0
    assert json.loads(json.dumps(dense.to_dict()))["jobs"] == dense.jobs


def test_arguments_that_do_not_fit_are_refused() -> None:
    indices = random_indices(30, 4, 0.4)
    with pytest.raises(InputError, match="heads="):
        prefill_performance("dense", SMALL, tokens=480, kv_heads=1)
    with pytest.raises(InputError, match="must agree"):
        prefill_performance(indices, SMALL, tokens=500, kv_heads=1)
    with pytest.raises(InputError, match="slots"):
        prefill_performance(indices, SMALL, tokens=480, kv_heads=1, window=4)
    with pytest.raises(RangeError, match="bytes_per_cycle"):
        Port(bytes_per_cycle=0)
    with pytest.raises(RangeError, match="read_latency"):
        Port(read_latency=0)
    with pytest.raises(InputError, match="tokens"):
        decode_performance(DecodeShape(), tokens=0)


# ---------------------------------------------------------------- decode


@pytest.mark.parametrize(("h_iter", "cycles"), [(2, 2048), (4, 1024), (8, 512)])
def test_decode_is_bound_by_its_passes(h_iter: int, cycles: int) -> None:
    found = decode_performance(DecodeShape(h_iter=h_iter), tokens=1000)
    assert found.bound == "passes"
    assert found.cycles_per_token == cycles
    assert found.utilisation > 0.99
    assert found.cycles == pytest.approx(1000 * cycles, rel=0.01)


def test_decode_is_bound_by_a_slow_port() -> None:
    shape = DecodeShape()
    slow = MemoryTiming(ports={"v": Port(bytes_per_cycle=4)})
    found = decode_performance(shape, slow)
    assert found.bound == "v_port"
    assert found.cycles_per_token == pytest.approx(shape.v_token_bytes / 4, rel=0.01)
    assert found.utilisation < 0.5


# ---------------------------------------------------------------- whole models


@pytest.mark.parametrize("name", sorted(PREFILL_MODELS))
def test_whole_model_at_128k_tokens_takes_seconds(name: str) -> None:
    model = PREFILL_MODELS[name]
    steps = []
    began = time.perf_counter()
    found = model_prefill_performance(model, 131_072, progress=lambda *step: steps.append(step))
    assert time.perf_counter() - began < 60
    assert steps[0][1:] == (0, 1)
    assert steps[-1][1:] == (1, 1)
    assert found.sample.heads == model.group
    assert found.attention_cycles == pytest.approx(
        model.layers * model.kv_heads * found.sample.cycles.attention
    )
    assert 0.5 < found.sample.mpu_utilisation <= 1
    assert json.loads(json.dumps(found.to_dict()))["total_cycles"] == found.total_cycles


def test_dense_prompt_costs_more_than_a_sparse_one_by_its_jobs() -> None:
    model = PREFILL_MODELS["Llama-3.2-1B"]
    dense = model_prefill_performance(model, 16_384, indices="dense")
    sparse = model_prefill_performance(model, 16_384)
    jobs = dense.sample.jobs / sparse.sample.jobs
    assert jobs > 1.2
    assert dense.attention_cycles / sparse.attention_cycles == pytest.approx(jobs, rel=0.1)


def test_kernel_of_a_model_has_room_for_the_prompt() -> None:
    shape = model_shape(PREFILL_MODELS["Llama-3.2-3B"], 131_072)
    assert (shape.head_dim, shape.max_blocks, shape.map_entries) == (128, 1024, 524_800)
    with pytest.raises(InputError, match="sample_kv_heads"):
        model_prefill_performance(PREFILL_MODELS["Qwen2.5-1.5B"], 4096, sample_kv_heads=3)


def test_decode_model_has_its_layers() -> None:
    layer, cycles = model_decode_performance(DECODE_MODELS["Qwen3-Next"])
    assert layer.shape == DecodeShape()
    assert cycles == 36 * 512
