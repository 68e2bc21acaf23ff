// SPDX-License-Identifier: Apache-2.0
// Means of the keys, or of the queries, of each block, from the beats of the block as they pass by.
//
// Purpose: "Pooled scores" of docs/prefill_engine.md. The block begins with words of BLOCK bytes that
//   scale its tokens, then comes a word for each channel:
//     keys (QUERIES = 0): one word of shifts;  aligned = k8 << (15 - shift), x = 15
//     queries (1): multipliers low and high, exponents;
//       aligned = rshift_round(q8 * multiplier, exponent - x), x the least exponent of the tokens
//       whose multiplier is not 0, and 0 without one.
//   mean = rshift_round(sum * r, 24) with 1 / tokens = r 2^-(24 + m), then
//   mantissa = rshift_round(mean, g), g = max(0, bits of the largest magnitude - 14), and
//   scale = x + m - g.
// Protocol: beats come in any rhythm, at most one a cycle, one block after the other without a gap;
//   there is no way to stop them. tokens belongs to the block of the present beat; beat_ends marks the
//   last beat of a block. The mantissas of a block leave in words of LANES, channel 0 in the low bits,
//   the last word padded with zeros; scale comes with the last word. clear forgets a begun block.
// Latency: last beat to last word HEAD_DIM + 12 cycles. Throughput: one beat a cycle.
// Style: stages as in mac_array; what leaves the block of the stages is assigned without blocking, and
//   first.
`default_nettype none

module index_pooling #(
    parameter QUERIES   = 0,    // 0 keys, 1 queries
    parameter BLOCK     = 128,  // tokens of a block: 8 to 128, a multiple of the bytes of a beat
    parameter HEAD_DIM  = 128,  // channels: 16 to 256
    parameter BUS_WIDTH = 512,  // bits of a beat: power of two, 64 to 512
    parameter LANES     = 64    // mantissas of a word: power of two, 1 to 256
) (
    input wire clk,
    input wire rst_n,

    input  wire                 clear,
    input  wire                 beat_valid,
    input  wire [BUS_WIDTH-1:0] beat,
    input  wire [          7:0] tokens,      // 1 to BLOCK
    output wire                 beat_ends,

    output reg                       word_valid,
    output reg                       word_last,
    output reg        [LANES*16-1:0] word,
    output reg signed [         6:0] scale
);

  generate
    if (QUERIES != 0 && QUERIES != 1) begin : g_queries
      illegal_parameter_QUERIES stop ();
    end
    if (BUS_WIDTH < 64 || BUS_WIDTH > 512 || (BUS_WIDTH & (BUS_WIDTH - 1)) != 0) begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
    if (BLOCK < 8 || BLOCK > 128 || BLOCK % (BUS_WIDTH / 8) != 0) begin : g_block
      illegal_parameter_BLOCK stop ();
    end
    if (HEAD_DIM < 16 || HEAD_DIM > 256) begin : g_head_dim
      illegal_parameter_HEAD_DIM stop ();
    end
    if (LANES < 1 || LANES > 256 || (LANES & (LANES - 1)) != 0) begin : g_lanes
      illegal_parameter_LANES stop ();
    end
  endgenerate

  localparam [31:0] BYTES = BUS_WIDTH / 8;
  localparam [31:0] PARTS = BLOCK / BYTES;  // beats of a word: 1 to 16
  localparam [31:0] HEADER = QUERIES != 0 ? 3 : 1;
  localparam [31:0] GROUPS = BYTES / 8;
  localparam [31:0] LAST_PART = PARTS - 1;
  localparam [31:0] LAST_WORD = HEADER + HEAD_DIM - 1;
  localparam [31:0] LAST_CHANNEL = HEAD_DIM - 1;
  localparam PART_BITS = PARTS > 1 ? $clog2(PARTS) : 1;
  localparam MEAN_BITS = $clog2(2 * HEAD_DIM);
  localparam [5:0] NO_EXPONENT = 6'd63;

  // ---- where the beat is in its block

  reg [3:0] part;
  reg [8:0] block_word;
  wire part_last = part == LAST_PART[3:0];
  wire word_is_last = block_word == LAST_WORD[8:0];

  assign beat_ends = beat_valid && part_last && word_is_last;

  always @(posedge clk)
    if (!rst_n || clear) begin
      part <= 4'd0;
      block_word <= 9'd0;
    end else if (beat_valid) begin
      part <= part_last ? 4'd0 : part + 4'd1;
      if (part_last) block_word <= word_is_last ? 9'd0 : block_word + 9'd1;
    end

  // ---- stages 1 to 9 beside the numbers

  reg [1:0] header_1;  // which header word, from 0
  reg is_header_1, exponents_2, exponents_open_2;
  reg [3:0] part_1;
  reg [7:1] valid;  // a beat of a channel
  reg [8:1] closes;  // ... the last one of its channel
  reg [8:1] opens, starts, ends;  // first of its channel, in the first or the last channel

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      valid <= 7'd0;
      closes <= 8'd0;
      is_header_1 <= 1'b0;
      exponents_2 <= 1'b0;
    end else begin
      valid <= {valid[6:1], beat_valid && {23'd0, block_word} >= HEADER};
      closes <= {closes[7:1], beat_valid && {23'd0, block_word} >= HEADER && part_last};
      is_header_1 <= beat_valid && {23'd0, block_word} < HEADER;
      exponents_2 <= is_header_1 && header_1 == 2'd2;
    end
    opens <= {opens[7:1], part == 4'd0};
    starts <= {starts[7:1], {23'd0, block_word} == HEADER};
    ends <= {ends[7:1], word_is_last};
    header_1 <= block_word[1:0];
    part_1 <= part;
    exponents_open_2 <= part_1 == 4'd0;
  end

  // ---- numbers

  reg [BUS_WIDTH-1:0] beat_1, beat_2;
  reg [BUS_WIDTH-1:0] low[0:PARTS-1];  // low bytes of the multipliers, or shifts
  reg [BUS_WIDTH-1:0] high[0:PARTS-1];
  reg [BUS_WIDTH-1:0] exponents[0:PARTS-1];
  reg [BUS_WIDTH-1:0] low_2, high_2, exponent_2;  // of the tokens of the beat
  reg signed [24:0] aligned_3[0:BYTES-1];
  reg [4:0] down_3[0:BYTES-1];
  reg signed [24:0] aligned_4[0:BYTES-1];
  reg signed [30:0] group_5[0:GROUPS-1];
  reg signed [30:0] sum_6, channel_7;
  reg [5:0] beat_lowest_2, lowest;

  wire [PART_BITS-1:0] table_part = part_1[PART_BITS-1:0];
  wire [BUS_WIDTH-1:0] low_1 = low[table_part];
  wire [BUS_WIDTH-1:0] high_1 = high[table_part];
  wire [BUS_WIDTH-1:0] factors_1 = low_1 | high_1;  // a byte of 0 is a multiplier of 0

  reg [5:0] beat_lowest;  // of the beat's exponents
  always @* begin : find_lowest
    reg [31:0] i;
    beat_lowest = NO_EXPONENT;
    for (i = 0; i < BYTES; i = i + 1)
    if (factors_1[i*8+:8] != 8'd0 && beat_1[i*8+:6] < beat_lowest) beat_lowest = beat_1[i*8+:6];
  end

  always @(posedge clk) begin
    beat_1 <= beat;
    beat_2 <= beat_1;
    low_2 <= low_1;
    high_2 <= high_1;
    exponent_2 <= exponents[table_part];
    beat_lowest_2 <= beat_lowest;
    if (is_header_1 && header_1 == 2'd0) low[table_part] <= beat_1;
    if (is_header_1 && header_1 == 2'd1) high[table_part] <= beat_1;
    if (is_header_1 && header_1 == 2'd2) exponents[table_part] <= beat_1;
    if (exponents_2 && (exponents_open_2 || beat_lowest_2 < lowest)) lowest <= beat_lowest_2;
  end

  task automatic align_keys;
    reg [31:0] i;
    reg signed [24:0] wide;
    begin
      for (i = 0; i < BYTES; i = i + 1) begin
        wide = {{17{beat_2[i*8+7]}}, beat_2[i*8+:8]};
        aligned_3[i] = wide <<< (4'd15 - low_2[i*8+:4]);
      end
    end
  endtask

  task automatic multiply_queries;
    reg [31:0] i;
    reg [5:0] down;
    reg signed [24:0] wide, multiplier;
    begin
      for (i = 0; i < BYTES; i = i + 1) begin
        wide = {{17{beat_2[i*8+7]}}, beat_2[i*8+:8]};
        multiplier = {9'd0, high_2[i*8+:8], low_2[i*8+:8]};
        aligned_3[i] = wide * multiplier;
        down = exponent_2[i*8+:6] - lowest;
        down_3[i] = down > 6'd24 ? 5'd24 : down[4:0];  // products are below 2^23: nothing is left
      end
    end
  endtask

  task automatic shift_down;
    reg [31:0] i;
    reg signed [24:0] half;
    begin
      for (i = 0; i < BYTES; i = i + 1) begin
        half = (25'sd1 <<< down_3[i]) >>> 1;
        if (down_3[i] == 5'd24) half = 25'sh0800000;  // the shifted one is the sign bit
        aligned_4[i] = QUERIES != 0 ? (aligned_3[i] + half) >>> down_3[i] : aligned_3[i];
      end
    end
  endtask

  task automatic add_groups;
    reg [31:0] i, g;
    reg signed [30:0] sum;
    begin
      for (g = 0; g < GROUPS; g = g + 1) begin
        sum = 31'sd0;
        for (i = 0; i < 8; i = i + 1) sum = sum + {{6{aligned_4[g*8+i][24]}}, aligned_4[g*8+i]};
        group_5[g] = sum;
      end
    end
  endtask

  task automatic add_beat;
    reg [31:0] g;
    begin
      sum_6 = 31'sd0;
      for (g = 0; g < GROUPS; g = g + 1) sum_6 = sum_6 + group_5[g];
    end
  endtask

  always @(posedge clk) begin
    if (valid[6]) channel_7 <= (opens[6] ? 31'sd0 : channel_7) + sum_6;
    if (valid[5]) add_beat;
    if (valid[4]) add_groups;
    if (valid[3]) shift_down;
    if (valid[2]) begin
      if (QUERIES != 0) multiply_queries;
      else align_keys;
    end
  end

  // ---- the number of tokens goes along, so that its reciprocal meets the sums in stage 7

  reg [7:0] tokens_1;
  wire [5:0] position_2;
  wire [23:0] fraction_2;
  reg [23:0] fraction_3;
  wire [24:0] inverse_7;
  reg [6:0] scale_3;  // x + m of the block, from its last beat on

  index_leading_one #(
      .WIDTH(8)
  ) leading (
      .clk(clk),
      .value(tokens_1),
      .position(position_2),
      .fraction(fraction_2)
  );

  quadratic #(
      .FUNCTION(2)
  ) invert (
      .clk(clk),
      .u  (fraction_3),
      .y  (inverse_7)
  );

  wire [5:0] x_2 = QUERIES == 0 ? 6'd15 : lowest == NO_EXPONENT ? 6'd0 : lowest;

  always @(posedge clk) begin
    tokens_1   <= tokens;
    fraction_3 <= fraction_2;
    if (valid[2] && closes[2] && ends[2]) scale_3 <= {1'b0, x_2} + {1'b0, position_2};
  end

  // ---- means, into one of two buffers; their magnitudes give the shift of the block

  reg signed [31:0] means[0:2*HEAD_DIM-1];
  reg signed [56:0] product_8;
  reg write_half;
  reg [7:0] write_channel;
  reg [30:0] magnitudes;  // or of the magnitudes of the block
  reg block_9;  // the block is complete

  wire signed [56:0] channel_wide = {{26{channel_7[30]}}, channel_7};
  wire signed [56:0] inverse_wide = {32'd0, inverse_7};
  wire signed [56:0] rounded_8 = product_8 + 57'sd8388608;
  wire signed [31:0] mean_8 = rounded_8[55:24];
  wire [30:0] magnitude_8 = mean_8[31] ? ~mean_8[30:0] + 31'd1 : mean_8[30:0];
  wire [8:0] write_address = write_half ? HEAD_DIM[8:0] + {1'b0, write_channel} : {1'b0, write_channel};

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      block_9 <= 1'b0;
      write_half <= 1'b0;
      write_channel <= 8'd0;
    end else begin
      block_9 <= closes[8] && ends[8];
      if (closes[8]) begin
        write_channel <= ends[8] ? 8'd0 : write_channel + 8'd1;
        if (ends[8]) write_half <= !write_half;
      end
    end
    product_8 <= channel_wide * inverse_wide;
    if (closes[8]) begin
      means[write_address[MEAN_BITS-1:0]] <= mean_8;
      magnitudes <= (starts[8] ? 31'd0 : magnitudes) | magnitude_8;
    end
  end

  // ---- mantissas of the complete block while the next one is added up

  wire [5:0] highest_10;
  wire [23:0] fraction_10;
  reg block_10, passing, read_half, gather_valid;
  reg [7:0] read_channel, gather_channel;
  reg [4:0] drop;  // g
  reg [6:0] pass_scale;
  reg signed [31:0] mean;

  index_leading_one #(
      .WIDTH(31)
  ) highest (
      .clk(clk),
      .value(magnitudes),
      .position(highest_10),
      .fraction(fraction_10)
  );

  wire [5:0] excess_10 = highest_10 >= 6'd14 ? highest_10 - 6'd13 : 6'd0;
  wire read_ends = read_channel == LAST_CHANNEL[7:0];
  wire [8:0] read_address = read_half ? HEAD_DIM[8:0] + {1'b0, read_channel} : {1'b0, read_channel};
  wire signed [32:0] half_step = (33'sd1 <<< drop) >>> 1;
  wire signed [32:0] mantissa = ({mean[31], mean} + half_step) >>> drop;
  wire [7:0] lane = gather_channel & (LANES[7:0] - 8'd1);
  wire gather_ends = gather_channel == LAST_CHANNEL[7:0];

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      block_10 <= 1'b0;
      passing <= 1'b0;
      gather_valid <= 1'b0;
      word_valid <= 1'b0;
    end else begin
      block_10 <= block_9;
      if (block_10) passing <= 1'b1;
      else if (read_ends) passing <= 1'b0;
      gather_valid <= passing;
      word_valid <= gather_valid && (gather_ends || {24'd0, lane} == LANES - 1);
    end
    if (block_10) begin
      drop <= excess_10[4:0];
      pass_scale <= scale_3 - {1'b0, excess_10};
      read_half <= !write_half;  // the one that was finished
      read_channel <= 8'd0;
    end else if (passing) read_channel <= read_channel + 8'd1;
    if (passing) mean <= means[read_address[MEAN_BITS-1:0]];
    gather_channel <= read_channel;
    if (gather_valid) begin
      if (lane == 8'd0) word <= {LANES * 16{1'b0}};
      word[lane*16+:16] <= mantissa[15:0];
    end
    word_last <= gather_ends;
    scale <= pass_scale;
  end

  wire unused = &{
    1'b0, rounded_8[56], rounded_8[23:0], fraction_10, mantissa[32:16], excess_10[5], valid[7],
    opens[8:7], write_address, read_address, part_1, valid[1]
  };

endmodule

`default_nettype wire
