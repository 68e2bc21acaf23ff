# SPDX-License-Identifier: Apache-2.0
# Generated from overlays/decode/kernel.xml by 'make overlays'; do not edit.
set kernel {
  name      decode_kernel
  vendor    fastdelta
  library   kernel
  version   2.0
  protocol  ap_ctrl_chain
  range     4096
  file_list ../../rtl/decode/decode.f
  masters   {m_axi_qk m_axi_v m_axi_o}
  arguments {
    {command 0x10 32 {}}
    {context 0x18 32 {}}
    {tokens 0x20 32 {}}
    {flags 0x28 32 {}}
    {qk 0x30 64 m_axi_qk}
    {v 0x3C 64 m_axi_v}
    {o 0x48 64 m_axi_o}
    {result 0x54 64 m_axi_o}
    {watchdog 0x60 32 {}}
  }
}
