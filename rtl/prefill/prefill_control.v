// SPDX-License-Identifier: Apache-2.0
//
// Control port of the prefill kernel: the generated register block, and around it the control
// protocol ap_ctrl_chain and the interrupt.
//
// Protocol:   s_axi_control is AXI4-Lite. start is high while a run is asked for and may begin, that
//             is, no finished run waits to be acknowledged. The sequencer answers with taken for
//             one cycle, which clears the start bit, and ends the run with ended for one cycle,
//             which sets done until the host writes continue. The arguments are stable only in
//             the cycle of taken: the host may then write those of the next run.
//             interrupt_request is a level: an enabled event that was not acknowledged.
// Latency:    start 2 cycles after the later of AW and W.
// Throughput: one access in 2 cycles.
// Limits:     auto-restart is not supported.

`default_nettype none

module prefill_control #(
    // Parameters of the kernel, checked there; the host reads them.
    parameter BLOCK         = 128,
    parameter HEAD_DIM      = 128,
    parameter STRIPS        = 3,
    parameter ROW_ARRAYS    = 4,
    parameter LUT_ARRAYS    = 2,
    parameter SLOTS         = 16,
    parameter ARRAY_ROWS    = 32,
    parameter ARRAY_COLUMNS = 32,
    parameter BUS_WIDTH     = 512,
    parameter MAX_GROUP     = 8,
    parameter KV_BUFFERS    = 4,
    parameter CACHE_LINES   = 256,
    parameter MAX_BLOCKS    = 256,
    parameter MAP_ENTRIES   = 32896
) (
    input wire clk,
    input wire rst_n,

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
    output reg         interrupt_request,

    output wire start,
    input  wire taken,
    input  wire ended,
    input  wire running,

    output wire [31:0] mode,
    output wire [31:0] kv_heads,
    output wire [31:0] group,
    output wire [31:0] tokens,
    output wire [31:0] window,
    output wire [31:0] gamma,
    output wire [31:0] divergence_limit,
    output wire [31:0] min_blocks,
    output wire [31:0] max_blocks,
    output wire        cache,
    output wire [31:0] hot_threshold,
    output wire [63:0] q_address,
    output wire [63:0] k_address,
    output wire [63:0] v_address,
    output wire [63:0] jobs_address,
    output wire [63:0] o_address,
    output wire [63:0] result_address,
    output wire [31:0] job_stride,
    output wire [31:0] watchdog,

    output wire [     31:0] version,
    input  wire [      3:0] status,
    input  wire [42*32-1:0] counters  // words 3 and on of the result block, word 3 lowest
);

  reg  done;

  wire ap_start;
  wire ap_continue;
  wire interrupt_enable;
  wire enable_done;
  wire enable_ready;
  wire event_done;
  wire event_ready;

  assign start = ap_start && !done;

  always @(posedge clk) begin
    if (!rst_n) begin
      done              <= 1'b0;
      interrupt_request <= 1'b0;
    end else begin
      if (ended) done <= 1'b1;
      else if (ap_continue) done <= 1'b0;
      interrupt_request <= interrupt_enable && (event_done || event_ready);
    end
  end

  prefill_registers registers (
      .clk  (clk),
      .rst_n(rst_n),

      .s_axil_awready(s_axi_control_awready),
      .s_axil_awvalid(s_axi_control_awvalid),
      .s_axil_awaddr (s_axi_control_awaddr),
      .s_axil_awprot (3'b000),
      .s_axil_wready (s_axi_control_wready),
      .s_axil_wvalid (s_axi_control_wvalid),
      .s_axil_wdata  (s_axi_control_wdata),
      .s_axil_wstrb  (s_axi_control_wstrb),
      .s_axil_bready (s_axi_control_bready),
      .s_axil_bvalid (s_axi_control_bvalid),
      .s_axil_bresp  (s_axi_control_bresp),
      .s_axil_arready(s_axi_control_arready),
      .s_axil_arvalid(s_axi_control_arvalid),
      .s_axil_araddr (s_axi_control_araddr),
      .s_axil_arprot (3'b000),
      .s_axil_rready (s_axi_control_rready),
      .s_axil_rvalid (s_axi_control_rvalid),
      .s_axil_rdata  (s_axi_control_rdata),
      .s_axil_rresp  (s_axi_control_rresp),

      .hwif_out_ctrl_ap_start     (ap_start),
      .hwif_in_ctrl_ap_start_hwclr(taken),
      .hwif_in_ctrl_ap_done       (done),
      .hwif_in_ctrl_ap_idle       (!running && !ap_start),
      .hwif_in_ctrl_ap_ready_hwset(taken),
      .hwif_out_ctrl_ap_continue  (ap_continue),
      .hwif_out_gie_enable        (interrupt_enable),
      .hwif_out_ier_ap_done       (enable_done),
      .hwif_out_ier_ap_ready      (enable_ready),
      .hwif_out_isr_ap_done       (event_done),
      .hwif_in_isr_ap_done_hwset  (ended && enable_done),
      .hwif_out_isr_ap_ready      (event_ready),
      .hwif_in_isr_ap_ready_hwset (taken && enable_ready),

      .hwif_out_mode_value            (mode),
      .hwif_out_kv_heads_value        (kv_heads),
      .hwif_out_group_value           (group),
      .hwif_out_tokens_value          (tokens),
      .hwif_out_window_value          (window),
      .hwif_out_gamma_value           (gamma),
      .hwif_out_divergence_limit_value(divergence_limit),
      .hwif_out_min_blocks_value      (min_blocks),
      .hwif_out_max_blocks_value      (max_blocks),
      .hwif_out_flags_cache           (cache),
      .hwif_out_hot_threshold_value   (hot_threshold),
      .hwif_out_q_low_value           (q_address[31:0]),
      .hwif_out_q_high_value          (q_address[63:32]),
      .hwif_out_k_low_value           (k_address[31:0]),
      .hwif_out_k_high_value          (k_address[63:32]),
      .hwif_out_v_low_value           (v_address[31:0]),
      .hwif_out_v_high_value          (v_address[63:32]),
      .hwif_out_jobs_low_value        (jobs_address[31:0]),
      .hwif_out_jobs_high_value       (jobs_address[63:32]),
      .hwif_out_o_low_value           (o_address[31:0]),
      .hwif_out_o_high_value          (o_address[63:32]),
      .hwif_out_result_low_value      (result_address[31:0]),
      .hwif_out_result_high_value     (result_address[63:32]),
      .hwif_out_job_stride_value      (job_stride),
      .hwif_out_watchdog_value        (watchdog),

      .hwif_in_status_code                (status),
      .hwif_out_version_minor             (version[15:0]),
      .hwif_out_version_major             (version[31:16]),
      .hwif_in_shape0_block               (BLOCK[15:0]),
      .hwif_in_shape0_head_dim            (HEAD_DIM[15:0]),
      .hwif_in_shape1_strips              (STRIPS[7:0]),
      .hwif_in_shape1_row_arrays          (ROW_ARRAYS[7:0]),
      .hwif_in_shape1_lut_arrays          (LUT_ARRAYS[7:0]),
      .hwif_in_shape1_slots               (SLOTS[7:0]),
      .hwif_in_shape2_array_rows          (ARRAY_ROWS[15:0]),
      .hwif_in_shape2_array_columns       (ARRAY_COLUMNS[15:0]),
      .hwif_in_shape3_bus_width           (BUS_WIDTH[15:0]),
      .hwif_in_shape3_max_group           (MAX_GROUP[7:0]),
      .hwif_in_shape3_kv_buffers          (KV_BUFFERS[7:0]),
      .hwif_in_shape4_cache_lines         (CACHE_LINES[15:0]),
      .hwif_in_shape4_max_blocks          (MAX_BLOCKS[15:0]),
      .hwif_in_shape5_map_entries         (MAP_ENTRIES),
      .hwif_in_cycles_low_value           (counters[0*32+:32]),
      .hwif_in_cycles_high_value          (counters[1*32+:32]),
      .hwif_in_index_cycles_low_value     (counters[2*32+:32]),
      .hwif_in_index_cycles_high_value    (counters[3*32+:32]),
      .hwif_in_attention_cycles_low_value (counters[4*32+:32]),
      .hwif_in_attention_cycles_high_value(counters[5*32+:32]),
      .hwif_in_jobs_done_value            (counters[6*32+:32]),
      .hwif_in_index_tiles_value          (counters[7*32+:32]),
      .hwif_in_attention_steps_low_value  (counters[8*32+:32]),
      .hwif_in_attention_steps_high_value (counters[9*32+:32]),
      .hwif_in_index_steps_low_value      (counters[10*32+:32]),
      .hwif_in_index_steps_high_value     (counters[11*32+:32]),
      .hwif_in_cache_visits_value         (counters[12*32+:32]),
      .hwif_in_cache_hits_value           (counters[13*32+:32]),
      .hwif_in_cache_misses_value         (counters[14*32+:32]),
      .hwif_in_cache_hot_value            (counters[15*32+:32]),
      .hwif_in_cache_cold_value           (counters[16*32+:32]),
      .hwif_in_cache_bypasses_value       (counters[17*32+:32]),
      .hwif_in_cache_evictions_value      (counters[18*32+:32]),
      .hwif_in_cache_prefetches_value     (counters[19*32+:32]),
      .hwif_in_q_beats_low_value          (counters[20*32+:32]),
      .hwif_in_q_beats_high_value         (counters[21*32+:32]),
      .hwif_in_k_beats_low_value          (counters[22*32+:32]),
      .hwif_in_k_beats_high_value         (counters[23*32+:32]),
      .hwif_in_v_beats_low_value          (counters[24*32+:32]),
      .hwif_in_v_beats_high_value         (counters[25*32+:32]),
      .hwif_in_o_beats_low_value          (counters[26*32+:32]),
      .hwif_in_o_beats_high_value         (counters[27*32+:32]),
      .hwif_in_jobs_beats_read_value      (counters[28*32+:32]),
      .hwif_in_jobs_beats_written_value   (counters[29*32+:32]),
      .hwif_in_bursts_value               (counters[30*32+:32]),
      .hwif_in_starved_cycles_low_value   (counters[31*32+:32]),
      .hwif_in_starved_cycles_high_value  (counters[32*32+:32]),
      .hwif_in_empty_rows_value           (counters[33*32+:32]),
      .hwif_in_kv_heads_done_value        (counters[34*32+:32]),
      .hwif_in_runs_value                 (counters[35*32+:32]),
      .hwif_in_q_checksum_value           (counters[36*32+:32]),
      .hwif_in_k_checksum_value           (counters[37*32+:32]),
      .hwif_in_v_checksum_value           (counters[38*32+:32]),
      .hwif_in_o_checksum_value           (counters[39*32+:32]),
      .hwif_in_jobs_read_checksum_value   (counters[40*32+:32]),
      .hwif_in_jobs_written_checksum_value(counters[41*32+:32])
  );

endmodule

`default_nettype wire
