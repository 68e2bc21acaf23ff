// SPDX-License-Identifier: Apache-2.0
// Properties of stream_fifo.
//
// Proved: m_axis holds a beat until it is taken, except when flushed; a beat that was taken from
//   s_axis leaves once, in order, unchanged; none leaves that did not come or was flushed; DEPTH
//   beats fit and one more at the output, no more; a beat in the memory of an idle output is there in
//   the next cycle.
// How: induction. Any beat is followed on its way (chosen by the solver), and where it is must agree
//   with the number of beats before it.
// Assumed: nothing but a reset in the first cycle.
`default_nettype none

module stream_fifo_checks #(
    parameter WIDTH = 1,
    parameter DEPTH = 2,
    parameter POINTER_BITS = 1
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input wire [WIDTH-1:0] s_axis_tdata,
    input wire             s_axis_tvalid,
    input wire             s_axis_tready,
    input wire [WIDTH-1:0] m_axis_tdata,
    input wire             m_axis_tvalid,
    input wire             m_axis_tready,

    input wire [     WIDTH-1:0] memory      [0:DEPTH-1],
    input wire [POINTER_BITS:0] read_pointer,
    input wire [POINTER_BITS:0] level
);

  localparam [POINTER_BITS:0] FULL = DEPTH;

  reg has_past = 1'b0;
  reg past_empties;
  wire empties = !rst_n || flush;
  always @(posedge clk) begin
    has_past <= 1'b1;
    past_empties <= empties;
    if (!has_past) assume (!rst_n);
  end

  wire taken = s_axis_tvalid && s_axis_tready;
  wire given = m_axis_tvalid && m_axis_tready;
  wire [POINTER_BITS+1:0] held = {1'b0, level} + {{POINTER_BITS + 1{1'b0}}, m_axis_tvalid};

  // The beat that is followed, and how many are before it.
  wire follow;
  any_sequence follow_source (.value(follow));
  reg following = 1'b0;
  reg [POINTER_BITS+1:0] ahead;
  reg [WIDTH-1:0] followed;
  always @(posedge clk) begin
    if (empties) following <= 1'b0;
    else if (!following) begin
      following <= taken && follow;
      ahead <= held - {{POINTER_BITS + 1{1'b0}}, given};
      followed <= s_axis_tdata;
    end else if (given) begin
      following <= ahead != 0;
      ahead <= ahead - 1'b1;
    end
  end

  wire [POINTER_BITS+1:0] place = {1'b0, read_pointer} + ahead - {{POINTER_BITS + 1{1'b0}}, m_axis_tvalid};
  wire at_output = m_axis_tvalid && ahead == 0;

  always @(posedge clk)
    if (has_past && !past_empties) begin
      assert (level <= FULL);
      assert (!following || ahead < held);
      assert (!following || followed == (at_output ? m_axis_tdata : memory[place[POINTER_BITS-1:0]]));

      assert (s_axis_tready == (level < FULL));
      if ($past(m_axis_tvalid && !m_axis_tready)) begin
        assert (m_axis_tvalid);
        assert (m_axis_tdata == $past(m_axis_tdata));
      end
      if ($past(level != 0)) assert (m_axis_tvalid);
      assert (held == $past(held) + {{POINTER_BITS + 1{1'b0}}, $past(taken)} -
              {{POINTER_BITS + 1{1'b0}}, $past(given)});
    end else if (has_past) begin
      assert (held == 0);
    end

  always @(posedge clk) begin
    cover (following && ahead == FULL && held == FULL + 1);
    cover (following && at_output && given);
    cover (has_past && !past_empties && $past(held) == FULL && flush);
  end

endmodule

bind stream_fifo stream_fifo_checks #(
    .WIDTH(WIDTH),
    .DEPTH(DEPTH),
    .POINTER_BITS(POINTER_BITS)
) checks (.*);

`default_nettype wire
