// SPDX-License-Identifier: Apache-2.0
// One of the H_ITER value heads at work: its state and lanes, v and gate buffers, and finish units.
//
// Purpose: buffers v and gates of BUNDLES tokens' packets, runs passes in decode_lanes and turns
//   their sums into outputs and pending updates in decode_finish, POST_COLUMNS columns a cycle.
// Protocol: the core steps all slots together. The scalars of a pass are taken with pass_end and
//   must not be replaced before its last result; finish_* reads columns, results follow 9 cycles
//   later.
// Latency: see decode_lanes and decode_finish.
`default_nettype none

module decode_head_slot #(
    parameter HEAD_DIM     = 128,  // rows and columns of a state
    parameter ROWS         = 512,  // rows of all heads of this slot
    parameter GROUPS       = 4,    // heads of this slot: contexts * passes
    parameter POST_COLUMNS = 2,    // columns finished a cycle: 1, 2, 4
    parameter BUS_WIDTH    = 512,  // bits of a beat: 128, 256, 512
    parameter STATE_PITCH  = 27,   // bits between stored elements: 27 to 32
    parameter ROW_WIDTH    = 9,    // bits of a row address
    parameter GROUP_WIDTH  = 2,    // bits of a group address
    parameter COLUMN_WIDTH = 7,    // bits of a column index
    parameter BEAT_WIDTH   = 3,    // bits of a beat index within a row of words
    parameter V_BEAT_WIDTH = 2     // bits of a beat index within a v packet
) (
    input wire clk,
    input wire rst_n,

    input wire                    value_write,
    input wire [             1:0] value_bundle,
    input wire [V_BEAT_WIDTH-1:0] value_beat,
    input wire [   BUS_WIDTH-1:0] value_data,
    input wire [             7:0] value_exponent,

    input wire        gate_write,
    input wire [ 1:0] gate_bundle,
    input wire [17:0] gate_beta,
    input wire [24:0] gate_scale,
    input wire [ 4:0] gate_shift,
    input wire [ 4:0] gate_shift_before,
    input wire [24:0] gate_inverse,

    input wire                   row_valid,
    input wire                   row_first,
    input wire                   row_last,
    input wire [  ROW_WIDTH-1:0] row_address,
    input wire [GROUP_WIDTH-1:0] row_group,
    input wire [            1:0] row_bundle,
    input wire signed [17:0]     kp,
    input wire signed [17:0]     q,
    input wire signed [17:0]     k,
    input wire [           24:0] dot,            // of the bundle, taken with pass_end
    input wire                   pass_end,
    output wire                  row_saturated,

    input  wire                       finish_reading,
    input  wire [                1:0] finish_bundle,
    input  wire [   V_BEAT_WIDTH-1:0] finish_beat,
    input  wire [   COLUMN_WIDTH-1:0] finish_column,
    input  wire                       result_valid,
    input  wire [   COLUMN_WIDTH-1:0] result_column,
    output wire [POST_COLUMNS*32-1:0] result_words,
    output wire [   POST_COLUMNS-1:0] column_saturated,
    input  wire [    GROUP_WIDTH-1:0] update_group,
    input  wire                       update_store,
    input  wire                       update_clear,

    input  wire                            load_write,
    input  wire [           ROW_WIDTH-1:0] load_address,
    input  wire [HEAD_DIM*STATE_PITCH-1:0] load_row,
    input  wire                            settle_rows,   // rows apply settle_shift, not a token's
    input  wire                            settle_write,
    input  wire [                     4:0] settle_shift,
    input  wire                            dump_read,
    input  wire                            dump_slice,
    input  wire [          BEAT_WIDTH-1:0] dump_beat,
    output wire [           BUS_WIDTH-1:0] dump_words
);

  localparam BUNDLES = 4;
  localparam ELEMENT_WIDTH = $clog2(BUS_WIDTH / 16);
  localparam [31:0] ELEMENT_MASK_32 = BUS_WIDTH / 16 - 1;
  localparam [COLUMN_WIDTH-1:0] ELEMENT_MASK = ELEMENT_MASK_32[COLUMN_WIDTH-1:0];

  reg [17:0] beta[0:BUNDLES-1];
  reg [24:0] scale[0:BUNDLES-1];
  reg [4:0] shift[0:BUNDLES-1];
  reg [4:0] shift_before[0:BUNDLES-1];
  reg [24:0] inverse[0:BUNDLES-1];
  reg [7:0] exponent[0:BUNDLES-1];
  reg [BUS_WIDTH-1:0] value_memory[0:(BUNDLES<<V_BEAT_WIDTH)-1];
  reg [BUS_WIDTH-1:0] value_word;
  reg [COLUMN_WIDTH-1:0] finish_column_1;
  reg finish_reading_1;
  reg [17:0] finish_beta;
  reg [24:0] finish_scale, finish_inverse, finish_dot;
  reg [4:0] finish_shift, pending_shift;
  reg [7:0] finish_exponent;
  wire [POST_COLUMNS*48-1:0] r_sum, w_sum;
  wire [POST_COLUMNS*27-1:0] update;

  always @(posedge clk) begin
    finish_reading_1 <= rst_n && finish_reading;
    finish_column_1  <= finish_column;
    if (value_write) begin
      value_memory[{value_bundle, value_beat}] <= value_data;
      exponent[value_bundle] <= value_exponent;
    end
    if (finish_reading) value_word <= value_memory[{finish_bundle, finish_beat}];
    if (gate_write) begin
      beta[gate_bundle] <= gate_beta;
      scale[gate_bundle] <= gate_scale;
      shift[gate_bundle] <= gate_shift;
      shift_before[gate_bundle] <= gate_shift_before;
      inverse[gate_bundle] <= gate_inverse;
    end
    if (pass_end) begin
      finish_beta <= beta[row_bundle];
      finish_scale <= scale[row_bundle];
      finish_shift <= shift[row_bundle];
      finish_inverse <= inverse[row_bundle];
      finish_exponent <= exponent[row_bundle];
      finish_dot <= dot;
    end
    if (settle_write) pending_shift <= settle_shift;
  end

  decode_lanes #(
      .HEAD_DIM    (HEAD_DIM),
      .ROWS        (ROWS),
      .GROUPS      (GROUPS),
      .POST_COLUMNS(POST_COLUMNS),
      .BUS_WIDTH   (BUS_WIDTH),
      .STATE_PITCH (STATE_PITCH),
      .ROW_WIDTH   (ROW_WIDTH),
      .GROUP_WIDTH (GROUP_WIDTH),
      .COLUMN_WIDTH(COLUMN_WIDTH),
      .BEAT_WIDTH  (BEAT_WIDTH)
  ) lanes (
      .clk(clk),
      .rst_n(rst_n),
      .row_valid(row_valid),
      .row_first(row_first),
      .row_last(row_last),
      .row_address(row_address),
      .row_group(row_group),
      .row_shift(settle_rows ? pending_shift : shift_before[row_bundle]),
      .kp(kp),
      .q(q),
      .k(k),
      .row_saturated(row_saturated),
      .finish_column(finish_column),
      .r_sum(r_sum),
      .w_sum(w_sum),
      .update_write(result_valid),
      .update_group(update_group),
      .update_column(result_column),
      .update(update),
      .update_store(update_store),
      .update_clear(update_clear),
      .load_write(load_write),
      .load_address(load_address),
      .load_row(load_row),
      .dump_read(dump_read),
      .dump_slice(dump_slice),
      .dump_beat(dump_beat),
      .dump_words(dump_words)
  );

  genvar column;
  generate
    for (column = 0; column < POST_COLUMNS; column = column + 1) begin : g_column
      wire [31:0] element = {{(32 - COLUMN_WIDTH) {1'b0}}, finish_column_1 & ELEMENT_MASK}
          + column;
      wire finish_valid;

      decode_finish finish (
          .clk(clk),
          .rst_n(rst_n),
          .valid_in(finish_reading_1),
          .r_sum(r_sum[column*48+:48]),
          .w_sum(w_sum[column*48+:48]),
          .mantissa(value_word[{element[ELEMENT_WIDTH-1:0], 4'b0}+:16]),
          .exponent(finish_exponent),
          .scale(finish_scale),
          .shift(finish_shift),
          .beta(finish_beta),
          .inverse(finish_inverse),
          .dot(finish_dot),
          .valid_out(finish_valid),
          .update(update[column*27+:27]),
          .o(result_words[column*32+:32]),
          .saturated(column_saturated[column])
      );

      wire unused = &{1'b0, finish_valid, element[31:ELEMENT_WIDTH]};
    end
  endgenerate

endmodule

`default_nettype wire
