# SPDX-License-Identifier: Apache-2.0
"""Load for a long time: prefill and decode calls of every kind from several threads and processes.

Each process has two cards, one with the decode and one with the prefill engine, and threads that
call them: decode threads with a context each, in pieces of random length, through jobs, awaited,
with states read and loaded in between; prefill threads with prompts of several lengths, blocks that
the kernel or the caller chooses, and prepared keys and values. Every result is compared to the bit
with the models, whose results are computed before. Cards are opened anew in every round. What is
allocated on a card as it is closed, and a host process that grows, are leaks.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from fastdelta.accelerator import Accelerator
from fastdelta.arrays import Float32Array
from fastdelta.bench.decode import DecodeInputs, Progress
from fastdelta.bench.prompts import Prompt, synthetic_prompt
from fastdelta.boards import SIMULATED
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.decode.quantise import (
    GateConstants,
    dequantise_output,
    quantise_internal_gates,
    quantise_tokens,
)
from fastdelta.errors import InputError
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.quantise import dequantise_attention, quantise_prompt
from fastdelta.prefill.results import PrefillResult
from fastdelta.reference.decode_model import DecodeModel, StateImage
from fastdelta.reference.index_model import IndexParameters, generate_index
from fastdelta.reference.prefill_model import selected_attention
from fastdelta.reference.sparse_index import IndexSet, SelectionParameters
from fastdelta.shapes import SMALL_DECODE, SMALL_PREFILL

MAX_GROWTH: Final = 0.01
"""Growth of a process after its warm-up that counts as flat."""

DEFAULT_SECONDS: Final = 600.0
DEFAULT_PROCESSES: Final = 2
DEFAULT_PREFILL_THREADS: Final = 2
MIN_SECONDS: Final = 5.0

_SEQUENCES = 3
_TOKENS = 40  # of a sequence
_PROMPTS = ((17, 2, 1), (48, 4, 2), (75, 2, 2))  # tokens, heads, KV heads
_RULE = SelectionParameters(0.8, 0.1, 32, None, SMALL_PREFILL.block)
_ROUND_SECONDS = 15.0
_FEWEST_ROUNDS = 12
_WARM_UP = 0.25  # of the time
_LOOK_SECONDS = 0.25  # how often to see whether processes have ended
_NAMES = 100_000
_GRACE_SECONDS = 120.0  # for a process to start and to end
_SHOWN_FAULTS = 20


@dataclass(frozen=True)
class SoakOptions:
    """What one process shall do."""

    seconds: float
    prefill_threads: int
    seed: int
    decode_board: str
    prefill_board: str


@dataclass
class ProcessReport:
    """What one process did.

    Attributes
    ----------
    calls : dict
        Calls by kind.
    wrong : int
        Results that were not those of the models.
    errors : int
        Calls, or processes, that ended with an error.
    faults : list of str
        The first wrong results and errors, in words.
    leaked_buffers : int
        Buffers that were allocated as a card was closed.
    rounds : int
        Times that both cards were opened and closed.
    warm_mib, final_mib : float
        Resident memory after the warm-up and at the end, medians.
    """

    calls: dict[str, int] = field(default_factory=dict)
    wrong: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list)
    leaked_buffers: int = 0
    rounds: int = 0
    warm_mib: float = 0.0
    final_mib: float = 0.0

    @property
    def growth(self) -> float:
        """Growth of the resident memory after the warm-up, as a share."""
        return self.final_mib / self.warm_mib - 1 if self.warm_mib else 0.0


@dataclass(frozen=True)
class SoakReport:
    """What all processes did; `to_dict` names the figures as ``fastdelta bench`` prints them."""

    options: dict[str, Any]
    processes: tuple[ProcessReport, ...]
    seconds: float

    @property
    def calls(self) -> dict[str, int]:
        """Calls of all processes by kind."""
        total: Counter[str] = Counter()
        for process in self.processes:
            total.update(process.calls)
        return dict(sorted(total.items()))

    @property
    def wrong(self) -> int:
        """Results that were not those of the models."""
        return sum(process.wrong for process in self.processes)

    @property
    def errors(self) -> int:
        """Calls and processes that ended with an error."""
        return sum(process.errors for process in self.processes)

    @property
    def faults(self) -> list[str]:
        """The first wrong results and errors."""
        return [fault for process in self.processes for fault in process.faults]

    @property
    def leaked_buffers(self) -> int:
        """Buffers that were allocated as a card was closed."""
        return sum(process.leaked_buffers for process in self.processes)

    @property
    def growth(self) -> float:
        """Growth of the process that grew most."""
        return max(process.growth for process in self.processes)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong, leaked or grew."""
        return (
            not self.wrong
            and not self.errors
            and not self.leaked_buffers
            and self.growth < MAX_GROWTH
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        return {
            "bench": "soak",
            "simulated": True,
            "passed": self.passed,
            "seconds": self.seconds,
            "calls": self.calls,
            "calls_in_all": sum(self.calls.values()),
            "wrong": self.wrong,
            "errors": self.errors,
            "faults": self.faults,
            "leaked_buffers": self.leaked_buffers,
            "memory_growth": self.growth,
            "processes": [
                {**asdict(process), "growth": process.growth} for process in self.processes
            ],
            "options": self.options,
        }


# What the models say


@dataclass(frozen=True, eq=False)
class _Sequence:
    """Tokens of a sequence, their outputs, and the state before each and after the last."""

    inputs: DecodeInputs
    outputs: Float32Array
    states: tuple[StateImage, ...]

    @classmethod
    def of(cls, seed: int) -> _Sequence:
        inputs = DecodeInputs.synthetic(SMALL_DECODE, _TOKENS, seed)
        constants = GateConstants.from_float(inputs.a_log, inputs.dt_bias)
        gates = quantise_internal_gates(inputs.a, inputs.b, constants)
        wire = quantise_tokens(inputs.q, inputs.k, inputs.v, gates)
        model = DecodeModel(SMALL_DECODE)
        words, states = [], [model.dump()[0]]
        for token in range(_TOKENS):
            words.append(model.decode(wire.slice(token, token + 1))[0])
            states.append(model.dump()[0])
        return cls(inputs, dequantise_output(SMALL_DECODE, np.concatenate(words)), tuple(states))


@dataclass(frozen=True, eq=False)
class _KnownPrompt:
    """A prompt, and output and blocks by the kernel's choice, all blocks, and given ones."""

    prompt: Prompt
    by_rule: tuple[Float32Array, IndexSet]
    dense: Float32Array
    given: tuple[Float32Array, IndexSet]

    @classmethod
    def of(cls, tokens: int, heads: int, kv_heads: int, seed: int) -> _KnownPrompt:
        prompt = synthetic_prompt(
            tokens, SMALL_PREFILL.head_dim, heads=heads, kv_heads=kv_heads, seed=seed
        )
        quantised = quantise_prompt(prompt.q, prompt.k, prompt.v)
        blocks = SMALL_PREFILL.blocks(tokens)
        parameters = IndexParameters.from_selection(_RULE, tokens)
        chosen = generate_index(quantised.operands, parameters).index_set
        mask = np.tril(np.random.default_rng(seed).random((heads, blocks, blocks)) < 0.4)
        mask[:, range(blocks), range(blocks)] = True
        given = IndexSet.from_mask(mask)

        def attention(index_set: IndexSet) -> Float32Array:
            outputs, _ = selected_attention(quantised.operands, index_set, SMALL_PREFILL.block)
            return dequantise_attention(outputs, quantised.v_scale)

        return cls(
            prompt,
            (attention(chosen), chosen),
            attention(IndexSet.dense(heads, blocks)),
            (attention(given), given),
        )


# What a process does


class _Tally:
    """Calls and faults of all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.report = ProcessReport()
        self._calls: Counter[str] = Counter()

    def count(self, kind: str, right: bool, what: str) -> None:
        """Note a call and whether its result was the models'."""
        with self._lock:
            self._calls[kind] += 1
            self.report.calls = dict(self._calls)
            if not right:
                self.report.wrong += 1
                self._note(f"{kind} of {what} is wrong")

    def fault(self, what: str) -> None:
        """Note an error."""
        with self._lock:
            self.report.errors += 1
            self._note(what)

    def _note(self, what: str) -> None:
        if len(self.report.faults) < _SHOWN_FAULTS:
            self.report.faults.append(what)


def _same_state(one: StateImage, other: StateImage) -> bool:
    return np.array_equal(one.mantissa, other.mantissa) and np.array_equal(one.scale, other.scale)


class _DecodeCaller:
    """A thread's calls of a decode engine, on one context."""

    def __init__(
        self,
        engine: DecodeAccelerator,
        context: int,
        sequences: Sequence[_Sequence],
        tally: _Tally,
        draw: random.Random,
    ) -> None:
        self._engine, self._context, self._sequences = engine, context, sequences
        self._tally, self._draw = tally, draw
        self._sequence = sequences[0]
        self._position = _TOKENS

    def call(self) -> None:
        """Make one call, or a few that belong together."""
        if self._position >= _TOKENS:
            self._sequence, self._position = self._draw.choice(self._sequences), 0
            inputs = self._sequence.inputs
            self._engine.clear(self._context)
            self._engine.configure(self._context, a_log=inputs.a_log, dt_bias=inputs.dt_bias)
            self._tally.count("clear", True, "")
            return
        kinds = (self._decode, self._one_token, self._jobs, self._await, self._dump, self._load)
        self._draw.choices(kinds, weights=(6, 6, 3, 2, 1, 1))[0]()

    def _piece(self) -> tuple[tuple[Float32Array, ...], Float32Array]:
        """Take the next tokens; return them and the outputs that they must have."""
        start = self._position
        stop = min(start + self._draw.randrange(7), _TOKENS)
        self._position = stop
        return self._sequence.inputs.tokens(start, stop), self._sequence.outputs[start:stop]

    def _check(self, kind: str, found: Float32Array, expected: Float32Array) -> None:
        what = f"{len(expected)} tokens before {self._position} on context {self._context}"
        self._tally.count(kind, np.array_equal(found, expected), what)

    def _decode(self) -> None:
        inputs, expected = self._piece()
        self._check("decode", self._engine.decode(*inputs, context=self._context).output, expected)

    def _one_token(self) -> None:
        at = self._position
        self._position += 1
        token = [x[at] for x in self._sequence.inputs.tokens(0, _TOKENS)]
        found = self._engine.decode(*token, context=self._context).output
        self._check("decode of one token", found, self._sequence.outputs[at])

    def _jobs(self) -> None:
        pieces = [self._piece() for _ in range(3)]
        jobs = [self._engine.submit(*inputs, context=self._context) for inputs, _ in pieces]
        for job, (_, expected) in reversed([*zip(jobs, pieces, strict=True)]):
            self._check("decode job", job.wait().output, expected)

    def _await(self) -> None:
        inputs, expected = self._piece()

        async def decode() -> Float32Array:
            return (await self._engine.submit(*inputs, context=self._context)).output

        self._check("decode awaited", asyncio.run(decode()), expected)

    def _dump(self) -> None:
        found = self._engine.dump_state(self._context)
        right = _same_state(found, self._sequence.states[self._position])
        self._tally.count("dump", right, f"context {self._context} at {self._position}")

    def _load(self) -> None:
        self._position = self._draw.randrange(_TOKENS)
        self._engine.load_state(self._sequence.states[self._position], self._context)
        self._tally.count("load", True, "")


class _PrefillCaller:
    """A thread's calls of a prefill engine."""

    def __init__(
        self,
        engine: PrefillAccelerator,
        prompts: Sequence[_KnownPrompt],
        tally: _Tally,
        draw: random.Random,
    ) -> None:
        self._engine, self._prompts, self._tally, self._draw = engine, prompts, tally, draw

    def call(self) -> None:
        """Make one call, or a few that belong together."""
        known = self._draw.choice(self._prompts)
        kinds = (self._by_rule, self._dense, self._given, self._jobs, self._await, self._prepared)
        self._draw.choices(kinds, weights=(4, 2, 2, 2, 1, 2))[0](known)

    def _options(self) -> dict[str, Any]:
        return {
            "gamma": _RULE.gamma,
            "tau": _RULE.tau,
            "min_budget": _RULE.min_budget,
            "cache": self._draw.random() < 0.7,
            "window": self._draw.choice((None, 1, 2)),
        }

    def _check(
        self, kind: str, known: _KnownPrompt, found: PrefillResult, expected: Float32Array
    ) -> None:
        what = f"{found.tokens} tokens for {len(expected)} heads"
        right = np.array_equal(found.output, expected)
        if "rule" in kind:
            right = right and found.index_set == known.by_rule[1]
        self._tally.count(kind, right, what)

    def _inputs(self, known: _KnownPrompt) -> tuple[Float32Array, Float32Array, Float32Array]:
        return known.prompt.q, known.prompt.k, known.prompt.v

    def _by_rule(self, known: _KnownPrompt) -> None:
        found = self._engine.prefill(*self._inputs(known), **self._options())
        self._check("prefill by rule", known, found, known.by_rule[0])

    def _dense(self, known: _KnownPrompt) -> None:
        found = self._engine.prefill(*self._inputs(known), indices="dense")
        self._check("prefill dense", known, found, known.dense)

    def _given(self, known: _KnownPrompt) -> None:
        found = self._engine.prefill(*self._inputs(known), indices=known.given[1])
        self._check("prefill of given blocks", known, found, known.given[0])

    def _jobs(self, known: _KnownPrompt) -> None:
        others = [known, self._draw.choice(self._prompts)]
        jobs = [self._engine.submit(*self._inputs(each), **self._options()) for each in others]
        for job, each in reversed([*zip(jobs, others, strict=True)]):
            self._check("prefill job by rule", each, job.wait(), each.by_rule[0])

    def _await(self, known: _KnownPrompt) -> None:
        async def prefill() -> PrefillResult:
            return await self._engine.submit(*self._inputs(known), indices="dense")

        self._check("prefill awaited", known, asyncio.run(prefill()), known.dense)

    def _prepared(self, known: _KnownPrompt) -> None:
        q, k, v = self._inputs(known)
        with self._engine.prepare(k, v) as resident:
            for _ in range(2):
                found = self._engine.prefill(q, resident=resident, **self._options())
                self._check("prefill prepared by rule", known, found, known.by_rule[0])


@contextmanager
def _watched(engine: DecodeAccelerator | PrefillAccelerator, tally: _Tally) -> Iterator[None]:
    """Close an engine at the end, and count what it leaves allocated on its card."""
    from fastdelta.sim import live_buffers

    board: Any = engine.board
    close, device = board.close, board.device

    def look_and_close() -> None:
        tally.report.leaked_buffers += live_buffers(device)
        close()

    board.close = look_and_close
    with engine:
        yield


def _resident_mib() -> float:
    """Return the resident memory, without what the allocator keeps for later."""
    gc.collect()
    with suppress(AttributeError):  # the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class _MemoryLog:
    """Resident memory of this process over time, with all cards closed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._samples: list[tuple[float, float]] = []

    def sample(self) -> None:
        """Note what it is now."""
        self._samples.append((time.monotonic() - self._began, _resident_mib()))

    def medians(self) -> tuple[float, float]:
        """Return the medians of the first and the last quarter after the warm-up."""
        end = self._samples[-1][0]
        warm = [mib for when, mib in self._samples if when >= _WARM_UP * end]
        quarter = max(len(warm) // 4, 1)
        return statistics.median(warm[:quarter]), statistics.median(warm[-quarter:])


def _settle_strings() -> None:
    """Let Python's table of interned strings grow now.

    Loading overlays makes and drops names, until at some time the table is made anew, once, with
    twice the size: a step of a megabyte that is no leak.
    """
    for number in range(_NAMES):
        sys.intern(f"a name that nothing else has {number}")


def run_process(options: SoakOptions) -> ProcessReport:
    """Make calls for some seconds, after both kernels were built."""
    draw = random.Random(options.seed)
    sequences = [_Sequence.of(seed) for seed in range(_SEQUENCES)]
    prompts = [_KnownPrompt.of(*sizes, seed=seed) for seed, sizes in enumerate(_PROMPTS)]
    tally, memory = _Tally(), _MemoryLog()
    end = time.monotonic() + options.seconds
    while time.monotonic() < end and not tally.report.faults:
        _round(options, sequences, prompts, tally, draw, end)
        tally.report.rounds += 1
        if tally.report.rounds == 1:
            _settle_strings()
        memory.sample()
    tally.report.warm_mib, tally.report.final_mib = memory.medians()
    return tally.report


def _round(
    options: SoakOptions,
    sequences: Sequence[_Sequence],
    prompts: Sequence[_KnownPrompt],
    tally: _Tally,
    draw: random.Random,
    end: float,
) -> None:
    """Open both cards, call them from all threads for a while, and close them."""
    stop = threading.Event()

    def work(caller: _DecodeCaller | _PrefillCaller) -> None:
        try:
            while not stop.is_set():
                caller.call()
        except BaseException:
            tally.fault(traceback.format_exc())
            stop.set()

    decode = Accelerator.open("decode", board=options.decode_board, shape=SMALL_DECODE)
    with _watched(decode, tally):
        prefill = Accelerator.open("prefill", board=options.prefill_board, shape=SMALL_PREFILL)
        with _watched(prefill, tally):
            seeds = iter(lambda: random.Random(draw.random()), None)
            callers: list[_DecodeCaller | _PrefillCaller] = [
                _DecodeCaller(decode, context, sequences, tally, next(seeds))
                for context in range(SMALL_DECODE.contexts)
            ]
            callers += [
                _PrefillCaller(prefill, prompts, tally, next(seeds))
                for _ in range(options.prefill_threads)
            ]
            threads = [threading.Thread(target=work, args=(caller,)) for caller in callers]
            for thread in threads:
                thread.start()
            until = min(
                time.monotonic() + min(_ROUND_SECONDS, options.seconds / _FEWEST_ROUNDS), end
            )
            stop.wait(max(until - time.monotonic(), 0.0))
            stop.set()
            for thread in threads:
                thread.join()


# All processes


def run_soak(
    seconds: float = DEFAULT_SECONDS,
    *,
    processes: int = DEFAULT_PROCESSES,
    prefill_threads: int = DEFAULT_PREFILL_THREADS,
    decode_board: str = "sim-u55c",
    prefill_board: str = "sim-u280",
    seed: int = 0,
    progress: Progress | None = None,
) -> SoakReport:
    """Load simulated cards from several processes, and check everything.

    Parameters
    ----------
    seconds : float
        How long, at least 5.
    processes : int
        Processes; each has two cards of its own.
    prefill_threads : int
        Threads of a process that call its prefill engine, beside one for each decode context.
    decode_board, prefill_board : str
        Simulated cards.
    seed : int
        Seed of what is called when.
    progress : callable, optional
        Told how far the bench is.

    Raises
    ------
    InputError
        If an argument cannot be used.
    """
    if not seconds >= MIN_SECONDS:
        raise InputError(f"seconds is {seconds:g}; allowed is {MIN_SECONDS:g} and more")
    if processes < 1 or prefill_threads < 1:
        raise InputError("processes and prefill_threads must be at least 1")
    for board in (decode_board, prefill_board):
        if not board.startswith(SIMULATED):
            raise InputError(f"board {board!r}: the soak bench loads simulated cards")
    tell = progress or (lambda *_: None)
    tell("kernels", 0, 2)
    Accelerator.open("decode", board=decode_board, shape=SMALL_DECODE).close()
    tell("kernels", 1, 2)
    Accelerator.open("prefill", board=prefill_board, shape=SMALL_PREFILL).close()
    tell("kernels", 2, 2)
    options = [
        SoakOptions(seconds, prefill_threads, seed * 1000 + number, decode_board, prefill_board)
        for number in range(processes)
    ]
    began = time.monotonic()
    workers = [_Worker(each) for each in options]
    deadline = began + seconds + _GRACE_SECONDS
    while any(worker.running for worker in workers) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        passed = min(int(time.monotonic() - began), int(seconds))
        tell("seconds", passed, int(seconds))
    reports = tuple(worker.finish() for worker in workers)
    shown = {
        "processes": processes,
        "prefill_threads": prefill_threads,
        "decode_threads": SMALL_DECODE.contexts,
        "decode_board": decode_board,
        "prefill_board": prefill_board,
        "seed": seed,
        "max_growth": MAX_GROWTH,
    }
    return SoakReport(shown, reports, time.monotonic() - began)


class _Worker:
    """One process; it writes what it has done as a line of JSON."""

    def __init__(self, options: SoakOptions) -> None:
        command = [sys.executable, "-m", "fastdelta.bench.soak", json.dumps(asdict(options))]
        # What glibc keeps for each thread that ever ran would look like growth.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._output: tuple[str, str] = ("", "")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self._output = self._process.communicate()

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._process.poll() is None

    def finish(self) -> ProcessReport:
        """Return what it reported; a process that did not end is ended, which is a fault."""
        late = self.running
        if late:
            self._process.kill()
        self._reader.join()
        output, errors = self._output
        try:
            report = ProcessReport(**json.loads(output.splitlines()[-1]))
        except (ValueError, IndexError, TypeError):
            report = ProcessReport()
        if late:
            report.errors += 1
            report.faults.append(f"a process did not end: {errors}")
        elif self._process.returncode != 0 or not report.calls:
            report.errors += 1
            report.faults.append(f"a process ended with {self._process.returncode}: {errors}")
        return report


def main(arguments: Sequence[str]) -> None:
    """Run one process, with its `SoakOptions` as JSON."""
    values = json.loads(arguments[0])
    options = SoakOptions(**{each.name: values[each.name] for each in fields(SoakOptions)})
    report = run_process(options)
    sys.stdout.write(json.dumps(asdict(report)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
