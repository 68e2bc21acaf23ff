# Cells that the kernels use.
common/skid_buffer.v
common/stream_fifo.v
common/axi_burst_planner.v
common/axi_read_mover.v
common/axi_write_mover.v
