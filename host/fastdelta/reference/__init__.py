# SPDX-License-Identifier: Apache-2.0
"""What the hardware must compute: float references, and the bit-exact models that specify the RTL.

Everything here is numpy and knows nothing of boards, kernels or buffers.
"""
