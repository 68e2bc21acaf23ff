# SPDX-License-Identifier: Apache-2.0
"""The model of the job reader takes exactly the legal job lists, and gives whole visits only."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.arrays import Words
from fastdelta.errors import RangeError, ShapeError
from fastdelta.prefill import job_lists
from fastdelta.reference.job_reader_model import ListShape, Reading, read_job_list
from fastdelta.reference.sparse_index import IndexSet
from fastdelta_verif.job_lists import (
    FAULTS,
    Pair,
    broken_list,
    is_legal,
    list_of,
    random_header,
    random_pairs,
    records_of,
)


@st.composite
def shapes(draw: st.DrawFn) -> ListShape:
    group = draw(st.integers(1, 8))
    window = draw(st.sampled_from([w for w in (1, 2, 4, 8, 16, 32, 64) if w * group <= 64]))
    return ListShape(draw(st.integers(1, 20)), group, window)


def pairs_given(reading: Reading) -> list[Pair]:
    return [(job.head, job.query, job.block) for visit in reading.visits for job in visit]


@given(shapes(), st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.7, 1.0]))
def test_legal_list_gives_its_pairs(shape: ListShape, seed: int, density: float) -> None:
    rng = random.Random(seed)
    pairs = random_pairs(rng, shape, density)
    records = records_of(pairs, shape.window)
    words = list_of(records, shape, random_header(rng, shape))
    reading = read_job_list(words, shape)
    assert not reading.bad
    assert len(words) == shape.head_words + reading.job_words
    given = pairs_given(reading)
    assert len(given) == len(pairs)
    assert set(given) == set(pairs)  # a permutation of the index set
    uses = np.bincount([block for _, _, block in pairs], minlength=shape.blocks)
    assert list(reading.uses) == uses.tolist()
    visited = set()
    for visit in reading.visits:
        assert len({job.block for job in visit}) == 1
        assert len({(job.head, job.query) for job in visit}) == len(visit) <= 64
        windows = {job.query // shape.window for job in visit}
        assert len(windows) == 1
        visit_of = (visit[0].block, *windows)
        assert visit_of not in visited  # K and V come once for a block in a window
        visited.add(visit_of)
    last_of = {(job.head, job.query): job for visit in reading.visits for job in visit}
    assert all(job.last for job in last_of.values())
    assert sum(job.last for visit in reading.visits for job in visit) == len(last_of)


@settings(max_examples=400)
@given(shapes(), st.integers(0, 2**32), st.data())
def test_any_change_of_a_word_is_judged_right(
    shape: ListShape, seed: int, data: st.DataObject
) -> None:
    rng = random.Random(seed)
    words = list_of(records_of(random_pairs(rng, shape, 0.5), shape.window), shape)
    place = data.draw(st.integers(0, len(words) - 1).filter(lambda place: not 1 <= place < 16))
    words[place] ^= 1 << data.draw(st.integers(0, 31))
    # A head or query block may move to another legal place; every other change breaks a rule.
    legal = is_legal(words, shape)
    assert read_job_list(words, shape).bad == (not legal)
    assert not (legal and place < shape.head_words)


def host_takes(words: Words, shape: ListShape) -> bool:
    try:
        job_lists.read_job_list(words, shape.blocks, shape.group, shape.window)
    except job_lists.JobListError:
        return False
    return True


@given(shapes(), st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 1.0]))
def test_host_writes_the_same_list(shape: ListShape, seed: int, density: float) -> None:
    rng = random.Random(seed)
    pairs = random_pairs(rng, shape, density)
    mask = np.zeros((shape.group, shape.blocks, shape.blocks), np.bool_)
    mask[tuple(np.array(pairs).T)] = True
    (host,) = job_lists.make_job_lists(IndexSet.from_mask(mask), 1, shape.window)
    words = list_of(records_of(pairs, shape.window), shape)
    assert np.array_equal(host.to_words(), words)
    assert host_takes(words, shape)


FAULT_SHAPE = ListShape(13, 3, 4)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_seen(fault: str) -> None:
    for seed in range(30):
        rng = random.Random(f"{fault} {seed}")
        words = broken_list(rng, FAULT_SHAPE, fault)
        reading = read_job_list(words, FAULT_SHAPE)
        assert reading.bad
        assert not host_takes(words, FAULT_SHAPE)
        given = [job for visit in reading.visits for job in visit]
        # What was given is a legal beginning: no job twice, none after the last of its row.
        assert len(set(pairs_given(reading))) == len(given)
        finished: set[tuple[int, int]] = set()
        for job in given:
            assert (job.head, job.query) not in finished
            finished |= {(job.head, job.query)} if job.last else set()


def test_broken_heads_ask_for_no_jobs() -> None:
    shape = ListShape(5, 2, 2)
    words = list_of(records_of(random_pairs(random.Random(1), shape, 0.5), 2), shape)
    words[0] = 0
    assert read_job_list(words, shape) == Reading(tuple(words[16:21].tolist()), (), True, 0)


def test_short_lists_are_refused() -> None:
    shape = ListShape(5, 2, 2)
    words = list_of(records_of(random_pairs(random.Random(1), shape, 0.5), 2), shape)
    for length in (0, 31, len(words) - 1):
        with pytest.raises(ShapeError, match="words"):
            read_job_list(words[:length], shape)
    with pytest.raises(ShapeError, match="shape"):
        read_job_list(words.reshape(2, -1), shape)


@pytest.mark.parametrize("shape", [(0, 1, 1), (2049, 1, 1), (1, 9, 1), (1, 1, 3), (1, 8, 16)])
def test_impossible_shapes_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(RangeError, match="allowed"):
        ListShape(*shape)
