# SPDX-License-Identifier: Apache-2.0
"""Generated constants of each kernel's registers: offsets, field masks, codes (make registers)."""
