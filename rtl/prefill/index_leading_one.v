// SPDX-License-Identifier: Apache-2.0
// Position of the leading one and the 24 bits behind it: value = 2^position (1 + fraction).
//
// Purpose: arguments of `quadratic` for reciprocals and logarithms, as normalise of
//   fastdelta.reference.functions; the fraction is truncated. A value of 0 gives 0 and 0.
// Protocol: free running. Latency 1 cycle, one value a cycle.
`default_nettype none

module index_leading_one #(
    parameter WIDTH = 40  // bits of the value: 1 to 64
) (
    input  wire             clk,
    input  wire [WIDTH-1:0] value,
    output reg  [      5:0] position,
    output reg  [     23:0] fraction
);

  generate
    if (WIDTH < 1 || WIDTH > 64) begin : g_width
      illegal_parameter_WIDTH stop ();
    end
  endgenerate

  reg [63:0] aligned;
  reg [ 5:0] missing;  // zeros before the leading one

  always @* begin
    aligned = 64'd0;
    aligned[WIDTH-1:0] = value;
    missing = 6'd0;
    if (aligned[63:32] == 32'd0) begin
      aligned = aligned << 32;
      missing[5] = 1'b1;
    end
    if (aligned[63:48] == 16'd0) begin
      aligned = aligned << 16;
      missing[4] = 1'b1;
    end
    if (aligned[63:56] == 8'd0) begin
      aligned = aligned << 8;
      missing[3] = 1'b1;
    end
    if (aligned[63:60] == 4'd0) begin
      aligned = aligned << 4;
      missing[2] = 1'b1;
    end
    if (aligned[63:62] == 2'd0) begin
      aligned = aligned << 2;
      missing[1] = 1'b1;
    end
    if (!aligned[63]) begin
      aligned = aligned << 1;
      missing[0] = 1'b1;
    end
  end

  always @(posedge clk) begin
    position <= ~missing;
    fraction <= aligned[62:39];
  end

  wire unused = &{1'b0, aligned[63], aligned[38:0]};

endmodule

`default_nettype wire
