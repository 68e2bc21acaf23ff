# SPDX-License-Identifier: Apache-2.0
"""The cache model keeps only what is used again, never drops it, and ends empty."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdelta.errors import RangeError
from fastdelta.reference.job_reader_model import ListShape, read_job_list
from fastdelta.reference.kv_cache_model import (
    CacheCounters,
    Decision,
    KVCache,
    Tier,
    Visit,
)
from fastdelta_verif.job_lists import list_of, random_pairs, records_of


@dataclass
class Case:
    """Uses and visits of a job list, and a cache."""

    uses: tuple[int, ...]
    visits: list[Visit]
    lines: int
    threshold: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    group = draw(st.integers(1, 8))
    window = draw(st.sampled_from([w for w in (1, 2, 4, 8) if w * group <= 64]))
    shape = ListShape(draw(st.integers(1, 24)), group, window)
    rng = random.Random(draw(st.integers(0, 2**32)))
    pairs = random_pairs(rng, shape, draw(st.sampled_from([0.05, 0.3, 1.0])))
    reading = read_job_list(list_of(records_of(pairs, window), shape), shape)
    visits = [Visit(visit[0].block, len(visit)) for visit in reading.visits]
    threshold = draw(st.sampled_from([0, 1, group, group * shape.blocks // 4, 0xFFFF]))
    return Case(reading.uses, visits, draw(st.sampled_from([2, 4, 8, 32])), threshold)


def run(case: Case, *, enabled: bool = True) -> tuple[KVCache, list[Decision]]:
    cache = KVCache(case.lines, case.threshold, enabled)
    cache.start(case.uses)
    return cache, [cache.visit(visit) for visit in case.visits]


@given(cases())
def test_uses_are_used_up_and_the_cache_ends_empty(case: Case) -> None:
    cache, decisions = run(case)
    assert sum(case.uses) == sum(visit.jobs for visit in case.visits)
    assert not any(cache.uses)
    assert not cache.resident
    counters = cache.counters
    assert counters.visits == len(case.visits) == counters.hits + counters.misses
    assert counters.hot + counters.cold == counters.evictions
    assert counters == CacheCounters(
        visits=len(decisions),
        hits=sum(d.hit for d in decisions),
        misses=sum(not d.hit for d in decisions),
        hot=sum(d.admitted is Tier.HOT for d in decisions),
        cold=sum(d.admitted is Tier.COLD for d in decisions),
        bypasses=counters.bypasses,
        evictions=sum(d.freed for d in decisions),
    )


@given(cases())
def test_resident_blocks_stay_until_their_last_visit(case: Case) -> None:
    _, decisions = run(case)
    last_visit = {visit.block: place for place, visit in enumerate(case.visits)}
    resident: set[int] = set()
    for place, (visit, decision) in enumerate(zip(case.visits, decisions, strict=True)):
        assert decision.hit == (visit.block in resident)  # a live line is never dropped
        assert decision.freed == (decision.hit and last_visit[visit.block] == place)
        if decision.admitted:
            assert last_visit[visit.block] > place  # what is kept comes again
            resident.add(visit.block)
        if decision.freed:
            resident.remove(visit.block)
        assert len(resident) <= case.lines
    assert not resident


@given(cases())
def test_tiers_and_bypasses(case: Case) -> None:
    """Hot blocks fall back to cold lines, cold ones never take hot lines, and none is left out."""
    cache = KVCache(case.lines, case.threshold)
    cache.start(case.uses)
    for visit in case.visits:
        hot, cold, bypasses = cache.free(Tier.HOT), cache.free(Tier.COLD), cache.counters.bypasses
        decision = cache.visit(visit)
        left = cache.uses[visit.block]
        wanted = not decision.hit and left > 0
        is_hot = left > case.threshold
        expected = None
        if wanted and is_hot and hot:
            expected = Tier.HOT
        elif wanted and cold:
            expected = Tier.COLD
        assert decision.admitted is expected
        assert cache.counters.bypasses - bypasses == int(wanted and expected is None)


@given(cases())
def test_room_for_all_leaves_one_miss_a_block(case: Case) -> None:
    case.lines, case.threshold = 64, 0xFFFF
    cache, _ = run(case)
    assert cache.counters.misses == len({visit.block for visit in case.visits})
    assert cache.counters.bypasses == 0


@given(cases())
def test_off_everything_is_a_miss(case: Case) -> None:
    cache, decisions = run(case, enabled=False)
    assert set(decisions) == {Decision(hit=False)}
    visits = len(case.visits)
    assert cache.counters == CacheCounters(visits=visits, misses=visits)


def test_visits_without_v_leave_no_trace() -> None:
    cache = KVCache(2, 0)
    cache.start([3])
    assert cache.visit(Visit(0, 2, k_only=True)) == Decision(hit=False)
    assert (cache.counters, cache.uses) == (CacheCounters(), [3])
    assert cache.visit(Visit(0, 1)).admitted is Tier.HOT


def test_counters_go_on_and_lines_do_not() -> None:
    cache = KVCache(2, 0)
    for head in (1, 2):
        cache.start([2])
        assert cache.visit(Visit(0, 1)) == Decision(hit=False, admitted=Tier.HOT)
        assert cache.counters.misses == head


def test_wrong_arguments_are_refused() -> None:
    for lines in (0, 1, 3, 2048):
        with pytest.raises(RangeError, match="lines"):
            KVCache(lines, 0)
    with pytest.raises(RangeError, match="hot_threshold"):
        KVCache(2, 1 << 16)
    cache = KVCache(2, 0)
    cache.start([1])
    with pytest.raises(RangeError, match="are left"):
        cache.visit(Visit(0, 2))
