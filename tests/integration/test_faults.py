# SPDX-License-Identifier: Apache-2.0
"""Faults on purpose, seen from the host, on both front ends of the simulated card.

After each: an error that says what happened, within its time-out; what was on the card is as
before, or declared lost; no buffer is left; and the next run is to the bit and to the cycle like
one on a card without faults.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from pynq.buffer import PynqBuffer

from fastdelta.accelerator import Accelerator
from fastdelta.bench.decode import DecodeInputs
from fastdelta.bench.prefill import model_output
from fastdelta.bench.prompts import synthetic_prompt
from fastdelta.boards import ENGINES, PynqBoard
from fastdelta.decode.runs import ContextState
from fastdelta.errors import (
    AxiError,
    BankFullError,
    BoardError,
    CardBusyError,
    ContextLostError,
    KernelError,
    KernelStatusError,
    KernelTimeoutError,
    MemoryFaultError,
    PreparedLostError,
)
from fastdelta.prefill.results import PrefillCounters, PrefillCycles, ResultBlock
from fastdelta.reference.sparse_index import SelectionParameters
from fastdelta.shapes import SMALL_DECODE, SMALL_PREFILL
from fastdelta.sim import (
    Fault,
    FaultKind,
    UnitFault,
    UnitFaultKind,
    board_of,
    close_device,
    live_buffers,
    open_device,
)
from fastdelta.sim.front_ends import default_front_end

pytestmark = pytest.mark.timeout(600)  # the first test of a shape builds its kernel

TIMEOUT = 0.5
SLACK = 20.0  # seconds on a machine with other work, in which a test must not have hung


@dataclass(frozen=True)
class Run:
    """What a run must reproduce."""

    output: np.ndarray
    cycles: int


class DecodeRig:
    """The decode engine: a run on context 0, with a state beside in context 1."""

    name, unit = "decode", "decode_1"
    ports: ClassVar = {"m_axi_qk": "read", "m_axi_v": "read", "m_axi_o": "write"}
    inputs_of_a_run = ("qk", "v")
    shape = SMALL_DECODE
    tokens = 24

    @cached_property
    def inputs(self) -> DecodeInputs:
        return DecodeInputs.synthetic(self.shape, self.tokens, seed=3)

    @cached_property
    def expected(self) -> np.ndarray:
        return self.inputs.model_outputs(self.shape)[0]

    def open(self, **options: Any):
        constants = {"a_log": self.inputs.a_log, "dt_bias": self.inputs.dt_bias}
        return Accelerator.open("decode", shape=self.shape, **constants, **options)

    def submit(self, engine):
        return engine.submit(*self.inputs.tokens(0, self.tokens))

    def run(self, engine) -> Run:
        engine.clear()
        result = self.submit(engine).wait()
        return Run(result.output, result.kernel_cycles)

    def leave_something(self, engine):
        engine.decode(*self.inputs.tokens(0, self.tokens), context=1)
        return engine.dump_state(1)

    def check_what_was_left(self, engine, image) -> bool:
        """Say whether it is as before; if not, it must be declared lost."""
        if engine.context_state(1) is ContextState.LOST:
            with pytest.raises(ContextLostError):
                engine.dump_state(1)
            return False
        np.testing.assert_array_equal(engine.dump_state(1).mantissa, image.mantissa)
        return True

    def declared_lost(self, engine) -> bool:
        return engine.context_state(0) is ContextState.LOST

    def larger_call(self, engine) -> None:
        many = [np.repeat(x, 40, axis=0) for x in self.inputs.tokens(0, self.tokens)]
        engine.decode(*many)


class PrefillRig:
    """The prefill engine: a run on prepared keys and values."""

    name, unit = "prefill", "prefill_1"
    ports: ClassVar = {
        "m_axi_q": "read",
        "m_axi_k": "read",
        "m_axi_v": "read",
        "m_axi_jobs": "write",
        "m_axi_o": "write",
    }
    inputs_of_a_run = ("q", "k", "v")
    shape = SMALL_PREFILL
    rule: ClassVar = {"gamma": 0.8, "tau": 0.1, "min_budget": 32}

    @cached_property
    def prompt(self):
        return synthetic_prompt(70, 32, heads=2, kv_heads=2, seed=1)

    @cached_property
    def expected(self) -> np.ndarray:
        return model_output(self.prompt, SelectionParameters(0.8, 0.1, 32, None, 16))[0]

    def open(self, **options: Any):
        return Accelerator.open("prefill", **{"board": "sim-u280", "shape": self.shape, **options})

    def submit(self, engine):
        return engine.submit(self.prompt.q, self.prompt.k, self.prompt.v, **self.rule)

    def run(self, engine) -> Run:
        result = self.submit(engine).wait()
        return Run(result.output, result.cycles.total)

    def leave_something(self, engine):
        return engine.prepare(self.prompt.k, self.prompt.v)

    def check_what_was_left(self, engine, resident) -> bool:
        """Say whether it is as before; if not, it must be declared lost."""
        if not resident.resident:
            with pytest.raises(PreparedLostError):
                engine.prefill(self.prompt.q, resident=resident)
            return False
        found = engine.prefill(self.prompt.q, resident=resident, **self.rule)
        np.testing.assert_array_equal(found.output, self.expected)
        return True

    def declared_lost(self, _engine) -> bool:
        return True  # a run leaves nothing behind

    def larger_call(self, engine) -> None:
        large = synthetic_prompt(500, 32, heads=2, kv_heads=2, seed=1)
        engine.prefill(large.q, large.k, large.v, indices="dense")


RIGS = {rig.name: rig for rig in (DecodeRig(), PrefillRig())}
Rig = DecodeRig | PrefillRig


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest) -> Rig:
    return RIGS[request.param]


@contextmanager
def opened(rig: Rig, **options: Any) -> Iterator[Any]:
    """Open an engine; as it gives its card back, no buffer may be left."""
    engine = rig.open(**{"timeout": TIMEOUT, "hang_cycles": 0, **options})
    left: list[int] = []
    board = engine.board
    close, device = board.close, board.device

    def look_and_close() -> None:
        model = board_of(device)
        left.append(live_buffers(device))
        left.append(sum(model.usage(bank).buffers for bank in range(len(model.platform.banks))))
        close()

    board.close = look_and_close
    with engine:
        yield engine
    assert left == [0, 0]


def card_of(engine: Any):
    """The board model behind an accelerator."""
    return board_of(engine.board.device)


@contextmanager
def soon(seconds: float = TIMEOUT) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + SLACK


@pytest.fixture(scope="module")
def clean() -> Callable[[Rig], Run]:
    """Return the run of a card without faults; it is the bit-exact model's."""
    known: dict[str, Run] = {}

    def run(rig: Rig) -> Run:
        if rig.name not in known:
            with opened(rig, timeout=60) as engine:
                known[rig.name] = rig.run(engine)
            np.testing.assert_array_equal(known[rig.name].output, rig.expected)
        return known[rig.name]

    return run


def assert_like(found: Run, expected: Run) -> None:
    np.testing.assert_array_equal(found.output, expected.output)
    assert found.cycles == expected.cycles


# Memory that answers with errors or never


PORTS = [(rig, port) for rig in RIGS.values() for port in rig.ports]


@pytest.mark.parametrize("kind", [FaultKind.SLVERR, FaultKind.DECERR])
@pytest.mark.parametrize(("rig", "name"), PORTS, ids=[f"{rig.name}-{port}" for rig, port in PORTS])
def test_axi_errors(clean, rig, name, kind) -> None:
    direction = rig.ports[name]
    with opened(rig) as engine:
        left = rig.leave_something(engine)
        card_of(engine).inject(rig.unit, name, Fault(kind, direction, count=1))
        with soon(), pytest.raises(AxiError, match=r"(READ|WRITE)_ERROR.*answered .* error"):
            rig.run(engine)
        assert rig.declared_lost(engine)
        assert rig.check_what_was_left(engine, left), "only the failed run's state is lost"
        assert_like(rig.run(engine), clean(rig))


@pytest.mark.parametrize("scheduler", [False, True])
@pytest.mark.parametrize("fault", ["memory", *UnitFaultKind])
def test_runs_that_never_end(rig, clean, fault, scheduler) -> None:
    """The host's time-out ends them, or the card's scheduler if it notices first."""
    limits = {"timeout": 60, "hang_cycles": 5000} if scheduler else {}
    with opened(rig, **limits) as engine:
        left = rig.leave_something(engine)
        if fault == "memory":
            port, direction = next(iter(rig.ports.items()))
            card_of(engine).inject(rig.unit, port, Fault(FaultKind.STUCK, direction))
        else:
            # Decode clears its context first.
            skip = 1 if rig.name == "decode" else 0
            card_of(engine).inject_unit(rig.unit, UnitFault(fault, skip=skip))
        with soon(60 if scheduler else TIMEOUT), pytest.raises(KernelTimeoutError) as caught:
            rig.run(engine)
        text = str(caught.value)
        assert ("given up by the card's scheduler" if scheduler else "within 0.5 s") in text
        if fault is UnitFaultKind.DEAD:
            assert "The registers cannot be read" in text or "STATUS=0xffffffff" in text
        else:
            assert "STATUS=0x" in text
            assert "BEATS" in text
        card_of(engine).clear_faults(rig.unit)
        assert not rig.check_what_was_left(engine, left), "the card was reset"
        assert_like(rig.run(engine), clean(rig))


# Memory that changes


@contextmanager
def while_waiting(engine: Any, rig: Rig) -> Iterator[Any]:
    """Submit a run that starts as the block is left; yield its job."""
    card_of(engine).set_busy(rig.unit, True)
    yield rig.submit(engine)
    card_of(engine).set_busy(rig.unit, False)


def address_of(engine: Any, argument: str) -> int:
    """Where the run that is waiting has its input or its result block."""
    (invocation,) = engine._queue._in_flight
    if argument in ("o", "result"):
        views = getattr(invocation, "views", None)
        return views.returned.device_address if views else invocation.buffers.result.device_address
    if hasattr(invocation, "views"):
        return getattr(invocation.views, argument).device_address
    return invocation.buffers.part(argument, 64).device_address


@pytest.mark.parametrize("bit", [3, 3000])
def test_flipped_bits_in_the_inputs(rig, clean, bit) -> None:
    for argument in rig.inputs_of_a_run:
        with opened(rig) as engine:
            left = rig.leave_something(engine)
            rig.run(engine)
            with while_waiting(engine, rig) as job:
                card_of(engine).flip_bit(address_of(engine, argument) + bit // 8, bit % 8)
            words = f"bank of {argument} what the host wrote .* memory has changed it"
            with soon(), pytest.raises(MemoryFaultError, match=words):
                job.wait()
            assert rig.declared_lost(engine)
            assert rig.check_what_was_left(engine, left)
            assert_like(rig.run(engine), clean(rig))


def test_flipped_bits_in_prepared_keys_and_values(clean) -> None:
    rig = RIGS["prefill"]
    prompt = rig.prompt
    for name in ("k", "v"):
        with opened(rig) as engine:
            resident = rig.leave_something(engine)
            resident.verify()
            card_of(engine).flip_bit(resident.part(name, range(1, 2)).device_address + 100, 6)
            with pytest.raises(MemoryFaultError, match=f"resident {name} .* not those"):
                engine.prefill(prompt.q, resident=resident, **rig.rule)
            assert not resident.resident
            with pytest.raises(PreparedLostError, match="memory of the card has changed them"):
                engine.prefill(prompt.q, resident=resident)
            resident.close()
            with engine.prepare(prompt.k, prompt.v) as again:
                found = engine.prefill(prompt.q, resident=again, **rig.rule)
                np.testing.assert_array_equal(found.output, rig.expected)
        with opened(rig) as engine:
            resident = rig.leave_something(engine)
            card_of(engine).flip_bit(resident.part(name, range(1)).device_address, 0)
            with pytest.raises(MemoryFaultError):
                resident.verify()
            assert_like(rig.run(engine), clean(rig))


@pytest.mark.parametrize("word", ["magic", "status", "progress", "cycles", "checksum", "check"])
def test_flipped_bits_in_the_result_block(rig, clean, word) -> None:
    block = ResultBlock(0, 0, 0, PrefillCycles(), PrefillCounters(kv_heads_done=1), 0)
    prefill_progress = np.flatnonzero(block.to_bytes().view(np.uint32)).tolist()[0]
    index = {
        "decode": {"progress": 3, "cycles": 4, "checksum": 18, "check": 31},
        "prefill": {"progress": prefill_progress, "cycles": 3, "checksum": 42, "check": 63},
    }[rig.name] | {"magic": 0, "status": 1}
    with opened(rig) as engine:
        left = rig.leave_something(engine)
        rig.run(engine)
        with while_waiting(engine, rig) as job:
            start = address_of(engine, "result")
            fault = Fault(
                FaultKind.FLIP,
                "write",
                first_address=start,
                last_address=start,
                count=1,
                bit=32 * index[word],
            )
            card_of(engine).inject(rig.unit, "m_axi_o", fault)
        with soon(), pytest.raises(MemoryFaultError, match=r"result block of .* did not come"):
            job.wait()
        card_of(engine).clear_faults(rig.unit)
        assert rig.declared_lost(engine)
        assert rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))


WAYS = [(rig, port, rig.ports[port]) for rig, port in PORTS]
WAYS.append((RIGS["prefill"], "m_axi_jobs", "read"))


@pytest.mark.parametrize("bit", [0, 77, 1000])
@pytest.mark.parametrize(
    ("rig", "name", "direction"),
    WAYS,
    ids=[f"{rig.name}-{port}-{direction}" for rig, port, direction in WAYS],
)
def test_flipped_bits_on_the_way(clean, rig, name, direction, bit) -> None:
    """Whatever a kernel reads or writes is checked; no result is silently wrong."""
    with opened(rig, timeout=60) as engine:
        left = rig.leave_something(engine)
        fault = Fault(FaultKind.FLIP, direction, count=1, bit=bit)
        card_of(engine).inject(rig.unit, name, fault)
        with soon(60), pytest.raises(MemoryFaultError):
            rig.run(engine)
        card_of(engine).clear_faults(rig.unit)
        assert rig.declared_lost(engine)
        assert rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))


def test_flipped_bits_in_the_outputs(rig, clean) -> None:
    """Memory changes after the kernel has written, and before the host reads."""
    with opened(rig, timeout=60) as engine:
        left = rig.leave_something(engine)
        rig.run(engine)
        job = rig.submit(engine)
        (invocation,) = engine._queue._in_flight
        while not invocation.run.wait(0.01):
            pass
        card_of(engine).flip_bit(address_of(engine, "o") + 4096 + 33, 5)
        with soon(), pytest.raises(MemoryFaultError, match=r"the output of .* did not come"):
            job.wait()
        assert rig.declared_lost(engine)
        assert rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))


def test_flipped_bits_of_a_state_on_its_way(clean) -> None:
    """A state that came in wrong is lost; one that went out wrong is still on the chip."""
    rig = RIGS["decode"]
    with opened(rig, timeout=60) as engine:
        image = rig.leave_something(engine)
        for port, direction in (("m_axi_v", "read"), ("m_axi_o", "write")):
            flip = Fault(FaultKind.FLIP, direction, count=1, bit=300)
            card_of(engine).inject(rig.unit, port, flip)
            with pytest.raises(MemoryFaultError):
                engine.dump_state(1) if direction == "write" else engine.load_state(image, 1)
            card_of(engine).clear_faults(rig.unit)
            if direction == "read":
                assert engine.context_state(1) is ContextState.LOST
                engine.load_state(image, 1)
            assert rig.check_what_was_left(engine, image)
        assert_like(rig.run(engine), clean(rig))


@pytest.mark.parametrize("flips", range(12))
def test_flipped_bits_in_job_lists(clean, flips) -> None:
    """What the kernel wrote and reads again, or the host reads."""
    rig = RIGS["prefill"]
    with opened(rig, timeout=60, watchdog_cycles=200_000) as engine:
        fault = Fault(FaultKind.FLIP, "write", count=1, bit=37 * flips)
        card_of(engine).inject(rig.unit, "m_axi_jobs", fault)
        with soon(60), pytest.raises(MemoryFaultError):
            rig.run(engine)
        card_of(engine).clear_faults(rig.unit)
        assert_like(rig.run(engine), clean(rig))


# A card that others use


def test_a_card_that_is_busy_when_it_is_opened(rig) -> None:
    board = "u55c" if rig.name == "decode" else "u280"
    device, xclbin = open_device(board, rig.name, rig.shape)
    try:
        first = PynqBoard(device, ENGINES[rig.name], xclbin, lambda _: None, lambda: None)
        device.free_bitstream()
        board_of(device).set_busy(rig.unit, True)
        with pytest.raises(CardBusyError, match=r"use(s the card|d? by another)"):
            PynqBoard(device, ENGINES[rig.name], xclbin, lambda _: None, lambda: None)
        board_of(device).set_busy(rig.unit, False)
        again = PynqBoard(device, ENGINES[rig.name], xclbin, lambda _: None, lambda: None)
        assert again.kernel is not first.kernel
        assert live_buffers(device) == 0
    finally:
        close_device(device)


def test_a_card_that_becomes_busy(rig, clean) -> None:
    with opened(rig) as engine:
        left = rig.leave_something(engine)
        card = card_of(engine)
        card.set_busy(rig.unit, True)
        with soon(), pytest.raises(KernelTimeoutError, match=r"within 0\.5 s"):
            rig.submit(engine).wait()
        if default_front_end() == "pynq":
            with pytest.raises(BoardError, match=r"did not come back after a reset .* another"):
                rig.run(engine)
            card.set_busy(rig.unit, False)
        else:  # resetting a card ends what others do on it
            assert_like(rig.run(engine), clean(rig))
        if rig.name == "prefill":
            assert not left.resident
    with opened(rig) as engine:
        assert_like(rig.run(engine), clean(rig))


def test_a_full_bank(rig, clean) -> None:
    with opened(rig, timeout=60) as engine:
        left = rig.leave_something(engine)
        rig.run(engine)
        card, kernel = card_of(engine), engine.board.kernel
        tag = kernel.bank(rig.inputs_of_a_run[0])
        bank = card.platform.bank_index(tag)
        card.limit_bank(bank, card.usage(bank).used)
        words = rf"bank {tag.replace('[', '.').replace(']', '.')} .* has no room"
        with soon(), pytest.raises(BankFullError, match=words):
            rig.larger_call(engine)
        assert rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))
        card.limit_bank(bank, None)
        rig.larger_call(engine)
        assert_like(rig.run(engine), clean(rig))


# A host that forgets


@pytest.mark.parametrize("fresh", [True, False])
def test_a_forgotten_sync_to_the_card(rig, clean, monkeypatch, fresh) -> None:
    """Whether the card has what nobody wrote, or what an earlier run left there."""
    for argument in rig.inputs_of_a_run:
        with opened(rig, timeout=60) as engine:
            left = None if fresh else rig.leave_something(engine)
            if not fresh:
                rig.larger_call(engine)
            bank = engine.board.kernel.memory(argument)
            addresses = range(bank.base_address, bank.base_address + bank.size)
            sync = PynqBuffer.sync_to_device

            def forget(buffer: Any, sync: Any = sync, addresses: range = addresses) -> None:
                if buffer.device_address not in addresses:
                    sync(buffer)

            with monkeypatch.context() as patch:
                patch.setattr(PynqBuffer, "sync_to_device", forget)
                words = f"bank of {argument} .*not copied to the card"
                with soon(), pytest.raises(MemoryFaultError, match=words):
                    rig.run(engine)
            assert rig.declared_lost(engine)
            assert fresh or rig.check_what_was_left(engine, left)
            assert_like(rig.run(engine), clean(rig))


def test_a_forgotten_sync_of_the_results(rig, clean, monkeypatch) -> None:
    with opened(rig) as engine:
        left = rig.leave_something(engine)
        rig.run(engine)
        job = rig.submit(engine)
        with monkeypatch.context() as patch:
            patch.setattr(PynqBuffer, "sync_from_device", lambda _: None)
            with soon(), pytest.raises(KernelStatusError, match="without writing a result block"):
                job.wait()
        assert rig.declared_lost(engine)
        assert rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))


def test_the_host_forgets_no_sync(rig, clean) -> None:
    """The kernel reads no memory that nobody wrote, whatever was allocated before."""
    with opened(rig, report_unwritten=True, timeout=60) as engine:
        card = card_of(engine)
        left = rig.leave_something(engine)
        rig.run(engine)
        rig.larger_call(engine)
        assert rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))
        assert [str(event) for event in card.events()] == []


# A process that is killed


def test_a_client_that_is_killed(rig, clean) -> None:
    """The driver aborts its commands and frees its buffers; who comes next finds a hung kernel."""
    with opened(rig) as engine:
        left = rig.leave_something(engine)
        card = card_of(engine)
        card.inject_unit(rig.unit, UnitFault(UnitFaultKind.STUCK))
        job = rig.submit(engine)
        assert not job.done
        card.kill_client()
        card.clear_faults(rig.unit)
        with soon(), pytest.raises(KernelError, match=r"scheduler.*(abort|reset|hangs)"):
            job.wait()
        assert not rig.check_what_was_left(engine, left)
        assert_like(rig.run(engine), clean(rig))


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from test_faults import *
rig = RIGS[sys.argv[2]]
engine = rig.open(hang_cycles=0)
left = rig.leave_something(engine)
card_of(engine).inject_unit(rig.unit, UnitFault(UnitFaultKind.STUCK))
job = rig.submit(engine)
print("running", job.done, flush=True)
job.wait()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_killed(rig, clean, how) -> None:
    clean(rig)
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), rig.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running False\n"
        process.send_signal(how)
        with soon(5.0):
            assert process.wait(60) != 0
    with opened(rig) as engine:
        assert_like(rig.run(engine), clean(rig))
