# SPDX-License-Identifier: Apache-2.0
"""Tests of ``decode_kernel`` with its core; memory is compared with the bit-exact model."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import pyuvm
from pyuvm import uvm_test

from fastdelta.registers.decode import CTRL_AP_CONTINUE, CTRL_AP_START, Command, Status
from fastdelta_verif.agents.axi4_memory import DECERR, SLVERR
from fastdelta_verif.covergroups.cells import RESPONSES
from fastdelta_verif.covergroups.kernels import RESET_TIMES
from fastdelta_verif.environments.decode_coverage import DecodeKernelCoverage
from fastdelta_verif.environments.decode_kernel import (
    COUNTER_NAMES,
    DecodeKernelEnvironment,
    Ended,
    Run,
)
from fastdelta_verif.settings import Settings

TIME_LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}


class DecodeKernelTest(uvm_test):
    """Base: starts the environment and runs ``body``."""

    def build_phase(self) -> None:
        """Create the environment and its coverage."""
        self.env = DecodeKernelEnvironment("env", self)
        self.coverage = DecodeKernelCoverage("coverage", self)

    def connect_phase(self) -> None:
        """Sample the coverage with each checked run."""
        self.env.scoreboard.port.connect(self.coverage.analysis_export)

    async def run_phase(self) -> None:
        """Run the test's body."""
        self.raise_objection()
        env = self.env
        self.options, self.rng, self.stimulus = Settings.current().options, env.rng, env.stimulus
        self.contexts = env.shape.contexts
        await env.start()
        env.stall("none")
        await self.body()
        self.drop_objection()

    async def body(self) -> None:
        """Drive the kernel; subclasses define it."""
        raise NotImplementedError

    def random_run(self, *, illegal: float = 0.2, decodes: int = 4, long: float = 0.0) -> Run:
        """Return a random run.

        Parameters
        ----------
        illegal : float
            Share of runs that the kernel refuses.
        decodes : int
            Decodes for each other command.
        long : float
            Share of the decodes with 10 to 12 tokens, beside the few that chance brings.
        """
        env, rng, stimulus = self.env, self.rng, self.stimulus
        context = rng.randrange(self.contexts)
        command = rng.choices(list(Command), [decodes, 1, 1, 1])[0]
        if command == Command.DECODE:
            make = rng.choice([stimulus.typical, stimulus.typical, stimulus.extreme])
            count = rng.choice([0, 1, 1, 2, 3, rng.randint(4, 12)])
            if long and rng.random() < long:
                count = rng.randint(10, 12)
            bypass = {"normalised": rng.random() < 0.3, "given_gates": rng.random() < 0.5}
            run = env.decode(make(count, **bypass), context)
        elif command == Command.LOAD:
            bad = rng.random() < 0.15
            image = stimulus.bad_image() if bad else stimulus.image(over_range=rng.random() < 0.3)
            run = env.load(image, context)
        else:
            run = env.clear(context) if command == Command.CLEAR else env.dump(context)
        return self.broken(run) if rng.random() < illegal else run

    def broken(self, run: Run) -> Run:
        """Return a run with an argument that the kernel refuses."""
        rng, odd = self.rng, self.env.shape.beat_bytes // 2
        pointers = {
            Command.DECODE: ["qk", "v", "o", "result"],
            Command.CLEAR: ["result"],
            Command.LOAD: ["v", "result"],
            Command.DUMP: ["o", "result"],
        }[Command(run.command)]
        pointer = rng.choice(pointers)
        changes = [
            {"command": rng.choice([4, 1 << 31])},
            {"context": rng.choice([self.contexts, 1 << 31])},
            {pointer: getattr(run, pointer) + odd},
        ]
        if run.command == Command.DECODE:
            changes.append({"tokens": rng.choice([0x1_0000, 0xFFFF_FFFF])})
        return replace(run, **rng.choice(changes))

    async def recover(self, context: int) -> None:
        """Make a lost context usable again, either way."""
        env = self.env
        env.stall()
        again = self.rng.choice([env.clear(context), env.load(self.stimulus.image(), context)])
        self.reached("recovery", "cleared" if again.command == Command.CLEAR else "loaded")
        await env.run(again)

    def reached(self, point: str, value: Hashable) -> None:
        """Count a bin that only a test about it reaches."""
        self.coverage.directed.hit(point, value)

    async def reference_run(self) -> tuple[list[Run], list[Ended]]:
        """Run a short sequence on context 0 from a cleared state; later runs are compared to it."""
        env = self.env
        runs = [env.clear(0), env.decode(self.stimulus.typical(3), 0), env.dump(0)]
        return runs, await env.run(*runs)

    async def repeat(self, runs: list[Run], first: list[Ended]) -> None:
        """Run the same again: equal to the first time, to the bit."""
        again = await self.env.run(*runs)
        assert np.array_equal(first[1].output, again[1].output)
        assert np.array_equal(first[2].image.mantissa, again[2].image.mantissa)
        assert np.array_equal(first[2].image.scale, again[2].image.scale)


@pyuvm.test(**TIME_LIMIT)
class random_runs(DecodeKernelTest):
    """Random runs, some illegal, with random stalls on every channel of every port."""

    async def body(self) -> None:
        """Run them; ``runs`` of them."""
        for _ in range(self.options.get("runs", 25)):
            self.env.stall(latency=(0, self.rng.choice([3, 20, 70])))
            await self.env.run(self.random_run())


@pyuvm.test(**TIME_LIMIT)
class registers_hold_arguments(DecodeKernelTest):
    """Arguments read back as written; the register model predicts every access."""

    async def body(self) -> None:
        """Write random values everywhere, then read in another order."""
        env, rng = self.env, self.rng
        paths = ["command", "context", "tokens", "watchdog"]
        paths += [
            f"{name}.{half}" for name in ("qk", "v", "o", "result") for half in ("low", "high")
        ]
        for path in paths:
            assert await env.read(path) == 0, f"{path} after reset"
        for _ in range(3):
            for path in rng.sample(paths, len(paths)):
                await env.write(path, rng.getrandbits(32))
            for path in rng.sample(paths, len(paths)):
                expected = env.register(path).get_mirrored_value()
                env.scoreboard.compare(path, await env.read(path), expected)
        shape = env.shape
        fields = {
            "shape0": (shape.head_dim, shape.qk_heads, shape.group_ratio, shape.h_iter),
            "shape1": (shape.contexts, 0, shape.bus_width & 0xFF, shape.bus_width >> 8),
        }
        for path, values in fields.items():
            expected = int.from_bytes(bytes(values), "little")
            env.scoreboard.compare(path, await env.read(path), expected)
        self.reached("protocol", "registers hold arguments")


@pyuvm.test(**TIME_LIMIT)
class sequence_in_pieces(DecodeKernelTest):
    """A sequence over several runs equals it in one, also with other contexts in between."""

    async def body(self) -> None:
        """Split at random places."""
        env, rng, count = self.env, self.rng, 7
        tokens = self.stimulus.typical(count)
        last = self.contexts - 1
        _, whole, state = await env.run(env.clear(0), env.decode(tokens, 0), env.dump(0))
        for cuts in (1, rng.randint(2, 4), rng.randint(1, 4), rng.randint(1, 4)):
            env.stall()
            edges = [0, *sorted(rng.sample(range(1, count), cuts)), count]
            await env.run(env.clear(0))
            outputs = []
            for start, stop in itertools.pairwise(edges):
                (piece,) = await env.run(env.decode(tokens.slice(start, stop), 0))
                outputs.append(piece.output)
                if last:
                    await env.run(env.decode(self.stimulus.typical(1), last))
                await env.run(env.decode(self.stimulus.typical(0), 0))
            assert np.array_equal(np.concatenate(outputs), whole.output), f"split at {edges}"
            (after,) = await env.run(env.dump(0))
            assert np.array_equal(after.image.mantissa, state.image.mantissa)
            self.reached("pieces", "two" if cuts == 1 else "three and more")


@pyuvm.test(**TIME_LIMIT)
class memory_errors(DecodeKernelTest):
    """An error answer at any beat of any port: status, lost context, recovery to the bit."""

    async def body(self) -> None:
        """Fail at random beats."""
        env, rng = self.env, self.rng
        runs, first = await self.reference_run()
        keeper = self.contexts - 1  # 0 without a second context
        (kept,) = await env.run(env.load(self.stimulus.image(), keeper))
        for response in ((SLVERR, DECERR) * 2)[: self.options.get("rounds", 3)]:
            for kind, port, status in (
                ("decode", "qk", Status.READ_ERROR),
                ("decode", "v", Status.READ_ERROR),
                ("decode", "o", Status.WRITE_ERROR),
                ("load", "v", Status.READ_ERROR),
                ("dump", "o", Status.WRITE_ERROR),
            ):
                env.stall()
                run = {
                    "decode": env.decode(self.stimulus.typical(2), 0),
                    "load": env.load(self.stimulus.image(), 0),
                    "dump": env.dump(0),
                }[kind]
                size = run.room if port == "o" else len(run.payload[port])
                beat = rng.randrange(size // env.shape.beat_bytes)
                place = getattr(run, port) + beat * env.shape.beat_bytes
                env.ports[port].responder.faults.errors[place] = response
                await env.launch(run)
                await env.done()
                await env.finish(run, failure=status)
                self.reached("error", (f"{kind.upper()} {port}", RESPONSES[response]))
                env.stall()
                if kind != "dump":
                    refused = [env.decode(self.stimulus.typical(1), 0), env.dump(0)]
                    for ended in await env.run(*refused):
                        assert ended.status == Status.CONTEXT_LOST
                    await self.recover(0)
                await self.repeat(runs, first)
        if keeper:
            (still,) = await env.run(env.dump(keeper))
            assert np.array_equal(kept.image.mantissa, still.image.mantissa)


@pyuvm.test(**TIME_LIMIT)
class bad_state_is_refused(DecodeKernelTest):
    """A loaded scale out of range loses the context until it is cleared or loaded."""

    async def body(self) -> None:
        """Load, use, recover."""
        env = self.env
        for _ in range(3):
            (ended,) = await env.run(env.load(self.stimulus.bad_image(), 0))
            assert ended.status == Status.BAD_STATE
            (ended,) = await env.run(env.dump(0))
            assert ended.status == Status.CONTEXT_LOST
            self.reached("bad_state_then", "refused")
            await self.recover(0)
            await env.run(env.decode(self.stimulus.typical(1), 0), env.dump(0))
            self.reached("bad_state_then", "usable again")


@pyuvm.test(**TIME_LIMIT)
class time_outs(DecodeKernelTest):
    """A memory that stops answering: TIMEOUT; the run after that equals a first one."""

    async def body(self) -> None:
        """Stop each channel in the middle of a run, let it answer late, run again."""
        env, rng = self.env, self.rng
        runs, first = await self.reference_run()
        keeper = self.contexts - 1  # 0 without a second context
        (kept,) = await env.run(env.load(self.stimulus.image(), keeper))
        channels = [("qk", "ar"), ("qk", "r"), ("v", "ar"), ("v", "r")]
        channels += [("o", "aw"), ("o", "w"), ("o", "b")]
        for port, channel in channels * self.options.get("rounds", 1):
            env.stall(rng.choice(["none", "light"]), latency=(0, 10))
            # More tokens than the buffers hold, so that a channel that stops is missed.
            run = env.decode(self.stimulus.typical(30), 0, watchdog=rng.choice([400, 700, 1000]))
            stuck = env.ports[port].responder.faults.stuck
            if channel in ("ar", "aw"):
                stuck.add(channel)
            await env.launch(run)
            await env.domain.cycles(rng.randint(0, 150))
            stuck.add(channel)
            await env.domain.cycles(run.watchdog + 50)
            env.scoreboard.compare("status", await env.read("status"), int(Status.TIMEOUT))
            stuck.clear()
            await env.done()
            await env.finish(run, failure=Status.TIMEOUT)
            self.reached("stuck", (port, channel))
            (ended,) = await env.run(env.decode(self.stimulus.typical(1), 0))
            assert ended.status == Status.CONTEXT_LOST
            await self.recover(0)
            await self.repeat(runs, first)
        if keeper:
            (still,) = await env.run(env.dump(keeper))
            assert np.array_equal(kept.image.mantissa, still.image.mantissa)


@pyuvm.test(**TIME_LIMIT)
class reset_in_run(DecodeKernelTest):
    """Reset at any cycle of any run; the next run equals the first one after power-up."""

    async def body(self) -> None:
        """Reset at random cycles."""
        env = self.env
        runs, first = await self.reference_run()
        for round_ in range(self.options.get("rounds", 20)):
            env.stall()
            await env.launch(self.random_run())
            if round_ % 6 == 5:
                await env.done()
            else:
                await env.domain.cycles(self.rng.choice([1, *[self.rng.randint(1, 600)] * 4]))
            done = int(env.dut.interrupt.value)
            started = any(port.monitor.counts.bursts for port in env.ports.values())
            self.reached("reset", RESET_TIMES[2 if done else int(started)])
            await env.reset()
            env.stall()
            await self.repeat(runs, first)


@pyuvm.test(**TIME_LIMIT)
class done_comes_after_the_last_answer(DecodeKernelTest):
    """Answers of writes that come 200 cycles late delay done; memory is whole at done."""

    async def body(self) -> None:
        """Run each command that writes."""
        env = self.env
        for _ in range(3):
            for run in (env.decode(self.stimulus.typical(2)), env.dump(), env.clear()):
                env.stall("none", latency=(200, 200))
                await env.launch(run)
                await env.done()
                counts = env.ports["o"].monitor.counts
                late = env.domain.cycle - counts.last_answer_cycle
                assert 0 <= late < 20, f"done {late} cycles after the last answer"
                await env.finish(run)
                self.reached("late_answers", Command(run.command).name)


@pyuvm.test(**TIME_LIMIT)
class counters_can_be_read_in_a_run(DecodeKernelTest):
    """Registers answer while a run is going on, and counters only grow."""

    async def body(self) -> None:
        """Poll during a long run."""
        env = self.env
        env.stall("heavy")
        run = env.decode(self.stimulus.typical(30))
        await env.launch(run)
        before = dict.fromkeys(COUNTER_NAMES, 0)
        polls = 0
        while not int(env.dut.interrupt.value):
            now = await env.counters()
            if int(env.dut.interrupt.value):
                break
            for name in ("tokens_done", "cycles_low", "qk_beats", "v_beats", "o_beats", "bursts"):
                assert now[name] >= before[name], f"{name} went from {before[name]} to {now[name]}"
            env.scoreboard.compare("status in the run", await env.read("status"), int(Status.OK))
            before, polls = now, polls + 1
        assert polls >= 5, "the run was too short to see anything"
        assert before["qk_beats"] > 0
        assert before["cycles_low"] > 0
        self.reached("protocol", "counters read in a run")
        await env.done()
        await env.finish(run)


@pyuvm.test(**TIME_LIMIT)
class queued_runs(DecodeKernelTest):
    """The next run is written and started while one runs; it begins after continue."""

    async def body(self) -> None:
        """Keep one run queued all the time."""
        env = self.env
        tokens = self.stimulus.typical(8)
        runs = [env.decode(tokens.slice(i, i + 2), 0) for i in range(0, 8, 2)] + [env.dump(0)]
        await env.launch(runs[0])
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            if following is not None:
                await env.arguments(following)
                await env.write("ctrl", CTRL_AP_START)
            await env.done()
            await env.domain.cycles(40)
            monitors = {name: port.monitor for name, port in env.ports.items()}
            status = Status(await env.read("status"))
            counters = await env.counters()
            env.scoreboard.check(run, status, counters, failure=None, monitors=monitors)
            if following is not None:
                env.put(following)
                for port in env.ports.values():
                    port.monitor.counts.clear()
            await env.write("isr", await env.read("isr"))
            await env.write("ctrl", CTRL_AP_CONTINUE)
        self.reached("protocol", "queued run")


@pyuvm.test(**TIME_LIMIT)
class commands_use_only_their_pointers(DecodeKernelTest):
    """Pointers that a command does not use may be anything, and are not touched."""

    async def body(self) -> None:
        """Give the unused pointers odd addresses."""
        env = self.env
        odd = 0x0123_4567_89AB_CDEF
        runs = [
            replace(env.clear(0), qk=odd, v=odd, o=odd),
            replace(env.load(self.stimulus.image(), 0), qk=odd, o=odd),
            replace(env.dump(0), qk=odd, v=odd),
        ]
        for ended in await env.run(*runs):
            assert ended.status == Status.OK
            used = {Command.CLEAR: set(), Command.LOAD: {"m_axi_v"}, Command.DUMP: set()}
            ports = {burst.port for burst in ended.bursts} - {"m_axi_o"}
            assert ports == used[Command(ended.run.command)]
            self.reached("unused_pointers", Command(ended.run.command).name)


@pyuvm.test(**TIME_LIMIT)
class coverage_closure(DecodeKernelTest):
    """Random runs and faults until every bin of the functional coverage was hit."""

    async def body(self) -> None:
        """Run until nothing is missing; give up after ``runs``, many times what it takes."""
        limit = self.options.get("runs", 3000)
        for _ in range(limit):
            if not self.coverage.missing():
                break
            await self.step()
        missing = self.coverage.missing()
        assert not missing, f"not hit by {limit} runs: {missing}"

    async def step(self) -> None:
        """Run one command; memory fails in one of five that use it."""
        env, rng = self.env, self.rng
        env.stall(latency=(0, rng.choice([3, 20, 70])))
        # Every command is refused in every way; long runs that end well are rare beside faults.
        run = self.random_run(illegal=0.3, decodes=2, long=0.15)
        used = [port for port in ("qk", "v") if run.payload.get(port)] + ["o"] * bool(run.room)
        legal = env.scoreboard.refusal_of(run) == Status.OK
        if not (legal and used and rng.random() < 0.2):
            await env.run(run)
            return
        port = rng.choice(used)
        faults = env.ports[port].responder.faults
        if run.command == Command.DECODE and rng.random() < 0.3:
            run = replace(run, watchdog=60)
            faults.stuck.add("aw" if port == "o" else "ar")
            await env.launch(run)
            await env.domain.cycles(120)
            faults.stuck.clear()
            failure = Status.TIMEOUT
        else:
            size = run.room if port == "o" else len(run.payload[port])
            beat = rng.randrange(size // env.shape.beat_bytes)
            faults.errors[getattr(run, port) + beat * env.shape.beat_bytes] = SLVERR
            failure = Status.WRITE_ERROR if port == "o" else Status.READ_ERROR
            await env.launch(run)
        await env.done()
        await env.finish(run, failure=failure)
