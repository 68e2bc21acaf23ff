# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of the decode engine: what the numbers, commands and parameters were."""

from __future__ import annotations

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
from fastdelta_verif.coverage import CoverageGroup, write_hits
from fastdelta_verif.environments.decode_core import Checked, shape_of
from fastdelta_verif.environments.decode_kernel import BANKS, Ended
from fastdelta_verif.settings import Settings

NO_SOME = ("none", "some")
OFF_ON = ("off", "on")
EXPONENT_BINS = ("below", "lowest", "inside", "highest", "above")
OPCODES = tuple(opcode.name for opcode in Opcode)


def _some(count: int) -> str:
    return "some" if count else "none"


def _switch(value: bool) -> str:
    return "on" if value else "off"


def _count_bin(count: int) -> str:
    return str(count) if count < 3 else "3 to 9" if count < 10 else "10 and more"


class NumbersCoverage(CoverageGroup):
    """What the wire values were."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"{prefix}.numbers")
        for vector in "qkv":
            self.point(f"{vector}_exponent", EXPONENT_BINS)
            self.point(f"{vector}_vector", ("zero", "other", "most negative"))
        gates = ("computed", "given")
        shifts = ("none", "small", "large", "gone")
        self.point("decay_shift", [(gate, shift) for gate in gates for shift in shifts])
        self.point("beta", [(gate, beta) for gate in gates for beta in ("zero", "inside", "one")])
        self.point("value_alignment", ("all lost", "right", "left", "clamped"))

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


class ParameterCoverage(CoverageGroup):
    """Which parameters were simulated; complete only over all simulations."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"{prefix}.parameters")
        self.point("head_dim", (16, 32, 48, 64, 80, 128))
        self.point("group_ratio", (1, 2, 4))
        self.point("h_iter", (1, 2, 3, 4, 8, 16))
        self.point("h_iter_to_ratio", ("below", "equal", "above"))
        self.point("passes", ("one", "several"))
        self.point("contexts", ("one", "several"))
        self.point("bus_width", (128, 256, 512))
        self.point("v_beats", ("part of one", "whole ones"))
        self.point("post_columns", (1, 2, 4))
        self.point("state_pitch", (27, 32))

    def sample(self) -> None:
        """Count the parameters of this simulation."""
        parameters = Settings.current().parameters
        shape = shape_of(parameters)
        for name in ("head_dim", "group_ratio", "h_iter", "bus_width"):
            self.hit(name, getattr(shape, name))
        below, above = shape.h_iter < shape.group_ratio, shape.h_iter > shape.group_ratio
        self.hit("h_iter_to_ratio", "below" if below else "above" if above else "equal")
        self.hit("passes", "several" if shape.passes > 1 else "one")
        self.hit("contexts", "several" if shape.contexts > 1 else "one")
        part = shape.head_dim % (shape.bus_width // 16)
        self.hit("v_beats", "part of one" if part else "whole ones")
        self.hit("post_columns", parameters["POST_COLUMNS"])
        self.hit("state_pitch", parameters["STATE_PITCH"])


class _Subscriber(uvm_subscriber):
    """Writes the groups when the simulation ends."""

    def __init__(self, name: str, parent: uvm_component) -> None:
        super().__init__(name, parent)
        self.groups: list[CoverageGroup] = []

    def missing(self) -> list[str]:
        """Return the bins without a hit, parameters aside: those need several simulations."""
        groups = [group for group in self.groups if not isinstance(group, ParameterCoverage)]
        return [bin_ for group in groups for bin_ in group.missing()]

    def report_phase(self) -> None:
        """Write the hits."""
        merged = {point: bins for group in self.groups for point, bins in group.hits().items()}
        write_hits(merged, Settings.current().coverage_file)


class DecodeCoreCoverage(_Subscriber):
    """Coverage of the core, sampled with each checked command.

    ``stalled_cycles`` returns the cycles in which the output waited, since the start.
    """

    def __init__(self, name: str, parent: uvm_component, stalled_cycles: Callable[[], int]) -> None:
        super().__init__(name, parent)
        self._stalled_cycles, self._stalled_before = stalled_cycles, 0
        self.numbers, self.parameters = NumbersCoverage("core"), ParameterCoverage("core")
        commands = self.commands = CoverageGroup("core.commands")
        self.groups = [self.numbers, self.parameters, commands]
        self.parameters.sample()
        commands.point("after", [(one, other) for one in OPCODES for other in OPCODES])
        commands.point("context", ("same", "other"))
        commands.point("tokens", ("0", "1", "2", "3 to 9", "10 and more"))
        commands.point("bypass_norm_gates", [(n, g) for n in OFF_ON for g in OFF_ON])
        commands.point(
            "saturations",
            [(name, some) for name in ("DECODE", "LOAD", "DUMP") for some in NO_SOME],
        )
        commands.point("norm_overflows", NO_SOME)
        commands.point("load", ("good", "bad scale"))
        commands.point("starved", NO_SOME)
        commands.point("output_stalled", [(n, s) for n in ("DECODE", "DUMP") for s in NO_SOME])
        self.interrupts = CoverageGroup("core.interrupts")
        self.interrupts.point("in", [(how, o) for how in ("reset", "flush") for o in OPCODES])
        self.groups.append(self.interrupts)
        self._before: Checked | None = None

    def interrupted(self, opcode: Opcode | None, *, reset: bool) -> None:
        """Count a reset or flush and the command that it ended, if one was running."""
        if opcode is not None:
            self.interrupts.hit("in", ("reset" if reset else "flush", opcode.name))
        self._before = None

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
        self._before = checked
        if command.opcode != Opcode.CLEAR and not finished.bad_state:
            commands.hit("saturations", (name, _some(finished.saturations)))
        if command.opcode in (Opcode.DECODE, Opcode.DUMP):
            commands.hit("output_stalled", (name, _some(stalls)))
        if command.opcode == Opcode.LOAD:
            commands.hit("load", "bad scale" if finished.bad_state else "good")
        if command.opcode != Opcode.DECODE:
            return
        commands.hit("tokens", _count_bin(command.tokens))
        bypass = _switch(command.bypass_norm), _switch(command.bypass_gates)
        commands.hit("bypass_norm_gates", bypass)
        commands.hit("norm_overflows", _some(finished.norm_overflows))
        commands.hit("starved", _some(finished.starved_cycles))
        assert checked.tokens is not None
        self.numbers.sample(checked.tokens)


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


class DecodeKernelCoverage(_Subscriber):
    """Coverage of the kernel, sampled with each checked run."""

    def __init__(self, name: str, parent: uvm_component) -> None:
        super().__init__(name, parent)
        runs = self.runs = CoverageGroup("kernel.runs")
        bursts = self.bursts = CoverageGroup("kernel.bursts")
        self.groups = [runs, bursts]
        statuses = [
            (command.name, status.name)
            for command, allowed in STATUSES_OF.items()
            for status in sorted(allowed)
        ]
        runs.point("status", [*statuses, ("other", "BAD_COMMAND")])
        runs.point("tokens", ("0", "1", "2", "3 to 9", "10 and more"))
        runs.point("after_failure", ("OK", "failed"))
        runs.point("output_stalls", NO_SOME)
        lengths = ("1", "2 to 15", "16 to 63", "64")
        bursts.point("beats", [(port, length) for port in BANKS for length in lengths])
        bursts.point("ends_at_page", [(port, ends) for port in BANKS for ends in ("no", "yes")])
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
            runs.hit("output_stalls", _some(ended.counters["output_stalls"]))
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
