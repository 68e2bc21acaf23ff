// SPDX-License-Identifier: Apache-2.0
// Properties of matrix_unit: its queue, the choice among its servers, and their results.
//
// Proved: a task goes to one server, the lowest that is free, as soon as one is; on each port results
//   leave in the order in which the tasks of that kind came, each once, its columns in ascending
//   order; a column stays until it is taken; a server has the result of one task at a time, and what
//   matrix_drain assumes of it holds.
// How: all cycles from reset to a depth at which each server has begun its second task and both
//   ports have given results. The sums are not looked at: the arrays have their own proof.
// Assumed: tags are the numbers of the tasks of a kind; a reset in the first cycle.
`default_nettype none

module matrix_unit_checks #(
    parameter STRIPS = 2,
    parameter ARRAY_COLUMNS = 2,
    parameter COLUMN_WIDTH = 1,
    parameter TAG_WIDTH = 4
) (
    input wire clk,
    input wire rst_n,

    input wire                 s_task_valid,
    input wire                 s_task_ready,
    input wire                 s_task_kind,
    input wire [TAG_WIDTH-1:0] s_task_tag,

    input wire                    m_scores_valid,
    input wire                    m_scores_ready,
    input wire [   TAG_WIDTH-1:0] m_scores_tag,
    input wire [COLUMN_WIDTH-1:0] m_scores_column,
    input wire                    m_scores_last,
    input wire                    m_values_valid,
    input wire                    m_values_ready,
    input wire [   TAG_WIDTH-1:0] m_values_tag,
    input wire [COLUMN_WIDTH-1:0] m_values_column,
    input wire                    m_values_last,

    input wire                        queue_valid,
    input wire                        taken,
    input wire [          STRIPS-1:0] strip_ready,
    input wire [          STRIPS-1:0] strip_chosen,
    input wire [                 1:0] chosen,
    input wire [          STRIPS-1:0] result_ready,
    input wire [          STRIPS-1:0] result_kind,
    input wire [STRIPS*TAG_WIDTH-1:0] result_tags,
    input wire [          STRIPS-1:0] scores_read,
    input wire [          STRIPS-1:0] values_read,
    input wire                        scores_read_last,
    input wire                        values_read_last
);

  localparam [31:0] LAST_32 = ARRAY_COLUMNS - 1;
  localparam [COLUMN_WIDTH-1:0] LAST = LAST_32[COLUMN_WIDTH-1:0];

  reg has_past = 1'b0;
  always @(posedge clk) begin
    has_past <= 1'b1;
    assume (rst_n == has_past);
  end

  // Kind 0, scores, is the lower half of each pair.
  wire [1:0] came = {2{s_task_valid && s_task_ready}} & {s_task_kind, !s_task_kind};
  wire [1:0] valid = {m_values_valid, m_scores_valid};
  wire [1:0] ready = {m_values_ready, m_scores_ready};
  wire [2*TAG_WIDTH-1:0] tags = {m_values_tag, m_scores_tag};
  wire [2*COLUMN_WIDTH-1:0] columns = {m_values_column, m_scores_column};
  wire [1:0] lasts = {m_values_last, m_scores_last};
  wire [2*STRIPS-1:0] reads = {values_read, scores_read};
  wire [1:0] read_lasts = {values_read_last, scores_read_last};

  reg [2*TAG_WIDTH-1:0] tasks, results;  // of each kind, that came and that left
  reg [2*COLUMN_WIDTH-1:0] next_columns;

  genvar g, s;
  generate
    for (g = 0; g < 2; g = g + 1) begin : g_kind
      wire [TAG_WIDTH-1:0] next = tasks[g*TAG_WIDTH+:TAG_WIDTH];
      wire [TAG_WIDTH-1:0] due = results[g*TAG_WIDTH+:TAG_WIDTH];
      wire [COLUMN_WIDTH-1:0] due_column = next_columns[g*COLUMN_WIDTH+:COLUMN_WIDTH];
      always @(posedge clk)
        if (!rst_n) begin
          tasks[g*TAG_WIDTH+:TAG_WIDTH] <= 0;
          results[g*TAG_WIDTH+:TAG_WIDTH] <= 0;
          next_columns[g*COLUMN_WIDTH+:COLUMN_WIDTH] <= 0;
        end else begin
          if (came[g]) tasks[g*TAG_WIDTH+:TAG_WIDTH] <= next + 1'b1;
          if (valid[g] && ready[g]) begin
            next_columns[g*COLUMN_WIDTH+:COLUMN_WIDTH] <= due_column == LAST ? 0 : due_column + 1'b1;
            if (due_column == LAST) results[g*TAG_WIDTH+:TAG_WIDTH] <= due + 1'b1;
          end
        end

      always @(posedge clk) begin
        assume (!came[g] || s_task_tag == next);
        if (has_past) begin
          if (valid[g]) begin
            assert (due < next);
            assert (tags[g*TAG_WIDTH+:TAG_WIDTH] == due);
            assert (columns[g*COLUMN_WIDTH+:COLUMN_WIDTH] == due_column);
            assert (lasts[g] == (due_column == LAST));
          end
          if ($past(rst_n && valid[g] && !ready[g])) assert (valid[g]);
          // A server is read for the kind that it has, while it has it.
          assert ((reads[g*STRIPS+:STRIPS] & ~(result_ready & (g == 1 ? result_kind : ~result_kind))) == 0);
        end
      end
    end

    for (s = 0; s < STRIPS; s = s + 1) begin : g_strip
      wire read_last = (scores_read[s] && scores_read_last) || (values_read[s] && values_read_last);
      always @(posedge clk)
        if (has_past && $past(rst_n && result_ready[s] && !read_last)) begin
          assert (result_ready[s]);
          assert ({result_kind[s], result_tags[s*TAG_WIDTH+:TAG_WIDTH]} ==
                  $past({result_kind[s], result_tags[s*TAG_WIDTH+:TAG_WIDTH]}));
        end
    end
  endgenerate

  always @(posedge clk)
    if (has_past && rst_n) begin
      assert ((strip_chosen & (strip_chosen - 1'b1)) == 0 && (strip_chosen & ~strip_ready) == 0);
      assert (taken == (queue_valid && strip_ready != 0));
      if (taken) assert (strip_chosen[chosen] && ((strip_chosen - 1'b1) & strip_ready) == 0);
    end

  always @(posedge clk)
    if (has_past) begin
      cover (results[0+:TAG_WIDTH] != 0 && results[TAG_WIDTH+:TAG_WIDTH] != 0);
      cover (results[0+:TAG_WIDTH] == 2);
      // The younger task of a kind is ready first and waits for the older one.
      cover (scores_read == 0 && result_ready == 2 && !result_kind[1] && results == 0 && !m_scores_valid &&
             result_tags[TAG_WIDTH+:TAG_WIDTH] == 1);
    end

endmodule

bind matrix_unit matrix_unit_checks #(
    .STRIPS(STRIPS),
    .ARRAY_COLUMNS(ARRAY_COLUMNS),
    .COLUMN_WIDTH(COLUMN_WIDTH),
    .TAG_WIDTH(TAG_WIDTH)
) checks (.*);

`default_nettype wire
