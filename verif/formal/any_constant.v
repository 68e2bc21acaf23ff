// SPDX-License-Identifier: Apache-2.0
// A value that the solver chooses and that stays: what holds for it holds for every value.
`default_nettype none

module any_constant #(
    parameter WIDTH = 1
) (
    output wire [WIDTH-1:0] value
);

`ifdef FORMAL  // the SystemVerilog front end has no such word and needs only the ports
  assign value = $anyconst;
`endif

endmodule

`default_nettype wire
