// SPDX-License-Identifier: Apache-2.0
//
// Reads contiguous ranges of memory through an AXI4 master and gives them out as a stream.
//
// Protocol:   A command is the address of the first beat, a multiple of DATA_WIDTH / 8, and a
//             number of beats; none is a command too and touches no memory. The next command is
//             taken as soon as the last burst of the one before is asked for; the stream is that
//             of all of them, in their order. busy is high from the cycle after a command was taken
//             until the last beat was taken from m_axis.
//             INCR bursts of at most MAX_BURST beats that never cross a 4 KiB page. A burst is
//             asked for only when the buffer has room for all of it, so RREADY is always high.
//             cancel stops all commands: requests that are out are waited for, their data dropped,
//             m_axis falls silent at once, then busy falls. No command is taken while cancel is high.
//             error (an answer that is not OKAY; its data is passed on), beats (arrived) and
//             bursts (asked for) count from a command that is taken while busy is low, over those
//             that are taken while it is high.
// Latency:    ARVALID 2 cycles after the command; m_axis 2 cycles after R.
// Throughput: 1 beat a cycle when the memory answers within FIFO_BEATS - MAX_BURST cycles, also over
//             commands that follow each other, if none is shorter than 2 beats; 1 command in 2 cycles.
// Limits:     answers come in order, as all requests have one identifier.

`default_nettype none

module axi_read_mover #(
    parameter integer ADDRESS_WIDTH = 64,   // bits, 32 to 64
    parameter integer DATA_WIDTH    = 512,  // bits of a beat, a power of two from 32 to 1024
    parameter integer MAX_BURST     = 64,   // beats, 1 to 256
    parameter integer FIFO_BEATS    = 256   // beats, a power of two from MAX_BURST to 65536
) (
    input wire clk,
    input wire rst_n,

    input  wire                     s_cmd_valid,
    output wire                     s_cmd_ready,
    input  wire [ADDRESS_WIDTH-1:0] s_cmd_address,
    input  wire [             31:0] s_cmd_beats,
    input  wire                     cancel,
    output wire                     busy,
    output reg                      error,
    output reg  [             31:0] beats,
    output reg  [             31:0] bursts,

    output wire [              0:0] m_axi_arid,
    output reg  [ADDRESS_WIDTH-1:0] m_axi_araddr,
    output reg  [              7:0] m_axi_arlen,
    output wire [              2:0] m_axi_arsize,
    output wire [              1:0] m_axi_arburst,
    output wire [              3:0] m_axi_arcache,
    output wire [              2:0] m_axi_arprot,
    output reg                      m_axi_arvalid,
    input  wire                     m_axi_arready,
    // Beats are counted and come in order: neither the identifier nor the end of a burst is needed.
    // verilator lint_off UNUSEDSIGNAL
    input  wire [              0:0] m_axi_rid,
    input  wire                     m_axi_rlast,
    // verilator lint_on UNUSEDSIGNAL
    input  wire [   DATA_WIDTH-1:0] m_axi_rdata,
    input  wire [              1:0] m_axi_rresp,
    input  wire                     m_axi_rvalid,
    output wire                     m_axi_rready,

    output wire [DATA_WIDTH-1:0] m_axis_tdata,
    output wire                  m_axis_tvalid,
    input  wire                  m_axis_tready
);

  generate
    if (FIFO_BEATS < MAX_BURST || FIFO_BEATS < 2) begin : g_fifo_beats_is_illegal
      axi_read_mover_needs_FIFO_BEATS_of_MAX_BURST_or_more illegal ();
    end
  endgenerate

  localparam integer COUNT_BITS = $clog2(FIFO_BEATS) + 1;
  localparam [COUNT_BITS-1:0] ONE = 1;
  localparam [COUNT_BITS-1:0] NONE = 0;
  localparam [COUNT_BITS-1:0] ALL = FIFO_BEATS[COUNT_BITS-1:0];
  localparam integer BYTE_BITS = $clog2(DATA_WIDTH / 8);

  wire                     pending;
  wire [ADDRESS_WIDTH-1:0] burst_address;
  wire [              7:0] burst_length;

  reg                      cancelling;
  reg  [   COUNT_BITS-1:0] free;  // beats of the buffer that nothing was asked for
  reg  [   COUNT_BITS-1:0] awaited;  // beats asked for that did not arrive yet

  wire [             17:0] room = {{18 - COUNT_BITS{1'b0}}, free};
  wire [             17:0] need = {10'b0, burst_length} + 18'd1;
  wire                     stopping = cancel || cancelling;
  wire                     take = s_cmd_valid && s_cmd_ready;
  wire                     arrive = m_axi_rvalid && m_axi_rready;
  wire                     leave = m_axis_tvalid && m_axis_tready;
  wire                     issue = pending && !stopping && room >= need
                                   && (m_axi_arready || !m_axi_arvalid);
  wire [   COUNT_BITS-1:0] asked = issue ? need[COUNT_BITS-1:0] : NONE;

  assign busy          = pending || cancelling || free != ALL;
  assign s_cmd_ready   = !pending && !stopping;

  assign m_axi_arid    = 1'b0;
  assign m_axi_arsize  = BYTE_BITS[2:0];
  assign m_axi_arburst = 2'b01;  // INCR
  assign m_axi_arcache = 4'b0011;  // normal memory, may be merged and buffered
  assign m_axi_arprot  = 3'b000;
  assign m_axi_rready  = 1'b1;

  axi_burst_planner #(
      .ADDRESS_WIDTH(ADDRESS_WIDTH),
      .DATA_WIDTH   (DATA_WIDTH),
      .MAX_BURST    (MAX_BURST)
  ) planner (
      .clk         (clk),
      .rst_n       (rst_n),
      .load        (take),
      .load_address(s_cmd_address),
      .load_beats  (s_cmd_beats),
      .stop        (stopping),
      .pending     (pending),
      .address     (burst_address),
      .length      (burst_length),
      .advance     (issue)
  );

  always @(posedge clk) begin
    if (!rst_n) begin
      m_axi_arvalid <= 1'b0;
      cancelling      <= 1'b0;
      free          <= ALL;
      awaited       <= NONE;
      error         <= 1'b0;
      beats         <= 32'd0;
      bursts        <= 32'd0;
    end else begin
      if (issue) m_axi_arvalid <= 1'b1;
      else if (m_axi_arready) m_axi_arvalid <= 1'b0;

      awaited <= awaited + asked - (arrive ? ONE : NONE);
      if (stopping) free <= ALL;
      else free <= free - asked + (leave ? ONE : NONE);

      cancelling <= stopping && awaited != NONE;

      if (take && !busy) begin
        error  <= 1'b0;
        beats  <= 32'd0;
        bursts <= 32'd0;
      end else begin
        if (arrive) beats <= beats + 32'd1;
        if (arrive && m_axi_rresp != 2'b00) error <= 1'b1;
        if (issue) bursts <= bursts + 32'd1;
      end
    end
  end

  always @(posedge clk) begin
    if (issue) begin
      m_axi_araddr <= burst_address;
      m_axi_arlen  <= burst_length;
    end
  end

  wire fifo_valid;
  wire unused_fifo_ready;  // there is room for every beat that was asked for

  stream_fifo #(
      .WIDTH(DATA_WIDTH),
      .DEPTH(FIFO_BEATS)
  ) fifo (
      .clk          (clk),
      .rst_n        (rst_n),
      .flush        (stopping),
      .s_axis_tdata (m_axi_rdata),
      .s_axis_tvalid(m_axi_rvalid),
      .s_axis_tready(unused_fifo_ready),
      .m_axis_tdata (m_axis_tdata),
      .m_axis_tvalid(fifo_valid),
      .m_axis_tready(m_axis_tready)
  );

  assign m_axis_tvalid = fifo_valid && !stopping;

endmodule

`default_nettype wire
