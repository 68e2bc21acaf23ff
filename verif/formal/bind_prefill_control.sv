// SPDX-License-Identifier: Apache-2.0
// The properties of a control port on that of the prefill kernel.

bind prefill_control kernel_control_checks checks (
    .held_aw(registers.axil_awvalid),
    .held_awaddr(registers.axil_awaddr),
    .held_w(registers.axil_wvalid),
    .held_wdata(registers.axil_wdata),
    .held_wstrb(registers.axil_wstrb),
    .held_ar(registers.axil_arvalid),
    .held_araddr(registers.axil_araddr),
    .write(registers.axil_aw_accept),
    .read(registers.axil_ar_accept),
    .in_flight(registers.axil_n_in_flight),
    .answers_in(registers.axil_resp_wptr),
    .answers_out(registers.axil_resp_rptr),
    .answer_is_write(registers.axil_resp_buffer_is_wr),
    .answer_error(registers.axil_resp_buffer_err),
    .ap_ready(registers.field_storage_ctrl_ap_ready_value),
    .*
);
