// SPDX-License-Identifier: Apache-2.0
//
// Adds up the 32-bit words of the beats on a memory port, so that the host can tell whether all of
// them arrived as they were sent.
//
// Protocol:   clear sets the sum to zero and forgets beats on their way into it.
// Latency:    3 cycles from valid to checksum.
// Throughput: one beat a cycle.
// Limits:     the sum modulo 2^32 shows every single wrong bit, not the order of the words.

`default_nettype none

module beat_checksum #(
    parameter integer BUS_WIDTH = 512  // bits of a beat, a power of two from 64 to 1024
) (
    input wire clk,

    input wire                  clear,
    input wire                  valid,
    input wire [BUS_WIDTH-1:0] data,

    output reg [31:0] checksum
);

  generate
    if (BUS_WIDTH < 64 || BUS_WIDTH > 1024 || (BUS_WIDTH & (BUS_WIDTH - 1)) != 0)
    begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
  endgenerate

  localparam integer WORDS = BUS_WIDTH / 32;
  localparam integer PARTS = WORDS < 4 ? 1 : WORDS / 4;

  reg [32*PARTS-1:0] parts;  // sums of four words each
  reg parts_valid;
  reg [31:0] total;  // of the beat
  reg total_valid;

  // Sum of each four words, or of all if there are fewer.
  function automatic [32*PARTS-1:0] sums_of_words(input [BUS_WIDTH-1:0] words);
    integer i;
    begin
      sums_of_words = {32 * PARTS{1'b0}};
      for (i = 0; i < WORDS; i = i + 1)
        sums_of_words[i/4*32+:32] = sums_of_words[i/4*32+:32] + words[i*32+:32];
    end
  endfunction

  function automatic [31:0] sum_of_parts(input [32*PARTS-1:0] sums);
    integer i;
    begin
      sum_of_parts = 32'd0;
      for (i = 0; i < PARTS; i = i + 1) sum_of_parts = sum_of_parts + sums[i*32+:32];
    end
  endfunction

  always @(posedge clk) begin
    parts_valid <= valid && !clear;
    total_valid <= parts_valid && !clear;
    if (clear) checksum <= 32'd0;
    else if (total_valid) checksum <= checksum + total;
  end

  always @(posedge clk) begin
    if (valid) parts <= sums_of_words(data);
    if (parts_valid) total <= sum_of_parts(parts);
  end

endmodule

`default_nettype wire
