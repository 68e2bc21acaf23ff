# SPDX-License-Identifier: Apache-2.0
"""Conversion of the twins to Verilog."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastdelta_verif.twins.arithmetic import (
    bit,
    digit_product,
    exp2_product,
    exp2_slope,
    exp2_sum,
    exp2_table,
    rounded_shift,
    saturated_sum,
    signed,
    unsigned,
)
from fastdelta_verif.twins.handshake import skid_buffer
from fastdelta_verif.twins.selector import selector

SKID_BITS = 3
VALUE_BITS, LANES, ADDRESS_BITS, COUNT_BITS = 3, 2, 2, 4  # of the selector


def selector_ports(
    value_bits: int = VALUE_BITS,
    lanes: int = LANES,
    address_bits: int = ADDRESS_BITS,
    count_bits: int = COUNT_BITS,
) -> dict[str, Any]:
    """Return the ports of a selector by name, by default of that of the proof.

    Parameters
    ----------
    value_bits, lanes, address_bits, count_bits
        As of ``index_threshold``.
    """
    return {
        **{name: bit() for name in ("clk", "rst_n", "start")},
        "mode": unsigned(2),
        "wanted": unsigned(count_bits),
        "gamma": unsigned(17),
        "total": unsigned(40),
        "last_word": unsigned(address_bits),
        "last_lanes": unsigned(lanes),
        "done": bit(),
        "count": unsigned(count_bits),
        "read": bit(),
        "address": unsigned(address_bits),
        "values": unsigned(lanes * value_bits),
        "mark_valid": bit(),
        "mark_address": unsigned(address_bits),
        "mark_bits": unsigned(lanes),
    }


# Each twin with its ports.
TWINS: Mapping[str, Callable[[], Any]] = {
    "digit_product_twin": lambda: digit_product(bit(), signed(8), signed(8), signed(16)),
    "rounded_shift_twin": lambda: rounded_shift(bit(), signed(27), unsigned(5), signed(27)),
    "saturated_sum_twin": lambda: saturated_sum(bit(), signed(27), signed(45), signed(27), bit()),
    "exp2_table_twin": lambda: exp2_table(
        bit(), unsigned(24), signed(17), signed(30), signed(24), signed(18)
    ),
    "exp2_slope_twin": lambda: exp2_slope(bit(), signed(17), signed(24), signed(18), signed(24)),
    "exp2_product_twin": lambda: exp2_product(bit(), signed(17), signed(24), signed(41)),
    "exp2_sum_twin": lambda: exp2_sum(bit(), signed(30), signed(41), unsigned(25)),
    "selector_twin": lambda: selector(**selector_ports()),
    "skid_buffer_twin": lambda: skid_buffer(
        *(bit(), bit(), unsigned(SKID_BITS), bit(), bit(), unsigned(SKID_BITS), bit(), bit())
    ),
}


def convert(name: str, folder: Path) -> Path:
    """Write a twin as Verilog and return the file, named after the module.

    A process of its own converts: the names that MyHDL gives depend on what it converted before.

    Parameters
    ----------
    name
        Key of ``TWINS``.
    folder
        Folder that exists.

    Raises
    ------
    KeyError
        There is no such twin.
    RuntimeError
        MyHDL refused it; the message holds what it said.
    """
    if name not in TWINS:
        raise KeyError(name)
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "fastdelta_verif.twins.convert",
        name,
        str(folder),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"MyHDL could not convert {name}:\n{result.stderr}")
    return folder / f"{name}.v"


def main() -> None:
    """Convert the twin that the command line names into a folder."""
    name, folder = sys.argv[1:]
    TWINS[name]().convert(
        hdl="Verilog", path=folder, name=name, testbench=False, no_myhdl_header=True
    )


if __name__ == "__main__":
    main()
