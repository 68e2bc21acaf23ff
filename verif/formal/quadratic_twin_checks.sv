// SPDX-License-Identifier: Apache-2.0
// Each stage of quadratic with FUNCTION = 0 is that of the MyHDL twin exp2_negative.
//
// Proved: coefficients and offset, slope, product and result are equal for all values of the
//   registers before; the constants wait for their stage.
// How: induction, one step: each stage of the twin gets the registers of the cell itself. Both so
//   have the same products, which may be anything in the proof.
// Assumed: nothing.
`default_nettype none

module quadratic_twin_checks (
    input wire        clk,
    input wire [23:0] u,
    input wire [24:0] y,

    input wire signed [16:0] t_1,
    input wire signed [16:0] t_2,
    input wire signed [17:0] c2,
    input wire signed [23:0] c1,
    input wire signed [29:0] c0,
    input wire signed [29:0] c0_2,
    input wire signed [29:0] c0_3,
    input wire signed [23:0] slope_2,
    input wire signed [40:0] product_3
);

  wire signed [16:0] twin_t;
  wire signed [29:0] twin_c0;
  wire signed [23:0] twin_c1, twin_slope;
  wire signed [17:0] twin_c2;
  wire signed [40:0] twin_product;
  wire [24:0] twin_y;

  exp2_table_twin stage_1 (
      .clk(clk),
      .u  (u),
      .t  (twin_t),
      .c_0(twin_c0),
      .c_1(twin_c1),
      .c_2(twin_c2)
  );
  exp2_slope_twin stage_2 (
      .clk  (clk),
      .t    (t_1),
      .c_1  (c1),
      .c_2  (c2),
      .slope(twin_slope)
  );
  exp2_product_twin stage_3 (
      .clk    (clk),
      .t      (t_2),
      .slope  (slope_2),
      .product(twin_product)
  );
  exp2_sum_twin stage_4 (
      .clk    (clk),
      .c_0    (c0_3),
      .product(product_3),
      .y      (twin_y)
  );

  reg has_past = 1'b0;
  always @(posedge clk) has_past <= 1'b1;

  always @(posedge clk) begin
    if (has_past) begin
      assert (t_1 == twin_t);
      assert ({c2, c1, c0} == {twin_c2, twin_c1, twin_c0});
      assert ({t_2, c0_2, c0_3} == $past({t_1, c0, c0_2}));
      assert (slope_2 == twin_slope);
      assert (product_3 == twin_product);
      assert (y == twin_y);
    end
    cover (has_past && t_1 == -17'sd1 && c2 == 18'sd15701);
  end

endmodule

bind quadratic quadratic_twin_checks checks (.*);

`default_nettype wire
