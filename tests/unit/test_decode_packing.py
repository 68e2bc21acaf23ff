# SPDX-License-Identifier: Apache-2.0
"""Packets of the decode kernel: round trips, byte layout and buffers of the wrong size."""

import numpy as np
import pytest

from fastdelta.decode.packing import (
    pack_output,
    pack_state,
    pack_tokens,
    unpack_output,
    unpack_state,
    unpack_tokens,
)
from fastdelta.reference.decode_model import DecodeTokens, GivenGates, InternalGates, StateImage
from fastdelta.shapes import DecodeShape

SHAPES = [
    DecodeShape(head_dim=16, qk_heads=1, group_ratio=1, h_iter=1, bus_width=512),
    DecodeShape(head_dim=48, qk_heads=2, group_ratio=2, h_iter=2, bus_width=256),
    DecodeShape(head_dim=80, qk_heads=3, group_ratio=4, h_iter=4, bus_width=512),
    DecodeShape(head_dim=128, qk_heads=2, group_ratio=2, h_iter=4, bus_width=128),
]


def random_tokens(shape: DecodeShape, count: int, *, given: bool) -> DecodeTokens:
    """Every field random over its whole range."""
    rng = np.random.default_rng(shape.head_dim)
    qk, v = (count, shape.qk_heads), (count, shape.value_heads)

    def draw(bits: int, size: tuple[int, ...]) -> np.ndarray:
        return rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), size=size)

    gates = (
        GivenGates(decay=rng.integers(0, 1 << 32, size=v), beta=rng.integers(0, (1 << 17) + 1, v))
        if given
        else InternalGates(
            a=draw(32, v),
            dt_bias=draw(32, v),
            rate_mantissa=rng.integers(0, 1 << 24, size=v),
            rate_exponent=rng.integers(-32, 23, size=v),
            b=draw(24, v),
        )
    )
    return DecodeTokens(
        q=draw(16, (*qk, shape.head_dim)).astype(np.int16),
        k=draw(16, (*qk, shape.head_dim)).astype(np.int16),
        q_exponent=draw(8, qk).astype(np.int8),
        k_exponent=draw(8, qk).astype(np.int8),
        v=draw(16, (*v, shape.head_dim)).astype(np.int16),
        v_exponent=draw(8, v).astype(np.int8),
        gates=gates,
        normalised=given,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("given", [False, True], ids=["internal_gates", "given_gates"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_tokens_survive_the_round_trip(shape: DecodeShape, given: bool, count: int) -> None:
    tokens = random_tokens(shape, count, given=given)
    qk, v = pack_tokens(shape, tokens)
    assert qk.size == count * shape.qk_token_bytes
    assert v.size == count * shape.v_token_bytes
    back = unpack_tokens(shape, qk, v, normalised=given, given_gates=given)
    for name in ("q", "k", "q_exponent", "k_exponent", "v", "v_exponent"):
        np.testing.assert_array_equal(getattr(back, name), getattr(tokens, name), err_msg=name)
    assert type(back.gates) is type(tokens.gates)
    for name, values in vars(tokens.gates).items():
        np.testing.assert_array_equal(getattr(back.gates, name), values, err_msg=name)


def test_qk_packet_interleaves_halves_of_a_beat() -> None:
    """Layout by hand: 128-bit beats carry four q in the low half and the same four k above."""
    shape = DecodeShape(head_dim=16, qk_heads=1, group_ratio=1, h_iter=1, bus_width=128)
    tokens = random_tokens(shape, 1, given=False)
    beats = pack_tokens(shape, tokens)[0].reshape(-1, 16)
    assert beats[0, :2].view(np.int8).tolist() == [
        tokens.q_exponent.item(),
        tokens.k_exponent.item(),
    ]
    for beat in range(4):
        words = beats[1 + beat].view(np.int16).tolist()
        assert words[:4] == tokens.q[0, 0, 4 * beat : 4 * beat + 4].tolist()
        assert words[4:] == tokens.k[0, 0, 4 * beat : 4 * beat + 4].tolist()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_state_and_output_survive_the_round_trip(shape: DecodeShape) -> None:
    rng = np.random.default_rng(0)
    size = (shape.value_heads, shape.head_dim, shape.head_dim)
    image = StateImage(
        mantissa=rng.integers(-(1 << 26), 1 << 26, size=size).astype(np.int32),
        scale=rng.integers((1 << 23) + 1, (1 << 24) + 1, size=size[:1]).astype(np.int32),
    )
    packed = pack_state(shape, image)
    assert packed.size == shape.state_bytes
    back = unpack_state(shape, packed)
    np.testing.assert_array_equal(back.mantissa, image.mantissa)
    np.testing.assert_array_equal(back.scale, image.scale)
    output = rng.integers(-(1 << 31), 1 << 31, size=(2, *size[:2])).astype(np.int32)
    np.testing.assert_array_equal(unpack_output(shape, pack_output(shape, output)), output)


def test_rows_of_the_state_are_key_indices() -> None:
    """An asymmetric state tells S from its transpose."""
    shape = DecodeShape(head_dim=16, qk_heads=1, group_ratio=1, h_iter=1, bus_width=512)
    mantissa = np.arange(256, dtype=np.int32).reshape(1, 16, 16)
    image = StateImage(mantissa=mantissa, scale=np.array([1 << 24], dtype=np.int32))
    beats = pack_state(shape, image).reshape(-1, 64).view(np.int32)
    assert beats[0, 0] == 1 << 24
    assert beats[1 + 5].tolist() == list(range(80, 96))  # S[key 5][:]


def test_a_buffer_of_the_wrong_size_is_refused() -> None:
    shape = SHAPES[0]
    tokens = random_tokens(shape, 1, given=False)
    with pytest.raises(ValueError, match=r"q/k buffer is uint8 \(7,\): needed are 128 bytes"):
        pack_tokens(shape, tokens, out_qk=np.zeros(7, dtype=np.uint8))
