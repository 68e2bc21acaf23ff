// SPDX-License-Identifier: Apache-2.0
// A value that the solver chooses anew in each cycle.
`default_nettype none

module any_sequence #(
    parameter WIDTH = 1
) (
    output wire [WIDTH-1:0] value
);

`ifdef FORMAL  // the SystemVerilog front end has no such word and needs only the ports
  assign value = $anyseq;
`endif

endmodule

`default_nettype wire
