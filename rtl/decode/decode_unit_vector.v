// SPDX-License-Identifier: Apache-2.0
// Broadcast of one query/key head: q_i, k_i and the pending kp_i, one key index a cycle.
//
// Purpose: buffers raw mantissas of BUNDLES tokens' packets, scales them to unit vectors while they
//   are read (x = clamp(rshift_round(m * root, 7 + power))), and keeps the last token's k of every
//   context and head as kp.
// Protocol: a row enters with row_valid; kp follows one cycle later, q and k three cycles later.
//   With row_store the row's k replaces kp once it is out. Rows of one head are at least four
//   cycles apart.
// Latency 1 (kp) and 3 (q, k) cycles. One row a cycle.
`default_nettype none

module decode_unit_vector #(
    parameter BUS_WIDTH     = 512,  // bits of a buffered beat: 128, 256, 512
    parameter BEATS         = 32,   // beats buffered: bundles * data beats of a packet
    parameter ROWS          = 512,  // pending k elements: contexts * heads of this slot * HEAD_DIM
    parameter BEAT_WIDTH    = 5,    // bits of a beat address
    parameter ROW_WIDTH     = 9,    // bits of a pending k address
    parameter PAIR_WIDTH    = 4     // bits of an index within a beat
) (
    input wire clk,
    input wire rst_n,

    input wire                  raw_write,
    input wire [BEAT_WIDTH-1:0] raw_write_address,
    input wire [ BUS_WIDTH-1:0] raw_write_data,  // low half q, high half k

    input wire                  row_valid,
    input wire                  row_store,
    input wire [BEAT_WIDTH-1:0] row_beat,
    input wire [PAIR_WIDTH-1:0] row_pair,
    input wire [ ROW_WIDTH-1:0] row_pending,
    input wire [          24:0] q_root,
    input wire [           5:0] q_power,
    input wire [          24:0] k_root,
    input wire [           5:0] k_power,

    output reg signed [17:0] kp,
    output reg signed [17:0] q,
    output reg signed [17:0] k
);

  localparam signed [48:0] LIMIT = 49'sd131071;
  localparam signed [48:0] LIMIT_NEGATIVE = -49'sd131071;

  reg [BUS_WIDTH-1:0] raw_memory[0:BEATS-1];
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

  wire signed [15:0] q_mantissa = raw_1[{1'b0, pair_1, 4'b0}+:16];
  wire signed [15:0] k_mantissa = raw_1[{1'b1, pair_1, 4'b0}+:16];

  always @(posedge clk) begin
    if (raw_write) raw_memory[raw_write_address] <= raw_write_data;
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
      raw_1 <= raw_memory[row_beat];
      kp <= pending_memory[row_pending];
      pair_1 <= row_pair;
      q_root_1 <= q_root;
      k_root_1 <= k_root;
      q_power_1 <= q_power;
      k_power_1 <= k_power;
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
