// SPDX-License-Identifier: Apache-2.0
//
// Test kernel of the simulated card: sum[i] = a[i] + b[i] on 32-bit lanes, in chunks of up to 16
// beats, and on request a fault that the card must notice.
//
// Protocol: Vitis kernel with ap_ctrl_chain (or ap_ctrl_hs), one AXI4 read and one write master.
// Latency: a chunk is two reads in flight together, then one write; the next chunk starts after
// the write's response. Addresses must be multiples of a chunk: the kernel does not split at 4 KiB.
//
// Registers: 0x10 a, 0x1C b, 0x28 sum (64 bits each), 0x34 beats, 0x3C misbehaviour,
// 0x80 error responses seen: bit 0 on reads, bit 1 on writes.
//
// Bits of misbehaviour: 0 done before the last write response, 1 WLAST one beat early,
// 2 ARVALID dropped before ARREADY, 3 never done, 4 reads of half the width, 5 WDATA changed while
// waiting, 6 FIXED bursts on reads, 7 writes only the even bytes.
`default_nettype none

// verilator lint_off UNUSEDSIGNAL
// verilator lint_off SYMRSVDWORD
module vector_add_kernel #(
    parameter integer BUS_WIDTH = 512,  // bits of a beat: 32 to 512, power of two
    parameter integer CHAIN = 1  // 1: ap_ctrl_chain; 0: ap_ctrl_hs, done is cleared by reading
) (
    input wire ap_clk,
    input wire ap_rst_n,

    input  wire [11:0] s_axi_control_awaddr,
    input  wire        s_axi_control_awvalid,
    output wire        s_axi_control_awready,
    input  wire [31:0] s_axi_control_wdata,
    input  wire [ 3:0] s_axi_control_wstrb,
    input  wire        s_axi_control_wvalid,
    output wire        s_axi_control_wready,
    output reg  [ 1:0] s_axi_control_bresp,
    output reg         s_axi_control_bvalid,
    input  wire        s_axi_control_bready,
    input  wire [11:0] s_axi_control_araddr,
    input  wire        s_axi_control_arvalid,
    output wire        s_axi_control_arready,
    output reg  [31:0] s_axi_control_rdata,
    output reg  [ 1:0] s_axi_control_rresp,
    output reg         s_axi_control_rvalid,
    input  wire        s_axi_control_rready,

    output wire [         63:0] m_axi_in_araddr,
    output wire [          7:0] m_axi_in_arlen,
    output wire [          2:0] m_axi_in_arsize,
    output wire [          1:0] m_axi_in_arburst,
    output wire                 m_axi_in_arvalid,
    input  wire                 m_axi_in_arready,
    input  wire [BUS_WIDTH-1:0] m_axi_in_rdata,
    input  wire [          1:0] m_axi_in_rresp,
    input  wire                 m_axi_in_rlast,
    input  wire                 m_axi_in_rvalid,
    output wire                 m_axi_in_rready,

    output wire [           63:0] m_axi_out_awaddr,
    output wire [            7:0] m_axi_out_awlen,
    output wire [            2:0] m_axi_out_awsize,
    output wire [            1:0] m_axi_out_awburst,
    output wire                   m_axi_out_awvalid,
    input  wire                   m_axi_out_awready,
    output wire [  BUS_WIDTH-1:0] m_axi_out_wdata,
    output wire [BUS_WIDTH/8-1:0] m_axi_out_wstrb,
    output wire                   m_axi_out_wlast,
    output wire                   m_axi_out_wvalid,
    input  wire                   m_axi_out_wready,
    input  wire [            1:0] m_axi_out_bresp,
    input  wire                   m_axi_out_bvalid,
    output wire                   m_axi_out_bready,

    output wire interrupt
);
  // RLAST and WSTRB[3:1] are not needed; the name of the interrupt is Vitis'.
  // verilator lint_on UNUSEDSIGNAL
  // verilator lint_on SYMRSVDWORD
  localparam integer BEAT_BYTES = BUS_WIDTH / 8;
  // verilator lint_off WIDTHTRUNC
  localparam [2:0] SIZE = $clog2(BEAT_BYTES);  // at most 6
  // verilator lint_on WIDTHTRUNC

  localparam [2:0] IDLE = 3'd0, ADDRESS_A = 3'd1, ADDRESS_B = 3'd2, READ = 3'd3;
  localparam [2:0] ADDRESS_SUM = 3'd4, WRITE = 3'd5, RESPONSE = 3'd6, HANG = 3'd7;

  reg start, done, gie, ier, isr;
  reg [63:0] a, b, sum;
  reg [31:0] beats, misbehaviour;
  reg [1:0] errors;

  reg [2:0] state;
  reg [63:0] offset;  // bytes from the start of the run to the chunk
  reg [31:0] left;  // beats of the run that are not written yet
  reg [5:0] received;  // beats of the chunk, first those of a
  reg [4:0] written;
  reg dropped;  // misbehaviour 2 happened in this chunk
  reg toggle;
  reg early;  // misbehaviour 0: the response of the last write is outstanding
  reg [BUS_WIDTH-1:0] buffer[0:15];

  wire [4:0] chunk = left > 32'd16 ? 5'd16 : left[4:0];
  wire begin_run = start && state == IDLE && !(CHAIN != 0 && done) && !early;
  wire last_response = state == RESPONSE && m_axi_out_bvalid && left == {27'd0, chunk};
  wire end_early = misbehaviour[0] && state == RESPONSE && left == {27'd0, chunk};
  wire end_run = (last_response && !misbehaviour[3]) || end_early
      || (begin_run && beats == 32'd0);

  // AXI4-Lite
  wire write = s_axi_control_awvalid && s_axi_control_wvalid && !s_axi_control_bvalid;
  wire read = s_axi_control_arvalid && !s_axi_control_rvalid;
  assign s_axi_control_awready = write;
  assign s_axi_control_wready  = write;
  assign s_axi_control_arready = read;
  wire [11:0] write_offset = s_axi_control_awaddr & {12{write && s_axi_control_wstrb[0]}};
  wire [31:0] data = s_axi_control_wdata;
  wire write_control = write && s_axi_control_awaddr == 12'h000;
  assign interrupt = gie && isr;

  always @(posedge ap_clk) begin
    if (write) begin
      case (write_offset)
        12'h010: a[31:0] <= data;
        12'h014: a[63:32] <= data;
        12'h01C: b[31:0] <= data;
        12'h020: b[63:32] <= data;
        12'h028: sum[31:0] <= data;
        12'h02C: sum[63:32] <= data;
        12'h034: beats <= data;
        12'h03C: misbehaviour <= data;
        default: ;
      endcase
      s_axi_control_bresp <= s_axi_control_awaddr >= 12'h100 ? 2'b10 : 2'b00;
    end
    if (read) begin
      case (s_axi_control_araddr)
        12'h000: s_axi_control_rdata <= {29'd0, state == IDLE && !start, done, start};
        12'h004: s_axi_control_rdata <= {31'd0, gie};
        12'h008: s_axi_control_rdata <= {31'd0, ier};
        12'h00C: s_axi_control_rdata <= {31'd0, isr};
        12'h010: s_axi_control_rdata <= a[31:0];
        12'h014: s_axi_control_rdata <= a[63:32];
        12'h034: s_axi_control_rdata <= beats;
        12'h03C: s_axi_control_rdata <= misbehaviour;
        12'h080: s_axi_control_rdata <= {30'd0, errors};
        default: s_axi_control_rdata <= 32'd0;
      endcase
      s_axi_control_rresp <= s_axi_control_araddr >= 12'h100 ? 2'b10 : 2'b00;
    end

    if (write) s_axi_control_bvalid <= 1'b1;
    else if (s_axi_control_bready) s_axi_control_bvalid <= 1'b0;
    if (read) s_axi_control_rvalid <= 1'b1;
    else if (s_axi_control_rready) s_axi_control_rvalid <= 1'b0;

    if (write_control && data[0]) start <= 1'b1;
    else if (begin_run) start <= 1'b0;
    if (end_run) done <= 1'b1;
    else if (CHAIN != 0 ? write_control && data[4] : read && s_axi_control_araddr == 12'h000)
      done <= 1'b0;
    if (write && s_axi_control_awaddr == 12'h004) gie <= data[0];
    if (write && s_axi_control_awaddr == 12'h008) ier <= data[0];
    if (end_run && ier) isr <= 1'b1;
    else if (write && s_axi_control_awaddr == 12'h00C) isr <= isr ^ data[0];

    if (!ap_rst_n) begin
      s_axi_control_bvalid <= 1'b0;
      s_axi_control_rvalid <= 1'b0;
      start <= 1'b0;
      done <= 1'b0;
      gie <= 1'b0;
      ier <= 1'b0;
      isr <= 1'b0;
    end
  end

  // Reads: the chunk of a, then the chunk of b, both in flight.
  wire reading = state == ADDRESS_A || state == ADDRESS_B || state == READ;
  assign m_axi_in_araddr = (state == ADDRESS_A ? a : b) + offset;
  assign m_axi_in_arlen = {3'd0, chunk} - 8'd1;
  assign m_axi_in_arsize = misbehaviour[4] ? SIZE - 3'd1 : SIZE;
  assign m_axi_in_arburst = misbehaviour[6] ? 2'b00 : 2'b01;
  assign m_axi_in_arvalid = (state == ADDRESS_A || state == ADDRESS_B)
      && !(misbehaviour[2] && toggle && !dropped);
  assign m_axi_in_rready = reading;
  wire beat = reading && m_axi_in_rvalid;
  wire [5:0] beats_of_chunk = {1'b0, chunk};
  // verilator lint_off UNUSEDSIGNAL
  wire [5:0] index = received < beats_of_chunk ? received : received - beats_of_chunk;  // below 16
  // verilator lint_on UNUSEDSIGNAL

  reg [BUS_WIDTH-1:0] lanes;
  integer lane;
  always @* begin
    lanes = {BUS_WIDTH{1'b0}};
    for (lane = 0; lane < BUS_WIDTH; lane = lane + 32)
      lanes[lane+:32] = buffer[index[3:0]][lane+:32] + m_axi_in_rdata[lane+:32];
  end

  // Writes
  assign m_axi_out_awaddr = sum + offset;
  assign m_axi_out_awlen = {3'd0, chunk} - 8'd1;
  assign m_axi_out_awsize = SIZE;
  assign m_axi_out_awburst = 2'b01;
  assign m_axi_out_awvalid = state == ADDRESS_SUM;
  assign m_axi_out_wdata = buffer[written[3:0]] ^ {{BUS_WIDTH - 1{1'b0}}, misbehaviour[5] && toggle};
  assign m_axi_out_wstrb = misbehaviour[7] ? {BEAT_BYTES / 2{2'b01}} : {BEAT_BYTES{1'b1}};
  assign m_axi_out_wlast = written + {4'd0, misbehaviour[1]} + 5'd1 == chunk;
  assign m_axi_out_wvalid = state == WRITE;
  assign m_axi_out_bready = state == RESPONSE || early;

  always @(posedge ap_clk) begin
    toggle <= !toggle;
    if (beat) begin
      buffer[index[3:0]] <= received < beats_of_chunk ? m_axi_in_rdata : lanes;
      received <= received + 6'd1;
      if (m_axi_in_rresp != 2'b00) errors[0] <= 1'b1;
    end
    if (m_axi_out_bvalid && m_axi_out_bready && m_axi_out_bresp != 2'b00) errors[1] <= 1'b1;
    if (m_axi_out_bvalid) early <= 1'b0;

    case (state)
      IDLE: begin
        left <= beats;
        offset <= 64'd0;
        dropped <= 1'b0;
        received <= 6'd0;
        written <= 5'd0;
        if (begin_run) begin
          errors <= 2'b00;
          if (beats != 32'd0) state <= ADDRESS_A;
        end
      end
      ADDRESS_A, ADDRESS_B: begin
        if (m_axi_in_arvalid && m_axi_in_arready) begin
          state <= state == ADDRESS_A ? ADDRESS_B : READ;
        end
        if (!m_axi_in_arvalid) dropped <= 1'b1;
      end
      READ: if (beat && received + 6'd1 == {chunk, 1'b0}) state <= ADDRESS_SUM;
      ADDRESS_SUM: if (m_axi_out_awready) state <= WRITE;
      WRITE:
      if (m_axi_out_wready) begin
        written <= written + 5'd1;
        if (written + 5'd1 == chunk) state <= RESPONSE;
      end
      RESPONSE:
      if (end_early) begin
        early <= !m_axi_out_bvalid;
        state <= IDLE;
      end else if (m_axi_out_bvalid) begin
        offset <= offset + 64'd16 * BEAT_BYTES;
        left <= left - {27'd0, chunk};
        dropped <= 1'b0;
        received <= 6'd0;
        written <= 5'd0;
        if (left == {27'd0, chunk}) state <= misbehaviour[3] ? HANG : IDLE;
        else state <= ADDRESS_A;
      end
      default: ;  // HANG
    endcase

    if (!ap_rst_n) begin
      state  <= IDLE;
      toggle <= 1'b0;
      early  <= 1'b0;
      errors <= 2'b00;
    end
  end
endmodule
`default_nettype wire
