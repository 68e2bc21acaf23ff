// SPDX-License-Identifier: Apache-2.0
// Running exponent and sum of every row of every slot, one row of one tile a cycle.
//
// Purpose: E' = max(E, e), L' = rshift_round(L, E' - E) + rshift_round(s << 12, E' - e), and the two
//   shifts by which the accumulators of the row follow; docs/prefill_engine.md, "Accumulation over
//   tiles". A shift of 48 means that nothing remains.
// Protocol: s_row without handshake; the first tile of a slot ignores what the slot held. A read of
//   a sum must not meet a tile of the same slot.
// Latency: s_row to shift_valid 2 cycles; sum_address to sum 1 cycle. Throughput: one row a cycle.
// Limits: two tiles of a slot are at least 3 cycles apart. L has 61 bits: 39 of a row sum, 12 guard
//   bits, 1,024 tiles at full weight.
`default_nettype none

module row_statistics #(
    parameter ADDRESS_WIDTH = 11  // bits of {slot, row}
) (
    input wire clk,
    input wire rst_n,

    input wire                     s_row_valid,
    input wire                     s_row_first,
    input wire [ADDRESS_WIDTH-1:0] s_row_address,
    input wire [             15:0] s_row_exponent,  // signed
    input wire [             38:0] s_row_sum,

    output reg                      shift_valid,
    output wire [ADDRESS_WIDTH-1:0] shift_address,
    output reg  [              5:0] shift_keep,     // of the accumulator
    output reg  [              5:0] shift_join,     // of the tile

    input  wire                     sum_read,
    input  wire [ADDRESS_WIDTH-1:0] sum_address,
    output reg  [             60:0] sum
);

  localparam [15:0] NO_TILE = 16'h8000;

  reg [15:0] exponents[0:(1<<ADDRESS_WIDTH)-1];
  reg [60:0] sums[0:(1<<ADDRESS_WIDTH)-1];

  function automatic [5:0] clamped(input signed [16:0] difference);
    clamped = difference > 17'sd48 ? 6'd48 : difference[5:0];
  endfunction

  // Bits above the result fall away where it is 0 by the shift.
  function automatic [60:0] rounded(input [60:0] value, input [5:0] shift);
    reg [61:0] half, raised;
    begin
      half = (62'd1 << shift) >> 1;
      raised = {1'b0, value} + half;
      raised = raised >> shift;
      rounded = shift >= 6'd48 ? 61'd0 : raised[60:0];
    end
  endfunction

  reg valid_1, first_1;
  reg [ADDRESS_WIDTH-1:0] address_1, address_2;
  reg [15:0] new_1, old_1;
  reg [38:0] tile_sum_1, tile_sum_2;
  reg [60:0] old_sum_1, old_sum_2;
  reg [15:0] exponent_2;

  assign shift_address = address_2;

  wire signed [15:0] held = first_1 ? NO_TILE : old_1;
  wire signed [15:0] fresh = new_1;
  wire signed [15:0] greater = held > fresh ? held : fresh;
  wire signed [16:0] keep = {greater[15], greater} - {held[15], held};
  wire signed [16:0] join_shift = {greater[15], greater} - {fresh[15], fresh};

  always @(posedge clk) begin
    if (!rst_n) {shift_valid, valid_1} <= 2'd0;
    else {shift_valid, valid_1} <= {valid_1, s_row_valid};
  end

  always @(posedge clk) begin
    if (s_row_valid) begin
      old_1 <= exponents[s_row_address];
      old_sum_1 <= sums[s_row_address];
    end
    first_1 <= s_row_first;
    address_1 <= s_row_address;
    new_1 <= s_row_exponent;
    tile_sum_1 <= s_row_sum;

    address_2 <= address_1;
    exponent_2 <= greater;
    old_sum_2 <= first_1 ? 61'd0 : old_sum_1;
    tile_sum_2 <= tile_sum_1;
    shift_keep <= first_1 ? 6'd48 : clamped(keep);  // exponents near NO_TILE keep nothing either
    shift_join <= clamped(join_shift);

    if (shift_valid) begin
      exponents[address_2] <= exponent_2;
      sums[address_2] <= rounded(old_sum_2, shift_keep) +
          rounded({10'd0, tile_sum_2, 12'd0}, shift_join);
    end
    if (sum_read) sum <= sums[sum_address];
  end

endmodule

`default_nettype wire
