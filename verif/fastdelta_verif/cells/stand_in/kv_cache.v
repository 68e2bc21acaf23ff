// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for the KV cache with the same ports, for tests of the kernel around it: it keeps nothing,
// asks memory for the blocks of at most four visits ahead and lets their beats pass. Its counters show
// what came in: visits and misses are the visits with values, hits those without, hot the number of
// uses, cold their sum, bypasses the threshold if the cache is on.

`default_nettype none

module kv_cache #(
    parameter BLOCK       = 128,
    parameter HEAD_DIM    = 128,
    parameter CACHE_LINES = 256,
    parameter MAX_BLOCKS  = 256,
    parameter BUS_WIDTH   = 512
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        busy,
    input  wire        cache_enable,
    input  wire [15:0] hot_threshold,
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

    input  wire                 s_k_tvalid,
    output wire                 s_k_tready,
    input  wire [BUS_WIDTH-1:0] s_k_tdata,
    input  wire                 s_v_tvalid,
    output wire                 s_v_tready,
    input  wire [BUS_WIDTH-1:0] s_v_tdata,
    output wire                 m_k_tvalid,
    input  wire                 m_k_tready,
    output wire [BUS_WIDTH-1:0] m_k_tdata,
    output wire                 m_v_tvalid,
    input  wire                 m_v_tready,
    output wire [BUS_WIDTH-1:0] m_v_tdata,

    output wire [10:0] live_lines,
    input  wire        clear_counts,
    output reg  [31:0] count_visits,
    output reg  [31:0] count_hits,
    output wire [31:0] count_misses,
    output reg  [31:0] count_hot,
    output reg  [31:0] count_cold,
    output wire [31:0] count_bypasses,
    output reg  [31:0] count_evictions,
    output reg  [31:0] count_prefetches
);

  localparam [31:0] K_BEATS = (1 + HEAD_DIM) * BLOCK * 8 / BUS_WIDTH;
  localparam [31:0] V_BEATS = HEAD_DIM * BLOCK * 8 / BUS_WIDTH;

  reg k_asked, v_asked;
  reg [11:0] block;
  reg [31:0] k_left, v_left;

  wire take = visit_valid && visit_ready;
  wire k_take = s_k_tvalid && s_k_tready;
  wire v_take = s_v_tvalid && s_v_tready;

  assign visit_ready = !k_asked && !v_asked && k_left <= 4 * K_BEATS;
  assign k_request_valid = k_asked;
  assign k_request_block = block;
  assign v_request_valid = v_asked;
  assign v_request_block = block;
  assign m_k_tvalid = s_k_tvalid;
  assign s_k_tready = m_k_tready;
  assign m_k_tdata = s_k_tdata;
  assign m_v_tvalid = s_v_tvalid;
  assign s_v_tready = m_v_tready;
  assign m_v_tdata = s_v_tdata;
  assign busy = k_asked || v_asked || k_left != 0 || v_left != 0;
  assign live_lines = 11'd0;
  assign count_misses = count_visits;
  assign count_bypasses = cache_enable ? {16'd0, hot_threshold} : 32'd0;

  always @(posedge clk) begin
    if (!rst_n) begin
      k_asked <= 1'b0;
      v_asked <= 1'b0;
      k_left <= 32'd0;
      v_left <= 32'd0;
    end else begin
      if (take) begin
        k_asked <= 1'b1;
        v_asked <= !visit_k_only;
        block <= visit_block;
      end else begin
        if (k_request_ready) k_asked <= 1'b0;
        if (v_request_ready) v_asked <= 1'b0;
      end
      k_left <= k_left + (k_asked && k_request_ready ? K_BEATS : 0) - (k_take ? 1 : 0);
      v_left <= v_left + (v_asked && v_request_ready ? V_BEATS : 0) - (v_take ? 1 : 0);
    end
    if (clear_counts) begin
      count_visits <= 32'd0;
      count_hits <= 32'd0;
      count_hot <= 32'd0;
      count_cold <= 32'd0;
      count_evictions <= 32'd0;
      count_prefetches <= 32'd0;
    end else begin
      if (take && !visit_k_only) count_visits <= count_visits + 1;
      if (take && visit_k_only) count_hits <= count_hits + 1;
      if (uses_write) count_hot <= count_hot + 1;
      if (uses_write) count_cold <= count_cold + {16'd0, uses_value} + {20'd0, uses_block};
      if (take) count_evictions <= count_evictions + {24'd0, visit_jobs};
      if (start) count_prefetches <= count_prefetches + 1;
    end
  end

endmodule

`default_nettype wire
