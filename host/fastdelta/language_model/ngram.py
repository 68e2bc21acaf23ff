# SPDX-License-Identifier: Apache-2.0
"""Byte n-gram model with interpolated modified Kneser-Ney smoothing: the baseline to beat.

The highest order counts occurrences, every lower order counts in how many different left contexts
an n-gram occurs, and three discounts per order are estimated from the counts of counts (Chen and
Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling", 1999). Below the
unigrams lies the uniform distribution over 256 bytes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_MAX_ORDER = 7  # an n-gram and one byte more must fit an unsigned 64-bit key

Keys = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Order:
    """Smoothed tables of one n-gram length, sorted by key."""

    ngrams: Keys
    discounted: Floats  # (count - discount) / total of the context
    contexts: Keys
    backoff: Floats  # weight of the next lower order after each context


class NGramModel:
    """Byte n-gram model fitted to one text.

    Parameters
    ----------
    text : bytes
        Training text, longer than `order` bytes.
    order : int
        Length of the longest n-gram, 1 to 7; five means a context of four bytes.
    """

    def __init__(self, text: bytes, order: int = 5) -> None:
        if not 1 <= order <= _MAX_ORDER:
            raise ValueError(f"order is {order}; allowed are 1 to {_MAX_ORDER}")
        if len(text) <= order:
            raise ValueError(f"the text has {len(text)} bytes; order {order} needs more than that")
        self.order = order
        self._orders = [_smooth(*_counts(text, length, order)) for length in range(1, order + 1)]

    def probabilities(self, context: bytes) -> Floats:
        """Return the distribution [256] of the byte that follows `context`."""
        texts = [context + bytes([byte]) for byte in range(256)]
        return np.array([self._last_probability(text) for text in texts])

    def bits_per_byte(self, text: bytes) -> float:
        """Return the mean code length of every byte after the first, given those before it."""
        if len(text) < 2:
            raise ValueError(f"the text has {len(text)} bytes; at least 2 are needed")
        probability = np.full(len(text), 1 / 256)
        for length, order in enumerate(self._orders, start=1):
            # Positions with less history than this order needs keep the lower order's value.
            tail = probability[length - 1 :]
            tail[:] = _interpolate(order, _ngrams(text, length), tail)
        return float(-np.mean(np.log2(probability[1:])))

    def _last_probability(self, text: bytes) -> float:
        probability = np.array([1 / 256])
        for length, order in enumerate(self._orders[: len(text)], start=1):
            probability = _interpolate(order, _ngrams(text[-length:], length), probability)
        return float(probability[0])


def _ngrams(text: bytes, length: int) -> Keys:
    """Pack every n-gram of the text into a key, its first byte highest."""
    data = np.frombuffer(text, np.uint8).astype(np.uint64)
    windows = max(len(data) - length + 1, 0)
    keys = np.zeros(windows, np.uint64)
    for offset in range(length):
        keys = (keys << np.uint64(8)) | data[offset : offset + windows]
    return keys


def _counts(text: bytes, length: int, order: int) -> tuple[Keys, npt.NDArray[np.int64]]:
    """Count the n-grams of one length: occurrences at the top, different left contexts below."""
    if length == order:
        keys = _ngrams(text, length)
    else:
        longer = np.unique(_ngrams(text, length + 1))
        keys = longer & np.uint64((1 << 8 * length) - 1)
    ngrams, counts = np.unique(keys, return_counts=True)
    return ngrams, counts.astype(np.int64)


def _smooth(ngrams: Keys, counts: npt.NDArray[np.int64]) -> _Order:
    discounts = _discounts(counts)[np.minimum(counts, 3)]
    contexts, first = np.unique(ngrams >> np.uint64(8), return_index=True)
    totals = np.add.reduceat(counts, first).astype(np.float64)
    sizes = np.diff(first, append=len(ngrams))
    return _Order(
        ngrams=ngrams,
        discounted=(counts - discounts) / np.repeat(totals, sizes),
        contexts=contexts,
        backoff=np.add.reduceat(discounts, first) / totals,
    )


def _discounts(counts: npt.NDArray[np.int64]) -> Floats:
    """Return what is taken off an n-gram counted 0, 1, 2 and 3 or more times."""
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) == 0:  # too little text, or (unigrams) too few rare bytes to estimate
        return np.array([0.0, 0.5, 0.75, 0.75])
    y = n1 / (n1 + 2 * n2)
    estimate = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return np.clip(estimate, [0, 0, 0, 0], [0, 1, 2, 3])


def _interpolate(order: _Order, keys: Keys, lower: Floats) -> Floats:
    """Mix one order with the next lower one; contexts never seen keep the lower one alone."""
    context, known_context = _find(order.contexts, keys >> np.uint64(8))
    ngram, known_ngram = _find(order.ngrams, keys)
    backoff = np.where(known_context, order.backoff[context], 1.0)
    discounted = np.where(known_ngram, order.discounted[ngram], 0.0)
    mixed: Floats = discounted + backoff * lower
    return mixed


def _find(table: Keys, keys: Keys) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    index = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return index, table[index] == keys
