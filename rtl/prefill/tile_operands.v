// SPDX-License-Identifier: Apache-2.0
// Operand buffers of the tile engine: a copy of Q, K, V and P for each server of the matrix unit.
//
// Purpose: stores arriving beats and probabilities, and answers the requests of the servers two
//   cycles later, as the matrix unit expects (OPERAND_LATENCY = 2).
// Protocol: a score task multiplies channel step of the queries in a slot with that channel of the
//   strip's keys; a value task the probabilities of key step with the strip's channels of its v.
//   A tag is {tile, strip, buffer, slot} in 3, 6, 3 and 6 bits.
// Throughput: one request a server and cycle, beside one write of each kind.
`default_nettype none

module tile_operands #(
    parameter STRIPS        = 3,    // servers, 1 to 4
    parameter BLOCK         = 128,  // rows
    parameter HEAD_DIM      = 128,  // channels
    parameter ARRAY_COLUMNS = 32,   // columns of a task
    parameter ROW_WIDTH     = 7,    // bits of a row's number
    parameter CHANNEL_WIDTH = 7,    // bits of a channel's number
    parameter DEPTH_WIDTH   = 7,    // bits of a step's number
    parameter SLOT_WIDTH    = 4,    // bits of a slot's number
    parameter BUFFER_WIDTH  = 2,    // bits of the number of a K and V buffer
    parameter TILE_WIDTH    = 2,    // bits of a tile's number
    parameter BUS_WIDTH     = 512   // bits of a beat
) (
    input wire clk,

    input wire                     q_write,
    input wire [   SLOT_WIDTH-1:0] q_slot,
    input wire [CHANNEL_WIDTH-1:0] q_channel,
    input wire [              4:0] q_part,
    input wire [    BUS_WIDTH-1:0] q_data,
    input wire                     k_write,
    input wire [ BUFFER_WIDTH-1:0] k_buffer,
    input wire [CHANNEL_WIDTH-1:0] k_channel,
    input wire [              4:0] k_part,
    input wire [    BUS_WIDTH-1:0] k_data,
    input wire                     v_write,
    input wire [ BUFFER_WIDTH-1:0] v_buffer,
    input wire [    ROW_WIDTH-1:0] v_row,
    input wire [              4:0] v_part,
    input wire [    BUS_WIDTH-1:0] v_data,
    input wire                     p_write,
    input wire [   TILE_WIDTH-1:0] p_tile,
    input wire [    ROW_WIDTH-1:0] p_column,
    input wire [      BLOCK*8-1:0] p_data,

    input  wire [                STRIPS-1:0] request_valid,
    input  wire [                STRIPS-1:0] request_kind,   // 0 scores, 1 values
    input  wire [             STRIPS*18-1:0] request_tag,
    input  wire [    STRIPS*DEPTH_WIDTH-1:0] request_step,
    output reg  [        STRIPS*BLOCK*8-1:0] operand_a,
    output reg  [STRIPS*ARRAY_COLUMNS*8-1:0] operand_b
);

  localparam B_BITS = ARRAY_COLUMNS * 8;

  genvar n;
  generate
    for (n = 0; n < STRIPS; n = n + 1) begin : g_server
      wire [17:0] tag = request_tag[n*18+:18];
      wire [DEPTH_WIDTH-1:0] step = request_step[n*DEPTH_WIDTH+:DEPTH_WIDTH];
      wire read_scores = request_valid[n] && !request_kind[n];
      wire read_values = request_valid[n] && request_kind[n];
      wire [BLOCK*8-1:0] q_word, k_word, p_word;
      wire [HEAD_DIM*8-1:0] v_word;
      reg valid_1, kind_1;
      reg [5:0] strip_1;
      wire unused = &{1'b0, tag, step};

      block_buffer #(
          .WORDS(1 << (SLOT_WIDTH + CHANNEL_WIDTH)),
          .WORD_WIDTH(BLOCK * 8),
          .PART_WIDTH(BUS_WIDTH),
          .ADDRESS_WIDTH(SLOT_WIDTH + CHANNEL_WIDTH),
          .PART_BITS(5),
          .RAM_STYLE("ultra")
      ) queries (
          .clk(clk),
          .write(q_write),
          .write_address({q_slot, q_channel}),
          .write_part(q_part),
          .write_data(q_data),
          .read(read_scores),
          .read_address({tag[SLOT_WIDTH-1:0], step[CHANNEL_WIDTH-1:0]}),
          .read_data(q_word)
      );

      block_buffer #(
          .WORDS(1 << (BUFFER_WIDTH + CHANNEL_WIDTH)),
          .WORD_WIDTH(BLOCK * 8),
          .PART_WIDTH(BUS_WIDTH),
          .ADDRESS_WIDTH(BUFFER_WIDTH + CHANNEL_WIDTH),
          .PART_BITS(5)
      ) keys (
          .clk(clk),
          .write(k_write),
          .write_address({k_buffer, k_channel}),
          .write_part(k_part),
          .write_data(k_data),
          .read(read_scores),
          .read_address({tag[6+:BUFFER_WIDTH], step[CHANNEL_WIDTH-1:0]}),
          .read_data(k_word)
      );

      block_buffer #(
          .WORDS(1 << (BUFFER_WIDTH + ROW_WIDTH)),
          .WORD_WIDTH(HEAD_DIM * 8),
          .PART_WIDTH(BUS_WIDTH),
          .ADDRESS_WIDTH(BUFFER_WIDTH + ROW_WIDTH),
          .PART_BITS(5)
      ) values (
          .clk(clk),
          .write(v_write),
          .write_address({v_buffer, v_row}),
          .write_part(v_part),
          .write_data(v_data),
          .read(read_values),
          .read_address({tag[6+:BUFFER_WIDTH], step[ROW_WIDTH-1:0]}),
          .read_data(v_word)
      );

      block_buffer #(
          .WORDS(1 << (TILE_WIDTH + ROW_WIDTH)),
          .WORD_WIDTH(BLOCK * 8),
          .PART_WIDTH(BLOCK * 8),
          .ADDRESS_WIDTH(TILE_WIDTH + ROW_WIDTH),
          .PART_BITS(1)
      ) probabilities (
          .clk(clk),
          .write(p_write),
          .write_address({p_tile, p_column}),
          .write_part(1'b0),
          .write_data(p_data),
          .read(read_values),
          .read_address({tag[15+:TILE_WIDTH], step[ROW_WIDTH-1:0]}),
          .read_data(p_word)
      );

      always @(posedge clk) begin
        valid_1 <= request_valid[n];
        kind_1  <= request_kind[n];
        strip_1 <= tag[14:9];
        if (valid_1) begin
          operand_a[n*BLOCK*8+:BLOCK*8] <= kind_1 ? p_word : q_word;
          operand_b[n*B_BITS+:B_BITS] <=
              kind_1 ? v_word[strip_1*B_BITS+:B_BITS] : k_word[strip_1*B_BITS+:B_BITS];
        end
      end
    end
  endgenerate

endmodule

`default_nettype wire
