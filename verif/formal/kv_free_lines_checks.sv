// SPDX-License-Identifier: Apache-2.0
// Properties of kv_free_lines.
//
// Proved: a line that is given out is one of this half and is not given out again before it comes
//   back; a line is available exactly while not all are out; start makes all of them free.
// How: induction. Each line is in one place: out, on the stack once, or never used.
// Assumed: start comes first; take only while available, not in the cycle after start, take or give;
//   give only of a line that is out; no two of the three at once.
`default_nettype none

module kv_free_lines_checks #(
    parameter LINES = 1,
    parameter FIRST = 0,
    parameter LINE_BITS = 1,
    parameter INDEX_BITS = 1,
    parameter COUNT_BITS = 2
) (
    input wire clk,
    input wire start,

    input wire                 available,
    input wire [LINE_BITS-1:0] line,
    input wire                 take,
    input wire                 give,
    input wire [LINE_BITS-1:0] give_line,

    input wire [ LINE_BITS-1:0] stack [0:(1<<INDEX_BITS)-1],
    input wire [ LINE_BITS-1:0] top,
    input wire [COUNT_BITS-1:0] height,
    input wire [COUNT_BITS-1:0] used,
    input wire [ LINE_BITS-1:0] fresh
);

  localparam [31:0] LINES_32 = LINES;
  localparam [31:0] FIRST_32 = FIRST;

  reg has_past = 1'b0;
  reg moved;  // start, take or give in the cycle before
  reg [LINES-1:0] out;  // lines that are given out

  wire [31:0] place = {{32 - LINE_BITS{1'b0}}, line} - FIRST_32;
  wire [31:0] give_place = {{32 - LINE_BITS{1'b0}}, give_line} - FIRST_32;

  always @(posedge clk) begin
    has_past <= 1'b1;
    moved <= start || take || give;
    if (start) out <= {LINES{1'b0}};
    else if (take) out[place] <= 1'b1;
    else if (give) out[give_place] <= 1'b0;
  end

  always @(posedge clk) begin
    if (!has_past) assume (start);
    assume ({1'b0, start} + {1'b0, take} + {1'b0, give} < 2'd2);
    assume (!take || (available && !moved));
    assume (!give || (give_place < LINES_32 && out[give_place]));
  end

  reg [31:0] out_count;
  reg [31:0] places[0:LINES-1];  // where each line is, counted
  reg stack_in_range;
  always @* begin : survey
    reg [31:0] n, m;
    out_count = 32'd0;
    stack_in_range = 1'b1;
    for (n = 0; n < LINES; n = n + 1) begin
      out_count = out_count + {31'd0, out[n]};
      places[n] = {31'd0, out[n]} + {31'd0, n >= {{32 - COUNT_BITS{1'b0}}, used}};
      for (m = 0; m < LINES; m = m + 1)
        if (m < {{32 - COUNT_BITS{1'b0}}, height} && stack[m] == FIRST_32[LINE_BITS-1:0] + n[LINE_BITS-1:0])
          places[n] = places[n] + 32'd1;
    end
    for (m = 0; m < LINES; m = m + 1)
      if (m < {{32 - COUNT_BITS{1'b0}}, height} &&
          {{32 - LINE_BITS{1'b0}}, stack[m]} - FIRST_32 >= LINES_32)
        stack_in_range = 1'b0;
  end

  wire [31:0] next_fresh = FIRST_32 + {{32 - COUNT_BITS{1'b0}}, used};
  wire [COUNT_BITS-1:0] below = height - 1'b1;

  always @(posedge clk)
    if (has_past) begin
      assert (height <= used && {{32 - COUNT_BITS{1'b0}}, used} <= LINES_32);
      assert (out_count == {{32 - COUNT_BITS{1'b0}}, used} - {{32 - COUNT_BITS{1'b0}}, height});
      assert (fresh == next_fresh[LINE_BITS-1:0]);
      assert (stack_in_range);
      assert (moved || height == 0 || top == stack[below[INDEX_BITS-1:0]]);

      assert (available == (out_count != LINES_32));
      if (available && !moved) begin
        assert (place < LINES_32);
        assert (!out[place]);
      end
      if ($past(start)) assert (out_count == 32'd0);
    end

  genvar g;
  generate
    for (g = 0; g < LINES; g = g + 1) begin : g_line
      always @(posedge clk) if (has_past) assert (places[g] == 32'd1);
    end
  endgenerate

  // All lines out, all back, and one that came back out again.
  reg all_out, all_back;
  always @(posedge clk)
    if (start) {all_out, all_back} <= 2'd0;
    else begin
      all_out  <= all_out || out_count == LINES_32;
      all_back <= all_back || (all_out && out_count == 32'd0);
    end
  always @(posedge clk) cover (has_past && all_back && take);

endmodule

bind kv_free_lines kv_free_lines_checks #(
    .LINES(LINES),
    .FIRST(FIRST),
    .LINE_BITS(LINE_BITS),
    .INDEX_BITS(INDEX_BITS),
    .COUNT_BITS(COUNT_BITS)
) checks (.*);

`default_nettype wire
