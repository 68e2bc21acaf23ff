# SPDX-License-Identifier: Apache-2.0
# Generated from overlays/decode/registers.rdl by 'make registers'; do not edit.
"""Offsets, field masks and codes of ``decode_registers``."""

from enum import IntEnum
from typing import Final


class Register(IntEnum):
    """Byte offset of each register."""

    CTRL = 0x000
    GIE = 0x004
    IER = 0x008
    ISR = 0x00C
    COMMAND = 0x010
    CONTEXT = 0x018
    TOKENS = 0x020
    FLAGS = 0x028
    QK_LOW = 0x030
    QK_HIGH = 0x034
    V_LOW = 0x03C
    V_HIGH = 0x040
    O_LOW = 0x048
    O_HIGH = 0x04C
    RESULT_LOW = 0x054
    RESULT_HIGH = 0x058
    WATCHDOG = 0x060
    STATUS = 0x080
    VERSION = 0x084
    SHAPE0 = 0x088
    SHAPE1 = 0x08C
    TOKENS_DONE = 0x090
    CYCLES_LOW = 0x094
    CYCLES_HIGH = 0x098
    SATURATIONS = 0x09C
    NORM_OVERFLOWS = 0x0A0
    STARVED_CYCLES = 0x0A4
    QK_BEATS = 0x0A8
    V_BEATS = 0x0AC
    O_BEATS = 0x0B0
    BURSTS = 0x0B4
    OUTPUT_STALLS = 0x0B8
    CONTEXTS_LOST = 0x0BC
    RUNS = 0x0C0
    QK_CHECKSUM = 0x0C4
    V_CHECKSUM = 0x0C8
    O_CHECKSUM = 0x0CC


class Command(IntEnum):
    """Command codes."""

    # Advance the context by the tokens at qk and v; outputs go to o.
    DECODE = 0
    # Set the state of the context to zero.
    CLEAR = 1
    # Read the state of the context from v.
    LOAD = 2
    # Write the state of the context to o.
    DUMP = 3


class Status(IntEnum):
    """Status codes."""

    # Done as asked.
    OK = 0
    # The command is none of the four.
    BAD_COMMAND = 1
    # The kernel has fewer contexts.
    BAD_CONTEXT = 2
    # More than 65,535 tokens.
    BAD_TOKENS = 3
    # An address is not a multiple of the bus width.
    BAD_ADDRESS = 4
    # A read was answered SLVERR or DECERR; the context is lost.
    READ_ERROR = 5
    # A write was answered SLVERR or DECERR; the context is lost, except by a dump.
    WRITE_ERROR = 6
    # The watchdog ended the run; the context is lost.
    TIMEOUT = 7
    # The context was lost earlier; clear or load it.
    CONTEXT_LOST = 8
    # A loaded scale is out of range; the context is lost.
    BAD_STATE = 9


CTRL_AP_START: Final = 0x00000001
CTRL_AP_DONE: Final = 0x00000002
CTRL_AP_IDLE: Final = 0x00000004
CTRL_AP_READY: Final = 0x00000008
CTRL_AP_CONTINUE: Final = 0x00000010
CTRL_AUTO_RESTART: Final = 0x00000080
GIE_ENABLE: Final = 0x00000001
IER_AP_DONE: Final = 0x00000001
IER_AP_READY: Final = 0x00000002
ISR_AP_DONE: Final = 0x00000001
ISR_AP_READY: Final = 0x00000002
FLAGS_BYPASS_NORM: Final = 0x00000001
FLAGS_BYPASS_GATES: Final = 0x00000002
STATUS_CODE: Final = 0x0000000F
VERSION_MINOR: Final = 0x0000FFFF
VERSION_MAJOR: Final = 0xFFFF0000
VERSION_VALUE: Final = 0x00020000
SHAPE0_HEAD_DIM: Final = 0x000000FF
SHAPE0_QK_HEADS: Final = 0x0000FF00
SHAPE0_GROUP_RATIO: Final = 0x00FF0000
SHAPE0_H_ITER: Final = 0xFF000000
SHAPE1_CONTEXTS: Final = 0x000000FF
SHAPE1_BUS_WIDTH: Final = 0xFFFF0000
