# SPDX-License-Identifier: Apache-2.0
"""Model of the stand-in core (``decode_core.v`` of this folder)."""

from __future__ import annotations

from pathlib import Path

from fastdelta.shapes import DecodeShape
from fastdelta_verif.build import Design, rtl_sources

WORD = (1 << 32) - 1
SHELL = ("decode_registers", "decode_control", "decode_sequencer", "decode_kernel")
BAD_BIT = 1 << 31  # of the first word of a loaded state


def stand_in_kernel(shape: DecodeShape, simulator: str = "verilator") -> Design:
    """Return the decode kernel around the stand-in core."""
    core = Path(__file__).with_name("decode_core.v")
    shell = (s for s in rtl_sources("decode") if s.parent.name == "common" or s.stem in SHELL)
    parameters = {
        "HEAD_DIM": shape.head_dim,
        "QK_HEADS": shape.qk_heads,
        "GROUP_RATIO": shape.group_ratio,
        "H_ITER": shape.h_iter,
        "CONTEXTS": shape.contexts,
        "BUS_WIDTH": shape.bus_width,
    }
    return Design("decode_kernel", (core, *shell), parameters, simulator=simulator)


class StandInModel:
    """State and outputs of the stand-in core.

    Parameters
    ----------
    shape
        Parameters of the kernel.
    """

    def __init__(self, shape: DecodeShape) -> None:
        self._shape = shape
        self.sums = [0] * shape.contexts

    def _low_words(self, data: bytes) -> int:
        """Return the sum of the lowest words of the beats."""
        step = self._shape.beat_bytes
        starts = range(0, len(data), step)
        return sum(int.from_bytes(data[start : start + 4], "little") for start in starts)

    def _beats(self, context: int, first: int, count: int) -> bytes:
        words = self._shape.bus_width // 32
        values = (
            self.sums[context] + ((index & 0xFFFF) << 16) + word & WORD
            for index in range(first, first + count)
            for word in range(words)
        )
        return b"".join(value.to_bytes(4, "little") for value in values)

    def decode(self, context: int, tokens: int, qk: bytes, v: bytes) -> bytes:
        """Return the outputs of some tokens."""
        shape = self._shape
        beats = shape.o_token_bytes // shape.beat_bytes
        outputs = []
        for token in range(tokens):
            for data, size in ((qk, shape.qk_token_bytes), (v, shape.v_token_bytes)):
                part = data[token * size : (token + 1) * size]
                self.sums[context] = self.sums[context] + self._low_words(part) & WORD
            outputs.append(self._beats(context, token * beats, beats))
        return b"".join(outputs)

    def clear(self, context: int) -> None:
        """Clear a context."""
        self.sums[context] = 0

    def load(self, context: int, state: bytes) -> None:
        """Load a context."""
        self.sums[context] = self._low_words(state) & WORD

    def dump(self, context: int) -> bytes:
        """Return the state packets of a context."""
        beats = self._shape.state_bytes // self._shape.beat_bytes
        return self._beats(context, 0, beats)
