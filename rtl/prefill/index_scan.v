// SPDX-License-Identifier: Apache-2.0
// Scan of the selected pairs: visits of a KV head in the order of the job list.
//
// Purpose: holds the chosen columns and distances of every head and walks windows of query blocks,
//   in each the KV blocks ascending. A visit is one KV block b in one window: its mask has bit
//   k * 2^HEAD_BITS + h set if query block query + k of head h takes b,
//     b <= q  and  (dense or column_h[b] or distance_h[q - b] or pair_h[q][b]).
//   Visits that nobody takes are left out.
// Protocol: marks are written in any order before start, a word of SCORE_LANES bits at a time. start
//   (one cycle, not while busy) begins a scan; visits leave with valid and ready. Pair bits of a head
//   are looked at if its with_pairs bit is set: pair_read asks for word pair_word of row pair_row,
//   MAP_LANES bits of every head, which come two cycles later.
// Latency: start to the first visit window + 2 cycles; with pairs window + 3 more.
// Throughput: one KV block a cycle within a window; window cycles between windows, and with pairs
//   window + 3 for every MAP_LANES blocks.
// Formula: the distances of the rows of a window move by one from a KV block to the next, so each head
//   has them in a shift register that one distance bit enters a cycle.
`default_nettype none

module index_scan #(
    parameter MAX_BLOCKS  = 256,  // power of two, 2 to 2048
    parameter MAX_GROUP   = 4,    // query heads of a KV head: 1 to 8
    parameter HEAD_BITS   = 2,    // bits of a head in a mask: enough for MAX_GROUP, 0 to 3
    parameter SLOTS       = 16,   // rows of the largest window: 2 to 64
    parameter SCORE_LANES = 8,    // bits of a word of marks: power of two, 1 to 64
    parameter MAP_LANES   = 8     // bits of a word of pairs: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input  wire                 start,
    output reg                  busy,
    input  wire                 dense,
    input  wire [         11:0] blocks,
    input  wire [          3:0] group,
    input  wire [          6:0] window,
    input  wire [MAX_GROUP-1:0] with_pairs,

    input wire                   column_write,
    input wire                   distance_write,
    input wire [            2:0] mark_head,
    input wire [           11:0] column_word,
    input wire [SCORE_LANES-1:0] column_bits,
    input wire [           11:0] distance_word,
    input wire [SCORE_LANES-1:0] distance_bits,

    output wire                           pair_read,
    output wire [                   11:0] pair_row,
    output wire [                   11:0] pair_word,
    input  wire [MAX_GROUP*MAP_LANES-1:0] pair_bits,

    output reg                            visit_valid,
    input  wire                           visit_ready,
    output reg  [                   11:0] visit_block,
    output reg  [                   11:0] visit_query,  // first query block of the window
    output reg  [(SLOTS<<HEAD_BITS)-1:0] visit_mask
);

  generate
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0) begin : g_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (MAX_GROUP < 1 || MAX_GROUP > 8) begin : g_group
      illegal_parameter_MAX_GROUP stop ();
    end
    if (HEAD_BITS < 0 || HEAD_BITS > 3 || (1 << HEAD_BITS) < MAX_GROUP) begin : g_head_bits
      illegal_parameter_HEAD_BITS stop ();
    end
    if (SLOTS < 2 || SLOTS > 64 || (SLOTS & (SLOTS - 1)) != 0) begin : g_slots
      illegal_parameter_SLOTS stop ();
    end
    if (SCORE_LANES < 1 || SCORE_LANES > 64 || (SCORE_LANES & (SCORE_LANES - 1)) != 0)
    begin : g_score_lanes
      illegal_parameter_SCORE_LANES stop ();
    end
    if (MAP_LANES < 1 || MAP_LANES > 64 || (MAP_LANES & (MAP_LANES - 1)) != 0) begin : g_map_lanes
      illegal_parameter_MAP_LANES stop ();
    end
  endgenerate

  localparam HEADS = 1 << HEAD_BITS;
  localparam MARK_WORDS = MAX_BLOCKS > SCORE_LANES ? MAX_BLOCKS / SCORE_LANES : 1;
  localparam MARK_WORD_BITS = MARK_WORDS > 1 ? $clog2(MARK_WORDS) : 1;
  localparam LANE_BITS = $clog2(SCORE_LANES);
  localparam PAIR_LANE_BITS = $clog2(MAP_LANES);

  localparam [1:0] IDLE = 2'd0, PRELOAD = 2'd1, PAIRS = 2'd2, RUN = 2'd3;

  reg [1:0] state;
  reg [11:0] block;
  reg [12:0] query;  // first query block of the window
  reg [11:0] distance;  // whose bit enters next; it wraps below 0, where nothing is causal
  reg [6:0] count;  // rows to load, of distances or pairs
  reg pair_read_1, pair_read_2;
  reg [5:0] pair_row_1, pair_row_2;

  wire [12:0] last_row = query + {6'd0, window} - 13'd1;
  wire [12:0] last_causal = last_row < {1'b0, blocks} ? last_row : {1'b0, blocks} - 13'd1;
  wire [11:0] next_block = block + 12'd1;
  wire [12:0] next_query = query + {6'd0, window};
  wire has_pairs = !dense && with_pairs != {MAX_GROUP{1'b0}};
  // The words of the next MAP_LANES blocks are needed at each multiple.
  wire words_used_up = has_pairs && (next_block & (MAP_LANES[11:0] - 12'd1)) == 12'd0;
  wire advance = !visit_valid || visit_ready;
  wire step = state == RUN && advance;
  wire shift = step || state == PRELOAD;
  wire at_last = {1'b0, block} == last_causal;

  wire [MAX_GROUP-1:0] column_hit;
  wire [MAX_GROUP*SLOTS-1:0] distance_hit;
  wire [MAX_GROUP*SLOTS-1:0] pair_hit;
  reg [(SLOTS<<HEAD_BITS)-1:0] mask;

  assign pair_read = state == PAIRS && count != 7'd0;
  assign pair_row = last_row[11:0] - {5'd0, count} + 12'd1;
  assign pair_word = block >> PAIR_LANE_BITS;

  wire [6:0] pair_row_in_window = window - count;

  always @* begin : select
    reg [31:0] row, head;
    reg [12:0] q;
    reg causal;
    mask = {(SLOTS << HEAD_BITS) {1'b0}};
    for (row = 0; row < SLOTS; row = row + 1) begin
      q = query + row[12:0];
      causal = row < {25'd0, window} && q < {1'b0, blocks} && q >= {1'b0, block};
      for (head = 0; head < MAX_GROUP; head = head + 1)
      mask[row*HEADS+head] = causal && head < {28'd0, group} &&
          (dense || column_hit[head] || distance_hit[head*SLOTS+row] || pair_hit[head*SLOTS+row]);
    end
  end

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      busy <= 1'b0;
      visit_valid <= 1'b0;
      {pair_read_2, pair_read_1} <= 2'b0;
    end else begin
      {pair_read_2, pair_read_1} <= {pair_read_1, pair_read};
      if (advance) visit_valid <= step && mask != {(SLOTS << HEAD_BITS) {1'b0}};
      case (state)
        IDLE: begin
          if (start) begin
            state <= PRELOAD;
            busy  <= 1'b1;
          end else if (advance) busy <= 1'b0;
        end
        PRELOAD: if (count == 7'd1) state <= has_pairs ? PAIRS : RUN;
        PAIRS:   if (count == 7'd0 && !pair_read_1 && !pair_read_2) state <= RUN;
        default:  // RUN
        if (advance) begin
          if (at_last) state <= next_query < {1'b0, blocks} ? PRELOAD : IDLE;
          else if (words_used_up) state <= PAIRS;
        end
      endcase
    end
  end

  always @(posedge clk) begin
    pair_row_1 <= pair_row_in_window[5:0];
    pair_row_2 <= pair_row_1;
    if (shift) distance <= distance - 12'd1;
    case (state)
      IDLE:
      if (start) begin
        query <= 13'd0;
        distance <= {5'd0, window} - 12'd1;
        count <= window;
      end
      PRELOAD: begin
        block <= 12'd0;
        count <= count == 7'd1 ? window : count - 7'd1;
      end
      PAIRS: if (count != 7'd0) count <= count - 7'd1;
      default:  // RUN
      if (advance) begin
        block <= next_block;
        count <= window;
        if (at_last) begin
          query <= next_query;
          distance <= next_query[11:0] + {5'd0, window} - 12'd1;
        end
      end
    endcase
    if (step) begin
      visit_block <= block;
      visit_query <= query[11:0];
      visit_mask  <= mask;
    end
  end

  wire [11:0] column_address = block >> LANE_BITS;
  wire [11:0] distance_address = distance >> LANE_BITS;
  wire [11:0] column_lane = block & (SCORE_LANES[11:0] - 12'd1);
  wire [11:0] distance_lane = distance & (SCORE_LANES[11:0] - 12'd1);

  genvar h;
  generate
    for (h = 0; h < MAX_GROUP; h = h + 1) begin : g_head
      localparam [31:0] H = h;

      reg [SCORE_LANES-1:0] columns[0:MARK_WORDS-1];
      reg [SCORE_LANES-1:0] distances[0:MARK_WORDS-1];
      reg [SLOTS-1:0] near;
      reg [SLOTS*MAP_LANES-1:0] pairs;  // bit 0 of a row's word is that of the present block

      wire [SCORE_LANES-1:0] column_shifted = columns[column_address[MARK_WORD_BITS-1:0]] >> column_lane;
      wire [SCORE_LANES-1:0] distance_shifted =
          distances[distance_address[MARK_WORD_BITS-1:0]] >> distance_lane;

      wire unused = &{1'b0, column_shifted, distance_shifted};

      assign column_hit[h] = column_shifted[0];
      assign distance_hit[h*SLOTS+:SLOTS] = near;

      always @(posedge clk) begin
        if (column_write && mark_head == H[2:0])
          columns[column_word[MARK_WORD_BITS-1:0]] <= column_bits;
        if (distance_write && mark_head == H[2:0])
          distances[distance_word[MARK_WORD_BITS-1:0]] <= distance_bits;
        if (shift) near <= {near[SLOTS-2:0], distance_shifted[0]};
      end

      genvar k;
      for (k = 0; k < SLOTS; k = k + 1) begin : g_row
        localparam [31:0] K = k;
        assign pair_hit[h*SLOTS+k] = with_pairs[h] && pairs[k*MAP_LANES];
        always @(posedge clk) begin
          if (pair_read_2 && pair_row_2 == K[5:0])
            pairs[k*MAP_LANES+:MAP_LANES] <= pair_bits[h*MAP_LANES+:MAP_LANES];
          else if (step) pairs[k*MAP_LANES+:MAP_LANES] <= pairs[k*MAP_LANES+:MAP_LANES] >> 1;
        end
      end
    end
  endgenerate

  wire unused = &{
    1'b0, column_word, distance_word, column_address, distance_address, pair_row_in_window[6]
  };

endmodule

`default_nettype wire
