// SPDX-License-Identifier: Apache-2.0
// index_threshold is cycle for cycle its MyHDL twin selector.
//
// Proved: from any state that both have they go on to equal states, with equal outputs, for any
//   inputs, legal or not.
// How: induction over all registers.
// Assumed: registers that reset leaves alone hold the same in both at first.
`default_nettype none

module index_threshold_twin_checks #(
    parameter VALUE_BITS = 3,
    parameter LANES = 2,
    parameter ADDRESS_BITS = 2,
    parameter COUNT_BITS = 4,
    parameter LANE_COUNT_BITS = 2
) (
    input wire clk,
    input wire rst_n,

    input wire                        start,
    input wire [                 1:0] mode,
    input wire [      COUNT_BITS-1:0] wanted,
    input wire [                16:0] gamma,
    input wire [                39:0] total,
    input wire [    ADDRESS_BITS-1:0] last_word,
    input wire [           LANES-1:0] last_lanes,
    input wire                        done,
    input wire [      COUNT_BITS-1:0] count,
    input wire                        read,
    input wire [    ADDRESS_BITS-1:0] address,
    input wire [LANES*VALUE_BITS-1:0] values,
    input wire                        mark_valid,
    input wire [    ADDRESS_BITS-1:0] mark_address,
    input wire [           LANES-1:0] mark_bits,

    input wire [                 2:0] state,
    input wire                        valid_1,
    input wire                        valid_2,
    input wire                        valid_3,
    input wire                        last_1,
    input wire                        last_2,
    input wire                        last_3,
    input wire                        decide,
    input wire                        first_1,
    input wire                        opens_2,
    input wire                        opens_3,
    input wire [    ADDRESS_BITS-1:0] address_1,
    input wire [           LANES-1:0] in_2,
    input wire [LANES*VALUE_BITS-1:0] values_2,
    input wire [                39:0] word_sum_3,
    input wire [ LANE_COUNT_BITS-1:0] word_count_3,
    input wire [                39:0] pass_sum,
    input wire [      COUNT_BITS-1:0] pass_count,
    input wire [      VALUE_BITS-1:0] threshold,
    input wire [      VALUE_BITS-1:0] bit_mask,
    input wire [                56:0] target,
    input wire [                39:0] sum,
    input wire [      COUNT_BITS-1:0] ties
);

  wire twin_done, twin_read, twin_mark_valid;
  wire [COUNT_BITS-1:0] twin_count;
  wire [ADDRESS_BITS-1:0] twin_address, twin_mark_address;
  wire [LANES-1:0] twin_mark_bits;
  selector_twin twin (
      .clk         (clk),
      .rst_n       (rst_n),
      .start       (start),
      .mode        (mode),
      .wanted      (wanted),
      .gamma       (gamma),
      .total       (total),
      .last_word   (last_word),
      .last_lanes  (last_lanes),
      .done        (twin_done),
      .count       (twin_count),
      .read        (twin_read),
      .address     (twin_address),
      .values      (values),
      .mark_valid  (twin_mark_valid),
      .mark_address(twin_mark_address),
      .mark_bits   (twin_mark_bits)
  );

  wire controls_are_equal =
      {state, read, done, mark_valid, valid_1, valid_2, valid_3, last_1, last_2, last_3, decide} ==
      {twin.state, twin_read, twin_done, twin_mark_valid, twin.valid_1, twin.valid_2, twin.valid_3,
       twin.last_1, twin.last_2, twin.last_3, twin.decide};
  wire places_are_equal = {address, address_1, first_1, opens_2, opens_3, mark_address, mark_bits} ==
      {twin_address, twin.position_1, twin.first_1, twin.first_2, twin.first_3, twin_mark_address,
       twin_mark_bits};
  wire sums_are_equal = {in_2, values_2, word_sum_3, word_count_3, pass_sum, pass_count} ==
      {twin.keep_lane1_later_inside, twin.keep_lane0_later_inside, twin.keep_lane1_later_value,
       twin.keep_lane0_later_value, twin.word_sum, twin.word_count, twin.pass_sum, twin.pass_count};
  wire results_are_equal = {threshold, bit_mask, target, sum, ties, count} ==
      {twin.threshold, twin.mask, twin.target, twin.gathered, twin.ties, twin_count};

  reg has_past = 1'b0;
  always @(posedge clk) begin
    has_past <= 1'b1;
    if (!has_past)
      assume (controls_are_equal && places_are_equal && sums_are_equal && results_are_equal);
  end

  always @(posedge clk)
    if (has_past) begin
      assert (controls_are_equal);
      assert (places_are_equal);
      assert (sums_are_equal);
      assert (results_are_equal);
    end

  always @(posedge clk) cover (has_past && $past(rst_n) && done && mode == 2'd0 && count == 1);

endmodule

bind index_threshold index_threshold_twin_checks #(
    .VALUE_BITS(VALUE_BITS),
    .LANES(LANES),
    .ADDRESS_BITS(ADDRESS_BITS),
    .COUNT_BITS(COUNT_BITS),
    .LANE_COUNT_BITS(LANE_COUNT_BITS)
) checks (.*);

`default_nettype wire
