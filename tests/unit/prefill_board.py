# SPDX-License-Identifier: Apache-2.0
"""A card for unit tests of the prefill host: the bit-exact models behind a board.

It reads the operands from the memory that the host filled and writes outputs, job lists and the
result block there, so that formats and plumbing are tested without RTL. Cycles and cache are
those of a simple engine: a fixed number of cycles a job, and a cache that never forgets.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from model_card import ModelCard

from fastdelta.arrays import checksum
from fastdelta.prefill.job_lists import (
    JobFields,
    JobListError,
    index_set_of,
    list_words,
    make_job_lists,
    read_job_list,
)
from fastdelta.prefill.packing import (
    pack_outputs,
    unpack_keys,
    unpack_queries,
    unpack_representatives,
    unpack_values,
)
from fastdelta.prefill.results import (
    RESULT_BLOCK_BYTES,
    RESULT_MAGIC,
    PrefillChecksums,
    PrefillCounters,
    PrefillCycles,
    ResultBlock,
)
from fastdelta.reference.index_model import (
    DIVERGENCE_FRACTION,
    IndexParameters,
    generate_index,
)
from fastdelta.reference.prefill_model import PrefillOperands, selected_attention
from fastdelta.reference.sparse_index import IndexSet, Pattern
from fastdelta.registers.prefill import FLAGS_CACHE, VERSION_VALUE, Mode, Register, Status
from fastdelta.shapes import PrefillShape

CYCLES_PER_RUN = 40
INDEX_CYCLES_PER_TILE = 7


class PrefillBoard(ModelCard):
    """A card with the prefill kernel; `spoil_lists` changes the job lists that it writes."""

    arguments = ("q", "k", "v", "jobs", "o")

    def __init__(self, shape: PrefillShape, name: str = "model") -> None:
        self.shape = shape
        self.spoil_lists = None
        super().__init__(name)

    def load(self):
        super().load()
        s = self.shape
        self.registers = dict.fromkeys(Register, 0)
        self.registers[Register.VERSION] = VERSION_VALUE
        self.registers[Register.SHAPE0] = s.block | s.head_dim << 16
        self.registers[Register.SHAPE1] = (
            s.strips | s.row_arrays << 8 | s.lut_arrays << 16 | s.slots << 24
        )
        self.registers[Register.SHAPE2] = s.array_rows | s.array_columns << 16
        self.registers[Register.SHAPE3] = s.bus_width | s.max_group << 16 | s.kv_buffers << 24
        self.registers[Register.SHAPE4] = s.cache_lines | s.max_blocks << 16
        self.registers[Register.SHAPE5] = s.map_entries

    def operands(self, kv_heads, group, tokens, q, k, v):
        """Read the operands of a run from memory, and check what repeats or pads them."""
        shape, heads = self.shape, kv_heads * group
        q_bytes = self.memory(q, heads * shape.q_head_bytes(tokens))
        rows = unpack_queries(shape, q_bytes, tokens)
        count = min(tokens, shape.block)
        for whole, repeated in zip(
            rows, unpack_representatives(shape, q_bytes, tokens), strict=True
        ):
            np.testing.assert_array_equal(repeated[:, shape.block - count :], whole[:, -count:])
            assert not repeated[:, : shape.block - count].any()
        keys = unpack_keys(shape, self.memory(k, kv_heads * shape.k_head_bytes(tokens)), tokens)
        values = unpack_values(shape, self.memory(v, kv_heads * shape.v_head_bytes(tokens)), tokens)
        return PrefillOperands(*rows, k=keys[0], k_shift=keys[1], v=values, v_shift=keys[2])

    def read_lists(self, jobs, stride, kv_heads, blocks, group, window):
        lists = []
        for head in range(kv_heads):
            words = self.memory(jobs + head * stride, stride).view(np.uint32)
            lists.append(read_job_list(words, blocks, group, window))
        return tuple(lists)

    def write_lists(self, lists, jobs, stride):
        """Write lists as the kernel does: nothing beyond their last word."""
        for head, jobs_of_head in enumerate(lists):
            words = jobs_of_head.to_words()
            if self.spoil_lists is not None:
                self.spoil_lists(words)
            assert words.nbytes <= stride
            self.memory(jobs + head * stride, words.nbytes)[:] = words.view(np.uint8)

    def chosen_lists(self, operands, parameters, kv_heads, window):
        """Job lists of the blocks that the index model chooses, with their headers."""
        index = generate_index(operands, parameters)
        aware = [head.pattern is Pattern.QUERY_AWARE for head in index.heads]
        steps = [head.divergence >> (DIVERGENCE_FRACTION - 31) for head in index.heads]
        group = len(aware) // kv_heads
        return tuple(
            dataclasses.replace(
                jobs,
                query_aware=np.array(aware[kv * group : (kv + 1) * group]),
                divergence=np.array(steps[kv * group : (kv + 1) * group], np.uint32),
            )
            for kv, jobs in enumerate(make_job_lists(index.index_set, kv_heads, window))
        )

    def execute(
        self, mode, kv_heads, group, tokens, window, gamma, divergence_limit, min_blocks,
        max_blocks, flags, hot_threshold, q, k, v, jobs, o, result, job_stride, watchdog,
    ):  # fmt: skip
        shape, blocks = self.shape, self.shape.blocks(tokens)
        self.runs += 1
        self.last = {"mode": mode, "kv_heads": kv_heads, "window": window, "watchdog": watchdog}
        self.last |= {"hot_threshold": hot_threshold, "stride": job_stride}
        for address in (q, k, v, jobs, o, result, job_stride):
            assert address % 64 == 0, "BAD_ADDRESS"
        assert window * group <= shape.slots
        status, self.fail_next = self.fail_next or Status.OK, None
        cycles, counters, lists = PrefillCycles(), PrefillCounters(), ()
        sums = PrefillChecksums()
        if status == Status.OK:
            operands = self.operands(kv_heads, group, tokens, q, k, v)
            try:
                if mode == Mode.INDEX:
                    parameters = IndexParameters(
                        shape.block, gamma, divergence_limit, min_blocks, max_blocks
                    )
                    lists = self.chosen_lists(operands, parameters, kv_heads, window)
                elif mode == Mode.DENSE:
                    everything = IndexSet.dense(kv_heads * group, blocks)
                    lists = make_job_lists(everything, kv_heads, window)
                else:
                    lists = self.read_lists(jobs, job_stride, kv_heads, blocks, group, window)
            except JobListError:
                status = Status.BAD_JOB
        if status == Status.OK:
            if mode != Mode.LIST:
                self.write_lists(lists, jobs, job_stride)
            outputs, empty = selected_attention(operands, index_set_of(lists), shape.block)
            self.memory(o, kv_heads * group * shape.o_head_bytes(tokens))[:] = pack_outputs(
                shape, outputs
            )
            cycles, counters = self.count(mode, lists, window, flags, empty)
            sums = self.checksums(mode, lists, window, flags, tokens, q, k, v, jobs, o, job_stride)
        self.registers[Register.STATUS] = int(status)
        silent, self.silent_next = self.silent_next, False
        if status != Status.TIMEOUT and not silent:
            block = ResultBlock(
                RESULT_MAGIC, status, VERSION_VALUE, cycles, counters, self.runs, sums
            )
            self.memory(result, RESULT_BLOCK_BYTES)[:] = block.to_bytes()

    @staticmethod
    def visits(part, window, flags):
        """Visits of a list, and the KV blocks that come from memory for them."""
        fields = JobFields.from_words(part.jobs)
        found = set(zip(fields.query_block // window, fields.kv_block.tolist(), strict=True))
        return found, {b for _, b in found} if flags & FLAGS_CACHE else [b for _, b in found]

    def checksums(self, mode, lists, window, flags, tokens, q, k, v, jobs, o, stride):
        """Add up what a run moves: queries once, KV blocks as `visits` says, outputs, lists."""
        shape, blocks, group = self.shape, lists[0].blocks, lists[0].group
        heads = len(lists) * group

        def words(address, size):
            return self.memory(address, size).view(np.uint32)

        q_words = words(q, heads * shape.q_head_bytes(tokens)).reshape(heads, blocks + 1, -1)
        past = {"k": (k, shape.k_head_bytes(tokens)), "v": (v, shape.v_head_bytes(tokens))}
        sums = {"k": 0, "v": 0}
        for head, part in enumerate(lists):
            fetched = sorted(self.visits(part, window, flags)[1])
            for name, (address, size) in past.items():
                of_head = words(address + head * size, size).reshape(blocks, -1)
                sums[name] += checksum(of_head[fetched])
        read = sum(
            checksum(words(jobs + head * stride, 4 * list_words(blocks, len(part.jobs))))
            for head, part in enumerate(lists)
        )
        found = PrefillChecksums(
            checksum(q_words[:, :blocks]),
            sums["k"],
            sums["v"],
            checksum(words(o, heads * shape.o_head_bytes(tokens))),
            read,
            0 if mode == Mode.LIST else read,
        )
        return PrefillChecksums(*(value & 0xFFFFFFFF for value in vars(found).values()))

    def count(self, mode, lists, window, flags, empty):
        shape, blocks, group = self.shape, lists[0].blocks, lists[0].group
        jobs = sum(len(part.jobs) for part in lists)
        visits = misses = 0
        for part in lists:
            found, fetched = self.visits(part, window, flags)
            visits += len(found)
            misses += len(fetched)
        heads = len(lists) * group
        tiles = 2 * heads * blocks if mode == Mode.INDEX else 0
        words = sum(list_words(blocks, len(part.jobs)) for part in lists)
        job_cycles = -(-shape.macs_per_job // shape.macs_per_cycle)
        attention = jobs * job_cycles + CYCLES_PER_RUN
        index = tiles * INDEX_CYCLES_PER_TILE
        counters = PrefillCounters(
            jobs_done=jobs,
            index_tiles=tiles,
            cache_visits=visits,
            cache_hits=visits - misses,
            cache_misses=misses,
            q_beats=heads * blocks * shape.q_block_bytes // shape.beat_bytes,
            k_beats=misses * shape.k_block_bytes // shape.beat_bytes,
            v_beats=misses * shape.v_block_bytes // shape.beat_bytes,
            o_beats=heads * blocks * shape.o_block_bytes // shape.beat_bytes,
            jobs_beats_read=4 * words // shape.beat_bytes,
            jobs_beats_written=0 if mode == Mode.LIST else 4 * words // shape.beat_bytes,
            empty_rows=empty,
            kv_heads_done=len(lists),
        )
        return PrefillCycles(index, attention, index + attention + 5), counters
