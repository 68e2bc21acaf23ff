# SPDX-License-Identifier: Apache-2.0
"""Tests of the prefill kernel around stand-in units: checks, codes, faults, control protocol."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyuvm
from pyuvm import uvm_reg, uvm_status_e

from fastdelta.prefill.job_lists import list_words, make_job_lists
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.registers.prefill import (
    CTRL_AP_CONTINUE,
    CTRL_AP_DONE,
    CTRL_AP_IDLE,
    CTRL_AP_READY,
    CTRL_AP_START,
    ISR_AP_DONE,
    VERSION_VALUE,
    Mode,
    Register,
    Status,
)
from fastdelta_verif.agents.axi4_memory import DECERR, PAGE_BYTES, SLVERR
from fastdelta_verif.agents.axi_lite import LiteAdapter
from fastdelta_verif.cells.stand_in.prefill import WORD, PrefillStandInModel
from fastdelta_verif.covergroups.kernels import PREFILL_SHELL
from fastdelta_verif.environments.prefill_kernel import (
    ALIGNMENT,
    POINTERS,
    RESULT_BYTES,
    Expected,
    PrefillKernelTest,
    Run,
    visits_of,
)
from fastdelta_verif.registers.prefill import prefill_registers

STEPS_PER_JOB = 10
MODES = tuple(Mode)


class PrefillShellTest(PrefillKernelTest):
    """Prefill kernel with the stand-in units."""

    COVERAGE = PREFILL_SHELL

    def build_model(self) -> None:
        """Note the shape."""
        super().build_model()
        self.coverage.hit("bus_width", self.shape.bus_width)

    def expect(self, run: Run) -> Expected:
        """Ask the model of the stand-ins."""
        shape = self.shape
        blocks = shape.blocks(run.tokens)
        model = PrefillStandInModel(
            shape, run.tokens, run.group, run.window, run.q_data, run.k_data, run.v_data
        )
        is_index = run.mode == Mode.INDEX
        parameters = run.gamma + run.divergence_limit + run.min_blocks + run.max_blocks
        lists = run.lists or model.lists(parameters if is_index else None)
        jobs = sum(len(part.jobs) for part in lists)
        visits = sum(len(visits_of(part, run.window)) for part in lists)
        tiles = run.kv_heads * run.group * blocks if is_index else 0
        counters = {
            "index_tiles": tiles,
            "index_steps": STEPS_PER_JOB * 2 * tiles,
            "attention_steps": STEPS_PER_JOB * jobs,
            "empty_rows": run.kv_heads * run.group * blocks,
            "cache_visits": visits,
            "cache_hits": 0,
            "cache_misses": visits,
            "cache_hot": run.kv_heads * blocks,
            "cache_cold": jobs + run.kv_heads * blocks * (blocks - 1) // 2,
            "cache_bypasses": run.kv_heads * run.hot_threshold * (run.flags & 1),
            "cache_evictions": jobs,
        }
        return Expected(model.outputs(lists), lists, counters)

    async def check_complete(self, run: Run, expected: Expected) -> dict[str, int]:
        """Check the bursts as well, which the stand-ins ask for block by block."""
        self.compare("bursts on the ports", self.seen_bursts(run), self.block_bursts(run, expected))
        return await super().check_complete(run, expected)

    def short(self, mode: Mode = Mode.INDEX, **other: Any) -> Run:
        """Return a small run."""
        return self.make(mode, most_blocks=2, **other)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class random_runs(PrefillShellTest):
    """All modes and shapes with random stalls: memory, counters, bursts, result block."""

    async def scenario(self) -> None:
        """Run."""
        for index in range(self.settings.options["runs"]):
            self.stall_at_random()
            await self.complete(self.make(MODES[index % 3]))
        self.stall("light", aw_order="w_after_aw")
        # The first 64 bytes of every buffer lie before a page.
        places = {
            name: (bank << 32) + PAGE_BYTES - ALIGNMENT
            for bank, name in enumerate(("q", "k", "v", "jobs", "o"), 1)
        }
        block = self.shape.block
        shapes = ((4 * block, 2, 3), (3 * block - 1, 2, 1), (2 * block + 1, 1, 1))
        for mode in reversed(MODES):
            for tokens, window, kv_heads in shapes:
                run = self.make(mode, kv_heads=kv_heads, group=1, tokens=tokens, window=window)
                await self.complete(replace(run, **places))


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class refusals(PrefillShellTest):
    """Every check with its code, in their order; what is refused changes nothing."""

    async def scenario(self) -> None:
        """Break each rule alone, then one rule more at a time, from the last to the first."""
        shape, huge = self.shape, 0x8000_0000
        self.stall_at_random()
        await self.complete(self.short())
        longest = shape.max_tokens
        good = self.short(Mode.INDEX, tokens=shape.block + 1, group=1, window=2, flags=1)
        shortest = 4 * list_words(2, 2 * good.group)
        wrong: dict[Status, list[dict[str, int]]] = {
            Status.BAD_MODE: [{"mode": 3}, {"mode": 4}, {"mode": huge}],
            Status.BAD_SHAPE: [
                {"kv_heads": 0},
                {"kv_heads": 0x1_0000},
                {"kv_heads": huge},
                {"group": 0},
                {"group": shape.max_group + 1, "window": 1},
                {"group": huge + 1},
                {"window": 0},
                {"window": 3},
                {"window": 0x80, "group": 1},
                {"window": huge},
                {"window": 2 * shape.slots, "group": 1},
                {"window": shape.slots, "group": 2},
            ],
            Status.BAD_TOKENS: [{"tokens": 0}, {"tokens": longest + 1}, {"tokens": huge}],
            Status.BAD_PARAMETER: [
                {"gamma": 0},
                {"gamma": 0x1_0001},
                {"gamma": huge},
                {"divergence_limit": 0x100_0001},
                {"divergence_limit": huge},
                {"min_blocks": 2, "max_blocks": 1},
                {"min_blocks": huge},
                {"max_blocks": shape.max_blocks + 1},
                {"max_blocks": huge},
                {"hot_threshold": 0x1_0000},
                {"hot_threshold": huge},
            ],
            Status.BAD_ADDRESS: [
                *({name: getattr(good, name) + 8} for name in POINTERS if name != "result"),
                {"job_stride": good.job_stride + 4},
                {"job_stride": shortest - ALIGNMENT},
                {"job_stride": 0},
            ],
        }
        for status, cases in wrong.items():
            for case in cases:
                await self.refused(replace(good, **case), status)
                for name in case:
                    self.coverage.hit("refused", name)
        bad_result = {"result": good.result + RESULT_BYTES // 8}
        await self.refused(replace(good, **bad_result), Status.BAD_ADDRESS, report=False)
        self.coverage.hit("refused", "result")
        together: dict[str, int] = {}
        for status, cases in reversed(wrong.items()):
            together |= cases[0]
            await self.refused(replace(good, **together), status)
            self.coverage.hit("several_wrong", status.name)
        await self.refused(replace(good, **together | bad_result), Status.BAD_MODE, report=False)
        await self.unused_arguments()
        await self.limits()

    async def unused_arguments(self) -> None:
        """Arguments that a mode does not use may be anything."""
        junk = self.rng.getrandbits(32)
        rule = {"gamma": 0, "divergence_limit": junk, "min_blocks": 5, "max_blocks": 4}
        for mode in (Mode.LIST, Mode.DENSE):
            await self.complete(self.short(mode, **rule))
            await self.complete(self.short(mode, flags=0, hot_threshold=0xFFFF_FFFF))
            self.coverage.hit("unused_arguments", mode.name)

    async def limits(self) -> None:
        """Run with the largest legal values, and with the smallest."""
        shape = self.shape
        largest = {
            "gamma": 1 << 16,
            "divergence_limit": 1 << 24,
            "min_blocks": shape.max_blocks,
            "max_blocks": shape.max_blocks,
            "flags": 1,
            "hot_threshold": 0xFFFF,
        }
        await self.complete(self.short(**largest))
        self.coverage.hit("limits", "largest parameters")
        smallest = {"gamma": 1, "divergence_limit": 0, "min_blocks": 0, "max_blocks": 0}
        await self.complete(self.short(**smallest, hot_threshold=0))
        self.coverage.hit("limits", "smallest parameters")
        await self.complete(self.make(Mode.LIST, tokens=1, kv_heads=1, group=1, window=1))
        self.coverage.hit("limits", "one token")
        await self.complete(
            self.make(Mode.DENSE, kv_heads=1, group=1, tokens=shape.max_tokens, window=shape.slots)
        )
        self.coverage.hit("limits", "the longest prompt")
        await self.complete(self.short(group=shape.max_group, window=1))
        self.coverage.hit("limits", "the largest group")


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class list_faults(PrefillShellTest):
    """Job lists that are wrong, or too long for their room: code, no access beyond the room."""

    async def scenario(self) -> None:
        """Try each in the first and in a later KV head, then go on."""
        faults = {
            "map overflow": self.map_overflow,
            "too long to write": self.too_long_to_write,
            "too long to read": self.too_long_to_read,
            "broken": self.broken,
        }
        for kv_head in (0, 1):
            self.stall_at_random()
            for name, fault in faults.items():
                await fault(kv_head)
                where = "a later one" if kv_head else "first KV head"
                self.coverage.hit("list_fault", (name, where))
            await self.complete(self.short(Mode.DENSE))

    async def map_overflow(self, kv_head: int) -> None:
        """Let a map have more entries than there are, here 3: no list is written."""
        tokens = 3 * self.shape.block
        run = self.make(Mode.INDEX, tokens=tokens, kv_heads=kv_head + 1, divergence_limit=1)
        await self.start(run)
        counters = await self.failed(run, Status.MAP_OVERFLOW)
        self.compare("job lists are untouched", self.region("jobs") == run.jobs_data, True)
        self.compare("beats written", counters["jobs_beats_written"], 0)
        assert counters["index_tiles"] == 3 * run.group
        await self.complete(replace(run, divergence_limit=0))
        await self.complete(self.make(Mode.INDEX, tokens=2 * self.shape.block))

    async def too_long_to_write(self, kv_head: int) -> None:
        """Give lists one group of words less than they need; no list is written."""
        shape = self.shape
        tokens = 4 * shape.block
        run = self.make(Mode.DENSE, tokens=tokens, group=2, window=1, kv_heads=kv_head + 1)
        room = 4 * list_words(4, 2 * 10) - ALIGNMENT
        run = self.with_lists(replace(run, job_stride=room))
        await self.start(run)
        counters = await self.failed(run, Status.BAD_ADDRESS)
        self.compare("job lists are untouched", self.region("jobs") == run.jobs_data, True)
        self.compare("outputs are untouched", self.region("o") == self.untouched, True)
        self.compare("KV heads done", counters["kv_heads_done"], 0)
        self.compare("beats written", counters["jobs_beats_written"], 0)
        await self.complete(self.with_lists(replace(run, job_stride=room + ALIGNMENT)))

    async def too_long_to_read(self, kv_head: int) -> None:
        """Give a list that is legal but longer than its room; nothing beyond is read."""
        blocks, group, window = 4, 2, 1
        tokens = blocks * self.shape.block
        run = self.make(
            Mode.LIST,
            tokens=tokens,
            group=group,
            window=window,
            kv_heads=kv_head + 1,
            jobs_data=b"",
        )
        dense = make_job_lists(IndexSet.dense(2, blocks), 1, window)
        room = 4 * dense[0].words - ALIGNMENT
        short = make_job_lists(IndexSet.from_mask(np.array([np.eye(4, dtype=bool)] * 2)), 1, window)
        data = b"".join(short[0].to_words().tobytes().ljust(room, b"\0") for _ in range(kv_head))
        data += dense[0].to_words().tobytes()[:room]
        run = replace(run, lists=short * kv_head + dense, job_stride=room, jobs_data=data)
        await self.start(run)
        counters = await self.failed(run, Status.BAD_JOB)
        self.compare("KV heads done", counters["kv_heads_done"], kv_head)
        run = replace(run, job_stride=room + ALIGNMENT)
        data = b"".join(
            jobs.to_words().tobytes().ljust(run.job_stride, b"\0") for jobs in run.lists
        )
        await self.complete(replace(run, jobs_data=data))

    async def broken(self, kv_head: int) -> None:
        """Break a rule of the format at a random job."""
        for _ in range(4):
            run = self.make(Mode.LIST, kv_heads=kv_head + 1, most_blocks=5)
            words = np.frombuffer(run.jobs_data, np.uint32).copy()
            jobs = run.lists[kv_head]
            first = kv_head * run.job_stride // 4 + jobs.words - -(-len(jobs.jobs) // 16) * 16
            words[first + self.rng.randrange(len(jobs.jobs))] ^= 1 << 28  # the last flag
            run = replace(run, jobs_data=words.tobytes())
            await self.start(run)
            counters = await self.failed(run, Status.BAD_JOB)
            self.compare("KV heads done", counters["kv_heads_done"], kv_head)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class memory_errors(PrefillShellTest):
    """SLVERR and DECERR at any beat of any port: code, the run stops, the next run is whole."""

    async def scenario(self) -> None:
        """Fail on each port in each mode."""
        responses = {port: itertools.cycle((SLVERR, DECERR)) for port in self.ports}
        for mode, port in itertools.product(MODES, self.ports):
            if mode == Mode.LIST and port == "jobs_write":
                continue
            run = self.make(mode)
            status = Status.WRITE_ERROR if port in ("o", "jobs_write") else Status.READ_ERROR
            self.stall_at_random()
            place = self.rng.choice(self.touched(run, port))
            self.ports[port].responder.faults.errors[place] = next(responses[port])
            await self.start(run)
            await self.failed(run, status)
            self.stall_at_random()
            await self.complete(self.short())
        await self.both()
        await self.unwritten_report()

    def touched(self, run: Run, port: str) -> list[int]:
        """Return the addresses of the beats that a run moves on a port."""
        expected = self.block_bursts(run, self.expect(run))
        name, write = f"m_axi_{port.removesuffix('_write')}", port in ("o", "jobs_write")
        step = self.shape.beat_bytes
        return [
            address + beat * step
            for (bus, direction, address, beats) in expected
            if bus == name and direction == write
            for beat in range(beats)
        ]

    async def both(self) -> None:
        """Let every port fail: the first failure is the status, a read here."""
        run = self.short(Mode.LIST)
        self.stall("none", latency=(5, 5))
        for port in self.ports:
            for place in self.touched(run, port):
                self.ports[port].responder.faults.errors[place] = SLVERR
        await self.start(run)
        await self.failed(run, Status.READ_ERROR)

    async def unwritten_report(self) -> None:
        """Answer the write of the result block with an error."""
        for case, status in ({}, Status.WRITE_ERROR), ({"mode": 9}, Status.BAD_MODE):
            self.stall("light")
            run = replace(self.short(Mode.DENSE), **case)
            self.ports["o"].responder.faults.errors[run.result] = DECERR
            await self.start(run)
            await self.ended()
            # The bursts without the error were written.
            self.memory.regions.pop()
            self.memory.add("result", run.result, bytes(RESULT_BYTES))
            if status == Status.WRITE_ERROR:
                self.compare_outputs(run, self.expect(run))
            await self.failed(run, status, report=False)
            wrong = "first reason stays" if case else "not written"
            self.coverage.hit("result_block", wrong)
        self.stall("none")
        await self.complete(self.short())


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class time_outs(PrefillShellTest):
    """A channel that stops: code TIMEOUT, done when memory has answered; the next run is whole."""

    async def scenario(self) -> None:
        """Stop each channel at random places."""
        dut, rng = self.dut, self.rng
        cases = [(port, channel) for port in ("q", "k", "v", "jobs") for channel in ("ar", "r")]
        cases += [(port, channel) for port in ("jobs_write", "o") for channel in ("aw", "w", "b")]
        for port, channel in cases * self.settings.options["rounds"]:
            # A mode in which the port is used soon.
            modes = {"q": MODES, "k": MODES, "jobs_write": (Mode.DENSE,)}
            run = self.make(
                rng.choice(modes.get(port, (Mode.LIST,))),
                kv_heads=2,
                tokens=4 * self.shape.block,
                watchdog=rng.choice([600, 900]),
            )
            self.stall(rng.choice(["none", "light"]), latency=(0, 10))
            stuck = self.ports[port].responder.faults.stuck
            if port.startswith("jobs"):  # moves only as a KV head begins: the next one may be late
                stuck.add(channel)
            await self.start(run)
            await self.domain.cycles(rng.randint(0, 40))
            stuck.add(channel)
            for _ in range(run.watchdog + 100):
                await self.domain.edge
                assert not int(dut.interrupt.value), f"done while {port} {channel} is stuck"
            self.compare("status", await self.read(Register.STATUS), Status.TIMEOUT)
            self.coverage.hit("stuck", (port, channel))
            self.compare("control", await self.read(Register.CTRL) & ~CTRL_AP_READY, 0)
            stuck.clear()
            await self.failed(run, Status.TIMEOUT, report=False)
            self.coverage.watchdog(run.watchdog)
            await self.complete(self.short())
        await self.short_watchdogs()

    async def short_watchdogs(self) -> None:
        """Give up at every early cycle; a watchdog that is long enough changes nothing."""
        self.stall("none", latency=(20, 30))
        for watchdog, mode in zip(range(1, 60, 2), itertools.cycle(MODES), strict=False):
            run = self.make(mode, watchdog=watchdog, tokens=2 * self.shape.block)
            await self.start(run)
            await self.failed(run, Status.TIMEOUT, report=False)
            self.coverage.watchdog(watchdog)
        await self.complete(self.short(watchdog=50_000))
        self.coverage.hit("watchdog", "long enough")
        run = replace(self.short(), mode=9, watchdog=60)
        self.ports["o"].responder.faults.stuck.add("b")
        await self.start(run)
        await self.domain.cycles(200)
        self.ports["o"].responder.faults.stuck.clear()
        await self.ended()
        self.memory.regions[-1].data[:] = bytes(RESULT_BYTES)
        await self.failed(run, Status.BAD_MODE, report=False)
        await self.complete(self.short())


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class control_protocol(PrefillShellTest):
    """ap_ctrl_chain: start, ready, done, continue, a queued run, the interrupt registers."""

    async def scenario(self) -> None:
        """Walk through the protocol."""
        await self.constants()
        await self.register_model()
        await self.queued_run()
        await self.check_interrupts(self.start_short_run)

    async def constants(self) -> None:
        """Read what never changes, and addresses without a register."""
        shape, compare = self.shape, self.compare
        compare("control", await self.read(Register.CTRL), CTRL_AP_IDLE)
        self.coverage.hit("protocol", "idle after reset")
        compare("version", await self.read(Register.VERSION), VERSION_VALUE)
        fields = {
            Register.SHAPE0: ((shape.block, 2), (shape.head_dim, 2)),
            Register.SHAPE1: (
                (shape.strips, 1),
                (shape.row_arrays, 1),
                (shape.lut_arrays, 1),
                (shape.slots, 1),
            ),
            Register.SHAPE2: ((shape.array_rows, 2), (shape.array_columns, 2)),
            Register.SHAPE3: ((shape.bus_width, 2), (shape.max_group, 1), (shape.kv_buffers, 1)),
            Register.SHAPE4: ((shape.cache_lines, 2), (shape.max_blocks, 2)),
            Register.SHAPE5: ((shape.map_entries, 4),),
        }
        for register, parts in fields.items():
            expected = b"".join(value.to_bytes(size, "little") for value, size in parts)
            compare(register.name, await self.read(register), int.from_bytes(expected, "little"))
        self.coverage.hit("protocol", "constants")
        for address in (0x14, 0x70, 0xBC, 0xFC, 0x120, 0x13C, 0x1D0, 0xFFC):
            await self.write(address, 0xFFFF_FFFF)
            compare(f"word at {address:#x}", await self.read(address), 0)
        self.coverage.hit("protocol", "addresses without a register")
        for bit in (CTRL_AP_DONE, CTRL_AP_IDLE, CTRL_AP_READY, CTRL_AP_CONTINUE, 0x80):
            await self.write(Register.CTRL, bit)
            compare("control", await self.read(Register.CTRL), CTRL_AP_IDLE)
        self.coverage.hit("protocol", "bits that are read only")

    async def register_model(self) -> None:
        """Write random arguments, read them in another order: the register model predicts all."""
        model = prefill_registers("registers")
        model.build()
        model.lock_model()
        register_map = model.get_default_map()
        register_map.set_sequencer(self.control.sequencer, LiteAdapter("adapter"))
        register_map.set_auto_predict(True)
        names = [r.name.lower() for r in Register if Register.MODE <= r <= Register.WATCHDOG]
        nodes: dict[str, uvm_reg] = {}
        for name in names:
            block, half = name.removesuffix("_low").removesuffix("_high"), name.rpartition("_")[2]
            node = getattr(model, block if half in ("low", "high") else name)
            nodes[name] = getattr(node, half) if half in ("low", "high") else node
        for _ in range(3):
            for name in self.rng.sample(names, len(names)):
                expected = nodes[name].get_mirrored_value()  # reading predicts as well
                status, value = await nodes[name].read()
                self.compare("status", status, uvm_status_e.UVM_IS_OK)
                self.compare(name, value, expected)
            for name in self.rng.sample(names, len(names)):
                await nodes[name].write(self.rng.getrandbits(32) & (1 if name == "flags" else WORD))
        await self.write(Register.Q_LOW, 0x1122_3344)
        await self.write(Register.Q_LOW, 0xAABB_CCDD, strobe=0b0101)
        self.compare("strobes", await self.read(Register.Q_LOW), 0x11BB_33DD)
        self.coverage.hit("protocol", "byte strobes")

    async def queued_run(self) -> None:
        """Write and start the next run while one runs: it begins after continue."""
        self.stall("none", latency=(40, 40))
        first, second = self.short(Mode.INDEX), self.short(Mode.LIST)
        expected = self.expect(first)
        await self.start(first)
        control = await self.read(Register.CTRL)
        self.compare("control in the run", control, CTRL_AP_READY)
        self.compare("ready again", await self.read(Register.CTRL), 0)
        before = dict.fromkeys(Register, 0)
        for register, value in second.arguments().items():
            await self.write(register, value)
            name = self.rng.choice(self.counter_registers[:8])
            value = await self.read(name)
            assert value >= before[name], f"{name.name} fell during the run"
            before[name] = value
        self.coverage.hit("protocol", "counters read in a run")
        await self.write(Register.CTRL, CTRL_AP_START)
        await self.ended()
        await self.domain.cycles(300)
        done = CTRL_AP_DONE | CTRL_AP_START
        self.compare("control", await self.read(Register.CTRL), done)
        self.compare_outputs(first, expected)
        await self.check_result_block(Status.OK, report=True)
        self.place_data(second)
        self.bursts.clear()
        for port in self.ports.values():
            port.monitor.counts.clear()
        await self.write(Register.ISR, ISR_AP_DONE)
        self.runs += 1
        await self.write(Register.CTRL, CTRL_AP_CONTINUE)
        self.start_cycle = self.domain.cycle
        await self.ended()
        await self.read(Register.CTRL)
        await self.check_complete(second, self.expect(second))
        self.coverage.hit("protocol", "queued run")

    async def start_short_run(self) -> None:
        """Start what is refused."""
        await self.start(replace(self.short(), mode=9))


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class reset_in_run(PrefillShellTest):
    """Reset at any cycle of a run: then every run is equal to one after power-up."""

    async def scenario(self) -> None:
        """Interrupt runs."""
        first: list[bytes] = []
        rng_state = self.rng.getstate(), self.draw
        for round_ in range(self.settings.options["rounds"]):
            if round_:
                self.stall_at_random()
                await self.start(self.make(self.rng.choice(MODES)))
                if self.rng.random() < 0.2:
                    await self.ended()
                else:
                    await self.domain.cycles(self.rng.choice([2, self.rng.randint(1, 900)]))
                await self.reset_run()
            before = self.rng.getstate()
            self.rng.setstate(rng_state[0])
            self.draw = rng_state[1]
            self.stall("none", latency=(5, 5))
            await self.complete(self.short(Mode.INDEX))
            blocks = [self.region("o"), self.region("result")]
            first = first or blocks
            self.compare("run after reset equals the first", blocks == first, True)
            self.rng.setstate(before)


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class block_rate(PrefillShellTest):
    """From the start to the first request; blocks that follow each other at a latency of 64."""

    async def scenario(self) -> None:
        """Attend to all blocks with one query block."""
        shape = self.shape
        blocks = shape.max_blocks
        run = self.make(
            Mode.LIST, tokens=blocks * shape.block, kv_heads=1, group=1, window=1, flags=0
        )
        mask = np.eye(blocks, dtype=bool)[np.newaxis].copy()
        mask[0, -1] = True  # the last query block takes all
        run = self.with_given_lists(run, make_job_lists(IndexSet.from_mask(mask), 1, 1))
        self.stall("none", latency=(64, 64))
        await self.complete(run)
        delay = min(burst.cycle for burst in self.bursts) - self.start_cycle
        assert delay <= 20, f"first request {delay} cycles after start"
        late = self.end_cycle - self.ports["o"].monitor.counts.last_answer_cycle
        assert late <= 5, "done came late"
        for port, size in (("k", shape.k_block_bytes), ("v", shape.v_block_bytes)):
            base = getattr(run, port)
            bursts = sorted((b.cycle, b.address) for b in self.bursts if b.port == f"m_axi_{port}")
            ends = self.ports[port].monitor.counts.answer_cycles
            # The last bursts of the blocks of the last query block.
            last = {
                (address - base) // size: end
                for (_, address), end in zip(bursts, ends, strict=True)
            }
            # The first ones are fetched while earlier query blocks are still waiting for theirs.
            cycles = [last[block] for block in range(8, blocks)]
            # K has more beats than V and sets the pace; buffers blur the beginning and the end.
            pace = shape.k_block_bytes // shape.beat_bytes + 4
            cost = cycles[-1] - cycles[0]
            limit = pace * (len(cycles) - 1) + 64
            assert cost <= limit, f"{port} blocks took {cost} cycles, not {limit}"
            self.coverage.hit("block_rate", port)
        # A list that is written in bursts of the greatest length, at 64 bits.
        await self.complete(
            self.make(Mode.DENSE, tokens=16 * shape.block, kv_heads=1, group=1, window=shape.slots)
        )
