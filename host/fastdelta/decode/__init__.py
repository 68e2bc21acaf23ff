# SPDX-License-Identifier: Apache-2.0
"""Host side of the decode engine: number formats, packets, runs, and `DecodeAccelerator`."""
