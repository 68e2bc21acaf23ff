// SPDX-License-Identifier: Apache-2.0
// Collects the outputs of a group of heads and sends them head by head.
//
// Purpose: all SLOTS heads of a group deliver the same POST_COLUMNS columns in one cycle; the stream
//   wants one head after the other. Two groups are buffered.
// Protocol: group_start opens a group (allowed while groups_used < 2), then HEAD_DIM / POST_COLUMNS
//   writes with ascending columns. AXI-Stream out, tlast on the last beat of a group opened with
//   group_final. group_sent pulses when the last beat of a group was taken.
// Latency: a beat can leave two cycles after its last column came. One beat a cycle.
`default_nettype none

module decode_output #(
    parameter BUS_WIDTH    = 512,  // bits of a beat: 128, 256, 512
    parameter HEAD_DIM     = 128,  // columns of a head, a multiple of BUS_WIDTH / 32
    parameter SLOTS        = 8,    // heads of a group, >= 1
    parameter POST_COLUMNS = 2,    // columns a write: 1, 2, 4
    parameter COLUMN_WIDTH = 7     // bits of a column index
) (
    input wire clk,
    input wire rst_n,

    input  wire       group_start,
    input  wire       group_final,
    output reg  [1:0] groups_used,
    output wire       group_sent,

    input wire                             write,
    input wire [         COLUMN_WIDTH-1:0] column,  // first of POST_COLUMNS
    input wire [SLOTS*POST_COLUMNS*32-1:0] words,   // slot-major

    output wire [BUS_WIDTH-1:0] m_axis_tdata,
    output wire                 m_axis_tvalid,
    input  wire                 m_axis_tready,
    output wire                 m_axis_tlast
);

  localparam BEAT_WORDS = BUS_WIDTH / 32;
  localparam BEATS = HEAD_DIM / BEAT_WORDS;
  localparam BEAT_WIDTH = BEATS > 1 ? $clog2(BEATS) : 1;
  localparam SLOT_WIDTH = SLOTS > 1 ? $clog2(SLOTS) : 1;
  localparam WORD_WIDTH = $clog2(BEAT_WORDS);
  localparam COLUMN_SHIFT = $clog2(POST_COLUMNS);
  localparam [31:0] LAST_BEAT = BEATS - 1;
  localparam [31:0] LAST_SLOT = SLOTS - 1;
  localparam [31:0] LAST_WORD = BEAT_WORDS - POST_COLUMNS;

  // Writing: assemble a beat of every slot, then store it.
  reg write_buffer;
  reg [BEAT_WIDTH-1:0] write_beat;
  reg [BEAT_WIDTH:0] beats_written;  // of the group being written
  reg group_open;
  wire [WORD_WIDTH-1:0] word = column[WORD_WIDTH-1:0];
  wire beat_complete = write && word == LAST_WORD[WORD_WIDTH-1:0];
  wire group_complete = beat_complete && write_beat == LAST_BEAT[BEAT_WIDTH-1:0];

  // Reading: one slot after the other.
  reg read_buffer, read_valid;
  reg [BEAT_WIDTH-1:0] read_beat;
  reg [SLOT_WIDTH-1:0] read_slot, sent_slot;
  reg [1:0] final_group;
  reg sent_last, sent_final;
  wire written = !(group_open && read_buffer == write_buffer)
      || {1'b0, read_beat} < beats_written;
  wire read_enable = groups_used != 2'd0 && written && (!read_valid || m_axis_tready)
      && !(read_valid && sent_last && groups_used == 2'd1);
  wire last_beat = read_beat == LAST_BEAT[BEAT_WIDTH-1:0];
  wire last_slot = read_slot == LAST_SLOT[SLOT_WIDTH-1:0];

  assign group_sent = read_valid && m_axis_tready && sent_last;
  assign m_axis_tvalid = read_valid;
  assign m_axis_tlast = sent_last && sent_final;

  always @(posedge clk) begin
    if (!rst_n) begin
      write_buffer <= 1'b0;
      write_beat <= {BEAT_WIDTH{1'b0}};
      beats_written <= {(BEAT_WIDTH + 1) {1'b0}};
      group_open <= 1'b0;
      groups_used <= 2'd0;
      read_buffer <= 1'b0;
      read_valid <= 1'b0;
      read_beat <= {BEAT_WIDTH{1'b0}};
      read_slot <= {SLOT_WIDTH{1'b0}};
    end else begin
      groups_used <= groups_used + {1'b0, group_start} - {1'b0, group_sent};
      if (group_start) begin
        group_open <= 1'b1;
        beats_written <= {(BEAT_WIDTH + 1) {1'b0}};
      end
      if (beat_complete) begin
        beats_written <= beats_written + 1'b1;
        write_beat <= group_complete ? {BEAT_WIDTH{1'b0}} : write_beat + 1'b1;
      end
      if (group_complete) begin
        group_open <= 1'b0;
        write_buffer <= !write_buffer;
      end
      if (read_enable) begin
        read_valid <= 1'b1;
        read_beat  <= last_beat ? {BEAT_WIDTH{1'b0}} : read_beat + 1'b1;
        if (last_beat) read_slot <= last_slot ? {SLOT_WIDTH{1'b0}} : read_slot + 1'b1;
        if (last_beat && last_slot) read_buffer <= !read_buffer;
      end else if (m_axis_tready) read_valid <= 1'b0;
    end
    if (group_start) final_group[write_buffer] <= group_final;
    if (read_enable) begin
      sent_slot  <= read_slot;
      sent_last  <= last_beat && last_slot;
      sent_final <= final_group[read_buffer];
    end
  end

  wire [BUS_WIDTH-1:0] read_words[0:(1<<SLOT_WIDTH)-1];
  assign m_axis_tdata = read_words[sent_slot];

  genvar slot;
  generate
    for (slot = 0; slot < SLOTS; slot = slot + 1) begin : g_slot
      reg [BUS_WIDTH-1:0] beat_memory[0:(2<<BEAT_WIDTH)-1];
      reg [BUS_WIDTH-1:0] read_word;
      wire [POST_COLUMNS*32-1:0] new_words = words[slot*POST_COLUMNS*32+:POST_COLUMNS*32];
      wire [BUS_WIDTH-1:0] new_beat;
      if (POST_COLUMNS == BEAT_WORDS) begin : g_direct
        assign new_beat = new_words;
      end else begin : g_assemble
        reg [POST_COLUMNS*32-1:0] assembled[0:BEAT_WORDS/POST_COLUMNS-1];
        always @(posedge clk) if (write) assembled[word[WORD_WIDTH-1:COLUMN_SHIFT]] <= new_words;
        genvar part;
        for (part = 0; part < BEAT_WORDS / POST_COLUMNS - 1; part = part + 1) begin : g_part
          assign new_beat[part*POST_COLUMNS*32+:POST_COLUMNS*32] = assembled[part];
        end
        assign new_beat[BUS_WIDTH-1-:POST_COLUMNS*32] = new_words;
      end
      always @(posedge clk) begin
        if (beat_complete) beat_memory[{write_beat, write_buffer}] <= new_beat;
        if (read_enable && read_slot == slot) read_word <= beat_memory[{read_beat, read_buffer}];
      end
      assign read_words[slot] = read_word;
    end
    for (slot = SLOTS; slot < (1 << SLOT_WIDTH); slot = slot + 1) begin : g_no_slot
      assign read_words[slot] = {BUS_WIDTH{1'b0}};
    end
  endgenerate

  wire unused = &{1'b0, column};

endmodule

`default_nettype wire
