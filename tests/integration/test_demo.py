# SPDX-License-Identifier: Apache-2.0
"""The language model with every recurrence on the simulated card."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fastdelta.cli import app
from fastdelta.decode.recurrence import AcceleratorRecurrence, decode_shape, open_recurrence
from fastdelta.demo.decode import run_demo
from fastdelta.errors import InputError
from fastdelta.language_model import held_out_text, load_weights
from fastdelta.reference.layer import GatedDeltaLayerShape

pytestmark = pytest.mark.timeout(900)  # the first test of a shape builds its kernel

DECODE_ONLY = ["demo", "--no-first-token"]
READ_BYTES = 2100
BITS_PER_BYTE_BOUND = 1e-3
AGREEMENT_BOUND = 0.995


def test_language_model_reads_through_the_card_as_in_float() -> None:
    report = run_demo(read_bytes=READ_BYTES, write_bytes=40)
    assert report.read_bytes >= 2000
    assert held_out_text().decode("ascii").startswith(report.passage)
    assert report.bits_per_byte_difference <= BITS_PER_BYTE_BOUND
    assert report.next_byte_agreement >= AGREEMENT_BOUND
    assert report.bits_per_byte < 2.5, "the model has learnt"
    assert len(report.continuation) == 40
    assert report.counters.saturations == 0
    # Every byte went through the kernel once for each layer, in reading and in writing.
    layers = load_weights().shape.layers
    assert report.counters.v_beats % layers == 0
    assert report.cycles_per_byte == pytest.approx(layers * report.cycles_per_token)


def test_command_prints_text_and_figures() -> None:
    arguments = [
        "demo",
        "--no-bench",
        "--no-first-token",
        "--read-bytes",
        "300",
        "--write-bytes",
        "20",
    ]
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert shown.exit_code == 0
    for words in ("SIMULATED", "bits per byte", "microseconds per token and layer at 300 MHz"):
        assert words in shown.stdout
    as_json = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    record = json.loads(as_json.stdout)["demo"]
    assert record["simulated"] is True
    assert record["clock_mhz_assumed"] == 300
    assert record["next_byte_agreement"] >= AGREEMENT_BOUND
    assert record["microseconds_per_token"] == record["cycles_per_token"] / 300
    assert len(record["continuation"]) == record["written_bytes"] == 20


@pytest.mark.slow
def test_command_measures_the_full_shape_afterwards() -> None:
    arguments = [
        "demo",
        "--no-first-token",
        "--read-bytes",
        "100",
        "--write-bytes",
        "2",
        "--json",
        "-",
    ]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    bench = json.loads(result.stdout)["bench"]
    assert bench["config"]["h_iter"] == 8
    assert bench["config"]["qk_heads"] == 16
    assert bench["bit_exact"] is True


@pytest.mark.parametrize(("reads", "writes"), [(1, 5), (10**6, 5), (100, 0)])
def test_impossible_lengths_are_refused(reads: int, writes: int) -> None:
    with pytest.raises(InputError):
        run_demo(read_bytes=reads, write_bytes=writes)


def test_kernel_needs_a_context_for_each_layer() -> None:
    weights = load_weights()
    recurrence = open_recurrence(weights.shape.layer, weights.a_log, weights.dt_bias)
    with recurrence.accelerator as accelerator, pytest.raises(InputError, match="one context"):
        AcceleratorRecurrence(accelerator, weights.shape.layers + 1)


@pytest.mark.parametrize(
    ("qk_heads", "value_heads", "h_iter"), [(2, 4, 4), (16, 32, 16), (3, 12, 12), (5, 5, 5)]
)
def test_kernel_computes_as_many_heads_at_once_as_it_can(
    qk_heads: int, value_heads: int, h_iter: int
) -> None:
    layer = GatedDeltaLayerShape(64, qk_heads, value_heads, 32)
    shape = decode_shape(layer, 3)
    assert (shape.h_iter, shape.contexts, shape.head_dim) == (h_iter, 3, 32)
    assert decode_shape(layer, 3, h_iter=1).h_iter == 1
