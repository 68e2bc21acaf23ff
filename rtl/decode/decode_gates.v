// SPDX-License-Identifier: Apache-2.0
// Decay and write gate of value heads, and the running scale of their states.
//
// Purpose: for one v record at a time
//   decay = rate * softplus(a + dt_bias)   (-log2 g),  beta = sigmoid(b)
//   G g = G' * 2^-s'  with G' in (1/2, 1],  inverse = 1 / G'
//   and keeps G and s of every head of every context in a memory. With bypass decay and beta are
//   taken from the record.
// Protocol: free running; results follow valid_in after the latency. Two records of one head must
//   be at least two cycles apart. set_* writes the memory (clear, load, dump) and must not be used
//   while records are in flight; get_scale and get_shift show G and s of get_head.
// Latency 26 cycles, one record a cycle.
// Formats: docs/decode_engine.md; softplus and sigmoid through 2^-|x| and quadratics.
`default_nettype none

module decode_gates #(
    parameter HEADS      = 32,  // heads of all contexts
    parameter HEAD_WIDTH = 5    // bits of a head index
) (
    input wire clk,
    input wire rst_n,

    input wire                  valid_in,
    input wire [HEAD_WIDTH-1:0] head,
    input wire [         127:0] record,
    input wire                  bypass,

    output wire        valid_out,
    output wire [17:0] beta,
    output wire [24:0] scale,         // G'
    output wire [ 4:0] shift,         // s' of this token
    output wire [ 4:0] shift_before,  // pending shift of the token before
    output wire [24:0] inverse,       // 1 / G'

    input  wire                  set_valid,
    input  wire                  set_shift_only,
    input  wire [HEAD_WIDTH-1:0] set_head,
    input  wire [          24:0] set_scale,
    input  wire [           4:0] set_shift,
    input  wire [HEAD_WIDTH-1:0] get_head,
    output wire [          24:0] get_scale,
    output wire [           4:0] get_shift
);

  localparam [24:0] ONE = 25'h1000000;
  localparam [24:0] HALF = 25'h0800000;
  localparam [24:0] LOG2_E = 25'd24204406;

  // Stage 1: magnitudes of x = a + dt_bias and of b.
  wire signed [32:0] x_sum = {record[31], record[31:0]} + {record[63], record[63:32]};
  wire signed [31:0] x_sat = x_sum > 33'sd2147483647 ? 32'sd2147483647
      : x_sum < -33'sd2147483648 ? -32'sd2147483648 : x_sum[31:0];
  wire signed [23:0] b = record[119:96];
  wire [31:0] x_negated = -x_sat;
  wire [23:0] b_negated = -b;
  reg [30:0] x_magnitude_1;
  reg [22:0] b_magnitude_1;
  always @(posedge clk) begin
    x_magnitude_1 <= !x_sat[31] ? x_sat[30:0] : x_negated[31] ? 31'h7fffffff : x_negated[30:0];
    b_magnitude_1 <= !b[23] ? b[22:0] : b_negated[23] ? 23'h7fffff : b_negated[22:0];
  end

  // Stages 2 and 3: to log2 units with 24 fraction bits; integer part limited to 31.
  reg [55:0] x_product_2;
  reg [47:0] b_product_2;
  reg [23:0] x_fraction_3, b_fraction_3;
  reg [4:0] x_integer_3, b_integer_3;
  wire [55:0] x_round = (x_product_2 + 56'd524288) >> 20;
  wire [47:0] b_round = (b_product_2 + 48'd131072) >> 18;
  always @(posedge clk) begin
    x_product_2 <= x_magnitude_1 * LOG2_E;
    b_product_2 <= b_magnitude_1 * LOG2_E;
    x_fraction_3 <= x_round[23:0];
    x_integer_3 <= |x_round[55:29] ? 5'd31 : x_round[28:24];
    b_fraction_3 <= b_round[23:0];
    b_integer_3 <= |b_round[47:29] ? 5'd31 : b_round[28:24];
  end

  // Stages 4 to 7: 2^-fraction.
  wire [24:0] x_power_7, b_power_7;
  wire [4:0] x_integer_7, b_integer_7;

  quadratic #(
      .FUNCTION(0)
  ) x_exp2 (
      .clk(clk),
      .u  (x_fraction_3),
      .y  (x_power_7)
  );

  quadratic #(
      .FUNCTION(0)
  ) b_exp2 (
      .clk(clk),
      .u  (b_fraction_3),
      .y  (b_power_7)
  );

  delay_line #(
      .WIDTH (10),
      .CYCLES(4)
  ) integers (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({x_integer_3, b_integer_3}),
      .out  ({x_integer_7, b_integer_7})
  );

  // Stage 8: z = 2^-|.|, just below one when it is one.
  function automatic [23:0] below_one(input [24:0] power, input [4:0] integer_part);
    reg [31:0] rounded;
    begin
      rounded   = ({7'b0, power} + ((32'd1 << integer_part) >> 1)) >> integer_part;
      below_one = rounded[24] ? 24'hffffff : rounded[23:0];
    end
  endfunction

  reg [23:0] x_z_8, b_z_8;
  always @(posedge clk) begin
    x_z_8 <= below_one(x_power_7, x_integer_7);
    b_z_8 <= below_one(b_power_7, b_integer_7);
  end

  // Stages 9 to 12: ln(1 + z) and 1 / (1 + z).
  wire [24:0] tail_12, sigmoid_12;

  quadratic #(
      .FUNCTION(1)
  ) softplus_tail (
      .clk(clk),
      .u  (x_z_8),
      .y  (tail_12)
  );

  quadratic #(
      .FUNCTION(2)
  ) sigmoid (
      .clk(clk),
      .u  (b_z_8),
      .y  (sigmoid_12)
  );

  wire [127:0] record_12;
  wire signed [31:0] x_12;
  wire bypass_12;

  delay_line #(
      .WIDTH (161),
      .CYCLES(12)
  ) record_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({bypass, x_sat, record}),
      .out  ({bypass_12, x_12, record_12})
  );

  // Stage 13: softplus and beta.
  reg [35:0] softplus_13;
  reg [17:0] beta_13;
  reg [23:0] rate_13;
  reg [5:0] rate_shift_13;
  reg [31:0] given_13;
  reg bypass_13;
  wire [24:0] beta_12 = record_12[119] ? ONE - sigmoid_12 : sigmoid_12;
  wire [24:0] beta_round = (beta_12 + 25'd64) >> 7;
  wire [17:0] beta_given = record_12[49:32] > 18'd131072 ? 18'd131072 : record_12[49:32];
  wire signed [7:0] rate_exponent = record_12[95:88];
  wire signed [7:0] rate_clamped = rate_exponent > 8'sd22 ? 8'sd22
      : rate_exponent < -8'sd32 ? -8'sd32 : rate_exponent;
  wire [7:0] rate_shift = 8'sd24 - rate_clamped;
  always @(posedge clk) begin
    softplus_13 <= (x_12[31] ? 36'd0 : {1'b0, x_12[30:0], 4'b0}) + {11'b0, tail_12};
    beta_13 <= bypass_12 ? beta_given : beta_round[17:0];
    rate_13 <= record_12[87:64];
    rate_shift_13 <= rate_shift[5:0];
    given_13 <= record_12[31:0];
    bypass_13 <= bypass_12;
  end

  // Stages 14 and 15: decay = rate * softplus, limited to 32 bits.
  reg [59:0] decay_product_14;
  reg [ 5:0] rate_shift_14;
  reg [31:0] given_14;
  reg bypass_14;
  reg [31:0] decay_15;
  wire [60:0] decay_half = (61'd1 << rate_shift_14) >> 1;
  wire [60:0] decay_round = ({1'b0, decay_product_14} + decay_half) >> rate_shift_14;
  always @(posedge clk) begin
    decay_product_14 <= rate_13 * softplus_13;
    rate_shift_14 <= rate_shift_13;
    given_14 <= given_13;
    bypass_14 <= bypass_13;
    decay_15 <= bypass_14 ? given_14 : |decay_round[60:32] ? 32'hffffffff : decay_round[31:0];
  end

  // Stages 16 to 19: 2^-fraction of the decay.
  wire [24:0] factor_19;
  wire [4:0] decay_integer_19;

  quadratic #(
      .FUNCTION(0)
  ) decay_exp2 (
      .clk(clk),
      .u  (decay_15[23:0]),
      .y  (factor_19)
  );

  delay_line #(
      .WIDTH (5),
      .CYCLES(4)
  ) decay_integer (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (|decay_15[31:29] ? 5'd31 : decay_15[28:24]),
      .out  (decay_integer_19)
  );

  wire valid_19;
  wire [HEAD_WIDTH-1:0] head_19;

  delay_line #(
      .WIDTH (1),
      .CYCLES(19),
      .RESET (1)
  ) valid_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (valid_in),
      .out  (valid_19)
  );

  delay_line #(
      .WIDTH (HEAD_WIDTH),
      .CYCLES(19)
  ) head_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (head),
      .out  (head_19)
  );

  // Stage 20: G * factor. Stage 21: renormalise into (1/2, 1] and store.
  reg [24:0] scale_memory[0:HEADS-1];
  reg [ 4:0] shift_memory[0:HEADS-1];
  reg [49:0] product_20;
  reg [4:0] integer_20, before_20;
  reg [HEAD_WIDTH-1:0] head_20;
  reg valid_20, valid_21;
  reg [24:0] scale_21;
  reg [4:0] shift_21, before_21;

  wire [49:0] plain = (product_20 + 50'd8388608) >> 24;
  wire [49:0] doubled = (product_20 + 50'd4194304) >> 23;
  wire renormalise = plain[24:0] <= HALF;
  wire [24:0] doubled_limited = doubled[24:0] > ONE ? ONE : doubled[24:0];
  wire [24:0] scale_next = renormalise ? doubled_limited : plain[24:0];
  wire [4:0] shift_next = integer_20 == 5'd31 ? 5'd31 : integer_20 + {4'b0, renormalise};

  always @(posedge clk) begin
    if (!rst_n) {valid_21, valid_20} <= 2'b0;
    else {valid_21, valid_20} <= {valid_20, valid_19};
    head_20 <= head_19;
    integer_20 <= decay_integer_19;
    product_20 <= scale_memory[head_19] * factor_19;
    before_20 <= shift_memory[head_19];
    scale_21 <= scale_next;
    shift_21 <= shift_next;
    before_21 <= before_20;
    if (valid_20) begin
      scale_memory[head_20] <= scale_next;
      shift_memory[head_20] <= shift_next;
    end else if (set_valid) begin
      if (!set_shift_only) scale_memory[set_head] <= set_scale;
      shift_memory[set_head] <= set_shift;
    end
  end

  assign get_scale = scale_memory[get_head];
  assign get_shift = shift_memory[get_head];

  // Stages 22 to 25: reciprocal of the scale; stage 26 is the output.
  wire [24:0] scale_excess = scale_21 - HALF;
  wire [24:0] reciprocal_25;
  wire [17:0] beta_25;

  quadratic #(
      .FUNCTION(2)
  ) reciprocal (
      .clk(clk),
      .u  (scale_excess[23] ? 24'hffffff : {scale_excess[22:0], 1'b0}),
      .y  (reciprocal_25)
  );

  delay_line #(
      .WIDTH (18),
      .CYCLES(12)
  ) beta_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (beta_13),
      .out  (beta_25)
  );

  wire valid_25;
  wire [24:0] scale_25;
  wire [4:0] shift_25, before_25;

  delay_line #(
      .WIDTH (35),
      .CYCLES(4)
  ) scale_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({scale_21, shift_21, before_21}),
      .out  ({scale_25, shift_25, before_25})
  );

  delay_line #(
      .WIDTH (1),
      .CYCLES(4),
      .RESET (1)
  ) valid_out_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (valid_21),
      .out  (valid_25)
  );

  delay_line #(
      .WIDTH (78),
      .CYCLES(1)
  ) output_register (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({beta_25, scale_25, shift_25, before_25, reciprocal_25[23:0], 1'b0}),
      .out  ({beta, scale, shift, shift_before, inverse})
  );

  delay_line #(
      .WIDTH (1),
      .CYCLES(1),
      .RESET (1)
  ) output_valid (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (valid_25),
      .out  (valid_out)
  );

  wire unused = &{1'b0, record_12[127:120], record_12[118:96], record_12[63:50], beta_round[24:18],
      rate_shift[7:6], plain[49:25], doubled[49:25], scale_excess[24], reciprocal_25[24]};

endmodule

`default_nettype wire
