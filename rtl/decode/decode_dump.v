// SPDX-License-Identifier: Apache-2.0
// Rows of the state memories to state packets.
//
// Purpose: sends the state packets of a dump: for every head a record beat with its scale, then
//   HEAD_DIM rows of 32-bit words.
// Protocol: runs while active is high, from the start of a packet after restart. row_read asks for
//   row row_index of the present head, row_slice for its beat row_beat, which must be on words one
//   cycle later; head_done pulses with the last of them, last_head marks the present head as the
//   last one. AXI-Stream out; finished is high when everything was taken.
// Latency: record first, a row 2 cycles after it was asked for. One beat a cycle, one idle cycle a
//   row.
`default_nettype none

module decode_dump #(
    parameter HEAD_DIM     = 128,  // rows and columns of a state, a multiple of BUS_WIDTH / 32
    parameter BUS_WIDTH    = 512,  // bits of a beat: 128, 256, 512
    parameter COLUMN_WIDTH = 7,    // bits of a row index
    parameter BEAT_WIDTH   = 3     // bits of a beat index within a row
) (
    input wire clk,
    input wire rst_n,

    input  wire        restart,
    input  wire        active,
    input  wire [24:0] scale,      // of the present head
    input  wire        last_head,
    output wire        head_done,
    output wire        finished,

    output wire                    row_read,
    output reg  [COLUMN_WIDTH-1:0] row_index,
    output wire                    row_slice,
    output reg  [  BEAT_WIDTH-1:0] row_beat,
    input  wire [   BUS_WIDTH-1:0] words,

    output wire [BUS_WIDTH-1:0] m_axis_tdata,
    output reg                  m_axis_tvalid,
    input  wire                 m_axis_tready,
    output reg                  m_axis_tlast
);

  localparam [31:0] LAST_ROW = HEAD_DIM - 1;
  localparam [31:0] LAST_BEAT = HEAD_DIM / (BUS_WIDTH / 32) - 1;

  reg record_sent, row_ready, all_read, is_record;
  reg [24:0] record_scale;
  wire advance = active && !all_read && (!m_axis_tvalid || m_axis_tready);
  wire send_record = advance && !record_sent;
  wire last_beat = row_beat == LAST_BEAT[BEAT_WIDTH-1:0];
  wire last_row = row_index == LAST_ROW[COLUMN_WIDTH-1:0];

  assign row_read = active && !row_ready && !all_read;
  assign row_slice = advance && record_sent && row_ready;
  assign head_done = row_slice && last_beat && last_row;
  assign finished = all_read && !m_axis_tvalid;
  assign m_axis_tdata = is_record ? {{(BUS_WIDTH - 25) {1'b0}}, record_scale} : words;

  always @(posedge clk) begin
    if (!rst_n || restart) begin
      row_index <= {COLUMN_WIDTH{1'b0}};
      row_beat <= {BEAT_WIDTH{1'b0}};
      record_sent <= 1'b0;
      row_ready <= 1'b0;
      all_read <= 1'b0;
      m_axis_tvalid <= 1'b0;
    end else begin
      if (row_read) row_ready <= 1'b1;
      if (send_record || row_slice) m_axis_tvalid <= 1'b1;
      else if (m_axis_tready) m_axis_tvalid <= 1'b0;
      if (send_record) record_sent <= 1'b1;
      if (row_slice) begin
        row_beat <= last_beat ? {BEAT_WIDTH{1'b0}} : row_beat + 1'b1;
        if (last_beat) begin
          row_ready <= 1'b0;
          row_index <= last_row ? {COLUMN_WIDTH{1'b0}} : row_index + 1'b1;
        end
        if (head_done) begin
          record_sent <= 1'b0;
          all_read <= last_head;
        end
      end
    end
    if (send_record || row_slice) begin
      is_record <= send_record;
      record_scale <= scale;
      m_axis_tlast <= head_done && last_head;
    end
  end

endmodule

`default_nettype wire
