# SPDX-License-Identifier: Apache-2.0
"""Demos: what an engine does for a language model."""
