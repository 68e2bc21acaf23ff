# SPDX-License-Identifier: Apache-2.0
"""Agents: drivers, responders and passive monitors of one interface each.

Interfaces are signal groups of :class:`cocotb_bus.bus.Bus`; a beat is one Python int.
"""
