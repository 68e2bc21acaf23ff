// SPDX-License-Identifier: Apache-2.0
// Every product of mac_array is that of the MyHDL twin digit_product.
//
// Proved: one cycle after a step's operands, each product register holds the product of its row's and
//   its column's byte, for all values of both. Of the form for the fabric, LUT = 1: for the plain
//   product of the other form solvers take minutes, and simulation goes through all pairs.
// How: induction, one step: the twin gets the operand registers of the array itself; that the
//   multiples which the array keeps beside them are those of the same bytes is proved with it.
// Assumed: nothing.
`default_nettype none

module mac_array_twin_checks #(
    parameter ROWS    = 2,
    parameter COLUMNS = 2
) (
    input wire clk,

    input wire               step_valid,
    input wire               valid_1,
    input wire signed [ 7:0] a_1             [0:ROWS-1],
    input wire signed [ 7:0] b_1             [0:COLUMNS-1],
    input wire        [ 9:0] once            [0:COLUMNS-1],
    input wire        [ 9:0] twice           [0:COLUMNS-1],
    input wire        [ 9:0] thrice          [0:COLUMNS-1],
    input wire        [ 9:0] sign_once       [0:COLUMNS-1],
    input wire        [ 9:0] sign_minus_twice[0:COLUMNS-1],
    input wire        [ 9:0] sign_minus_once [0:COLUMNS-1],
    input wire signed [15:0] product         [0:ROWS-1][0:COLUMNS-1]
);

  localparam signed [9:0] SIGN_OFFSET = -10'sd168;

  reg loaded = 1'b0, multiplied = 1'b0;
  always @(posedge clk) begin
    loaded <= loaded || step_valid;
    multiplied <= loaded && valid_1;
  end

  genvar i, j;
  generate
    for (j = 0; j < COLUMNS; j = j + 1) begin : g_multiples
      wire signed [9:0] b = 10'(b_1[j]);
      always @(posedge clk) begin
        if (loaded) begin
          assert (once[j] == b);
          assert (twice[j] == 10'(b + b));
          assert (thrice[j] == 10'(b + b + b));
          assert (sign_once[j] == 10'(SIGN_OFFSET + b));
          assert (sign_minus_twice[j] == 10'(SIGN_OFFSET - b - b));
          assert (sign_minus_once[j] == 10'(SIGN_OFFSET - b));
        end
      end
    end
    for (i = 0; i < ROWS; i = i + 1) begin : g_row
      for (j = 0; j < COLUMNS; j = j + 1) begin : g_column
        wire signed [15:0] expected;
        digit_product_twin twin (
            .clk    (clk),
            .a      (a_1[i]),
            .b      (b_1[j]),
            .product(expected)
        );
        always @(posedge clk) if (multiplied) assert (product[i][j] == expected);
      end
    end
  endgenerate

  always @(posedge clk) cover (multiplied && product[0][0] == -16'sd128 * 16'sd127);

endmodule

bind mac_array mac_array_twin_checks #(
    .ROWS(ROWS),
    .COLUMNS(COLUMNS)
) checks (.*);

`default_nettype wire
