# SPDX-License-Identifier: Apache-2.0
"""A card for unit tests of the decode host: the bit-exact model behind a board."""

from __future__ import annotations

import numpy as np
from model_card import ModelCard

from fastdelta.arrays import checksum
from fastdelta.decode.packing import pack_output, pack_state, unpack_state, unpack_tokens
from fastdelta.decode.results import (
    RESULT_BLOCK_BYTES,
    RESULT_MAGIC,
    KernelCounters,
    ResultBlock,
)
from fastdelta.reference.decode_model import BadStateError, DecodeModel
from fastdelta.registers.decode import (
    FLAGS_BYPASS_GATES,
    FLAGS_BYPASS_NORM,
    VERSION_VALUE,
    Command,
    Register,
    Status,
)
from fastdelta.shapes import DecodeShape

REFUSALS = (Status.BAD_COMMAND, Status.BAD_CONTEXT, Status.BAD_TOKENS, Status.BAD_ADDRESS)
CYCLES_PER_TOKEN = 100
CYCLES_PER_RUN = 40


class DecodeBoard(ModelCard):
    """A card with the decode kernel."""

    arguments = ("qk", "v", "o")

    def __init__(self, shape: DecodeShape, name: str = "model") -> None:
        self.shape = shape
        super().__init__(name)

    def load(self):
        super().load()
        shape = self.shape
        self.model = DecodeModel(shape)
        self.lost = [False] * shape.contexts
        self.registers = dict.fromkeys(Register, 0)
        self.registers[Register.VERSION] = VERSION_VALUE
        self.registers[Register.SHAPE0] = int.from_bytes(
            bytes([shape.head_dim, shape.qk_heads, shape.group_ratio, shape.h_iter]), "little"
        )
        self.registers[Register.SHAPE1] = shape.contexts | shape.bus_width << 16

    def execute(self, command, context, tokens, flags, qk, v, o, result, _watchdog):
        shape, model = self.shape, self.model
        self.runs += 1
        status, self.fail_next = self.fail_next or Status.OK, None
        saturations = norm_overflows = 0
        moved = {"qk": (qk, 0), "v": (v, 0), "o": (o, 0)}  # address and bytes
        if status == Status.OK and command in (Command.DECODE, Command.DUMP) and self.lost[context]:
            status = Status.CONTEXT_LOST
        if status != Status.OK:
            tokens = 0
            kept = command == Command.DUMP or status in REFUSALS
            self.lost[context] |= not kept
        elif command == Command.DECODE:
            moved = {
                "qk": (qk, tokens * shape.qk_token_bytes),
                "v": (v, tokens * shape.v_token_bytes),
                "o": (o, tokens * shape.o_token_bytes),
            }
            wire = unpack_tokens(
                shape,
                self.memory(qk, tokens * shape.qk_token_bytes),
                self.memory(v, tokens * shape.v_token_bytes),
                normalised=bool(flags & FLAGS_BYPASS_NORM),
                given_gates=bool(flags & FLAGS_BYPASS_GATES),
            )
            words, counts = model.decode(wire, context)
            self.memory(o, tokens * shape.o_token_bytes)[:] = pack_output(shape, words)
            saturations, norm_overflows = counts.saturations, counts.norm_overflows
        elif command == Command.CLEAR:
            model.clear(context)
            self.lost[context] = False
        elif command == Command.LOAD:
            moved["v"] = v, shape.state_bytes
            try:
                counts = model.load(unpack_state(shape, self.memory(v, shape.state_bytes)), context)
                saturations = counts.saturations
                self.lost[context] = False
            except BadStateError:
                status = Status.BAD_STATE
                self.lost[context] = True
        elif command == Command.DUMP:
            moved["o"] = o, shape.state_bytes
            image, counts = model.dump(context)
            self.memory(o, shape.state_bytes)[:] = pack_state(shape, image)
            saturations = counts.saturations
        self.registers[Register.STATUS] = int(status)
        silent, self.silent_next = self.silent_next, False
        if status != Status.TIMEOUT and not silent:
            counts = [1, 2, 3, 4, 5, 6] if status not in REFUSALS else [0] * 6
            block = ResultBlock(
                magic=RESULT_MAGIC,
                status=status,
                version=VERSION_VALUE,
                tokens_done=tokens,
                cycles=CYCLES_PER_RUN + CYCLES_PER_TOKEN * tokens,
                counters=KernelCounters(saturations, norm_overflows, *counts),
                contexts_lost=sum(self.lost),
                runs=self.runs,
                checksums=tuple(
                    checksum(self.memory(*part).view(np.uint32)) for part in moved.values()
                ),
            )
            self.memory(result, RESULT_BLOCK_BYTES)[:] = block.to_bytes()
