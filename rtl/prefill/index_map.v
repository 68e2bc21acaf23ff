// SPDX-License-Identifier: Apache-2.0
// Query-aware map of a head, and the pairs that it keeps.
//
// Purpose: stores the shares of the rows, row r with columns 0 to r, each row from a new word on with
//   zeros behind it, and marks the pairs that cover gamma of the total (index_threshold, PAIRS). The
//   marks of every head stay for the scan.
// Protocol: clear (one cycle) begins a map; shares come one a cycle at most, rows ascending, the last
//   share of a row marked. select (one cycle) with head and gamma, after the last share, marks the
//   pairs; done is high for one cycle. Reads for the scan: word pair_word of row pair_row, in no other
//   phase, MAP_LANES bits of every head.
// Latency: pair_read to pair_bits 2 cycles; select to done as index_threshold with words of the map.
// Limits: fits says whether a map of so many blocks has at most MAP_ENTRIES entries, N (N + 1) / 2.
`default_nettype none

module index_map #(
    parameter MAX_BLOCKS  = 256,    // power of two, 2 to 2048
    parameter MAX_GROUP   = 4,      // 1 to 8
    parameter MAP_ENTRIES = 32896,  // entries of the largest map: 3 to 2098176
    parameter MAP_LANES   = 8       // entries of a word: power of two, 1 to 64
) (
    input wire clk,
    input wire rst_n,

    input  wire [11:0] blocks,
    output wire        fits,

    input wire        clear,
    input wire        share_valid,
    input wire        share_last,
    input wire [24:0] share,

    input  wire        select,
    input  wire [ 2:0] head,
    input  wire [16:0] gamma,
    output wire        done,

    input  wire                           pair_read,
    input  wire [                   11:0] pair_row,
    input  wire [                   11:0] pair_word,
    output wire [MAX_GROUP*MAP_LANES-1:0] pair_bits
);

  generate
    if (MAX_BLOCKS < 2 || MAX_BLOCKS > 2048 || (MAX_BLOCKS & (MAX_BLOCKS - 1)) != 0) begin : g_blocks
      illegal_parameter_MAX_BLOCKS stop ();
    end
    if (MAX_GROUP < 1 || MAX_GROUP > 8) begin : g_group
      illegal_parameter_MAX_GROUP stop ();
    end
    if (MAP_ENTRIES < 3 || MAP_ENTRIES > 2098176) begin : g_map_entries
      illegal_parameter_MAP_ENTRIES stop ();
    end
    if (MAP_LANES < 1 || MAP_LANES > 64 || (MAP_LANES & (MAP_LANES - 1)) != 0) begin : g_map_lanes
      illegal_parameter_MAP_LANES stop ();
    end
  endgenerate

  // Rows of the largest map that has a place, and the words of its rows.
  function automatic [31:0] map_rows(input [31:0] entries);
    reg [31:0] left;
    begin
      map_rows = 32'd0;
      left = entries;
      while (map_rows < MAX_BLOCKS && left > map_rows) begin
        map_rows = map_rows + 32'd1;
        left = left - map_rows;
      end
    end
  endfunction

  function automatic [31:0] map_words(input [31:0] rows);
    reg [31:0] n;
    begin
      map_words = 32'd0;
      for (n = 0; n < rows; n = n + 1) map_words = map_words + n / MAP_LANES + 32'd1;
    end
  endfunction

  localparam [31:0] ROWS = map_rows(MAP_ENTRIES);
  localparam [31:0] WORDS = map_words(ROWS);
  localparam ROW_BITS = $clog2(MAX_BLOCKS);
  localparam ADDRESS_BITS = $clog2(WORDS);
  localparam COUNT_BITS = ADDRESS_BITS + $clog2(MAP_LANES) + 1;
  localparam [31:0] LAST_LANE = MAP_LANES - 1;

  assign fits = {20'd0, blocks} <= ROWS;

  // ---- entries come in

  reg [MAP_LANES*25-1:0] map[0:WORDS-1];
  reg [MAP_LANES*25-1:0] gathered, filled;
  reg [ADDRESS_BITS-1:0] row_base[0:MAX_BLOCKS-1];
  reg [ADDRESS_BITS-1:0] address;  // where the next word goes
  reg [6:0] lane;
  reg [ROW_BITS-1:0] row;
  reg row_opens;
  reg [39:0] total;

  always @* begin : fill
    reg [31:0] i;
    filled = lane == 7'd0 ? {MAP_LANES * 25{1'b0}} : gathered;
    for (i = 0; i < MAP_LANES; i = i + 1) if (lane == i[6:0]) filled[i*25+:25] = share;
  end

  wire word_ends = share_last || lane == LAST_LANE[6:0];

  always @(posedge clk) begin
    if (clear) begin
      address <= {ADDRESS_BITS{1'b0}};
      lane <= 7'd0;
      row <= {ROW_BITS{1'b0}};
      row_opens <= 1'b1;
      total <= 40'd0;
    end else if (share_valid) begin
      lane <= word_ends ? 7'd0 : lane + 7'd1;
      if (word_ends) address <= address + 1'b1;
      if (share_last) row <= row + 1'b1;
      row_opens <= share_last;
      total <= total + {15'd0, share};
    end
    if (share_valid) begin
      gathered <= filled;
      if (word_ends) map[address] <= filled;
      if (row_opens) row_base[row] <= address;
    end
  end

  // ---- pairs

  wire read;
  wire [ADDRESS_BITS-1:0] read_address;
  reg [MAP_LANES*25-1:0] values;
  wire mark_valid;
  wire [ADDRESS_BITS-1:0] mark_address;
  wire [MAP_LANES-1:0] mark_bits;
  wire [COUNT_BITS-1:0] count;

  always @(posedge clk) if (read) values <= map[read_address];

  index_threshold #(
      .VALUE_BITS(25),
      .LANES(MAP_LANES),
      .ADDRESS_BITS(ADDRESS_BITS),
      .COUNT_BITS(COUNT_BITS)
  ) bisection (
      .clk(clk),
      .rst_n(rst_n),
      .start(select),
      .mode(2'd2),
      .wanted({COUNT_BITS{1'b0}}),
      .gamma(gamma),
      .total(total),
      .last_word(address - 1'b1),
      .last_lanes({MAP_LANES{1'b1}}),
      .done(done),
      .count(count),
      .read(read),
      .address(read_address),
      .values(values),
      .mark_valid(mark_valid),
      .mark_address(mark_address),
      .mark_bits(mark_bits)
  );

  reg [ADDRESS_BITS-1:0] base_1;
  reg [11:0] word_1;
  wire [31:0] pair_address = {{32 - ADDRESS_BITS{1'b0}}, base_1} + {20'd0, word_1};

  always @(posedge clk)
    if (pair_read) begin
      base_1 <= row_base[pair_row[ROW_BITS-1:0]];
      word_1 <= pair_word;
    end

  genvar h;
  generate
    for (h = 0; h < MAX_GROUP; h = h + 1) begin : g_head
      localparam [31:0] H = h;
      reg [MAP_LANES-1:0] pairs[0:WORDS-1];
      reg [MAP_LANES-1:0] bits_2;
      always @(posedge clk) begin
        if (mark_valid && head == H[2:0]) pairs[mark_address] <= mark_bits;
        bits_2 <= pairs[pair_address[ADDRESS_BITS-1:0]];
      end
      assign pair_bits[h*MAP_LANES+:MAP_LANES] = bits_2;
    end
  endgenerate

  wire unused = &{1'b0, count, pair_row, pair_address};

endmodule

`default_nettype wire
