# The decode kernel.
common/stream_fifo.v
common/axi_burst_planner.v
common/axi_read_mover.v
common/axi_write_mover.v
decode/generated/decode_registers.sv
decode/decode_control.v
decode/decode_sequencer.v
