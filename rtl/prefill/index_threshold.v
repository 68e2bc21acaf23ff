// SPDX-License-Identifier: Apache-2.0
// Selection by threshold: bisection on the value, one bit a pass, no sort.
//
// Purpose: finds the largest threshold T for which a condition holds on the entries >= T, then
//   COVER: count, the entries above T and as many T as the sum needs to reach gamma * total;
//     condition sum * 2^16 >= gamma * total.
//   BEST:  marks entry 0 and the wanted best of the others, equal ones in ascending order;
//     condition: at least wanted entries, entry 0 apart.
//   PAIRS: marks the entries above T, and those equal to T, ascending, while the sum is at most
//     gamma * total; all entries for gamma = 2^16. Condition sum * 2^16 > gamma * total.
// Protocol: start (one cycle) with stable mode, wanted, gamma, total, last_word and last_lanes, the
//   lanes of the last word that are entries. read asks for the word at address, whose values are
//   there in the next cycle. Marks come in ascending order, one word each; done is high for one cycle
//   after the last of them, or with count.
// Latency: (W + 4) (VALUE_BITS + 1) + 3 cycles from start to done for W words; with marks W more; in
//   COVER and PAIRS one more for each of the equal entries that are taken, in PAIRS another one for
//   the first that is not. W + 3 if PAIRS takes all.
// Limits: the sum of all entries, total, is at least 1 in COVER and PAIRS and below 2^40.
`default_nettype none

module index_threshold #(
    parameter VALUE_BITS   = 40,  // bits of an entry: 1 to 40
    parameter LANES        = 8,   // entries of a word: power of two, 1 to 64
    parameter ADDRESS_BITS = 12,  // bits of a word address
    parameter COUNT_BITS   = 12   // bits of a number of entries
) (
    input wire clk,
    input wire rst_n,

    input  wire                        start,
    input  wire [                 1:0] mode,        // 0 COVER, 1 BEST, 2 PAIRS
    input  wire [      COUNT_BITS-1:0] wanted,
    input  wire [                16:0] gamma,
    input  wire [                39:0] total,
    input  wire [    ADDRESS_BITS-1:0] last_word,
    input  wire [           LANES-1:0] last_lanes,
    output reg                         done,
    output reg  [      COUNT_BITS-1:0] count,

    output wire                        read,
    output reg  [    ADDRESS_BITS-1:0] address,
    input  wire [LANES*VALUE_BITS-1:0] values,

    output reg                     mark_valid,
    output reg  [ADDRESS_BITS-1:0] mark_address,
    output reg  [       LANES-1:0] mark_bits
);

  generate
    if (VALUE_BITS < 1 || VALUE_BITS > 40) begin : g_value_bits
      illegal_parameter_VALUE_BITS stop ();
    end
    if (LANES < 1 || LANES > 64 || (LANES & (LANES - 1)) != 0) begin : g_lanes
      illegal_parameter_LANES stop ();
    end
  endgenerate

  localparam [1:0] COVER = 2'd0, BEST = 2'd1, PAIRS = 2'd2;
  localparam [2:0] IDLE = 3'd0, BISECT = 3'd1, ABOVE = 3'd2, TIES = 3'd3, MARK = 3'd4, END = 3'd5;
  localparam [VALUE_BITS-1:0] HIGHEST = {1'b1, {VALUE_BITS - 1{1'b0}}};
  localparam LANE_COUNT_BITS = $clog2(LANES) + 1;

  reg [2:0] state;
  reg reading;
  reg [VALUE_BITS-1:0] threshold, bit_mask;  // bit_mask: the bit that the pass decides
  reg [56:0] target;
  reg [39:0] sum;
  reg [COUNT_BITS-1:0] ties;  // equal entries to mark

  wire take_all = mode == PAIRS && gamma[16];
  wire [VALUE_BITS-1:0] candidate = state == BISECT ? threshold | bit_mask : threshold;
  wire strict = state != BISECT;
  wire at_last = address == last_word;

  assign read = reading;

  // ---- a pass: compare, add up the entries that are in

  reg valid_1, last_1, first_1;
  reg [ADDRESS_BITS-1:0] address_1;
  reg [LANES-1:0] in_1, equal_1;  // entries of the word that count, and those equal to T

  always @* begin : compare
    reg [31:0] i;
    reg [VALUE_BITS-1:0] value;
    for (i = 0; i < LANES; i = i + 1) begin
      value = values[i*VALUE_BITS+:VALUE_BITS];
      in_1[i] = (!last_1 || last_lanes[i]) && !(mode == BEST && first_1 && i == 32'd0) &&
          (value > candidate || (value == candidate && !strict));
      equal_1[i] = (!last_1 || last_lanes[i]) && !(mode == BEST && first_1 && i == 32'd0) &&
          value == candidate;
    end
  end

  reg valid_2, last_2, opens_2, valid_3, last_3, opens_3, decide;
  reg [LANES-1:0] in_2;
  reg [LANES*VALUE_BITS-1:0] values_2;
  reg [39:0] word_sum, word_sum_3, pass_sum;
  reg [LANE_COUNT_BITS-1:0] word_count, word_count_3;
  reg [COUNT_BITS-1:0] pass_count;

  always @* begin : add_word
    reg [31:0] i;
    reg [39:0] value;
    word_sum   = 40'd0;
    word_count = {LANE_COUNT_BITS{1'b0}};
    for (i = 0; i < LANES; i = i + 1) begin
      value = 40'd0;
      value[VALUE_BITS-1:0] = values_2[i*VALUE_BITS+:VALUE_BITS];
      if (in_2[i]) begin
        word_sum   = word_sum + value;
        word_count = word_count + 1'b1;
      end
    end
  end

  // ---- marks: entries above T and the first of the equal ones

  reg [LANES-1:0] chosen_1;
  reg [COUNT_BITS-1:0] ties_left;
  always @* begin : choose
    reg [31:0] i;
    chosen_1  = in_1;
    ties_left = ties;
    for (i = 0; i < LANES; i = i + 1)
    if (equal_1[i] && ties_left != {COUNT_BITS{1'b0}}) begin
      chosen_1[i] = 1'b1;
      ties_left   = ties_left - 1'b1;
    end
    if (mode == BEST && first_1) chosen_1[0] = 1'b1;
    if (take_all) chosen_1 = {LANES{1'b1}};
  end

  wire [56:0] pass_scaled = {1'b0, pass_sum, 16'd0};
  wire [40:0] sum_with_tie = {1'b0, sum} + {{41 - VALUE_BITS{1'b0}}, threshold};
  wire holds = mode == BEST ? pass_count >= wanted :
      mode == PAIRS ? pass_scaled > target : pass_scaled >= target;
  wire reached = {1'b0, sum, 16'd0} >= target;
  wire tie_fits = {sum_with_tie, 16'd0} <= target;

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      reading <= 1'b0;
      {valid_1, valid_2, valid_3, last_1, last_2, last_3, decide} <= 7'b0;
      done <= 1'b0;
      mark_valid <= 1'b0;
    end else begin
      valid_1 <= reading;
      last_1 <= reading && at_last;
      {valid_3, valid_2} <= {valid_2, valid_1 && state != MARK};
      {decide, last_3, last_2} <= {last_3, last_2, last_1 && state != MARK};
      mark_valid <= valid_1 && state == MARK;
      done <= state == END;
      if (reading && at_last) reading <= 1'b0;
      case (state)
        IDLE:
        if (start) begin
          state   <= take_all ? MARK : BISECT;
          reading <= 1'b1;
        end
        BISECT:
        if (decide) begin
          if (bit_mask[0]) state <= ABOVE;
          reading <= 1'b1;
        end
        ABOVE:
        if (decide) begin
          state <= mode == BEST ? MARK : TIES;
          if (mode == BEST) reading <= 1'b1;
        end
        TIES:
        if (mode == COVER ? reached : !tie_fits) begin
          state <= mode == COVER ? END : MARK;
          if (mode == PAIRS) reading <= 1'b1;
        end
        MARK: if (last_1) state <= END;
        default: state <= IDLE;  // END
      endcase
    end
  end

  always @(posedge clk) begin
    address <= reading && !at_last ? address + 1'b1 : {ADDRESS_BITS{1'b0}};
    address_1 <= address;
    first_1 <= address == {ADDRESS_BITS{1'b0}};

    in_2 <= in_1;
    values_2 <= values;
    opens_2 <= first_1;
    opens_3 <= opens_2;
    word_sum_3 <= word_sum;
    word_count_3 <= word_count;
    if (valid_3) begin
      pass_sum <= opens_3 ? word_sum_3 : pass_sum + word_sum_3;
      pass_count <= (opens_3 ? {COUNT_BITS{1'b0}} : pass_count) +
          {{COUNT_BITS - LANE_COUNT_BITS{1'b0}}, word_count_3};
    end

    if (start && state == IDLE) begin
      target <= gamma * total;
      threshold <= {VALUE_BITS{1'b0}};
      bit_mask <= HIGHEST;
    end
    if (state == BISECT && decide) begin
      if (holds) threshold <= candidate;
      bit_mask <= bit_mask >> 1;
    end
    case (state)
      IDLE: ties <= {COUNT_BITS{1'b0}};
      ABOVE:
      if (decide) begin
        sum <= pass_sum;
        count <= pass_count;
        // Fewer than wanted are above the largest T with as many or more that reach it.
        if (mode == BEST) ties <= wanted - pass_count;
      end
      TIES: begin
        sum <= sum_with_tie[39:0];
        if (mode == COVER && !reached) count <= count + 1'b1;
        if (mode == PAIRS && tie_fits) ties <= ties + 1'b1;
      end
      MARK: if (valid_1) ties <= ties_left;
      default: ;
    endcase

    mark_address <= address_1;
    mark_bits <= chosen_1;
  end

endmodule

`default_nettype wire
