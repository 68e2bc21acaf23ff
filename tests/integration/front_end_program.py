# SPDX-License-Identifier: Apache-2.0
"""Runs each engine and the test kernel on the front end of this process; prints what came out.

The lines of one front end must equal those of the other, but for the one that names it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pynq
from test_decode_accelerator import INPUTS
from test_decode_accelerator import SHAPE as DECODE_SHAPE
from test_prefill_accelerator import PROMPT, RULE
from test_prefill_accelerator import SHAPE as PREFILL_SHAPE
from vector_add_board import VECTOR_ADD

from fastdelta.accelerator import Accelerator
from fastdelta.sim import board_of, close_device, live_buffers, open_device

BOARDS = ("sim-u55c", "sim-u280")
MEMORIES: tuple[dict[str, Any], ...] = ({}, {"stalls": 0.3, "seed": 5, "read_latency": 90})


def digest(*arrays: Any) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def card_side(device: Any) -> dict[str, Any]:
    """What the board model knows of the last command and of all traffic."""
    board = board_of(device)
    command = board.last_command(0)
    assert command is not None
    return {
        "board_cycles": command.cycles,
        "unit_cycles": board.cycles(0),
        "traffic": {name: vars(port) for name, port in board.statistics(0).items()},
        "events": [str(event) for event in board.events()],
    }


def decode(board: str, memory: dict[str, Any]) -> dict[str, Any]:
    constants = {"a_log": INPUTS.a_log, "dt_bias": INPUTS.dt_bias}
    with Accelerator.open(
        "decode", board=board, shape=DECODE_SHAPE, **constants, **memory
    ) as engine:
        result = engine.decode(*INPUTS.tokens(0, 64))
        state = engine.dump_state()
        return {
            "output": digest(result.output, state.mantissa, state.scale),
            "kernel_cycles": result.kernel_cycles,
            "counters": vars(result.counters),
            **card_side(engine.board.device),
        }


def prefill(board: str, memory: dict[str, Any]) -> dict[str, Any]:
    with Accelerator.open("prefill", board=board, shape=PREFILL_SHAPE, **memory) as engine:
        result = engine.prefill(PROMPT.q, PROMPT.k, PROMPT.v, **RULE)
        return {
            "output": digest(result.output),
            "density": result.density,
            "kernel_cycles": vars(result.cycles),
            "counters": vars(result.counters),
            **card_side(engine.board.device),
        }


def vector_add(board: str, memory: dict[str, Any]) -> dict[str, Any]:
    parameters = {"BUS_WIDTH": 512, "CHAIN": 1}
    device, xclbin = open_device(board, VECTOR_ADD, parameters=parameters, **memory)
    unit = pynq.Overlay(str(xclbin), device=device).vector_add_1
    buffers = [
        pynq.allocate(640, "i4", target=device.get_memory_by_name(unit.args[name].mem))
        for name in ("a", "b", "sum")
    ]
    a, b, total = buffers
    a[:], b[:] = np.arange(640), 7
    a.flush()
    b.flush()
    unit.call(a, b, total, 40, 0)
    total.invalidate()
    result = {
        "output": digest(total),
        "addresses": [buffer.device_address for buffer in buffers],
        "register": unit.read(0x34),
        **card_side(device),
    }
    for buffer in buffers:
        buffer.freebuffer()
    assert live_buffers(device) == 0
    close_device(device)
    return result


def main() -> None:
    """Print one JSON object a line."""
    device, _ = open_device("u55c", VECTOR_ADD, parameters={"BUS_WIDTH": 512, "CHAIN": 1})
    print(json.dumps({"device": f"{type(device).__module__}.{type(device).__name__}"}))
    close_device(device)
    for run in (decode, prefill, vector_add):
        for board in BOARDS:
            for memory in MEMORIES:
                found = run(board, memory)
                print(json.dumps({"run": run.__name__, "board": board, **memory, **found}))


if __name__ == "__main__":
    main()
