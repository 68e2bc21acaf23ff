# SPDX-License-Identifier: Apache-2.0
"""What a launcher tells a cocotb test: name, seed, parameters of the design, options."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

SETTINGS_VARIABLE = "FASTDELTA_SIMULATION"


@dataclass(frozen=True)
class Settings:
    """Settings of one simulation, carried as JSON in an environment variable.

    Attributes
    ----------
    test
        Name of the cocotb test.
    seed
        Seed of all random stimulus.
    parameters
        Parameters of the top module.
    options
        Options of the test.
    coverage_file
        Where functional coverage of the run goes.
    trace_file
        Where the values of ports go, cycle by cycle; nowhere when empty.
    ports
        Ports that are written there.
    """

    test: str
    seed: int
    parameters: dict[str, int]
    options: dict[str, Any] = field(default_factory=dict)
    coverage_file: str = ""
    trace_file: str = ""
    ports: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def current(cls) -> Settings:
        """Return the settings of the simulation that this code runs in."""
        return cls(**json.loads(os.environ[SETTINGS_VARIABLE]))
