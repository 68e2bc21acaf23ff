# SPDX-License-Identifier: Apache-2.0
"""Generated pyuvm register models of the kernels (make registers)."""
