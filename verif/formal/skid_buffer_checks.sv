// SPDX-License-Identifier: Apache-2.0
// Properties of skid_buffer.
//
// Proved: m_axis holds a beat until it is taken; a beat that was taken from s_axis leaves once, in
//   order, unchanged; none leaves that did not come; s_axis is ready while there is room, and a beat
//   is at the output in the cycle after it came if no other one is.
// How: induction. Any beat is followed on its way (chosen by the solver), and where it is must agree
//   with the number of beats before it.
// Assumed: nothing but a reset in the first cycle.
`default_nettype none

module skid_buffer_checks #(
    parameter WIDTH = 1
) (
    input wire clk,
    input wire rst_n,

    input wire [WIDTH-1:0] s_axis_tdata,
    input wire             s_axis_tvalid,
    input wire             s_axis_tready,
    input wire [WIDTH-1:0] m_axis_tdata,
    input wire             m_axis_tvalid,
    input wire             m_axis_tready,

    input wire [WIDTH-1:0] spare,
    input wire             spare_valid,
    input wire             running
);

  reg has_past = 1'b0;
  reg past_reset;
  always @(posedge clk) begin
    has_past   <= 1'b1;
    past_reset <= !rst_n;
    if (!has_past) assume (!rst_n);
  end

  wire taken = s_axis_tvalid && s_axis_tready;
  wire given = m_axis_tvalid && m_axis_tready;
  wire [1:0] held = {1'b0, m_axis_tvalid} + {1'b0, spare_valid};

  // The beat that is followed, and how many are before it.
  wire follow;
  any_sequence follow_source (.value(follow));
  reg following = 1'b0;
  reg [1:0] ahead;
  reg [WIDTH-1:0] followed;
  always @(posedge clk) begin
    if (!rst_n) following <= 1'b0;
    else if (!following) begin
      following <= taken && follow;
      ahead <= held - {1'b0, given};
      followed <= s_axis_tdata;
    end else if (given) begin
      following <= ahead != 2'd0;
      ahead <= ahead - 2'd1;
    end
  end

  always @(posedge clk)
    if (has_past && !past_reset) begin
      // The state is a queue of two.
      assert (m_axis_tvalid || !spare_valid);
      assert (!following || ahead < held);
      assert (!following || followed == (ahead == 2'd0 ? m_axis_tdata : spare));

      assert (s_axis_tready == (held < 2'd2));
      if ($past(m_axis_tvalid && !m_axis_tready)) begin
        assert (m_axis_tvalid);
        assert (m_axis_tdata == $past(m_axis_tdata));
      end
      assert (held == $past(held) + {1'b0, $past(taken)} - {1'b0, $past(given)});
    end else if (has_past) begin
      assert (!m_axis_tvalid && !spare_valid && !s_axis_tready && !running);
    end

  always @(posedge clk) begin
    cover (following && ahead == 2'd1 && given);
    cover (has_past && taken && given && $past(taken && given, 1) && $past(taken && given, 2));
  end

endmodule

bind skid_buffer skid_buffer_checks #(.WIDTH(WIDTH)) checks (.*);

`default_nettype wire
