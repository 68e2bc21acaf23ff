# SPDX-License-Identifier: Apache-2.0
"""Environments: agents, scoreboard and coverage of one design."""
