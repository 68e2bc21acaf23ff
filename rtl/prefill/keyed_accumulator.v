// SPDX-License-Identifier: Apache-2.0
// Keyed accumulators: adds the value products of tiles to the outputs of their slots.
//
// Purpose: A = rshift_round(A, keep) + rshift_round(PV << 12, join) for all rows of a channel at once;
//   PV is the sum of the arrays, which multiply P - 128, plus 128 times the sum of v over the keys.
// Protocol: the shifts of a tile come row by row on shift_* (shift_last with the last row), before
//   or while its columns wait on s_values; tiles in the same order on both. s_values asks for the
//   facts of tile s_values_tile, answered in the same cycle. tile_done pulses when all channels of
//   a tile are added. word_read asks for a word of finished accumulators; it is served when
//   word_granted is high and word follows one cycle later.
// Latency: last column to tile_done 4 cycles. Throughput: one column of BLOCK rows a cycle, 2 cycles
//   between tiles.
// Limits: A has 48 bits, of which 12 are guard bits: |PV| <= 2^22 over 2^13 tiles. Of s_values_sums and
//   of PV only 24 bits are looked at. A shift of 48 or more leaves 0.
// Structure: shifts keep one bit below for rounding. The last step of the old value, multiples of 16,
//   is part of the sum's look-up tables, so it comes after the registers.
`default_nettype none

module keyed_accumulator #(
    parameter BLOCK        = 128,  // rows
    parameter HEAD_DIM     = 128,  // channels
    parameter ROW_WIDTH    = 7,    // bits of a row's number
    parameter CHANNEL_WIDTH = 7,   // bits of a channel's number
    parameter SLOT_WIDTH   = 4     // bits of a slot's number
) (
    input wire clk,
    input wire rst_n,

    input wire                 shift_valid,
    input wire [ROW_WIDTH-1:0] shift_row,
    input wire [          2:0] shift_tile,
    input wire                 shift_last,
    input wire [          5:0] shift_keep,
    input wire [          5:0] shift_join,

    input  wire                     s_values_valid,
    output wire                     s_values_ready,
    input  wire [              2:0] s_values_tile,
    input  wire [CHANNEL_WIDTH-1:0] s_values_channel,
    input  wire [     BLOCK*32-1:0] s_values_sums,     // row i in word i, signed
    // Facts of tile s_values_tile.
    input  wire [   SLOT_WIDTH-1:0] tile_slot,
    input  wire [  HEAD_DIM*16-1:0] tile_value_sums,   // sum of v over the keys of a block, signed

    output reg       tile_done,
    output reg [2:0] tile_done_tile,

    input  wire                                word_read,
    input  wire [SLOT_WIDTH+CHANNEL_WIDTH-1:0] word_address,  // {slot, channel}
    output wire                                word_granted,
    output wire [                BLOCK*48-1:0] word,
    output wire                                idle
);

  localparam [31:0] LAST_32 = HEAD_DIM - 1;
  localparam [CHANNEL_WIDTH-1:0] LAST = LAST_32[CHANNEL_WIDTH-1:0];
  localparam ADDRESS_WIDTH = SLOT_WIDTH + CHANNEL_WIDTH;

  reg [BLOCK*12-1:0] shifts[0:7];  // {join, keep} of a row
  reg [7:0] shifts_ready;

  reg running;
  reg [5:0] keep[0:BLOCK-1], join_shift[0:BLOCK-1];
  reg signed [23:0] sum_1[0:BLOCK-1];
  reg signed [63:0] kept_2[0:BLOCK-1];  // the old value, twice as large
  reg signed [36:0] joined_2[0:BLOCK-1];
  reg [1:0] keep_2[0:BLOCK-1];  // what is left to shift it, in steps of 16
  reg [HEAD_DIM*16-1:0] value_sums;
  reg signed [15:0] value_sum_1;
  reg [SLOT_WIDTH-1:0] slot;
  (* ram_style = "ultra" *) reg [BLOCK*48-1:0] memory[0:(1<<ADDRESS_WIDTH)-1];
  reg [BLOCK*48-1:0] read_word;
  reg valid_1, valid_2, last_1, last_2;
  reg [ADDRESS_WIDTH-1:0] address_1, address_2;
  reg [2:0] tile, tile_1;

  wire load = !running && !valid_1 && !valid_2 && s_values_valid && shifts_ready[s_values_tile];
  wire take = s_values_valid && s_values_ready;

  assign s_values_ready = running;
  assign word_granted = word_read && !take;
  assign word = read_word;
  assign idle = !running && !valid_1 && !valid_2 && !tile_done && shifts_ready == 8'd0;

  always @(posedge clk) begin
    if (!rst_n) begin
      running <= 1'b0;
      {valid_1, valid_2} <= 2'd0;
      shifts_ready <= 8'd0;
      tile_done <= 1'b0;
    end else begin
      if (load) running <= 1'b1;
      else if (take && s_values_channel == LAST) running <= 1'b0;
      {valid_2, valid_1} <= {valid_1, take};
      if (load) shifts_ready[s_values_tile] <= 1'b0;
      if (shift_valid && shift_last) shifts_ready[shift_tile] <= 1'b1;
      tile_done <= valid_2 && last_2;
    end
    if (load) begin
      slot <= tile_slot;
      tile <= s_values_tile;
      value_sums <= tile_value_sums;
    end
    {last_2, last_1} <= {last_1, s_values_channel == LAST};
    address_1 <= {slot, s_values_channel};
    address_2 <= address_1;
    tile_1 <= tile;
    tile_done_tile <= tile_1;
  end

  always @(posedge clk) begin
    if (take) read_word <= memory[{slot, s_values_channel}];
    else if (word_read) read_word <= memory[word_address];
  end

  task automatic write_back;
    reg [31:0] i;
    reg [BLOCK*48-1:0] result;
    reg signed [63:0] kept;
    reg [63:0] total;
    begin
      for (i = 0; i < BLOCK; i = i + 1) begin
        kept = kept_2[i];
        kept = keep_2[i] == 2'd3 ? 64'sd0 : kept >>> {keep_2[i], 4'd0};
        // The bit below rounds. The constant makes the other operand the plain input of the carries.
        total = {{26{joined_2[i][36]}}, joined_2[i], 1'b1} + kept;
        result[i*48+:48] = total[48:1];
      end
      memory[address_2] <= result;
    end
  endtask

  task automatic shift_operands;
    reg [31:0] i;
    reg [5:0] s;
    reg signed [23:0] pv, offset;
    reg signed [63:0] old, product;
    begin
      offset = {value_sum_1[15], value_sum_1, 7'd0};
      for (i = 0; i < BLOCK; i = i + 1) begin
        s = keep[i];
        old = {{15{read_word[i*48+47]}}, read_word[i*48+:48], 1'b0};
        kept_2[i] = old >>> s[3:0];
        keep_2[i] = s[5:4];

        // PV << 15, less by the lower four bits of the shift; then 12 guard bits and one below are left.
        s = join_shift[i];
        pv = sum_1[i] + offset;
        product = {{40{pv[23]}}, pv};
        product = product <<< ~s[3:0];
        product = product >>> {s[5:4], 4'd2};
        joined_2[i] = product[37:1] + {36'd0, product[0]};
      end
    end
  endtask

  task automatic take_sums;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1) sum_1[i] = s_values_sums[i*32+:24];
      value_sum_1 = value_sums[s_values_channel*16+:16];
    end
  endtask

  task automatic load_shifts;
    reg [31:0] i;
    reg [BLOCK*12-1:0] row_shifts;
    begin
      row_shifts = shifts[s_values_tile];
      for (i = 0; i < BLOCK; i = i + 1) begin
        keep[i] = row_shifts[i*12+:6];
        join_shift[i] = row_shifts[i*12+6+:6];
      end
    end
  endtask

  // Row by row and not at a computed place: each row is a small memory with its own enable.
  task automatic keep_shifts;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1)
      if (shift_row == i[ROW_WIDTH-1:0])
        shifts[shift_tile][i*12+:12] = {shift_join, shift_keep};
    end
  endtask

  always @(posedge clk) begin : datapath
    if (valid_2) write_back;
    if (valid_1) shift_operands;
    if (take) take_sums;
    if (load) load_shifts;
    if (shift_valid) keep_shifts;
  end

endmodule

`default_nettype wire
