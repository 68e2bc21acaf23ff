# SPDX-License-Identifier: Apache-2.0
"""Benches of the engines: cycles, error and speed, with the paper's figure beside them."""
