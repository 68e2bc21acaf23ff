# SPDX-License-Identifier: Apache-2.0
"""Host logic of the prefill accelerator on a card that is the bit-exact model."""

import asyncio
import dataclasses
import json
import threading

import numpy as np
import pytest
from prefill_board import CYCLES_PER_RUN, PrefillBoard

from fastdelta.errors import (
    AcceleratorClosedError,
    Aftermath,
    AxiError,
    BankFullError,
    BoardError,
    CardResetError,
    DtypeError,
    InputError,
    KernelStatusError,
    KernelTimeoutError,
    MemoryFaultError,
    NonFiniteError,
    OverlayError,
    PreparedLostError,
    RangeError,
    ShapeError,
)
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.quantise import dequantise_attention, quantise_prompt
from fastdelta.prefill.results import (
    RESULT_BLOCK_BYTES,
    PrefillCounters,
    PrefillCycles,
    ResultBlock,
)
from fastdelta.prefill.runs import OUTPUT_OFFSET
from fastdelta.reference.attention import block_sparse_attention, dense_causal_attention
from fastdelta.reference.index_model import IndexParameters, generate_index
from fastdelta.reference.prefill_model import selected_attention
from fastdelta.reference.sparse_index import IndexSet, Pattern, SelectionParameters
from fastdelta.registers.prefill import Mode, Register, Status
from fastdelta.shapes import PrefillShape

SHAPE = PrefillShape(
    head_dim=16,
    strips=1,
    row_arrays=2,
    lut_arrays=1,
    array_rows=4,
    array_columns=8,
    slots=8,
    max_blocks=16,
    max_group=4,
    bus_width=64,
)
BLOCK = SHAPE.block
RULE = {"gamma": 0.7, "tau": 0.3, "min_budget": 8}


@pytest.fixture
def board():
    return PrefillBoard(SHAPE)


@pytest.fixture
def engine(board):
    with PrefillAccelerator(board) as accelerator:
        yield accelerator


def prompt(tokens=61, heads=4, kv_heads=2, head_dim=16, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, tokens, head_dim)) * 2
    k, v = rng.standard_normal((2, kv_heads, tokens, head_dim))
    k += np.linspace(2, 0, tokens)[:, np.newaxis]  # attention that differs between blocks
    return [x.astype(np.float32) for x in (q, k, v)]


def model(q, k, v, index_set):
    """Output of the bit-exact model, float32."""
    quantised = quantise_prompt(q, k, v)
    outputs, _ = selected_attention(quantised.operands, index_set, BLOCK)
    return dequantise_attention(outputs, quantised.v_scale)


def chosen(q, k, v, gamma, tau, min_budget, max_budget=None):
    rule = SelectionParameters(gamma, tau, min_budget, max_budget, BLOCK)
    parameters = IndexParameters.from_selection(rule, q.shape[1])
    return generate_index(quantise_prompt(q, k, v).operands, parameters)


def free_idle_buffers(engine):
    """So that the next call meets the banks as they are now."""
    engine._queue.make_room()


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


# Results


@pytest.mark.parametrize("tokens", [1, 7, 8, 61, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 2), (4, 1), (3, 3)])
def test_output_and_blocks_equal_the_model(engine, tokens, heads, kv_heads):
    inputs = prompt(tokens, heads, kv_heads)
    result = engine.prefill(*inputs, **RULE)
    index = chosen(*inputs, **RULE)
    assert result.index_set == index.index_set
    assert result.patterns == tuple(head.pattern for head in index.heads)
    nats = [head.divergence * 2.0**-49 for head in index.heads]
    np.testing.assert_allclose(result.divergences, nats, rtol=0, atol=2.0**-31)
    assert result.output.dtype == np.float32
    np.testing.assert_array_equal(result.output, model(*inputs, index.index_set))


def test_rule_chooses_less_than_everything_and_both_patterns_occur(engine):
    """The comparisons above are about something."""
    inputs = prompt(128)
    assert engine.prefill(*inputs, **RULE).density < 0.8
    patterns = {p for tau in (0.01, 0.9) for p in engine.prefill(*inputs, tau=tau).patterns}
    assert patterns == {Pattern.VERTICAL_SLASH, Pattern.QUERY_AWARE}


def test_sparse_output_follows_fp64_over_the_same_blocks(engine):
    inputs = prompt(100)
    result = engine.prefill(*inputs, **RULE)
    expected = block_sparse_attention(*inputs, result.index_set, BLOCK).output
    assert relative_error(result.output, expected) < 0.02


@pytest.mark.parametrize("tokens", [5, 64, 100])
def test_gamma_1_equals_dense_to_the_bit(engine, board, tokens):
    inputs = prompt(tokens)
    dense = engine.prefill(*inputs, indices="dense")
    assert board.last["mode"] == Mode.DENSE
    assert set(dense.patterns) == {Pattern.DENSE}
    assert np.isnan(dense.divergences).all()
    assert dense.density == 1
    np.testing.assert_array_equal(engine.prefill(*inputs, gamma=1, tau=0).output, dense.output)
    assert relative_error(dense.output, dense_causal_attention(*inputs)) < 0.02


def test_indices_of_the_caller(engine, board):
    inputs = prompt(61)
    mask = np.tril(np.random.default_rng(3).random((4, 8, 8)) < 0.4)
    mask[:, :, 0] = True
    given = IndexSet.from_mask(mask)
    result = engine.prefill(*inputs, indices=given)
    assert board.last["mode"] == Mode.LIST
    assert result.index_set is given
    assert result.patterns == (None,) * 4
    np.testing.assert_array_equal(result.output, model(*inputs, given))
    assert result.counters.jobs_done == len(given.columns)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_window_and_cache_change_no_bit(engine, board, window):
    inputs = prompt(100)
    expected = engine.prefill(*inputs, **RULE)
    assert board.last["window"] == 4  # 8 slots, 2 heads a group
    result = engine.prefill(*inputs, **RULE, window=window, cache=False)
    assert board.last["window"] == window
    np.testing.assert_array_equal(result.output, expected.output)
    assert result.index_set == expected.index_set
    assert result.cache_hit_rate == 0 < expected.cache_hit_rate < 1
    assert result.memory_bytes["k"] > expected.memory_bytes["k"]


def test_budgets_bound_the_blocks(engine):
    inputs = prompt(128)
    rule = {"gamma": 0.9, "tau": 0.0, "min_budget": 0, "max_budget": 16}
    result = engine.prefill(*inputs, **rule)
    assert result.index_set == chosen(*inputs, **rule).index_set
    assert result.density < engine.prefill(*inputs, gamma=0.9, tau=0.0, min_budget=64).density


def test_default_rule_is_the_papers(engine):
    inputs = prompt(61)
    result = engine.prefill(*inputs)
    assert result.index_set == chosen(*inputs, 0.9, 0.1, 1024).index_set
    assert result.density == 1, "a minimum budget of 1,024 tokens covers this prompt"


def test_inputs_may_be_any_float_dtype_and_strided(engine):
    inputs = prompt(30)
    expected = engine.prefill(*inputs).output
    for dtype in (np.float64, np.longdouble):
        found = engine.prefill(*(x.astype(dtype) for x in inputs)).output
        np.testing.assert_array_equal(found, expected)
    strided = [np.asfortranarray(x) for x in inputs]
    np.testing.assert_array_equal(engine.prefill(*strided).output, expected)
    half = [x.astype(np.float16) for x in inputs]
    assert relative_error(engine.prefill(*half).output, expected) < 0.02


def test_result_carries_its_evidence(engine):
    inputs = prompt(61)
    result = engine.prefill(*inputs, **RULE)
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert record["simulated"] is True
    assert record["board"] == "model"
    assert record["versions"]["kernel"] == "2.0"
    assert record["config"]["slots"] == 8
    assert record["tokens"] == 61
    assert record["heads"] == 4
    assert record["kv_heads"] == 2
    jobs = len(result.index_set.columns)
    job_cycles = SHAPE.macs_per_job // SHAPE.macs_per_cycle
    assert record["cycles"]["attention"] == jobs * job_cycles + CYCLES_PER_RUN
    assert 0 < record["cycles"]["index"] < record["cycles"]["total"]
    expected = jobs * job_cycles / (jobs * job_cycles + CYCLES_PER_RUN)
    assert record["mpu_utilisation"] == pytest.approx(expected)
    assert record["memory_bytes"]["o"] == 4 * SHAPE.o_head_bytes(61)
    assert set(record["seconds"]) == {"prepare", "copy", "launch"}
    assert all(value >= 0 for value in record["seconds"].values())
    with pytest.raises(ValueError, match="name the clock"):
        result.milliseconds()
    assert result.milliseconds(300) == result.cycles.total / 300_000


def test_unmasked_share_counts_pairs_of_tokens(engine):
    for tokens in (1, 8, 13, 64):
        result = engine.prefill(*prompt(tokens, 1, 1), indices="dense")
        whole = len(result.index_set.columns) * BLOCK**2
        assert result.unmasked_share == pytest.approx(tokens * (tokens + 1) / 2 / whole)


def test_buffers_are_reused(engine, board):
    engine.prefill(*prompt(61))
    addresses = next(board.addresses)
    for tokens in (61, 5, 30):
        engine.prefill(*prompt(tokens))
    assert next(board.addresses) == addresses + 1, "nothing was allocated in between"


# Prepared keys and values


def test_prepared_keys_and_values_serve_several_calls(engine, board):
    q, k, v = prompt(61)
    expected = engine.prefill(q, k, v, **RULE)
    with engine.prepare(k, v) as resident:
        assert resident.resident
        transfers = board.transfers
        result = engine.prefill(q, resident=resident, **RULE)
        assert board.transfers - transfers < 10
        np.testing.assert_array_equal(result.output, expected.output)
        assert result.index_set == expected.index_set
        other = engine.prefill(-q, resident=resident, **RULE)
        np.testing.assert_array_equal(other.output, engine.prefill(-q, k, v, **RULE).output)
    assert not resident.resident
    with pytest.raises(AcceleratorClosedError, match="prepare anew"):
        engine.prefill(q, resident=resident)
    resident.close()


def test_prepared_keys_and_values_may_be_changed_by_the_caller_afterwards(engine):
    q, k, v = prompt(20)
    expected = engine.prefill(q, k, v).output
    resident = engine.prepare(k, v)
    k[:] = v[:] = np.nan
    np.testing.assert_array_equal(engine.prefill(q, resident=resident).output, expected)


def test_closing_the_engine_frees_what_was_prepared(board):
    engine = PrefillAccelerator(board)
    q, k, v = prompt(20)
    resident = engine.prepare(k, v)
    engine.prefill(q, resident=resident)
    engine.close()
    engine.close()
    assert board.closed
    assert not board.buffers
    resident.close()
    for use in (lambda: engine.prefill(q, k, v), lambda: engine.prepare(k, v)):
        with pytest.raises(AcceleratorClosedError):
            use()


def test_prepared_of_another_engine_is_refused(engine):
    q, k, v = prompt(20)
    with PrefillAccelerator(PrefillBoard(SHAPE)) as other, pytest.raises(InputError, match="anoth"):
        engine.prefill(q, resident=other.prepare(k, v))


def test_prepared_of_another_prompt_is_refused(engine):
    _, k, v = prompt(20)
    with engine.prepare(k, v) as resident, pytest.raises(ShapeError, match="20 tokens but q has 9"):
        engine.prefill(prompt(9)[0], resident=resident)


# Jobs


def test_submitted_jobs_end_in_order_and_keep_their_results(engine):
    inputs = [prompt(30 + 10 * seed, seed=seed) for seed in range(5)]
    jobs = [engine.submit(*x, **RULE) for x in inputs]
    results = [job.wait() for job in reversed(jobs)][::-1]
    assert jobs[0].wait() is jobs[0].wait()
    for x, result in zip(inputs, results, strict=True):
        expected = engine.prefill(*x, **RULE)
        np.testing.assert_array_equal(result.output, expected.output)
        assert result.index_set == expected.index_set
        assert result.cycles == expected.cycles
        assert result.patterns == expected.patterns


def test_two_runs_are_in_flight_at_most_and_the_next_is_copied_meanwhile(engine, board):
    inputs = [prompt(20, seed=seed) for seed in range(3)]
    before = board.transfers
    first = engine.submit(*inputs[0])
    engine.submit(*inputs[1])
    assert (board.runs, len(board.queue)) == (0, 2)
    assert board.transfers - before >= 6, "inputs of both runs are on the card"
    third = engine.submit(*inputs[2])
    assert (board.runs, len(board.queue)) == (1, 2)
    assert first.done
    third.wait()
    assert board.runs == 3


def test_inputs_may_change_after_submit(engine):
    inputs = prompt(20)
    expected = engine.prefill(*inputs, **RULE).output
    job = engine.submit(*inputs, **RULE)
    for x in inputs:
        x[:] = np.nan
    np.testing.assert_array_equal(job.wait().output, expected)


def test_await_and_gather(engine):
    inputs = [prompt(30, seed=seed) for seed in range(3)]

    async def one(x):
        return await engine.submit(*x, **RULE)

    async def everything():
        return await asyncio.gather(*map(one, inputs))

    for x, result in zip(inputs, asyncio.run(everything()), strict=True):
        np.testing.assert_array_equal(result.output, engine.prefill(*x, **RULE).output)


def test_awaited_job_raises_its_error(engine, board):
    async def read():
        board.fail_next = Status.READ_ERROR
        return await engine.submit(*prompt(20))

    with pytest.raises(AxiError):
        asyncio.run(read())


def test_wait_with_a_time_out_of_its_own(board):
    with PrefillAccelerator(board) as engine:
        q, k, v = prompt(20)
        expected = engine.prefill(q, k, v).output
        board.stuck = True
        jobs = [engine.submit(q, k, v) for _ in range(2)]
        assert not jobs[0].done
        with pytest.raises(CardResetError, match="prefill of 20 tokens for 2 x 2 heads before"):
            jobs[1].wait(timeout=0.01)
        assert jobs[0].done
        with pytest.raises(KernelTimeoutError, match=r"within 0\.01 s"):
            jobs[0].wait()
        np.testing.assert_array_equal(engine.prefill(q, k, v).output, expected)


def test_prepared_keys_are_not_used_after_a_reset_during_the_submit(board):
    with PrefillAccelerator(board, timeout=0.02) as engine:
        q, k, v = prompt(20)
        resident = engine.prepare(k, v)
        board.stuck = True
        jobs = [engine.submit(q, resident=resident) for _ in range(2)]
        with pytest.raises(PreparedLostError):
            engine.submit(q, resident=resident)  # waits for a buffer set, and sees the reset
        assert all(job.done for job in jobs)
        assert board.runs == 0


def test_closing_what_was_prepared_waits_for_its_runs(engine):
    q, k, v = prompt(20)
    expected = engine.prefill(q, k, v).output
    resident = engine.prepare(k, v)
    job = engine.submit(q, resident=resident)
    resident.close()
    assert job.done
    np.testing.assert_array_equal(job.wait().output, expected)


def test_short_memory_means_one_run_after_the_other(engine, board):
    """Two runs that do not fit a bank together are not in flight together."""
    inputs = prompt(61, 4, 4)
    expected = engine.prefill(*inputs, **RULE)
    free_idle_buffers(engine)
    board.banks = {"k": 4 * SHAPE.k_head_bytes(61)}
    jobs = [engine.submit(*inputs, **RULE) for _ in range(2)]
    assert len(board.queue) == 1
    for job in jobs:
        result = job.wait()
        assert result.invocations == 1
        np.testing.assert_array_equal(result.output, expected.output)
    with engine.prepare(*inputs[1:]):  # takes the room that idle buffers have
        pass


def test_failure_in_the_middle_of_a_split_call(engine, board):
    inputs = prompt(61, 6, 6)
    board.banks = {"q": SHAPE.q_head_bytes(61)}
    execute = board.execute

    def fail_the_third(*arguments):
        if board.runs == 2:
            board.fail_next = Status.READ_ERROR
        execute(*arguments)

    board.execute = fail_the_third
    with pytest.raises(AxiError):
        engine.prefill(*inputs)
    assert board.runs == 3
    board.execute = execute
    assert engine.prefill(*inputs).invocations == 6


# Banks


@pytest.mark.parametrize("argument", ["q", "k", "o", "jobs"])
def test_tensors_larger_than_a_bank_are_split_by_kv_heads(engine, board, argument):
    inputs = prompt(61, 6, 6)
    expected = engine.prefill(*inputs, **RULE)
    free_idle_buffers(engine)
    sizes = {
        "q": SHAPE.q_head_bytes(61),
        "k": SHAPE.k_head_bytes(61),
        "o": SHAPE.o_head_bytes(61),
        "jobs": board.last["stride"],
    }
    room = OUTPUT_OFFSET if argument == "o" else 0  # for the result block
    board.banks = {argument: room + 3 * sizes[argument]}
    result = engine.prefill(*inputs, **RULE)
    assert result.invocations == 2
    np.testing.assert_array_equal(result.output, expected.output)
    assert result.index_set == expected.index_set
    assert result.patterns == expected.patterns
    assert result.cycles.attention == expected.cycles.attention + CYCLES_PER_RUN
    assert result.counters.jobs_done == expected.counters.jobs_done
    free_idle_buffers(engine)
    board.banks = {argument: room + sizes[argument]}
    given = engine.prefill(*inputs, indices=expected.index_set)
    assert given.invocations == 6
    np.testing.assert_array_equal(given.output, expected.output)


def test_a_kv_head_that_does_not_fit_is_refused_in_words(engine, board):
    board.banks = {"q": SHAPE.q_head_bytes(61) - 1}
    with pytest.raises(BankFullError, match="no room") as caught:
        engine.prefill(*prompt(61, 6, 6))
    assert "one KV head of this prompt" in caught.value.__notes__[0]
    engine.prefill(*prompt(5, 6, 6))


@pytest.mark.parametrize("tokens", [61, 64])
def test_queries_are_split_also_beside_prepared_keys(engine, board, tokens):
    q, k, v = prompt(tokens, 4, 4)
    expected = engine.prefill(q, k, v, **RULE)
    free_idle_buffers(engine)
    board.banks = {"q": 3 * SHAPE.q_head_bytes(tokens)}
    with engine.prepare(k, v) as resident:
        result = engine.prefill(q, resident=resident, **RULE)
        assert result.invocations > 1
        np.testing.assert_array_equal(result.output, expected.output)


def test_prepared_keys_that_do_not_fit_are_refused_and_idle_buffers_make_room(engine, board):
    q, k, v = prompt(61)
    size = 2 * SHAPE.k_head_bytes(61)
    board.banks = {"k": size}
    engine.prefill(q, k, v)
    with engine.prepare(k, v), pytest.raises(BankFullError) as caught:
        engine.prepare(k, v)
    assert "Pass k and v to prefill" in caught.value.__notes__[0]
    with engine.prepare(k, v):
        pass


# Refusals


def spoiled(array, place, value):
    array[place] = value


WRONG_INPUTS = {
    "token count": (ShapeError, lambda x: x.update(k=x["k"][:, :-1], v=x["v"][:, :-1])),
    "v unlike k": (ShapeError, lambda x: x.update(v=x["v"][:, :-1])),
    "head dimension": (ShapeError, lambda x: x.update(q=x["q"][..., :-1])),
    "head dimension of k": (ShapeError, lambda x: x.update(k=x["k"][..., :-1])),
    "heads": (ShapeError, lambda x: x.update(q=x["q"][:3])),
    "two dimensions": (ShapeError, lambda x: x.update(q=x["q"][0])),
    "k of two dimensions": (ShapeError, lambda x: x.update(k=x["k"][0])),
    "no tokens": (ShapeError, lambda x: x.update({n: a[:, :0] for n, a in x.items()})),
    "no KV heads": (ShapeError, lambda x: x.update(k=x["k"][:0], v=x["v"][:0])),
    "scalar": (ShapeError, lambda x: x.update(q=np.float32(1))),
    "group": (ShapeError, lambda x: x.update(q=np.ones((10, 20, 16)))),
    "integers": (DtypeError, lambda x: x.update(q=np.ones(x["q"].shape, int))),
    "complex": (DtypeError, lambda x: x.update(v=x["v"].astype(complex))),
    "NaN": (NonFiniteError, lambda x: spoiled(x["q"], (1, 0, 3), np.nan)),
    "infinity": (NonFiniteError, lambda x: spoiled(x["v"], (0, 1, 2), -np.inf)),
    "too large": (RangeError, lambda x: x.update(k=x["k"].astype(np.float64) * 2.0**130)),
    "scores too large": (RangeError, lambda x: x.update(q=x["q"] * 2.0**60)),
    "too many tokens": (RangeError, lambda x: x.update(zip("qkv", prompt(129), strict=True))),
    "missing v": (InputError, lambda x: x.pop("v")),
    "missing k and v": (InputError, lambda x: (x.pop("k"), x.pop("v"))),
    "gamma": (RangeError, lambda x: x.update(gamma=0)),
    "tau": (RangeError, lambda x: x.update(tau=1.5)),
    "min_budget": (RangeError, lambda x: x.update(min_budget=-1)),
    "max_budget": (RangeError, lambda x: x.update(min_budget=9, max_budget=8)),
    "window": (RangeError, lambda x: x.update(window=3)),
    "large window": (RangeError, lambda x: x.update(window=8)),
    "hot threshold": (RangeError, lambda x: x.update(hot_threshold=1 << 16)),
    "indices word": (InputError, lambda x: x.update(indices="sparse")),
    "indices array": (InputError, lambda x: x.update(indices=np.ones((4, 3, 3), np.bool_))),
    "indices of other heads": (ShapeError, lambda x: x.update(indices=IndexSet.dense(3, 3))),
    "indices of other blocks": (ShapeError, lambda x: x.update(indices=IndexSet.dense(4, 4))),
    "indices with an empty row": (
        RangeError,
        lambda x: x.update(indices=IndexSet.from_mask(np.zeros((4, 3, 3), np.bool_))),
    ),
}


@pytest.mark.parametrize("fault", WRONG_INPUTS)
def test_wrong_input_is_refused_before_the_card(engine, board, fault):
    kind, spoil = WRONG_INPUTS[fault]
    inputs = dict(zip("qkv", prompt(20), strict=True))
    spoil(inputs)
    with pytest.raises(kind) as caught:
        engine.prefill(**inputs)
    assert type(caught.value) is kind
    assert board.runs == board.transfers == 0


def test_messages_say_what_was_given_and_what_is_allowed(engine):
    q, k, v = prompt(20)
    with pytest.raises(ShapeError, match=r"v has shape \(2, 19, 16\); expected \(2, 20, 16\)"):
        engine.prefill(q, k, v[:, 1:])
    with pytest.raises(ShapeError, match=r"5 query heads share a KV head; .* at most 4"):
        engine.prefill(np.ones((10, 20, 16)), k, v)
    with pytest.raises(RangeError, match=r"129 tokens; .* at most 128 \(16 blocks of 8\)"):
        engine.prefill(*prompt(129))
    with pytest.raises(InputError, match="k and v, or resident"):
        engine.prefill(q, k)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"watchdog_cycles": -1}, {"watchdog_cycles": 1 << 32}]
)
def test_impossible_options_are_refused(board, options):
    with pytest.raises(RangeError):
        PrefillAccelerator(board, **options)


def test_another_kernel_than_expected_is_refused(board):
    with pytest.raises(OverlayError, match=r"head_dim=16.*not as.*head_dim=32"):
        PrefillAccelerator(board, PrefillShape(**{**vars(SHAPE), "head_dim": 32}))
    board.registers[Register.SHAPE0] = 16 | 16 << 16
    with pytest.raises(OverlayError, match="blocks of 16 tokens"):
        PrefillAccelerator(board)
    board.registers[Register.SHAPE1] = 0
    with pytest.raises(OverlayError, match="strips=0"):
        PrefillAccelerator(board)
    board.registers[Register.VERSION] = 0x00030001
    with pytest.raises(OverlayError, match=r"version 3\.1.*needs 2\.x"):
        PrefillAccelerator(board)
    assert not board.buffers


# Failures


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.READ_ERROR, AxiError),
        (Status.WRITE_ERROR, AxiError),
        (Status.TIMEOUT, KernelTimeoutError),
        (Status.BAD_JOB, MemoryFaultError),
        (Status.MAP_OVERFLOW, KernelStatusError),
    ],
)
def test_a_failed_run_raises_and_leaves_what_was_prepared(engine, board, status, kind):
    q, k, v = prompt(20)
    expected = engine.prefill(q, k, v).output
    resident = engine.prepare(k, v)
    board.fail_next = status
    with pytest.raises(kind, match=status.name) as caught:
        engine.prefill(q, resident=resident)
    assert caught.value.aftermath is Aftermath.PREPARED_KEPT
    assert caught.value.context is None
    assert board.resets == 0
    np.testing.assert_array_equal(engine.prefill(q, resident=resident).output, expected)


PLACES = {"q": 11, "k": 12, "v": 13, "jobs": 14, "o": 15, "result": 16}


def spoil(board, argument, *, before=False, byte=33):
    """Let a byte of memory change in the next runs, before or after the kernel works."""
    execute = board.execute

    def changed(*arguments):
        place = board.memory(arguments[PLACES[argument]], 64)
        if before:
            place[byte] ^= 4
        execute(*arguments)
        if not before:
            place[byte] ^= 4

    board.execute = changed
    return execute


@pytest.mark.parametrize("argument", ["q", "k", "v", "jobs"])
def test_inputs_that_changed_before_the_kernel_read_them_are_noticed(engine, board, argument):
    q, k, v = prompt(20)
    indices = IndexSet.dense(4, 3)
    expected = engine.prefill(q, k, v, indices=indices)
    resident = engine.prepare(k, v)
    execute = spoil(board, argument, before=True)
    words = f"bank of {argument} what the host wrote for prefill of 20 tokens"
    if argument == "jobs":
        words = "BAD_JOB: a job list breaks the rules"
    with pytest.raises(MemoryFaultError, match=words) as caught:
        engine.prefill(q, k, v, indices=indices)
    assert caught.value.aftermath is Aftermath.PREPARED_KEPT
    if argument in "kv":
        with pytest.raises(MemoryFaultError, match=f"resident {argument}") as caught:
            engine.prefill(q, resident=resident)
        assert caught.value.aftermath is Aftermath.PREPARED_DAMAGED
        assert not resident.resident
        with pytest.raises(PreparedLostError, match="memory of the card has changed"):
            engine.prefill(q, resident=resident)
    board.execute = execute
    found = engine.prefill(q, k, v, indices=indices)
    np.testing.assert_array_equal(found.output, expected.output)
    if argument not in "kv":
        found = engine.prefill(q, resident=resident, indices=indices)
        np.testing.assert_array_equal(found.output, expected.output)
    resident.close()


@pytest.mark.parametrize(
    ("argument", "what"),
    [("o", "the output"), ("jobs", "the job lists"), ("result", "the result block")],
)
def test_results_that_changed_after_the_kernel_wrote_them_are_noticed(
    engine, board, argument, what
):
    q, k, v = prompt(20)
    expected = engine.prefill(q, k, v).output
    for byte in (1, 4, 33):
        execute = spoil(board, argument, byte=byte)
        with pytest.raises(MemoryFaultError, match=f"{what} of .* did not come back") as caught:
            engine.prefill(q, k, v)
        assert caught.value.aftermath is Aftermath.PREPARED_KEPT
        board.execute = execute
        np.testing.assert_array_equal(engine.prefill(q, k, v).output, expected)


@pytest.mark.parametrize("name", ["k", "v"])
def test_a_fault_on_the_way_of_what_is_resident_leaves_it(engine, board, name):
    q, k, v = prompt(20)
    expected = engine.prefill(q, k, v).output
    with engine.prepare(k, v) as resident:
        execute = board.execute

        def flip_for_the_kernel(*arguments):
            place = board.memory(arguments[PLACES[name]], 64)
            place[33] ^= 4
            execute(*arguments)
            place[33] ^= 4

        board.execute = flip_for_the_kernel
        with pytest.raises(MemoryFaultError, match=f"bank of {name} what") as caught:
            engine.prefill(q, resident=resident)
        assert caught.value.aftermath is Aftermath.PREPARED_KEPT
        board.execute = execute
        np.testing.assert_array_equal(engine.prefill(q, resident=resident).output, expected)


def test_result_block_must_state_the_heads_of_the_run(engine, board):
    execute = board.execute

    def change_and_execute(*arguments):
        execute(*arguments)
        block = ResultBlock.parse(board.memory(arguments[16], RESULT_BLOCK_BYTES))
        counters = dataclasses.replace(block.counters, kv_heads_done=6)
        block = dataclasses.replace(block, counters=counters)
        board.memory(arguments[16], RESULT_BLOCK_BYTES)[:] = block.to_bytes()

    board.execute = change_and_execute
    with pytest.raises(KernelStatusError, match="result block that states 6 KV heads"):
        engine.prefill(*prompt(20))


def test_result_block_of_an_earlier_run_does_not_pass_for_a_new_one(engine, board):
    engine.prefill(*prompt(20))
    board.silent_next = True
    with pytest.raises(KernelStatusError, match="without writing a result block"):
        engine.prefill(*prompt(20))


def test_a_run_that_does_not_end_resets_the_card_and_loses_what_was_prepared(board):
    with PrefillAccelerator(board, timeout=0.05) as engine:
        q, k, v = prompt(20)
        expected = engine.prefill(q, k, v).output
        resident = engine.prepare(k, v)
        board.stuck = True
        with pytest.raises(KernelTimeoutError, match=r"did not end within 0\.05 s.*STATUS=") as c:
            engine.prefill(q, k, v)
        assert c.value.aftermath is Aftermath.PREPARED_LOST
        assert board.resets == 1
        assert not resident.resident
        with pytest.raises(PreparedLostError, match="prepare them again"):
            engine.prefill(q, resident=resident)
        resident.close()
        np.testing.assert_array_equal(engine.prefill(q, k, v).output, expected)


def test_run_that_the_scheduler_gives_up_resets_the_card(engine, board):
    board.scheduler_failure = "aborted"
    with pytest.raises(KernelStatusError, match="given up by the card's scheduler: aborted"):
        engine.prefill(*prompt(20))
    assert board.resets == 1
    board.scheduler_failure = None
    engine.prefill(*prompt(20))


def test_card_that_does_not_come_back_is_named(board):
    engine = PrefillAccelerator(board, timeout=0.05)
    board.stuck = board.reset_fails = True
    with pytest.raises(KernelTimeoutError):
        engine.prefill(*prompt(20))
    with pytest.raises(BoardError, match="did not come back"):
        engine.prefill(*prompt(20))
    engine.close()


@pytest.mark.parametrize("fault", ["refuse_start", "fail_copies_to"])
def test_card_that_refuses_is_a_board_error(engine, board, fault):
    setattr(board, fault, True)
    with pytest.raises(BoardError, match="refused"):
        engine.prefill(*prompt(20))
    setattr(board, fault, False)
    engine.prefill(*prompt(20))


def test_results_that_cannot_be_copied_back_are_a_failed_run(engine, board):
    board.fail_copies_back = True
    with pytest.raises(KernelStatusError, match="could not copy the results"):
        engine.prefill(*prompt(20))


def test_job_lists_that_the_kernel_wrote_wrongly_are_noticed(engine, board):
    board.spoil_lists = lambda words: words.__setitem__(32, words[32] ^ 1 << 28)
    with pytest.raises(KernelStatusError, match=r"breaks the format: .*last flag"):
        engine.prefill(*prompt(20))
    board.spoil_lists = lambda words: words.__setitem__(0, 1 << 20)
    with pytest.raises(MemoryFaultError, match="the job lists"):  # a kernel would refuse this one
        engine.prefill(*prompt(20))


def test_watchdog_grows_with_the_prompt_and_can_be_set(engine, board):
    seen = []
    for tokens in (8, 128):
        engine.prefill(*prompt(tokens))
        seen.append(board.last["watchdog"])
    assert 1_000_000 < seen[0] < seen[1] < 1 << 32
    with PrefillAccelerator(PrefillBoard(SHAPE), watchdog_cycles=777) as other:
        other.prefill(*prompt(8))
        assert other.board.last["watchdog"] == 777


def test_threads_may_share_the_accelerator(engine):
    inputs = [prompt(40, seed=seed) for seed in range(3)]
    expected = [engine.prefill(*x).output for x in inputs]
    found = [None] * 3

    def run(index):
        found[index] = engine.prefill(*inputs[index]).output

    threads = [threading.Thread(target=run, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(3):
        np.testing.assert_array_equal(found[index], expected[index])


def test_result_block_comes_back_with_wide_counters():
    block = ResultBlock(
        magic=1,
        status=2,
        version=3,
        cycles=PrefillCycles(index=5 << 32 | 6, attention=7, total=1 << 40),
        counters=PrefillCounters(jobs_done=9, k_beats=3 << 33, kv_heads_done=4),
        runs=11,
    )
    packed = block.to_bytes()
    assert packed.size == RESULT_BLOCK_BYTES
    assert ResultBlock.parse(packed) == block
