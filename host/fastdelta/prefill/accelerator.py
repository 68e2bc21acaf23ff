# SPDX-License-Identifier: Apache-2.0
"""The prefill engine as a Python object: numpy in, numpy out, whatever card is behind."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from fastdelta.arrays import Bytes, FloatArray, Words, checksum
from fastdelta.boards import Board, DeviceBuffer
from fastdelta.checks import float_array
from fastdelta.engine import WATCHDOG_MAX, Engine
from fastdelta.errors import (
    AcceleratorClosedError,
    Aftermath,
    BankFullError,
    InputError,
    KernelStatusError,
    MemoryFaultError,
    PreparedLostError,
    RangeError,
    ShapeError,
)
from fastdelta.prefill.job_lists import (
    JobList,
    JobListError,
    dense_list_bytes,
    index_set_of,
    jobs_in_header,
    list_words,
    lists_stride,
    make_job_lists,
    pack_job_lists,
    read_job_list,
)
from fastdelta.prefill.packing import (
    pack_keys,
    pack_queries,
    pack_values,
    unpack_outputs,
)
from fastdelta.prefill.quantise import (
    QuantisedKeysValues,
    QuantisedQueries,
    dequantise_attention,
    quantise_keys_values,
    quantise_queries,
)
from fastdelta.prefill.results import PrefillChecksums, PrefillResult
from fastdelta.prefill.runs import (
    Buffers,
    ChecksumError,
    PrefillCall,
    PrefillKernel,
    PrefillQueue,
    PrefillRequest,
    RunParameters,
    copy,
)
from fastdelta.reference.index_model import IndexParameters
from fastdelta.reference.sparse_index import IndexSet, Pattern, SelectionParameters
from fastdelta.registers.prefill import FLAGS_CACHE, VERSION_VALUE, Mode, Register, Status
from fastdelta.results import Seconds
from fastdelta.runs import Job
from fastdelta.shapes import BUFFER_ALIGNMENT, PrefillShape

CARD_TIMEOUT = 60.0
SIMULATED_TIMEOUT = 3600.0
"""Seconds that a run may take by default; a simulated card is many thousand times slower."""

HOT_THRESHOLD_MAX = (1 << 16) - 1

_LIMIT = 2.0**120  # magnitudes whose rotations and products stay finite in FP64
_WATCHDOG_BASE = 1_000_000  # cycles
_WATCHDOG_FACTOR = 16  # of what a run takes when memory never stalls

Indices = IndexSet | Literal["dense"] | None


class ResidentKeysValues:
    """Keys and values of one prompt on the card; `PrefillAccelerator.prepare` makes it.

    They stay until `close`, until the accelerator is closed, or until a failure resets the card.

    Attributes
    ----------
    kv_heads, tokens : int
    k_scale, v_scale : array [kv_heads], float64
        Scales of the integers on the card.
    tag : int
        What the words of each block on the card add up to.
    """

    def __init__(
        self,
        queue: PrefillQueue,
        shape: PrefillShape,
        quantised: QuantisedKeysValues,
        buffers: dict[str, DeviceBuffer],
        board: Board[PrefillKernel],
        tag: int,
    ) -> None:
        self.tag = tag
        self.kv_heads, self.tokens, _ = quantised.k.shape
        self.k_scale, self.v_scale = quantised.k_scale, quantised.v_scale
        self._queue = queue
        self._head_bytes = {
            "k": shape.k_head_bytes(self.tokens),
            "v": shape.v_head_bytes(self.tokens),
        }
        self._buffers = buffers
        self._board = board
        self._checksums = {name: _checksum(buffer) for name, buffer in buffers.items()}
        self._state: Literal["on the card", "closed", "lost"] = "on the card"
        self._loss = "the card was reset after a failure"
        queue.when_reset.append(self._lose)

    @property
    def resident(self) -> bool:
        """Whether they are on the card."""
        return self._state == "on the card"

    @property
    def head_step(self) -> int:
        """KV heads after which a run may begin: buffers start at multiples of 64 bytes."""
        common = math.gcd(BUFFER_ALIGNMENT, *self._head_bytes.values())
        return BUFFER_ALIGNMENT // common

    def part(self, name: str, heads: range) -> DeviceBuffer:
        """Return the buffer of some KV heads, of ``k`` or ``v``."""
        size = self._head_bytes[name]
        return self._buffers[name][heads.start * size : heads.stop * size]

    def require(self, queue: PrefillQueue) -> None:
        """Check that they are on the card of a queue.

        Raises
        ------
        InputError
            If they belong to another accelerator.
        AcceleratorClosedError, PreparedLostError
            If they are closed or lost.
        """
        if queue is not self._queue:
            raise InputError("resident keys and values belong to another accelerator; prepare them")
        if self._state == "closed":
            raise AcceleratorClosedError("the resident keys and values are closed; prepare anew")
        if self._state == "lost":
            raise PreparedLostError(
                f"{self._loss}, and the resident keys and values are lost; prepare them again"
            )

    def verify(self) -> None:
        """Read them back and compare them with what was written.

        Raises
        ------
        MemoryFaultError
            If memory has changed them; they are lost then.
        BoardError
            If the card refuses a copy.
        """
        with self._queue.lock:
            self.require(self._queue)
            for name, buffer in self._buffers.items():
                copy(self._board, buffer)
                if _checksum(buffer) == self._checksums[name]:
                    continue
                self._loss = "memory of the card has changed them"
                self._state = "lost"  # the memory is kept: a run in flight may use it
                raise MemoryFaultError(
                    f"the resident {name} on {self._board.info.name} are not those that the host "
                    "wrote.",
                    aftermath=Aftermath.PREPARED_DAMAGED,
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory on the card back, after runs in flight; may be called again."""
        with self._queue.lock:
            if self._state == "on the card":
                self._queue.drain()
            self._free()
            self._state = "closed"

    def _lose(self) -> None:
        self._free()
        self._state = "lost"

    def _free(self) -> None:
        if self._lose in self._queue.when_reset:
            self._queue.when_reset.remove(self._lose)
        for name in tuple(self._buffers):
            self._buffers.pop(name).freebuffer()


def _checksum(buffer: DeviceBuffer) -> int:
    """Return the CRC of the host copy of a buffer."""
    return zlib.crc32(np.asarray(buffer).data)


@dataclass(frozen=True)
class _Plan:
    """What the runs of one call have in common."""

    mode: Mode
    heads: int
    kv_heads: int
    tokens: int
    window: int
    parameters: IndexParameters
    cache: bool
    hot_threshold: int
    lists: tuple[JobList, ...] | None
    job_stride: int

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    def query_heads(self, kv_heads: range) -> slice:
        """Query heads that belong to some KV heads."""
        return slice(kv_heads.start * self.group, kv_heads.stop * self.group)


class PrefillJob(Job[PrefillResult]):
    """A prefill that was submitted: look with `done`, wait with `wait`, or ``await`` it."""

    def __init__(
        self,
        queue: PrefillQueue,
        call: PrefillCall,
        make_result: Callable[[PrefillCall], PrefillResult],
    ) -> None:
        super().__init__(queue, call)
        self._prefill_call = call
        self._of_call = make_result

    def _make_result(self) -> PrefillResult:
        return self._of_call(self._prefill_call)


class PrefillAccelerator(Engine[PrefillKernel, PrefillShape]):
    """The prefill kernel of one card; `Accelerator.open` makes it.

    Calls from several threads are safe; runs are done in the order of the calls. Closing also
    frees prepared keys and values. Attributes: `fastdelta.engine.Engine`.
    """

    _VERSION_REGISTER = Register.VERSION
    _VERSION = VERSION_VALUE
    _queue: PrefillQueue

    def __init__(
        self,
        board: Board[PrefillKernel],
        shape: PrefillShape | None = None,
        *,
        timeout: float | None = None,
        watchdog_cycles: int | None = None,
    ) -> None:
        if timeout is None:
            timeout = SIMULATED_TIMEOUT if board.info.simulated else CARD_TIMEOUT
        super().__init__(board, shape, timeout=timeout, watchdog_cycles=watchdog_cycles)
        overflow = (
            "a head is query-aware, and its map of block pairs has more than the "
            f"{self.shape.map_entries:,} entries that this kernel holds: pass tau=0, fewer tokens, "
            "or open a kernel with larger map_entries"
        )
        explanations = {Status.MAP_OVERFLOW.name: overflow}
        self._queue = PrefillQueue(board, timeout, self.shape, explanations)
        self._opened()

    def _read_shape(self) -> PrefillShape:
        read = self.board.kernel.read_register
        words = [
            read(register)
            for register in (
                Register.SHAPE0,
                Register.SHAPE1,
                Register.SHAPE2,
                Register.SHAPE3,
                Register.SHAPE4,
                Register.SHAPE5,
            )
        ]
        strips, row_arrays, lut_arrays, slots = words[1].to_bytes(4, "little")
        bus_width, (max_group, kv_buffers) = words[3] & 0xFFFF, words[3].to_bytes(4, "little")[2:]
        found = PrefillShape(
            head_dim=words[0] >> 16,
            strips=strips,
            row_arrays=row_arrays,
            lut_arrays=lut_arrays,
            array_rows=words[2] & 0xFFFF,
            array_columns=words[2] >> 16,
            slots=slots,
            kv_buffers=kv_buffers,
            cache_lines=words[4] & 0xFFFF,
            max_blocks=words[4] >> 16,
            max_group=max_group,
            bus_width=bus_width,
            map_entries=words[5],
        )
        if found.block != words[0] & 0xFFFF:
            raise ValueError(f"blocks of {words[0] & 0xFFFF} tokens from {found}")
        return found

    def prepare(self, k: npt.ArrayLike, v: npt.ArrayLike) -> ResidentKeysValues:
        """Put keys and values on the card, for any number of `prefill` calls with other queries.

        Parameters
        ----------
        k, v : array [kv_heads, tokens, head_dim], any float dtype

        Returns
        -------
        ResidentKeysValues
            A context manager; its `close` gives the memory back.

        Raises
        ------
        InputError
            If an argument cannot be used.
        BankFullError
            If keys or values of all KV heads do not fit their bank. `prefill` with k and v splits
            them.
        """
        with self._queue.lock:
            self._require_open()
            keys, values = self._checked_keys_values(k, v)
            quantised = quantise_keys_values(keys, values)
            buffers: dict[str, DeviceBuffer] = {}
            try:
                tag = self._queue.new_tag()
                for name, packed in self._packed_keys_values(quantised, tag):
                    buffers[name] = self._allocate_resident(name, packed.size)
                    np.asarray(buffers[name])[:] = packed
                    copy(self.board, buffers[name], to_card=True)
                return ResidentKeysValues(
                    self._queue, self.shape, quantised, buffers, self.board, tag
                )
            except BaseException:
                for buffer in buffers.values():
                    buffer.freebuffer()
                raise

    def _packed_keys_values(
        self, quantised: QuantisedKeysValues, tag: int
    ) -> Iterator[tuple[str, Bytes]]:
        shape, x = self.shape, quantised
        yield "k", pack_keys(shape, x.k, x.k_shift, x.v_shift, tag)
        yield "v", pack_values(shape, x.v, tag)

    def _allocate_resident(self, name: str, size: int) -> DeviceBuffer:
        while True:
            try:
                return self.board.allocate(name, size)
            except BankFullError as error:
                if self._queue.make_room():  # of earlier calls; the next one allocates anew
                    continue
                error.add_note(
                    f"Resident {name} needs {size:,} bytes in one bank. Pass k and v to prefill "
                    "instead: it takes KV heads in several runs."
                )
                raise

    def prefill(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike | None = None,
        v: npt.ArrayLike | None = None,
        *,
        resident: ResidentKeysValues | None = None,
        gamma: float = 0.9,
        tau: float = 0.1,
        min_budget: int = 1024,
        max_budget: int | None = None,
        indices: Indices = None,
        cache: bool = True,
        window: int | None = None,
        hot_threshold: int | None = None,
    ) -> PrefillResult:
        """Causal attention over a whole prompt, for the selected blocks.

        Parameters
        ----------
        q : array [heads, tokens, head_dim], any float dtype
            Queries, not yet scaled: scores are ``q . k / sqrt(head_dim)``.
        k, v : array [kv_heads, tokens, head_dim]
            Keys and values; head ``h`` of q uses KV head ``h // (heads / kv_heads)``.
        resident : ResidentKeysValues, optional
            In place of k and v, what `prepare` returned.
        gamma : float
            Share of the attention to cover: above 0, to 1. At 1 every block is selected.
        tau : float
            Heads whose estimate is closer than this to their attention (square root of the
            Jensen-Shannon divergence) choose single pairs of blocks: 0 to 1; 0: none.
        min_budget, max_budget : int
            Fewest and most tokens of the block columns, and of the block diagonals, of a head.
        indices : IndexSet or "dense", optional
            Blocks to attend to in place of those that the kernel chooses: the parameters above
            are not used then. Each query block needs at least one block.
        cache : bool
            Keep K and V blocks that are used again on chip; the output is the same to the bit.
        window : int, optional
            Query blocks that are worked on together, a power of two; by default as many as the
            accumulators hold. The output is the same to the bit.
        hot_threshold : int, optional
            Uses left from which a block is kept before others; by default half of the query
            blocks of all heads of a KV head.

        Returns
        -------
        PrefillResult
            Output float32 [heads, tokens, head_dim], with the evidence of the runs.

        Raises
        ------
        InputError
            If an argument cannot be used.
        BankFullError
            If not even one KV head fits the banks.
        KernelError
            If a run failed; ``aftermath`` says what became of prepared keys and values.
        """
        return self.submit(
            q,
            k,
            v,
            resident=resident,
            gamma=gamma,
            tau=tau,
            min_budget=min_budget,
            max_budget=max_budget,
            indices=indices,
            cache=cache,
            window=window,
            hot_threshold=hot_threshold,
        ).wait()

    def submit(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike | None = None,
        v: npt.ArrayLike | None = None,
        *,
        resident: ResidentKeysValues | None = None,
        gamma: float = 0.9,
        tau: float = 0.1,
        min_budget: int = 1024,
        max_budget: int | None = None,
        indices: Indices = None,
        cache: bool = True,
        window: int | None = None,
        hot_threshold: int | None = None,
    ) -> PrefillJob:
        """Start a `prefill` and return at once, as soon as its last run has a buffer set.

        The inputs may be changed afterwards. Two runs are in flight at most: the next is prepared
        and copied while the kernel works on the first, if the banks have room for both.
        """
        with self._queue.lock:
            self._require_open()
            began = time.perf_counter()
            queries = self._checked_queries(q)
            heads, tokens, _ = queries.shape
            kv_heads, past = self._past(heads, tokens, k, v, resident)
            plan = self._plan(
                heads,
                kv_heads,
                tokens,
                SelectionParameters(gamma, tau, min_budget, max_budget, self.shape.block),
                indices,
                cache,
                window,
                hot_threshold,
            )
            try:
                quantised = quantise_queries(queries, past.k_scale)
            except ValueError as error:
                raise RangeError(str(error)) from error
            call = PrefillCall()
            call.seconds = Seconds(prepare=time.perf_counter() - began)
            try:
                self._launch_all(call, plan, quantised, past)
            except BaseException:
                self._queue.drain()  # nobody waits for the runs that were launched
                raise
            finally:
                call.launching = False
            return PrefillJob(self._queue, call, partial(self._result, plan, indices))

    # Checks of what the caller gave

    def _require_open(self) -> None:
        if self.closed:
            raise AcceleratorClosedError(
                "the accelerator is closed; open it again, or keep its with block open"
            )

    def _checked_queries(self, q: npt.ArrayLike) -> FloatArray:
        shape = np.shape(q)
        if len(shape) != 3 or 0 in shape or shape[2] != self.shape.head_dim:
            raise ShapeError(
                f"q has shape {shape}; expected [heads, tokens, head_dim] with head_dim "
                f"{self.shape.head_dim} and no size 0"
            )
        self._check_tokens(shape[1])
        return float_array("q", q, shape, limit=_LIMIT)

    def _checked_keys_values(
        self, k: npt.ArrayLike, v: npt.ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        shape = np.shape(k)
        if len(shape) != 3 or 0 in shape or shape[2] != self.shape.head_dim:
            raise ShapeError(
                f"k has shape {shape}; expected [kv_heads, tokens, head_dim] with head_dim "
                f"{self.shape.head_dim} and no size 0"
            )
        self._check_tokens(shape[1])
        return float_array("k", k, shape, limit=_LIMIT), float_array("v", v, shape, limit=_LIMIT)

    def _check_tokens(self, tokens: int) -> None:
        if tokens > self.shape.max_tokens:
            raise RangeError(
                f"{tokens} tokens; this kernel takes at most {self.shape.max_tokens} "
                f"({self.shape.max_blocks} blocks of {self.shape.block}): open one with larger "
                "max_blocks, or pass fewer tokens"
            )

    def _past(
        self,
        heads: int,
        tokens: int,
        k: npt.ArrayLike | None,
        v: npt.ArrayLike | None,
        resident: ResidentKeysValues | None,
    ) -> tuple[int, QuantisedKeysValues | ResidentKeysValues]:
        """Return the KV heads, and keys and values to pack or on the card."""
        if resident is not None and k is None and v is None:
            resident.require(self._queue)
            kv_heads, found = resident.kv_heads, resident.tokens
        elif resident is None and k is not None and v is not None:
            shape = np.shape(k)
            kv_heads, found = shape[:2] if len(shape) == 3 else (1, tokens)
        else:
            raise InputError("keys and values are k and v, or resident: give one of them, whole")
        if found != tokens:
            raise ShapeError(
                f"keys and values have {found} tokens but q has {tokens}; pass those of the same "
                "prompt"
            )
        if kv_heads and heads % kv_heads:
            raise ShapeError(
                f"{heads} query heads cannot share {kv_heads} KV heads evenly; the number of query "
                "heads must be a multiple"
            )
        limit = min(self.shape.max_group, self.shape.slots)
        if kv_heads and heads // kv_heads > limit:
            raise ShapeError(
                f"{heads // kv_heads} query heads share a KV head; this kernel takes at most "
                f"{limit} (max_group {self.shape.max_group}, slots {self.shape.slots})"
            )
        if k is None or v is None:
            assert resident is not None
            return kv_heads, resident
        return kv_heads, quantise_keys_values(*self._checked_keys_values(k, v))

    def _plan(
        self,
        heads: int,
        kv_heads: int,
        tokens: int,
        selection: SelectionParameters,
        indices: Indices,
        cache: bool,
        window: int | None,
        hot_threshold: int | None,
    ) -> _Plan:
        group, blocks = heads // kv_heads, self.shape.blocks(tokens)
        if window is None:
            window = self.shape.window(group)
        elif not 1 <= window <= self.shape.slots // group or window & (window - 1):
            raise RangeError(
                f"window={window}; it must be a power of two and, times the {group} query heads of "
                f"a KV head, at most the {self.shape.slots} slots of the kernel"
            )
        if hot_threshold is None:
            hot_threshold = min(max(group * blocks // 2, 1), HOT_THRESHOLD_MAX)
        elif not 0 <= hot_threshold <= HOT_THRESHOLD_MAX:
            raise RangeError(
                f"hot_threshold={hot_threshold}; allowed are 0 to {HOT_THRESHOLD_MAX} uses"
            )
        lists = None
        if isinstance(indices, IndexSet):
            if (indices.heads, indices.blocks) != (heads, blocks):
                raise ShapeError(
                    f"indices has {indices.heads} heads of {indices.blocks} blocks; q has {heads} "
                    f"heads and {tokens} tokens, which are {blocks} blocks of {self.shape.block}"
                )
            mode, lists = Mode.LIST, make_job_lists(indices, kv_heads, window)
        elif isinstance(indices, str) and indices == "dense":
            mode = Mode.DENSE
        elif indices is None:
            mode = Mode.INDEX
        else:
            raise InputError(f'indices is {indices!r}; pass an IndexSet, "dense" or None')
        return _Plan(
            mode=mode,
            heads=heads,
            kv_heads=kv_heads,
            tokens=tokens,
            window=window,
            parameters=IndexParameters.from_selection(selection, tokens),
            cache=bool(cache),
            hot_threshold=hot_threshold,
            lists=lists,
            job_stride=lists_stride(lists) if lists else dense_list_bytes(blocks, group),
        )

    # Runs

    def _launch_all(
        self,
        call: PrefillCall,
        plan: _Plan,
        queries: QuantisedQueries,
        past: QuantisedKeysValues | ResidentKeysValues,
    ) -> None:
        """Start all KV heads, in one run if they fit the banks, else in as few as need be."""
        step = past.head_step if isinstance(past, ResidentKeysValues) else 1
        count = self._reserve(plan, step, with_past=not isinstance(past, ResidentKeysValues))
        for start in range(0, plan.kv_heads, count):
            heads = range(start, min(start + count, plan.kv_heads))
            self._queue.launch(call, self._request(call, plan, heads, queries, past))

    def _sizes(self, plan: _Plan, kv_heads: int, *, with_past: bool) -> dict[str, int]:
        """Bytes of the buffers of a run of some KV heads."""
        shape, tokens, heads = self.shape, plan.tokens, kv_heads * plan.group
        sizes = {
            "q": heads * shape.q_head_bytes(tokens),
            "jobs": kv_heads * plan.job_stride,
            "o": heads * shape.o_head_bytes(tokens),
        }
        if with_past:
            sizes["k"] = kv_heads * shape.k_head_bytes(tokens)
            sizes["v"] = kv_heads * shape.v_head_bytes(tokens)
        return sizes

    def _reserve(self, plan: _Plan, step: int, *, with_past: bool) -> int:
        """Make room for as many KV heads at once as fit, a multiple of `step`, and return it."""
        count = plan.kv_heads
        while True:
            try:
                self._queue.reserve(self._sizes(plan, count, with_past=with_past))
                return count
            except BankFullError as error:
                if count <= step:
                    what = "one KV head" if step == 1 else f"{count} KV heads, the fewest to take"
                    error.add_note(
                        f"That is what {what} of this prompt need; runs cannot be split further: "
                        "pass fewer tokens, or close prepared keys and values."
                    )
                    raise
                count = -(-(count // 2) // step) * step

    def _request(
        self,
        call: PrefillCall,
        plan: _Plan,
        kv_heads: range,
        queries: QuantisedQueries,
        past: QuantisedKeysValues | ResidentKeysValues,
    ) -> PrefillRequest:
        """Return the run of some KV heads."""
        shape, heads = self.shape, plan.query_heads(kv_heads)
        resident = isinstance(past, ResidentKeysValues)
        sizes = self._sizes(plan, len(kv_heads), with_past=not resident)
        inputs = ["q"]
        if not resident:
            inputs += ["k", "v"]
        if plan.lists is not None:
            inputs.append("jobs")

        def fill(host: Mapping[str, Bytes], tag: int) -> None:
            pack_queries(
                shape,
                queries.q[heads],
                queries.multiplier[heads],
                queries.exponent[heads],
                tag,
                out=host["q"],
            )
            if isinstance(past, QuantisedKeysValues):
                part = slice(kv_heads.start, kv_heads.stop)
                shifts = past.k_shift[part], past.v_shift[part]
                pack_keys(shape, past.k[part], *shifts, tag, out=host["k"])
                pack_values(shape, past.v[part], tag, out=host["v"])
            if plan.lists is not None:
                lists = plan.lists[kv_heads.start : kv_heads.stop]
                pack_job_lists(lists, plan.job_stride, out=host["jobs"])

        v_scale = past.v_scale[kv_heads.start : kv_heads.stop]

        def take(buffers: Buffers, sums: PrefillChecksums) -> float:
            began = time.perf_counter()
            output_bytes = copy(self.board, buffers.part("o", sizes["o"]))
            if checksum(output_bytes.view(np.uint32)) != sums.o_checksum:
                raise ChecksumError("the output")
            if plan.lists is None:
                words = self._copy_lists(buffers, plan, len(kv_heads))
                if sum(map(checksum, words)) & 0xFFFFFFFF != sums.jobs_written_checksum:
                    raise ChecksumError("the job lists")
                call.lists += self._read_lists(words, plan)
            copied = time.perf_counter()
            outputs = unpack_outputs(shape, output_bytes, plan.tokens)
            call.outputs.append(dequantise_attention(outputs, v_scale))
            return copied - began

        def on_card() -> Mapping[str, DeviceBuffer]:
            if not isinstance(past, ResidentKeysValues):
                return {}
            past.require(self._queue)
            return {name: past.part(name, kv_heads) for name in ("k", "v")}

        return PrefillRequest(
            parameters=self._arguments(plan, len(kv_heads)),
            sizes=sizes,
            inputs=tuple(inputs),
            resident=on_card,
            resident_tag=past.tag if isinstance(past, ResidentKeysValues) else 0,
            fill=fill,
            take=take,
            verify=past.verify if isinstance(past, ResidentKeysValues) else lambda: None,
        )

    def _arguments(self, plan: _Plan, kv_heads: int) -> RunParameters:
        return RunParameters(
            mode=plan.mode,
            kv_heads=kv_heads,
            group=plan.group,
            tokens=plan.tokens,
            window=plan.window,
            gamma=plan.parameters.gamma,
            divergence_limit=plan.parameters.divergence_limit,
            min_blocks=plan.parameters.min_blocks,
            max_blocks=plan.parameters.max_blocks,
            flags=FLAGS_CACHE * plan.cache,
            hot_threshold=plan.hot_threshold,
            job_stride=plan.job_stride,
            watchdog=self._watchdog(plan, kv_heads),
        )

    def _watchdog(self, plan: _Plan, kv_heads: int) -> int:
        """Return the cycles after which the kernel gives up; 0, never, if they are too many."""
        if self.watchdog_cycles is not None:
            return self.watchdog_cycles
        shape, blocks = self.shape, self.shape.blocks(plan.tokens)
        job = shape.macs_per_job // shape.macs_per_cycle + shape.block
        block_beats = 2 * (shape.q_block_bytes + shape.o_block_bytes) // shape.beat_bytes
        tiles = plan.group * (blocks * (blocks + 1) // 2 + 4 * blocks)
        run = kv_heads * tiles * (job + block_beats)
        cycles = _WATCHDOG_BASE + _WATCHDOG_FACTOR * run
        return cycles if cycles <= WATCHDOG_MAX else 0

    def _copy_lists(self, buffers: Buffers, plan: _Plan, kv_heads: int) -> list[Words]:
        """Copy the words of the job lists that the kernel wrote; none if a length is impossible."""
        blocks = self.shape.blocks(plan.tokens)
        lists = []
        for kv_head in range(kv_heads):
            start = kv_head * plan.job_stride
            header = copy(self.board, buffers.part("jobs", BUFFER_ALIGNMENT, start))
            size = 4 * list_words(blocks, jobs_in_header(header))
            if size > plan.job_stride:  # the kernel would have refused it
                return []
            lists.append(copy(self.board, buffers.part("jobs", size, start)).view(np.uint32))
        return lists

    def _read_lists(self, lists: list[Words], plan: _Plan) -> list[JobList]:
        """Read the job lists that the kernel wrote.

        Raises
        ------
        KernelStatusError
            If one breaks the format.
        """
        blocks = self.shape.blocks(plan.tokens)
        try:
            return [read_job_list(words, blocks, plan.group, plan.window) for words in lists]
        except JobListError as error:
            raise KernelStatusError(
                f"the kernel on {self.board.info.name} left a job list that breaks the format: "
                f"{error}. Load an overlay built from the same release.",
                aftermath=Aftermath.PREPARED_KEPT,
            ) from error

    def _result(self, plan: _Plan, indices: Indices, outcome: PrefillCall) -> PrefillResult:
        patterns: tuple[Pattern | None, ...] = (None,) * plan.heads
        divergences = np.full(plan.heads, np.nan)
        if isinstance(indices, IndexSet):
            index_set = indices
        else:
            index_set = index_set_of(tuple(outcome.lists))
            patterns = (Pattern.DENSE,) * plan.heads
        if plan.mode is Mode.INDEX:
            aware = np.concatenate([jobs.query_aware for jobs in outcome.lists])
            patterns = tuple(
                Pattern.QUERY_AWARE if a else Pattern.VERTICAL_SLASH for a in aware.tolist()
            )
            divergences = np.concatenate([jobs.divergence_nats() for jobs in outcome.lists])
        began = time.perf_counter()
        output = np.concatenate(outcome.outputs)
        joined = Seconds(prepare=time.perf_counter() - began)
        return PrefillResult(
            output=output,
            index_set=index_set,
            patterns=patterns,
            divergences=divergences,
            tokens=plan.tokens,
            kv_heads=plan.kv_heads,
            window=plan.window,
            cache=plan.cache,
            invocations=outcome.invocations,
            cycles=outcome.phase_cycles,
            counters=outcome.counters,
            seconds=outcome.seconds + joined,
            provenance=self.provenance,
        )
