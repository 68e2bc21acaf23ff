# SPDX-License-Identifier: Apache-2.0
"""The decode engine as a Python object: numpy in, numpy out, whatever card is behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Float32Array, FloatArray
from fastdelta.boards import Board
from fastdelta.checks import float_array
from fastdelta.decode.packing import pack_state, unpack_output, unpack_state
from fastdelta.decode.quantise import (
    GateConstants,
    output_scale,
    quantise_state,
)
from fastdelta.decode.results import DecodeResult, RunReport
from fastdelta.decode.runs import (
    ContextState,
    DecodeCall,
    DecodeKernel,
    DecodeQueue,
    RunRequest,
    RunViews,
)
from fastdelta.decode.token_packer import TOKENS_AT_ONCE, PacketViews, TokenPacker
from fastdelta.engine import WATCHDOG_MAX, Engine
from fastdelta.errors import (
    AcceleratorClosedError,
    DtypeError,
    InputError,
    RangeError,
    ShapeError,
)
from fastdelta.reference.decode_model import SCALE_FRACTION, StateImage
from fastdelta.reference.fixed_point import EXPONENT_MAX
from fastdelta.registers.decode import (
    FLAGS_BYPASS_GATES,
    FLAGS_BYPASS_NORM,
    VERSION_VALUE,
    Command,
    Register,
)
from fastdelta.results import Provenance
from fastdelta.runs import Job
from fastdelta.shapes import DecodeShape

MAX_TOKENS_PER_RUN = 65_535
DEFAULT_TIMEOUT = 60.0
DEFAULT_BUFFER_BYTES = 16 << 20
VALUE_EXPONENT_LIMIT = 64

_WATCHDOG_BASE = 100_000  # cycles
_WATCHDOG_FACTOR = 8  # of what a run takes when the memory never stalls
_WATCHDOG_TOKEN = 256  # cycles to fill and empty the pipeline for a token
_WIRE_LIMIT = 2.0 ** (EXPONENT_MAX + 15)  # magnitudes that the block exponents reach
_VALUE_REMEDY = "scale it down or raise value_exponent"

Vectors = tuple[FloatArray, FloatArray, FloatArray]
"""q, k and v."""

Gates = tuple[FloatArray, FloatArray]
"""a and b, or the logarithm of the decay and beta."""


@dataclass
class _Configuration:
    """Constants of the layer that a context belongs to."""

    output_scale: npt.NDArray[np.float64]
    gates: GateConstants | None = None
    value_exponent: npt.NDArray[np.int64] | int = 0


class DecodeJob(Job[DecodeResult]):
    """A decode that was submitted: look with `done`, wait with `wait`, or ``await`` it."""

    def __init__(
        self,
        queue: DecodeQueue,
        call: DecodeCall,
        provenance: Provenance,
        outputs: list[Float32Array],
        single_token: bool,
    ) -> None:
        super().__init__(queue, call)
        self._decode_call = call
        self._provenance = provenance
        self._outputs = outputs
        self._single_token = single_token

    def _make_result(self) -> DecodeResult:
        outputs = self._outputs
        output = outputs[0] if len(outputs) == 1 else np.concatenate(outputs)
        if self._single_token:
            output = output[0]
        return DecodeResult(
            **self._decode_call.report_fields(), provenance=self._provenance, output=output
        )


class DecodeAccelerator(Engine[DecodeKernel, DecodeShape]):
    """The decode kernel of one card; `Accelerator.open` makes it.

    A context is the state of one layer for one sequence. Calls from several threads are safe;
    runs are done in the order of the calls. Attributes and closing: `fastdelta.engine.Engine`.
    """

    _VERSION_REGISTER = Register.VERSION
    _VERSION = VERSION_VALUE
    _queue: DecodeQueue

    def __init__(
        self,
        board: Board[DecodeKernel],
        shape: DecodeShape | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        watchdog_cycles: int | None = None,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    ) -> None:
        super().__init__(board, shape, timeout=timeout, watchdog_cycles=watchdog_cycles)
        shape = self.shape
        token_bytes = max(shape.qk_token_bytes, shape.v_token_bytes, shape.o_token_bytes)
        smallest = max(token_bytes, shape.state_bytes)
        if buffer_bytes < smallest:
            raise RangeError(
                f"buffer_bytes is {buffer_bytes}; a state or token of this shape needs {smallest}"
            )
        self._tokens_per_run = min(MAX_TOKENS_PER_RUN, buffer_bytes // token_bytes)
        self._token_cycles = _WATCHDOG_TOKEN + max(
            shape.passes * shape.head_dim,
            shape.qk_heads * shape.qk_packet_beats,
            shape.value_heads * shape.v_packet_beats,
            shape.value_heads * shape.word_beats,
        )
        self._state_cycles = shape.value_heads * shape.state_packet_beats
        self._configurations = [
            _Configuration(output_scale(shape, 0)) for _ in range(shape.contexts)
        ]
        self._packer = TokenPacker(shape)
        self._queue = DecodeQueue(board, shape.contexts, timeout)
        try:
            for context in range(shape.contexts):  # a card may hold the states of a past program
                self.clear(context)
        except BaseException:
            self._queue.free_buffers()
            raise
        self._opened()

    def _read_shape(self) -> DecodeShape:
        read = self.board.kernel.read_register
        head_dim, qk_heads, group_ratio, h_iter = read(Register.SHAPE0).to_bytes(4, "little")
        shape1 = read(Register.SHAPE1)
        return DecodeShape(
            head_dim=head_dim,
            qk_heads=qk_heads,
            group_ratio=group_ratio,
            h_iter=h_iter,
            contexts=shape1 & 0xFF,
            bus_width=shape1 >> 16,
        )

    def configure(
        self,
        context: int,
        *,
        a_log: npt.ArrayLike,
        dt_bias: npt.ArrayLike,
        value_exponent: int | npt.ArrayLike | None = None,
    ) -> None:
        """Set the constants of the layer that a context belongs to; its state stays.

        Parameters
        ----------
        context : int
            Which context.
        a_log, dt_bias : array [value_heads], float
            The layer's ``A_log`` and ``dt_bias``.
        value_exponent : int or array [value_heads], optional
            New value scale 2**value_exponent per head; only for a context that is cleared or
            lost, as a resident state is in units of the old one.
        """
        with self._queue.lock:
            self._check_context(context)
            heads = (self.shape.value_heads,)
            constants = (float_array("a_log", a_log, heads), float_array("dt_bias", dt_bias, heads))
            try:
                gates = GateConstants.from_float(*constants)
            except ValueError as error:
                raise RangeError(str(error)) from error
            if value_exponent is not None:
                self._set_value_exponent(context, value_exponent)
            self._configurations[context].gates = gates

    def configure_all(
        self,
        a_log: npt.ArrayLike | None,
        dt_bias: npt.ArrayLike | None,
        value_exponent: int | npt.ArrayLike,
    ) -> None:
        """Set the constants of every context; see `Accelerator.open` for the shapes."""
        exponents = np.asarray(value_exponent)
        every = (self.shape.contexts, self.shape.value_heads)
        for context in range(self.shape.contexts):
            self._set_value_exponent(
                context, exponents[context] if exponents.shape == every else exponents
            )
        if (a_log is None) != (dt_bias is None):
            raise InputError("a_log and dt_bias belong together; give both or neither")
        if a_log is None or dt_bias is None:
            return
        constants = [np.asarray(a_log), np.asarray(dt_bias)]
        for name, values in zip(("a_log", "dt_bias"), constants, strict=True):
            if values.shape not in (every, every[1:]):
                raise ShapeError(
                    f"{name} has shape {values.shape}; expected {every[1:]} for all contexts or "
                    f"{every} for each"
                )
        for context in range(self.shape.contexts):
            of_context = [v[context] if v.shape == every else v for v in constants]
            self.configure(context, a_log=of_context[0], dt_bias=of_context[1])

    def _set_value_exponent(self, context: int, value_exponent: int | npt.ArrayLike) -> None:
        exponent = np.asarray(value_exponent)
        if exponent.dtype.kind not in "iu":
            raise DtypeError(f"value_exponent has dtype {exponent.dtype}; pass integers")
        if exponent.shape not in ((), (self.shape.value_heads,)):
            raise ShapeError(
                f"value_exponent has shape {exponent.shape}; expected one integer or "
                f"({self.shape.value_heads},)"
            )
        if np.any(np.abs(exponent) > VALUE_EXPONENT_LIMIT):
            raise RangeError(
                f"value_exponent goes to {int(np.abs(exponent).max())} in magnitude; allowed is "
                f"up to {VALUE_EXPONENT_LIMIT}"
            )
        new = exponent.astype(np.int64) if exponent.ndim else int(exponent)
        self._queue.drain()
        configuration = self._configurations[context]
        changed = np.any(new != np.asarray(configuration.value_exponent))
        if changed and self._queue.states[context] is ContextState.RESIDENT:
            raise InputError(
                f"context {context} holds a state in units of its present value_exponent; clear "
                "it before configuring another"
            )
        configuration.value_exponent = new
        configuration.output_scale = output_scale(self.shape, new)

    def context_state(self, context: int) -> ContextState:
        """Return whether a context is cleared, holds a state, or was lost to a failure."""
        with self._queue.lock:
            self._check_context(context)
            self._queue.drain()
            return self._queue.states[context]

    @property
    def last_report(self) -> RunReport | None:
        """Evidence of the call that ended last, whichever it was."""
        call = self._queue.last_call
        if call is None:
            return None
        return RunReport(**call.report_fields(), provenance=self.provenance)

    def decode(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        v: npt.ArrayLike,
        a: npt.ArrayLike | None = None,
        b: npt.ArrayLike | None = None,
        *,
        log_decay: npt.ArrayLike | None = None,
        beta: npt.ArrayLike | None = None,
        normalised: bool = False,
        context: int = 0,
    ) -> DecodeResult:
        """Advance a context by one or many tokens.

        Parameters
        ----------
        q, k : array [tokens, qk_heads, head_dim], or [qk_heads, head_dim] for one token
            Queries and keys, any float dtype; the kernel scales them to unit length.
        v : array [tokens, value_heads, head_dim], or [value_heads, head_dim]
            Values.
        a, b : array [tokens, value_heads], or [value_heads]
            Raw inputs of the decay and the write gate; `configure` gave the constants.
        log_decay, beta : array like `a`
            In place of `a` and `b`: natural logarithm of the decay (at most 0; minus infinity
            clears) and write strength, 0 to 1.
        normalised : bool
            q and k have unit length already; the kernel takes them as they are.
        context : int
            Which state.

        Returns
        -------
        DecodeResult
            Output float32 [tokens, value_heads, head_dim] or [value_heads, head_dim], with the
            evidence of the run.

        Raises
        ------
        InputError
            If an argument cannot be used; the state is as before.
        KernelError
            If a run failed; ``aftermath`` says what became of the state.
        """
        return self.submit(
            q, k, v, a, b, log_decay=log_decay, beta=beta, normalised=normalised, context=context
        ).wait()

    def submit(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        v: npt.ArrayLike,
        a: npt.ArrayLike | None = None,
        b: npt.ArrayLike | None = None,
        *,
        log_decay: npt.ArrayLike | None = None,
        beta: npt.ArrayLike | None = None,
        normalised: bool = False,
        context: int = 0,
    ) -> DecodeJob:
        """Start a `decode` and return at once, as soon as its last run has a buffer set.

        The inputs may be changed afterwards. Two runs are in flight at most; a further one first
        waits for the oldest.
        """
        with self._queue.lock:
            self._check_context(context)
            shape = self.shape
            q = np.asarray(q)
            single = q.ndim == 2
            tokens = 1 if single else len(np.atleast_1d(q))
            lead = () if single else (tokens,)
            qk_shape = (*lead, shape.qk_heads, shape.head_dim)
            v_shape = (*lead, shape.value_heads, shape.head_dim)
            vectors = (
                float_array("q", q, qk_shape, infinite=True),
                float_array("k", k, qk_shape, infinite=True),
                float_array("v", v, v_shape, infinite=True),
            )
            given_gates, gates = self._checked_gates(lead, a, b, log_decay, beta)
            exponent = self._configurations[context].value_exponent
            loaded = 0 < tokens <= min(TOKENS_AT_ONCE, self._tokens_per_run)
            peak, finite = np.inf, False
            if loaded:
                peak, finite = self._packer.load(
                    vectors, gates, given_gates=given_gates, value_exponent=exponent
                )
            if not (peak < _WIRE_LIMIT and (given_gates or finite)):
                self._check_range(vectors, gates, given_gates, exponent)
            if single:
                vectors = (vectors[0][np.newaxis], vectors[1][np.newaxis], vectors[2][np.newaxis])
                gates = (gates[0][np.newaxis], gates[1][np.newaxis])
            return self._launch_decode(
                context, vectors, gates, given_gates, normalised, single, loaded
            )

    @staticmethod
    def _check_range(
        vectors: Vectors,
        gates: Gates,
        given_gates: bool,
        value_exponent: int | npt.NDArray[np.int64],
    ) -> None:
        """Check that the formats hold every value; the limit of v is in units of its scale."""
        q, k, v = vectors
        float_array("q", q, q.shape, limit=_WIRE_LIMIT)
        float_array("k", k, k.shape, limit=_WIRE_LIMIT)
        exponents = np.asarray(value_exponent)
        if exponents.any():
            float_array("v", v, v.shape)
            scaled = np.ldexp(v.astype(np.float64), -exponents[..., np.newaxis])
            name = "v in units of its value scale"
            float_array(name, scaled, v.shape, limit=_WIRE_LIMIT, remedy=_VALUE_REMEDY)
        else:
            float_array("v", v, v.shape, limit=_WIRE_LIMIT, remedy=_VALUE_REMEDY)
        if not given_gates:
            for name, gate in zip(("a", "b"), gates, strict=True):
                float_array(name, gate, gate.shape)

    def _checked_gates(
        self,
        lead: tuple[int, ...],
        a: npt.ArrayLike | None,
        b: npt.ArrayLike | None,
        log_decay: npt.ArrayLike | None,
        beta: npt.ArrayLike | None,
    ) -> tuple[bool, Gates]:
        """Return whether the gates are given, and the pair; a and b are not checked for NaN."""
        shape = (*lead, self.shape.value_heads)
        if a is not None and b is not None and log_decay is None and beta is None:
            return False, (
                float_array("a", a, shape, infinite=True),
                float_array("b", b, shape, infinite=True),
            )
        if a is None and b is None and log_decay is not None and beta is not None:
            decay = float_array("log_decay", log_decay, shape, infinite=True)
            if not np.all(decay <= 0):
                raise RangeError(
                    "log_decay has values above 0 or NaN; it is the natural logarithm of a decay "
                    "between 0 and 1"
                )
            strength = float_array("beta", beta, shape)
            if not np.all((strength >= 0) & (strength <= 1)):
                raise RangeError("beta has values outside 0 to 1; pass sigmoid(b), not b itself")
            return True, (decay, strength)
        raise InputError("the gates are a and b, or log_decay and beta: give one pair, whole")

    def _launch_decode(
        self,
        context: int,
        vectors: Vectors,
        gates: Gates,
        given_gates: bool,
        normalised: bool,
        single: bool,
        loaded: bool,
    ) -> DecodeJob:
        configuration = self._configurations[context]
        constants = None if given_gates else configuration.gates
        if not given_gates and constants is None:
            raise InputError(
                f"context {context} has no gate constants; give a_log and dt_bias to "
                "Accelerator.open or configure, or pass log_decay and beta"
            )
        shape, exponent = self.shape, configuration.value_exponent
        flags = FLAGS_BYPASS_NORM * normalised | FLAGS_BYPASS_GATES * given_gates
        tokens, limit = len(vectors[0]), self._tokens_per_run
        spans = [(i, min(i + limit, tokens)) for i in range(0, max(tokens, 1), limit)]

        call = DecodeCall(Command.DECODE, context)
        outputs: list[Float32Array] = []

        scale = configuration.output_scale

        def unpack(views: RunViews) -> None:
            if views.output is None:
                views.output = unpack_output(shape, views.o_host)
            outputs.append((views.output * scale).astype(np.float32))

        packer = self._packer

        def fill(views: RunViews, start: int, stop: int) -> None:
            packets = views.packets
            if packets is None:
                packets = views.packets = PacketViews.of(shape, views.qk_host, views.v_host)
            if loaded:
                packer.store(packets, constants, value_exponent=exponent)
                return
            q, k, v = vectors
            first, second = gates
            for low in range(start, stop, TOKENS_AT_ONCE):
                part = slice(low, min(low + TOKENS_AT_ONCE, stop))
                packer.load(
                    (q[part], k[part], v[part]),
                    (first[part], second[part]),
                    given_gates=given_gates,
                    value_exponent=exponent,
                )
                of_part = packets.slice(part.start - start, part.stop - start)
                packer.store(of_part, constants, value_exponent=exponent)

        try:
            for start, stop in spans:
                count = stop - start
                self._queue.launch(
                    call,
                    RunRequest(
                        tokens=count,
                        flags=flags,
                        watchdog=self._watchdog(count),
                        qk=count * shape.qk_token_bytes,
                        v=count * shape.v_token_bytes,
                        o=count * shape.o_token_bytes,
                        fill=partial(fill, start=start, stop=stop),
                        unpack=unpack,
                    ),
                )
        except BaseException as error:
            if call.pending or call.invocations:
                self._abandon(call, error)
            raise
        finally:
            call.launching = False
        return DecodeJob(self._queue, call, self.provenance, outputs, single)

    def _abandon(self, call: DecodeCall, error: BaseException) -> None:
        """Declare a context lost: only a part of the call's tokens went through it."""
        self._queue.drain()
        self._queue.states[call.context] = ContextState.LOST
        error.add_note(
            f"Tokens 0 to {call.tokens - 1} of the call were done before; the state of context "
            f"{call.context} is lost: clear or load it before the next decode."
        )

    def clear(self, context: int = 0) -> RunReport:
        """Set the state of a context to zero: the next token starts a new sequence."""
        return self._command(Command.CLEAR, context, RunRequest())

    def load_state(self, state: StateImage | npt.ArrayLike, context: int = 0) -> RunReport:
        """Replace the state of a context.

        Parameters
        ----------
        state : StateImage or array [value_heads, d_k, d_v], float
            An image from `dump_state` is restored exactly; it is in units of the value scales of
            the context it came from. An array is rounded to the state's format.
        context : int
            Which state; a lost context is usable again.

        Returns
        -------
        RunReport
            With counts of clamped words, which an image from `dump_state` has none of.
        """
        with self._queue.lock:
            self._check_context(context)
            shape = self.shape
            exponent = self._configurations[context].value_exponent
            sizes = (shape.value_heads, shape.head_dim, shape.head_dim)
            if isinstance(state, StateImage):
                image = state
                _check_image(image, sizes)
            else:
                image = self._quantised_state(float_array("state", state, sizes), exponent)

            def fill(views: RunViews) -> None:
                pack_state(shape, image, views.v_host)

            return self._command(Command.LOAD, context, RunRequest(v=shape.state_bytes, fill=fill))

    @staticmethod
    def _quantised_state(
        state: FloatArray, value_exponent: int | npt.NDArray[np.int64]
    ) -> StateImage:
        try:
            return quantise_state(state, value_exponent=value_exponent)
        except ValueError as error:
            raise RangeError(str(error)) from error

    def dump_state(self, context: int = 0) -> StateImage:
        """Read the state of a context exactly; it stays as it is.

        The image is in units of the context's value scales, 1 by default; `read_state` is in
        units of v.
        """
        images: list[StateImage] = []

        def unpack(views: RunViews) -> None:
            images.append(unpack_state(self.shape, views.o_host))

        with self._queue.lock:
            self._check_context(context)
            request = RunRequest(o=self.shape.state_bytes, unpack=unpack)
            self._command(Command.DUMP, context, request)
        return images[0]

    def read_state(self, context: int = 0) -> npt.NDArray[np.float64]:
        """Read the state S of a context, float64 [value_heads, d_k, d_v], in units of v."""
        with self._queue.lock:
            values = self.dump_state(context).to_float()
            exponent = np.asarray(self._configurations[context].value_exponent)
            scaled: npt.NDArray[np.float64] = np.ldexp(values, exponent[..., None, None])
            return scaled

    def _command(self, command: Command, context: int, request: RunRequest) -> RunReport:
        """Run one command other than decode and wait for it."""
        with self._queue.lock:
            self._check_context(context)
            call = DecodeCall(command, context)
            try:
                self._queue.launch(call, replace(request, watchdog=self._watchdog(0)))
            finally:
                call.launching = False
            self._queue.wait(call)
        if call.error is not None:
            raise call.error
        return RunReport(**call.report_fields(), provenance=self.provenance)

    def _watchdog(self, tokens: int) -> int:
        """Return the cycles after which the kernel gives up: many times what a run needs."""
        if self.watchdog_cycles is not None:
            return self.watchdog_cycles
        run_cycles = tokens * self._token_cycles + self._state_cycles
        return min(_WATCHDOG_BASE + _WATCHDOG_FACTOR * run_cycles, WATCHDOG_MAX)

    def _check_context(self, context: int) -> None:
        if self.closed:
            raise AcceleratorClosedError(
                "the accelerator is closed; open it again, or keep its with block open"
            )
        if isinstance(context, bool) or not isinstance(context, int | np.integer):
            raise InputError(f"context is {context!r}; pass an integer")
        if not 0 <= context < self.shape.contexts:
            raise RangeError(
                f"context is {context}; this kernel has contexts 0 to {self.shape.contexts - 1}"
            )


def _check_image(image: StateImage, sizes: tuple[int, int, int]) -> None:
    for name, array, shape in (
        ("mantissa", image.mantissa, sizes),
        ("scale", image.scale, sizes[:1]),
    ):
        if array.dtype != np.int32:
            raise DtypeError(f"state {name} has dtype {array.dtype}; expected int32")
        if array.shape != shape:
            raise ShapeError(f"state {name} has shape {array.shape}; expected {shape}")
    low, high = 1 << (SCALE_FRACTION - 1), 1 << SCALE_FRACTION
    if np.any((image.scale <= low) | (image.scale > high)):
        raise RangeError(
            f"state scale goes from {image.scale.min()} to {image.scale.max()}; allowed is above "
            f"{low} up to {high}, as dump_state returns it"
        )
