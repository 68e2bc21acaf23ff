# SPDX-License-Identifier: Apache-2.0
"""Index sets of the real model on record, and made up ones that are like them."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fastdelta.bench.prompts import synthetic_prompt
from fastdelta.errors import InputError
from fastdelta.reference import index_sets
from fastdelta.reference.index_sets import (
    BLOCK,
    fit_heads,
    fitted,
    head_records,
    recorded_heads,
    recorded_index_set,
    synthetic_index_set,
)
from fastdelta.reference.sparse_index import IndexSet, SelectionParameters, block_coverage_selection

LENGTHS = sorted({head.tokens for head in recorded_heads()})


def test_fit_on_record_is_that_of_the_heads() -> None:
    found, stated = asdict(fit_heads(recorded_heads())), asdict(fitted())
    assert found.pop("positions") == pytest.approx(stated.pop("positions"))
    assert found == pytest.approx(stated)


def test_record_of_a_head_gives_its_blocks_back() -> None:
    prompt = synthetic_prompt(1500, 32, heads=4, kv_heads=2)
    records = head_records(prompt.q, prompt.k, layer=3)
    rule = SelectionParameters(index_sets.GAMMA, 0.0, index_sets.MIN_BUDGET, None, BLOCK)
    chosen = block_coverage_selection(prompt.q, prompt.k, rule, dtype=np.float32)
    assert len(records) == 4
    for record, head in zip(records, chosen.heads, strict=True):
        assert (record.tokens, record.layer, record.blocks) == (1500, 3, 12)
        assert record.chosen_columns().tolist() == sorted(head.columns.tolist())
        assert record.chosen_distances().tolist() == sorted(head.distances.tolist())
        assert record.pairs


def test_record_is_written_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    index_sets.write_record(recorded_heads(), path)
    assert path.read_text() == index_sets.RECORD.read_text()


@pytest.mark.parametrize("tokens", LENGTHS)
def test_density_is_near_the_real_models(tokens: int) -> None:
    real = recorded_index_set(tokens).density_per_head
    made = np.concatenate(
        [synthetic_index_set(tokens, heads=4, seed=s).index_set.density_per_head for s in range(25)]
    )
    assert abs(made.mean() - real.mean()) < 0.1
    assert made.std() == pytest.approx(real.std(), abs=0.1)


def test_blocks_that_the_newest_queries_see_are_like_the_real_models() -> None:
    def late(sets: list[IndexSet]) -> float:
        """Share of the blocks of the last row that are in the second half of the prompt."""
        shares = []
        for chosen in sets:
            for row in range(chosen.blocks - 1, chosen.heads * chosen.blocks, chosen.blocks):
                seen = chosen.columns[chosen.offsets[row] : chosen.offsets[row + 1]]
                assert seen[0] == 0
                assert seen[-1] == chosen.blocks - 1
                shares.append(np.mean(seen >= chosen.blocks // 2))
        return float(np.mean(shares))

    real = late([recorded_index_set(tokens) for tokens in LENGTHS])
    made = late(
        [
            synthetic_index_set(tokens, heads=12, seed=seed).index_set
            for tokens in LENGTHS
            for seed in range(4)
        ]
    )
    assert real > 0.55
    assert made == pytest.approx(real, abs=0.08)


def test_longer_prompts_are_sparser() -> None:
    densities = [
        np.mean([synthetic_index_set(n, heads=8, seed=s).index_set.density for s in range(3)])
        for n in (8192, 32_768, 131_072)
    ]
    assert densities == sorted(densities, reverse=True)
    assert densities[-1] < 0.6 * densities[0]


def test_same_arguments_give_the_same_set() -> None:
    one, two, other = (synthetic_index_set(8192, heads=2, seed=seed) for seed in (1, 1, 2))
    assert one.index_set == two.index_set
    assert one.index_set != other.index_set


def test_budget_forced_blocks_and_short_prompts() -> None:
    blocks = 64
    made = synthetic_index_set(
        blocks * BLOCK, heads=4, min_budget=8 * BLOCK, density_scale=1e-3
    ).index_set
    per_row = np.diff(made.offsets).reshape(4, blocks)
    assert per_row[:, 0].tolist() == [1] * 4
    # 8 columns and 8 distances at most; column 0 and the diagonal are everywhere.
    assert per_row.max() <= 16
    assert per_row[:, 1:].min() >= 2
    everything = synthetic_index_set(8 * BLOCK, heads=2).index_set
    assert everything.density == 1


def test_query_aware_heads_have_pairs() -> None:
    tokens, heads = 16_384, 4
    made = synthetic_index_set(tokens, heads=heads, query_aware_share=1.0, min_budget=0)
    assert made.query_aware == (True,) * heads
    fit = fitted()
    wanted = math.exp(fit.pair_intercept + fit.pair_slope * math.log(tokens // BLOCK))
    assert made.index_set.pairs_per_head.mean() == pytest.approx(wanted, rel=0.15)
    assert not any(synthetic_index_set(tokens, heads=heads, query_aware_share=0.0).query_aware)


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(InputError, match="above 0"):
        synthetic_index_set(0, heads=1)
    with pytest.raises(InputError, match="above 0"):
        synthetic_index_set(128, heads=1, density_scale=0)
    with pytest.raises(InputError, match="no record of 77 tokens"):
        recorded_index_set(77)
