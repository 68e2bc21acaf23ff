# SPDX-License-Identifier: Apache-2.0
"""The decode accelerator on the simulated card, through PYNQ: results, states and failures.

What needs no RTL is tested in tests/unit/test_decode_host.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pynq.pl_server.xrt_device import XrtDevice

from fastdelta.accelerator import Accelerator
from fastdelta.bench.decode import DecodeInputs, relative_error
from fastdelta.boards import ENGINES, PynqBoard
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.decode.runs import ContextState
from fastdelta.drivers.decode import DecodeKernel
from fastdelta.errors import (
    AcceleratorClosedError,
    Aftermath,
    AxiError,
    BankFullError,
    BoardError,
    BoardNotFoundError,
    ContextLostError,
    FastdeltaError,
    InputError,
    KernelTimeoutError,
    NonFiniteError,
    OverlayError,
    RangeError,
    ShapeError,
    WrongBankError,
)
from fastdelta.interface import load_interface
from fastdelta.reference.decode_model import StateImage
from fastdelta.shapes import SMALL_DECODE, DecodeShape, PrefillShape
from fastdelta.sim import (
    Fault,
    FaultKind,
    SimDevice,
    board_of,
    close_device,
    live_buffers,
    open_device,
)
from fastdelta.sim.front_ends import default_front_end
from fastdelta.sim.paths import overlay_folder

pytestmark = pytest.mark.timeout(600)  # the first test of a shape builds its kernel

SHAPE = SMALL_DECODE
INPUTS = DecodeInputs.synthetic(SHAPE, 64, seed=3)
UNIT = "decode_1"
PORTS = {"m_axi_qk": "read", "m_axi_v": "read", "m_axi_o": "write"}


def opened(
    shape: DecodeShape = SHAPE, inputs: DecodeInputs = INPUTS, **options
) -> DecodeAccelerator:
    return Accelerator.open(
        "decode", shape=shape, a_log=inputs.a_log, dt_bias=inputs.dt_bias, **options
    )


@pytest.fixture
def engine() -> Iterator[DecodeAccelerator]:
    with opened() as accelerator:
        yield accelerator


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray, StateImage]:
    """Outputs and final state of the bit-exact model for all inputs."""
    return INPUTS.model_outputs(SHAPE)


def assert_same_state(one: StateImage, other: StateImage) -> None:
    np.testing.assert_array_equal(one.mantissa, other.mantissa)
    np.testing.assert_array_equal(one.scale, other.scale)


def card_of(engine: DecodeAccelerator):
    """The board model behind an accelerator."""
    return board_of(engine.board.device)


def buffers_of(engine: DecodeAccelerator) -> int:
    device = engine.board.device
    return sum(device.get_memory_by_idx(i).num_buffers for i in range(3))


def test_the_device_is_that_of_the_front_end(engine) -> None:
    assert type(engine.board.device) is (SimDevice if default_front_end() == "pynq" else XrtDevice)


# Results


@pytest.mark.parametrize("stalls", [0.0, 0.3])
@pytest.mark.parametrize("board", ["sim-u55c", "sim-u280"])
def test_outputs_and_state_equal_the_model(expected, board, stalls) -> None:
    with opened(board=board, stalls=stalls, seed=5) as engine:
        result = engine.decode(*INPUTS.tokens(0, 64))
        np.testing.assert_array_equal(result.output, expected[0])
        assert_same_state(engine.dump_state(), expected[1])
    assert result.simulated
    assert result.provenance.board == board
    assert result.counters.saturations == 0
    assert result.counters.qk_beats * SHAPE.beat_bytes == 64 * SHAPE.qk_token_bytes
    assert result.counters.v_beats * SHAPE.beat_bytes == 64 * SHAPE.v_token_bytes
    assert result.counters.o_beats * SHAPE.beat_bytes == 64 * SHAPE.o_token_bytes
    assert relative_error(result.output, INPUTS.float_outputs()) <= 2e-4


def test_beats_with_surplus_lanes() -> None:
    shape = DecodeShape(head_dim=48, qk_heads=3, group_ratio=4, h_iter=4, bus_width=512)
    inputs = DecodeInputs.synthetic(shape, 20, seed=4)
    outputs, state = inputs.model_outputs(shape)
    with opened(shape, inputs) as engine:
        np.testing.assert_array_equal(engine.decode(*inputs.tokens(0, 20)).output, outputs)
        assert_same_state(engine.dump_state(), state)
        engine.load_state(state)
        assert_same_state(engine.dump_state(), state)


@pytest.mark.parametrize("split", [1, 2, 31, 63])
def test_pieces_equal_the_whole(engine, expected, split) -> None:
    pieces = [engine.decode(*INPUTS.tokens(*span)).output for span in ((0, split), (split, 64))]
    np.testing.assert_array_equal(np.concatenate(pieces), expected[0])


def test_one_token_at_a_time_equals_the_whole(engine, expected) -> None:
    outputs = [engine.decode(*(x[i] for x in INPUTS.tokens(0, 64))).output for i in range(64)]
    np.testing.assert_array_equal(np.stack(outputs), expected[0])


def test_long_input_runs_in_several_invocations(expected) -> None:
    with opened(buffer_bytes=SHAPE.state_bytes) as engine:
        result = engine.decode(*INPUTS.tokens(0, 64))
    assert result.invocations > 2
    np.testing.assert_array_equal(result.output, expected[0])


def test_second_sequence_after_clear_equals_it_alone(engine, expected) -> None:
    engine.decode(*INPUTS.tokens(10, 50))
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*INPUTS.tokens(0, 64)).output, expected[0])


def test_interleaved_contexts_are_separate(engine, expected) -> None:
    outputs: list[list[np.ndarray]] = [[], [], []]
    for start in range(0, 64, 8):
        for context, found in enumerate(outputs):
            found.append(engine.decode(*INPUTS.tokens(start, start + 8), context=context).output)
    for found in outputs:
        np.testing.assert_array_equal(np.concatenate(found), expected[0])


def test_zero_tokens_change_nothing(engine, expected) -> None:
    engine.decode(*INPUTS.tokens(0, 64))
    result = engine.decode(*INPUTS.tokens(0, 0))
    assert result.tokens == 0
    assert result.output.shape == (0, SHAPE.value_heads, SHAPE.head_dim)
    assert_same_state(engine.dump_state(), expected[1])


def test_dump_after_load_is_the_identity(engine) -> None:
    random = np.random.default_rng(7)
    size = (SHAPE.value_heads, SHAPE.head_dim, SHAPE.head_dim)
    image = StateImage(
        mantissa=random.integers(-(1 << 26), 1 << 26, size).astype(np.int32),
        scale=random.integers((1 << 23) + 1, (1 << 24) + 1, SHAPE.value_heads).astype(np.int32),
    )
    assert engine.load_state(image, context=1).counters.saturations == 0
    assert_same_state(engine.dump_state(1), image)
    state = random.standard_normal(size)  # asymmetric: a transposed layout would show
    engine.load_state(state, context=2)
    np.testing.assert_allclose(engine.read_state(2), state, atol=2.0**-21)


def test_dump_in_mid_sequence_changes_nothing(engine, expected) -> None:
    first = engine.decode(*INPUTS.tokens(0, 20)).output
    image = engine.dump_state()
    rest = engine.decode(*INPUTS.tokens(20, 64)).output
    np.testing.assert_array_equal(np.concatenate([first, rest]), expected[0])
    engine.load_state(image, context=2)
    again = engine.decode(*INPUTS.tokens(20, 64), context=2).output
    np.testing.assert_array_equal(again, rest)


def test_submit_and_await(engine, expected) -> None:
    async def all_contexts() -> list[np.ndarray]:
        jobs = [engine.submit(*INPUTS.tokens(0, 64), context=context) for context in range(3)]
        return [(await job).output for job in jobs]

    for output in asyncio.run(all_contexts()):
        np.testing.assert_array_equal(output, expected[0])
    job = engine.submit(*INPUTS.tokens(0, 4))
    deadline = time.monotonic() + 20
    while not job.done:
        assert time.monotonic() < deadline
    assert job.wait() is job.wait()


def test_threads_share_the_card(engine, expected) -> None:
    outputs: list[list[np.ndarray]] = [[], [], []]

    def decode(context: int) -> None:
        for i in range(64):
            token = [x[i] for x in INPUTS.tokens(0, 64)]
            outputs[context].append(engine.decode(*token, context=context).output)

    threads = [threading.Thread(target=decode, args=(context,)) for context in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for found in outputs:
        np.testing.assert_array_equal(np.stack(found), expected[0])


def test_two_cards_at_once(expected) -> None:
    with opened() as one, opened(board="sim-u280") as other:
        jobs = [card.submit(*INPUTS.tokens(0, 64)) for card in (one, other)]
        for job in jobs:
            np.testing.assert_array_equal(job.wait().output, expected[0])


# Failures


@pytest.mark.parametrize("kind", [FaultKind.SLVERR, FaultKind.DECERR])
@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("skip", [0, 3])
def test_axi_error_loses_one_context_and_the_next_run_is_clean(
    engine, expected, kind, port, skip
) -> None:
    engine.decode(*INPUTS.tokens(0, 64), context=1)
    kept = engine.dump_state(1)
    card_of(engine).inject(UNIT, port, Fault(kind, PORTS[port], skip=skip, count=1))
    status = "READ_ERROR" if PORTS[port] == "read" else "WRITE_ERROR"
    with pytest.raises(AxiError, match=status) as caught:
        engine.decode(*INPUTS.tokens(0, 64))
    assert caught.value.aftermath is Aftermath.CONTEXT_LOST
    with pytest.raises(ContextLostError):
        engine.decode(*INPUTS.tokens(0, 1))
    assert_same_state(engine.dump_state(1), kept)
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*INPUTS.tokens(0, 64)).output, expected[0])


def test_failed_dump_keeps_the_state(engine, expected) -> None:
    engine.decode(*INPUTS.tokens(0, 64))
    card_of(engine).inject(UNIT, "m_axi_o", Fault(FaultKind.SLVERR, "write", skip=1, count=1))
    with pytest.raises(AxiError) as caught:
        engine.dump_state()
    assert caught.value.aftermath is Aftermath.UNTOUCHED
    assert_same_state(engine.dump_state(), expected[1])


def test_failed_load_loses_the_context(engine, expected) -> None:
    engine.decode(*INPUTS.tokens(0, 64))
    card_of(engine).inject(UNIT, "m_axi_v", Fault(FaultKind.SLVERR, "read", skip=1, count=1))
    with pytest.raises(AxiError):
        engine.load_state(expected[1])
    assert engine.context_state(0) is ContextState.LOST
    engine.load_state(expected[1])
    assert_same_state(engine.dump_state(), expected[1])


def test_watchdog_ends_a_run_and_loses_one_context(engine, expected) -> None:
    engine.decode(*INPUTS.tokens(0, 64), context=1)
    engine.watchdog_cycles = 200
    with pytest.raises(KernelTimeoutError, match=r"TIMEOUT.*watchdog.*STATUS=0x7") as caught:
        engine.decode(*INPUTS.tokens(0, 64))
    engine.watchdog_cycles = None
    assert caught.value.aftermath is Aftermath.CONTEXT_LOST
    assert_same_state(engine.dump_state(1), expected[1])
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*INPUTS.tokens(0, 64)).output, expected[0])


@pytest.mark.parametrize("port", PORTS)
def test_memory_that_never_answers_ends_within_the_time_out(expected, port) -> None:
    with opened(timeout=0.5, hang_cycles=0) as engine:
        engine.decode(*INPUTS.tokens(0, 64), context=1)
        card_of(engine).inject(UNIT, port, Fault(FaultKind.STUCK, PORTS[port], skip=1))
        began = time.monotonic()
        with pytest.raises(
            KernelTimeoutError, match=r"within 0\.5 s.*STATUS=.*QK_BEATS="
        ) as caught:
            engine.decode(*INPUTS.tokens(0, 64))
        assert time.monotonic() - began < 10
        assert caught.value.aftermath is Aftermath.ALL_CONTEXTS_LOST
        for context in range(3):
            with pytest.raises(ContextLostError):
                engine.decode(*INPUTS.tokens(0, 1), context=context)
        card_of(engine).clear_faults(UNIT)
        for context in range(3):
            engine.clear(context)
            found = engine.decode(*INPUTS.tokens(0, 64), context=context).output
            np.testing.assert_array_equal(found, expected[0])


def test_card_that_gives_a_run_up_is_reset(expected) -> None:
    with opened(hang_cycles=2000) as engine:
        card_of(engine).inject(UNIT, "m_axi_qk", Fault(FaultKind.STUCK, "read"))
        with pytest.raises(KernelTimeoutError, match=r"scheduler.*hangs"):
            engine.decode(*INPUTS.tokens(0, 64))
        card_of(engine).clear_faults(UNIT)
        engine.clear()
        np.testing.assert_array_equal(engine.decode(*INPUTS.tokens(0, 64)).output, expected[0])


def test_reset_in_mid_run_is_an_error_and_the_next_run_is_clean(engine, expected) -> None:
    card = card_of(engine)
    card.inject(UNIT, "m_axi_v", Fault(FaultKind.STUCK, "read"))
    job = engine.submit(*INPUTS.tokens(0, 64))
    assert not job.done
    card.reset(UNIT)
    card.clear_faults(UNIT)
    # PYNQ's XrtDevice learns only that the command was aborted.
    reason = "was reset" if default_front_end() == "pynq" else "was aborted"
    with pytest.raises(FastdeltaError, match=reason):
        job.wait()
    assert engine.context_state(0) is ContextState.LOST
    engine.clear()
    np.testing.assert_array_equal(engine.decode(*INPUTS.tokens(0, 64)).output, expected[0])


def test_wrong_inputs_do_not_reach_the_card(engine, expected) -> None:
    first = engine.decode(*INPUTS.tokens(0, 20)).output
    q, k, v, a, b = INPUTS.tokens(20, 64)
    nan = q.copy()
    nan[3, 1, 2] = np.nan
    for kind, inputs in (
        (ShapeError, (q, k[:-1], v, a, b)),
        (ShapeError, (q[..., :8], k[..., :8], v, a, b)),
        (NonFiniteError, (nan, k, v, a, b)),
        (RangeError, (q, k, v * np.float32(1e30), a, b)),
    ):
        with pytest.raises(kind):
            engine.decode(*inputs)
    rest = engine.decode(q, k, v, a, b).output
    np.testing.assert_array_equal(np.concatenate([first, rest]), expected[0])


# Opening and closing


def test_close_frees_buffers_and_card() -> None:
    engine = opened()
    device = engine.board.device
    jobs = [engine.submit(*INPUTS.tokens(0, 8)) for _ in range(4)]
    assert buffers_of(engine) == 6, "two sets of three buffers"
    del jobs
    engine.close()
    assert live_buffers(device) == 0
    if default_front_end() == "pynq":
        with pytest.raises(BoardError, match="no overlay is loaded"):
            board_of(device)
    with pytest.raises(AcceleratorClosedError):
        engine.clear()
    engine = opened()  # the card is free again
    engine.decode(*INPUTS.tokens(0, 1))
    engine.close()


def test_failed_open_releases_the_card() -> None:
    with pytest.raises(RangeError):
        opened(timeout=-1)
    with pytest.raises(ShapeError):
        Accelerator.open("decode", shape=SHAPE, a_log=np.zeros(3), dt_bias=np.zeros(3))
    with opened() as engine:
        engine.decode(*INPUTS.tokens(0, 1))


def test_buffers_lie_in_the_banks_of_their_ports(engine) -> None:
    kernel = engine.board.kernel
    assert [kernel.bank(a) for a in ("qk", "v", "o", "result")] == [
        "HBM[0]",
        "HBM[1]",
        "HBM[2]",
        "HBM[2]",
    ]
    qk, o = (engine.board.allocate(argument, 4096) for argument in ("qk", "o"))
    with pytest.raises(WrongBankError, match=r"buffer for v .*HBM\[1\]"):
        kernel.launch(0, 0, 0, 0, qk, qk, o, o, 1000)
    with pytest.raises(BankFullError, match=r"HBM\[1\]"):
        engine.board.allocate("v", 1 << 30)
    qk.freebuffer()
    o.freebuffer()


def test_driver_binds_to_the_kernel_of_the_overlay() -> None:
    assert DecodeKernel.bindto == (load_interface(overlay_folder("decode")).vlnv,)


def test_unknown_boards_and_options_are_named() -> None:
    with pytest.raises(BoardNotFoundError, match="sim-u55c"):
        Accelerator.open("decode", board="u250")
    with pytest.raises(BoardNotFoundError, match="u999"):
        Accelerator.open("decode", board="sim-u999", shape=SHAPE)
    seen = "none" if default_front_end() == "pynq" else "0: xilinx_u55c"
    with pytest.raises(BoardNotFoundError, match=f"no card 99; PYNQ sees {seen}"):
        Accelerator.open("decode", board=99)
    if default_front_end() == "pynq":
        with pytest.raises(BoardNotFoundError, match="PYNQ sees none"):
            Accelerator.open("decode", board="u55c", overlay=Path("decode.xclbin"))
    with pytest.raises(
        InputError, match=r"unknown options read_latncy; allowed are .*read_latency"
    ):
        opened(read_latncy=3)
    with pytest.raises(InputError, match="read_latency=0"):
        opened(read_latency=0)
    with pytest.raises(InputError, match="options of simulated cards"):
        Accelerator.open("decode", board="u55c", seed=1)
    with pytest.raises(InputError, match="overlay is for real cards"):
        opened(overlay=Path("decode.xclbin"))
    with pytest.raises(InputError, match="head_dim=20"):
        Accelerator.open("decode", head_dim=20)
    with pytest.raises(InputError, match="available are decode, prefill"):
        Accelerator.open("train")
    with pytest.raises(InputError, match="needs a DecodeShape"):
        Accelerator.open("decode", shape=PrefillShape())
    with pytest.raises(InputError, match="unknown options a_log"):
        Accelerator.open("prefill", a_log=np.zeros(4))


def test_overlay_without_a_decode_kernel_is_refused() -> None:
    folder = Path(__file__).resolve().parents[1] / "kernels" / "vector_add"
    device, xclbin = open_device("u55c", folder)
    with pytest.raises(OverlayError, match=r"no decode kernel but .*vector_add"):
        PynqBoard(device, ENGINES["decode"], xclbin, lambda _: None, lambda: close_device(device))
    assert live_buffers(device) == 0
