# SPDX-License-Identifier: Apache-2.0
# Generated from overlays/prefill/kernel.xml by 'make overlays'; do not edit.
set kernel {
  name      prefill_kernel
  vendor    fastdelta
  library   kernel
  version   2.0
  protocol  ap_ctrl_chain
  range     4096
  file_list ../../rtl/prefill/prefill.f
  masters   {m_axi_q m_axi_k m_axi_v m_axi_jobs m_axi_o}
  arguments {
    {mode 0x10 32 {}}
    {kv_heads 0x18 32 {}}
    {group 0x20 32 {}}
    {tokens 0x28 32 {}}
    {window 0x30 32 {}}
    {gamma 0x38 32 {}}
    {divergence_limit 0x40 32 {}}
    {min_blocks 0x48 32 {}}
    {max_blocks 0x50 32 {}}
    {flags 0x58 32 {}}
    {hot_threshold 0x60 32 {}}
    {q 0x68 64 m_axi_q}
    {k 0x74 64 m_axi_k}
    {v 0x80 64 m_axi_v}
    {jobs 0x8C 64 m_axi_jobs}
    {o 0x98 64 m_axi_o}
    {result 0xA4 64 m_axi_o}
    {job_stride 0xB0 32 {}}
    {watchdog 0xB8 32 {}}
  }
}
