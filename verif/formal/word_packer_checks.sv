// SPDX-License-Identifier: Apache-2.0
// Properties of word_packer.
//
// Proved: every word that was taken leaves once, at its place in its beat, the beats in order; a beat
//   leaves when it is full and not before; m_axis holds it until it is taken, except when flushed;
//   busy is low exactly when nothing is inside.
// How: induction. Any word is followed on its way (chosen by the solver).
// Assumed: nothing but a reset in the first cycle.
`default_nettype none

module word_packer_checks #(
    parameter BUS_WIDTH  = 64,
    parameter COUNT_BITS = 1
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input wire [         31:0] s_axis_tdata,
    input wire                 s_axis_tvalid,
    input wire                 s_axis_tready,
    input wire [BUS_WIDTH-1:0] m_axis_tdata,
    input wire                 m_axis_tvalid,
    input wire                 m_axis_tready,
    input wire                 busy,

    input wire [COUNT_BITS-1:0] count
);

  localparam WORDS = BUS_WIDTH / 32;

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
  wire [31:0] words = {{32 - COUNT_BITS{1'b0}}, count};

  // Words inside, counted at the ports.
  reg [31:0] held;
  always @(posedge clk)
    if (empties) held <= 32'd0;
    else held <= held + {31'd0, taken} - (given ? WORDS : 32'd0);

  // The word that is followed: its place, and the words of its beat that came.
  wire follow;
  any_sequence follow_source (.value(follow));
  reg following = 1'b0;
  reg [31:0] place, came, followed;
  always @(posedge clk) begin
    if (empties) following <= 1'b0;
    else if (!following) begin
      following <= taken && follow;
      place <= m_axis_tvalid ? 32'd0 : words;
      came <= m_axis_tvalid ? 32'd1 : words + 32'd1;
      followed <= s_axis_tdata;
    end else begin
      if (given) following <= 1'b0;
      if (taken) came <= came + 32'd1;
    end
  end

  wire [BUS_WIDTH-1:0] shifted = m_axis_tdata >> 32 * (WORDS + place - came);

  always @(posedge clk)
    if (has_past && !past_empties) begin
      assert (!m_axis_tvalid || count == 0);
      assert (held == (m_axis_tvalid ? WORDS : words));
      assert (busy == (held != 32'd0));
      if (following) begin
        assert (place < came && came <= WORDS);
        assert (m_axis_tvalid ? came == WORDS : came == words);
        assert (shifted[31:0] == followed);
        if (given) assert (m_axis_tdata[32*place+:32] == followed);
      end
      if ($past(m_axis_tvalid && !m_axis_tready)) begin
        assert (m_axis_tvalid);
        assert (m_axis_tdata == $past(m_axis_tdata));
      end
      assert (s_axis_tready || m_axis_tvalid);
    end else if (has_past) begin
      assert (!busy && !m_axis_tvalid && held == 32'd0);
    end

  always @(posedge clk) begin
    cover (following && given && place == WORDS - 1);
    cover (has_past && taken && given);
    cover (has_past && !past_empties && !m_axis_tvalid && words == WORDS - 1 && flush);
  end

endmodule

bind word_packer word_packer_checks #(
    .BUS_WIDTH (BUS_WIDTH),
    .COUNT_BITS(COUNT_BITS)
) checks (.*);

`default_nettype wire
