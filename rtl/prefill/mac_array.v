// SPDX-License-Identifier: Apache-2.0
// Output-stationary array of multiply-accumulators: sums of outer products of signed bytes.
//
// Purpose: sum[i][j] = sum over the steps of a task of a[i] * b[j], signed. The products are exact
//   and equal to the bit in both forms:
//     LUT = 0  one 8x8 product. Product, sum and its restart fit one DSP with its own registers.
//     LUT = 1  for the fabric: each nibble of a[i] in two digits of two bits, the uppermost of them
//              signed. A digit selects a multiple of b[j], three adders put these together. A bit of
//              a digit takes one 6-input LUT, as the selection is in the LUT of the adder.
// Protocol: steps enter with step_valid in any rhythm. step_first restarts the sums, step_last copies
//   them into the holding registers, so that the next task may follow in the next cycle.
//   drain_read with drain_column puts one column of the holding registers on drain_sums, where it
//   stays until the next drain_read.
// Latency: the last step is sampled at one clock edge; three edges later the holding registers have
//   the sums, and a drain_read from the fourth on sees them. drain_read to drain_sums 1 cycle.
// Throughput: one step a cycle, ROWS * COLUMNS products; one column of ROWS sums a cycle.
// Limits: the sums cannot overflow in up to 2^(SUM_WIDTH - 15) - 1 steps, with any operands.
// Style: stages are loops over arrays with blocking assignments, last stage first, so each stage
//   reads what the stage before left in the previous cycle. A simulator runs such loops as vector
//   code, for which sums have 32 bits. Only the lower SUM_WIDTH of them count: the drain extends
//   their sign, and synthesis drops the others. Nothing outside this block reads these arrays but
//   through drain_sums.
`default_nettype none

module mac_array #(
    parameter ROWS         = 32,  // bytes of a column of A: 2 to 64
    parameter COLUMNS      = 32,  // bytes of a row of B: 2 to 64
    parameter LUT          = 0,   // form of the product: 0 for DSPs, 1 for the fabric
    parameter COLUMN_WIDTH = 5,   // bits of a column index, enough for COLUMNS: 1 to 8
    parameter SUM_WIDTH    = 32   // bits of a sum that count: 17 to 32
) (
    input wire clk,
    input wire rst_n,

    input wire                 step_valid,
    input wire                 step_first,
    input wire                 step_last,
    input wire [   ROWS*8-1:0] a,           // row i in byte i
    input wire [COLUMNS*8-1:0] b,           // column j in byte j

    input  wire                    drain_read,
    input  wire [COLUMN_WIDTH-1:0] drain_column,
    output reg  [     ROWS*32-1:0] drain_sums     // row i in word i
);

  generate
    if (ROWS < 2 || ROWS > 64) begin : g_rows
      illegal_parameter_ROWS stop ();
    end
    if (COLUMNS < 2 || COLUMNS > 64) begin : g_columns
      illegal_parameter_COLUMNS stop ();
    end
    if (LUT != 0 && LUT != 1) begin : g_lut
      illegal_parameter_LUT stop ();
    end
    if (COLUMN_WIDTH < 1 || COLUMN_WIDTH > 8 || (1 << COLUMN_WIDTH) < COLUMNS) begin : g_column_width
      illegal_parameter_COLUMN_WIDTH stop ();
    end
    if (SUM_WIDTH < 17 || SUM_WIDTH > 32) begin : g_sum_width
      illegal_parameter_SUM_WIDTH stop ();
    end
  endgenerate

  reg valid_1, valid_2, last_1, last_2, last_3, first_1, first_2;

  reg signed [7:0] a_1[0:ROWS-1];
  reg signed [7:0] b_1[0:COLUMNS-1];
  // Multiples of b_1 for the fabric, modulo 1024. Those of the signed digit have an offset, see
  // multiply_digits.
  localparam [9:0] SIGN = 10'd512;
  localparam [9:0] SIGN_OFFSET = -10'd168;
  reg [9:0] once[0:COLUMNS-1];
  reg [9:0] twice[0:COLUMNS-1];
  reg [9:0] thrice[0:COLUMNS-1];
  reg [9:0] sign_once[0:COLUMNS-1];
  reg [9:0] sign_minus_twice[0:COLUMNS-1];
  reg [9:0] sign_minus_once[0:COLUMNS-1];

  reg signed [15:0] product[0:ROWS-1][0:COLUMNS-1];
  reg signed [31:0] sum[0:ROWS-1][0:COLUMNS-1];
  reg signed [31:0] held[0:ROWS-1][0:COLUMNS-1];

  always @(posedge clk) begin
    if (!rst_n) begin
      {valid_1, valid_2, last_1, last_2, last_3} <= 5'b0;
    end else begin
      {valid_2, valid_1} <= {valid_1, step_valid};
      {last_3, last_2, last_1} <= {last_2, last_1, step_valid && step_last};
    end
    {first_2, first_1} <= {first_1, step_first};
  end

  task automatic hold_sums;
    reg [31:0] i, j;
    begin
      for (i = 0; i < ROWS; i = i + 1) for (j = 0; j < COLUMNS; j = j + 1) held[i][j] = sum[i][j];
    end
  endtask

  task automatic accumulate;
    reg [31:0] i, j;
    begin
      for (i = 0; i < ROWS; i = i + 1) begin
        for (j = 0; j < COLUMNS; j = j + 1) begin
          sum[i][j] = (first_2 ? 32'sd0 : sum[i][j]) +
              $signed({{16{product[i][j][15]}}, product[i][j]});
        end
      end
    end
  endtask

  task automatic multiply;
    reg [31:0] i, j;
    reg signed [7:0] x;
    begin
      for (i = 0; i < ROWS; i = i + 1) begin
        x = a_1[i];
        for (j = 0; j < COLUMNS; j = j + 1) product[i][j] = x * b_1[j];
      end
    end
  endtask

  // Each of the lower three multiples gets its sign inverted, which adds SIGN: nothing is negative, so
  // that no sum needs its sign extended. Modulo 2^16, SIGN * (1 + 4 + 16) + 64 * SIGN_OFFSET is 0. An
  // adder leaves out the bits that are final; so its first operand is the narrower one, which Yosys
  // feeds to the carry chain directly, and the selection of the other one shares the LUT of the sum.
  task automatic multiply_digits;
    reg [31:0] i, j;
    reg [1:0] digit_0, digit_1, digit_2, digit_3;
    reg [9:0] mask_0_1, mask_0_2, mask_0_3, mask_1_1, mask_1_2, mask_1_3;
    reg [9:0] mask_2_1, mask_2_2, mask_2_3, mask_3_1, mask_3_2, mask_3_3;
    reg [9:0] sign_none, multiple_1, multiple_2, multiple_3;
    reg [9:0] part_0, part_3;
    reg [10:0] part_1, part_2;
    begin
      for (i = 0; i < ROWS; i = i + 1) begin
        {digit_3, digit_2, digit_1, digit_0} = a_1[i];
        mask_0_1 = {10{digit_0 == 2'd1}};
        mask_0_2 = {10{digit_0 == 2'd2}};
        mask_0_3 = {10{digit_0 == 2'd3}};
        mask_1_1 = {10{digit_1 == 2'd1}};
        mask_1_2 = {10{digit_1 == 2'd2}};
        mask_1_3 = {10{digit_1 == 2'd3}};
        mask_2_1 = {10{digit_2 == 2'd1}};
        mask_2_2 = {10{digit_2 == 2'd2}};
        mask_2_3 = {10{digit_2 == 2'd3}};
        mask_3_1 = {10{digit_3 == 2'd1}};
        mask_3_2 = {10{digit_3 == 2'd2}};
        mask_3_3 = {10{digit_3 == 2'd3}};
        sign_none = digit_3 == 2'd0 ? SIGN_OFFSET : 10'd0;
        for (j = 0; j < COLUMNS; j = j + 1) begin
          part_0 = (once[j] & mask_0_1) | (twice[j] & mask_0_2) | (thrice[j] & mask_0_3);
          multiple_1 = (once[j] & mask_1_1) | (twice[j] & mask_1_2) | (thrice[j] & mask_1_3);
          multiple_2 = (once[j] & mask_2_1) | (twice[j] & mask_2_2) | (thrice[j] & mask_2_3);
          multiple_3 = (sign_once[j] & mask_3_1) | (sign_minus_twice[j] & mask_3_2)
              | (sign_minus_once[j] & mask_3_3) | sign_none;
          part_0 = part_0 ^ SIGN;
          part_1 = {3'd0, part_0[9:2]} + {1'b0, multiple_1 ^ SIGN};
          part_2 = {2'd0, part_1[10:2]} + {1'b0, multiple_2 ^ SIGN};
          part_3 = {1'd0, part_2[10:2]} + multiple_3;
          product[i][j] = {part_3, part_2[1:0], part_1[1:0], part_0[1:0]};
        end
      end
    end
  endtask

  task automatic load_operands;
    reg [31:0] i, j;
    reg [9:0] one, two;
    begin
      for (i = 0; i < ROWS; i = i + 1) a_1[i] = a[i*8+:8];
      for (j = 0; j < COLUMNS; j = j + 1) b_1[j] = b[j*8+:8];
      if (LUT != 0) begin
        for (j = 0; j < COLUMNS; j = j + 1) begin
          one = {{2{b[j*8+7]}}, b[j*8+:8]};
          two = {one[8:0], 1'b0};
          once[j] = one;
          twice[j] = two;
          thrice[j] = one + two;
          sign_once[j] = SIGN_OFFSET + one;
          sign_minus_twice[j] = SIGN_OFFSET - two;
          sign_minus_once[j] = SIGN_OFFSET - one;
        end
      end
    end
  endtask

  always @(posedge clk) begin : array
    reg [31:0] i;
    if (drain_read) begin
      for (i = 0; i < ROWS; i = i + 1) begin
        drain_sums[i*32+:32] <= held[i][drain_column] <<< (32 - SUM_WIDTH) >>> (32 - SUM_WIDTH);
      end
    end
    if (last_3) hold_sums;
    if (valid_2) accumulate;
    if (valid_1) begin
      if (LUT != 0) multiply_digits;
      else multiply;
    end
    if (step_valid) load_operands;
  end

endmodule

`default_nettype wire
