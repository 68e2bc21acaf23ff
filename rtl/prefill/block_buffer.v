// SPDX-License-Identifier: Apache-2.0
// Buffer of words that memory beats fill and the matrix unit reads whole.
//
// Purpose: one copy of a Q, K, V or P store for one server of the matrix unit.
// Protocol: write puts write_data into part write_part of word write_address; read puts word
//   read_address on read_data one cycle later, where it stays until the next read.
// Latency 1 cycle; one write and one read a cycle. A word read while it is written is undefined.
`default_nettype none

module block_buffer #(
    parameter WORDS         = 512,    // words, >= 2
    parameter WORD_WIDTH    = 1024,   // bits of a word, a multiple of PART_WIDTH
    parameter PART_WIDTH    = 512,    // bits of a write
    parameter ADDRESS_WIDTH = 9,      // bits of a word's number, enough for WORDS
    parameter PART_BITS     = 1,      // bits of a part's number, enough for all parts of a word
    parameter RAM_STYLE     = "block" // or "ultra": the kind of memory on the chip
) (
    input wire clk,

    input wire                     write,
    input wire [ADDRESS_WIDTH-1:0] write_address,
    input wire [    PART_BITS-1:0] write_part,
    input wire [   PART_WIDTH-1:0] write_data,

    input  wire                     read,
    input  wire [ADDRESS_WIDTH-1:0] read_address,
    output reg  [   WORD_WIDTH-1:0] read_data
);

  localparam PARTS = WORD_WIDTH / PART_WIDTH;

  generate
    if (WORDS < 2 || WORDS > (1 << ADDRESS_WIDTH)) begin : g_words
      illegal_parameter_WORDS stop ();
    end
    if (WORD_WIDTH % PART_WIDTH != 0) begin : g_word_width
      illegal_parameter_WORD_WIDTH stop ();
    end
    if (PARTS > (1 << PART_BITS)) begin : g_part_bits
      illegal_parameter_PART_BITS stop ();
    end
    if (RAM_STYLE != "block" && RAM_STYLE != "ultra") begin : g_ram_style
      illegal_parameter_RAM_STYLE stop ();
    end
  endgenerate

  (* ram_style = RAM_STYLE *) reg [WORD_WIDTH-1:0] memory[0:WORDS-1];

  always @(posedge clk) begin
    if (read) read_data <= memory[read_address];
  end

  generate
    if (PARTS == 1) begin : g_whole
      wire unused = &{1'b0, write_part};
      always @(posedge clk) if (write) memory[write_address] <= write_data;
    end else begin : g_parts
      always @(posedge clk)
        if (write) memory[write_address][write_part*PART_WIDTH+:PART_WIDTH] <= write_data;
    end
  endgenerate

endmodule

`default_nettype wire
