// SPDX-License-Identifier: Apache-2.0
// Properties of axi_read_mover with its burst planner and FIFO.
//
// Proved: AR holds its burst until it is taken, asks for MAX_BURST beats at most and for none beyond
//   its 4 KiB page; every beat that arrives finds room; the beats that leave are those that arrived,
//   in order, unchanged, each held until it is taken; they are as many as the commands asked for;
//   busy is low only when nothing is asked for, awaited or left to give; cancel silences m_axis at
//   once, asks for nothing more and ends when the last beat that was asked for arrived; error, beats
//   and bursts are what was seen at the ports; ARVALID comes 2 cycles after a command to an idle
//   mover; a burst is asked for whenever the whole buffer is free.
// How: induction. Any beat is followed through the buffer (chosen by the solver); commands, requests
//   and beats are counted beside the mover.
// Assumed: memory sends only beats that were asked for; addresses are multiples of the bytes of a
//   beat; a reset in the first cycle.
`default_nettype none

module axi_read_mover_checks #(
    parameter ADDRESS_WIDTH = 32,
    parameter DATA_WIDTH = 32,
    parameter MAX_BURST = 1,
    parameter FIFO_BEATS = 2,
    parameter COUNT_BITS = 2,
    parameter POINTER_BITS = 1,
    parameter BYTE_BITS = 2
) (
    input wire clk,
    input wire rst_n,

    input wire                     s_cmd_valid,
    input wire                     s_cmd_ready,
    input wire [ADDRESS_WIDTH-1:0] s_cmd_address,
    input wire [             31:0] s_cmd_beats,
    input wire                     cancel,
    input wire                     busy,
    input wire                     error,
    input wire [             31:0] beats,
    input wire [             31:0] bursts,

    input wire [ADDRESS_WIDTH-1:0] m_axi_araddr,
    input wire [              7:0] m_axi_arlen,
    input wire                     m_axi_arvalid,
    input wire                     m_axi_arready,
    input wire [   DATA_WIDTH-1:0] m_axi_rdata,
    input wire [              1:0] m_axi_rresp,
    input wire                     m_axi_rvalid,
    input wire                     m_axi_rready,
    input wire [   DATA_WIDTH-1:0] m_axis_tdata,
    input wire                     m_axis_tvalid,
    input wire                     m_axis_tready,

    input wire                     pending,
    input wire                     cancelling,
    input wire                     stopping,
    input wire                     take,
    input wire                     issue,
    input wire [   COUNT_BITS-1:0] free,
    input wire [   COUNT_BITS-1:0] awaited,
    input wire                     fifo_valid,
    input wire                     unused_fifo_ready,
    input wire [             31:0] left,
    input wire [ADDRESS_WIDTH-1:0] burst_address,
    input wire [   POINTER_BITS:0] level,
    input wire [   POINTER_BITS:0] read_pointer,
    input wire [   DATA_WIDTH-1:0] memory        [0:FIFO_BEATS-1]
);

  localparam [31:0] ALL = FIFO_BEATS;

  reg has_past = 1'b0;
  reg past_reset;
  always @(posedge clk) begin
    has_past   <= 1'b1;
    past_reset <= !rst_n;
    if (!has_past) assume (!rst_n);
    assume (s_cmd_address[BYTE_BITS-1:0] == 0);
  end

  wire asked = m_axi_arvalid && m_axi_arready;
  wire arrived = m_axi_rvalid && m_axi_rready;
  wire given = m_axis_tvalid && m_axis_tready;
  wire [31:0] burst = {24'd0, m_axi_arlen} + 32'd1;
  wire [31:0] free_32 = {{32 - COUNT_BITS{1'b0}}, free};
  wire [31:0] awaited_32 = {{32 - COUNT_BITS{1'b0}}, awaited};
  wire [31:0] held = {{31 - POINTER_BITS{1'b0}}, level} + {31'd0, fifo_valid};

  // Memory: beats that it owes.
  reg [31:0] owed;
  always @(posedge clk)
    if (!rst_n) owed <= 32'd0;
    else owed <= owed + (asked ? burst : 32'd0) - {31'd0, arrived};
  always @(posedge clk) if (m_axi_rvalid) assume (owed != 32'd0);

  // Beats that were commanded and not given.
  reg [31:0] debt;
  always @(posedge clk)
    if (!rst_n || stopping) debt <= 32'd0;
    else debt <= debt + (take ? s_cmd_beats : 32'd0) - {31'd0, given};

  // Counts over the commands since the mover was idle.
  reg [31:0] seen_beats, seen_bursts;
  reg seen_error;
  always @(posedge clk)
    if (!rst_n || (take && !busy)) {seen_beats, seen_bursts, seen_error} <= 65'd0;
    else begin
      seen_beats  <= seen_beats + {31'd0, arrived};
      seen_bursts <= seen_bursts + {31'd0, asked};
      seen_error  <= seen_error || (arrived && m_axi_rresp != 2'b00);
    end

  // The beat that is followed, and how many are before it.
  wire follow;
  any_sequence follow_source (.value(follow));
  reg following = 1'b0;
  reg [31:0] ahead;
  reg [DATA_WIDTH-1:0] followed;
  always @(posedge clk)
    if (!rst_n || stopping) following <= 1'b0;
    else if (!following) begin
      following <= arrived && follow;
      ahead <= held - {31'd0, given};
      followed <= m_axi_rdata;
    end else if (given) begin
      following <= ahead != 32'd0;
      ahead <= ahead - 32'd1;
    end

  wire [31:0] place = {{31 - POINTER_BITS{1'b0}}, read_pointer} + ahead - {31'd0, fifo_valid};
  wire [31:0] page_end = {20'd0, m_axi_araddr[11:0]} + (burst << BYTE_BITS);

  always @(posedge clk)
    if (has_past) begin
      if (pending) assert (left != 32'd0 && burst_address[BYTE_BITS-1:0] == 0);
      assert (owed <= ALL);
      assert (awaited_32 == owed + (m_axi_arvalid ? burst : 32'd0));
      if (!cancelling) assert (free_32 + awaited_32 + held == ALL);
      else assert (free_32 == ALL && held == 32'd0 && awaited_32 <= ALL && !pending);
      if (!cancelling) assert (debt == (pending ? left : 32'd0) + awaited_32 + held);
      if (following) begin
        assert (ahead < held);
        assert (followed == (fifo_valid && ahead == 32'd0 ? m_axis_tdata : memory[place[POINTER_BITS-1:0]]));
      end

      if (m_axi_arvalid) begin
        assert (m_axi_araddr[BYTE_BITS-1:0] == 0);
        assert (burst <= MAX_BURST && page_end <= 32'd4096);
      end
      if (!past_reset && $past(m_axi_arvalid && !m_axi_arready)) begin
        assert (m_axi_arvalid);
        assert ({m_axi_araddr, m_axi_arlen} == $past({m_axi_araddr, m_axi_arlen}));
      end
      if (arrived && !stopping) assert (unused_fifo_ready);
      if (!past_reset && $past(m_axis_tvalid && !m_axis_tready) && !stopping) begin
        assert (m_axis_tvalid);
        assert (m_axis_tdata == $past(m_axis_tdata));
      end
      if (!busy) assert (!m_axi_arvalid && !m_axis_tvalid && owed == 32'd0 && debt == 32'd0);
      if (cancel) assert (!m_axis_tvalid && !s_cmd_ready);
      if (!past_reset && $past(cancel)) begin
        assert (!m_axi_arvalid || $past(m_axi_arvalid));
        assert (cancel || busy == ($past(awaited) != 0));
      end
      if (!past_reset && $past(cancelling && !cancel && awaited == 0)) assert (!cancelling);

      assert (beats == seen_beats && error == seen_error);
      assert (bursts == seen_bursts + {31'd0, m_axi_arvalid});

      if (pending && !stopping && free_32 == ALL && !m_axi_arvalid) assert (issue);
    end

  // Latency: from a command to an idle mover to its request.
  reg two_past = 1'b0;
  always @(posedge clk) two_past <= has_past;
  always @(posedge clk)
    if (two_past && $past(rst_n && take && !busy && s_cmd_beats != 32'd0, 2) && $past(rst_n && !cancel))
      assert (m_axi_arvalid);

  // Commands one after the other; a full buffer; a cancelled burst whose data is still to come.
  reg twice;
  always @(posedge clk)
    if (!rst_n || !busy) twice <= 1'b0;
    else twice <= twice || take;
  always @(posedge clk) begin
    cover (has_past && twice && given && debt == 32'd1);
    cover (has_past && held == ALL && following && ahead == ALL - 32'd1);
    cover (has_past && cancelling && owed != 32'd0 && !cancel);
  end

endmodule

bind axi_read_mover axi_read_mover_checks #(
    .ADDRESS_WIDTH(ADDRESS_WIDTH),
    .DATA_WIDTH(DATA_WIDTH),
    .MAX_BURST(MAX_BURST),
    .FIFO_BEATS(FIFO_BEATS),
    .COUNT_BITS(COUNT_BITS),
    .POINTER_BITS($clog2(FIFO_BEATS)),
    .BYTE_BITS(BYTE_BITS)
) checks (
    .left(planner.left),
    .level(fifo.level),
    .read_pointer(fifo.read_pointer),
    .memory(fifo.memory),
    .*
);

`default_nettype wire
