// SPDX-License-Identifier: Apache-2.0
// Delay of a word by a fixed number of cycles.
//
// Purpose: keeps side data beside a free-running pipeline.
// Protocol: none; no reset, so a valid bit needs RESET = 1.
// Latency CYCLES cycles, one word a cycle.
`default_nettype none

module delay_line #(
    parameter WIDTH  = 1,  // bits of the word, >= 1
    parameter CYCLES = 1,  // delay in cycles, >= 1
    parameter RESET  = 0   // 1: the line empties to zero in reset
) (
    input  wire             clk,
    input  wire             rst_n,
    input  wire [WIDTH-1:0] in,
    output wire [WIDTH-1:0] out
);

  generate
    if (WIDTH < 1 || CYCLES < 1 || RESET < 0 || RESET > 1) begin : g_illegal
      illegal_parameter_of_delay_line stop ();
    end
  endgenerate

  reg [WIDTH*CYCLES-1:0] line;

  generate
    if (CYCLES == 1) begin : g_single
      always @(posedge clk)
        if (RESET != 0 && !rst_n) line <= {WIDTH{1'b0}};
        else line <= in;
    end else begin : g_shift
      always @(posedge clk)
        if (RESET != 0 && !rst_n) line <= {(WIDTH * CYCLES) {1'b0}};
        else line <= {line[WIDTH*(CYCLES-1)-1:0], in};
    end
  endgenerate

  assign out = line[WIDTH*CYCLES-1-:WIDTH];

endmodule

`default_nettype wire
