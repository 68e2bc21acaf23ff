// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet decode engine: tokens in, outputs out, states resident.
//
// Purpose: for every token and value head, with S = G * ((X >> s) + kp up^T),
//   S <- g S;  delta = beta (v - S^T k);  S <- S + k delta^T;  o = S^T q
//   with one read and one write of the state: the rank-1 update of a token is kept pending and
//   applied while the next token's sums stream over the state. H_ITER heads are computed at once.
// Protocol: one command at a time (decode, clear, load, dump), data on AXI-Streams; packets, formats
//   and arithmetic: docs/decode_engine.md. All contexts are cleared by reset; flush drops what is
//   under way and leaves the other contexts as they are.
// Latency: one token VALUE_HEADS / H_ITER passes of HEAD_DIM cycles, plus about 120 cycles for the
//   first one. Throughput: passes follow each other without a gap when POST_COLUMNS hides the
//   finish of a pass (HEAD_DIM / POST_COLUMNS + 16 cycles) behind the next one.
`default_nettype none

module decode_core #(
    parameter HEAD_DIM     = 128,  // d, columns and rows of a state: 16 to 128, multiple of 16
    parameter QK_HEADS     = 16,   // query/key heads: 1 to 64
    parameter GROUP_RATIO  = 2,    // value heads per query/key head: 1, 2, 4
    parameter H_ITER       = 8,    // value heads at once: 1 to 16, divides the value heads,
                                   // multiple or divisor of GROUP_RATIO
    parameter CONTEXTS     = 1,    // resident states: 1 to 64
    parameter BUS_WIDTH    = 512,  // bits of a beat: 128, 256, 512
    parameter POST_COLUMNS = 2,    // columns finished a cycle and head: 1, 2, 4
    parameter STATE_PITCH  = 27    // bits between stored state elements: 27 to 32
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
    output wire        cmd_done,
    output reg         bad_state,

    input  wire [BUS_WIDTH-1:0] s_axis_qk_tdata,
    input  wire                 s_axis_qk_tvalid,
    output wire                 s_axis_qk_tready,
    input  wire [BUS_WIDTH-1:0] s_axis_v_tdata,
    input  wire                 s_axis_v_tvalid,
    output wire                 s_axis_v_tready,
    output wire [BUS_WIDTH-1:0] m_axis_o_tdata,
    output wire                 m_axis_o_tvalid,
    input  wire                 m_axis_o_tready,
    output wire                 m_axis_o_tlast,

    output reg [31:0] saturations,
    output reg [31:0] norm_overflows,
    output reg [31:0] starved_cycles,
    output reg [15:0] tokens_done
);

  localparam VALUE_HEADS = QK_HEADS * GROUP_RATIO;
  localparam PASSES = VALUE_HEADS / H_ITER;
  localparam QK_SLOTS = H_ITER > GROUP_RATIO ? H_ITER / GROUP_RATIO : 1;
  localparam QK_GROUPS = QK_HEADS / QK_SLOTS;
  localparam PASSES_PER_QK = GROUP_RATIO > H_ITER ? GROUP_RATIO / H_ITER : 1;
  localparam QK_BEATS = HEAD_DIM / (BUS_WIDTH / 32);
  localparam V_BEATS = (HEAD_DIM + BUS_WIDTH / 16 - 1) / (BUS_WIDTH / 16);
  localparam WORD_BEATS = HEAD_DIM / (BUS_WIDTH / 32);

  localparam ALL_HEADS = CONTEXTS * VALUE_HEADS;
  localparam ALL_GROUPS = CONTEXTS * PASSES;
  localparam ALL_ROWS = ALL_GROUPS * HEAD_DIM;
  localparam PENDING_ROWS = CONTEXTS * QK_GROUPS * HEAD_DIM;

  localparam HEAD_WIDTH = ALL_HEADS > 1 ? $clog2(ALL_HEADS) : 1;
  localparam GROUP_WIDTH = ALL_GROUPS > 1 ? $clog2(ALL_GROUPS) : 1;
  localparam ROW_WIDTH = $clog2(ALL_ROWS);
  localparam PENDING_WIDTH = $clog2(PENDING_ROWS);
  localparam COLUMN_WIDTH = $clog2(HEAD_DIM);
  localparam SLOT_WIDTH = H_ITER > 1 ? $clog2(H_ITER) : 1;
  localparam QK_SLOT_WIDTH = QK_SLOTS > 1 ? $clog2(QK_SLOTS) : 1;
  localparam QK_BEAT_WIDTH = QK_BEATS > 1 ? $clog2(QK_BEATS) : 1;
  localparam V_BEAT_WIDTH = V_BEATS > 1 ? $clog2(V_BEATS) : 1;
  localparam WORD_BEAT_WIDTH = WORD_BEATS > 1 ? $clog2(WORD_BEATS) : 1;
  localparam PAIR_WIDTH = $clog2(BUS_WIDTH / 32);

  localparam [31:0] LAST_ROW_32 = HEAD_DIM - 1;
  localparam [31:0] LAST_SLOT_32 = H_ITER - 1;
  localparam [31:0] LAST_VALUE_HEAD_32 = VALUE_HEADS - 1;
  localparam [31:0] LAST_PASS_32 = PASSES - 1;
  localparam [31:0] LAST_QK_PASS_32 = PASSES_PER_QK - 1;
  localparam [31:0] LAST_V_BEAT_32 = V_BEATS - 1;
  localparam [31:0] LAST_COLUMN_32 = HEAD_DIM - POST_COLUMNS;
  localparam [31:0] LAST_HEAD_32 = ALL_HEADS - 1;
  localparam [31:0] VALUE_HEADS_32 = VALUE_HEADS;
  localparam [31:0] PASSES_32 = PASSES;
  localparam [31:0] HEAD_DIM_32 = HEAD_DIM;
  localparam [31:0] QK_GROUPS_32 = QK_GROUPS;
  localparam [31:0] POST_COLUMNS_32 = POST_COLUMNS;
  localparam [31:0] ELEMENT_MASK_32 = BUS_WIDTH / 16 - 1;
  localparam [COLUMN_WIDTH-1:0] ELEMENT_MASK = ELEMENT_MASK_32[COLUMN_WIDTH-1:0];

  generate
    if (HEAD_DIM < 16 || HEAD_DIM > 128 || HEAD_DIM % 16 != 0) begin : g_head_dim
      illegal_parameter_HEAD_DIM stop ();
    end
    if (QK_HEADS < 1 || QK_HEADS > 64) begin : g_qk_heads
      illegal_parameter_QK_HEADS stop ();
    end
    if (GROUP_RATIO != 1 && GROUP_RATIO != 2 && GROUP_RATIO != 4) begin : g_group_ratio
      illegal_parameter_GROUP_RATIO stop ();
    end
    if (H_ITER < 1 || H_ITER > 16 || VALUE_HEADS % H_ITER != 0
        || (H_ITER % GROUP_RATIO != 0 && GROUP_RATIO % H_ITER != 0)) begin : g_h_iter
      illegal_parameter_H_ITER stop ();
    end
    if (CONTEXTS < 1 || CONTEXTS > 64) begin : g_contexts
      illegal_parameter_CONTEXTS stop ();
    end
    if (BUS_WIDTH != 128 && BUS_WIDTH != 256 && BUS_WIDTH != 512) begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
    if (POST_COLUMNS != 1 && POST_COLUMNS != 2 && POST_COLUMNS != 4) begin : g_post_columns
      illegal_parameter_POST_COLUMNS stop ();
    end
    if (STATE_PITCH < 27 || STATE_PITCH > 32) begin : g_state_pitch
      illegal_parameter_STATE_PITCH stop ();
    end
  endgenerate

  // ---------------------------------------------------------------- commands

  localparam [3:0] IDLE = 4'd0;  // waits for a command
  localparam [3:0] WALK = 4'd1;  // clears the heads walk_head to walk_end
  localparam [3:0] DECODE = 4'd2;
  localparam [3:0] LOAD = 4'd3;
  localparam [3:0] DUMP_FETCH = 4'd4;  // pending shifts of the group's heads
  localparam [3:0] DUMP_PASS = 4'd5;  // applies the group's pending updates
  localparam [3:0] DUMP_SETTLE = 4'd6;  // waits for the last row, then forgets the updates
  localparam [3:0] DUMP_READ = 4'd7;  // sends the state
  localparam [3:0] DONE = 4'd8;

  localparam [1:0] OP_DECODE = 2'd0, OP_CLEAR = 2'd1, OP_LOAD = 2'd2;

  reg [3:0] state;
  reg clearing_all, bypass_norm, bypass_gates;
  reg [HEAD_WIDTH-1:0] head_base, walk_head, walk_end;
  reg [GROUP_WIDTH-1:0] group_base, walk_group;
  reg [SLOT_WIDTH-1:0] walk_slot;
  reg [ROW_WIDTH-1:0] row_base, walk_row;
  reg [PENDING_WIDTH-1:0] pending_base;
  reg [23:0] passes_left, v_left, qk_left;

  wire run_n = rst_n && !flush;
  wire decoding = state == DECODE;
  wire [31:0] context_32 = {24'b0, s_cmd_context};
  wire [31:0] head_base_32 = context_32 * VALUE_HEADS_32;
  wire [31:0] group_base_32 = context_32 * PASSES_32;
  wire [31:0] row_base_32 = group_base_32 * HEAD_DIM_32;
  wire [31:0] pending_base_32 = context_32 * (QK_GROUPS_32 * HEAD_DIM_32);
  wire [31:0] walk_end_32 = head_base_32 + LAST_VALUE_HEAD_32;
  wire [31:0] passes_32 = {16'b0, s_cmd_tokens} * PASSES_32;
  wire [31:0] qk_bundles_32 = {16'b0, s_cmd_tokens} * QK_GROUPS_32;

  wire walk_slot_last = walk_slot == LAST_SLOT_32[SLOT_WIDTH-1:0];
  wire walk_finished = walk_head == walk_end;

  // Signals of the sections below that steer the state machine.
  wire decode_finished, load_head_done, load_finished, pass_issued, settled;
  wire dump_head_done, dump_finished;

  assign s_cmd_ready = state == IDLE && !flush;
  assign cmd_done = state == DONE && !flush;

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= WALK;
      clearing_all <= 1'b1;
      walk_head <= {HEAD_WIDTH{1'b0}};
      walk_end <= LAST_HEAD_32[HEAD_WIDTH-1:0];
      walk_group <= {GROUP_WIDTH{1'b0}};
      walk_slot <= {SLOT_WIDTH{1'b0}};
    end else if (flush && !clearing_all) begin
      state <= IDLE;
    end else begin
      case (state)
        IDLE:
        if (s_cmd_valid && s_cmd_ready) begin
          state <= s_cmd_opcode == OP_DECODE ? DECODE : s_cmd_opcode == OP_CLEAR ? WALK
              : s_cmd_opcode == OP_LOAD ? LOAD : DUMP_FETCH;
          bypass_norm <= s_cmd_bypass_norm;
          bypass_gates <= s_cmd_bypass_gates;
          head_base <= head_base_32[HEAD_WIDTH-1:0];
          group_base <= group_base_32[GROUP_WIDTH-1:0];
          row_base <= row_base_32[ROW_WIDTH-1:0];
          pending_base <= pending_base_32[PENDING_WIDTH-1:0];
          walk_head <= head_base_32[HEAD_WIDTH-1:0];
          walk_end <= walk_end_32[HEAD_WIDTH-1:0];
          walk_group <= group_base_32[GROUP_WIDTH-1:0];
          walk_row <= row_base_32[ROW_WIDTH-1:0];
          walk_slot <= {SLOT_WIDTH{1'b0}};
        end
        WALK: begin
          walk_head <= walk_head + 1'b1;
          walk_slot <= walk_slot_last ? {SLOT_WIDTH{1'b0}} : walk_slot + 1'b1;
          if (walk_slot_last) walk_group <= walk_group + 1'b1;
          if (walk_finished) begin
            state <= clearing_all ? IDLE : DONE;
            clearing_all <= 1'b0;
          end
        end
        DECODE: if (decode_finished) state <= DONE;
        LOAD: begin
          if (load_head_done) begin
            walk_head <= walk_head + 1'b1;
            walk_slot <= walk_slot_last ? {SLOT_WIDTH{1'b0}} : walk_slot + 1'b1;
            if (walk_slot_last) begin
              walk_group <= walk_group + 1'b1;
              walk_row   <= walk_row + HEAD_DIM_32[ROW_WIDTH-1:0];
            end
          end
          if (load_finished) state <= DONE;
        end
        DUMP_FETCH: begin
          walk_head <= walk_head + 1'b1;
          walk_slot <= walk_slot_last ? {SLOT_WIDTH{1'b0}} : walk_slot + 1'b1;
          if (walk_slot_last) begin
            state <= DUMP_PASS;
            walk_head <= walk_head - LAST_SLOT_32[HEAD_WIDTH-1:0];
          end
        end
        DUMP_PASS: if (pass_issued) state <= DUMP_SETTLE;
        DUMP_SETTLE:
        if (settled) begin
          walk_head <= walk_head + 1'b1;
          walk_slot <= walk_slot_last ? {SLOT_WIDTH{1'b0}} : walk_slot + 1'b1;
          if (walk_slot_last) begin
            walk_group <= walk_group + 1'b1;
            walk_row <= walk_row + HEAD_DIM_32[ROW_WIDTH-1:0];
            state <= DUMP_FETCH;
            if (walk_finished) begin
              state <= DUMP_READ;
              walk_head <= head_base;
              walk_row <= row_base;
            end
          end
        end
        DUMP_READ: begin
          if (dump_head_done) begin
            walk_head <= walk_head + 1'b1;
            walk_slot <= walk_slot_last ? {SLOT_WIDTH{1'b0}} : walk_slot + 1'b1;
            if (walk_slot_last) walk_row <= walk_row + HEAD_DIM_32[ROW_WIDTH-1:0];
          end
          if (dump_finished) state <= DONE;
        end
        default: state <= IDLE;
      endcase
    end
  end

  // ---------------------------------------------------------------- q/k intake

  reg [1:0] qk_write_bundle, qk_read_bundle, qk_result_bundle;
  reg [2:0] qk_occupied, qk_ready;
  wire qk_raw_write, qk_written, qk_result_valid;
  wire [QK_SLOT_WIDTH-1:0] qk_raw_slot, qk_result_slot;
  wire [QK_BEAT_WIDTH-1:0] qk_raw_beat;
  wire [24:0] result_q_root, result_k_root;
  wire [5:0] result_q_power, result_k_power;
  wire signed [24:0] result_dot;
  wire [1:0] norm_overflow;
  wire qk_release;
  localparam [31:0] LAST_QK_SLOT_32 = QK_SLOTS - 1;
  wire qk_bundle_ready = qk_result_valid
      && qk_result_slot == LAST_QK_SLOT_32[QK_SLOT_WIDTH-1:0];

  decode_qk #(
      .BUS_WIDTH (BUS_WIDTH),
      .DATA_BEATS(QK_BEATS),
      .SLOTS     (QK_SLOTS),
      .SLOT_WIDTH(QK_SLOT_WIDTH),
      .BEAT_WIDTH(QK_BEAT_WIDTH)
  ) qk_intake (
      .clk(clk),
      .rst_n(run_n),
      .take(decoding && qk_left != 24'd0 && qk_occupied != 3'd4),
      .bypass(bypass_norm),
      .s_axis_tdata(s_axis_qk_tdata),
      .s_axis_tvalid(s_axis_qk_tvalid),
      .s_axis_tready(s_axis_qk_tready),
      .raw_write(qk_raw_write),
      .raw_slot(qk_raw_slot),
      .raw_beat(qk_raw_beat),
      .bundle_written(qk_written),
      .result_valid(qk_result_valid),
      .result_slot(qk_result_slot),
      .q_root(result_q_root),
      .q_power(result_q_power),
      .k_root(result_k_root),
      .k_power(result_k_power),
      .dot(result_dot),
      .overflow(norm_overflow)
  );

  always @(posedge clk) begin
    if (!run_n) begin
      qk_write_bundle <= 2'd0;
      qk_read_bundle <= 2'd0;
      qk_result_bundle <= 2'd0;
      qk_occupied <= 3'd0;
      qk_ready <= 3'd0;
    end else begin
      if (qk_written) qk_write_bundle <= qk_write_bundle + 2'd1;
      if (qk_bundle_ready) qk_result_bundle <= qk_result_bundle + 2'd1;
      if (qk_release) qk_read_bundle <= qk_read_bundle + 2'd1;
      qk_occupied <= qk_occupied + {2'b0, qk_written} - {2'b0, qk_release};
      qk_ready <= qk_ready + {2'b0, qk_bundle_ready} - {2'b0, qk_release};
    end
    if (state == IDLE) qk_left <= qk_bundles_32[23:0];
    else if (qk_written) qk_left <= qk_left - 24'd1;
  end

  // ---------------------------------------------------------------- v intake and gates

  reg v_in_packet;
  reg [V_BEAT_WIDTH-1:0] v_beat;
  reg [SLOT_WIDTH-1:0] v_slot, gate_slot;
  reg [HEAD_WIDTH-1:0] v_head;  // of the context, 0 to VALUE_HEADS - 1
  reg [1:0] v_write_bundle, v_read_bundle, gate_bundle;
  reg [2:0] v_occupied, v_loaded, v_gated;
  reg [7:0] v_exponent;
  wire v_take = decoding && v_left != 24'd0 && v_occupied != 3'd4;
  wire load_take;
  wire v_accepted = s_axis_v_tvalid && v_take;
  wire v_raw_write = v_accepted && v_in_packet;
  wire v_last_beat = v_raw_write && v_beat == LAST_V_BEAT_32[V_BEAT_WIDTH-1:0];
  wire v_slot_last = v_slot == LAST_SLOT_32[SLOT_WIDTH-1:0];
  wire v_written = v_last_beat && v_slot_last;
  wire v_release, v_consume;

  assign s_axis_v_tready = v_take || load_take;

  wire gate_valid;
  wire [17:0] gate_beta;
  wire [24:0] gate_scale, gate_inverse, stored_scale;
  wire [4:0] gate_shift, gate_shift_before, stored_shift;
  wire gate_slot_last = gate_slot == LAST_SLOT_32[SLOT_WIDTH-1:0];
  wire set_valid;

  decode_gates #(
      .HEADS     (ALL_HEADS),
      .HEAD_WIDTH(HEAD_WIDTH)
  ) gates (
      .clk(clk),
      .rst_n(run_n),
      .valid_in(v_accepted && !v_in_packet),
      .head(head_base + v_head),
      .record(s_axis_v_tdata[127:0]),
      .bypass(bypass_gates),
      .valid_out(gate_valid),
      .beta(gate_beta),
      .scale(gate_scale),
      .shift(gate_shift),
      .shift_before(gate_shift_before),
      .inverse(gate_inverse),
      .set_valid(set_valid),
      .set_shift_only(state == DUMP_SETTLE),
      .set_head(walk_head),
      .set_scale(state == LOAD ? s_axis_v_tdata[24:0] : 25'h1000000),
      .set_shift(state == WALK ? 5'd31 : 5'd0),
      .get_head(walk_head),
      .get_scale(stored_scale),
      .get_shift(stored_shift)
  );

  always @(posedge clk) begin
    if (!run_n || state == IDLE) begin
      v_in_packet <= 1'b0;
      v_beat <= {V_BEAT_WIDTH{1'b0}};
      v_slot <= {SLOT_WIDTH{1'b0}};
      v_head <= {HEAD_WIDTH{1'b0}};
    end else if (v_accepted) begin
      v_in_packet <= !v_last_beat;
      if (v_in_packet) v_beat <= v_last_beat ? {V_BEAT_WIDTH{1'b0}} : v_beat + 1'b1;
      if (v_last_beat) begin
        v_slot <= v_slot_last ? {SLOT_WIDTH{1'b0}} : v_slot + 1'b1;
        v_head <= v_head == LAST_VALUE_HEAD_32[HEAD_WIDTH-1:0] ? {HEAD_WIDTH{1'b0}}
            : v_head + 1'b1;
      end
    end
    if (v_accepted && !v_in_packet) v_exponent <= s_axis_v_tdata[127:120];

    if (!run_n) begin
      v_write_bundle <= 2'd0;
      v_read_bundle <= 2'd0;
      gate_bundle <= 2'd0;
      gate_slot <= {SLOT_WIDTH{1'b0}};
      v_occupied <= 3'd0;
      v_loaded <= 3'd0;
      v_gated <= 3'd0;
    end else begin
      if (v_written) v_write_bundle <= v_write_bundle + 2'd1;
      if (v_consume) v_read_bundle <= v_read_bundle + 2'd1;
      if (gate_valid) begin
        gate_slot <= gate_slot_last ? {SLOT_WIDTH{1'b0}} : gate_slot + 1'b1;
        if (gate_slot_last) gate_bundle <= gate_bundle + 2'd1;
      end
      v_occupied <= v_occupied + {2'b0, v_written} - {2'b0, v_release};
      v_loaded <= v_loaded + {2'b0, v_written} - {2'b0, v_consume};
      v_gated <= v_gated + {2'b0, gate_valid && gate_slot_last} - {2'b0, v_consume};
    end
    if (state == IDLE) v_left <= passes_32[23:0];
    else if (v_written) v_left <= v_left - 24'd1;
  end

  // ---------------------------------------------------------------- passes

  reg [COLUMN_WIDTH-1:0] row;
  reg [31:0] pass;  // of the token
  reg [31:0] qk_pass;  // of the q/k bundle
  reg [GROUP_WIDTH-1:0] pass_group;
  reg [ROW_WIDTH-1:0] pass_row;
  reg [PENDING_WIDTH-1:0] pass_pending;
  reg sums_busy;  // a pass's sums and scalars are held until its finish is complete
  reg [QK_BEAT_WIDTH-1:0] row_beat;
  reg [PAIR_WIDTH-1:0] row_pair;
  wire finish_complete;

  wire row_first = row == {COLUMN_WIDTH{1'b0}};
  wire row_last = row == LAST_ROW_32[COLUMN_WIDTH-1:0];
  wire inputs_ready = qk_ready != 3'd0 && v_loaded != 3'd0 && v_gated != 3'd0;
  wire pass_may_start = inputs_ready && (PASSES > 1 || !sums_busy);
  wire decode_row = decoding && passes_left != 24'd0 && (!row_first || pass_may_start)
      && (!row_last || !sums_busy);
  wire dump_row = state == DUMP_PASS;
  wire row_valid = decode_row || dump_row;
  wire last_pass = pass == LAST_PASS_32;
  wire last_qk_pass = qk_pass == LAST_QK_PASS_32;
  wire pass_end = decode_row && row_last;

  assign qk_release = pass_end && last_qk_pass;
  assign v_consume = pass_end;
  assign pass_issued = dump_row && row_last;

  always @(posedge clk) begin
    if (!run_n || state == IDLE) begin
      row <= {COLUMN_WIDTH{1'b0}};
      row_beat <= {QK_BEAT_WIDTH{1'b0}};
      row_pair <= {PAIR_WIDTH{1'b0}};
      pass <= 32'd0;
      qk_pass <= 32'd0;
      pass_group <= group_base_32[GROUP_WIDTH-1:0];
      pass_row <= row_base_32[ROW_WIDTH-1:0];
      pass_pending <= pending_base_32[PENDING_WIDTH-1:0];
    end else if (row_valid) begin
      row <= row_last ? {COLUMN_WIDTH{1'b0}} : row + 1'b1;
      row_pair <= row_pair + 1'b1;
      if (row_last) row_beat <= {QK_BEAT_WIDTH{1'b0}};
      else if (&row_pair) row_beat <= row_beat + 1'b1;
      pass_row <= pass_row + 1'b1;
      pass_pending <= pass_pending + 1'b1;
      if (row_last) begin
        pass <= last_pass ? 32'd0 : pass + 32'd1;
        qk_pass <= last_qk_pass ? 32'd0 : qk_pass + 32'd1;
        pass_group <= last_pass ? group_base : pass_group + 1'b1;
        if (last_pass) pass_row <= row_base;
        if (last_pass) pass_pending <= pending_base;
        else if (!last_qk_pass) pass_pending <= pass_pending - LAST_ROW_32[PENDING_WIDTH-1:0];
      end
    end
    if (state == IDLE) passes_left <= passes_32[23:0];
    else if (pass_end) passes_left <= passes_left - 24'd1;
    if (!run_n) sums_busy <= 1'b0;
    else if (pass_end) sums_busy <= 1'b1;
    else if (finish_complete) sums_busy <= 1'b0;
  end

  // ---------------------------------------------------------------- finish

  localparam [2:0] HOLD_CYCLES = 3'd4;  // last row to readable sums, less the cycles of this counter

  reg finish_waiting, finish_reading, finish_final;
  reg [2:0] hold_count;
  reg [COLUMN_WIDTH-1:0] finish_column;
  reg [V_BEAT_WIDTH-1:0] finish_beat;
  reg [1:0] finish_bundle;
  reg [GROUP_WIDTH-1:0] finish_group;
  wire [1:0] groups_used;
  wire group_sent;
  wire finish_start = finish_waiting && hold_count == 3'd0 && groups_used != 2'd2;
  wire finish_column_last = finish_column == LAST_COLUMN_32[COLUMN_WIDTH-1:0];
  wire [COLUMN_WIDTH-1:0] result_column;
  wire result_valid;

  reg update_store;  // one cycle after the last result: the pending update is whole

  always @(posedge clk)
    update_store <= run_n && result_valid
        && result_column == LAST_COLUMN_32[COLUMN_WIDTH-1:0];

  assign finish_complete = update_store;
  assign v_release = finish_complete;

  wire [COLUMN_WIDTH-1:0] column_next = finish_column + POST_COLUMNS_32[COLUMN_WIDTH-1:0];

  always @(posedge clk) begin
    if (!run_n) begin
      finish_waiting <= 1'b0;
      finish_reading <= 1'b0;
    end else begin
      if (pass_end) finish_waiting <= 1'b1;
      else if (finish_start) finish_waiting <= 1'b0;
      if (finish_start) finish_reading <= 1'b1;
      else if (finish_column_last) finish_reading <= 1'b0;
    end
    if (pass_end) hold_count <= HOLD_CYCLES;
    else if (hold_count != 3'd0) hold_count <= hold_count - 3'd1;
    if (pass_end) begin
      finish_bundle <= v_read_bundle;
      finish_group  <= pass_group;
      finish_final  <= passes_left == 24'd1;
    end
    if (finish_start) begin
      finish_column <= {COLUMN_WIDTH{1'b0}};
      finish_beat   <= {V_BEAT_WIDTH{1'b0}};
    end else if (finish_reading) begin
      finish_column <= column_next;
      if (column_next != {COLUMN_WIDTH{1'b0}}
          && (column_next & ELEMENT_MASK) == {COLUMN_WIDTH{1'b0}})
        finish_beat <= finish_beat + 1'b1;
    end
  end

  delay_line #(
      .WIDTH (COLUMN_WIDTH),
      .CYCLES(9)
  ) result_column_delay (
      .clk  (clk),
      .rst_n(run_n),
      .in   (finish_column),
      .out  (result_column)
  );

  delay_line #(
      .WIDTH (1),
      .CYCLES(9),
      .RESET (1)
  ) result_valid_delay (
      .clk  (clk),
      .rst_n(run_n),
      .in   (finish_reading),
      .out  (result_valid)
  );

  // ---------------------------------------------------------------- load and dump

  reg load_complete;
  reg [SLOT_WIDTH-1:0] load_slot, dump_slot;
  reg [2:0] settle_count;
  wire load_record, load_scale_illegal, load_write, load_clamped;
  wire dump_read, dump_slice, dump_valid, dump_last;
  wire [COLUMN_WIDTH-1:0] load_row_index, dump_row_index;
  wire [WORD_BEAT_WIDTH-1:0] dump_beat;
  wire [HEAD_DIM*STATE_PITCH-1:0] load_row;
  wire [BUS_WIDTH-1:0] dump_words[0:(1<<SLOT_WIDTH)-1];
  wire [BUS_WIDTH-1:0] dump_data;
  reg [ROW_WIDTH-1:0] load_base;
  wire [31:0] load_row_32 = {{(32 - ROW_WIDTH) {1'b0}}, load_base}
      + {{(32 - COLUMN_WIDTH) {1'b0}}, load_row_index};
  wire [31:0] dump_row_32 = {{(32 - ROW_WIDTH) {1'b0}}, walk_row}
      + {{(32 - COLUMN_WIDTH) {1'b0}}, dump_row_index};

  assign load_take = state == LOAD && !load_complete;
  assign load_finished = load_complete && !load_write;
  assign settled = settle_count == 3'd0;
  assign set_valid = state == WALK || load_record || (state == DUMP_SETTLE && settled);

  decode_load #(
      .HEAD_DIM    (HEAD_DIM),
      .BUS_WIDTH   (BUS_WIDTH),
      .STATE_PITCH (STATE_PITCH),
      .COLUMN_WIDTH(COLUMN_WIDTH),
      .BEAT_WIDTH  (WORD_BEAT_WIDTH)
  ) load (
      .clk(clk),
      .rst_n(run_n),
      .restart(state == IDLE),
      .take(load_take),
      .s_axis_tdata(s_axis_v_tdata),
      .s_axis_tvalid(s_axis_v_tvalid),
      .record(load_record),
      .scale_illegal(load_scale_illegal),
      .head_done(load_head_done),
      .row_write(load_write),
      .row_index(load_row_index),
      .row(load_row),
      .clamped(load_clamped)
  );

  decode_dump #(
      .HEAD_DIM    (HEAD_DIM),
      .BUS_WIDTH   (BUS_WIDTH),
      .COLUMN_WIDTH(COLUMN_WIDTH),
      .BEAT_WIDTH  (WORD_BEAT_WIDTH)
  ) dump (
      .clk(clk),
      .rst_n(run_n),
      .restart(state == IDLE),
      .active(state == DUMP_READ),
      .scale(stored_scale),
      .last_head(walk_finished),
      .head_done(dump_head_done),
      .finished(dump_finished),
      .row_read(dump_read),
      .row_index(dump_row_index),
      .row_slice(dump_slice),
      .row_beat(dump_beat),
      .words(dump_words[dump_slot]),
      .m_axis_tdata(dump_data),
      .m_axis_tvalid(dump_valid),
      .m_axis_tready(m_axis_o_tready),
      .m_axis_tlast(dump_last)
  );

  always @(posedge clk) begin
    if (state == IDLE) load_complete <= 1'b0;
    else if (load_head_done && walk_finished) load_complete <= 1'b1;
    if (state == IDLE) bad_state <= 1'b0;
    else if (load_record && load_scale_illegal) bad_state <= 1'b1;
    load_slot <= walk_slot;
    load_base <= walk_row;
    if (dump_slice) dump_slot <= walk_slot;
    if (state != DUMP_SETTLE) settle_count <= 3'd5;
    else if (!settled) settle_count <= settle_count - 3'd1;
  end

  // ---------------------------------------------------------------- slots

  wire [ROW_WIDTH-1:0] row_address = dump_read ? dump_row_32[ROW_WIDTH-1:0] : pass_row;
  wire [QK_SLOTS*54-1:0] vectors;  // {kp, q, k} of every query/key slot
  wire [QK_SLOTS*25-1:0] dots;
  wire [H_ITER-1:0] row_saturated;
  wire [H_ITER*POST_COLUMNS-1:0] column_saturated;
  wire [H_ITER*POST_COLUMNS*32-1:0] result_words;

  genvar slot;
  generate
    for (slot = 0; slot < QK_SLOTS; slot = slot + 1) begin : g_qk_slot
      decode_unit_vector #(
          .BUS_WIDTH (BUS_WIDTH),
          .ROWS      (PENDING_ROWS),
          .BEAT_WIDTH(QK_BEAT_WIDTH),
          .ROW_WIDTH (PENDING_WIDTH),
          .PAIR_WIDTH(PAIR_WIDTH)
      ) unit_vector (
          .clk(clk),
          .rst_n(run_n),
          .raw_write(qk_raw_write && qk_raw_slot == slot),
          .raw_bundle(qk_write_bundle),
          .raw_beat(qk_raw_beat),
          .raw_data(s_axis_qk_tdata),
          .scale_write(qk_result_valid && qk_result_slot == slot),
          .scale_bundle(qk_result_bundle),
          .scale_q_root(result_q_root),
          .scale_q_power(result_q_power),
          .scale_k_root(result_k_root),
          .scale_k_power(result_k_power),
          .scale_dot(result_dot),
          .row_valid(row_valid),
          .row_store(decode_row && last_qk_pass),
          .row_bundle(qk_read_bundle),
          .row_beat(row_beat),
          .row_pair(row_pair),
          .row_pending(pass_pending),
          .kp(vectors[slot*54+36+:18]),
          .q(vectors[slot*54+18+:18]),
          .k(vectors[slot*54+:18]),
          .dot(dots[slot*25+:25])
      );
    end

    for (slot = H_ITER; slot < (1 << SLOT_WIDTH); slot = slot + 1) begin : g_no_slot
      assign dump_words[slot] = {BUS_WIDTH{1'b0}};
    end

    for (slot = 0; slot < H_ITER; slot = slot + 1) begin : g_slot
      localparam QK_SLOT = QK_SLOTS == 1 ? 0 : slot / GROUP_RATIO;

      decode_head_slot #(
          .HEAD_DIM    (HEAD_DIM),
          .ROWS        (ALL_ROWS),
          .GROUPS      (ALL_GROUPS),
          .POST_COLUMNS(POST_COLUMNS),
          .BUS_WIDTH   (BUS_WIDTH),
          .STATE_PITCH (STATE_PITCH),
          .ROW_WIDTH   (ROW_WIDTH),
          .GROUP_WIDTH (GROUP_WIDTH),
          .COLUMN_WIDTH(COLUMN_WIDTH),
          .BEAT_WIDTH  (WORD_BEAT_WIDTH),
          .V_BEAT_WIDTH(V_BEAT_WIDTH)
      ) head (
          .clk(clk),
          .rst_n(run_n),
          .value_write(v_raw_write && v_slot == slot),
          .value_bundle(v_write_bundle),
          .value_beat(v_beat),
          .value_data(s_axis_v_tdata),
          .value_exponent(v_exponent),
          .gate_write(gate_valid && gate_slot == slot),
          .gate_bundle(gate_bundle),
          .gate_beta(gate_beta),
          .gate_scale(gate_scale),
          .gate_shift(gate_shift),
          .gate_shift_before(gate_shift_before),
          .gate_inverse(gate_inverse),
          .row_valid(row_valid),
          .row_first(row_first),
          .row_last(decode_row && row_last),
          .row_address(row_address),
          .row_group(pass_group),
          .row_bundle(v_read_bundle),
          .kp(vectors[QK_SLOT*54+36+:18]),
          .q(vectors[QK_SLOT*54+18+:18]),
          .k(vectors[QK_SLOT*54+:18]),
          .dot(dots[QK_SLOT*25+:25]),
          .pass_end(pass_end),
          .row_saturated(row_saturated[slot]),
          .finish_reading(finish_reading),
          .finish_bundle(finish_bundle),
          .finish_beat(finish_beat),
          .finish_column(finish_column),
          .result_valid(result_valid),
          .result_column(result_column),
          .result_words(result_words[slot*POST_COLUMNS*32+:POST_COLUMNS*32]),
          .column_saturated(column_saturated[slot*POST_COLUMNS+:POST_COLUMNS]),
          .update_group(update_store ? finish_group : walk_group),
          .update_store(update_store),
          .update_clear(set_valid && walk_slot == slot),
          .load_write(load_write && load_slot == slot),
          .load_address(load_row_32[ROW_WIDTH-1:0]),
          .load_row(load_row),
          .settle_rows(state == DUMP_PASS),
          .settle_write(state == DUMP_FETCH && walk_slot == slot),
          .settle_shift(stored_shift),
          .dump_read(dump_read),
          .dump_slice(dump_slice && walk_slot == slot),
          .dump_beat(dump_beat),
          .dump_words(dump_words[slot])
      );
    end
  endgenerate

  // ---------------------------------------------------------------- output

  wire [BUS_WIDTH-1:0] o_tdata;
  wire o_tvalid, o_tlast;

  decode_output #(
      .BUS_WIDTH   (BUS_WIDTH),
      .HEAD_DIM    (HEAD_DIM),
      .SLOTS       (H_ITER),
      .POST_COLUMNS(POST_COLUMNS),
      .COLUMN_WIDTH(COLUMN_WIDTH)
  ) output_buffer (
      .clk(clk),
      .rst_n(run_n),
      .group_start(finish_start),
      .group_final(finish_final),
      .groups_used(groups_used),
      .group_sent(group_sent),
      .write(result_valid),
      .column(result_column),
      .words(result_words),
      .m_axis_tdata(o_tdata),
      .m_axis_tvalid(o_tvalid),
      .m_axis_tready(m_axis_o_tready && state != DUMP_READ),
      .m_axis_tlast(o_tlast)
  );

  assign m_axis_o_tvalid = state == DUMP_READ ? dump_valid : o_tvalid;
  assign m_axis_o_tdata = state == DUMP_READ ? dump_data : o_tdata;
  assign m_axis_o_tlast = state == DUMP_READ ? dump_last : o_tlast;
  assign decode_finished = passes_left == 24'd0 && !sums_busy && groups_used == 2'd0;

  // ---------------------------------------------------------------- counters

  reg [31:0] groups_in_token;
  reg [31:0] saturated_now;

  always @* begin : population
    reg [31:0] n;
    saturated_now = {31'b0, load_clamped};
    for (n = 0; n < H_ITER; n = n + 1) saturated_now = saturated_now + {31'b0, row_saturated[n]};
    for (n = 0; n < H_ITER * POST_COLUMNS; n = n + 1)
      saturated_now = saturated_now + {31'b0, column_saturated[n]};
  end

  always @(posedge clk)
    if (!rst_n || state == IDLE) begin
      if (!rst_n || s_cmd_valid) begin
        saturations <= 32'd0;
        norm_overflows <= 32'd0;
        starved_cycles <= 32'd0;
        tokens_done <= 16'd0;
        groups_in_token <= 32'd0;
      end
    end else begin
      saturations <= saturations + saturated_now;
      if (qk_result_valid)
        norm_overflows <= norm_overflows + {31'b0, norm_overflow[0]} + {31'b0, norm_overflow[1]};
      if (decoding && passes_left != 24'd0 && row_first && !inputs_ready)
        starved_cycles <= starved_cycles + 32'd1;
      if (group_sent) begin
        groups_in_token <= groups_in_token == LAST_PASS_32 ? 32'd0 : groups_in_token + 32'd1;
        if (groups_in_token == LAST_PASS_32) tokens_done <= tokens_done + 16'd1;
      end
    end


  wire unused = &{1'b0, row_base_32, pending_base_32, walk_end_32, passes_32, qk_bundles_32,
      head_base_32, group_base_32, dump_row_32, load_row_32};

endmodule

`default_nettype wire
