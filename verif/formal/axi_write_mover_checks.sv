// SPDX-License-Identifier: Apache-2.0
// Properties of axi_write_mover with its burst planner and FIFO.
//
// Proved: AW and W hold what they show until it is taken; a burst has MAX_BURST beats at most and
//   none beyond its 4 KiB page; the bursts of W have the lengths that AW asked for, in the same
//   order, with WLAST on the last beat of each; the beats of W are those of s_axis, in order,
//   unchanged, with all bytes enabled; after cancel beats write no byte until all bursts that were
//   asked for are complete; commands take exactly as many beats as they say; there are never more
//   than OUTSTANDING bursts without an answer; busy is low only when none is; error, beats and bursts
//   are what was seen at the ports; AWVALID comes 2 cycles after a command to an idle mover.
// How: induction. Any burst and any beat are followed (chosen by the solver); commands, bursts and
//   answers are counted beside the mover.
// Assumed: memory answers only bursts whose address and last beat it took; addresses are multiples of
//   the bytes of a beat; a reset in the first cycle.
`default_nettype none

module axi_write_mover_checks #(
    parameter ADDRESS_WIDTH = 32,
    parameter DATA_WIDTH = 32,
    parameter MAX_BURST = 1,
    parameter FIFO_BEATS = 2,
    parameter POINTER_BITS = 1,
    parameter OUTSTANDING = 2,
    parameter INDEX_BITS = 1,
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

    input wire [  DATA_WIDTH-1:0] s_axis_tdata,
    input wire                    s_axis_tvalid,
    input wire                    s_axis_tready,

    input wire [ ADDRESS_WIDTH-1:0] m_axi_awaddr,
    input wire [               7:0] m_axi_awlen,
    input wire                      m_axi_awvalid,
    input wire                      m_axi_awready,
    input wire [    DATA_WIDTH-1:0] m_axi_wdata,
    input wire [  DATA_WIDTH/8-1:0] m_axi_wstrb,
    input wire                      m_axi_wlast,
    input wire                      m_axi_wvalid,
    input wire                      m_axi_wready,
    input wire [               1:0] m_axi_bresp,
    input wire                      m_axi_bvalid,
    input wire                      m_axi_bready,

    input wire                     pending,
    input wire                     cancelling,
    input wire                     stopping,
    input wire                     take,
    input wire                     issue,
    input wire                     move,
    input wire                     in_burst,
    input wire [              7:0] after_this,
    input wire [              7:0] burst_length,
    input wire [ADDRESS_WIDTH-1:0] burst_address,
    input wire [              7:0] lengths       [0:OUTSTANDING-1],
    input wire [     INDEX_BITS:0] lengths_in,
    input wire [     INDEX_BITS:0] lengths_out,
    input wire [     INDEX_BITS:0] unanswered,
    input wire [   DATA_WIDTH-1:0] fifo_data,
    input wire                     fifo_valid,
    input wire [             31:0] left,
    input wire [   POINTER_BITS:0] level,
    input wire [   POINTER_BITS:0] read_pointer,
    input wire [   DATA_WIDTH-1:0] memory        [0:FIFO_BEATS-1]
);

  localparam [31:0] ALL = FIFO_BEATS;
  localparam [31:0] MOST = OUTSTANDING;

  reg has_past = 1'b0;
  reg past_reset;
  always @(posedge clk) begin
    has_past   <= 1'b1;
    past_reset <= !rst_n;
    if (!has_past) assume (!rst_n);
    assume (s_cmd_address[BYTE_BITS-1:0] == 0);
  end

  wire aw = m_axi_awvalid && m_axi_awready;
  wire w = m_axi_wvalid && m_axi_wready;
  wire b = m_axi_bvalid && m_axi_bready;
  wire [31:0] unanswered_32 = {{31 - INDEX_BITS{1'b0}}, unanswered};
  wire [INDEX_BITS:0] queued = lengths_in - lengths_out;
  wire [31:0] queued_32 = {{31 - INDEX_BITS{1'b0}}, queued};
  wire full_beat = m_axi_wvalid && m_axi_wstrb != 0;  // the register of W has a beat of the stream
  wire finished = m_axi_wvalid && m_axi_wlast;  // or the last beat of a burst

  // Memory: bursts whose address, and whose last beat, it took and did not answer.
  reg [31:0] addresses, bodies;
  always @(posedge clk)
    if (!rst_n) {addresses, bodies} <= 64'd0;
    else begin
      addresses <= addresses + {31'd0, aw} - {31'd0, b};
      bodies <= bodies + {31'd0, w && m_axi_wlast} - {31'd0, b};
    end
  always @(posedge clk) if (m_axi_bvalid) assume (addresses != 32'd0 && bodies != 32'd0);

  // Beats of bursts that were asked for and did not move to W.
  reg [31:0] due;
  always @* begin : add_up
    reg [31:0] n;
    reg [INDEX_BITS:0] at;
    due = in_burst ? {24'd0, after_this} + 32'd1 : 32'd0;
    for (n = 0; n < OUTSTANDING; n = n + 1) begin
      at = lengths_out + n[INDEX_BITS:0];
      if (n < queued_32) due = due + {24'd0, lengths[at[INDEX_BITS-1:0]]} + 32'd1;
    end
  end

  // Beats that were commanded and did not move to W.
  reg [31:0] debt;
  always @(posedge clk)
    if (!rst_n || stopping) debt <= 32'd0;
    else debt <= debt + (take ? s_cmd_beats : 32'd0) - {31'd0, move};

  // Counts over the commands since the mover was idle.
  reg [31:0] seen_beats, seen_bursts;
  reg seen_error;
  always @(posedge clk)
    if (!rst_n || (take && !busy)) {seen_beats, seen_bursts, seen_error} <= 65'd0;
    else begin
      seen_beats  <= seen_beats + {31'd0, w && m_axi_wstrb != 0};
      seen_bursts <= seen_bursts + {31'd0, aw};
      seen_error  <= seen_error || (b && m_axi_bresp != 2'b00);
    end

  // The beat of the stream that is followed, and how many are before it.
  wire follow, follow_burst;
  any_sequence follow_source (.value(follow));
  any_sequence follow_burst_source (.value(follow_burst));
  wire taken = s_axis_tvalid && s_axis_tready;
  wire given = w && m_axi_wstrb != 0;
  wire [31:0] stored = {{31 - POINTER_BITS{1'b0}}, level} + {31'd0, fifo_valid};
  wire [31:0] held = stored + {31'd0, full_beat};
  reg following = 1'b0;
  reg [31:0] ahead;
  reg [DATA_WIDTH-1:0] followed;
  always @(posedge clk)
    if (!rst_n || stopping) following <= 1'b0;
    else if (!following) begin
      following <= taken && follow;
      ahead <= held - {31'd0, given};
      followed <= s_axis_tdata;
    end else if (given) begin
      following <= ahead != 32'd0;
      ahead <= ahead - 32'd1;
    end
  wire [31:0] depth = ahead - {31'd0, full_beat};  // within the FIFO
  wire [31:0] place = {{31 - POINTER_BITS{1'b0}}, read_pointer} + depth - {31'd0, fifo_valid};

  // The burst that is followed: its length, the bursts before it whose last beat memory did not take,
  // and its own beats that it took.
  reg burst_following = 1'b0;
  reg [31:0] burst_ahead, burst_beats;
  reg [7:0] burst_followed;
  wire [31:0] open = {31'd0, finished} + {31'd0, in_burst} + queued_32;
  wire is_turn = burst_following && burst_ahead == 32'd0;
  always @(posedge clk)
    if (!rst_n) burst_following <= 1'b0;
    else if (!burst_following) begin
      burst_following <= issue && follow_burst;
      burst_ahead <= open - {31'd0, w && m_axi_wlast};
      burst_beats <= 32'd0;
      burst_followed <= burst_length;
    end else if (w) begin
      if (is_turn) burst_beats <= burst_beats + 32'd1;
      if (m_axi_wlast) begin
        burst_following <= burst_ahead != 32'd0;
        burst_ahead <= burst_ahead - 32'd1;
      end
    end
  wire [31:0] body = {24'd0, burst_followed} + 32'd1;
  wire [31:0] rank = burst_ahead - {31'd0, finished};  // among the bursts that did not move
  wire [31:0] queue_place = {{31 - INDEX_BITS{1'b0}}, lengths_out} + rank - {31'd0, in_burst};

  wire [31:0] burst = {24'd0, m_axi_awlen} + 32'd1;
  wire [31:0] page_end = {20'd0, m_axi_awaddr[11:0]} + (burst << BYTE_BITS);

  always @(posedge clk)
    if (has_past) begin
      if (pending) assert (left != 32'd0 && burst_address[BYTE_BITS-1:0] == 0);
      assert (unanswered_32 <= MOST && queued_32 <= MOST);
      assert (addresses <= MOST && bodies <= MOST);
      assert (unanswered_32 == addresses + {31'd0, m_axi_awvalid});
      assert (unanswered_32 == bodies + open);
      assert (!m_axi_wvalid || m_axi_wlast || in_burst);
      if (!stopping || !cancelling) assert (debt == (pending ? left : 32'd0) + due);
      if (cancelling) assert (!pending && stored == 32'd0);
      else assert (!m_axi_wvalid || (&m_axi_wstrb));
      assert (m_axi_wstrb == 0 || (&m_axi_wstrb) || !m_axi_wvalid);
      assert (stored <= ALL + 32'd1);

      if (following) begin
        assert (ahead < held);
        if (full_beat && ahead == 32'd0) assert (m_axi_wdata == followed);
        else assert (followed == (fifo_valid && depth == 32'd0 ? fifo_data : memory[place[POINTER_BITS-1:0]]));
      end

      if (burst_following) begin
        assert (burst_ahead < open);
        if (finished && burst_ahead == 32'd0) assert (burst_beats == {24'd0, burst_followed});
        else if (rank == 32'd0 && in_burst) begin
          assert (burst_beats + {31'd0, m_axi_wvalid && !m_axi_wlast} + {24'd0, after_this} ==
                  {24'd0, burst_followed});
        end else begin
          assert (burst_beats == 32'd0);
          assert (lengths[queue_place[INDEX_BITS-1:0]] == burst_followed);
        end
        if (is_turn && w) assert (m_axi_wlast == (burst_beats + 32'd1 == body));
      end

      if (m_axi_awvalid) begin
        assert (m_axi_awaddr[BYTE_BITS-1:0] == 0);
        assert (burst <= MAX_BURST && page_end <= 32'd4096);
      end
      if (!past_reset && $past(m_axi_awvalid && !m_axi_awready)) begin
        assert (m_axi_awvalid);
        assert ({m_axi_awaddr, m_axi_awlen} == $past({m_axi_awaddr, m_axi_awlen}));
      end
      if (!past_reset && $past(m_axi_wvalid && !m_axi_wready)) begin
        assert (m_axi_wvalid);
        assert ({m_axi_wdata, m_axi_wstrb, m_axi_wlast} ==
                $past({m_axi_wdata, m_axi_wstrb, m_axi_wlast}));
      end
      if (!busy) begin
        assert (!m_axi_awvalid && !m_axi_wvalid && addresses == 32'd0 && bodies == 32'd0);
        assert (debt == 32'd0);
      end
      if (cancel) assert (!s_cmd_ready);
      if (!past_reset && $past(stopping)) begin
        assert (!m_axi_awvalid || $past(m_axi_awvalid));
        if ($past(w || !m_axi_wvalid)) assert (!m_axi_wvalid || m_axi_wstrb == 0);
      end

      assert (beats == seen_beats + {31'd0, full_beat});
      assert (bursts == seen_bursts + {31'd0, m_axi_awvalid});
      assert (error == seen_error);

      // Nothing stands still: a burst is asked for while fewer than OUTSTANDING are out, and the
      // beats of one move as they come.
      if (pending && !stopping && unanswered_32 < MOST && !m_axi_awvalid) assert (issue);
      if (in_burst && !m_axi_wvalid && (fifo_valid || stopping)) assert (move);
      if (!past_reset && $past(queued != 0 && !in_burst)) assert (in_burst);
    end

  // Latency: from a command to an idle mover to its request.
  reg two_past = 1'b0;
  always @(posedge clk) two_past <= has_past;
  always @(posedge clk)
    if (two_past && $past(rst_n && take && !busy && s_cmd_beats != 32'd0, 2) && $past(rst_n && !cancel))
      assert (m_axi_awvalid);

  // Commands one after the other; OUTSTANDING bursts; a cancelled burst that is completed.
  reg twice;
  always @(posedge clk)
    if (!rst_n || !busy) twice <= 1'b0;
    else twice <= twice || take;
  always @(posedge clk) begin
    cover (has_past && twice && given && debt == 32'd0 && bursts == 32'd3);
    cover (has_past && bodies == MOST);
    cover (has_past && is_turn && w && m_axi_wlast && burst_beats != 32'd0);
    cover (has_past && cancelling && w && m_axi_wstrb == 0 && m_axi_wlast);
  end

endmodule

bind axi_write_mover axi_write_mover_checks #(
    .ADDRESS_WIDTH(ADDRESS_WIDTH),
    .DATA_WIDTH(DATA_WIDTH),
    .MAX_BURST(MAX_BURST),
    .FIFO_BEATS(FIFO_BEATS),
    .POINTER_BITS($clog2(FIFO_BEATS)),
    .OUTSTANDING(OUTSTANDING),
    .INDEX_BITS(INDEX_BITS),
    .BYTE_BITS(BYTE_BITS)
) checks (
    .left(planner.left),
    .level(fifo.level),
    .read_pointer(fifo.read_pointer),
    .memory(fifo.memory),
    .*
);

`default_nettype wire
