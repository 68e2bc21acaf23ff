// SPDX-License-Identifier: Apache-2.0
// Job list of a KV head: words of docs/prefill_engine.md, "Job list", from the visits of the scan.
//
// Purpose: scans twice. The first scan counts the jobs of every KV block; then the length of the list
//   is known, and header, uses and jobs leave as 32-bit words, each section padded with zeros to a
//   multiple of 16 words.
// Protocol: start (one cycle, not while busy) with stable settings; scan_start begins each scan, whose
//   visits come with valid and ready; list_start is high for one cycle with list_words; then the words
//   with valid and ready. done is high for one cycle after the last word.
// Latency: list_start 3 cycles after the last visit of the first scan.
// Throughput: one word a cycle, less where the scan has nothing yet.
// Limits: a job list of a KV head has less than 2^32 - 2^13 jobs.
`default_nettype none

module index_emitter #(
    parameter MAX_BLOCKS = 256,  // power of two, 2 to 2048
    parameter MAX_GROUP  = 4,    // 1 to 8
    parameter HEAD_BITS  = 2,    // bits of a head in a mask: enough for MAX_GROUP, 0 to 3
    parameter SLOTS      = 16    // 2 to 64
) (
    input wire clk,
    input wire rst_n,

    input  wire                    start,
    output wire                    busy,
    output reg                     done,
    input  wire [            11:0] blocks,
    input  wire [             7:0] header_bits,   // query-aware heads
    input  wire [MAX_GROUP*32-1:0] divergences,   // of a head, in steps of 2^-31 nats
    output reg  [            31:0] jobs,          // of the list, from list_start on

    output wire                           scan_start,
    input  wire                           scan_busy,
    input  wire                           visit_valid,
    output wire                           visit_ready,
    input  wire [                   11:0] visit_block,
    input  wire [                   11:0] visit_query,
    input  wire [(SLOTS<<HEAD_BITS)-1:0] visit_mask,

    output reg         list_start,
    output reg  [31:0] list_words,
    output reg         list_valid,
    input  wire        list_ready,
    output reg  [31:0] list_data
);

  generate
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0) begin : g_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (MAX_GROUP < 1 || MAX_GROUP > 8) begin : g_group
      illegal_parameter_MAX_GROUP stop ();
    end
    if (HEAD_BITS < 0 || HEAD_BITS > 3 || (1 << HEAD_BITS) < MAX_GROUP) begin : g_head_bits
      illegal_parameter_HEAD_BITS stop ();
    end
    if (SLOTS < 2 || SLOTS > 64 || (SLOTS & (SLOTS - 1)) != 0) begin : g_slots
      illegal_parameter_SLOTS stop ();
    end
  endgenerate

  localparam MASK_BITS = SLOTS << HEAD_BITS;
  localparam BLOCK_BITS = $clog2(MAX_BLOCKS);
  localparam [31:0] HEADS = 1 << HEAD_BITS;

  localparam [2:0] IDLE = 3'd0, COUNT = 3'd1, LENGTH = 3'd2, HEADER = 3'd3, USES = 3'd4, JOBS = 3'd5,
      PAD = 3'd6, FINISH = 3'd7;

  reg [2:0] state;
  reg [31:0] index;  // of the word in its section
  reg [MASK_BITS-1:0] mask;  // jobs of the present visit that have not left
  reg [11:0] block, query;
  reg [15:0] uses[0:MAX_BLOCKS-1];

  assign busy = state != IDLE;
  assign scan_start = (start && state == IDLE) || state == LENGTH;

  // ---- counting: number of jobs of a visit, then added to that of its block

  reg [15:0] population;
  always @* begin : count_mask
    reg [31:0] n;
    population = 16'd0;
    for (n = 0; n < MASK_BITS; n = n + 1) population = population + {15'd0, visit_mask[n]};
  end

  reg counted, counted_first;
  reg [11:0] counted_block;
  reg [15:0] counted_jobs;
  wire [15:0] uses_before = counted_first ? 16'd0 : uses[counted_block[BLOCK_BITS-1:0]];

  always @(posedge clk) begin
    if (!rst_n) counted <= 1'b0;
    else counted <= state == COUNT && visit_valid;
    counted_block <= visit_block;
    // A block has its first jobs in the window of its own number, where the diagonal is selected.
    counted_first <= visit_block >= visit_query;
    counted_jobs  <= population;
    if (counted) uses[counted_block[BLOCK_BITS-1:0]] <= uses_before + counted_jobs;
    if (start && state == IDLE) jobs <= 32'd0;
    else if (counted) jobs <= jobs + {16'd0, counted_jobs};
  end

  // ---- words

  wire advance = list_ready || !list_valid;
  wire has_job = mask != {MASK_BITS{1'b0}};
  wire [MASK_BITS-1:0] rest = mask & (mask - 1'b1);
  wire emit = state == JOBS && advance && has_job;
  wire take = !has_job || (emit && rest == {MASK_BITS{1'b0}});
  wire second_scan = state >= HEADER;

  assign visit_ready = state == COUNT || (second_scan && take);

  reg [11:0] first;  // position of the lowest bit of the mask
  always @* begin : find_first
    reg [31:0] n;
    first = 12'd0;
    for (n = MASK_BITS; n != 0; n = n - 1) if (mask[n-1]) first = n[11:0] - 12'd1;
  end

  wire [11:0] job_query = query + (first >> HEAD_BITS);
  wire [11:0] job_head = first & (HEADS[11:0] - 12'd1);
  wire [31:0] job = {3'd0, job_query == block, 1'b0, job_head[2:0], job_query, block};

  wire [3:0] header_head = index[3:0] - 4'd2;
  wire [31:0] header = index[3:0] == 4'd0 ? jobs : index[3:0] == 4'd1 ? {24'd0, header_bits} :
      {28'd0, header_head} < MAX_GROUP ? divergences[header_head*32+:32] : 32'd0;
  wire [31:0] uses_padded = {20'd0, blocks + 12'd15} & ~32'd15;
  wire [31:0] jobs_padded = (jobs + 32'd15) & ~32'd15;

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      done <= 1'b0;
      list_start <= 1'b0;
      list_valid <= 1'b0;
    end else begin
      done <= 1'b0;
      list_start <= state == LENGTH;
      if (advance)
        list_valid <= state == HEADER || state == USES || state == PAD || emit;
      case (state)
        IDLE: if (start) state <= COUNT;
        COUNT: if (!scan_busy && !visit_valid && !counted) state <= LENGTH;
        LENGTH: state <= HEADER;
        HEADER: if (advance && index == 32'd15) state <= USES;
        USES: if (advance && index == uses_padded - 32'd1) state <= JOBS;
        JOBS: if (emit && index == jobs - 32'd1) state <= jobs == jobs_padded ? FINISH : PAD;
        PAD: if (advance && index == jobs_padded - 32'd1) state <= FINISH;
        default:  // FINISH
        if (advance) begin
          state <= IDLE;
          done  <= 1'b1;
        end
      endcase
    end
  end

  always @(posedge clk) begin
    list_words <= 32'd16 + uses_padded + jobs_padded;
    if (state == COUNT) begin
      index <= 32'd0;
      mask  <= {MASK_BITS{1'b0}};
    end else if (second_scan && take) begin
      mask  <= visit_valid ? visit_mask : {MASK_BITS{1'b0}};
      block <= visit_block;
      query <= visit_query;
    end else if (emit) mask <= rest;
    case (state)
      HEADER:
      if (advance) begin
        index <= index == 32'd15 ? 32'd0 : index + 32'd1;
        list_data <= header;
      end
      USES:
      if (advance) begin
        index <= index == uses_padded - 32'd1 ? 32'd0 : index + 32'd1;
        list_data <= index < {20'd0, blocks} ? {16'd0, uses[index[BLOCK_BITS-1:0]]} : 32'd0;
      end
      JOBS:
      if (emit) begin
        index <= index + 32'd1;
        list_data <= job;
      end
      PAD:
      if (advance) begin
        index <= index + 32'd1;
        list_data <= 32'd0;
      end
      default: ;
    endcase
  end

  wire unused = &{1'b0, counted_block, job_head};

endmodule

`default_nettype wire
