# SPDX-License-Identifier: Apache-2.0
"""Host side of the prefill engine: number formats, memory formats, job lists."""
