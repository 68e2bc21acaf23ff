// SPDX-License-Identifier: Apache-2.0
//
// Control port of the decode kernel: the generated register block, and around it the control
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

module decode_control #(
    // Parameters of the kernel, checked there; the host reads them.
    parameter integer HEAD_DIM    = 128,
    parameter integer QK_HEADS    = 16,
    parameter integer GROUP_RATIO = 2,
    parameter integer H_ITER      = 8,
    parameter integer CONTEXTS    = 1,
    parameter integer BUS_WIDTH   = 512
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

    output wire [31:0] command,
    output wire [31:0] context_index,
    output wire [31:0] tokens,
    output wire        bypass_norm,
    output wire        bypass_gates,
    output wire [63:0] qk_address,
    output wire [63:0] v_address,
    output wire [63:0] o_address,
    output wire [63:0] result_address,
    output wire [31:0] watchdog,

    output wire [     31:0] version,
    input  wire [      3:0] status,
    input  wire [16*32-1:0] counters  // words 3 to 18 of the result block, word 3 lowest
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

  decode_registers registers (
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

      .hwif_out_command_value     (command),
      .hwif_out_context__value    (context_index),
      .hwif_out_tokens_value      (tokens),
      .hwif_out_flags_bypass_norm (bypass_norm),
      .hwif_out_flags_bypass_gates(bypass_gates),
      .hwif_out_qk_low_value      (qk_address[31:0]),
      .hwif_out_qk_high_value     (qk_address[63:32]),
      .hwif_out_v_low_value       (v_address[31:0]),
      .hwif_out_v_high_value      (v_address[63:32]),
      .hwif_out_o_low_value       (o_address[31:0]),
      .hwif_out_o_high_value      (o_address[63:32]),
      .hwif_out_result_low_value  (result_address[31:0]),
      .hwif_out_result_high_value (result_address[63:32]),
      .hwif_out_watchdog_value    (watchdog),

      .hwif_in_status_code          (status),
      .hwif_out_version_minor       (version[15:0]),
      .hwif_out_version_major       (version[31:16]),
      .hwif_in_shape0_head_dim      (HEAD_DIM[7:0]),
      .hwif_in_shape0_qk_heads      (QK_HEADS[7:0]),
      .hwif_in_shape0_group_ratio   (GROUP_RATIO[7:0]),
      .hwif_in_shape0_h_iter        (H_ITER[7:0]),
      .hwif_in_shape1_contexts      (CONTEXTS[7:0]),
      .hwif_in_shape1_bus_width     (BUS_WIDTH[15:0]),
      .hwif_in_tokens_done_value    (counters[0*32+:32]),
      .hwif_in_cycles_low_value     (counters[1*32+:32]),
      .hwif_in_cycles_high_value    (counters[2*32+:32]),
      .hwif_in_saturations_value    (counters[3*32+:32]),
      .hwif_in_norm_overflows_value (counters[4*32+:32]),
      .hwif_in_starved_cycles_value (counters[5*32+:32]),
      .hwif_in_qk_beats_value       (counters[6*32+:32]),
      .hwif_in_v_beats_value        (counters[7*32+:32]),
      .hwif_in_o_beats_value        (counters[8*32+:32]),
      .hwif_in_bursts_value         (counters[9*32+:32]),
      .hwif_in_output_stalls_value  (counters[10*32+:32]),
      .hwif_in_contexts_lost_value  (counters[11*32+:32]),
      .hwif_in_runs_value           (counters[12*32+:32]),
      .hwif_in_qk_checksum_value    (counters[13*32+:32]),
      .hwif_in_v_checksum_value     (counters[14*32+:32]),
      .hwif_in_o_checksum_value     (counters[15*32+:32])
  );

endmodule

`default_nettype wire
