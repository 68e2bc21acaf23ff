// SPDX-License-Identifier: Apache-2.0
// Front of the tile engine: makes jobs ready, in their order, ahead of the matrix unit.
//
// Purpose: gives every visit a K and V buffer and every (head, query block) its slot, fetches query
//   blocks, writes arriving beats to the operand buffers, and passes a job on when it has a place.
//   That place may not be filled yet: k_loaded, v_loaded and q_loaded say what is.
// Protocol: s_job, visits and beats as docs/prefill_engine.md says. Beats of K and V come in the
//   order of the visits, those of Q in the order of q_request. A buffer is released when all jobs
//   of its visit are done (job_done) and a later visit is open; a slot when slot_release says so.
//   Statistics jobs and attention jobs must not be in the engine at the same time.
// Latency: s_job to m_job 3 cycles. Throughput: one job and one beat of each tensor a cycle.
`default_nettype none

module tile_loader #(
    parameter BLOCK       = 128,  // tokens of a block
    parameter HEAD_DIM    = 128,  // channels of a head
    parameter SLOTS       = 16,   // a power of two, 2 to 64
    parameter KV_BUFFERS  = 4,    // 2 to 8
    parameter BUS_WIDTH   = 512,  // bits of a beat
    parameter QUEUE_DEPTH = 32    // jobs that wait, a power of two
) (
    input wire clk,
    input wire rst_n,

    input  wire        s_job_valid,
    output wire        s_job_ready,
    input  wire [ 1:0] s_job_kind,
    input  wire [11:0] s_job_block,
    input  wire [11:0] s_job_query,
    input  wire [ 2:0] s_job_head,
    input  wire [ 5:0] s_job_slot,
    input  wire        s_job_opens_visit,
    input  wire        s_job_last,

    output wire        q_request_valid,
    input  wire        q_request_ready,
    output wire [ 2:0] q_request_head,
    output wire [11:0] q_request_query,

    input  wire                 s_q_tvalid,
    output wire                 s_q_tready,
    input  wire                 s_k_tvalid,
    output wire                 s_k_tready,
    input  wire                 s_v_tvalid,
    output wire                 s_v_tready,

    // Where a beat that is taken goes: number of the word in its block, and part of the word.
    output wire [ 5:0] q_slot,
    output reg  [ 8:0] q_word,
    output reg  [ 4:0] q_part,
    output reg  [ 2:0] k_buffer,
    output reg  [ 8:0] k_word,
    output reg  [ 4:0] k_part,
    output reg  [ 2:0] v_buffer,
    output reg  [ 8:0] v_word,
    output reg  [ 4:0] v_part,

    output wire        m_job_valid,
    input  wire        m_job_ready,
    output wire        m_job_statistics,
    output wire [11:0] m_job_block,
    output wire [11:0] m_job_query,
    output wire [ 2:0] m_job_head,
    output wire [ 5:0] m_job_slot,
    output wire [ 2:0] m_job_buffer,
    output wire        m_job_first,       // first job of its slot
    output wire        m_job_last,

    output reg [      7:0] k_loaded,
    output reg [      7:0] v_loaded,
    output reg [SLOTS-1:0] q_loaded,

    input  wire       job_done,
    input  wire [2:0] job_done_buffer,
    input  wire       slot_release,
    input  wire [$clog2(SLOTS)-1:0] slot_release_slot,
    output wire       idle               // no job and no load is waiting
);

  localparam [1:0] ATTEND = 2'd0;
  localparam [1:0] STATISTICS = 2'd1;
  localparam [1:0] POOL = 2'd2;

  localparam SLOT_BITS = $clog2(SLOTS);
  localparam [31:0] K_PARTS = BLOCK * 8 / BUS_WIDTH;
  localparam [31:0] V_PARTS = HEAD_DIM * 8 / BUS_WIDTH;
  localparam [4:0] LAST_K_PART = K_PARTS[4:0] - 5'd1;
  localparam [4:0] LAST_V_PART = V_PARTS[4:0] - 5'd1;
  localparam [8:0] LAST_Q_WORD = HEAD_DIM + 2;
  localparam [8:0] LAST_K_WORD = HEAD_DIM;
  localparam [8:0] LAST_V_WORD = BLOCK - 1;
  localparam [2:0] LAST_BUFFER = KV_BUFFERS - 1;
  localparam [3:0] BUFFER_COUNT = KV_BUFFERS;

  // ---------------------------------------------------------------- jobs

  reg [SLOTS-1:0] slot_open, slot_free;
  reg [3:0] visits_open;  // not released
  reg [2:0] open_buffer, release_buffer;
  reg [7:0] jobs_left[0:7];  // of each buffer, given on and not done

  wire is_attend = s_job_kind == ATTEND;
  wire is_statistics = s_job_kind == STATISTICS;
  wire is_pool = s_job_kind == POOL;
  wire [SLOT_BITS-1:0] slot = s_job_slot[SLOT_BITS-1:0];

  wire opens = s_job_opens_visit && !is_pool;
  wire fetches = is_pool || (is_statistics && s_job_block == 12'd0) || (is_attend && !slot_open[slot]);
  wire visit_may_open = !opens || visits_open != BUFFER_COUNT;
  wire slot_may_open = !is_attend || slot_open[slot] || slot_free[slot];

  wire fetch_ready, target_ready, queue_ready;
  wire fetch_may_queue = !fetches || (fetch_ready && target_ready);
  wire go = visit_may_open && slot_may_open && fetch_may_queue && queue_ready;
  wire take = s_job_valid && go;
  wire fetch = take && fetches;
  wire open = take && opens;
  wire [2:0] next_buffer = open_buffer == LAST_BUFFER ? 3'd0 : open_buffer + 3'd1;
  wire [2:0] job_buffer = opens ? next_buffer : open_buffer;

  assign s_job_ready = go;

  stream_fifo #(
      .WIDTH(15),
      .DEPTH(4)
  ) fetches_queue (
      .clk(clk),
      .rst_n(rst_n),
      .flush(1'b0),
      .s_axis_tdata({s_job_head, s_job_query}),
      .s_axis_tvalid(fetch),
      .s_axis_tready(fetch_ready),
      .m_axis_tdata({q_request_head, q_request_query}),
      .m_axis_tvalid(q_request_valid),
      .m_axis_tready(q_request_ready)
  );

  stream_fifo #(
      .WIDTH(39),
      .DEPTH(QUEUE_DEPTH)
  ) jobs_queue (
      .clk(clk),
      .rst_n(rst_n),
      .flush(1'b0),
      .s_axis_tdata({
        is_statistics,
        s_job_block,
        s_job_query,
        s_job_head,
        s_job_slot,
        job_buffer,
        is_attend && !slot_open[slot],
        s_job_last
      }),
      .s_axis_tvalid(take && !is_pool),
      .s_axis_tready(queue_ready),
      .m_axis_tdata({
        m_job_statistics,
        m_job_block,
        m_job_query,
        m_job_head,
        m_job_slot,
        m_job_buffer,
        m_job_first,
        m_job_last
      }),
      .m_axis_tvalid(m_job_valid),
      .m_axis_tready(m_job_ready)
  );
  wire release_visit = visits_open > 4'd1 && jobs_left[release_buffer] == 8'd0;

  always @(posedge clk) begin : visits
    reg [31:0] n;
    if (!rst_n) begin
      visits_open <= 4'd0;
      open_buffer <= LAST_BUFFER;
      release_buffer <= 3'd0;
      for (n = 0; n < 8; n = n + 1) jobs_left[n] <= 8'd0;
    end else begin
      visits_open <= visits_open + {3'd0, open} - {3'd0, release_visit};
      if (open) open_buffer <= next_buffer;
      if (release_visit)
        release_buffer <= release_buffer == LAST_BUFFER ? 3'd0 : release_buffer + 3'd1;
      if (!(take && !is_pool && job_done && job_buffer == job_done_buffer)) begin
        if (take && !is_pool) jobs_left[job_buffer] <= jobs_left[job_buffer] + 8'd1;
        if (job_done) jobs_left[job_done_buffer] <= jobs_left[job_done_buffer] - 8'd1;
      end
    end
  end

  always @(posedge clk) begin
    if (!rst_n) begin
      slot_open <= {SLOTS{1'b0}};
      slot_free <= {SLOTS{1'b1}};
    end else begin
      if (slot_release) slot_free[slot_release_slot] <= 1'b1;
      if (take && is_attend) begin
        slot_open[slot] <= !s_job_last;
        slot_free[slot] <= 1'b0;
      end
    end
  end

  // ---------------------------------------------------------------- query blocks

  wire q_target_valid, q_target_is_pool;
  wire [5:0] q_target;
  wire q_take = s_q_tvalid && s_q_tready;
  wire q_part_last = q_part == LAST_K_PART;
  wire q_last = q_take && q_part_last && q_word == LAST_Q_WORD;

  assign s_q_tready = q_target_valid;
  assign q_slot = q_target;

  stream_fifo #(
      .WIDTH(7),
      .DEPTH(8)
  ) targets (
      .clk(clk),
      .rst_n(rst_n),
      .flush(1'b0),
      .s_axis_tdata({is_pool, s_job_slot}),
      .s_axis_tvalid(fetch),
      .s_axis_tready(target_ready),
      .m_axis_tdata({q_target_is_pool, q_target}),
      .m_axis_tvalid(q_target_valid),
      .m_axis_tready(q_last)
  );

  always @(posedge clk) begin
    if (!rst_n) begin
      q_word   <= 9'd0;
      q_part   <= 5'd0;
      q_loaded <= {SLOTS{1'b0}};
    end else begin
      if (q_take) begin
        q_part <= q_part_last ? 5'd0 : q_part + 5'd1;
        if (q_part_last) q_word <= q_last ? 9'd0 : q_word + 9'd1;
      end
      if (q_last && !q_target_is_pool) q_loaded[q_target[SLOT_BITS-1:0]] <= 1'b1;
      if (fetch && !is_pool) q_loaded[slot] <= 1'b0;
    end
  end

  // ---------------------------------------------------------------- K and V blocks

  reg [3:0] k_visits, v_visits;  // open and not loaded
  wire k_take = s_k_tvalid && s_k_tready;
  wire v_take = s_v_tvalid && s_v_tready;
  wire k_part_last = k_part == LAST_K_PART;
  wire v_part_last = v_part == LAST_V_PART;
  wire k_last = k_take && k_part_last && k_word == LAST_K_WORD;
  wire v_last = v_take && v_part_last && v_word == LAST_V_WORD;

  assign s_k_tready = k_visits != 4'd0;
  assign s_v_tready = v_visits != 4'd0;

  always @(posedge clk) begin
    if (!rst_n) begin
      {k_visits, v_visits} <= 8'd0;
      {k_buffer, v_buffer} <= 6'd0;
      {k_word, v_word} <= 18'd0;
      {k_part, v_part} <= 10'd0;
      k_loaded <= 8'd0;
      v_loaded <= 8'd0;
    end else begin
      k_visits <= k_visits + {3'd0, open} - {3'd0, k_last};
      v_visits <= v_visits + {3'd0, open && is_attend} - {3'd0, v_last};
      if (k_take) begin
        k_part <= k_part_last ? 5'd0 : k_part + 5'd1;
        if (k_part_last) k_word <= k_last ? 9'd0 : k_word + 9'd1;
      end
      if (v_take) begin
        v_part <= v_part_last ? 5'd0 : v_part + 5'd1;
        if (v_part_last) v_word <= v_last ? 9'd0 : v_word + 9'd1;
      end
      if (k_last) k_buffer <= k_buffer == LAST_BUFFER ? 3'd0 : k_buffer + 3'd1;
      // A statistics visit has no V and passes its buffer by.
      if (v_last || (open && is_statistics))
        v_buffer <= v_buffer == LAST_BUFFER ? 3'd0 : v_buffer + 3'd1;
      if (release_visit) begin
        k_loaded[release_buffer] <= 1'b0;
        v_loaded[release_buffer] <= 1'b0;
      end
      if (k_last) k_loaded[k_buffer] <= 1'b1;
      if (v_last) v_loaded[v_buffer] <= 1'b1;
    end
  end

  assign idle = !m_job_valid && jobs_left[open_buffer] == 8'd0 && visits_open <= 4'd1 &&
      !q_target_valid && !q_request_valid && k_visits == 4'd0 && v_visits == 4'd0;

endmodule

`default_nettype wire
