# SPDX-License-Identifier: Apache-2.0
"""Environment of ``decode_core``: command, two input streams, output stream, bit-exact model."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Event
from pyuvm import uvm_analysis_port, uvm_component, uvm_env

from fastdelta.decode.packing import unpack_output, unpack_state, unpack_tokens
from fastdelta.reference.decode_model import (
    BadStateError,
    DecodeCounts,
    DecodeModel,
    DecodeTokens,
    GivenGates,
    StateImage,
)
from fastdelta.shapes import DecodeShape
from fastdelta_verif.agents.axi_stream import (
    StreamBeat,
    StreamSequence,
    StreamSinkAgent,
    StreamSourceAgent,
    stream_bus,
)
from fastdelta_verif.agents.clock_domain import ClockDomain
from fastdelta_verif.agents.decode_command import (
    Command,
    CommandAgent,
    CommandSequence,
    Finished,
    Opcode,
    command_bus,
)
from fastdelta_verif.environments.comparison import first_mismatch
from fastdelta_verif.scoreboard import Scoreboard
from fastdelta_verif.settings import Settings
from fastdelta_verif.stimulus import DecodeStimulus, from_beats, to_beats

OUTPUT_AXES = ("token", "head", "column")
STATE_AXES = ("head", "row", "column")


def shape_of(parameters: dict[str, int]) -> DecodeShape:
    """Return the shape of a design from its RTL parameters."""
    names = ("HEAD_DIM", "QK_HEADS", "GROUP_RATIO", "H_ITER", "CONTEXTS", "BUS_WIDTH")
    return DecodeShape(**{name.lower(): parameters[name] for name in names if name in parameters})


@dataclass(frozen=True)
class Work:
    """A command with what it needs; ``gap`` idle cycles before it is offered."""

    command: Command
    tokens: DecodeTokens | None = None
    image: StateImage | None = None
    gap: int = 0


def decode(tokens: DecodeTokens, context: int = 0, gap: int = 0) -> Work:
    """Decode tokens; the bypasses are those that the tokens are made for."""
    given = isinstance(tokens.gates, GivenGates)
    command = Command(Opcode.DECODE, context, tokens.count, tokens.normalised, given)
    return Work(command, tokens=tokens, gap=gap)


def clear(context: int = 0) -> Work:
    """Clear a context."""
    return Work(Command(Opcode.CLEAR, context))


def load(image: StateImage, context: int = 0) -> Work:
    """Load a state."""
    return Work(Command(Opcode.LOAD, context), image=image)


def dump(context: int = 0) -> Work:
    """Dump a state."""
    return Work(Command(Opcode.DUMP, context))


@dataclass(frozen=True)
class Checked:
    """A command whose results were equal to the model's."""

    finished: Finished
    counts: DecodeCounts
    tokens: DecodeTokens | None = None
    output: np.ndarray | None = None
    image: StateImage | None = None


class DecodeCoreScoreboard(Scoreboard):
    """Rebuild each command from what the monitors saw, and compare the core with the model."""

    def __init__(self, name: str, parent: uvm_component, shape: DecodeShape) -> None:
        super().__init__(name, parent)
        self._shape = shape
        self.model = DecodeModel(shape)
        self.lost: set[int] = set()
        self.checked: list[Checked] = []
        self.port = uvm_analysis_port("port", self)
        self._streams = {name: self.queue(f"{name} beats") for name in ("qk", "v", "o")}
        self._running = self.queue("commands without cmd_done")
        self._done = self.queue("finished commands to check")
        self._something_done = Event()
        self.something_checked = Event()

    def connect_monitors(
        self, command: CommandAgent, streams: dict[str, StreamSourceAgent | StreamSinkAgent]
    ) -> None:
        """Subscribe to every monitor."""
        self.subscribe(command.monitor.taken, self._running.append)
        self.subscribe(command.monitor.done, self._finish)
        for name, agent in streams.items():
            self.subscribe(agent.monitor.port, self._streams[name].append)

    def _finish(self, finished: Finished) -> None:
        self._done.append(finished)
        self._something_done.set()

    async def check(self, domain: ClockDomain) -> None:
        """Check finished commands, a cycle late, when every monitor has had its turn."""
        while True:
            await self._something_done.wait()
            self._something_done.clear()
            await domain.edge
            while self._done:
                finished = self._done.popleft()
                command = self._running.popleft()
                assert finished.command == command
                self._check(finished)
            self.something_checked.set()

    def interrupted(self, *, reset: bool) -> None:
        """Forget what was under way; all contexts are cleared by reset, flush loses one."""
        if reset:
            self.model = DecodeModel(self._shape)
            self.lost.clear()
        else:
            self.lost |= {command.context for command in self._running}
        for queue in (*self._streams.values(), self._running, self._done):
            queue.clear()

    def _take(self, stream: str, count: int) -> list[StreamBeat]:
        queue: deque[StreamBeat] = self._streams[stream]
        assert len(queue) >= count, (
            f"{stream}: the command is done after {len(queue)} beats, {count} belong to it"
        )
        return [queue.popleft() for _ in range(count)]

    def _bytes(self, stream: str, count: int) -> np.ndarray:
        return from_beats([beat.data for beat in self._take(stream, count)], self._shape.beat_bytes)

    def _output(self, count: int) -> np.ndarray:
        """Return the bytes of the output; exactly its last beat has tlast."""
        beats = self._take("o", count)
        lasts = [index for index, beat in enumerate(beats) if beat.last]
        self.compare("beats with tlast", lasts, [count - 1] if count else [])
        return from_beats([beat.data for beat in beats], self._shape.beat_bytes)

    def _check(self, finished: Finished) -> None:
        command = finished.command
        lost = command.context in self.lost
        assert not (lost and command.opcode in (Opcode.DECODE, Opcode.DUMP)), (
            "the test used a lost context"
        )
        what = f"{command.opcode.name} of context {command.context}"
        checked = getattr(self, f"_check_{command.opcode.name.lower()}")(finished, what)
        counts = checked.counts
        self.compare(f"{what}: saturations", finished.saturations, counts.saturations)
        self.compare(f"{what}: norm overflows", finished.norm_overflows, counts.norm_overflows)
        tokens = command.tokens if command.opcode == Opcode.DECODE else 0
        self.compare(f"{what}: tokens done", finished.tokens_done, tokens)
        self.checked.append(checked)
        self.port.write(checked)

    def _check_decode(self, finished: Finished, what: str) -> Checked:
        shape, command = self._shape, finished.command
        tokens = unpack_tokens(
            shape,
            self._bytes("qk", command.tokens * shape.qk_heads * shape.qk_packet_beats),
            self._bytes("v", command.tokens * shape.value_heads * shape.v_packet_beats),
            normalised=command.bypass_norm,
            given_gates=command.bypass_gates,
        )
        expected, counts = self.model.decode(tokens, command.context)
        beats = command.tokens * shape.value_heads * shape.word_beats
        got = unpack_output(shape, self._output(beats))
        self.comparisons += got.size
        mismatch = first_mismatch(got, expected, OUTPUT_AXES)
        assert not mismatch, f"{what}: {mismatch}"
        return Checked(finished, counts, tokens=tokens, output=got)

    def _check_clear(self, finished: Finished, _what: str) -> Checked:
        self.model.clear(finished.command.context)
        self.lost.discard(finished.command.context)
        return Checked(finished, DecodeCounts())

    def _check_load(self, finished: Finished, what: str) -> Checked:
        shape, context = self._shape, finished.command.context
        beats = shape.value_heads * shape.state_packet_beats
        image = unpack_state(shape, self._bytes("v", beats))
        bad, counts = False, DecodeCounts(saturations=finished.saturations)
        try:
            counts = self.model.load(image, context)
            self.lost.discard(context)
        except BadStateError:
            bad = True
            self.lost.add(context)
        self.compare(f"{what}: bad_state", finished.bad_state, bad)
        return Checked(finished, counts, image=image)

    def _check_dump(self, finished: Finished, what: str) -> Checked:
        shape = self._shape
        expected, counts = self.model.dump(finished.command.context)
        got = unpack_state(shape, self._output(shape.value_heads * shape.state_packet_beats))
        self.comparisons += got.mantissa.size
        mismatch = first_mismatch(got.scale, expected.scale, ("head",))
        assert not mismatch, f"{what}: scale, {mismatch}"
        mismatch = first_mismatch(got.mantissa, expected.mantissa, STATE_AXES)
        assert not mismatch, f"{what}: {mismatch}"
        return Checked(finished, counts, image=got)


class DecodeCoreEnvironment(uvm_env):
    """Agents around the core, and the verbs that tests use."""

    def build_phase(self) -> None:
        """Create the agents and the scoreboard."""
        settings, dut = Settings.current(), cocotb.top
        rng = self.rng = random.Random(settings.seed)
        self.shape = shape_of(settings.parameters)
        self.stimulus = DecodeStimulus(self.shape, np.random.default_rng(settings.seed))
        domain = self.domain = ClockDomain(dut.clk, dut.rst_n, dut.flush)
        fork = [random.Random(rng.random()) for _ in range(4)]
        self.command = CommandAgent("command", self, command_bus(dut), domain, fork[0])
        self.qk = StreamSourceAgent("qk", self, stream_bus(dut, "s_axis_qk"), domain, fork[1])
        self.v = StreamSourceAgent("v", self, stream_bus(dut, "s_axis_v"), domain, fork[2])
        self.o = StreamSinkAgent("o", self, stream_bus(dut, "m_axis_o"), domain, fork[3])
        self.scoreboard = DecodeCoreScoreboard("scoreboard", self, self.shape)
        self._sequences: list[Any] = []

    def connect_phase(self) -> None:
        """Connect every monitor to the scoreboard."""
        streams = {"qk": self.qk, "v": self.v, "o": self.o}
        self.scoreboard.connect_monitors(self.command, streams)

    async def start(self) -> None:
        """Start the clock and reset the core."""
        self.domain.start()
        cocotb.start_soon(self.scoreboard.check(self.domain))
        await self.domain.reset()

    def throttle(self, qk: str = "none", v: str = "none", o: str = "none") -> None:
        """Set how the three streams stall."""
        self.qk.driver.throttle.mode = qk
        self.v.driver.throttle.mode = v
        self.o.driver.throttle.mode = o

    def open_streams_after(self, cycles: int) -> None:
        """Let all streams run freely from a number of cycles on."""

        async def release() -> None:
            await self.domain.cycles(cycles)
            self.throttle()

        cocotb.start_soon(release())

    async def run(self, *works: Work) -> list[Checked]:
        """Run commands and return their checked results.

        All payload is offered at once: the core must take from each stream what belongs to the
        command it runs.
        """
        before = len(self.scoreboard.checked)
        tasks = self._launch(works)
        for task in tasks:
            await task
        while len(self.scoreboard.checked) < before + len(works):
            self.scoreboard.something_checked.clear()
            await self.scoreboard.something_checked.wait()
        return self.scoreboard.checked[before:]

    def _launch(self, works: tuple[Work, ...]) -> list[Any]:
        beat_bytes = self.shape.beat_bytes
        qk_packets, v_packets = [], []
        for work in works:
            if work.tokens is not None:
                qk, v = self.stimulus.token_bytes(work.tokens)
                qk_packets.append(to_beats(qk, beat_bytes))
                v_packets.append(to_beats(v, beat_bytes))
            if work.image is not None:
                state = self.stimulus.state_bytes(work.image)
                v_packets.append(to_beats(state, beat_bytes))
        commands, gaps = [work.command for work in works], [work.gap for work in works]
        pairs = [
            (StreamSequence("qk", qk_packets), self.qk.sequencer),
            (StreamSequence("v", v_packets), self.v.sequencer),
            (CommandSequence("commands", commands, gaps), self.command.sequencer),
        ]
        self._sequences = [sequence for sequence, _ in pairs]
        return [cocotb.start_soon(sequence.start(sequencer)) for sequence, sequencer in pairs]

    async def interrupt(self, *works: Work, after: int, reset: bool) -> Opcode | None:
        """Start commands and, a number of cycles after that, flush or reset the core.

        Returns the opcode of the command that was running then.
        """
        tasks = self._launch(works)
        await self.domain.cycles(after)
        running = self.command.monitor.running
        for sequence in self._sequences:
            sequence.stopped = True
        for driver in (self.qk.driver, self.v.driver, self.command.driver):
            driver.abort()
        if reset:
            await self.domain.reset()
        else:
            await self.domain.pulse_flush()
        self.scoreboard.interrupted(reset=reset)
        for task in tasks:
            await task
        return running.opcode if running else None
