// SPDX-License-Identifier: Apache-2.0
//
// Register slice for a stream: every output, s_axis_tready included, comes from a register.
// It cuts the timing of valid, data and ready between two blocks.
//
// Protocol:   AXI4-Stream handshake; m_axis holds its beat until it is taken.
// Latency:    1 cycle.
// Throughput: 1 beat a cycle.
// Limits:     holds 2 beats.

`default_nettype none

module skid_buffer #(
    parameter integer WIDTH = 32  // bits of a beat, 1 or more
) (
    input wire clk,
    input wire rst_n,

    input  wire [WIDTH-1:0] s_axis_tdata,
    input  wire             s_axis_tvalid,
    output wire             s_axis_tready,

    output reg  [WIDTH-1:0] m_axis_tdata,
    output reg              m_axis_tvalid,
    input  wire             m_axis_tready
);

  generate
    if (WIDTH < 1) begin : g_width_is_illegal
      skid_buffer_needs_a_WIDTH_of_1_or_more illegal ();
    end
  endgenerate

  reg  [WIDTH-1:0] spare;
  reg              spare_valid;
  reg              running;  // keeps tready low during reset

  wire             take = s_axis_tvalid && s_axis_tready;
  wire             advance = m_axis_tready || !m_axis_tvalid;

  assign s_axis_tready = running && !spare_valid;

  always @(posedge clk) begin
    running <= rst_n;
    if (!rst_n) begin
      m_axis_tvalid <= 1'b0;
      spare_valid   <= 1'b0;
    end else if (advance) begin
      m_axis_tvalid <= spare_valid || take;
      spare_valid   <= 1'b0;
    end else if (take) begin
      spare_valid <= 1'b1;
    end
  end

  always @(posedge clk) begin
    if (advance) m_axis_tdata <= spare_valid ? spare : s_axis_tdata;
    if (take) spare <= s_axis_tdata;
  end

endmodule

`default_nettype wire
