# SPDX-License-Identifier: Apache-2.0
"""The n-gram baseline: proper distributions, and the smoothing of an independent slow form."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.language_model.ngram import NGramModel

TEXT = (
    b"In the beginning was the word, and the word was with the reader; and the reader read on. "
    b"The same was in the beginning with the writer. All words were read by the reader, and "
    b"without the reader was not any word read that was read!\n"
) * 2


def slow_kneser_ney(text: bytes, order: int, context: bytes, byte: int) -> float:
    """Interpolated modified Kneser-Ney after Chen and Goodman, by dictionaries and recursion."""
    length = min(order, len(context) + 1)
    return _slow_level(text, order, length, context[len(context) - length + 1 :], byte)


def _slow_level(text: bytes, order: int, length: int, context: bytes, byte: int) -> float:
    if length == 0:
        return 1 / 256
    if length == order:
        counts = Counter(text[i : i + length] for i in range(len(text) - length + 1))
    else:
        longer = {text[i : i + length + 1] for i in range(len(text) - length)}
        counts = Counter(ngram[1:] for ngram in longer)
    n = [0, *(sum(count == c for count in counts.values()) for c in (1, 2, 3, 4))]
    if all(n[1:]):
        y = n[1] / (n[1] + 2 * n[2])
        discounts = [0.0, *(c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3))]
    else:
        discounts = [0.0, 0.5, 0.75, 0.75]
    followers = {ngram: count for ngram, count in counts.items() if ngram[:-1] == context}
    lower = _slow_level(text, order, length - 1, context[1:], byte)
    if not followers:
        return lower
    total = sum(followers.values())
    held_back = sum(discounts[min(count, 3)] for count in followers.values())
    count = followers.get(context + bytes([byte]), 0)
    return (count - discounts[min(count, 3)] + held_back * lower) / total


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("context", [b"", b"t", b"th", b"the ", b"was the wor", b"qxqx", b"xqthe"])
def test_probabilities_equal_slow_kneser_ney(order: int, context: bytes) -> None:
    found = NGramModel(TEXT, order).probabilities(context)
    expected = [slow_kneser_ney(TEXT, order, context, byte) for byte in range(256)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(context=st.binary(max_size=8), order=st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_probabilities_are_a_distribution(context: bytes, order: int) -> None:
    probabilities = NGramModel(TEXT, order).probabilities(context)
    assert probabilities.min() > 0
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_distribution_with_estimated_discounts() -> None:
    """On text long enough for every count of counts, discounts come from the text."""
    random = np.random.default_rng(0)
    text = bytes(random.choice(64, size=4000, p=np.arange(64, 0, -1) / 2080).astype(np.uint8))
    model = NGramModel(text, 2)
    for context in (b"", b"\x00", b"\x3f", b"\xff"):
        found = model.probabilities(context)
        assert found.sum() == pytest.approx(1, abs=1e-12)
        for byte in (0, 1, 40, 63, 200):
            expected = slow_kneser_ney(text, 2, context, byte)
            assert found[byte] == pytest.approx(expected, rel=1e-12)


@given(text=st.binary(min_size=2, max_size=20), order=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_bits_per_byte_is_the_mean_over_all_bytes_but_the_first(text: bytes, order: int) -> None:
    model = NGramModel(TEXT, order)
    bits = [-np.log2(model.probabilities(text[:i])[text[i]]) for i in range(1, len(text))]
    assert model.bits_per_byte(text) == pytest.approx(np.mean(bits), rel=1e-12)


def test_unseen_text_costs_more_than_seen_and_longer_context_helps() -> None:
    seen = [NGramModel(TEXT, order).bits_per_byte(TEXT) for order in range(1, 6)]
    assert seen == sorted(seen, reverse=True)
    assert NGramModel(TEXT, 5).bits_per_byte(b"zyxw" * 20) > 4 * seen[4]


def test_random_bytes_cost_about_eight_bits() -> None:
    train, other = np.random.default_rng(1).bytes(200_000), np.random.default_rng(2).bytes(2_000)
    assert NGramModel(train, 2).bits_per_byte(other) == pytest.approx(8, abs=0.15)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="order is 0; allowed are 1 to 7"):
        NGramModel(TEXT, 0)
    with pytest.raises(ValueError, match="order is 8; allowed are 1 to 7"):
        NGramModel(TEXT, 8)
    with pytest.raises(ValueError, match="the text has 5 bytes; order 5 needs more"):
        NGramModel(b"abcde", 5)
    with pytest.raises(ValueError, match="at least 2 are needed"):
        NGramModel(TEXT).bits_per_byte(b"a")
