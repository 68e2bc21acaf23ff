// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for the tile engine with the same ports, for tests of the kernel around it. A block is as
// good as the sum of the low words of its beats:
//   attend      adds Q when the slot is opened and, for each job, K + V; at the last job, word w of
//               output beat i is sum + 65536 * i + w
//   statistics  gives BLOCK rows: exponent K[15:0], far (Q + K + row)[23:0], near the row number
//   pool        fetches Q
// One job after the other; K and V come once a visit. Ten steps a job, one empty row a finished slot.

`default_nettype none

module tile_engine #(
    parameter STRIPS        = 3,
    parameter ROW_ARRAYS    = 4,
    parameter LUT_ARRAYS    = 2,
    parameter ARRAY_ROWS    = 32,
    parameter ARRAY_COLUMNS = 32,
    parameter HEAD_DIM      = 128,
    parameter SLOTS         = 16,
    parameter KV_BUFFERS    = 4,
    parameter BUS_WIDTH     = 512
) (
    input wire clk,
    input wire rst_n,

    input wire [11:0] blocks,
    input wire [ 7:0] padding,

    input  wire        s_job_valid,
    output wire        s_job_ready,
    input  wire [ 1:0] s_job_kind,
    input  wire [11:0] s_job_block,
    input  wire [11:0] s_job_query,
    input  wire [ 2:0] s_job_head,
    input  wire [ 5:0] s_job_slot,
    input  wire        s_job_opens_visit,
    input  wire        s_job_last,

    output wire                 q_request_valid,
    input  wire                 q_request_ready,
    output wire [          2:0] q_request_head,
    output wire [         11:0] q_request_query,
    input  wire                 s_q_tvalid,
    output wire                 s_q_tready,
    input  wire [BUS_WIDTH-1:0] s_q_tdata,
    input  wire                 s_k_tvalid,
    output wire                 s_k_tready,
    input  wire [BUS_WIDTH-1:0] s_k_tdata,
    input  wire                 s_v_tvalid,
    output wire                 s_v_tready,
    input  wire [BUS_WIDTH-1:0] s_v_tdata,

    output wire                 o_request_valid,
    input  wire                 o_request_ready,
    output wire [          2:0] o_request_head,
    output wire [         11:0] o_request_query,
    output wire                 m_o_tvalid,
    input  wire                 m_o_tready,
    output reg  [BUS_WIDTH-1:0] m_o_tdata,

    output wire        row_valid,
    output wire [11:0] row_block,
    output wire [ 2:0] row_head,
    output wire [ 6:0] row_index,
    output wire        row_last,
    output wire [15:0] row_exponent,
    output wire [23:0] row_far,
    output wire [23:0] row_near,

    input  wire        clear_counts,
    output reg  [63:0] matrix_steps,
    output reg  [31:0] jobs_done,
    output reg  [31:0] statistics_done,
    output reg  [31:0] empty_rows,
    output wire        idle
);

  localparam BLOCK = ROW_ARRAYS * ARRAY_ROWS;
  localparam [31:0] Q_BEATS = (3 + HEAD_DIM) * BLOCK * 8 / BUS_WIDTH;
  localparam [31:0] K_BEATS = (1 + HEAD_DIM) * BLOCK * 8 / BUS_WIDTH;
  localparam [31:0] V_BEATS = HEAD_DIM * BLOCK * 8 / BUS_WIDTH;
  localparam [31:0] O_BEATS = 2 * HEAD_DIM * BLOCK * 8 / BUS_WIDTH;
  localparam WORDS = BUS_WIDTH / 32;

  localparam [2:0] IDLE = 3'd0;
  localparam [2:0] ASK = 3'd1;
  localparam [2:0] READ = 3'd2;
  localparam [2:0] ADD = 3'd3;
  localparam [2:0] ROWS = 3'd4;
  localparam [2:0] WRITE = 3'd5;

  reg [2:0] state;
  reg [1:0] kind;
  reg [11:0] block, query;
  reg [2:0] head;
  reg [5:0] slot;
  reg last, with_q;
  reg [31:0] q_left, k_left, v_left, o_left, o_index;
  reg o_asked;
  reg [7:0] row;
  reg [31:0] word;
  reg [31:0] q_sum, kv_sum;
  reg [31:0] sums[0:SLOTS-1];
  reg [SLOTS-1:0] known;
  reg [16:0] holds[0:SLOTS-1];  // kind, head and query block of the slot

  wire [16:0] wanted = {s_job_kind, s_job_head, s_job_query};
  wire held = known[s_job_slot[$clog2(SLOTS)-1:0]]
              && holds[s_job_slot[$clog2(SLOTS)-1:0]] == wanted && s_job_kind != 2'd2;
  wire [$clog2(SLOTS)-1:0] place = slot[$clog2(SLOTS)-1:0];

  assign s_job_ready = state == IDLE;
  assign idle = state == IDLE;
  assign q_request_valid = state == ASK;
  assign q_request_head = head;
  assign q_request_query = query;
  assign s_q_tready = state == READ && q_left != 0;
  assign s_k_tready = state == READ && k_left != 0;
  assign s_v_tready = state == READ && v_left != 0;
  assign o_request_valid = state == WRITE && o_asked;
  assign o_request_head = head;
  assign o_request_query = query;
  assign m_o_tvalid = state == WRITE && o_left != 0;
  assign row_valid = state == ROWS;
  assign row_block = block;
  assign row_head = head;
  assign row_index = row[6:0];
  assign row_last = row == BLOCK - 1;
  assign row_exponent = kv_sum[15:0];
  assign row_far = q_sum[23:0] + kv_sum[23:0] + {16'd0, row};
  assign row_near = {16'd0, row};

  always @* begin
    for (word = 0; word < WORDS; word = word + 1)
      m_o_tdata[word*32+:32] = sums[place] + {o_index[15:0], 16'd0} + word;
  end

  always @(posedge clk) begin
    if (!rst_n) begin
      state <= IDLE;
      known <= {SLOTS{1'b0}};
      o_asked <= 1'b0;
    end else
      case (state)
        IDLE:
        if (s_job_valid) begin
          kind <= s_job_kind;
          block <= s_job_block;
          query <= s_job_query;
          head <= s_job_head;
          slot <= s_job_slot;
          last <= s_job_last;
          with_q <= !held;
          q_left <= held ? 0 : Q_BEATS;
          k_left <= s_job_opens_visit && s_job_kind != 2'd2 ? K_BEATS : 0;
          v_left <= s_job_opens_visit && s_job_kind == 2'd0 ? V_BEATS : 0;
          if (s_job_opens_visit && s_job_kind != 2'd2) kv_sum <= 32'd0;
          q_sum <= held && s_job_kind == 2'd1 ? sums[s_job_slot[$clog2(SLOTS)-1:0]] : 32'd0;
          if (s_job_kind != 2'd2) begin
            known[s_job_slot[$clog2(SLOTS)-1:0]] <= 1'b1;
            holds[s_job_slot[$clog2(SLOTS)-1:0]] <= wanted;
          end
          state <= held ? READ : ASK;
        end
        ASK: if (q_request_ready) state <= READ;
        READ: begin
          if (s_q_tvalid && s_q_tready) q_left <= q_left - 1;
          if (s_k_tvalid && s_k_tready) k_left <= k_left - 1;
          if (s_v_tvalid && s_v_tready) v_left <= v_left - 1;
          if (s_q_tvalid && s_q_tready) q_sum <= q_sum + s_q_tdata[31:0];
          kv_sum <= kv_sum + (s_k_tvalid && s_k_tready ? s_k_tdata[31:0] : 0)
                           + (s_v_tvalid && s_v_tready ? s_v_tdata[31:0] : 0);
          if (q_left == 0 && k_left == 0 && v_left == 0) state <= ADD;
        end
        ADD: begin
          row <= 8'd0;
          o_index <= 32'd0;
          o_left <= O_BEATS;
          o_asked <= 1'b1;
          if (kind == 2'd0) sums[place] <= (with_q ? q_sum : sums[place]) + kv_sum;
          if (kind == 2'd1) sums[place] <= q_sum;
          state <= kind == 2'd1 ? ROWS : kind == 2'd0 && last ? WRITE : IDLE;
        end
        ROWS: begin
          row <= row + 8'd1;
          if (row_last) state <= IDLE;
        end
        WRITE: begin
          if (o_request_ready) o_asked <= 1'b0;
          if (m_o_tvalid && m_o_tready) begin
            o_left  <= o_left - 1;
            o_index <= o_index + 1;
          end
          if (o_left == 0 && !o_asked) begin
            known[place] <= 1'b0;
            state <= IDLE;
          end
        end
        default: state <= IDLE;
      endcase
    if (clear_counts) begin
      matrix_steps <= 64'd0;
      jobs_done <= 32'd0;
      statistics_done <= 32'd0;
      empty_rows <= 32'd0;
    end else if (state == ADD) begin
      matrix_steps <= matrix_steps + 64'd10;
      if (kind == 2'd0) jobs_done <= jobs_done + 1;
      if (kind == 2'd1) statistics_done <= statistics_done + 1;
      if (kind == 2'd0 && last) empty_rows <= empty_rows + 1;
    end
  end

endmodule

`default_nettype wire
