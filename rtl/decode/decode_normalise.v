// SPDX-License-Identifier: Apache-2.0
// Scale of a q or k vector: reciprocal root of its squared length.
//
// Purpose: unit vector = mantissa * root * 2^-power. From the sum of squared mantissas and the
//   vector's exponent e: total = squares + 1e-6 * 2^-2e, root * 2^-power = total^-1/2.
//   With bypass the vector is used as it is: root = 1, power = -e (0 to 40), and overflow says
//   that the squared length is above 1.5.
// Protocol: free running; results follow valid_in after the latency.
// Latency 7 cycles, one vector a cycle.
// Formats: root 24 fraction bits, in (2^23, 2^24], 0 for a vector of length 0.
`default_nettype none

module decode_normalise (
    input wire clk,
    input wire rst_n,

    input wire              valid_in,
    input wire       [37:0] squares,
    input wire signed [7:0] exponent,  // clamped to -40..23
    input wire              bypass,

    output wire        valid_out,
    output reg  [24:0] root,
    output reg  [ 5:0] power,
    output reg         overflow
);

  localparam [61:0] EPSILON = 62'd1099512;  // 1e-6 with 40 fraction bits

  wire signed [7:0] e = exponent > 8'sd23 ? 8'sd23 : exponent < -8'sd40 ? -8'sd40 : exponent;
  // 40 + 2 e, -40 to 86: right shift of epsilon when positive, left when negative.
  wire signed [7:0] epsilon_shift = 8'sd40 + (e <<< 1);
  wire [7:0] left = -epsilon_shift;
  wire [4:0] right = epsilon_shift > 8'sd22 ? 5'd22 : epsilon_shift[4:0];
  wire [61:0] half = (62'd1 << right) >> 1;
  wire [61:0] epsilon = epsilon_shift < 8'sd0 ? EPSILON << left : (EPSILON + half) >> right;
  wire [5:0] given_power = e > 8'sd0 ? 6'd0 : -e[5:0];
  wire [5:0] limit_shift = given_power > 6'd20 ? 6'd40 : {given_power[4:0], 1'b0};

  // Stage 1: total, and the overflow test of a given vector.
  reg [61:0] total_1;
  reg bypass_1, overflow_1;
  reg [5:0] power_1;
  always @(posedge clk)
    if (valid_in) begin
      total_1 <= {24'b0, squares} + epsilon;
      bypass_1 <= bypass;
      power_1 <= given_power;
      overflow_1 <= bypass && {4'b0, squares, 1'b0} > (43'd3 << limit_shift);
    end

  // Stage 2: position of the leading one and the 24 bits behind it.
  reg [ 5:0] msb;
  reg [61:0] aligned;
  always @* begin : leading_one
    reg [31:0] n;
    msb = 6'd0;
    for (n = 0; n < 62; n = n + 1) if (total_1[n[5:0]]) msb = n[5:0];
    aligned = total_1 << (6'd61 - msb);
  end

  reg valid_1;
  reg [23:0] argument_2;
  reg odd_2, zero_2, bypass_2, overflow_2;
  reg [5:0] power_2;
  always @(posedge clk)
    if (valid_1) begin
      argument_2 <= aligned[60:37];
      odd_2 <= msb[0];
      zero_2 <= total_1 == 62'd0;
      bypass_2 <= bypass_1;
      overflow_2 <= overflow_1;
      power_2 <= bypass_1 ? power_1 : {1'b0, msb[5:1]};
    end

  wire [24:0] root_even, root_odd;

  quadratic #(
      .FUNCTION(3)
  ) even (
      .clk(clk),
      .u  (argument_2),
      .y  (root_even)
  );

  quadratic #(
      .FUNCTION(4)
  ) uneven (
      .clk(clk),
      .u  (argument_2),
      .y  (root_odd)
  );

  wire odd_6, zero_6, bypass_6, overflow_6;
  wire [5:0] power_6;

  delay_line #(
      .WIDTH (10),
      .CYCLES(4)
  ) side (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({odd_2, zero_2, bypass_2, overflow_2, power_2}),
      .out  ({odd_6, zero_6, bypass_6, overflow_6, power_6})
  );

  always @(posedge clk) begin
    root <= bypass_6 ? 25'h1000000 : zero_6 ? 25'd0 : odd_6 ? root_odd : root_even;
    power <= power_6;
    overflow <= overflow_6;
  end

  always @(posedge clk)
    if (!rst_n) valid_1 <= 1'b0;
    else valid_1 <= valid_in;

  delay_line #(
      .WIDTH (1),
      .CYCLES(6),
      .RESET (1)
  ) valid_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (valid_1),
      .out  (valid_out)
  );

  wire unused = &{1'b0, aligned[61], aligned[36:0], e[7:6]};

endmodule

`default_nettype wire
