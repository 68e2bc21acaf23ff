// SPDX-License-Identifier: Apache-2.0
// Shares of a total: values divided by their sum, 24 fraction bits.
//
// Purpose: 1 / total = r 2^-(24 + m) from `quadratic`, x' = x 2^(31 - m) (rounded if m > 31),
//   share = rshift_round(x' r, 31); as shares of fastdelta.reference.index_model.
// Protocol: load (one cycle) takes the total, at least 1; ready falls with the next cycle and comes
//   back with the reciprocal, which stays until the next load. Values are taken while ready, none
//   larger than the total; shares follow.
// Latency: load to ready 6 cycles, value to share 3 cycles; one value a cycle.
`default_nettype none

module index_divider #(
    parameter WIDTH = 40  // bits of values and total: 25 to 47
) (
    input wire clk,
    input wire rst_n,

    input  wire             load,
    input  wire [WIDTH-1:0] total,
    output reg              ready,

    input  wire             value_valid,
    input  wire             value_last,
    input  wire [WIDTH-1:0] value,
    output wire             share_valid,
    output wire             share_last,
    output reg  [     24:0] share
);

  generate
    if (WIDTH < 25 || WIDTH > 47) begin : g_width
      illegal_parameter_WIDTH stop ();
    end
  endgenerate

  wire [5:0] position_1, position_5;
  wire [23:0] fraction_1;
  wire [24:0] inverse_5;
  wire loaded_5;

  index_leading_one #(
      .WIDTH(WIDTH)
  ) leading (
      .clk(clk),
      .value(total),
      .position(position_1),
      .fraction(fraction_1)
  );

  quadratic #(
      .FUNCTION(2)
  ) invert (
      .clk(clk),
      .u  (fraction_1),
      .y  (inverse_5)
  );

  delay_line #(
      .WIDTH (6),
      .CYCLES(4)
  ) position_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (position_1),
      .out  (position_5)
  );

  delay_line #(
      .WIDTH (1),
      .CYCLES(5),
      .RESET (1)
  ) load_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (load),
      .out  (loaded_5)
  );

  reg [5:0] m;
  reg [24:0] r;

  always @(posedge clk) begin
    if (!rst_n || load) ready <= 1'b0;
    else if (loaded_5) ready <= 1'b1;
    if (loaded_5) begin
      m <= position_5;
      r <= inverse_5;
    end
  end

  // A value is at most the total, so aligned it is at most 2^32.
  wire [71:0] wide = {{(72 - WIDTH) {1'b0}}, value};
  wire [ 4:0] right = m[4:0] - 5'd31;  // 0 to 15
  wire [71:0] half = (72'd1 << right) >> 1;
  wire [71:0] aligned = m >= 6'd31 ? (wide + half) >> right : wide << (6'd31 - m);
  reg  [32:0] aligned_1;
  reg  [57:0] product_2;
  wire [57:0] rounded = product_2 + 58'h40000000;

  always @(posedge clk) begin
    aligned_1 <= aligned[32:0];
    product_2 <= aligned_1 * r;
    share <= rounded[55:31];
  end

  delay_line #(
      .WIDTH (2),
      .CYCLES(3),
      .RESET (1)
  ) valid_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({value_valid, value_last}),
      .out  ({share_valid, share_last})
  );

  wire unused = &{1'b0, aligned[71:33], rounded[57:56], rounded[30:0]};

endmodule

`default_nettype wire
