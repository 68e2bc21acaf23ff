# SPDX-License-Identifier: Apache-2.0
"""Tests of the prefill kernel with all its units: bytes in memory against the bit-exact models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyuvm

from fastdelta.prefill.job_lists import JobList, index_set_of, make_job_lists
from fastdelta.prefill.packing import pack_keys, pack_outputs, pack_queries, pack_values
from fastdelta.reference.index_model import IndexParameters, generate_index
from fastdelta.reference.kv_cache_model import KVCache
from fastdelta.reference.kv_cache_model import Visit as CacheVisit
from fastdelta.reference.prefill_model import PrefillOperands, selected_attention
from fastdelta.reference.sparse_index import IndexSet, Pattern
from fastdelta.registers.prefill import Mode, Status
from fastdelta_verif.agents.axi4_memory import DECERR, SLVERR
from fastdelta_verif.covergroups.kernels import LIMITS, PREFILL_KERNEL
from fastdelta_verif.environments.index_engine import HEADER_SHIFT, KINDS, random_operands
from fastdelta_verif.environments.prefill_kernel import (
    Expected,
    PrefillKernelTest,
    Run,
    visits_of,
)

MODES = tuple(Mode)
TIME_LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}


class RealKernelTest(PrefillKernelTest):
    """The whole kernel; the models are the specification."""

    RUN_LIMIT_CYCLES = 200_000
    COVERAGE = PREFILL_KERNEL

    def build_model(self) -> None:
        """Note the shape."""
        super().build_model()
        self.coverage.simulator()

    def with_operands(self, run: Run, kind: str | None = None) -> Run:
        """Return the run with operands of a kind, a random one for each KV head without one."""
        shape, numbers = self.shape, self.numbers
        heads = []
        for _ in range(run.kv_heads):
            chosen = kind or self.rng.choice(KINDS)
            part = random_operands(numbers, chosen, run.group, run.tokens, shape.head_dim)
            v = numbers.integers(-128, 128, size=part.v.shape).astype(np.int8)
            v_shift = numbers.integers(0, self.rng.choice([1, 4, 16]), size=part.v_shift.shape)
            heads.append(replace(part, v=v, v_shift=v_shift))
        names = ("q", "multiplier", "exponent", "k", "k_shift", "v", "v_shift")
        operands = PrefillOperands(
            **{name: np.concatenate([getattr(part, name) for part in heads]) for name in names}
        )
        return replace(
            super().with_operands(run),
            operands=operands,
            q_data=pack_queries(
                shape, operands.q, operands.multiplier, operands.exponent
            ).tobytes(),
            k_data=pack_keys(shape, operands.k, operands.k_shift, operands.v_shift).tobytes(),
            v_data=pack_values(shape, operands.v).tobytes(),
        )

    def expect(self, run: Run) -> Expected:
        """Ask the models."""
        shape, operands = self.shape, run.operands
        assert operands is not None
        blocks = shape.blocks(run.tokens)
        index_set, lists, pooled = self.selection(run, operands)
        outputs, empty_rows = selected_attention(operands, index_set, shape.block)
        jobs = len(index_set.columns)
        is_index = run.mode == Mode.INDEX
        tiles = run.kv_heads * run.group * blocks if is_index else 0
        score_steps = shape.block // shape.array_columns * shape.head_dim
        value_steps = shape.head_dim // shape.array_columns * shape.block
        counters = {
            "index_tiles": tiles,
            "index_steps": tiles * score_steps,
            "attention_steps": jobs * (score_steps + value_steps),
            "empty_rows": empty_rows,
        }
        cache = KVCache(shape.cache_lines, run.hot_threshold & 0xFFFF, bool(run.flags & 1))
        for part in lists:
            cache.start(part.uses.tolist())
            for visit in visits_of(part, run.window):
                cache.visit(CacheVisit(visit.block, visit.jobs))
        counted = ("visits", "hits", "misses", "hot", "cold", "bypasses", "evictions")
        counters |= {f"cache_{name}": getattr(cache.counters, name) for name in counted}
        for name in ("hits", "bypasses", "hot", "cold"):
            if getattr(cache.counters, name):
                self.coverage.hit("cache", name)
        step, fetched = shape.beat_bytes, cache.counters.misses
        queries = run.kv_heads * run.group * blocks
        statistics = run.kv_heads * run.group + pooled * blocks if is_index else 0
        counters |= {
            "q_beats": (queries + statistics) * shape.q_block_bytes // step,
            "k_beats": (fetched + run.kv_heads * blocks * is_index) * shape.k_block_bytes // step,
            "v_beats": fetched * shape.v_block_bytes // step,
            "o_beats": queries * shape.o_block_bytes // step,
            "jobs_beats_read": sum(4 * part.words for part in lists) // step,
        }
        return Expected(pack_outputs(shape, outputs).tobytes(), lists, counters)

    def selection(
        self, run: Run, operands: PrefillOperands
    ) -> tuple[IndexSet, tuple[JobList, ...], int]:
        """Return the selected blocks, the lists, and the number of query-aware heads."""
        blocks = self.shape.blocks(run.tokens)
        if run.mode == Mode.LIST:
            return index_set_of(run.lists), run.lists, 0
        if run.mode == Mode.DENSE:
            index_set = IndexSet.dense(run.kv_heads * run.group, blocks)
            return index_set, make_job_lists(index_set, run.kv_heads, run.window), 0
        result = generate_index(operands, self.index_parameters(run))
        aware = np.array([head.pattern is Pattern.QUERY_AWARE for head in result.heads])
        patterns = ("vertical-slash", "both", "query-aware")
        self.coverage.hit("pattern", patterns[int(aware.any()) + int(aware.all())])
        divergence = np.array([head.divergence >> HEADER_SHIFT for head in result.heads])
        lists = tuple(
            replace(jobs, query_aware=bits, divergence=distances.astype(np.uint32))
            for jobs, bits, distances in zip(
                make_job_lists(result.index_set, run.kv_heads, run.window),
                aware.reshape(run.kv_heads, -1),
                divergence.reshape(run.kv_heads, -1),
                strict=True,
            )
        )
        return result.index_set, lists, int(aware.sum())

    def index(self, **other: Any) -> Run:
        """Return a run of the mode INDEX with a limit that a part of the heads is below."""
        limit = self.rng.choice([0, 1 << 12, 1 << 24, None, None, None])
        run = self.make(Mode.INDEX, divergence_limit=limit or 0, **other)
        if limit is None:  # about as far as one of the heads
            assert run.operands is not None
            heads = generate_index(run.operands, self.index_parameters(run)).heads
            near = (self.rng.choice(heads).divergence >> 25) + self.rng.randrange(2)
            run = replace(run, divergence_limit=min(near, 1 << 24))
        return run

    def index_parameters(self, run: Run) -> IndexParameters:
        """Return the rule of a run."""
        settings = (run.gamma, run.divergence_limit, run.min_blocks, run.max_blocks)
        return IndexParameters(self.shape.block, *settings)

    def any_run(self, **other: Any) -> Run:
        """Return a run of any mode."""
        mode = self.rng.choice(MODES)
        return self.index(**other) if mode == Mode.INDEX else self.make(mode, **other)


@pyuvm.test(**TIME_LIMIT)
class random_runs(RealKernelTest):
    """All modes, ragged lengths, groups, windows, cache on and off, random stalls."""

    async def scenario(self) -> None:
        """Run."""
        options = self.settings.options
        for index in range(options["runs"]):
            self.stall_at_random()
            mode = MODES[(index if index < 5 else -index) % 3]  # each after each other one
            blocks = options.get("blocks", 6)
            make = self.index if mode == Mode.INDEX else lambda **o: self.make(mode, **o)  # noqa: B023
            run = make(most_blocks=blocks)
            await self.complete(run)


@pyuvm.test(**TIME_LIMIT)
class one_prompt_many_ways(RealKernelTest):
    """The cache, the window and where the list comes from change no output."""

    async def scenario(self) -> None:
        """Run one prompt in all ways."""
        shape = self.shape
        for _ in range(self.settings.options["prompts"]):
            self.stall("light")
            group = self.rng.choice([1, 2])
            tokens = 6 * shape.block - self.rng.randrange(shape.block)
            base = self.index(kv_heads=2, group=group, tokens=tokens, window=1, flags=0)
            await self.complete(base)
            self.coverage.hit("ways", "window of 1")
            outputs, k_beats = self.region("o"), self.ports["k"].monitor.counts.beats
            _, lists, _ = self.selection(base, base.operands)
            index_set = index_set_of(lists)
            for window in (1, 2, 4):
                if window * group > shape.slots:
                    continue
                windowed = replace(base, window=window, flags=1, hot_threshold=2)
                await self.complete(windowed)
                self.compare("outputs by index", self.region("o") == outputs, True)
                self.coverage.hit("ways", f"window of {window}")
                given = replace(windowed, mode=Mode.LIST, flags=self.rng.randrange(2))
                lists = make_job_lists(index_set, 2, window)
                await self.complete(self.with_given_lists(given, lists))
                self.compare("outputs by list", self.region("o") == outputs, True)
                self.coverage.hit("ways", "list of the host")
                assert self.ports["k"].monitor.counts.beats <= k_beats
            # All blocks: the rule with full coverage is dense attention.
            everything = replace(
                base, gamma=1 << 16, divergence_limit=0, max_blocks=shape.blocks(tokens)
            )
            await self.complete(everything)
            outputs = self.region("o")
            await self.complete(replace(everything, mode=Mode.DENSE))
            self.compare("dense outputs", self.region("o") == outputs, True)
            self.coverage.hit("ways", "full coverage")
            self.coverage.hit("ways", "dense")


@pyuvm.test(**TIME_LIMIT)
class limits_of_shape(RealKernelTest):
    """One token, one block, a ragged last token, the longest prompt, the largest group."""

    async def scenario(self) -> None:
        """Run each mode at each limit."""
        shape = self.shape
        self.stall("none", latency=(20, 20))
        for mode in MODES:
            sizes = (1, shape.block - 1, shape.block, shape.block + 1)
            for tokens, limit in zip(sizes, LIMITS, strict=False):
                await self.complete(self.make(mode, tokens=tokens, kv_heads=1, group=2))
                self.coverage.hit("limit", (mode.name, limit))
            for tokens, group in ((3 * shape.block - 1, 3), (4 * shape.block, 1)):
                await self.complete(self.make(mode, tokens=tokens, group=group, window=2))
            group = min(shape.max_group, shape.slots)
            await self.complete(self.make(mode, kv_heads=1, group=group, window=1, most_blocks=3))
            self.coverage.hit("limit", (mode.name, LIMITS[-1]))
        await self.complete(
            self.index(kv_heads=1, group=1, tokens=shape.max_tokens, window=shape.slots, flags=1)
        )
        self.coverage.hit("limit", ("INDEX", "the longest prompt"))


@pyuvm.test(**TIME_LIMIT)
class interruptions(RealKernelTest):
    """Errors, time-outs, broken lists and resets at any time; the next run is as the model says."""

    async def scenario(self) -> None:
        """Interrupt in every way."""
        for _ in range(self.settings.options["rounds"]):
            for port in self.ports:
                await self.memory_error(port)
            await self.broken_list()
            for port in self.ports:
                await self.time_out(port)
            await self.reset_in_run()

    def mode_of(self, port: str) -> Mode:
        """Return a mode that uses a port."""
        return self.rng.choice((Mode.INDEX, Mode.DENSE) if port == "jobs_write" else MODES)

    async def memory_error(self, port: str) -> None:
        """Answer the whole of a buffer with errors from a random place on."""
        run = self.make(self.mode_of(port), kv_heads=2, most_blocks=4)
        status = Status.WRITE_ERROR if port in ("o", "jobs_write") else Status.READ_ERROR
        self.stall_at_random()
        # Of the second KV head, so that much has happened before.
        name = port.removesuffix("_write")
        size = run.o_bytes if name == "o" else len(getattr(run, f"{name}_data"))
        step = self.shape.beat_bytes
        errors = self.ports[port].responder.faults.errors
        for place in range(getattr(run, name) + size // 2, getattr(run, name) + size, step):
            errors[place] = self.rng.choice([SLVERR, DECERR])
        await self.start(run)
        counters = await self.failed(run, status)
        self.compare("KV heads done", counters["kv_heads_done"], 1)
        self.coverage.hit("interrupted", (port, "error"))
        await self.whole_run()

    async def broken_list(self) -> None:
        """Break a record of a list."""
        self.stall_at_random()
        run = self.make(Mode.LIST, kv_heads=2, most_blocks=6)
        words = np.frombuffer(run.jobs_data, np.uint32).copy()
        jobs = run.lists[1]
        first = run.job_stride // 4 + jobs.words - -(-len(jobs.jobs) // 16) * 16
        words[first + self.rng.randrange(len(jobs.jobs))] ^= 1 << 28  # the last flag
        run = replace(run, jobs_data=words.tobytes())
        await self.start(run)
        await self.failed(run, Status.BAD_JOB)
        self.coverage.hit("interrupted", ("jobs", "broken list"))
        await self.whole_run()

    async def time_out(self, port: str) -> None:
        """Stop every channel of a port for longer than the watchdog waits."""
        self.stall("none", latency=(0, 10))
        run = self.make(
            Mode.DENSE, kv_heads=2, tokens=6 * self.shape.block, window=1, watchdog=3000
        )
        stuck = self.ports[port].responder.faults.stuck
        await self.start(run)
        await self.domain.cycles(self.rng.randint(0, 50))
        stuck.update(("aw", "w", "b") if port in ("o", "jobs_write") else ("ar", "r"))
        await self.domain.cycles(run.watchdog + 100)
        stuck.clear()
        await self.failed(run, Status.TIMEOUT, report=False)
        self.coverage.hit("interrupted", (port, "time-out"))
        await self.whole_run()

    async def reset_in_run(self) -> None:
        """Reset at a random cycle."""
        for cycles in (2, self.rng.randint(30, 400), self.rng.randint(1, 4000), 0):
            self.stall_at_random()
            await self.start(self.any_run(kv_heads=1, most_blocks=4 if cycles else 1))
            if cycles:
                await self.domain.cycles(cycles)
            else:
                await self.ended()
            await self.reset_run()
            await self.whole_run()

    async def whole_run(self) -> None:
        """Run something that must go through."""
        self.stall_at_random()
        await self.complete(self.any_run(kv_heads=1, most_blocks=3))
