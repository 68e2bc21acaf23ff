# SPDX-License-Identifier: Apache-2.0
"""Bench of the decode engine on synthetic tokens.

Cycles count from start to done of a run. The steady state leaves out what a run costs once: it is
the difference of a long and a short run, divided by the difference of their tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.accelerator import Accelerator
from fastdelta.arrays import Float32Array
from fastdelta.bench.overhead import HostOverhead, do_nothing_kernel, measure_overhead
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.decode.quantise import (
    GateConstants,
    dequantise_output,
    quantise_internal_gates,
    quantise_tokens,
)
from fastdelta.decode.results import DecodeResult
from fastdelta.errors import InputError
from fastdelta.reference.decode_model import DecodeModel, StateImage
from fastdelta.reference.gated_delta import decay_and_write_gates, gated_delta_recurrence
from fastdelta.results import Seconds
from fastdelta.sensors import Energy, measure_energy
from fastdelta.shapes import DecodeShape

ASSUMED_CLOCK_MHZ = 300.0
"""Clock that figures of the simulated card are converted with; the paper's target."""

PAPER_CYCLES_PER_TOKEN = {2: 42_538, 4: 26_252, 8: 18_978, 16: 23_206}
"""High-level-synthesis latency by H_ITER of the persistent-state GDN decode paper, its table IV."""

SHORT_RUN = 8
"""Tokens of the run that is subtracted for the steady state."""

MIN_STEADY_TOKENS = 16
DEFAULT_TOKENS = 64
SLOWEST_DECAY, FASTEST_DECAY = 0.01, 400.0
"""exp(A_log) of the first and the last head: how much of the state a token takes away."""


@dataclass(frozen=True, eq=False)
class DecodeInputs:
    """Inputs of a layer, float32: q, k, v from N(0, 1), decays weak to strong over the heads.

    ``q``, ``k`` [tokens, qk_heads, d]; ``v`` [tokens, value_heads, d]; ``a``, ``b``
    [tokens, value_heads]; ``a_log``, ``dt_bias`` [value_heads].
    """

    q: Float32Array
    k: Float32Array
    v: Float32Array
    a: Float32Array
    b: Float32Array
    a_log: Float32Array
    dt_bias: Float32Array

    @classmethod
    def synthetic(cls, shape: DecodeShape, tokens: int, seed: int) -> DecodeInputs:
        """Draw inputs; the same arguments give the same inputs."""
        random = np.random.default_rng(seed)

        def normal(*size: int) -> Float32Array:
            return random.standard_normal((tokens, *size), dtype=np.float32)

        d, heads = shape.head_dim, shape.value_heads
        return cls(
            q=normal(shape.qk_heads, d),
            k=normal(shape.qk_heads, d),
            v=normal(heads, d),
            a=normal(heads),
            b=normal(heads),
            a_log=np.log(np.geomspace(SLOWEST_DECAY, FASTEST_DECAY, heads)).astype(np.float32),
            dt_bias=np.zeros(heads, np.float32),
        )

    def tokens(self, start: int, stop: int) -> tuple[Float32Array, ...]:
        """Return q, k, v, a, b of some tokens."""
        return tuple(x[start:stop] for x in (self.q, self.k, self.v, self.a, self.b))

    def float_outputs(self) -> npt.NDArray[np.float64]:
        """Return what the FP64 reference gives, from a zero state."""
        log_decay, beta = decay_and_write_gates(self.a, self.b, self.a_log, self.dt_bias)
        return gated_delta_recurrence(self.q, self.k, self.v, log_decay, beta)[0]

    def model_outputs(
        self, shape: DecodeShape, progress: Callable[[str, int, int], None] | None = None
    ) -> tuple[Float32Array, StateImage]:
        """Return outputs and final state of the bit-exact model, from a zero state."""
        constants = GateConstants.from_float(self.a_log, self.dt_bias)
        wire = quantise_tokens(
            self.q, self.k, self.v, quantise_internal_gates(self.a, self.b, constants)
        )
        model = DecodeModel(shape)
        outputs = []
        for token in range(wire.count):
            outputs.append(model.decode(wire.slice(token, token + 1))[0])
            if progress is not None:
                progress("bit-exact model", token + 1, wire.count)
        return dequantise_output(shape, np.concatenate(outputs)), model.dump()[0]


@dataclass(frozen=True)
class DecodeBenchReport:
    """Figures of one configuration; `to_dict` names them as ``fastdelta bench`` prints them.

    Attributes
    ----------
    cycles_per_token : float
        Steady state, over at least 16 tokens.
    first_token_latency_cycles : int
        One isolated token, from start to done.
    paper_cycles_per_token : int or None
        The paper's figure for the same H_ITER, at the full shape.
    rel_l2_error : float
        Of all outputs against FP64 fed with the same float inputs.
    rel_l2_error_halves : (float, float)
        The same for the first and the second half of the tokens.
    bit_exact : bool
        Outputs and final state equal those of the bit-exact model.
    host_overhead : HostOverhead
        The host's share of a call for one token.
    energy : Energy
        Of the card while it repeats the long run; absent if the card has no sensors.
    """

    cycles_per_token: float
    first_token_latency_cycles: int
    paper_cycles_per_token: int | None
    rel_l2_error: float
    rel_l2_error_halves: tuple[float, float]
    bit_exact: bool
    tokens: int
    steady_tokens: int
    saturations: int
    norm_overflows: int
    starved_cycles: int
    seconds: Seconds
    setup_seconds: float
    host_overhead: HostOverhead
    energy: Energy
    clock_mhz: float
    clock_assumed: bool
    provenance: dict[str, Any]

    @property
    def microseconds_per_token(self) -> float:
        """Steady state at the clock."""
        return self.cycles_per_token / self.clock_mhz

    @property
    def tokens_per_wall_second(self) -> float:
        """Tokens that the card, simulated or not, went through per second of launch time."""
        return self.tokens / self.seconds.launch

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        clock = "clock_mhz_assumed" if self.clock_assumed else "clock_mhz"
        speed = "simulated_tokens_per_second" if self.clock_assumed else "tokens_per_second"
        provenance = {key: value for key, value in self.provenance.items() if key != "clock_mhz"}
        return {
            "bench": "decode",
            "simulated": provenance.pop("simulated"),
            "board": provenance.pop("board"),
            "config": provenance.pop("config"),
            "cycles_per_token": self.cycles_per_token,
            "first_token_latency_cycles": self.first_token_latency_cycles,
            "paper_cycles_per_token": self.paper_cycles_per_token,
            "microseconds_per_token": self.microseconds_per_token,
            clock: self.clock_mhz,
            "rel_l2_error": self.rel_l2_error,
            "rel_l2_error_halves": list(self.rel_l2_error_halves),
            "bit_exact": self.bit_exact,
            "saturations": self.saturations,
            "norm_overflows": self.norm_overflows,
            "starved_cycles": self.starved_cycles,
            "tokens": self.tokens,
            "steady_tokens": self.steady_tokens,
            speed: self.tokens_per_wall_second,
            "seconds": {"setup": self.setup_seconds, **asdict(self.seconds)},
            "host_overhead": self.host_overhead.to_dict(),
            "energy": self.energy.to_dict(),
            **provenance,
        }


Progress = Callable[[str, int, int], None]
"""Called with what is going on, steps done, and steps in all."""


def bench_decode(
    shape: DecodeShape,
    *,
    board: str | int = "sim-u55c",
    tokens: int = DEFAULT_TOKENS,
    seed: int = 0,
    clock_mhz: float = ASSUMED_CLOCK_MHZ,
    progress: Progress | None = None,
    **options: Any,
) -> DecodeBenchReport:
    """Measure cycles and error of the decode engine.

    Parameters
    ----------
    shape : DecodeShape
        Parameters of the kernel.
    board : str or int
        As for `fastdelta.Accelerator.open`.
    tokens : int
        Tokens of the long run, at least 24.
    seed : int
        Seed of the inputs and of the simulated memory's stalls.
    clock_mhz : float
        Clock to assume for the simulated card; a real card's own is used.
    progress : callable, optional
        Told how far the bench is.
    **options
        Of the card, such as ``read_latency``.
    """
    smallest = SHORT_RUN + MIN_STEADY_TOKENS
    if tokens < smallest:
        raise InputError(
            f"tokens is {tokens}; the steady state needs {smallest} or more, of which "
            f"{SHORT_RUN} are left out"
        )
    if not (clock_mhz > 0 and math.isfinite(clock_mhz)):
        raise InputError(f"clock_mhz is {clock_mhz}; give a clock above 0 MHz")
    tell = progress or (lambda *_: None)
    lengths = (1, SHORT_RUN, tokens)
    total = sum(lengths)
    inputs = DecodeInputs.synthetic(shape, total, seed)
    expected = inputs.float_outputs()
    model_output, model_state = inputs.model_outputs(shape, progress)

    tell("kernel", 0, 1)
    began = time.perf_counter()
    if str(board).startswith("sim-"):
        options = {"seed": seed, **options}
    with Accelerator.open(
        "decode",
        board=board,
        shape=shape,
        a_log=inputs.a_log,
        dt_bias=inputs.dt_bias,
        **options,
    ) as engine:
        setup_seconds = time.perf_counter() - began
        tell("kernel", 1, 1)
        runs = _run_lengths(engine, inputs, lengths, tell)
        state = engine.dump_state()
        tell("host's share of a call", 0, 1)
        with do_nothing_kernel(board) as run_nothing:
            host_overhead = measure_overhead(engine, inputs.tokens(0, total), run_nothing)
        tell("host's share of a call", 1, 1)
        last = inputs.tokens(total - tokens, total)
        energy = measure_energy(engine.board, lambda: engine.decode(*last).tokens)
    isolated, short, long = runs
    output = np.concatenate([run.output for run in runs])
    bit_exact = (
        np.array_equal(output, model_output)
        and np.array_equal(state.mantissa, model_state.mantissa)
        and np.array_equal(state.scale, model_state.scale)
    )
    half = total // 2
    counters = [run.counters for run in runs]
    seconds = sum((run.seconds for run in runs), Seconds())
    own_clock = engine.provenance.clock_mhz
    return DecodeBenchReport(
        cycles_per_token=(long.kernel_cycles - short.kernel_cycles) / (tokens - SHORT_RUN),
        first_token_latency_cycles=isolated.kernel_cycles,
        paper_cycles_per_token=paper_cycles_per_token(shape),
        rel_l2_error=relative_error(output, expected),
        rel_l2_error_halves=(
            relative_error(output[:half], expected[:half]),
            relative_error(output[half:], expected[half:]),
        ),
        bit_exact=bit_exact,
        tokens=total,
        steady_tokens=tokens - SHORT_RUN,
        saturations=sum(c.saturations for c in counters),
        norm_overflows=sum(c.norm_overflows for c in counters),
        starved_cycles=sum(c.starved_cycles for c in counters),
        seconds=seconds,
        setup_seconds=setup_seconds,
        host_overhead=host_overhead,
        energy=energy,
        clock_mhz=own_clock or clock_mhz,
        clock_assumed=own_clock is None,
        provenance=engine.provenance.to_dict(),
    )


def _run_lengths(
    engine: DecodeAccelerator, inputs: DecodeInputs, lengths: tuple[int, ...], tell: Progress
) -> list[DecodeResult]:
    """Decode the inputs in one run for each length."""
    runs, start = [], 0
    for length in lengths:
        runs.append(engine.decode(*inputs.tokens(start, start + length)))
        if runs[-1].invocations != 1:
            raise InputError(f"{length} tokens of this shape do not fit one run; pass fewer tokens")
        start += length
        tell("kernel on tokens", start, sum(lengths))
    return runs


def paper_cycles_per_token(shape: DecodeShape) -> int | None:
    """Return the paper's figure, if it has one for the shape."""
    full = DecodeShape()
    sizes = ("head_dim", "qk_heads", "group_ratio")
    if any(getattr(shape, name) != getattr(full, name) for name in sizes):
        return None
    return PAPER_CYCLES_PER_TOKEN.get(shape.h_iter)


def relative_error(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the L2 norm of the difference over that of what is expected."""
    difference = found.astype(np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected))
