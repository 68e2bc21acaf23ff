// SPDX-License-Identifier: Apache-2.0
// Properties of matrix_drain.
//
// Proved: results leave in the order of their tasks, each with its columns in ascending order, the
//   last one marked, the tag of its task and the server that has it; a column stays until it is taken;
//   a server is released once for each result, with its last column; a result that is ready is read
//   as soon as it is the oldest and the output is free.
// How: induction. Tasks are numbered, and their numbers are their tags.
// Assumed: at most two tasks a server that were not read; a server's result_ready is for the oldest
//   of its tasks and stays until its last column was read; a reset in the first cycle.
`default_nettype none

module matrix_drain_checks #(
    parameter STRIPS = 1,
    parameter COLUMNS = 2,
    parameter TAG_WIDTH = 4,
    parameter COLUMN_WIDTH = 1
) (
    input wire clk,
    input wire rst_n,

    input wire                        started,
    input wire [                 1:0] started_strip,
    input wire [          STRIPS-1:0] result_ready,
    input wire [STRIPS*TAG_WIDTH-1:0] result_tags,
    input wire [          STRIPS-1:0] drain_read,
    input wire                        drain_last,
    input wire [    COLUMN_WIDTH-1:0] drain_column,
    input wire [          STRIPS-1:0] drain_release,
    input wire                        m_valid,
    input wire                        m_ready,
    input wire [                 1:0] m_strip,
    input wire [       TAG_WIDTH-1:0] m_tag,
    input wire [    COLUMN_WIDTH-1:0] m_column,
    input wire                        m_last,

    input wire [1:0] order[0:7],
    input wire [3:0] write_pointer,
    input wire [3:0] read_pointer
);

  localparam [31:0] LAST_32 = COLUMNS - 1;
  localparam [COLUMN_WIDTH-1:0] LAST = LAST_32[COLUMN_WIDTH-1:0];
  localparam [2:0] STRIPS_3 = STRIPS;

  reg has_past = 1'b0;
  always @(posedge clk) begin
    has_past <= 1'b1;
    if (!has_past) assume (!rst_n);
    assume ({1'b0, started_strip} < STRIPS_3);
  end

  wire given = m_valid && m_ready;
  wire [3:0] unread = write_pointer - read_pointer;

  // What has to leave next.
  reg [3:0] next_tag;
  reg [COLUMN_WIDTH-1:0] next_column;
  always @(posedge clk)
    if (!rst_n) begin
      next_tag <= 4'd0;
      next_column <= 0;
    end else if (given) begin
      next_tag <= next_tag + {3'd0, next_column == LAST};
      next_column <= next_column == LAST ? 0 : next_column + 1'b1;
    end

  // Tasks of each server that were not read, the older one first.
  reg [1:0] waiting[0:STRIPS-1];
  reg [3:0] first[0:STRIPS-1];
  reg [3:0] second[0:STRIPS-1];
  reg [31:0] waiting_sum;
  always @* begin : add_up
    reg [31:0] n;
    waiting_sum = 32'd0;
    for (n = 0; n < STRIPS; n = n + 1) waiting_sum = waiting_sum + {30'd0, waiting[n]};
  end

  genvar g;
  generate
    for (g = 0; g < STRIPS; g = g + 1) begin : g_strip
      localparam [31:0] STRIP = g;
      wire starts = started && started_strip == STRIP[1:0];
      wire ends = drain_read[g] && drain_last;
      always @(posedge clk)
        if (!rst_n) waiting[g] <= 2'd0;
        else begin
          waiting[g] <= waiting[g] + {1'b0, starts} - {1'b0, ends};
          if (ends) first[g] <= second[g];
          if (starts && (waiting[g] == 2'd0 || (waiting[g] == 2'd1 && ends))) first[g] <= write_pointer;
          else if (starts) second[g] <= write_pointer;
        end

      always @(posedge clk) begin
        assume (!starts || waiting[g] != 2'd2);
        assume (!result_ready[g] || (waiting[g] != 2'd0 && result_tags[g*TAG_WIDTH+:TAG_WIDTH] == first[g]));
        if (has_past && $past(rst_n && result_ready[g] && !(drain_read[g] && drain_last)))
          assume (result_ready[g]);
      end

      wire [3:0] first_age = first[g] - read_pointer;
      wire [3:0] second_age = second[g] - read_pointer;
      always @(posedge clk)
        if (has_past) begin
          assert (waiting[g] <= 2'd2);
          if (waiting[g] != 2'd0) assert (first_age < unread && order[first[g][2:0]] == STRIP[1:0]);
          if (waiting[g] == 2'd2) begin
            assert (second_age < unread && order[second[g][2:0]] == STRIP[1:0]);
            assert (first_age < second_age);
          end
          assert (!drain_read[g] || result_ready[g]);
          assert (drain_release[g] == (given && next_column == LAST && m_strip == STRIP[1:0]));
          if (unread != 4'd0 && order[read_pointer[2:0]] == STRIP[1:0] && result_ready[g] &&
              (m_ready || !m_valid))
            assert (drain_read[g]);
        end
    end
  endgenerate

  wire [3:0] read_tag = m_valid && m_last ? next_tag + 4'd1 : next_tag;

  always @(posedge clk)
    if (has_past) begin
      assert ({28'd0, unread} == waiting_sum && unread <= 4'd8);
      assert (drain_column <= LAST && drain_last == (drain_column == LAST));
      assert (read_pointer == read_tag);
      assert (drain_column == (m_valid ? (m_last ? 0 : m_column + 1'b1) : next_column));
      // Columns of a result follow each other: the one that was begun is still ready.
      if (drain_column != 0) assert (unread != 4'd0);

      if (m_valid) begin
        assert (m_tag == next_tag);
        assert (m_column == next_column);
        assert (m_last == (next_column == LAST));
        assert (m_strip == order[next_tag[2:0]] || m_last);
      end
      if ($past(rst_n && m_valid && !m_ready)) begin
        assert (m_valid);
        assert ({m_strip, m_tag, m_column, m_last} == $past({m_strip, m_tag, m_column, m_last}));
      end
      if ($past(drain_read != 0 && rst_n)) begin
        assert (m_valid && m_strip == $past(order[read_pointer[2:0]]));
        assert (m_tag == $past(read_pointer));
      end
    end

  always @(posedge clk) begin
    cover (has_past && unread == 2 * STRIPS);
    cover (has_past && next_tag == 4'd3 && given && m_last);
    // A younger task is ready first and waits.
    cover (has_past && unread == 4'd2 && result_ready != 0 && drain_read == 0 && !m_valid);
  end

endmodule

bind matrix_drain matrix_drain_checks #(
    .STRIPS(STRIPS),
    .COLUMNS(COLUMNS),
    .TAG_WIDTH(TAG_WIDTH),
    .COLUMN_WIDTH(COLUMN_WIDTH)
) checks (.*);

`default_nettype wire
