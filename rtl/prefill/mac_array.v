// SPDX-License-Identifier: Apache-2.0
// Output-stationary array of multiply-accumulators: sums of outer products of signed bytes.
//
// Purpose: sum[i][j] = sum over the steps of a task of a[i] * b[j], 32 bits, signed. The products
//   are exact and equal to the bit in both forms:
//     LUT = 0  one 8x8 product, for a DSP;
//     LUT = 1  with x = 16 xh + xl, xh signed and xl unsigned nibbles, and y alike:
//              xl yl + 16 (xh yl + xl yh) + 256 xh yh, four 4x4 products, for the fabric.
// Protocol: steps enter with step_valid in any rhythm. step_first restarts the sums, step_last copies
//   them into the holding registers, so that the next task may follow in the next cycle.
//   drain_read with drain_column puts one column of the holding registers on drain_sums, where it
//   stays until the next drain_read.
// Latency: the last step is sampled at one clock edge; three edges later the holding registers have
//   the sums, and a drain_read from the fourth on sees them. drain_read to drain_sums 1 cycle.
// Throughput: one step a cycle, ROWS * COLUMNS products; one column of ROWS sums a cycle.
// Limits: the sums cannot overflow in up to 2^17 - 1 steps, with any operands.
// Style: stages are loops over arrays with blocking assignments, last stage first, so each stage
//   reads what the stage before left in the previous cycle. A simulator runs such loops as vector
//   code. Nothing outside this block reads these arrays but through drain_sums.
`default_nettype none

module mac_array #(
    parameter ROWS         = 32,  // bytes of a column of A: 2 to 64
    parameter COLUMNS      = 32,  // bytes of a row of B: 2 to 64
    parameter LUT          = 0,   // form of the product: 0 for DSPs, 1 for the fabric
    parameter COLUMN_WIDTH = 5    // bits of a column index, enough for COLUMNS: 1 to 8
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
  endgenerate

  reg valid_1, valid_2, last_1, last_2, last_3, first_1, first_2;

  reg signed [7:0] a_1[0:ROWS-1];
  reg signed [7:0] b_1[0:COLUMNS-1];
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
      for (i = 0; i < ROWS; i = i + 1)
      for (j = 0; j < COLUMNS; j = j + 1)
      sum[i][j] = (first_2 ? 32'sd0 : sum[i][j]) + {{16{product[i][j][15]}}, product[i][j]};
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

  task automatic multiply_nibbles;
    reg [31:0] i, j;
    reg signed [7:0] xh, xl, yh, yl;
    reg signed [7:0] high_high, high_low, low_high;
    reg [7:0] low_low;
    reg signed [8:0] middle;
    begin
      for (i = 0; i < ROWS; i = i + 1) begin
        xh = {{4{a_1[i][7]}}, a_1[i][7:4]};
        xl = {4'd0, a_1[i][3:0]};
        for (j = 0; j < COLUMNS; j = j + 1) begin
          yh = {{4{b_1[j][7]}}, b_1[j][7:4]};
          yl = {4'd0, b_1[j][3:0]};
          high_high = xh * yh;
          high_low = xh * yl;
          low_high = xl * yh;
          low_low = xl * yl;
          middle = {high_low[7], high_low} + {low_high[7], low_high};
          product[i][j] = {high_high, low_low} + {{3{middle[8]}}, middle, 4'd0};
        end
      end
    end
  endtask

  task automatic load_operands;
    reg [31:0] i, j;
    begin
      for (i = 0; i < ROWS; i = i + 1) a_1[i] = a[i*8+:8];
      for (j = 0; j < COLUMNS; j = j + 1) b_1[j] = b[j*8+:8];
    end
  endtask

  always @(posedge clk) begin : array
    reg [31:0] i;
    if (drain_read) for (i = 0; i < ROWS; i = i + 1) drain_sums[i*32+:32] <= held[i][drain_column];
    if (last_3) hold_sums;
    if (valid_2) accumulate;
    if (valid_1) begin
      if (LUT != 0) multiply_nibbles;
      else multiply;
    end
    if (step_valid) load_operands;
  end

endmodule

`default_nettype wire
