// SPDX-License-Identifier: Apache-2.0
// Properties of index_threshold.
//
// Proved: of any entries, the marks are those that the definition of BEST and PAIRS asks for, worked
//   out here by ranks instead of bisection, and count is that of COVER; words are marked in ascending
//   order, once each; done comes once, after the last mark, in the very cycle that the cell states;
//   afterwards the cell is as idle as after reset, so the next run is such a first one.
// How: all cycles of a run from reset to its end, any entries in at most WORDS words; registers that
//   reset leaves alone hold anything. No bit of the values is special: the width only sets the number
//   of passes.
// Assumed: settings and entries are stable in the run; total is the sum of the entries, at least 1 in
//   COVER and PAIRS; the word that was asked for comes in the next cycle; one start.
`default_nettype none

module index_threshold_checks #(
    parameter VALUE_BITS = 2,
    parameter LANES = 2,
    parameter ADDRESS_BITS = 1,
    parameter COUNT_BITS = 3
) (
    input wire clk,
    input wire rst_n,

    input wire                        start,
    input wire [                 1:0] mode,
    input wire [      COUNT_BITS-1:0] wanted,
    input wire [                16:0] gamma,
    input wire [                39:0] total,
    input wire [    ADDRESS_BITS-1:0] last_word,
    input wire [           LANES-1:0] last_lanes,
    input wire                        done,
    input wire [      COUNT_BITS-1:0] count,
    input wire                        read,
    input wire [    ADDRESS_BITS-1:0] address,
    input wire [LANES*VALUE_BITS-1:0] values,
    input wire                        mark_valid,
    input wire [    ADDRESS_BITS-1:0] mark_address,
    input wire [           LANES-1:0] mark_bits,

    input wire [2:0] state,
    input wire       reading,
    input wire       valid_1,
    input wire       valid_2,
    input wire       valid_3,
    input wire       last_1,
    input wire       last_2,
    input wire       last_3,
    input wire       decide
);

  localparam [1:0] COVER = 2'd0, BEST = 2'd1, PAIRS = 2'd2;
  localparam WORDS = 1 << ADDRESS_BITS;
  localparam ENTRIES = WORDS * LANES;
  localparam [31:0] ENTRIES_32 = ENTRIES;
  localparam [31:0] LANES_32 = LANES;
  localparam [31:0] PASSES = VALUE_BITS + 1;
  localparam SUM_BITS = VALUE_BITS + $clog2(ENTRIES) + 1;

  wire [1:0] the_mode;
  wire [COUNT_BITS-1:0] the_wanted;
  wire [16:0] the_gamma;
  wire [ADDRESS_BITS-1:0] the_last;
  wire [LANES-1:0] the_lanes;
  wire [ENTRIES*VALUE_BITS-1:0] entries;
  any_constant #(.WIDTH(2)) mode_source (.value(the_mode));
  any_constant #(.WIDTH(COUNT_BITS)) wanted_source (.value(the_wanted));
  any_constant #(.WIDTH(17)) gamma_source (.value(the_gamma));
  any_constant #(.WIDTH(ADDRESS_BITS)) last_source (.value(the_last));
  any_constant #(.WIDTH(LANES)) lanes_source (.value(the_lanes));
  any_constant #(.WIDTH(ENTRIES * VALUE_BITS)) entries_source (.value(entries));

  // ---- what the marks and the count must be

  reg [ENTRIES-1:0] present;
  reg [SUM_BITS-1:0] sum_up_to[0:ENTRIES];  // of the best ones
  reg [31:0] rank[0:ENTRIES-1];  // entries that come before this one
  reg [31:0] rank_of_others[0:ENTRIES-1];  // without entry 0
  reg [ENTRIES-1:0] due;
  reg [31:0] covering;
  wire [SUM_BITS+16:0] target = the_gamma * sum_up_to[ENTRIES];
  wire take_all = the_mode == PAIRS && the_gamma[16];

  always @* begin : define
    reg [31:0] i, j;
    reg [VALUE_BITS-1:0] x, y;
    reg better;
    for (i = 0; i < ENTRIES_32; i = i + 1)
      present[i] = i / LANES_32 < {{32 - ADDRESS_BITS{1'b0}}, the_last} ||
          (i / LANES_32 == {{32 - ADDRESS_BITS{1'b0}}, the_last} && the_lanes[i % LANES_32]);
    for (i = 0; i < ENTRIES_32; i = i + 1) begin
      x = entries[i*VALUE_BITS+:VALUE_BITS];
      rank[i] = 32'd0;
      rank_of_others[i] = 32'd0;
      for (j = 0; j < ENTRIES_32; j = j + 1) begin
        y = entries[j*VALUE_BITS+:VALUE_BITS];
        better = present[j] && (y > x || (y == x && j < i));
        rank[i] = rank[i] + {31'd0, better};
        rank_of_others[i] = rank_of_others[i] + {31'd0, better && j != 32'd0};
      end
    end
    for (j = 0; j <= ENTRIES_32; j = j + 1) begin
      sum_up_to[j] = {SUM_BITS{1'b0}};
      for (i = 0; i < ENTRIES_32; i = i + 1)
        if (present[i] && rank[i] < j)
          sum_up_to[j] = sum_up_to[j] + {{SUM_BITS - VALUE_BITS{1'b0}}, entries[i*VALUE_BITS+:VALUE_BITS]};
    end
  end

  always @* begin : decide_marks
    reg [31:0] i;
    covering = ENTRIES_32;
    for (i = 0; i <= ENTRIES_32; i = i + 1)
      if (covering == ENTRIES_32 && {1'b0, sum_up_to[i], 16'd0} >= {1'b0, target}) covering = i;
    for (i = 0; i < ENTRIES_32; i = i + 1)
      if (the_mode == BEST)
        due[i] = present[i] && (i == 32'd0 || rank_of_others[i] < {{32 - COUNT_BITS{1'b0}}, the_wanted});
      else due[i] = present[i] && (take_all || {sum_up_to[rank[i]+1], 16'd0} <= target);
  end

  // ---- one run

  reg has_past = 1'b0;
  reg begun = 1'b0;
  reg over;
  reg [31:0] cycles, words_marked;
  reg [ENTRIES-1:0] marked;
  reg was_read;
  reg [ADDRESS_BITS-1:0] read_address;

  always @(posedge clk) begin
    has_past <= 1'b1;
    was_read <= read;
    read_address <= address;
    if (!rst_n) {begun, over} <= 2'd0;
    else begin
      begun <= begun || start;
      over  <= over || done;
    end
    cycles <= begun ? cycles + 32'd1 : 32'd1;
    if (!begun) begin
      marked <= 0;
      words_marked <= 32'd0;
    end else if (mark_valid) begin
      marked[mark_address*LANES+:LANES] <= mark_bits;
      words_marked <= words_marked + 32'd1;
    end
  end

  always @(posedge clk) begin
    assume (rst_n == has_past);
    assume (start == (has_past && !begun));
    assume ({mode, wanted, gamma} == {the_mode, the_wanted, the_gamma});
    assume (mode != 2'd3 && gamma <= 17'd65536);
    assume (last_word == the_last && last_lanes == the_lanes);
    assume (the_lanes[0] && (the_lanes & (the_lanes + 1'b1)) == 0);  // the first ones of the last word
    assume (total == {{40 - SUM_BITS{1'b0}}, sum_up_to[ENTRIES]});
    assume (mode == BEST || total != 40'd0);
    if (was_read) assume (values == entries[read_address*LANES*VALUE_BITS+:LANES*VALUE_BITS]);
  end

  // Entries that are taken of those that are equal at the edge.
  reg [31:0] edge_rank, tied;
  reg [VALUE_BITS-1:0] edge_value;
  always @* begin : count_ties
    reg [31:0] i;
    edge_rank = 32'd0;
    for (i = 0; i < ENTRIES_32; i = i + 1) edge_rank = edge_rank + {31'd0, due[i]};
    if (the_mode == COVER) edge_rank = covering - 32'd1;
    edge_value = {VALUE_BITS{1'b0}};
    for (i = 0; i < ENTRIES_32; i = i + 1)
      if (present[i] && rank[i] == edge_rank) edge_value = entries[i*VALUE_BITS+:VALUE_BITS];
    tied = 32'd0;
    for (i = 0; i < ENTRIES_32; i = i + 1)
      if (entries[i*VALUE_BITS+:VALUE_BITS] == edge_value && present[i] &&
          (the_mode == COVER ? rank[i] < covering : due[i]))
        tied = tied + 32'd1;
  end

  wire [31:0] words = {{32 - ADDRESS_BITS{1'b0}}, the_last} + 32'd1;
  wire [31:0] latency = take_all ? words + 32'd3 : (words + 32'd4) * PASSES + 32'd3 +
      (mode == COVER ? 32'd0 : words) + (mode == BEST ? 32'd0 : tied) + {31'd0, mode == PAIRS};

  always @(posedge clk)
    if (begun) begin
      assert (!over || !done);
      assert (!over || !mark_valid);
      assert (over || done == (cycles == latency));
      if (mark_valid) assert (mode != COVER && words_marked == {{32 - ADDRESS_BITS{1'b0}}, mark_address});
      if (done) begin
        if (mode == COVER) assert ({{32 - COUNT_BITS{1'b0}}, count} == covering);
        else begin
          assert (words_marked == words);
          assert ((marked & present) == due);
        end
      end
      if (done || over) begin
        assert (state == 3'd0);
        assert (!reading && {valid_1, valid_2, valid_3, last_1, last_2, last_3, decide} == 7'd0);
      end
    end

  always @(posedge clk) begin
    cover (begun && over && mode == COVER && count == 2 && last_word != 0);
    cover (begun && over && mode == BEST && last_word != 0 && wanted == 2);
    cover (begun && over && mode == PAIRS && last_word != 0 && marked == 3);
  end

endmodule

bind index_threshold index_threshold_checks #(
    .VALUE_BITS(VALUE_BITS),
    .LANES(LANES),
    .ADDRESS_BITS(ADDRESS_BITS),
    .COUNT_BITS(COUNT_BITS)
) checks (.*);

`default_nettype wire
