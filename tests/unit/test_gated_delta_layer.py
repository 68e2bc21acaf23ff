# SPDX-License-Identifier: Apache-2.0
"""The layer around the recurrence, against an independent slow loop and its own contracts."""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.reference.layer import (
    Float32Array,
    FloatRecurrence,
    GatedDeltaLayerShape,
    GatedDeltaLayerState,
    GatedDeltaLayerWeights,
    causal_short_convolution,
    gated_delta_layer,
    rms_norm,
    silu,
)

SHAPE = GatedDeltaLayerShape(hidden=12, qk_heads=2, value_heads=4, head_dim=8)


def random_weights(seed: int = 0, shape: GatedDeltaLayerShape = SHAPE) -> GatedDeltaLayerWeights:
    random = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        name: random.normal(size=size, scale=size[0] ** -0.5).astype(np.float32)
        for name, size in shape.weight_shapes().items()
    }
    arrays["a_log"] = np.log(random.uniform(0.5, 4, size=shape.value_heads)).astype(np.float32)
    return GatedDeltaLayerWeights(shape, **arrays)


def random_hidden(tokens: int, seed: int = 1) -> Float32Array:
    return np.random.default_rng(seed).normal(size=(tokens, SHAPE.hidden)).astype(np.float32)


def recurrence_of(weights: GatedDeltaLayerWeights) -> FloatRecurrence:
    return FloatRecurrence(weights.a_log[None], weights.dt_bias[None])


def run(
    hidden: Float32Array,
    weights: GatedDeltaLayerWeights,
    state: GatedDeltaLayerState,
    recurrence: FloatRecurrence,
) -> tuple[Float32Array, GatedDeltaLayerState]:
    return gated_delta_layer(hidden, weights, state, layer_index=0, recurrence=recurrence)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def slow_layer(
    hidden: npt.NDArray[Any], weights: GatedDeltaLayerWeights
) -> npt.NDArray[np.float64]:
    """The layer of Qwen3-Next, head by head and element by element, in double precision."""
    shape = weights.shape
    d, ratio = shape.head_dim, shape.value_heads // shape.qk_heads
    per_group = 2 * d + 2 * ratio * d
    key_width, value_width = shape.qk_heads * d, shape.value_heads * d
    history: list[list[float]] = [[0.0] * shape.conv_channels for _ in range(shape.conv_kernel)]
    states = [[[0.0] * d for _ in range(d)] for _ in range(shape.value_heads)]
    outputs = []
    for x in hidden.astype(np.float64):
        qkvz = x @ weights.in_proj_qkvz.astype(np.float64)
        ba = x @ weights.in_proj_ba.astype(np.float64)
        channels = [0.0] * shape.conv_channels
        z = [0.0] * value_width
        b = [0.0] * shape.value_heads
        a = [0.0] * shape.value_heads
        for group in range(shape.qk_heads):
            start = group * per_group
            for i in range(d):
                channels[group * d + i] = qkvz[start + i]
                channels[key_width + group * d + i] = qkvz[start + d + i]
            for i in range(ratio * d):
                channel = group * ratio * d + i
                channels[2 * key_width + channel] = qkvz[start + 2 * d + i]
                z[channel] = qkvz[start + 2 * d + ratio * d + i]
            for i in range(ratio):
                b[group * ratio + i] = ba[group * 2 * ratio + i]
                a[group * ratio + i] = ba[group * 2 * ratio + ratio + i]
        history = [*history[1:], channels]
        mixed = []
        for channel in range(shape.conv_channels):
            y = sum(
                float(weights.conv[channel, tap]) * history[tap][channel]
                for tap in range(shape.conv_kernel)
            )
            mixed.append(y * sigmoid(y))
        gated = [0.0] * value_width
        for head in range(shape.value_heads):
            group = head // ratio
            q = mixed[group * d : (group + 1) * d]
            k = mixed[key_width + group * d : key_width + (group + 1) * d]
            v = mixed[2 * key_width + head * d : 2 * key_width + (head + 1) * d]
            q = [e / math.sqrt(sum(f * f for f in q) + 1e-6) / math.sqrt(d) for e in q]
            k = [e / math.sqrt(sum(f * f for f in k) + 1e-6) for e in k]
            softplus = math.log(1 + math.exp(a[head] + float(weights.dt_bias[head])))
            decay = math.exp(-math.exp(float(weights.a_log[head])) * softplus)
            s = states[head]
            for i in range(d):
                for j in range(d):
                    s[i][j] *= decay
            for j in range(d):
                retrieved = sum(s[i][j] * k[i] for i in range(d))
                delta = sigmoid(b[head]) * (v[j] - retrieved)
                for i in range(d):
                    s[i][j] += k[i] * delta
            o = [sum(s[i][j] * q[i] for i in range(d)) for j in range(d)]
            root_mean_square = math.sqrt(sum(e * e for e in o) / d + 1e-6)
            for j in range(d):
                gate = z[head * d + j]
                norm = o[j] / root_mean_square * float(weights.output_norm[j])
                gated[head * d + j] = norm * gate * sigmoid(gate)
        outputs.append(np.array(gated) @ weights.out_proj.astype(np.float64))
    return np.array(outputs)


@pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        GatedDeltaLayerShape(hidden=12, qk_heads=1, value_heads=4, head_dim=4, conv_kernel=3),
        GatedDeltaLayerShape(hidden=12, qk_heads=3, value_heads=3, head_dim=5, conv_kernel=1),
    ],
)
def test_layer_equals_slow_loop(shape: GatedDeltaLayerShape) -> None:
    weights = random_weights(2, shape)
    hidden = random_hidden(20)
    expected = slow_layer(hidden, weights)
    y, _ = run(hidden, weights, GatedDeltaLayerState.initial(shape), recurrence_of(weights))
    assert y.dtype == np.float32
    assert np.linalg.norm(y - expected) <= 1e-5 * np.linalg.norm(expected)


@given(split=st.integers(0, 9), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_sequence_split_at_any_token_equals_the_whole(split: int, seed: int) -> None:
    weights = random_weights(seed)
    hidden = random_hidden(9, seed)
    start = GatedDeltaLayerState.initial(SHAPE)
    whole, whole_state = run(hidden, weights, start, recurrence_of(weights))
    recurrence = recurrence_of(weights)
    first, state = run(hidden[:split], weights, start, recurrence)
    second, state = run(hidden[split:], weights, state, recurrence)
    # Projections of fewer rows may sum in another order; nothing else may differ.
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=0, atol=1e-5)
    np.testing.assert_allclose(state.conv_history, whole_state.conv_history, rtol=0, atol=1e-5)


@pytest.mark.parametrize("split", range(8))
def test_convolution_split_at_any_token_equals_the_whole_exactly(split: int) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(7, 6)).astype(np.float32)
    filters = random.normal(size=(6, 4)).astype(np.float32)
    history = random.normal(size=(3, 6)).astype(np.float32)
    whole, whole_history = causal_short_convolution(x, filters, history)
    first, carried = causal_short_convolution(x[:split], filters, history)
    second, carried = causal_short_convolution(x[split:], filters, carried)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    np.testing.assert_array_equal(carried, whole_history)
    np.testing.assert_array_equal(carried, x[-3:])


def test_convolution_is_causal_and_its_last_tap_is_the_present() -> None:
    x = np.zeros((6, 1), np.float32)
    x[2] = 1
    filters = np.array([[4.0, 3.0, 2.0, 1.0]], np.float32)
    y, _ = causal_short_convolution(x, filters, np.zeros((3, 1), np.float32))
    np.testing.assert_allclose(y[:, 0], silu(np.array([0, 0, 1, 2, 3, 4], np.float32)))


def test_second_sequence_after_clear_equals_it_alone() -> None:
    weights = random_weights(4)
    start = GatedDeltaLayerState.initial(SHAPE)
    used = recurrence_of(weights)
    _, leftover = run(random_hidden(9, 5), weights, start, used)
    second = random_hidden(9, 6)
    alone, _ = run(second, weights, start, recurrence_of(weights))

    leaking_history, _ = run(second, weights, leftover, recurrence_of(weights))
    assert np.abs(leaking_history - alone).max() > 1e-3
    leaking_state, _ = run(second, weights, start, used)
    assert np.abs(leaking_state - alone).max() > 1e-3

    used.clear()
    cleared, _ = run(second, weights, start, used)
    np.testing.assert_array_equal(cleared, alone)


def test_layers_of_a_recurrence_keep_separate_states_and_constants() -> None:
    first, second = random_weights(7), random_weights(8)
    hidden = random_hidden(9)
    start = GatedDeltaLayerState.initial(SHAPE)
    both = FloatRecurrence(
        np.stack([first.a_log, second.a_log]), np.stack([first.dt_bias, second.dt_bias])
    )
    layers = [first, second]
    states = [start, start]
    alone = [recurrence_of(weights) for weights in layers]
    alone_states = [start, start]
    for part in (hidden[:4], hidden[4:]):
        for i, weights in enumerate(layers):
            y, states[i] = gated_delta_layer(
                part, weights, states[i], layer_index=i, recurrence=both
            )
            expected, alone_states[i] = run(part, weights, alone_states[i], alone[i])
            np.testing.assert_array_equal(y, expected)


def test_recurrence_gets_raw_inputs() -> None:
    weights = random_weights(9)
    calls = []

    class Recorder:
        def __call__(self, layer_index: int, *inputs: Float32Array) -> Float32Array:
            calls.append((layer_index, inputs))
            return np.zeros_like(inputs[2])

        def clear(self) -> None:
            calls.clear()

    hidden = random_hidden(5)
    start = GatedDeltaLayerState.initial(SHAPE)
    y, _ = gated_delta_layer(hidden, weights, start, layer_index=3, recurrence=Recorder())
    ((layer_index, (q, k, v, a, b)),) = calls
    assert layer_index == 3
    assert q.shape == k.shape == (5, 2, 8)
    assert v.shape == (5, 4, 8)
    lengths = np.linalg.norm(np.concatenate([q, k]), axis=-1)
    assert np.abs(lengths - 1).min() > 1e-3  # not normalised
    ba = (hidden @ weights.in_proj_ba).reshape(5, 2, 2, 2)
    np.testing.assert_array_equal(b, ba[:, :, 0].reshape(5, 4))
    np.testing.assert_array_equal(a, ba[:, :, 1].reshape(5, 4))
    assert all(x.dtype == np.float32 for x in (q, k, v, a, b))
    np.testing.assert_array_equal(y, np.zeros_like(hidden))


def test_zero_tokens_change_nothing() -> None:
    weights = random_weights(10)
    recurrence = recurrence_of(weights)
    _, state = run(random_hidden(4), weights, GatedDeltaLayerState.initial(SHAPE), recurrence)
    y, after = run(random_hidden(0), weights, state, recurrence)
    assert y.shape == (0, SHAPE.hidden)
    np.testing.assert_array_equal(after.conv_history, state.conv_history)
    expected, _ = run(random_hidden(9), weights, state, recurrence_of(weights))
    continued, _ = run(random_hidden(9), weights, after, recurrence)
    assert np.abs(continued - expected).max() > 1e-4  # the recurrent state is still there


def test_rms_norm_and_silu_follow_their_formulas() -> None:
    x = np.array([[3.0, -4.0], [0.0, 0.0]], np.float32)
    weight = np.array([1.0, 2.0], np.float32)
    expected = [[3 / math.sqrt(12.5), -8 / math.sqrt(12.5)], [0, 0]]
    np.testing.assert_allclose(rms_norm(x, weight), expected, rtol=1e-6)
    extreme = np.array([-1e4, -1.0, 0.0, 1.0, 1e4], np.float32)
    np.testing.assert_allclose(
        silu(extreme), [0, -1 / (1 + math.e), 0, 1 / (1 + 1 / math.e), 1e4], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qk_heads": 3}, "4 value heads cannot share 3"),
        ({"hidden": 0}, "hidden is 0"),
        ({"conv_kernel": 0}, "conv_kernel is 0"),
        ({"head_dim": -1}, "head_dim is -1"),
    ],
)
def test_bad_shapes_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SHAPE, **change)


def test_bad_weights_are_refused() -> None:
    weights = random_weights()
    with pytest.raises(ValueError, match=r"weight conv has shape \(64, 3\); expected \(64, 4\)"):
        dataclasses.replace(weights, conv=weights.conv[:, :3])
    with pytest.raises(TypeError, match="weight a_log is float64; expected a float32"):
        dataclasses.replace(weights, a_log=weights.a_log.astype(np.float64))
    with pytest.raises(ValueError, match="weight out_proj has NaN"):
        dataclasses.replace(weights, out_proj=weights.out_proj * np.float32(np.nan))


def test_bad_calls_are_refused() -> None:
    weights = random_weights()
    start = GatedDeltaLayerState.initial(SHAPE)
    with pytest.raises(ValueError, match=r"hidden has shape \(3, 11\); expected \[tokens, 12\]"):
        run(random_hidden(3)[:, :11], weights, start, recurrence_of(weights))

    class Transposed:
        def __call__(self, layer_index: int, *inputs: Float32Array) -> Float32Array:
            assert layer_index == 0
            return inputs[2].swapaxes(1, 2)

        def clear(self) -> None:
            """Keep no state."""

    with pytest.raises(ValueError, match="recurrence returned shape"):
        gated_delta_layer(random_hidden(3), weights, start, layer_index=0, recurrence=Transposed())
    with pytest.raises(ValueError, match=r"both must be \[layers, value_heads\]"):
        FloatRecurrence(weights.a_log, weights.dt_bias)
