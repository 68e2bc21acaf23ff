// SPDX-License-Identifier: Apache-2.0
// Softmax of score tiles in base two, with an exponent for each row and tile.
//
// Purpose: turns the sums of the matrix unit, one column of keys a cycle, into scores in log2 units,
//   row exponents, probabilities of 8 bits, and sums of shares; formulas: docs/prefill_engine.md,
//   "Scores and probabilities of a tile".
// Protocol: two passes over a tile, each a column a cycle. Scoring takes the columns of a tile in
//   ascending order on s_scores and asks for the facts and row parameters of tile s_tile (answered
//   in the same cycle). Then p_write gives P - 128 a column at a time, and scored pulses when all are
//   written; the rows follow on row, one a cycle. Key j counts in row i when j <= i + limit.
//   In a statistics tile v's shifts are left out.
// Latency: last column of scores to the first of P 8 cycles, last of P to the first row 3 cycles.
// Throughput: a tile every BLOCK + 7 cycles; scoring, P and rows of three tiles overlap.
// Limits: a row's exponent plus k_shift is 8 to 70, or its multiplier 0; columns of a tile come all and
//   in ascending order.
// Structure: shifts keep one bit below for rounding; what no result needs falls away before their last
//   steps, and the last step of a share is part of its sum's look-up tables. The table of powers is block
//   memory, one for two rows.
// Error: scores are rounded to 2^-9, shares to half a step of 2^(exponent - 16), table included.
`default_nettype none

module tile_softmax #(
    parameter BLOCK        = 128,  // rows and columns of a tile, 8 to 128
    parameter COLUMN_WIDTH = 7     // bits of a column's number, enough for BLOCK
) (
    input wire clk,
    input wire rst_n,

    input  wire                    s_scores_valid,
    output wire                    s_scores_ready,
    input  wire [             2:0] s_scores_tile,
    input  wire [COLUMN_WIDTH-1:0] s_scores_column,
    input  wire [    BLOCK*32-1:0] s_scores_sums,    // row i in word i, signed

    // Facts of tile s_scores_tile.
    input wire               tile_statistics,
    input wire signed [ 8:0] tile_limit,       // -BLOCK to BLOCK
    input wire [BLOCK*8-1:0] row_multipliers_low,
    input wire [BLOCK*8-1:0] row_multipliers_high,
    input wire [BLOCK*8-1:0] row_exponents,
    input wire [BLOCK*8-1:0] key_shifts,       // k_shift + 16 v_shift

    output reg                     p_write,
    output reg  [             2:0] p_tile,
    output reg  [COLUMN_WIDTH-1:0] p_column,
    output reg  [     BLOCK*8-1:0] p_data,   // P - 128 of row i in byte i
    output reg                     scored,   // one cycle, after the last column of a tile

    output reg                     row_valid,
    output reg                     row_statistics,
    output reg  [             2:0] row_tile,
    output reg  [COLUMN_WIDTH-1:0] row_index,
    output reg                     row_last,
    output reg  [            15:0] row_exponent,   // signed; -32768 in a row without a key
    output reg  [            38:0] row_sum,        // of all shares
    output reg  [            23:0] row_far,        // of those with column <= row, statistics only
    output wire                    idle
);

  generate
    if (BLOCK < 8 || BLOCK > 128 || BLOCK > (1 << COLUMN_WIDTH)) begin : g_block
      illegal_parameter_BLOCK stop ();
    end
  endgenerate

  localparam [31:0] LAST_32 = BLOCK - 1;
  localparam [COLUMN_WIDTH-1:0] LAST = LAST_32[COLUMN_WIDTH-1:0];
  // No score: these are at least -(2^23 - 2^13) - 15 * 2^8. Its exponent is that of a row without a key.
  localparam signed [23:0] LOWEST = -24'sd8388608;

  // round(2^(16 - f / 256)), f = 0 lowest, 17 bits each; tests compare it with the model's.
  localparam [4351:0] EXP2 = {
    340'h402ca02c90216816540dfa086504e682ce419420e0d07be843a424b213c90a9c85ab4304219950d84871f,
    340'h43bea1f6d10748898447ba2559136a8a15453aa2b55166a8b9645fba316119728d1b46bea377d1c828ea4,
    340'h4783a3dad1f9c9032484b243e922be91c44914a4a3925e8935a49e02509d291c94f54aae257112c589694,
    340'h4b7ea5d952f9e98384c512643132ec99e04d25a6ad936449b8d4dfca719539a49d3f4ed6278653d0e9ef5,
    340'h4fb227f494082a0b05090286414400a2705170a8d494786a4355253a94654b18a5ff533929b994eb2a7ce,
    340'h54212a2dd5258a9a1550baaa355608ab7a55f8ab1a559c0ad5856e8ab9255d84af3b57daac0bd6152b124,
    340'h58cfac869652cb31259c72d02d6910b5055ac1ad8056cfeb6fe5bbeadff170f8b8fc5cbe2e7f574fcbaff,
    340'h5dc0af00d790cbd095ec62f83d7d26bf185fce30085814ec12c60d9308e58580c34761e73115989bec567,
    340'h62f8319e98e06c78d640c3228d925cc9ba652332b4996becbec663d334219b2cce25675a33d0d9fa6d063,
    340'h687a34615a42cd2a8699d34f35a8c0d4f36ac3b586dad60d7456bed361c1b20cd99d6d1a36b31b6c6dbfc,
    340'h6e4a374b9bb8ede616f7db7e59c062e0cd70b4b8815c544e34071eeb91edca34e5b9732c39be1cf32e839,
    340'h746dba5f1d43ceac175b23b01dd956ed4f76fa3ba65de7eefe57845bc4c9e3b4f28179953cf4de8f8f525,
    272'h7ae83d9e9ee4af7d17c3ebe4a5f3acfa847d993ef81f91efd3e7ef73fa79fe9f0000
  };

  // ---------------------------------------------------------------- control

  // Scoring: wait for a tile and its row parameters, take its columns, let the pipeline run empty,
  // hand the tile over when the pass before is free.
  localparam [1:0] WAIT = 2'd0;
  localparam [1:0] SCORE = 2'd1;
  localparam [1:0] SETTLE = 2'd2;
  localparam [1:0] HAND_OVER = 2'd3;

  reg [1:0] state;
  reg [1:0] settle_count;
  reg half;  // half of the score buffer that scoring fills
  reg [2:0] scoring_tile;
  reg scoring_statistics;
  reg signed [8:0] scoring_limit;

  reg spreading;  // second pass: scores to P
  reg [COLUMN_WIDTH-1:0] spread_column;
  reg spread_half, spread_statistics;
  reg [2:0] spread_tile;
  reg signed [8:0] spread_limit;
  reg valid_1, valid_2, valid_3, last_1, last_2, last_3;
  reg [COLUMN_WIDTH-1:0] column_1, column_2, column_3;

  reg rows_left;  // the rows of a tile are being given out
  reg [COLUMN_WIDTH-1:0] next_row;
  reg rows_statistics;
  reg [2:0] rows_tile;

  wire take = s_scores_valid && s_scores_ready;
  wire load_rows = state == WAIT && s_scores_valid;
  wire spread_busy = spreading || valid_1 || valid_2 || valid_3;
  wire hand_over = state == HAND_OVER && !spread_busy;
  wire give_rows = valid_3 && last_3;

  assign s_scores_ready = state == SCORE;
  assign idle = state == WAIT && !spread_busy && !rows_left && !row_valid && !p_write;

  reg score_valid_1, score_valid_2, score_valid_3;
  reg [COLUMN_WIDTH-1:0] score_column_1, score_column_2, score_column_3;

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= WAIT;
      settle_count <= 2'd0;
      half <= 1'b0;
      spreading <= 1'b0;
      {valid_1, valid_2, valid_3} <= 3'd0;
      {score_valid_1, score_valid_2, score_valid_3} <= 3'd0;
      rows_left <= 1'b0;
      {p_write, scored, row_valid} <= 3'd0;
    end else begin
      case (state)
        WAIT: if (s_scores_valid) state <= SCORE;
        SCORE: begin
          settle_count <= 2'd0;
          if (take && s_scores_column == LAST) state <= SETTLE;
        end
        SETTLE: begin
          settle_count <= settle_count + 2'd1;
          if (settle_count == 2'd2) state <= HAND_OVER;
        end
        default: if (hand_over) state <= WAIT;
      endcase
      if (hand_over) half <= !half;
      {score_valid_3, score_valid_2, score_valid_1} <= {score_valid_2, score_valid_1, take};

      if (hand_over) spreading <= 1'b1;
      else if (spread_column == LAST) spreading <= 1'b0;
      {valid_3, valid_2, valid_1} <= {valid_2, valid_1, spreading};

      p_write <= valid_3 && !spread_statistics;
      scored <= give_rows;
      if (give_rows) rows_left <= 1'b1;
      else if (next_row == LAST) rows_left <= 1'b0;
      row_valid <= rows_left;
    end
    if (load_rows) begin
      scoring_tile <= s_scores_tile;
      scoring_statistics <= tile_statistics;
      scoring_limit <= tile_limit;
    end
    if (hand_over) begin
      spread_half <= half;
      spread_tile <= scoring_tile;
      spread_statistics <= scoring_statistics;
      spread_limit <= scoring_limit;
      spread_column <= {COLUMN_WIDTH{1'b0}};
    end else if (spreading) begin
      spread_column <= spread_column + 1'b1;
    end
    {score_column_3, score_column_2, score_column_1} <= {score_column_2, score_column_1, s_scores_column};
    {column_3, column_2, column_1} <= {column_2, column_1, spread_column};
    {last_3, last_2, last_1} <= {last_2, last_1, spreading && spread_column == LAST};
    p_tile <= spread_tile;
    p_column <= column_3;
    if (give_rows) begin
      next_row <= {COLUMN_WIDTH{1'b0}};
      rows_tile <= spread_tile;
      rows_statistics <= spread_statistics;
    end else if (rows_left) begin
      next_row <= next_row + 1'b1;
    end
    row_index <= next_row;
    row_last <= next_row == LAST;
    row_tile <= rows_tile;
    row_statistics <= rows_statistics;
  end

  // ---------------------------------------------------------------- scoring

  reg [16:0] multiplier[0:BLOCK-1];  // of the tile that is scored
  reg [7:0] exponent[0:BLOCK-1];
  reg [BLOCK*8-1:0] shifts;
  reg [3:0] k_shift_1, v_shift_1, v_shift_2;
  reg signed [22:0] product_1[0:BLOCK-1];  // q . k, at most 2^22
  reg signed [39:0] scaled_2[0:BLOCK-1];
  reg [5:0] down_2[0:BLOCK-1];
  reg signed [23:0] score_3[0:BLOCK-1];
  reg signed [23:0] peak[0:BLOCK-1];  // greatest score of the row so far
  reg [BLOCK*32-1:0] score_memory[0:(2<<COLUMN_WIDTH)-1];

  task automatic keep_scores;
    reg [31:0] i;
    reg [BLOCK*32-1:0] word;
    reg signed [31:0] row, column;
    begin
      column = {{(32 - COLUMN_WIDTH) {1'b0}}, score_column_3} - {{23{scoring_limit[8]}}, scoring_limit};
      for (i = 0; i < BLOCK; i = i + 1) begin
        row = i;
        if (row >= column && score_3[i] > peak[i]) peak[i] = score_3[i];
        word[i*32+:32] = {{8{score_3[i][23]}}, score_3[i]};
      end
      score_memory[{half, score_column_3}] = word;
    end
  endtask

  task automatic round_scores;
    reg [31:0] i;
    reg [5:0] s;
    reg sign, clip;
    reg signed [63:0] value;
    reg [24:0] minus_weight, total;
    begin
      minus_weight = {13'd0, scoring_statistics ? 4'd0 : v_shift_2, 8'd0};
      minus_weight = -minus_weight;
      for (i = 0; i < BLOCK; i = i + 1) begin
        s = down_2[i];
        sign = scaled_2[i][39];
        value = {{23{sign}}, scaled_2[i], 1'b0};
        value = value >>> {s[5:4], 4'd0};
        value = value >>> {s[3:2], 2'd0};
        clip = value[40:28] != {13{sign}};  // the last step does not bring these down
        value = value >>> s[1:0];
        // At most 2^23 - 2^13 in magnitude: rounding does not change which side of the limit it is.
        clip = clip || value[27:24] != {4{sign}} || value[23:14] == {10{!sign}};
        // The constant makes the weight, which the rows share, the plain input of the carries.
        total = {minus_weight[23:0], 1'b1} +
            {sign, clip ? {{9{!sign}}, 1'b1, 13'd0} : value[23:1], value[0] && !clip};
        score_3[i] = total[24:1];
      end
    end
  endtask

  task automatic scale_products;
    reg [31:0] i;
    reg signed [39:0] x, y;
    begin
      for (i = 0; i < BLOCK; i = i + 1) begin
        x = {{17{product_1[i][22]}}, product_1[i]};
        y = {23'd0, multiplier[i]};
        scaled_2[i] = x * y;
        down_2[i] = exponent[i][5:0] + ({2'd0, k_shift_1} - 6'd8);
      end
    end
  endtask

  task automatic take_products;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1) product_1[i] = s_scores_sums[i*32+:23];
    end
  endtask

  task automatic load_row_parameters;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1) begin
        multiplier[i] = {1'b0, row_multipliers_high[i*8+:8], row_multipliers_low[i*8+:8]};
        exponent[i] = row_exponents[i*8+:8];
        peak[i] = LOWEST;
      end
      shifts = key_shifts;
    end
  endtask

  always @(posedge clk) begin : scoring
    if (score_valid_3) keep_scores;
    if (score_valid_2) round_scores;
    if (score_valid_1) scale_products;
    v_shift_2 = v_shift_1;
    if (take) begin
      take_products;
      {v_shift_1, k_shift_1} = shifts[s_scores_column*8+:8];
    end
    if (load_rows) load_row_parameters;
  end

  // ---------------------------------------------------------------- probabilities

  reg signed [15:0] tile_exponent[0:BLOCK-1];  // of the tile in the second pass
  reg [BLOCK*8-1:0] spread_shifts;
  reg [3:0] weight_1, weight_2;
  reg [BLOCK*32-1:0] scores_1;
  reg [16:0] power_3[0:BLOCK-1];
  reg [5:0] steps_2[0:BLOCK-1];
  reg [5:0] up_3[0:BLOCK-1];  // the power times 2^(up - 16) is a share; 48: there is none
  reg [3:0] down_3[0:BLOCK-1];  // the power over 2^(8 + down) is a probability; 12: there is none
  reg [BLOCK*8-1:0] fractions_2;
  reg nothing_2[0:BLOCK-1];  // masked, or too far from the peak for a share
  reg [38:0] sum[0:BLOCK-1];
  reg [23:0] far[0:BLOCK-1];
  reg [38:0] held_sum[0:BLOCK-1];
  reg [23:0] held_far[0:BLOCK-1];
  reg [15:0] held_exponent[0:BLOCK-1];

  task automatic hold_rows;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1) begin
        held_sum[i] = sum[i];
        held_far[i] = far[i];
        held_exponent[i] = tile_exponent[i];
      end
    end
  endtask

  task automatic add_shares;
    reg [31:0] i;
    reg [5:0] s;
    reg [63:0] share, total;
    reg [31:0] column, probability;
    reg [BLOCK*8-1:0] word;
    begin
      column = {{(32 - COLUMN_WIDTH) {1'b0}}, column_3};
      for (i = 0; i < BLOCK; i = i + 1) begin
        s = up_3[i];
        share = {47'd0, power_3[i]};
        share = share << s[3:0];
        share = s[5:4] == 2'd3 ? 64'd0 : share << {s[5:4], 4'd0} >> 16;
        // The bit below rounds. The constant makes the sum the plain input of the carries.
        total = {24'd0, sum[i], 1'b1} + share;
        sum[i] = total[39:1];
        if (i >= column) far[i] = sum[i][23:0];  // so far, no column was beyond the row

        s = {2'd0, down_3[i]};
        probability = {22'd0, power_3[i][16:7]};
        probability = probability >> s[3:0];
        probability = {1'b0, probability[31:1]} + {31'd0, probability[0]};
        word[i*8+:8] = (probability[8] ? 8'd255 : probability[7:0]) ^ 8'h80;
      end
      p_data <= word;
    end
  endtask

  task automatic choose_shifts;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1) begin
        up_3[i] = nothing_2[i] ? 6'd48 : 6'd17 + {2'd0, weight_2} - steps_2[i];
        down_3[i] = nothing_2[i] || steps_2[i] > 6'd11 ? 4'd12 : steps_2[i][3:0];
      end
    end
  endtask

  task automatic measure_distances;
    reg [31:0] i;
    reg signed [31:0] row, column;
    reg signed [23:0] score;
    reg [17:0] steps;
    reg [BLOCK*8-1:0] word;
    begin
      column = {{(32 - COLUMN_WIDTH) {1'b0}}, column_1} - {{23{spread_limit[8]}}, spread_limit};
      for (i = 0; i < BLOCK; i = i + 1) begin
        row = i;
        score = scores_1[i*32+:24];
        // The integer part of the distance from the peak, which is not negative where a key counts.
        steps = {tile_exponent[i][15], tile_exponent[i], 1'b1} +
            {~score[23], ~score[23:8], score[7:0] == 8'd0};
        word[i*8+:8] = score[7:0];
        steps_2[i] = steps[6:1];
        nothing_2[i] = row < column || steps[17:1] > 17'd32;
      end
      fractions_2 <= word;
    end
  endtask

  task automatic start_rows;
    reg [31:0] i;
    begin
      for (i = 0; i < BLOCK; i = i + 1) begin
        tile_exponent[i] = peak[i][23:8] + {15'd0, peak[i][7:0] != 8'd0};
        sum[i] = 39'd0;
        far[i] = 24'd0;
      end
      spread_shifts = shifts;
    end
  endtask

  // A table has two ports. It goes by the fraction of the score, whose complement is the distance's.
  genvar pair;
  generate
    for (pair = 0; 2 * pair < BLOCK; pair = pair + 1) begin : g_table
      localparam OTHER = 2 * pair + 1 < BLOCK ? 2 * pair + 1 : 2 * pair;
      (* rom_style = "block" *) reg [16:0] exp2_table[0:255];
      initial begin : table_values
        reg [31:0] n;
        for (n = 0; n < 256; n = n + 1) exp2_table[n] = EXP2[(256-n)%256*17+:17];
      end
      always @(posedge clk)
        if (valid_2) begin
          power_3[2*pair] <= exp2_table[fractions_2[2*pair*8+:8]];
          power_3[OTHER]  <= exp2_table[fractions_2[OTHER*8+:8]];
        end
    end
  endgenerate

  always @(posedge clk) begin : probabilities
    if (rows_left) begin
      row_exponent <= held_exponent[next_row];
      row_sum <= held_sum[next_row];
      row_far <= held_far[next_row];
    end
    if (valid_3) add_shares;
    if (give_rows) hold_rows;
    if (valid_2) choose_shifts;
    if (valid_1) measure_distances;
    weight_2 = weight_1;
    if (spreading) begin
      scores_1 = score_memory[{spread_half, spread_column}];
      weight_1 = spread_statistics ? 4'd0 : spread_shifts[spread_column*8+4+:4];
    end
    if (hand_over) start_rows;
  end

endmodule

`default_nettype wire
