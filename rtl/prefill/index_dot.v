// SPDX-License-Identifier: Apache-2.0
// Scores of a pooled query against the pooled keys of the first blocks.
//
// Purpose: keeps the pooled keys of all blocks and a few pooled queries, and computes
//   score_b = sat32(rshift_round(q . k_b, scale_q + scale_k - 16)), 16 fraction bits, log2 units;
//   a negative shift goes left.
// Protocol: words come as index_pooling gives them, keys in ascending blocks from clear on; a query
//   goes to query_slot. start (one cycle, not while busy) computes the scores of a slot with keys 0 to
//   count - 1, which must be there; they leave in order and cannot be stopped.
// Latency: 6 cycles and WORDS = ceil(HEAD_DIM / LANES) from start to the first score.
// Throughput: one score in WORDS cycles.
// Formats: products of LANES pairs of 16 bits, sum 38 bits. Style: see index_pooling.
`default_nettype none

module index_dot #(
    parameter MAX_BLOCKS = 256,  // power of two, 2 to 2048
    parameter HEAD_DIM   = 128,  // channels: 16 to 256
    parameter LANES      = 64,   // products in a cycle: power of two, 1 to 256
    parameter SLOTS      = 6     // pooled queries: 1 to 16
) (
    input wire clk,
    input wire rst_n,
    input wire clear,

    input wire                       key_valid,
    input wire                       key_last,
    input wire        [LANES*16-1:0] key_word,
    input wire signed [         6:0] key_scale,
    input wire                       query_valid,
    input wire                       query_last,
    input wire        [LANES*16-1:0] query_word,
    input wire signed [         6:0] query_scale,
    input wire        [         3:0] query_slot,

    input  wire        start,
    input  wire [ 3:0] slot,
    input  wire [11:0] count,
    output reg         busy,

    output reg                score_valid,
    output reg                score_last,
    output reg  signed [31:0] score
);

  generate
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0) begin : g_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (HEAD_DIM < 16 || HEAD_DIM > 256) begin : g_head_dim
      illegal_parameter_HEAD_DIM stop ();
    end
    if (LANES < 1 || LANES > 256 || (LANES & (LANES - 1)) != 0) begin : g_lanes
      illegal_parameter_LANES stop ();
    end
    if (SLOTS < 1 || SLOTS > 16) begin : g_slots
      illegal_parameter_SLOTS stop ();
    end
  endgenerate

  localparam [31:0] WORDS = (HEAD_DIM + LANES - 1) / LANES;
  localparam WORD_BITS = WORDS > 1 ? $clog2(WORDS) : 1;
  localparam BLOCK_BITS = $clog2(MAX_BLOCKS);
  localparam KEY_BITS = BLOCK_BITS + WORD_BITS;
  localparam SLOT_BITS = SLOTS > 1 ? $clog2(SLOTS) : 1;
  localparam [31:0] GROUP = LANES < 8 ? LANES : 8;  // products added up in one stage
  localparam [31:0] GROUPS = LANES / GROUP;
  localparam [31:0] LAST_WORD = WORDS - 1;

  reg [LANES*16-1:0] keys[0:(1<<KEY_BITS)-1];
  reg [LANES*16-1:0] queries[0:(SLOTS<<WORD_BITS)-1];
  reg signed [6:0] key_scales[0:MAX_BLOCKS-1];
  reg signed [6:0] query_scales[0:SLOTS-1];

  // ---- storing

  reg [WORD_BITS-1:0] key_word_index, query_word_index;
  reg [BLOCK_BITS-1:0] key_block;

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      key_word_index <= {WORD_BITS{1'b0}};
      query_word_index <= {WORD_BITS{1'b0}};
      key_block <= {BLOCK_BITS{1'b0}};
    end else begin
      if (key_valid) key_word_index <= key_last ? {WORD_BITS{1'b0}} : key_word_index + 1'b1;
      if (key_valid && key_last) key_block <= key_block + 1'b1;
      if (query_valid) query_word_index <= query_last ? {WORD_BITS{1'b0}} : query_word_index + 1'b1;
    end
    if (key_valid) keys[{key_block, key_word_index}] <= key_word;
    if (key_valid && key_last) key_scales[key_block] <= key_scale;
    if (query_valid) queries[{query_slot[SLOT_BITS-1:0], query_word_index}] <= query_word;
    if (query_valid && query_last) query_scales[query_slot[SLOT_BITS-1:0]] <= query_scale;
  end

  // ---- reading: one pair of words a cycle

  reg [BLOCK_BITS-1:0] block;
  reg [WORD_BITS-1:0] word;
  reg [3:0] read_slot;
  reg [11:0] left;  // blocks, this one included
  wire word_last = word == LAST_WORD[WORD_BITS-1:0];

  reg [5:1] valid, opens, closes, ends;  // of the stages
  reg [LANES*16-1:0] key_1, query_1;
  reg signed [6:0] key_scale_1, query_scale_1;
  reg signed [8:0] shift_2, shift_3, shift_4, shift_5;

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      busy   <= 1'b0;
      valid  <= 5'd0;
      closes <= 5'd0;
    end else begin
      if (start) busy <= 1'b1;
      else if (word_last && left == 12'd1) busy <= 1'b0;
      valid  <= {valid[4:1], busy};
      closes <= {closes[4:1], busy && word_last};
    end
    opens <= {opens[4:1], word == {WORD_BITS{1'b0}}};
    ends  <= {ends[4:1], left == 12'd1};
    if (start) begin
      block <= {BLOCK_BITS{1'b0}};
      word <= {WORD_BITS{1'b0}};
      read_slot <= slot;
      left <= count;
    end else if (busy) begin
      word <= word_last ? {WORD_BITS{1'b0}} : word + 1'b1;
      if (word_last) begin
        block <= block + 1'b1;
        left  <= left - 12'd1;
      end
    end
    if (busy) begin
      key_1 <= keys[{block, word}];
      query_1 <= queries[{read_slot[SLOT_BITS-1:0], word}];
      key_scale_1 <= key_scales[block];
      query_scale_1 <= query_scales[read_slot[SLOT_BITS-1:0]];
    end
    shift_2 <= {{2{key_scale_1[6]}}, key_scale_1} + {{2{query_scale_1[6]}}, query_scale_1} - 9'sd16;
    shift_3 <= shift_2;
    shift_4 <= shift_3;
    shift_5 <= shift_4;
  end

  // ---- products and sums

  reg signed [31:0] product_2[0:LANES-1];
  reg signed [34:0] group_3[0:GROUPS-1];
  reg signed [37:0] sum_4, dot_5;

  task automatic multiply;
    reg [31:0] i;
    reg signed [15:0] a, b;
    begin
      for (i = 0; i < LANES; i = i + 1) begin
        a = key_1[i*16+:16];
        b = query_1[i*16+:16];
        product_2[i] = a * b;
      end
    end
  endtask

  task automatic add_groups;
    reg [31:0] i, g;
    reg signed [34:0] sum;
    begin
      for (g = 0; g < GROUPS; g = g + 1) begin
        sum = 35'sd0;
        for (i = 0; i < GROUP; i = i + 1)
        sum = sum + {{3{product_2[g*GROUP+i][31]}}, product_2[g*GROUP+i]};
        group_3[g] = sum;
      end
    end
  endtask

  task automatic add_word;
    reg [31:0] g;
    begin
      sum_4 = 38'sd0;
      for (g = 0; g < GROUPS; g = g + 1) sum_4 = sum_4 + {{3{group_3[g][34]}}, group_3[g]};
    end
  endtask

  always @(posedge clk) begin
    if (valid[4]) dot_5 <= (opens[4] ? 38'sd0 : dot_5) + sum_4;
    if (valid[3]) add_word;
    if (valid[2]) add_groups;
    if (valid[1]) multiply;
  end

  // ---- scaling

  function automatic signed [31:0] scaled(input signed [37:0] dot, input signed [8:0] shift);
    reg signed [55:0] wide, half, shifted;
    reg [3:0] left_by;
    begin
      wide = {{18{dot[37]}}, dot};
      left_by = 4'd0 - shift[3:0];
      // Beyond 38 bits to the right nothing is left; to the left it is at most 12.
      half = shift <= 9'sd0 ? 56'sd0 : shift > 9'sd38 ? 56'sd0 : (56'sd1 <<< shift[5:0]) >>> 1;
      if (shift <= 9'sd0) shifted = wide <<< left_by;
      else if (shift > 9'sd38) shifted = 56'sd0;
      else shifted = (wide + half) >>> shift[5:0];
      if (shifted > 56'sd2147483647) scaled = 32'sh7fffffff;
      else if (shifted < -56'sd2147483648) scaled = 32'sh80000000;
      else scaled = shifted[31:0];
    end
  endfunction

  always @(posedge clk) begin
    if (!rst_n || clear) begin
      score_valid <= 1'b0;
      score_last  <= 1'b0;
    end else begin
      score_valid <= closes[5];
      score_last  <= closes[5] && ends[5];
    end
    score <= scaled(dot_5, shift_5);
  end

  wire unused = &{1'b0, opens[5], valid[5], query_slot, read_slot};

endmodule

`default_nettype wire
