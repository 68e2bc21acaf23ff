// SPDX-License-Identifier: Apache-2.0
// Sparse index generation for one KV head: which KV blocks each query block attends to.
//
// Purpose: equal to fastdelta.reference.index_model.generate_index, to the bit. Heads of the group one
//   after the other, N = blocks:
//     statistics  jobs of the representative queries (block N of the Q buffer) with every K block, for
//                 all heads; the rows of the tiles come back and are kept. Keys and representative
//                 queries are pooled from the beats as they pass by.
//     scores      block scores by replay of the rows, beside the estimate from the pooled vectors.
//     divergence  and so the pattern of the head.
//     selection   columns and distances, side by side.
//     map         query-aware heads: jobs that fetch every query block of the head, softmax of the
//                 pooled scores row by row, then the pairs, while the selection works.
//   Then the job list. In dense mode it has all causal pairs, and nothing else is done.
// Protocol: start (one cycle, not while busy) with settings that are stable until done, which is high
//   for one cycle after the last word of the list. window is a power of two, window * group at most
//   SLOTS; group at most MAX_GROUP, blocks at most MAX_BLOCKS.
//   Jobs and visits with valid and ready, statistics in ascending blocks, in them ascending heads, a
//   visit for each block; pool jobs with ascending query blocks, at most two ahead of the pooling.
//   Beats of Q and K are looked at as they are transferred, any number back to back: the
//   representative blocks of the heads in order, K blocks ascending, later the query blocks that were
//   asked for. Rows of tiles as the tile engine gives them, in the order of the jobs. Beats and rows
//   come after start only.
//   list_words is valid with list_start; the words follow with valid and ready.
//   map_overflow rises if a head is query-aware and N (N + 1) / 2 exceeds MAP_ENTRIES, and stays until
//   the next start; the list then lacks the pairs of that head.
// Latency: beside the tiles about N * group * BLOCK / REPLAY_ROWS + group (3 N + 42 (N / SCORE_LANES
//   + 4) * 2 + 70) cycles and the job list; a query-aware head has to fetch its query blocks and
//   takes 26 passes over its map beside it, of N (N + 1) / 2 / MAP_LANES words.
// Formats: docs/prefill_engine.md, "Sparse index generation" and "Job list".
`default_nettype none

module index_generator #(
    parameter BLOCK       = 128,    // tokens of a block: 8 to 128
    parameter HEAD_DIM    = 128,    // channels of a head: 16 to 256
    parameter MAX_BLOCKS  = 256,    // blocks of the longest prompt: power of two, 2 to 2048
    parameter MAX_GROUP   = 4,      // query heads of a KV head, at most: 1 to 8
    parameter SLOTS       = 16,     // window * group, at most: power of two, 2 to 64
    parameter BUS_WIDTH   = 512,    // bits of a beat: 64 to 512, its bytes divide BLOCK
    parameter POOL_LANES  = 64,     // products of pooled vectors in a cycle: power of two, 1 to 256
    parameter REPLAY_ROWS = 2,      // rows replayed in a cycle: 1, 2, 4 or 8
    parameter SCORE_LANES = 8,      // block scores read in a cycle: power of two, 1 to 64
    parameter MAP_ENTRIES = 32896,  // entries of the largest query-aware map: 3 to 2098176
    parameter MAP_LANES   = 8       // of them read in a cycle: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        busy,
    output reg         done,
    input  wire        mode_dense,
    input  wire [16:0] gamma,             // 16 fraction bits, 1 to 2^16
    input  wire [24:0] divergence_limit,  // 24 fraction bits, 0 to 2^24
    input  wire [11:0] min_blocks,
    input  wire [11:0] max_blocks,        // min_blocks or more
    input  wire [11:0] blocks,            // 1 to MAX_BLOCKS
    input  wire [ 7:0] padding,           // blocks * BLOCK - tokens, 0 to BLOCK - 1
    input  wire [ 3:0] group,
    input  wire [ 6:0] window,

    output wire        job_valid,
    input  wire        job_ready,
    output wire [ 1:0] job_kind,         // 1 statistics, 2 pool
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
    input wire [15:0] row_exponent,  // signed
    input wire [23:0] row_far,
    input wire [23:0] row_near,
    input wire        row_last,

    input wire                 q_beat_valid,
    input wire [BUS_WIDTH-1:0] q_beat,
    input wire                 k_beat_valid,
    input wire [BUS_WIDTH-1:0] k_beat,

    output wire        list_start,
    output wire [31:0] list_words,
    output wire        list_valid,
    input  wire        list_ready,
    output wire [31:0] list_data,

    // From start on, or of the KV head that is done:
    output reg         map_overflow,
    output reg  [ 7:0] query_aware,    // bit h: head h
    output reg  [31:0] index_tiles,    // tiles whose rows have come
    output reg  [31:0] pooled_scores,
    output wire [31:0] pairs           // jobs of the list
);

  localparam HEAD_BITS = $clog2(MAX_GROUP);
  localparam [3:0] POOL_SLOT = MAX_GROUP[3:0];  // two slots for pooled queries, behind the heads'
  localparam [7:0] BLOCK_TOKENS = BLOCK[7:0];
  localparam ROW_SETTLING = 6;  // cycles from the last row until the replay may begin

  localparam [3:0] IDLE = 4'd0, STATISTICS = 4'd1, SCORES = 4'd2, DIVERGENCE = 4'd3, DECIDE = 4'd4,
      MAP = 4'd5, PAIRS = 4'd6, SELECTION = 4'd7, NEXT = 4'd8, LIST = 4'd9;

  reg [3:0] state;
  reg [2:0] head;
  reg entered;  // first cycle of a state

  wire begin_run = start && state == IDLE;
  wire [11:0] last_block = blocks - 12'd1;
  wire [2:0] last_head = group[2:0] - 3'd1;
  wire [7:0] ragged_tokens = BLOCK_TOKENS - padding;  // of the last block

  assign busy = state != IDLE;

  // ---- statistics: jobs and visits

  reg statistics_left, visits_left;  // to be given
  reg [11:0] statistics_block, visit_number;
  reg [2:0] statistics_head;
  reg pool_left;
  reg [11:0] pool_query;
  wire pool_may_go;
  wire statistics_go = statistics_left && job_ready;
  wire pool_go = pool_left && pool_may_go && job_ready;

  assign job_valid = statistics_left || (pool_left && pool_may_go);
  assign job_kind = statistics_left ? 2'd1 : 2'd2;
  assign job_block = statistics_left ? statistics_block : 12'd0;
  assign job_query = statistics_left ? blocks : pool_query;
  assign job_head = statistics_left ? statistics_head : head;
  assign job_slot = {3'd0, job_head};
  assign job_opens_visit = statistics_left && statistics_head == 3'd0;
  assign job_last = 1'b0;

  assign visit_valid = visits_left;
  assign visit_block = visit_number;
  assign visit_jobs = {4'd0, group};
  assign visit_k_only = 1'b1;

  wire map_begins = state == MAP && entered;

  always @(posedge clk) begin
    if (!rst_n) begin
      statistics_left <= 1'b0;
      visits_left <= 1'b0;
      pool_left <= 1'b0;
    end else begin
      if (begin_run) statistics_left <= !mode_dense;
      else if (statistics_go && statistics_block == last_block && statistics_head == last_head)
        statistics_left <= 1'b0;
      if (begin_run) visits_left <= !mode_dense;
      else if (visit_ready && visit_number == last_block) visits_left <= 1'b0;
      if (map_begins) pool_left <= 1'b1;
      else if (pool_go && pool_query == last_block) pool_left <= 1'b0;
    end
    if (begin_run) begin
      statistics_block <= 12'd0;
      statistics_head  <= 3'd0;
      visit_number <= 12'd0;
    end else begin
      if (statistics_go) begin
        statistics_head <= statistics_head == last_head ? 3'd0 : statistics_head + 3'd1;
        if (statistics_head == last_head) statistics_block <= statistics_block + 12'd1;
      end
      if (visit_valid && visit_ready) visit_number <= visit_number + 12'd1;
    end
    if (map_begins) pool_query <= 12'd0;
    else if (pool_go) pool_query <= pool_query + 12'd1;
  end

  // ---- rows and block scores

  reg scores_start;
  wire scores_done, rows_end, rows_settled;
  wire [39:0] vertical_total, slash_total;
  wire [SCORE_LANES*40-1:0] vertical, slash;
  wire divergence_read, column_read, distance_read;
  wire [11:0] divergence_word, column_word, distance_word;

  assign rows_end = row_valid && row_last && row_block == last_block && row_head == last_head;

  delay_line #(
      .WIDTH (1),
      .CYCLES(ROW_SETTLING),
      .RESET (1)
  ) settling (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (rows_end),
      .out  (rows_settled)
  );

  index_scores #(
      .BLOCK(BLOCK),
      .MAX_BLOCKS(MAX_BLOCKS),
      .MAX_GROUP(MAX_GROUP),
      .REPLAY_ROWS(REPLAY_ROWS),
      .SCORE_LANES(SCORE_LANES)
  ) scores (
      .clk(clk),
      .rst_n(rst_n),
      .row_valid(row_valid),
      .row_block(row_block),
      .row_head(row_head),
      .row_index(row_index),
      .row_exponent(row_exponent),
      .row_far(row_far),
      .row_near(row_near),
      .start(scores_start),
      .head(head),
      .blocks(blocks),
      .done(scores_done),
      .vertical_total(vertical_total),
      .slash_total(slash_total),
      .vertical_read(divergence_read || column_read),
      .vertical_word(divergence_read ? divergence_word : column_word),
      .vertical(vertical),
      .slash_read(distance_read),
      .slash_word(distance_word),
      .slash(slash)
  );

  // ---- pooled vectors and their scores

  wire key_valid, key_last, key_ends, query_valid, query_last, query_ends;
  wire [POOL_LANES*16-1:0] key_word, query_word;
  wire signed [6:0] key_scale, query_scale;

  reg [11:0] key_block;  // of the present beat
  reg [11:0] keys_pooled;
  reg [3:0] heads_seen;  // whose representative queries have passed by
  reg [11:0] query_block;  // of the present beat, once they have
  reg [3:0] heads_pooled;
  reg [11:0] rows_pooled, rows_scored;  // of the map

  wire is_representative = heads_seen != group;
  wire [7:0] key_tokens = key_block == last_block ? ragged_tokens : BLOCK_TOKENS;
  // The representative queries fill a block unless there is only one; query_block is 0 until then.
  wire [7:0] query_tokens = query_block == last_block ? ragged_tokens : BLOCK_TOKENS;
  wire representatives_done = heads_pooled == group;
  wire [3:0] query_slot =
      representatives_done ? POOL_SLOT + {3'd0, rows_pooled[0]} : heads_pooled;

  index_pooling #(
      .QUERIES(0),
      .BLOCK(BLOCK),
      .HEAD_DIM(HEAD_DIM),
      .BUS_WIDTH(BUS_WIDTH),
      .LANES(POOL_LANES)
  ) keys (
      .clk(clk),
      .rst_n(rst_n),
      .clear(begin_run),
      .beat_valid(k_beat_valid),
      .beat(k_beat),
      .tokens(key_tokens),
      .beat_ends(key_ends),
      .word_valid(key_valid),
      .word_last(key_last),
      .word(key_word),
      .scale(key_scale)
  );

  index_pooling #(
      .QUERIES(1),
      .BLOCK(BLOCK),
      .HEAD_DIM(HEAD_DIM),
      .BUS_WIDTH(BUS_WIDTH),
      .LANES(POOL_LANES)
  ) queries (
      .clk(clk),
      .rst_n(rst_n),
      .clear(begin_run),
      .beat_valid(q_beat_valid),
      .beat(q_beat),
      .tokens(query_tokens),
      .beat_ends(query_ends),
      .word_valid(query_valid),
      .word_last(query_last),
      .word(query_word),
      .scale(query_scale)
  );

  wire dot_start, score_valid, score_last, softmax_free, share_valid, share_last;
  wire signed [31:0] score;
  wire [24:0] share;
  wire dot_busy;
  reg row_open;  // its scores have not all come
  reg estimate_left;  // to be started

  // A query block is asked for when the slot of the one before the last is free.
  assign pool_may_go = pool_query - rows_scored < 12'd2;

  wire row_start = state == MAP && !entered && rows_pooled != rows_scored && !row_open && softmax_free;

  assign dot_start = (estimate_left && state == SCORES) || row_start;

  always @(posedge clk) begin
    if (!rst_n || begin_run) begin
      key_block <= 12'd0;
      keys_pooled <= 12'd0;
      heads_seen <= 4'd0;
      heads_pooled <= 4'd0;
      query_block <= 12'd0;
      row_open <= 1'b0;
    end else begin
      if (key_ends) key_block <= key_block + 12'd1;
      if (key_valid && key_last) keys_pooled <= keys_pooled + 12'd1;
      if (query_ends) begin
        if (is_representative) heads_seen <= heads_seen + 4'd1;
        else query_block <= query_block == last_block ? 12'd0 : query_block + 12'd1;
      end
      if (query_valid && query_last && !representatives_done) heads_pooled <= heads_pooled + 4'd1;
      if (dot_start) row_open <= 1'b1;
      else if (score_valid && score_last) row_open <= 1'b0;
    end
    if (map_begins) begin
      rows_pooled <= 12'd0;
      rows_scored <= 12'd0;
    end else begin
      if (query_valid && query_last && representatives_done) rows_pooled <= rows_pooled + 12'd1;
      if (score_valid && score_last && state == MAP) rows_scored <= rows_scored + 12'd1;
    end
  end

  index_dot #(
      .MAX_BLOCKS(MAX_BLOCKS),
      .HEAD_DIM(HEAD_DIM),
      .LANES(POOL_LANES),
      .SLOTS(MAX_GROUP + 2)
  ) dots (
      .clk(clk),
      .rst_n(rst_n),
      .clear(begin_run),
      .key_valid(key_valid),
      .key_last(key_last),
      .key_word(key_word),
      .key_scale(key_scale),
      .query_valid(query_valid),
      .query_last(query_last),
      .query_word(query_word),
      .query_scale(query_scale),
      .query_slot(query_slot),
      .start(dot_start),
      .slot(state == SCORES ? {1'b0, head} : POOL_SLOT + {3'd0, rows_scored[0]}),
      .count(state == SCORES ? blocks : rows_scored + 12'd1),
      .busy(dot_busy),
      .score_valid(score_valid),
      .score_last(score_last),
      .score(score)
  );

  index_softmax #(
      .MAX_BLOCKS(MAX_BLOCKS)
  ) softmax (
      .clk(clk),
      .rst_n(rst_n),
      .clear(begin_run),
      .free(softmax_free),
      .score_valid(score_valid),
      .score_last(score_last),
      .score(score),
      .share_valid(share_valid),
      .share_last(share_last),
      .share(share)
  );

  // ---- pattern

  wire divergence_done;
  wire [49:0] divergence;
  wire below_limit = divergence < {divergence_limit, 25'd0};
  reg [MAX_GROUP*32-1:0] divergences;

  index_divergence #(
      .MAX_BLOCKS(MAX_BLOCKS),
      .SCORE_LANES(SCORE_LANES)
  ) pattern (
      .clk(clk),
      .rst_n(rst_n),
      .estimate_valid(share_valid && state == SCORES),
      .estimate_last(share_last),
      .estimate(share),
      .start(state == DIVERGENCE && entered),
      .blocks(blocks),
      .total(vertical_total),
      .read(divergence_read),
      .word(divergence_word),
      .scores(vertical),
      .done(divergence_done),
      .divergence(divergence)
  );

  // ---- columns, distances, pairs

  reg head_is_query_aware, selection_start;
  wire columns_done, distances_done, column_mark, distance_mark;
  wire [11:0] column_mark_word, distance_mark_word;
  wire [SCORE_LANES-1:0] column_bits, distance_bits;

  index_selection #(
      .SCORE_LANES(SCORE_LANES)
  ) columns (
      .clk(clk),
      .rst_n(rst_n),
      .start(selection_start),
      .query_aware(head_is_query_aware),
      .blocks(blocks),
      .gamma(gamma),
      .min_blocks(min_blocks),
      .max_blocks(max_blocks),
      .total(vertical_total),
      .done(columns_done),
      .read(column_read),
      .word(column_word),
      .scores(vertical),
      .mark_valid(column_mark),
      .mark_word(column_mark_word),
      .mark_bits(column_bits)
  );

  index_selection #(
      .SCORE_LANES(SCORE_LANES)
  ) distances (
      .clk(clk),
      .rst_n(rst_n),
      .start(selection_start),
      .query_aware(head_is_query_aware),
      .blocks(blocks),
      .gamma(gamma),
      .min_blocks(min_blocks),
      .max_blocks(max_blocks),
      .total(slash_total),
      .done(distances_done),
      .read(distance_read),
      .word(distance_word),
      .scores(slash),
      .mark_valid(distance_mark),
      .mark_word(distance_mark_word),
      .mark_bits(distance_bits)
  );

  wire map_fits, pairs_done, pair_read;
  wire [11:0] pair_row, pair_word;
  wire [MAX_GROUP*MAP_LANES-1:0] pair_bits;
  reg [MAX_GROUP-1:0] with_pairs;

  index_map #(
      .MAX_BLOCKS(MAX_BLOCKS),
      .MAX_GROUP(MAX_GROUP),
      .MAP_ENTRIES(MAP_ENTRIES),
      .MAP_LANES(MAP_LANES)
  ) pair_map (
      .clk(clk),
      .rst_n(rst_n),
      .blocks(blocks),
      .fits(map_fits),
      .clear(map_begins),
      .share_valid(share_valid && state == MAP),
      .share_last(share_last),
      .share(share),
      .select(state == PAIRS && entered),
      .head(head),
      .gamma(gamma),
      .done(pairs_done),
      .pair_read(pair_read),
      .pair_row(pair_row),
      .pair_word(pair_word),
      .pair_bits(pair_bits)
  );

  // ---- sequence

  reg scores_ready, estimate_ready, columns_ready, distances_ready;
  reg rows_ready;
  reg [11:0] rows_mapped;
  wire list_done;

  wire statistics_done = rows_ready && keys_pooled == blocks && representatives_done && !visits_left;
  wire [3:0] after_scores = scores_ready && estimate_ready ? DIVERGENCE : SCORES;
  wire map_wanted = below_limit && map_fits;

  reg [3:0] next_state;
  always @*
    case (state)
      IDLE: next_state = !start ? IDLE : mode_dense ? LIST : STATISTICS;
      STATISTICS: next_state = statistics_done ? SCORES : STATISTICS;
      SCORES: next_state = after_scores;
      DIVERGENCE: next_state = divergence_done ? DECIDE : DIVERGENCE;
      DECIDE: next_state = map_wanted ? MAP : SELECTION;
      MAP: next_state = !entered && rows_mapped == blocks ? PAIRS : MAP;
      PAIRS: next_state = pairs_done ? SELECTION : PAIRS;
      SELECTION: next_state = columns_ready && distances_ready ? NEXT : SELECTION;
      NEXT: next_state = head == last_head ? LIST : SCORES;
      default: next_state = list_done ? IDLE : LIST;  // LIST
    endcase

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      entered <= 1'b0;
      done <= 1'b0;
      scores_start <= 1'b0;
      estimate_left <= 1'b0;
      selection_start <= 1'b0;
    end else begin
      state <= next_state;
      entered <= state != next_state;
      done <= list_done;
      scores_start <= state != SCORES && next_state == SCORES;
      if (state != SCORES) estimate_left <= next_state == SCORES;
      else estimate_left <= 1'b0;
      selection_start <= state == DECIDE;
    end

    if (begin_run) head <= 3'd0;
    else if (state == NEXT) head <= head + 3'd1;

    if (begin_run) rows_ready <= 1'b0;
    else if (rows_settled) rows_ready <= 1'b1;
    if (state != SCORES) {scores_ready, estimate_ready} <= 2'b0;
    else begin
      if (scores_done) scores_ready <= 1'b1;
      if (share_valid && share_last) estimate_ready <= 1'b1;
    end
    if (state == DECIDE) {columns_ready, distances_ready} <= 2'b0;
    else begin
      if (columns_done) columns_ready <= 1'b1;
      if (distances_done) distances_ready <= 1'b1;
    end
    if (map_begins) rows_mapped <= 12'd0;
    else if (share_valid && share_last && state == MAP) rows_mapped <= rows_mapped + 12'd1;

    if (state == DECIDE) head_is_query_aware <= below_limit;
  end

  always @(posedge clk) begin : results
    reg [31:0] n;
    if (begin_run) begin
      map_overflow <= 1'b0;
      query_aware <= 8'd0;
      with_pairs <= {MAX_GROUP{1'b0}};
      divergences <= {MAX_GROUP * 32{1'b0}};
      index_tiles <= 32'd0;
      pooled_scores <= 32'd0;
    end else begin
      if (state == DECIDE) begin
        map_overflow <= map_overflow || (below_limit && !map_fits);
        query_aware[head] <= below_limit;
        for (n = 0; n < MAX_GROUP; n = n + 1)
        if (head == n[2:0]) begin
          with_pairs[n] <= map_wanted;
          divergences[n*32+:32] <= {1'b0, divergence[48:18]};
        end
      end
      if (row_valid && row_last) index_tiles <= index_tiles + 32'd1;
      if (score_valid) pooled_scores <= pooled_scores + 32'd1;
    end
  end

  // ---- job list

  wire scan_start, scan_busy, scanned_valid, scanned_ready;
  wire [11:0] scanned_block, scanned_query;
  wire [(SLOTS<<HEAD_BITS)-1:0] scanned_mask;
  wire list_busy;

  index_scan #(
      .MAX_BLOCKS(MAX_BLOCKS),
      .MAX_GROUP(MAX_GROUP),
      .HEAD_BITS(HEAD_BITS),
      .SLOTS(SLOTS),
      .SCORE_LANES(SCORE_LANES),
      .MAP_LANES(MAP_LANES)
  ) scan (
      .clk(clk),
      .rst_n(rst_n),
      .start(scan_start),
      .busy(scan_busy),
      .dense(mode_dense),
      .blocks(blocks),
      .group(group),
      .window(window),
      .with_pairs(with_pairs),
      .column_write(column_mark),
      .distance_write(distance_mark),
      .mark_head(head),
      .column_word(column_mark_word),
      .column_bits(column_bits),
      .distance_word(distance_mark_word),
      .distance_bits(distance_bits),
      .pair_read(pair_read),
      .pair_row(pair_row),
      .pair_word(pair_word),
      .pair_bits(pair_bits),
      .visit_valid(scanned_valid),
      .visit_ready(scanned_ready),
      .visit_block(scanned_block),
      .visit_query(scanned_query),
      .visit_mask(scanned_mask)
  );

  index_emitter #(
      .MAX_BLOCKS(MAX_BLOCKS),
      .MAX_GROUP(MAX_GROUP),
      .HEAD_BITS(HEAD_BITS),
      .SLOTS(SLOTS)
  ) emitter (
      .clk(clk),
      .rst_n(rst_n),
      .start(state == LIST && entered),
      .busy(list_busy),
      .done(list_done),
      .blocks(blocks),
      .header_bits(query_aware),
      .divergences(divergences),
      .jobs(pairs),
      .scan_start(scan_start),
      .scan_busy(scan_busy),
      .visit_valid(scanned_valid),
      .visit_ready(scanned_ready),
      .visit_block(scanned_block),
      .visit_query(scanned_query),
      .visit_mask(scanned_mask),
      .list_start(list_start),
      .list_words(list_words),
      .list_valid(list_valid),
      .list_ready(list_ready),
      .list_data(list_data)
  );

  wire unused = &{1'b0, list_busy, dot_busy, divergence[49], divergence[17:0]};

endmodule

`default_nettype wire
