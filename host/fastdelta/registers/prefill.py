# SPDX-License-Identifier: Apache-2.0
# Generated from overlays/prefill/registers.rdl by 'make registers'; do not edit.
"""Offsets, field masks and codes of ``prefill_registers``."""

from enum import IntEnum
from typing import Final


class Register(IntEnum):
    """Byte offset of each register."""

    CTRL = 0x000
    GIE = 0x004
    IER = 0x008
    ISR = 0x00C
    MODE = 0x010
    KV_HEADS = 0x018
    GROUP = 0x020
    TOKENS = 0x028
    WINDOW = 0x030
    GAMMA = 0x038
    DIVERGENCE_LIMIT = 0x040
    MIN_BLOCKS = 0x048
    MAX_BLOCKS = 0x050
    FLAGS = 0x058
    HOT_THRESHOLD = 0x060
    Q_LOW = 0x068
    Q_HIGH = 0x06C
    K_LOW = 0x074
    K_HIGH = 0x078
    V_LOW = 0x080
    V_HIGH = 0x084
    JOBS_LOW = 0x08C
    JOBS_HIGH = 0x090
    O_LOW = 0x098
    O_HIGH = 0x09C
    RESULT_LOW = 0x0A4
    RESULT_HIGH = 0x0A8
    JOB_STRIDE = 0x0B0
    WATCHDOG = 0x0B8
    STATUS = 0x100
    VERSION = 0x104
    SHAPE0 = 0x108
    SHAPE1 = 0x10C
    SHAPE2 = 0x110
    SHAPE3 = 0x114
    SHAPE4 = 0x118
    SHAPE5 = 0x11C
    CYCLES_LOW = 0x140
    CYCLES_HIGH = 0x144
    INDEX_CYCLES_LOW = 0x148
    INDEX_CYCLES_HIGH = 0x14C
    ATTENTION_CYCLES_LOW = 0x150
    ATTENTION_CYCLES_HIGH = 0x154
    JOBS_DONE = 0x158
    INDEX_TILES = 0x15C
    ATTENTION_STEPS_LOW = 0x160
    ATTENTION_STEPS_HIGH = 0x164
    INDEX_STEPS_LOW = 0x168
    INDEX_STEPS_HIGH = 0x16C
    CACHE_VISITS = 0x170
    CACHE_HITS = 0x174
    CACHE_MISSES = 0x178
    CACHE_HOT = 0x17C
    CACHE_COLD = 0x180
    CACHE_BYPASSES = 0x184
    CACHE_EVICTIONS = 0x188
    CACHE_PREFETCHES = 0x18C
    Q_BEATS_LOW = 0x190
    Q_BEATS_HIGH = 0x194
    K_BEATS_LOW = 0x198
    K_BEATS_HIGH = 0x19C
    V_BEATS_LOW = 0x1A0
    V_BEATS_HIGH = 0x1A4
    O_BEATS_LOW = 0x1A8
    O_BEATS_HIGH = 0x1AC
    JOBS_BEATS_READ = 0x1B0
    JOBS_BEATS_WRITTEN = 0x1B4
    BURSTS = 0x1B8
    STARVED_CYCLES_LOW = 0x1BC
    STARVED_CYCLES_HIGH = 0x1C0
    EMPTY_ROWS = 0x1C4
    KV_HEADS_DONE = 0x1C8
    RUNS = 0x1CC
    Q_CHECKSUM = 0x1D0
    K_CHECKSUM = 0x1D4
    V_CHECKSUM = 0x1D8
    O_CHECKSUM = 0x1DC
    JOBS_READ_CHECKSUM = 0x1E0
    JOBS_WRITTEN_CHECKSUM = 0x1E4


class Mode(IntEnum):
    """Mode codes."""

    # Choose the blocks by the sparse index rule; the job lists are written to jobs, then read.
    INDEX = 0
    # Attend by the job lists that the host put at jobs.
    LIST = 1
    # Attend to all blocks; the job lists are written to jobs, then read.
    DENSE = 2


class Status(IntEnum):
    """Status codes."""

    # Done as asked.
    OK = 0
    # The mode is none of the three.
    BAD_MODE = 1
    # kv_heads is 0 or above 65,535, group is 0 or above MAX_GROUP, or window is no power of two or
    # window * group is above SLOTS.
    BAD_SHAPE = 2
    # No tokens, or more than MAX_BLOCKS * BLOCK.
    BAD_TOKENS = 3
    # gamma, divergence_limit, min_blocks, max_blocks or hot_threshold is out of its range.
    BAD_PARAMETER = 4
    # An address or job_stride is not a multiple of 64 bytes, or job_stride has no room for a job
    # list that is to be written, or for the shortest there is.
    BAD_ADDRESS = 5
    # A job list breaks a rule of the format, or is longer than job_stride.
    BAD_JOB = 6
    # A head is query-aware, and its map has more than MAP_ENTRIES entries.
    MAP_OVERFLOW = 7
    # A read was answered SLVERR or DECERR.
    READ_ERROR = 8
    # A write was answered SLVERR or DECERR.
    WRITE_ERROR = 9
    # The watchdog ended the run.
    TIMEOUT = 10


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
FLAGS_CACHE: Final = 0x00000001
STATUS_CODE: Final = 0x0000000F
VERSION_MINOR: Final = 0x0000FFFF
VERSION_MAJOR: Final = 0xFFFF0000
VERSION_VALUE: Final = 0x00020000
SHAPE0_BLOCK: Final = 0x0000FFFF
SHAPE0_HEAD_DIM: Final = 0xFFFF0000
SHAPE1_STRIPS: Final = 0x000000FF
SHAPE1_ROW_ARRAYS: Final = 0x0000FF00
SHAPE1_LUT_ARRAYS: Final = 0x00FF0000
SHAPE1_SLOTS: Final = 0xFF000000
SHAPE2_ARRAY_ROWS: Final = 0x0000FFFF
SHAPE2_ARRAY_COLUMNS: Final = 0xFFFF0000
SHAPE3_BUS_WIDTH: Final = 0x0000FFFF
SHAPE3_MAX_GROUP: Final = 0x00FF0000
SHAPE3_KV_BUFFERS: Final = 0xFF000000
SHAPE4_CACHE_LINES: Final = 0x0000FFFF
SHAPE4_MAX_BLOCKS: Final = 0xFFFF0000
