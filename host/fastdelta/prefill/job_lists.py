# SPDX-License-Identifier: Apache-2.0
"""Job lists of the prefill kernel: index sets to words, and words to index sets.

The format and the order of the jobs are those of docs/prefill_engine.md, section "Job list". Each
KV head has a list of its own; lists lie ``job_stride`` bytes apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, Words, byte_buffer
from fastdelta.errors import RangeError, ShapeError
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.sparse_index import BoolArray, IndexSet
from fastdelta.shapes import BUFFER_ALIGNMENT, JOB_SECTION_WORDS

DIVERGENCE_STEP = 2.0**-31
"""Nats of one step of a divergence in the header."""

MAX_LIST_BLOCKS = 1 << 12
MAX_LIST_GROUP = 1 << 3

_QUERY, _HEAD, _LAST = 12, 24, 28  # lowest bit of each field; the KV block is at bit 0
_BLOCK_MASK, _HEAD_MASK = MAX_LIST_BLOCKS - 1, MAX_LIST_GROUP - 1
_UNUSED = 0xFFFFFFFF ^ (_BLOCK_MASK | _BLOCK_MASK << _QUERY | _HEAD_MASK << _HEAD | 1 << _LAST)
_JOBS, _QUERY_AWARE, _DIVERGENCE = 0, 1, 2  # words of the header


class JobListError(ValueError):
    """A job list in memory breaks a rule of the format."""


@dataclass(frozen=True, eq=False)
class JobList:
    """Job list of one KV head, with the sections as arrays.

    Attributes
    ----------
    jobs
        Uint32 [jobs], in the order in which the engine works.
    uses
        Int64 [blocks], jobs of each KV block.
    query_aware
        Bool [group].
    divergence
        Uint32 [group], in steps of 2**-31 nats; 0 in lists of the caller and dense ones.
    """

    jobs: Words
    uses: IntArray
    query_aware: BoolArray
    divergence: Words

    @property
    def blocks(self) -> int:
        """Blocks of the prompt."""
        return len(self.uses)

    @property
    def group(self) -> int:
        """Query heads of the KV head."""
        return len(self.query_aware)

    @property
    def words(self) -> int:
        """Words of the list with its padding."""
        return list_words(self.blocks, len(self.jobs))

    def divergence_nats(self) -> npt.NDArray[np.float64]:
        """Return the divergences in nats, float64 [group]."""
        return self.divergence * DIVERGENCE_STEP

    def to_words(self) -> Words:
        """Return the list as it lies in memory."""
        words = np.zeros(self.words, np.uint32)
        words[_JOBS] = len(self.jobs)
        words[_QUERY_AWARE] = int(sum(1 << int(h) for h in np.flatnonzero(self.query_aware)))
        words[_DIVERGENCE : _DIVERGENCE + self.group] = self.divergence
        words[JOB_SECTION_WORDS : JOB_SECTION_WORDS + self.blocks] = self.uses
        start = _jobs_start(self.blocks)
        words[start : start + len(self.jobs)] = self.jobs
        return words


@dataclass(frozen=True, eq=False)
class JobFields:
    """Jobs of a list taken apart, int64 [jobs] each: KV block, query block, head in the group."""

    kv_block: IntArray
    query_block: IntArray
    head: IntArray
    last: BoolArray = field(repr=False)

    @classmethod
    def from_words(cls, jobs: Words) -> JobFields:
        """Take words apart."""
        wide = jobs.astype(np.int64)
        return cls(
            kv_block=wide & _BLOCK_MASK,
            query_block=wide >> _QUERY & _BLOCK_MASK,
            head=wide >> _HEAD & _HEAD_MASK,
            last=(wide >> _LAST & 1).astype(np.bool_),
        )


def list_words(blocks: int, jobs: int) -> int:
    """Words of a list with its padding."""
    return _jobs_start(blocks) + _padded(jobs)


def dense_list_bytes(blocks: int, group: int) -> int:
    """Bytes of the longest list there can be: every causal block of every head."""
    return 4 * list_words(blocks, group * blocks * (blocks + 1) // 2)


def make_job_lists(index_set: IndexSet, kv_heads: int, window: int) -> tuple[JobList, ...]:
    """Make the job list of every KV head from the selected blocks of the query heads.

    Parameters
    ----------
    index_set : IndexSet
        Head ``h`` belongs to KV head ``h // (heads / kv_heads)``.
    kv_heads : int
    window : int
        Query blocks of a window, a power of two.

    Raises
    ------
    ShapeError
        If the heads do not divide evenly, or more of them share a KV head than a list can hold.
    RangeError
        If a query block has no KV block, if there are too many blocks, or if the window is no
        power of two.
    """
    heads, blocks = index_set.heads, index_set.blocks
    if kv_heads < 1 or heads % kv_heads or heads // kv_heads > MAX_LIST_GROUP:
        raise ShapeError(
            f"the index set has {heads} heads for {kv_heads} KV heads; they must be a multiple, at "
            f"most {MAX_LIST_GROUP} times as many"
        )
    if blocks > MAX_LIST_BLOCKS:
        raise RangeError(f"{blocks} blocks; a job list has at most {MAX_LIST_BLOCKS}")
    if window < 1 or window & (window - 1):
        raise RangeError(f"window={window}; it must be a power of two")
    per_row = np.diff(index_set.offsets)
    empty = np.flatnonzero(per_row == 0)
    if empty.size:
        raise RangeError(
            f"head {empty[0] // blocks}, query block {empty[0] % blocks} selects no KV block "
            f"({empty.size} query blocks in all); each needs at least one, such as its own"
        )
    group = heads // kv_heads
    rows = np.repeat(np.arange(heads * blocks), per_row)
    head, query_block = np.divmod(rows, blocks)
    is_last = np.zeros(len(rows), np.bool_)
    is_last[index_set.offsets[1:] - 1] = True
    lists = []
    bounds = index_set.offsets[:: group * blocks]
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = slice(start, stop)
        b, q, h = index_set.columns[part], query_block[part], head[part] % group
        order = np.lexsort((h, q, b, q // window))
        words = b | q << _QUERY | h << _HEAD | is_last[part].astype(np.int64) << _LAST
        lists.append(
            JobList(
                jobs=words[order].astype(np.uint32),
                uses=np.bincount(b, minlength=blocks).astype(np.int64),
                query_aware=np.zeros(group, np.bool_),
                divergence=np.zeros(group, np.uint32),
            )
        )
    return tuple(lists)


def pack_job_lists(
    lists: tuple[JobList, ...], stride: int | None = None, out: Bytes | None = None
) -> Bytes:
    """Lay out job lists in memory, `stride` bytes apart; by default as close as they can be.

    Raises
    ------
    RangeError
        If a list is longer than the stride, or the stride is no multiple of 64 bytes.
    """
    if stride is None:
        stride = lists_stride(lists)
    longest = max(4 * jobs.words for jobs in lists)
    if stride < longest or stride % BUFFER_ALIGNMENT:
        raise RangeError(
            f"job_stride={stride}; it must be a multiple of {BUFFER_ALIGNMENT} bytes and at least "
            f"{longest}, the longest list"
        )
    flat = byte_buffer(out, len(lists) * stride, "jobs")
    for jobs, part in zip(lists, flat.reshape(len(lists), stride), strict=True):
        part[: 4 * jobs.words].view(np.uint32)[:] = jobs.to_words()
    return flat


def lists_stride(lists: tuple[JobList, ...]) -> int:
    """Smallest distance in bytes at which the lists fit."""
    return max(4 * jobs.words for jobs in lists)


def jobs_in_header(header: Bytes) -> int:
    """Return the number of jobs that the first bytes of a list state."""
    return int(header[:4].view(np.uint32)[0])


def read_job_list(words: Words, blocks: int, group: int, window: int) -> JobList:
    """Read a list of words and check every rule of the format.

    Parameters
    ----------
    words : array of uint32
        At least the whole list; what lies behind it is not read.
    blocks, group, window : int
        Blocks of the prompt, query heads of the KV head, query blocks of a window.

    Raises
    ------
    JobListError
        If a rule is broken; the message says which, and where.
    """
    count = int(words[_JOBS]) if len(words) else 0
    if len(words) < list_words(blocks, count):
        raise JobListError(
            f"the list states {count} jobs for {blocks} blocks, which take "
            f"{list_words(blocks, count)} words; there are {len(words)}"
        )
    start = _jobs_start(blocks)
    padding = (
        words[_DIVERGENCE + group : JOB_SECTION_WORDS],
        words[JOB_SECTION_WORDS + blocks : start],
        words[start + count : list_words(blocks, count)],
    )
    if any(np.any(part) for part in padding):
        raise JobListError("padding of a section is not zero")
    aware = int(words[_QUERY_AWARE])
    if aware >> group:
        raise JobListError(f"query-aware bits {aware:#x} for {group} heads")
    result = JobList(
        jobs=words[start : start + count].copy(),
        uses=words[JOB_SECTION_WORDS : JOB_SECTION_WORDS + blocks].astype(np.int64),
        query_aware=(aware >> np.arange(group) & 1).astype(np.bool_),
        divergence=words[_DIVERGENCE : _DIVERGENCE + group].copy(),
    )
    _check_jobs(result, window)
    return result


def _check_jobs(jobs: JobList, window: int) -> None:
    """Check fields, order, last flags and uses."""
    fields = JobFields.from_words(jobs.jobs)
    b, q, h = fields.kv_block, fields.query_block, fields.head

    def refuse(wrong: BoolArray, what: str) -> None:
        if np.any(wrong):
            at = int(np.argmax(wrong))
            raise JobListError(
                f"job {at} ({int(jobs.jobs[at]):#010x}: KV block {b[at]}, query block {q[at]}, "
                f"head {h[at]}) {what}"
            )

    refuse((jobs.jobs & _UNUSED) != 0, "has bits set that must be zero")
    refuse(q >= jobs.blocks, f"is beyond the {jobs.blocks} blocks of the prompt")
    refuse(h >= jobs.group, f"is beyond the {jobs.group} heads of the group")
    refuse(b > q, "is not causal: the KV block is after the query block")
    rank = ((q // window * jobs.blocks + b) * jobs.blocks + q) * jobs.group + h
    refuse(np.concatenate([[False], np.diff(rank) <= 0]), "is out of order or repeated")
    slot = h * jobs.blocks + q
    final = np.full(jobs.group * jobs.blocks, -1)
    final[slot] = np.arange(len(slot))  # of equal slots the last one stays
    if np.any(final < 0):
        head, row = divmod(int(np.argmin(final)), jobs.blocks)
        raise JobListError(f"head {head}, query block {row} has no job")
    is_last = np.zeros(len(slot), np.bool_)
    is_last[final] = True
    refuse(fields.last != is_last, "has a wrong last flag")
    counted = np.bincount(b, minlength=jobs.blocks)
    if np.any(counted != jobs.uses):
        at = int(np.argmax(counted != jobs.uses))
        raise JobListError(f"KV block {at} has {counted[at]} jobs; its uses say {jobs.uses[at]}")


def index_set_of(lists: tuple[JobList, ...]) -> IndexSet:
    """Return the pairs of lists that `read_job_list` has checked, KV heads in order."""
    blocks, group = lists[0].blocks, lists[0].group
    mask = np.zeros((len(lists), group, blocks, blocks), np.bool_)
    for selected, jobs in zip(mask, lists, strict=True):
        fields = JobFields.from_words(jobs.jobs)
        selected[fields.head, fields.query_block, fields.kv_block] = True
    return IndexSet.from_mask(mask.reshape(-1, blocks, blocks))


def _padded(words: int) -> int:
    return -(-words // JOB_SECTION_WORDS) * JOB_SECTION_WORDS


def _jobs_start(blocks: int) -> int:
    return JOB_SECTION_WORDS + _padded(blocks)
