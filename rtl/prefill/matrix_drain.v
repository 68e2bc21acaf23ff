// SPDX-License-Identifier: Apache-2.0
// Drain of the matrix unit for one kind of task: results leave in the order of the tasks.
//
// Purpose: remembers which server got each task of its kind, waits for the oldest one's result and
//   reads its columns in ascending order.
// Protocol: started with started_strip for every task of the kind that a server takes, at most two
//   a server not yet drained. m_valid, m_ready as AXI4-Stream; the sums themselves are in the
//   server's registers, which m_strip selects, and stay until the next read.
// Latency: result_ready to m_valid 1 cycle. Throughput: one column a cycle, no gap between results.
`default_nettype none

module matrix_drain #(
    parameter STRIPS    = 3,   // servers: 1 to 4
    parameter COLUMNS   = 32,  // columns of a result: 2 to 64
    parameter TAG_WIDTH = 16,  // bits of a tag: >= 1
    parameter COLUMN_WIDTH = 5 // bits of a column index, enough for COLUMNS: 1 to 8
) (
    input wire clk,
    input wire rst_n,

    input wire       started,
    input wire [1:0] started_strip,

    input  wire [          STRIPS-1:0] result_ready,  // a result of this kind is complete
    input  wire [STRIPS*TAG_WIDTH-1:0] result_tags,
    output wire [          STRIPS-1:0] drain_read,
    output wire                        drain_last,
    output reg  [    COLUMN_WIDTH-1:0] drain_column,
    output wire [          STRIPS-1:0] drain_release,

    output reg                     m_valid,
    input  wire                    m_ready,
    output reg  [             1:0] m_strip,
    output reg  [   TAG_WIDTH-1:0] m_tag,
    output reg  [COLUMN_WIDTH-1:0] m_column,
    output reg                     m_last
);

  localparam [31:0] LAST_COLUMN_32 = COLUMNS - 1;

  // Servers in the order of their tasks; two tasks for each of at most four servers.
  reg [1:0] order[0:7];
  reg [3:0] write_pointer, read_pointer;

  wire [1:0] strip = order[read_pointer[2:0]];
  wire [3:0] ready = {{(4 - STRIPS) {1'b0}}, result_ready};
  wire [4*TAG_WIDTH-1:0] tags = {{(4 - STRIPS) * TAG_WIDTH{1'b0}}, result_tags};
  wire advance = m_ready || !m_valid;
  wire read = advance && write_pointer != read_pointer && ready[strip];

  assign drain_last = drain_column == LAST_COLUMN_32[COLUMN_WIDTH-1:0];

  genvar n;
  generate
    for (n = 0; n < STRIPS; n = n + 1) begin : g_strip
      localparam [31:0] N = n;
      assign drain_read[n] = read && strip == N[1:0];
      assign drain_release[n] = m_valid && m_ready && m_last && m_strip == N[1:0];
    end
  endgenerate

  always @(posedge clk) begin
    if (!rst_n) begin
      write_pointer <= 4'd0;
      read_pointer <= 4'd0;
      drain_column <= {COLUMN_WIDTH{1'b0}};
      m_valid <= 1'b0;
    end else begin
      if (started) write_pointer <= write_pointer + 4'd1;
      if (read && drain_last) read_pointer <= read_pointer + 4'd1;
      if (read) drain_column <= drain_last ? {COLUMN_WIDTH{1'b0}} : drain_column + 1'b1;
      if (advance) m_valid <= read;
    end
  end

  always @(posedge clk) begin
    if (started) order[write_pointer[2:0]] <= started_strip;
    if (read) begin
      m_strip  <= strip;
      m_tag    <= tags[strip*TAG_WIDTH+:TAG_WIDTH];
      m_column <= drain_column;
      m_last   <= drain_last;
    end
  end

endmodule

`default_nettype wire
