# SPDX-License-Identifier: Apache-2.0
"""Twins of arithmetic: the product by digits, rounding with saturation, and 2^-u."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, instances, intbv

from fastdelta.reference.functions import Function, coefficients


def signed(bits: int) -> Any:
    """Return a signed signal of ``bits`` bits."""
    return Signal(intbv(0, min=-(1 << (bits - 1)), max=1 << (bits - 1)))


def unsigned(bits: int) -> Any:
    """Return an unsigned signal of ``bits`` bits."""
    return Signal(intbv(0)[bits:])


def bit() -> Any:
    """Return a signal of one bit."""
    return Signal(bool(0))


@block
def digit_product(clk: Any, a: Any, b: Any, product: Any) -> Any:
    """Multiply signed bytes: each digit of two bits of one, the uppermost signed, selects.

    Parameters
    ----------
    clk
        Clock.
    a, b
        Signed, 8 bits.
    product
        Signed, 16 bits; one cycle after the operands.
    """
    twice, thrice, minus_once, minus_twice = (signed(20) for _ in range(4))
    parts = [signed(20) for _ in range(4)]
    part_0, part_1, part_2, part_3 = parts

    @always_comb
    def multiples() -> None:
        twice.next = b * 2
        thrice.next = b * 3
        minus_once.next = -b
        minus_twice.next = b * -2

    @block
    def selection(digit: Any, for_2: Any, for_3: Any, part: Any) -> Any:
        @always_comb
        def select() -> None:
            if digit == 0:
                part.next = 0
            elif digit == 1:
                part.next = b
            elif digit == 2:
                part.next = for_2
            else:
                part.next = for_3

        return select

    select_0 = selection(a(2, 0), twice, thrice, part_0)
    select_1 = selection(a(4, 2), twice, thrice, part_1)
    select_2 = selection(a(6, 4), twice, thrice, part_2)
    select_3 = selection(a(8, 6), minus_twice, minus_once, part_3)

    @always(clk.posedge)
    def add() -> None:
        product.next = part_0 + part_1 * 4 + part_2 * 16 + part_3 * 64

    return multiples, select_0, select_1, select_2, select_3, add


@block
def rounded_shift(clk: Any, value: Any, shift: Any, result: Any) -> Any:
    """Shift a state element right by 0 to 30 bits and round half up; a shift of 31 leaves nothing.

    Parameters
    ----------
    clk
        Clock.
    value
        Signed, 27 bits.
    shift
        Unsigned, 5 bits.
    result
        Signed, 27 bits; one cycle after the operands.
    """
    floor, carry = signed(32), signed(3)

    @always_comb
    def divide() -> None:
        floor.next = value >> shift

    # The bit below the last one that is kept says whether to round up.
    @always_comb
    def look() -> None:
        carry.next = 0
        if shift != 0 and ((value >> (shift - 1)) & 1) != 0:
            carry.next = 1

    @always(clk.posedge)
    def add() -> None:
        if shift == 31:
            result.next = 0
        else:
            result.next = floor + carry

    return instances()


@block
def saturated_sum(clk: Any, kept: Any, outer: Any, result: Any, clamped: Any) -> Any:
    """Add a product, rounded half up to 2^17, to a state element, and hold the sum in 27 bits.

    Parameters
    ----------
    clk
        Clock.
    kept
        Signed, 27 bits.
    outer
        Signed, 45 bits.
    result
        Signed, 27 bits; one cycle after the operands.
    clamped
        Whether the sum did not fit; one cycle after the operands.
    """
    total = signed(30)

    @always_comb
    def add() -> None:
        total.next = kept + ((outer + 65536) >> 17)

    @always(clk.posedge)
    def limit() -> None:
        clamped.next = 0
        if total > 67108863:
            result.next = 67108863
            clamped.next = 1
        elif total < -67108864:
            result.next = -67108864
            clamped.next = 1
        else:
            result.next = total

    return instances()


@block
def exp2_table(clk: Any, u: Any, t: Any, c_0: Any, c_1: Any, c_2: Any) -> Any:
    """Stage 1 of 2^-u: the coefficients of the segment of u, and where in it u is.

    Parameters
    ----------
    clk
        Clock.
    u
        Unsigned, 24 fraction bits; its upper 7 bits are the segment.
    t
        Signed, 17 bits: the lower 17 bits of u, less 2^16.
    c_0, c_1, c_2
        Signed, 30, 24 and 18 bits.
    """
    table = coefficients(Function.EXP2_NEGATIVE)
    # Tables of MyHDL hold no negative numbers.
    table_0, table_1, table_2 = (
        tuple(int(c) & ((1 << bits) - 1) for c in table[:, n])
        for n, bits in enumerate((30, 24, 18))
    )
    segment = u(24, 17)
    entry_0, entry_1, entry_2 = unsigned(30), unsigned(24), unsigned(18)
    offset, from_middle = signed(20), signed(17)

    @always(clk.posedge)
    def look_up_0() -> None:
        entry_0.next = table_0[segment]

    @always(clk.posedge)
    def look_up_1() -> None:
        entry_1.next = table_1[segment]

    @always(clk.posedge)
    def look_up_2() -> None:
        entry_2.next = table_2[segment]

    @always_comb
    def find_offset() -> None:
        offset.next = u[17:]

    @always(clk.posedge)
    def subtract() -> None:
        from_middle.next = offset - 65536

    @always_comb
    def give_signs() -> None:
        t.next = from_middle
        c_0.next = entry_0.signed()
        c_1.next = entry_1.signed()
        c_2.next = entry_2.signed()

    return instances()


@block
def exp2_slope(clk: Any, t: Any, c_1: Any, c_2: Any, slope: Any) -> Any:
    """Stage 2 of 2^-u: the slope of the line through the point, c_1 + c_2 t / 2^18.

    Parameters
    ----------
    clk
        Clock.
    t, c_1, c_2
        Signed, 17, 24 and 18 bits.
    slope
        Signed, 24 bits.
    """
    curvature = signed(35)

    @always_comb
    def bend() -> None:
        curvature.next = c_2 * t

    @always(clk.posedge)
    def add() -> None:
        slope.next = c_1 + (curvature >> 18)

    return instances()


@block
def exp2_product(clk: Any, t: Any, slope: Any, product: Any) -> Any:
    """Stage 3 of 2^-u: how far the line leads from the middle, slope t.

    Parameters
    ----------
    clk
        Clock.
    t, slope
        Signed, 17 and 24 bits.
    product
        Signed, 41 bits.
    """

    @always(clk.posedge)
    def multiply() -> None:
        product.next = slope * t

    return instances()


@block
def exp2_sum(clk: Any, c_0: Any, product: Any, y: Any) -> Any:
    """Stage 4 of 2^-u: the sum, rounded to 24 fraction bits.

    Parameters
    ----------
    clk
        Clock.
    c_0, product
        Signed, 30 and 41 bits.
    y
        Unsigned, 25 bits.
    """
    total = signed(32)

    @always_comb
    def end() -> None:
        total.next = c_0 + (product >> 18) + 8

    @always(clk.posedge)
    def shorten() -> None:
        y.next = total[29:4]

    return instances()


@block
def exp2_negative(clk: Any, u: Any, y: Any) -> Any:
    """Evaluate 2^-u by one quadratic for each of 128 segments.

    Parameters
    ----------
    clk
        Clock.
    u
        Unsigned, 24 fraction bits.
    y
        Unsigned, 25 bits of which 24 are fraction bits; four cycles after ``u``.
    """
    t, t_later, c_1, c_2 = signed(17), signed(17), signed(24), signed(18)
    c_0, c_0_later, c_0_last = signed(30), signed(30), signed(30)
    slope, product = signed(24), signed(41)

    stage_1 = exp2_table(clk, u, t, c_0, c_1, c_2)
    stage_2 = exp2_slope(clk, t, c_1, c_2, slope)
    stage_3 = exp2_product(clk, t_later, slope, product)
    stage_4 = exp2_sum(clk, c_0_last, product, y)

    @always(clk.posedge)
    def delay() -> None:
        t_later.next = t
        c_0_later.next = c_0
        c_0_last.next = c_0_later

    return stage_1, stage_2, stage_3, stage_4, delay
