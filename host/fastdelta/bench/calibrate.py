# SPDX-License-Identifier: Apache-2.0
"""Measurements that the performance model is calibrated with: runs of the RTL on a grid.

``python -m fastdelta.bench.calibrate --write`` simulates every case and writes the record that
`fastdelta.reference.performance.calibration` reads. The cases to fit were looked at while the model
was written; the held-out ones, of other kernels, sizes, memories and seeds, were not.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from fastdelta.accelerator import Accelerator
from fastdelta.bench.decode import DecodeInputs
from fastdelta.bench.prompts import synthetic_prompt
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.reference.performance.calibration import RECORD
from fastdelta.reference.performance.decode import decode_performance
from fastdelta.reference.performance.memory import MemoryTiming
from fastdelta.reference.performance.prefill import prefill_performance
from fastdelta.reference.performance.results import (
    CalibrationError,
    DecodePerformance,
    PrefillPerformance,
)
from fastdelta.reference.sparse_index import BoolArray, IndexSet, Pattern
from fastdelta.shapes import DecodeShape, PrefillShape
from fastdelta.sim.simulated_board import Stalls

Progress = Callable[[str, int, int], None]

KERNELS = ("prefill", "decode")

PREFILL_KERNELS: dict[str, PrefillShape] = {
    "fit-16x32": PrefillShape(
        head_dim=32, strips=3, row_arrays=2, lut_arrays=1, array_rows=8, array_columns=16,
        slots=8, kv_buffers=4, cache_lines=8, max_blocks=64, max_group=4, bus_width=128,
    ),
    "fit-128x256": PrefillShape(head_dim=256),
    "held-32x64": PrefillShape(
        head_dim=64, strips=2, row_arrays=4, lut_arrays=2, array_rows=8, array_columns=16,
        slots=16, kv_buffers=3, cache_lines=16, max_blocks=64, max_group=4, bus_width=256,
    ),
    "held-16x16": PrefillShape(
        head_dim=16, strips=1, row_arrays=1, lut_arrays=0, array_rows=16, array_columns=8,
        slots=4, kv_buffers=2, cache_lines=4, max_blocks=64, max_group=2, bus_width=64,
    ),
    "held-64x64": PrefillShape(
        head_dim=64, strips=4, row_arrays=2, lut_arrays=1, array_rows=32, array_columns=32,
        slots=32, kv_buffers=8, cache_lines=32, max_blocks=64, max_group=8, bus_width=512,
    ),
    "held-128x64": PrefillShape(head_dim=64),
    "held-128x128": PrefillShape(),
}  # fmt: skip
"""Kernels by name: tokens of a block x channels of a head."""

DECODE_KERNELS: dict[str, DecodeShape] = {
    "fit-d32-h2": DecodeShape(head_dim=32, qk_heads=4, group_ratio=2, h_iter=2, bus_width=128),
    "fit-full-h8": DecodeShape(),
    "held-d64-h4": DecodeShape(head_dim=64, qk_heads=4, group_ratio=1, h_iter=4, bus_width=128),
    "held-d16-h1": DecodeShape(head_dim=16, qk_heads=2, group_ratio=4, h_iter=1, bus_width=256),
    "held-full-h2": DecodeShape(h_iter=2),
}


@dataclass(frozen=True)
class Memory:
    """Simulated memory of a case; `stall` is the share of cycles without a beat."""

    read_latency: int = 64
    write_latency: int = 16
    stall: float = 0.0


@dataclass(frozen=True)
class PrefillCase:
    """One run of the prefill kernel.

    Attributes
    ----------
    kernel
        Name in `PREFILL_KERNELS`.
    mode
        ``"list"``: blocks drawn with `density`, diagonal included; ``"index"``: chosen by the
        kernel with `gamma`, `tau` and a minimum budget of two blocks; ``"dense"``.
    """

    kernel: str
    tokens: int
    heads: int
    kv_heads: int
    mode: Literal["list", "index", "dense"] = "list"
    density: float = 1.0
    gamma: float = 0.9
    tau: float = 0.1
    window: int | None = None
    cache: bool = True
    memory: Memory = field(default_factory=Memory)
    seed: int = 0

    @property
    def held_out(self) -> bool:
        """Whether the model was fitted without this case."""
        return self.kernel.startswith("held") and self.memory != SLOW


@dataclass(frozen=True)
class DecodeCase:
    """One run of the decode kernel over `tokens` tokens, or a command of another kind."""

    kernel: str
    tokens: int
    command: Literal["decode", "clear", "load", "dump"] = "decode"
    memory: Memory = field(default_factory=Memory)
    seed: int = 0

    @property
    def held_out(self) -> bool:
        """Whether the model was fitted without this case."""
        return self.kernel.startswith("held") and self.memory != SLOW


AnyCase = PrefillCase | DecodeCase
Case = TypeVar("Case", PrefillCase, DecodeCase)

FAR, NEAR = Memory(160, 40), Memory(8, 4)
SLOW = Memory(64, 16, 0.5)
"""Its cases were looked at for what a slow memory does, on all kernels."""

PREFILL_CASES: tuple[PrefillCase, ...] = (
    PrefillCase("fit-16x32", 300, 4, 2, seed=1),
    PrefillCase("fit-16x32", 300, 4, 2, density=0.3, seed=2),
    PrefillCase("fit-16x32", 600, 4, 1, density=0.5, window=1, seed=3),
    PrefillCase("fit-16x32", 600, 2, 2, density=0.5, window=4, cache=False, seed=4),
    PrefillCase("fit-16x32", 150, 1, 1, window=4, seed=5),
    PrefillCase("fit-16x32", 900, 4, 1, density=0.1, window=2, seed=6),
    PrefillCase("fit-16x32", 300, 4, 2, "index", tau=0, seed=7),
    PrefillCase("fit-16x32", 300, 4, 2, "index", tau=1, seed=8),
    PrefillCase("fit-16x32", 700, 2, 1, "index", gamma=0.8, seed=9),
    PrefillCase("fit-16x32", 200, 3, 1, "index", gamma=1, seed=10),
    PrefillCase("fit-16x32", 300, 4, 1, "dense", seed=11),
    PrefillCase("fit-16x32", 400, 4, 1, density=0.5, memory=SLOW, seed=26),
    PrefillCase("fit-128x256", 1024, 4, 1, density=0.3, seed=12),
    PrefillCase("fit-128x256", 1024, 4, 1, "index", tau=0, seed=13),
    PrefillCase("held-32x64", 500, 4, 2, density=0.6, seed=20),
    PrefillCase("held-32x64", 900, 4, 1, density=0.15, seed=21),
    PrefillCase("held-32x64", 900, 2, 2, density=0.3, cache=False, window=2, seed=22),
    PrefillCase("held-32x64", 1000, 3, 1, "index", gamma=0.9, seed=23),
    PrefillCase("held-32x64", 700, 2, 1, "index", tau=1, seed=24),
    PrefillCase("held-32x64", 400, 4, 1, density=0.5, memory=FAR, seed=25),
    PrefillCase("held-32x64", 400, 4, 1, density=0.5, memory=SLOW, seed=26),
    PrefillCase("held-16x16", 250, 2, 1, seed=30),
    PrefillCase("held-16x16", 600, 1, 1, density=0.2, seed=31),
    PrefillCase("held-16x16", 600, 2, 2, density=0.4, window=1, seed=32),
    PrefillCase("held-16x16", 333, 2, 1, "index", gamma=0.95, seed=33),
    PrefillCase("held-16x16", 333, 2, 1, "dense", memory=NEAR, seed=34),
    PrefillCase("held-16x16", 500, 2, 1, density=0.3, memory=SLOW, seed=35),
    PrefillCase("held-64x64", 1024, 8, 2, density=0.5, seed=40),
    PrefillCase("held-64x64", 2000, 4, 1, density=0.1, seed=41),
    PrefillCase("held-64x64", 1500, 5, 1, "index", gamma=0.85, seed=42),
    PrefillCase("held-64x64", 800, 4, 1, "index", tau=1, memory=FAR, seed=43),
    PrefillCase("held-64x64", 1300, 2, 1, "dense", window=8, seed=44),
    PrefillCase("held-64x64", 1024, 4, 2, density=0.4, memory=Memory(96, 24, 0.3), seed=45),
    PrefillCase("held-16x16", 400, 2, 1, "index", memory=Memory(64, 16, 0.6), seed=36),
    PrefillCase("held-128x64", 1024, 4, 1, "index", seed=60),
    PrefillCase("held-128x64", 4096, 4, 1, "index", seed=61),
    PrefillCase("held-128x128", 1024, 2, 1, density=0.5, memory=Memory(40, 8, 0.4), seed=53),
    PrefillCase("held-128x128", 1024, 4, 1, "index", seed=50),
    PrefillCase("held-128x128", 1024, 3, 1, density=0.4, seed=51),
    PrefillCase("held-128x128", 2048, 2, 1, density=0.15, memory=FAR, seed=52),
)

DECODE_CASES: tuple[DecodeCase, ...] = (
    DecodeCase("fit-d32-h2", 1),
    DecodeCase("fit-d32-h2", 30),
    DecodeCase("fit-d32-h2", 0, "dump"),
    DecodeCase("fit-full-h8", 16),
    DecodeCase("held-d64-h4", 1),
    DecodeCase("held-d64-h4", 40),
    DecodeCase("held-d64-h4", 100, memory=FAR),
    DecodeCase("held-d64-h4", 60, memory=SLOW),
    DecodeCase("held-d64-h4", 60, memory=Memory(64, 16, 0.7), seed=1),
    DecodeCase("held-d64-h4", 0, "load"),
    DecodeCase("held-d64-h4", 0, "dump"),
    DecodeCase("held-d16-h1", 25),
    DecodeCase("held-d16-h1", 0, "clear"),
    DecodeCase("held-full-h2", 1),
    DecodeCase("held-full-h2", 8),
)


def prefill_mask(case: PrefillCase) -> BoolArray:
    """Blocks of a case of mode ``"list"``, bool [heads, blocks, blocks]."""
    blocks = PREFILL_KERNELS[case.kernel].blocks(case.tokens)
    random = np.random.default_rng(case.seed)
    mask: BoolArray = random.random((case.heads, blocks, blocks)) < case.density
    return (mask | np.eye(blocks, dtype=np.bool_)) & np.tri(blocks, dtype=np.bool_)


def _measure_prefill(engine: PrefillAccelerator, case: PrefillCase) -> dict[str, Any]:
    shape = engine.shape
    prompt = synthetic_prompt(
        case.tokens, shape.head_dim, heads=case.heads, kv_heads=case.kv_heads, seed=case.seed
    )
    chosen = {"index": None, "dense": "dense"}
    indices: Any = (
        chosen[case.mode] if case.mode in chosen else IndexSet.from_mask(prefill_mask(case))
    )
    result = engine.prefill(
        prompt.q,
        prompt.k,
        prompt.v,
        gamma=case.gamma,
        tau=case.tau,
        min_budget=2 * shape.block,
        indices=indices,
        cache=case.cache,
        window=case.window,
    )
    counters = result.counters
    record: dict[str, Any] = {
        "cycles": asdict(result.cycles),
        "memory_bytes": result.memory_bytes,
        "visits": counters.cache_visits,
        "hits": counters.cache_hits,
        "bypasses": counters.cache_bypasses,
        "jobs": counters.jobs_done,
        "attention_steps": counters.attention_steps,
        "index_steps": counters.index_steps,
    }
    if case.mode == "index":
        record["query_aware"] = [p is Pattern.QUERY_AWARE for p in result.patterns]
        record["blocks"] = pack_indices(result.index_set)
    return record


def pack_indices(index_set: IndexSet) -> str:
    """Return an index set as text."""
    mask = np.zeros((index_set.heads, index_set.blocks, index_set.blocks), np.bool_)
    rows = np.repeat(np.arange(len(index_set.offsets) - 1), np.diff(index_set.offsets))
    mask[rows // index_set.blocks, rows % index_set.blocks, index_set.columns] = True
    return base64.b64encode(zlib.compress(np.packbits(mask).tobytes(), 9)).decode("ascii")


def unpack_indices(text: str, heads: int, blocks: int) -> IndexSet:
    """Read what `pack_indices` returned."""
    bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    mask = np.unpackbits(bits, count=heads * blocks * blocks).astype(np.bool_)
    return IndexSet.from_mask(mask.reshape(heads, blocks, blocks))


def _measure_decode(engine: DecodeAccelerator, case: DecodeCase, inputs: DecodeInputs) -> int:
    engine.clear()
    if case.command == "decode":
        return engine.decode(*inputs.tokens(0, case.tokens)).kernel_cycles
    if case.command != "clear":
        state = engine.dump_state()
        if case.command == "load":
            engine.load_state(state)
    report = engine.last_report
    assert report is not None
    return report.kernel_cycles


def memory_timing(memory: Memory, beat_bytes: int) -> MemoryTiming:
    """Return the model's memory for that of a case."""
    bandwidth = beat_bytes * (1 - memory.stall) if memory.stall else None
    return MemoryTiming.uniform(bandwidth, memory.read_latency, memory.write_latency)


def model_prefill(record: dict[str, Any]) -> PrefillPerformance:
    """Model the case of a record."""
    case = _case(PrefillCase, record)
    shape = PREFILL_KERNELS[case.kernel]
    blocks = shape.blocks(case.tokens)
    if case.mode == "index":
        indices = unpack_indices(record["blocks"], case.heads, blocks)
    elif case.mode == "dense":
        indices = IndexSet.dense(case.heads, blocks)
    else:
        indices = IndexSet.from_mask(prefill_mask(case))
    return prefill_performance(
        indices,
        shape,
        memory_timing(case.memory, shape.beat_bytes),
        tokens=case.tokens,
        kv_heads=case.kv_heads,
        mode=case.mode,
        window=case.window,
        cache=case.cache,
        query_aware=record.get("query_aware"),
        take_all=case.gamma == 1,
    )


def model_decode(record: dict[str, Any]) -> DecodePerformance:
    """Model the case of a record."""
    case = _case(DecodeCase, record)
    shape = DECODE_KERNELS[case.kernel]
    return decode_performance(
        shape,
        memory_timing(case.memory, shape.beat_bytes),
        tokens=max(case.tokens, 1),
        command=case.command,
    )


def case_errors(record: dict[str, Any], kernel: str) -> list[tuple[AnyCase, float]]:
    """Signed relative error of the model's cycles in each case of a kernel."""
    errors: list[tuple[AnyCase, float]] = []
    for entry in record[kernel]:
        if kernel == "prefill":
            modelled, measured = model_prefill(entry).cycles.total, entry["cycles"]["total"]
            errors.append((_case(PrefillCase, entry), modelled / measured - 1))
        else:
            errors.append(
                (_case(DecodeCase, entry), model_decode(entry).cycles / entry["cycles"] - 1)
            )
    return errors


def calibration(record: dict[str, Any], kernel: str) -> CalibrationError:
    """Error over the held-out cases of a kernel."""
    errors = case_errors(record, kernel)
    held_out = [abs(error) for case, error in errors if case.held_out]
    return CalibrationError(
        median=float(np.median(held_out)),
        worst=max(held_out),
        configurations=len(errors),
        held_out=len(held_out),
    )


def _case(kind: type[Case], record: dict[str, Any]) -> Case:
    values = dict(record["case"])
    return kind(**{**values, "memory": Memory(**values["memory"])})


def _options(memory: Memory, seed: int) -> dict[str, Any]:
    return {
        "read_latency": memory.read_latency,
        "write_latency": memory.write_latency,
        "stalls": Stalls(r=memory.stall, w=memory.stall),
        "seed": seed,
    }


def measure(
    prefill: Iterable[PrefillCase] = PREFILL_CASES,
    decode: Iterable[DecodeCase] = DECODE_CASES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Simulate cases and return their record as JSON types.

    Parameters
    ----------
    prefill, decode : iterable of cases
    progress : callable, optional
        Told what is measured, cases done, and cases in all.
    """
    prefill, decode = list(prefill), list(decode)
    tell = progress or (lambda *_: None)
    total, done = len(prefill) + len(decode), 0
    record: dict[str, Any] = {"prefill": [], "decode": []}
    for (kernel, memory, seed), cases in groupby(prefill, _card):
        with Accelerator.open(
            "prefill",
            board="sim-u280",
            shape=PREFILL_KERNELS[kernel],
            **_options(memory, seed),
        ) as engine:
            for case in cases:
                tell(kernel, done, total)
                record["prefill"].append({"case": asdict(case), **_measure_prefill(engine, case)})
                done += 1
    for (kernel, memory, seed), decode_cases in groupby(decode, _card):
        shape = DECODE_KERNELS[kernel]
        inputs = DecodeInputs.synthetic(shape, 128, seed)
        with Accelerator.open(
            "decode",
            board="sim-u55c",
            shape=shape,
            a_log=inputs.a_log,
            dt_bias=inputs.dt_bias,
            **_options(memory, seed),
        ) as decode_engine:
            for decode_case in decode_cases:
                tell(kernel, done, total)
                cycles = _measure_decode(decode_engine, decode_case, inputs)
                record["decode"].append({"case": asdict(decode_case), "cycles": cycles})
                done += 1
    tell("done", total, total)
    return record


def _card(case: AnyCase) -> tuple[str, Memory, int]:
    """Kernel, memory, and seed of its stalls: what cases must have in common to share a card."""
    return case.kernel, case.memory, case.seed if case.memory.stall else 0


def write_record(record: dict[str, Any], path: Path = RECORD) -> None:
    """Write a record with the errors of the model, a line for each case."""
    parts = [
        json.dumps(kind) + ": [\n" + ",\n".join(json.dumps(case) for case in record[kind]) + "\n]"
        for kind in KERNELS
    ]
    errors = {kind: asdict(calibration(record, kind)) for kind in KERNELS}
    parts.insert(0, '"errors": ' + json.dumps(errors))
    path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Measure all cases; print the errors of the model, or write the record."""
    parser = argparse.ArgumentParser(
        prog="python -m fastdelta.bench.calibrate", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="write the record of the model")
    parser.add_argument("--kernel", help="only the cases of kernels whose name begins with this")
    options = parser.parse_args(arguments)
    if options.write and options.kernel:
        parser.error("a record has all cases; leave out --kernel")

    def wanted(case: AnyCase) -> bool:
        return case.kernel.startswith(options.kernel or "")

    def tell(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"{done}/{total} {what}\n")

    record = measure(filter(wanted, PREFILL_CASES), filter(wanted, DECODE_CASES), tell)
    if options.write:
        write_record(record)
    for kind in KERNELS:
        for case, error in case_errors(record, kind):
            sys.stdout.write(f"{error:+8.3%}  {case}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
