// SPDX-License-Identifier: Apache-2.0
// Memory of numbers that are written one by one and read several at a time.
//
// Purpose: entry e is lane e mod LANES of word e / LANES; each lane is a memory of its own.
// Protocol: write with an entry, read with a word; data stays until the next read.
// Latency: 1 cycle from read to data. Throughput: one write and one read a cycle.
// Limits: a read in the cycle of a write to its word gives either of the two values.
`default_nettype none

module index_score_memory #(
    parameter WIDTH   = 40,   // bits of an entry: >= 1
    parameter ENTRIES = 256,  // power of two, 2 to 4096
    parameter LANES   = 8     // power of two, 1 to 64
) (
    input wire clk,

    input  wire                   write,
    input  wire [           11:0] entry,
    input  wire [      WIDTH-1:0] value,
    input  wire                   read,
    input  wire [           11:0] word,
    output wire [LANES*WIDTH-1:0] data   // entries of the word, the lowest in the low bits
);

  generate
    if (WIDTH < 1) begin : g_width
      illegal_parameter_WIDTH stop ();
    end
    if (ENTRIES < 2 || ENTRIES > 4096 || (ENTRIES & (ENTRIES - 1)) != 0) begin : g_entries
      illegal_parameter_ENTRIES stop ();
    end
    if (LANES < 1 || LANES > 64 || (LANES & (LANES - 1)) != 0) begin : g_lanes
      illegal_parameter_LANES stop ();
    end
  endgenerate

  localparam WORDS = ENTRIES > LANES ? ENTRIES / LANES : 1;
  localparam WORD_BITS = WORDS > 1 ? $clog2(WORDS) : 1;
  localparam LANE_BITS = $clog2(LANES);

  wire [11:0] write_word = entry >> LANE_BITS;
  wire [11:0] write_lane = entry & (LANES[11:0] - 12'd1);

  genvar n;
  generate
    for (n = 0; n < LANES; n = n + 1) begin : g_lane
      localparam [31:0] N = n;
      reg [WIDTH-1:0] memory[0:WORDS-1];
      reg [WIDTH-1:0] read_value;
      always @(posedge clk) begin
        if (write && write_lane == N[11:0]) memory[write_word[WORD_BITS-1:0]] <= value;
        if (read) read_value <= memory[word[WORD_BITS-1:0]];
      end
      assign data[n*WIDTH+:WIDTH] = read_value;
    end
  endgenerate

  wire unused = &{1'b0, write_word, word};

endmodule

`default_nettype wire
