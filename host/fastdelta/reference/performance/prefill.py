# SPDX-License-Identifier: Apache-2.0
"""Performance of an attention layer on the prefill kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Literal

from fastdelta.errors import InputError
from fastdelta.prefill.job_lists import JobFields, JobList, make_job_lists
from fastdelta.prefill.results import PrefillCycles
from fastdelta.reference.performance.attention import AttentionPhase
from fastdelta.reference.performance.cache import list_visits
from fastdelta.reference.performance.calibration import calibration_error
from fastdelta.reference.performance.index import index_cycles
from fastdelta.reference.performance.memory import MemoryTiming
from fastdelta.reference.performance.results import PrefillPerformance
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import PrefillShape

Mode = Literal["list", "index", "dense"]
Progress = Callable[[str, int, int], None]

START_CYCLES = 17
"""From start to the first phase: the check of the arguments."""
EXACT_JOBS = 20_000
HOT_THRESHOLD_MAX = (1 << 16) - 1


def prefill_performance(
    indices: IndexSet | Literal["dense"] | Sequence[JobList],
    shape: PrefillShape,
    memory: MemoryTiming | None = None,
    *,
    tokens: int,
    kv_heads: int,
    heads: int | None = None,
    mode: Mode = "list",
    window: int | None = None,
    cache: bool = True,
    hot_threshold: int | None = None,
    query_aware: Sequence[bool] | None = None,
    take_all: bool = False,
    exact_jobs: int = EXACT_JOBS,
    progress: Progress | None = None,
) -> PrefillPerformance:
    """Model cycles, memory bytes, hits and utilisation of one attention layer.

    Parameters
    ----------
    indices : IndexSet, "dense", or job lists, one for each KV head
        Blocks that are attended to.
    shape : PrefillShape
        Parameters of the kernel.
    memory : MemoryTiming, optional
        Ports of the memory; by default the simulated card's.
    tokens, kv_heads : int
    heads : int, optional
        Query heads; needed if `indices` is ``"dense"``.
    mode : {"list", "index", "dense"}
        Whether the caller chose the blocks, the kernel, or the kernel takes all of them.
    window, cache, hot_threshold
        As for `fastdelta.prefill.accelerator.PrefillAccelerator.prefill`.
    query_aware : sequence of bool [heads], optional
        Heads that chose single pairs, in mode ``"index"``; by default none.
    take_all : bool
        Whether gamma is 1, in mode ``"index"``.
    exact_jobs : int
        Lists of more jobs are modelled on windows of query blocks spread evenly over them.
    progress : callable, optional
        Told what is modelled, steps done, and steps in all.

    Raises
    ------
    InputError
        If the arguments do not fit each other or the kernel.
    """
    memory = memory or MemoryTiming()
    tell = progress or (lambda *_: None)
    blocks = shape.blocks(tokens)
    if isinstance(indices, str):
        if heads is None:
            raise InputError("dense needs the number of query heads; pass heads=")
        indices = IndexSet.dense(heads, blocks)
    if isinstance(indices, IndexSet):
        heads = indices.heads
        group = heads // kv_heads
        window = shape.window(group) if window is None else window
        lists: Sequence[JobList] = make_job_lists(indices, kv_heads, window)
    else:
        lists = indices
        group = lists[0].group
        heads = group * len(lists)
        window = shape.window(group) if window is None else window
    if len(lists) != kv_heads or any(jobs.blocks != blocks for jobs in lists):
        raise InputError(
            f"{len(lists)} job lists of {lists[0].blocks} blocks for {kv_heads} KV heads and "
            f"{blocks} blocks; they must agree"
        )
    if window < 1 or window * group > shape.slots or blocks > shape.max_blocks:
        raise InputError(
            f"a window of {window} query blocks of {group} heads and {blocks} blocks; the kernel "
            f"has {shape.slots} slots and at most {shape.max_blocks} blocks"
        )
    if hot_threshold is None:
        hot_threshold = min(max(group * blocks // 2, 1), HOT_THRESHOLD_MAX)
    aware = [False] * heads if query_aware is None else list(query_aware)
    phases: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    index_total = attention_total = 0.0
    for kv_head, jobs in enumerate(lists):
        tell("KV heads", kv_head, kv_heads)
        fields = JobFields.from_words(jobs.jobs)
        if mode != "list":
            of_index = index_cycles(
                fields,
                blocks,
                group,
                window,
                aware[kv_head * group : (kv_head + 1) * group],
                shape,
                memory,
                dense=mode == "dense",
                take_all=take_all,
            )
            phases.update(asdict(of_index))
            index_total += of_index.total
        visits = list_visits(jobs, fields, window, shape.cache_lines, hot_threshold, cache=cache)
        phase = AttentionPhase(fields, visits, blocks, group, window, shape, memory)
        work = phase.cycles(exact_jobs)
        phases.update({"list_header": work.header, "work": work.total - work.header})
        attention_total += work.total
        counts.update(
            jobs=len(jobs.jobs),
            sampled=work.jobs,
            visits=visits.number,
            hits=visits.hits,
            bypasses=visits.bypasses,
            words=jobs.words,
        )
    tell("KV heads", kv_heads, kv_heads)
    misses = counts["visits"] - counts["hits"]
    control = START_CYCLES + kv_heads * (1 if mode == "list" else 2)
    phases["control"] = control
    steps = shape.macs_per_job // (shape.block * shape.array_columns)
    tiles = heads * blocks if mode == "index" else 0
    pooled = sum(aware) if mode == "index" else 0
    statistics = mode == "index"
    return PrefillPerformance(
        shape=shape,
        tokens=tokens,
        heads=heads,
        kv_heads=kv_heads,
        window=window,
        cache=cache,
        mode=mode,
        cycles=PrefillCycles(
            round(index_total),
            round(attention_total),
            round(index_total + attention_total + control),
        ),
        phases=dict(phases),
        memory_bytes={
            "q": shape.q_block_bytes * (heads * (blocks + statistics) + pooled * blocks),
            "k": shape.k_block_bytes * (misses + kv_heads * blocks * statistics),
            "v": shape.v_block_bytes * misses,
            "jobs": 4 * counts["words"] * (1 if mode == "list" else 2),
            "o": shape.o_block_bytes * heads * blocks,
        },
        jobs=counts["jobs"],
        sampled_jobs=counts["sampled"],
        visits=counts["visits"],
        hits=counts["hits"],
        misses=misses,
        bypasses=counts["bypasses"],
        attention_steps=counts["jobs"] * steps,
        index_steps=tiles * steps // 2,
        index_tiles=tiles,
        calibration=calibration_error("prefill"),
    )
