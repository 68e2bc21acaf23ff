// SPDX-License-Identifier: Apache-2.0
// Tile engine: attention of jobs, one query block against one KV block each, on the matrix unit.
//
// Purpose: takes jobs in the order of the schedule, loads their blocks, multiplies, takes the softmax
//   and accumulates by slot; a slot's last job sends its outputs away. Statistics jobs give row
//   exponents and sums of shares instead, for the choice of the blocks. Formats and arithmetic:
//   docs/prefill_engine.md.
// Protocol: jobs and beats as in "Units" there. K and V beats come in the order of the visits, Q beats in
//   the order of q_request, outputs leave in the order of o_request. Attention jobs begin when
//   idle is high after statistics jobs and the other way round. row_* has no ready.
// Throughput: with operands at hand the matrix unit never waits while a tile's softmax, 2 BLOCK
//   cycles, is hidden by the other tiles in work.
`default_nettype none

module tile_engine #(
    parameter STRIPS        = 3,    // servers of the matrix unit: 1 to 4
    parameter ROW_ARRAYS    = 4,    // arrays stacked in a server
    parameter LUT_ARRAYS    = 2,    // of these with products in the fabric
    parameter ARRAY_ROWS    = 32,   // rows of an array; a block has ROW_ARRAYS * ARRAY_ROWS tokens
    parameter ARRAY_COLUMNS = 32,   // columns of an array, divides block and HEAD_DIM
    parameter HEAD_DIM      = 128,  // channels of a head, 16 to 256
    parameter SLOTS         = 16,   // keyed accumulators, a power of two, 2 to 64
    parameter KV_BUFFERS    = 4,    // K and V blocks at the arrays, 2 to 8
    parameter TILES         = 4,    // tiles in work, 2 to 8
    parameter BUS_WIDTH     = 512   // bits of a beat
) (
    input wire clk,
    input wire rst_n,

    input wire [11:0] blocks,   // of the prompt
    input wire [ 7:0] padding,  // tokens missing in the last block

    input  wire        s_job_valid,
    output wire        s_job_ready,
    input  wire [ 1:0] s_job_kind,         // 0 attend, 1 statistics, 2 pool
    input  wire [11:0] s_job_block,
    input  wire [11:0] s_job_query,
    input  wire [ 2:0] s_job_head,
    input  wire [ 5:0] s_job_slot,
    input  wire        s_job_opens_visit,
    input  wire        s_job_last,

    output wire                 q_request_valid,
    input  wire                 q_request_ready,
    output wire [          2:0] q_request_head,
    output wire [         11:0] q_request_query,
    input  wire                 s_q_tvalid,
    output wire                 s_q_tready,
    input  wire [BUS_WIDTH-1:0] s_q_tdata,
    input  wire                 s_k_tvalid,
    output wire                 s_k_tready,
    input  wire [BUS_WIDTH-1:0] s_k_tdata,
    input  wire                 s_v_tvalid,
    output wire                 s_v_tready,
    input  wire [BUS_WIDTH-1:0] s_v_tdata,

    output wire                 o_request_valid,
    input  wire                 o_request_ready,
    output wire [          2:0] o_request_head,
    output wire [         11:0] o_request_query,
    output wire                 m_o_tvalid,
    input  wire                 m_o_tready,
    output wire [BUS_WIDTH-1:0] m_o_tdata,

    output wire        row_valid,
    output wire [11:0] row_block,
    output wire [ 2:0] row_head,
    output wire [ 6:0] row_index,
    output wire        row_last,
    output wire [15:0] row_exponent,  // signed
    output wire [23:0] row_far,
    output wire [23:0] row_near,

    input  wire        clear_counts,
    output reg  [63:0] matrix_steps,  // of all servers
    output reg  [31:0] jobs_done,
    output reg  [31:0] statistics_done,
    output wire [31:0] empty_rows,
    output wire        idle
);

  localparam BLOCK = ROW_ARRAYS * ARRAY_ROWS;
  localparam ROW_WIDTH = $clog2(BLOCK);
  localparam CHANNEL_WIDTH = $clog2(HEAD_DIM);
  localparam DEPTH_WIDTH = ROW_WIDTH > CHANNEL_WIDTH ? ROW_WIDTH : CHANNEL_WIDTH;
  localparam COLUMN_WIDTH = $clog2(ARRAY_COLUMNS);
  localparam SLOT_WIDTH = $clog2(SLOTS);
  localparam BUFFER_WIDTH = $clog2(KV_BUFFERS);
  localparam TILE_WIDTH = $clog2(TILES);
  localparam [31:0] BLOCK_32 = BLOCK;

  generate
    if (BLOCK < 8 || BLOCK > 128) begin : g_block
      illegal_parameter_BLOCK stop ();
    end
    if (HEAD_DIM < 16 || HEAD_DIM > 256 || HEAD_DIM % ARRAY_COLUMNS != 0) begin : g_head_dim
      illegal_parameter_HEAD_DIM stop ();
    end
    if (BLOCK % ARRAY_COLUMNS != 0) begin : g_array_columns
      illegal_parameter_ARRAY_COLUMNS stop ();
    end
    if (SLOTS < 2 || SLOTS > 64 || (SLOTS & (SLOTS - 1)) != 0) begin : g_slots
      illegal_parameter_SLOTS stop ();
    end
    if (KV_BUFFERS < 2 || KV_BUFFERS > 8) begin : g_kv_buffers
      illegal_parameter_KV_BUFFERS stop ();
    end
    if (TILES < 2 || TILES > 8) begin : g_tiles
      illegal_parameter_TILES stop ();
    end
    if (BUS_WIDTH < 64 || BUS_WIDTH > 512 || BLOCK * 8 % BUS_WIDTH != 0 ||
        HEAD_DIM * 8 % BUS_WIDTH != 0) begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
  endgenerate

  // ---------------------------------------------------------------- jobs and operands

  wire [5:0] q_slot;
  wire [8:0] q_word, k_word, v_word;
  wire [4:0] q_part, k_part, v_part;
  wire [2:0] k_buffer, v_buffer;
  wire q_take = s_q_tvalid && s_q_tready;
  wire k_take = s_k_tvalid && s_k_tready;
  wire v_take = s_v_tvalid && s_v_tready;
  wire [8:0] q_channel = q_word - 9'd3;
  wire [8:0] k_channel = k_word - 9'd1;

  wire job_valid, job_ready, job_statistics, job_first, job_last;
  wire [11:0] job_block, job_query;
  wire [2:0] job_head, job_buffer;
  wire [5:0] job_slot;
  wire [7:0] k_loaded, v_loaded;
  wire [SLOTS-1:0] q_loaded;
  wire tile_done, slot_release;
  wire [2:0] tile_done_buffer;
  wire [SLOT_WIDTH-1:0] slot_release_slot;
  wire loader_idle;

  tile_loader #(
      .BLOCK     (BLOCK),
      .HEAD_DIM  (HEAD_DIM),
      .SLOTS     (SLOTS),
      .KV_BUFFERS(KV_BUFFERS),
      .BUS_WIDTH (BUS_WIDTH)
  ) loader (
      .clk              (clk),
      .rst_n            (rst_n),
      .s_job_valid      (s_job_valid),
      .s_job_ready      (s_job_ready),
      .s_job_kind       (s_job_kind),
      .s_job_block      (s_job_block),
      .s_job_query      (s_job_query),
      .s_job_head       (s_job_head),
      .s_job_slot       (s_job_slot),
      .s_job_opens_visit(s_job_opens_visit),
      .s_job_last       (s_job_last),
      .q_request_valid  (q_request_valid),
      .q_request_ready  (q_request_ready),
      .q_request_head   (q_request_head),
      .q_request_query  (q_request_query),
      .s_q_tvalid       (s_q_tvalid),
      .s_q_tready       (s_q_tready),
      .s_k_tvalid       (s_k_tvalid),
      .s_k_tready       (s_k_tready),
      .s_v_tvalid       (s_v_tvalid),
      .s_v_tready       (s_v_tready),
      .q_slot           (q_slot),
      .q_word           (q_word),
      .q_part           (q_part),
      .k_buffer         (k_buffer),
      .k_word           (k_word),
      .k_part           (k_part),
      .v_buffer         (v_buffer),
      .v_word           (v_word),
      .v_part           (v_part),
      .m_job_valid      (job_valid),
      .m_job_ready      (job_ready),
      .m_job_statistics (job_statistics),
      .m_job_block      (job_block),
      .m_job_query      (job_query),
      .m_job_head       (job_head),
      .m_job_slot       (job_slot),
      .m_job_buffer     (job_buffer),
      .m_job_first      (job_first),
      .m_job_last       (job_last),
      .k_loaded         (k_loaded),
      .v_loaded         (v_loaded),
      .q_loaded         (q_loaded),
      .job_done         (tile_done),
      .job_done_buffer  (tile_done_buffer),
      .slot_release     (slot_release),
      .slot_release_slot(slot_release_slot),
      .idle             (loader_idle)
  );

  wire task_valid, task_ready, task_kind;
  wire [17:0] task_tag;
  wire [DEPTH_WIDTH-1:0] task_last_step;
  wire scored, issue_idle;
  wire [8*39-1:0] tile_facts;

  tile_issue #(
      .BLOCK        (BLOCK),
      .HEAD_DIM     (HEAD_DIM),
      .ARRAY_COLUMNS(ARRAY_COLUMNS),
      .SLOTS        (SLOTS),
      .TILES        (TILES),
      .DEPTH_WIDTH  (DEPTH_WIDTH)
  ) issue (
      .clk             (clk),
      .rst_n           (rst_n),
      .s_job_valid     (job_valid),
      .s_job_ready     (job_ready),
      .s_job_statistics(job_statistics),
      .s_job_block     (job_block),
      .s_job_query     (job_query),
      .s_job_head      (job_head),
      .s_job_slot      (job_slot),
      .s_job_buffer    (job_buffer),
      .s_job_first     (job_first),
      .s_job_last      (job_last),
      .k_loaded        (k_loaded),
      .v_loaded        (v_loaded),
      .q_loaded        (q_loaded),
      .m_task_valid    (task_valid),
      .m_task_ready    (task_ready),
      .m_task_kind     (task_kind),
      .m_task_tag      (task_tag),
      .m_task_last_step(task_last_step),
      .tile_scored     (scored),
      .tile_done       (tile_done),
      .tile_facts      (tile_facts),
      .idle            (issue_idle)
  );

  wire [STRIPS-1:0] request_valid, request_kind;
  wire [STRIPS*18-1:0] request_tag;
  wire [STRIPS*DEPTH_WIDTH-1:0] request_step;
  wire [STRIPS*BLOCK*8-1:0] operand_a;
  wire [STRIPS*ARRAY_COLUMNS*8-1:0] operand_b;
  wire p_write;
  wire [2:0] p_tile;
  wire [ROW_WIDTH-1:0] p_column;
  wire [BLOCK*8-1:0] p_data;

  tile_operands #(
      .STRIPS       (STRIPS),
      .BLOCK        (BLOCK),
      .HEAD_DIM     (HEAD_DIM),
      .ARRAY_COLUMNS(ARRAY_COLUMNS),
      .ROW_WIDTH    (ROW_WIDTH),
      .CHANNEL_WIDTH(CHANNEL_WIDTH),
      .DEPTH_WIDTH  (DEPTH_WIDTH),
      .SLOT_WIDTH   (SLOT_WIDTH),
      .BUFFER_WIDTH (BUFFER_WIDTH),
      .TILE_WIDTH   (TILE_WIDTH),
      .BUS_WIDTH    (BUS_WIDTH)
  ) operands (
      .clk          (clk),
      .q_write      (q_take && q_word >= 9'd3),
      .q_slot       (q_slot[SLOT_WIDTH-1:0]),
      .q_channel    (q_channel[CHANNEL_WIDTH-1:0]),
      .q_part       (q_part),
      .q_data       (s_q_tdata),
      .k_write      (k_take && k_word != 9'd0),
      .k_buffer     (k_buffer[BUFFER_WIDTH-1:0]),
      .k_channel    (k_channel[CHANNEL_WIDTH-1:0]),
      .k_part       (k_part),
      .k_data       (s_k_tdata),
      .v_write      (v_take),
      .v_buffer     (v_buffer[BUFFER_WIDTH-1:0]),
      .v_row        (v_word[ROW_WIDTH-1:0]),
      .v_part       (v_part),
      .v_data       (s_v_tdata),
      .p_write      (p_write),
      .p_tile       (p_tile[TILE_WIDTH-1:0]),
      .p_column     (p_column),
      .p_data       (p_data),
      .request_valid(request_valid),
      .request_kind (request_kind),
      .request_tag  (request_tag),
      .request_step (request_step),
      .operand_a    (operand_a),
      .operand_b    (operand_b)
  );

  // ---------------------------------------------------------------- products

  wire scores_valid, scores_ready, values_valid, values_ready;
  wire [17:0] scores_tag, values_tag;
  wire [COLUMN_WIDTH-1:0] scores_column, values_column;
  wire scores_last, values_last;
  wire [BLOCK*32-1:0] scores_sums, values_sums;
  wire [STRIPS*32-1:0] unused_step_counts;

  matrix_unit #(
      .STRIPS         (STRIPS),
      .ROW_ARRAYS     (ROW_ARRAYS),
      .LUT_ARRAYS     (LUT_ARRAYS),
      .ARRAY_ROWS     (ARRAY_ROWS),
      .ARRAY_COLUMNS  (ARRAY_COLUMNS),
      .COLUMN_WIDTH   (COLUMN_WIDTH),
      .DEPTH_WIDTH    (DEPTH_WIDTH),
      .TAG_WIDTH      (18),
      .QUEUE_DEPTH    (4),
      .OPERAND_LATENCY(2)
  ) matrix_unit (
      .clk             (clk),
      .rst_n           (rst_n),
      .s_task_valid    (task_valid),
      .s_task_ready    (task_ready),
      .s_task_kind     (task_kind),
      .s_task_tag      (task_tag),
      .s_task_last_step(task_last_step),
      .request_valid   (request_valid),
      .request_kind    (request_kind),
      .request_tag     (request_tag),
      .request_step    (request_step),
      .operand_a       (operand_a),
      .operand_b       (operand_b),
      .m_scores_valid  (scores_valid),
      .m_scores_ready  (scores_ready),
      .m_scores_tag    (scores_tag),
      .m_scores_column (scores_column),
      .m_scores_last   (scores_last),
      .m_scores_sums   (scores_sums),
      .m_values_valid  (values_valid),
      .m_values_ready  (values_ready),
      .m_values_tag    (values_tag),
      .m_values_column (values_column),
      .m_values_last   (values_last),
      .m_values_sums   (values_sums),
      .clear_counts    (clear_counts),
      .step_counts     (unused_step_counts)
  );

  wire [2:0] scores_tile = scores_tag[17:15];
  wire [2:0] values_tile = values_tag[17:15];
  wire [31:0] scores_key =
      {26'd0, scores_tag[14:9]} * ARRAY_COLUMNS + {{(32 - COLUMN_WIDTH) {1'b0}}, scores_column};
  wire [31:0] values_channel =
      {26'd0, values_tag[14:9]} * ARRAY_COLUMNS + {{(32 - COLUMN_WIDTH) {1'b0}}, values_column};

  // ---------------------------------------------------------------- softmax

  wire [38:0] scores_facts = tile_facts[scores_tile*39+:39];
  wire scores_statistics = scores_facts[38];
  wire [11:0] scores_block = scores_facts[37:26];
  wire [11:0] blocks_after = blocks - 12'd1 - scores_block;
  wire diagonal = scores_block == scores_facts[25:14];
  reg signed [8:0] limit;  // key j counts in row i when j <= i + limit

  always @* begin
    if (!scores_statistics) limit = diagonal ? 9'sd0 : BLOCK_32[8:0];
    else if (blocks_after == 12'd0) limit = 9'd0 - {1'b0, padding};
    else if (blocks_after == 12'd1) limit = BLOCK_32[8:0] - {1'b0, padding};
    else limit = BLOCK_32[8:0];
  end

  wire [BLOCK*8-1:0] row_multipliers_low, row_multipliers_high, row_exponents, key_shifts;
  wire [HEAD_DIM*16-1:0] value_sums;
  wire [38:0] values_facts = tile_facts[values_tile*39+:39];

  block_parameters #(
      .BLOCK       (BLOCK),
      .HEAD_DIM    (HEAD_DIM),
      .SLOT_WIDTH  (SLOT_WIDTH),
      .BUFFER_WIDTH(BUFFER_WIDTH),
      .BUS_WIDTH   (BUS_WIDTH)
  ) parameters (
      .clk                 (clk),
      .q_take              (q_take),
      .q_slot              (q_slot[SLOT_WIDTH-1:0]),
      .q_word              (q_word),
      .q_part              (q_part),
      .q_data              (s_q_tdata),
      .k_take              (k_take),
      .k_buffer            (k_buffer[BUFFER_WIDTH-1:0]),
      .k_word              (k_word),
      .k_part              (k_part),
      .k_data              (s_k_tdata),
      .v_take              (v_take),
      .v_buffer            (v_buffer[BUFFER_WIDTH-1:0]),
      .v_word              (v_word),
      .v_part              (v_part),
      .v_data              (s_v_tdata),
      .read_slot           (scores_facts[5+:SLOT_WIDTH]),
      .row_multipliers_low (row_multipliers_low),
      .row_multipliers_high(row_multipliers_high),
      .row_exponents       (row_exponents),
      .read_k_buffer       (scores_facts[2+:BUFFER_WIDTH]),
      .key_shifts          (key_shifts),
      .read_v_buffer       (values_facts[2+:BUFFER_WIDTH]),
      .value_sums          (value_sums)
  );

  wire rows_valid, rows_statistics, rows_last, softmax_idle;
  wire [2:0] rows_tile;
  wire [ROW_WIDTH-1:0] rows_index;
  wire [38:0] rows_sum;
  wire [38:0] rows_facts = tile_facts[rows_tile*39+:39];

  tile_softmax #(
      .BLOCK       (BLOCK),
      .COLUMN_WIDTH(ROW_WIDTH)
  ) softmax (
      .clk                 (clk),
      .rst_n               (rst_n),
      .s_scores_valid      (scores_valid),
      .s_scores_ready      (scores_ready),
      .s_scores_tile       (scores_tile),
      .s_scores_column     (scores_key[ROW_WIDTH-1:0]),
      .s_scores_sums       (scores_sums),
      .tile_statistics     (scores_statistics),
      .tile_limit          (limit),
      .row_multipliers_low (row_multipliers_low),
      .row_multipliers_high(row_multipliers_high),
      .row_exponents       (row_exponents),
      .key_shifts          (key_shifts),
      .p_write             (p_write),
      .p_tile              (p_tile),
      .p_column            (p_column),
      .p_data              (p_data),
      .scored              (scored),
      .row_valid           (rows_valid),
      .row_statistics      (rows_statistics),
      .row_tile            (rows_tile),
      .row_index           (rows_index),
      .row_last            (rows_last),
      .row_exponent        (row_exponent),
      .row_sum             (rows_sum),
      .row_far             (row_far),
      .idle                (softmax_idle)
  );

  assign row_valid = rows_valid && rows_statistics;
  assign row_block = rows_facts[37:26];
  assign row_head = rows_facts[13:11];
  assign row_index = {{(7 - ROW_WIDTH) {1'b0}}, rows_index};
  assign row_last = rows_last;
  assign row_near = rows_sum[23:0] - row_far;

  // ---------------------------------------------------------------- accumulation

  wire shift_valid, shift_last, sum_read;
  wire [2:0] shift_tile;
  wire [SLOT_WIDTH+ROW_WIDTH-1:0] shift_address, sum_address;
  wire [5:0] shift_keep, shift_join;
  wire [60:0] sum;

  row_statistics #(
      .ADDRESS_WIDTH(SLOT_WIDTH + ROW_WIDTH)
  ) statistics (
      .clk           (clk),
      .rst_n         (rst_n),
      .s_row_valid   (rows_valid && !rows_statistics),
      .s_row_first   (rows_facts[1]),
      .s_row_address ({rows_facts[5+:SLOT_WIDTH], rows_index}),
      .s_row_exponent(row_exponent),
      .s_row_sum     (rows_sum),
      .shift_valid   (shift_valid),
      .shift_address (shift_address),
      .shift_keep    (shift_keep),
      .shift_join    (shift_join),
      .sum_read      (sum_read),
      .sum_address   (sum_address),
      .sum           (sum)
  );

  delay_line #(
      .WIDTH (4),
      .CYCLES(2)
  ) beside_statistics (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({rows_last, rows_tile}),
      .out  ({shift_last, shift_tile})
  );

  wire accumulated, accumulator_idle;
  wire [2:0] accumulated_tile;
  wire word_read, word_granted;
  wire [SLOT_WIDTH+CHANNEL_WIDTH-1:0] word_address;
  wire [BLOCK*48-1:0] word;

  keyed_accumulator #(
      .BLOCK        (BLOCK),
      .HEAD_DIM     (HEAD_DIM),
      .ROW_WIDTH    (ROW_WIDTH),
      .CHANNEL_WIDTH(CHANNEL_WIDTH),
      .SLOT_WIDTH   (SLOT_WIDTH)
  ) accumulator (
      .clk             (clk),
      .rst_n           (rst_n),
      .shift_valid     (shift_valid),
      .shift_row       (shift_address[ROW_WIDTH-1:0]),
      .shift_tile      (shift_tile),
      .shift_last      (shift_last),
      .shift_keep      (shift_keep),
      .shift_join      (shift_join),
      .s_values_valid  (values_valid),
      .s_values_ready  (values_ready),
      .s_values_tile   (values_tile),
      .s_values_channel(values_channel[CHANNEL_WIDTH-1:0]),
      .s_values_sums   (values_sums),
      .tile_slot       (values_facts[5+:SLOT_WIDTH]),
      .tile_value_sums (value_sums),
      .tile_done       (accumulated),
      .tile_done_tile  (accumulated_tile),
      .word_read       (word_read),
      .word_address    (word_address),
      .word_granted    (word_granted),
      .word            (word),
      .idle            (accumulator_idle)
  );

  wire measured = rows_valid && rows_statistics && rows_last;
  wire [2:0] done_tile = accumulated ? accumulated_tile : rows_tile;
  wire [38:0] done_facts = tile_facts[done_tile*39+:39];

  assign tile_done = accumulated || measured;
  assign tile_done_buffer = done_facts[4:2];

  // ---------------------------------------------------------------- outputs

  wire finish_room, finish_valid, finish_ready, output_idle;
  wire [SLOT_WIDTH-1:0] finish_slot;
  wire [2:0] finish_head;
  wire [11:0] finish_query;
  reg [6:0] slots_finishing;

  // One entry for every slot: there is always room.
  stream_fifo #(
      .WIDTH(SLOT_WIDTH + 15),
      .DEPTH(SLOTS)
  ) finished (
      .clk(clk),
      .rst_n(rst_n),
      .flush(1'b0),
      .s_axis_tdata({done_facts[5+:SLOT_WIDTH], done_facts[13:11], done_facts[25:14]}),
      .s_axis_tvalid(accumulated && done_facts[0]),
      .s_axis_tready(finish_room),
      .m_axis_tdata({finish_slot, finish_head, finish_query}),
      .m_axis_tvalid(finish_valid),
      .m_axis_tready(finish_ready)
  );

  attention_output #(
      .BLOCK        (BLOCK),
      .HEAD_DIM     (HEAD_DIM),
      .BUS_WIDTH    (BUS_WIDTH),
      .ROW_WIDTH    (ROW_WIDTH),
      .CHANNEL_WIDTH(CHANNEL_WIDTH),
      .SLOT_WIDTH   (SLOT_WIDTH)
  ) outputs (
      .clk              (clk),
      .rst_n            (rst_n),
      .s_finish_valid   (finish_valid),
      .s_finish_ready   (finish_ready),
      .s_finish_slot    (finish_slot),
      .s_finish_head    (finish_head),
      .s_finish_query   (finish_query),
      .sum_read         (sum_read),
      .sum_address      (sum_address),
      .sum              (sum),
      .word_read        (word_read),
      .word_address     (word_address),
      .word_granted     (word_granted),
      .word             (word),
      .slot_release     (slot_release),
      .slot_release_slot(slot_release_slot),
      .m_request_valid  (o_request_valid),
      .m_request_ready  (o_request_ready),
      .m_request_head   (o_request_head),
      .m_request_query  (o_request_query),
      .m_axis_tvalid    (m_o_tvalid),
      .m_axis_tready    (m_o_tready),
      .m_axis_tdata     (m_o_tdata),
      .clear_counts     (clear_counts),
      .empty_rows       (empty_rows),
      .idle             (output_idle)
  );

  assign idle = loader_idle && issue_idle && softmax_idle && accumulator_idle && output_idle &&
      slots_finishing == 7'd0;

  // ---------------------------------------------------------------- counters

  reg [2:0] steps_now;

  always @* begin : count_steps
    reg [31:0] n;
    steps_now = 3'd0;
    for (n = 0; n < STRIPS; n = n + 1) steps_now = steps_now + {2'd0, request_valid[n]};
  end

  always @(posedge clk) begin
    if (!rst_n) slots_finishing <= 7'd0;
    else
      slots_finishing <= slots_finishing + {6'd0, accumulated && done_facts[0]} - {6'd0, slot_release};
    if (!rst_n || clear_counts) begin
      matrix_steps <= 64'd0;
      jobs_done <= 32'd0;
      statistics_done <= 32'd0;
    end else begin
      matrix_steps <= matrix_steps + {61'd0, steps_now};
      jobs_done <= jobs_done + {31'd0, accumulated};
      statistics_done <= statistics_done + {31'd0, measured};
    end
  end

  wire unused = &{
    1'b0,
    unused_step_counts,
    scores_last,
    values_last,
    scores_tag[8:0],
    values_tag[8:0],
    scores_key,
    values_channel,
    q_slot,
    q_channel,
    k_channel,
    v_word,
    k_buffer,
    v_buffer,
    p_tile,
    scores_facts,
    values_facts,
    rows_facts,
    done_facts,
    shift_address,
    rows_sum,
    finish_room
  };

endmodule

`default_nettype wire
