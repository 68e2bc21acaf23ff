# SPDX-License-Identifier: Apache-2.0
"""FPGA accelerators for long-context language models, on a real or a simulated Alveo card."""

__version__ = "0.1.0"
