# SPDX-License-Identifier: Apache-2.0
#
# Stand-ins for the Vivado commands that packaging uses: they check how they are called, and record
# it. The check of the overlays runs package_kernel.tcl on them, because Vivado is not there:
#
#   tclsh vivado_commands.tcl RECORD SCRIPT ?ARGUMENT ...?
#
# RECORD gets one line a call: command and words, with a unit separator (0x1F) between. A command
# that is not below, or an option, property or number of words that Vivado would not take, is an
# error. What a command finds or makes is returned as a name such as bus_interface:m_axi_qk.

# Command, options without and with a value, words (from, to), and what it returns: "" nothing, a
# word the kind of an object called by its first word, or an object that starts with a colon.
set vivado_commands {
  create_project                {-force} {-part} 1 2 {}
  close_project                 {} {} 0 0 {}
  add_files                     {-norecurse} {-fileset} 1 1 {}
  current_fileset               {} {} 0 0 :fileset:sources_1
  update_compile_order          {} {-fileset} 0 0 {}
  set_property                  {} {} 3 3 {}
  ipx::package_project          {-import_files -force} {-root_dir -vendor -library -taxonomy} 0 0 {}
  ipx::current_core             {} {} 0 0 :core
  ipx::get_user_parameters      {} {-of_objects} 1 1 user_parameter
  ipx::get_hdl_parameters       {} {-of_objects} 1 1 hdl_parameter
  ipx::get_bus_interfaces       {} {-of_objects} 1 1 bus_interface
  ipx::associate_bus_interfaces {} {-busif -clock -reset} 1 1 {}
  ipx::add_memory_map           {-quiet} {} 2 2 memory_map
  ipx::add_address_block        {-quiet} {} 2 2 address_block
  ipx::add_register             {-quiet} {} 2 2 register
  ipx::add_register_parameter   {-quiet} {} 2 2 register_parameter
  ipx::create_xgui_files        {} {} 1 1 {}
  ipx::update_checksums         {} {} 1 1 {}
  ipx::check_integrity          {-quiet -kernel -xrt} {} 1 1 {}
  ipx::save_core                {} {} 1 1 {}
  package_xo {-force} {-xo_path -kernel_name -ip_directory -kernel_xml -ctrl_protocol} 0 0 {}
}

# Properties by the kind of their object.
set vivado_properties {
  fileset            {top}
  core               {name version display_name description sdx_kernel sdx_kernel_type ipi_drc
                      vitis_drc supported_families auto_family_support_level core_revision}
  user_parameter     {value}
  hdl_parameter      {value}
  bus_interface      {slave_memory_map_ref}
  address_block      {range width}
  register           {address_offset size description}
  register_parameter {value}
}

proc vivado_call {command flags valued least most returned words} {
  global vivado_properties vivado_record
  puts $vivado_record [join [concat [list $command] [string map {\n " "} $words]] \x1f]
  set plain {}
  for {set i 0} {$i < [llength $words]} {incr i} {
    set word [lindex $words $i]
    if {$word in $flags} {
      continue
    }
    if {$word in $valued} {
      incr i
      if {$i == [llength $words]} {
        error "$command: $word has no value"
      }
      continue
    }
    # A negative number is a value; a word that starts like an option is a mistake.
    if {[string match {-[a-z]*} $word]} {
      error "$command: unknown option $word; known are [concat $flags $valued]"
    }
    lappend plain $word
  }
  if {[llength $plain] < $least || [llength $plain] > $most} {
    error "$command: [llength $plain] words ($plain); it takes $least to $most"
  }
  if {$command eq "set_property"} {
    lassign $plain property value object
    set kind [lindex [split $object :] 0]
    if {![dict exists $vivado_properties $kind]} {
      error "set_property: '$object' is no object"
    }
    if {$property ni [dict get $vivado_properties $kind]} {
      error "set_property: a $kind has no property $property"
    }
  }
  if {$command eq "package_xo"} {
    close [open [dict get [lsearch -all -inline -not -exact $words -force] -xo_path] w]
  }
  if {[string match :* $returned]} {
    return [string range $returned 1 end]
  }
  return [expr {$returned eq "" ? "" : "$returned:[lindex $plain 0]"}]
}

foreach {command flags valued least most returned} $vivado_commands {
  if {[string match ipx::* $command]} {
    namespace eval ipx {}
  }
  proc $command args [list apply {{command flags valued least most returned} {
    upvar 1 args words
    vivado_call $command $flags $valued $least $most $returned $words
  }} $command $flags $valued $least $most $returned]
}

set vivado_script [lindex $argv 1]
set vivado_record [open [lindex $argv 0] w]
fconfigure $vivado_record -encoding utf-8
set argv [lrange $argv 2 end]
set argc [llength $argv]
set vivado_failed [catch {source $vivado_script} vivado_message]
close $vivado_record
if {$vivado_failed} {
  puts stderr $vivado_message
  exit 1
}
