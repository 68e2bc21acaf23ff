# SPDX-License-Identifier: Apache-2.0
"""Environment of ``decode_kernel``: control port with register model, memory, bit-exact model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import First, RisingEdge, Timer
from pyuvm import uvm_analysis_port, uvm_component, uvm_env, uvm_reg, uvm_status_e

from fastdelta.arrays import checksum
from fastdelta.decode.packing import (
    pack_output,
    pack_state,
    unpack_output,
    unpack_state,
    unpack_tokens,
)
from fastdelta.reference.decode_model import (
    BadStateError,
    DecodeCounts,
    DecodeModel,
    DecodeTokens,
    GivenGates,
    StateImage,
)
from fastdelta.registers.decode import (
    CTRL_AP_CONTINUE,
    CTRL_AP_DONE,
    CTRL_AP_START,
    GIE_ENABLE,
    IER_AP_DONE,
    VERSION_VALUE,
    Command,
    Register,
    Status,
)
from fastdelta.shapes import DecodeShape
from fastdelta_verif.agents.axi4_memory import (
    PAGE_BYTES,
    Burst,
    Faults,
    Memory,
    ReadMemoryAgent,
    WriteMemoryAgent,
    read_bus,
    write_bus,
)
from fastdelta_verif.agents.axi_lite import LiteAccess, LiteAdapter, LiteAgent, axi_lite_bus
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.environments.comparison import first_mismatch
from fastdelta_verif.environments.decode_core import OUTPUT_AXES, STATE_AXES, shape_of
from fastdelta_verif.registers.decode import decode_registers
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings
from fastdelta_verif.stimulus import DecodeStimulus

RESULT_MAGIC = 0x31524446
RESULT_WORDS = 32
WRITE_BUFFER_BEATS = 64
COUNTER_NAMES = tuple(
    register.name.lower() for register in Register if register >= Register.TOKENS_DONE
)
# The host's banks: every port reaches its own memory and no other.
BANKS = {"qk": 0x10_0000_0000, "v": 0x20_0000_0000, "o": 0x30_0000_0000}
DONE_LIMIT_CYCLES = 200_000
CONTROL_LATENCY_CYCLES = 8  # a start is seen on the bus when it is answered, some cycles late


@dataclass(frozen=True)
class Run:
    """A run as the host asks for it; payload is at the addresses when it starts.

    ``room`` is the number of bytes that the run may write at ``o``.
    """

    command: int
    context: int = 0
    tokens: int = 0
    flags: int = 0
    watchdog: int = 0
    qk: int = BANKS["qk"]
    v: int = BANKS["v"]
    o: int = BANKS["o"]
    result: int = BANKS["o"] + (1 << 28)
    room: int = 0
    payload: dict[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Ended:
    """A run that was checked."""

    run: Run
    status: Status
    counters: dict[str, int]
    output: np.ndarray | None = None
    image: StateImage | None = None
    counts: DecodeCounts = field(default_factory=DecodeCounts)
    bursts: tuple[Burst, ...] = ()


@dataclass
class _Started:
    """Arguments at the start of a run, and the cycle in which it began."""

    arguments: dict[int, int]
    cycle: int


class DecodeKernelScoreboard(Scoreboard):
    """Predict a run from the observed register writes and the memory, and compare what it did."""

    def __init__(
        self, name: str, parent: uvm_component, shape: DecodeShape, memories: dict[str, Memory]
    ) -> None:
        super().__init__(name, parent)
        self._shape, self._memories = shape, memories
        self.model = DecodeModel(shape)
        self.lost: set[int] = set()
        self.runs = 0
        self.port = uvm_analysis_port("port", self)
        self._mirror: dict[int, int] = {}
        self._started = self.queue("started runs that were not checked")
        self._bursts: list[Burst] = []

    def accessed(self, access: LiteAccess) -> None:
        """Follow the arguments on the control port."""
        self.compare("response of the control port", access.response, 0)
        if not access.write:
            return
        if access.address == Register.CTRL and access.data & CTRL_AP_START:
            self._started.append(_Started(dict(self._mirror), access.cycle))
        if access.address == Register.CTRL and access.data & CTRL_AP_CONTINUE and self._started:
            self._started[0].cycle = access.cycle  # a queued run begins now
        self._mirror[access.address] = access.data

    def burst(self, burst: Burst) -> None:
        """Collect the bursts of a run."""
        self._bursts.append(burst)

    def reset(self) -> None:
        """Forget everything: reset clears all contexts and all arguments."""
        self.model = DecodeModel(self._shape)
        self.lost.clear()
        self.runs = 0
        self._mirror.clear()
        self._started.clear()
        self._bursts.clear()

    def forget(self, context: int) -> None:
        """Note that a context is lost."""
        self.lost.add(context)

    def refusal_of(self, run: Run) -> Status:
        """Return the status that the checks of the arguments give, in their order."""
        if run.command not in tuple(Command):
            return Status.BAD_COMMAND
        if run.context >= self._shape.contexts:
            return Status.BAD_CONTEXT
        if run.command == Command.DECODE and run.tokens > 0xFFFF:
            return Status.BAD_TOKENS
        used = {
            Command.DECODE: ("qk", "v", "o"),
            Command.LOAD: ("v",),
            Command.DUMP: ("o",),
            Command.CLEAR: (),
        }[Command(run.command)]
        if any(getattr(run, name) % self._shape.beat_bytes for name in (*used, "result")):
            return Status.BAD_ADDRESS
        if run.command in (Command.DECODE, Command.DUMP) and run.context in self.lost:
            return Status.CONTEXT_LOST
        return Status.OK

    def check(
        self,
        run: Run,
        status: Status,
        counters: dict[str, int],
        *,
        failure: Status | None,
        monitors: dict[str, Any],
    ) -> Ended:
        """Check a run that is done.

        Parameters
        ----------
        run
            What the host asked for.
        status, counters
            Read from the registers.
        failure
            Status that the faults of the test must lead to; None for a run without faults.
        monitors
            The monitors of the memory ports, cleared when the run was started.
        """
        assert self._started, "a run ended that was not started"
        started = self._started.popleft()
        arguments = started.arguments
        for name in ("command", "context", "tokens", "flags", "watchdog"):
            self.compare(name, arguments.get(Register[name.upper()], 0), getattr(run, name))
        for name in ("qk", "v", "o", "result"):
            low, high = (arguments.get(Register[f"{name.upper()}_{h}"], 0) for h in ("LOW", "HIGH"))
            self.compare(name, high << 32 | low, getattr(run, name))
        self.runs += 1
        refusal = self.refusal_of(run)
        expected = refusal if refusal != Status.OK else failure or Status.OK
        bad_state = False
        result: dict[str, Any] = {}
        if refusal == Status.OK:
            result, bad_state = self._predict(run, failed=failure is not None)
        if bad_state and failure is None:
            expected = Status.BAD_STATE
        self.compare("status", Status(status).name, expected.name)
        spared = expected == Status.OK or (
            run.command == Command.DUMP and expected == Status.WRITE_ERROR
        )
        if refusal == Status.OK and not spared:
            self.forget(run.context)
        self._check_counters(run, expected, counters, result.get("counts"), monitors)
        if expected == Status.OK:
            self._check_cycles(started.cycle, counters, monitors)
        if expected != Status.TIMEOUT:
            self._check_result_block(run, expected, counters)
        bursts, self._bursts = tuple(self._bursts), []
        ended = Ended(run, expected, counters, bursts=bursts, **result)
        self.port.write(ended)
        return ended

    def _predict(self, run: Run, *, failed: bool) -> tuple[dict[str, Any], bool]:
        """Advance the model, and compare memory unless the run was to fail."""
        shape = self._shape
        if run.command == Command.CLEAR:
            if not failed:
                self.model.clear(run.context)
                self.lost.discard(run.context)
            return {}, False
        if run.command == Command.LOAD:
            image = unpack_state(shape, np.frombuffer(run.payload["v"], dtype=np.uint8))
            try:
                counts = self.model.load(image, run.context)
            except BadStateError:
                return {"image": image}, True
            if not failed:
                self.lost.discard(run.context)
            return {"image": image, "counts": counts}, False
        if run.command == Command.DUMP:
            expected_image, counts = self.model.dump(run.context)
            if failed:
                return {"counts": counts}, False
            got_image = unpack_state(shape, self._output(run))
            self._compare_bytes(run, pack_state(shape, expected_image), "state")
            self.comparisons += got_image.mantissa.size
            mismatch = first_mismatch(got_image.mantissa, expected_image.mantissa, STATE_AXES)
            assert not mismatch, f"DUMP of context {run.context}: {mismatch}"
            return {"image": got_image, "counts": counts}, False
        tokens = unpack_tokens(
            shape,
            np.frombuffer(run.payload["qk"], dtype=np.uint8),
            np.frombuffer(run.payload["v"], dtype=np.uint8),
            normalised=bool(run.flags & 1),
            given_gates=bool(run.flags & 2),
        )
        expected, counts = self.model.decode(tokens, run.context)
        if failed:
            return {"counts": counts}, False
        got = unpack_output(shape, self._output(run))
        self.comparisons += got.size
        mismatch = first_mismatch(got, expected, OUTPUT_AXES)
        assert not mismatch, f"DECODE of context {run.context}: {mismatch}"
        self._compare_bytes(run, pack_output(shape, expected), "output")
        return {"output": got, "counts": counts}, False

    def _output(self, run: Run) -> np.ndarray:
        data = self._memories["o"].read(run.o, run.room) if run.room else b""
        assert data is not None
        return np.frombuffer(data, dtype=np.uint8)

    def _compare_bytes(self, run: Run, expected: np.ndarray, what: str) -> None:
        """Compare all bytes at ``o``, the unused lanes included."""
        self.compare(f"bytes of the {what}", self._output(run).tobytes(), expected.tobytes())

    def _check_counters(
        self,
        run: Run,
        status: Status,
        counters: dict[str, int],
        counts: DecodeCounts | None,
        monitors: dict[str, Any],
    ) -> None:
        compare, shape = self.compare, self._shape
        compare("runs", counters["runs"], self.runs)
        compare("contexts lost", counters["contexts_lost"], len(self.lost))
        for name, monitor in monitors.items():
            compare(f"unanswered requests of {name} at done", monitor.counts.unanswered, 0)
        if status == Status.TIMEOUT:
            return
        report = 0 if run.result % shape.beat_bytes else RESULT_WORDS * 4 // shape.beat_bytes
        seen = {name: monitor.counts.beats for name, monitor in monitors.items()}
        seen["o"] -= report
        for name, beats in seen.items():
            compare(f"{name} beats", counters[f"{name}_beats"], beats)
        report_bursts = sum(
            run.result <= burst.address < run.result + RESULT_WORDS * 4 for burst in self._bursts
        )
        compare("bursts", counters["bursts"], len(self._bursts) - report_bursts)
        if status != Status.OK:
            return
        tokens = run.tokens if run.command == Command.DECODE else 0
        counts = counts or DecodeCounts()
        compare("tokens done", counters["tokens_done"], tokens)
        compare("saturations", counters["saturations"], counts.saturations)
        compare("norm overflows", counters["norm_overflows"], counts.norm_overflows)
        sizes = {name: len(run.payload.get(name, b"")) for name in ("qk", "v")} | {"o": run.room}
        for name, size in sizes.items():
            compare(f"{name} beats moved", seen[name], size // shape.beat_bytes)
        if seen["o"] <= WRITE_BUFFER_BEATS:
            compare("stalls of outputs that all fit", counters["output_stalls"], 0)
        moved = {name: run.payload.get(name, b"") for name in ("qk", "v")}
        moved["o"] = self._output(run).tobytes()
        for name, data in moved.items():
            total = checksum(np.frombuffer(data, np.uint32))
            compare(f"{name} checksum", counters[f"{name}_checksum"], total)

    def _check_cycles(
        self, start_cycle: int, counters: dict[str, int], monitors: dict[str, Any]
    ) -> None:
        """Compare the cycle counter with start and last answer as they were on the ports."""
        written = counters["bursts"] - sum(monitors[name].counts.bursts for name in ("qk", "v"))
        if written:
            cycles = counters["cycles_low"] + (counters["cycles_high"] << 32)
            seen = monitors["o"].counts.answer_cycles[written - 1] - start_cycle
            assert 0 <= cycles - seen <= CONTROL_LATENCY_CYCLES, (
                f"cycle counter says {cycles}, the ports {seen}"
            )

    def _check_result_block(self, run: Run, status: Status, counters: dict[str, int]) -> None:
        block = self._memories["o"].read(run.result, RESULT_WORDS * 4)
        assert block is not None
        words = np.frombuffer(block, dtype=np.uint32).tolist()
        expected = [RESULT_MAGIC, int(status), VERSION_VALUE, *counters.values()]
        expected += [0] * (RESULT_WORDS - len(expected) - 1)
        expected.append(-sum(expected) & 0xFFFFFFFF)  # all words add up to zero
        if run.result % self._shape.beat_bytes:
            expected = [0] * RESULT_WORDS  # such an address gets no result block
        self.compare("result block", words, expected)


class DecodeKernelEnvironment(uvm_env):
    """Agents around the kernel, the register model, and the verbs that tests use."""

    def build_phase(self) -> None:
        """Create the agents, the register model and the scoreboard."""
        settings, dut = Settings.current(), cocotb.top
        rng = self.rng = random.Random(settings.seed)
        self.dut: Any = dut
        self.shape = shape_of(settings.parameters)
        self.stimulus = DecodeStimulus(self.shape, np.random.default_rng(settings.seed))
        domain = self.domain = ClockDomain(dut.ap_clk, dut.ap_rst_n)
        self.memories = {name: Memory() for name in BANKS}
        control = axi_lite_bus(dut, "s_axi_control")
        self.control = LiteAgent("control", self, control, domain, random.Random(rng.random()))
        self.ports: dict[str, Any] = {}
        for name, memory in self.memories.items():
            fork = random.Random(rng.random())
            if name == "o":
                bus = write_bus(dut, "m_axi_o")
                self.ports[name] = WriteMemoryAgent(name, self, bus, domain, memory, fork)
            else:
                bus = read_bus(dut, f"m_axi_{name}")
                self.ports[name] = ReadMemoryAgent(name, self, bus, domain, memory, fork)
        self.scoreboard = DecodeKernelScoreboard("scoreboard", self, self.shape, self.memories)
        self.registers = decode_registers("registers")
        self.registers.build()
        self.registers.lock_model()

    def connect_phase(self) -> None:
        """Connect monitors to the scoreboard, and the register model to the control port."""
        scoreboard = self.scoreboard
        scoreboard.subscribe(self.control.monitor.port, scoreboard.accessed)
        for port in self.ports.values():
            scoreboard.subscribe(port.monitor.port, scoreboard.burst)
        register_map = self.registers.get_default_map()
        register_map.set_sequencer(self.control.sequencer, LiteAdapter("adapter"))
        register_map.set_auto_predict(True)

    async def start(self) -> None:
        """Start the clock and reset the kernel."""
        self.dut.ap_rst_n.value = 0
        await Timer(1, unit="ns")
        self.domain.start()
        await self.reset()

    async def reset(self) -> None:
        """Reset kernel and memories' slaves, and enable the interrupt."""
        await self.domain.reset()
        self.scoreboard.reset()
        await self.write("gie", GIE_ENABLE)
        await self.write("ier", IER_AP_DONE)

    # Registers

    def register(self, path: str) -> uvm_reg:
        """Return a register of the model by its path, such as ``qk.low``."""
        node: Any = self.registers
        for part in path.split("."):
            node = getattr(node, part)
        return node

    async def write(self, path: str, value: int) -> None:
        """Write a register through the register model."""
        status = await self.register(path).write(value)
        assert status == uvm_status_e.UVM_IS_OK, f"write of {path}: {status}"

    async def read(self, path: str) -> int:
        """Read a register through the register model."""
        status, value = await self.register(path).read()
        assert status == uvm_status_e.UVM_IS_OK, f"read of {path}: {status}"
        return int(value)

    async def counters(self) -> dict[str, int]:
        """Read all counters."""
        return {name: await self.read(name) for name in COUNTER_NAMES}

    # Memory

    def place(self, port: str, size: int) -> int:
        """Return a random legal address, half of the time such that a page boundary is inside."""
        step = self.shape.beat_bytes
        base = BANKS[port] + self.rng.randrange(1 << 16) * PAGE_BYTES
        if size > step and self.rng.random() < 0.5:
            inside = min(size, PAGE_BYTES) // step
            return base + PAGE_BYTES - step * self.rng.randint(1, inside - 1)
        return base + self.rng.randrange(PAGE_BYTES // step) * step

    def stall(self, mode: str | None = None, latency: tuple[int, int] = (2, 20)) -> None:
        """Set stalls of all channels, a random mode each without one; removes all faults."""
        modes = ["none", "light", "heavy", "bursts", "mixed"]
        for port in self.ports.values():
            port.throttle(mode or self.rng.choice(modes))
            port.responder.faults = Faults(latency=latency)
        self.ports["o"].responder.faults.aw_order = self.rng.choice(
            ["any", "aw_after_w", "w_after_aw"]
        )

    # Runs

    def decode(self, tokens: DecodeTokens, context: int = 0, **other: int) -> Run:
        """Return a decode of tokens; the flags are those that the tokens are made for."""
        shape = self.shape
        qk, v = self.stimulus.token_bytes(tokens)
        room = tokens.count * shape.o_token_bytes
        flags = int(tokens.normalised) | int(isinstance(tokens.gates, GivenGates)) << 1
        return Run(
            Command.DECODE,
            context,
            tokens.count,
            flags,
            qk=self.place("qk", qk.size),
            v=self.place("v", v.size),
            o=self.place("o", room),
            result=self._result_place(),
            room=room,
            payload={"qk": qk.tobytes(), "v": v.tobytes()},
            **other,
        )

    def load(self, image: StateImage, context: int = 0, **other: int) -> Run:
        """Return a load of a state."""
        state = self.stimulus.state_bytes(image)
        return Run(
            Command.LOAD,
            context,
            v=self.place("v", state.size),
            result=self._result_place(),
            payload={"v": state.tobytes()},
            **other,
        )

    def dump(self, context: int = 0, **other: int) -> Run:
        """Return a dump of a state."""
        room = self.shape.state_bytes
        place = self.place("o", room)
        return Run(Command.DUMP, context, o=place, result=self._result_place(), room=room, **other)

    def clear(self, context: int = 0, **other: int) -> Run:
        """Return a clear."""
        return Run(Command.CLEAR, context, result=self._result_place(), **other)

    def _result_place(self) -> int:
        return self.place("o", RESULT_WORDS * 4) + (1 << 30)

    def put(self, run: Run) -> None:
        """Give each memory the bytes of a run and no other; what is written there is random."""
        for memory in self.memories.values():
            memory.clear()
        for name, data in run.payload.items():
            if data:
                self.memories[name].add(name, getattr(run, name), data)
        if run.room:
            self.memories["o"].add("o", run.o, self.rng.randbytes(run.room))
        result = bytes(RESULT_WORDS * 4)
        self.memories["o"].add("result", run.result, result)

    async def arguments(self, run: Run) -> None:
        """Write the arguments in random order."""
        values = {name: getattr(run, name) for name in ("command", "context", "tokens")}
        values |= {"flags": run.flags, "watchdog": run.watchdog}
        for name in ("qk", "v", "o", "result"):
            address = getattr(run, name)
            values |= {f"{name}.low": address & 0xFFFF_FFFF, f"{name}.high": address >> 32}
        items = list(values.items())
        self.rng.shuffle(items)
        for path, value in items:
            await self.write(path, value)

    async def launch(self, run: Run) -> None:
        """Place data, write the arguments and start."""
        self.put(run)
        await self.arguments(run)
        for port in self.ports.values():
            port.monitor.counts.clear()
        await self.write("ctrl", CTRL_AP_START)

    async def done(self) -> None:
        """Wait for the interrupt."""
        if not int(self.dut.interrupt.value):
            limit = Timer(DONE_LIMIT_CYCLES * 4, unit="ns")
            reason = await First(RisingEdge(self.dut.interrupt), limit)
            assert reason is not limit, f"no interrupt within {DONE_LIMIT_CYCLES} cycles"
        await self.domain.edge  # monitors of this cycle have their turn

    async def finish(self, run: Run, failure: Status | None = None) -> Ended:
        """Check a run that is done, and acknowledge it."""
        monitors = {name: port.monitor for name, port in self.ports.items()}
        status = Status(await self.read("status"))
        ended = self.scoreboard.check(
            run, status, await self.counters(), failure=failure, monitors=monitors
        )
        for name, memory in self.memories.items():
            assert not memory.violations, f"{name}: {memory.violations}"
        pending = await self.read("isr")
        await self.write("isr", pending)
        control = await self.read("ctrl")
        assert control & CTRL_AP_DONE, f"interrupt without done: control is {control:#x}"
        await self.write("ctrl", CTRL_AP_CONTINUE)
        return ended

    async def run(self, *runs: Run) -> list[Ended]:
        """Run to the end, one after the other."""
        ended = []
        for run in runs:
            await self.launch(run)
            await self.done()
            ended.append(await self.finish(run))
        return ended
