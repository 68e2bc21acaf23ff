// SPDX-License-Identifier: Apache-2.0
// Properties of the control port of a kernel: decode_control and prefill_control with their
// generated registers.
//
// Proved: each start that the host writes while the start bit reads 0 begins one run, and nothing
//   else begins one; none begins while a finished run waits to be acknowledged; done stays from the
//   end of a run until continue is written; ap_idle is low from start to the end of the run; the
//   interrupt is high while an enabled event was not cleared, and no enabled event is lost; each
//   AXI4-Lite write and read gets one answer, which stays until it is taken; a read of the control
//   register shows start, done, idle and ready.
// How: induction, with the sequencer's side of the protocol assumed.
// Assumed: the host holds what it offers until it is taken; the sequencer answers start with taken
//   only while no run is going on, is running from the next cycle until ended, and ends only a run
//   that is going on; a reset in the first cycle.
`default_nettype none

module kernel_control_checks (
    input wire clk,
    input wire rst_n,

    input wire [11:0] s_axi_control_awaddr,
    input wire        s_axi_control_awvalid,
    input wire        s_axi_control_awready,
    input wire [31:0] s_axi_control_wdata,
    input wire [ 3:0] s_axi_control_wstrb,
    input wire        s_axi_control_wvalid,
    input wire        s_axi_control_wready,
    input wire [ 1:0] s_axi_control_bresp,
    input wire        s_axi_control_bvalid,
    input wire        s_axi_control_bready,
    input wire [11:0] s_axi_control_araddr,
    input wire        s_axi_control_arvalid,
    input wire        s_axi_control_arready,
    input wire [31:0] s_axi_control_rdata,
    input wire [ 1:0] s_axi_control_rresp,
    input wire        s_axi_control_rvalid,
    input wire        s_axi_control_rready,
    input wire        interrupt_request,
    input wire        start,
    input wire        taken,
    input wire        ended,
    input wire        running,
    input wire        done,

    // Of the registers: what waits to be carried out, and answers that wait.
    input wire        held_aw,
    input wire [11:0] held_awaddr,
    input wire        held_w,
    input wire [31:0] held_wdata,
    input wire [ 3:0] held_wstrb,
    input wire        held_ar,
    input wire [11:0] held_araddr,
    input wire        write,        // carried out in this cycle
    input wire        read,
    input wire [ 1:0] in_flight,
    input wire [ 1:0] answers_in,
    input wire [ 1:0] answers_out,
    input wire [ 1:0] answer_is_write,
    input wire [ 1:0] answer_error,
    input wire        ap_start,
    input wire        ap_ready,
    input wire        ap_continue,
    input wire        interrupt_enable,
    input wire        enable_done,
    input wire        enable_ready,
    input wire        event_done,
    input wire        event_ready
);

  localparam [11:0] CTRL = 12'h0, GIE = 12'h4, IER = 12'h8, ISR = 12'hc;

  reg has_past = 1'b0;
  reg past_reset;
  always @(posedge clk) begin
    has_past   <= 1'b1;
    past_reset <= !rst_n;
    if (!has_past) assume (!rst_n);
  end
  wire settled = has_past && !past_reset;

  // ---- host and sequencer

  reg run;  // a run is going on
  always @(posedge clk)
    if (!rst_n) run <= 1'b0;
    else if (taken) run <= 1'b1;
    else if (ended) run <= 1'b0;

  always @(posedge clk) begin
    if (has_past) assume (running == run);
    assume (!taken || (start && !running));
    assume (!ended || (running && !taken));
    if (settled) begin
      if ($past(s_axi_control_awvalid && !s_axi_control_awready))
        assume (s_axi_control_awvalid && s_axi_control_awaddr == $past(s_axi_control_awaddr));
      if ($past(s_axi_control_wvalid && !s_axi_control_wready))
        assume (s_axi_control_wvalid && {s_axi_control_wdata, s_axi_control_wstrb} ==
                $past({s_axi_control_wdata, s_axi_control_wstrb}));
      if ($past(s_axi_control_arvalid && !s_axi_control_arready))
        assume (s_axi_control_arvalid && s_axi_control_araddr == $past(s_axi_control_araddr));
    end
  end

  // ---- AXI4-Lite: requests that were taken and not answered, counted at the ports

  wire aw = s_axi_control_awvalid && s_axi_control_awready;
  wire w = s_axi_control_wvalid && s_axi_control_wready;
  wire b = s_axi_control_bvalid && s_axi_control_bready;
  wire ar = s_axi_control_arvalid && s_axi_control_arready;
  wire r = s_axi_control_rvalid && s_axi_control_rready;
  reg [2:0] open_aw, open_w, open_ar;
  always @(posedge clk)
    if (!rst_n) {open_aw, open_w, open_ar} <= 9'd0;
    else begin
      open_aw <= open_aw + {2'd0, aw} - {2'd0, b};
      open_w  <= open_w + {2'd0, w} - {2'd0, b};
      open_ar <= open_ar + {2'd0, ar} - {2'd0, r};
    end

  // The requests that wait in the registers, as the host gave them.
  reg [11:0] aw_address, ar_address;
  reg [31:0] w_data;
  reg [ 3:0] w_strobe;
  always @(posedge clk) begin
    if (aw) aw_address <= s_axi_control_awaddr;
    if (w) {w_data, w_strobe} <= {s_axi_control_wdata, s_axi_control_wstrb};
    if (ar) ar_address <= s_axi_control_araddr;
  end

  wire [1:0] answers = answers_in - answers_out;
  wire [1:0] newest = answers_in - 2'd1;
  wire [2:0] write_answers = (answers == 2'd0 ? 3'd0 : {2'd0, answer_is_write[answers_out[0]]}) +
      (answers == 2'd2 ? {2'd0, answer_is_write[newest[0]]} : 3'd0);

  always @(posedge clk)
    if (settled) begin
      assert (answers <= 2'd2 && in_flight == answers);
      assert (answer_error == 2'b00);
      assert (open_aw == {2'd0, held_aw} + write_answers);
      assert (open_w == {2'd0, held_w} + write_answers);
      assert (open_ar == {2'd0, held_ar} + {1'd0, answers} - write_answers);
      if (held_aw) assert (held_awaddr == aw_address);
      if (held_w) assert ({held_wdata, held_wstrb} == {w_data, w_strobe});
      if (held_ar) assert (held_araddr == ar_address);

      if (s_axi_control_bvalid) assert (open_aw != 3'd0 && open_w != 3'd0 && s_axi_control_bresp == 2'b00);
      if (s_axi_control_rvalid) assert (open_ar != 3'd0 && s_axi_control_rresp == 2'b00);
      if ($past(s_axi_control_bvalid && !s_axi_control_bready)) assert (s_axi_control_bvalid);
      if ($past(s_axi_control_rvalid && !s_axi_control_rready))
        assert (s_axi_control_rvalid && s_axi_control_rdata == $past(s_axi_control_rdata));
      // Nothing waits for ever: a request is carried out when an answer has room.
      if (held_ar && held_aw && held_w && answers < 2'd2) assert (write || read);
      if (held_aw && held_w && !held_ar && answers < 2'd2) assert (write);
      if (held_ar && !(held_aw && held_w) && answers < 2'd2) assert (read);
      assert (!write || (held_aw && held_w && !read));
      assert (!read || held_ar);
    end else if (has_past) begin
      assert (!s_axi_control_bvalid && !s_axi_control_rvalid);
    end

  // ---- runs

  wire [11:0] write_address = {aw_address[11:2], 2'b00};
  wire [31:0] bits = {{8{w_strobe[3]}}, {8{w_strobe[2]}}, {8{w_strobe[1]}}, {8{w_strobe[0]}}} & w_data;
  wire write_ctrl = write && write_address == CTRL;
  wire write_start = write_ctrl && bits[0];
  wire read_ctrl = read && {ar_address[11:2], 2'b00} == CTRL;

  reg asked;  // a start was written that was not taken
  reg finished;  // a run ended that was not acknowledged
  reg acknowledge;
  reg told_ready;
  always @(posedge clk)
    if (!rst_n) {asked, finished, acknowledge, told_ready} <= 4'd0;
    else begin
      // A start that is written while the bit reads 1 is none.
      if (taken) asked <= 1'b0;
      else if (write_start) asked <= 1'b1;
      // A write of the other bytes alone in the next cycle repeats it, which acknowledges nothing new.
      acknowledge <= write_ctrl && (bits[4] || (acknowledge && !w_strobe[0]));
      if (ended) finished <= 1'b1;
      else if (acknowledge) finished <= 1'b0;
      if (taken) told_ready <= 1'b1;
      else if (read_ctrl) told_ready <= 1'b0;
    end

  always @(posedge clk)
    if (settled) begin
      assert (ap_start == asked);
      assert (done == finished);
      assert (ap_continue == acknowledge);
      assert (ap_ready == told_ready);
      assert (start == (asked && !finished));
      if (taken) assert (!finished && !run);
      if ($past(read_ctrl)) begin
        assert (answers != 2'd0 && !answer_is_write[newest[0]]);
        if (answers == 2'd1) begin
          assert (s_axi_control_rdata[3:0] == $past({told_ready, !run && !asked, finished, asked}));
          assert (s_axi_control_rdata[31:4] == 28'd0);
        end
      end
    end else if (has_past) begin
      assert (!start && !done);
    end

  // ---- interrupt

  wire write_isr = write && write_address == ISR;
  reg gie, ier_done, ier_ready, isr_done, isr_ready, raised;
  always @(posedge clk)
    if (!rst_n) {gie, ier_done, ier_ready, isr_done, isr_ready, raised} <= 6'd0;
    else begin
      if (write && write_address == GIE && w_strobe[0]) gie <= w_data[0];
      if (write && write_address == IER && w_strobe[0]) {ier_ready, ier_done} <= w_data[1:0];
      if (ended && ier_done) isr_done <= 1'b1;
      else if (write_isr && bits[0]) isr_done <= !isr_done;
      if (taken && ier_ready) isr_ready <= 1'b1;
      else if (write_isr && bits[1]) isr_ready <= !isr_ready;
      raised <= gie && (isr_done || isr_ready);
    end

  always @(posedge clk)
    if (settled) begin
      assert (interrupt_enable == gie && {enable_done, enable_ready} == {ier_done, ier_ready});
      assert ({event_done, event_ready} == {isr_done, isr_ready});
      assert (interrupt_request == raised);
    end

  // A second run that was asked for while the first one was going on; the interrupt of its end.
  reg [1:0] runs;
  always @(posedge clk)
    if (!rst_n) runs <= 2'd0;
    else if (ended && runs != 2'd3) runs <= runs + 2'd1;
  always @(posedge clk) begin
    cover (has_past && runs == 2'd1 && running && finished == 1'b0);
    cover (has_past && finished && asked && interrupt_request);
    cover (has_past && answers == 2'd2 && held_ar && held_aw && held_w);
  end

endmodule

`default_nettype wire
