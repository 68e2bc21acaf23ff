# SPDX-License-Identifier: Apache-2.0
"""Invariants of the bit-exact decode model: state, gates and the corners of its formats."""

import numpy as np
import pytest

from fastdelta.decode.quantise import (
    GateConstants,
    dequantise_output,
    quantise_given_gates,
    quantise_internal_gates,
    quantise_state,
    quantise_tokens,
)
from fastdelta.reference.decode_model import (
    BETA_FRACTION,
    DECAY_FRACTION,
    BadStateError,
    DecodeModel,
    DecodeTokens,
    StateImage,
    decay_exponent,
    write_gate,
)
from fastdelta.reference.functions import ONE
from fastdelta.reference.gated_delta import decay_and_write_gates, gated_delta_recurrence
from fastdelta.shapes import DecodeShape

SHAPE = DecodeShape(head_dim=32, qk_heads=2, group_ratio=2, h_iter=2, contexts=2, bus_width=128)


def random_tokens(count: int, seed: int = 0) -> DecodeTokens:
    rng = np.random.default_rng(seed)
    qk, v = (count, SHAPE.qk_heads, SHAPE.head_dim), (count, SHAPE.value_heads, SHAPE.head_dim)
    constants = GateConstants.from_float(np.log([0.01, 0.3, 4.0, 400.0]), np.full(4, -1.0))
    gates = quantise_internal_gates(rng.normal(size=v[:2]), rng.normal(size=v[:2]), constants)
    return quantise_tokens(rng.normal(size=qk), rng.normal(size=qk), rng.normal(size=v), gates)


def given(
    log_decay: float, beta: float, q: np.ndarray, k: np.ndarray, v: np.ndarray
) -> DecodeTokens:
    """Tokens with one decay and one write gate for every head."""
    gate = np.full(v.shape[:2], 1.0)
    gates = quantise_given_gates(log_decay * gate, beta * gate)
    return quantise_tokens(q, k, v, gates, normalised=True)


def axis(index: int) -> np.ndarray:
    vector = np.zeros((1, SHAPE.qk_heads, SHAPE.head_dim))
    vector[..., index] = 1.0
    return vector


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, SHAPE.value_heads, SHAPE.head_dim))


def state_of(model: DecodeModel, context: int = 0) -> np.ndarray:
    return model.dump(context)[0].to_float()


@pytest.mark.parametrize("split", range(8))
def test_pieces_equal_the_whole(split: int) -> None:
    tokens = random_tokens(7)
    whole, _ = DecodeModel(SHAPE).decode(tokens)
    model = DecodeModel(SHAPE)
    pieces = [model.decode(tokens.slice(0, split))[0], model.decode(tokens.slice(split, 7))[0]]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("split", [0, 1, 4])
def test_dump_and_load_do_not_disturb_a_sequence(split: int) -> None:
    tokens = random_tokens(7)
    whole, _ = DecodeModel(SHAPE).decode(tokens)
    first, second = DecodeModel(SHAPE), DecodeModel(SHAPE)
    first.decode(tokens.slice(0, split))
    image, _ = first.dump()
    second.load(image, 1)
    again, _ = second.dump(1)
    np.testing.assert_array_equal(again.mantissa, image.mantissa)
    np.testing.assert_array_equal(again.scale, image.scale)
    for model, context in ((first, 0), (second, 1)):
        np.testing.assert_array_equal(
            model.decode(tokens.slice(split, 7), context)[0], whole[split:]
        )


def test_clear_isolates_sequences_and_contexts() -> None:
    a, b = random_tokens(5, 1), random_tokens(5, 2)
    alone, _ = DecodeModel(SHAPE).decode(b)
    model = DecodeModel(SHAPE)
    model.decode(a)
    np.testing.assert_array_equal(model.decode(b, context=1)[0], alone)
    model.clear()
    np.testing.assert_array_equal(model.decode(b)[0], alone)


def test_zero_tokens_change_nothing() -> None:
    model = DecodeModel(SHAPE)
    model.decode(random_tokens(3))
    before = state_of(model)
    output, counts = model.decode(random_tokens(0))
    assert output.shape == (0, SHAPE.value_heads, SHAPE.head_dim)
    assert (counts.saturations, counts.norm_overflows) == (0, 0)
    np.testing.assert_array_equal(state_of(model), before)


def test_a_full_write_stores_v_under_its_key() -> None:
    """g = 1, beta = 1 and unit keys: S^T k returns v, up to 17 fraction bits of the key."""
    model = DecodeModel(SHAPE)
    for index in range(4):
        model.decode(given(0.0, 1.0, axis(0), axis(index), values(index)))
    for index in range(4):
        stored = state_of(model)[:, index]
        np.testing.assert_allclose(stored, values(index)[0], rtol=2.0**-15, atol=2.0**-12)


def test_total_decay_leaves_the_last_update_alone() -> None:
    model = DecodeModel(SHAPE)
    model.decode(given(0.0, 1.0, axis(0), axis(1), values(1)))
    model.decode(given(-1e9, 1.0, axis(0), axis(2), values(2)))
    state = state_of(model)
    np.testing.assert_array_equal(state[:, 1], 0.0)
    np.testing.assert_allclose(state[:, 2], values(2)[0], rtol=2.0**-15, atol=2.0**-12)


def test_tiny_decay_stays_finite() -> None:
    """A decay of 6.5e-12 a token (executorch#21417): the state is the last update."""
    model = DecodeModel(SHAPE)
    for step in range(6):
        output, counts = model.decode(
            given(float(np.log(6.5e-12)), 1.0, axis(3), axis(3), values(step))
        )
        found = dequantise_output(SHAPE, output)[0] * np.sqrt(SHAPE.head_dim)
        np.testing.assert_allclose(found, values(step)[0], rtol=2.0**-14, atol=2.0**-12)
        assert counts.saturations == 0


def test_beta_zero_is_pure_decay() -> None:
    model = DecodeModel(SHAPE)
    model.decode(given(0.0, 1.0, axis(0), axis(1), values(1)))
    before = state_of(model)
    for _ in range(20):
        model.decode(given(-0.1, 0.0, axis(0), axis(1), values(2)))
    np.testing.assert_allclose(state_of(model), before * np.exp(-2.0), rtol=0, atol=1e-5)


def test_value_heads_read_their_query_key_head() -> None:
    """Two query/key and four value heads tell grouped (h // 2) from tiled (h % 2) mapping."""
    k = np.stack([axis(0)[0, 0], axis(1)[0, 0]])[np.newaxis]
    model = DecodeModel(SHAPE)
    model.decode(given(0.0, 1.0, k, k, values(5)))
    state = state_of(model)
    for head in range(4):
        assert np.any(state[head, head // 2] != 0.0)
        assert not np.any(state[head, 1 - head // 2])


def test_saturation_is_counted_and_bounded() -> None:
    model = DecodeModel(SHAPE)
    huge = np.full((1, SHAPE.value_heads, SHAPE.head_dim), 1e6)
    output, counts = model.decode(given(0.0, 1.0, axis(0), axis(0), huge))
    assert counts.saturations == SHAPE.value_heads * SHAPE.head_dim
    _, counts = model.dump()
    assert np.all(output > 0)
    assert counts.saturations == 0
    assert np.max(np.abs(state_of(model))) <= 32.0


def test_vectors_given_as_normalised_are_checked() -> None:
    tokens = given(0.0, 1.0, axis(0), 1.5 * axis(0), values(0))
    _, counts = DecodeModel(SHAPE).decode(tokens)
    assert counts.norm_overflows == SHAPE.qk_heads


def test_a_scale_out_of_range_is_refused() -> None:
    image = quantise_state(np.zeros((4, 32, 32)))
    bad = StateImage(image.mantissa, np.full(4, ONE // 2, dtype=np.int32))
    with pytest.raises(BadStateError):
        DecodeModel(SHAPE).load(bad)


def test_a_state_that_does_not_fit_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"magnitude 40 does not fit.*larger value_exponent"):
        quantise_state(np.full((4, 32, 32), 40.0))


def test_gates_follow_the_float_reference() -> None:
    x = np.linspace(-40.0, 40.0, 4001)[:, np.newaxis]
    a_log, dt_bias = np.log(np.array([3.0])), np.array([0.25])
    gates = quantise_internal_gates(x, x / 2, GateConstants.from_float(a_log, dt_bias))
    log_decay, beta = decay_and_write_gates(x, x / 2, a_log, dt_bias)
    found = np.ldexp(decay_exponent(gates).astype(float), -DECAY_FRACTION)
    np.testing.assert_allclose(found, -log_decay / np.log(2.0), rtol=1e-6, atol=1e-6)
    found = np.ldexp(write_gate(gates.b).astype(float), -BETA_FRACTION)
    np.testing.assert_allclose(found, beta, rtol=0, atol=2.0**-17)


def test_gate_inputs_beyond_the_wire_clamp() -> None:
    far = np.array([[1e9, -1e9]])
    gates = quantise_internal_gates(far, far, GateConstants.from_float(np.zeros(2), np.zeros(2)))
    assert (decay_exponent(gates) > 0).tolist() == [[True, False]]
    assert write_gate(gates.b).tolist() == [[1 << BETA_FRACTION, 0]]


def test_a_rate_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"exp\(a_log\) must be below 2\*\*21"):
        GateConstants.from_float(np.array([20.0]), np.array([0.0]))


@pytest.mark.parametrize("magnitude", [1e-9, 1e-6, 1e-3, 1.0, 1e9])
def test_normalisation_holds_over_magnitudes(magnitude: float) -> None:
    """The epsilon of 1e-6 counts for small vectors and vanishes for large ones."""
    rng = np.random.default_rng(3)
    q, k = (magnitude * rng.normal(size=(4, 2, 32)) for _ in range(2))
    v = rng.normal(size=(4, 4, 32))
    log_decay, beta = np.full((4, 4), -0.1), np.full((4, 4), 0.5)
    tokens = quantise_tokens(q, k, v, quantise_given_gates(log_decay, beta))
    output, _ = DecodeModel(SHAPE).decode(tokens)
    expected, _ = gated_delta_recurrence(q, k, v, log_decay, beta)
    error = np.linalg.norm(dequantise_output(SHAPE, output) - expected)
    assert error <= 2e-4 * np.linalg.norm(expected) + 1e-6
