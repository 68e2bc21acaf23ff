// SPDX-License-Identifier: Apache-2.0
// Decides for each visit whether its block comes from the KV cache or from memory, and is kept.
//
// Purpose: left = uses[block] - jobs. A block in a line comes from there, and its line is free again
//   when left is 0. Another one comes from memory and, if left is not 0, is kept on its way: in a
//   hot line if left > hot_threshold and one is free, else in a cold line if one is free.
//   A visit with k_only comes from memory and leaves no trace; without cache_enable all do.
// Protocol: start empties all lines; then uses_write for every block before the first visit that
//   uses it, not while a visit is inside. give_k for one cycle when both queues have room, with
//   give_v unless only K is needed. A line may be given out again while an older visit still has to
//   read it: whoever reads and writes lines must do so in the order of the visits.
// Latency: 2 cycles from a visit to give_k. Throughput: one visit in 3 cycles.
`default_nettype none

module kv_directory #(
    parameter CACHE_LINES = 256, // a power of two: 2 to 1024
    parameter LINE_BITS   = 8,   // bits of a line's number
    parameter MAX_BLOCKS  = 256  // a power of two: 2 to 2048
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        busy,
    input  wire        cache_enable,
    input  wire [15:0] hot_threshold,
    input  wire        uses_write,
    // verilator lint_off UNUSEDSIGNAL
    input  wire [11:0] uses_block,  // below MAX_BLOCKS
    // verilator lint_on UNUSEDSIGNAL
    input  wire [15:0] uses_value,

    input  wire        visit_valid,
    output wire        visit_ready,
    input  wire [11:0] visit_block,
    input  wire [ 7:0] visit_jobs,
    input  wire        visit_k_only,

    output wire                 give_k,
    output wire                 give_v,
    input  wire                 k_room,
    input  wire                 v_room,
    output reg  [         11:0] give_block,
    output wire                 give_from_line,
    output wire                 give_keep,
    output wire [LINE_BITS-1:0] give_line,

    output reg  [10:0] live_lines,      // that hold a block
    input  wire        clear_counts,
    output reg  [31:0] count_visits,
    output reg  [31:0] count_hits,
    output reg  [31:0] count_misses,
    output reg  [31:0] count_hot,
    output reg  [31:0] count_cold,
    output reg  [31:0] count_bypasses,
    output reg  [31:0] count_evictions
);

  localparam BLOCK_BITS = $clog2(MAX_BLOCKS);
  localparam HALF = CACHE_LINES / 2;
  localparam ENTRY_BITS = 1 + LINE_BITS + 16;
  localparam [31:0] HALF_32 = HALF;

  localparam [1:0] WAIT = 2'd0;
  localparam [1:0] LOOK = 2'd1;
  localparam [1:0] GIVE = 2'd2;

  reg [1:0] state;

  // Present, line and uses left of each block. The uses of a block come with an entry that holds no
  // line, so nothing needs to be cleared.
  reg [ENTRY_BITS-1:0] entries[0:MAX_BLOCKS-1];
  reg [ENTRY_BITS-1:0] entry;

  wire present = entry[ENTRY_BITS-1];
  wire [LINE_BITS-1:0] entry_line = entry[16+:LINE_BITS];

  reg [7:0] jobs;
  reg k_only, hit, needed, is_hot;
  reg  [         15:0] left;
  reg  [LINE_BITS-1:0] line;

  wire [         15:0] left_after = entry[15:0] - {8'd0, jobs};
  wire hot_available, cold_available;
  wire [LINE_BITS-1:0] hot_line, cold_line;

  wire give = state == GIVE && k_room && v_room;
  wire counted = give && !k_only;
  wire tracked = counted && cache_enable;
  wire wanted = tracked && !hit && needed;
  wire keep_hot = wanted && is_hot && hot_available;
  wire keep_cold = wanted && !keep_hot && cold_available;
  wire free = tracked && hit && !needed;

  assign busy = state != WAIT;
  assign visit_ready = state == WAIT;
  assign give_k = give;
  assign give_v = counted;
  assign give_from_line = hit;
  assign give_keep = keep_hot || keep_cold;
  assign give_line = hit ? line : keep_hot ? hot_line : cold_line;

  always @(posedge clk) begin
    if (!rst_n) state <= WAIT;
    else
      case (state)
        WAIT: if (visit_valid) state <= LOOK;
        LOOK: state <= GIVE;
        default: if (give) state <= WAIT;
      endcase
  end

  always @(posedge clk) begin
    if (visit_valid && visit_ready) begin
      give_block <= visit_block;
      jobs <= visit_jobs;
      k_only <= visit_k_only;
      entry <= entries[visit_block[BLOCK_BITS-1:0]];
    end
    if (state == LOOK) begin
      left <= left_after;
      hit <= present && !k_only;
      needed <= left_after != 16'd0;
      is_hot <= left_after > hot_threshold;
      line <= entry_line;
    end
  end

  always @(posedge clk)
    if (uses_write)
      entries[uses_block[BLOCK_BITS-1:0]] <= {1'b0, {LINE_BITS{1'b0}}, uses_value};
    else if (tracked)
      entries[give_block[BLOCK_BITS-1:0]] <= {(hit && needed) || give_keep, give_line, left};

  kv_free_lines #(
      .LINES    (HALF),
      .FIRST    (HALF),
      .LINE_BITS(LINE_BITS)
  ) hot_lines (
      .clk      (clk),
      .start    (start),
      .available(hot_available),
      .line     (hot_line),
      .take     (keep_hot),
      .give     (free && line >= HALF_32[LINE_BITS-1:0]),
      .give_line(line)
  );

  kv_free_lines #(
      .LINES    (HALF),
      .FIRST    (0),
      .LINE_BITS(LINE_BITS)
  ) cold_lines (
      .clk      (clk),
      .start    (start),
      .available(cold_available),
      .line     (cold_line),
      .take     (keep_cold),
      .give     (free && line < HALF_32[LINE_BITS-1:0]),
      .give_line(line)
  );

  always @(posedge clk) begin
    if (!rst_n || start) live_lines <= 11'd0;
    else live_lines <= live_lines + {10'd0, give_keep} - {10'd0, free};

    if (!rst_n || clear_counts) begin
      count_visits    <= 32'd0;
      count_hits      <= 32'd0;
      count_misses    <= 32'd0;
      count_hot       <= 32'd0;
      count_cold      <= 32'd0;
      count_bypasses  <= 32'd0;
      count_evictions <= 32'd0;
    end else begin
      count_visits    <= count_visits + {31'd0, counted};
      count_hits      <= count_hits + {31'd0, counted && hit};
      count_misses    <= count_misses + {31'd0, counted && !hit};
      count_hot       <= count_hot + {31'd0, keep_hot};
      count_cold      <= count_cold + {31'd0, keep_cold};
      count_bypasses  <= count_bypasses + {31'd0, wanted && !give_keep};
      count_evictions <= count_evictions + {31'd0, free};
    end
  end

endmodule

`default_nettype wire
