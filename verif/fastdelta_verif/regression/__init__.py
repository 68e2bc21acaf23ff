# SPDX-License-Identifier: Apache-2.0
"""Regression: the simulations of ``tests/simulation`` as jobs with seeds, in parallel, reported.

The launchers of ``tests/simulation`` are the one definition of what is simulated. pytest runs them
as tests; ``fastdelta regress`` has pytest record what they would simulate, and runs that.
"""
