// SPDX-License-Identifier: Apache-2.0
// Block scores of a head: vertical by KV block, slash by distance, from the rows of its tiles.
//
// Purpose: takes the row stream of the tile engine into banks of rows; the replay of a head adds up
//   the rows of each tile, far for keys up to the row's own place in its block, near for the others:
//     vertical[b] = far_b + near_b,   slash[N - 1 - b] = far_b + near_(b-1).
// Protocol: rows come as the tile engine gives them, one a cycle at most, tiles of a head ascending.
//   start (one cycle) replays the head on head when all its tiles are in, at least 4 cycles after the
//   last row; done is high for one cycle when both arrays and totals are complete. They stay until the
//   next start. Reads as index_score_memory.
// Latency: N * BLOCK / REPLAY_ROWS + 12 cycles from start to done.
// Formats: 32 fraction bits; scores and totals have 40 bits.
`default_nettype none

module index_scores #(
    parameter BLOCK       = 128,  // rows of a tile: 8 to 128, a multiple of REPLAY_ROWS
    parameter MAX_BLOCKS  = 256,  // power of two, 2 to 2048
    parameter MAX_GROUP   = 4,    // 1 to 8
    parameter REPLAY_ROWS = 2,    // rows replayed in a cycle: 1, 2, 4 or 8
    parameter SCORE_LANES = 8     // scores of a word: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input wire        row_valid,
    input wire [11:0] row_block,
    input wire [ 2:0] row_head,
    input wire [ 6:0] row_index,
    input wire [15:0] row_exponent,
    input wire [23:0] row_far,
    input wire [23:0] row_near,

    input  wire        start,
    input  wire [ 2:0] head,
    input  wire [11:0] blocks,
    output reg         done,
    output reg  [39:0] vertical_total,
    output reg  [39:0] slash_total,

    input  wire                      vertical_read,
    input  wire [              11:0] vertical_word,
    output wire [SCORE_LANES*40-1:0] vertical,
    input  wire                      slash_read,
    input  wire [              11:0] slash_word,
    output wire [SCORE_LANES*40-1:0] slash
);

  generate
    if (BLOCK < 8 || BLOCK > 128 || BLOCK % 8 != 0) begin : g_block
      illegal_parameter_BLOCK stop ();
    end
    if (MAX_GROUP < 1 || MAX_GROUP > 8) begin : g_group
      illegal_parameter_MAX_GROUP stop ();
    end
    if (REPLAY_ROWS != 1 && REPLAY_ROWS != 2 && REPLAY_ROWS != 4 && REPLAY_ROWS != 8)
    begin : g_replay_rows
      illegal_parameter_REPLAY_ROWS stop ();
    end
  endgenerate

  localparam BLOCK_BITS = $clog2(MAX_BLOCKS);
  localparam BANK_BITS = $clog2(REPLAY_ROWS);
  localparam BANK_ROWS = BLOCK / REPLAY_ROWS;
  localparam ROW_BITS = BANK_ROWS > 1 ? $clog2(BANK_ROWS) : 1;
  localparam HEAD_BITS = $clog2(MAX_GROUP);
  localparam ADDRESS_BITS = HEAD_BITS + ROW_BITS;
  localparam PARTIALS = MAX_GROUP << (ROW_BITS + BLOCK_BITS);

  reg running;
  reg [2:0] replay_head;
  reg [11:0] replay_block;
  reg [6:0] replay_row;  // within a bank

  wire [6:0] bank_row = row_index >> BANK_BITS;
  wire [6:0] row_bank = row_index & (REPLAY_ROWS[6:0] - 7'd1);
  wire [9:0] row_address = ({7'd0, row_head} << ROW_BITS) | {3'd0, bank_row};
  wire [9:0] replay_address = ({7'd0, replay_head} << ROW_BITS) | {3'd0, replay_row};
  wire replay_ends_block = {25'd0, replay_row} == BANK_ROWS - 1;
  wire replay_opens_block = replay_row == 7'd0;
  wire replay_ends = replay_ends_block && replay_block == blocks - 12'd1;

  wire [REPLAY_ROWS*40-1:0] far, near;

  genvar n;
  generate
    for (n = 0; n < REPLAY_ROWS; n = n + 1) begin : g_bank
      localparam [31:0] N = n;
      index_row_bank #(
          .ROW_ADDRESS_BITS(ADDRESS_BITS),
          .BLOCK_BITS(BLOCK_BITS),
          .PARTIALS(PARTIALS)
      ) bank (
          .clk(clk),
          .rst_n(rst_n),
          .row_valid(row_valid && row_bank == N[6:0]),
          .row_opens(row_block == 12'd0),
          .row_address(row_address[ADDRESS_BITS-1:0]),
          .row_block(row_block[BLOCK_BITS-1:0]),
          .row_exponent(row_exponent),
          .row_far(row_far),
          .row_near(row_near),
          .replay_valid(running),
          .replay_address(replay_address[ADDRESS_BITS-1:0]),
          .replay_block(replay_block[BLOCK_BITS-1:0]),
          .far_score(far[n*40+:40]),
          .near_score(near[n*40+:40])
      );
    end
  endgenerate

  wire valid_8, opens_8, closes_8, ends_8;
  wire [11:0] block_8;

  delay_line #(
      .WIDTH (4),
      .CYCLES(8),
      .RESET (1)
  ) flags_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({running, replay_opens_block, running && replay_ends_block, running && replay_ends}),
      .out  ({valid_8, opens_8, closes_8, ends_8})
  );

  delay_line #(
      .WIDTH (12),
      .CYCLES(8)
  ) block_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (replay_block),
      .out  (block_8)
  );

  reg [39:0] far_sum, near_sum;  // of the rows of one cycle
  always @* begin : add_banks
    reg [31:0] i;
    far_sum  = 40'd0;
    near_sum = 40'd0;
    for (i = 0; i < REPLAY_ROWS; i = i + 1) begin
      far_sum  = far_sum + far[i*40+:40];
      near_sum = near_sum + near[i*40+:40];
    end
  end

  reg closes_9, closes_10, ends_9, ends_10, ends_11, opens_9, valid_9;
  reg [39:0] far_9, near_9, far_10, near_10, near_before;
  reg [11:0] block_9, block_10;

  wire [39:0] vertical_10 = far_10 + near_10;
  wire [39:0] slash_10 = far_10 + (block_10 == 12'd0 ? 40'd0 : near_before);
  wire [11:0] distance_10 = blocks - 12'd1 - block_10;

  always @(posedge clk) begin
    if (!rst_n) begin
      running <= 1'b0;
      {closes_10, closes_9, ends_11, ends_10, ends_9, done} <= 6'b0;
      valid_9 <= 1'b0;
    end else begin
      if (start) running <= 1'b1;
      else if (replay_ends) running <= 1'b0;
      valid_9 <= valid_8;
      {closes_10, closes_9} <= {closes_9, closes_8};
      {done, ends_11, ends_10, ends_9} <= {ends_11, ends_10, ends_9, ends_8};
    end

    if (start) begin
      replay_head  <= head;
      replay_block <= 12'd0;
      replay_row   <= 7'd0;
    end else if (running) begin
      replay_row <= replay_ends_block ? 7'd0 : replay_row + 7'd1;
      if (replay_ends_block) replay_block <= replay_block + 12'd1;
    end

    opens_9 <= opens_8;
    block_9 <= block_8;
    far_9   <= far_sum;
    near_9  <= near_sum;
    if (valid_9) begin
      far_10  <= opens_9 ? far_9 : far_10 + far_9;
      near_10 <= opens_9 ? near_9 : near_10 + near_9;
    end
    block_10 <= block_9;
    if (closes_10) near_before <= near_10;

    if (start) begin
      vertical_total <= 40'd0;
      slash_total <= 40'd0;
    end else if (closes_10) begin
      vertical_total <= vertical_total + vertical_10;
      slash_total <= slash_total + slash_10;
    end
  end

  index_score_memory #(
      .WIDTH  (40),
      .ENTRIES(MAX_BLOCKS),
      .LANES  (SCORE_LANES)
  ) vertical_memory (
      .clk(clk),
      .write(closes_10),
      .entry(block_10),
      .value(vertical_10),
      .read(vertical_read),
      .word(vertical_word),
      .data(vertical)
  );

  index_score_memory #(
      .WIDTH  (40),
      .ENTRIES(MAX_BLOCKS),
      .LANES  (SCORE_LANES)
  ) slash_memory (
      .clk(clk),
      .write(closes_10),
      .entry(distance_10),
      .value(slash_10),
      .read(slash_read),
      .word(slash_word),
      .data(slash)
  );

  wire unused = &{1'b0, row_address, replay_address, row_block};

endmodule

`default_nettype wire
