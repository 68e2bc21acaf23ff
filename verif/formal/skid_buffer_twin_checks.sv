// SPDX-License-Identifier: Apache-2.0
// skid_buffer and its MyHDL twin have the same outputs.
//
// Proved: ready and valid are equal in all cycles after the first one of a reset, data whenever valid
//   is high. The twin counts the beats of a queue; the cell has a spare register.
// How: induction, with the beats of the one where the other has them.
// Assumed: a reset in the first cycle.
`default_nettype none

module skid_buffer_twin_checks #(
    parameter WIDTH = 3
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

  wire s_ready, m_valid;
  wire [WIDTH-1:0] m_data;
  skid_buffer_twin twin (
      .clk          (clk),
      .rst_n        (rst_n),
      .s_axis_tdata (s_axis_tdata),
      .s_axis_tvalid(s_axis_tvalid),
      .s_axis_tready(s_ready),
      .m_axis_tdata (m_data),
      .m_axis_tvalid(m_valid),
      .m_axis_tready(m_axis_tready)
  );

  reg has_past = 1'b0;
  always @(posedge clk) begin
    has_past <= 1'b1;
    if (!has_past) assume (!rst_n);
  end

  always @(posedge clk)
    if (has_past) begin
      assert (s_ready == s_axis_tready && m_valid == m_axis_tvalid);
      if (m_valid) assert (m_data == m_axis_tdata);

      assert (twin.awake == running);
      assert (twin.level == {1'b0, m_axis_tvalid} + {1'b0, spare_valid});
      if (twin.level == 2'd2) assert (twin.second == spare);
    end

  always @(posedge clk) cover (has_past && twin.level == 2'd2 && m_axis_tready);

endmodule

bind skid_buffer skid_buffer_twin_checks #(.WIDTH(WIDTH)) checks (.*);

`default_nettype wire
