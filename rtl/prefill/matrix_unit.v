// SPDX-License-Identifier: Apache-2.0
// Hybrid matrix unit: strip products of signed bytes from one task queue on several servers.
//
// Purpose: a task is one strip product
//     C[i][j] = sum over step = 0 .. last_step of A[i][step] * B[j][step]
//   with ROW_ARRAYS * ARRAY_ROWS rows i and ARRAY_COLUMNS columns j, 32-bit sums. Each of STRIPS
//   servers is a stack of arrays, some with DSP products and some with fabric products, equal to the
//   bit. Whichever server is free takes the oldest task, the lowest one if several are.
// Protocol: s_task (valid, ready) fills the queue. Server n asks on request for the operands of one
//   step of one of its tasks in each cycle and samples its slice of operand_a and operand_b
//   OPERAND_LATENCY cycles later; there is no way to delay an answer. Results leave on one port for
//   each kind (m_scores: kind 0, m_values: kind 1; valid, ready), in the order in which the tasks of
//   that kind came, columns ascending. A port that waits stalls the servers before the last step of
//   their next task and loses nothing, and in time it stalls the other port too: whether a result is
//   taken may depend on the results of older tasks only, else the unit stands still.
// Latency: s_task to its first request 3 cycles in an idle unit; last request to the first column
//   OPERAND_LATENCY + 5 cycles.
// Throughput: STRIPS steps a cycle, no idle cycle between tasks; one column a cycle and port, so a
//   port keeps up while all tasks together have at least STRIPS * ARRAY_COLUMNS steps for each task
//   of its kind. Each task needs ARRAY_COLUMNS + OPERAND_LATENCY + 6 cycles of its server's holding
//   registers, which is less than its own steps in a busy unit.
// Limits: 2^DEPTH_WIDTH steps, at which no sum overflows.
`default_nettype none

module matrix_unit #(
    parameter STRIPS          = 3,   // servers: 1 to 4
    parameter ROW_ARRAYS      = 4,   // arrays stacked in a server: 1 to 16
    parameter LUT_ARRAYS      = 2,   // of these with products in the fabric: 0 to ROW_ARRAYS
    parameter ARRAY_ROWS      = 32,  // 2 to 64
    parameter ARRAY_COLUMNS   = 32,  // 2 to 64
    parameter COLUMN_WIDTH    = 5,   // bits of a column index, enough for ARRAY_COLUMNS: 1 to 8
    parameter DEPTH_WIDTH     = 9,   // bits of a step index: 1 to 16
    parameter TAG_WIDTH       = 16,  // bits of a tag: 1 to 64
    parameter QUEUE_DEPTH     = 16,  // tasks that wait, a power of two: 2 to 1024
    parameter OPERAND_LATENCY = 2    // cycles from request to operands: 1 to 16
) (
    input wire clk,
    input wire rst_n,

    input  wire                   s_task_valid,
    output wire                   s_task_ready,
    input  wire                   s_task_kind,      // 0 scores, 1 values
    input  wire [  TAG_WIDTH-1:0] s_task_tag,
    input  wire [DEPTH_WIDTH-1:0] s_task_last_step, // number of steps less one

    output wire [                        STRIPS-1:0] request_valid,
    output wire [                        STRIPS-1:0] request_kind,
    output wire [              STRIPS*TAG_WIDTH-1:0] request_tag,
    output wire [            STRIPS*DEPTH_WIDTH-1:0] request_step,
    input  wire [STRIPS*ROW_ARRAYS*ARRAY_ROWS*8-1:0] operand_a,
    input  wire [        STRIPS*ARRAY_COLUMNS*8-1:0] operand_b,

    output wire                                m_scores_valid,
    input  wire                                m_scores_ready,
    output wire [               TAG_WIDTH-1:0] m_scores_tag,
    output wire [            COLUMN_WIDTH-1:0] m_scores_column,
    output wire                                m_scores_last,    // last column
    output wire [ROW_ARRAYS*ARRAY_ROWS*32-1:0] m_scores_sums,

    output wire                                m_values_valid,
    input  wire                                m_values_ready,
    output wire [               TAG_WIDTH-1:0] m_values_tag,
    output wire [            COLUMN_WIDTH-1:0] m_values_column,
    output wire                                m_values_last,
    output wire [ROW_ARRAYS*ARRAY_ROWS*32-1:0] m_values_sums,

    input  wire                 clear_counts,
    output reg  [STRIPS*32-1:0] step_counts    // steps that each server requested
);

  generate
    if (STRIPS < 1 || STRIPS > 4) begin : g_strips
      illegal_parameter_STRIPS stop ();
    end
    if (ROW_ARRAYS < 1 || ROW_ARRAYS > 16) begin : g_row_arrays
      illegal_parameter_ROW_ARRAYS stop ();
    end
    if (LUT_ARRAYS < 0 || LUT_ARRAYS > ROW_ARRAYS) begin : g_lut_arrays
      illegal_parameter_LUT_ARRAYS stop ();
    end
    if (ARRAY_ROWS < 2 || ARRAY_ROWS > 64) begin : g_array_rows
      illegal_parameter_ARRAY_ROWS stop ();
    end
    if (ARRAY_COLUMNS < 2 || ARRAY_COLUMNS > 64) begin : g_array_columns
      illegal_parameter_ARRAY_COLUMNS stop ();
    end
    if (COLUMN_WIDTH < 1 || COLUMN_WIDTH > 8 || (1 << COLUMN_WIDTH) < ARRAY_COLUMNS)
    begin : g_column_width
      illegal_parameter_COLUMN_WIDTH stop ();
    end
    if (DEPTH_WIDTH < 1 || DEPTH_WIDTH > 16) begin : g_depth_width
      illegal_parameter_DEPTH_WIDTH stop ();
    end
    if (TAG_WIDTH < 1 || TAG_WIDTH > 64) begin : g_tag_width
      illegal_parameter_TAG_WIDTH stop ();
    end
    if (QUEUE_DEPTH < 2 || QUEUE_DEPTH > 1024 || (QUEUE_DEPTH & (QUEUE_DEPTH - 1)) != 0)
    begin : g_queue_depth
      illegal_parameter_QUEUE_DEPTH stop ();
    end
    if (OPERAND_LATENCY < 1 || OPERAND_LATENCY > 16) begin : g_operand_latency
      illegal_parameter_OPERAND_LATENCY stop ();
    end
  endgenerate

  localparam SUM_BITS = ROW_ARRAYS * ARRAY_ROWS * 32;
  localparam TASK_BITS = 1 + TAG_WIDTH + DEPTH_WIDTH;

  // ---------------------------------------------------------------- task queue

  wire queue_valid, task_kind;
  wire [  TAG_WIDTH-1:0] task_tag;
  wire [DEPTH_WIDTH-1:0] task_last_step;
  wire [STRIPS-1:0] strip_ready, strip_chosen;
  wire taken = queue_valid && strip_ready != {STRIPS{1'b0}};
  reg [1:0] chosen;

  assign strip_chosen = strip_ready & (~strip_ready + 1'b1);

  stream_fifo #(
      .WIDTH(TASK_BITS),
      .DEPTH(QUEUE_DEPTH)
  ) task_queue (
      .clk(clk),
      .rst_n(rst_n),
      .flush(1'b0),
      .s_axis_tdata({s_task_kind, s_task_tag, s_task_last_step}),
      .s_axis_tvalid(s_task_valid),
      .s_axis_tready(s_task_ready),
      .m_axis_tdata({task_kind, task_tag, task_last_step}),
      .m_axis_tvalid(queue_valid),
      .m_axis_tready(strip_ready != {STRIPS{1'b0}})
  );

  always @* begin : choose
    reg [31:0] n;
    chosen = 2'd0;
    for (n = 1; n < STRIPS; n = n + 1) if (strip_chosen[n]) chosen = n[1:0];
  end

  // ---------------------------------------------------------------- servers

  wire [STRIPS-1:0] result_ready, result_kind;
  wire [STRIPS*TAG_WIDTH-1:0] result_tags;
  wire [STRIPS-1:0] scores_read, values_read, scores_release, values_release;
  wire scores_read_last, values_read_last;
  wire [COLUMN_WIDTH-1:0] scores_column, values_column;
  wire [4*SUM_BITS-1:0] sums;
  wire [1:0] scores_strip, values_strip;

  genvar n;
  generate
    for (n = 0; n < STRIPS; n = n + 1) begin : g_strip
      matrix_strip #(
          .ROW_ARRAYS     (ROW_ARRAYS),
          .LUT_ARRAYS     (LUT_ARRAYS),
          .ARRAY_ROWS     (ARRAY_ROWS),
          .ARRAY_COLUMNS  (ARRAY_COLUMNS),
          .COLUMN_WIDTH   (COLUMN_WIDTH),
          .DEPTH_WIDTH    (DEPTH_WIDTH),
          .TAG_WIDTH      (TAG_WIDTH),
          .OPERAND_LATENCY(OPERAND_LATENCY)
      ) strip (
          .clk(clk),
          .rst_n(rst_n),
          .task_valid(queue_valid && strip_chosen[n]),
          .task_ready(strip_ready[n]),
          .task_kind(task_kind),
          .task_tag(task_tag),
          .task_last_step(task_last_step),
          .request_valid(request_valid[n]),
          .request_kind(request_kind[n]),
          .request_tag(request_tag[n*TAG_WIDTH+:TAG_WIDTH]),
          .request_step(request_step[n*DEPTH_WIDTH+:DEPTH_WIDTH]),
          .operand_a(operand_a[n*ROW_ARRAYS*ARRAY_ROWS*8+:ROW_ARRAYS*ARRAY_ROWS*8]),
          .operand_b(operand_b[n*ARRAY_COLUMNS*8+:ARRAY_COLUMNS*8]),
          .result_ready(result_ready[n]),
          .result_kind(result_kind[n]),
          .result_tag(result_tags[n*TAG_WIDTH+:TAG_WIDTH]),
          .drain_read(scores_read[n] || values_read[n]),
          .drain_last(result_kind[n] ? values_read_last : scores_read_last),
          .drain_column(result_kind[n] ? values_column : scores_column),
          .drain_sums(sums[n*SUM_BITS+:SUM_BITS]),
          .drain_release(scores_release[n] || values_release[n])
      );

      always @(posedge clk)
        if (!rst_n || clear_counts) step_counts[n*32+:32] <= 32'd0;
        else if (request_valid[n]) step_counts[n*32+:32] <= step_counts[n*32+:32] + 32'd1;
    end

    for (n = STRIPS; n < 4; n = n + 1) begin : g_no_strip
      assign sums[n*SUM_BITS+:SUM_BITS] = {SUM_BITS{1'b0}};
    end
  endgenerate

  // ---------------------------------------------------------------- results

  matrix_drain #(
      .STRIPS   (STRIPS),
      .COLUMNS  (ARRAY_COLUMNS),
      .COLUMN_WIDTH(COLUMN_WIDTH),
      .TAG_WIDTH(TAG_WIDTH)
  ) scores_drain (
      .clk(clk),
      .rst_n(rst_n),
      .started(taken && !task_kind),
      .started_strip(chosen),
      .result_ready(result_ready & ~result_kind),
      .result_tags(result_tags),
      .drain_read(scores_read),
      .drain_last(scores_read_last),
      .drain_column(scores_column),
      .drain_release(scores_release),
      .m_valid(m_scores_valid),
      .m_ready(m_scores_ready),
      .m_strip(scores_strip),
      .m_tag(m_scores_tag),
      .m_column(m_scores_column),
      .m_last(m_scores_last)
  );

  matrix_drain #(
      .STRIPS   (STRIPS),
      .COLUMNS  (ARRAY_COLUMNS),
      .COLUMN_WIDTH(COLUMN_WIDTH),
      .TAG_WIDTH(TAG_WIDTH)
  ) values_drain (
      .clk(clk),
      .rst_n(rst_n),
      .started(taken && task_kind),
      .started_strip(chosen),
      .result_ready(result_ready & result_kind),
      .result_tags(result_tags),
      .drain_read(values_read),
      .drain_last(values_read_last),
      .drain_column(values_column),
      .drain_release(values_release),
      .m_valid(m_values_valid),
      .m_ready(m_values_ready),
      .m_strip(values_strip),
      .m_tag(m_values_tag),
      .m_column(m_values_column),
      .m_last(m_values_last)
  );

  assign m_scores_sums = sums[scores_strip*SUM_BITS+:SUM_BITS];
  assign m_values_sums = sums[values_strip*SUM_BITS+:SUM_BITS];

endmodule

`default_nettype wire
