// SPDX-License-Identifier: Apache-2.0
// Rows of the representative queries: partial sums of every tile, statistics over the tiles, replay.
//
// Purpose: keeps what the tile engine gives of each row of each tile, {exponent, far, near}, and adds
//   it up as "Accumulation over tiles" of docs/prefill_engine.md says: running exponent E and sum L.
//   In the replay a row of a tile becomes its two scores, with 1 / L = r 2^-(24 + m):
//     rshift_round(sum * r, m - 20 + E - e), 32 fraction bits.
//   A row that saw no key has sums of 0, so its scores are 0 whatever L is.
// Protocol: rows and replayed rows come in any rhythm, but not at the same time. Tiles of a head come
//   in ascending order, that of block 0 with row_opens, and a row comes back in 4 cycles or later.
//   Replay of a row may begin 4 cycles after its last tile.
// Latency: replay to scores 8 cycles. Throughput: one row a cycle.
// Formats: far and near 24 bits, at most 2^23 together; E - e at most 2^17; L below 2^47.
`default_nettype none

module index_row_bank #(
    parameter ROW_ADDRESS_BITS = 9,      // bits of {head, row}
    parameter BLOCK_BITS       = 8,      // bits of a block number
    parameter PARTIALS         = 131072  // words of partial sums, address {head, row, block}
) (
    input wire clk,
    input wire rst_n,

    input wire                        row_valid,
    input wire                        row_opens,    // of block 0
    input wire [ROW_ADDRESS_BITS-1:0] row_address,
    input wire [      BLOCK_BITS-1:0] row_block,
    input wire [                15:0] row_exponent,
    input wire [                23:0] row_far,
    input wire [                23:0] row_near,

    input  wire                        replay_valid,
    input  wire [ROW_ADDRESS_BITS-1:0] replay_address,
    input  wire [      BLOCK_BITS-1:0] replay_block,
    output reg  [                39:0] far_score,
    output reg  [                39:0] near_score
);

  localparam ROWS = 1 << ROW_ADDRESS_BITS;
  localparam signed [15:0] NO_TILE = -16'sd32768;
  localparam ADDRESS_BITS = ROW_ADDRESS_BITS + BLOCK_BITS;

  (* ram_style = "ultra" *) reg [63:0] partials[0:PARTIALS-1];
  reg [62:0] statistics[0:ROWS-1];  // {E, L}

  // ---- statistics; both phases read them

  reg valid_1, valid_2, valid_3, opens_1;
  reg [ROW_ADDRESS_BITS-1:0] address_1, address_2, address_3;
  reg signed [15:0] exponent_1;
  reg [23:0] sum_1;
  reg [62:0] statistics_1;

  wire signed [15:0] old_exponent = opens_1 ? NO_TILE : $signed(statistics_1[62:47]);
  wire [46:0] old_sum = opens_1 ? 47'd0 : statistics_1[46:0];
  wire signed [15:0] new_exponent = exponent_1 > old_exponent ? exponent_1 : old_exponent;
  wire [16:0] keep = {new_exponent[15], new_exponent} - {old_exponent[15], old_exponent};
  wire [16:0] join_by = {new_exponent[15], new_exponent} - {exponent_1[15], exponent_1};

  reg [15:0] exponent_2, exponent_3;
  reg [5:0] keep_2, join_2;
  reg [46:0] kept_2;
  reg [35:0] joined_2;
  reg [46:0] sum_3;

  // At a distance of 48 nothing is left: old sums are below 2^47, new ones below 2^36.
  wire [47:0] keep_half = (48'd1 << keep_2) >> 1;
  wire [47:0] join_half = (48'd1 << join_2) >> 1;
  wire [48:0] kept = ({2'b0, kept_2} + {1'b0, keep_half}) >> keep_2;
  wire [48:0] joined = ({13'd0, joined_2} + {1'b0, join_half}) >> join_2;

  wire [ROW_ADDRESS_BITS-1:0] read_address = replay_valid ? replay_address : row_address;
  wire [ADDRESS_BITS-1:0] row_partial = {row_address, row_block};

  always @(posedge clk) begin
    if (!rst_n) {valid_3, valid_2, valid_1} <= 3'b0;
    else {valid_3, valid_2, valid_1} <= {valid_2, valid_1, row_valid};

    if (row_valid || replay_valid) statistics_1 <= statistics[read_address];
    if (row_valid) partials[row_partial] <= {row_exponent, row_far, row_near};
    opens_1 <= row_opens;
    exponent_1 <= row_exponent;
    sum_1 <= row_far + row_near;
    address_1 <= row_address;

    exponent_2 <= new_exponent;
    keep_2 <= keep > 17'd48 ? 6'd48 : keep[5:0];
    join_2 <= join_by > 17'd48 ? 6'd48 : join_by[5:0];
    kept_2 <= old_sum;
    joined_2 <= {sum_1, 12'd0};
    address_2 <= address_1;

    exponent_3 <= exponent_2;
    sum_3 <= kept[46:0] + joined[46:0];
    address_3 <= address_2;

    if (valid_3) statistics[address_3] <= {exponent_3, sum_3};
  end

  // ---- replay

  wire [5:0] m_2, m_6;
  wire [23:0] fraction_2;
  wire [24:0] inverse_6;
  wire [15:0] exponent_6;
  wire [ADDRESS_BITS-1:0] address_5;
  reg [63:0] partial_6;

  index_leading_one #(
      .WIDTH(47)
  ) leading (
      .clk(clk),
      .value(statistics_1[46:0]),
      .position(m_2),
      .fraction(fraction_2)
  );

  quadratic #(
      .FUNCTION(2)
  ) invert (
      .clk(clk),
      .u  (fraction_2),
      .y  (inverse_6)
  );

  delay_line #(
      .WIDTH (6),
      .CYCLES(4)
  ) position_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (m_2),
      .out  (m_6)
  );

  delay_line #(
      .WIDTH (16),
      .CYCLES(5)
  ) exponent_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (statistics_1[62:47]),
      .out  (exponent_6)
  );

  delay_line #(
      .WIDTH (ADDRESS_BITS),
      .CYCLES(5)
  ) address_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({replay_address, replay_block}),
      .out  (address_5)
  );

  wire [16:0] behind = {exponent_6[15], exponent_6} - {partial_6[63], partial_6[63:48]};
  wire [ 6:0] clamped = behind > 17'd48 ? 7'd48 : behind[6:0];

  reg [48:0] far_7, near_7;
  reg [6:0] shift_7;  // 7 to 75 for a row with a key

  function automatic [50:0] scaled(input [48:0] product, input [6:0] shift);
    reg [50:0] half;
    begin
      half   = (51'd1 << shift) >> 1;
      scaled = ({2'b0, product} + half) >> shift;
    end
  endfunction

  wire [50:0] far_scaled = scaled(far_7, shift_7);
  wire [50:0] near_scaled = scaled(near_7, shift_7);

  always @(posedge clk) begin
    partial_6 <= partials[address_5];
    far_7 <= partial_6[47:24] * inverse_6;
    near_7 <= partial_6[23:0] * inverse_6;
    shift_7 <= {1'b0, m_6} - 7'd20 + clamped;
    far_score <= far_scaled[39:0];
    near_score <= near_scaled[39:0];
  end

  wire unused = &{1'b0, kept[48:47], joined[48:47], far_scaled[50:40], near_scaled[50:40]};

endmodule

`default_nettype wire
