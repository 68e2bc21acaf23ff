# SPDX-License-Identifier: Apache-2.0
"""The float recurrence: its invariants, its contracts, and another way to compute the same."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.reference.gated_delta import (
    decay_and_write_gates,
    gated_delta_recurrence,
    l2_normalise,
)

Array = npt.NDArray[Any]


def random_inputs(
    seed: int,
    tokens: int = 12,
    qk_heads: int = 2,
    value_heads: int = 4,
    d_k: int = 8,
    d_v: int = 8,
    strongest_log_decay: float = 4.0,
) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "q": random.normal(size=(tokens, qk_heads, d_k)),
        "k": random.normal(size=(tokens, qk_heads, d_k)),
        "v": random.normal(size=(tokens, value_heads, d_v)),
        "log_decay": -np.exp(random.uniform(-6, strongest_log_decay, size=(tokens, value_heads))),
        "beta": random.uniform(size=(tokens, value_heads)),
    }


def window(inputs: dict[str, Array], tokens: slice) -> dict[str, Array]:
    return {name: array[tokens] for name, array in inputs.items()}


def two_pass_recurrence(
    q: Array, k: Array, v: Array, log_decay: Array, beta: Array, state: Array
) -> tuple[Array, Array]:
    """Hardware order: read the undecayed state once for k and q, correct the output, then write."""
    ratio = v.shape[1] // q.shape[1]
    state = state.copy()
    o = np.zeros_like(v)
    for t in range(len(q)):
        for h in range(v.shape[1]):
            query, key = (
                x[t, h // ratio] / np.sqrt(np.sum(x[t, h // ratio] ** 2) + 1e-6) for x in (q, k)
            )
            decay = np.exp(log_decay[t, h])
            retrieved = np.einsum("ij,i->j", state[h], key)
            read = np.einsum("ij,i->j", state[h], query)
            delta = beta[t, h] * (v[t, h] - decay * retrieved)
            o[t, h] = (decay * read + (query @ key) * delta) / np.sqrt(q.shape[2])
            state[h] = decay * state[h] + np.outer(key, delta)
    return o, state


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize(("qk_heads", "value_heads"), [(1, 1), (2, 4), (3, 12)])
def test_fused_two_pass_form_is_the_reference(
    dtype: Any, tolerance: float, qk_heads: int, value_heads: int
) -> None:
    inputs = random_inputs(1, tokens=200, qk_heads=qk_heads, value_heads=value_heads, d_v=5)
    start = np.random.default_rng(2).normal(size=(value_heads, 8, 5))
    expected, expected_state = two_pass_recurrence(**inputs, state=start)
    o, state = gated_delta_recurrence(**inputs, state=start, dtype=dtype)
    assert o.dtype == state.dtype == dtype
    assert np.linalg.norm(o - expected) <= tolerance * np.linalg.norm(expected)
    assert np.linalg.norm(state - expected_state) <= tolerance * np.linalg.norm(expected_state)


def test_closed_form_of_the_state_transition() -> None:
    inputs = random_inputs(3, tokens=1, qk_heads=1, value_heads=1)
    start = np.random.default_rng(4).normal(size=(1, 8, 8))
    _, state = gated_delta_recurrence(**inputs, state=start)
    key = l2_normalise(inputs["k"])[0, 0]
    beta, decay = inputs["beta"][0, 0], np.exp(inputs["log_decay"][0, 0])
    value = inputs["v"][0, 0]
    transition = decay * (np.eye(8) - beta * np.outer(key, key))
    np.testing.assert_allclose(
        state[0], transition @ start[0] + beta * np.outer(key, value), rtol=0, atol=1e-12
    )


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_full_write_without_decay_stores_the_value(seed: int) -> None:
    inputs = random_inputs(seed)
    inputs["log_decay"][-1] = 0
    inputs["beta"][-1] = 1
    inputs["k"] = inputs["k"] / np.linalg.norm(inputs["k"], axis=-1, keepdims=True)
    _, state = gated_delta_recurrence(**inputs, normalise=False)
    stored = np.einsum("hij,hi->hj", state, np.repeat(inputs["k"][-1], 2, axis=0))
    np.testing.assert_allclose(stored, inputs["v"][-1], rtol=0, atol=1e-12)


def test_decay_of_zero_forgets_everything_before() -> None:
    inputs = random_inputs(5)
    inputs["log_decay"][7] = -np.inf
    o, state = gated_delta_recurrence(**inputs)
    alone, alone_state = gated_delta_recurrence(**window(inputs, slice(7, None)))
    np.testing.assert_array_equal(o[7:], alone)
    np.testing.assert_array_equal(state, alone_state)


def test_write_strength_of_zero_only_decays() -> None:
    inputs = random_inputs(6, strongest_log_decay=-2.0)
    inputs["beta"][:] = 0
    start = np.random.default_rng(7).normal(size=(4, 8, 8))
    _, state = gated_delta_recurrence(**inputs, state=start)
    decayed = start * np.exp(inputs["log_decay"].sum(axis=0))[:, None, None]
    np.testing.assert_allclose(state, decayed, rtol=1e-12)


def test_value_heads_of_a_group_share_query_and_key() -> None:
    inputs = random_inputs(8)
    o, state = gated_delta_recurrence(**inputs)
    for head in range(4):
        own = {name: inputs[name][:, head : head + 1] for name in ("v", "log_decay", "beta")}
        shared = {name: inputs[name][:, head // 2 : head // 2 + 1] for name in ("q", "k")}
        o_head, state_head = gated_delta_recurrence(**own, **shared)
        np.testing.assert_array_equal(o[:, head : head + 1], o_head)
        np.testing.assert_array_equal(state[head : head + 1], state_head)


def test_two_qk_heads_and_four_value_heads_are_grouped_not_tiled() -> None:
    inputs = random_inputs(9, tokens=1)
    inputs["q"] = inputs["k"]
    inputs["k"][0] = np.eye(2, 8)  # head 0 writes row 0 of the state, head 1 writes row 1
    _, state = gated_delta_recurrence(**inputs, normalise=False)
    written = [int(np.flatnonzero(np.abs(head).sum(axis=1))[0]) for head in state]
    assert written == [0, 0, 1, 1]


@given(split=st.integers(0, 12), seed=st.integers(0, 2**32 - 1), double=st.booleans())
@settings(max_examples=25, deadline=None)
def test_sequence_split_at_any_token_equals_the_whole(split: int, seed: int, double: bool) -> None:
    inputs = random_inputs(seed)
    dtype: Any = np.float64 if double else np.float32
    whole, whole_state = gated_delta_recurrence(**inputs, dtype=dtype)
    first, state = gated_delta_recurrence(**window(inputs, slice(split)), dtype=dtype)
    second, state = gated_delta_recurrence(
        **window(inputs, slice(split, None)), state=state, dtype=dtype
    )
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    np.testing.assert_array_equal(state, whole_state)


def test_zero_tokens_return_a_copy_of_the_state() -> None:
    start = np.random.default_rng(10).normal(size=(4, 8, 8))
    o, state = gated_delta_recurrence(**random_inputs(10, tokens=0), state=start)
    assert o.shape == (0, 4, 8)
    np.testing.assert_array_equal(state, start)
    assert not np.shares_memory(state, start)


def test_given_state_is_left_unchanged() -> None:
    start = np.random.default_rng(11).normal(size=(4, 8, 8))
    before = start.copy()
    gated_delta_recurrence(**random_inputs(11), state=start)
    np.testing.assert_array_equal(start, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_decay_stays_finite_and_leaves_the_last_update(dtype: Any) -> None:
    inputs = random_inputs(12, tokens=64)
    inputs["log_decay"][:] = np.log(6.5e-12)
    inputs["beta"][:] = 1
    o, state = gated_delta_recurrence(**inputs, dtype=dtype)
    assert np.all(np.isfinite(o))
    key = np.repeat(l2_normalise(inputs["k"])[-1], 2, axis=0)
    last_update = key[:, :, None] * inputs["v"][-1][:, None, :]
    np.testing.assert_allclose(state, last_update, rtol=0, atol=1e-6)


def test_state_is_key_index_first() -> None:
    d_k, d_v = 3, 5
    q = np.zeros((1, 1, d_k))
    q[0, 0, 2] = 1
    stored = np.arange(d_k * d_v, dtype=np.float64).reshape(1, d_k, d_v)
    o, state = gated_delta_recurrence(
        q=q,
        k=np.zeros((1, 1, d_k)),
        v=np.zeros((1, 1, d_v)),
        log_decay=np.zeros((1, 1)),
        beta=np.zeros((1, 1)),
        state=stored,
        normalise=False,
    )
    np.testing.assert_array_equal(state, stored)
    np.testing.assert_allclose(o[0, 0], stored[0, 2] / np.sqrt(d_k), rtol=1e-15)


def test_asymmetric_state_read_transposed_gives_another_answer() -> None:
    inputs = random_inputs(13)
    start = np.random.default_rng(13).normal(size=(4, 8, 8))
    o, _ = gated_delta_recurrence(**inputs, state=start)
    transposed, _ = gated_delta_recurrence(**inputs, state=start.swapaxes(1, 2))
    assert np.abs(o - transposed).max() > 1e-2


@given(scale=st.floats(0.1, 1e3), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_outputs_do_not_depend_on_the_length_of_queries_and_keys(scale: float, seed: int) -> None:
    inputs = random_inputs(seed)
    o, _ = gated_delta_recurrence(**inputs)
    inputs["q"] *= scale
    inputs["k"] *= scale
    scaled, _ = gated_delta_recurrence(**inputs)
    # The epsilon of the norm is all that differs; it matters most for the shortest vectors.
    assert np.abs(scaled - o).max() <= 1e-2 * np.abs(o).max()


def test_l2_normalise_gives_unit_vectors_and_keeps_zero() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(l2_normalise(x), [[0.6, 0.8], [0.0, 0.0]], atol=1e-7)
    short = np.array([1e-3, 0.0])
    np.testing.assert_allclose(l2_normalise(short), [np.sqrt(0.5), 0.0], rtol=1e-12)
    assert l2_normalise(x.astype(np.float32)).dtype == np.float32


def test_gates_follow_their_formulas() -> None:
    random = np.random.default_rng(14)
    a, b = random.normal(scale=4, size=(2, 6, 3))
    a_log, dt_bias = np.log(random.uniform(1, 16, size=3)), random.normal(size=3)
    log_decay, beta = decay_and_write_gates(a, b, a_log, dt_bias)
    softplus = np.log(1 + np.exp(a + dt_bias))
    np.testing.assert_allclose(log_decay, -np.exp(a_log) * softplus, rtol=1e-9)
    np.testing.assert_allclose(beta, 1 / (1 + np.exp(-b)), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gates_at_extreme_inputs_stay_in_range(dtype: Any) -> None:
    a = np.array([[-1e4, 0.0, 1e4]])
    log_decay, beta = decay_and_write_gates(a, a, np.zeros(3), np.zeros(3), dtype=dtype)
    np.testing.assert_allclose(log_decay, [[0.0, -np.log(2), -1e4]], rtol=1e-6)
    np.testing.assert_allclose(beta, [[0.0, 0.5, 1.0]])
    assert log_decay.dtype == beta.dtype == dtype


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("q", lambda x: x[:, :, :4], "k has shape"),
        ("k", lambda x: x[:, :1], "k has shape"),
        ("v", lambda x: x[:-1], "v has 11 tokens but q has 12"),
        ("v", lambda x: x[:, :3], "3 value heads cannot share 2"),
        ("v", lambda x: x[0], r"expected \[tokens, value_heads, d_v\]"),
        ("log_decay", lambda x: -x, "log_decay has values above 0"),
        ("log_decay", lambda x: x * np.nan, "log_decay has values above 0 or NaN"),
        ("log_decay", lambda x: x[:, :2], "log_decay has shape"),
        ("beta", lambda x: x + 1, "beta has values outside 0 to 1"),
        ("beta", lambda x: x * np.nan, "beta has NaN"),
        ("q", lambda x: x * np.inf, "q has NaN or infinite"),
        ("k", lambda x: x * np.nan, "k has NaN or infinite"),
        ("v", lambda x: x * np.nan, "v has NaN or infinite"),
    ],
)
def test_bad_values_are_refused(name: str, change: Any, message: str) -> None:
    inputs = random_inputs(15)
    inputs[name] = change(inputs[name])
    with pytest.raises(ValueError, match=message):
        gated_delta_recurrence(**inputs)


def test_bad_states_and_dtypes_are_refused() -> None:
    inputs = random_inputs(16)
    with pytest.raises(ValueError, match="state has shape"):
        gated_delta_recurrence(**inputs, state=np.zeros((4, 8, 7)))
    with pytest.raises(ValueError, match="state has NaN"):
        gated_delta_recurrence(**inputs, state=np.full((4, 8, 8), np.nan))
    half: Any = np.float16
    with pytest.raises(TypeError, match=r"allowed are numpy\.float32"):
        gated_delta_recurrence(**inputs, dtype=half)
    inputs["q"] = inputs["q"].astype(np.int32)
    with pytest.raises(TypeError, match="q has dtype int32"):
        gated_delta_recurrence(**inputs)


def test_value_too_large_for_the_precision_is_refused() -> None:
    inputs = random_inputs(17)
    inputs["v"][0, 0, 0] = 1e300
    gated_delta_recurrence(**inputs)
    with pytest.raises(ValueError, match="too large for float32"):
        gated_delta_recurrence(**inputs, dtype=np.float32)
