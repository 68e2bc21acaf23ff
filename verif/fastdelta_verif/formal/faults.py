# SPDX-License-Identifier: Apache-2.0
"""Seeded faults of the cells: each must break a proof with a trace that starts at a reset."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastdelta_verif.build import REPOSITORY


@dataclass(frozen=True)
class Fault:
    """One seeded fault.

    Attributes
    ----------
    proof
        Name of the proof that must fail.
    file
        Source below ``rtl/``.
    old, new
        Text that occurs exactly once, and what takes its place.
    twin
        MyHDL twin that the cell no longer equals, if the proof compares it with one.
    """

    proof: str
    file: str
    old: str
    new: str
    twin: str = ""

    def apply(self, folder: Path) -> None:
        """Copy the RTL to ``rtl`` in a folder, with the fault in it.

        Raises
        ------
        ValueError
            The text does not occur exactly once: the RTL has changed, so must the fault.
        """
        shutil.copytree(REPOSITORY / "rtl", folder / "rtl")
        source = folder / "rtl" / self.file
        text = source.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file}: '{self.old}' occurs {text.count(self.old)} times, it must occur "
                "once; adapt the fault to the RTL"
            )
        source.write_text(text.replace(self.old, self.new))


SKID, FIFO, PLANNER = "common/skid_buffer.v", "common/stream_fifo.v", "common/axi_burst_planner.v"
READ, WRITE = "common/axi_read_mover.v", "common/axi_write_mover.v"
CONTROL, PREFILL_CONTROL = "decode/decode_control.v", "prefill/prefill_control.v"
REGISTERS = "decode/generated/decode_registers.sv"
THRESHOLD = "prefill/index_threshold.v"
UNIT, STRIP = "prefill/matrix_unit.v", "prefill/matrix_strip.v"
PACKER, DRAIN = "prefill/word_packer.v", "prefill/matrix_drain.v"
DIRECTORY, FREE_LINES = "prefill/kv_directory.v", "prefill/kv_free_lines.v"
ARRAY, LANES = "prefill/mac_array.v", "decode/decode_lanes.v"
QUADRATIC, ROM = "common/quadratic.v", "common/quadratic_rom.v"

FAULTS: Mapping[str, Fault] = {
    "skid_buffer_is_ready_when_full": Fault(
        "skid_buffer", SKID, "running && !spare_valid;", "running;"
    ),
    "skid_buffer_forgets_the_spare_beat": Fault(
        "skid_buffer", SKID, "m_axis_tvalid <= spare_valid || take;", "m_axis_tvalid <= take;"
    ),
    "skid_buffer_overtakes": Fault(
        "skid_buffer", SKID, "spare_valid ? spare : s_axis_tdata", "s_axis_tdata"
    ),
    "fifo_takes_one_too_many": Fault(
        "stream_fifo",
        FIFO,
        "s_axis_tready = !level[POINTER_BITS]",
        "s_axis_tready = level <= DEPTH[POINTER_BITS:0]",
    ),
    "fifo_of_two_offers_a_beat_before_it_is_fetched": Fault(
        "stream_fifo_of_two", FIFO, "m_axis_tvalid <= fetch;", "m_axis_tvalid <= fetch || store;"
    ),
    "fifo_moves_a_beat_that_waits": Fault(
        "stream_fifo", FIFO, "= advance && write_pointer", "= write_pointer"
    ),
    "fifo_keeps_a_beat_in_a_flush": Fault(
        "stream_fifo",
        FIFO,
        "m_axis_tvalid <= 1'b0;\n    end else",
        "m_axis_tvalid <= m_axis_tvalid && rst_n;\n    end else",
    ),
    "burst_crosses_a_page": Fault(
        "axi_burst_planner",
        PLANNER,
        "page_limit > MAX_BURST[11:0] ? MAX_BURST[11:0] : page_limit",
        "MAX_BURST[11:0]",
    ),
    "burst_is_too_long": Fault(
        "axi_burst_planner_odd",
        PLANNER,
        "limit = page_limit > MAX_BURST",
        "limit = page_limit > 12'd1 + MAX_BURST",
    ),
    "transfer_of_none_is_pending": Fault(
        "axi_burst_planner", PLANNER, "pending <= load_beats != 32'd0;", "pending <= 1'b1;"
    ),
    "transfer_ends_a_burst_early": Fault(
        "axi_burst_planner_narrow",
        PLANNER,
        "is_last = left <= {20'b0, limit}",
        "is_last = left <= {20'b0, limit} + 32'd1",
    ),
    "packer_takes_a_word_into_a_full_beat": Fault(
        "word_packer", PACKER, "!m_axis_tvalid || m_axis_tready;", "1'b1;"
    ),
    "packer_counts_from_the_flush_before": Fault(
        "word_packer", PACKER, "count         <= {COUNT_BITS{1'b0}};", "if (!rst_n) count <= 0;"
    ),
    "packer_puts_words_upside_down": Fault(
        "word_packer",
        PACKER,
        "<= {s_axis_tdata, m_axis_tdata[BUS_WIDTH-1:32]};",
        "<= {m_axis_tdata[BUS_WIDTH-33:0], s_axis_tdata};",
    ),
    "line_that_came_back_is_lost": Fault(
        "kv_free_lines", FREE_LINES, "if (give) height <= height + ONE;", ""
    ),
    "line_is_given_twice": Fault(
        "kv_free_lines", FREE_LINES, "top <= stack[below[", "top <= stack[height["
    ),
    "line_beyond_the_half_is_available": Fault(
        "kv_free_lines_one",
        FREE_LINES,
        "used != LINES_32[COUNT_BITS-1:0];",
        "used <= LINES_32[COUNT_BITS-1:0];",
    ),
    "line_is_freed_while_uses_are_left": Fault(
        "kv_directory_two_lines",
        DIRECTORY,
        "free = tracked && hit && !needed;",
        "free = tracked && hit;",
    ),
    "line_is_kept_after_its_last_use": Fault(
        "kv_directory",
        DIRECTORY,
        "needed <= left_after != 16'd0;",
        "needed <= entry[15:0] != 16'd0;",
    ),
    "live_line_gets_another_block": Fault(
        "kv_directory_two_lines",
        DIRECTORY,
        "wanted && !keep_hot && cold_available;",
        "wanted && !keep_hot;",
    ),
    "hot_half_takes_the_threshold_itself": Fault(
        "kv_directory", DIRECTORY, "left_after > hot_threshold;", "left_after >= hot_threshold;"
    ),
    "visit_of_keys_alone_is_a_use": Fault(
        "kv_directory", DIRECTORY, "counted = give && !k_only;", "counted = give;"
    ),
    "results_overtake": Fault(
        "matrix_drain",
        DRAIN,
        "strip = order[read_pointer[2:0]];",
        "strip = order[write_pointer[2:0]];",
    ),
    "result_is_read_before_it_is_ready": Fault(
        "matrix_drain",
        DRAIN,
        "write_pointer != read_pointer && ready[strip];",
        "write_pointer != read_pointer;",
    ),
    "server_is_released_too_early": Fault(
        "matrix_drain", DRAIN, "m_valid && m_ready && m_last", "m_valid && m_ready && drain_last"
    ),
    "column_that_waits_is_replaced": Fault(
        "matrix_drain", DRAIN, "advance = m_ready || !m_valid;", "advance = 1'b1;"
    ),
    "burst_is_asked_for_without_room": Fault(
        "axi_read_mover", READ, "room >= need", "room != 18'd0"
    ),
    "request_that_waits_is_replaced": Fault(
        "axi_read_mover", READ, "&& (m_axi_arready || !m_axi_arvalid);", ";"
    ),
    "cancel_leaves_beats_at_the_output": Fault(
        "axi_read_mover", READ, "fifo_valid && !stopping;", "fifo_valid;"
    ),
    "cancel_does_not_wait_for_memory": Fault(
        "axi_read_mover", READ, "cancelling <= stopping && awaited != NONE;", "cancelling <= 1'b0;"
    ),
    "read_command_is_taken_in_a_cancel": Fault(
        "axi_read_mover", READ, "s_cmd_ready   = !pending && !stopping;", "s_cmd_ready = !pending;"
    ),
    "write_is_over_before_the_last_answer": Fault(
        "axi_write_mover",
        WRITE,
        "pending || in_burst || m_axi_wvalid || unanswered != NONE",
        "pending || in_burst || m_axi_wvalid",
    ),
    "more_bursts_are_out_than_fit": Fault(
        "axi_write_mover", WRITE, "&& !unanswered[INDEX_BITS]", ""
    ),
    "last_beat_is_marked_too_early": Fault(
        "axi_write_mover",
        WRITE,
        "m_axi_wlast <= after_this == 8'd0;",
        "m_axi_wlast <= after_this <= 8'd1;",
    ),
    "cancelled_beats_are_written": Fault(
        "axi_write_mover", WRITE, "{DATA_WIDTH / 8{!stopping}}", "{DATA_WIDTH / 8{1'b1}}"
    ),
    "write_error_is_not_seen": Fault(
        "axi_write_mover", WRITE, "if (answer && m_axi_bresp != 2'b00) error <= 1'b1;", ""
    ),
    "run_begins_before_the_acknowledgement": Fault(
        "decode_control", CONTROL, "start = ap_start && !done;", "start = ap_start;"
    ),
    "end_of_a_run_is_lost_in_a_continue": Fault(
        "prefill_control",
        PREFILL_CONTROL,
        "if (ended) done <= 1'b1;\n      else if (ap_continue) done <= 1'b0;",
        "if (ap_continue) done <= 1'b0;\n      else if (ended) done <= 1'b1;",
    ),
    "write_of_control_keeps_a_start_that_is_taken": Fault(
        "decode_control",
        REGISTERS,
        "if(hwif_in_ctrl_ap_start_hwclr) begin",
        "if(hwif_in_ctrl_ap_start_hwclr && !(decoded_reg_strb_ctrl && decoded_req_is_wr)) begin",
    ),
    "interrupt_ignores_its_enable": Fault(
        "prefill_control",
        PREFILL_CONTROL,
        "interrupt_enable && (event_done || event_ready)",
        "event_done || event_ready",
    ),
    "equal_entries_are_taken_from_the_end": Fault(
        "index_threshold",
        THRESHOLD,
        "for (i = 0; i < LANES; i = i + 1)\n    if (equal_1[i] &&",
        "for (i = LANES - 1; i < LANES; i = i - 1)\n    if (equal_1[i] &&",
    ),
    "coverage_needs_more_than_its_share": Fault(
        "index_threshold",
        THRESHOLD,
        "pass_scaled > target : pass_scaled >= target;",
        "pass_scaled > target : pass_scaled > target;",
    ),
    "entry_0_is_counted_among_the_others": Fault(
        "index_threshold",
        THRESHOLD,
        "in_1[i] = (!last_1 || last_lanes[i]) && !(mode == BEST && first_1 && i == 32'd0) &&",
        "in_1[i] = (!last_1 || last_lanes[i]) &&",
    ),
    "task_goes_to_two_servers": Fault(
        "matrix_unit", UNIT, "strip_ready & (~strip_ready + 1'b1);", "strip_ready;"
    ),
    "servers_have_their_task_of_the_other_kind": Fault(
        "matrix_unit", UNIT, ".started(taken && !task_kind),", ".started(taken && task_kind),"
    ),
    "result_is_replaced_before_it_is_read": Fault(
        "matrix_unit",
        STRIP,
        "running && !(at_last && held_occupied)",
        "running",
    ),
    "skid_buffer_is_ready_in_a_reset": Fault(
        "skid_buffer_twin", SKID, "running <= rst_n;", "running <= 1'b1;", "skid_buffer_twin"
    ),
    "fabric_product_drops_the_sign_of_a_digit": Fault(
        "mac_array_twin",
        ARRAY,
        "sign_minus_twice[j] = SIGN_OFFSET - two;",
        "sign_minus_twice[j] = SIGN_OFFSET + two;",
        "digit_product_twin",
    ),
    "old_state_is_rounded_down": Fault(
        "decode_lanes_twin",
        LANES,
        "half = (32'sd1 <<< shift_1) >>> 1;",
        "half = 32'sd0;",
        "rounded_shift_twin",
    ),
    "state_that_is_gone_leaves_its_sign": Fault(
        "decode_lanes_twin",
        LANES,
        "kept[j] = shift_1 == 5'd31 ? 27'sd0 : rounded[26:0];",
        "kept[j] = rounded[26:0];",
        "rounded_shift_twin",
    ),
    "half_of_an_update_is_rounded_down": Fault(
        "decode_lanes_twin",
        LANES,
        "outer[j] + 45'sd65536",
        "outer[j] + 45'sd65535",
        "saturated_sum_twin",
    ),
    "most_negative_state_is_left_out": Fault(
        "decode_lanes_twin",
        LANES,
        "STATE_MIN = -29'sd67108864;",
        "STATE_MIN = -29'sd67108863;",
        "saturated_sum_twin",
    ),
    "coefficient_is_off_by_one": Fault(
        "quadratic_twin",
        ROM,
        "72'h0c9e36e60ecd2164c0",
        "72'h0c9e36e60ecd2164c1",
        "exp2_table_twin",
    ),
    "curvature_loses_its_sign": Fault(
        "quadratic_twin",
        QUADRATIC,
        "{{7{curvature[34]}}, curvature[34:18]}",
        "{7'd0, curvature[34:18]}",
        "exp2_slope_twin",
    ),
    "slope_meets_the_offset_of_the_next_argument": Fault(
        "quadratic_twin", QUADRATIC, "slope_2 * t_2", "slope_2 * t_1", "exp2_product_twin"
    ),
    "result_of_2_to_minus_u_is_rounded_down": Fault(
        "quadratic_twin", QUADRATIC, " + 30'sd8;", ";", "exp2_sum_twin"
    ),
    "tie_that_just_fits_is_dropped": Fault(
        "index_threshold_twin",
        THRESHOLD,
        "tie_fits = {sum_with_tie, 16'd0} <= target;",
        "tie_fits = {sum_with_tie, 16'd0} < target;",
        "selector_twin",
    ),
}
