// SPDX-License-Identifier: Apache-2.0
// One server of the matrix unit: arrays stacked in rows that compute one strip product at a time.
//
// Purpose: C[i][j] = sum over steps of A[i][step] * B[j][step] for all rows i of ROW_ARRAYS arrays
//   and ARRAY_COLUMNS columns j. The last LUT_ARRAYS arrays have the fabric form of the product.
// Protocol: a task is taken with task_valid and task_ready; request_valid then asks for the operands
//   of one step a cycle, which are sampled OPERAND_LATENCY cycles later, unasked. A finished product
//   raises result_ready; the drain reads its columns and gives drain_release when it needs them no
//   more. The last step of the next task waits for that, so a product is never overwritten.
// Latency: request of the last step to result_ready OPERAND_LATENCY + 4 cycles.
// Throughput: one step a cycle; a task is taken while the one before requests its last step.
`default_nettype none

module matrix_strip #(
    parameter ROW_ARRAYS      = 4,   // stacked arrays: 1 to 16
    parameter LUT_ARRAYS      = 2,   // of these in the fabric form: 0 to ROW_ARRAYS
    parameter ARRAY_ROWS      = 32,  // 2 to 64
    parameter ARRAY_COLUMNS   = 32,  // 2 to 64
    parameter DEPTH_WIDTH     = 9,   // bits of a step index: 1 to 16
    parameter TAG_WIDTH       = 16,  // bits of a tag: >= 1
    parameter COLUMN_WIDTH    = 5,   // bits of a column index, enough for ARRAY_COLUMNS: 1 to 8
    parameter OPERAND_LATENCY = 2    // cycles from request to operands: >= 1
) (
    input wire clk,
    input wire rst_n,

    input  wire                   task_valid,
    output wire                   task_ready,
    input  wire                   task_kind,
    input  wire [  TAG_WIDTH-1:0] task_tag,
    input  wire [DEPTH_WIDTH-1:0] task_last_step,

    output wire                               request_valid,
    output reg                                request_kind,
    output reg  [              TAG_WIDTH-1:0] request_tag,
    output reg  [            DEPTH_WIDTH-1:0] request_step,
    input  wire [ROW_ARRAYS*ARRAY_ROWS*8-1:0] operand_a,
    input  wire [        ARRAY_COLUMNS*8-1:0] operand_b,

    output reg                                 result_ready,
    output reg                                 result_kind,
    output reg  [               TAG_WIDTH-1:0] result_tag,
    input  wire                                drain_read,
    input  wire                                drain_last,    // with drain_read: the last column
    input  wire [            COLUMN_WIDTH-1:0] drain_column,
    output wire [ROW_ARRAYS*ARRAY_ROWS*32-1:0] drain_sums,    // one cycle after drain_read
    input  wire                                drain_release
);

  reg running;
  reg held_occupied;  // from the request of a last step to drain_release
  reg [DEPTH_WIDTH-1:0] last_step;

  wire at_first = request_step == {DEPTH_WIDTH{1'b0}};
  wire at_last = request_step == last_step;
  wire last_requested = request_valid && at_last;
  wire take = task_valid && task_ready;
  wire step_valid, step_first, step_last, sums_held;

  assign request_valid = running && !(at_last && held_occupied);
  assign task_ready = !running || last_requested;

  always @(posedge clk) begin
    if (!rst_n) begin
      running <= 1'b0;
      held_occupied <= 1'b0;
      result_ready <= 1'b0;
    end else begin
      if (take) running <= 1'b1;
      else if (last_requested) running <= 1'b0;
      if (last_requested) held_occupied <= 1'b1;
      else if (drain_release) held_occupied <= 1'b0;
      if (sums_held) result_ready <= 1'b1;
      else if (drain_read && drain_last) result_ready <= 1'b0;
    end
  end

  always @(posedge clk) begin
    if (take) begin
      request_kind <= task_kind;
      request_tag <= task_tag;
      request_step <= {DEPTH_WIDTH{1'b0}};
      last_step <= task_last_step;
    end else if (request_valid) begin
      request_step <= request_step + 1'b1;
    end
    if (last_requested) begin
      result_kind <= request_kind;
      result_tag  <= request_tag;
    end
  end

  delay_line #(
      .WIDTH (3),
      .CYCLES(OPERAND_LATENCY),
      .RESET (1)
  ) operand_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   ({request_valid, at_first, last_requested}),
      .out  ({step_valid, step_first, step_last})
  );

  delay_line #(
      .WIDTH (1),
      .CYCLES(3),
      .RESET (1)
  ) result_delay (
      .clk  (clk),
      .rst_n(rst_n),
      .in   (step_last),
      .out  (sums_held)
  );

  genvar n;
  generate
    for (n = 0; n < ROW_ARRAYS; n = n + 1) begin : g_array
      mac_array #(
          .ROWS        (ARRAY_ROWS),
          .COLUMNS     (ARRAY_COLUMNS),
          .COLUMN_WIDTH(COLUMN_WIDTH),
          .SUM_WIDTH   (DEPTH_WIDTH + 16),                     // of 2^DEPTH_WIDTH steps
          .LUT         (n >= ROW_ARRAYS - LUT_ARRAYS ? 1 : 0)
      ) mac_array (
          .clk(clk),
          .rst_n(rst_n),
          .step_valid(step_valid),
          .step_first(step_first),
          .step_last(step_last),
          .a(operand_a[n*ARRAY_ROWS*8+:ARRAY_ROWS*8]),
          .b(operand_b),
          .drain_read(drain_read),
          .drain_column(drain_column),
          .drain_sums(drain_sums[n*ARRAY_ROWS*32+:ARRAY_ROWS*32])
      );
    end
  endgenerate

endmodule

`default_nettype wire
