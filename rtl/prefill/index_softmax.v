// SPDX-License-Identifier: Apache-2.0
// Base-two softmax of rows of pooled scores, as shares with 24 fraction bits.
//
// Purpose: with n and f integer and fraction of max - score, w = rshift_round(2^-f, n), 0 for n above
//   25; the shares are the w divided by their sum (index_divider).
// Protocol: scores of a row come one a cycle at most and cannot be stopped; a row may begin while free
//   is high. Its shares leave in the same order, while the next row comes in.
// Latency: 2 n + 20 cycles from the last score of a row of n to its last share.
// Throughput: one row in 2 n + 16 cycles.
`default_nettype none

module index_softmax #(
    parameter MAX_BLOCKS = 256  // scores of the longest row: power of two, 2 to 2048
) (
    input wire clk,
    input wire rst_n,
    input wire clear,

    output wire               free,
    input  wire               score_valid,
    input  wire               score_last,
    input  wire signed [31:0] score,

    output wire        share_valid,
    output wire        share_last,
    output wire [24:0] share
);

  generate
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0) begin : g_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
  endgenerate

  localparam BITS = $clog2(MAX_BLOCKS);
  localparam [1:0] IDLE = 2'd0, WEIGHTS = 2'd1, INVERT = 2'd2, SHARES = 2'd3;

  // ---- two rows of scores: one comes in, one is worked on

  reg signed [31:0] scores[0:2*MAX_BLOCKS-1];
  reg fill, take;
  reg [1:0] full;
  reg [BITS-1:0] fill_index;
  reg [BITS-1:0] last_index[0:1];
  reg signed [31:0] highest, highest_of[0:1];

  wire fill_opens = fill_index == {BITS{1'b0}};
  wire signed [31:0] new_highest = fill_opens || score > highest ? score : highest;

  assign free = !full[fill];

  reg [1:0] state;
  reg [BITS-1:0] index;
  wire index_last = index == last_index[take];
  wire release_row = state == WEIGHTS && index_last;

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      {fill, take} <= 2'b0;
      full <= 2'b0;
      fill_index <= {BITS{1'b0}};
    end else begin
      if (score_valid) fill_index <= score_last ? {BITS{1'b0}} : fill_index + 1'b1;
      if (score_valid && score_last) begin
        fill <= !fill;
        full[fill] <= 1'b1;
      end
      if (state == SHARES && index_last) begin
        take <= !take;
        full[take] <= 1'b0;
      end
    end
    if (score_valid) begin
      scores[{fill, fill_index}] <= score;
      highest <= new_highest;
      if (score_last) begin
        last_index[fill] <= fill_index;
        highest_of[fill] <= new_highest;
      end
    end
  end

  // ---- weights, and their sum

  reg read_1, last_1, read_2, last_2;
  reg signed [31:0] score_1;
  reg [4:0] whole_2;
  reg [15:0] fraction_2;
  wire [24:0] power_6;
  wire [4:0] whole_6;
  wire valid_6, last_6;
  reg valid_7, last_7;
  reg [24:0] weight_7;
  reg [39:0] total;
  reg [BITS-1:0] weight_index;
  reg [24:0] weights[0:MAX_BLOCKS-1];
  reg weighed;  // the total is complete

  wire [32:0] distance_1 = {highest_of[take][31], highest_of[take]} - {score_1[31], score_1};

  quadratic #(
      .FUNCTION(0)
  ) power (
      .clk(clk),
      .u  ({fraction_2, 8'd0}),
      .y  (power_6)
  );

  delay_line #(
      .WIDTH (5),
      .CYCLES(4)
  ) whole_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (whole_2),
      .out  (whole_6)
  );

  delay_line #(
      .WIDTH (2),
      .CYCLES(4),
      .RESET (1)
  ) valid_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({read_2, last_2}),
      .out  ({valid_6, last_6})
  );

  wire [26:0] half = (27'd1 << whole_6) >> 1;
  wire [26:0] weight = ({2'b0, power_6} + half) >> whole_6;

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      {read_1, last_1, read_2, last_2, valid_7, last_7, weighed} <= 7'b0;
    end else begin
      read_1  <= state == WEIGHTS;
      last_1  <= release_row;
      read_2  <= read_1;
      last_2  <= last_1;
      valid_7 <= valid_6;
      last_7  <= last_6;
      weighed <= last_7;
    end
    score_1 <= scores[{take, index}];
    whole_2 <= distance_1[32:16] > 17'd26 ? 5'd26 : distance_1[20:16];
    fraction_2 <= distance_1[15:0];
    weight_7 <= weight[24:0];
    if (state == IDLE) begin
      total <= 40'd0;
      weight_index <= {BITS{1'b0}};
    end else if (valid_7) begin
      total <= total + {15'd0, weight_7};
      weight_index <= weight_index + 1'b1;
    end
    if (valid_7) weights[weight_index] <= weight_7;
  end

  // ---- shares

  wire ready;
  reg share_read_1, share_last_1;
  reg [24:0] read_weight;

  index_divider #(
      .WIDTH(40)
  ) divider (
      .clk(clk),
      .rst_n(rst_n),
      .load(weighed),
      .total(total),
      .ready(ready),
      .value_valid(share_read_1),
      .value_last(share_last_1),
      .value({15'd0, read_weight}),
      .share_valid(share_valid),
      .share_last(share_last),
      .share(share)
  );

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      state <= IDLE;
      {share_read_1, share_last_1} <= 2'b0;
    end else begin
      share_read_1 <= state == SHARES;
      share_last_1 <= state == SHARES && index_last;
      case (state)
        IDLE: if (full[take]) state <= WEIGHTS;
        WEIGHTS: if (index_last) state <= INVERT;
        INVERT: if (loaded && ready) state <= SHARES;
        default: if (index_last) state <= IDLE;  // SHARES
      endcase
    end
    if (state == IDLE || state == INVERT || index_last) index <= {BITS{1'b0}};
    else index <= index + 1'b1;
    read_weight <= weights[index];
  end

  reg loaded;  // the divider has this row's total
  always @(posedge clk)
    if (state == IDLE) loaded <= 1'b0;
    else if (weighed) loaded <= 1'b1;

  wire unused = &{1'b0, weight[26:25]};

endmodule

`default_nettype wire
