# SPDX-License-Identifier: Apache-2.0
"""Tests of the decode kernel around a stand-in core: checks, codes, faults, control protocol.

Every run has its own memory regions of exactly the bytes that it may touch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyuvm

from fastdelta.registers.decode import (
    CTRL_AP_CONTINUE,
    CTRL_AP_DONE,
    CTRL_AP_IDLE,
    CTRL_AP_READY,
    CTRL_AP_START,
    ISR_AP_DONE,
    VERSION_VALUE,
    Command,
    Register,
    Status,
)
from fastdelta.shapes import DecodeShape
from fastdelta_verif.agents.axi4_memory import DECERR, PAGE_BYTES, SLVERR
from fastdelta_verif.cells.movers import expected_bursts
from fastdelta_verif.cells.stand_in import BAD_BIT, WORD, StandInModel
from fastdelta_verif.covergroups.kernels import DECODE_SHELL, token_count_bin
from fastdelta_verif.environments.kernel import MAX_BURST, KernelTest

RESULT_BYTES = 128
PORTS = ("qk", "v", "o")


@dataclass(frozen=True)
class Run:
    """Arguments of a run and the data at its pointers."""

    command: int
    context: int = 0
    tokens: int = 0
    flags: int = 0
    watchdog: int = 0
    qk: int = 0
    v: int = 0
    o: int = 0
    result: int = 0
    qk_data: bytes = field(default=b"", repr=False)
    v_data: bytes = field(default=b"", repr=False)
    o_bytes: int = 0

    def arguments(self) -> dict[Register, int]:
        """Return the value of each argument register."""
        values = {
            Register.COMMAND: self.command,
            Register.CONTEXT: self.context,
            Register.TOKENS: self.tokens,
            Register.FLAGS: self.flags,
            Register.WATCHDOG: self.watchdog,
        }
        for name in ("qk", "v", "o", "result"):
            address = getattr(self, name)
            values[Register[f"{name.upper()}_LOW"]] = address & WORD
            values[Register[f"{name.upper()}_HIGH"]] = address >> 32
        return values


class ShellTest(KernelTest):
    """Kernel with the stand-in core, model of runs."""

    COVERAGE, COMMAND = DECODE_SHELL, (Register.COMMAND, Command)
    READ_PORTS, WRITE_PORTS = ("qk", "v"), ("o",)
    REGISTERS, FIRST_COUNTER = Register, Register.TOKENS_DONE
    RESULT_BYTES, MAGIC, VERSION = RESULT_BYTES, 0x31524446, VERSION_VALUE

    def build_model(self) -> None:
        """Note the shape."""
        parameters = {name.lower(): value for name, value in self.settings.parameters.items()}
        self.shape = DecodeShape(**parameters)
        self.coverage.hit("bus_width", self.shape.bus_width)

    def after_reset(self) -> None:
        """Set the models to the state after reset."""
        super().after_reset()
        self.model = StandInModel(self.shape)
        self.lost: set[int] = set()

    def words_of(self, size: int) -> bytes:
        """Return random bytes."""
        return self.rng.randbytes(size)

    def make(self, command: Command, context: int = 0, tokens: int = 1, **other: int) -> Run:
        """Return a legal run with random data and places."""
        shape, rng = self.shape, self.rng

        def place(bank: int) -> int:
            base = (bank << 32) + 0xFFFF_0000
            if rng.random() < 0.2:  # one beat before a page
                return base + rng.randint(1, 4) * PAGE_BYTES - shape.beat_bytes
            return base + rng.randrange(1024) * shape.beat_bytes

        run = Run(command, context, tokens, rng.randrange(4), result=place(4), **other)
        if command == Command.DECODE:
            return replace(
                run,
                qk=place(1),
                v=place(2),
                o=place(3),
                qk_data=self.words_of(tokens * shape.qk_token_bytes),
                v_data=self.words_of(tokens * shape.v_token_bytes),
                o_bytes=tokens * shape.o_token_bytes,
            )
        if command == Command.LOAD:
            state = bytearray(self.words_of(shape.state_bytes))
            state[3] &= 0x7F
            return replace(run, v=place(2), v_data=bytes(state))
        if command == Command.DUMP:
            return replace(run, o=place(3), o_bytes=shape.state_bytes)
        return run

    def place_data(self, run: Run) -> None:
        """Give memory the regions of a run and no other."""
        self.memory.clear()
        for name in ("qk", "v"):
            data = getattr(run, f"{name}_data")
            if data:
                self.memory.add(name, getattr(run, name), data)
        self.untouched = self.rng.randbytes(run.o_bytes)
        if run.o_bytes:
            self.memory.add("o", run.o, self.untouched)
        self.memory.add("result", run.result, bytes(RESULT_BYTES))

    async def start(self, run: Run) -> None:
        """Write the arguments and start."""
        await self.launch(run.arguments())

    async def check_report(self, status: Status, *, report: bool = True) -> dict[Register, int]:
        """Check status, result block and lost contexts; return the counters."""
        counters = await self.check_result_block(status, report=report)
        self.compare("contexts lost", counters[Register.CONTEXTS_LOST], len(self.lost))
        return counters

    def expect(self, run: Run) -> bytes:
        """Advance the model and return what the run writes at o."""
        model, shape = self.model, self.shape
        output = b""
        if run.command == Command.DECODE:
            output = model.decode(run.context, run.tokens, run.qk_data, run.v_data)
        elif run.command == Command.CLEAR:
            model.clear(run.context)
        elif run.command == Command.LOAD:
            model.load(run.context, run.v_data)
        else:
            output = model.dump(run.context)
        assert len(output) == run.o_bytes, shape
        if run.command in (Command.CLEAR, Command.LOAD):
            if run.context in self.lost:
                cleared = run.command == Command.CLEAR
                self.coverage.hit("lost_context", "cleared" if cleared else "loaded")
            self.lost.discard(run.context)
        return output

    def check_counters(self, run: Run, counters: dict[Register, int]) -> None:
        """Compare the counters of a run that went through."""
        beat_bytes, compare = self.shape.beat_bytes, self.compare
        tokens = run.tokens if run.command == Command.DECODE else 0
        compare("tokens done", counters[Register.TOKENS_DONE], tokens)
        total = self.model.sums[run.context]
        compare("saturations", counters[Register.SATURATIONS], total ^ run.flags)
        compare("norm overflows", counters[Register.NORM_OVERFLOWS], total ^ WORD)
        sizes = {"qk": len(run.qk_data), "v": len(run.v_data), "o": run.o_bytes}
        bursts = []
        for name, size in sizes.items():
            beats = size // beat_bytes
            compare(f"{name} beats", counters[Register[f"{name.upper()}_BEATS"]], beats)
            bursts += [
                (f"m_axi_{name}", address, length)
                for address, length in expected_bursts(
                    getattr(run, name), beats, beat_bytes, MAX_BURST
                )
            ]
        compare("bursts", counters[Register.BURSTS], len(bursts))
        for name, value in self.port_checksums(run.result, beat_bytes).items():
            compare(f"{name} checksum", counters[Register[f"{name.upper()}_CHECKSUM"]], value)
        report = expected_bursts(run.result, RESULT_BYTES // beat_bytes, beat_bytes, MAX_BURST)
        bursts += [("m_axi_o", address, length) for address, length in report]
        seen = [(burst.port, burst.address, burst.beats) for burst in self.bursts]
        compare("bursts on the ports", sorted(seen), sorted(bursts))

        cycles = counters[Register.CYCLES_LOW] + (counters[Register.CYCLES_HIGH] << 32)
        assert 3 < cycles < self.end_cycle - self.start_cycle + 8, f"{cycles} cycles"

    async def complete(self, run: Run) -> None:
        """Run to the end and check everything; a legal run without faults."""
        self.place_data(run)
        output = self.expect(run)
        await self.start(run)
        await self.ended()
        self.compare("output", self.region("o"), output)
        counters = await self.check_report(Status.OK)
        self.check_counters(run, counters)
        await self.acknowledge()
        if run.command == Command.DECODE:
            self.coverage.hit("tokens", token_count_bin(run.tokens))
        if self.lost:
            self.coverage.hit("lost_context", "another one works")

    async def refused(self, run: Run, status: Status, *, report: bool = True) -> None:
        """Run something that the checks refuse: nothing but the result block is touched."""
        self.place_data(run)
        await self.start(run)
        await self.ended()
        self.compare("output", self.region("o"), self.untouched)
        counters = await self.check_report(status, report=report)
        touched = {burst.port for burst in self.bursts}
        self.compare("ports used", touched, {"m_axi_o"} if report else set())
        kept = (Register.CYCLES_LOW, Register.CONTEXTS_LOST, Register.RUNS)
        for register in self.counter_registers:
            if register not in kept:
                self.compare(register.name, counters[register], 0)
        await self.acknowledge()

    async def check_context(self, context: int) -> None:
        """See by a dump that a context is what the model says."""
        await self.complete(self.make(Command.DUMP, context))

    def random_run(self) -> Run:
        """Return a legal run on a context that is not lost."""
        contexts = [c for c in range(self.shape.contexts) if c not in self.lost]
        command = self.rng.choice(
            [Command.DECODE] * 5 + [Command.CLEAR, Command.LOAD, Command.DUMP]
        )
        return self.make(command, self.rng.choice(contexts), self.rng.choice([0, 1, 1, 2, 5, 12]))


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class random_runs(ShellTest):
    """Commands on all contexts with random stalls: memory, counters, bursts, result block."""

    async def scenario(self) -> None:
        """Run."""
        for _ in range(self.settings.options["runs"]):
            self.stall_at_random()
            await self.complete(self.random_run())
        self.stall("light", aw_order="w_after_aw")
        for _ in range(4):
            await self.complete(self.random_run())


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class refusals(ShellTest):
    """Every check with its code, in their order; what is refused changes nothing."""

    async def scenario(self) -> None:
        """Break one rule more at a time, from the last check to the first."""
        self.stall_at_random()
        await self.complete(self.make(Command.DECODE, 0))
        odd = self.shape.beat_bytes // 2
        for command, pointers in (
            (Command.DECODE, ("qk", "v", "o")),
            (Command.LOAD, ("v",)),
            (Command.DUMP, ("o",)),
            (Command.CLEAR, ()),
        ):
            good = self.make(command, 0)
            for pointer in pointers:
                # A region may start at an odd place, but nothing of it is touched.
                bad = replace(good, **{pointer: getattr(good, pointer) + odd})
                await self.refused(bad, Status.BAD_ADDRESS)
                self.coverage.hit("refused", pointer)
            bad = replace(good, result=good.result + odd)
            await self.refused(bad, Status.BAD_ADDRESS, report=False)
            self.coverage.hit("refused", "result")
            bad = replace(good, context=self.shape.contexts)
            await self.refused(bad, Status.BAD_CONTEXT)
            bad = replace(good, context=1 << 31)
            await self.refused(bad, Status.BAD_CONTEXT)
            self.coverage.hit("refused", "context")
            # Pointers that the command does not use may be anything.
            others = {name: 0x0123_4567_89AB_CDEF for name in PORTS if name not in pointers}
            await self.complete(replace(good, **others))
            self.coverage.hit("unused_pointers", command.name)
        run = self.make(Command.DECODE, 0)
        run = replace(run, qk=run.qk + odd)
        await self.refused(run, Status.BAD_ADDRESS)
        for tokens in (0x1_0000, 0xFFFF_FFFF):
            run = replace(run, tokens=tokens)
            await self.refused(run, Status.BAD_TOKENS)
            self.coverage.hit("several_wrong", "BAD_TOKENS")
            alone = replace(self.make(Command.DECODE, 0), tokens=tokens, qk_data=b"", v_data=b"")
            await self.refused(alone, Status.BAD_TOKENS)
            self.coverage.hit("refused", "tokens")
        run = replace(run, context=self.shape.contexts)
        await self.refused(run, Status.BAD_CONTEXT)
        self.coverage.hit("several_wrong", "BAD_CONTEXT")
        for command in (4, 0x8000_0000):
            run = replace(run, command=command)
            await self.refused(run, Status.BAD_COMMAND)
            self.coverage.hit("several_wrong", "BAD_COMMAND")
            await self.refused(
                replace(self.make(Command.CLEAR), command=command), Status.BAD_COMMAND
            )
            self.coverage.hit("refused", "command")
        await self.refused(replace(run, result=run.result + odd), Status.BAD_COMMAND, report=False)
        # Only decode looks at the tokens.
        await self.complete(replace(self.make(Command.DUMP, 0), tokens=0x1_0000))
        for context in range(self.shape.contexts):
            await self.check_context(context)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class zero_tokens(ShellTest):
    """No tokens: no access but the result block, state unchanged, done."""

    async def scenario(self) -> None:
        """Decode nothing between other runs."""
        await self.complete(self.make(Command.DECODE, 0, 3))
        for _ in range(3):
            await self.complete(self.make(Command.DECODE, 0, 0))
        await self.check_context(0)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class memory_errors(ShellTest):
    """SLVERR and DECERR on each port: code, lost context, recovery; other contexts unharmed."""

    async def fail(self, run: Run, port: str, status: Status) -> None:
        """Run with an error answer at a random beat of a port."""
        sizes = {"qk": len(run.qk_data), "v": len(run.v_data), "o": run.o_bytes}
        beat = self.rng.randrange(sizes[port] // self.shape.beat_bytes)
        place = getattr(run, port) + beat * self.shape.beat_bytes
        self.place_data(run)
        self.stall_at_random()
        faults = self.ports[port].responder.faults
        faults.errors[place] = self.rng.choice([SLVERR, DECERR])
        await self.start(run)
        await self.ended()
        if run.command != Command.DUMP:
            self.lost.add(run.context)
        await self.check_report(status)
        await self.acknowledge()
        self.stall_at_random()

    async def scenario(self) -> None:
        """Fail each way, then recover each way."""
        last = self.shape.contexts - 1
        for context in range(self.shape.contexts):
            await self.complete(self.make(Command.LOAD, context))
        for command, port, status in (
            (Command.DECODE, "qk", Status.READ_ERROR),
            (Command.DECODE, "v", Status.READ_ERROR),
            (Command.DECODE, "o", Status.WRITE_ERROR),
            (Command.LOAD, "v", Status.READ_ERROR),
        ):
            for recovery in (Command.CLEAR, Command.LOAD):
                await self.fail(self.make(command, last, 2), port, status)
                # To fail again on a lost context changes nothing.
                await self.fail(self.make(Command.LOAD, last), "v", Status.READ_ERROR)
                for refused in (Command.DECODE, Command.DUMP):
                    await self.refused(self.make(refused, last), Status.CONTEXT_LOST)
                for other in range(last):
                    await self.check_context(other)
                    await self.complete(self.make(Command.DECODE, other))
                await self.complete(self.make(recovery, last))
                await self.check_context(last)
        # A read error comes before a write error.
        run = self.make(Command.DECODE, last, 2)
        self.place_data(run)
        for port in PORTS:
            self.ports[port].responder.faults.errors[getattr(run, port)] = SLVERR
        await self.start(run)
        await self.ended()
        self.lost.add(last)
        await self.check_report(Status.READ_ERROR)
        await self.acknowledge()
        self.stall_at_random()
        await self.complete(self.make(Command.CLEAR, last))
        # A dump that could not be written leaves the state.
        await self.complete(self.make(Command.DECODE, last, 2))
        await self.fail(self.make(Command.DUMP, last), "o", Status.WRITE_ERROR)
        await self.check_context(last)
        await self.bad_state(last)
        await self.unwritten_report(last)

    async def bad_state(self, context: int) -> None:
        """Load a state that the core refuses."""
        run = self.make(Command.LOAD, context)
        data = bytearray(run.v_data)
        data[3] |= BAD_BIT >> 24
        run = replace(run, v_data=bytes(data))
        self.place_data(run)
        await self.start(run)
        await self.ended()
        self.lost.add(context)
        await self.check_report(Status.BAD_STATE)
        await self.acknowledge()
        await self.refused(self.make(Command.DECODE, context), Status.CONTEXT_LOST)
        await self.complete(self.make(Command.LOAD, context))

    async def unwritten_report(self, context: int) -> None:
        """Answer the write of the result block with an error."""
        faults = self.ports["o"].responder.faults
        for command in (Command.DUMP, Command.DECODE, Command.CLEAR):
            run = self.make(command, context)
            faults.errors[run.result] = DECERR
            self.place_data(run)
            output = self.expect(run)
            await self.start(run)
            await self.ended()
            self.compare("output", self.region("o"), output)
            if command != Command.DUMP:
                self.lost.add(context)
            # Bursts other than the one with the error are written.
            self.memory.regions.pop()
            self.memory.add("result", run.result, bytes(RESULT_BYTES))
            await self.check_report(Status.WRITE_ERROR, report=False)
            self.coverage.hit("result_block", "not written")
            await self.acknowledge()
            faults.errors.clear()
            if command != Command.DUMP:
                await self.refused(self.make(Command.DUMP, context), Status.CONTEXT_LOST)
                await self.complete(self.make(Command.LOAD, context))
        # The first reason stays: a refused run whose result block fails as well.
        run = replace(self.make(Command.CLEAR, context), command=9)
        faults.errors[run.result] = SLVERR
        self.place_data(run)
        await self.start(run)
        await self.ended()
        self.memory.regions.pop()
        self.memory.add("result", run.result, bytes(RESULT_BYTES))
        await self.check_report(Status.BAD_COMMAND, report=False)
        self.coverage.hit("result_block", "first reason stays")
        await self.acknowledge()
        faults.errors.clear()
        await self.check_context(context)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class time_outs(ShellTest):
    """A channel that stops: code TIMEOUT, done when memory has answered; the next run is whole."""

    async def scenario(self) -> None:
        """Stop each channel at random places."""
        dut, rng = self.dut, self.rng
        last = self.shape.contexts - 1
        await self.core_not_ready(last)
        for context in range(self.shape.contexts):
            await self.complete(self.make(Command.LOAD, context))
        cases = [("qk", "ar"), ("qk", "r"), ("v", "ar"), ("v", "r")]
        cases += [("o", "aw"), ("o", "w"), ("o", "b")]
        for number, (port, channel) in enumerate(cases * self.settings.options["rounds"]):
            command = rng.choice([Command.DECODE, Command.DECODE, Command.LOAD, Command.DUMP])
            if number // len(cases) == 1:  # the second round is of the other commands
                command = {"v": Command.LOAD, "o": Command.DUMP}.get(port, Command.DECODE)
            used = {Command.DECODE: PORTS, Command.LOAD: ("v",), Command.DUMP: ("o",)}
            if port not in used[command]:
                command = Command.DECODE
            run = self.make(command, last, 3, watchdog=rng.choice([300, 500, 900]))
            self.place_data(run)
            self.stall(rng.choice(["none", "light"]), latency=(0, 10))
            stuck = self.ports[port].responder.faults.stuck
            if channel in ("ar", "aw"):
                stuck.add(channel)
            await self.start(run)
            await self.domain.cycles(rng.randint(0, 20))  # no run is over after these
            stuck.add(channel)
            for _ in range(run.watchdog + 100):
                await self.domain.edge
                assert not int(dut.interrupt.value), "done while a channel is stuck"
            self.compare("status", await self.read(Register.STATUS), Status.TIMEOUT)
            self.coverage.hit("stuck", (port, channel))
            self.coverage.watchdog(run.watchdog)
            self.compare("control", await self.read(Register.CTRL) & ~CTRL_AP_READY, 0)
            stuck.clear()
            await self.ended()
            self.lost.add(last)
            # A channel that stuck during the write of the result block may have written it.
            self.memory.regions[-1].data[:] = bytes(RESULT_BYTES)
            await self.check_report(Status.TIMEOUT, report=False)
            self.model.sums[last] = None
            await self.acknowledge()
            await self.refused(self.make(Command.DECODE, last), Status.CONTEXT_LOST)
            for other in range(last):
                await self.complete(self.make(Command.DECODE, other, 1))
                await self.check_context(other)
            recovery = rng.choice([Command.CLEAR, Command.LOAD])
            await self.complete(self.make(recovery, last))
            await self.complete(self.make(Command.DECODE, last, 2))
            await self.check_context(last)
        await self.short_watchdogs(last)

    async def core_not_ready(self, context: int) -> None:
        """Give up before the core, which starts slowly after reset, has taken the command."""
        await self.domain.reset()
        self.after_reset()
        await self.enable_interrupt()
        run = self.make(Command.DECODE, context, 1, watchdog=10)
        self.place_data(run)
        await self.start(run)
        await self.ended()
        self.lost.add(context)
        counters = await self.check_report(Status.TIMEOUT, report=False)
        self.compare("saturations", counters[Register.SATURATIONS], 0)
        await self.acknowledge()
        await self.domain.cycles(600)  # a command that is still offered would be taken now

    async def short_watchdogs(self, context: int) -> None:
        """Give up at every early cycle, before and after the core has taken its command."""
        self.stall("none", latency=(20, 30))
        for watchdog in range(1, 30):
            run = self.make(Command.DECODE, context, 2, watchdog=watchdog)
            self.place_data(run)
            await self.start(run)
            await self.ended()
            self.lost.add(context)
            await self.check_report(Status.TIMEOUT, report=False)
            self.coverage.watchdog(watchdog)
            await self.acknowledge()
            await self.complete(self.make(Command.CLEAR, context))
            await self.complete(self.make(Command.DECODE, context, 1))
        # A watchdog that is long enough changes nothing; a refused run may time out as well.
        await self.complete(self.make(Command.DECODE, context, 2, watchdog=50_000))
        self.coverage.hit("watchdog", "long enough")
        run = replace(self.make(Command.CLEAR, context), command=4, watchdog=60)
        self.place_data(run)
        self.ports["o"].responder.faults.stuck.add("b")
        await self.start(run)
        await self.domain.cycles(200)
        self.ports["o"].responder.faults.stuck.clear()
        await self.ended()
        self.memory.regions[-1].data[:] = bytes(RESULT_BYTES)
        await self.check_report(Status.BAD_COMMAND, report=False)
        await self.acknowledge()
        await self.check_context(context)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class control_protocol(ShellTest):
    """ap_ctrl_chain: start, ready, done, continue, a queued run, the interrupt registers."""

    async def scenario(self) -> None:
        """Walk through the protocol."""
        await self.constants()
        await self.queued_run()
        await self.check_interrupts(self.start_short_run)

    async def constants(self) -> None:
        """Read what never changes, and addresses without a register."""
        shape = self.shape
        self.compare("control", await self.read(Register.CTRL), CTRL_AP_IDLE)
        self.coverage.hit("protocol", "idle after reset")
        self.compare("version", await self.read(Register.VERSION), VERSION_VALUE)
        shape0 = shape.head_dim | shape.qk_heads << 8 | shape.group_ratio << 16 | shape.h_iter << 24
        self.compare("shape0", await self.read(Register.SHAPE0), shape0)
        shape1 = shape.contexts | shape.bus_width << 16
        self.compare("shape1", await self.read(Register.SHAPE1), shape1)
        self.coverage.hit("protocol", "constants")
        for address in (0x14, 0x1C, 0x38, 0x64, 0xC4, 0x100, 0xFFC):
            await self.write(address, 0xFFFF_FFFF)
            self.compare(f"word at {address:#x}", await self.read(address), 0)
        self.coverage.hit("protocol", "addresses without a register")
        await self.write(Register.QK_LOW, 0x1122_3344)
        await self.write(Register.QK_LOW, 0xAABB_CCDD, strobe=0b0101)
        self.compare("strobes", await self.read(Register.QK_LOW), 0x11BB_33DD)
        self.coverage.hit("protocol", "byte strobes")
        for bit in (CTRL_AP_DONE, CTRL_AP_IDLE, CTRL_AP_READY, CTRL_AP_CONTINUE, 0x80):
            await self.write(Register.CTRL, bit)
            self.compare("control", await self.read(Register.CTRL), CTRL_AP_IDLE)
        self.coverage.hit("protocol", "bits that are read only")

    async def queued_run(self) -> None:
        """Write and start the next run while one runs: it begins after continue."""
        self.stall("none", latency=(40, 40))
        first = self.make(Command.DECODE, 0, 3)
        second = self.make(Command.DUMP, 0)
        self.place_data(first)
        output = self.expect(first)
        await self.start(first)
        control = await self.read(Register.CTRL)
        self.compare("control in the run", control, CTRL_AP_READY)
        self.compare("ready again", await self.read(Register.CTRL), 0)
        for register, value in second.arguments().items():
            await self.write(register, value)
        await self.write(Register.CTRL, CTRL_AP_START)
        await self.ended()
        self.compare("output", self.region("o"), output)
        await self.domain.cycles(300)
        done = CTRL_AP_DONE | CTRL_AP_START
        self.compare("control", await self.read(Register.CTRL), done)
        await self.check_report(Status.OK)
        output = self.expect(second)
        self.place_data(second)
        self.bursts.clear()
        await self.write(Register.ISR, ISR_AP_DONE)
        self.runs += 1
        await self.write(Register.CTRL, CTRL_AP_CONTINUE)
        await self.ended()
        self.compare("output", self.region("o"), output)
        await self.check_report(Status.OK)
        await self.read(Register.CTRL)
        await self.acknowledge()
        self.coverage.hit("protocol", "queued run")

    async def start_short_run(self) -> None:
        """Clear a context."""
        run = self.make(Command.CLEAR, 0)
        self.expect(run)
        self.place_data(run)
        await self.start(run)


@pyuvm.test(timeout_time=20, timeout_unit="ms")
class reset_in_run(ShellTest):
    """Reset at any cycle of a run: then every run is equal to one after power-up."""

    async def scenario(self) -> None:
        """Interrupt runs."""
        first: list[tuple[bytes, int]] = []
        rng_state = self.rng.getstate()
        for round_ in range(self.settings.options["rounds"]):
            if round_:
                self.stall_at_random()
                run = self.random_run()
                self.place_data(run)
                await self.start(run)
                await self.domain.cycles(
                    self.rng.choice([1, 3, *[self.rng.randint(1, 150)] * 4, 600])
                )
                await self.reset_run()
            await self.domain.cycles(600)  # so that the core's start does not count in any run
            before = self.rng.getstate()
            self.rng.setstate(rng_state)
            self.stall("none", latency=(5, 5))
            runs = []
            for command in (Command.DECODE, Command.DUMP):
                run = self.make(command, 0, 2)
                await self.complete(run)
                runs.append((self.region("o"), self.region("result")))
            first = first or runs
            self.compare("runs after reset", runs, first)
            self.rng.setstate(before)


@pyuvm.test(timeout_time=5, timeout_unit="ms")
class start_latency(ShellTest):
    """From the start bit to the first requests, and from the last answer to done."""

    async def scenario(self) -> None:
        """Measure one token."""
        self.stall("none", latency=(10, 10))
        for _ in range(4):
            run = self.make(Command.DECODE, 0, 1)
            self.place_data(run)
            self.expect(run)
            await self.start(run)
            await self.ended()
            await self.acknowledge()
            requests = {b.port: b.cycle for b in reversed(self.bursts)}
            # The response to the write of start comes one cycle after the bit is set.
            for port in ("m_axi_qk", "m_axi_v", "m_axi_o"):
                delay = requests[port] - self.start_cycle
                assert delay <= 5, f"{port}: first request {delay} cycles after start"
                self.coverage.hit("start_latency", port.removeprefix("m_axi_"))
            report = self.ports["o"].monitor.counts.last_answer_cycle
            assert self.end_cycle - report <= 5, "done came late"
