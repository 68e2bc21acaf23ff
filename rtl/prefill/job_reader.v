// SPDX-License-Identifier: Apache-2.0
// Reads a job list, checks every record, and gives out its uses, jobs and visits.
//
// Purpose: the list of one KV head (docs/prefill_engine.md, "Job list") becomes the order of work of
//   the engine. Nothing of a visit is given before all of its records were checked, so whatever a
//   broken list leads to, jobs and visits given agree with each other and the engine gets idle.
// Protocol: start with stable blocks, group and window, window * group <= SLOTS. Two requests:
//   header and uses, then, if these are sound, the jobs; each is answered by its beats. uses_write
//   gives the uses of block 0, 1, ... before the first visit. Jobs and visits are given in the order
//   of the list, on two ports that may run apart; job_opens_visit marks the first job of a visit.
//   done for one cycle when the list was read and all was taken; busy up to then.
//   bad_job, valid with done and until start: a rule of the list is broken. All beats were taken;
//   the visits before the one with the broken record may have been given, no later one.
// Latency: job_valid and visit_valid 4 cycles after the beat with the first record of the next visit.
// Throughput: one word a cycle.
// Limits: lists of at most 2^25 - 1 jobs, which no legal one exceeds.
`default_nettype none

module job_reader #(
    parameter SLOTS      = 16,  // most jobs of a visit, a power of two: 2 to 64
    parameter MAX_BLOCKS = 256, // blocks of the longest prompt, a power of two: 2 to 2048
    parameter BUS_WIDTH  = 512  // bits of a beat, a power of two: 64 to 512
) (
    input wire clk,
    input wire rst_n,

    input  wire start,
    output wire busy,
    output reg  done,
    output reg  bad_job,

    input wire [11:0] blocks,  // 1 to MAX_BLOCKS
    input wire [ 3:0] group,   // query heads of a KV head, 1 to 8
    input wire [ 6:0] window,  // query blocks of a window, a power of two

    output wire                 list_request_valid,
    input  wire                 list_request_ready,
    output wire [         31:0] list_request_offset,  // bytes from the start of the list
    output wire [         31:0] list_request_beats,
    input  wire                 list_valid,
    output wire                 list_ready,
    input  wire [BUS_WIDTH-1:0] list_data,

    output reg        uses_write,
    output reg [11:0] uses_block,
    output reg [15:0] uses_value,

    output reg         job_valid,
    input  wire        job_ready,
    output wire [ 1:0] job_kind,
    output wire [11:0] job_block,
    output wire [11:0] job_query,
    output wire [ 2:0] job_head,
    output wire [ 5:0] job_slot,
    output wire        job_opens_visit,
    output wire        job_last,

    output wire        visit_valid,
    input  wire        visit_ready,
    output wire [11:0] visit_block,
    output wire [ 7:0] visit_jobs,
    output wire        visit_k_only
);

  generate
    if (SLOTS < 2 || SLOTS > 64 || (SLOTS & (SLOTS - 1)) != 0) begin : g_slots
      illegal_parameter_SLOTS stop ();
    end
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0)
    begin : g_max_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (BUS_WIDTH < 64 || BUS_WIDTH > 512 || (BUS_WIDTH & (BUS_WIDTH - 1)) != 0)
    begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
  endgenerate

  localparam BLOCK_BITS = $clog2(MAX_BLOCKS);
  localparam [31:0] BEAT_WORDS = BUS_WIDTH / 32;
  localparam LINE_SHIFT = 4 - $clog2(BUS_WIDTH / 32);  // beats of 16 words, as a power of two
  localparam VISIT_DEPTH = 16;
  localparam JOB_DEPTH = SLOTS < 8 ? 16 : 2 * SLOTS;  // a visit in check, and one that is given
  localparam POINTER_BITS = $clog2(JOB_DEPTH);
  localparam [POINTER_BITS:0] ONE = 1;
  localparam JOB_BITS = 12 + 12 + 3 + 6 + 1 + 1;

  localparam [3:0] IDLE = 4'd0;
  localparam [3:0] ASK_HEAD = 4'd1;
  localparam [3:0] HEAD = 4'd2;
  localparam [3:0] JUDGE = 4'd3;
  localparam [3:0] ASK_JOBS = 4'd4;
  localparam [3:0] JOBS = 4'd5;
  localparam [3:0] CLOSE = 4'd6;
  localparam [3:0] DRAIN = 4'd7;
  localparam [3:0] GIVE = 4'd8;

  reg [3:0] state;

  assign busy = state != IDLE;

  // ---------------------------------------------------------------- beats to words

  reg [BUS_WIDTH-1:0] beat;
  reg [4:0] held;  // words in beat
  reg [23:0] beats_left;  // of the request
  reg [24:0] jobs_left;  // records that the checker did not get yet

  wire [31:0] word = beat[31:0];
  wire stage_free;
  wire word_ready = state == HEAD || (state == JOBS && stage_free);
  wire take_word = held != 5'd0 && word_ready;
  wire take_beat = list_valid && list_ready;
  wire section_taken = beats_left == 24'd0 && held == 5'd0;

  assign list_ready = beats_left != 24'd0
      && (state == DRAIN || held == 5'd0 || (held == 5'd1 && word_ready));

  // Sections are whole groups of 16 words.
  wire [7:0] use_lines = blocks[11:4] + {7'd0, blocks[3:0] != 4'd0};
  wire [20:0] job_lines = jobs_left[24:4] + {20'd0, jobs_left[3:0] != 4'd0};
  wire [23:0] head_beats = {15'd0, {1'b0, use_lines} + 9'd1} << LINE_SHIFT;
  wire [23:0] job_beats = {3'd0, job_lines} << LINE_SHIFT;

  assign list_request_valid = state == ASK_HEAD || state == ASK_JOBS;
  assign list_request_offset = state == ASK_HEAD ? 32'd0
                                                 : {17'd0, {1'b0, use_lines} + 9'd1, 6'd0};
  assign list_request_beats = {8'd0, state == ASK_HEAD ? head_beats : job_beats};

  always @(posedge clk) begin
    if (!rst_n) begin
      held <= 5'd0;
      beats_left <= 24'd0;
    end else begin
      if (list_request_valid && list_request_ready) beats_left <= list_request_beats[23:0];
      else if (take_beat) beats_left <= beats_left - 24'd1;

      if (state == DRAIN) held <= 5'd0;
      else if (take_beat) held <= BEAT_WORDS[4:0];
      else if (take_word) held <= held - 5'd1;
    end
    if (take_beat) beat <= list_data;
    else if (take_word) beat <= beat >> 32;
  end

  // ---------------------------------------------------------------- header and uses

  // limit is the most uses that the block of the word can have, group * (blocks - block); it is 0
  // in the padding. As no use exceeds it, their sum is a possible number of jobs.
  reg [14:0] pairs;  // query blocks times heads
  reg [11:0] head_word;
  reg [14:0] limit;
  reg [24:0] uses_sum;
  reg [31:0] number_of_jobs;
  reg uses_are_bad;

  wire in_uses = head_word[11:4] != 8'd0;
  wire take_use = state == HEAD && take_word && in_uses;
  wire [11:0] use_block = head_word - 12'd16;

  always @(posedge clk) begin
    if (state == IDLE) begin
      pairs <= {3'd0, blocks} * {11'd0, group};
      limit <= {3'd0, blocks} * {11'd0, group};
      head_word <= 12'd0;
      uses_sum <= 25'd0;
      uses_are_bad <= 1'b0;
    end else if (state == HEAD && take_word) begin
      head_word <= head_word + 12'd1;
      if (head_word == 12'd0) number_of_jobs <= word;
      if (in_uses) begin
        if (word > {17'd0, limit}) uses_are_bad <= 1'b1;
        uses_sum <= uses_sum + word[24:0];
        if (limit != 15'd0) limit <= limit - {11'd0, group};
      end
    end
    uses_block <= use_block;
    uses_value <= word[15:0];
  end

  always @(posedge clk)
    if (!rst_n) uses_write <= 1'b0;
    else uses_write <= take_use && limit != 15'd0;

  // ---------------------------------------------------------------- check of a record

  reg record_valid, record_is_padding;
  reg  [31:0] record;
  reg  [ 5:0] slot;

  wire [11:0] block = record[11:0];
  wire [11:0] query = record[23:12];
  wire [ 2:0] head = record[26:24];
  wire        last = record[28];
  wire [ 6:0] in_window = window - 7'd1;  // bits of a query block within its window
  wire [11:0] base = query & ~{5'd0, in_window};
  wire [ 5:0] word_row = word[17:12] & in_window[5:0];
  wire [ 5:0] word_slot = word_row * {2'd0, group} + {3'd0, word[26:24]};
  wire [ 9:0] pitch = {3'd0, window} * {6'd0, group};  // slots of a window

  // Of the records so far.
  reg  [ 7:0] visit_count;  // of the visit in check; 0 before the first record
  reg [11:0] last_block, last_query;
  reg [2:0] last_head;
  reg [15:0] last_left;
  reg [11:0] last_base;
  reg [63:0] closed;  // slots of the window that had their last job
  reg [14:0] closed_pairs, due_pairs;  // all that had it, and that must have had it after the window

  reg [15:0] left[0:MAX_BLOCKS-1];  // uses of each block that are left
  reg [15:0] left_read;

  wire none_yet = visit_count == 8'd0;
  wire same_window = base == last_base;
  wire next_window = {1'b0, base} == {1'b0, last_base} + {6'd0, window};
  wire opens = none_yet || block != last_block || !same_window;
  // The record before this one wrote the memory when this one read it.
  wire [15:0] block_left = !none_yet && block == last_block ? last_left : left_read;
  wire [15:0] left_after = block_left - 16'd1;

  wire fields_are_bad = record[31:29] != 3'd0 || record[27] || {1'b0, head} >= group
                        || query >= blocks || block > query;
  wire order_is_bad = same_window
      ? !none_yet && {block, query, head} <= {last_block, last_query, last_head}
      : !next_window || closed_pairs != due_pairs;
  wire job_is_bad = fields_are_bad || order_is_bad || block_left == 16'd0
                    || (same_window && closed[slot]);
  wire record_is_bad = record_is_padding ? record != 32'd0 : job_is_bad;

  wire jobs_full, visits_ready;
  wire completes = opens && !none_yet;  // the visit before is complete
  wire stalled = !record_is_padding && (jobs_full || (completes && !visits_ready));
  wire fire = state == JOBS && record_valid && !stalled;
  wire accept = fire && !record_is_padding && !job_is_bad;
  wire reject = fire && record_is_bad;
  wire list_is_complete = closed_pairs == pairs;
  wire close = state == CLOSE && list_is_complete && visits_ready;

  assign stage_free = !record_valid || fire;

  always @(posedge clk) begin
    if (!rst_n || state == IDLE) record_valid <= 1'b0;
    else if (state == JOBS && stage_free) record_valid <= take_word;
    if (state == JOBS && take_word) begin
      record <= word;
      record_is_padding <= jobs_left == 25'd0;
      slot <= word_slot;
    end
  end

  always @(posedge clk) begin
    if (take_use && limit != 15'd0) left[use_block[BLOCK_BITS-1:0]] <= word[15:0];
    else if (accept) left[block[BLOCK_BITS-1:0]] <= left_after;
    if (state == JOBS && take_word) left_read <= left[word[BLOCK_BITS-1:0]];
  end

  always @(posedge clk) begin
    if (state == IDLE) begin
      visit_count  <= 8'd0;
      last_base    <= 12'd0;
      closed       <= 64'd0;
      closed_pairs <= 15'd0;
      due_pairs    <= {5'd0, pitch};
    end else if (accept) begin
      visit_count <= opens ? 8'd1 : visit_count + 8'd1;
      last_block  <= block;
      last_query  <= query;
      last_head   <= head;
      last_left   <= left_after;
      last_base   <= base;
      if (!same_window) begin
        due_pairs <= due_pairs + {5'd0, pitch};
        closed <= 64'd0;
      end
      if (last) begin
        closed[slot] <= 1'b1;
        closed_pairs <= closed_pairs + 15'd1;
      end
    end
  end

  // ---------------------------------------------------------------- jobs and visits out

  reg [JOB_BITS-1:0] jobs[0:JOB_DEPTH-1];
  reg [JOB_BITS-1:0] job;
  reg [POINTER_BITS:0] write_pointer, read_pointer;
  reg  [POINTER_BITS:0] given_pointer;  // what is before it may be given
  reg  [           4:0] visits_inside;

  wire [POINTER_BITS:0] level = write_pointer - read_pointer;
  wire                  advance = job_ready || !job_valid;
  wire                  fetch = advance && read_pointer != given_pointer;
  wire                  give = (accept && completes) || close;
  wire                  all_taken = read_pointer == given_pointer && !job_valid
                                    && visits_inside == 5'd0;

  assign jobs_full = level[POINTER_BITS];
  assign job_kind  = 2'd0;
  assign {job_opens_visit, job_last, job_slot, job_head, job_query, job_block} = job;
  assign visit_k_only = 1'b0;

  stream_fifo #(
      .WIDTH(20),
      .DEPTH(VISIT_DEPTH)
  ) visits (
      .clk          (clk),
      .rst_n        (rst_n),
      .flush        (1'b0),
      .s_axis_tdata ({visit_count, last_block}),
      .s_axis_tvalid(give),
      .s_axis_tready(visits_ready),
      .m_axis_tdata ({visit_jobs, visit_block}),
      .m_axis_tvalid(visit_valid),
      .m_axis_tready(visit_ready)
  );

  always @(posedge clk) begin
    if (!rst_n || state == IDLE) begin
      write_pointer <= {POINTER_BITS + 1{1'b0}};
      read_pointer  <= {POINTER_BITS + 1{1'b0}};
      given_pointer <= {POINTER_BITS + 1{1'b0}};
      visits_inside <= 5'd0;
      job_valid     <= 1'b0;
    end else begin
      if (accept) write_pointer <= write_pointer + ONE;
      if (fetch) read_pointer <= read_pointer + ONE;
      if (give) given_pointer <= write_pointer;
      if (advance) job_valid <= fetch;
      visits_inside <= visits_inside + {4'd0, give} - {4'd0, visit_valid && visit_ready};
    end
    if (accept) jobs[write_pointer[POINTER_BITS-1:0]] <= {opens, last, slot, head, query, block};
    if (fetch) job <= jobs[read_pointer[POINTER_BITS-1:0]];
  end

  // ---------------------------------------------------------------- order of work

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      done <= 1'b0;
      bad_job <= 1'b0;
    end else begin
      done <= 1'b0;
      case (state)
        IDLE:
        if (start) begin
          state   <= ASK_HEAD;
          bad_job <= 1'b0;
        end
        ASK_HEAD: if (list_request_ready) state <= HEAD;
        HEAD: if (section_taken) state <= JUDGE;
        JUDGE:
        if (uses_are_bad || uses_sum == 25'd0 || number_of_jobs != {7'd0, uses_sum}) begin
          bad_job <= 1'b1;
          state   <= GIVE;
        end else state <= ASK_JOBS;
        ASK_JOBS: if (list_request_ready) state <= JOBS;
        JOBS:
        if (reject) begin
          bad_job <= 1'b1;
          state   <= DRAIN;
        end else if (section_taken && !record_valid) state <= CLOSE;
        CLOSE:
        if (!list_is_complete) begin
          bad_job <= 1'b1;
          state   <= GIVE;
        end else if (visits_ready) state <= GIVE;
        DRAIN: if (beats_left == 24'd0) state <= GIVE;
        GIVE:
        if (all_taken) begin
          done  <= 1'b1;
          state <= IDLE;
        end
        default: state <= IDLE;
      endcase
    end
  end

  always @(posedge clk)
    if (state == JUDGE) jobs_left <= uses_sum;
    else if (state == JOBS && take_word && jobs_left != 25'd0) jobs_left <= jobs_left - 25'd1;

endmodule

`default_nettype wire
