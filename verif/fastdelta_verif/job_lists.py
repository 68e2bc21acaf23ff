# SPDX-License-Identifier: Apache-2.0
"""Random job lists of the prefill engine, legal and broken, written without the host's code.

A list is legal exactly when it is the list of its own jobs, written by :func:`list_of`, except for
header words that no unit of the kernel looks at.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fastdelta.arrays import Words
from fastdelta.reference.job_reader_model import LAST_JOB, ListShape, padded

Pair = tuple[int, int, int]  # head, query block, KV block


def random_pairs(rng: random.Random, shape: ListShape, density: float) -> list[Pair]:
    """Return pairs with at least one block for each query block of each head, else at random."""
    pairs = []
    for head in range(shape.group):
        for query in range(shape.blocks):
            row = [block for block in range(query + 1) if rng.random() < density]
            pairs += [(head, query, block) for block in row or [rng.randint(0, query)]]
    return pairs


def records_of(pairs: Iterable[Pair], window: int) -> list[int]:
    """Return the records of the jobs, in the order of the schedule."""
    ordered = sorted(pairs, key=lambda pair: (pair[1] // window, pair[2], pair[1], pair[0]))
    last = {(head, query): block for head, query, block in ordered}
    return [
        block | query << 12 | head << 24 | LAST_JOB * (last[head, query] == block)
        for head, query, block in ordered
    ]


def list_of(records: list[int], shape: ListShape, header: Iterable[int] = ()) -> Words:
    """Return the list with these records in the given order; ``header`` follows word 0."""
    words = np.zeros(shape.head_words + padded(len(records)), np.uint32)
    words[0] = len(records)
    for place, word in enumerate(header):
        words[1 + place] = word
    for record in records:
        block = record & 0xFFF
        if block < shape.blocks:
            words[16 + block] += 1
    words[shape.head_words : shape.head_words + len(records)] = records
    return words


def random_header(rng: random.Random, shape: ListShape) -> list[int]:
    """Return the words of the header that say how the index came about."""
    return [
        rng.getrandbits(shape.group),
        *(rng.getrandbits(32) for _ in range(shape.group)),
    ]


def is_legal(words: Words, shape: ListShape) -> bool:
    """Say whether a list obeys every rule, by writing the list of its jobs anew."""
    number = int(words[0])
    records = words[shape.head_words :][:number].tolist()
    pairs = {(record >> 24 & 7, record >> 12 & 0xFFF, record & 0xFFF) for record in records}
    rows = {(head, query) for head, query, _ in pairs}
    if len(rows) != shape.group * shape.blocks or any(
        head >= shape.group or not block <= query < shape.blocks for head, query, block in pairs
    ):
        return False
    again = list_of(records_of(pairs, shape.window), shape, words[1:16].tolist())
    return np.array_equal(again, words)


class _NoPlaceError(Exception):
    """No record of a list can be changed so that one rule alone is broken."""


@dataclass
class _List:
    """A legal list as its parts, for a fault to change."""

    rng: random.Random
    shape: ListShape
    records: list[int]

    def word(self) -> Words:
        return list_of(self.records, self.shape)

    def choose(self, places: list[int]) -> int:
        if not places:
            raise _NoPlaceError
        return self.rng.choice(places)

    def pick(self) -> int:
        return self.rng.randrange(len(self.records))

    def edit(self, change: Callable[[int], int]) -> Words:
        """Return the list with one record changed; uses and number stay as they were."""
        words = self.word()
        place = self.shape.head_words + self.pick()
        words[place] = change(int(words[place]))
        return words

    def without(self, drop: Callable[[int, int], bool]) -> Words:
        """Return the list without the records of some (head, query block), else consistent."""
        kept = [r for r in self.records if not drop(r >> 24 & 7, r >> 12 & 0xFFF)]
        return list_of(kept, self.shape)


def _reserved(bit: int) -> Callable[[_List], Words]:
    return lambda case: case.edit(lambda record: record ^ 1 << bit)


def _alone(case: _List, fits: Callable[[int, int], bool], change: Callable[[int], int]) -> Words:
    """Change a record that is not the last of its row so that no other rule is broken.

    ``fits`` looks at the record and the one after it.
    """
    after = [*case.records[1:], 0]
    places = [
        n
        for n, (record, following) in enumerate(zip(case.records, after, strict=True))
        if not record & LAST_JOB and fits(record, following)
    ]
    place = case.choose(places)
    case.records[place] = change(case.records[place])
    return case.word()


def _head(case: _List) -> Words:
    """Put the head after those of the group in the place of the last one."""
    group = case.shape.group
    return _alone(
        case,
        lambda record, _: record >> 24 & 7 == group - 1,
        lambda record: record + (1 << 24),
    )


def _far_head(case: _List) -> Words:
    return case.edit(
        lambda record: record & ~(7 << 24) | case.rng.randint(case.shape.group, 7) << 24
    )


def _query(case: _List) -> Words:
    """Put the query block after the last one at the end of a visit of the last window."""
    blocks, window = case.shape.blocks, case.shape.window
    return _alone(
        case,
        lambda record, following: (
            (record >> 12 & 0xFFF) // window == (blocks - 1) // window
            and record & 0xFFF != following & 0xFFF
        ),
        lambda record: record & ~(0xFFF << 12) | blocks << 12,
    )


def _far_query(case: _List) -> Words:
    return case.edit(lambda record: record | 0xFFF << 12)


def _block(case: _List) -> Words:
    return case.edit(lambda record: record & ~0xFFF | (record >> 12 & 0xFFF) + 1)


def _no_last(case: _List) -> Words:
    place = case.choose([n for n, r in enumerate(case.records) if r & LAST_JOB])
    case.records[place] ^= LAST_JOB
    return case.word()


def _early_last(case: _List) -> Words:
    """Mark a job that is not the last of its query block, with or without the true one."""
    place = case.choose([n for n, r in enumerate(case.records) if not r & LAST_JOB])
    slot = case.records[place] >> 12 & 0x7FFF
    if case.rng.random() < 0.5:
        case.records = [r & ~LAST_JOB if r >> 12 & 0x7FFF == slot else r for r in case.records]
    case.records[place] |= LAST_JOB
    return case.word()


def _swapped(case: _List) -> Words:
    place = case.rng.randrange(len(case.records) - 1)
    other = case.rng.choice([place + 1, case.rng.randrange(place + 1, len(case.records))])
    case.records[place], case.records[other] = case.records[other], case.records[place]
    return case.word()


def _doubled(case: _List) -> Words:
    place = case.pick()
    case.records.insert(place, case.records[place] & ~LAST_JOB)
    return case.word()


def _left_out_record(case: _List) -> Words:
    """Drop a record but leave the uses and the number; the padding moves up."""
    words = case.word()
    place = case.shape.head_words + case.pick()
    words[place:-1] = words[place + 1 :]
    words[-1] = 0
    return words


def _left_out_row(case: _List) -> Words:
    row = case.rng.randrange(case.shape.group), case.rng.randrange(case.shape.blocks)
    return case.without(lambda head, query: (head, query) == row)


def _left_out_window(case: _List) -> Words:
    window = case.rng.randrange(case.shape.blocks) // case.shape.window
    return case.without(lambda _, query: query // case.shape.window == window)


def _windows_swapped(case: _List) -> Words:
    window = case.rng.randrange(1, -(-case.shape.blocks // case.shape.window))
    case.records.sort(key=lambda r: (r >> 12 & 0xFFF) // case.shape.window == window - 1)
    return case.word()


def _moved_use(case: _List) -> Words:
    words = case.word()
    used = [b for b in range(case.shape.blocks) if words[16 + b]]
    giver = case.rng.choice(used)
    taker = case.rng.choice([b for b in range(case.shape.blocks) if b != giver])
    words[16 + giver] -= 1
    words[16 + taker] += 1
    return words


def _too_many_uses(case: _List) -> Words:
    """More jobs than there are pairs, uses and number in agreement."""
    words = case.word()
    most = [case.shape.group * (case.shape.blocks - b) for b in range(case.shape.blocks)]
    words[16 : 16 + case.shape.blocks] = most
    words[16 + case.rng.randrange(case.shape.blocks)] += 1
    words[0] = sum(most) + 1
    return words


def _no_jobs(case: _List) -> Words:
    words = case.word()
    words[: case.shape.head_words] = 0
    return words


def _wrong_number(case: _List) -> Words:
    words = case.word()
    number = int(words[0])
    words[0] = case.rng.choice([0, number - 1, number + 1, number | 1 << 25, 0xFFFF_FFFF])
    return words


def _huge_use(case: _List) -> Words:
    """Set a bit of a use above those that are stored."""
    words = case.word()
    words[16 + case.rng.randrange(case.shape.blocks)] |= 1 << case.rng.randint(16, 31)
    return words


def _padding_of_uses(case: _List) -> Words:
    words = case.word()
    words[case.rng.randrange(16 + case.shape.blocks, case.shape.head_words)] = 1
    return words


def _padding_of_jobs(case: _List) -> Words:
    words = case.word()
    place = case.rng.randrange(case.shape.head_words + len(case.records), len(words))
    words[place] = case.rng.choice([1, LAST_JOB, case.records[-1], 1 << 31])
    return words


FAULTS: dict[str, Callable[[_List], Words]] = {
    **{f"bit_{bit}": _reserved(bit) for bit in (27, 29, 30, 31)},
    "head_after_group": _head,
    "head_beyond_group": _far_head,
    "query_after_blocks": _query,
    "query_beyond_blocks": _far_query,
    "block_after_query": _block,
    "last_missing": _no_last,
    "last_early": _early_last,
    "records_swapped": _swapped,
    "record_doubled": _doubled,
    "record_left_out": _left_out_record,
    "row_left_out": _left_out_row,
    "window_left_out": _left_out_window,
    "windows_swapped": _windows_swapped,
    "use_moved": _moved_use,
    "too_many_uses": _too_many_uses,
    "no_jobs": _no_jobs,
    "wrong_number": _wrong_number,
    "huge_use": _huge_use,
    "padding_of_uses": _padding_of_uses,
    "padding_of_jobs": _padding_of_jobs,
}


def broken_list(rng: random.Random, shape: ListShape, fault: str) -> Words:
    """Return a random list with one fault of :data:`FAULTS`.

    The shape needs at least two windows, fewer than eight heads, and blocks that are no multiple
    of the window nor of 16.
    """
    while True:
        records = records_of(random_pairs(rng, shape, 0.35), shape.window)
        if len(records) % 16 == 0:
            continue  # the fault may be in the padding
        try:
            words = FAULTS[fault](_List(rng, shape, records))
        except _NoPlaceError:
            continue
        assert not is_legal(words, shape), f"the fault {fault} left a legal list"
        return words
