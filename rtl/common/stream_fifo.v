// SPDX-License-Identifier: Apache-2.0
//
// First-in first-out buffer for a stream in one simple dual-port memory with a registered read.
//
// Protocol:   AXI4-Stream handshake; m_axis holds its beat until it is taken, except when flushed.
//             flush empties the buffer; beats that arrive in the same cycle are lost.
// Latency:    2 cycles.
// Throughput: 1 beat a cycle.
// Limits:     holds DEPTH beats and one more at the output.

`default_nettype none

module stream_fifo #(
    parameter integer WIDTH = 32,  // bits of a beat, 1 or more
    parameter integer DEPTH = 16   // beats, a power of two from 2 to 65536
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input  wire [WIDTH-1:0] s_axis_tdata,
    input  wire             s_axis_tvalid,
    output wire             s_axis_tready,

    output reg  [WIDTH-1:0] m_axis_tdata,
    output reg              m_axis_tvalid,
    input  wire             m_axis_tready
);

  generate
    if (WIDTH < 1) begin : g_width_is_illegal
      stream_fifo_needs_a_WIDTH_of_1_or_more illegal ();
    end
    if (DEPTH < 2 || DEPTH > 65536 || (DEPTH & (DEPTH - 1)) != 0) begin : g_depth_is_illegal
      stream_fifo_needs_a_DEPTH_that_is_a_power_of_two_from_2_to_65536 illegal ();
    end
  endgenerate

  localparam integer POINTER_BITS = $clog2(DEPTH);
  localparam [POINTER_BITS:0] ONE = 1;

  reg  [       WIDTH-1:0] memory        [0:DEPTH-1];
  // One bit more than an address, so that full and empty differ.
  reg  [  POINTER_BITS:0] write_pointer;
  reg  [  POINTER_BITS:0] read_pointer;

  wire [  POINTER_BITS:0] level = write_pointer - read_pointer;
  wire [POINTER_BITS-1:0] write_address = write_pointer[POINTER_BITS-1:0];
  wire [POINTER_BITS-1:0] read_address = read_pointer[POINTER_BITS-1:0];
  wire                    store = s_axis_tvalid && s_axis_tready;
  wire                    advance = m_axis_tready || !m_axis_tvalid;
  wire                    fetch = advance && write_pointer != read_pointer;

  assign s_axis_tready = !level[POINTER_BITS];

  always @(posedge clk) begin
    if (!rst_n || flush) begin
      write_pointer <= {POINTER_BITS + 1{1'b0}};
      read_pointer  <= {POINTER_BITS + 1{1'b0}};
      m_axis_tvalid <= 1'b0;
    end else begin
      if (store) write_pointer <= write_pointer + ONE;
      if (fetch) read_pointer <= read_pointer + ONE;
      if (advance) m_axis_tvalid <= fetch;
    end
  end

  always @(posedge clk) begin
    if (store) memory[write_address] <= s_axis_tdata;
    if (fetch) m_axis_tdata <= memory[read_address];
  end

endmodule

`default_nettype wire
