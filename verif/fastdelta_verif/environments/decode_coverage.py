# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of the decode engine: what the numbers, commands and parameters were."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from pyuvm import uvm_component, uvm_subscriber

from fastdelta.reference.decode_model import (
    BETA_FRACTION,
    DECAY_FRACTION,
    FINISH_FRACTION,
    SHIFT_GONE,
    DecodeTokens,
    GivenGates,
    decay_exponent,
    write_gate,
)
from fastdelta.reference.fixed_point import EXPONENT_MAX, EXPONENT_MIN
from fastdelta.registers.decode import Command, Status
from fastdelta_verif.agents.axi4_memory import PAGE_BYTES, Burst
from fastdelta_verif.agents.decode_command import Opcode
from fastdelta_verif.agents.handshake import THROTTLES, Rhythm
from fastdelta_verif.coverage import CoverageGroup, CoverageModel, write_hits
from fastdelta_verif.covergroups import NO_SOME, SIMULATORS, cross, rhythms, simulator, some
from fastdelta_verif.covergroups.cells import RESPONSES
from fastdelta_verif.covergroups.kernels import RESET_TIMES
from fastdelta_verif.environments.decode_core import Checked, shape_of
from fastdelta_verif.environments.decode_kernel import BANKS, Ended
from fastdelta_verif.settings import Settings

OFF_ON = ("off", "on")
EXPONENT_BINS = ("below", "lowest", "inside", "highest", "above")
OPCODES = tuple(opcode.name for opcode in Opcode)
BACK_TO_BACK_CYCLES = 4
HELD_CYCLES = 2900  # of an output that a test holds for 3000


def _switch(value: bool) -> str:
    return "on" if value else "off"


def _count_bin(count: int) -> str:
    return str(count) if count < 3 else "3 to 9" if count < 10 else "10 and more"


GATES = ("computed", "given")
CORE_NUMBERS = CoverageModel(
    "core.numbers",
    {
        **{f"{vector}_exponent": EXPONENT_BINS for vector in "qkv"},
        **{f"{vector}_vector": ("zero", "other", "most negative") for vector in "qkv"},
        "decay_shift": cross(GATES, ("none", "small", "large", "gone")),
        "beta": cross(GATES, ("zero", "inside", "one")),
        "value_alignment": ("all lost", "right", "left", "clamped"),
    },
)


class NumbersCoverage(CoverageGroup):
    """What the wire values were."""

    def __init__(self) -> None:
        super().__init__(CORE_NUMBERS.name, CORE_NUMBERS.points)

    def sample(self, tokens: DecodeTokens) -> None:
        """Count what a command's tokens contain."""
        if tokens.count == 0:
            return
        for name in "qkv":
            self._vectors(name, getattr(tokens, name), getattr(tokens, f"{name}_exponent"))
        if isinstance(tokens.gates, GivenGates):
            gate, decay, beta = "given", tokens.gates.decay, tokens.gates.beta
        else:
            gate = "computed"
            decay, beta = decay_exponent(tokens.gates), write_gate(tokens.gates.b)
        for shift in np.unique(np.minimum(decay >> DECAY_FRACTION, SHIFT_GONE)).tolist():
            size = "none" if shift == 0 else "small" if shift < 8 else "large"
            self.hit("decay_shift", (gate, "gone" if shift == SHIFT_GONE else size))
        one = 1 << BETA_FRACTION
        for value, seen in (
            ("zero", beta == 0),
            ("one", beta >= one),
            ("inside", (beta > 0) & (beta < one)),
        ):
            if np.any(seen):
                self.hit("beta", (gate, value))
        exponents = np.clip(tokens.v_exponent.astype(np.int64), EXPONENT_MIN, EXPONENT_MAX)
        for shift in np.unique(exponents + FINISH_FRACTION).tolist():
            place = "all lost" if shift < -15 else "right" if shift < 0 else "left"
            self.hit("value_alignment", "clamped" if shift > 31 else place)

    def _vectors(self, name: str, mantissas: np.ndarray, exponents: np.ndarray) -> None:
        for exponent in np.unique(exponents).tolist():
            corner = {EXPONENT_MIN: "lowest", EXPONENT_MAX: "highest"}.get(exponent, "inside")
            place = "below" if exponent < EXPONENT_MIN else corner
            self.hit(f"{name}_exponent", "above" if exponent > EXPONENT_MAX else place)
        zero = ~mantissas.any(axis=-1)
        lowest = (mantissas == -32768).all(axis=-1)
        for kind, seen in (
            ("zero", zero),
            ("most negative", lowest),
            ("other", ~(zero | lowest)),
        ):
            if seen.any():
                self.hit(f"{name}_vector", kind)


CORE_PARAMETERS = CoverageModel(
    "core.parameters",
    {
        "head_dim": (16, 32, 48, 64, 80, 128),
        "group_ratio": (1, 2, 4),
        "h_iter": (1, 2, 3, 4, 8, 16),
        "h_iter_to_ratio": ("below", "equal", "above"),
        "value_heads": (1, 2, 3, 4, 8, 16, 32),
        "passes": ("one", "several"),
        "contexts": ("one", "several"),
        "bus_width": (128, 256, 512),
        "v_beats": ("part of one", "whole ones"),
        "post_columns": (1, 2, 4),
        "state_pitch": (27, 32),
        "simulator": SIMULATORS,
    },
)


class ParameterCoverage(CoverageGroup):
    """Which parameters were simulated; complete only over all simulations."""

    def __init__(self) -> None:
        super().__init__(CORE_PARAMETERS.name, CORE_PARAMETERS.points)

    def sample(self) -> None:
        """Count the parameters of this simulation."""
        parameters = Settings.current().parameters
        shape = shape_of(parameters)
        self.hit("simulator", simulator())
        for name in ("head_dim", "group_ratio", "h_iter", "bus_width", "value_heads"):
            self.hit(name, getattr(shape, name))
        below, above = shape.h_iter < shape.group_ratio, shape.h_iter > shape.group_ratio
        self.hit("h_iter_to_ratio", "below" if below else "above" if above else "equal")
        self.hit("passes", "several" if shape.passes > 1 else "one")
        self.hit("contexts", "several" if shape.contexts > 1 else "one")
        part = shape.head_dim % (shape.bus_width // 16)
        self.hit("v_beats", "part of one" if part else "whole ones")
        self.hit("post_columns", parameters["POST_COLUMNS"])
        self.hit("state_pitch", parameters["STATE_PITCH"])


STATUSES_OF = {
    Command.DECODE: set(Status) - {Status.BAD_COMMAND, Status.BAD_STATE},
    Command.CLEAR: {Status.OK, Status.BAD_CONTEXT, Status.BAD_ADDRESS},
    Command.LOAD: {
        Status.OK,
        Status.BAD_CONTEXT,
        Status.BAD_ADDRESS,
        Status.READ_ERROR,
        Status.BAD_STATE,
    },
    Command.DUMP: {
        Status.OK,
        Status.BAD_CONTEXT,
        Status.BAD_ADDRESS,
        Status.WRITE_ERROR,
        Status.CONTEXT_LOST,
    },
}

CORE_COMMANDS = CoverageModel(
    "core.commands",
    {
        "after": cross(OPCODES, OPCODES),
        "context": ("same", "other"),
        "tokens": ("0", "1", "2", "3 to 9", "10 and more"),
        "bypass_norm_gates": cross(OFF_ON, OFF_ON),
        "saturations": cross(("DECODE", "LOAD", "DUMP"), NO_SOME),
        "norm_overflows": NO_SOME,
        "load": ("good", "bad scale"),
        "starved": NO_SOME,
        "output_stalled": cross(("DECODE", "DUMP"), NO_SOME),
        # What a state is made of: the last command on its context, and whether others came between.
        "state_from": cross(
            ("reset", *OPCODES), ("DECODE", "DUMP"), ("at once", "other contexts between")
        ),
    },
)
CORE_INTERRUPTS = CoverageModel("core.interrupts", {"in": cross(("reset", "flush"), OPCODES)})

# What only tests reach that are about it.
STREAMS = ("qk", "v", "o")
CORE_DIRECTED = CoverageModel(
    "core.directed",
    {
        "signs_at_the_limits": cross("+-", "+-", "+-"),  # of all of q, k and v
        "v_exponent": tuple(range(EXPONENT_MIN, EXPONENT_MAX + 1)),
        "start": ("back to back", "after a gap"),
        "stalls": cross(STREAMS, THROTTLES),
        "closed_stream": STREAMS,
        "output_held": ("DECODE", "DUMP"),  # for 3000 cycles
        "split": ("in two", "in single tokens"),
        "second_sequence": ("after a clear", "without one"),
        "turns": ("contexts one after the other",),
        "loaded": ("dumped", "gone on with in another context"),
        "nothing_decoded": ("state is dumped", "update is pending"),
        "lone_key_head": ("first", "between", "last"),
        "bad_scale_then": ("loaded", "cleared"),
        "overflowing_vectors": ("none", "one of q", "all of k"),
        "clear_after_reset": ("first context", "others"),
        "gate_corners": cross(("a lowest", "a highest"), ("b lowest", "b highest")),
        "decays": ("all kept", "all gone", "6.5e-12"),
        "betas": ("zero", "one", "above one"),
        "rhythm": rhythms(*STREAMS),
    },
)

KERNEL_RUNS = CoverageModel(
    "kernel.runs",
    {
        "status": (
            *[
                (command.name, status.name)
                for command, allowed in STATUSES_OF.items()
                for status in sorted(allowed)
            ],
            ("other", "BAD_COMMAND"),
        ),
        "tokens": ("0", "1", "2", "3 to 9", "10 and more"),
        "after_failure": ("OK", "failed"),
        "output_stalls": NO_SOME,
    },
)
KERNEL_BURSTS = CoverageModel(
    "kernel.bursts",
    {
        "beats": cross(BANKS, ("1", "2 to 15", "16 to 63", "64")),
        "ends_at_page": cross(BANKS, ("no", "yes")),
    },
)
KERNEL_DIRECTED = CoverageModel(
    "kernel.directed",
    {
        "error": cross(
            ("DECODE qk", "DECODE v", "DECODE o", "LOAD v", "DUMP o"), RESPONSES.values()
        ),
        "stuck": tuple(
            (port, channel)
            for port in BANKS
            for channel in (("aw", "w", "b") if port == "o" else ("ar", "r"))
        ),
        "recovery": ("cleared", "loaded"),
        "reset": RESET_TIMES,
        "late_answers": ("DECODE", "DUMP", "CLEAR"),
        "protocol": ("queued run", "counters read in a run", "registers hold arguments"),
        "unused_pointers": ("CLEAR", "LOAD", "DUMP"),
        "pieces": ("two", "three and more"),
        "bad_state_then": ("refused", "usable again"),
        "simulator": SIMULATORS,
    },
)


class _Subscriber(uvm_subscriber):
    """Writes the groups when the simulation ends.

    ``directed`` has what only tests reach that are about it.
    """

    def __init__(self, name: str, parent: uvm_component, directed: CoverageModel) -> None:
        super().__init__(name, parent)
        self.directed = CoverageGroup(directed.name, directed.points)
        self.groups: list[CoverageGroup] = [self.directed]
        self._watched: list[tuple[str, Rhythm]] = []

    def watch(self, port: str, rhythm: Rhythm) -> None:
        """Sample in which ways the transfers of a port came."""
        self._watched.append((port, rhythm))

    def missing(self) -> list[str]:
        """Return the bins without a hit, but for parameters and directed ones."""
        others = (self.directed, *(g for g in self.groups if isinstance(g, ParameterCoverage)))
        return [bin_ for group in self.groups if group not in others for bin_ in group.missing()]

    def report_phase(self) -> None:
        """Write the hits."""
        for port, rhythm in self._watched:
            for kind in sorted(rhythm.seen):
                self.directed.hit("rhythm", (port, kind))
        merged = {point: bins for group in self.groups for point, bins in group.hits().items()}
        write_hits(merged, Settings.current().coverage_file)


class DecodeCoreCoverage(_Subscriber):
    """Coverage of the core, sampled with each checked command.

    ``stalled_cycles`` returns the cycles in which the output waited, since the start.
    """

    def __init__(self, name: str, parent: uvm_component, stalled_cycles: Callable[[], int]) -> None:
        super().__init__(name, parent, CORE_DIRECTED)
        self._stalled_cycles, self._stalled_before = stalled_cycles, 0
        self.numbers, self.parameters = NumbersCoverage(), ParameterCoverage()
        self.parameters.sample()
        self.commands = CoverageGroup(CORE_COMMANDS.name, CORE_COMMANDS.points)
        self.interrupts = CoverageGroup(CORE_INTERRUPTS.name, CORE_INTERRUPTS.points)
        self.groups += [self.numbers, self.parameters, self.commands, self.interrupts]
        self._before: Checked | None = None
        self._last_of: dict[int, str] = {}  # by context, the last command since reset

    def interrupted(self, opcode: Opcode | None, *, reset: bool) -> None:
        """Count a reset or flush and the command that it ended, if one was running."""
        if opcode is not None:
            self.interrupts.hit("in", ("reset" if reset else "flush", opcode.name))
        self._before = None
        if reset:
            self._last_of.clear()

    def write(self, checked: Checked) -> None:
        """Sample a command."""
        commands, finished = self.commands, checked.finished
        command = finished.command
        name = command.opcode.name
        stalled = self._stalled_cycles()
        stalls, self._stalled_before = stalled - self._stalled_before, stalled
        if self._before is not None:
            before = self._before.finished.command
            commands.hit("after", (before.opcode.name, name))
            commands.hit("context", "same" if before.context == command.context else "other")
            at_once = finished.start_cycle - self._before.finished.done_cycle <= BACK_TO_BACK_CYCLES
            self.directed.hit("start", "back to back" if at_once else "after a gap")
        if command.opcode in (Opcode.DECODE, Opcode.DUMP):
            others = self._before is not None and before.context != command.context
            between = "other contexts between" if others else "at once"
            last = self._last_of.get(command.context, "reset")
            commands.hit("state_from", (last, name, between))
            if stalls >= HELD_CYCLES:
                self.directed.hit("output_held", name)
        self._last_of[command.context] = name
        self._before = checked
        if command.opcode != Opcode.CLEAR and not finished.bad_state:
            commands.hit("saturations", (name, some(finished.saturations)))
        if command.opcode in (Opcode.DECODE, Opcode.DUMP):
            commands.hit("output_stalled", (name, some(stalls)))
        if command.opcode == Opcode.LOAD:
            commands.hit("load", "bad scale" if finished.bad_state else "good")
        if command.opcode != Opcode.DECODE:
            return
        commands.hit("tokens", _count_bin(command.tokens))
        bypass = _switch(command.bypass_norm), _switch(command.bypass_gates)
        commands.hit("bypass_norm_gates", bypass)
        commands.hit("norm_overflows", some(finished.norm_overflows))
        commands.hit("starved", some(finished.starved_cycles))
        assert checked.tokens is not None
        self.numbers.sample(checked.tokens)
        self._sample_limits(checked.tokens)

    def _sample_limits(self, tokens: DecodeTokens) -> None:
        """Sample exponents of v, and the signs of heads in which all numbers are at a limit."""
        for exponent in np.unique(tokens.v_exponent).tolist():
            if EXPONENT_MIN <= exponent <= EXPONENT_MAX:
                self.directed.hit("v_exponent", exponent)
        highest, lowest = (
            {name: (getattr(tokens, name) == limit).all(axis=-1) for name in ("q", "k", "v")}
            for limit in (32767, -32768)
        )
        ratio = tokens.v.shape[1] // tokens.q.shape[1]
        for signs in itertools.product("+-", repeat=3):
            heads = [
                (highest if sign == "+" else lowest)[name]
                for name, sign in zip(("q", "k", "v"), signs, strict=True)
            ]
            wide = [np.repeat(head, ratio, axis=1) for head in heads[:2]]
            if (wide[0] & wide[1] & heads[2]).any():
                self.directed.hit("signs_at_the_limits", signs)


class DecodeKernelCoverage(_Subscriber):
    """Coverage of the kernel, sampled with each checked run."""

    def __init__(self, name: str, parent: uvm_component) -> None:
        super().__init__(name, parent, KERNEL_DIRECTED)
        self.runs = CoverageGroup(KERNEL_RUNS.name, KERNEL_RUNS.points)
        self.bursts = CoverageGroup(KERNEL_BURSTS.name, KERNEL_BURSTS.points)
        self.groups += [self.runs, self.bursts]
        self.directed.hit("simulator", simulator())
        self._failed = False

    def write(self, ended: Ended) -> None:
        """Sample a run."""
        runs, run, status = self.runs, ended.run, ended.status
        known = run.command in tuple(Command)
        name = Command(run.command).name if known else "other"
        runs.hit("status", (name, status.name))
        if status == Status.OK:
            if run.command == Command.DECODE:
                runs.hit("tokens", _count_bin(run.tokens))
            runs.hit("after_failure", "failed" if self._failed else "OK")
            runs.hit("output_stalls", some(ended.counters["output_stalls"]))
        self._failed = status != Status.OK
        for burst in ended.bursts:
            self._burst(burst)

    def _burst(self, burst: Burst) -> None:
        port = burst.port.removeprefix("m_axi_")
        beats = burst.beats
        short = "1" if beats == 1 else "2 to 15"
        length = short if beats < 16 else "16 to 63" if beats < 64 else "64"
        self.bursts.hit("beats", (port, length))
        end = burst.address + beats * (Settings.current().parameters["BUS_WIDTH"] // 8)
        self.bursts.hit("ends_at_page", (port, "yes" if end % PAGE_BYTES == 0 else "no"))
