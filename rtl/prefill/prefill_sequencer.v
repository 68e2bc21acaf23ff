// SPDX-License-Identifier: Apache-2.0
//
// Runs of the prefill kernel, one after the other: takes the arguments, checks them, leads every KV
// head through its index phase and its attention phase, and gives the result block to the write mover.
// Modes, codes and their order, counters: docs/prefill_engine.md.
//
// Protocol:   A run begins when start is high and ends with ended for one cycle, after the answer to
//             the last write. In a phase, the units work on their own; it is over when all of them and
//             the movers are idle. index_start and attention_start are high for one cycle before it.
//             The first failure is the status of the run. A failure in a phase stops the run: movers
//             are cancelled and the units held in reset until the movers are idle; then the result
//             block is written, except after a time-out. The watchdog counts from start.
// Latency:    first phase 18 cycles after start, as the blocks of the prompt are counted by a division;
//             the result block leaves 2048 / BUS_WIDTH + 4 cycles after the last phase, as its check
//             word is added up first.
// Throughput: one run at a time.
// Limits:     a result address that is not aligned gets no result block.

`default_nettype none

module prefill_sequencer #(
    parameter BLOCK         = 128,  // tokens of a block: 8 to 128
    parameter SLOTS         = 16,   // keyed accumulators, a power of two: 2 to 64
    parameter MAX_BLOCKS    = 256,  // blocks of the longest prompt, a power of two: 2 to 2048
    parameter MAX_GROUP     = 8,    // query heads of a KV head: 1 to 8
    parameter BUS_WIDTH     = 512,  // bits of a beat, a power of two: 64 to 512
    parameter COUNTER_WORDS = 42    // words of the result block behind the version: 1 to 60
) (
    input wire clk,
    input wire rst_n,

    input  wire        start,
    output wire        taken,
    output wire        ended,
    output wire        running,
    input  wire [31:0] mode,
    input  wire [31:0] kv_heads,
    input  wire [31:0] group,
    input  wire [31:0] tokens,
    input  wire [31:0] window,
    input  wire [31:0] gamma,
    input  wire [31:0] divergence_limit,
    input  wire [31:0] min_blocks,
    input  wire [31:0] max_blocks,
    input  wire        cache,
    input  wire [31:0] hot_threshold,
    input  wire [63:0] q_address,
    input  wire [63:0] k_address,
    input  wire [63:0] v_address,
    input  wire [63:0] jobs_address,
    input  wire [63:0] o_address,
    input  wire [63:0] result_address,
    input  wire [31:0] job_stride,
    input  wire [31:0] watchdog,

    input  wire [                31:0] version,
    output reg  [                 3:0] status,
    input  wire [COUNTER_WORDS*32-1:0] counters,  // words 3 and on of the result block

    // Of the run, stable from the first phase on.
    output reg  [11:0] run_blocks,
    output reg  [ 7:0] run_padding,
    output wire [ 3:0] run_group,
    output wire [ 6:0] run_window,
    output wire [16:0] run_gamma,
    output wire [24:0] run_divergence_limit,
    output wire [11:0] run_min_blocks,
    output wire [11:0] run_max_blocks,
    output wire        run_is_dense,
    output reg         run_cache,
    output wire [15:0] run_hot_threshold,
    output reg  [63:0] run_q,
    output reg  [63:0] run_k,
    output reg  [63:0] run_v,
    output reg  [63:0] run_o,
    output reg  [31:0] run_job_stride,
    // Of the KV head.
    output reg  [15:0] kv_head,
    output reg  [19:0] first_head,  // its first query head
    output reg  [63:0] list_address,

    output wire index_start,
    output wire indexing,          // index phase
    output wire attention_start,
    output wire attending,         // attention phase
    output wire phase_ends,        // last cycle of either, also of one that fails
    output wire kv_head_done,
    output wire working,           // cycles of the run without the result block
    output wire units_reset,
    output wire cancel,

    input wire index_done,         // one cycle: the index generator is done
    input wire map_overflow,       // a head's map has no room
    input wire list_is_too_long,   // the list that is to be written has no room
    input wire reader_done,        // one cycle: the job reader is done
    input wire bad_job,            // the list that is read breaks a rule
    input wire units_idle,         // tile engine, KV cache, all that is between units and movers
    input wire movers_idle,
    input wire read_fails,         // an answer that is not OKAY is there
    input wire write_fails,

    output wire        report,         // the write mover of o belongs to the result block
    output wire        report_launch,  // one cycle, the write mover is idle
    output wire [63:0] report_address,
    output wire [31:0] report_beats,
    output wire [BUS_WIDTH-1:0] report_tdata,
    output wire                 report_tvalid,
    input  wire                 report_tready,
    input  wire                 report_busy    // the write mover is not idle
);

  generate
    if (BLOCK < 8 || BLOCK > 128) begin : g_block
      illegal_parameter_BLOCK stop ();
    end
    if (MAX_GROUP < 1 || MAX_GROUP > 8) begin : g_max_group
      illegal_parameter_MAX_GROUP stop ();
    end
    if (COUNTER_WORDS < 1 || COUNTER_WORDS > 60) begin : g_counter_words
      illegal_parameter_COUNTER_WORDS stop ();
    end
  endgenerate

  localparam [1:0] INDEX = 2'd0;
  localparam [1:0] LIST = 2'd1;
  localparam [1:0] DENSE = 2'd2;

  localparam [3:0] OK = 4'd0;
  localparam [3:0] BAD_MODE = 4'd1;
  localparam [3:0] BAD_SHAPE = 4'd2;
  localparam [3:0] BAD_TOKENS = 4'd3;
  localparam [3:0] BAD_PARAMETER = 4'd4;
  localparam [3:0] BAD_ADDRESS = 4'd5;
  localparam [3:0] BAD_JOB = 4'd6;
  localparam [3:0] MAP_OVERFLOW = 4'd7;
  localparam [3:0] READ_ERROR = 4'd8;
  localparam [3:0] WRITE_ERROR = 4'd9;
  localparam [3:0] TIMEOUT = 4'd10;

  localparam [31:0] MAGIC = 32'h31504446;  // "FDP1"
  localparam RESULT_BITS = 2048;
  localparam RESULT_BEATS = RESULT_BITS / BUS_WIDTH;
  localparam [31:0] MAX_TOKENS = MAX_BLOCKS * BLOCK;
  localparam [19:0] FIRST_DIVISOR = BLOCK << 11;

  // States of a run.
  localparam [3:0] IDLE = 4'd0;
  localparam [3:0] CHECK = 4'd1;
  localparam [3:0] LAUNCH = 4'd2;  // the index phase begins
  localparam [3:0] INDEX_PHASE = 4'd3;
  localparam [3:0] LAUNCH_ATTENTION = 4'd4;
  localparam [3:0] ATTENTION_PHASE = 4'd5;
  localparam [3:0] STOP = 4'd6;  // a phase failed: until the movers are idle
  localparam [3:0] GIVE_UP = 4'd7;  // the watchdog expired: until the movers are idle
  localparam [3:0] REPORT = 4'd8;  // the write mover gets the command for the result block
  localparam [3:0] FINISH = 4'd9;  // until the result block is written
  localparam [3:0] SUM = 4'd10;  // the check word of the result block is added up

  reg [3:0] state;

  // --- Arguments of the run

  reg [31:0] run_mode;
  reg [31:0] run_kv_heads;
  reg [31:0] asked_group;
  reg [31:0] run_tokens;
  reg [31:0] asked_window;
  reg [31:0] asked_gamma;
  reg [31:0] asked_limit;
  reg [31:0] asked_min;
  reg [31:0] asked_max;
  reg [31:0] asked_threshold;
  reg [63:0] run_result;
  reg watched;
  reg [31:0] time_left;

  wire is_index = run_mode[1:0] == INDEX;
  wire is_list = run_mode[1:0] == LIST;

  assign run_is_dense = run_mode[1:0] == DENSE;

  always @(posedge clk) begin
    if (taken) begin
      run_mode        <= mode;
      run_kv_heads    <= kv_heads;
      asked_group     <= group;
      run_tokens      <= tokens;
      asked_window    <= window;
      asked_gamma     <= gamma;
      asked_limit     <= divergence_limit;
      asked_min       <= min_blocks;
      asked_max       <= max_blocks;
      asked_threshold <= hot_threshold;
      run_cache       <= cache;
      run_q           <= q_address;
      run_k           <= k_address;
      run_v           <= v_address;
      run_o           <= o_address;
      run_result      <= result_address;
      run_job_stride  <= job_stride;
      watched         <= watchdog != 32'd0;
      time_left       <= watchdog;
    end else if (time_left != 32'd0) begin
      time_left <= time_left - 32'd1;
    end
  end

  assign run_group            = asked_group[3:0];
  assign run_window           = asked_window[6:0];
  assign run_gamma            = asked_gamma[16:0];
  assign run_divergence_limit = asked_limit[24:0];
  assign run_min_blocks       = asked_min[11:0];
  assign run_max_blocks       = asked_max[11:0];
  assign run_hot_threshold    = asked_threshold[15:0];

  // --- Number of blocks: quotient and remainder of tokens - 1, a bit a cycle

  reg  [ 3:0] step;
  reg  [19:0] rest;
  reg  [11:0] quotient;
  reg  [14:0] pairs;  // query blocks times heads of the group

  reg  [19:0] divisor;
  wire        fits = rest >= divisor;
  wire [ 7:0] remainder = rest[7:0];
  wire        checked = state == CHECK && step == 4'd15;

  always @(posedge clk) begin
    if (state != CHECK) begin
      step <= 4'd0;
    end else if (!checked) begin
      step <= step + 4'd1;
    end
    if (step == 4'd0) begin
      rest     <= run_tokens[19:0] - 20'd1;
      divisor  <= FIRST_DIVISOR;
      quotient <= 12'd0;
    end else if (step <= 4'd12) begin
      if (fits) rest <= rest - divisor;
      quotient <= {quotient[10:0], fits};
      divisor  <= divisor >> 1;
    end
    if (step == 4'd13) begin
      run_blocks  <= quotient + 12'd1;
      run_padding <= BLOCK[7:0] - 8'd1 - remainder;
    end
    pairs <= {3'd0, run_blocks} * {11'd0, run_group};
  end

  // --- Checks

  // The shortest list: a header, a use for each block, a job for each pair, in groups of 16 words.
  wire [ 7:0] use_groups = run_blocks[11:4] + {7'd0, run_blocks[3:0] != 4'd0};
  wire [11:0] job_groups = {1'b0, pairs[14:4]} + {11'd0, pairs[3:0] != 4'd0};
  wire [12:0] list_groups = {5'd0, use_groups} + {1'b0, job_groups} + 13'd1;

  wire group_is_bad = asked_group == 32'd0 || asked_group > MAX_GROUP;
  wire window_is_bad = asked_window == 32'd0 || asked_window[31:7] != 25'd0
                       || (asked_window & (asked_window - 32'd1)) != 32'd0;
  wire [9:0] slots = {3'd0, asked_window[6:0]} * {6'd0, asked_group[3:0]};
  wire shape_is_bad = run_kv_heads == 32'd0 || run_kv_heads[31:16] != 16'd0 || group_is_bad
                      || window_is_bad || slots > SLOTS[9:0];
  wire tokens_are_bad = run_tokens == 32'd0 || run_tokens > MAX_TOKENS;
  wire rule_is_bad = asked_gamma == 32'd0 || asked_gamma > 32'h0001_0000
                     || asked_limit > 32'h0100_0000 || asked_min > asked_max
                     || asked_max > MAX_BLOCKS;
  wire cache_is_bad = run_cache && asked_threshold[31:16] != 16'd0;
  wire result_is_aligned = run_result[5:0] == 6'd0;
  wire [5:0] odd = run_q[5:0] | run_k[5:0] | run_v[5:0] | list_address[5:0] | run_o[5:0]
                   | run_job_stride[5:0];
  wire stride_is_short = {6'd0, run_job_stride[31:6]} < {19'd0, list_groups};

  reg [3:0] verdict;
  always @* begin
    if (run_mode > {30'd0, DENSE}) verdict = BAD_MODE;
    else if (shape_is_bad) verdict = BAD_SHAPE;
    else if (tokens_are_bad) verdict = BAD_TOKENS;
    else if ((is_index && rule_is_bad) || cache_is_bad) verdict = BAD_PARAMETER;
    else if (!result_is_aligned || odd != 6'd0 || stride_is_short) verdict = BAD_ADDRESS;
    else verdict = OK;
  end

  // --- Sequence

  reg index_is_done;
  reg reader_is_done;

  wire quiet = units_idle && movers_idle;
  wire index_ends = indexing && index_is_done && quiet;
  wire attention_ends = attending && reader_is_done && quiet;
  wire last_kv_head = kv_head == run_kv_heads[15:0] - 16'd1;
  wire reported = state == FINISH && !report_busy;
  wire summed;
  wire given_up = state == GIVE_UP && movers_idle;

  reg [3:0] failure;
  always @* begin
    if (read_fails) failure = READ_ERROR;
    else if (write_fails) failure = WRITE_ERROR;
    else if (attending && bad_job) failure = BAD_JOB;
    else if (indexing && map_overflow) failure = MAP_OVERFLOW;
    else if (indexing && list_is_too_long) failure = BAD_ADDRESS;
    else failure = OK;
  end
  wire failing = (indexing || attending) && failure != OK;

  // A run whose phases are over is in time until the result block is late.
  wire in_phases = indexing || attending || index_start || attention_start;
  wire completed = attention_ends && last_kv_head;
  wire late = watched && time_left == 32'd0;
  wire expires = late && !failing
                 && ((in_phases && !completed) || (state == FINISH && !reported));

  assign taken           = state == IDLE && start;
  assign running         = state != IDLE;
  assign ended           = reported || given_up;
  assign cancel          = state == GIVE_UP || state == STOP;
  assign units_reset     = cancel;
  assign index_start     = state == LAUNCH;
  assign indexing        = state == INDEX_PHASE;
  assign attention_start = state == LAUNCH_ATTENTION;
  assign attending       = state == ATTENTION_PHASE;
  assign phase_ends      = (indexing || attending)
                           && (failing || expires || index_ends || attention_ends);
  assign kv_head_done    = attention_ends && !failing;
  assign working         = running && state != SUM && state != REPORT && state != FINISH;

  always @(posedge clk) begin
    if (!rst_n) state <= IDLE;
    else if (failing) state <= STOP;
    else if (expires) state <= GIVE_UP;
    else
      case (state)
        IDLE: if (start) state <= CHECK;
        CHECK:
        if (checked) begin
          if (verdict == OK) state <= is_list ? LAUNCH_ATTENTION : LAUNCH;
          else if (result_is_aligned) state <= SUM;
          else state <= FINISH;
        end
        LAUNCH: state <= INDEX_PHASE;
        INDEX_PHASE: if (index_ends) state <= LAUNCH_ATTENTION;
        LAUNCH_ATTENTION: state <= ATTENTION_PHASE;
        ATTENTION_PHASE:
        if (attention_ends) state <= last_kv_head ? SUM : is_list ? LAUNCH_ATTENTION : LAUNCH;
        STOP: if (movers_idle) state <= SUM;
        SUM: if (summed) state <= REPORT;
        REPORT: state <= FINISH;
        FINISH: if (!report_busy) state <= IDLE;
        default: if (movers_idle) state <= IDLE;  // GIVE_UP
      endcase
  end

  always @(posedge clk) begin
    if (taken) begin
      kv_head      <= 16'd0;
      first_head   <= 20'd0;
      list_address <= jobs_address;
    end else if (kv_head_done) begin
      kv_head      <= kv_head + 16'd1;
      first_head <= first_head + {16'd0, run_group};
      list_address <= list_address + {32'd0, run_job_stride};
    end
  end

  always @(posedge clk) begin
    if (!indexing) index_is_done <= 1'b0;
    else if (index_done) index_is_done <= 1'b1;
    if (!attending) reader_is_done <= 1'b0;
    else if (reader_done) reader_is_done <= 1'b1;
  end

  // --- Status

  always @(posedge clk) begin
    if (!rst_n || taken) status <= OK;
    else if (checked) status <= verdict;
    else if (failing) status <= failure;
    else if (expires && status == OK) status <= TIMEOUT;
    else if (reported && status == OK && write_fails) status <= WRITE_ERROR;
  end

  // --- Result block

  assign report         = state == REPORT || state == FINISH;
  assign report_launch  = state == REPORT;
  assign report_address = run_result;
  assign report_beats   = RESULT_BEATS;

  result_block #(
      .BUS_WIDTH  (BUS_WIDTH),
      .BLOCK_WIDTH(RESULT_BITS)
  ) report_block (
      .clk          (clk),
      .rst_n        (rst_n),
      .contents     ({{RESULT_BITS - 96 - 32 * COUNTER_WORDS - 32{1'b0}}, counters, version, 28'd0, status, MAGIC}),
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
