# SPDX-License-Identifier: Apache-2.0
"""MyHDL twins of leaf cells: right by their own simulation, and each proved equal to its cell.

The proofs are those of ``fastdelta_verif.formal.proofs`` that name a twin, the seeded differences
those of ``faults`` that name one; ``test_proofs.py`` runs both.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import myhdl
import numpy as np
import pytest

from fastdelta.reference.fixed_point import IntArray, rshift_round, saturate
from fastdelta.reference.functions import Function, evaluate
from fastdelta.reference.index_model import best_blocks, coverage_count, covered_entries
from fastdelta_verif.formal.faults import FAULTS
from fastdelta_verif.formal.proofs import PROOFS
from fastdelta_verif.twins.arithmetic import (
    bit,
    digit_product,
    exp2_negative,
    rounded_shift,
    saturated_sum,
    signed,
    unsigned,
)
from fastdelta_verif.twins.convert import TWINS, convert, selector_ports
from fastdelta_verif.twins.handshake import skid_buffer
from fastdelta_verif.twins.selector import BEST, COVER, PAIRS, selector

WHOLE = 1 << 16  # gamma that takes everything


def simulate(twin: Callable[..., Any], ports: dict[str, Any], steps: Iterator[None]) -> None:
    """Simulate a twin; each ``yield`` of the steps is a clock edge."""

    @myhdl.block
    def bench() -> Any:
        device = twin(**ports)

        @myhdl.instance
        def stimulus() -> Iterator[Any]:
            for _ in steps:
                yield myhdl.delay(1)
                ports["clk"].next = True
                yield myhdl.delay(1)
                ports["clk"].next = False

        return device, stimulus

    top = bench()
    top.run_sim(quiet=1)
    top.quit_sim()


def outputs_of(
    twin: Callable[..., Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    values: IntArray,
    latency: int = 1,
) -> IntArray:
    """Return the outputs [n, outputs] of a pipelined twin for input values [n, inputs]."""
    found = []

    def steps() -> Iterator[None]:
        for row in [*values.tolist(), *values[:1].tolist() * (latency - 1)]:
            for signal, value in zip(inputs.values(), row, strict=True):
                signal.next = value
            yield
            found.append([int(signal) for signal in outputs.values()])

    simulate(twin, {"clk": bit(), **inputs, **outputs}, steps())
    return np.array(found[latency - 1 :], np.int64)


def corners(bits: int) -> list[int]:
    """Return signed numbers of some bits at and beside the limits, and around 0."""
    most = (1 << (bits - 1)) - 1
    return [-most - 1, -most, -most // 2, -2, -1, 0, 1, 2, most // 2, most - 1, most]


def drawn(rng: np.random.Generator, bits: int, count: int) -> IntArray:
    """Return signed numbers of some bits, of all magnitudes, and the corners."""
    values = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), size=count)
    scaled: IntArray = values >> rng.integers(0, bits, size=count)
    return np.concatenate([scaled, np.array(corners(bits), np.int64)])


def test_digit_product_of_all_bytes() -> None:
    a, b = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij")
    pairs = np.stack([a.ravel(), b.ravel()], axis=1)
    inputs = {"a": signed(8), "b": signed(8)}
    found = outputs_of(digit_product, inputs, {"product": signed(16)}, pairs)
    assert np.array_equal(found[:, 0], pairs[:, 0] * pairs[:, 1])


def test_rounded_shift_by_every_number_of_bits() -> None:
    values = drawn(np.random.default_rng(1), 27, 100)
    pairs = np.array([(value, shift) for shift in range(32) for value in values.tolist()])
    inputs = {"value": signed(27), "shift": unsigned(5)}
    found = outputs_of(rounded_shift, inputs, {"result": signed(27)}, pairs)
    expected = np.where(pairs[:, 1] == 31, 0, rshift_round(pairs[:, 0], pairs[:, 1]))
    assert np.array_equal(found[:, 0], expected)


def test_saturated_sum() -> None:
    rng = np.random.default_rng(2)
    pairs = np.stack([rng.permutation(drawn(rng, bits, 6000)) for bits in (27, 45)], axis=1)
    limits = [(kept, outer) for kept in corners(27) for outer in corners(45)]
    halves = [(kept, (n << 17) + 65535 + d) for kept in (0, -1) for n in (-1, 0) for d in (0, 1, 2)]
    pairs = np.concatenate([pairs, np.array(limits + halves)])
    inputs = {"kept": signed(27), "outer": signed(45)}
    found = outputs_of(saturated_sum, inputs, {"result": signed(27), "clamped": bit()}, pairs)
    expected, clamped = saturate(pairs[:, 0] + rshift_round(pairs[:, 1], 17), 27)
    assert np.array_equal(found[:, 0], expected)
    assert np.array_equal(found[:, 1], clamped)
    assert set(clamped.tolist()) == {False, True}


def test_exp2_of_every_segment() -> None:
    offsets = [0, 1, (1 << 16) - 1, 1 << 16, (1 << 17) - 1]
    ends = [(segment << 17) + offset for segment in range(128) for offset in offsets]
    u = np.concatenate([ends, np.random.default_rng(3).integers(0, 1 << 24, size=3000)])
    inputs, outputs = {"u": unsigned(24)}, {"y": unsigned(25)}
    found = outputs_of(exp2_negative, inputs, outputs, u[:, np.newaxis], latency=4)
    assert np.array_equal(found[:, 0], evaluate(Function.EXP2_NEGATIVE, u))


@pytest.mark.parametrize("stalls", [0.0, 0.3, 0.8])
def test_skid_buffer_keeps_every_beat(stalls: float) -> None:
    rng = random.Random(stalls)
    inputs = {name: bit() for name in ("clk", "rst_n", "s_axis_tvalid", "m_axis_tready")}
    s_data, m_data = unsigned(8), unsigned(8)
    s_ready, m_valid = bit(), bit()
    outputs = {"s_axis_tready": s_ready, "m_axis_tvalid": m_valid, "m_axis_tdata": m_data}
    sent: deque[int] = deque()
    fullest = taken = 0

    def steps() -> Iterator[None]:
        nonlocal fullest, taken
        yield
        yield
        assert not s_ready
        assert not m_valid
        inputs["rst_n"].next = 1
        yield
        offered, data, waits = False, 0, False
        for _ in range(2000):
            assert bool(m_valid) == bool(sent)
            assert bool(s_ready) == (len(sent) < 2)
            assert not sent or int(m_data) == sent[0]
            if not waits:
                offered, data = rng.random() >= stalls, rng.getrandbits(8)
            wanted = rng.random() >= stalls
            inputs["s_axis_tvalid"].next, s_data.next = offered, data
            inputs["m_axis_tready"].next = wanted
            comes, goes = offered and bool(s_ready), wanted and bool(m_valid)
            waits = offered and not comes
            if goes:
                sent.popleft()
                taken += 1
            if comes:
                sent.append(data)
            fullest = max(fullest, len(sent))
            yield

    simulate(skid_buffer, {**inputs, "s_axis_tdata": s_data, **outputs}, steps())
    assert fullest == (2 if stalls else 1)
    assert taken > (1998 if not stalls else 200)


@pytest.mark.parametrize(
    ("value_bits", "lanes", "address_bits", "count_bits", "runs"),
    [(3, 2, 2, 4, 60), (25, 4, 3, 6, 25)],
    ids=["as_proved", "shares"],
)
def test_selector_counts_and_marks(
    value_bits: int, lanes: int, address_bits: int, count_bits: int, runs: int
) -> None:
    rng = random.Random(value_bits)
    p = selector_ports(value_bits, lanes, address_bits, count_bits)
    room = lanes << address_bits
    marked: list[list[int]] = []
    modes = set()

    def answers(entries: IntArray) -> Iterator[None]:
        """Serve a run's reads, one cycle late, until it is done; gather its marks."""
        chosen: list[int] = []
        p["start"].next = 1
        yield
        p["start"].next = 0
        while not p["done"]:
            if p["mark_valid"]:
                word, marks = int(p["mark_address"]), int(p["mark_bits"])
                chosen.extend(word * lanes + n for n in range(lanes) if marks >> n & 1)
            if p["read"]:
                first = int(p["address"]) * lanes
                values = entries[first : first + lanes].tolist()
                values += [rng.getrandbits(value_bits) for _ in range(lanes - len(values))]
                yield
                p["values"].next = sum(v << n * value_bits for n, v in enumerate(values))
            else:
                yield
        marked.append([n for n in chosen if n < len(entries)])

    def steps() -> Iterator[None]:
        yield
        p["rst_n"].next = 1
        yield
        for _ in range(runs):
            count = rng.randint(1, room - 1)
            few = [rng.getrandbits(value_bits) for _ in range(rng.randint(1, 3))]
            entries = np.array([rng.choice(few) for _ in range(count)])
            entries[rng.randrange(count)] |= 1
            mode = rng.choice((COVER, BEST, PAIRS))
            gamma = rng.choice([1, WHOLE // 2, WHOLE - 1, rng.randint(1, WHOLE - 1)])
            if mode == PAIRS and rng.random() < 0.2:
                gamma = WHOLE
            wanted = rng.randint(1, count)
            p["mode"].next, p["gamma"].next = mode, gamma
            p["wanted"].next, p["total"].next = wanted - 1, int(entries.sum())
            p["last_word"].next = (count - 1) // lanes
            p["last_lanes"].next = (1 << (count - 1) % lanes + 1) - 1
            yield from answers(entries)
            modes.add(mode)
            if mode == COVER:
                assert int(p["count"]) == coverage_count(entries, gamma)
            elif mode == BEST:
                assert marked[-1] == best_blocks(entries, wanted).tolist()
            else:
                assert marked[-1] == covered_entries(entries, gamma).tolist()
            yield

    simulate(selector, p, steps())
    assert len(marked) == runs
    assert modes == {COVER, BEST, PAIRS}


def test_every_twin_is_proved_and_a_difference_from_it_is_found() -> None:
    assert {twin for proof in PROOFS.values() for twin in proof.twins} == set(TWINS)
    differences = {fault.twin for fault in FAULTS.values() if fault.twin}
    assert differences == set(TWINS)
    for fault in FAULTS.values():
        assert not fault.twin or fault.twin in PROOFS[fault.proof].twins


@pytest.mark.parametrize("name", TWINS)
def test_conversion_gives_one_module_of_plain_verilog(name: str, tmp_path: Path) -> None:
    text = convert(name, tmp_path).read_text()
    assert text.count("\nendmodule") == 1
    assert f"module {name} (" in text
    assert "initial" not in text, "a register with a first value hides what reset leaves alone"


def test_unknown_twin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no_such_twin"):
        convert("no_such_twin", tmp_path)


def test_failed_conversion_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="skid_buffer_twin"):
        convert("skid_buffer_twin", tmp_path / "no_such_folder")
