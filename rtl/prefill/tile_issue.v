// SPDX-License-Identifier: Apache-2.0
// Gives the tasks of prepared jobs to the matrix unit and keeps the tiles that are in work.
//
// Purpose: a job becomes a tile: BLOCK / ARRAY_COLUMNS score tasks when its operands have been
//   loaded and a tile is free, and, if it attends, HEAD_DIM / ARRAY_COLUMNS value tasks when its
//   probabilities are complete. A tile owns a buffer of probabilities from its first task to its
//   end, so a score task never waits for a value task behind it in the queue.
// Protocol: s_job in order; tile_scored when the probabilities of the oldest unscored tile are
//   complete; tile_done when the oldest tile is done with. The offered
//   task may change while the matrix unit does not take it. tile_facts are those of all tiles.
// Throughput: one task a cycle; value tasks go first.
`default_nettype none

module tile_issue #(
    parameter BLOCK         = 128,  // tokens of a block
    parameter HEAD_DIM      = 128,  // channels of a head
    parameter ARRAY_COLUMNS = 32,   // columns of a task
    parameter SLOTS         = 16,   // a power of two, 2 to 64
    parameter TILES         = 4,    // tiles in work: 2 to 8
    parameter DEPTH_WIDTH   = 8     // bits of a step's number
) (
    input wire clk,
    input wire rst_n,

    input  wire        s_job_valid,
    output wire        s_job_ready,
    input  wire        s_job_statistics,
    input  wire [11:0] s_job_block,
    input  wire [11:0] s_job_query,
    input  wire [ 2:0] s_job_head,
    input  wire [ 5:0] s_job_slot,
    input  wire [ 2:0] s_job_buffer,
    input  wire        s_job_first,
    input  wire        s_job_last,

    input wire [      7:0] k_loaded,
    input wire [      7:0] v_loaded,
    input wire [SLOTS-1:0] q_loaded,

    output wire                   m_task_valid,
    input  wire                   m_task_ready,
    output wire                   m_task_kind,      // 0 scores, 1 values
    output wire [           17:0] m_task_tag,       // {tile, strip, buffer, slot}
    output wire [DEPTH_WIDTH-1:0] m_task_last_step,

    input wire tile_scored,
    input wire tile_done,

    // For each of 8 tiles {statistics, block, query, head, slot, buffer, first, last}.
    output wire [8*39-1:0] tile_facts,
    output wire                 idle
);

  localparam SLOT_BITS = $clog2(SLOTS);
  localparam [31:0] SCORE_TASKS = BLOCK / ARRAY_COLUMNS;
  localparam [31:0] VALUE_TASKS = HEAD_DIM / ARRAY_COLUMNS;
  localparam [5:0] LAST_SCORE_STRIP = SCORE_TASKS[5:0] - 6'd1;
  localparam [5:0] LAST_VALUE_STRIP = VALUE_TASKS[5:0] - 6'd1;
  localparam [31:0] LAST_SCORE_STEP = HEAD_DIM - 1;
  localparam [31:0] LAST_VALUE_STEP = BLOCK - 1;
  localparam [2:0] LAST_TILE = TILES - 1;
  localparam [3:0] TILE_COUNT = TILES;

  function automatic [2:0] following(input [2:0] tile);
    following = tile == LAST_TILE ? 3'd0 : tile + 3'd1;
  endfunction

  reg [38:0] tiles[0:7];
  reg [3:0] tiles_used, values_due;
  reg [2:0] next_tile, scored_tile, values_tile;
  reg [5:0] score_strip, value_strip;

  wire loaded = k_loaded[s_job_buffer] && q_loaded[s_job_slot[SLOT_BITS-1:0]] &&
      (s_job_statistics || v_loaded[s_job_buffer]);
  wire may_score = s_job_valid && loaded && tiles_used != TILE_COUNT;
  wire values_turn = values_due != 4'd0;
  wire score_task = m_task_valid && m_task_ready && !values_turn;
  wire value_task = m_task_valid && m_task_ready && values_turn;
  wire last_score_task = score_task && score_strip == LAST_SCORE_STRIP;
  wire last_value_task = value_task && value_strip == LAST_VALUE_STRIP;
  wire [8:0] values_place = tiles[values_tile][10:2];  // {slot, buffer}
  wire scored_statistics = tiles[scored_tile][38];

  assign s_job_ready = last_score_task;
  assign m_task_valid = values_turn || may_score;
  assign m_task_kind = values_turn;
  assign m_task_tag = values_turn ? {values_tile, value_strip, values_place[2:0], values_place[8:3]} :
      {next_tile, score_strip, s_job_buffer, s_job_slot};
  assign m_task_last_step =
      values_turn ? LAST_VALUE_STEP[DEPTH_WIDTH-1:0] : LAST_SCORE_STEP[DEPTH_WIDTH-1:0];
  assign tile_facts = {
    tiles[7], tiles[6], tiles[5], tiles[4], tiles[3], tiles[2], tiles[1], tiles[0]
  };
  assign idle = tiles_used == 4'd0;

  always @(posedge clk) begin
    if (!rst_n) begin
      {tiles_used, values_due} <= 8'd0;
      {next_tile, scored_tile, values_tile} <= 9'd0;
      {score_strip, value_strip} <= 12'd0;
    end else begin
      // A tile is in use from its first task on; the strip counter holds it until the last.
      tiles_used <= tiles_used + {3'd0, last_score_task} - {3'd0, tile_done};
      values_due <= values_due + {3'd0, tile_scored && !scored_statistics} - {3'd0, last_value_task};
      if (score_task) score_strip <= last_score_task ? 6'd0 : score_strip + 6'd1;
      if (value_task) value_strip <= last_value_task ? 6'd0 : value_strip + 6'd1;
      if (last_score_task) next_tile <= following(next_tile);
      if (tile_scored) scored_tile <= following(scored_tile);
      if (last_value_task || (tile_scored && scored_statistics)) values_tile <= following(values_tile);
    end
  end

  always @(posedge clk)
    if (score_task)
      tiles[next_tile] <= {
        s_job_statistics,
        s_job_block,
        s_job_query,
        s_job_head,
        s_job_slot,
        s_job_buffer,
        s_job_first,
        s_job_last
      };

endmodule

`default_nettype wire
