// SPDX-License-Identifier: Apache-2.0
// Every product of mac_array is that of the MyHDL twin nibble_product.
//
// Proved: whenever a step passes, each product register holds the product of its row's and its
//   column's byte one cycle later, for all values of both. Of the form for the fabric, LUT = 1: for
//   the plain product of the other form solvers take minutes, and simulation goes through all pairs.
// How: induction, one step: the twin gets the operand registers of the array itself.
// Assumed: nothing.
`default_nettype none

module mac_array_twin_checks #(
    parameter ROWS    = 2,
    parameter COLUMNS = 2
) (
    input wire clk,

    input wire               valid_1,
    input wire signed [ 7:0] a_1    [0:ROWS-1],
    input wire signed [ 7:0] b_1    [0:COLUMNS-1],
    input wire signed [15:0] product[0:ROWS-1][0:COLUMNS-1]
);

  reg has_past = 1'b0;
  always @(posedge clk) has_past <= 1'b1;

  genvar i, j;
  generate
    for (i = 0; i < ROWS; i = i + 1) begin : g_row
      for (j = 0; j < COLUMNS; j = j + 1) begin : g_column
        wire signed [15:0] expected;
        nibble_product_twin twin (
            .clk    (clk),
            .a      (a_1[i]),
            .b      (b_1[j]),
            .product(expected)
        );
        always @(posedge clk) if (has_past && $past(valid_1)) assert (product[i][j] == expected);
      end
    end
  endgenerate

  always @(posedge clk) cover (has_past && $past(valid_1) && product[0][0] == -16'sd128 * 16'sd127);

endmodule

bind mac_array mac_array_twin_checks #(
    .ROWS(ROWS),
    .COLUMNS(COLUMNS)
) checks (.*);

`default_nettype wire
