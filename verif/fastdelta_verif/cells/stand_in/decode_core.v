// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for the decode core with the same ports, for tests of the kernel around it. The state of
// a context is one 32-bit sum:
//   decode  adds the low words of all beats of a token to the sum, then gives the token's output
//   clear   sets the sum to zero
//   load    sets the sum to that of the low words of all beats; bit 31 of the first makes it bad
//   dump    gives the beats of a state
// As the core clears its contexts after reset, it takes the first command 500 cycles later.
// Word w of output beat i is sum + 65536 * i + w. The counters are functions of the sum.

`default_nettype none

module decode_core #(
    parameter integer HEAD_DIM    = 128,
    parameter integer QK_HEADS    = 16,
    parameter integer GROUP_RATIO = 2,
    parameter integer H_ITER      = 8,
    parameter integer CONTEXTS    = 1,
    parameter integer BUS_WIDTH   = 512,
    parameter integer POST_COLUMNS = 2,
    parameter integer STATE_PITCH  = 27
) (
    input wire clk,
    input wire rst_n,
    input wire flush,

    input  wire        s_cmd_valid,
    output wire        s_cmd_ready,
    input  wire [ 1:0] s_cmd_opcode,
    input  wire [ 7:0] s_cmd_context,
    input  wire [15:0] s_cmd_tokens,
    input  wire        s_cmd_bypass_norm,
    input  wire        s_cmd_bypass_gates,

    input  wire [BUS_WIDTH-1:0] s_axis_qk_tdata,
    input  wire                 s_axis_qk_tvalid,
    output wire                 s_axis_qk_tready,
    input  wire [BUS_WIDTH-1:0] s_axis_v_tdata,
    input  wire                 s_axis_v_tvalid,
    output wire                 s_axis_v_tready,
    output reg  [BUS_WIDTH-1:0] m_axis_o_tdata,
    output wire                 m_axis_o_tvalid,
    input  wire                 m_axis_o_tready,
    output wire                 m_axis_o_tlast,

    output reg         cmd_done,
    output reg         bad_state,
    output wire [31:0] saturations,
    output wire [31:0] norm_overflows,
    output reg  [31:0] starved_cycles,
    output reg  [15:0] tokens_done
);

  localparam integer WORDS = BUS_WIDTH / 32;
  localparam integer WORD_BEATS = (HEAD_DIM + WORDS - 1) / WORDS;
  localparam integer HALF_BEATS = (HEAD_DIM + 2 * WORDS - 1) / (2 * WORDS);
  localparam [31:0] QK_BEATS = QK_HEADS * (1 + WORD_BEATS);
  localparam [31:0] V_BEATS = QK_HEADS * GROUP_RATIO * (1 + HALF_BEATS);
  localparam [31:0] O_BEATS = QK_HEADS * GROUP_RATIO * WORD_BEATS;
  localparam [31:0] STATE_BEATS = QK_HEADS * GROUP_RATIO * (1 + HEAD_DIM * WORD_BEATS);

  reg [31:0] sums[0:CONTEXTS-1];
  reg busy;
  reg [8:0] clearing;
  reg [1:0] opcode;
  reg [7:0] slot;
  reg [31:0] options;
  reg [15:0] tokens_left;
  reg [31:0] qk_left;
  reg [31:0] v_left;
  reg [31:0] o_left;
  reg [31:0] o_index;
  reg [31:0] word;
  reg [31:0] context_index;

  wire take = s_cmd_valid && s_cmd_ready;
  wire qk_take = s_axis_qk_tvalid && s_axis_qk_tready;
  wire v_take = s_axis_v_tvalid && s_axis_v_tready;
  wire o_take = m_axis_o_tvalid && m_axis_o_tready;
  wire inputs_done = qk_left == 0 && v_left == 0;
  wire token_done = inputs_done && o_left == 0;

  assign s_cmd_ready      = !busy && !cmd_done && clearing == 0;
  assign s_axis_qk_tready = busy && qk_left != 0;
  assign s_axis_v_tready  = busy && v_left != 0;
  assign m_axis_o_tvalid  = busy && inputs_done && o_left != 0;
  assign m_axis_o_tlast   = o_left == 1 && tokens_left <= 1;
  assign saturations      = sums[slot] ^ options;
  assign norm_overflows   = ~sums[slot];

  always @* begin
    for (word = 0; word < WORDS; word = word + 1)
    m_axis_o_tdata[word*32+:32] = sums[slot] + {o_index[15:0], 16'd0} + word;
  end

  always @(posedge clk) begin
    cmd_done <= 1'b0;
    if (clearing != 0) clearing <= clearing - 1;
    if (!rst_n) begin
      clearing <= 9'd500;
      busy <= 1'b0;
      slot <= 8'd0;
      for (context_index = 0; context_index < CONTEXTS; context_index = context_index + 1)
        sums[context_index] <= 32'd0;
    end else if (flush) begin
      busy <= 1'b0;
      sums[slot] <= 32'hDEADBEEF;
    end else if (take) begin
      busy           <= 1'b1;
      opcode         <= s_cmd_opcode;
      slot           <= s_cmd_context;
      options        <= {30'd0, s_cmd_bypass_gates, s_cmd_bypass_norm};
      tokens_left    <= s_cmd_opcode == 2'd0 ? s_cmd_tokens : 16'd0;
      tokens_done    <= 16'd0;
      starved_cycles <= 32'd0;
      bad_state      <= 1'b0;
      o_index        <= 32'd0;
      qk_left        <= s_cmd_opcode == 2'd0 && s_cmd_tokens != 16'd0 ? QK_BEATS : 32'd0;
      v_left         <= s_cmd_opcode == 2'd0 && s_cmd_tokens != 16'd0 ? V_BEATS :
                        s_cmd_opcode == 2'd2 ? STATE_BEATS : 32'd0;
      o_left         <= s_cmd_opcode == 2'd0 && s_cmd_tokens != 16'd0 ? O_BEATS :
                        s_cmd_opcode == 2'd3 ? STATE_BEATS : 32'd0;
      if (s_cmd_opcode == 2'd1 || s_cmd_opcode == 2'd2) sums[s_cmd_context] <= 32'd0;
    end else if (busy) begin
      if (qk_take) qk_left <= qk_left - 1;
      if (v_take) v_left <= v_left - 1;
      if (v_take && opcode == 2'd2 && v_left == STATE_BEATS) bad_state <= s_axis_v_tdata[31];
      if (o_take) o_left <= o_left - 1;
      if (o_take) o_index <= o_index + 1;
      if (qk_take || v_take)
        sums[slot] <= sums[slot] + (qk_take ? s_axis_qk_tdata[31:0] : 32'd0)
                                 + (v_take ? s_axis_v_tdata[31:0] : 32'd0);
      if (!inputs_done && !qk_take && !v_take) starved_cycles <= starved_cycles + 1;
      if (token_done) begin
        if (tokens_left != 0) tokens_done <= tokens_done + 1;
        if (tokens_left <= 1) begin
          busy     <= 1'b0;
          cmd_done <= 1'b1;
        end else begin
          tokens_left <= tokens_left - 1;
          qk_left     <= QK_BEATS;
          v_left      <= V_BEATS;
          o_left      <= O_BEATS;
        end
      end
    end
  end

endmodule

`default_nettype wire
