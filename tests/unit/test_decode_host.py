# SPDX-License-Identifier: Apache-2.0
"""Host logic of the decode accelerator on a card that is the bit-exact model."""

import asyncio
import json
import threading

import numpy as np
import pytest
from decode_board import CYCLES_PER_RUN, CYCLES_PER_TOKEN, DecodeBoard

from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.decode.packing import pack_tokens
from fastdelta.decode.quantise import quantise_given_gates, quantise_tokens
from fastdelta.decode.runs import ContextState
from fastdelta.errors import (
    AcceleratorClosedError,
    Aftermath,
    AxiError,
    BoardError,
    CardResetError,
    ContextLostError,
    DtypeError,
    InputError,
    KernelError,
    KernelStatusError,
    KernelTimeoutError,
    MemoryFaultError,
    NonFiniteError,
    OverlayError,
    RangeError,
    ShapeError,
)
from fastdelta.reference.decode_model import StateImage
from fastdelta.reference.gated_delta import decay_and_write_gates, gated_delta_recurrence
from fastdelta.registers.decode import Register, Status
from fastdelta.shapes import SMALL_DECODE, DecodeShape

SHAPE = SMALL_DECODE
HEADS = SHAPE.value_heads
A_LOG, DT_BIAS = np.linspace(-2, 1, HEADS), np.linspace(-1, 1, HEADS)


@pytest.fixture
def board():
    return DecodeBoard(SHAPE)


@pytest.fixture
def engine(board):
    with make_engine(board) as accelerator:
        yield accelerator


def make_engine(board, **options):
    accelerator = DecodeAccelerator(board, **options)
    accelerator.configure_all(A_LOG, DT_BIAS, 0)
    return accelerator


def tokens(count, seed=1):
    """Random q, k, v, a, b."""
    random = np.random.default_rng(seed)
    sizes = [(SHAPE.qk_heads, 16)] * 2 + [(HEADS, 16)] + [(HEADS,)] * 2
    return [random.standard_normal((count, *size)).astype(np.float32) for size in sizes]


def reference(inputs, state=None):
    q, k, v, a, b = inputs
    log_decay, beta = decay_and_write_gates(a, b, A_LOG, DT_BIAS)
    return gated_delta_recurrence(q, k, v, log_decay, beta, state=state)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def test_output_and_state_match_the_float_reference(engine):
    inputs = tokens(40)
    result = engine.decode(*inputs, context=1)
    expected, state = reference(inputs)
    assert result.output.dtype == np.float32
    assert relative_error(result.output, expected) < 2e-4
    assert relative_error(engine.read_state(1), state) < 2e-4


def test_one_token_needs_no_token_axis(engine):
    inputs = tokens(3)
    whole = engine.decode(*inputs).output
    engine.clear()
    single = [engine.decode(*(x[i] for x in inputs)) for i in range(3)]
    assert single[0].output.shape == (HEADS, 16)
    np.testing.assert_array_equal(np.stack([s.output for s in single]), whole)


@pytest.mark.parametrize("per_run", [1, 4, 7])
def test_long_input_is_cut_into_runs_that_equal_the_whole(per_run):
    inputs = tokens(23)
    with make_engine(DecodeBoard(SHAPE)) as whole_engine:
        whole = whole_engine.decode(*inputs)
    with make_engine(DecodeBoard(SHAPE)) as engine:
        engine._tokens_per_run = per_run
        parts = engine.decode(*inputs)
    np.testing.assert_array_equal(parts.output, whole.output)
    assert parts.invocations == -(-23 // per_run)
    assert parts.tokens == whole.tokens == 23
    assert parts.kernel_cycles == parts.invocations * CYCLES_PER_RUN + 23 * CYCLES_PER_TOKEN
    assert parts.counters.bursts == 5 * parts.invocations


def test_given_gates_and_normalised_vectors(engine):
    q, k, v, a, b = tokens(12)
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    log_decay, beta = decay_and_write_gates(a, b, A_LOG, DT_BIAS)
    log_decay[5, 1] = -np.inf
    expected, _ = gated_delta_recurrence(q, k, v, log_decay, beta, normalise=False)
    result = engine.decode(q, k, v, log_decay=log_decay, beta=beta, normalised=True)
    assert relative_error(result.output, expected) < 2e-4
    assert result.counters.norm_overflows == 0
    overflowing = engine.decode(2 * q, k, v, log_decay=log_decay, beta=beta, normalised=True)
    assert overflowing.counters.norm_overflows == q.shape[0] * q.shape[1]


@pytest.mark.parametrize("exponent", [-9, 12, [3, -4, 0, 11]])
def test_value_exponent_scales_values_state_and_output(board, exponent):
    engine = DecodeAccelerator(board)
    engine.configure_all(A_LOG, DT_BIAS, exponent)
    with engine:
        scale = np.ldexp(1.0, np.broadcast_to(exponent, HEADS))[:, np.newaxis]
        q, k, v, a, b = tokens(20)
        inputs = (q, k, v * scale, a, b)
        expected, state = reference(inputs)
        result = engine.decode(*inputs)
        assert relative_error(result.output / scale, expected / scale) < 2e-4
        read = engine.read_state()
        assert relative_error(read / scale[..., None], state / scale[..., None]) < 2e-4
        before = engine.decode(*inputs).output
        engine.load_state(read)
        assert relative_error(engine.decode(*inputs).output / scale, before / scale) < 2e-4


def test_contexts_are_separate(engine):
    streams = [tokens(6, seed) for seed in range(3)]
    outputs = [[] for _ in streams]
    for token in range(6):
        for context, stream in enumerate(streams):
            part = [x[token] for x in stream]
            outputs[context].append(engine.decode(*part, context=context).output)
    for context, stream in enumerate(streams):
        engine.clear(context)
        np.testing.assert_array_equal(
            engine.decode(*stream, context=context).output, np.stack(outputs[context])
        )


def test_each_context_can_have_its_own_layer(board):
    a_log = np.stack([A_LOG, A_LOG + 1, A_LOG - 2])
    dt_bias = np.stack([DT_BIAS, DT_BIAS * 2, DT_BIAS - 1])
    engine = DecodeAccelerator(board)
    engine.configure_all(a_log, dt_bias, 0)
    inputs = tokens(10)
    with engine:
        for context in range(3):
            log_decay, beta = decay_and_write_gates(*inputs[3:], a_log[context], dt_bias[context])
            expected, _ = gated_delta_recurrence(*inputs[:3], log_decay, beta)
            found = engine.decode(*inputs, context=context).output
            assert relative_error(found, expected) < 2e-4


def test_load_after_dump_is_the_identity(engine):
    engine.decode(*tokens(9))
    image = engine.dump_state()
    report = engine.load_state(image, context=2)
    assert report.counters.saturations == 0
    again = engine.dump_state(2)
    np.testing.assert_array_equal(again.mantissa, image.mantissa)
    np.testing.assert_array_equal(again.scale, image.scale)
    more = tokens(5, seed=7)
    np.testing.assert_array_equal(
        engine.decode(*more).output, engine.decode(*more, context=2).output
    )


def test_padding_of_packets_is_zero_also_after_a_load():
    """A load of a state goes through the same buffers, here with beats that are not full."""
    shape = DecodeShape(head_dim=48, qk_heads=1, group_ratio=1, h_iter=1, bus_width=512)
    board = DecodeBoard(shape)
    seen = []
    execute = board.execute

    def look(command, context, count, flags, qk, v, *rest):
        if count:
            sizes = (count * shape.qk_token_bytes, count * shape.v_token_bytes)
            pairs = zip((qk, v), sizes, strict=True)
            seen.append([board.memory(address, size).copy() for address, size in pairs])
        execute(command, context, count, flags, qk, v, *rest)

    board.execute = look
    random = np.random.default_rng(2)
    with DecodeAccelerator(board) as engine:
        for step, count in enumerate((1, 1, 1, 12, 2, 12, 1)):
            q, k, v = random.standard_normal((3, count, 1, 48), dtype=np.float32)
            log_decay, beta = -random.random((count, 1)), random.random((count, 1))
            engine.decode(q, k, v, log_decay=log_decay, beta=beta)
            wire = quantise_tokens(q, k, v, quantise_given_gates(log_decay, beta))
            for found, expected in zip(seen[step], pack_tokens(shape, wire), strict=True):
                np.testing.assert_array_equal(found, expected)
            for _ in range(1 + step % 2):
                engine.load_state(random.standard_normal((1, 48, 48)))


def test_zero_tokens_change_nothing(engine):
    engine.decode(*tokens(4))
    before = engine.dump_state()
    result = engine.decode(*tokens(0))
    assert result.output.shape == (0, HEADS, 16)
    assert result.tokens == 0
    assert np.isnan(result.cycles_per_token)
    np.testing.assert_array_equal(engine.dump_state().mantissa, before.mantissa)
    assert engine.context_state(1) is ContextState.CLEARED
    engine.decode(*tokens(0), context=1)
    assert engine.context_state(1) is ContextState.CLEARED


def test_inputs_may_be_any_float_dtype_and_strided(engine):
    inputs = tokens(4)
    expected = engine.decode(*inputs).output
    for dtype in (np.float64, np.longdouble):
        engine.clear()
        found = engine.decode(*(x.astype(dtype) for x in inputs)).output
        np.testing.assert_array_equal(found, expected)
    engine.clear()
    strided = [np.asfortranarray(x) for x in inputs]
    np.testing.assert_array_equal(engine.decode(*strided).output, expected)
    engine.clear()
    half = [x.astype(np.float16) for x in inputs]
    assert relative_error(engine.decode(*half).output, expected) < 5e-3


WRONG_INPUTS = {
    "token count": (ShapeError, lambda x: x.update(k=x["k"][:-1])),
    "heads": (ShapeError, lambda x: x.update(v=x["v"][:, :-1])),
    "head dimension": (ShapeError, lambda x: x.update(q=x["q"][..., :-1])),
    "four dimensions": (ShapeError, lambda x: x.update(q=x["q"][None])),
    "scalar": (ShapeError, lambda x: x.update(q=np.float32(1))),
    "gate shape": (ShapeError, lambda x: x.update(a=x["a"][:, :1])),
    "integers": (DtypeError, lambda x: x.update(q=np.ones(x["q"].shape, int))),
    "complex": (DtypeError, lambda x: x.update(v=x["v"].astype(complex))),
    "objects": (DtypeError, lambda x: x.update(b=x["b"].astype(object))),
    "NaN": (NonFiniteError, lambda x: x["q"].__setitem__((1, 0, 3), np.nan)),
    "infinity": (NonFiniteError, lambda x: x["v"].__setitem__((0, 1, 2), -np.inf)),
    "NaN gate": (NonFiniteError, lambda x: x["a"].__setitem__((0, 0), np.nan)),
    "too large": (RangeError, lambda x: x["k"].__setitem__((0, 0, 0), 2.0**38)),
    "missing gate": (InputError, lambda x: x.pop("b")),
    "two pairs of gates": (InputError, lambda x: x.update(log_decay=-(x["a"] ** 2), beta=x["b"])),
    "growing state": (RangeError, lambda x: x.update(given(x, log_decay=1e-6))),
    "NaN decay": (RangeError, lambda x: x.update(given(x, log_decay=np.nan))),
    "beta above 1": (RangeError, lambda x: x.update(given(x, beta=1.5))),
    "context": (RangeError, lambda x: x.update(context=3)),
    "negative context": (RangeError, lambda x: x.update(context=-1)),
    "context type": (InputError, lambda x: x.update(context="0")),
}


def given(inputs, log_decay=-1.0, beta=0.5):
    shape = inputs["a"].shape
    pair = {"log_decay": np.full(shape, log_decay), "beta": np.full(shape, beta)}
    return {"a": None, "b": None} | pair


@pytest.mark.parametrize("fault", WRONG_INPUTS)
def test_wrong_input_is_refused_and_changes_nothing(engine, board, fault):
    kind, spoil = WRONG_INPUTS[fault]
    engine.decode(*tokens(3))
    runs = board.runs
    inputs = dict(zip("qkvab", tokens(4), strict=True))
    spoil(inputs)
    with pytest.raises(kind) as caught:
        engine.decode(**inputs)
    assert type(caught.value) is kind
    assert board.runs == runs
    assert engine.context_state(0) is ContextState.RESIDENT


def test_messages_say_what_was_given_and_what_is_allowed(engine):
    q, k, v, a, b = tokens(4)
    with pytest.raises(ShapeError, match=r"v has shape \(4, 3, 16\); expected \(4, 4, 16\)"):
        engine.decode(q, k, v[:, :3], a, b)
    with pytest.raises(DtypeError, match="k has dtype int64; pass an array of a float dtype"):
        engine.decode(q, k.astype(int), v, a, b)
    with pytest.raises(RangeError, match="contexts 0 to 2"):
        engine.clear(7)


def test_gate_constants_are_needed_for_raw_gates(board):
    with DecodeAccelerator(board) as engine:
        q, k, v, a, b = tokens(2)
        with pytest.raises(InputError, match="no gate constants"):
            engine.decode(q, k, v, a, b)
        gates = given({"a": a})
        engine.decode(q, k, v, log_decay=gates["log_decay"], beta=gates["beta"])
        engine.configure(0, a_log=A_LOG, dt_bias=DT_BIAS)
        engine.decode(q, k, v, a, b)
        with pytest.raises(InputError, match="context 1 has no gate constants"):
            engine.decode(q, k, v, a, b, context=1)
        with pytest.raises(RangeError, match=r"exp\(a_log\) must be below"):
            engine.configure(0, a_log=A_LOG + 30, dt_bias=DT_BIAS)
        with pytest.raises(ShapeError, match="dt_bias"):
            engine.configure(0, a_log=A_LOG, dt_bias=DT_BIAS[:2])


def test_value_exponent_of_a_resident_state_is_not_changed(engine):
    constants = {"a_log": A_LOG, "dt_bias": DT_BIAS}
    engine.decode(*tokens(2))
    engine.configure(0, **constants, value_exponent=0)
    with pytest.raises(InputError, match="clear it"):
        engine.configure(0, **constants, value_exponent=2)
    engine.clear(0)
    engine.configure(0, **constants, value_exponent=2)
    for wrong, kind in ((1.5, DtypeError), ([1, 2], ShapeError), (65, RangeError)):
        with pytest.raises(kind):
            engine.configure(0, **constants, value_exponent=wrong)


def test_state_that_does_not_fit_is_refused(engine):
    engine.decode(*tokens(2))
    before = engine.dump_state()
    size = before.mantissa.shape
    with pytest.raises(RangeError, match="below 32"):
        engine.load_state(np.full(size, 33.0))
    with pytest.raises(ShapeError):
        engine.load_state(np.zeros(size[:2]))
    with pytest.raises(NonFiniteError):
        engine.load_state(np.full(size, np.nan))
    for scale in (1 << 23, (1 << 24) + 1):
        wrong = StateImage(before.mantissa, np.full(HEADS, scale, np.int32))
        with pytest.raises(RangeError, match="scale"):
            engine.load_state(wrong)
    with pytest.raises(DtypeError):
        engine.load_state(StateImage(before.mantissa.astype(np.int64), before.scale))
    np.testing.assert_array_equal(engine.dump_state().mantissa, before.mantissa)


@pytest.mark.parametrize("status", [Status.READ_ERROR, Status.WRITE_ERROR])
def test_axi_error_loses_the_context_until_it_is_cleared(engine, board, status):
    first = tokens(5)
    expected = engine.decode(*first).output
    engine.decode(*first, context=1)
    kept = engine.dump_state(1)
    board.fail_next = status
    with pytest.raises(AxiError, match=status.name) as caught:
        engine.decode(*tokens(2))
    assert caught.value.context == 0
    assert caught.value.aftermath is Aftermath.CONTEXT_LOST
    runs = board.runs
    for use in (lambda: engine.decode(*tokens(2)), engine.dump_state, engine.read_state):
        with pytest.raises(ContextLostError, match="clear or load"):
            use()
    assert board.runs == runs
    np.testing.assert_array_equal(engine.dump_state(1).mantissa, kept.mantissa)
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*first).output, expected)


def test_lost_context_is_usable_after_a_load(engine, board):
    engine.decode(*tokens(5))
    image = engine.dump_state()
    expected = engine.decode(*tokens(3, seed=5)).output
    board.fail_next = Status.READ_ERROR
    with pytest.raises(AxiError):
        engine.decode(*tokens(1))
    engine.load_state(image)
    np.testing.assert_array_equal(engine.decode(*tokens(3, seed=5)).output, expected)


def test_failed_dump_keeps_the_state(engine, board):
    engine.decode(*tokens(5))
    board.fail_next = Status.WRITE_ERROR
    with pytest.raises(AxiError) as caught:
        engine.dump_state()
    assert caught.value.aftermath is Aftermath.UNTOUCHED
    assert engine.context_state(0) is ContextState.RESIDENT
    engine.dump_state()


def test_watchdog_ends_a_run_without_a_result_block(engine, board):
    engine.decode(*tokens(5))
    board.fail_next = Status.TIMEOUT
    with pytest.raises(KernelTimeoutError, match=r"watchdog.*STATUS=0x7.*SATURATIONS=") as caught:
        engine.decode(*tokens(2))
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.aftermath is Aftermath.CONTEXT_LOST
    assert board.resets == 0
    assert engine.context_state(0) is ContextState.LOST
    assert engine.context_state(1) is ContextState.CLEARED


def test_result_block_of_an_earlier_run_does_not_pass_for_a_new_one(engine, board):
    engine.decode(*tokens(2))
    board.silent_next = True
    with pytest.raises(KernelStatusError, match="without writing a result block"):
        engine.decode(*tokens(2))
    assert engine.context_state(0) is ContextState.LOST


@pytest.mark.parametrize(
    ("says", "kind"), [("aborted", KernelStatusError), ("hangs", KernelTimeoutError)]
)
def test_run_that_the_scheduler_gives_up_resets_the_card(engine, board, says, kind):
    expected = engine.decode(*tokens(2)).output
    board.scheduler_failure = says
    with pytest.raises(kind, match=f"given up by the card's scheduler: {says}") as caught:
        engine.decode(*tokens(2))
    assert caught.value.aftermath is Aftermath.ALL_CONTEXTS_LOST
    assert board.resets == 1
    assert engine.context_state(2) is ContextState.LOST
    board.scheduler_failure = None
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*tokens(2)).output, expected)


@pytest.mark.parametrize("argument", ["qk", "v"])
def test_inputs_that_changed_before_the_kernel_read_them_are_noticed(engine, board, argument):
    first = tokens(5)
    expected = engine.decode(*first).output
    engine.decode(*first, context=1)
    engine.clear()
    execute = board.execute

    def change_and_execute(command, context, count, flags, qk, v, *rest):
        board.memory({"qk": qk, "v": v}[argument], 64)[33] ^= 4
        execute(command, context, count, flags, qk, v, *rest)

    board.execute = change_and_execute
    words = rf"bank of {argument} what the host wrote for decode of 5 tokens on model"
    with pytest.raises(MemoryFaultError, match=words) as caught:
        engine.decode(*first)
    assert caught.value.aftermath is Aftermath.CONTEXT_LOST
    board.execute = execute
    assert engine.context_state(1) is ContextState.RESIDENT
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*first).output, expected)


@pytest.mark.parametrize("command", ["decode", "dump"])
def test_output_that_changed_after_the_kernel_wrote_it_is_noticed(engine, board, command):
    first = tokens(5)
    expected = engine.decode(*first).output
    image = engine.dump_state()
    execute = board.execute

    def execute_and_change(*arguments):
        execute(*arguments)
        board.memory(arguments[6], 64)[7] ^= 0x80

    board.execute = execute_and_change
    words = "the output of .* did not come back as the kernel wrote it"
    with pytest.raises(MemoryFaultError, match=words) as caught:
        engine.decode(*first) if command == "decode" else engine.dump_state()
    board.execute = execute
    if command == "dump":  # which only reads the state
        assert caught.value.aftermath is Aftermath.UNTOUCHED
        np.testing.assert_array_equal(engine.dump_state().mantissa, image.mantissa)
    else:
        assert caught.value.aftermath is Aftermath.CONTEXT_LOST
        assert engine.context_state(0) is ContextState.LOST
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*first).output, expected)


def test_a_state_that_changed_on_its_way_into_the_kernel_is_lost(engine, board):
    engine.decode(*tokens(5))
    image = engine.dump_state()
    execute = board.execute

    def change_and_execute(*arguments):
        board.memory(arguments[5], 64)[20] ^= 1
        execute(*arguments)

    board.execute = change_and_execute
    with pytest.raises(MemoryFaultError, match="bank of v what the host wrote for load"):
        engine.load_state(image)
    board.execute = execute
    assert engine.context_state(0) is ContextState.LOST
    engine.load_state(image)
    np.testing.assert_array_equal(engine.dump_state().mantissa, image.mantissa)


@pytest.mark.parametrize("word", range(32))
def test_every_word_of_the_result_block_is_checked(engine, board, word):
    engine.decode(*tokens(2))
    execute = board.execute

    def execute_and_change(*arguments):
        execute(*arguments)
        board.memory(arguments[7], 128).view(np.uint32)[word] ^= 1 << word

    board.execute = execute_and_change
    with pytest.raises(MemoryFaultError, match="the result block of decode of 2 tokens"):
        engine.decode(*tokens(2))
    assert engine.context_state(0) is ContextState.LOST


def change_block(block, index, change):
    """Change a word of a result block such that its check word agrees."""
    words = block.view(np.uint32)
    old = int(words[index])
    new = change(old)
    words[-1] = (int(words[-1]) + old - new) % 2**32
    words[index] = new


def test_result_block_must_state_the_tokens_of_the_run(engine, board):
    engine.decode(*tokens(2))
    execute = board.execute

    def change_and_execute(*arguments):
        execute(*arguments)
        change_block(board.memory(arguments[7], 128), 3, lambda tokens: tokens ^ 1)

    board.execute = change_and_execute
    with pytest.raises(KernelStatusError, match="result block that states 3 tokens"):
        engine.decode(*tokens(2))
    assert engine.context_state(0) is ContextState.LOST


@pytest.mark.parametrize("command", ["decode", "clear", "load", "dump"])
def test_a_status_that_changed_does_not_pass_for_a_refusal(engine, board, command):
    """What else is in the block says that the command was carried out, even if its sum is right."""
    engine.decode(*tokens(2))
    image = engine.dump_state()
    execute = board.execute

    def change_and_execute(*arguments):
        execute(*arguments)
        change_block(board.memory(arguments[7], 128), 1, lambda _: Status.BAD_COMMAND)

    board.execute = change_and_execute
    calls = {
        "decode": lambda: engine.decode(*tokens(2)),
        "clear": engine.clear,
        "load": lambda: engine.load_state(image),
        "dump": engine.dump_state,
    }
    with pytest.raises(KernelStatusError, match="BAD_COMMAND"):
        calls[command]()
    assert engine.context_state(0) is ContextState.LOST


@pytest.mark.parametrize("status", [Status.BAD_COMMAND, Status.BAD_ADDRESS])
def test_refused_command_leaves_the_state(engine, board, status):
    engine.decode(*tokens(2))
    board.fail_next = status
    with pytest.raises(KernelStatusError, match=status.name) as caught:
        engine.decode(*tokens(2))
    assert caught.value.aftermath is Aftermath.UNTOUCHED
    assert engine.context_state(0) is ContextState.RESIDENT


def test_unknown_status_loses_nothing_silently(engine, board):
    board.fail_next = 13
    with pytest.raises(KernelStatusError, match="unknown status 13"):
        engine.decode(*tokens(2))


def test_time_out_resets_the_card_and_loses_every_context(board):
    with make_engine(board, timeout=0.05) as engine:
        first = tokens(5)
        expected = engine.decode(*first).output
        board.registers[Register.QK_BEATS] = 0x1234
        board.stuck = True
        with pytest.raises(KernelTimeoutError, match=r"within 0.05 s.*QK_BEATS=0x1234") as caught:
            engine.decode(*first)
        assert caught.value.aftermath is Aftermath.ALL_CONTEXTS_LOST
        assert board.resets == 1
        for context in range(3):
            with pytest.raises(ContextLostError):
                engine.decode(*first, context=context)
        engine.clear()
        np.testing.assert_array_equal(engine.decode(*first).output, expected)


def test_wait_with_a_time_out_of_its_own(board):
    with make_engine(board) as engine:
        board.stuck = True
        jobs = [engine.submit(*tokens(1), context=context) for context in (0, 1)]
        assert not jobs[0].done
        with pytest.raises(CardResetError, match="decode of 1 tokens before this run"):
            jobs[1].wait(timeout=0.01)
        assert jobs[0].done
        with pytest.raises(KernelTimeoutError, match=r"within 0.01 s"):
            jobs[0].wait()


def test_context_is_not_used_after_a_reset_during_the_submit(board):
    with make_engine(board, timeout=0.02) as engine:
        engine.decode(*tokens(1), context=2)
        board.stuck = True
        jobs = [engine.submit(*tokens(1), context=context) for context in (0, 1)]
        with pytest.raises(ContextLostError, match="not started"):
            engine.submit(*tokens(1), context=2)  # waits for a buffer set, and sees the reset
        assert all(job.done for job in jobs)


def test_card_that_does_not_come_back_is_not_used(board):
    with make_engine(board, timeout=0.01) as engine:
        board.stuck = board.reset_fails = True
        with pytest.raises(KernelTimeoutError):
            engine.decode(*tokens(1))
        for use in (lambda: engine.decode(*tokens(1)), engine.clear, engine.dump_state):
            with pytest.raises(BoardError, match=r"did not come back.*EBUSY"):
                use()
    assert board.closed


def test_failure_in_the_middle_of_a_long_input(engine, board):
    engine._tokens_per_run = 2
    job_inputs = tokens(9)
    original = board.execute

    def fail_the_third_run(*arguments):
        if board.runs == third - 1:
            board.fail_next = Status.READ_ERROR
        original(*arguments)

    third = board.runs + 3
    board.execute = fail_the_third_run
    with pytest.raises(AxiError) as caught:
        engine.decode(*job_inputs)
    assert caught.value.aftermath is Aftermath.CONTEXT_LOST
    assert engine.context_state(0) is ContextState.LOST
    assert board.runs <= third + 1, "no more runs are launched after a failure was seen"


def test_refused_start_in_the_middle_says_that_the_state_is_lost(engine, board):
    engine._tokens_per_run = 2
    launches = []
    original = board.kernel.launch

    def refuse_the_second(*arguments):
        launches.append(arguments)
        board.refuse_start = len(launches) == 2
        return original(*arguments)

    board.kernel.launch = refuse_the_second
    with pytest.raises(BoardError, match="refused") as caught:
        engine.decode(*tokens(6))
    assert "Tokens 0 to 1 of the call were done" in caught.value.__notes__[0]
    assert engine.context_state(0) is ContextState.LOST


def test_refused_start_leaves_the_state(engine, board):
    engine.decode(*tokens(3))
    before = engine.dump_state()
    board.refuse_start = True
    for _ in range(4):  # more often than there are buffer sets
        with pytest.raises(BoardError, match="refused a copy or a start"):
            engine.decode(*tokens(2))
    board.refuse_start = False
    np.testing.assert_array_equal(engine.dump_state().mantissa, before.mantissa)


def test_results_that_cannot_be_copied_back_lose_the_context(engine, board):
    board.fail_copies_back = True
    with pytest.raises(KernelStatusError, match="could not copy"):
        engine.decode(*tokens(2))
    board.fail_copies_back = False
    assert engine.context_state(0) is ContextState.LOST


def test_submitted_jobs_end_in_order_and_keep_their_results(engine):
    parts = [tokens(2, seed) for seed in range(6)]
    jobs = [engine.submit(*part) for part in parts]
    outputs = [job.wait().output for job in reversed(jobs)][::-1]
    whole = [np.concatenate(x) for x in zip(*parts, strict=True)]
    np.testing.assert_array_equal(np.concatenate(outputs), engine.decode(*whole, context=1).output)
    assert jobs[0].wait() is jobs[0].wait()


def test_inputs_may_change_after_submit(engine):
    inputs = tokens(3)
    expected = engine.decode(*inputs, context=1).output
    job = engine.submit(*inputs)
    for x in inputs:
        x[:] = np.nan
    np.testing.assert_array_equal(job.wait().output, expected)


def test_await_and_gather(engine):
    inputs = [tokens(3, seed) for seed in range(3)]

    async def decode_all():
        jobs = [engine.submit(*x, context=c) for c, x in enumerate(inputs)]
        return await asyncio.gather(*(as_coroutine(job) for job in jobs))

    async def as_coroutine(job):
        return await job

    results = asyncio.run(decode_all())
    for context, x in enumerate(inputs):
        engine.clear(context)
        np.testing.assert_array_equal(
            engine.decode(*x, context=context).output, results[context].output
        )


def test_awaited_job_raises_its_error(engine, board):
    async def decode():
        board.fail_next = Status.READ_ERROR
        return await engine.submit(*tokens(2))

    with pytest.raises(AxiError):
        asyncio.run(decode())


def test_threads_may_share_the_accelerator(engine):
    found = [None] * 3

    def decode(context):
        stream = tokens(30, seed=context)
        found[context] = np.stack(
            [engine.decode(*(x[i] for x in stream), context=context).output for i in range(30)]
        )

    threads = [threading.Thread(target=decode, args=(c,)) for c in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for context in range(3):
        engine.clear(context)
        whole = engine.decode(*tokens(30, seed=context), context=context).output
        np.testing.assert_array_equal(found[context], whole)


def test_buffers_are_reused(engine, board):
    engine.decode(*tokens(8))
    engine.decode(*tokens(8))
    addresses = next(board.addresses)
    for _ in range(5):
        engine.decode(*tokens(8))
        engine.decode(*tokens(1))
    assert next(board.addresses) == addresses + 1, "nothing was allocated in between"


def test_close_frees_everything_once(board):
    engine = make_engine(board)
    engine.submit(*tokens(3))
    engine.close()
    engine.close()
    assert board.closed
    assert not board.buffers
    for use in (lambda: engine.decode(*tokens(1)), engine.clear, engine.dump_state):
        with pytest.raises(AcceleratorClosedError):
            use()


def test_opening_clears_what_an_earlier_program_left(board):
    with make_engine(board) as engine:
        expected = engine.decode(*tokens(4)).output
    with make_engine(board) as engine:
        np.testing.assert_array_equal(engine.decode(*tokens(4)).output, expected)


def test_another_kernel_than_expected_is_refused(board):
    other = DecodeShape(head_dim=32, qk_heads=2, group_ratio=2, h_iter=2, bus_width=128)
    with pytest.raises(OverlayError, match=r"head_dim=16.*not as.*head_dim=32"):
        DecodeAccelerator(board, other)
    board.registers[Register.SHAPE0] |= 0xFF00
    with pytest.raises(OverlayError, match="qk_heads"):
        DecodeAccelerator(board)
    board.registers[Register.VERSION] = 0x00030001
    with pytest.raises(OverlayError, match=r"version 3\.1.*needs 2\.x"):
        DecodeAccelerator(board)
    assert not board.buffers


def test_failure_while_opening_leaves_no_buffer(board):
    board.fail_next = Status.BAD_ADDRESS
    with pytest.raises(KernelError):
        DecodeAccelerator(board)
    assert not board.buffers


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"watchdog_cycles": -1}, {"watchdog_cycles": 1 << 32}]
)
def test_impossible_options_are_refused(board, options):
    with pytest.raises(RangeError):
        DecodeAccelerator(board, **options)


def test_buffers_must_hold_a_state(board):
    with pytest.raises(RangeError, match="buffer_bytes is 4096"):
        DecodeAccelerator(board, buffer_bytes=4096)


def test_watchdog_grows_with_the_tokens(board):
    seen = []
    launch = board.kernel.launch
    board.kernel.launch = lambda *arguments: seen.append(arguments[8]) or launch(*arguments)
    with make_engine(board) as engine:
        engine.decode(*tokens(1))
        engine.decode(*tokens(60))
        assert min(seen) > 100_000
        assert seen[-1] - seen[-2] > 59 * 8 * SHAPE.passes * SHAPE.head_dim
    seen.clear()
    with make_engine(board, watchdog_cycles=777) as engine:
        engine.decode(*tokens(60))
    assert set(seen) == {777}


def test_result_says_where_it_comes_from(engine):
    result = engine.decode(*tokens(5))
    record = json.loads(json.dumps(result.to_dict()))
    assert record["simulated"] is True
    assert record["board"] == "model"
    assert record["versions"]["kernel"] == "2.0"
    assert record["config"]["head_dim"] == 16
    assert record["tokens"] == 5
    assert record["cycles_per_token"] == CYCLES_PER_TOKEN + CYCLES_PER_RUN / 5
    assert record["counters"]["starved_cycles"] == 1
    assert set(record["seconds"]) == {"prepare", "copy", "launch"}
    assert all(value >= 0 for value in record["seconds"].values())
    assert engine.last_report.command == "decode"
    engine.clear()
    assert engine.last_report.command == "clear"


def test_simulated_cycles_become_time_only_at_a_named_clock(engine):
    result = engine.decode(*tokens(5))
    with pytest.raises(ValueError, match="name the clock"):
        result.microseconds_per_token()
    assert result.microseconds_per_token(clock_mhz=300) == result.cycles_per_token / 300
