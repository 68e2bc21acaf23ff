# SPDX-License-Identifier: Apache-2.0
"""A second opinion on leaf cells: cycle models in MyHDL, written apart from the RTL.

Each twin is simulated against numpy, converted to Verilog, and proved equivalent to the part of the
RTL that does the same (``verif/formal/*_twin_checks.sv``). Conversion can change the meaning of
signed expressions, so a twin takes every operand and every result into a signed signal with room to
spare; the proofs look at the converted text.
"""
