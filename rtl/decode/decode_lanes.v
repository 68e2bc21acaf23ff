// SPDX-License-Identifier: Apache-2.0
// State and lanes of one value head slot: one read and one write of the state a token.
//
// Purpose: holds X[i][j] and the pending update vectors of all heads that use this slot, and runs
//   one pass over the key index i with all HEAD_DIM columns j in parallel:
//     X_ij <- sat27(rshift_round(X_ij, shift) + rshift_round(kp_i * up_j, 17))
//     r_j  += X_ij * k_i,  w_j += X_ij * q_i   (48 bits, wrapping)
//   shift 31 means that the old state is gone. Three 27x18 products a lane.
// Protocol: rows enter with row_valid in any rhythm; row_first loads up_j and restarts the sums,
//   row_last copies them where finish_column reads them. kp belongs to the row one cycle after
//   it entered, k and q to the row three cycles after. A row may be read again four cycles after
//   it entered.
// Latency: row to write-back 4 cycles, row_last to readable sums 6 cycles. One row a cycle.
// Style: stages are loops over arrays with blocking assignments, last stage first, so each stage
//   reads what the stage before left in the previous cycle. A simulator runs such loops as vector
//   code. Nothing outside this block reads these arrays but through registers and the row bus.
`default_nettype none

module decode_lanes #(
    parameter HEAD_DIM     = 128,  // columns and rows of a state, 16 to 128
    parameter ROWS         = 512,  // rows of all heads of this slot: contexts * passes * HEAD_DIM
    parameter GROUPS       = 4,    // heads of this slot: contexts * passes
    parameter POST_COLUMNS = 2,    // columns read and updated a cycle by the finish unit: 1, 2, 4
    parameter BUS_WIDTH    = 512,  // bits of a dump beat: 128, 256, 512
    parameter STATE_PITCH  = 27,   // bits between stored elements; 27 on a device, 32 simulates faster
    parameter ROW_WIDTH    = 9,    // bits of a row address
    parameter GROUP_WIDTH  = 2,    // bits of a group address
    parameter COLUMN_WIDTH = 7,    // bits of a column index
    parameter BEAT_WIDTH   = 3     // bits of a beat index within a row
) (
    input wire clk,
    input wire rst_n,

    input wire                   row_valid,
    input wire                   row_first,
    input wire                   row_last,
    input wire [  ROW_WIDTH-1:0] row_address,
    input wire [GROUP_WIDTH-1:0] row_group,
    input wire [            4:0] row_shift,
    input wire signed [17:0]     kp,
    input wire signed [17:0]     k,
    input wire signed [17:0]     q,
    output reg                   row_saturated,  // one cycle for every row with a clamped element

    input  wire [   COLUMN_WIDTH-1:0] finish_column,  // first of POST_COLUMNS columns
    output reg  [POST_COLUMNS*48-1:0] r_sum,          // one cycle after finish_column
    output reg  [POST_COLUMNS*48-1:0] w_sum,
    input  wire                       update_write,
    input  wire [    GROUP_WIDTH-1:0] update_group,
    input  wire [   COLUMN_WIDTH-1:0] update_column,
    input  wire [POST_COLUMNS*27-1:0] update,
    input  wire                       update_store,   // the columns written become update_group's
    input  wire                       update_clear,   // all columns of update_group become zero

    input  wire                            load_write,
    input  wire [           ROW_WIDTH-1:0] load_address,
    input  wire [HEAD_DIM*STATE_PITCH-1:0] load_row,
    input  wire                            dump_read,   // reads row_address
    input  wire                            dump_slice,  // registers beat dump_beat of the row read
    input  wire [          BEAT_WIDTH-1:0] dump_beat,
    output reg  [           BUS_WIDTH-1:0] dump_words
);

  localparam ROW_BITS = HEAD_DIM * STATE_PITCH;
  localparam BEAT_WORDS = BUS_WIDTH / 32;
  localparam COLUMN_SHIFT = $clog2(POST_COLUMNS);
  localparam signed [28:0] STATE_MAX = 29'sd67108863;
  localparam signed [28:0] STATE_MIN = -29'sd67108864;

  reg [ROW_BITS-1:0] state_memory[0:ROWS-1];
  reg [ROW_BITS-1:0] update_memory[0:GROUPS-1];
  reg [POST_COLUMNS*27-1:0] update_columns[0:HEAD_DIM/POST_COLUMNS-1];
  reg [ROW_BITS-1:0] state_row;
  reg valid_1, valid_2, valid_3, valid_4, last_5;
  reg first_1, first_2, first_3, first_4, last_1, last_2, last_3, last_4;
  reg [ROW_WIDTH-1:0] address_1, address_2, address_3;
  reg [4:0] shift_1;

  reg signed [26:0] up[0:HEAD_DIM-1];
  reg signed [26:0] kept[0:HEAD_DIM-1];
  reg signed [44:0] outer[0:HEAD_DIM-1];
  reg signed [26:0] updated[0:HEAD_DIM-1];
  reg signed [44:0] r_product[0:HEAD_DIM-1];
  reg signed [44:0] w_product[0:HEAD_DIM-1];
  reg signed [47:0] r_accumulator[0:HEAD_DIM-1];
  reg signed [47:0] w_accumulator[0:HEAD_DIM-1];
  reg signed [47:0] r_held[0:HEAD_DIM-1];
  reg signed [47:0] w_held[0:HEAD_DIM-1];

  wire signed [26:0] stored[0:HEAD_DIM-1];
  wire [ROW_BITS-1:0] updated_row;

  genvar lane;
  generate
    for (lane = 0; lane < HEAD_DIM; lane = lane + 1) begin : g_row
      assign stored[lane] = state_row[lane*STATE_PITCH+:27];
      if (STATE_PITCH > 27) begin : g_gap
        assign updated_row[lane*STATE_PITCH+:STATE_PITCH] = {
          {(STATE_PITCH - 27) {1'b0}}, updated[lane]
        };
      end else begin : g_tight
        assign updated_row[lane*STATE_PITCH+:27] = updated[lane];
      end
    end
  endgenerate

  always @(posedge clk) begin
    if (!rst_n) begin
      {valid_1, valid_2, valid_3, valid_4, last_5} <= 5'b0;
    end else begin
      valid_1 <= row_valid;
      valid_2 <= valid_1;
      valid_3 <= valid_2;
      valid_4 <= valid_3;
      last_5  <= valid_4 && last_4;
    end
    {first_4, first_3, first_2, first_1} <= {first_3, first_2, first_1, row_first};
    {last_4, last_3, last_2, last_1} <= {last_3, last_2, last_1, row_last};
    address_1 <= row_address;
    address_2 <= address_1;
    address_3 <= address_2;
    shift_1   <= row_shift;
  end

  always @(posedge clk) begin
    if (valid_3 || load_write)
      state_memory[load_write ? load_address : address_3] <= load_write ? load_row : updated_row;
    if (row_valid || dump_read) state_row <= state_memory[row_address];
  end

  wire [COLUMN_WIDTH-COLUMN_SHIFT-1:0] update_index = update_column[COLUMN_WIDTH-1:COLUMN_SHIFT];

  always @(posedge clk) begin : update_port
    reg [31:0] n;
    reg [ROW_BITS-1:0] pending_row;
    reg [POST_COLUMNS*27-1:0] columns;
    if (update_write) update_columns[update_index] <= update;
    if (update_store || update_clear) begin
      pending_row = {ROW_BITS{1'b0}};
      for (n = 0; n < HEAD_DIM; n = n + 1) begin
        columns = update_columns[n/POST_COLUMNS];
        if (!update_clear)
          pending_row[n*STATE_PITCH+:27] = columns[(n%POST_COLUMNS)*27+:27];
      end
      update_memory[update_group] <= pending_row;
    end
  end

  // A beat of the row that was read, words sign-extended.
  wire [BUS_WIDTH-1:0] row_beats[0:(1<<BEAT_WIDTH)-1];
  genvar beat, word;
  generate
    for (beat = 0; beat < (1 << BEAT_WIDTH); beat = beat + 1) begin : g_beat
      for (word = 0; word < BEAT_WORDS; word = word + 1) begin : g_word
        if (beat * BEAT_WORDS + word < HEAD_DIM) begin : g_element
          assign row_beats[beat][word*32+:32] = {
            {5{state_row[(beat*BEAT_WORDS+word)*STATE_PITCH+26]}},
            state_row[(beat*BEAT_WORDS+word)*STATE_PITCH+:27]
          };
        end else begin : g_none
          assign row_beats[beat][word*32+:32] = 32'd0;
        end
      end
    end
  endgenerate

  always @(posedge clk) if (dump_slice) dump_words <= row_beats[dump_beat];

  task automatic accumulate;
    reg [31:0] j;
    begin
      for (j = 0; j < HEAD_DIM; j = j + 1) begin
        r_accumulator[j] = (first_4 ? 48'sd0 : r_accumulator[j])
            + {{3{r_product[j][44]}}, r_product[j]};
        w_accumulator[j] = (first_4 ? 48'sd0 : w_accumulator[j])
            + {{3{w_product[j][44]}}, w_product[j]};
      end
    end
  endtask

  task automatic multiply;
    reg [31:0] j;
    begin
      for (j = 0; j < HEAD_DIM; j = j + 1) begin
        r_product[j] = updated[j] * k;
        w_product[j] = updated[j] * q;
      end
    end
  endtask

  task automatic apply_update(output reg any_clamped);
    reg [31:0] j;
    reg signed [44:0] rounded;
    reg signed [28:0] sum;
    reg clamped;
    begin
      any_clamped = 1'b0;
      for (j = 0; j < HEAD_DIM; j = j + 1) begin
        rounded = (outer[j] + 45'sd65536) >>> 17;
        sum = {{2{kept[j][26]}}, kept[j]} + rounded[28:0];
        clamped = sum > STATE_MAX || sum < STATE_MIN;
        updated[j] = sum > STATE_MAX ? STATE_MAX[26:0]
            : sum < STATE_MIN ? STATE_MIN[26:0] : sum[26:0];
        any_clamped = any_clamped | clamped;
      end
    end
  endtask

  task automatic shift_and_outer;
    reg [31:0] j;
    reg signed [31:0] half, extended, rounded;
    begin
      half = (32'sd1 <<< shift_1) >>> 1;
      for (j = 0; j < HEAD_DIM; j = j + 1) begin
        extended = {{5{stored[j][26]}}, stored[j]};
        rounded = (extended + half) >>> shift_1;
        kept[j] = shift_1 == 5'd31 ? 27'sd0 : rounded[26:0];
        outer[j] = kp * up[j];
      end
    end
  endtask

  task automatic load_update;
    reg [31:0] j;
    reg [ROW_BITS-1:0] pending_row;
    begin
      pending_row = update_memory[row_group];
      for (j = 0; j < HEAD_DIM; j = j + 1) up[j] = pending_row[j*STATE_PITCH+:27];
    end
  endtask

  task automatic hold_sums;
    reg [31:0] j;
    begin
      for (j = 0; j < HEAD_DIM; j = j + 1) begin
        r_held[j] = r_accumulator[j];
        w_held[j] = w_accumulator[j];
      end
    end
  endtask

  always @(posedge clk) begin : lanes
    reg [31:0] n;
    reg any_clamped;
    for (n = 0; n < POST_COLUMNS; n = n + 1) begin
      r_sum[n*48+:48] <= r_held[finish_column+n[COLUMN_WIDTH-1:0]];
      w_sum[n*48+:48] <= w_held[finish_column+n[COLUMN_WIDTH-1:0]];
    end
    if (last_5) hold_sums;
    if (valid_4) accumulate;
    if (valid_3) multiply;
    any_clamped = 1'b0;
    if (valid_2) apply_update(any_clamped);
    row_saturated <= any_clamped && rst_n;
    if (valid_1) shift_and_outer;
    if (row_valid && row_first) load_update;
  end

  wire unused = &{1'b0, update_column};

endmodule

`default_nettype wire
