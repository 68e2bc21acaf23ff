// SPDX-License-Identifier: Apache-2.0
// Lines of one half of the KV cache that hold nothing.
//
// Purpose: a stack of lines that were given back, and before they are all used once, the next one
//   that never was; so that start need not fill anything.
// Protocol: take removes line, allowed while available; give adds give_line. Not both at once.
// Latency: line and available are valid from the second cycle after start, take and give on.
// Limits: a line that is given back must have been taken since start.
`default_nettype none

module kv_free_lines #(
    parameter LINES     = 128,  // a power of two: 1 to 512
    parameter FIRST     = 0,    // number of the first line
    parameter LINE_BITS = 8     // bits of a line's number
) (
    input wire clk,
    input wire start,

    output wire                 available,
    output wire [LINE_BITS-1:0] line,
    input  wire                 take,
    input  wire                 give,
    input  wire [LINE_BITS-1:0] give_line
);

  localparam INDEX_BITS = LINES == 1 ? 1 : $clog2(LINES);
  localparam COUNT_BITS = INDEX_BITS + 1;
  localparam [31:0] LINES_32 = LINES;
  localparam [31:0] FIRST_32 = FIRST;
  localparam [COUNT_BITS-1:0] ONE = 1;
  localparam [COUNT_BITS-1:0] NONE = 0;

  reg [LINE_BITS-1:0] stack[0:(1<<INDEX_BITS)-1];
  reg [LINE_BITS-1:0] top;
  reg [COUNT_BITS-1:0] height, used;  // lines on the stack, lines that were ever taken
  reg  [LINE_BITS-1:0] fresh;

  wire [COUNT_BITS-1:0] below = height - ONE;

  assign available = height != NONE || used != LINES_32[COUNT_BITS-1:0];
  assign line = height != NONE ? top : fresh;

  always @(posedge clk) begin
    if (start) begin
      height <= NONE;
      used   <= NONE;
      fresh  <= FIRST_32[LINE_BITS-1:0];
    end else begin
      if (give) height <= height + ONE;
      if (take && height != NONE) height <= below;
      if (take && height == NONE) begin
        used  <= used + ONE;
        fresh <= fresh + 1'b1;
      end
    end
    if (give) stack[height[INDEX_BITS-1:0]] <= give_line;
    top <= stack[below[INDEX_BITS-1:0]];
  end

endmodule

`default_nettype wire
