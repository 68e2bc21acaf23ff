// SPDX-License-Identifier: Apache-2.0
// Packs 32-bit words into beats, the first word lowest.
//
// Protocol: s_axis and m_axis (tdata, tvalid, tready). flush forgets what is inside. busy while there
//   are words that did not leave.
// Latency: 1 cycle after the last word of a beat. Throughput: a word a cycle.
// Limits: a beat leaves when it is full; the last one must be.
`default_nettype none

module word_packer #(
    parameter BUS_WIDTH = 512  // bits of a beat, a power of two: 64 to 512
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input  wire [31:0] s_axis_tdata,
    input  wire        s_axis_tvalid,
    output wire        s_axis_tready,

    output reg  [BUS_WIDTH-1:0] m_axis_tdata,
    output reg                  m_axis_tvalid,
    input  wire                 m_axis_tready,
    output wire                 busy
);

  generate
    if (BUS_WIDTH < 64 || BUS_WIDTH > 512 || (BUS_WIDTH & (BUS_WIDTH - 1)) != 0)
    begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
  endgenerate

  localparam COUNT_BITS = $clog2(BUS_WIDTH / 32);
  localparam [COUNT_BITS-1:0] ONE = 1;

  reg  [COUNT_BITS-1:0] count;  // words of the beat that is being filled

  wire                  take = s_axis_tvalid && s_axis_tready;
  wire                  fills = &count;

  assign s_axis_tready = !m_axis_tvalid || m_axis_tready;
  assign busy          = m_axis_tvalid || count != {COUNT_BITS{1'b0}};

  always @(posedge clk) begin
    if (!rst_n || flush) begin
      count         <= {COUNT_BITS{1'b0}};
      m_axis_tvalid <= 1'b0;
    end else begin
      if (take) count <= count + ONE;
      if (take && fills) m_axis_tvalid <= 1'b1;
      else if (m_axis_tready) m_axis_tvalid <= 1'b0;
    end
    if (take) m_axis_tdata <= {s_axis_tdata, m_axis_tdata[BUS_WIDTH-1:32]};
  end

endmodule

`default_nettype wire
