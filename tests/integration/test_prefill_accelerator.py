# SPDX-License-Identifier: Apache-2.0
"""The prefill accelerator on the simulated card, through PYNQ: results and failures.

What needs no RTL is tested in tests/unit/test_prefill_host.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from fastdelta.accelerator import Accelerator
from fastdelta.bench.prefill import model_output
from fastdelta.bench.prompts import Prompt, synthetic_prompt
from fastdelta.drivers.prefill import PrefillKernel
from fastdelta.errors import (
    AcceleratorClosedError,
    Aftermath,
    AxiError,
    BankFullError,
    KernelStatusError,
    KernelTimeoutError,
    NonFiniteError,
    PreparedLostError,
    WrongBankError,
)
from fastdelta.interface import load_interface
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.quantise import dequantise_attention, quantise_prompt
from fastdelta.prefill.results import PrefillResult
from fastdelta.reference.attention import block_sparse_attention
from fastdelta.reference.prefill_model import selected_attention
from fastdelta.reference.sparse_index import IndexSet, Pattern, SelectionParameters
from fastdelta.shapes import SMALL_PREFILL, PrefillShape
from fastdelta.sim import Fault, FaultKind, board_of, live_buffers
from fastdelta.sim.paths import overlay_folder

pytestmark = pytest.mark.timeout(900)  # the first test of a shape builds its kernel

SHAPE = SMALL_PREFILL
PROMPT = synthetic_prompt(200, 32, heads=4, kv_heads=2, seed=1)
RULE = {"gamma": 0.8, "tau": 0.1, "min_budget": 32}
UNIT = "prefill_1"
PORTS = {
    "m_axi_q": "read",
    "m_axi_k": "read",
    "m_axi_v": "read",
    "m_axi_jobs": "write",
    "m_axi_o": "write",
}


def opened(shape: PrefillShape = SHAPE, **options) -> PrefillAccelerator:
    return Accelerator.open("prefill", **{"board": "sim-u280", "shape": shape, **options})


@pytest.fixture
def engine() -> Iterator[PrefillAccelerator]:
    with opened() as accelerator:
        yield accelerator


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray, IndexSet]:
    """Output and blocks of the bit-exact model."""
    return model(PROMPT, **RULE)


def model(prompt: Prompt, gamma: float, tau: float, min_budget: int, block: int = 16):
    return model_output(prompt, SelectionParameters(gamma, tau, min_budget, None, block))


def read(engine: PrefillAccelerator, prompt: Prompt = PROMPT, **changes) -> PrefillResult:
    return engine.prefill(prompt.q, prompt.k, prompt.v, **{**RULE, **changes})


def attended(prompt: Prompt, index_set: IndexSet, block: int = 16) -> np.ndarray:
    """Output of the bit-exact model over given blocks."""
    quantised = quantise_prompt(prompt.q, prompt.k, prompt.v)
    outputs, _ = selected_attention(quantised.operands, index_set, block)
    return dequantise_attention(outputs, quantised.v_scale)


def card_of(engine: PrefillAccelerator):
    """The board model behind an accelerator."""
    return board_of(engine.board.device)


# Results


@pytest.mark.parametrize("stalls", [0.0, 0.3])
@pytest.mark.parametrize("board", ["sim-u55c", "sim-u280"])
def test_output_and_blocks_equal_the_model(expected, board, stalls) -> None:
    with opened(board=board, stalls=stalls, seed=5) as engine:
        result = read(engine)
    np.testing.assert_array_equal(result.output, expected[0])
    assert result.index_set == expected[1]
    assert result.simulated
    assert result.provenance.board == board
    float_output = block_sparse_attention(PROMPT.q, PROMPT.k, PROMPT.v, result.index_set, 16).output
    difference = np.linalg.norm(result.output - float_output)
    assert difference <= 0.03 * np.linalg.norm(float_output)


@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads"), [(1, 1, 1), (15, 4, 1), (16, 2, 2), (33, 6, 2), (300, 3, 1)]
)
@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_any_prompt_and_group(engine, tokens, heads, kv_heads, tau) -> None:
    prompt = synthetic_prompt(tokens, 32, heads=heads, kv_heads=kv_heads, seed=tokens)
    result = read(engine, prompt, tau=tau)
    output, index_set = model(prompt, 0.8, tau, 32)
    np.testing.assert_array_equal(result.output, output)
    assert result.index_set == index_set
    assert set(result.patterns) == {Pattern.QUERY_AWARE if tau else Pattern.VERTICAL_SLASH}
    assert result.counters.empty_rows == 0
    assert result.counters.jobs_done == len(index_set.columns)


def test_gamma_1_equals_dense_to_the_bit(engine) -> None:
    dense = read(engine, indices="dense")
    assert dense.density == 1
    np.testing.assert_array_equal(read(engine, gamma=1, tau=0).output, dense.output)
    np.testing.assert_array_equal(dense.output, attended(PROMPT, IndexSet.dense(4, 13)))


def test_blocks_of_the_caller(engine) -> None:
    mask = np.tril(np.random.default_rng(3).random((4, 13, 13)) < 0.3)
    mask[:, range(13), range(13)] = True
    given = IndexSet.from_mask(mask)
    result = read(engine, indices=given)
    np.testing.assert_array_equal(result.output, attended(PROMPT, given))
    assert result.counters.jobs_beats_written == 0


@pytest.mark.parametrize("window", [1, 2, 4])
def test_cache_and_window_change_no_bit_but_the_traffic(engine, expected, window) -> None:
    cached, uncached = (read(engine, window=window, cache=cache) for cache in (True, False))
    for result in (cached, uncached):
        np.testing.assert_array_equal(result.output, expected[0])
        assert result.counters.cache_visits == (
            result.counters.cache_hits + result.counters.cache_misses
        )
    assert uncached.cache_hit_rate == 0 < cached.cache_hit_rate
    for port in ("k", "v"):
        assert cached.memory_bytes[port] < uncached.memory_bytes[port]
    assert cached.memory_bytes["v"] == cached.counters.cache_misses * SHAPE.v_block_bytes


def test_evidence_is_plausible(engine) -> None:
    result = read(engine)
    assert 0.9 < result.mpu_utilisation <= 1
    assert 0 < result.cycles.index < result.cycles.attention < result.cycles.total
    assert result.memory_bytes["o"] == 4 * SHAPE.o_head_bytes(200)
    assert result.counters.kv_heads_done == 2
    assert result.counters.index_tiles == 4 * 13
    assert result.seconds.launch > 0
    assert result.provenance.options["read_latency"] == 64


def test_prepared_keys_and_values_stay_on_the_card(engine, expected) -> None:
    with engine.prepare(PROMPT.k, PROMPT.v) as resident:
        for sign in (1, -1, 1):
            result = engine.prefill(sign * PROMPT.q, resident=resident, **RULE)
            other = Prompt(sign * PROMPT.q, PROMPT.k, PROMPT.v, {})
            np.testing.assert_array_equal(result.output, model(other, **RULE)[0])
    np.testing.assert_array_equal(read(engine).output, expected[0])


def test_a_full_bank_splits_the_call_by_kv_heads(expected) -> None:
    with opened(board="sim-u280") as engine:
        bank = engine.board.kernel.memory("k")
        filler = engine.board.allocate("k", bank.size - SHAPE.k_head_bytes(200) - 4096)
        result = read(engine)
        assert result.invocations == 2
        np.testing.assert_array_equal(result.output, expected[0])
        assert result.index_set == expected[1]
        with pytest.raises(BankFullError, match=r"HBM\[0\]") as caught:
            engine.prepare(PROMPT.k, PROMPT.v)
        assert "Pass k and v to prefill" in caught.value.__notes__[0]
        filler.freebuffer()


def test_two_cards_at_once(expected) -> None:
    with opened() as one, opened(board="sim-u55c") as other:
        for engine in (one, other):
            np.testing.assert_array_equal(read(engine).output, expected[0])


# Failures


@pytest.mark.parametrize("kind", [FaultKind.SLVERR, FaultKind.DECERR])
@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("skip", [0, 1])
def test_axi_error_fails_the_run_and_the_next_is_clean(engine, expected, kind, port, skip) -> None:
    resident = engine.prepare(PROMPT.k, PROMPT.v)
    card_of(engine).inject(UNIT, port, Fault(kind, PORTS[port], skip=skip, count=1))
    status = "READ_ERROR" if PORTS[port] == "read" else "WRITE_ERROR"
    with pytest.raises(AxiError, match=status) as caught:
        engine.prefill(PROMPT.q, resident=resident, **RULE)
    assert caught.value.aftermath is Aftermath.PREPARED_KEPT
    found = engine.prefill(PROMPT.q, resident=resident, **RULE).output
    np.testing.assert_array_equal(found, expected[0])


def test_watchdog_ends_a_run(engine, expected) -> None:
    engine.watchdog_cycles = 2000
    with pytest.raises(KernelTimeoutError, match=r"TIMEOUT.*watchdog.*STATUS=0xa"):
        read(engine)
    engine.watchdog_cycles = None
    np.testing.assert_array_equal(read(engine).output, expected[0])


def test_query_aware_map_that_does_not_fit_is_explained(engine, expected) -> None:
    prompt = synthetic_prompt(500, 32, heads=2, seed=1)
    with pytest.raises(KernelStatusError, match=r"MAP_OVERFLOW: .*300 entries .* pass tau=0"):
        read(engine, prompt, tau=1)
    found = read(engine, prompt, tau=0)
    np.testing.assert_array_equal(found.output, model(prompt, 0.8, 0, 32)[0])
    np.testing.assert_array_equal(read(engine).output, expected[0])


@pytest.mark.parametrize("port", PORTS)
def test_memory_that_never_answers_ends_within_the_time_out(expected, port) -> None:
    with opened(timeout=0.5, hang_cycles=0) as engine:
        resident = engine.prepare(PROMPT.k, PROMPT.v)
        card_of(engine).inject(UNIT, port, Fault(FaultKind.STUCK, PORTS[port], skip=1))
        began = time.monotonic()
        with pytest.raises(
            KernelTimeoutError, match=r"within 0\.5 s.*STATUS=.*K_BEATS_LOW="
        ) as caught:
            read(engine)
        assert time.monotonic() - began < 20
        assert caught.value.aftermath is Aftermath.PREPARED_LOST
        with pytest.raises(PreparedLostError):
            engine.prefill(PROMPT.q, resident=resident)
        card_of(engine).clear_faults(UNIT)
    with opened() as engine:
        np.testing.assert_array_equal(read(engine).output, expected[0])


def test_card_that_gives_a_run_up_is_reset(expected) -> None:
    with opened(hang_cycles=5000) as engine:
        card_of(engine).inject(UNIT, "m_axi_k", Fault(FaultKind.STUCK, "read"))
        with pytest.raises(KernelTimeoutError, match=r"scheduler.*hangs"):
            read(engine)
        card_of(engine).clear_faults(UNIT)
        np.testing.assert_array_equal(read(engine).output, expected[0])


def test_wrong_inputs_do_not_reach_the_card(engine, expected) -> None:
    nan = PROMPT.q.copy()
    nan[3, 1, 2] = np.nan
    with pytest.raises(NonFiniteError):
        engine.prefill(nan, PROMPT.k, PROMPT.v)
    np.testing.assert_array_equal(read(engine).output, expected[0])


# Opening and closing


def test_close_frees_buffers_and_card() -> None:
    engine = opened()
    device = engine.board.device
    engine.prepare(PROMPT.k, PROMPT.v)
    read(engine)
    engine.close()
    assert live_buffers(device) == 0
    with pytest.raises(AcceleratorClosedError):
        read(engine)


def test_sizes_by_name_make_the_kernel(expected) -> None:
    sizes = {name: getattr(SHAPE, name) for name in SHAPE.__dataclass_fields__}
    with Accelerator.open("prefill", board="sim-u280", **sizes) as engine:
        assert engine.shape == SHAPE
        np.testing.assert_array_equal(read(engine).output, expected[0])


def test_buffers_lie_in_the_banks_of_their_ports(engine) -> None:
    kernel = engine.board.kernel
    arguments = ("q", "k", "v", "jobs", "o", "result")
    banks = ["DDR[0]", "HBM[0]", "HBM[1]", "HBM[2]", "DDR[1]", "DDR[1]"]
    assert [kernel.bank(argument) for argument in arguments] == banks
    k = engine.board.allocate("k", 4096)
    with pytest.raises(WrongBankError, match=r"buffer for q .*DDR\[0\]"):
        kernel.launch(0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 1, k, k, k, k, k, k, 4096, 0)
    k.freebuffer()


def test_driver_binds_to_the_kernel_of_the_overlay() -> None:
    assert PrefillKernel.bindto == (load_interface(overlay_folder("prefill")).vlnv,)
