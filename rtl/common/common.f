# Cells that the kernels use.
common/delay_line.v
common/quadratic_rom.v
common/quadratic.v
common/skid_buffer.v
common/stream_fifo.v
common/beat_checksum.v
common/result_block.v
common/axi_burst_planner.v
common/axi_read_mover.v
common/axi_write_mover.v
