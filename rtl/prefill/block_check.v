// SPDX-License-Identifier: Apache-2.0
// Takes the check beat at the end of each block out of a stream of blocks.
//
// Purpose: blocks in memory end with a beat that only completes their checksum
//   (docs/prefill_engine.md, "Check beats"); the units get blocks without it.
// Protocol: s_axis and m_axis (tdata, tvalid, tready). flush when the stream before it was cut off:
//   the next beat is the first of a block.
// Latency: none. Throughput: a beat a cycle.
// Limits: none beside the parameters'.
`default_nettype none

module block_check #(
    parameter BLOCK_BEATS = 256,  // beats of a block without the check beat: 1 to 65535
    parameter BUS_WIDTH   = 512   // bits of a beat, a power of two: 64 to 512
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input  wire [BUS_WIDTH-1:0] s_axis_tdata,
    input  wire                 s_axis_tvalid,
    output wire                 s_axis_tready,

    output wire [BUS_WIDTH-1:0] m_axis_tdata,
    output wire                 m_axis_tvalid,
    input  wire                 m_axis_tready
);

  generate
    if (BLOCK_BEATS < 1 || BLOCK_BEATS > 65535) begin : g_block_beats
      illegal_parameter_BLOCK_BEATS stop ();
    end
  endgenerate

  reg [15:0] beat;  // of the block

  wire is_check = beat == BLOCK_BEATS[15:0];

  assign m_axis_tdata  = s_axis_tdata;
  assign m_axis_tvalid = s_axis_tvalid && !is_check;
  assign s_axis_tready = is_check || m_axis_tready;

  always @(posedge clk) begin
    if (!rst_n || flush) beat <= 16'd0;
    else if (s_axis_tvalid && s_axis_tready) beat <= is_check ? 16'd0 : beat + 16'd1;
  end

endmodule

`default_nettype wire
