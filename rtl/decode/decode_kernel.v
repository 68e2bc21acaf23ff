// SPDX-License-Identifier: Apache-2.0
//
// Decode kernel: the Gated DeltaNet decode core between memory and the host. Formats, commands,
// registers, result block and codes: docs/decode_engine.md.
//
// Protocol:   s_axi_control is AXI4-Lite with control protocol ap_ctrl_chain. m_axi_qk and m_axi_v
//             only read, m_axi_o only writes; AXI4 with INCR bursts of full beats that never cross
//             a 4 KiB page, one identifier, several requests out. interrupt is a level.
//             done is reported after the answer to the last write.
// Latency:    first ARVALID 6 cycles after the write of the start bit.
// Throughput: one beat a cycle on each memory port, if memory answers within 192 cycles.
// Limits:     one run at a time; start may be written again as soon as it reads 0.

`default_nettype none

module decode_kernel #(
    // The core refuses illegal values at elaboration.
    parameter integer HEAD_DIM    = 128,  // key and value dimension, multiple of 16 from 16 to 128
    parameter integer QK_HEADS    = 16,   // query/key heads, 1 to 64
    parameter integer GROUP_RATIO = 2,    // value heads per query/key head: 1, 2 or 4
    // Value heads computed at once, 1 to 16; divides QK_HEADS * GROUP_RATIO and is a multiple or a
    // divisor of GROUP_RATIO.
    parameter integer H_ITER      = 8,
    parameter integer CONTEXTS    = 1,    // resident states, 1 to 64
    parameter integer BUS_WIDTH   = 512,  // bits of a beat: 128, 256 or 512
    // Choices of the core that change no result (decode_core.v).
    parameter integer POST_COLUMNS = 2,   // columns finished a cycle and head: 1, 2 or 4
    parameter integer STATE_PITCH  = 27   // bits between stored state elements, 27 to 32
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

    output wire [          0:0] m_axi_qk_arid,
    output wire [         63:0] m_axi_qk_araddr,
    output wire [          7:0] m_axi_qk_arlen,
    output wire [          2:0] m_axi_qk_arsize,
    output wire [          1:0] m_axi_qk_arburst,
    output wire [          3:0] m_axi_qk_arcache,
    output wire [          2:0] m_axi_qk_arprot,
    output wire                 m_axi_qk_arvalid,
    input  wire                 m_axi_qk_arready,
    input  wire [          0:0] m_axi_qk_rid,
    input  wire [BUS_WIDTH-1:0] m_axi_qk_rdata,
    input  wire [          1:0] m_axi_qk_rresp,
    input  wire                 m_axi_qk_rlast,
    input  wire                 m_axi_qk_rvalid,
    output wire                 m_axi_qk_rready,

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

  localparam integer MAX_BURST = 64;
  localparam integer READ_FIFO_BEATS = 256;
  localparam integer WRITE_FIFO_BEATS = 64;
  localparam integer WRITES_OUTSTANDING = 16;

  wire                 start;
  wire                 taken;
  wire                 ended;
  wire                 running;
  wire [         31:0] command;
  wire [         31:0] context_index;
  wire [         31:0] tokens;
  wire                 bypass_norm;
  wire                 bypass_gates;
  wire [         63:0] qk_address;
  wire [         63:0] v_address;
  wire [         63:0] o_address;
  wire [         63:0] result_address;
  wire [         31:0] watchdog;
  wire [         31:0] version;
  wire [          3:0] status;
  wire [    16*32-1:0] counters;

  wire                 core_flush;
  wire                 core_valid;
  wire                 core_ready;
  wire [          1:0] core_opcode;
  wire [          7:0] core_context;
  wire [         15:0] core_tokens;
  wire                 core_bypass_norm;
  wire                 core_bypass_gates;
  wire                 core_done;
  wire                 core_bad_state;
  wire [         31:0] core_saturations;
  wire [         31:0] core_norm_overflows;
  wire [         31:0] core_starved_cycles;
  wire [         15:0] core_tokens_done;

  wire                 cancel;
  wire                 read_launch;
  wire [         63:0] qk_read_address;
  wire [         31:0] qk_read_beats;
  wire                 qk_busy;
  wire                 qk_error;
  wire [         31:0] qk_beats;
  wire [         31:0] qk_bursts;
  wire [         63:0] v_read_address;
  wire [         31:0] v_read_beats;
  wire                 v_busy;
  wire                 v_error;
  wire [         31:0] v_beats;
  wire [         31:0] v_bursts;
  wire                 write_launch;
  wire [         63:0] write_address;
  wire [         31:0] write_beats;
  wire                 o_busy;
  wire                 o_error;
  wire [         31:0] o_beats;
  wire [         31:0] o_bursts;
  wire [         31:0] qk_checksum;
  wire [         31:0] v_checksum;
  wire [         31:0] o_checksum;

  wire [BUS_WIDTH-1:0] qk_tdata;
  wire                 qk_tvalid;
  wire                 qk_tready;
  wire [BUS_WIDTH-1:0] v_tdata;
  wire                 v_tvalid;
  wire                 v_tready;
  wire [BUS_WIDTH-1:0] o_tdata;
  wire                 o_tvalid;
  wire                 report;
  wire [BUS_WIDTH-1:0] report_tdata;
  wire                 report_tvalid;
  wire [BUS_WIDTH-1:0] write_tdata = report ? report_tdata : o_tdata;
  wire                 write_tvalid = report ? report_tvalid : o_tvalid;
  wire                 write_tready;

  // The sequencer gives commands to idle movers only, and the movers count beats.
  wire unused_qk_cmd_ready;
  wire unused_v_cmd_ready;
  wire unused_o_cmd_ready;
  wire unused_o_tlast;

  decode_control #(
      .HEAD_DIM   (HEAD_DIM),
      .QK_HEADS   (QK_HEADS),
      .GROUP_RATIO(GROUP_RATIO),
      .H_ITER     (H_ITER),
      .CONTEXTS   (CONTEXTS),
      .BUS_WIDTH  (BUS_WIDTH)
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
      .command              (command),
      .context_index        (context_index),
      .tokens               (tokens),
      .bypass_norm          (bypass_norm),
      .bypass_gates         (bypass_gates),
      .qk_address           (qk_address),
      .v_address            (v_address),
      .o_address            (o_address),
      .result_address       (result_address),
      .watchdog             (watchdog),
      .version              (version),
      .status               (status),
      .counters             (counters)
  );

  decode_sequencer #(
      .HEAD_DIM   (HEAD_DIM),
      .QK_HEADS   (QK_HEADS),
      .GROUP_RATIO(GROUP_RATIO),
      .CONTEXTS   (CONTEXTS),
      .BUS_WIDTH  (BUS_WIDTH)
  ) sequencer (
      .clk                (ap_clk),
      .rst_n              (ap_rst_n),
      .start              (start),
      .taken              (taken),
      .ended              (ended),
      .running            (running),
      .command            (command),
      .context_index      (context_index),
      .tokens             (tokens),
      .bypass_norm        (bypass_norm),
      .bypass_gates       (bypass_gates),
      .qk_address         (qk_address),
      .v_address          (v_address),
      .o_address          (o_address),
      .result_address     (result_address),
      .watchdog           (watchdog),
      .version            (version),
      .status             (status),
      .counters           (counters),
      .core_flush         (core_flush),
      .core_valid         (core_valid),
      .core_ready         (core_ready),
      .core_opcode        (core_opcode),
      .core_context       (core_context),
      .core_tokens        (core_tokens),
      .core_bypass_norm   (core_bypass_norm),
      .core_bypass_gates  (core_bypass_gates),
      .core_done          (core_done),
      .core_bad_state     (core_bad_state),
      .core_saturations   (core_saturations),
      .core_norm_overflows(core_norm_overflows),
      .core_starved_cycles(core_starved_cycles),
      .core_tokens_done   (core_tokens_done),
      .core_output_waits  (o_tvalid && !write_tready),
      .cancel             (cancel),
      .read_launch        (read_launch),
      .qk_read_address    (qk_read_address),
      .qk_read_beats      (qk_read_beats),
      .qk_busy            (qk_busy),
      .qk_error           (qk_error),
      .qk_beats           (qk_beats),
      .qk_bursts          (qk_bursts),
      .v_read_address     (v_read_address),
      .v_read_beats       (v_read_beats),
      .v_busy             (v_busy),
      .v_error            (v_error),
      .v_beats            (v_beats),
      .v_bursts           (v_bursts),
      .write_launch       (write_launch),
      .write_address      (write_address),
      .write_beats        (write_beats),
      .o_busy             (o_busy),
      .o_error            (o_error),
      .o_beats            (o_beats),
      .o_bursts           (o_bursts),
      .qk_checksum        (qk_checksum),
      .v_checksum         (v_checksum),
      .o_checksum         (o_checksum),
      .report             (report),
      .report_tdata       (report_tdata),
      .report_tvalid      (report_tvalid),
      .report_tready      (write_tready)
  );

  axi_read_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (READ_FIFO_BEATS)
  ) qk_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (read_launch),
      .s_cmd_ready  (unused_qk_cmd_ready),
      .s_cmd_address(qk_read_address),
      .s_cmd_beats  (qk_read_beats),
      .cancel       (cancel),
      .busy         (qk_busy),
      .error        (qk_error),
      .beats        (qk_beats),
      .bursts       (qk_bursts),
      .m_axi_arid   (m_axi_qk_arid),
      .m_axi_araddr (m_axi_qk_araddr),
      .m_axi_arlen  (m_axi_qk_arlen),
      .m_axi_arsize (m_axi_qk_arsize),
      .m_axi_arburst(m_axi_qk_arburst),
      .m_axi_arcache(m_axi_qk_arcache),
      .m_axi_arprot (m_axi_qk_arprot),
      .m_axi_arvalid(m_axi_qk_arvalid),
      .m_axi_arready(m_axi_qk_arready),
      .m_axi_rid    (m_axi_qk_rid),
      .m_axi_rlast  (m_axi_qk_rlast),
      .m_axi_rdata  (m_axi_qk_rdata),
      .m_axi_rresp  (m_axi_qk_rresp),
      .m_axi_rvalid (m_axi_qk_rvalid),
      .m_axi_rready (m_axi_qk_rready),
      .m_axis_tdata (qk_tdata),
      .m_axis_tvalid(qk_tvalid),
      .m_axis_tready(qk_tready)
  );

  axi_read_mover #(
      .ADDRESS_WIDTH(64),
      .DATA_WIDTH   (BUS_WIDTH),
      .MAX_BURST    (MAX_BURST),
      .FIFO_BEATS   (READ_FIFO_BEATS)
  ) v_mover (
      .clk          (ap_clk),
      .rst_n        (ap_rst_n),
      .s_cmd_valid  (read_launch),
      .s_cmd_ready  (unused_v_cmd_ready),
      .s_cmd_address(v_read_address),
      .s_cmd_beats  (v_read_beats),
      .cancel       (cancel),
      .busy         (v_busy),
      .error        (v_error),
      .beats        (v_beats),
      .bursts       (v_bursts),
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
      .m_axis_tdata (v_tdata),
      .m_axis_tvalid(v_tvalid),
      .m_axis_tready(v_tready)
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
      .s_cmd_valid  (write_launch),
      .s_cmd_ready  (unused_o_cmd_ready),
      .s_cmd_address(write_address),
      .s_cmd_beats  (write_beats),
      .cancel       (cancel),
      .busy         (o_busy),
      .error        (o_error),
      .beats        (o_beats),
      .bursts       (o_bursts),
      .s_axis_tdata (write_tdata),
      .s_axis_tvalid(write_tvalid),
      .s_axis_tready(write_tready),
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

  // Beats that a cancelled mover sends only to complete a burst write no byte.
  wire o_beat_written = m_axi_o_wvalid && m_axi_o_wready && m_axi_o_wstrb[0];

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) qk_check (
      .clk     (ap_clk),
      .clear   (taken || !ap_rst_n),
      .valid   (m_axi_qk_rvalid && m_axi_qk_rready),
      .data    (m_axi_qk_rdata),
      .checksum(qk_checksum)
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

  decode_core #(
      .HEAD_DIM    (HEAD_DIM),
      .QK_HEADS    (QK_HEADS),
      .GROUP_RATIO (GROUP_RATIO),
      .H_ITER      (H_ITER),
      .CONTEXTS    (CONTEXTS),
      .BUS_WIDTH   (BUS_WIDTH),
      .POST_COLUMNS(POST_COLUMNS),
      .STATE_PITCH (STATE_PITCH)
  ) core (
      .clk               (ap_clk),
      .rst_n             (ap_rst_n),
      .flush             (core_flush),
      .s_cmd_valid       (core_valid),
      .s_cmd_ready       (core_ready),
      .s_cmd_opcode      (core_opcode),
      .s_cmd_context     (core_context),
      .s_cmd_tokens      (core_tokens),
      .s_cmd_bypass_norm (core_bypass_norm),
      .s_cmd_bypass_gates(core_bypass_gates),
      .s_axis_qk_tdata   (qk_tdata),
      .s_axis_qk_tvalid  (qk_tvalid),
      .s_axis_qk_tready  (qk_tready),
      .s_axis_v_tdata    (v_tdata),
      .s_axis_v_tvalid   (v_tvalid),
      .s_axis_v_tready   (v_tready),
      .m_axis_o_tdata    (o_tdata),
      .m_axis_o_tvalid   (o_tvalid),
      .m_axis_o_tready   (write_tready),
      .m_axis_o_tlast    (unused_o_tlast),
      .cmd_done          (core_done),
      .bad_state         (core_bad_state),
      .saturations       (core_saturations),
      .norm_overflows    (core_norm_overflows),
      .starved_cycles    (core_starved_cycles),
      .tokens_done       (core_tokens_done)
  );

endmodule

`default_nettype wire
