# SPDX-License-Identifier: Apache-2.0
#
# Package a kernel as a Vitis object (.xo), as the Makefile beside this file does:
#
#   vivado -mode batch -source package_kernel.tcl -tclargs FOLDER PART WORK XO ?NAME=VALUE ...?
#
# FOLDER  the kernel's folder, with kernel.tcl and kernel.xml
# PART    FPGA
# WORK    folder for the Vivado project and the packaged IP; it is made anew
# XO      file to write
# NAME    parameter of the top module to package with another default
#
# What the kernel is comes from kernel.tcl and kernel.xml, its sources from the file list that
# simulation, lint and synthesis read as well.

proc refuse {message} {
  error "package_kernel.tcl: $message"
}

# Return the sources that a file list names; the rules are those of fastdelta.filelist.
proc read_file_list {path} {
  set root [file dirname [file dirname $path]]
  set channel [open $path]
  set lines [split [read $channel] "\n"]
  close $channel
  set sources {}
  foreach line $lines {
    set entry [string trim [lindex [split $line "#"] 0]]
    if {$entry eq ""} {
      continue
    }
    set source [file join $root $entry]
    if {![file isfile $source]} {
      refuse "$path names $entry, but there is no $source"
    }
    lappend sources $source
  }
  return $sources
}

# Give the core a register of s_axi_control.
proc add_register {block name offset bits} {
  set register [ipx::add_register -quiet $name $block]
  set_property address_offset $offset $register
  set_property size $bits $register
  return $register
}

if {[llength $argv] < 4} {
  refuse "usage: -tclargs FOLDER PART WORK XO ?NAME=VALUE ...?"
}
set parameters [lassign $argv folder part work xo]
set folder [file normalize $folder]
set work [file normalize $work]
set xo [file normalize $xo]
source [file join $folder kernel.tcl]
set name [dict get $kernel name]
set file_list [file normalize [file join $folder [dict get $kernel file_list]]]

file delete -force $work
create_project -force package $work -part $part
add_files -norecurse [read_file_list $file_list]
set_property top $name [current_fileset]
update_compile_order -fileset sources_1

ipx::package_project -root_dir $work/ip -vendor [dict get $kernel vendor] \
    -library [dict get $kernel library] -taxonomy /KernelIP -import_files
set core [ipx::current_core]
set_property name $name $core
set_property version [dict get $kernel version] $core
set_property display_name $name $core
set_property description "fastdelta kernel $name" $core

foreach parameter $parameters {
  if {![regexp {^(\w+)=(\d+)$} $parameter -> key value]} {
    refuse "parameter '$parameter' is not NAME=VALUE with a number"
  }
  set found [ipx::get_user_parameters $key -of_objects $core]
  if {[llength $found] != 1} {
    refuse "$name has no parameter $key"
  }
  set_property value $value $found
  set_property value $value [ipx::get_hdl_parameters $key -of_objects $core]
}

foreach bus [concat s_axi_control [dict get $kernel masters]] {
  if {[llength [ipx::get_bus_interfaces $bus -of_objects $core]] != 1} {
    refuse "Vivado found no AXI interface $bus in $name; check its ports against kernel.xml"
  }
  ipx::associate_bus_interfaces -busif $bus -clock ap_clk $core
}
ipx::associate_bus_interfaces -clock ap_clk -reset ap_rst_n $core

set map [ipx::add_memory_map -quiet s_axi_control $core]
set block [ipx::add_address_block -quiet reg0 $map]
set_property range [dict get $kernel range] $block
set_property width 32 $block
foreach {register offset} {CTRL 0x00 GIER 0x04 IP_IER 0x08 IP_ISR 0x0C} {
  add_register $block $register $offset 32
}
foreach argument [dict get $kernel arguments] {
  lassign $argument argument_name offset bits master
  set register [add_register $block $argument_name $offset $bits]
  if {$master ne ""} {
    set_property value $master [ipx::add_register_parameter -quiet ASSOCIATED_BUSIF $register]
  }
}
set_property slave_memory_map_ref s_axi_control [ipx::get_bus_interfaces s_axi_control -of_objects $core]

set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
set_property ipi_drc {ignore_freq_hz true} $core
set_property vitis_drc [list ctrl_protocol [dict get $kernel protocol]] $core
set_property supported_families {} $core
set_property auto_family_support_level level_2 $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity -kernel -xrt $core
ipx::save_core $core

file mkdir [file dirname $xo]
package_xo -force -xo_path $xo -kernel_name $name -ip_directory $work/ip \
    -kernel_xml [file join $folder kernel.xml]
close_project
