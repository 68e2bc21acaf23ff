# SPDX-License-Identifier: Apache-2.0
"""Bench of the prefill engine: cycles by phase, blocks chosen, error, memory traffic.

The same prompt is read with the cache and without it. Outputs and blocks are compared to the bit
with the model, and with floating point: attention over the same blocks, the same rule on unrounded
tensors, and FlexPrefill's own rule.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastdelta.accelerator import Accelerator
from fastdelta.bench.decode import ASSUMED_CLOCK_MHZ, Progress, relative_error
from fastdelta.bench.prompts import Prompt
from fastdelta.errors import InputError
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.quantise import dequantise_attention, quantise_prompt
from fastdelta.prefill.results import PrefillResult
from fastdelta.reference.attention import block_attention, block_sparse_attention, covered_mass
from fastdelta.reference.index_model import IndexParameters, generate_index
from fastdelta.reference.plain_int8 import plain_int8_attention
from fastdelta.reference.prefill_model import selected_attention
from fastdelta.reference.sparse_index import (
    IndexSet,
    SelectionParameters,
    block_coverage_selection,
    flexprefill_selection,
)
from fastdelta.sensors import Energy, measure_energy
from fastdelta.shapes import PrefillShape

DEFAULT_TOKENS = 1024
PAPER_MIN_BUDGET = 1024

OpenEngine = Callable[..., PrefillAccelerator]


def default_min_budget(tokens: int) -> int:
    """Return the paper's minimum budget, or half of a prompt for which that would be everything."""
    return min(PAPER_MIN_BUDGET, tokens // 2)


@dataclass(frozen=True)
class Coverage:
    """An index set in two figures.

    Attributes
    ----------
    density : float
        Selected share of the causal blocks.
    attention_mass : float
        Share of the dense attention that falls on them, in FP64, a mean over the heads.
    """

    density: float
    attention_mass: float


@dataclass(frozen=True)
class PrefillBenchReport:
    """Figures of one prompt; `to_dict` names them as ``fastdelta bench`` prints them.

    Attributes
    ----------
    result : PrefillResult
        Of the run with the cache.
    uncached : PrefillResult or None
        Of the run without it.
    source : dict
        Where the prompt comes from.
    selection : SelectionParameters
        Parameters of the rule.
    bit_exact : bool
        Output and blocks equal those of the bit-exact model.
    rel_l2_error : float
        Of the output against FP64 over the same blocks.
    rel_l2_error_plain_int8 : float
        Of the plain INT8 scheme over the same blocks.
    index_jaccard : float
        Common share of the blocks and those that the same rule chooses in FP64.
    chosen, float_rule, flexprefill : Coverage
        Of the engine's blocks, the same rule's in FP64, and FlexPrefill's own rule's.
    energy : Energy
        Of the card while it repeats the prompt; absent if the card has no sensors.
    """

    result: PrefillResult
    uncached: PrefillResult | None
    source: dict[str, str | int]
    selection: SelectionParameters
    bit_exact: bool
    rel_l2_error: float
    rel_l2_error_plain_int8: float
    index_jaccard: float
    chosen: Coverage
    float_rule: Coverage
    flexprefill: Coverage
    energy: Energy
    setup_seconds: float
    clock_mhz: float
    clock_assumed: bool

    @property
    def index_to_attention(self) -> float:
        """Cycles of index generation over those of attention."""
        return self.result.cycles.index / max(self.result.cycles.attention, 1)

    @property
    def milliseconds(self) -> float:
        """Kernel time of the layer at the clock."""
        return self.result.milliseconds(self.clock_mhz)

    @property
    def cycles_per_wall_second(self) -> float:
        """Cycles that the card, simulated or not, went through per second of launch time."""
        return self.result.cycles.total / self.result.seconds.launch

    @property
    def cache_changes_nothing(self) -> bool | None:
        """Whether the output is the same to the bit without the cache; None if not measured."""
        if self.uncached is None:
            return None
        return np.array_equal(self.result.output, self.uncached.output)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        result = self.result
        record = result.to_dict()
        provenance = result.provenance.to_dict()
        own = {key: record[key] for key in ("tokens", "heads", "kv_heads", "window", "invocations")}
        clock = "clock_mhz_assumed" if self.clock_assumed else "clock_mhz"
        speed = "simulated_cycles_per_second" if self.clock_assumed else "cycles_per_second"
        return {
            "bench": "prefill",
            "simulated": provenance.pop("simulated"),
            "board": provenance.pop("board"),
            "config": {"block": result.shape.block, **provenance.pop("config")},
            "source": self.source,
            **own,
            "selection": asdict(self.selection),
            "cycles": record["cycles"],
            "index_to_attention_cycles": self.index_to_attention,
            "milliseconds": self.milliseconds,
            clock: self.clock_mhz,
            "mpu_utilisation": result.mpu_utilisation,
            "unmasked_share": result.unmasked_share,
            "cache_hit_rate": result.cache_hit_rate,
            "hbm_bytes": _bytes(result),
            "hbm_bytes_without_cache": self.uncached and _bytes(self.uncached),
            "cache_changes_nothing": self.cache_changes_nothing,
            "density": self.chosen.density,
            "attention_mass": self.chosen.attention_mass,
            "float_rule": asdict(self.float_rule),
            "flexprefill": asdict(self.flexprefill),
            "index_jaccard": self.index_jaccard,
            "patterns": record["patterns"],
            "divergences": record["divergences"],
            "rel_l2_error": self.rel_l2_error,
            "rel_l2_error_plain_int8": self.rel_l2_error_plain_int8,
            "rel_l2_error_ratio": self.rel_l2_error / self.rel_l2_error_plain_int8,
            "bit_exact": self.bit_exact,
            "counters": record["counters"],
            "energy": self.energy.to_dict(),
            speed: self.cycles_per_wall_second,
            "seconds": {"setup": self.setup_seconds, **record["seconds"]},
            **{key: value for key, value in provenance.items() if key != "clock_mhz"},
        }


def _bytes(result: PrefillResult) -> dict[str, int]:
    moved = result.memory_bytes
    return {**moved, "total": sum(moved.values())}


def bench_prefill(
    prompt: Prompt,
    shape: PrefillShape | None = None,
    *,
    board: str | int = "sim-u280",
    gamma: float = 0.9,
    tau: float = 0.1,
    min_budget: int | None = None,
    max_budget: int | None = None,
    window: int | None = None,
    compare_cache: bool = True,
    seed: int = 0,
    clock_mhz: float = ASSUMED_CLOCK_MHZ,
    progress: Progress | None = None,
    open_engine: OpenEngine | None = None,
    **options: Any,
) -> PrefillBenchReport:
    """Measure cycles, blocks, error and traffic of the prefill engine on one prompt.

    Parameters
    ----------
    prompt : Prompt
        As `fastdelta.bench.prompts` makes them.
    shape : PrefillShape, optional
        Parameters of the kernel; by default the full engine for the prompt's head dimension.
    board : str or int
        As for `fastdelta.Accelerator.open`.
    gamma, tau, min_budget, max_budget, window
        As for `PrefillAccelerator.prefill`; the minimum budget is by default the paper's 1,024
        tokens, or half of a shorter prompt.
    compare_cache : bool
        Read the prompt once more without the cache.
    seed : int
        Seed of the simulated memory's stalls.
    clock_mhz : float
        Clock to assume for the simulated card; a real card's own is used.
    progress : callable, optional
        Told how far the bench is.
    open_engine : callable, optional
        Opens the engine in place of `fastdelta.Accelerator.open`.
    **options
        Of the card, such as ``read_latency``.
    """
    if not (clock_mhz > 0 and math.isfinite(clock_mhz)):
        raise InputError(f"clock_mhz is {clock_mhz}; give a clock above 0 MHz")
    tell = progress or (lambda *_: None)
    q, k, v = prompt.q, prompt.k, prompt.v
    tokens = q.shape[1]
    shape = shape or PrefillShape(head_dim=q.shape[2])
    if shape.head_dim != q.shape[2]:
        raise InputError(
            f"the prompt has head_dim {q.shape[2]}, the kernel {shape.head_dim}; both must agree"
        )
    selection = SelectionParameters(
        gamma,
        tau,
        default_min_budget(tokens) if min_budget is None else min_budget,
        max_budget,
        shape.block,
    )

    def read(engine: PrefillAccelerator, *, cache: bool) -> PrefillResult:
        return engine.prefill(
            q,
            k,
            v,
            gamma=gamma,
            tau=tau,
            min_budget=selection.min_budget,
            max_budget=max_budget,
            window=window,
            cache=cache,
        )

    tell("kernel", 0, 1)
    began = time.perf_counter()
    if str(board).startswith("sim-"):
        options = {"seed": seed, **options}
    opener = open_engine or Accelerator.open
    with opener("prefill", board=board, shape=shape, **options) as engine:
        setup_seconds = time.perf_counter() - began
        tell("kernel", 1, 1)
        runs = 2 if compare_cache else 1
        tell("runs on the card", 0, runs)
        result = read(engine, cache=True)
        tell("runs on the card", 1, runs)
        uncached = None
        if compare_cache:
            uncached = read(engine, cache=False)
            tell("runs on the card", 2, runs)
        energy = measure_energy(engine.board, lambda: read(engine, cache=True).tokens)
    tell("references", 0, 4)
    output, index_set = model_output(prompt, selection)
    bit_exact = index_set == result.index_set and np.array_equal(output, result.output)
    tell("references", 1, 4)
    expected = block_sparse_attention(q, k, v, result.index_set, shape.block).output
    plain = plain_int8_attention(q, k, v, result.index_set, shape.block)
    tell("references", 2, 4)
    float_rule = block_coverage_selection(q, k, selection).index_set
    flexprefill = flexprefill_selection(q, k, selection).index_set
    tell("references", 3, 4)
    attention = block_attention(q, k, shape.block)
    tell("references", 4, 4)
    own_clock = result.provenance.clock_mhz

    def coverage(blocks: IndexSet) -> Coverage:
        return Coverage(blocks.density, float(covered_mass(attention, blocks).mean()))

    return PrefillBenchReport(
        result=result,
        uncached=uncached,
        source=prompt.source,
        selection=selection,
        bit_exact=bit_exact,
        rel_l2_error=relative_error(result.output, expected),
        rel_l2_error_plain_int8=relative_error(plain, expected),
        index_jaccard=result.index_set.jaccard(float_rule),
        chosen=coverage(result.index_set),
        float_rule=coverage(float_rule),
        flexprefill=coverage(flexprefill),
        energy=energy,
        setup_seconds=setup_seconds,
        clock_mhz=own_clock or clock_mhz,
        clock_assumed=own_clock is None,
    )


def model_output(
    prompt: Prompt, selection: SelectionParameters
) -> tuple[np.ndarray[Any, np.dtype[np.float32]], IndexSet]:
    """Return what the bit-exact model gives: output float32 [heads, tokens, d], and the blocks."""
    quantised = quantise_prompt(prompt.q, prompt.k, prompt.v)
    parameters = IndexParameters.from_selection(selection, prompt.q.shape[1])
    index_set = generate_index(quantised.operands, parameters).index_set
    outputs, _ = selected_attention(quantised.operands, index_set, selection.block)
    return dequantise_attention(outputs, quantised.v_scale), index_set
