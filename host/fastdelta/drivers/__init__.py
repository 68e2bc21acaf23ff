# SPDX-License-Identifier: Apache-2.0
"""PYNQ drivers of the kernels: importing a module binds its driver to the kernel's VLNV."""
