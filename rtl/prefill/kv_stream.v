// SPDX-License-Identifier: Apache-2.0
// One tensor of the KV cache: its lines, and the beats of the visits in order.
//
// Purpose: for each decided visit BEATS beats come from memory, and are written to a line on their
//   way if they are to be kept, or come from a line; what comes from a line is not kept again.
// Protocol: push while room queues a visit. Blocks from memory are asked for in the order of the
//   visits, as soon as they are queued; s_axis brings their beats in this order. m_axis has the
//   beats of all visits in order. ahead: the request of this cycle is for a visit whose turn has not
//   come. Lines are read and written in the order of the visits, one beat a cycle, so a visit finds
//   what any visit before it has written, and a line can have a new owner before it was read.
// Latency: push to request_valid 1 cycle, s_axis to m_axis 2 cycles; 5 cycles from a push to the
//   first beat of a line.
// Throughput: one beat a cycle, no gap between visits that are queued and whose beats are there.
// Limits: DEPTH visits wait beside the one whose beats pass.
`default_nettype none

module kv_stream #(
    parameter WIDTH     = 512,  // bits of a beat
    parameter BEATS     = 258,  // of a block, 2 or more
    parameter LINES     = 256,  // 2 or more
    parameter LINE_BITS = 8,    // bits of a line's number
    parameter DEPTH     = 4     // visits that wait: 1 to 16
) (
    input wire clk,
    input wire rst_n,

    input  wire                 push,
    output wire                 room,
    input  wire [         11:0] push_block,
    input  wire                 push_from_line,
    input  wire                 push_keep,
    input  wire [LINE_BITS-1:0] push_line,
    output wire                 busy,

    output wire        request_valid,
    input  wire        request_ready,
    output wire [11:0] request_block,
    output wire        ahead,

    input  wire [WIDTH-1:0] s_axis_tdata,
    input  wire             s_axis_tvalid,
    output wire             s_axis_tready,

    output reg  [WIDTH-1:0] m_axis_tdata,
    output reg              m_axis_tvalid,
    input  wire             m_axis_tready
);

  localparam WORDS = LINES * BEATS;
  localparam ADDRESS_BITS = $clog2(WORDS);
  localparam BEAT_BITS = $clog2(BEATS);
  localparam [31:0] BEATS_32 = BEATS;
  localparam [31:0] LAST_32 = BEATS - 1;
  localparam [31:0] DEPTH_32 = DEPTH;

  // ---------------------------------------------------------------- queue of visits

  reg [11:0] block[0:15];
  reg from_line[0:15];
  reg keep[0:15];
  reg [LINE_BITS-1:0] line[0:15];
  reg [3:0] write_place, ask_place, read_place;
  reg [4:0] level, unasked;  // visits in the queue, and of these those not asked for yet

  reg active;
  wire load, pass;

  assign room = level != DEPTH_32[4:0];
  assign request_valid = unasked != 5'd0 && !from_line[ask_place];
  assign request_block = block[ask_place];
  assign pass = unasked != 5'd0 && (from_line[ask_place] || request_ready);
  assign ahead = request_valid && request_ready && (active || level != unasked);

  always @(posedge clk) begin
    if (!rst_n) begin
      write_place <= 4'd0;
      ask_place <= 4'd0;
      read_place <= 4'd0;
      level <= 5'd0;
      unasked <= 5'd0;
    end else begin
      if (push) write_place <= write_place + 4'd1;
      if (pass) ask_place <= ask_place + 4'd1;
      if (load) read_place <= read_place + 4'd1;
      level   <= level + {4'd0, push} - {4'd0, load};
      unasked <= unasked + {4'd0, push} - {4'd0, pass};
    end
    if (push) begin
      block[write_place] <= push_block;
      from_line[write_place] <= push_from_line;
      keep[write_place] <= push_keep;
      line[write_place] <= push_line;
    end
  end

  // ---------------------------------------------------------------- the visit whose beats pass

  reg now_from_line, now_keep;
  reg [BEAT_BITS-1:0] beat;
  reg [ADDRESS_BITS-1:0] address;

  wire move;
  wire last = beat == LAST_32[BEAT_BITS-1:0];
  wire [ADDRESS_BITS-1:0] line_address =
      {{ADDRESS_BITS - LINE_BITS{1'b0}}, line[read_place]} * BEATS_32[ADDRESS_BITS-1:0];

  assign load = level != unasked && (!active || (move && last));

  always @(posedge clk) begin
    if (!rst_n) active <= 1'b0;
    else if (load) active <= 1'b1;
    else if (move && last) active <= 1'b0;

    if (load) begin
      now_from_line <= from_line[read_place];
      now_keep <= keep[read_place];
      beat <= {BEAT_BITS{1'b0}};
      address <= line_address;
    end else if (move) begin
      beat <= beat + 1'b1;
      address <= address + 1'b1;
    end
  end

  // ---------------------------------------------------------------- beats

  (* ram_style = "ultra" *) reg [WIDTH-1:0] lines[0:WORDS-1];
  reg [WIDTH-1:0] line_beat, memory_beat;
  reg beat_valid, beat_from_line;
  reg write;
  reg [ADDRESS_BITS-1:0] write_address;

  wire advance = m_axis_tready || !m_axis_tvalid;

  assign move = active && advance && (now_from_line || s_axis_tvalid);
  assign s_axis_tready = active && advance && !now_from_line;
  assign busy = level != 5'd0 || active || beat_valid || m_axis_tvalid;

  always @(posedge clk) begin
    if (!rst_n) begin
      beat_valid <= 1'b0;
      m_axis_tvalid <= 1'b0;
      write <= 1'b0;
    end else begin
      if (advance) beat_valid <= move;
      if (advance) m_axis_tvalid <= beat_valid;
      write <= move && now_keep;
    end
    if (move) begin
      beat_from_line <= now_from_line;
      write_address  <= address;
    end
    if (move && !now_from_line) memory_beat <= s_axis_tdata;
    if (advance) m_axis_tdata <= beat_from_line ? line_beat : memory_beat;
  end

  always @(posedge clk) begin
    if (write) lines[write_address] <= memory_beat;
    if (move && now_from_line) line_beat <= lines[address];
  end

endmodule

`default_nettype wire
