# SPDX-License-Identifier: Apache-2.0
"""The prefill bench, its prompts and the schemes it compares with, on a card that is the model."""

import json

import numpy as np
import pytest
from prefill_board import PrefillBoard

from fastdelta.bench.prefill import bench_prefill, default_min_budget, model_output
from fastdelta.bench.prompts import Prompt, gemma_prompt, synthetic_prompt
from fastdelta.cli import prefill_table
from fastdelta.errors import InputError
from fastdelta.gemma import GemmaModel, load_checkpoint, passages
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.reference.attention import (
    attention_mass,
    block_attention,
    block_sparse_attention,
    covered_mass,
    dense_causal_attention,
)
from fastdelta.reference.plain_int8 import plain_int8_attention
from fastdelta.reference.sparse_index import (
    IndexSet,
    Pattern,
    SelectionParameters,
    block_coverage_selection,
)
from fastdelta.shapes import PrefillShape

SHAPE = PrefillShape(
    head_dim=32, row_arrays=2, lut_arrays=1, array_rows=8, array_columns=8, bus_width=64, slots=8
)


def model_engine(kernel, *, board, shape, **_options):
    assert kernel == "prefill"
    assert board == "sim-u280"
    return PrefillAccelerator(PrefillBoard(shape))


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.fixture(scope="module")
def report():
    prompt = synthetic_prompt(300, 32, heads=4, kv_heads=2, seed=1)
    return bench_prefill(prompt, SHAPE, min_budget=32, open_engine=model_engine)


def test_every_figure_of_the_bench_is_there(report):
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    for name in (
        "cycles", "mpu_utilisation", "cache_hit_rate", "hbm_bytes", "density", "rel_l2_error",
        "rel_l2_error_plain_int8", "index_jaccard", "attention_mass", "flexprefill", "float_rule",
        "config", "simulated", "source", "selection", "bit_exact", "patterns",
    ):  # fmt: skip
        assert name in record
    assert record["simulated"] is True
    assert record["config"]["block"] == 16
    assert set(record["cycles"]) == {"index", "attention", "total"}
    assert record["index_to_attention_cycles"] == pytest.approx(
        record["cycles"]["index"] / record["cycles"]["attention"]
    )
    assert record["hbm_bytes"]["total"] < record["hbm_bytes_without_cache"]["total"]
    assert record["cache_changes_nothing"] is True
    assert record["milliseconds"] == record["cycles"]["total"] / 300_000
    assert "clock_mhz_assumed" in record
    assert "clock_mhz" not in record


def test_figures_say_what_they_claim(report):
    result = report.result
    assert report.bit_exact
    assert 0 < report.rel_l2_error < 0.03 < report.rel_l2_error_plain_int8
    assert 0.9 < report.index_jaccard <= 1
    assert 0.2 < report.chosen.density < 0.95
    assert report.chosen.attention_mass == pytest.approx(report.float_rule.attention_mass, abs=0.05)
    assert 0 < result.mpu_utilisation < 1


def test_table_shows_the_figures(report):
    table = prefill_table(report)
    text = [str(cell) for column in table.columns for cell in column.cells]
    assert f"{report.result.cycles.attention:,}" in text
    assert f"{report.rel_l2_error_plain_int8:.4f}" in text
    assert "SIMULATED" in str(table.caption)


def test_a_wrong_output_is_not_called_bit_exact(monkeypatch):
    prompt = synthetic_prompt(60, 32, seed=1)
    output, index_set = model_output(prompt, SelectionParameters(block=16, min_budget=30))
    output[0, 3, 5] += 1
    monkeypatch.setattr("fastdelta.bench.prefill.model_output", lambda *_: (output, index_set))
    found = bench_prefill(prompt, SHAPE, open_engine=model_engine, compare_cache=False)
    assert not found.bit_exact
    assert found.uncached is None
    assert found.to_dict()["cache_changes_nothing"] is None


def test_impossible_benches_are_refused():
    prompt = synthetic_prompt(60, 32)
    with pytest.raises(InputError, match="clock"):
        bench_prefill(prompt, SHAPE, clock_mhz=0, open_engine=model_engine)
    with pytest.raises(InputError, match="head_dim 32, the kernel 128"):
        bench_prefill(prompt, PrefillShape(), open_engine=model_engine)
    with pytest.raises(InputError, match="multiple of kv_heads"):
        synthetic_prompt(60, 32, heads=3, kv_heads=2)
    with pytest.raises(InputError, match="layers with full attention are 5, 11, 17"):
        gemma_prompt(64, 4)


def test_default_budget_is_the_papers_unless_it_would_take_everything():
    assert default_min_budget(1024) == 512
    assert default_min_budget(8192) == 1024


def test_made_up_prompts_repeat_and_differ_by_seed():
    one, same, other = (synthetic_prompt(200, 64, seed=seed) for seed in (3, 3, 4))
    for name in "qkv":
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == np.float32


def test_made_up_heads_look_where_their_kind_says():
    """Blocks of 64 over 1,024 tokens: local, sink, content and spread heads in this order."""
    prompt = synthetic_prompt(1024, 64, heads=4, seed=0)
    shares = block_attention(prompt.q, prompt.k, 64)
    local, sink, content, spread = shares
    diagonal = np.arange(16)
    assert local[diagonal, diagonal].sum() + local[diagonal[1:], diagonal[:-1]].sum() > 0.9
    assert sink[:, 0].sum() > 0.9
    for head in (content, spread):
        assert np.tril(head, -4)[:, 1:].sum() > 0.1
    # Of what is far away, a content head looks at a few blocks, a spread head at all.
    far = [np.sort(head[12:, 1:9], axis=1) for head in (content, spread)]
    in_the_best = [blocks[:, -3:].sum() / blocks.sum() for blocks in far]
    assert in_the_best[0] > 0.9 > 0.7 > in_the_best[1]


def test_block_attention_adds_up_to_the_mass_of_any_blocks():
    prompt = synthetic_prompt(150, 32, heads=4, kv_heads=2, seed=5)
    chosen = block_coverage_selection(
        prompt.q, prompt.k, SelectionParameters(min_budget=16, block=16)
    )
    assert {head.pattern for head in chosen.heads} <= set(Pattern)
    shares = block_attention(prompt.q, prompt.k, 16)
    np.testing.assert_allclose(shares.sum(axis=(1, 2)), 1, rtol=1e-12)
    assert not np.triu(shares, 1).any()
    np.testing.assert_allclose(
        covered_mass(shares, chosen.index_set),
        attention_mass(prompt.q, prompt.k, chosen.index_set, 16),
    )


def test_plain_int8_is_attention_with_one_scale_a_block():
    prompt = synthetic_prompt(100, 32, heads=2, seed=2)
    q, k, v = (x.astype(np.float64) for x in (prompt.q, prompt.k, prompt.v))
    everything = IndexSet.dense(2, 7)
    found = plain_int8_attention(q, k, v, everything, 16)
    assert 1e-3 < relative_error(found, dense_causal_attention(q, k, v)) < 0.2
    mask = np.tril(np.random.default_rng(0).random((2, 7, 7)) < 0.5)
    mask[:, range(7), range(7)] = True
    some = IndexSet.from_mask(mask)
    found = plain_int8_attention(q, k, v, some, 16)
    assert relative_error(found, block_sparse_attention(q, k, v, some, 16).output) < 0.2


def test_plain_int8_by_hand():
    """Two tokens in one block: the scale of v is 4 / 127, and 0.3 becomes 10 steps of it."""
    q, k = np.zeros((2, 1, 2, 16))
    v = np.zeros((1, 2, 16))
    v[0, 0, 0], v[0, 1, 0] = 4.0, 0.3
    found = plain_int8_attention(q, k, v, IndexSet.dense(1, 1), 8)
    assert found[0, 0, 0] == 4.0
    assert found[0, 1, 0] == pytest.approx((4.0 + 10 * 4.0 / 127) / 2)


def test_figures_of_the_model_on_a_real_prompt_are_within_the_goals():
    """1,024 tokens, blocks of 128: what the engine gives, as it equals the model to the bit."""
    checkpoint = load_checkpoint()
    passage = passages(checkpoint.tokenizer, 1024)[0]
    selection = SelectionParameters(min_budget=512)
    for layer, x in GemmaModel(checkpoint.weights).capture(passage, (5, 11, 17)).items():
        output, index_set = model_output(Prompt(x.q, x.k, x.v, {"layer": layer}), selection)
        expected = block_sparse_attention(x.q, x.k, x.v, index_set, 128).output
        plain = plain_int8_attention(x.q, x.k, x.v, index_set, 128)
        error = relative_error(output, expected) / relative_error(plain, expected)
        assert error <= 0.25, f"layer {layer}"
        same_rule = block_coverage_selection(x.q, x.k, selection).index_set
        assert index_set.jaccard(same_rule) >= 0.97, f"layer {layer}"
        masses = [attention_mass(x.q, x.k, blocks, 128).mean() for blocks in (index_set, same_rule)]
        assert abs(masses[0] - masses[1]) <= 0.005, f"layer {layer}"
