# SPDX-License-Identifier: Apache-2.0
"""The simulated card: our kernels, compiled from their RTL, behind a PYNQ device."""
