# SPDX-License-Identifier: Apache-2.0
"""Bit-exact prefill attention: error against FP64, and the corners of tiles and accumulators."""

import re
from pathlib import Path

import numpy as np
import pytest

from fastdelta.prefill.quantise import (
    dequantise_attention,
    hadamard_rotate,
    quantise_prompt,
)
from fastdelta.reference.attention import block_sparse_attention, dense_causal_attention
from fastdelta.reference.prefill_model import (
    NO_TILE,
    PROBABILITY_MAX,
    SCORE_LIMIT,
    PrefillOperands,
    RowAccumulators,
    TileProbabilities,
    score_tile,
    selected_attention,
    tile_probabilities,
)
from fastdelta.reference.sparse_index import IndexSet

REPOSITORY = Path(__file__).resolve().parents[2]


def prompt(
    tokens: int, *, heads: int = 4, kv_heads: int = 2, head_dim: int = 32, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(heads, tokens, head_dim)),
        rng.normal(size=(kv_heads, tokens, head_dim)),
        rng.normal(size=(kv_heads, tokens, head_dim)),
    )


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def dense_outputs(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, block: int
) -> tuple[np.ndarray, int]:
    quantised = quantise_prompt(q, k, v)
    blocks = -(-q.shape[1] // block)
    outputs, empty = selected_attention(
        quantised.operands, IndexSet.dense(q.shape[0], blocks), block
    )
    return dequantise_attention(outputs, quantised.v_scale), empty


@pytest.mark.parametrize("head_dim", [16, 48, 64, 256])
def test_rotation_keeps_scores_and_inverts_itself(head_dim: int) -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, head_dim))
    rotated_q, rotated_k = hadamard_rotate(q), hadamard_rotate(k)
    np.testing.assert_allclose(rotated_q @ rotated_k.T, q @ k.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(hadamard_rotate(rotated_q), q, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 33, 100])
@pytest.mark.parametrize("head_dim", [16, 32, 48])
def test_dense_attention_follows_fp64(tokens: int, head_dim: int) -> None:
    q, k, v = prompt(tokens, head_dim=head_dim)
    found, empty = dense_outputs(q, k, v, block=16)
    assert empty == 0
    assert relative_error(found, dense_causal_attention(q, k, v)) <= 0.02


def test_sparse_attention_follows_fp64_on_the_same_blocks() -> None:
    q, k, v = prompt(96)
    mask = np.tril(np.random.default_rng(5).random((4, 6, 6)) < 0.5)
    mask[:, range(6), range(6)] = True
    index_set = IndexSet.from_mask(mask)
    quantised = quantise_prompt(q, k, v)
    outputs, empty = selected_attention(quantised.operands, index_set, 16)
    expected = block_sparse_attention(q, k, v, index_set, 16).output
    assert empty == 0
    found = dequantise_attention(outputs, quantised.v_scale)
    assert relative_error(found, expected) <= 0.02


def test_rows_without_a_block_are_zero_and_counted() -> None:
    q, k, v = prompt(48, heads=2, kv_heads=1)
    mask = np.zeros((2, 3, 3), dtype=bool)
    mask[1] = np.tril(np.ones((3, 3), dtype=bool))
    outputs, empty = selected_attention(
        quantise_prompt(q, k, v).operands, IndexSet.from_mask(mask), 16
    )
    assert empty == 48
    assert not outputs[0].any()
    assert outputs[1].any()


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 33])
def test_no_key_beyond_a_ragged_block_leaks(tokens: int) -> None:
    """All true scores are strongly negative, so one leaked zero score would take the whole row."""
    q = np.ones((1, tokens, 16))
    k = np.full((1, tokens, 16), -50.0) + np.random.default_rng(0).normal(size=(1, tokens, 16))
    operands = quantise_prompt(q, k, np.ones((1, tokens, 16))).operands
    # Without centring, so that the scores stay at -200.
    shifted = PrefillOperands(
        q=np.full_like(operands.q, 127),
        multiplier=np.full_like(operands.multiplier, 1 << 15),
        exponent=np.full_like(operands.exponent, 25),
        k=np.full_like(operands.k, -100),
        k_shift=np.zeros_like(operands.k_shift),
        v=np.full_like(operands.v, 127),
        v_shift=np.zeros_like(operands.v_shift),
    )
    index_set = IndexSet.dense(1, -(-tokens // 16))
    outputs, _ = selected_attention(shifted, index_set, 16)
    assert np.all(np.abs(outputs.astype(int) - 127 * 256) <= 127)  # one step of P in 256


@pytest.mark.parametrize("level", [-(1 << 23), -(1 << 20), 0, (1 << 23) - 1])
def test_a_row_of_equal_scores_is_uniform_at_any_level(level: int) -> None:
    """Also at the most negative score: the mask tells masked columns, not a sentinel value."""
    mask = np.array([[True, True, False, True]])
    tile = tile_probabilities(np.full((1, 4), level), mask)
    assert tile.probability[0, 2] == 0
    assert len(set(tile.probability[0, [0, 1, 3]].tolist())) == 1
    assert tile.probability[0, 0] > PROBABILITY_MAX // 2
    assert tile.row_sum.item() == 3 * tile.share[0, 0]


def test_masked_scores_do_not_set_the_exponent() -> None:
    scores = np.array([[1 << 20, -(200 << 8), -(201 << 8)]])
    tile = tile_probabilities(scores, np.array([[False, True, True]]))
    assert tile.exponent.item() == -200
    assert tile.probability.tolist() == [[0, 255, 128]]


def test_a_first_tile_without_keys_does_not_hide_later_ones() -> None:
    """flash-attention#2082: a fully masked first tile must not pin the running maximum."""
    accumulators = RowAccumulators.empty(1, 1)
    nothing = tile_probabilities(np.zeros((1, 2), dtype=np.int64), np.zeros((1, 2), dtype=bool))
    assert nothing.exponent.item() == NO_TILE
    v = np.array([[100], [100]], dtype=np.int8)
    accumulators.add(nothing, v)
    low = tile_probabilities(np.full((1, 2), -(200 << 8)), np.ones((1, 2), dtype=bool))
    accumulators.add(low, v)
    outputs, empty = accumulators.finish()
    assert empty == 0
    assert abs(outputs.item() - 100 * 256) <= 100  # one step of P in 256


def test_accumulators_hold_the_largest_sums_of_128k_tokens() -> None:
    """1,024 tiles of 128 columns, every P at 255 and every v at -127."""
    accumulators = RowAccumulators.empty(1, 1)
    tile = TileProbabilities(
        exponent=np.array([3]),
        probability=np.full((1, 128), 255),
        share=np.full((1, 128), 255 << 8),
    )
    v = np.full((128, 1), -127, dtype=np.int8)
    for _ in range(1024):
        accumulators.add(tile, v)
    assert accumulators.outputs.item() == -(1024 * 128 * 255 * 127) << 12
    assert abs(accumulators.outputs.item()) < 1 << 47
    assert abs(accumulators.finish()[0].item() + 127 * 256) <= 1


def test_a_far_higher_tile_replaces_the_sums() -> None:
    accumulators = RowAccumulators.empty(1, 1)
    for exponent, value in ((-300, 50), (100, -70), (-300, 50)):
        tile = TileProbabilities(np.array([exponent]), np.array([[255]]), np.array([[255 << 8]]))
        accumulators.add(tile, np.array([[value]], dtype=np.int8))
    assert abs(accumulators.finish()[0].item() + 70 * 256) <= 1


def test_products_of_extreme_operands_are_exact() -> None:
    extreme = np.full((1, 256), -128, dtype=np.int8)
    ones, zeros = np.array([1 << 15]), np.array([0])
    score = score_tile(extreme, extreme, ones, np.array([8 + 15]), zeros)
    assert score.item() == 256 * 128 * 128


def test_scores_out_of_range_are_refused() -> None:
    q, k, v = prompt(4, head_dim=16)
    with pytest.raises(ValueError, match="q or k is scaled wrongly"):
        quantise_prompt(q * 1e6, k * 1e3, v)


def test_shares_keep_what_probabilities_round_to_zero() -> None:
    scores = np.array([[0, -(10 << 8), -(40 << 8)]])
    tile = tile_probabilities(scores, np.ones((1, 3), dtype=bool))
    assert tile.probability.tolist() == [[255, 0, 0]]
    assert tile.share.tolist() == [[1 << 16, 1 << 6, 0]]
    assert tile.row_sum.item() == (1 << 16) + (1 << 6)


def test_a_small_value_weighs_the_probability_but_not_the_share() -> None:
    """Equal scores, values of steps 1 and 1/8: P is 8 to 1, the shares are equal."""
    scores, mask = np.zeros((1, 2), dtype=np.int64), np.ones((1, 2), dtype=bool)
    tile = tile_probabilities(scores, mask, np.array([0, 3]))
    assert tile.probability.tolist() == [[255, 32]]
    assert tile.share.tolist() == [[1 << 16, 1 << 16]]
    alone = tile_probabilities(scores, np.array([[False, True]]), np.array([0, 3]))
    assert (alone.exponent.item(), alone.probability.tolist()) == (-3, [[0, 255]])
    assert alone.share.tolist() == [[0, 1 << 19]]


@pytest.mark.parametrize("spread", [0.0, 3.0, 8.0])
def test_values_of_different_magnitude_keep_their_precision(spread: float) -> None:
    """A scale per token of v: small values do not vanish beside large ones of other tokens."""
    q, k, v = prompt(64, heads=2, kv_heads=1)
    v *= np.exp2(-spread * np.random.default_rng(1).random((1, 64, 1)))
    found, _ = dense_outputs(q, k, v, block=16)
    assert relative_error(found, dense_causal_attention(q, k, v)) <= 0.02


def test_exp2_table_of_the_rtl() -> None:
    text = (REPOSITORY / "rtl" / "prefill" / "tile_softmax.v").read_text()
    constant = text.split("EXP2 = {")[1].split("};")[0]
    word = 0
    for width, digits in re.findall(r"(\d+)'h([0-9a-f]+)", constant):
        word = word << int(width) | int(digits, 16)
    entries = [word >> 17 * n & 0x1FFFF for n in range(256)]
    assert entries == [round(2 ** (16 - n / 256)) for n in range(256)]


def test_scores_beyond_the_range_keep_their_exponents_in_16_bits() -> None:
    q = np.full((1, 256), 127, np.int8)
    scores = score_tile(
        q, np.stack([q[0], -q[0]]), np.array([65535]), np.array([8]), np.array([0, 0])
    )
    assert scores.tolist() == [[SCORE_LIMIT, -SCORE_LIMIT]]
    for mask in ([[True, False]], [[False, True]]):
        tile = tile_probabilities(scores, np.array(mask), np.array([15, 15]))
        assert NO_TILE < tile.exponent[0] < -NO_TILE
