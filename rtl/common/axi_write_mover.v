// SPDX-License-Identifier: Apache-2.0
//
// Writes a stream to contiguous ranges of memory through an AXI4 master.
//
// Protocol:   A command is the address of the first beat, a multiple of DATA_WIDTH / 8, and a
//             number of beats; none is a command too and touches no memory. The next command is
//             taken as soon as the last burst of the one before is asked for. busy is high from the
//             cycle after a command was taken until the last write was answered.
//             INCR bursts of at most MAX_BURST beats that never cross a 4 KiB page. AW and W do
//             not wait for each other. s_axis is taken ahead of a command as far as the buffer
//             has room; a command takes exactly its number of beats.
//             cancel stops all commands: bursts that are out are completed with beats that write no
//             byte, the buffer is emptied, then busy falls. No command is taken while cancel is high.
//             error (an answer that is not OKAY), beats (taken from the stream) and bursts (asked
//             for) count from a command that is taken while busy is low, over those that are taken
//             while it is high.
// Latency:    AWVALID 2 cycles after the command; WVALID 3 cycles after s_axis.
// Throughput: 1 beat a cycle when the memory answers within MAX_BURST * (OUTSTANDING - 1) cycles, also
//             over commands that follow each other, if none is shorter than 2 beats and bursts are
//             full; 1 command in 2 cycles.
// Limits:     answers may come in any order, as they are only counted.

`default_nettype none

module axi_write_mover #(
    parameter integer ADDRESS_WIDTH = 64,   // bits, 32 to 64
    parameter integer DATA_WIDTH    = 512,  // bits of a beat, a power of two from 32 to 1024
    parameter integer MAX_BURST     = 64,   // beats, 1 to 256
    parameter integer FIFO_BEATS    = 64,   // beats, a power of two from 2 to 65536
    parameter integer OUTSTANDING   = 16    // bursts without an answer, a power of two from 2 to 256
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

    input  wire [DATA_WIDTH-1:0] s_axis_tdata,
    input  wire                  s_axis_tvalid,
    output wire                  s_axis_tready,

    output wire [               0:0] m_axi_awid,
    output reg  [ ADDRESS_WIDTH-1:0] m_axi_awaddr,
    output reg  [               7:0] m_axi_awlen,
    output wire [               2:0] m_axi_awsize,
    output wire [               1:0] m_axi_awburst,
    output wire [               3:0] m_axi_awcache,
    output wire [               2:0] m_axi_awprot,
    output reg                       m_axi_awvalid,
    input  wire                      m_axi_awready,
    output reg  [    DATA_WIDTH-1:0] m_axi_wdata,
    output reg  [  DATA_WIDTH/8-1:0] m_axi_wstrb,
    output reg                       m_axi_wlast,
    output reg                       m_axi_wvalid,
    input  wire                      m_axi_wready,
    // Answers are counted: the identifier is not needed.
    // verilator lint_off UNUSEDSIGNAL
    input  wire [               0:0] m_axi_bid,
    // verilator lint_on UNUSEDSIGNAL
    input  wire [               1:0] m_axi_bresp,
    input  wire                      m_axi_bvalid,
    output wire                      m_axi_bready
);

  generate
    if (OUTSTANDING < 2 || OUTSTANDING > 256 || (OUTSTANDING & (OUTSTANDING - 1)) != 0)
    begin : g_outstanding_is_illegal
      axi_write_mover_needs_OUTSTANDING_that_is_a_power_of_two_from_2_to_256 illegal ();
    end
  endgenerate

  localparam integer INDEX_BITS = $clog2(OUTSTANDING);
  localparam [INDEX_BITS:0] ONE = 1;
  localparam [INDEX_BITS:0] NONE = 0;
  localparam integer BYTE_BITS = $clog2(DATA_WIDTH / 8);

  wire                     pending;
  wire [ADDRESS_WIDTH-1:0] burst_address;
  wire [              7:0] burst_length;

  // Lengths of the bursts that were asked for and whose data did not begin.
  reg  [              7:0] lengths       [0:OUTSTANDING-1];
  reg  [     INDEX_BITS:0] lengths_in;
  reg  [     INDEX_BITS:0] lengths_out;
  reg  [     INDEX_BITS:0] unanswered;  // bursts

  reg                      in_burst;
  reg  [              7:0] after_this;  // beats of the burst after the next one
  reg                      cancelling;

  wire [   DATA_WIDTH-1:0] fifo_data;
  wire                     fifo_valid;

  wire                     stopping = cancel || cancelling;
  wire                     take = s_cmd_valid && s_cmd_ready;
  wire                     answer = m_axi_bvalid && m_axi_bready;
  wire                     issue = pending && !stopping && !unanswered[INDEX_BITS]
                                   && (m_axi_awready || !m_axi_awvalid);
  wire                     move = in_burst && (fifo_valid || stopping)
                                  && (m_axi_wready || !m_axi_wvalid);
  wire                     move_last = move && after_this == 8'd0;
  wire                     begin_burst = (move_last || !in_burst) && lengths_in != lengths_out;
  wire                     going_on = pending || in_burst || m_axi_wvalid || unanswered != NONE;

  assign busy          = going_on || cancelling;
  assign s_cmd_ready   = !pending && !stopping;

  assign m_axi_awid    = 1'b0;
  assign m_axi_awsize  = BYTE_BITS[2:0];
  assign m_axi_awburst = 2'b01;  // INCR
  assign m_axi_awcache = 4'b0011;  // normal memory, may be merged and buffered
  assign m_axi_awprot  = 3'b000;
  assign m_axi_bready  = 1'b1;

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

  stream_fifo #(
      .WIDTH(DATA_WIDTH),
      .DEPTH(FIFO_BEATS)
  ) fifo (
      .clk          (clk),
      .rst_n        (rst_n),
      .flush        (stopping),
      .s_axis_tdata (s_axis_tdata),
      .s_axis_tvalid(s_axis_tvalid),
      .s_axis_tready(s_axis_tready),
      .m_axis_tdata (fifo_data),
      .m_axis_tvalid(fifo_valid),
      .m_axis_tready(move)
  );

  always @(posedge clk) begin
    if (!rst_n) begin
      m_axi_awvalid <= 1'b0;
      m_axi_wvalid  <= 1'b0;
      in_burst      <= 1'b0;
      cancelling      <= 1'b0;
      lengths_in    <= NONE;
      lengths_out   <= NONE;
      unanswered    <= NONE;
      error         <= 1'b0;
      beats         <= 32'd0;
      bursts        <= 32'd0;
    end else begin
      if (issue) m_axi_awvalid <= 1'b1;
      else if (m_axi_awready) m_axi_awvalid <= 1'b0;

      if (move) m_axi_wvalid <= 1'b1;
      else if (m_axi_wready) m_axi_wvalid <= 1'b0;

      if (issue) lengths_in <= lengths_in + ONE;
      if (begin_burst) lengths_out <= lengths_out + ONE;
      if (begin_burst) in_burst <= 1'b1;
      else if (move_last) in_burst <= 1'b0;

      unanswered <= unanswered + (issue ? ONE : NONE) - (answer ? ONE : NONE);
      cancelling   <= stopping && going_on;

      if (take && !busy) begin
        error  <= 1'b0;
        beats  <= 32'd0;
        bursts <= 32'd0;
      end else begin
        if (answer && m_axi_bresp != 2'b00) error <= 1'b1;
        if (move && !stopping) beats <= beats + 32'd1;
        if (issue) bursts <= bursts + 32'd1;
      end
    end
  end

  always @(posedge clk) begin
    if (issue) begin
      m_axi_awaddr <= burst_address;
      m_axi_awlen  <= burst_length;
      lengths[lengths_in[INDEX_BITS-1:0]] <= burst_length;
    end
    if (begin_burst) after_this <= lengths[lengths_out[INDEX_BITS-1:0]];
    else if (move) after_this <= after_this - 8'd1;
    if (move) begin
      m_axi_wdata <= stopping ? {DATA_WIDTH{1'b0}} : fifo_data;
      m_axi_wstrb <= {DATA_WIDTH / 8{!stopping}};
      m_axi_wlast <= after_this == 8'd0;
    end
  end

endmodule

`default_nettype wire
