// SPDX-License-Identifier: Apache-2.0
// Turns requests for blocks of a tensor into commands for a data mover.
//
// Purpose: a tensor is a table of blocks of BLOCK_BYTES bytes, one row for each head:
//     address = base + (row * columns + column) * BLOCK_BYTES
// Protocol: s_request (valid, ready) and m_cmd (valid, ready), commands in the order of the requests.
//   base and columns are stable while busy. flush forgets what is inside.
// Latency: 3 cycles. Throughput: a request in 4 cycles.
// Limits: the number of a block has 32 bits.
`default_nettype none

module block_address #(
    parameter BLOCK_BYTES = 16384,  // a multiple of the bytes of a beat, 64 to 131072
    parameter BUS_WIDTH   = 512     // bits of a beat, a power of two: 64 to 512
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input wire [63:0] base,
    input wire [12:0] columns,

    input  wire        s_request_valid,
    output wire        s_request_ready,
    input  wire [19:0] s_request_row,
    input  wire [11:0] s_request_column,

    output wire        m_cmd_valid,
    input  wire        m_cmd_ready,
    output reg  [63:0] m_cmd_address,
    output wire [31:0] m_cmd_beats,
    output wire        busy
);

  generate
    if (BLOCK_BYTES < 64 || BLOCK_BYTES > 131072 || BLOCK_BYTES % (BUS_WIDTH / 8) != 0)
    begin : g_block_bytes
      illegal_parameter_BLOCK_BYTES stop ();
    end
    if (BUS_WIDTH < 64 || BUS_WIDTH > 512 || (BUS_WIDTH & (BUS_WIDTH - 1)) != 0)
    begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
  endgenerate

  localparam [31:0] SIZE = BLOCK_BYTES;

  // One bit for each step: number of the block, its bytes, its address.
  reg [ 2:0] step;
  reg [31:0] number;
  reg [49:0] offset;

  assign busy            = step != 3'd0;
  assign s_request_ready = !busy && !flush;
  assign m_cmd_valid     = step[2] && !flush;
  assign m_cmd_beats     = BLOCK_BYTES / (BUS_WIDTH / 8);

  always @(posedge clk) begin
    if (!rst_n || flush) step <= 3'd0;
    else if (!step[2]) step <= {step[1:0], s_request_valid && s_request_ready};
    else if (m_cmd_ready) step <= 3'd0;
  end

  always @(posedge clk) begin
    number <= {12'd0, s_request_row} * {19'd0, columns} + {20'd0, s_request_column};
    offset <= {18'd0, number} * {32'd0, SIZE[17:0]};
    if (step[1]) m_cmd_address <= base + {14'd0, offset};
  end

endmodule

`default_nettype wire
