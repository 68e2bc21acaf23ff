# SPDX-License-Identifier: Apache-2.0
"""The vector-add overlay as PYNQ shows it, and what must hold behind each of its devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pynq
from vector_add_board import CHUNK_BEATS

from fastdelta.sim.overlay import OpenedDevice

LANES = 512 // 32
BEATS = 40
WORDS = BEATS * LANES
UNIT = "vector_add_1"

Open = Callable[..., OpenedDevice]


class VectorAddOverlay:
    """An overlay with vector-add units and one set of buffers."""

    def __init__(self, opened: OpenedDevice, unit: str = UNIT) -> None:
        self.device = opened.device
        self.overlay = pynq.Overlay(str(opened.xclbin), device=opened.device)
        self.unit = getattr(self.overlay, unit)
        self.a, self.b, self.sum = (self.allocate(name) for name in ("a", "b", "sum"))
        random = np.random.default_rng(0)
        self.a[:] = random.integers(-1000, 1000, WORDS)
        self.b[:] = random.integers(-1000, 1000, WORDS)
        self.expected = np.array(self.a) + np.array(self.b)

    def allocate(self, argument: str, words: int = WORDS) -> Any:
        memory = self.device.get_memory_by_name(self.unit.args[argument].mem)
        return pynq.allocate(words, "i4", target=memory)

    def sync(self) -> None:
        self.a.sync_to_device()
        self.b.sync_to_device()

    def arguments(self, beats: int = BEATS, misbehaviour: int = 0) -> tuple[Any, ...]:
        return self.a, self.b, self.sum, beats, misbehaviour

    def result(self) -> np.ndarray[Any, Any]:
        self.sum.sync_from_device()
        return np.array(self.sum)

    def run_checked(self, run: Callable[[], int]) -> int:
        """Let `run` compute the sum, from cleared memory; return its cycles."""
        self.sum[:] = 0
        self.sum.sync_to_device()
        self.sync()
        cycles = run()
        np.testing.assert_array_equal(self.result(), self.expected)
        return cycles


class OverlayTests:
    """Tests of every device."""

    def test_software_start(self, opened: Open) -> None:
        card = VectorAddOverlay(opened())
        card.sync()
        card.unit.start_sw(*card.arguments()).wait()
        np.testing.assert_array_equal(card.result(), card.expected)

    def test_views_as_arguments(self, opened: Open) -> None:
        card = VectorAddOverlay(opened())
        part = slice(CHUNK_BEATS * LANES, 2 * CHUNK_BEATS * LANES)
        card.a[part].flush()
        card.b[part].flush()
        card.unit.call(card.a[part], card.b[part], card.sum[part], CHUNK_BEATS, 0)
        card.sum[part].invalidate()
        np.testing.assert_array_equal(card.sum[part], card.expected[part])
        card.sum.invalidate()
        assert not np.any(np.delete(np.array(card.sum), range(part.start, part.stop)))

    def test_inputs_that_were_not_synced(self, opened: Open) -> None:
        card = VectorAddOverlay(opened())
        card.unit.call(*card.arguments())
        assert not card.result().any()
        card.a.sync_to_device()
        card.unit.call(*card.arguments())
        np.testing.assert_array_equal(card.result(), card.a)

    def test_an_output_that_was_not_synced(self, opened: Open) -> None:
        card = VectorAddOverlay(opened())
        card.sync()
        card.sum[:] = -1
        card.unit.call(*card.arguments())
        assert np.all(np.array(card.sum) == -1)
        np.testing.assert_array_equal(card.result(), card.expected)
