// SPDX-License-Identifier: Apache-2.0
// Properties of axi_burst_planner.
//
// Proved: no burst crosses a 4 KiB page or has more than MAX_BURST beats; each one is as long as
//   that allows; each begins where the one before ended, the first at load_address; together they
//   have exactly load_beats beats; a transfer of none has no burst.
// How: induction, over transfers of any address and length.
// Assumed: load_address is a multiple of the bytes of a beat; advance only while pending; a reset in
//   the first cycle.
`default_nettype none

module axi_burst_planner_checks #(
    parameter ADDRESS_WIDTH = 32,
    parameter MAX_BURST = 1,
    parameter BYTE_BITS = 2
) (
    input wire clk,
    input wire rst_n,

    input wire                     load,
    input wire [ADDRESS_WIDTH-1:0] load_address,
    input wire [             31:0] load_beats,
    input wire                     stop,
    input wire                     pending,
    input wire [ADDRESS_WIDTH-1:0] address,
    input wire [              7:0] length,
    input wire                     advance,

    input wire [31:0] left
);

  reg has_past = 1'b0;
  always @(posedge clk) begin
    has_past <= 1'b1;
    if (!has_past) assume (!rst_n);
    assume (load_address[BYTE_BITS-1:0] == 0);
    assume (!advance || pending);
  end

  wire [31:0] beats = {24'd0, length} + 32'd1;

  // What was asked for since load, and where the next burst has to begin.
  reg [31:0] loaded, asked;
  reg [ADDRESS_WIDTH-1:0] expected;
  always @(posedge clk)
    if (load) begin
      loaded   <= load_beats;
      asked    <= 32'd0;
      expected <= load_address;
    end else if (advance) begin
      asked    <= asked + beats;
      expected <= expected + (beats << BYTE_BITS);
    end

  wire [31:0] page_left = (32'd4096 - {20'd0, address[11:0]}) >> BYTE_BITS;

  always @(posedge clk)
    if (has_past) begin
      if (pending) begin
        assert (left != 32'd0);
        assert (address[BYTE_BITS-1:0] == 0);
        assert (address == expected);
        assert (asked + left == loaded);
        assert (beats <= left && beats <= MAX_BURST && beats <= page_left);
        assert (beats == left || beats == MAX_BURST || beats == page_left);
      end
      if ($past(pending) && !pending && $past(rst_n && !stop && !load)) assert (asked == loaded);
      if ($past(load && rst_n && !stop)) assert (pending == (loaded != 32'd0));
    end

  // A transfer of three bursts: up to a page, a full one, the rest.
  reg [1:0] bursts;
  reg met_page, met_limit;
  always @(posedge clk)
    if (load || stop || !rst_n) {bursts, met_page, met_limit} <= 4'd0;
    else if (advance) begin
      bursts <= bursts + (bursts != 2'd3);
      met_page <= met_page || (beats == page_left && beats < MAX_BURST && beats < left);
      met_limit <= met_limit || (beats == MAX_BURST && beats < left);
    end
  always @(posedge clk) begin
    cover (has_past && bursts == 2'd3 && met_page && (met_limit || MAX_BURST == 256) && !pending);
    cover (has_past && $past(load && !stop && rst_n) && !pending);
  end

endmodule

bind axi_burst_planner axi_burst_planner_checks #(
    .ADDRESS_WIDTH(ADDRESS_WIDTH),
    .MAX_BURST(MAX_BURST),
    .BYTE_BITS(BYTE_BITS)
) checks (.*);

`default_nettype wire
