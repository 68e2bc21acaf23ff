# SPDX-License-Identifier: Apache-2.0
"""Model of the prefill engine's job reader: the rules of a job list, and what is given of one.

Format and rules: docs/prefill_engine.md, "Job list". The reader gives a visit when the record after
it, or the end of the list, has been found to be right, so of a broken list it gives the visits that
lie wholly before the place where it is known to be broken, less the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastdelta.arrays import Words
from fastdelta.errors import RangeError, ShapeError

SECTION_WORDS = 16  # sections are padded to multiples of these
HEADER_WORDS = 16
LAST_JOB = 1 << 28
RESERVED = 0xE800_0000


@dataclass(frozen=True)
class ListShape:
    """What a job list depends on besides its words.

    Attributes
    ----------
    blocks
        KV blocks of the prompt, as many as query blocks: 1 to 2048.
    group
        Query heads of a KV head: 1 to 8.
    window
        Query blocks of a window, a power of two; ``window * group`` is at most 64.

    Raises
    ------
    RangeError
        For a value outside these ranges.
    """

    blocks: int
    group: int
    window: int

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= 2048:
            raise RangeError(f"blocks={self.blocks}; allowed are 1 to 2048")
        if not 1 <= self.group <= 8:
            raise RangeError(f"group={self.group}; allowed are 1 to 8")
        if self.window < 1 or self.window & (self.window - 1) or self.window * self.group > 64:
            raise RangeError(
                f"window={self.window}; allowed are powers of two with window * group at most 64, "
                f"group being {self.group}"
            )

    @property
    def head_words(self) -> int:
        """Words of the header and of the uses, with their padding."""
        return HEADER_WORDS + padded(self.blocks)


def padded(words: int) -> int:
    """Round a number of words up to that of whole sections."""
    return -(-words // SECTION_WORDS) * SECTION_WORDS


@dataclass(frozen=True)
class Job:
    """One query block of one head against one KV block.

    Attributes
    ----------
    block, query, head
        KV block, query block, head in the group.
    last
        Whether it is the last job of the query block and head.
    """

    block: int
    query: int
    head: int
    last: bool


@dataclass(frozen=True)
class Reading:
    """What the job reader gives of a list.

    Attributes
    ----------
    uses
        Words of the uses section, without padding.
    visits
        Jobs of each visit that is given, in order.
    bad
        Whether the list breaks a rule.
    job_words
        Words of the jobs section with padding, 0 if the head of the list is broken already.
    """

    uses: tuple[int, ...]
    visits: tuple[tuple[Job, ...], ...]
    bad: bool
    job_words: int


def read_job_list(words: Words, shape: ListShape) -> Reading:
    """Return what the job reader gives of a list.

    Parameters
    ----------
    words
        Uint32 [words], the list; more may follow.
    shape
        Blocks, heads of the group and window.

    Raises
    ------
    ShapeError
        If `words` is not one-dimensional or ends before the list does.
    """
    if words.ndim != 1 or len(words) < shape.head_words:
        raise ShapeError(
            f"a list with the shape {words.shape}; expected at least {shape.head_words} words"
        )
    number = int(words[0])
    uses_section = words[HEADER_WORDS : shape.head_words].tolist()
    uses, padding = uses_section[: shape.blocks], uses_section[shape.blocks :]
    # Query block q of a head uses block b at most once, and only from q = b on.
    sound = all(n <= shape.group * (shape.blocks - b) for b, n in enumerate(uses))
    if not sound or any(padding) or number == 0 or number != sum(uses):
        return Reading(tuple(uses), (), True, 0)
    end = shape.head_words + padded(number)
    if len(words) < end:
        raise ShapeError(f"a list of {len(words)} words; this one needs {end}")
    jobs = words[shape.head_words : end].tolist()
    visits, bad = _check(jobs[:number], list(uses), shape)
    if bad or any(jobs[number:]):
        return Reading(tuple(uses), tuple(visits[:-1]), True, len(jobs))
    return Reading(tuple(uses), tuple(visits), False, len(jobs))


def _check(
    records: list[int], left: list[int], shape: ListShape
) -> tuple[list[tuple[Job, ...]], bool]:
    """Return the visits begun before the first broken rule, and whether there is one."""
    visits: list[tuple[Job, ...]] = []
    finished: set[tuple[int, int]] = set()
    before: tuple[int, int, int, int] | None = None
    for record in records:
        block, query, head = record & 0xFFF, record >> 12 & 0xFFF, record >> 24 & 7
        job = Job(block, query, head, bool(record & LAST_JOB))
        window = query // shape.window
        place = (window, block, query, head)
        if record & RESERVED or head >= shape.group or not block <= query < shape.blocks:
            return visits, True
        if (before is not None and place <= before) or (head, query) in finished:
            return visits, True
        if left[block] == 0:
            return visits, True
        # Every query block before the window must have had its last job, so none is left out.
        if len(finished) < window * shape.window * shape.group and (
            before is None or before[0] != window
        ):
            return visits, True
        left[block] -= 1
        if before is not None and before[:2] == (window, block):
            visits[-1] += (job,)
        else:
            visits.append((job,))
        if job.last:
            finished.add((head, query))
        before = place
    return visits, len(finished) != shape.group * shape.blocks
