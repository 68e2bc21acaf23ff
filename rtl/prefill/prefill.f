# The prefill kernel; so far its matrix unit.
common/delay_line.v
common/stream_fifo.v
prefill/mac_array.v
prefill/matrix_strip.v
prefill/matrix_drain.v
prefill/matrix_unit.v
prefill/generated/prefill_registers.sv
