// SPDX-License-Identifier: Apache-2.0
// Jensen-Shannon divergence of the estimate and the vertical scores of a head.
//
// Purpose: with p the estimate and q the shares of the vertical scores, 24 fraction bits,
//   D = max(0, sum of p ln p + q ln q - (p + q) (ln(p + q) - ln 2)), 0 ln 0 = 0, 49 fraction bits.
// Protocol: the estimate comes first, one share a cycle at most from block 0 on, its last one marked;
//   start (one cycle) with blocks and total then reads the scores (read and word as
//   index_score_memory); done is high for one cycle with the divergence, which stays.
// Latency: 3 N + 20 cycles from start to done.
`default_nettype none

module index_divergence #(
    parameter MAX_BLOCKS  = 256,  // power of two, 2 to 2048
    parameter SCORE_LANES = 8     // scores of a word: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input wire        estimate_valid,
    input wire        estimate_last,
    input wire [24:0] estimate,

    input  wire                      start,
    input  wire [              11:0] blocks,
    input  wire [              39:0] total,
    output wire                      read,
    output wire [              11:0] word,
    input  wire [SCORE_LANES*40-1:0] scores,
    output reg                       done,
    output reg  [              49:0] divergence
);

  generate
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0) begin : g_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (SCORE_LANES < 1 || SCORE_LANES > 64 || (SCORE_LANES & (SCORE_LANES - 1)) != 0)
    begin : g_score_lanes
      illegal_parameter_SCORE_LANES stop ();
    end
  endgenerate

  localparam BITS = $clog2(MAX_BLOCKS);
  localparam LANE_BITS = $clog2(SCORE_LANES);
  localparam [29:0] LN_2 = 30'd11629080;

  reg [24:0] estimates[0:MAX_BLOCKS-1];
  reg [BITS-1:0] estimate_index;

  always @(posedge clk) begin
    if (!rst_n) estimate_index <= {BITS{1'b0}};
    else if (estimate_valid) estimate_index <= estimate_last ? {BITS{1'b0}} : estimate_index + 1'b1;
    if (estimate_valid) estimates[estimate_index] <= estimate;
  end

  // ---- one block in three cycles

  reg running;  // from start until all blocks are read
  reg [1:0] phase;
  reg [11:0] block;
  wire ready;

  assign read = running && ready && phase == 2'd0;
  assign word = block >> LANE_BITS;
  wire read_last = read && block == blocks - 12'd1;
  wire [11:0] lane = block & (SCORE_LANES[11:0] - 12'd1);

  reg [24:0] p_1;
  reg [11:0] lane_1;
  reg valid_1, last_1, valid_2, last_2;
  reg [39:0] score, score_2;
  wire [24:0] p_5, q_5;
  wire valid_5, last_5;

  always @* begin : pick_lane
    reg [31:0] i;
    score = 40'd0;
    for (i = 0; i < SCORE_LANES; i = i + 1)
    if (lane_1 == i[11:0]) score = score | scores[i*40+:40];
  end

  always @(posedge clk) begin
    if (!rst_n) begin
      running <= 1'b0;
      phase <= 2'd0;
      {valid_1, last_1, valid_2, last_2} <= 4'b0;
    end else begin
      if (start) running <= 1'b1;
      else if (read_last) running <= 1'b0;
      if (start) phase <= 2'd0;
      else if (running && ready) phase <= phase == 2'd2 ? 2'd0 : phase + 2'd1;
      valid_1 <= read;
      last_1 <= read_last;
      valid_2 <= valid_1;
      last_2 <= last_1;
    end
    if (start) block <= 12'd0;
    else if (read) block <= block + 12'd1;
    lane_1 <= lane;
    p_1 <= estimates[block[BITS-1:0]];
    score_2 <= score;
  end

  index_divider #(
      .WIDTH(40)
  ) divider (
      .clk(clk),
      .rst_n(rst_n),
      .load(start),
      .total(total),
      .ready(ready),
      .value_valid(valid_2),
      .value_last(last_2),
      .value(score_2),
      .share_valid(valid_5),
      .share_last(last_5),
      .share(q_5)
  );

  delay_line #(
      .WIDTH (25),
      .CYCLES(4)
  ) estimate_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (p_1),
      .out  (p_5)
  );

  // ---- x ln x of p, of q and of p + q, one after the other

  reg [24:0] p, q;
  reg [2:0] turn;  // one-hot: p, q, p + q
  reg turn_last;  // of the last block
  wire [25:0] x_6 = turn[0] ? {1'b0, p} : turn[1] ? {1'b0, q} : {1'b0, p} + {1'b0, q};
  wire valid_6 = turn != 3'd0;

  always @(posedge clk) begin
    if (!rst_n) turn <= 3'd0;
    else turn <= {turn[1:0], valid_5};
    if (valid_5) begin
      p <= p_5;
      q <= q_5;
      turn_last <= last_5;
    end
  end

  wire [5:0] position_7, position_11;
  wire [23:0] fraction_7;
  wire [24:0] logarithm_11;
  wire [25:0] x_12;
  wire valid_12, sum_12, last_12;

  index_leading_one #(
      .WIDTH(26)
  ) leading (
      .clk(clk),
      .value(x_6),
      .position(position_7),
      .fraction(fraction_7)
  );

  quadratic #(
      .FUNCTION(1)
  ) logarithm (
      .clk(clk),
      .u  (fraction_7),
      .y  (logarithm_11)
  );

  delay_line #(
      .WIDTH (6),
      .CYCLES(4)
  ) position_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (position_7),
      .out  (position_11)
  );

  delay_line #(
      .WIDTH (26),
      .CYCLES(6)
  ) operand_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (x_6),
      .out  (x_12)
  );

  delay_line #(
      .WIDTH (3),
      .CYCLES(6),
      .RESET (1)
  ) flags_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({valid_6, turn[2], turn[2] && turn_last}),
      .out  ({valid_12, sum_12, last_12})
  );

  wire sum_11;  // the operand is p + q, whose logarithm is that of the mean
  delay_line #(
      .WIDTH (1),
      .CYCLES(5)
  ) sum_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (turn[2]),
      .out  (sum_11)
  );

  reg signed [30:0] ln_12;
  reg signed [57:0] product_13;
  reg valid_13, sum_13, last_13, last_14;
  reg signed [63:0] total_14;

  wire signed [57:0] x_wide = {32'd0, x_12};
  wire signed [57:0] ln_wide = {{27{ln_12[30]}}, ln_12};
  wire signed [63:0] product_wide = {{6{product_13[57]}}, product_13};
  wire [29:0] powers_of_two = {25'd0, position_11[4:0]} * LN_2;

  always @(posedge clk) begin
    if (!rst_n) {valid_13, last_13, last_14, done} <= 4'b0;
    else {valid_13, last_13, last_14, done} <= {valid_12, last_12, last_13, last_14};
    ln_12 <= {1'b0, powers_of_two} + {6'd0, logarithm_11} - (sum_11 ? {1'b0, LN_2} : 31'd0);
    product_13 <= x_wide * ln_wide;
    sum_13 <= sum_12;
    if (start) total_14 <= 64'sd0;
    else if (valid_13) total_14 <= sum_13 ? total_14 - product_wide : total_14 + product_wide;
    if (last_14) divergence <= total_14[63] ? 50'd0 : total_14[49:0];
  end

  wire unused = &{1'b0, position_11[5], total_14[62:50]};

endmodule

`default_nettype wire
