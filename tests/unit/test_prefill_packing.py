# SPDX-License-Identifier: Apache-2.0
"""Memory formats of the prefill kernel: places of single bytes, and round trips."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdelta.prefill.packing import (
    block_contents,
    pack_keys,
    pack_outputs,
    pack_queries,
    pack_values,
    unpack_keys,
    unpack_outputs,
    unpack_queries,
    unpack_representatives,
    unpack_values,
)
from fastdelta.shapes import PrefillShape

SMALL = {"row_arrays": 2, "lut_arrays": 1, "array_rows": 4, "array_columns": 8, "bus_width": 64}
SHAPE = PrefillShape(head_dim=16, **SMALL)


def random_bytes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, np.int8)


def queries(rng, heads, tokens, d):
    return (
        random_bytes(rng, heads, tokens, d),
        rng.integers(1 << 15, 1 << 16, (heads, tokens)),
        rng.integers(8, 47, (heads, tokens)),
    )


sizes = st.tuples(
    st.integers(1, 3), st.integers(1, 40), st.sampled_from([16, 24, 64]), st.integers(0, 2**32)
)


@given(sizes)
def test_queries_come_back(size):
    heads, tokens, d, seed = size
    shape = PrefillShape(head_dim=d, **SMALL)
    given_arrays = queries(np.random.default_rng(seed), heads, tokens, d)
    packed = pack_queries(shape, *given_arrays)
    assert packed.size == heads * shape.q_head_bytes(tokens)
    for found, expected in zip(unpack_queries(shape, packed, tokens), given_arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
    count = min(tokens, shape.block)
    representatives = unpack_representatives(shape, packed, tokens)
    for found, expected in zip(representatives, given_arrays, strict=True):
        np.testing.assert_array_equal(found[:, shape.block - count :], expected[:, -count:])
        assert not found[:, : shape.block - count].any()


@given(sizes)
def test_keys_values_and_outputs_come_back(size):
    heads, tokens, d, seed = size
    shape = PrefillShape(head_dim=d, **SMALL)
    rng = np.random.default_rng(seed)
    k, v = random_bytes(rng, 2, heads, tokens, d)
    shifts = rng.integers(0, 16, (2, heads, tokens))
    packed = pack_keys(shape, k, *shifts)
    assert packed.size == heads * shape.k_head_bytes(tokens)
    for found, expected in zip(unpack_keys(shape, packed, tokens), (k, *shifts), strict=True):
        np.testing.assert_array_equal(found, expected)
    packed = pack_values(shape, v)
    assert packed.size == heads * shape.v_head_bytes(tokens)
    np.testing.assert_array_equal(unpack_values(shape, packed, tokens), v)
    outputs = rng.integers(-(1 << 15), 1 << 15, (heads, tokens, d), np.int16)
    packed = pack_outputs(shape, outputs)
    assert packed.size == heads * shape.o_head_bytes(tokens)
    np.testing.assert_array_equal(unpack_outputs(shape, packed, tokens), outputs)


def test_every_byte_of_a_query_has_the_place_that_the_contract_names():
    q, multiplier, exponent = queries(np.random.default_rng(0), 2, 20, 16)
    packed = pack_queries(SHAPE, q, multiplier, exponent)
    head, token, channel = 1, 13, 5
    block, row = divmod(token, 8)
    start = head * SHAPE.q_head_bytes(20) + block * SHAPE.q_block_bytes + row
    assert packed[start] == multiplier[head, token] & 0xFF
    assert packed[start + 8] == multiplier[head, token] >> 8
    assert packed[start + 16] == exponent[head, token]
    assert packed[start + 24 + 8 * channel].view(np.int8) == q[head, token, channel]
    # Block N repeats it: row i is token tokens - B + i.
    start = head * SHAPE.q_head_bytes(20) + 3 * SHAPE.q_block_bytes + (token - 12)
    assert packed[start + 24 + 8 * channel].view(np.int8) == q[head, token, channel]


def test_every_byte_of_keys_values_and_outputs_has_its_place():
    rng = np.random.default_rng(1)
    k, v = random_bytes(rng, 2, 2, 20, 16)
    k_shift, v_shift = rng.integers(0, 16, (2, 2, 20))
    head, token, channel = 1, 13, 5
    block, row = divmod(token, 8)
    packed = pack_keys(SHAPE, k, k_shift, v_shift)
    start = head * SHAPE.k_head_bytes(20) + block * SHAPE.k_block_bytes + row
    assert packed[start] == k_shift[head, token] + 16 * v_shift[head, token]
    assert packed[start + 8 + 8 * channel].view(np.int8) == k[head, token, channel]
    packed = pack_values(SHAPE, v)
    start = head * SHAPE.v_head_bytes(20) + block * SHAPE.v_block_bytes + row * 16
    assert packed[start + channel].view(np.int8) == v[head, token, channel]
    outputs = rng.integers(-(1 << 15), 1 << 15, (2, 20, 16), np.int16)
    packed = pack_outputs(SHAPE, outputs)
    start = head * SHAPE.o_head_bytes(20) + block * SHAPE.o_block_bytes + 2 * (8 * channel + row)
    assert packed[start : start + 2].view(np.int16)[0] == outputs[head, token, channel]


def test_what_lies_beyond_the_tokens_is_zero_also_in_a_used_buffer():
    q, multiplier, exponent = queries(np.random.default_rng(2), 1, 9, 16)
    used = np.full(SHAPE.q_head_bytes(9), 0xFF, np.uint8)
    pack_queries(SHAPE, q, multiplier, exponent, out=used)
    np.testing.assert_array_equal(used, pack_queries(SHAPE, q, multiplier, exponent))
    words = block_contents(SHAPE, used, SHAPE.q_block_bytes).reshape(3, 19, 8)
    assert words[1, :, 0].any()
    assert not words[1, :, 1:].any()


@given(sizes, st.integers(0, 2**32 - 1), st.booleans())
def test_words_of_every_block_add_up_to_the_tag(size, tag, reused):
    heads, tokens, d, seed = size
    shape = PrefillShape(head_dim=d, **SMALL)
    rng = np.random.default_rng(seed)
    k, v = random_bytes(rng, 2, heads, tokens, d)
    shifts = rng.integers(0, 16, (2, heads, tokens))
    q = queries(rng, heads, tokens, d)
    sizes_of_all = (shape.q_head_bytes, shape.k_head_bytes, shape.v_head_bytes)
    outs = [np.full(heads * f(tokens), 0xFF, np.uint8) if reused else None for f in sizes_of_all]
    for packed, block_bytes in (
        (pack_queries(shape, *q, tag, outs[0]), shape.q_block_bytes),
        (pack_keys(shape, k, *shifts, tag, outs[1]), shape.k_block_bytes),
        (pack_values(shape, v, tag, outs[2]), shape.v_block_bytes),
    ):
        for block in packed.reshape(-1, block_bytes):
            assert sum(block.view(np.uint32).tolist()) % 2**32 == tag
        beats = packed.reshape(-1, block_bytes)[:, -shape.beat_bytes + 4 :]
        assert not beats.any(), "the rest of a check beat is zero"


def test_a_buffer_of_another_size_is_refused():
    with pytest.raises(ValueError, match="q buffer"):
        pack_queries(SHAPE, *queries(np.random.default_rng(0), 1, 8, 16), out=np.zeros(7, np.uint8))


def test_packing_a_long_prompt_takes_no_noticeable_time():
    shape = PrefillShape(head_dim=256)
    given_arrays = queries(np.random.default_rng(0), 1, 8192, 256)
    began = time.process_time()
    pack_queries(shape, *given_arrays)
    assert time.process_time() - began < 1.0  # 2 MB; a Python loop over tokens would take longer


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"head_dim": 100}, "multiple of array_columns"),
        ({"head_dim": 288}, "16 to 256"),
        ({"slots": 12}, "power of two"),
        ({"row_arrays": 16}, "block of 512 tokens"),
        ({"lut_arrays": 5}, "0 to 4"),
        ({"array_columns": 16, "head_dim": 48}, "must divide"),
        ({"bus_width": 1024}, "64 to 512"),
        ({"max_group": 9}, "1 to 8"),
    ],
)
def test_impossible_shapes_are_refused(sizes, rule):
    with pytest.raises(ValueError, match=rule):
        PrefillShape(**sizes)


def test_the_window_is_the_largest_power_of_two_that_fits_the_slots():
    assert [PrefillShape(slots=16).window(group) for group in (1, 2, 3, 4, 5, 8)] == [
        16, 8, 4, 4, 2, 2,
    ]  # fmt: skip
    assert PrefillShape(slots=4).window(8) == 0
