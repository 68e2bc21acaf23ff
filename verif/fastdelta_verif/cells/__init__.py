# SPDX-License-Identifier: Apache-2.0
"""What the benches of the common cells share, and the stand-in for the decode core."""
