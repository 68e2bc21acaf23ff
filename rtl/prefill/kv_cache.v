// SPDX-License-Identifier: Apache-2.0
// K and V blocks of the visits in order, from memory or from a cache that knows every later use.
//
// Purpose: a block that is used again is kept, as long as a line is free, until its last use;
//   kv_directory has the rule. Decisions depend on the order of the visits only, and the beats that
//   come out are the same whatever they are.
// Protocol: start for one cycle, with the unit not busy, begins a KV head; then uses_write for every
//   block, then its visits. cache_enable and hot_threshold are stable while the unit works.
//   A request is for one block of memory; s_k and s_v bring the blocks in the order of their
//   requests. m_k has K of every visit, m_v has V of every visit without k_only.
//   K and V run apart, as far as PREFETCH visits.
// Latency: 3 cycles from a visit to its requests, or 7 to its first beat from a line, when nothing
//   is before it; 2 cycles from memory beat to output beat.
// Throughput: one beat a cycle on each output, no gap between visits known ahead. Up to PREFETCH
//   visits behind the one whose beats pass are decided and asked for.
// Limits: uses of at most 65,535 jobs.
`default_nettype none

module kv_cache #(
    parameter BLOCK       = 128, // tokens of a block: 8 to 128
    parameter HEAD_DIM    = 128, // channels of a head: 16 to 256
    parameter CACHE_LINES = 256, // K and V block each, half hot and half cold, a power of two: 2 to 1024
    parameter MAX_BLOCKS  = 256, // blocks of the longest prompt, a power of two: 2 to 2048
    parameter BUS_WIDTH   = 512, // bits of a beat, a power of two whose bytes divide BLOCK and HEAD_DIM: 64 to 512
    parameter PREFETCH    = 4    // visits decided ahead: 1 to 16
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        busy,
    input  wire        cache_enable,
    input  wire [15:0] hot_threshold, // jobs; a block with more left belongs into the hot half
    input  wire        uses_write,
    input  wire [11:0] uses_block,
    input  wire [15:0] uses_value,

    input  wire        visit_valid,
    output wire        visit_ready,
    input  wire [11:0] visit_block,
    input  wire [ 7:0] visit_jobs,
    input  wire        visit_k_only,

    output wire        k_request_valid,
    input  wire        k_request_ready,
    output wire [11:0] k_request_block,
    output wire        v_request_valid,
    input  wire        v_request_ready,
    output wire [11:0] v_request_block,

    input  wire [BUS_WIDTH-1:0] s_k_tdata,
    input  wire                 s_k_tvalid,
    output wire                 s_k_tready,
    input  wire [BUS_WIDTH-1:0] s_v_tdata,
    input  wire                 s_v_tvalid,
    output wire                 s_v_tready,

    output wire [BUS_WIDTH-1:0] m_k_tdata,
    output wire                 m_k_tvalid,
    input  wire                 m_k_tready,
    output wire [BUS_WIDTH-1:0] m_v_tdata,
    output wire                 m_v_tvalid,
    input  wire                 m_v_tready,

    output wire [10:0] live_lines,  // that hold a block; 0 after the last visit of a KV head

    // Visits with V, from a line and from memory; blocks kept in hot and in cold lines; blocks used
    // again that found no line; lines that were freed; K blocks asked for before their turn.
    input  wire        clear_counts,
    output wire [31:0] count_visits,
    output wire [31:0] count_hits,
    output wire [31:0] count_misses,
    output wire [31:0] count_hot,
    output wire [31:0] count_cold,
    output wire [31:0] count_bypasses,
    output wire [31:0] count_evictions,
    output reg  [31:0] count_prefetches
);

  generate
    if (BLOCK < 8 || BLOCK > 128 || BLOCK % (BUS_WIDTH / 8) != 0) begin : g_block
      illegal_parameter_BLOCK stop ();
    end
    if (HEAD_DIM < 16 || HEAD_DIM > 256 || HEAD_DIM % (BUS_WIDTH / 8) != 0) begin : g_head_dim
      illegal_parameter_HEAD_DIM stop ();
    end
    if (CACHE_LINES < 2 || CACHE_LINES > 1024 || (CACHE_LINES & (CACHE_LINES - 1)) != 0)
    begin : g_cache_lines
      illegal_parameter_CACHE_LINES stop ();
    end
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0)
    begin : g_max_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (BUS_WIDTH < 64 || BUS_WIDTH > 512 || (BUS_WIDTH & (BUS_WIDTH - 1)) != 0)
    begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
    if (PREFETCH < 1 || PREFETCH > 16) begin : g_prefetch
      illegal_parameter_PREFETCH stop ();
    end
  endgenerate

  localparam LINE_BITS = $clog2(CACHE_LINES);
  localparam V_BEATS = HEAD_DIM * BLOCK / (BUS_WIDTH / 8);
  localparam K_BEATS = V_BEATS + BLOCK / (BUS_WIDTH / 8);

  wire directory_busy, k_busy, v_busy;
  wire give_k, give_v, k_room, v_room, from_line, keep, k_ahead, unused_v_ahead;
  wire [LINE_BITS-1:0] line;
  wire [11:0] block;

  assign busy = directory_busy || k_busy || v_busy;

  kv_directory #(
      .CACHE_LINES(CACHE_LINES),
      .LINE_BITS  (LINE_BITS),
      .MAX_BLOCKS (MAX_BLOCKS)
  ) directory (
      .clk            (clk),
      .rst_n          (rst_n),
      .start          (start),
      .busy           (directory_busy),
      .cache_enable   (cache_enable),
      .hot_threshold  (hot_threshold),
      .uses_write     (uses_write),
      .uses_block     (uses_block),
      .uses_value     (uses_value),
      .visit_valid    (visit_valid),
      .visit_ready    (visit_ready),
      .visit_block    (visit_block),
      .visit_jobs     (visit_jobs),
      .visit_k_only   (visit_k_only),
      .give_k         (give_k),
      .give_v         (give_v),
      .k_room         (k_room),
      .v_room         (v_room),
      .give_block     (block),
      .give_from_line (from_line),
      .give_keep      (keep),
      .give_line      (line),
      .live_lines     (live_lines),
      .clear_counts   (clear_counts),
      .count_visits   (count_visits),
      .count_hits     (count_hits),
      .count_misses   (count_misses),
      .count_hot      (count_hot),
      .count_cold     (count_cold),
      .count_bypasses (count_bypasses),
      .count_evictions(count_evictions)
  );

  kv_stream #(
      .WIDTH    (BUS_WIDTH),
      .BEATS    (K_BEATS),
      .LINES    (CACHE_LINES),
      .LINE_BITS(LINE_BITS),
      .DEPTH    (PREFETCH)
  ) k_stream (
      .clk           (clk),
      .rst_n         (rst_n),
      .push          (give_k),
      .room          (k_room),
      .push_block    (block),
      .push_from_line(from_line),
      .push_keep     (keep),
      .push_line     (line),
      .busy          (k_busy),
      .request_valid (k_request_valid),
      .request_ready (k_request_ready),
      .request_block (k_request_block),
      .ahead         (k_ahead),
      .s_axis_tdata  (s_k_tdata),
      .s_axis_tvalid (s_k_tvalid),
      .s_axis_tready (s_k_tready),
      .m_axis_tdata  (m_k_tdata),
      .m_axis_tvalid (m_k_tvalid),
      .m_axis_tready (m_k_tready)
  );

  kv_stream #(
      .WIDTH    (BUS_WIDTH),
      .BEATS    (V_BEATS),
      .LINES    (CACHE_LINES),
      .LINE_BITS(LINE_BITS),
      .DEPTH    (PREFETCH)
  ) v_stream (
      .clk           (clk),
      .rst_n         (rst_n),
      .push          (give_v),
      .room          (v_room),
      .push_block    (block),
      .push_from_line(from_line),
      .push_keep     (keep),
      .push_line     (line),
      .busy          (v_busy),
      .request_valid (v_request_valid),
      .request_ready (v_request_ready),
      .request_block (v_request_block),
      .ahead         (unused_v_ahead),
      .s_axis_tdata  (s_v_tdata),
      .s_axis_tvalid (s_v_tvalid),
      .s_axis_tready (s_v_tready),
      .m_axis_tdata  (m_v_tdata),
      .m_axis_tvalid (m_v_tvalid),
      .m_axis_tready (m_v_tready)
  );

  always @(posedge clk)
    if (!rst_n || clear_counts) count_prefetches <= 32'd0;
    else count_prefetches <= count_prefetches + {31'd0, k_ahead};

endmodule

`default_nettype wire
