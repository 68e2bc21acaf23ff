# SPDX-License-Identifier: Apache-2.0
"""The real model with its full-attention layers on a card that is the bit-exact model."""

import json

import numpy as np
import pytest
from prefill_board import PrefillBoard

from fastdelta.cli import first_token_table
from fastdelta.demo.prefill import MODEL_BOARD, run_first_token
from fastdelta.errors import InputError
from fastdelta.gemma import GemmaModel, load_checkpoint, passages
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.attention import AcceleratorAttention, ModelAttention
from fastdelta.reference.sparse_index import SelectionParameters
from fastdelta.shapes import PrefillShape

SHAPE = PrefillShape(
    head_dim=256, row_arrays=2, lut_arrays=1, array_rows=16, array_columns=16, bus_width=256
)
FULL_LAYERS = (5, 11, 17)


def model_engine(kernel, *, board, shape, **_options):
    assert kernel == "prefill"
    return PrefillAccelerator(PrefillBoard(shape, name=board))


@pytest.fixture(scope="module")
def report():
    return run_first_token(
        board="sim-u280", tokens=150, count=2, shape=SHAPE, open_engine=model_engine
    )


def test_first_tokens_are_those_of_fp32(report):
    assert report.same_tokens == 2
    for passage in report.passages:
        assert passage.token == passage.reference != ""
        assert passage.rank == 0
        assert 0 < passage.logit_difference < passage.margin
    assert report.passages[0].passage != report.passages[1].passage


def test_report_carries_the_cycles_of_every_layer_and_the_assumed_clock(report):
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert record["simulated"] is True
    assert record["clock_mhz_assumed"] == 300
    assert record["same_tokens"] == 2
    for passage in record["passages"]:
        layers = passage["layers"]
        assert sorted(map(int, layers)) == list(FULL_LAYERS)
        assert passage["kernel_cycles"] == sum(x["cycles"]["total"] for x in layers.values())
        assert passage["kernel_milliseconds"] == passage["kernel_cycles"] / 300_000
        assert all(0 < x["density"] <= 1 for x in layers.values())


def test_table_shows_the_tokens_and_the_cycles(report):
    table = first_token_table(report)
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert cells[1] == [repr(passage.token) for passage in report.passages]
    assert cells[4] == [f"{passage.kernel_cycles:,}" for passage in report.passages]
    assert "2 of 2 passages" in str(table.title)
    assert "SIMULATED" in str(table.caption)


def test_card_and_model_give_the_same_logits_to_the_bit():
    checkpoint = load_checkpoint()
    prompt = passages(checkpoint.tokenizer, 100)[0]
    selection = SelectionParameters(min_budget=32, block=SHAPE.block)
    with PrefillAccelerator(PrefillBoard(SHAPE)) as engine:
        on_card = AcceleratorAttention(engine, selection)
        found = GemmaModel(checkpoint.weights, on_card).next_token(prompt)
    expected = GemmaModel(checkpoint.weights, ModelAttention(selection)).next_token(prompt)
    np.testing.assert_array_equal(found.logits, expected.logits)
    assert tuple(on_card.results) == FULL_LAYERS


def test_model_in_place_of_a_card_counts_no_cycles():
    report = run_first_token(board=MODEL_BOARD, tokens=40, count=1, min_budget=20)
    record = report.to_dict()["passages"][0]
    assert record["kernel_cycles"] is record["kernel_milliseconds"] is None
    assert "no card, no cycles" in str(first_token_table(report).caption)


@pytest.mark.parametrize("options", [{"tokens": 1}, {"tokens": 10**6}, {"clock_mhz": 0}])
def test_impossible_demos_are_refused(options):
    with pytest.raises(InputError):
        run_first_token(board=MODEL_BOARD, **options)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_first_token_is_the_same_after_nine_of_ten_passages():
    """1,024 tokens with the full engine's blocks; the kernel equals the model to the bit."""
    assert run_first_token(board=MODEL_BOARD, tokens=1024, count=10).same_tokens >= 9
