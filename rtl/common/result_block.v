// SPDX-License-Identifier: Apache-2.0
//
// Result block of a kernel: adds up its words, then streams them with a check word at the end.
//
// Purpose:    the check word, the last one, makes the sum of all words zero, modulo 2^32.
// Protocol:   a sequencer holds summing until summed, then launch for one cycle and reporting from
//             then on, with the contents steady all the while; report_* then gives the beats, lowest
//             words first. stop takes back what has not been given yet.
// Latency:    BLOCK_WIDTH / BUS_WIDTH + 2 cycles of summing; the first beat a cycle after launch.
// Throughput: one beat a cycle.
// Limits:     as of beat_checksum.

`default_nettype none

module result_block #(
    parameter integer BUS_WIDTH   = 512,  // bits of a beat, a power of two from 64 to 1024
    parameter integer BLOCK_WIDTH = 1024  // bits of the block: BUS_WIDTH times 1 to 32
) (
    input wire clk,
    input wire rst_n,

    input  wire [BLOCK_WIDTH-33:0] contents,  // all but the check word
    input  wire                    summing,
    output wire                    summed,
    input  wire                    launch,
    input  wire                    reporting,
    input  wire                    stop,

    output wire                 report_tvalid,
    input  wire                 report_tready,
    output wire [BUS_WIDTH-1:0] report_tdata
);

  localparam integer BEATS = BLOCK_WIDTH / BUS_WIDTH;

  generate
    if (BLOCK_WIDTH < BUS_WIDTH || BLOCK_WIDTH > 32 * BUS_WIDTH || BLOCK_WIDTH % BUS_WIDTH != 0)
    begin : g_block_width
      illegal_parameter_BLOCK_WIDTH stop ();
    end
  endgenerate

  reg  [ 5:0] sum_step;
  reg  [ 5:0] beats_left;
  reg  [ 5:0] beat_index;
  wire [31:0] checksum;

  wire [31:0] check_word = summing ? 32'd0 : 32'd0 - checksum;
  wire [BLOCK_WIDTH-1:0] block = {check_word, contents};
  wire [5:0] shown_beat = summing ? sum_step : beat_index;

  assign summed        = sum_step == BEATS[5:0] + 6'd2;
  assign report_tvalid = beats_left != 6'd0;
  assign report_tdata  = block[shown_beat*BUS_WIDTH+:BUS_WIDTH];

  beat_checksum #(
      .BUS_WIDTH(BUS_WIDTH)
  ) check (
      .clk     (clk),
      .clear   (!summing && !reporting),
      .valid   (summing && sum_step < BEATS[5:0]),
      .data    (report_tdata),
      .checksum(checksum)
  );

  always @(posedge clk) begin
    if (summing) sum_step <= sum_step + 6'd1;
    else sum_step <= 6'd0;
  end

  always @(posedge clk) begin
    if (!rst_n || stop) begin
      beats_left <= 6'd0;
    end else if (launch) begin
      beats_left <= BEATS[5:0];
      beat_index <= 6'd0;
    end else if (report_tvalid && report_tready) begin
      beats_left <= beats_left - 6'd1;
      beat_index <= beat_index + 6'd1;
    end
  end

endmodule

`default_nettype wire
