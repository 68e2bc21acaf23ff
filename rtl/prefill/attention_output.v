// SPDX-License-Identifier: Apache-2.0
// Divides finished accumulators by their row sums and writes them out, channel by channel.
//
// Purpose: o = rshift_round(rshift_round(A, drop) * r, m - drop + 8), 16 bits, with 1 / L = r 2^-(24+m)
//   and drop = max(m - 36, 0); docs/prefill_engine.md, "Accumulation over tiles".
// Protocol: s_finish hands a slot over; its rows' sums and its accumulators' words are read, then
//   slot_release gives it back. m_request names the block and m_axis brings its beats, channel by
//   channel, rows in ascending order; both are AXI4-Stream like.
// Latency: s_finish to the first beat BLOCK + 17 cycles. Throughput: one beat a cycle; the
//   reciprocals of the next block are found while a block is written.
// Limits: A over 2^drop has 40 bits, as |A| is at most about L.
// Structure: what a row is divided by is kept lane by lane, as each lane has its own rows. Shifts go in
//   steps of 4:1 selections, with one bit below for rounding.
`default_nettype none

module attention_output #(
    parameter BLOCK         = 128,  // rows
    parameter HEAD_DIM      = 128,  // channels
    parameter BUS_WIDTH     = 512,  // bits of a beat
    parameter ROW_WIDTH     = 7,    // bits of a row's number
    parameter CHANNEL_WIDTH = 7,    // bits of a channel's number
    parameter SLOT_WIDTH    = 4     // bits of a slot's number
) (
    input wire clk,
    input wire rst_n,

    input  wire                  s_finish_valid,
    output wire                  s_finish_ready,
    input  wire [SLOT_WIDTH-1:0] s_finish_slot,
    input  wire [           2:0] s_finish_head,
    input  wire [          11:0] s_finish_query,

    output wire                            sum_read,
    output wire [SLOT_WIDTH+ROW_WIDTH-1:0] sum_address,  // {slot, row}
    input  wire [                    60:0] sum,

    output wire                                word_read,
    output wire [SLOT_WIDTH+CHANNEL_WIDTH-1:0] word_address,  // {slot, channel}
    input  wire                                word_granted,
    input  wire [                BLOCK*48-1:0] word,

    output reg                   slot_release,
    output wire [SLOT_WIDTH-1:0] slot_release_slot,

    output wire                 m_request_valid,
    input  wire                 m_request_ready,
    output wire [          2:0] m_request_head,
    output wire [         11:0] m_request_query,
    output wire                 m_axis_tvalid,
    input  wire                 m_axis_tready,
    output wire [BUS_WIDTH-1:0] m_axis_tdata,

    input  wire        clear_counts,
    output reg  [31:0] empty_rows,    // rows whose sum is zero
    output wire        idle
);

  localparam LANES = BUS_WIDTH / 16;
  localparam [31:0] PARTS = BLOCK / LANES;
  localparam [4:0] LAST_PART = PARTS[4:0] - 5'd1;
  localparam PART_WIDTH = PARTS > 1 ? $clog2(PARTS) : 1;
  localparam [31:0] LAST_ROW_32 = BLOCK - 1;
  localparam [31:0] LAST_CHANNEL_32 = HEAD_DIM - 1;
  localparam [ROW_WIDTH-1:0] LAST_ROW = LAST_ROW_32[ROW_WIDTH-1:0];
  localparam [CHANNEL_WIDTH-1:0] LAST_CHANNEL = LAST_CHANNEL_32[CHANNEL_WIDTH-1:0];

  generate
    if (BLOCK % LANES != 0) begin : g_bus_width
      illegal_parameter_BUS_WIDTH stop ();
    end
  endgenerate

  // ---------------------------------------------------------------- reciprocals of the row sums

  // Two sets of reciprocals: one is found while the other is used.
  reg [1:0] filled;
  reg fill_set, use_set;
  reg dividing;
  reg [ROW_WIDTH-1:0] divide_row;
  reg [SLOT_WIDTH-1:0] set_slot[0:1];

  // {shift, drop, inverse} of the rows of a part: m up to 36, m above 36, r.
  reg [LANES*36-1:0] factors[0:(2<<PART_WIDTH)-1];

  reg [6:0] divide_valid, divide_last;  // one bit a stage
  wire division_busy = divide_valid != 7'd0;
  wire divided = divide_valid[6] && divide_last[6];  // the last reciprocal of a set is stored
  wire written;  // the last part of a block is on its way
  wire request_room;
  wire start_divide = s_finish_valid && s_finish_ready;

  assign s_finish_ready = !dividing && !filled[fill_set] && request_room && !division_busy;
  assign sum_read = dividing;
  assign sum_address = {set_slot[fill_set], divide_row};

  stream_fifo #(
      .WIDTH(15),
      .DEPTH(4)
  ) requests (
      .clk(clk),
      .rst_n(rst_n),
      .flush(1'b0),
      .s_axis_tdata({s_finish_head, s_finish_query}),
      .s_axis_tvalid(start_divide),
      .s_axis_tready(request_room),
      .m_axis_tdata({m_request_head, m_request_query}),
      .m_axis_tvalid(m_request_valid),
      .m_axis_tready(m_request_ready)
  );

  function automatic [5:0] leading_one(input [60:0] value);
    reg [31:0] n;
    begin
      leading_one = 6'd0;
      for (n = 0; n < 61; n = n + 1) if (value[n]) leading_one = n[5:0];
    end
  endfunction

  reg [60:0] sum_2;
  reg [5:0] leading_2, leading_3;
  reg zero_2, zero_3;
  reg [23:0] argument_3;
  wire [24:0] reciprocal;
  wire [6:0] side;
  wire [5:0] leading_7 = side[5:0];
  wire zero_7 = side[6];
  reg [ROW_WIDTH-1:0] store_row;
  // The bits below the leading one, as a fraction of 24 bits, cut.
  wire [60:0] aligned = sum_2 << (6'd60 - leading_2);

  quadratic #(
      .FUNCTION(2)
  ) reciprocal_of_sum (
      .clk(clk),
      .u  (argument_3),
      .y  (reciprocal)
  );

  delay_line #(
      .WIDTH (7),
      .CYCLES(4)
  ) beside_reciprocal (
      .clk(clk),
      .rst_n(rst_n),
      .in({zero_3, leading_3}),
      .out(side)
  );

  always @(posedge clk) begin
    if (!rst_n) begin
      dividing <= 1'b0;
      divide_valid <= 7'd0;
      filled <= 2'd0;
      fill_set <= 1'b0;
      empty_rows <= 32'd0;
    end else begin
      if (start_divide) dividing <= 1'b1;
      else if (divide_row == LAST_ROW) dividing <= 1'b0;
      divide_valid <= {divide_valid[5:0], dividing};
      if (divided) begin
        filled[fill_set] <= 1'b1;
        fill_set <= !fill_set;
      end
      if (written) filled[use_set] <= 1'b0;
      if (clear_counts) empty_rows <= 32'd0;
      else if (divide_valid[6] && zero_7) empty_rows <= empty_rows + 32'd1;
    end
    divide_last <= {divide_last[5:0], divide_row == LAST_ROW};
    if (start_divide) begin
      divide_row <= {ROW_WIDTH{1'b0}};
      store_row <= {ROW_WIDTH{1'b0}};
      set_slot[fill_set] <= s_finish_slot;
    end else begin
      if (dividing) divide_row <= divide_row + 1'b1;
      if (divide_valid[6]) store_row <= store_row + 1'b1;
    end
    sum_2 <= sum;
    leading_2 <= leading_one(sum);
    zero_2 <= sum == 61'd0;
    argument_3 <= aligned[59:36];
    leading_3 <= leading_2;
    zero_3 <= zero_2;
  end

  wire [31:0] store_row_32 = {{(32 - ROW_WIDTH) {1'b0}}, store_row};
  wire [31:0] store_lane = store_row_32 % LANES;
  wire [31:0] store_part = store_row_32 / LANES;
  wire [35:0] factor_7 = {
    leading_7 > 6'd36 ? 6'd36 : leading_7,
    leading_7 > 6'd36 ? leading_7[4:0] - 5'd4 : 5'd0,
    zero_7 ? 25'd0 : reciprocal
  };

  wire unused = &{1'b0, aligned, store_part};

  // At its own place: with a computed place, every bit has an enable of its own.
  genvar lane;
  generate
    for (lane = 0; lane < LANES; lane = lane + 1) begin : g_lane
      always @(posedge clk)
        if (divide_valid[6] && store_lane == lane)
          factors[{fill_set, store_part[PART_WIDTH-1:0]}][lane*36+:36] <= factor_7;
    end
  endgenerate

  // ---------------------------------------------------------------- words and beats

  reg [CHANNEL_WIDTH-1:0] read_channel;
  reg reading;  // words of the present block are left to read
  reg word_comes;  // the word read in the last cycle
  reg next_valid, current_valid;
  reg [BLOCK*48-1:0] next_word, current_word;
  reg [4:0] part;
  reg [CHANNEL_WIDTH-1:0] channel;
  reg valid_1, valid_2, valid_3;
  reg active;  // a block is being written

  wire out_valid = valid_3;
  wire advance = m_axis_tready || !out_valid;
  wire begin_block = !active && filled[use_set];
  wire use_part = current_valid && advance;
  wire word_used = use_part && part == LAST_PART;
  assign written = word_used && channel == LAST_CHANNEL;
  wire refill = next_valid && (!current_valid || word_used);

  assign word_read = reading && !word_comes && (!next_valid || refill);
  assign word_address = {set_slot[use_set], read_channel};
  assign slot_release_slot = set_slot[use_set];

  always @(posedge clk) begin
    if (!rst_n) begin
      {active, reading, word_comes, next_valid, current_valid} <= 5'd0;
      {valid_1, valid_2, valid_3} <= 3'd0;
      use_set <= 1'b0;
      slot_release <= 1'b0;
    end else begin
      if (begin_block) active <= 1'b1;
      else if (written) active <= 1'b0;
      if (begin_block) reading <= 1'b1;
      else if (word_granted && read_channel == LAST_CHANNEL) reading <= 1'b0;
      word_comes <= word_granted;
      if (word_comes) next_valid <= 1'b1;
      else if (refill) next_valid <= 1'b0;
      if (refill) current_valid <= 1'b1;
      else if (word_used) current_valid <= 1'b0;
      if (written) use_set <= !use_set;
      if (advance) {valid_3, valid_2, valid_1} <= {valid_2, valid_1, current_valid};
      // The last word has left the accumulators.
      slot_release <= word_comes && !reading;
    end
    if (begin_block) begin
      read_channel <= {CHANNEL_WIDTH{1'b0}};
      channel <= {CHANNEL_WIDTH{1'b0}};
      part <= 5'd0;
    end else begin
      if (word_granted) read_channel <= read_channel + 1'b1;
      if (use_part) part <= word_used ? 5'd0 : part + 5'd1;
      if (word_used) channel <= channel + 1'b1;
    end
    if (word_comes) next_word <= word;
    if (refill) current_word <= next_word;
  end

  reg signed [39:0] numerator_1[0:LANES-1];
  reg signed [63:0] product_2[0:LANES-1];
  reg [24:0] inverse_1[0:LANES-1];
  reg [5:0] shift_1[0:LANES-1], shift_2[0:LANES-1];
  reg [BUS_WIDTH-1:0] data;

  assign m_axis_tvalid = out_valid;
  assign m_axis_tdata = data;

  task automatic round_quotients;
    reg [31:0] i;
    reg [5:0] s;
    reg sign, clip;
    reg signed [63:0] value;
    reg [BUS_WIDTH-1:0] beat;
    begin
      for (i = 0; i < LANES; i = i + 1) begin
        s = shift_2[i];
        sign = product_2[i][63];
        value = product_2[i] >>> 7;
        value = s[5] ? value >>> 32 : s[4] ? value >>> 16 : value;
        clip = value[56:32] != {25{sign}};  // the steps below do not bring these down
        value = {{32{sign}}, value[31:0]};
        value = s[3] ? (s[2] ? value >>> 12 : value >>> 8) : s[2] ? value >>> 4 : value;
        value = s[1] ? (s[0] ? value >>> 3 : value >>> 2) : s[0] ? value >>> 1 : value;
        clip = clip || value[31:16] != {16{sign}};
        if (clip) value = {{48{sign}}, {15{!sign}}, 1'b0};
        else if (value[15:1] == 15'h7fff && !sign) value[0] = 1'b0;
        beat[i*16+:16] = value[16:1] + {15'd0, value[0]};
      end
      data <= beat;
    end
  endtask

  task automatic multiply;
    reg [31:0] i;
    reg signed [63:0] r, numerator;
    begin
      for (i = 0; i < LANES; i = i + 1) begin
        r = {39'd0, inverse_1[i]};
        numerator = {{24{numerator_1[i][39]}}, numerator_1[i]};
        product_2[i] = numerator * r;
        shift_2[i] = shift_1[i];
      end
    end
  endtask

  task automatic take_part;
    reg [31:0] i, p;
    reg [4:0] s;
    reg signed [63:0] value;
    reg [LANES*48-1:0] lanes;
    reg [LANES*36-1:0] factor;
    begin
      lanes = current_word[LANES*48-1:0];
      for (p = 1; p < PARTS; p = p + 1)
      if (part[PART_WIDTH-1:0] == p[PART_WIDTH-1:0]) lanes = current_word[p*LANES*48+:LANES*48];
      factor = factors[{use_set, part[PART_WIDTH-1:0]}];
      for (i = 0; i < LANES; i = i + 1) begin
        s = factor[i*36+25+:5];
        value = {{15{lanes[i*48+47]}}, lanes[i*48+:48], 1'b0};
        value = s[1] ? (s[0] ? value >>> 3 : value >>> 2) : s[0] ? value >>> 1 : value;
        value = s[3] ? (s[2] ? value >>> 12 : value >>> 8) : s[2] ? value >>> 4 : value;
        value = s[4] ? value >>> 16 : value;
        numerator_1[i] = value[40:1] + {39'd0, value[0]};
        inverse_1[i] = factor[i*36+:25];
        shift_1[i] = factor[i*36+30+:6];
      end
    end
  endtask

  always @(posedge clk) begin : datapath
    if (advance) begin
      if (valid_2) round_quotients;
      if (valid_1) multiply;
      if (current_valid) take_part;
    end
  end

  assign idle = !dividing && !division_busy && filled == 2'd0 && !active && !valid_1 && !valid_2 &&
      !valid_3 && !m_request_valid;

endmodule

`default_nettype wire
