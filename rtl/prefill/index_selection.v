// SPDX-License-Identifier: Apache-2.0
// Choice of the block columns, or of the block distances, of a head from its block scores.
//
// Purpose: vertical-slash: the count that covers gamma of the total, brought within the budgets;
//   query-aware: the least budget. Then entry 0 and the best others, that many in all, are marked.
//     count = min(max(covering, min_blocks), max_blocks, N)
// Protocol: start (one cycle) with stable settings; read and word as index_score_memory; marks as
//   index_threshold; done is high for one cycle after the last mark.
// Latency: with W words and n equal scores at the edge of the coverage at most
//   (W + 4) * 82 + W + n + 12 cycles, query-aware or with gamma = 2^16 half of it.
`default_nettype none

module index_selection #(
    parameter SCORE_LANES = 8  // scores of a word: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    input  wire        query_aware,
    input  wire [11:0] blocks,
    input  wire [16:0] gamma,
    input  wire [11:0] min_blocks,
    input  wire [11:0] max_blocks,
    input  wire [39:0] total,
    output reg         done,

    output wire                      read,
    output wire [              11:0] word,
    input  wire [SCORE_LANES*40-1:0] scores,

    output wire                   mark_valid,
    output wire [           11:0] mark_word,
    output wire [SCORE_LANES-1:0] mark_bits
);

  localparam LANE_BITS = $clog2(SCORE_LANES);
  localparam [1:0] IDLE = 2'd0, COVER = 2'd1, CLAMP = 2'd2, BEST = 2'd3;

  reg [1:0] state;
  reg [11:0] count, wanted;
  reg best_start;
  wire threshold_done;
  wire [11:0] covering;

  wire [11:0] last_entry = blocks - 12'd1;
  wire [11:0] last_word = last_entry >> LANE_BITS;
  wire [11:0] last_lane = last_entry & (SCORE_LANES[11:0] - 12'd1);
  wire [SCORE_LANES-1:0] last_lanes = ~({SCORE_LANES{1'b1}} << last_lane << 1);

  wire [11:0] at_least = count < min_blocks ? min_blocks : count;
  wire [11:0] at_most = at_least > max_blocks ? max_blocks : at_least;
  wire [11:0] clamped = at_most > blocks ? blocks : at_most;
  wire take_all = gamma[16];
  wire cover_start = start && !query_aware && !take_all;

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      best_start <= 1'b0;
      done <= 1'b0;
    end else begin
      best_start <= state == CLAMP;
      done <= state == BEST && threshold_done;
      case (state)
        IDLE: if (start) state <= cover_start ? COVER : CLAMP;
        COVER: if (threshold_done) state <= CLAMP;
        CLAMP: state <= BEST;
        default: if (threshold_done) state <= IDLE;  // BEST
      endcase
    end
    if (state == IDLE) count <= query_aware ? 12'd0 : blocks;
    else if (state == COVER) count <= covering;
    // Entry 0 is taken in any case, and is one of the count.
    if (state == CLAMP) wanted <= clamped == 12'd0 ? 12'd0 : clamped - 12'd1;
  end

  index_threshold #(
      .VALUE_BITS(40),
      .LANES(SCORE_LANES),
      .ADDRESS_BITS(12),
      .COUNT_BITS(12)
  ) bisection (
      .clk(clk),
      .rst_n(rst_n),
      .start(cover_start || best_start),
      .mode(state == BEST ? 2'd1 : 2'd0),
      .wanted(wanted),
      .gamma(gamma),
      .total(total),
      .last_word(last_word),
      .last_lanes(last_lanes),
      .done(threshold_done),
      .count(covering),
      .read(read),
      .address(word),
      .values(scores),
      .mark_valid(mark_valid),
      .mark_address(mark_word),
      .mark_bits(mark_bits)
  );

endmodule

`default_nettype wire
