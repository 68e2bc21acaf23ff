# SPDX-License-Identifier: Apache-2.0
"""Model of the stand-ins for the units of the prefill kernel (files of this folder)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastdelta.prefill.job_lists import JobFields, JobList, make_job_lists
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import PrefillShape
from fastdelta.sim.build import rtl_parameters
from fastdelta_verif.build import Design, rtl_sources

UNITS = tuple(
    Path(__file__).with_name(f"{unit}.v") for unit in ("tile_engine", "kv_cache", "index_generator")
)
SHELL = (
    "prefill_registers",
    "block_address",
    "block_check",
    "word_packer",
    "job_reader",
    "prefill_control",
    "prefill_counters",
    "prefill_sequencer",
    "prefill_kernel",
)
WORD = (1 << 32) - 1

Words = npt.NDArray[np.int64]


def stand_in_prefill(shape: PrefillShape) -> Design:
    """Return the prefill kernel around the stand-in units."""
    shell = (s for s in rtl_sources("prefill") if s.parent.name == "common" or s.stem in SHELL)
    return Design("prefill_kernel", (*UNITS, *shell), rtl_parameters(shape))


def block_sums(data: bytes, beat_bytes: int, block_bytes: int) -> Words:
    """Return the sum of the low words of the beats of each block, without its check beat."""
    beats = np.frombuffer(data, np.uint32).reshape(-1, beat_bytes // 4)[:, 0]
    blocks = beats.astype(np.int64).reshape(-1, block_bytes // beat_bytes)
    sums: Words = blocks[:, :-1].sum(axis=1)
    return sums & WORD


class PrefillStandInModel:
    """Job lists and outputs of the stand-ins.

    Parameters
    ----------
    shape
        Parameters of the kernel.
    tokens, group, window
        Arguments of the run.
    q, k, v
        Bytes at the pointers.
    """

    def __init__(
        self,
        shape: PrefillShape,
        tokens: int,
        group: int,
        window: int,
        q: bytes,
        k: bytes,
        v: bytes,
    ) -> None:
        self._shape, self._group, self._window = shape, group, window
        self._blocks = shape.blocks(tokens)
        self._padding = self._blocks * shape.block - tokens
        step, blocks = shape.beat_bytes, self._blocks
        self._q = block_sums(q, step, shape.q_block_bytes).reshape(-1, group, blocks + 1)
        self._k = block_sums(k, step, shape.k_block_bytes).reshape(-1, blocks)
        self._v = block_sums(v, step, shape.v_block_bytes).reshape(-1, blocks)

    def lists(self, parameters: int | None) -> tuple[JobList, ...]:
        """Return the lists that the stand-in generator writes.

        Parameters
        ----------
        parameters
            Sum of the parameters of the index rule; None in the mode DENSE.
        """
        kv_heads = len(self._k)
        dense = IndexSet.dense(kv_heads * self._group, self._blocks)
        lists = make_job_lists(dense, kv_heads, self._window)
        if parameters is not None:
            for kv_head, jobs in enumerate(lists):
                jobs.divergence[0] = parameters + self._padding + self._seen(kv_head) & WORD
        return lists

    def _seen(self, kv_head: int) -> int:
        """Return the sum of what the generator sees of statistics and queries."""
        q, k = self._q[kv_head], self._k[kv_head]
        total = int(q.sum() + k.sum())
        rows = np.arange(self._shape.block)
        for block, k_sum in enumerate(k.tolist()):
            for head in range(self._group):
                far = int(q[head, -1]) + k_sum + rows & 0xFFFFFF
                total += int((far + 2 * rows).sum())
                total += (block + head + (k_sum & 0xFFFF)) * len(rows)
        return total

    def outputs(self, lists: tuple[JobList, ...]) -> bytes:
        """Return the bytes at ``o``."""
        shape, words = self._shape, self._shape.bus_width // 32
        beats = shape.o_block_bytes // shape.beat_bytes
        pattern = (np.arange(beats)[:, np.newaxis] & 0xFFFF) << 16
        pattern = pattern + np.arange(words)
        kv = (self._k + self._v)[:, np.newaxis, :]
        out = []
        for kv_head, jobs in enumerate(lists):
            fields = JobFields.from_words(jobs.jobs)
            sums = self._q[kv_head, :, :-1].copy()
            np.add.at(sums, (fields.head, fields.query_block), kv[kv_head, 0, fields.kv_block])
            out.append((sums[:, :, np.newaxis, np.newaxis] + pattern & WORD).astype(np.uint32))
        return np.concatenate(out).tobytes()
