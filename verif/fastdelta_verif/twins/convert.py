# SPDX-License-Identifier: Apache-2.0
"""Conversion of the twins to Verilog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastdelta_verif.twins.arithmetic import (
    bit,
    exp2_product,
    exp2_slope,
    exp2_sum,
    exp2_table,
    nibble_product,
    rounded_shift,
    saturated_sum,
    signed,
    unsigned,
)
from fastdelta_verif.twins.handshake import skid_buffer

SKID_BITS = 3

# Each twin with its ports.
TWINS: Mapping[str, Callable[[], Any]] = {
    "nibble_product_twin": lambda: nibble_product(bit(), signed(8), signed(8), signed(16)),
    "rounded_shift_twin": lambda: rounded_shift(bit(), signed(27), unsigned(5), signed(27)),
    "saturated_sum_twin": lambda: saturated_sum(bit(), signed(27), signed(45), signed(27), bit()),
    "exp2_table_twin": lambda: exp2_table(
        bit(), unsigned(24), signed(17), signed(30), signed(24), signed(18)
    ),
    "exp2_slope_twin": lambda: exp2_slope(bit(), signed(17), signed(24), signed(18), signed(24)),
    "exp2_product_twin": lambda: exp2_product(bit(), signed(17), signed(24), signed(41)),
    "exp2_sum_twin": lambda: exp2_sum(bit(), signed(30), signed(41), unsigned(25)),
    "skid_buffer_twin": lambda: skid_buffer(
        *(bit(), bit(), unsigned(SKID_BITS), bit(), bit(), unsigned(SKID_BITS), bit(), bit())
    ),
}


def convert(name: str, folder: Path) -> Path:
    """Write a twin as Verilog and return the file, named after the module.

    Raises
    ------
    KeyError
        There is no such twin.
    """
    TWINS[name]().convert(
        hdl="Verilog", path=str(folder), name=name, testbench=False, no_myhdl_header=True
    )
    return folder / f"{name}.v"
