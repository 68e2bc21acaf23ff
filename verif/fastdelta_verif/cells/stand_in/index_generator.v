// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for the index generator with the same ports, for tests of the kernel around it. It makes
// the list of dense attention. In the index mode it asks for statistics of every block and for every
// query block before that; its divergence of head 0 is then the sum of the rows' fields, of the low
// words of the beats it saw, of its parameters, and of the padding.

`default_nettype none

module index_generator #(
    parameter BLOCK      = 128,
    parameter HEAD_DIM   = 128,
    parameter MAX_BLOCKS = 256,
    parameter MAX_GROUP   = 8,
    parameter SLOTS      = 16,
    parameter BUS_WIDTH   = 512,
    parameter MAP_ENTRIES = 32896
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        busy,
    output reg         done,
    input  wire        mode_dense,
    input  wire [16:0] gamma,
    input  wire [24:0] divergence_limit,
    input  wire [11:0] min_blocks,
    input  wire [11:0] max_blocks,
    input  wire [11:0] blocks,
    input  wire [ 7:0] padding,
    input  wire [ 3:0] group,
    input  wire [ 6:0] window,

    output wire        job_valid,
    input  wire        job_ready,
    output wire [ 1:0] job_kind,
    output wire [11:0] job_block,
    output wire [11:0] job_query,
    output wire [ 2:0] job_head,
    output wire [ 5:0] job_slot,
    output wire        job_opens_visit,
    output wire        job_last,

    output wire        visit_valid,
    input  wire        visit_ready,
    output wire [11:0] visit_block,
    output wire [ 7:0] visit_jobs,
    output wire        visit_k_only,

    input wire        row_valid,
    input wire [11:0] row_block,
    input wire [ 2:0] row_head,
    input wire [ 6:0] row_index,
    input wire        row_last,
    input wire [15:0] row_exponent,
    input wire [23:0] row_far,
    input wire [23:0] row_near,

    input wire                 q_beat_valid,
    input wire [BUS_WIDTH-1:0] q_beat,
    input wire                 k_beat_valid,
    input wire [BUS_WIDTH-1:0] k_beat,

    output reg         list_start,
    output wire [31:0] list_words,
    output wire        list_valid,
    input  wire        list_ready,
    output reg  [31:0] list_data,

    output reg         map_overflow,
    output wire [ 7:0] query_aware,
    output wire [31:0] index_tiles,
    output wire [31:0] pooled_scores,
    output wire [31:0] pairs
);

  localparam [3:0] IDLE = 4'd0;
  localparam [3:0] STATISTICS = 4'd1;
  localparam [3:0] SETTLE = 4'd2;  // until the last rows came
  localparam [3:0] POOL = 4'd3;
  localparam [3:0] LAST_BEATS = 4'd4;
  localparam [3:0] ANNOUNCE = 4'd5;
  localparam [3:0] HEADER = 4'd6;
  localparam [3:0] USES = 4'd7;
  localparam [3:0] JOBS = 4'd8;
  localparam [3:0] PADDING = 4'd9;

  reg [3:0] state;
  reg visited;
  reg [11:0] block, query, base;
  reg [ 2:0] head;
  reg [31:0] word;  // of a section
  reg [31:0] seen, rows_left, beats_left;

  wire [31:0] jobs = {28'd0, group} * ({20'd0, blocks} * ({20'd0, blocks} + 1) / 2);
  wire last_head = {1'b0, head} == group - 4'd1;
  wire last_block = block == blocks - 12'd1;
  wire step = job_valid && job_ready;
  wire put = list_valid && list_ready;
  wire [11:0] limit = blocks - base > {5'd0, window} ? base + {5'd0, window} : blocks;
  wire last_query = query == limit - 12'd1;
  wire window_ends = last_head && last_query && block == limit - 12'd1;

  assign busy = state != IDLE;
  assign query_aware = 8'd0;
  assign index_tiles = 32'd0;
  assign pooled_scores = 32'd0;
  assign pairs = jobs;
  assign job_valid = (state == STATISTICS && visited) || state == POOL;
  assign job_kind = state == POOL ? 2'd2 : 2'd1;
  assign job_block = block;
  assign job_query = state == POOL ? query : blocks;
  assign job_head = head;
  assign job_slot = {3'd0, head};
  assign job_opens_visit = state == STATISTICS && head == 3'd0;
  assign job_last = state == POOL || last_block;
  assign visit_valid = state == STATISTICS && !visited;
  assign visit_block = block;
  assign visit_jobs = {4'd0, group};
  assign visit_k_only = 1'b1;
  assign list_words = 16 + ({20'd0, blocks} + 15) / 16 * 16 + (jobs + 15) / 16 * 16;
  assign list_valid = state == HEADER || state == USES || state == JOBS || state == PADDING;

  always @* begin
    list_data = 32'd0;
    if (state == HEADER && word == 0) list_data = jobs;
    if (state == HEADER && word == 2 && !mode_dense) list_data = seen;
    if (state == USES && word < blocks) list_data = {28'd0, group} * ({20'd0, blocks} - word);
    if (state == JOBS) list_data = {3'd0, query == block ? 1'b1 : 1'b0, 1'b0, head, query, block};
  end

  always @(posedge clk) begin
    done <= 1'b0;
    list_start <= 1'b0;
    if (row_valid)
      seen <= seen + {20'd0, row_block} + {29'd0, row_head} + {25'd0, row_index}
                   + {16'd0, row_exponent} + {8'd0, row_far} + {8'd0, row_near};
    else if (q_beat_valid || k_beat_valid)
      seen <= seen + (q_beat_valid ? q_beat[31:0] : 0) + (k_beat_valid ? k_beat[31:0] : 0);
    if (row_valid && row_last) rows_left <= rows_left - 1;
    if (q_beat_valid) beats_left <= beats_left - 1;
    if (!rst_n) state <= IDLE;
    else
      case (state)
        IDLE:
        if (start) begin
          seen <= {15'd0, gamma} + {7'd0, divergence_limit} + {20'd0, min_blocks}
                  + {20'd0, max_blocks} + {24'd0, padding};
          rows_left <= {28'd0, group} * {20'd0, blocks};
          beats_left <= {28'd0, group} * ({20'd0, blocks} + 1)
                        * ((3 + HEAD_DIM) * BLOCK * 8 / BUS_WIDTH);
          {block, query, base, head, word, visited, map_overflow} <= 0;
          state <= mode_dense ? ANNOUNCE : STATISTICS;
        end
        STATISTICS:
        if (visit_valid && visit_ready) visited <= 1'b1;
        else if (step) begin
          head <= last_head ? 3'd0 : head + 3'd1;
          if (last_head) begin
            block <= block + 12'd1;
            visited <= 1'b0;
            if (last_block) state <= SETTLE;
          end
        end
        SETTLE:
        if (rows_left == 0) begin
          map_overflow <= divergence_limit != 0 && blocks * (blocks + 1) / 2 > MAP_ENTRIES;
          state <= POOL;
        end
        POOL:
        if (step) begin
          head <= last_head ? 3'd0 : head + 3'd1;
          if (last_head) query <= query + 12'd1;
          if (last_head && query == blocks - 12'd1) state <= LAST_BEATS;
        end
        LAST_BEATS: if (beats_left == 0) state <= ANNOUNCE;
        ANNOUNCE: begin
          list_start <= 1'b1;
          block <= 12'd0;
          query <= 12'd0;
          state <= HEADER;
        end
        HEADER:
        if (put) begin
          word <= word == 15 ? 0 : word + 1;
          if (word == 15) state <= USES;
        end
        USES:
        if (put) begin
          word <= word + 1;
          if (word >= blocks - 1 && word[3:0] == 4'd15) begin
            word <= 0;
            state <= JOBS;
          end
        end
        JOBS:
        if (put) begin
          word <= word + 1;
          head <= last_head ? 3'd0 : head + 3'd1;
          if (last_head) begin
            query <= query + 12'd1;
            if (last_query) begin
              block <= block + 12'd1;
              query <= block + 12'd1 > base ? block + 12'd1 : base;
            end
          end
          if (window_ends) begin
            base <= limit;
            query <= limit;
            block <= 12'd0;
            if (limit == blocks) begin
              state <= word[3:0] == 4'd15 ? IDLE : PADDING;
              done <= word[3:0] == 4'd15;
            end
          end
        end
        PADDING:
        if (put) begin
          word <= word + 1;
          if (word[3:0] == 4'd15) begin
            state <= IDLE;
            done <= 1'b1;
          end
        end
        default: state <= IDLE;
      endcase
  end

endmodule

`default_nettype wire
