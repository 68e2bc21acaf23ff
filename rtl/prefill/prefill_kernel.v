// SPDX-License-Identifier: Apache-2.0
//
// Prefill kernel: causal attention over selected blocks, between memory and the host. Formats, modes,
// registers, result block and codes: docs/prefill_engine.md.
//
// Protocol:   s_axi_control is AXI4-Lite with control protocol ap_ctrl_chain. m_axi_q, m_axi_k and
//             m_axi_v only read, m_axi_o only writes, m_axi_jobs does both; AXI4 with INCR bursts of
//             full beats that never cross a 4 KiB page, one identifier, several requests out.
//             interrupt is a level. done is reported after the answer to the last write.
// Latency:    first ARVALID 24 cycles after the write of the start bit.
// Throughput: one beat a cycle on each memory port, over blocks that follow each other, if memory
//             answers within 192 cycles.
// Limits:     one run at a time; start may be written again as soon as it reads 0.

`default_nettype none

module prefill_kernel #(
    // Illegal values are refused at elaboration, here or by the units.
    parameter HEAD_DIM      = 128,  // channels of a head, a multiple of ARRAY_COLUMNS: 16 to 256
    parameter STRIPS        = 3,    // servers of the matrix unit: 1 to 4
    parameter ROW_ARRAYS    = 4,    // arrays stacked in a server: 1 to 16
    parameter LUT_ARRAYS    = 2,    // of these with products in the fabric: 0 to ROW_ARRAYS
    parameter ARRAY_ROWS    = 32,   // 2 to 64; a block has ROW_ARRAYS * ARRAY_ROWS tokens, 8 to 128
    parameter ARRAY_COLUMNS = 32,   // 2 to 64
    parameter SLOTS         = 16,   // keyed accumulators, a power of two: 2 to 64
    parameter KV_BUFFERS    = 4,    // K and V blocks beside the arrays: 2 to 8
    parameter CACHE_LINES   = 256,  // a power of two: 2 to 1024
    parameter MAX_BLOCKS    = 256,  // blocks of the longest prompt, a power of two: 2 to 2048
    parameter MAX_GROUP     = 8,    // query heads of a KV head: 1 to 8
    parameter BUS_WIDTH     = 512,  // bits of a beat, a power of two: 64 to 512
    // Entries of the largest map of a query-aware head, N (N + 1) / 2 with N blocks: 3 to 2098176
    parameter MAP_ENTRIES   = 32896
) (
    input wire ap_clk,
    input wire ap_rst_n,

    input  wire [11:0] s_axi_control_awaddr,
    input  wire        s_axi_control_awvalid,
    output wire        s_axi_control_awready,
    input  wire [31:0] s_axi_control_wdata,
    input  wire [ 3:0] s_axi_control_wstrb,
    input  wire        s_axi_control_wvalid,
    output wire        s_axi_control_wready,
    output wire [ 1:0] s_axi_control_bresp,
    output wire        s_axi_control_bvalid,
    input  wire        s_axi_control_bready,
    input  wire [11:0] s_axi_control_araddr,
    input  wire        s_axi_control_arvalid,
    output wire        s_axi_control_arready,
    output wire [31:0] s_axi_control_rdata,
    output wire [ 1:0] s_axi_control_rresp,
    output wire        s_axi_control_rvalid,
    input  wire        s_axi_control_rready,
    output wire        interrupt,

    output wire [          0:0] m_axi_q_arid,
    output wire [         63:0] m_axi_q_araddr,
    output wire [          7:0] m_axi_q_arlen,
    output wire [          2:0] m_axi_q_arsize,
    output wire [          1:0] m_axi_q_arburst,
    output wire [          3:0] m_axi_q_arcache,
    output wire [          2:0] m_axi_q_arprot,
    output wire                 m_axi_q_arvalid,
    input  wire                 m_axi_q_arready,
    input  wire [          0:0] m_axi_q_rid,
    input  wire [BUS_WIDTH-1:0] m_axi_q_rdata,
    input  wire [          1:0] m_axi_q_rresp,
    input  wire                 m_axi_q_rlast,
    input  wire                 m_axi_q_rvalid,
    output wire                 m_axi_q_rready,

    output wire [          0:0] m_axi_k_arid,
    output wire [         63:0] m_axi_k_araddr,
    output wire [          7:0] m_axi_k_arlen,
    output wire [          2:0] m_axi_k_arsize,
    output wire [          1:0] m_axi_k_arburst,
    output wire [          3:0] m_axi_k_arcache,
    output wire [          2:0] m_axi_k_arprot,
    output wire                 m_axi_k_arvalid,
    input  wire                 m_axi_k_arready,
    input  wire [          0:0] m_axi_k_rid,
    input  wire [BUS_WIDTH-1:0] m_axi_k_rdata,
    input  wire [          1:0] m_axi_k_rresp,
    input  wire                 m_axi_k_rlast,
    input  wire                 m_axi_k_rvalid,
    output wire                 m_axi_k_rready,

    output wire [          0:0] m_axi_v_arid,
    output wire [         63:0] m_axi_v_araddr,
    output wire [          7:0] m_axi_v_arlen,
    output wire [          2:0] m_axi_v_arsize,
    output wire [          1:0] m_axi_v_arburst,
    output wire [          3:0] m_axi_v_arcache,
    output wire [          2:0] m_axi_v_arprot,
    output wire                 m_axi_v_arvalid,
    input  wire                 m_axi_v_arready,
    input  wire [          0:0] m_axi_v_rid,
    input  wire [BUS_WIDTH-1:0] m_axi_v_rdata,
    input  wire [          1:0] m_axi_v_rresp,
    input  wire                 m_axi_v_rlast,
    input  wire                 m_axi_v_rvalid,
    output wire                 m_axi_v_rready,

    output wire [          0:0] m_axi_jobs_arid,
    output wire [         63:0] m_axi_jobs_araddr,
    output wire [          7:0] m_axi_jobs_arlen,
    output wire [          2:0] m_axi_jobs_arsize,
    output wire [          1:0] m_axi_jobs_arburst,
    output wire [          3:0] m_axi_jobs_arcache,
    output wire [          2:0] m_axi_jobs_arprot,
    output wire                 m_axi_jobs_arvalid,
    input  wire                 m_axi_jobs_arready,
    input  wire [          0:0] m_axi_jobs_rid,
    input  wire [BUS_WIDTH-1:0] m_axi_jobs_rdata,
    input  wire [          1:0] m_axi_jobs_rresp,
    input  wire                 m_axi_jobs_rlast,
    input  wire                 m_axi_jobs_rvalid,
    output wire                 m_axi_jobs_rready,

    output wire [            0:0] m_axi_jobs_awid,
    output wire [           63:0] m_axi_jobs_awaddr,
    output wire [            7:0] m_axi_jobs_awlen,
    output wire [            2:0] m_axi_jobs_awsize,
    output wire [            1:0] m_axi_jobs_awburst,
    output wire [            3:0] m_axi_jobs_awcache,
    output wire [            2:0] m_axi_jobs_awprot,
    output wire                   m_axi_jobs_awvalid,
    input  wire                   m_axi_jobs_awready,
    output wire [  BUS_WIDTH-1:0] m_axi_jobs_wdata,
    output wire [BUS_WIDTH/8-1:0] m_axi_jobs_wstrb,
    output wire                   m_axi_jobs_wlast,
    output wire                   m_axi_jobs_wvalid,
    input  wire                   m_axi_jobs_wready,
    input  wire [            0:0] m_axi_jobs_bid,
    input  wire [            1:0] m_axi_jobs_bresp,
    input  wire                   m_axi_jobs_bvalid,
    output wire                   m_axi_jobs_bready,

    output wire [            0:0] m_axi_o_awid,
    output wire [           63:0] m_axi_o_awaddr,
    output wire [            7:0] m_axi_o_awlen,
    output wire [            2:0] m_axi_o_awsize,
    output wire [            1:0] m_axi_o_awburst,
    output wire [            3:0] m_axi_o_awcache,
    output wire [            2:0] m_axi_o_awprot,
    output wire                   m_axi_o_awvalid,
    input  wire                   m_axi_o_awready,
    output wire [  BUS_WIDTH-1:0] m_axi_o_wdata,
    output wire [BUS_WIDTH/8-1:0] m_axi_o_wstrb,
    output wire                   m_axi_o_wlast,
    output wire                   m_axi_o_wvalid,
    input  wire                   m_axi_o_wready,
    input  wire [            0:0] m_axi_o_bid,
    input  wire [            1:0] m_axi_o_bresp,
    input  wire                   m_axi_o_bvalid,
    output wire                   m_axi_o_bready
);

  localparam BLOCK = ROW_ARRAYS * ARRAY_ROWS;
  localparam BEAT_BYTES = BUS_WIDTH / 8;
  // Bytes of the blocks in memory; those that are read end with a check beat.
  localparam Q_BYTES = (3 + HEAD_DIM) * BLOCK + BEAT_BYTES;
  localparam K_BYTES = (1 + HEAD_DIM) * BLOCK + BEAT_BYTES;
  localparam V_BYTES = HEAD_DIM * BLOCK + BEAT_BYTES;
  localparam O_BYTES = 2 * HEAD_DIM * BLOCK;
  localparam COUNTER_WORDS = 42;
  localparam MAX_BURST = 64;
  localparam READ_FIFO_BEATS = 256;
  localparam WRITE_FIFO_BEATS = 64;
  localparam WRITES_OUTSTANDING = 16;
  localparam BYTE_BITS = $clog2(BEAT_BYTES);

  generate
    if (HEAD_DIM < 16 || HEAD_DIM > 256 || HEAD_DIM % BEAT_BYTES != 0) begin : g_head_dim
      illegal_parameter_HEAD_DIM stop ();
    end
    if (BLOCK < 8 || BLOCK > 128 || BLOCK % BEAT_BYTES != 0) begin : g_block
      illegal_parameter_ROW_ARRAYS_times_ARRAY_ROWS stop ();
    end
  endgenerate

  wire                        start;
  wire                        taken;
  wire                        ended;
  wire                        running;
  wire                 [31:0] mode;
  wire                 [31:0] kv_heads;
  wire                 [31:0] group;
  wire                 [31:0] tokens;
  wire                 [31:0] window;
  wire                 [31:0] gamma;
  wire                 [31:0] divergence_limit;
  wire                 [31:0] min_blocks;
  wire                 [31:0] max_blocks;
  wire                        cache;
  wire                 [31:0] hot_threshold;
  wire                 [63:0] q_address;
  wire                 [63:0] k_address;
  wire                 [63:0] v_address;
  wire                 [63:0] jobs_address;
  wire                 [63:0] o_address;
  wire                 [63:0] result_address;
  wire                 [31:0] job_stride;
  wire                 [31:0] watchdog;
  wire                 [31:0] version;
  wire                  [3:0] status;
  wire [COUNTER_WORDS*32-1:0] counters;

  wire                 [11:0] run_blocks;
  wire                  [7:0] run_padding;
  wire                  [3:0] run_group;
  wire                  [6:0] run_window;
  wire                 [16:0] run_gamma;
  wire                 [24:0] run_divergence_limit;
  wire                 [11:0] run_min_blocks;
  wire                 [11:0] run_max_blocks;
  wire                        run_is_dense;
  wire                        run_cache;
  wire                 [15:0] run_hot_threshold;
  wire                 [63:0] run_q;
  wire                 [63:0] run_k;
  wire                 [63:0] run_v;
  wire                 [63:0] run_o;
  wire                 [31:0] run_job_stride;
  wire                 [15:0] kv_head;
  wire                 [19:0] first_head;
  wire                 [63:0] list_address;
  wire                        index_start;
  wire                        indexing;
  wire                        attention_start;
  wire                        attending;
  wire                        phase_ends;
  wire                        kv_head_done;
  wire                        working;
  wire                        units_reset;
  wire                        cancel;
  wire                        report;
  wire                        report_launch;
  wire                 [63:0] report_address;
  wire                 [31:0] report_beats;
  wire        [BUS_WIDTH-1:0] report_tdata;
  wire                        report_tvalid;

  wire                        generator_job_valid;
  wire                        generator_job_ready;
  wire                  [1:0] generator_job_kind;
  wire                 [11:0] generator_job_block;
  wire                 [11:0] generator_job_query;
  wire                  [2:0] generator_job_head;
  wire                  [5:0] generator_job_slot;
  wire                        generator_job_opens_visit;
  wire                        generator_job_last;
  wire                        generator_visit_valid;
  wire                        generator_visit_ready;
  wire                 [11:0] generator_visit_block;
  wire                  [7:0] generator_visit_jobs;
  wire                        generator_visit_k_only;
  wire                        reader_job_valid;
  wire                        reader_job_ready;
  wire                  [1:0] reader_job_kind;
  wire                 [11:0] reader_job_block;
  wire                 [11:0] reader_job_query;
  wire                  [2:0] reader_job_head;
  wire                  [5:0] reader_job_slot;
  wire                        reader_job_opens_visit;
  wire                        reader_job_last;
  wire                        reader_visit_valid;
  wire                        reader_visit_ready;
  wire                 [11:0] reader_visit_block;
  wire                  [7:0] reader_visit_jobs;
  wire                        reader_visit_k_only;
  wire                        generator_busy;
  wire                        generator_done;
  wire                        generator_list_start;
  wire                 [31:0] generator_list_words;
  wire                        generator_list_valid;
  wire                        generator_list_ready;
  wire                 [31:0] generator_list_data;
  wire                        reader_busy;
  wire                        reader_done;
  wire                        bad_job;
  wire                        list_request_valid;
  wire                        list_request_ready;
  wire                 [31:0] list_request_offset;
  wire                 [31:0] list_request_beats;
  wire                        uses_write;
  wire                 [11:0] uses_block;
  wire                 [15:0] uses_value;
  wire                        cache_busy;
  wire                        engine_idle;
  wire                        row_valid;
  wire                 [11:0] row_block;
  wire                  [2:0] row_head;
  wire                  [6:0] row_index;
  wire                 [15:0] row_exponent;
  wire                 [23:0] row_far;
  wire                 [23:0] row_near;
  wire                        row_last;
  wire                 [31:0] cache_visits;
  wire                 [31:0] cache_hits;
  wire                 [31:0] cache_misses;
  wire                 [31:0] cache_hot;
  wire                 [31:0] cache_cold;
  wire                 [31:0] cache_bypasses;
  wire                 [31:0] cache_evictions;
  wire                 [31:0] cache_prefetches;
  wire                 [10:0] unused_live_lines;
  wire                        map_overflow;
  wire                  [7:0] unused_query_aware;
  wire                 [31:0] unused_index_tiles;
  wire                 [31:0] unused_pooled_scores;
  wire                 [31:0] unused_pairs;
  wire                 [31:0] engine_jobs;
  wire                 [31:0] engine_tiles;
  wire                 [31:0] engine_empty_rows;
  wire                 [63:0] engine_steps;

  wire                        q_request_valid;
  wire                        q_request_ready;
  wire                  [2:0] q_request_head;
  wire                 [11:0] q_request_query;
  wire                        q_blocks_busy;
  wire                        q_cmd_valid;
  wire                        q_cmd_ready;
  wire                 [63:0] q_cmd_address;
  wire                 [31:0] q_cmd_beats;
  wire        [BUS_WIDTH-1:0] checked_q_tdata;
  wire                        checked_q_tvalid;
  wire                        checked_q_tready;
  wire        [BUS_WIDTH-1:0] q_tdata;
  wire                        q_tvalid;
  wire                        q_tready;
  wire                        q_busy;
  wire                        k_request_valid;
  wire                        k_request_ready;
  wire                 [11:0] k_request_block;
  wire                        k_blocks_busy;
  wire                        k_cmd_valid;
  wire                        k_cmd_ready;
  wire                 [63:0] k_cmd_address;
  wire                 [31:0] k_cmd_beats;
  wire        [BUS_WIDTH-1:0] checked_k_tdata;
  wire                        checked_k_tvalid;
  wire                        checked_k_tready;
  wire        [BUS_WIDTH-1:0] k_tdata;
  wire                        k_tvalid;
  wire                        k_tready;
  wire                        k_busy;
  wire                        v_request_valid;
  wire                        v_request_ready;
  wire                 [11:0] v_request_block;
  wire                        v_blocks_busy;
  wire                        v_cmd_valid;
  wire                        v_cmd_ready;
  wire                 [63:0] v_cmd_address;
  wire                 [31:0] v_cmd_beats;
  wire        [BUS_WIDTH-1:0] checked_v_tdata;
  wire                        checked_v_tvalid;
  wire                        checked_v_tready;
  wire        [BUS_WIDTH-1:0] v_tdata;
  wire                        v_tvalid;
  wire                        v_tready;
  wire                        v_busy;
  wire                        o_request_valid;
  wire                        o_request_ready;
  wire                  [2:0] o_request_head;
  wire                 [11:0] o_request_query;
  wire                        o_blocks_busy;
  wire                        o_cmd_valid;
  wire                        o_cmd_ready;
  wire                 [63:0] o_cmd_address;
  wire                 [31:0] o_cmd_beats;
  wire        [BUS_WIDTH-1:0] o_tdata;
  wire                        o_tvalid;
  wire                        o_tready;
  wire                        o_busy;
  wire        [BUS_WIDTH-1:0] served_k_tdata;
  wire                        served_k_tvalid;
  wire                        served_k_tready;
  wire        [BUS_WIDTH-1:0] served_v_tdata;
  wire                        served_v_tvalid;
  wire                        served_v_tready;
  wire                        list_read_cmd_ready;
  wire                        list_read_busy;
  wire        [BUS_WIDTH-1:0] list_read_tdata;
  wire                        list_read_tvalid;
  wire                        list_read_tready;
  wire                        list_write_cmd_ready;
  wire                        list_write_busy;
  wire                        packer_busy;
  wire        [BUS_WIDTH-1:0] packed_tdata;
  wire                        packed_tvalid;
  wire                        packed_tready;
  wire                        o_write_cmd_ready;
  wire                 [31:0] q_checksum;
  wire                 [31:0] k_checksum;
  wire                 [31:0] v_checksum;
  wire                 [31:0] o_checksum;
  wire                 [31:0] jobs_read_checksum;
  wire                 [31:0] jobs_written_checksum;
  wire                        o_write_tready;

  wire                        unused_q_error;
  wire                 [31:0] unused_q_beats;
  wire                 [31:0] unused_q_bursts;
  wire                        unused_k_error;
  wire                 [31:0] unused_k_beats;
  wire                 [31:0] unused_k_bursts;
  wire                        unused_v_error;
  wire                 [31:0] unused_v_beats;
  wire                 [31:0] unused_v_bursts;
  wire                        unused_list_read_error;
  wire                 [31:0] unused_list_read_beats;
  wire                 [31:0] unused_list_read_bursts;
  wire                        unused_list_write_error;
  wire                 [31:0] unused_list_write_beats;
  wire                 [31:0] unused_list_write_bursts;
  wire                        unused_o_error;
  wire                 [31:0] unused_o_beats;
  wire                 [31:0] unused_o_bursts;

  // --- Control

  prefill_control #(
      .BLOCK        (BLOCK),
      .HEAD_DIM     (HEAD_DIM),
      .STRIPS       (STRIPS),
      .ROW_ARRAYS   (ROW_ARRAYS),
      .LUT_ARRAYS   (LUT_ARRAYS),
      .SLOTS        (SLOTS),
      .ARRAY_ROWS   (ARRAY_ROWS),
      .ARRAY_COLUMNS(ARRAY_COLUMNS),
      .BUS_WIDTH    (BUS_WIDTH),
      .MAX_GROUP    (MAX_GROUP),
      .KV_BUFFERS   (KV_BUFFERS),
      .CACHE_LINES  (CACHE_LINES),
      .MAX_BLOCKS   (MAX_BLOCKS),
      .MAP_ENTRIES  (MAP_ENTRIES)
  ) control (
      .clk                  (ap_clk),
      .rst_n                (ap_rst_n),
      .s_axi_control_awaddr (s_axi_control_awaddr),
      .s_axi_control_awvalid(s_axi_control_awvalid),
      .s_axi_control_awready(s_axi_control_awready),
      .s_axi_control_wdata  (s_axi_control_wdata),
      .s_axi_control_wstrb  (s_axi_control_wstrb),
      .s_axi_control_wvalid (s_axi_control_wvalid),
      .s_axi_control_wready (s_axi_control_wready),
      .s_axi_control_bresp  (s_axi_control_bresp),
      .s_axi_control_bvalid (s_axi_control_bvalid),
      .s_axi_control_bready (s_axi_control_bready),
      .s_axi_control_araddr (s_axi_control_araddr),
      .s_axi_control_arvalid(s_axi_control_arvalid),
      .s_axi_control_arready(s_axi_control_arready),
      .s_axi_control_rdata  (s_axi_control_rdata),
      .s_axi_control_rresp  (s_axi_control_rresp),
      .s_axi_control_rvalid (s_axi_control_rvalid),
      .s_axi_control_rready (s_axi_control_rready),
      .interrupt_request    (interrupt),
      .start                (start),
      .taken                (taken),
      .ended                (ended),
      .running              (running),
      .mode                 (mode),
      .kv_heads             (kv_heads),
      .group                (group),
      .tokens               (tokens),
      .window               (window),
      .gamma                (gamma),
      .divergence_limit     (divergence_limit),
      .min_blocks           (min_blocks),
      .max_blocks           (max_blocks),
      .cache                (cache),
      .hot_threshold        (hot_threshold),
      .q_address            (q_address),
      .k_address            (k_address),
      .v_address            (v_address),
      .jobs_address         (jobs_address),
      .o_address            (o_address),
      .result_address       (result_address),
      .job_stride           (job_stride),
      .watchdog             (watchdog),
      .version              (version),
      .status               (status),
      .counters             (counters)
  );

  prefill_sequencer #(
      .BLOCK        (BLOCK),
      .SLOTS        (SLOTS),
      .MAX_BLOCKS   (MAX_BLOCKS),
      .MAX_GROUP    (MAX_GROUP),
      .BUS_WIDTH    (BUS_WIDTH),
      .COUNTER_WORDS(COUNTER_WORDS)
  ) sequencer (
      .clk                 (ap_clk),
      .rst_n               (ap_rst_n),
      .start               (start),
      .taken               (taken),
      .ended               (ended),
      .running             (running),
      .mode                (mode),
      .kv_heads            (kv_heads),
      .group               (group),
      .tokens              (tokens),
      .window              (window),
      .gamma               (gamma),
      .divergence_limit    (divergence_limit),
      .min_blocks          (min_blocks),
      .max_blocks          (max_blocks),
      .cache               (cache),
      .hot_threshold       (hot_threshold),
      .q_address           (q_address),
      .k_address           (k_address),
      .v_address           (v_address),
      .jobs_address        (jobs_address),
      .o_address           (o_address),
      .result_address      (result_address),
      .job_stride          (job_stride),
      .watchdog            (watchdog),
      .version             (version),
      .status              (status),
      .counters            (counters),
      .run_blocks          (run_blocks),
      .run_padding         (run_padding),
      .run_group           (run_group),
      .run_window          (run_window),
      .run_gamma           (run_gamma),
      .run_divergence_limit(run_divergence_limit),
      .run_min_blocks      (run_min_blocks),
      .run_max_blocks      (run_max_blocks),
      .run_is_dense        (run_is_dense),
      .run_cache           (run_cache),
      .run_hot_threshold   (run_hot_threshold),
      .run_q               (run_q),
      .run_k               (run_k),
      .run_v               (run_v),
      .run_o               (run_o),
      .run_job_stride      (run_job_stride),
      .kv_head             (kv_head),
      .first_head          (first_head),
      .list_address        (list_address),
      .index_start         (index_start),
      .indexing            (indexing),
      .attention_start     (attention_start),
      .attending           (attending),
      .phase_ends          (phase_ends),
      .kv_head_done        (kv_head_done),
      .working             (working),
      .units_reset         (units_reset),
      .cancel              (cancel),
      .index_done          (generator_done),
      .map_overflow        (map_overflow),
      .list_is_too_long    (list_is_too_long),
      .reader_done         (reader_done),
      .bad_job             (bad_job || request_is_too_long),
      .units_idle          (units_idle),
      .movers_idle         (movers_idle),
      .read_fails          (read_failed),
      .write_fails         (write_failed),
      .report              (report),
      .report_launch       (report_launch),
      .report_address      (report_address),
      .report_beats        (report_beats),
      .report_tdata        (report_tdata),
      .report_tvalid       (report_tvalid),
      .report_tready       (o_write_tready),
      .report_busy         (o_busy)
  );

  prefill_counters #(
      .WORDS(COUNTER_WORDS)
  ) counting (
      .clk              (ap_clk),
      .rst_n            (ap_rst_n),
      .taken            (taken),
      .working          (working),
      .indexing         (indexing),
      .attending        (attending),
      .phase_ends       (phase_ends),
      .kv_head_done     (kv_head_done),
      .starves          (starves),
      .unit_jobs        (engine_jobs),
      .unit_tiles       (engine_tiles),
      .unit_steps       (engine_steps),
      .unit_empty_rows  (engine_empty_rows),
      .unit_visits      (cache_visits),
      .unit_hits        (cache_hits),
      .unit_misses      (cache_misses),
      .unit_hot         (cache_hot),
      .unit_cold        (cache_cold),
      .unit_bypasses    (cache_bypasses),
      .unit_evictions   (cache_evictions),
      .unit_prefetches  (cache_prefetches),
      .q_beat           (m_axi_q_rvalid && m_axi_q_rready),
      .k_beat           (m_axi_k_rvalid && m_axi_k_rready),
      .v_beat           (m_axi_v_rvalid && m_axi_v_rready),
      .o_beat           (o_beat_written),
      .jobs_beat_read   (m_axi_jobs_rvalid && m_axi_jobs_rready),
      .jobs_beat_written(jobs_beat_written),
      .burst            (burst),
      .q_checksum       (q_checksum),
      .k_checksum       (k_checksum),
      .v_checksum       (v_checksum),
      .o_checksum       (o_checksum),
      .jobs_read_checksum(jobs_read_checksum),
      .jobs_written_checksum(jobs_written_checksum),
      .counters         (counters)
  );

  // --- Units

  wire units_rst_n = ap_rst_n && !units_reset;
  wire clear_counts = index_start || attention_start;

  // The index generator asks for jobs and visits in its phase, the job reader in the other.
  wire job_valid = indexing ? generator_job_valid : reader_job_valid;
  wire job_ready;
  wire [1:0] job_kind = indexing ? generator_job_kind : reader_job_kind;
  wire [11:0] job_block = indexing ? generator_job_block : reader_job_block;
  wire [11:0] job_query = indexing ? generator_job_query : reader_job_query;
  wire [2:0] job_head = indexing ? generator_job_head : reader_job_head;
  wire [5:0] job_slot = indexing ? generator_job_slot : reader_job_slot;
  wire job_opens_visit = indexing ? generator_job_opens_visit : reader_job_opens_visit;
  wire job_last = indexing ? generator_job_last : reader_job_last;
  wire visit_valid = indexing ? generator_visit_valid : reader_visit_valid;
  wire visit_ready;
  wire [11:0] visit_block = indexing ? generator_visit_block : reader_visit_block;
  wire [7:0] visit_jobs = indexing ? generator_visit_jobs : reader_visit_jobs;
  wire visit_k_only = indexing ? generator_visit_k_only : reader_visit_k_only;

  assign generator_job_ready   = indexing && job_ready;
  assign generator_visit_ready = indexing && visit_ready;
  assign reader_job_ready      = attending && job_ready;
  assign reader_visit_ready    = attending && visit_ready;

  index_generator #(
      .BLOCK      (BLOCK),
      .HEAD_DIM   (HEAD_DIM),
      .MAX_BLOCKS (MAX_BLOCKS),
      .MAX_GROUP  (MAX_GROUP),
      .SLOTS      (SLOTS),
      .BUS_WIDTH  (BUS_WIDTH),
      .MAP_ENTRIES(MAP_ENTRIES)
  ) generator (
      .clk             (ap_clk),
      .rst_n           (units_rst_n),
      .start           (index_start),
      .busy            (generator_busy),
      .done            (generator_done),
      .mode_dense      (run_is_dense),
      .gamma           (run_gamma),
      .divergence_limit(run_divergence_limit),
      .min_blocks      (run_min_blocks),
      .max_blocks      (run_max_blocks),
      .blocks          (run_blocks),
      .padding         (run_padding),
      .group           (run_group),
      .window          (run_window),
      .job_valid       (generator_job_valid),
      .job_ready       (generator_job_ready),
      .job_kind        (generator_job_kind),
      .job_block       (generator_job_block),
      .job_query       (generator_job_query),
      .job_head        (generator_job_head),
      .job_slot        (generator_job_slot),
      .job_opens_visit (generator_job_opens_visit),
      .job_last        (generator_job_last),
      .visit_valid     (generator_visit_valid),
      .visit_ready     (generator_visit_ready),
      .visit_block     (generator_visit_block),
      .visit_jobs      (generator_visit_jobs),
      .visit_k_only    (generator_visit_k_only),
      .row_valid       (row_valid),
      .row_block       (row_block),
      .row_head        (row_head),
      .row_index       (row_index),
      .row_exponent    (row_exponent),
      .row_far         (row_far),
      .row_near        (row_near),
      .row_last        (row_last),
      .q_beat_valid    (indexing && q_tvalid && q_tready),
      .q_beat          (q_tdata),
      .k_beat_valid    (indexing && k_tvalid && k_tready),
      .k_beat          (k_tdata),
      .list_start      (generator_list_start),
      .list_words      (generator_list_words),
      .list_valid      (generator_list_valid),
      .list_ready      (generator_list_ready),
      .list_data       (generator_list_data),
      .map_overflow    (map_overflow),
      .query_aware     (unused_query_aware),
      .index_tiles     (unused_index_tiles),
      .pooled_scores   (unused_pooled_scores),
      .pairs           (unused_pairs)
  );

  job_reader #(
      .SLOTS     (SLOTS),
      .MAX_BLOCKS(MAX_BLOCKS),
      .BUS_WIDTH (BUS_WIDTH)
  ) reader (
      .clk                (ap_clk),
      .rst_n              (units_rst_n),
      .start              (attention_start),
      .busy               (reader_busy),
      .done               (reader_done),
      .bad_job            (bad_job),
      .blocks             (run_blocks),
      .group              (run_group),
      .window             (run_window),
      .list_request_valid (list_request_valid),
      .list_request_ready (list_request_ready),
      .list_request_offset(list_request_offset),
      .list_request_beats (list_request_beats),
      .list_valid         (list_read_tvalid),
      .list_ready         (list_read_tready),
      .list_data          (list_read_tdata),
      .uses_write         (uses_write),
      .uses_block         (uses_block),
      .uses_value         (uses_value),
      .job_valid          (reader_job_valid),
      .job_ready          (reader_job_ready),
      .job_kind           (reader_job_kind),
      .job_block          (reader_job_block),
      .job_query          (reader_job_query),
      .job_head           (reader_job_head),
      .job_slot           (reader_job_slot),
      .job_opens_visit    (reader_job_opens_visit),
      .job_last           (reader_job_last),
      .visit_valid        (reader_visit_valid),
      .visit_ready        (reader_visit_ready),
      .visit_block        (reader_visit_block),
      .visit_jobs         (reader_visit_jobs),
      .visit_k_only       (reader_visit_k_only)
  );

  kv_cache #(
      .BLOCK      (BLOCK),
      .HEAD_DIM   (HEAD_DIM),
      .CACHE_LINES(CACHE_LINES),
      .MAX_BLOCKS (MAX_BLOCKS),
      .BUS_WIDTH  (BUS_WIDTH)
  ) cache_unit (
      .clk             (ap_clk),
      .rst_n           (units_rst_n),
      .start           (attention_start),
      .cache_enable    (run_cache),
      .hot_threshold   (run_hot_threshold),
      .uses_write      (uses_write),
      .uses_block      (uses_block),
      .uses_value      (uses_value),
      .visit_valid     (visit_valid),
      .visit_ready     (visit_ready),
      .visit_block     (visit_block),
      .visit_jobs      (visit_jobs),
      .visit_k_only    (visit_k_only),
      .k_request_valid (k_request_valid),
      .k_request_ready (k_request_ready),
      .k_request_block (k_request_block),
      .v_request_valid (v_request_valid),
      .v_request_ready (v_request_ready),
      .v_request_block (v_request_block),
      .s_k_tdata       (k_tdata),
      .s_k_tvalid      (k_tvalid),
      .s_k_tready      (k_tready),
      .s_v_tdata       (v_tdata),
      .s_v_tvalid      (v_tvalid),
      .s_v_tready      (v_tready),
      .m_k_tdata       (served_k_tdata),
      .m_k_tvalid      (served_k_tvalid),
      .m_k_tready      (served_k_tready),
      .m_v_tdata       (served_v_tdata),
      .m_v_tvalid      (served_v_tvalid),
      .m_v_tready      (served_v_tready),
      .busy            (cache_busy),
      .live_lines      (unused_live_lines),
      .clear_counts    (clear_counts),
      .count_visits    (cache_visits),
      .count_hits      (cache_hits),
      .count_misses    (cache_misses),
      .count_hot       (cache_hot),
      .count_cold      (cache_cold),
      .count_bypasses  (cache_bypasses),
      .count_evictions (cache_evictions),
      .count_prefetches(cache_prefetches)
  );

  tile_engine #(
      .STRIPS       (STRIPS),
      .ROW_ARRAYS   (ROW_ARRAYS),
      .LUT_ARRAYS   (LUT_ARRAYS),
      .ARRAY_ROWS   (ARRAY_ROWS),
      .ARRAY_COLUMNS(ARRAY_COLUMNS),
      .HEAD_DIM     (HEAD_DIM),
      .SLOTS        (SLOTS),
      .KV_BUFFERS   (KV_BUFFERS),
      .BUS_WIDTH    (BUS_WIDTH)
  ) engine (
      .clk              (ap_clk),
      .rst_n            (units_rst_n),
      .blocks           (run_blocks),
      .padding          (run_padding),
      .s_job_valid      (job_valid),
      .s_job_ready      (job_ready),
      .s_job_kind       (job_kind),
      .s_job_block      (job_block),
      .s_job_query      (job_query),
      .s_job_head       (job_head),
      .s_job_slot       (job_slot),
      .s_job_opens_visit(job_opens_visit),
      .s_job_last       (job_last),
      .q_request_valid  (q_request_valid),
      .q_request_ready  (q_request_ready),
      .q_request_head   (q_request_head),
      .q_request_query  (q_request_query),
      .s_q_tvalid       (q_tvalid),
      .s_q_tready       (q_tready),
      .s_q_tdata        (q_tdata),
      .s_k_tvalid       (served_k_tvalid),
      .s_k_tready       (served_k_tready),
      .s_k_tdata        (served_k_tdata),
      .s_v_tvalid       (served_v_tvalid),
      .s_v_tready       (served_v_tready),
      .s_v_tdata        (served_v_tdata),
      .o_request_valid  (o_request_valid),
      .o_request_ready  (o_request_ready),
      .o_request_head   (o_request_head),
      .o_request_query  (o_request_query),
      .m_o_tvalid       (o_tvalid),
      .m_o_tready       (o_tready),
      .m_o_tdata        (o_tdata),
      .row_valid        (row_valid),
      .row_block        (row_block),
      .row_head         (row_head),
      .row_index        (row_index),
      .row_last         (row_last),
      .row_exponent     (row_exponent),
      .row_far          (row_far),
      .row_near         (row_near),
      .clear_counts     (clear_counts),
      .matrix_steps     (engine_steps),
      .jobs_done        (engine_jobs),
      .statistics_done  (engine_tiles),
      .empty_rows       (engine_empty_rows),
      .idle             (engine_idle)
  );

  // A cycle without a step of the matrix unit while blocks are on their way.
  reg [2:0] steps_before;
  wire starves = engine_steps[2:0] == steps_before && (q_busy || k_busy || v_busy);

  always @(posedge ap_clk) steps_before <= engine_steps[2:0];

  // --- Blocks to memory addresses

  block_address #(
      .BLOCK_BYTES(Q_BYTES),
      .BUS_WIDTH  (BUS_WIDTH)
  ) q_blocks (
      .clk             (ap_clk),
      .rst_n           (ap_rst_n),
      .flush           (cancel),
      .base            (run_q),
      .columns         ({1'b0, run_blocks} + 13'd1),
      .s_request_valid (q_request_valid),
      .s_request_ready (q_request_ready),
      .s_request_row   (first_head + {17'd0, q_request_head}),
      .s_request_column(q_request_query),
      .m_cmd_valid     (q_cmd_valid),
      .m_cmd_ready     (q_cmd_ready),
      .m_cmd_address   (q_cmd_address),
      .m_cmd_beats     (q_cmd_beats),
      .busy            (q_blocks_busy)
  );

  block_address #(
      .BLOCK_BYTES(K_BYTES),
      .BUS_WIDTH  (BUS_WIDTH)
  ) k_blocks (
      .clk             (ap_clk),
      .rst_n           (ap_rst_n),
      .flush           (cancel),
      .base            (run_k),
      .columns         ({1'b0, run_blocks}),
      .s_request_valid (k_request_valid),
      .s_request_ready (k_request_ready),
      .s_request_row   ({4'd0, kv_head}),
      .s_request_column(k_request_block),
      .m_cmd_valid     (k_cmd_valid),
      .m_cmd_ready     (k_cmd_ready),
      .m_cmd_address   (k_cmd_address),
      .m_cmd_beats     (k_cmd_beats),
      .busy            (k_blocks_busy)
  );

  block_address #(
      .BLOCK_BYTES(V_BYTES),
      .BUS_WIDTH  (BUS_WIDTH)
  ) v_blocks (
      .clk             (ap_clk),
      .rst_n           (ap_rst_n),
      .flush           (cancel),
      .base            (run_v),
      .columns         ({1'b0, run_blocks}),
      .s_request_valid (v_request_valid),
      .s_request_ready (v_request_ready),
      .s_request_row   ({4'd0, kv_head}),
      .s_request_column(v_request_block),
      .m_cmd_valid     (v_cmd_valid),
      .m_cmd_ready     (v_cmd_ready),
      .m_cmd_address   (v_cmd_address),
      .m_cmd_beats     (v_cmd_beats),
      .busy            (v_blocks_busy)
  );

  block_address #(
      .BLOCK_BYTES(O_BYTES),
      .BUS_WIDTH  (BUS_WIDTH)
  ) o_blocks (
      .clk             (ap_clk),
      .rst_n           (ap_rst_n),
      .flush           (cancel),
      .base            (run_o),
      .columns         ({1'b0, run_blocks}),
      .s_request_valid (o_request_valid),
      .s_request_ready (o_request_ready),
      .s_request_row   (first_head + {17'd0, o_request_head}),
      .s_request_column(o_request_query),
      .m_cmd_valid     (o_cmd_valid),
      .m_cmd_ready     (o_cmd_ready),
      .m_cmd_address   (o_cmd_address),
      .m_cmd_beats     (o_cmd_beats),
      .busy            (o_blocks_busy)
  );

  // --- Job lists

  // A list that has no room is not written, and what is beyond its room is not read.
  reg list_write_cmd_valid;
  reg [31:0] list_write_cmd_beats;
  reg list_is_too_long;
  wire [63:0] list_write_cmd_address = list_address;
  wire [32:0] list_read_end = {1'b0, list_request_offset} + {1'b0, list_request_beats << BYTE_BITS};
  wire request_fits = list_read_end <= {1'b0, run_job_stride};
  wire request_is_too_long = list_request_valid && !request_fits;
  wire list_read_cmd_valid = list_request_valid && request_fits && !cancel;
  wire [63:0] list_read_cmd_address = list_address + {32'd0, list_request_offset};
  wire [31:0] list_read_cmd_beats = list_request_beats;

  assign list_request_ready = list_read_cmd_ready && request_fits && !cancel;

  always @(posedge ap_clk) begin
    if (!units_rst_n) begin
      list_write_cmd_valid <= 1'b0;
      list_is_too_long     <= 1'b0;
    end else if (generator_list_start) begin
      list_write_cmd_valid <= generator_list_words <= {2'd0, run_job_stride[31:2]};
      list_is_too_long     <= generator_list_words > {2'd0, run_job_stride[31:2]};
    end else if (list_write_cmd_ready) begin
      list_write_cmd_valid <= 1'b0;
    end
    if (generator_list_start)
      list_write_cmd_beats <= generator_list_words >> (BYTE_BITS - 2);
  end

  word_packer #(
      .BUS_WIDTH(BUS_WIDTH)
  ) packer (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .flush        (cancel),
      .s_axis_tdata (generator_list_data),
      .s_axis_tvalid(generator_list_valid),
      .s_axis_tready(generator_list_ready),
      .m_axis_tdata (packed_tdata),
      .m_axis_tvalid(packed_tvalid),
      .m_axis_tready(packed_tready),
      .busy         (packer_busy)
  );

  // --- Memory

  // The write mover of o writes the result block when the outputs are written.
  wire o_write_cmd_valid = report ? report_launch : o_cmd_valid;
  wire [63:0] o_write_cmd_address = report ? report_address : o_cmd_address;
  wire [31:0] o_write_cmd_beats = report ? report_beats : o_cmd_beats;
  wire [BUS_WIDTH-1:0] o_write_tdata = report ? report_tdata : o_tdata;
  wire o_write_tvalid = report ? report_tvalid : o_tvalid;

  assign o_cmd_ready = !report && o_write_cmd_ready;
  assign o_tready    = !report && o_write_tready;

  axi_read_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (READ_FIFO_BEATS)
  ) q_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (q_cmd_valid),
      .s_cmd_ready  (q_cmd_ready),
      .s_cmd_address(q_cmd_address),
      .s_cmd_beats  (q_cmd_beats),
      .cancel       (cancel),
      .busy         (q_busy),
      .error        (unused_q_error),
      .beats        (unused_q_beats),
      .bursts       (unused_q_bursts),
      .m_axi_arid   (m_axi_q_arid),
      .m_axi_araddr (m_axi_q_araddr),
      .m_axi_arlen  (m_axi_q_arlen),
      .m_axi_arsize (m_axi_q_arsize),
      .m_axi_arburst(m_axi_q_arburst),
      .m_axi_arcache(m_axi_q_arcache),
      .m_axi_arprot (m_axi_q_arprot),
      .m_axi_arvalid(m_axi_q_arvalid),
      .m_axi_arready(m_axi_q_arready),
      .m_axi_rid    (m_axi_q_rid),
      .m_axi_rlast  (m_axi_q_rlast),
      .m_axi_rdata  (m_axi_q_rdata),
      .m_axi_rresp  (m_axi_q_rresp),
      .m_axi_rvalid (m_axi_q_rvalid),
      .m_axi_rready (m_axi_q_rready),
      .m_axis_tdata (checked_q_tdata),
      .m_axis_tvalid(checked_q_tvalid),
      .m_axis_tready(checked_q_tready)
  );

  axi_read_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (READ_FIFO_BEATS)
  ) k_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (k_cmd_valid),
      .s_cmd_ready  (k_cmd_ready),
      .s_cmd_address(k_cmd_address),
      .s_cmd_beats  (k_cmd_beats),
      .cancel       (cancel),
      .busy         (k_busy),
      .error        (unused_k_error),
      .beats        (unused_k_beats),
      .bursts       (unused_k_bursts),
      .m_axi_arid   (m_axi_k_arid),
      .m_axi_araddr (m_axi_k_araddr),
      .m_axi_arlen  (m_axi_k_arlen),
      .m_axi_arsize (m_axi_k_arsize),
      .m_axi_arburst(m_axi_k_arburst),
      .m_axi_arcache(m_axi_k_arcache),
      .m_axi_arprot (m_axi_k_arprot),
      .m_axi_arvalid(m_axi_k_arvalid),
      .m_axi_arready(m_axi_k_arready),
      .m_axi_rid    (m_axi_k_rid),
      .m_axi_rlast  (m_axi_k_rlast),
      .m_axi_rdata  (m_axi_k_rdata),
      .m_axi_rresp  (m_axi_k_rresp),
      .m_axi_rvalid (m_axi_k_rvalid),
      .m_axi_rready (m_axi_k_rready),
      .m_axis_tdata (checked_k_tdata),
      .m_axis_tvalid(checked_k_tvalid),
      .m_axis_tready(checked_k_tready)
  );

  axi_read_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (READ_FIFO_BEATS)
  ) v_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (v_cmd_valid),
      .s_cmd_ready  (v_cmd_ready),
      .s_cmd_address(v_cmd_address),
      .s_cmd_beats  (v_cmd_beats),
      .cancel       (cancel),
      .busy         (v_busy),
      .error        (unused_v_error),
      .beats        (unused_v_beats),
      .bursts       (unused_v_bursts),
      .m_axi_arid   (m_axi_v_arid),
      .m_axi_araddr (m_axi_v_araddr),
      .m_axi_arlen  (m_axi_v_arlen),
      .m_axi_arsize (m_axi_v_arsize),
      .m_axi_arburst(m_axi_v_arburst),
      .m_axi_arcache(m_axi_v_arcache),
      .m_axi_arprot (m_axi_v_arprot),
      .m_axi_arvalid(m_axi_v_arvalid),
      .m_axi_arready(m_axi_v_arready),
      .m_axi_rid    (m_axi_v_rid),
      .m_axi_rlast  (m_axi_v_rlast),
      .m_axi_rdata  (m_axi_v_rdata),
      .m_axi_rresp  (m_axi_v_rresp),
      .m_axi_rvalid (m_axi_v_rvalid),
      .m_axi_rready (m_axi_v_rready),
      .m_axis_tdata (checked_v_tdata),
      .m_axis_tvalid(checked_v_tvalid),
      .m_axis_tready(checked_v_tready)
  );

  axi_read_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (READ_FIFO_BEATS)
  ) list_read_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (list_read_cmd_valid),
      .s_cmd_ready  (list_read_cmd_ready),
      .s_cmd_address(list_read_cmd_address),
      .s_cmd_beats  (list_read_cmd_beats),
      .cancel       (cancel),
      .busy         (list_read_busy),
      .error        (unused_list_read_error),
      .beats        (unused_list_read_beats),
      .bursts       (unused_list_read_bursts),
      .m_axi_arid   (m_axi_jobs_arid),
      .m_axi_araddr (m_axi_jobs_araddr),
      .m_axi_arlen  (m_axi_jobs_arlen),
      .m_axi_arsize (m_axi_jobs_arsize),
      .m_axi_arburst(m_axi_jobs_arburst),
      .m_axi_arcache(m_axi_jobs_arcache),
      .m_axi_arprot (m_axi_jobs_arprot),
      .m_axi_arvalid(m_axi_jobs_arvalid),
      .m_axi_arready(m_axi_jobs_arready),
      .m_axi_rid    (m_axi_jobs_rid),
      .m_axi_rlast  (m_axi_jobs_rlast),
      .m_axi_rdata  (m_axi_jobs_rdata),
      .m_axi_rresp  (m_axi_jobs_rresp),
      .m_axi_rvalid (m_axi_jobs_rvalid),
      .m_axi_rready (m_axi_jobs_rready),
      .m_axis_tdata (list_read_tdata),
      .m_axis_tvalid(list_read_tvalid),
      .m_axis_tready(list_read_tready)
  );

  axi_write_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (WRITE_FIFO_BEATS),
      .OUTSTANDING  (WRITES_OUTSTANDING)
  ) list_write_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (list_write_cmd_valid),
      .s_cmd_ready  (list_write_cmd_ready),
      .s_cmd_address(list_write_cmd_address),
      .s_cmd_beats  (list_write_cmd_beats),
      .cancel       (cancel),
      .busy         (list_write_busy),
      .error        (unused_list_write_error),
      .beats        (unused_list_write_beats),
      .bursts       (unused_list_write_bursts),
      .s_axis_tdata (packed_tdata),
      .s_axis_tvalid(packed_tvalid),
      .s_axis_tready(packed_tready),
      .m_axi_awid   (m_axi_jobs_awid),
      .m_axi_awaddr (m_axi_jobs_awaddr),
      .m_axi_awlen  (m_axi_jobs_awlen),
      .m_axi_awsize (m_axi_jobs_awsize),
      .m_axi_awburst(m_axi_jobs_awburst),
      .m_axi_awcache(m_axi_jobs_awcache),
      .m_axi_awprot (m_axi_jobs_awprot),
      .m_axi_awvalid(m_axi_jobs_awvalid),
      .m_axi_awready(m_axi_jobs_awready),
      .m_axi_wdata  (m_axi_jobs_wdata),
      .m_axi_wstrb  (m_axi_jobs_wstrb),
      .m_axi_wlast  (m_axi_jobs_wlast),
      .m_axi_wvalid (m_axi_jobs_wvalid),
      .m_axi_wready (m_axi_jobs_wready),
      .m_axi_bid    (m_axi_jobs_bid),
      .m_axi_bresp  (m_axi_jobs_bresp),
      .m_axi_bvalid (m_axi_jobs_bvalid),
      .m_axi_bready (m_axi_jobs_bready)
  );

  axi_write_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (WRITE_FIFO_BEATS),
      .OUTSTANDING  (WRITES_OUTSTANDING)
  ) o_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (o_write_cmd_valid),
      .s_cmd_ready  (o_write_cmd_ready),
      .s_cmd_address(o_write_cmd_address),
      .s_cmd_beats  (o_write_cmd_beats),
      .cancel       (cancel),
      .busy         (o_busy),
      .error        (unused_o_error),
      .beats        (unused_o_beats),
      .bursts       (unused_o_bursts),
      .s_axis_tdata (o_write_tdata),
      .s_axis_tvalid(o_write_tvalid),
      .s_axis_tready(o_write_tready),
      .m_axi_awid   (m_axi_o_awid),
      .m_axi_awaddr (m_axi_o_awaddr),
      .m_axi_awlen  (m_axi_o_awlen),
      .m_axi_awsize (m_axi_o_awsize),
      .m_axi_awburst(m_axi_o_awburst),
      .m_axi_awcache(m_axi_o_awcache),
      .m_axi_awprot (m_axi_o_awprot),
      .m_axi_awvalid(m_axi_o_awvalid),
      .m_axi_awready(m_axi_o_awready),
      .m_axi_wdata  (m_axi_o_wdata),
      .m_axi_wstrb  (m_axi_o_wstrb),
      .m_axi_wlast  (m_axi_o_wlast),
      .m_axi_wvalid (m_axi_o_wvalid),
      .m_axi_wready (m_axi_o_wready),
      .m_axi_bid    (m_axi_o_bid),
      .m_axi_bresp  (m_axi_o_bresp),
      .m_axi_bvalid (m_axi_o_bvalid),
      .m_axi_bready (m_axi_o_bready)
  );

  // Check beats end here.
  block_check #(
      .BLOCK_BEATS(Q_BYTES / BEAT_BYTES - 1),
      .BUS_WIDTH  (BUS_WIDTH)
  ) q_strip (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .flush        (cancel),
      .s_axis_tdata (checked_q_tdata),
      .s_axis_tvalid(checked_q_tvalid),
      .s_axis_tready(checked_q_tready),
      .m_axis_tdata (q_tdata),
      .m_axis_tvalid(q_tvalid),
      .m_axis_tready(q_tready)
  );

  block_check #(
      .BLOCK_BEATS(K_BYTES / BEAT_BYTES - 1),
      .BUS_WIDTH  (BUS_WIDTH)
  ) k_strip (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .flush        (cancel),
      .s_axis_tdata (checked_k_tdata),
      .s_axis_tvalid(checked_k_tvalid),
      .s_axis_tready(checked_k_tready),
      .m_axis_tdata (k_tdata),
      .m_axis_tvalid(k_tvalid),
      .m_axis_tready(k_tready)
  );

  block_check #(
      .BLOCK_BEATS(V_BYTES / BEAT_BYTES - 1),
      .BUS_WIDTH  (BUS_WIDTH)
  ) v_strip (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .flush        (cancel),
      .s_axis_tdata (checked_v_tdata),
      .s_axis_tvalid(checked_v_tvalid),
      .s_axis_tready(checked_v_tready),
      .m_axis_tdata (v_tdata),
      .m_axis_tvalid(v_tvalid),
      .m_axis_tready(v_tready)
  );

  wire blocks_busy = q_blocks_busy || k_blocks_busy || v_blocks_busy || o_blocks_busy;
  wire units_idle = engine_idle && !cache_busy && !generator_busy && !reader_busy && !blocks_busy
                    && !packer_busy && !list_write_cmd_valid;
  wire movers_idle = !q_busy && !k_busy && !v_busy && !list_read_busy && !list_write_busy && !o_busy;

  // --- Events

  reg read_failed;
  reg write_failed;

  wire q_fails = m_axi_q_rvalid && m_axi_q_rready && m_axi_q_rresp != 2'b00;
  wire k_fails = m_axi_k_rvalid && m_axi_k_rready && m_axi_k_rresp != 2'b00;
  wire v_fails = m_axi_v_rvalid && m_axi_v_rready && m_axi_v_rresp != 2'b00;
  wire list_read_fails = m_axi_jobs_rvalid && m_axi_jobs_rready && m_axi_jobs_rresp != 2'b00;
  wire list_write_fails = m_axi_jobs_bvalid && m_axi_jobs_bready && m_axi_jobs_bresp != 2'b00;
  wire o_fails = m_axi_o_bvalid && m_axi_o_bready && m_axi_o_bresp != 2'b00;

  always @(posedge ap_clk) begin
    if (!ap_rst_n || taken) begin
      read_failed  <= 1'b0;
      write_failed <= 1'b0;
    end else begin
      if (q_fails || k_fails || v_fails || list_read_fails) read_failed <= 1'b1;
      if (list_write_fails || o_fails) write_failed <= 1'b1;
    end
  end

  // Beats that a cancelled mover sends only to complete a burst write no byte and are not counted.
  wire o_beat_written = m_axi_o_wvalid && m_axi_o_wready && m_axi_o_wstrb[0];
  wire jobs_beat_written = m_axi_jobs_wvalid && m_axi_jobs_wready && m_axi_jobs_wstrb[0];
  wire [5:0] burst = {
    m_axi_o_awvalid && m_axi_o_awready,
    m_axi_jobs_awvalid && m_axi_jobs_awready,
    m_axi_jobs_arvalid && m_axi_jobs_arready,
    m_axi_v_arvalid && m_axi_v_arready,
    m_axi_k_arvalid && m_axi_k_arready,
    m_axi_q_arvalid && m_axi_q_arready
  };

  // --- Checksums

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) q_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (m_axi_q_rvalid && m_axi_q_rready),
      .data    (m_axi_q_rdata),
      .checksum(q_checksum)
  );

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) k_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (m_axi_k_rvalid && m_axi_k_rready),
      .data    (m_axi_k_rdata),
      .checksum(k_checksum)
  );

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) v_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (m_axi_v_rvalid && m_axi_v_rready),
      .data    (m_axi_v_rdata),
      .checksum(v_checksum)
  );

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) o_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (o_beat_written && !report),
      .data    (m_axi_o_wdata),
      .checksum(o_checksum)
  );

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) jobs_read_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (m_axi_jobs_rvalid && m_axi_jobs_rready),
      .data    (m_axi_jobs_rdata),
      .checksum(jobs_read_checksum)
  );

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) jobs_written_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (jobs_beat_written),
      .data    (m_axi_jobs_wdata),
      .checksum(jobs_written_checksum)
  );

endmodule

`default_nettype wire
