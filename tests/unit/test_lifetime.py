# SPDX-License-Identifier: Apache-2.0
"""Accelerators are closed in order: after use, after an error, and as Python ends."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from decode_board import DecodeBoard
from prefill_board import PrefillBoard

from fastdelta import lifetime
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.errors import AcceleratorClosedError, KernelTimeoutError
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.shapes import DecodeShape, PrefillShape

DECODE = DecodeShape(head_dim=16, qk_heads=1, group_ratio=1, h_iter=1, bus_width=128)
PREFILL = PrefillShape(
    head_dim=16,
    strips=1,
    row_arrays=2,
    lut_arrays=1,
    array_rows=4,
    array_columns=8,
    slots=8,
    max_blocks=16,
    bus_width=64,
)


def submit_decode(engine):
    q, k, v = np.ones((3, 1, 16), np.float32)
    return engine.submit(q, k, v, log_decay=-np.ones(1), beta=np.ones(1))


def submit_prefill(engine):
    q, k, v = np.ones((3, 1, 20, 16), np.float32)
    return engine.submit(q, k, v)


ENGINES = {
    "decode": (DecodeAccelerator, DecodeBoard, DECODE, submit_decode),
    "prefill": (PrefillAccelerator, PrefillBoard, PREFILL, submit_prefill),
}


@pytest.fixture(params=ENGINES)
def kind(request):
    return ENGINES[request.param]


class ExpectedError(Exception):
    pass


def test_normal_end_waits_for_jobs_and_keeps_their_results(kind):
    make, make_board, shape, submit = kind
    board = make_board(shape)
    with make(board) as engine:
        jobs = [submit(engine) for _ in range(2)]
    assert board.closed
    assert not board.buffers
    assert board.resets == 0
    for job in jobs:
        assert job.done
        assert np.isfinite(job.wait().output).all()
    with pytest.raises(AcceleratorClosedError):
        submit(engine)


def test_error_in_the_block_does_not_wait_for_a_run_that_hangs(kind, monkeypatch):
    monkeypatch.setattr(lifetime, "ABANDON_SECONDS", 0.1)
    make, make_board, shape, submit = kind
    board = make_board(shape)
    began = time.monotonic()
    jobs = []

    def fail():
        with make(board, timeout=600) as engine:
            board.stuck = True
            jobs.append(submit(engine))
            raise ExpectedError

    with pytest.raises(ExpectedError):
        fail()
    assert time.monotonic() - began < 5
    assert board.closed
    assert not board.buffers
    assert board.resets == 1
    with pytest.raises(KernelTimeoutError, match=r"within 0\.1 s"):
        jobs[0].wait()


def test_card_that_does_not_come_back_is_closed_all_the_same(kind):
    make, make_board, shape, submit = kind
    board = make_board(shape)
    engine = make(board)
    board.stuck = board.reset_fails = True
    submit(engine)
    engine.close(timeout=0.05)
    assert board.closed
    assert not board.buffers


PROGRAM = """
import atexit, os, sys
sys.path.insert(0, sys.argv[1])
boards = []
def look():
    print(os.getpid() == parent, [(b.name, b.closed, len(b.buffers)) for b in boards])
atexit.register(look)
from test_lifetime import *
parent = os.getpid()
engines = []
for kind, (make, make_board, shape, submit) in ENGINES.items():
    boards.append(make_board(shape))
    boards[-1].name = kind
    original = boards[-1].close
    boards[-1].close = lambda kind=kind, original=original: (print("closes", kind), original())
    engines.append(make(boards[-1], timeout=600))
boards[0].stuck = True
submit_decode(engines[0])
engines.append(DecodeAccelerator(DecodeBoard(DECODE)))
engines.pop().close()
sys.stdout.flush()
if os.fork() == 0:
    sys.exit(0)
os.wait()
{end}
"""


@pytest.mark.parametrize("end", ["", "raise ValueError('end')", "sys.exit(3)"])
def test_what_is_open_as_python_ends_is_closed_the_last_first(end):
    program = PROGRAM.replace("{end}", end)
    began = time.monotonic()
    command = [sys.executable, "-c", program, str(Path(__file__).parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    lines = result.stdout.splitlines()
    assert lines == [
        "False [('decode', False, 3), ('prefill', False, 0)]",  # the fork leaves the cards alone
        "closes prefill",
        "closes decode",
        "True [('decode', True, 0), ('prefill', True, 0)]",
    ], result.stdout + result.stderr
    assert time.monotonic() - began < 60
    assert result.returncode == {"": 0, "sys.exit(3)": 3}.get(end, 1)
