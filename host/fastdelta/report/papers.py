# SPDX-License-Identifier: Apache-2.0
"""Published figures that the report puts beside its own, as the papers print them."""

from __future__ import annotations

DECODE_PAPER = "arXiv 2603.05931"
PREFILL_PAPER = "arXiv 2602.20515"

DECODE_MICROSECONDS = {2: 141.7, 4: 87.4, 8: 63.2, 16: 77.4}
"""By H_ITER at 300 MHz, table IV; HLS estimates, only H_ITER 2 was placed and routed."""

DECODE_CYCLES = {2: 42_538, 4: 26_252, 8: 18_978, 16: 23_206}
"""By H_ITER, table IV."""

DECODE_RESOURCES = {  # H_ITER -> BRAM in units of 18 Kbit, DSP, % of FF, % of LUT; table VI
    2: (523, 570, 7, 7),
    4: (1_035, 1_090, 12, 13),
    8: (1_035, 2_130, 24, 25),
    16: (1_035, 4_162, 54, 52),
}

H100_DECODE_MICROSECONDS = 285.0
"""Its baseline, an unfused PyTorch step."""

PREFILL_RESOURCES = {
    "LUT": 838_000,
    "FF": 1_232_000,
    "DSP": 6_459,
    "BRAM36": 1_125,
    "URAM": 912,
}
"""Table II, on a U280; its 2,250 BRAM of 18 Kbit are 1,125 of 36."""

PREFILL_CLOCK_MHZ = 175.0
CACHE_HIT_RATE = 0.65
"""Ablation with 16 MB and Llama-3.2-3B."""
CACHE_SPEED_UP = 2.5
"""Time to first token without cache over with, same ablation."""
HYBRID_SPEED_UP = 1.8
"""Time with a matrix unit of DSPs alone over that of the hybrid one, Llama-3.2-3B."""

RULER_AVERAGE = {  # table III: BF16, INT8 on a GPU, FAST-Prefill
    "Llama-3.2-1B": (61.68, 33.44, 33.07),
    "Llama-3.2-3B": (77.74, 63.45, 61.28),
}

CARDS = {
    "U55C": {"LUT": 1_303_680, "FF": 2_607_360, "DSP": 9_024, "BRAM36": 2_016, "URAM": 960},
    "U280": {"LUT": 1_303_680, "FF": 2_607_360, "DSP": 9_024, "BRAM36": 2_016, "URAM": 960},
}
"""Of the whole device; the shell takes some 15 % of it."""
