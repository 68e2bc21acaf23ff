# SPDX-License-Identifier: Apache-2.0
"""What the host adds to a decode call of one token.

The kernel's time is left out: a call's time until its run is started and from its end on is the
host's alone. What starting a run and seeing its end costs cannot be told from the kernel's time in
the call itself; it is measured with a kernel that does nothing, on a card of the same kind, between
the calls, so that both find the caches of the host in the same state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastdelta.arrays import Float32Array
from fastdelta.boards import SIMULATED
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.runs import WAIT_SLICE

DEFAULT_CALLS = 60
DO_NOTHING = Path(__file__).parent / "do_nothing"

_FIRST_CALLS = 5  # left out: they make buffers and views that later ones use again


@dataclass(frozen=True)
class HostOverhead:
    """The host's share of a decode call of one token, medians in microseconds.

    Attributes
    ----------
    calls : int
        Calls measured.
    around_us : float
        Without the time from the start of the run until the host saw its end.
    do_nothing_us : float or None
        From start to end seen of a kernel that does nothing; None: this card cannot run it.
    prepare_us, copy_us : float
        Of `around_us`: quantising, packing and back; transfers to and from the card.
    """

    calls: int
    around_us: float
    do_nothing_us: float | None
    prepare_us: float
    copy_us: float

    @property
    def total_us(self) -> float | None:
        """Both together: an upper bound, as the kernel that does nothing has registers to write."""
        return None if self.do_nothing_us is None else self.around_us + self.do_nothing_us

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        return {"total_us": self.total_us, **asdict(self)}


@contextmanager
def do_nothing_kernel(board: str | int) -> Iterator[Callable[[], float] | None]:
    """Open a kernel that does nothing; yield what runs it and returns the seconds that it took.

    Parameters
    ----------
    board : str or int
        As for `fastdelta.Accelerator.open`. For a real card None is yielded: another overlay
        cannot be loaded beside the engine's.
    """
    if not str(board).startswith(SIMULATED):
        yield None
        return
    from pynq import Overlay, allocate

    from fastdelta.drivers.do_nothing import DoNothingKernel
    from fastdelta.sim import close_device, open_device

    device, xclbin = open_device(str(board), DO_NOTHING)
    try:
        kernel = Overlay(str(xclbin), device=device).do_nothing_1
        assert isinstance(kernel, DoNothingKernel)
        with allocate((4096,), "u1", target=kernel.memory("memory")) as buffer:

            def run() -> float:
                began = time.perf_counter()
                running = kernel.launch(buffer)
                while not running.wait(WAIT_SLICE):
                    pass
                seconds = time.perf_counter() - began
                assert running.failure is None, running.failure
                return seconds

            yield run
    finally:
        close_device(device)


def measure_overhead(
    engine: DecodeAccelerator,
    tokens: tuple[Float32Array, ...],
    run_nothing: Callable[[], float] | None,
    calls: int = DEFAULT_CALLS,
) -> HostOverhead:
    """Decode one token at a time, and run the kernel that does nothing between the calls.

    Parameters
    ----------
    engine : DecodeAccelerator
        Whose context 0 goes on.
    tokens : arrays
        q, k, v, a, b of some tokens, used in turn.
    run_nothing : callable, optional
        From `do_nothing_kernel`.
    calls : int
        Calls to measure.
    """
    count = len(tokens[0])
    rows, nothing = [], []
    for call in range(_FIRST_CALLS + calls):
        token = [x[call % count] for x in tokens]
        began = time.perf_counter()
        seconds = engine.decode(*token).seconds
        whole = time.perf_counter() - began
        rows.append((whole - seconds.launch, seconds.prepare, seconds.copy))
        if run_nothing is not None:
            nothing.append(run_nothing())
    around, prepare, copy = (1e6 * np.median(rows[_FIRST_CALLS:], axis=0)).tolist()
    return HostOverhead(
        calls=calls,
        around_us=around,
        do_nothing_us=1e6 * float(np.median(nothing[_FIRST_CALLS:])) if nothing else None,
        prepare_us=prepare,
        copy_us=copy,
    )
