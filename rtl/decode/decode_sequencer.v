// SPDX-License-Identifier: Apache-2.0
//
// Runs of the decode kernel, one after the other: takes the arguments, checks them, starts the core
// and the data movers, waits for both, and writes the result block through the write mover.
// Commands, codes, order of the checks and counters: docs/decode_engine.md.
//
// Protocol:   A run begins when start is high and ends with ended for one cycle, after the answer to
//             the last write. A watchdog counts from start. When it expires, the movers are
//             cancelled and the core is flushed until all of them are idle; then the run ends
//             without a result block. An error answer of memory does not stop a run: its data is
//             worthless but keeps the core going, and the status says so at the end.
//             The first reason for which a run fails is its status.
// Latency:    launch 2 cycles after start; the result block leaves 1024 / BUS_WIDTH + 4 cycles after the
//             run, as its check word is added up first.
// Throughput: one run at a time.
// Limits:     a result address that is not aligned gets no result block.

`default_nettype none

module decode_sequencer #(
    parameter integer HEAD_DIM    = 128,  // key and value dimension, multiple of 16 from 16 to 128
    parameter integer QK_HEADS    = 16,   // query/key heads, 1 to 64
    parameter integer GROUP_RATIO = 2,    // value heads per query/key head: 1, 2 or 4
    parameter integer CONTEXTS    = 1,    // resident states, 1 to 64
    parameter integer BUS_WIDTH   = 512   // bits of a beat: 128, 256 or 512
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        taken,
    output wire        ended,
    output wire        running,
    input  wire [31:0] command,
    input  wire [31:0] context_index,
    input  wire [31:0] tokens,
    input  wire        bypass_norm,
    input  wire        bypass_gates,
    input  wire [63:0] qk_address,
    input  wire [63:0] v_address,
    input  wire [63:0] o_address,
    input  wire [63:0] result_address,
    input  wire [31:0] watchdog,

    input  wire [     31:0] version,
    output reg  [      3:0] status,
    output wire [16*32-1:0] counters,  // words 3 to 18 of the result block, word 3 lowest

    output wire        core_flush,
    output wire        core_valid,
    input  wire        core_ready,
    output wire [ 1:0] core_opcode,
    output wire [ 7:0] core_context,
    output wire [15:0] core_tokens,
    output wire        core_bypass_norm,
    output wire        core_bypass_gates,
    input  wire        core_done,
    input  wire        core_bad_state,
    input  wire [31:0] core_saturations,
    input  wire [31:0] core_norm_overflows,
    input  wire [31:0] core_starved_cycles,
    input  wire [15:0] core_tokens_done,
    input  wire        core_output_waits,   // an output beat is not taken in this cycle

    output wire        cancel,
    output wire        read_launch,      // one cycle, both read movers are idle
    output wire [63:0] qk_read_address,
    output wire [31:0] qk_read_beats,
    input  wire        qk_busy,
    input  wire        qk_error,
    input  wire [31:0] qk_beats,
    input  wire [31:0] qk_bursts,
    output wire [63:0] v_read_address,
    output wire [31:0] v_read_beats,
    input  wire        v_busy,
    input  wire        v_error,
    input  wire [31:0] v_beats,
    input  wire [31:0] v_bursts,
    output wire        write_launch,     // one cycle, the write mover is idle
    output wire [63:0] write_address,
    output wire [31:0] write_beats,
    input  wire        o_busy,
    input  wire        o_error,
    input  wire [31:0] o_beats,
    input  wire [31:0] o_bursts,
    // Sums of the words that went over the ports since taken, without the result block.
    input  wire [31:0] qk_checksum,
    input  wire [31:0] v_checksum,
    input  wire [31:0] o_checksum,

    output wire                 report,        // the write mover's data is the result block
    output wire [BUS_WIDTH-1:0] report_tdata,
    output wire                 report_tvalid,
    input  wire                 report_tready
);

  localparam [1:0] DECODE = 2'd0;
  localparam [1:0] CLEAR = 2'd1;
  localparam [1:0] LOAD = 2'd2;
  localparam [1:0] DUMP = 2'd3;

  localparam [3:0] OK = 4'd0;
  localparam [3:0] BAD_COMMAND = 4'd1;
  localparam [3:0] BAD_CONTEXT = 4'd2;
  localparam [3:0] BAD_TOKENS = 4'd3;
  localparam [3:0] BAD_ADDRESS = 4'd4;
  localparam [3:0] READ_ERROR = 4'd5;
  localparam [3:0] WRITE_ERROR = 4'd6;
  localparam [3:0] TIMEOUT = 4'd7;
  localparam [3:0] CONTEXT_LOST = 4'd8;
  localparam [3:0] BAD_STATE = 4'd9;

  localparam [31:0] MAGIC = 32'h31524446;  // "FDR1"

  localparam integer BYTE_BITS = $clog2(BUS_WIDTH / 8);
  localparam integer VALUE_HEADS = QK_HEADS * GROUP_RATIO;
  localparam integer WORD_BEATS = (HEAD_DIM + BUS_WIDTH / 32 - 1) / (BUS_WIDTH / 32);
  localparam integer HALF_BEATS = (HEAD_DIM + BUS_WIDTH / 16 - 1) / (BUS_WIDTH / 16);
  // Beats of a token on each port, and of a state.
  localparam [31:0] QK_TOKEN_BEATS = QK_HEADS * (1 + WORD_BEATS);
  localparam [31:0] V_TOKEN_BEATS = VALUE_HEADS * (1 + HALF_BEATS);
  localparam [31:0] O_TOKEN_BEATS = VALUE_HEADS * WORD_BEATS;
  localparam [31:0] STATE_BEATS = VALUE_HEADS * (1 + HEAD_DIM * WORD_BEATS);
  localparam integer RESULT_BITS = 1024;
  localparam [31:0] RESULT_BEATS = RESULT_BITS / BUS_WIDTH;
  localparam [31:0] CONTEXT_COUNT = CONTEXTS;

  // States of a run.
  localparam [3:0] IDLE = 4'd0;
  localparam [3:0] CHECK = 4'd1;
  localparam [3:0] LAUNCH = 4'd2;  // the movers get their commands
  localparam [3:0] WORK = 4'd3;  // until the core is done
  localparam [3:0] SETTLE = 4'd4;  // until the movers are idle
  localparam [3:0] GIVE_UP = 4'd5;  // the watchdog expired: until the movers are idle
  localparam [3:0] SUM = 4'd6;  // the check word of the result block is added up
  localparam [3:0] REPORT = 4'd7;  // the write mover gets the command for the result block
  localparam [3:0] FINISH = 4'd8;  // until the result block is written

  // Product with a constant of few set bits, in adders.
  function automatic [31:0] beats_of_tokens(input [15:0] number, input [31:0] beats_of_token);
    reg [31:0] bit_index;
    begin
      beats_of_tokens = 32'd0;
      for (bit_index = 0; bit_index < 32; bit_index = bit_index + 1)
      if (beats_of_token[bit_index[4:0]])
        beats_of_tokens = beats_of_tokens + ({16'd0, number} << bit_index);
    end
  endfunction

  reg [3:0] state;

  // --- Arguments of the run

  reg [31:0] run_command;
  reg [31:0] run_context;
  reg [31:0] run_tokens;
  reg run_bypass_norm;
  reg run_bypass_gates;
  reg [63:0] run_qk;
  reg [63:0] run_v;
  reg [63:0] run_o;
  reg [63:0] run_result;
  reg watched;
  reg [31:0] time_left;

  wire is_decode = run_command[1:0] == DECODE;
  wire is_clear = run_command[1:0] == CLEAR;
  wire is_load = run_command[1:0] == LOAD;
  wire is_dump = run_command[1:0] == DUMP;

  always @(posedge clk) begin
    if (taken) begin
      run_command      <= command;
      run_context      <= context_index;
      run_tokens       <= tokens;
      run_bypass_norm  <= bypass_norm;
      run_bypass_gates <= bypass_gates;
      run_qk           <= qk_address;
      run_v            <= v_address;
      run_o            <= o_address;
      run_result       <= result_address;
      watched          <= watchdog != 32'd0;
      time_left        <= watchdog;
    end else if (time_left != 32'd0) begin
      time_left <= time_left - 32'd1;
    end
  end

  // --- Checks

  reg [63:0] lost;  // by context
  wire context_is_lost = lost[run_context[5:0]];
  wire result_is_aligned = run_result[BYTE_BITS-1:0] == {BYTE_BITS{1'b0}};
  wire qk_is_bad = is_decode && run_qk[BYTE_BITS-1:0] != {BYTE_BITS{1'b0}};
  wire v_is_bad = (is_decode || is_load) && run_v[BYTE_BITS-1:0] != {BYTE_BITS{1'b0}};
  wire o_is_bad = (is_decode || is_dump) && run_o[BYTE_BITS-1:0] != {BYTE_BITS{1'b0}};

  reg [3:0] verdict;
  always @* begin
    if (run_command[31:2] != 30'd0) verdict = BAD_COMMAND;
    else if (run_context >= CONTEXT_COUNT) verdict = BAD_CONTEXT;
    else if (is_decode && run_tokens[31:16] != 16'd0) verdict = BAD_TOKENS;
    else if (!result_is_aligned || qk_is_bad || v_is_bad || o_is_bad) verdict = BAD_ADDRESS;
    else if (context_is_lost && (is_decode || is_dump)) verdict = CONTEXT_LOST;
    else verdict = OK;
  end

  // --- Sequence

  wire movers_are_idle = !qk_busy && !v_busy && !o_busy;
  wire settled = state == SETTLE && movers_are_idle;
  wire reported = state == FINISH && !o_busy;
  wire given_up = state == GIVE_UP && movers_are_idle;
  wire summed;
  wire in_time = settled || reported || state == IDLE || state == CHECK || state == SUM
                 || state == REPORT;
  wire expires = watched && time_left == 32'd0 && state != GIVE_UP && !in_time;

  assign taken        = state == IDLE && start;
  assign running      = state != IDLE;
  assign ended        = reported || given_up;
  assign cancel       = state == GIVE_UP;
  assign read_launch  = state == LAUNCH;
  assign write_launch = state == LAUNCH || state == REPORT;

  always @(posedge clk) begin
    if (!rst_n) state <= IDLE;
    else if (expires) state <= GIVE_UP;
    else
      case (state)
        IDLE: if (start) state <= CHECK;
        CHECK: begin
          if (verdict == OK) state <= LAUNCH;
          else if (result_is_aligned) state <= SUM;
          else state <= FINISH;
        end
        LAUNCH: state <= WORK;
        WORK: if (core_done) state <= SETTLE;
        SETTLE: if (movers_are_idle) state <= SUM;
        SUM: if (summed) state <= REPORT;
        REPORT: state <= FINISH;
        FINISH: if (!o_busy) state <= IDLE;
        default: if (movers_are_idle) state <= IDLE;  // GIVE_UP
      endcase
  end

  // --- Commands to the movers

  reg [31:0] qk_count;
  reg [31:0] v_count;
  reg [31:0] o_count;

  assign qk_read_address = run_qk;
  assign qk_read_beats   = qk_count;
  assign v_read_address  = run_v;
  assign v_read_beats    = v_count;
  assign write_address   = report ? run_result : run_o;
  assign write_beats     = report ? RESULT_BEATS : o_count;

  always @(posedge clk) begin
    if (state == CHECK) begin
      qk_count <= is_decode ? beats_of_tokens(run_tokens[15:0], QK_TOKEN_BEATS) : 32'd0;
      v_count  <= is_decode ? beats_of_tokens(run_tokens[15:0], V_TOKEN_BEATS) :
                  is_load ? STATE_BEATS : 32'd0;
      o_count  <= is_decode ? beats_of_tokens(run_tokens[15:0], O_TOKEN_BEATS) :
                  is_dump ? STATE_BEATS : 32'd0;
    end
  end

  // --- Command to the core

  reg asked;  // the command is offered
  reg started;  // the core took the command of this run
  reg active;  // and is not done with it
  reg bad_state;

  assign core_valid        = asked && state != GIVE_UP;
  assign core_flush        = active && state == GIVE_UP;
  assign core_opcode       = run_command[1:0];
  assign core_context      = run_context[7:0];
  assign core_tokens       = run_tokens[15:0];
  assign core_bypass_norm  = run_bypass_norm;
  assign core_bypass_gates = run_bypass_gates;

  always @(posedge clk) begin
    if (!rst_n) begin
      asked   <= 1'b0;
      started <= 1'b0;
      active  <= 1'b0;
    end else begin
      if (state == CHECK) asked <= verdict == OK;
      else if (core_ready || state == GIVE_UP) asked <= 1'b0;

      if (ended || core_done) active <= 1'b0;
      else if (core_valid && core_ready) active <= 1'b1;

      if (ended) started <= 1'b0;
      else if (core_valid && core_ready) started <= 1'b1;
    end
  end

  always @(posedge clk) if (core_done) bad_state <= is_load && core_bad_state;

  // --- Status and lost contexts

  wire reads_failed = qk_error || v_error;
  wire [3:0] outcome =
      reads_failed ? READ_ERROR : o_error ? WRITE_ERROR : bad_state ? BAD_STATE : OK;
  wire times_out = expires && status == OK;
  wire report_fails = reported && status == OK && o_error;
  // A dump only reads the state, so that a failed write does not harm it.
  wire lose = times_out || (settled && outcome != OK && !is_dump) || (report_fails && !is_dump);
  wire regain = settled && outcome == OK && (is_clear || is_load);

  reg [31:0] contexts_lost;

  always @(posedge clk) begin
    if (!rst_n) begin
      status        <= OK;
      lost          <= 64'd0;
      contexts_lost <= 32'd0;
    end else begin
      if (taken) status <= OK;
      else if (state == CHECK) status <= verdict;
      else if (settled) status <= outcome;
      else if (times_out) status <= TIMEOUT;
      else if (report_fails) status <= WRITE_ERROR;

      if (lose) lost[run_context[5:0]] <= 1'b1;
      else if (regain) lost[run_context[5:0]] <= 1'b0;

      if (lose && !context_is_lost) contexts_lost <= contexts_lost + 32'd1;
      else if (regain && context_is_lost) contexts_lost <= contexts_lost - 32'd1;
    end
  end

  // --- Counters

  wire working = state == LAUNCH || state == WORK || state == SETTLE;

  reg [63:0] cycles;
  reg [31:0] tokens_done;
  reg [31:0] saturations;
  reg [31:0] norm_overflows;
  reg [31:0] starved_cycles;
  reg [31:0] qk_beats_read;
  reg [31:0] v_beats_read;
  reg [31:0] o_beats_written;
  reg [31:0] bursts;
  reg [31:0] output_stalls;
  reg [31:0] runs;

  assign counters = {
    o_checksum,
    v_checksum,
    qk_checksum,
    runs,
    contexts_lost,
    output_stalls,
    bursts,
    o_beats_written,
    v_beats_read,
    qk_beats_read,
    starved_cycles,
    norm_overflows,
    saturations,
    cycles,
    tokens_done
  };

  always @(posedge clk) begin
    if (!rst_n || taken) begin
      cycles          <= {63'd0, rst_n};  // the cycle of start counts
      tokens_done     <= 32'd0;
      saturations     <= 32'd0;
      norm_overflows  <= 32'd0;
      starved_cycles  <= 32'd0;
      qk_beats_read   <= 32'd0;
      v_beats_read    <= 32'd0;
      o_beats_written <= 32'd0;
      bursts          <= 32'd0;
      output_stalls   <= 32'd0;
    end else begin
      if (working || state == CHECK) cycles <= cycles + 64'd1;
      // The core and the movers count from their commands; what is seen here stays after the run.
      if (started && working) begin
        tokens_done    <= {16'd0, core_tokens_done};
        saturations    <= core_saturations;
        norm_overflows <= core_norm_overflows;
        starved_cycles <= core_starved_cycles;
      end
      if (state == WORK || state == SETTLE) begin
        qk_beats_read   <= qk_beats;
        v_beats_read    <= v_beats;
        o_beats_written <= o_beats;
        bursts          <= qk_bursts + v_bursts + o_bursts;
      end
      if (working && core_output_waits) output_stalls <= output_stalls + 32'd1;
    end
  end

  always @(posedge clk) begin
    if (!rst_n) runs <= 32'd0;
    else if (taken) runs <= runs + 32'd1;
  end

  // --- Result block

  assign report = state == REPORT || state == FINISH;

  result_block #(
      .BUS_WIDTH  (BUS_WIDTH),
      .BLOCK_WIDTH(RESULT_BITS)
  ) report_block (
      .clk          (clk),
      .rst_n        (rst_n),
      .contents     ({{RESULT_BITS - 19 * 32 - 32{1'b0}}, counters, version, 28'd0, status, MAGIC}),
      .summing      (state == SUM),
      .summed       (summed),
      .launch       (state == REPORT),
      .reporting    (report),
      .stop         (state == GIVE_UP),
      .report_tvalid(report_tvalid),
      .report_tready(report_tready),
      .report_tdata (report_tdata)
  );

endmodule

`default_nettype wire
