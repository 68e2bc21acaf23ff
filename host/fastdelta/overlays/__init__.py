# SPDX-License-Identifier: Apache-2.0
"""Overlays for real cards: what is generated for Vitis, its checks, and the manifests of builds."""
