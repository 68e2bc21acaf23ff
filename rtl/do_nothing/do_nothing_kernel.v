// SPDX-License-Identifier: Apache-2.0
//
// Kernel that ends as soon as it is started: what is left of a call is what starting a kernel and
// seeing its end costs.
//
// Protocol: Vitis kernel with ap_ctrl_chain; its AXI4 read master, without which a container cannot
// be loaded, never reads. Latency: done follows the start by one cycle.
//
// Registers: 0x00 CTRL, 0x04 GIE, 0x08 IER, 0x0C ISR (bit 0, toggles on write); what is written
// to the pointer at 0x10 is ignored.
`default_nettype none

// verilator lint_off UNUSEDSIGNAL
// verilator lint_off SYMRSVDWORD
module do_nothing_kernel (
    input wire ap_clk,
    input wire ap_rst_n,

    input  wire [11:0] s_axi_control_awaddr,
    input  wire        s_axi_control_awvalid,
    output wire        s_axi_control_awready,
    input  wire [31:0] s_axi_control_wdata,
    input  wire [ 3:0] s_axi_control_wstrb,
    input  wire        s_axi_control_wvalid,
    output wire        s_axi_control_wready,
    output wire [ 1:0] s_axi_control_bresp,
    output reg         s_axi_control_bvalid,
    input  wire        s_axi_control_bready,
    input  wire [11:0] s_axi_control_araddr,
    input  wire        s_axi_control_arvalid,
    output wire        s_axi_control_arready,
    output reg  [31:0] s_axi_control_rdata,
    output wire [ 1:0] s_axi_control_rresp,
    output reg         s_axi_control_rvalid,
    input  wire        s_axi_control_rready,

    output wire [63:0] m_axi_memory_araddr,
    output wire [ 7:0] m_axi_memory_arlen,
    output wire [ 2:0] m_axi_memory_arsize,
    output wire [ 1:0] m_axi_memory_arburst,
    output wire        m_axi_memory_arvalid,
    input  wire        m_axi_memory_arready,
    input  wire [31:0] m_axi_memory_rdata,
    input  wire [ 1:0] m_axi_memory_rresp,
    input  wire        m_axi_memory_rlast,
    input  wire        m_axi_memory_rvalid,
    output wire        m_axi_memory_rready,

    output wire interrupt
);
  // Strobes and memory are not used; the interrupt's name is Vitis'.
  // verilator lint_on SYMRSVDWORD
  localparam [11:0] CTRL = 12'h000, GIE = 12'h004, IER = 12'h008, ISR = 12'h00C;

  reg start, done, gie, ier, isr;

  wire write = s_axi_control_awvalid && s_axi_control_wvalid && !s_axi_control_bvalid;
  wire read = s_axi_control_arvalid && !s_axi_control_rvalid;
  wire end_run = start && !done;
  wire [4:0] data = s_axi_control_wdata[4:0];
  // verilator lint_on UNUSEDSIGNAL
  wire write_control = write && s_axi_control_awaddr == CTRL;

  assign s_axi_control_awready = write;
  assign s_axi_control_wready = write;
  assign s_axi_control_arready = read;
  assign s_axi_control_bresp = 2'b00;
  assign s_axi_control_rresp = 2'b00;
  assign interrupt = gie && isr;

  assign m_axi_memory_araddr = 64'd0;
  assign m_axi_memory_arlen = 8'd0;
  assign m_axi_memory_arsize = 3'd2;
  assign m_axi_memory_arburst = 2'b01;
  assign m_axi_memory_arvalid = 1'b0;
  assign m_axi_memory_rready = 1'b0;

  always @(posedge ap_clk) begin
    if (read) begin
      case (s_axi_control_araddr)
        CTRL: s_axi_control_rdata <= {29'd0, !start, done, start};
        GIE: s_axi_control_rdata <= {31'd0, gie};
        IER: s_axi_control_rdata <= {31'd0, ier};
        ISR: s_axi_control_rdata <= {31'd0, isr};
        default: s_axi_control_rdata <= 32'd0;
      endcase
    end

    if (write) s_axi_control_bvalid <= 1'b1;
    else if (s_axi_control_bready) s_axi_control_bvalid <= 1'b0;
    if (read) s_axi_control_rvalid <= 1'b1;
    else if (s_axi_control_rready) s_axi_control_rvalid <= 1'b0;

    if (write_control && data[0]) start <= 1'b1;
    else if (end_run) start <= 1'b0;
    if (end_run) done <= 1'b1;
    else if (write_control && data[4]) done <= 1'b0;
    if (write && s_axi_control_awaddr == GIE) gie <= data[0];
    if (write && s_axi_control_awaddr == IER) ier <= data[0];
    if (end_run && ier) isr <= 1'b1;
    else if (write && s_axi_control_awaddr == ISR) isr <= isr ^ data[0];

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
endmodule
`default_nettype wire
