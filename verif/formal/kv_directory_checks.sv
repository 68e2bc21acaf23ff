// SPDX-License-Identifier: Apache-2.0
// Properties of kv_directory with its two kv_free_lines.
//
// Proved: a visit comes from a line exactly when its block is in one, and from that line; a line
//   holds one block at most; a block is kept when it is used again and a line is free, hot or cold by
//   the rule; its line is freed with its last use and not before; live_lines counts the lines that
//   hold a block; every visit is counted once, where it belongs.
// How: induction. The uses that are left and the line of every block are kept beside the directory,
//   and must agree with its entries and with the free lines.
// Assumed: start first, while idle and alone; uses_write for a block that is in no line, not while a
//   visit is inside or of that block comes; visits of blocks whose uses were written since start,
//   with no more jobs than uses are left; cache_enable stable from start to start.
`default_nettype none

module kv_directory_checks #(
    parameter CACHE_LINES = 2,
    parameter LINE_BITS = 1,
    parameter MAX_BLOCKS = 2,
    parameter BLOCK_BITS = 1,
    parameter ENTRY_BITS = 18,
    parameter HALF_INDEX_BITS = 1,
    parameter HALF_COUNT_BITS = 2
) (
    input wire clk,
    input wire rst_n,

    input wire        start,
    input wire        busy,
    input wire        cache_enable,
    input wire [15:0] hot_threshold,
    input wire        uses_write,
    input wire [11:0] uses_block,
    input wire [15:0] uses_value,

    input wire        visit_valid,
    input wire        visit_ready,
    input wire [11:0] visit_block,
    input wire [ 7:0] visit_jobs,
    input wire        visit_k_only,

    input wire                 give_k,
    input wire                 give_v,
    input wire                 k_room,
    input wire                 v_room,
    input wire [         11:0] give_block,
    input wire                 give_from_line,
    input wire                 give_keep,
    input wire [LINE_BITS-1:0] give_line,

    input wire [10:0] live_lines,
    input wire        clear_counts,
    input wire [31:0] count_visits,
    input wire [31:0] count_hits,
    input wire [31:0] count_misses,
    input wire [31:0] count_hot,
    input wire [31:0] count_cold,
    input wire [31:0] count_bypasses,
    input wire [31:0] count_evictions,

    input wire [           1:0] state,
    input wire [ENTRY_BITS-1:0] entries    [0:MAX_BLOCKS-1],
    input wire [ENTRY_BITS-1:0] entry,
    input wire [           7:0] jobs,
    input wire                  k_only,
    input wire                  hit,
    input wire                  needed,
    input wire                  is_hot,
    input wire [          15:0] left,
    input wire [ LINE_BITS-1:0] line,

    input wire [      LINE_BITS-1:0] hot_stack  [0:(1<<HALF_INDEX_BITS)-1],
    input wire [      LINE_BITS-1:0] hot_top,
    input wire [HALF_COUNT_BITS-1:0] hot_height,
    input wire [HALF_COUNT_BITS-1:0] hot_used,
    input wire [      LINE_BITS-1:0] hot_fresh,
    input wire [      LINE_BITS-1:0] cold_stack [0:(1<<HALF_INDEX_BITS)-1],
    input wire [      LINE_BITS-1:0] cold_top,
    input wire [HALF_COUNT_BITS-1:0] cold_height,
    input wire [HALF_COUNT_BITS-1:0] cold_used,
    input wire [      LINE_BITS-1:0] cold_fresh
);

  localparam [31:0] HALF = CACHE_LINES / 2;
  localparam [31:0] BLOCKS = MAX_BLOCKS;
  localparam [1:0] WAIT = 2'd0, LOOK = 2'd1, GIVE = 2'd2;

  reg has_past = 1'b0;
  reg enabled;  // since start
  reg [MAX_BLOCKS-1:0] known;  // uses were written since start
  reg [MAX_BLOCKS-1:0] in_line;
  reg [LINE_BITS-1:0] line_of[0:MAX_BLOCKS-1];
  reg [15:0] uses[0:MAX_BLOCKS-1];  // left
  reg [7:0] now_jobs;  // of the visit that is inside
  reg [11:0] now_block;
  reg now_k_only;

  wire [BLOCK_BITS-1:0] b = give_block[BLOCK_BITS-1:0];
  wire [BLOCK_BITS-1:0] w = uses_block[BLOCK_BITS-1:0];
  wire [BLOCK_BITS-1:0] v = visit_block[BLOCK_BITS-1:0];
  wire visit = visit_valid && visit_ready;
  wire tracked = give_k && !k_only && enabled;
  wire [15:0] uses_after = uses[b] - {8'd0, now_jobs};

  // ---- what the directory is told

  always @(posedge clk) begin
    has_past <= 1'b1;
    if (!has_past) assume (!rst_n && start);
    if (has_past) assume (rst_n);
    assume (!start || !(busy || uses_write || visit_valid) || !has_past);
    if (has_past && !start) assume (cache_enable == $past(cache_enable));
    assume ({20'd0, uses_block} < BLOCKS && {20'd0, visit_block} < BLOCKS);
    if (uses_write) assume (!busy && !in_line[w] && !(visit_valid && v == w));
    if (visit && !visit_k_only) assume (known[v] && (!cache_enable || {8'd0, visit_jobs} <= uses[v]));
  end

  always @(posedge clk) begin
    if (start) begin
      enabled <= cache_enable;
      known   <= 0;
      in_line <= 0;
    end else begin
      if (uses_write) begin
        known[w] <= 1'b1;
        uses[w]  <= uses_value;
      end
      if (tracked) begin
        uses[b] <= uses_after;
        in_line[b] <= uses_after != 16'd0 && (in_line[b] || give_keep);
        if (!in_line[b]) line_of[b] <= give_line;
      end
    end
    if (visit) begin
      now_jobs   <= visit_jobs;
      now_block  <= visit_block;
      now_k_only <= visit_k_only;
    end
  end

  // ---- lines

  reg [31:0] holders[0:CACHE_LINES-1];  // blocks in each line
  reg [31:0] places[0:CACHE_LINES-1];  // with the places where the line is free
  reg [31:0] live, hot_live, cold_live;
  reg stacks_in_range;
  always @* begin : survey
    reg [31:0] n, m, stacked, unused;
    {live, hot_live, cold_live} = 96'd0;
    stacks_in_range = 1'b1;
    for (n = 0; n < CACHE_LINES; n = n + 1) begin
      holders[n] = 32'd0;
      for (m = 0; m < BLOCKS; m = m + 1)
        if (in_line[m] && line_of[m] == n[LINE_BITS-1:0]) holders[n] = holders[n] + 32'd1;
      stacked = 32'd0;
      for (m = 0; m < HALF; m = m + 1)
        if (n < HALF) begin
          if (m < {{32 - HALF_COUNT_BITS{1'b0}}, cold_height} && cold_stack[m] == n[LINE_BITS-1:0])
            stacked = stacked + 32'd1;
        end else begin
          if (m < {{32 - HALF_COUNT_BITS{1'b0}}, hot_height} && hot_stack[m] == n[LINE_BITS-1:0])
            stacked = stacked + 32'd1;
        end
      unused = {31'd0, n < HALF ? n >= {{32 - HALF_COUNT_BITS{1'b0}}, cold_used}
                                : n - HALF >= {{32 - HALF_COUNT_BITS{1'b0}}, hot_used}};
      places[n] = holders[n] + stacked + unused;
    end
    for (m = 0; m < BLOCKS; m = m + 1)
      if (in_line[m]) begin
        live = live + 32'd1;
        if ({{32 - LINE_BITS{1'b0}}, line_of[m]} < HALF) cold_live = cold_live + 32'd1;
        else hot_live = hot_live + 32'd1;
      end
    for (m = 0; m < HALF; m = m + 1) begin
      if (m < {{32 - HALF_COUNT_BITS{1'b0}}, cold_height} && {{32 - LINE_BITS{1'b0}}, cold_stack[m]} >= HALF)
        stacks_in_range = 1'b0;
      if (m < {{32 - HALF_COUNT_BITS{1'b0}}, hot_height} && {{32 - LINE_BITS{1'b0}}, hot_stack[m]} < HALF)
        stacks_in_range = 1'b0;
    end
  end

  wire [HALF_COUNT_BITS-1:0] hot_below = hot_height - 1'b1;
  wire [HALF_COUNT_BITS-1:0] cold_below = cold_height - 1'b1;
  wire [31:0] hot_next = HALF + {{32 - HALF_COUNT_BITS{1'b0}}, hot_used};
  wire [31:0] cold_next = {{32 - HALF_COUNT_BITS{1'b0}}, cold_used};

  always @(posedge clk)
    if (has_past) begin
      assert (state == WAIT || state == LOOK || state == GIVE);
      assert (hot_height <= hot_used && {{32 - HALF_COUNT_BITS{1'b0}}, hot_used} <= HALF);
      assert (cold_height <= cold_used && {{32 - HALF_COUNT_BITS{1'b0}}, cold_used} <= HALF);
      assert (hot_live == {{32 - HALF_COUNT_BITS{1'b0}}, hot_used} - {{32 - HALF_COUNT_BITS{1'b0}}, hot_height});
      assert (cold_live == {{32 - HALF_COUNT_BITS{1'b0}}, cold_used} - {{32 - HALF_COUNT_BITS{1'b0}}, cold_height});
      assert (hot_fresh == hot_next[LINE_BITS-1:0] && cold_fresh == cold_next[LINE_BITS-1:0]);
      assert (stacks_in_range);
      if (state != WAIT) begin
        assert (hot_height == 0 || hot_top == hot_stack[hot_below[HALF_INDEX_BITS-1:0]]);
        assert (cold_height == 0 || cold_top == cold_stack[cold_below[HALF_INDEX_BITS-1:0]]);
      end
      assert ({21'd0, live_lines} == live);
    end

  genvar g;
  generate
    for (g = 0; g < CACHE_LINES; g = g + 1) begin : g_line
      always @(posedge clk)
        if (has_past) begin
          assert (holders[g] <= 32'd1);
          assert (places[g] == 32'd1);
        end
    end
    for (g = 0; g < MAX_BLOCKS; g = g + 1) begin : g_block
      always @(posedge clk)
        if (has_past) begin
          assert (!in_line[g] || (known[g] && enabled && uses[g] != 16'd0));
          if (known[g]) begin
            assert (entries[g][ENTRY_BITS-1] == in_line[g]);
            assert (!in_line[g] || entries[g][16+:LINE_BITS] == line_of[g]);
            assert (!enabled || entries[g][15:0] == uses[g]);
          end
        end
    end
  endgenerate

  // ---- visits

  wire fits_hot = uses_after > hot_threshold && hot_live < HALF;
  wire fits_cold = cold_live < HALF;
  wire is_kept = tracked && !in_line[b] && uses_after != 16'd0 && (fits_hot || fits_cold);

  always @(posedge clk)
    if (has_past) begin
      if (!start) assert (enabled == cache_enable);
      if (state != WAIT) begin
        assert (give_block == now_block && jobs == now_jobs && k_only == now_k_only);
        if (!k_only) assert (known[b] && (!enabled || {8'd0, jobs} <= uses[b]));
      end
      if (state == LOOK && !k_only) assert (entry == entries[b]);
      if (state == GIVE) begin
        assert (hit == (in_line[b] && !k_only && known[b]));
        if (!k_only) begin
          assert (line == entries[b][16+:LINE_BITS]);
          assert (left == entries[b][15:0] - {8'd0, jobs});
        end
        assert (needed == (left != 16'd0));
      end

      assert (give_v == (give_k && !now_k_only));
      assert (!give_k || (k_room && v_room));
      if (give_k) assert (give_block == now_block && give_from_line == (in_line[b] && !now_k_only));
      if (give_k && give_from_line) assert (give_line == line_of[b]);
      assert (give_keep == is_kept || !give_k && !give_keep);
      if (give_k && give_keep) begin
        assert (holders[give_line] == 32'd0);
        assert ((give_line >= HALF) == fits_hot);
      end
      if ($past(state == GIVE && k_room && v_room)) assert (state == WAIT);
    end

  // hot_threshold is stable while a visit is inside.
  always @(posedge clk) if (has_past && busy) assume (hot_threshold == $past(hot_threshold));
  always @(posedge clk)
    if (has_past && state == GIVE && !k_only && enabled) assert (is_hot == (uses_after > hot_threshold));

  // ---- counters

  reg [31:0] visits, hits, hot, cold, bypasses, evictions;
  always @(posedge clk)
    if (!rst_n || clear_counts) {visits, hits, hot, cold, bypasses, evictions} <= 192'd0;
    else if (give_k && !now_k_only) begin
      visits <= visits + 32'd1;
      hits <= hits + {31'd0, in_line[b]};
      hot <= hot + {31'd0, is_kept && fits_hot};
      cold <= cold + {31'd0, is_kept && !fits_hot};
      bypasses <= bypasses + {31'd0, tracked && !in_line[b] && uses_after != 16'd0 && !is_kept};
      evictions <= evictions + {31'd0, in_line[b] && uses_after == 16'd0};
    end

  always @(posedge clk)
    if (has_past) begin
      assert (count_visits == visits && count_hits == hits && count_misses == visits - hits);
      assert (count_hot == hot && count_cold == cold && count_bypasses == bypasses);
      assert (count_evictions == evictions);
    end

  always @(posedge clk) begin
    cover (has_past && count_hot != 32'd0 && count_cold != 32'd0 && count_hits != 32'd0 && live == 32'd0);
    cover (has_past && count_bypasses != 32'd0);
    cover (has_past && count_evictions == 32'd1 && give_k && give_keep);
  end

endmodule

bind kv_directory kv_directory_checks #(
    .CACHE_LINES(CACHE_LINES),
    .LINE_BITS(LINE_BITS),
    .MAX_BLOCKS(MAX_BLOCKS),
    .BLOCK_BITS(BLOCK_BITS),
    .ENTRY_BITS(ENTRY_BITS),
    .HALF_INDEX_BITS(HALF == 1 ? 1 : $clog2(HALF)),
    .HALF_COUNT_BITS(HALF == 1 ? 2 : $clog2(HALF) + 1)
) checks (
    .hot_stack(hot_lines.stack),
    .hot_top(hot_lines.top),
    .hot_height(hot_lines.height),
    .hot_used(hot_lines.used),
    .hot_fresh(hot_lines.fresh),
    .cold_stack(cold_lines.stack),
    .cold_top(cold_lines.top),
    .cold_height(cold_lines.height),
    .cold_used(cold_lines.used),
    .cold_fresh(cold_lines.fresh),
    .*
);

`default_nettype wire
