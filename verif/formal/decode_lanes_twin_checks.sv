// SPDX-License-Identifier: Apache-2.0
// Rounding and saturation of every lane of decode_lanes are those of the MyHDL twins.
//
// Proved: the old state is shifted and rounded as by rounded_shift; the update is rounded and added,
//   and the sum held in 27 bits, as by saturated_sum; a row says that it saturated when any twin of
//   its lanes does. For all values of the registers before.
// How: induction, one step: the twins get the registers of the lanes themselves.
// Assumed: nothing.
`default_nettype none

module decode_lanes_twin_checks #(
    parameter HEAD_DIM = 2
) (
    input wire clk,
    input wire rst_n,

    input wire               valid_1,
    input wire               valid_2,
    input wire        [ 4:0] shift_1,
    input wire signed [26:0] stored       [0:HEAD_DIM-1],
    input wire signed [26:0] kept         [0:HEAD_DIM-1],
    input wire signed [44:0] outer        [0:HEAD_DIM-1],
    input wire signed [26:0] updated      [0:HEAD_DIM-1],
    input wire               row_saturated
);

  reg has_past = 1'b0;
  always @(posedge clk) has_past <= 1'b1;

  wire [HEAD_DIM-1:0] clamped;

  genvar j;
  generate
    for (j = 0; j < HEAD_DIM; j = j + 1) begin : g_lane
      wire signed [26:0] shifted, sum;
      rounded_shift_twin shift_twin (
          .clk   (clk),
          .value (stored[j]),
          .shift (shift_1),
          .result(shifted)
      );
      saturated_sum_twin sum_twin (
          .clk    (clk),
          .kept   (kept[j]),
          .outer  (outer[j]),
          .result (sum),
          .clamped(clamped[j])
      );
      always @(posedge clk) begin
        if (has_past && $past(valid_1)) assert (kept[j] == shifted);
        if (has_past && $past(valid_2)) assert (updated[j] == sum);
      end
    end
  endgenerate

  always @(posedge clk) begin
    if (has_past) assert (row_saturated == ($past(valid_2 && rst_n) && clamped != 0));
    cover (has_past && row_saturated && clamped == 1 && updated[1] == -27'sd1);
  end

endmodule

bind decode_lanes decode_lanes_twin_checks #(.HEAD_DIM(HEAD_DIM)) checks (.*);

`default_nettype wire
