// SPDX-License-Identifier: Apache-2.0
// State packets to rows of the state memories.
//
// Purpose: takes the state packets of a load (record beat with the scale, then HEAD_DIM rows of
//   32-bit words), clamps the words to 27 bits and hands on whole rows.
// Protocol: AXI-Stream in while take is high. record pulses with the record's beat, row_done and
//   head_done with the last beat of a row and of a head; row_write one cycle after row_done, with
//   the row and its index. restart puts the intake back to the start of a packet.
// Latency 1 cycle, one beat a cycle.
`default_nettype none

module decode_load #(
    parameter HEAD_DIM     = 128,  // rows and columns of a state, a multiple of BUS_WIDTH / 32
    parameter BUS_WIDTH    = 512,  // bits of a beat: 128, 256, 512
    parameter STATE_PITCH  = 27,   // bits between stored elements: 27 to 32
    parameter COLUMN_WIDTH = 7,    // bits of a row index
    parameter BEAT_WIDTH   = 3     // bits of a beat index within a row
) (
    input wire clk,
    input wire rst_n,

    input wire                 restart,
    input wire                 take,
    input wire [BUS_WIDTH-1:0] s_axis_tdata,
    input wire                 s_axis_tvalid,

    output wire                            record,
    output wire                            scale_illegal,  // of the record: outside (1/2, 1]
    output wire                            head_done,
    output reg                             row_write,
    output reg  [        COLUMN_WIDTH-1:0] row_index,
    output wire [HEAD_DIM*STATE_PITCH-1:0] row,
    output reg                             clamped         // the beat before held a clamped word
);

  localparam BEAT_WORDS = BUS_WIDTH / 32;
  localparam BEATS = HEAD_DIM / BEAT_WORDS;
  localparam [31:0] LAST_ROW = HEAD_DIM - 1;
  localparam [31:0] LAST_BEAT = BEATS - 1;
  localparam signed [31:0] STATE_MAX = 32'sd67108863;
  localparam signed [31:0] STATE_MIN = -32'sd67108864;

  reg in_packet;
  reg [COLUMN_WIDTH-1:0] next_row;
  reg [BEAT_WIDTH-1:0] beat;
  reg [BEAT_WORDS*STATE_PITCH-1:0] beats[0:BEATS-1];
  wire accepted = s_axis_tvalid && take;
  wire last_beat = beat == LAST_BEAT[BEAT_WIDTH-1:0];
  wire row_done = accepted && in_packet && last_beat;

  assign record = accepted && !in_packet;
  assign scale_illegal = s_axis_tdata[24:0] <= 25'h0800000 || s_axis_tdata[24:0] > 25'h1000000;
  assign head_done = row_done && next_row == LAST_ROW[COLUMN_WIDTH-1:0];

  always @(posedge clk) begin : intake
    reg [31:0] n;
    reg signed [31:0] word;
    reg any_clamped;
    reg [BEAT_WORDS*STATE_PITCH-1:0] elements;
    row_write <= rst_n && row_done;
    clamped   <= 1'b0;
    if (!rst_n || restart) begin
      in_packet <= 1'b0;
      next_row <= {COLUMN_WIDTH{1'b0}};
      beat <= {BEAT_WIDTH{1'b0}};
    end else if (accepted) begin
      in_packet <= !head_done;
      if (in_packet) beat <= last_beat ? {BEAT_WIDTH{1'b0}} : beat + 1'b1;
      if (row_done) next_row <= head_done ? {COLUMN_WIDTH{1'b0}} : next_row + 1'b1;
    end
    if (row_done) row_index <= next_row;
    if (accepted && in_packet) begin
      any_clamped = 1'b0;
      elements = {(BEAT_WORDS * STATE_PITCH) {1'b0}};
      for (n = 0; n < BEAT_WORDS; n = n + 1) begin
        word = s_axis_tdata[n*32+:32];
        any_clamped = any_clamped || word > STATE_MAX || word < STATE_MIN;
        elements[n*STATE_PITCH+:27] = word > STATE_MAX ? STATE_MAX[26:0]
            : word < STATE_MIN ? STATE_MIN[26:0] : word[26:0];
      end
      beats[beat] <= elements;
      clamped <= any_clamped;
    end
  end

  genvar part;
  generate
    for (part = 0; part < BEATS; part = part + 1) begin : g_row
      assign row[part*BEAT_WORDS*STATE_PITCH+:BEAT_WORDS*STATE_PITCH] = beats[part];
    end
  endgenerate

endmodule

`default_nettype wire
