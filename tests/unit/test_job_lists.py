# SPDX-License-Identifier: Apache-2.0
"""Job lists: order and content against a plain rendering of the contract, and refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdelta.errors import RangeError, ShapeError
from fastdelta.prefill.job_lists import (
    JobList,
    JobListError,
    dense_list_bytes,
    index_set_of,
    jobs_in_header,
    lists_stride,
    make_job_lists,
    pack_job_lists,
    read_job_list,
)
from fastdelta.reference.sparse_index import IndexSet


@st.composite
def layers(draw):
    """Index set, KV heads, window: every query block has at least one KV block."""
    group, kv_heads = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    blocks, window = draw(st.integers(1, 20)), 1 << draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    heads = group * kv_heads
    mask = np.tril(rng.random((heads, blocks, blocks)) < draw(st.floats(0, 1)))
    forced = rng.integers(0, np.arange(1, blocks + 1), (heads, blocks))
    np.put_along_axis(mask, forced[..., np.newaxis], True, axis=2)
    return IndexSet.from_mask(mask), kv_heads, window


def plain_jobs(index_set: IndexSet, kv_head: int, group: int, window: int) -> list[int]:
    """Render the contract's sentences, one loop each."""
    words = []
    for first in range(0, index_set.blocks, window):
        for kv_block in range(index_set.blocks):
            for query in range(first, min(first + window, index_set.blocks)):
                for head in range(group):
                    row = index_set.row(kv_head * group + head, query).tolist()
                    if kv_block in row:
                        last = int(kv_block == row[-1])
                        words.append(kv_block + (query << 12) + (head << 24) + (last << 28))
    return words


@given(layers())
def test_lists_follow_the_contract_and_come_back(layer):
    index_set, kv_heads, window = layer
    group, blocks = index_set.heads // kv_heads, index_set.blocks
    lists = make_job_lists(index_set, kv_heads, window)
    packed = pack_job_lists(lists)
    stride = lists_stride(lists)
    assert packed.size == kv_heads * stride
    assert stride % 64 == 0
    assert stride <= dense_list_bytes(blocks, group)
    read = []
    for kv_head, jobs in enumerate(lists):
        expected = plain_jobs(index_set, kv_head, group, window)
        assert jobs.jobs.tolist() == expected
        counts = np.bincount([word & 0xFFF for word in expected], minlength=blocks)
        assert jobs.uses.tolist() == counts.tolist()
        part = packed[kv_head * stride : (kv_head + 1) * stride]
        assert jobs_in_header(part) == len(expected)
        read.append(read_job_list(part.view(np.uint32), blocks, group, window))
        assert not read[-1].query_aware.any()
    assert index_set_of(tuple(read)) == index_set


def test_sections_are_padded_and_the_header_carries_patterns_and_divergences():
    jobs = JobList(
        jobs=np.array([1 << 28, 1 << 12, 1 << 12 | 1 | 1 << 28], np.uint32),
        uses=np.array([2, 1]),
        query_aware=np.array([True]),
        divergence=np.array([1 << 30], np.uint32),
    )
    words = jobs.to_words()
    assert len(words) == 48
    assert words[:4].tolist() == [3, 1, 1 << 30, 0]
    assert words[16:19].tolist() == [2, 1, 0]
    assert words[32:36].tolist() == [1 << 28, 1 << 12, 1 << 12 | 1 | 1 << 28, 0]
    read = read_job_list(words, 2, 1, 1)
    assert read.query_aware.tolist() == [True]
    assert read.divergence_nats().tolist() == [0.5]


def test_dense_lists_are_the_longest():
    for blocks, group in ((1, 1), (5, 3), (17, 8)):
        (jobs,) = make_job_lists(IndexSet.dense(group, blocks), 1, 1)
        assert dense_list_bytes(blocks, group) == 4 * jobs.words


def test_a_query_block_without_a_selected_block_is_refused():
    mask = np.tril(np.ones((4, 6, 6), np.bool_))
    mask[3, 5] = mask[3, 2] = False
    with pytest.raises(RangeError, match=r"head 3, query block 2 selects no KV block \(2 query"):
        make_job_lists(IndexSet.from_mask(mask), 2, 2)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "blocks", "window", "error"),
    [(3, 2, 4, 1, ShapeError), (9, 1, 4, 1, ShapeError), (2, 1, 4, 3, RangeError)],
)
def test_impossible_lists_are_refused(heads, kv_heads, blocks, window, error):
    with pytest.raises(error):
        make_job_lists(IndexSet.dense(heads, blocks), kv_heads, window)


@pytest.mark.parametrize("stride", [64, 1000])
def test_a_stride_that_does_not_fit_is_refused(stride):
    lists = make_job_lists(IndexSet.dense(2, 12), 1, 2)
    with pytest.raises(RangeError, match="job_stride"):
        pack_job_lists(lists, stride)


def swap(words: np.ndarray, first: int, second: int) -> None:
    words[[first, second]] = words[[second, first]]


JOBS = 32  # words before the first job
SPOIL = {
    "states .* jobs": lambda w: w.__setitem__(0, 1000),
    "padding": lambda w: w.__setitem__(JOBS - 1, 1),
    "query-aware bits": lambda w: w.__setitem__(1, 4),
    "must be zero": lambda w: w.__setitem__(JOBS, w[JOBS] | 1 << 27),
    "beyond the 4 blocks": lambda w: w.__setitem__(JOBS, w[JOBS] | 8 << 12),
    "beyond the 2 heads": lambda w: w.__setitem__(JOBS, w[JOBS] | 2 << 24),
    "is not causal": lambda w: w.__setitem__(JOBS, w[JOBS] | 3),
    "out of order": lambda w: swap(w, JOBS + 1, JOBS + 2),
    "wrong last flag": lambda w: w.__setitem__(JOBS, w[JOBS] ^ 1 << 28),
    "uses say": lambda w: w.__setitem__(16, 5),
}


@pytest.mark.parametrize("rule", SPOIL)
def test_words_that_break_a_rule_are_refused(rule):
    (jobs,) = make_job_lists(IndexSet.dense(2, 4), 1, 2)
    words = jobs.to_words()
    read_job_list(words, 4, 2, 2)
    SPOIL[rule](words)
    with pytest.raises(JobListError, match=rule):
        read_job_list(words, 4, 2, 2)


def test_a_list_of_another_window_and_one_with_a_missing_row_are_refused():
    (jobs,) = make_job_lists(IndexSet.dense(1, 4), 1, 4)
    with pytest.raises(JobListError, match="out of order"):
        read_job_list(jobs.to_words(), 4, 1, 1)
    (jobs,) = make_job_lists(IndexSet.dense(1, 4), 1, 1)
    shorter = JobList(jobs.jobs[:-4], np.array([3, 2, 1, 0]), jobs.query_aware, jobs.divergence)
    with pytest.raises(JobListError, match="head 0, query block 3 has no job"):
        read_job_list(shorter.to_words(), 4, 1, 1)
