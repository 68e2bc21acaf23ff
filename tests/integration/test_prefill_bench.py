# SPDX-License-Identifier: Apache-2.0
"""The prefill bench on the simulated card: JSON, and the goals at full size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fastdelta.bench.prefill import bench_prefill
from fastdelta.bench.prompts import gemma_prompt, synthetic_prompt
from fastdelta.cli import app
from fastdelta.demo.prefill import run_first_token

pytestmark = pytest.mark.timeout(1800)  # the first test of a shape builds its kernel

SMALL = [
    "strips=1",
    "row_arrays=2",
    "lut_arrays=1",
    "array_rows=8",
    "array_columns=8",
    "slots=8",
    "cache_lines=8",
    "max_blocks=32",
    "max_group=4",
    "bus_width=128",
    "map_entries=300",
]
"""Sizes of the kernel of test_prefill_accelerator.py, so that it is built once."""

ERROR_RATIO = 0.25  # of the plain INT8 scheme
JACCARD = 0.97
MASS_DIFFERENCE = 0.005


def test_command_prints_every_figure_of_a_small_engine() -> None:
    arguments = ["bench", "prefill", "--source", "synthetic", "--tokens", "230"]
    arguments += ["--head-dim", "32", "--kv-heads", "2", "--min-budget", "48", "--seed", "2"]
    arguments += [part for size in SMALL for part in ("--set", size)]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert shown.exit_code == 0
    for words in ("SIMULATED", "cycles of attention", "plain INT8", "KV cache hit rate"):
        assert words in shown.stdout
    as_json = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    record = json.loads(as_json.stdout)
    assert record["simulated"] is True
    assert record["board"] == "sim-u280"
    assert record["seed"] == 2
    assert record["config"]["block"] == 16
    assert record["bit_exact"] is True
    assert record["cache_changes_nothing"] is True
    assert record["hbm_bytes"]["total"] < record["hbm_bytes_without_cache"]["total"]
    assert record["index_jaccard"] >= 0.9
    assert record["mpu_utilisation"] > 0.9
    assert record["simulated_cycles_per_second"] > 0
    assert {"kernel", "fastdelta", "pynq", "simulator", "overlay"} <= set(record["versions"])


def require_goals(record: dict[str, Any], utilisation: float) -> None:
    """Check what must be true of a full-size run."""
    assert record["bit_exact"] is True
    assert record["cache_changes_nothing"] is True
    assert record["hbm_bytes"]["total"] < record["hbm_bytes_without_cache"]["total"]
    assert record["mpu_utilisation"] >= utilisation
    assert record["rel_l2_error_ratio"] <= ERROR_RATIO
    assert record["index_jaccard"] >= JACCARD
    difference = record["attention_mass"] - record["float_rule"]["attention_mass"]
    assert abs(difference) <= MASS_DIFFERENCE


@pytest.mark.slow
@pytest.mark.parametrize("layer", [5, 11, 17])
def test_goals_on_a_real_layer_at_full_size(layer: int) -> None:
    record = bench_prefill(gemma_prompt(1024, layer)).to_dict()
    require_goals(record, 0.90)


@pytest.mark.slow
@pytest.mark.parametrize(("head_dim", "utilisation"), [(64, 0.85), (128, 0.90)])
def test_utilisation_at_other_head_dimensions_at_full_size(
    head_dim: int, utilisation: float
) -> None:
    prompt = synthetic_prompt(1024, head_dim)
    record = bench_prefill(prompt, compare_cache=False).to_dict()
    assert record["bit_exact"] is True
    assert record["mpu_utilisation"] >= utilisation


@pytest.mark.slow
def test_first_token_of_a_real_model_at_full_size() -> None:
    report = run_first_token(tokens=1024)
    assert report.same_tokens == 1
    assert report.simulated
    passage = report.passages[0]
    assert sorted(passage.layers) == [5, 11, 17]
    assert passage.kernel_cycles is not None
    assert passage.kernel_cycles > 100_000
    assert report.milliseconds(passage) == passage.kernel_cycles / 300_000
