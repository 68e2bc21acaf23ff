// SPDX-License-Identifier: Apache-2.0
// Elementary function of u in [0, 1) by piecewise quadratics.
//
// Purpose: 2^-u, ln(1+u), 1/(1+u), (1+u)^-1/2 or (2(1+u))^-1/2, chosen by FUNCTION; within 0.754
//   units of the last place.
// Protocol: free running, no handshake; carry a valid bit beside it.
// Latency 4 cycles, one result a cycle.
// Formula: segment = u[23:17], t = u[16:0] - 2^16,
//   y = (c0 + ((c1 + (c2 t >> 18)) t >> 18) + 8) >> 4, as fastdelta.reference.functions.
`default_nettype none

module quadratic #(
    parameter FUNCTION = 0  // code of the function in quadratic_rom, 0 to 4
) (
    input  wire        clk,
    input  wire [23:0] u,    // argument, 24 fraction bits
    output reg  [24:0] y     // result, 24 fraction bits
);

  wire [71:0] coefficients;

  quadratic_rom #(
      .FUNCTION(FUNCTION)
  ) rom (
      .clk(clk),
      .segment(u[23:17]),
      .coefficients(coefficients)
  );

  wire signed [17:0] c2 = coefficients[71:54];
  wire signed [23:0] c1 = coefficients[53:30];
  wire signed [29:0] c0 = coefficients[29:0];

  reg signed [16:0] t_1, t_2;
  reg signed [23:0] slope_2;
  reg signed [29:0] c0_2, c0_3;
  reg signed [40:0] product_3;

  wire signed [34:0] curvature = c2 * t_1;
  wire signed [29:0] sum = c0_3 + {{7{product_3[40]}}, product_3[40:18]} + 30'sd8;

  always @(posedge clk) begin
    t_1 <= {~u[16], u[15:0]};  // u[16:0] - 2^16
    t_2 <= t_1;
    slope_2 <= c1 + {{7{curvature[34]}}, curvature[34:18]};
    c0_2 <= c0;
    product_3 <= slope_2 * t_2;
    c0_3 <= c0_2;
    y <= sum[28:4];
  end

  wire unused = &{1'b0, curvature[17:0], product_3[17:0], sum[29], sum[3:0]};

endmodule

`default_nettype wire
