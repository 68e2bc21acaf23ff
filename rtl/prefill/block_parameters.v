// SPDX-License-Identifier: Apache-2.0
// What the softmax and the accumulators need to know of the blocks in the operand buffers.
//
// Purpose: keeps multiplier and exponent of every query row, the shifts of every key, and for each
//   V block the sum of every channel over the keys, as the beats arrive.
// Protocol: beats as tile_loader places them. The read side selects combinationally: rows of
//   read_slot, shifts of read_k_buffer, sums of read_v_buffer.
// Throughput: one beat of each kind a cycle; the sums are ready one cycle after the block's last beat.
`default_nettype none

module block_parameters #(
    parameter BLOCK        = 128,  // rows of a block
    parameter HEAD_DIM     = 128,  // channels
    parameter SLOT_WIDTH   = 4,    // bits of a slot's number
    parameter BUFFER_WIDTH = 2,    // bits of the number of a K and V buffer
    parameter BUS_WIDTH    = 512   // bits of a beat
) (
    input wire clk,

    input wire                    q_take,
    input wire [  SLOT_WIDTH-1:0] q_slot,
    input wire [             8:0] q_word,
    input wire [             4:0] q_part,
    input wire [   BUS_WIDTH-1:0] q_data,
    input wire                    k_take,
    input wire [BUFFER_WIDTH-1:0] k_buffer,
    input wire [             8:0] k_word,
    input wire [             4:0] k_part,
    input wire [   BUS_WIDTH-1:0] k_data,
    input wire                    v_take,
    input wire [BUFFER_WIDTH-1:0] v_buffer,
    input wire [             8:0] v_word,
    input wire [             4:0] v_part,
    input wire [   BUS_WIDTH-1:0] v_data,

    input  wire [  SLOT_WIDTH-1:0] read_slot,
    output wire [     BLOCK*8-1:0] row_multipliers_low,
    output wire [     BLOCK*8-1:0] row_multipliers_high,
    output wire [     BLOCK*8-1:0] row_exponents,
    input  wire [BUFFER_WIDTH-1:0] read_k_buffer,
    output wire [     BLOCK*8-1:0] key_shifts,            // k_shift + 16 v_shift
    input  wire [BUFFER_WIDTH-1:0] read_v_buffer,
    output wire [ HEAD_DIM*16-1:0] value_sums             // signed
);

  localparam LANES = BUS_WIDTH / 8;
  localparam [31:0] BLOCK_PARTS = BLOCK / LANES;  // beats of a word of BLOCK bytes
  localparam [31:0] HEAD_PARTS = HEAD_DIM / LANES;
  localparam [31:0] LAST_ROW = BLOCK - 1;
  localparam PART_WIDTH = HEAD_PARTS > 1 ? $clog2(HEAD_PARTS) : 1;

  reg [BLOCK*8-1:0] multipliers_low[0:(1<<SLOT_WIDTH)-1];
  reg [BLOCK*8-1:0] multipliers_high[0:(1<<SLOT_WIDTH)-1];
  reg [BLOCK*8-1:0] exponents[0:(1<<SLOT_WIDTH)-1];
  reg [BLOCK*8-1:0] shifts[0:(1<<BUFFER_WIDTH)-1];
  reg [HEAD_DIM*16-1:0] sums[0:(1<<BUFFER_WIDTH)-1];

  assign row_multipliers_low = multipliers_low[read_slot];
  assign row_multipliers_high = multipliers_high[read_slot];
  assign row_exponents = exponents[read_slot];
  assign key_shifts = shifts[read_k_buffer];
  assign value_sums = sums[read_v_buffer];

  // Sums over the rows so far, of the channels of a beat in a word.
  reg [LANES*16-1:0] running[0:HEAD_PARTS-1];
  wire [LANES*16-1:0] running_sums = running[v_part[PART_WIDTH-1:0]];
  reg [LANES*16-1:0] new_sums;

  always @* begin : add_values
    reg [31:0] lane;
    reg signed [15:0] held, value;
    for (lane = 0; lane < LANES; lane = lane + 1) begin
      held = running_sums[lane*16+:16];
      value = {{8{v_data[lane*8+7]}}, v_data[lane*8+:8]};
      new_sums[lane*16+:16] = (v_word == 9'd0 ? 16'sd0 : held) + value;
    end
  end

  always @(posedge clk) if (v_take) running[v_part[PART_WIDTH-1:0]] <= new_sums;

  // Each part at its own place: with a computed place, every bit has an enable of its own.
  genvar part;
  generate
    for (part = 0; part < BLOCK_PARTS; part = part + 1) begin : g_block_part
      always @(posedge clk) begin
        if (q_take && q_part == part && q_word == 9'd0)
          multipliers_low[q_slot][part*BUS_WIDTH+:BUS_WIDTH] <= q_data;
        if (q_take && q_part == part && q_word == 9'd1)
          multipliers_high[q_slot][part*BUS_WIDTH+:BUS_WIDTH] <= q_data;
        if (q_take && q_part == part && q_word == 9'd2)
          exponents[q_slot][part*BUS_WIDTH+:BUS_WIDTH] <= q_data;
        if (k_take && k_part == part && k_word == 9'd0)
          shifts[k_buffer][part*BUS_WIDTH+:BUS_WIDTH] <= k_data;
      end
    end
    for (part = 0; part < HEAD_PARTS; part = part + 1) begin : g_head_part
      always @(posedge clk)
        if (v_take && v_part == part && v_word == LAST_ROW[8:0])
          sums[v_buffer][part*LANES*16+:LANES*16] <= new_sums;
    end
  endgenerate

endmodule

`default_nettype wire
