# SPDX-License-Identifier: Apache-2.0
"""What every scoreboard has: counted comparisons, and a verdict that silence cannot pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from pyuvm import uvm_analysis_port, uvm_component, uvm_scoreboard, uvm_subscriber


class _Input(uvm_subscriber):
    """Analysis export that hands each item to a function."""

    def __init__(self, name: str, parent: uvm_component, write: Callable[[Any], None]) -> None:
        self._function = write
        super().__init__(name, parent)

    def write(self, item: Any) -> None:
        self._function(item)


class Scoreboard(uvm_scoreboard):
    """Base of the scoreboards.

    A test passes only if at least one comparison was made and no queue holds an item at the end.
    A comparison that differs raises at once, so the simulation ends at the first mismatch.
    """

    def __init__(self, name: str, parent: uvm_component) -> None:
        super().__init__(name, parent)
        self.comparisons = 0
        self._queues: dict[str, deque[Any]] = {}

    def subscribe(self, port: uvm_analysis_port, write: Callable[[Any], None]) -> None:
        """Call ``write`` with each item of an analysis port."""
        name = f"from_{port.get_full_name().replace('.', '_')}"
        port.connect(_Input(name, self, write).analysis_export)

    def queue(self, name: str) -> deque[Any]:
        """Return a new queue that must be empty when the test ends."""
        queue: deque[Any] = deque()
        self._queues[name] = queue
        return queue

    def compare(self, what: str, got: object, expected: object) -> None:
        """Count one comparison; raise if the two differ."""
        self.comparisons += 1
        assert got == expected, f"{what}: got {got}, expected {expected}"

    def check_phase(self) -> None:
        """Fail on silence and on leftovers."""
        assert self.comparisons > 0, f"{self.get_full_name()} compared nothing"
        for name, queue in self._queues.items():
            assert not queue, f"{self.get_full_name()}: {len(queue)} left over in '{name}'"
