# SPDX-License-Identifier: Apache-2.0
"""Base of the tests of the prefill kernel: runs, their memory, and what must hold after each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from fastdelta.prefill.job_lists import (
    JobFields,
    JobList,
    dense_list_bytes,
    make_job_lists,
    pack_job_lists,
)
from fastdelta.reference.prefill_model import PrefillOperands
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.registers.prefill import VERSION_VALUE, Mode, Register, Status
from fastdelta.shapes import PrefillShape
from fastdelta_verif.cells.movers import expected_bursts
from fastdelta_verif.environments.kernel import MAX_BURST, WORD, KernelTest

ALIGNMENT = 64
RESULT_BYTES = 256
SCALARS = (
    "mode",
    "kv_heads",
    "group",
    "tokens",
    "window",
    "gamma",
    "divergence_limit",
    "min_blocks",
    "max_blocks",
    "flags",
    "hot_threshold",
    "job_stride",
    "watchdog",
)
POINTERS = ("q", "k", "v", "jobs", "o", "result")
WIDE_COUNTERS = tuple(
    register.name.removesuffix("_LOW").lower()
    for register in Register
    if register.name.endswith("_LOW") and register >= Register.CYCLES_LOW
)


@dataclass(frozen=True)
class Run:
    """Arguments of a run and the data at its pointers.

    ``jobs_data`` is what lies at ``jobs`` when the run starts, and ``o_bytes`` the room at ``o``.
    ``lists`` are those that the host gives; ``operands`` what the data at q, k and v stands for,
    where it stands for something.
    """

    mode: int
    kv_heads: int
    group: int
    tokens: int
    window: int
    gamma: int = 1
    divergence_limit: int = 0
    min_blocks: int = 0
    max_blocks: int = 0
    flags: int = 0
    hot_threshold: int = 0
    q: int = 0
    k: int = 0
    v: int = 0
    jobs: int = 0
    o: int = 0
    result: int = 0
    job_stride: int = 0
    watchdog: int = 0
    q_data: bytes = field(default=b"", repr=False)
    k_data: bytes = field(default=b"", repr=False)
    v_data: bytes = field(default=b"", repr=False)
    jobs_data: bytes = field(default=b"", repr=False)
    o_bytes: int = 0
    lists: tuple[JobList, ...] = field(default=(), repr=False)
    operands: PrefillOperands | None = field(default=None, repr=False)

    def arguments(self) -> dict[int, int]:
        """Return the value of each argument register."""
        values: dict[int, int] = {Register[name.upper()]: getattr(self, name) for name in SCALARS}
        for name in POINTERS:
            address = getattr(self, name)
            values[Register[f"{name.upper()}_LOW"]] = address & WORD
            values[Register[f"{name.upper()}_HIGH"]] = address >> 32
        return values


@dataclass(frozen=True)
class Expected:
    """What a run that goes through must leave: outputs, job lists, and some of its counters."""

    o: bytes
    lists: tuple[JobList, ...]
    counters: dict[str, int]


@dataclass(frozen=True)
class Visit:
    """Consecutive jobs of a list on one KV block within one window."""

    block: int
    jobs: int


def visits_of(jobs: JobList, window: int) -> list[Visit]:
    """Return the visits of a list, in their order."""
    job = JobFields.from_words(jobs.jobs)
    keys = list(zip((job.query_block // window).tolist(), job.kv_block.tolist(), strict=True))
    visits: list[Visit] = []
    for index, key in enumerate(keys):
        if index and key == keys[index - 1]:
            visits[-1] = replace(visits[-1], jobs=visits[-1].jobs + 1)
        else:
            visits.append(Visit(key[1], 1))
    return visits


def random_index_set(rng: np.random.Generator, heads: int, blocks: int) -> IndexSet:
    """Return causal pairs of every density, with at least one in every row."""
    density = rng.choice([0.0, 0.2, 0.6, 1.0], size=(heads, 1, 1))
    mask = np.tril(rng.random((heads, blocks, blocks)) < density)
    one = rng.integers(0, np.arange(blocks) + 1, size=(heads, blocks))
    mask[np.arange(heads)[:, np.newaxis], np.arange(blocks), one] = True
    return IndexSet.from_mask(mask)


class PrefillKernelTest(KernelTest):
    """Runs of the prefill kernel."""

    COMMAND = Register.MODE, Mode
    READ_PORTS, WRITE_PORTS = ("q", "k", "v", "jobs"), ("jobs", "o")
    REGISTERS, FIRST_COUNTER = Register, Register.CYCLES_LOW
    RESULT_BYTES, MAGIC, VERSION = RESULT_BYTES, 0x31504446, VERSION_VALUE

    def build_model(self) -> None:
        """Note the shape."""
        names = {field.name.upper(): field.name for field in fields(PrefillShape)}
        given = self.settings.parameters
        sizes = {name: given[upper] for upper, name in names.items() if upper in given}
        self.shape = PrefillShape(**sizes)
        self.numbers = np.random.default_rng(self.settings.seed)
        self.draw = self.rng.randrange(10)  # of a number of tokens; part of what is random

    # Runs

    def place(self, bank: int) -> int:
        """Return a legal address such that blocks cross pages and a carry into the upper half."""
        return (bank << 32) + 0xFFFF_0000 + self.rng.randrange(1024) * ALIGNMENT

    def make(
        self,
        mode: Mode,
        *,
        kv_heads: int | None = None,
        group: int | None = None,
        tokens: int | None = None,
        window: int | None = None,
        most_blocks: int = 4,
        **other: Any,
    ) -> Run:
        """Return a legal run with random arguments where none is given, operands included."""
        shape, rng = self.shape, self.rng
        tokens = tokens or self.random_tokens(min(most_blocks, shape.max_blocks))
        group = group or rng.randint(1, min(shape.max_group, 4))
        kv_heads = kv_heads or rng.randint(1, 2)
        if window is None:
            windows = [1 << bit for bit in range(7) if group << bit <= shape.slots]
            window = rng.choice(windows)
        blocks = shape.blocks(tokens)
        low = rng.randint(0, blocks)
        run = Run(
            mode,
            kv_heads,
            group,
            tokens,
            window,
            gamma=rng.randint(1, 1 << 16),
            divergence_limit=rng.randint(0, 1 << 24),
            min_blocks=low,
            max_blocks=rng.randint(low, shape.max_blocks),
            flags=rng.randrange(2),
            hot_threshold=rng.choice([0, 2, 5, 0xFFFF]),
            job_stride=dense_list_bytes(blocks, group) + rng.randrange(3) * ALIGNMENT,
            result=self.place(6),
            **{name: self.place(bank) for bank, name in enumerate(("q", "k", "v", "jobs", "o"), 1)},
        )
        return self.with_lists(self.with_operands(replace(run, **other)))

    def random_tokens(self, most_blocks: int) -> int:
        """Return a number of tokens, half of the time at an edge of a block."""
        block, rng = self.shape.block, self.rng
        edges = [1, rng.randint(1, block - 1)]
        blocks = rng.choice([most_blocks, rng.randint(1, most_blocks)])
        edges += [blocks * block - short for short in (0, 1, block - 1)]
        self.draw += 1
        if self.draw % 2:
            return edges[self.draw // 2 % len(edges)]
        return rng.randint(1, most_blocks * block)

    def with_operands(self, run: Run) -> Run:
        """Return the run with random bytes as operands."""
        shape = self.shape
        heads = run.kv_heads * run.group
        return replace(
            run,
            q_data=self.rng.randbytes(heads * shape.q_head_bytes(run.tokens)),
            k_data=self.rng.randbytes(run.kv_heads * shape.k_head_bytes(run.tokens)),
            v_data=self.rng.randbytes(run.kv_heads * shape.v_head_bytes(run.tokens)),
            o_bytes=heads * shape.o_head_bytes(run.tokens),
        )

    def with_lists(self, run: Run) -> Run:
        """Return the run with job lists for the mode LIST, or room for them."""
        if run.mode != Mode.LIST:
            return replace(run, jobs_data=self.rng.randbytes(run.kv_heads * run.job_stride))
        blocks = self.shape.blocks(run.tokens)
        index_set = random_index_set(self.numbers, run.kv_heads * run.group, blocks)
        return self.with_given_lists(run, make_job_lists(index_set, run.kv_heads, run.window))

    def with_given_lists(self, run: Run, lists: tuple[JobList, ...]) -> Run:
        """Return the run with some job lists."""
        data = pack_job_lists(lists, run.job_stride).tobytes()
        return replace(run, lists=lists, jobs_data=data)

    def place_data(self, run: Run) -> None:
        """Give memory the regions of a run and no other."""
        self.memory.clear()
        for name in ("q", "k", "v", "jobs"):
            data = getattr(run, f"{name}_data")
            if data:
                self.memory.add(name, getattr(run, name), data)
        self.untouched = self.rng.randbytes(run.o_bytes)
        self.memory.add("o", run.o, self.untouched)
        self.memory.add("result", run.result, bytes(RESULT_BYTES))

    # Checks

    def values(self, counters: dict[Any, int]) -> dict[str, int]:
        """Return counters by name, with the halves of 64 bits put together."""
        named = {register.name.lower(): value for register, value in counters.items()}
        for name in WIDE_COUNTERS:
            named[name] = named.pop(f"{name}_low") + (named.pop(f"{name}_high") << 32)
        return named

    def expect(self, run: Run) -> Expected:
        """Return what a legal run must do."""
        raise NotImplementedError

    def list_bytes(self, run: Run, lists: tuple[JobList, ...]) -> bytes:
        """Return what must lie at ``jobs`` after a run that wrote lists."""
        data = bytearray(run.jobs_data)
        for index, jobs in enumerate(lists):
            start = index * run.job_stride
            words = jobs.to_words().tobytes()
            data[start : start + len(words)] = words
        return bytes(data)

    def block_bursts(self, run: Run, expected: Expected) -> Counter[tuple[str, bool, int, int]]:
        """Return the bursts of a run without a KV cache: port, direction, address, beats."""
        shape, step = self.shape, self.shape.beat_bytes
        blocks = shape.blocks(run.tokens)
        bursts: Counter[tuple[str, bool, int, int]] = Counter()

        def move(port: str, write: bool, address: int, size: int) -> None:
            for start, beats in expected_bursts(address, size // step, step, MAX_BURST):
                bursts[f"m_axi_{port}", write, start, beats] += 1

        for kv_head, jobs in enumerate(expected.lists):
            list_start = run.jobs + kv_head * run.job_stride
            size = 4 * jobs.words
            head_size = size - 4 * (-(-len(jobs.jobs) // 16) * 16)
            move("jobs", False, list_start, head_size)
            move("jobs", False, list_start + head_size, size - head_size)
            if run.mode != Mode.LIST:
                move("jobs", True, list_start, size)
            heads = range(kv_head * run.group, (kv_head + 1) * run.group)
            for head in heads:
                q_head = run.q + head * shape.q_head_bytes(run.tokens)
                for block in range(blocks + 1 if run.mode == Mode.INDEX else 0):
                    move("q", False, q_head + block * shape.q_block_bytes, shape.q_block_bytes)
                for block in range(blocks):
                    move("q", False, q_head + block * shape.q_block_bytes, shape.q_block_bytes)
                    o = run.o + head * shape.o_head_bytes(run.tokens)
                    move("o", True, o + block * shape.o_block_bytes, shape.o_block_bytes)
            k_head = run.k + kv_head * shape.k_head_bytes(run.tokens)
            v_head = run.v + kv_head * shape.v_head_bytes(run.tokens)
            for block in range(blocks if run.mode == Mode.INDEX else 0):
                move("k", False, k_head + block * shape.k_block_bytes, shape.k_block_bytes)
            for visit in visits_of(jobs, run.window):
                k = k_head + visit.block * shape.k_block_bytes
                move("k", False, k, shape.k_block_bytes)
                v = v_head + visit.block * shape.v_block_bytes
                move("v", False, v, shape.v_block_bytes)
        return bursts

    def seen_bursts(self, run: Run) -> Counter[tuple[str, bool, int, int]]:
        """Return the bursts on the ports without those of the result block."""
        end = run.result + RESULT_BYTES
        return Counter(
            (burst.port, burst.write, burst.address, burst.beats)
            for burst in self.bursts
            if not run.result <= burst.address < end
        )

    def port_beats(self, run: Run) -> dict[str, int]:
        """Return the beats that the ports moved, by the name of the counter."""
        beats = {name: self.ports[name].monitor.counts.beats for name in ("q", "k", "v")}
        result: dict[str, int] = {f"{name}_beats": count for name, count in beats.items()}
        result["jobs_beats_read"] = self.ports["jobs"].monitor.counts.beats
        for name, counter in (("jobs_write", "jobs_beats_written"), ("o", "o_beats")):
            counts = self.ports[name].monitor.counts
            result[counter] = counts.beats - counts.null_beats
        if any(burst.address == run.result for burst in self.bursts):
            result["o_beats"] -= RESULT_BYTES // self.shape.beat_bytes
        return result

    async def start(self, run: Run) -> None:
        """Place the data, write the arguments and start."""
        self.place_data(run)
        await self.launch(run.arguments())

    async def complete(self, run: Run) -> dict[str, int]:
        """Run to the end and check everything; a legal run without faults."""
        expected = self.expect(run)
        await self.start(run)
        await self.ended()
        return await self.check_complete(run, expected)

    async def check_complete(self, run: Run, expected: Expected) -> dict[str, int]:
        """Check a run that went through, and acknowledge it; return its counters."""
        counters = self.values(await self.check_result_block(Status.OK, report=True))
        compare = self.compare
        jobs = run.jobs_data if run.mode == Mode.LIST else self.list_bytes(run, expected.lists)
        compare("job lists are right", self.region("jobs") == jobs, True)
        self.compare_outputs(run, expected)
        fixed = {
            "jobs_done": sum(len(jobs.jobs) for jobs in expected.lists),
            "kv_heads_done": run.kv_heads,
            "bursts": self.seen_bursts(run).total(),
            **self.port_beats(run),
            **expected.counters,
        }
        sums = self.port_checksums(run.result, self.shape.beat_bytes)
        names = {"jobs": "jobs_read", "jobs_write": "jobs_written"}
        fixed |= {f"{names.get(port, port)}_checksum": value for port, value in sums.items()}
        for name, value in fixed.items():
            compare(name, counters[name], value)
        phases = counters["index_cycles"] + counters["attention_cycles"]
        assert 0 < phases < counters["cycles"] < self.end_cycle - self.start_cycle + 8
        assert (counters["index_cycles"] == 0) == (run.mode == Mode.LIST)
        assert counters["starved_cycles"] <= counters["attention_cycles"]
        await self.acknowledge()
        mode = Mode(run.mode).name
        shape = (run.tokens, self.shape.block, run.group, run.window, run.kv_heads)
        self.coverage.prefill_run(mode, *shape)
        self.coverage.prefill_cache(mode, run.flags, run.hot_threshold)
        return counters

    def compare_outputs(self, run: Run, expected: Expected) -> None:
        """Compare what is at ``o``, the rows beyond the tokens apart, which mean nothing."""
        shape = self.shape
        blocks = shape.blocks(run.tokens)
        axes = (-1, blocks, shape.head_dim, shape.block)
        got = np.frombuffer(self.region("o"), np.int16).reshape(axes)
        wanted = np.frombuffer(expected.o, np.int16).reshape(axes)
        wrong = got != wanted
        rows = run.tokens - (blocks - 1) * shape.block
        wrong[:, -1, :, rows:] = False
        self.scoreboard.comparisons += got.size
        if wrong.any():
            head, block, channel, row = np.argwhere(wrong)[0]
            raise AssertionError(
                f"{wrong.sum()} of {wrong.size} outputs differ, first head {head}, block {block}, "
                f"channel {channel}, row {row}: {got[head, block, channel, row]} is not "
                f"{wanted[head, block, channel, row]}"
            )

    async def refused(self, run: Run, status: Status, *, report: bool = True) -> None:
        """Run something that the checks refuse: nothing but the result block is touched."""
        await self.start(run)
        await self.ended()
        counters = self.values(await self.check_result_block(status, report=report))
        self.compare("outputs are untouched", self.region("o") == self.untouched, True)
        self.compare("job lists are untouched", self.region("jobs") == run.jobs_data, True)
        touched = {burst.port for burst in self.bursts}
        self.compare("ports used", touched, {"m_axi_o"} if report else set())
        for name, value in counters.items():
            if name not in ("runs", "cycles"):
                self.compare(name, value, 0)
        await self.acknowledge()

    async def failed(self, run: Run, status: Status, *, report: bool = True) -> dict[str, int]:
        """Check a run that was started and fails in a phase, and acknowledge it."""
        await self.ended()
        counters = self.values(await self.check_result_block(status, report=report))
        if report:
            for name, value in self.port_beats(run).items():
                self.compare(name, counters[name], value)
            self.compare("bursts", counters["bursts"], self.seen_bursts(run).total())
        await self.acknowledge()
        return counters
