# SPDX-License-Identifier: Apache-2.0
"""UVM-style verification of the fastdelta kernels with pyuvm and cocotb."""
