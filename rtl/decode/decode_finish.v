// SPDX-License-Identifier: Apache-2.0
// Delta, output and pending update of one column of one value head.
//
// Purpose: after a pass, from the raw sums of a column and the head's scalars:
//   r = G g r_sum, w = G g w_sum  (G g = scale * 2^-shift), delta = beta (v - r),
//   o = w + dot * delta, update = delta / G' (inverse = 1 / scale).
// Protocol: free running; results follow valid_in after the latency; scalars must stay stable
//   from valid_in of the first column until the results of the last.
// Latency 8 cycles, one column a cycle.
// Formats: sums 38 fraction bits; v, r, w, delta, o 24; update 21; scale, inverse 24; beta 17;
//   dot 22. Values that do not fit are clamped and reported in saturated.
`default_nettype none

module decode_finish (
    input wire clk,
    input wire rst_n,

    input wire               valid_in,
    input wire signed [47:0] r_sum,
    input wire signed [47:0] w_sum,
    input wire signed [15:0] mantissa,  // of v

    input wire signed [ 7:0] exponent,  // of v; clamped to -40..23
    input wire        [24:0] scale,
    input wire        [ 4:0] shift,
    input wire        [17:0] beta,
    input wire        [24:0] inverse,
    input wire signed [24:0] dot,

    output reg               valid_out,
    output reg signed [26:0] update,
    output reg signed [31:0] o,
    output reg               saturated
);

  localparam signed [47:0] WORD_MAX = 48'sd2147483647;
  localparam signed [47:0] WORD_MIN = -48'sd2147483648;
  localparam signed [47:0] UPDATE_MAX = 48'sd67108863;
  localparam signed [47:0] UPDATE_MIN = -48'sd67108864;

  reg [7:1] valid;
  reg [7:1] clamped;
  reg signed [31:0] r_1, w_1, v_1, v_2, v_3, r_3, w_3, w_4, w_5, w_6, w_7;
  reg signed [57:0] r_product_2, w_product_2;
  reg signed [32:0] delta_4, delta_6;
  reg signed [51:0] beta_product_5;
  reg signed [58:0] update_product_7, dot_product_7;

  always @(posedge clk) begin
    if (!rst_n) {valid_out, valid} <= 8'b0;
    else {valid_out, valid} <= {valid, valid_in};
  end

  // Stage 1: sums and value to 24 fraction bits.
  reg signed [47:0] r_round, w_round;
  reg signed [ 7:0] value_shift;
  reg signed [47:0] value_left;
  reg signed [31:0] value_right, value_half, value_extended;
  reg value_clamped;
  always @* begin
    r_round = {{14{r_sum[47]}}, r_sum[47:14]} + {47'b0, r_sum[13]};
    w_round = {{14{w_sum[47]}}, w_sum[47:14]} + {47'b0, w_sum[13]};
    value_shift = (exponent > 8'sd23 ? 8'sd23 : exponent < -8'sd40 ? -8'sd40 : exponent) + 8'sd24;
    value_extended = {{16{mantissa[15]}}, mantissa};
    value_left = {{16{value_extended[31]}}, value_extended}
        <<< (value_shift > 8'sd31 ? 8'sd31 : value_shift);
    value_half = (32'sd1 <<< -value_shift) >>> 1;
    value_right = (value_extended + value_half) >>> -value_shift;
    value_clamped = value_shift >= 8'sd0
        && (value_left > WORD_MAX || value_left < WORD_MIN);
  end

  // Stages 3, 6, 8: roundings.
  wire [5:0] scale_shift = 6'd24 + {1'b0, shift};
  wire signed [57:0] scale_half = 58'sd1 <<< (scale_shift - 6'd1);
  wire signed [57:0] r_scaled = (r_product_2 + scale_half) >>> scale_shift;
  wire signed [57:0] w_scaled = (w_product_2 + scale_half) >>> scale_shift;
  wire signed [51:0] delta_round = (beta_product_5 + 52'sd65536) >>> 17;
  wire signed [58:0] update_round = (update_product_7 + 59'sd67108864) >>> 27;
  wire signed [58:0] dot_round = (dot_product_7 + 59'sd2097152) >>> 22;
  wire signed [47:0] update_wide = update_round[47:0];
  wire signed [47:0] o_wide = {{16{w_7[31]}}, w_7} + dot_round[47:0];
  wire update_clamped = update_wide > UPDATE_MAX || update_wide < UPDATE_MIN;
  wire o_clamped = o_wide > WORD_MAX || o_wide < WORD_MIN;

  always @(posedge clk) begin
    if (valid_in) begin
      r_1 <= r_round > WORD_MAX ? WORD_MAX[31:0] : r_round < WORD_MIN ? WORD_MIN[31:0] : r_round[31:0];
      w_1 <= w_round > WORD_MAX ? WORD_MAX[31:0] : w_round < WORD_MIN ? WORD_MIN[31:0] : w_round[31:0];
      v_1 <= value_shift < 8'sd0 ? value_right
          : !value_clamped ? value_left[31:0] : mantissa[15] ? WORD_MIN[31:0] : WORD_MAX[31:0];
    end
    clamped[1] <= value_clamped || r_round > WORD_MAX || r_round < WORD_MIN
        || w_round > WORD_MAX || w_round < WORD_MIN;
    clamped[7:2] <= clamped[6:1];
    if (valid[1]) begin
      r_product_2 <= r_1 * $signed({1'b0, scale});
      w_product_2 <= w_1 * $signed({1'b0, scale});
      v_2 <= v_1;
    end
    if (valid[2]) begin
      r_3 <= r_scaled[31:0];
      w_3 <= w_scaled[31:0];
      v_3 <= v_2;
    end
    if (valid[3]) begin
      delta_4 <= {v_3[31], v_3} - {r_3[31], r_3};
      w_4 <= w_3;
    end
    if (valid[4]) begin
      beta_product_5 <= delta_4 * $signed({1'b0, beta});
      w_5 <= w_4;
    end
    if (valid[5]) begin
      delta_6 <= delta_round[32:0];
      w_6 <= w_5;
    end
    if (valid[6]) begin
      update_product_7 <= delta_6 * $signed({1'b0, inverse});
      dot_product_7 <= delta_6 * dot;
      w_7 <= w_6;
    end
    if (valid[7]) begin
      update <= update_wide > UPDATE_MAX ? UPDATE_MAX[26:0]
          : update_wide < UPDATE_MIN ? UPDATE_MIN[26:0] : update_wide[26:0];
      o <= o_wide > WORD_MAX ? WORD_MAX[31:0]
          : o_wide < WORD_MIN ? WORD_MIN[31:0] : o_wide[31:0];
    end
    saturated <= valid[7] && (clamped[7] || update_clamped || o_clamped);
  end

  wire unused = &{1'b0, r_sum[12:0], w_sum[12:0], r_scaled[57:32], w_scaled[57:32], delta_round[51:33],
      update_round[58:48], dot_round[58:48]};

endmodule

`default_nettype wire
