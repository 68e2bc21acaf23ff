# SPDX-License-Identifier: Apache-2.0
"""Packing of floats in few passes, against quantisation and packing step by step."""

import numpy as np
import pytest

from fastdelta.decode.packing import pack_tokens
from fastdelta.decode.quantise import (
    GateConstants,
    quantise_given_gates,
    quantise_internal_gates,
    quantise_tokens,
)
from fastdelta.decode.token_packer import TOKENS_AT_ONCE, PacketViews, TokenPacker
from fastdelta.shapes import DecodeShape

SHAPES = [
    DecodeShape(head_dim=16, qk_heads=2, group_ratio=2, h_iter=2, bus_width=128),
    DecodeShape(head_dim=48, qk_heads=3, group_ratio=1, h_iter=1, bus_width=512),
    DecodeShape(head_dim=112, qk_heads=2, group_ratio=4, h_iter=4, bus_width=256),
    DecodeShape(),
]


def inputs(shape, tokens, seed, dtype=np.float32):
    """q, k, v and gates with magnitudes from zero to the limits, in every vector another."""
    random = np.random.default_rng(seed)

    def vectors(heads):
        x = random.standard_normal((tokens, heads, shape.head_dim))
        x *= 2.0 ** random.integers(-60, 35, (tokens, heads, 1))
        x *= 2.0 ** random.integers(-20, 1, x.shape)
        x[random.random(x.shape) < 0.1] = 0.0
        x[random.random((tokens, heads)) < 0.1] = 0.0
        x[random.random((tokens, heads)) < 0.1, 0] = 2.0**15 - 0.25  # its mantissa is clamped
        x[random.random((tokens, heads)) < 0.1, 1] = -(2.0**37)
        return x.astype(dtype)

    q, k, v = (vectors(h) for h in (shape.qk_heads, shape.qk_heads, shape.value_heads))
    a, b = random.standard_normal((2, tokens, shape.value_heads)).astype(dtype)
    a *= np.where(random.random(a.shape) < 0.2, 1e5, 1).astype(dtype)
    b *= np.where(random.random(b.shape) < 0.2, 100, 1).astype(dtype)
    return (q, k, v), (a, b)


def constants_of(shape):
    heads = shape.value_heads
    return GateConstants.from_float(np.linspace(-25, 14, heads), np.linspace(-40, 40, heads))


def step_by_step(shape, vectors, gates, constants, exponent):
    wire = quantise_tokens(
        *vectors,
        quantise_given_gates(*gates)
        if constants is None
        else quantise_internal_gates(*gates, constants),
        value_exponent=exponent,
    )
    return pack_tokens(shape, wire)


def assert_same_bytes(shape, vectors, gates, constants, exponent):
    count = len(vectors[0])
    qk = np.full(count * shape.qk_token_bytes, 0xA5, np.uint8)
    v = np.full(count * shape.v_token_bytes, 0xA5, np.uint8)
    packer, packets = TokenPacker(shape), PacketViews.of(shape, qk, v)
    packer.load(vectors, gates, given_gates=constants is None, value_exponent=exponent)
    packer.store(packets, constants, value_exponent=exponent)
    expected = step_by_step(shape, vectors, gates, constants, exponent)
    np.testing.assert_array_equal(qk, expected[0])
    np.testing.assert_array_equal(v, expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"d{s.head_dim}x{s.qk_heads}")
def test_bytes_equal_those_of_quantising_and_packing(shape, dtype):
    for seed in range(8):
        vectors, gates = inputs(shape, 1 + seed % 4, seed, dtype)
        assert_same_bytes(shape, vectors, gates, constants_of(shape), 0)


@pytest.mark.parametrize("exponent", [-13, 30, 64, "per head"])
@pytest.mark.parametrize("shape", SHAPES[:3], ids=lambda s: f"d{s.head_dim}x{s.qk_heads}")
def test_value_exponents(shape, exponent):
    random = np.random.default_rng(5)
    if exponent == "per head":
        exponent = random.integers(-40, 40, shape.value_heads)
    for seed in range(4):
        (q, k, v), gates = inputs(shape, 3, seed)
        scaled = np.ldexp(v / np.float32(2**37), np.asarray(exponent)[..., np.newaxis] + 30)
        vectors = (q, k, scaled.astype(np.float32))
        assert_same_bytes(shape, vectors, gates, constants_of(shape), exponent)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"d{s.head_dim}x{s.qk_heads}")
def test_given_gates(shape):
    (q, k, v), (a, b) = inputs(shape, 5, 1)
    log_decay, beta = -(np.abs(a) ** 3), (1 + np.tanh(b)) / 2
    log_decay[1, 0] = -np.inf
    log_decay[2] = 0.0
    assert_same_bytes(shape, (q, k, v), (log_decay, beta), None, 0)


def test_one_buffer_for_both_kinds_of_gates():
    """What the one kind leaves in a record does not show in the other's."""
    shape = SHAPES[0]
    qk, v = (np.zeros(size, np.uint8) for size in (shape.qk_token_bytes, shape.v_token_bytes))
    packer, packets = TokenPacker(shape), PacketViews.of(shape, qk, v)
    for seed in range(4):
        constants = constants_of(shape) if seed % 2 == 0 else None
        vectors, gates = inputs(shape, 1, seed)
        if constants is None:
            gates = (-np.abs(gates[0]), (1 + np.tanh(gates[1])) / 2)
        packer.load(vectors, gates, given_gates=constants is None)
        packer.store(packets, constants)
        expected = step_by_step(shape, vectors, gates, constants, 0)
        np.testing.assert_array_equal(qk, expected[0])
        np.testing.assert_array_equal(v, expected[1])


def test_types_may_be_mixed():
    shape = SHAPES[0]
    (q, k, _), (a, _) = inputs(shape, 2, 3)
    (_, _, v), (_, b) = inputs(shape, 2, 4, np.float64)
    assert_same_bytes(shape, (q, k, v), (a, b), constants_of(shape), 0)


def test_one_token_without_its_axis():
    shape = SHAPES[0]
    vectors, gates = inputs(shape, 1, 6)
    qk = np.full(shape.qk_token_bytes, 0xA5, np.uint8)
    v = np.full(shape.v_token_bytes, 0xA5, np.uint8)
    packets = PacketViews.of(shape, qk, v)
    packer = TokenPacker(shape)
    packer.load(tuple(x[0] for x in vectors), tuple(x[0] for x in gates))
    packer.store(packets, constants_of(shape))
    expected = step_by_step(shape, vectors, gates, constants_of(shape), 0)
    np.testing.assert_array_equal(qk, expected[0])
    np.testing.assert_array_equal(v, expected[1])


def test_parts_of_longer_buffers():
    shape = SHAPES[1]
    count = TOKENS_AT_ONCE + 3
    vectors, gates = inputs(shape, count, 7)
    qk = np.full(count * shape.qk_token_bytes, 0xA5, np.uint8)
    v = np.full(count * shape.v_token_bytes, 0xA5, np.uint8)
    whole = PacketViews.of(shape, qk, v)
    packer = TokenPacker(shape)
    for start, stop in ((0, 4), (4, 5), (5, count)):
        packer.load(tuple(x[start:stop] for x in vectors), tuple(x[start:stop] for x in gates))
        packer.store(whole.slice(start, stop), constants_of(shape))
    expected = step_by_step(shape, vectors, gates, constants_of(shape), 0)
    np.testing.assert_array_equal(qk, expected[0])
    np.testing.assert_array_equal(v, expected[1])


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_peak_shows_what_is_not_finite(part, value):
    shape = SHAPES[0]
    vectors, gates = inputs(shape, 2, 8)
    packer = TokenPacker(shape)
    expected = max(float(np.abs(x).max()) for x in vectors)
    assert packer.load(vectors, gates) == (expected, True)
    vectors[part][1, 0, 3] = value
    peak, finite = packer.load(vectors, gates)
    assert not peak < np.inf
    assert finite
    vectors, gates = inputs(shape, 2, 8)
    gates[part % 2][0, 1], gates[part % 2][1, 1] = value, -value
    assert packer.load(vectors, gates) == (expected, False)


def test_peak_of_v_is_in_its_unit():
    shape = SHAPES[0]
    q, k = np.zeros((2, 1, shape.qk_heads, 16), np.float32)
    v = np.full((1, shape.value_heads, 16), 3.0, np.float32)
    gates = (np.zeros((1, shape.value_heads)), np.zeros((1, shape.value_heads)))
    packer = TokenPacker(shape)
    assert packer.load((q, k, v), gates, value_exponent=2)[0] == 0.75
    assert packer.load((q, k, v), gates, value_exponent=np.array([0, 1, -1, 3]))[0] == 6.0
