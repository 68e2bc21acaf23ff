// SPDX-License-Identifier: Apache-2.0
// Broadcast of one query/key head: q_i, k_i and the pending kp_i, one key index a cycle.
//
// Purpose: buffers raw mantissas of BUNDLES tokens' packets, scales them to unit vectors while they
//   are read (x = clamp(rshift_round(m * root, 7 + power))), and keeps the last token's k of every
//   context and head as kp. Holds the dot product q.k of each bundle too.
// Protocol: a row enters with row_valid; kp follows one cycle later, q and k three cycles later.
//   With row_store the row's k replaces kp once it is out. Rows of one head are at least four
//   cycles apart.
// Latency 1 (kp) and 3 (q, k) cycles. One row a cycle.
`default_nettype none

module decode_unit_vector #(
    parameter BUS_WIDTH     = 512,  // bits of a buffered beat: 128, 256, 512
    parameter ROWS          = 512,  // pending k elements: contexts * heads of this slot * HEAD_DIM
    parameter BEAT_WIDTH    = 3,    // bits of a beat index within a packet
    parameter ROW_WIDTH     = 9,    // bits of a pending k address
    parameter PAIR_WIDTH    = 4     // bits of an index within a beat
) (
    input wire clk,
    input wire rst_n,

    input wire                  raw_write,
    input wire [           1:0] raw_bundle,
    input wire [BEAT_WIDTH-1:0] raw_beat,
    input wire [ BUS_WIDTH-1:0] raw_data,  // low half q, high half k

    input wire                  scale_write,
    input wire [           1:0] scale_bundle,
    input wire [          24:0] scale_q_root,
    input wire [           5:0] scale_q_power,
    input wire [          24:0] scale_k_root,
    input wire [           5:0] scale_k_power,
    input wire [          24:0] scale_dot,

    input wire                  row_valid,
    input wire                  row_store,
    input wire [           1:0] row_bundle,
    input wire [BEAT_WIDTH-1:0] row_beat,
    input wire [PAIR_WIDTH-1:0] row_pair,
    input wire [ ROW_WIDTH-1:0] row_pending,

    output reg signed [17:0] kp,
    output reg signed [17:0] q,
    output reg signed [17:0] k,
    output wire [24:0] dot  // of row_bundle
);

  localparam signed [48:0] LIMIT = 49'sd131071;
  localparam signed [48:0] LIMIT_NEGATIVE = -49'sd131071;

  localparam BUNDLES = 4;

  reg [BUS_WIDTH-1:0] raw_memory[0:(BUNDLES<<BEAT_WIDTH)-1];
  reg [24:0] q_root[0:BUNDLES-1];
  reg [24:0] k_root[0:BUNDLES-1];
  reg [5:0] q_power[0:BUNDLES-1];
  reg [5:0] k_power[0:BUNDLES-1];
  reg [24:0] dots[0:BUNDLES-1];
  reg signed [17:0] pending_memory[0:ROWS-1];
  reg [BUS_WIDTH-1:0] raw_1;
  reg [PAIR_WIDTH-1:0] pair_1;
  reg [24:0] q_root_1, k_root_1;
  reg [5:0] q_power_1, k_power_1, q_power_2, k_power_2;
  reg [ROW_WIDTH-1:0] pending_1, pending_2, pending_3;
  reg valid_1, valid_2, store_1, store_2, store_3;
  reg signed [41:0] q_product_2, k_product_2;

  // A cleared context multiplies kp by zero; it has to be a number for that.
  initial begin : clear_pending
    integer n;
    for (n = 0; n < ROWS; n = n + 1) pending_memory[n] = 18'sd0;
  end

  function automatic signed [17:0] scaled(input signed [41:0] product, input [5:0] power);
    reg signed [48:0] extended, rounded;
    reg [5:0] count;
    begin
      count = power + 6'd7;
      extended = {{7{product[41]}}, product};
      rounded = (extended + (49'sd1 <<< (count - 6'd1))) >>> count;
      scaled = rounded > LIMIT ? LIMIT[17:0] : rounded < LIMIT_NEGATIVE ? LIMIT_NEGATIVE[17:0] : rounded[17:0];
    end
  endfunction

  assign dot = dots[row_bundle];

  wire signed [15:0] q_mantissa = raw_1[{1'b0, pair_1, 4'b0}+:16];
  wire signed [15:0] k_mantissa = raw_1[{1'b1, pair_1, 4'b0}+:16];

  always @(posedge clk) begin
    if (raw_write) raw_memory[{raw_bundle, raw_beat}] <= raw_data;
    if (scale_write) begin
      q_root[scale_bundle]  <= scale_q_root;
      k_root[scale_bundle]  <= scale_k_root;
      q_power[scale_bundle] <= scale_q_power;
      k_power[scale_bundle] <= scale_k_power;
      dots[scale_bundle]    <= scale_dot;
    end
    if (store_3) pending_memory[pending_3] <= k;

    if (!rst_n) {valid_1, valid_2, store_1, store_2, store_3} <= 5'b0;
    else begin
      valid_1 <= row_valid;
      valid_2 <= valid_1;
      store_1 <= row_valid && row_store;
      store_2 <= store_1;
      store_3 <= store_2;
    end
    if (row_valid) begin
      raw_1 <= raw_memory[{row_bundle, row_beat}];
      kp <= pending_memory[row_pending];
      pair_1 <= row_pair;
      q_root_1 <= q_root[row_bundle];
      k_root_1 <= k_root[row_bundle];
      q_power_1 <= q_power[row_bundle];
      k_power_1 <= k_power[row_bundle];
      pending_1 <= row_pending;
    end
    if (valid_1) begin
      q_product_2 <= q_mantissa * $signed({1'b0, q_root_1});
      k_product_2 <= k_mantissa * $signed({1'b0, k_root_1});
      q_power_2 <= q_power_1;
      k_power_2 <= k_power_1;
    end
    pending_2 <= pending_1;
    pending_3 <= pending_2;
    if (valid_2) begin
      q <= scaled(q_product_2, q_power_2);
      k <= scaled(k_product_2, k_power_2);
    end
  end

endmodule

`default_nettype wire
