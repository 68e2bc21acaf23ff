// SPDX-License-Identifier: Apache-2.0
// Intake of q/k packets: lengths, scales and the dot product of each query/key head.
//
// Purpose: takes one packet (record beat, then data beats) a head, passes the raw beats on to the
//   head's buffer, sums q.q, k.k and q.k on the way and turns them into scales and
//   dot = q.k of the unit vectors.
// Protocol: AXI-Stream in; packets of SLOTS heads form a bundle. take is high while the bundle at
//   write_bundle may be filled; bundle_written pulses when its last beat has passed, and
//   result_valid once per head some cycles later, in order.
// Latency: last beat to result 14 cycles. One beat a cycle.
`default_nettype none

module decode_qk #(
    parameter BUS_WIDTH  = 512,  // bits of a beat: 128, 256, 512
    parameter DATA_BEATS = 8,    // data beats of a packet, >= 1
    parameter SLOTS      = 4,    // heads of a bundle, >= 1
    parameter SLOT_WIDTH = 2,    // bits of a slot index
    parameter BEAT_WIDTH = 3     // bits of a data beat index
) (
    input wire clk,
    input wire rst_n,

    input  wire                 take,
    input  wire                 bypass,
    input  wire [BUS_WIDTH-1:0] s_axis_tdata,
    input  wire                 s_axis_tvalid,
    output wire                 s_axis_tready,

    output wire                  raw_write,  // s_axis_tdata is data beat raw_beat of raw_slot
    output wire [SLOT_WIDTH-1:0] raw_slot,
    output wire [BEAT_WIDTH-1:0] raw_beat,
    output wire                  bundle_written,

    output wire                  result_valid,
    output reg  [SLOT_WIDTH-1:0] result_slot,
    output wire [          24:0] q_root,
    output wire [           5:0] q_power,
    output wire [          24:0] k_root,
    output wire [           5:0] k_power,
    output reg signed [    24:0] dot,
    output wire [           1:0] overflow      // q, k given with a squared norm above 1.5
);

  localparam PAIRS = BUS_WIDTH / 32;
  localparam [31:0] LAST_BEAT = DATA_BEATS - 1;
  localparam [31:0] LAST_SLOT = SLOTS - 1;

  reg in_packet;
  reg [BEAT_WIDTH-1:0] beat;
  reg [SLOT_WIDTH-1:0] slot;
  reg [7:0] q_exponent, k_exponent;
  wire accepted = s_axis_tvalid && s_axis_tready;
  wire last_beat = in_packet && beat == LAST_BEAT[BEAT_WIDTH-1:0];
  wire last_slot = slot == LAST_SLOT[SLOT_WIDTH-1:0];

  assign s_axis_tready = take;
  assign raw_write = accepted && in_packet;
  assign raw_slot = slot;
  assign raw_beat = beat;
  assign bundle_written = accepted && last_beat && last_slot;

  always @(posedge clk) begin
    if (!rst_n) begin
      in_packet <= 1'b0;
      beat <= {BEAT_WIDTH{1'b0}};
      slot <= {SLOT_WIDTH{1'b0}};
    end else if (accepted) begin
      in_packet <= !last_beat;
      if (in_packet) beat <= last_beat ? {BEAT_WIDTH{1'b0}} : beat + 1'b1;
      if (last_beat) slot <= last_slot ? {SLOT_WIDTH{1'b0}} : slot + 1'b1;
    end
    if (accepted && !in_packet) {k_exponent, q_exponent} <= s_axis_tdata[15:0];
  end

  // Beat 1: the beat. Beat 2: its sums of products. Beat 3: the packet's sums.
  reg data_1, first_1, last_1, first_2, last_2, data_2, last_3;
  reg [BUS_WIDTH-1:0] beat_1;
  reg [37:0] qq_2, kk_2, qq_3, kk_3;
  reg signed [38:0] qk_2, qk_3;  // 128 * (-2^15)^2 is 2^37, which 38 bits cannot hold

  always @(posedge clk) begin : sums
    reg [31:0] n;
    reg [37:0] qq, kk;
    reg signed [38:0] qk;
    reg signed [15:0] q_element, k_element;
    reg signed [31:0] qq_product, kk_product, qk_product;
    if (!rst_n) {data_1, data_2, last_3} <= 3'b0;
    else begin
      data_1 <= raw_write;
      data_2 <= data_1;
      last_3 <= data_2 && last_2;
    end
    first_1 <= beat == {BEAT_WIDTH{1'b0}};
    last_1  <= last_beat;
    first_2 <= first_1;
    last_2  <= last_1;
    if (raw_write) beat_1 <= s_axis_tdata;
    if (data_1) begin
      qq = 38'd0;
      kk = 38'd0;
      qk = 39'sd0;
      for (n = 0; n < PAIRS; n = n + 1) begin
        q_element = beat_1[n*16+:16];
        k_element = beat_1[BUS_WIDTH/2+n*16+:16];
        qq_product = q_element * q_element;
        kk_product = k_element * k_element;
        qk_product = q_element * k_element;
        qq = qq + {6'b0, qq_product};
        kk = kk + {6'b0, kk_product};
        qk = qk + {{7{qk_product[31]}}, qk_product};
      end
      qq_2 <= qq;
      kk_2 <= kk;
      qk_2 <= qk;
    end
    if (data_2) begin
      qq_3 <= (first_2 ? 38'd0 : qq_3) + qq_2;
      kk_3 <= (first_2 ? 38'd0 : kk_3) + kk_2;
      qk_3 <= (first_2 ? 39'sd0 : qk_3) + qk_2;
    end
  end

  // Exponents keep up with the sums: the next packet's record comes at least one beat later.
  reg [7:0] q_exponent_1, k_exponent_1, q_exponent_2, k_exponent_2, q_exponent_3, k_exponent_3;
  always @(posedge clk) begin
    {k_exponent_1, q_exponent_1} <= {k_exponent, q_exponent};
    {k_exponent_2, q_exponent_2} <= {k_exponent_1, q_exponent_1};
    {k_exponent_3, q_exponent_3} <= {k_exponent_2, q_exponent_2};
  end

  wire normal_valid, k_normal_valid;
  wire [24:0] q_root_7, k_root_7;
  wire [5:0] q_power_7, k_power_7;
  wire [1:0] overflow_7;

  decode_normalise q_normalise (
      .clk(clk),
      .rst_n(rst_n),
      .valid_in(last_3),
      .squares(qq_3),
      .exponent(q_exponent_3),
      .bypass(bypass),
      .valid_out(normal_valid),
      .root(q_root_7),
      .power(q_power_7),
      .overflow(overflow_7[0])
  );

  decode_normalise k_normalise (
      .clk(clk),
      .rst_n(rst_n),
      .valid_in(last_3),
      .squares(kk_3),
      .exponent(k_exponent_3),
      .bypass(bypass),
      .valid_out(k_normal_valid),
      .root(k_root_7),
      .power(k_power_7),
      .overflow(overflow_7[1])
  );

  // Dot product of the unit vectors, four cycles behind the scales.
  wire signed [38:0] qk_7;

  delay_line #(
      .WIDTH (39),
      .CYCLES(7)
  ) qk_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (qk_3),
      .out  (qk_7)
  );

  localparam signed [63:0] PARTIAL_MAX = 64'sd137438953471;
  localparam signed [63:0] PARTIAL_MIN = -64'sd137438953472;
  localparam signed [63:0] DOT_MAX = 64'sd16777215;
  localparam signed [63:0] DOT_MIN = -64'sd16777216;

  reg signed [63:0] product_8, product_10;
  reg signed [37:0] partial_9;
  reg [5:0] q_power_8, k_power_8, k_power_9, k_power_10;
  reg [24:0] k_root_8, k_root_9;
  wire [5:0] partial_shift = q_power_8 + 6'd6;
  wire signed [63:0] partial_round = (product_8 + (64'sd1 <<< (partial_shift - 6'd1)))
      >>> partial_shift;
  wire [5:0] dot_shift = k_power_10 + 6'd20;
  wire signed [63:0] dot_round = (product_10 + (64'sd1 <<< (dot_shift - 6'd1))) >>> dot_shift;

  always @(posedge clk) begin
    product_8 <= qk_7 * $signed({1'b0, q_root_7});
    q_power_8 <= q_power_7;
    k_power_8 <= k_power_7;
    k_root_8  <= k_root_7;
    partial_9 <= partial_round > PARTIAL_MAX ? PARTIAL_MAX[37:0]
        : partial_round < PARTIAL_MIN ? PARTIAL_MIN[37:0] : partial_round[37:0];
    k_power_9 <= k_power_8;
    k_root_9  <= k_root_8;
    product_10 <= partial_9 * $signed({1'b0, k_root_9});
    k_power_10 <= k_power_9;
    dot <= dot_round > DOT_MAX ? DOT_MAX[24:0] : dot_round < DOT_MIN ? DOT_MIN[24:0] : dot_round[24:0];
  end

  delay_line #(
      .WIDTH (64),
      .CYCLES(4)
  ) scale_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({overflow_7, q_root_7, q_power_7, k_root_7, k_power_7}),
      .out  ({overflow, q_root, q_power, k_root, k_power})
  );

  delay_line #(
      .WIDTH (1),
      .CYCLES(4),
      .RESET (1)
  ) result_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (normal_valid),
      .out  (result_valid)
  );

  always @(posedge clk)
    if (!rst_n) result_slot <= {SLOT_WIDTH{1'b0}};
    else if (result_valid)
      result_slot <= result_slot == LAST_SLOT[SLOT_WIDTH-1:0] ? {SLOT_WIDTH{1'b0}}
          : result_slot + 1'b1;

  wire unused = &{1'b0, k_normal_valid};

endmodule

`default_nettype wire
