# SPDX-License-Identifier: Apache-2.0
"""Twin of the selection by threshold (``index_threshold``), cycle for cycle."""

from __future__ import annotations

from typing import Any

from myhdl import ConcatSignal, Signal, always, always_comb, block, instances, intbv

COVER, BEST, PAIRS = 0, 1, 2
IDLE, BISECT, ABOVE, TIES, MARK, END = range(6)
SUM_BITS, SHARE_BITS = 40, 17  # of a sum of entries, and of gamma with 16 fraction bits


def bits(width: int) -> Any:
    """Return an unsigned signal."""
    return Signal(intbv(0)[width:])


def flag() -> Any:
    """Return a signal of one bit."""
    return Signal(bool(0))


@block
def compare_lane(
    entry_0: bool,
    value: Any,
    candidate: Any,
    strict: Any,
    lane_of_last: Any,
    last_word: Any,
    first_word: Any,
    mode: Any,
    inside: Any,
    equal: Any,
) -> Any:
    """Say whether an entry reaches the candidate, and whether it equals it.

    Parameters
    ----------
    entry_0
        Whether the lane holds entry 0 in the first word.
    value, candidate
        The entry and what it is compared with.
    strict
        Whether an equal entry does not reach it.
    lane_of_last
        Whether the lane holds an entry in the last word.
    last_word, first_word
        Whether the word is the last or the first one.
    mode
        Mode of the cell; BEST leaves entry 0 out.
    inside, equal
        The answers.
    """

    @always_comb
    def compare() -> None:
        inside.next = 0
        equal.next = 0
        if (lane_of_last or not last_word) and not (entry_0 and first_word and mode == BEST):
            if value > candidate:
                inside.next = 1
            elif value == candidate:
                inside.next = not strict
                equal.next = 1

    return compare


@block
def keep_lane(clk: Any, inside: Any, value: Any, later_inside: Any, later_value: Any) -> Any:
    """Hold an entry for a cycle.

    Parameters
    ----------
    clk
        Clock.
    inside, value
        The entry.
    later_inside, later_value
        The same one cycle later.
    """

    @always(clk.posedge)
    def keep() -> None:
        later_inside.next = inside
        later_value.next = value

    return keep


@block
def add_lane(
    inside: Any, value: Any, sum_in: Any, count_in: Any, sum_out: Any, count_out: Any
) -> Any:
    """Add an entry that is inside to the sum and the number of those of the lanes before.

    Parameters
    ----------
    inside, value
        The entry.
    sum_in, count_in
        Of the lanes before.
    sum_out, count_out
        With this lane.
    """

    @always_comb
    def add() -> None:
        if inside:
            sum_out.next = sum_in + value
            count_out.next = count_in + 1
        else:
            sum_out.next = sum_in
            count_out.next = count_in

    return add


@block
def choose_lane(
    entry_0: bool,
    inside: Any,
    equal: Any,
    first_word: Any,
    mode: Any,
    whole: Any,
    ties_in: Any,
    ties: Any,
    chosen: Any,
) -> Any:
    """Mark an entry that is inside, or equal while ties are left.

    Parameters
    ----------
    entry_0, first_word, mode
        As in ``compare_lane``; BEST marks entry 0 in any case.
    inside, equal
        Of the entry.
    whole
        Whether all entries are marked.
    ties_in, ties
        Equal entries to mark, before and after this lane.
    chosen
        The mark.
    """

    @always_comb
    def choose() -> None:
        ties.next = ties_in
        chosen.next = inside
        if equal and ties_in != 0:
            chosen.next = 1
            ties.next = ties_in - 1
        if whole or (entry_0 and first_word and mode == BEST):
            chosen.next = 1

    return choose


@block
def selector(
    clk: Any,
    rst_n: Any,
    start: Any,
    mode: Any,
    wanted: Any,
    gamma: Any,
    total: Any,
    last_word: Any,
    last_lanes: Any,
    done: Any,
    count: Any,
    read: Any,
    address: Any,
    values: Any,
    mark_valid: Any,
    mark_address: Any,
    mark_bits: Any,
) -> Any:
    """Find the threshold bit by bit, then count or mark what lies above it and as many equal ones.

    Parameters
    ----------
    clk, rst_n, start, mode, wanted, gamma, total, last_word, last_lanes
        Inputs of ``index_threshold``; the widths of all ports set its parameters.
    done, count, read, address
        Outputs of it.
    values
        The word that was asked for in the cycle before.
    mark_valid, mark_address, mark_bits
        Marks.
    """
    lanes = len(last_lanes)
    width = len(values) // lanes
    count_width, address_width = len(wanted), len(last_word)
    lane_count_width = (lanes - 1).bit_length() + 1
    highest = 1 << (width - 1)
    target_bits = SUM_BITS + SHARE_BITS

    state = bits(3)
    reading, at_last, strict, whole = flag(), flag(), flag(), flag()
    threshold, mask, candidate = bits(width), bits(width), bits(width)
    target, gathered = bits(target_bits), bits(SUM_BITS)
    ties = bits(count_width)
    position, position_1 = bits(address_width), bits(address_width)
    found = bits(count_width)

    valid_1, last_1, first_1 = flag(), flag(), flag()
    valid_2, last_2, first_2 = flag(), flag(), flag()
    valid_3, last_3, first_3, decide = flag(), flag(), flag(), flag()
    word_sum, pass_sum = bits(SUM_BITS), bits(SUM_BITS)
    word_count, pass_count = bits(lane_count_width), bits(count_width)
    holds, reached, fits = flag(), flag(), flag()
    with_tie = bits(SUM_BITS + 1)

    value_1 = [values((n + 1) * width, n * width) for n in range(lanes)]
    inside_1 = [flag() for _ in range(lanes)]
    equal_1 = [flag() for _ in range(lanes)]
    chosen = [flag() for _ in range(lanes)]
    inside_2 = [flag() for _ in range(lanes)]
    value_2 = [bits(width) for _ in range(lanes)]
    sums = [0, *(bits(SUM_BITS) for _ in range(lanes))]
    counts = [0, *(bits(lane_count_width) for _ in range(lanes))]
    left = [ties, *(bits(count_width) for _ in range(lanes))]

    lane = []
    for n in range(lanes):
        lane += [
            compare_lane(
                n == 0,
                value_1[n],
                candidate,
                strict,
                last_lanes(n),
                last_1,
                first_1,
                mode,
                inside_1[n],
                equal_1[n],
            ),
            keep_lane(clk, inside_1[n], value_1[n], inside_2[n], value_2[n]),
            add_lane(inside_2[n], value_2[n], sums[n], counts[n], sums[n + 1], counts[n + 1]),
            choose_lane(
                n == 0,
                inside_1[n],
                equal_1[n],
                first_1,
                mode,
                whole,
                left[n],
                left[n + 1],
                chosen[n],
            ),
        ]
    marks = ConcatSignal(*reversed(chosen))
    lanes_sum, lanes_count, ties_left = sums[lanes], counts[lanes], left[lanes]

    @always_comb
    def look() -> None:
        at_last.next = position == last_word
        strict.next = state != BISECT
        whole.next = mode == PAIRS and gamma >= 65536
        candidate.next = threshold
        if state == BISECT:
            candidate.next = threshold | mask
        with_tie.next = gathered + threshold
        reached.next = gathered * 65536 >= target

    @always_comb
    def weigh() -> None:
        fits.next = with_tie * 65536 <= target
        if mode == BEST:
            holds.next = pass_count >= wanted
        elif mode == PAIRS:
            holds.next = pass_sum * 65536 > target
        else:
            holds.next = pass_sum * 65536 >= target

    @always_comb
    def outputs() -> None:
        read.next = reading
        address.next = position
        count.next = found

    @always(clk.posedge)
    def follow_word() -> None:
        position_1.next = position
        first_1.next = position == 0
        first_2.next = first_1
        first_3.next = first_2
        word_sum.next = lanes_sum
        word_count.next = lanes_count
        if valid_3 and first_3:
            pass_sum.next = word_sum
            pass_count.next = word_count
        elif valid_3:
            pass_sum.next = pass_sum + word_sum
            pass_count.next = pass_count + word_count
        mark_address.next = position_1
        mark_bits.next = marks
        position.next = 0
        if reading and not at_last:
            position.next = position + 1

    @always(clk.posedge)
    def follow_pass() -> None:
        valid_1.next = rst_n and reading
        last_1.next = rst_n and reading and at_last
        valid_2.next = rst_n and valid_1 and state != MARK
        last_2.next = rst_n and last_1 and state != MARK
        valid_3.next = rst_n and valid_2
        last_3.next = rst_n and last_2
        decide.next = rst_n and last_3
        mark_valid.next = rst_n and valid_1 and state == MARK
        done.next = rst_n and state == END

    @always(clk.posedge)
    def control() -> None:
        if reading and at_last:
            reading.next = 0
        if state == IDLE:
            if start:
                state.next = BISECT
                if whole:
                    state.next = MARK
                reading.next = 1
        elif state == BISECT:
            if decide:
                if mask[0]:
                    state.next = ABOVE
                reading.next = 1
        elif state == ABOVE:
            if decide:
                if mode == BEST:
                    state.next = MARK
                    reading.next = 1
                else:
                    state.next = TIES
        elif state == TIES:
            if mode == COVER:
                if reached:
                    state.next = END
            elif not fits:
                state.next = MARK
                if mode == PAIRS:
                    reading.next = 1
        elif state == MARK:
            if last_1:
                state.next = END
        else:
            state.next = IDLE
        if not rst_n:
            state.next = IDLE
            reading.next = 0

    @always(clk.posedge)
    def decide_bits() -> None:
        if state == IDLE:
            ties.next = 0
            if start:
                target.next = gamma * total
                threshold.next = 0
                mask.next = highest
        elif state == BISECT:
            if decide:
                if holds:
                    threshold.next = candidate
                mask.next = mask >> 1
        elif state == ABOVE:
            if decide:
                gathered.next = pass_sum
                found.next = pass_count
                if mode == BEST:
                    ties.next = wanted - pass_count
        elif state == TIES:
            gathered.next = with_tie[SUM_BITS:]
            if mode == COVER and not reached:
                found.next = found + 1
            if mode == PAIRS and fits:
                ties.next = ties + 1
        elif state == MARK and valid_1:
            ties.next = ties_left

    return instances()
