# SPDX-License-Identifier: Apache-2.0
"""Proofs of the cells that carry protocol, and seeded faults that must break them."""
