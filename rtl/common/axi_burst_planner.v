// SPDX-License-Identifier: Apache-2.0
//
// Cuts a transfer into AXI4 INCR bursts of full beats that never cross a 4 KiB page.
//
// Protocol:   load starts a transfer of load_beats beats at load_address, also none. While pending,
//             address and length (beats - 1, as in AxLEN) are of the next burst; advance goes on to
//             the one after. stop gives up what was not taken yet.
// Latency:    1 cycle from load to the first burst.
// Throughput: 1 burst a cycle.
// Limits:     load_address is a multiple of DATA_WIDTH / 8.
//
//   length + 1 = min(beats left, MAX_BURST, (4096 - address mod 4096) / (DATA_WIDTH / 8))

`default_nettype none

module axi_burst_planner #(
    parameter integer ADDRESS_WIDTH = 64,   // bits, 32 to 64
    parameter integer DATA_WIDTH    = 512,  // bits of a beat, a power of two from 32 to 1024
    parameter integer MAX_BURST     = 64    // beats, 1 to 256
) (
    input wire clk,
    input wire rst_n,

    input wire                     load,
    input wire [ADDRESS_WIDTH-1:0] load_address,
    input wire [             31:0] load_beats,
    input wire                     stop,

    output reg                      pending,
    output reg  [ADDRESS_WIDTH-1:0] address,
    output wire [              7:0] length,
    input  wire                     advance
);

  generate
    if (ADDRESS_WIDTH < 32 || ADDRESS_WIDTH > 64) begin : g_address_width_is_illegal
      axi_burst_planner_needs_an_ADDRESS_WIDTH_from_32_to_64 illegal ();
    end
    if (DATA_WIDTH < 32 || DATA_WIDTH > 1024 || (DATA_WIDTH & (DATA_WIDTH - 1)) != 0)
    begin : g_data_width_is_illegal
      axi_burst_planner_needs_a_DATA_WIDTH_that_is_a_power_of_two_from_32_to_1024 illegal ();
    end
    if (MAX_BURST < 1 || MAX_BURST > 256) begin : g_max_burst_is_illegal
      axi_burst_planner_needs_a_MAX_BURST_from_1_to_256 illegal ();
    end
  endgenerate

  localparam integer BYTE_BITS = $clog2(DATA_WIDTH / 8);  // address bits within a beat
  localparam integer PAGE_BITS = 12 - BYTE_BITS;  // bits that count the beats of a page

  reg  [         31:0] left;

  wire [  PAGE_BITS:0] page_left = {1'b1, {PAGE_BITS{1'b0}}} - {1'b0, address[11:BYTE_BITS]};
  wire [         11:0] page_limit = {{11 - PAGE_BITS{1'b0}}, page_left};
  wire [         11:0] limit = page_limit > MAX_BURST[11:0] ? MAX_BURST[11:0] : page_limit;
  wire                 is_last = left <= {20'b0, limit};
  wire [          8:0] beats = is_last ? left[8:0] : limit[8:0];
  wire [BYTE_BITS+8:0] bytes = {beats, {BYTE_BITS{1'b0}}};

  assign length = beats[7:0] - 8'd1;

  always @(posedge clk) begin
    if (!rst_n || stop) pending <= 1'b0;
    else if (load) pending <= load_beats != 32'd0;
    else if (advance) pending <= !is_last;
  end

  always @(posedge clk) begin
    if (load) begin
      address <= load_address;
      left    <= load_beats;
    end else if (advance) begin
      address <= address + {{ADDRESS_WIDTH - BYTE_BITS - 9{1'b0}}, bytes};
      left    <= left - {23'b0, beats};
    end
  end

endmodule

`default_nettype wire
