// SPDX-License-Identifier: Apache-2.0
// Sparse index generation for one KV head: which KV blocks each query block attends to.
//
// Purpose: dense mode: every causal pair, as a job list.
`default_nettype none

module index_generator #(
    parameter MAX_BLOCKS  = 256,  // blocks of the longest prompt: power of two, 2 to 2048
    parameter MAX_GROUP   = 4,    // query heads of a KV head, at most: 1 to 8
    parameter SLOTS       = 16,   // window * group, at most: power of two, 2 to 64
    parameter SCORE_LANES = 8,    // block scores read in a cycle: power of two, 1 to 64
    parameter MAP_LANES   = 8     // entries of the query-aware map read in a cycle: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output reg         busy,
    output reg         done,
    input  wire        mode_dense,
    input  wire [11:0] blocks,
    input  wire [ 3:0] group,
    input  wire [ 6:0] window,

    output wire        list_start,
    output wire [31:0] list_words,
    output wire        list_valid,
    input  wire        list_ready,
    output wire [31:0] list_data
);

  localparam HEAD_BITS = $clog2(MAX_GROUP);

  wire emit_start = start && !busy && mode_dense;
  wire emit_busy, emit_done;
  wire scan_start, scan_busy, visit_valid, visit_ready;
  wire [11:0] visit_block, visit_query;
  wire [(SLOTS<<HEAD_BITS)-1:0] visit_mask;
  wire [31:0] jobs;

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
      .with_pairs({MAX_GROUP{1'b0}}),
      .column_write(1'b0),
      .distance_write(1'b0),
      .mark_head(3'd0),
      .column_word(12'd0),
      .column_bits({SCORE_LANES{1'b0}}),
      .distance_word(12'd0),
      .distance_bits({SCORE_LANES{1'b0}}),
      .pair_read(),
      .pair_row(),
      .pair_word(),
      .pair_bits({MAX_GROUP * MAP_LANES{1'b0}}),
      .visit_valid(visit_valid),
      .visit_ready(visit_ready),
      .visit_block(visit_block),
      .visit_query(visit_query),
      .visit_mask(visit_mask)
  );

  index_emitter #(
      .MAX_BLOCKS(MAX_BLOCKS),
      .MAX_GROUP(MAX_GROUP),
      .HEAD_BITS(HEAD_BITS),
      .SLOTS(SLOTS)
  ) emitter (
      .clk(clk),
      .rst_n(rst_n),
      .start(emit_start),
      .busy(emit_busy),
      .done(emit_done),
      .blocks(blocks),
      .header_bits(8'd0),
      .divergences({MAX_GROUP * 32{1'b0}}),
      .jobs(jobs),
      .scan_start(scan_start),
      .scan_busy(scan_busy),
      .visit_valid(visit_valid),
      .visit_ready(visit_ready),
      .visit_block(visit_block),
      .visit_query(visit_query),
      .visit_mask(visit_mask),
      .list_start(list_start),
      .list_words(list_words),
      .list_valid(list_valid),
      .list_ready(list_ready),
      .list_data(list_data)
  );

  always @(posedge clk) begin
    if (!rst_n) begin
      busy <= 1'b0;
      done <= 1'b0;
    end else begin
      done <= emit_done;
      if (start) busy <= 1'b1;
      else if (emit_done) busy <= 1'b0;
    end
  end

endmodule

`default_nettype wire
