# SPDX-License-Identifier: Apache-2.0
"""Seeded faults of the RTL: the benches must catch every one of them.

A mutant replaces one piece of text in a copy of ``rtl/``. It stands for a mistake that a person
could make, and names the test that must fail on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastdelta_verif.build import REPOSITORY, Design, needed_sources, rtl_sources
from fastdelta_verif.cells import stand_in
from fastdelta_verif.cells.stand_in.prefill import UNITS
from fastdelta_verif.designs import (
    BASE,
    CACHE_BASE,
    INDEX_BASE,
    MATRIX_BASE,
    PREFILL_BASE,
    READER_BASE,
    TILE_BASE,
)


@dataclass(frozen=True)
class MutantBench:
    """Where a mutant is tested: a small design and the module with its tests.

    Attributes
    ----------
    engine
        File list below ``rtl/``.
    module
        Module of ``fastdelta_verif.benches``.
    parameters
        Parameters of the design.
    options
        Options of the tests.
    top
        Top of the design; by default it has the name of the module.
    stand_ins
        Sources that take the place of those of the same name.
    """

    engine: str
    module: str
    parameters: Mapping[str, int]
    options: Mapping[str, Any]
    top: str = ""
    stand_ins: tuple[Path, ...] = ()

    def design(self, parameters: Mapping[str, int], root: Path = REPOSITORY) -> Design:
        """Return the design of the RTL below a folder."""
        top, replaced = self.top or self.module, {path.stem for path in self.stand_ins}
        others = (s for s in rtl_sources(self.engine, root) if s.stem not in replaced)
        sources = needed_sources(top, (*self.stand_ins, *others))
        # Icarus needs no compilation, and these designs are small.
        return Design(top, sources, {**self.parameters, **parameters}, simulator="icarus")


DECODE_OPTIONS = {"commands": 16, "runs": 8, "rounds": 1}
DECODE_CORE = MutantBench("decode", "decode_core", BASE, DECODE_OPTIONS)
DECODE_KERNEL = MutantBench("decode", "decode_kernel", BASE, DECODE_OPTIONS)
MATRIX_UNIT = MutantBench("prefill", "matrix_unit", MATRIX_BASE, {"tasks": 40})
JOB_READER = MutantBench("prefill", "job_reader", READER_BASE, {"lists": 12, "rounds": 1})
INDEX_GENERATOR = MutantBench("prefill", "index_generator", INDEX_BASE, {"runs": 8, "blocks": 9})
QUERY_AWARE = MutantBench(
    "prefill", "index_generator", INDEX_BASE, {"runs": 12, "blocks": 9, "limit": 1 << 24}
)
KV_CACHE = MutantBench("prefill", "kv_cache", CACHE_BASE, {"heads": 20})
PREFILL_KERNEL = MutantBench("prefill", "prefill_kernel", PREFILL_BASE, {"runs": 6, "blocks": 3})
PREFILL_SHELL = MutantBench(
    "prefill", "prefill_shell", {**PREFILL_BASE, "MAP_ENTRIES": 3}, {}, "prefill_kernel", UNITS
)
TILE_ENGINE = MutantBench("prefill", "tile_engine", TILE_BASE, {"prompts": 5, "blocks": 4})
SKID_BUFFER = MutantBench(
    "common", "stream_buffer", {"WIDTH": 8}, {"latency": 1, "capacity": 2}, "skid_buffer"
)
STREAM_FIFO = MutantBench(
    *("common", "stream_buffer", {"WIDTH": 8, "DEPTH": 16}, {"latency": 2, "capacity": 17}),
    "stream_fifo",
)
READ_MOVER = MutantBench(
    "common",
    "axi_read_mover",
    {"DATA_WIDTH": 128, "MAX_BURST": 16, "FIFO_BEATS": 16},
    {"transfers": 20},
)
QUADRATIC = MutantBench("prefill", "quadratic", {"FUNCTION": 0}, {"random": 500})
KERNEL_SHELL = MutantBench(
    "decode",
    "kernel_shell",
    {
        "HEAD_DIM": 16,
        "QK_HEADS": 2,
        "GROUP_RATIO": 2,
        "H_ITER": 2,
        "CONTEXTS": 3,
        "BUS_WIDTH": 128,
    },
    {"runs": 20},
    "decode_kernel",
    (Path(stand_in.__file__).with_name("decode_core.v"),),
)


def index_unit(top: str, **parameters: int) -> MutantBench:
    """Return the bench of a unit of the index generator."""
    return MutantBench("prefill", "index_units", parameters, {"runs": 6}, top)


SOFTMAX_UNIT = index_unit("index_softmax", MAX_BLOCKS=16)
DOT_UNIT = index_unit("index_dot", MAX_BLOCKS=8, HEAD_DIM=48, LANES=16, SLOTS=3)
DIVERGENCE_UNIT = index_unit("index_divergence", MAX_BLOCKS=16, SCORE_LANES=4)

BEAT_CHECKSUM = MutantBench(
    "prefill", "checksum_cells", {"BUS_WIDTH": 128}, {}, top="beat_checksum"
)
BLOCK_CHECK = MutantBench(
    "prefill", "checksum_cells", {"BLOCK_BEATS": 2, "BUS_WIDTH": 64}, {"beats": 2}, "block_check"
)


@dataclass(frozen=True)
class Mutant:
    """One seeded fault.

    Attributes
    ----------
    file
        Source below ``rtl/``.
    old, new
        Text that occurs exactly once, and what takes its place.
    test
        Test that catches the fault.
    bench
        Where that test is.
    parameters
        Parameters other than those of the bench.
    """

    file: str
    old: str
    new: str
    test: str
    bench: MutantBench = DECODE_CORE
    parameters: Mapping[str, int] = field(default_factory=dict)

    def design(self, folder: Path) -> Design:
        """Copy the RTL to a folder with the fault in it, and return the design.

        Raises
        ------
        ValueError
            The text does not occur exactly once: the RTL has changed, so must the mutant.
        """
        shutil.copytree(REPOSITORY / "rtl", folder / "rtl")
        source = folder / "rtl" / self.file
        text = source.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file}: '{self.old}' occurs {text.count(self.old)} times, it must occur "
                "once; adapt the mutant to the RTL"
            )
        source.write_text(text.replace(self.old, self.new))
        return self.bench.design(self.parameters, folder)

    def original(self) -> Design:
        """Return the design without the fault."""
        return self.bench.design(self.parameters)


LANES, FINISH = "decode/decode_lanes.v", "decode/decode_finish.v"
CORE, SEQUENCER = "decode/decode_core.v", "decode/decode_sequencer.v"
SOFTMAX, ACCUMULATOR = "prefill/tile_softmax.v", "prefill/keyed_accumulator.v"
READER, DIRECTORY, STREAM = "prefill/job_reader.v", "prefill/kv_directory.v", "prefill/kv_stream.v"
POOLING, THRESHOLD = "prefill/index_pooling.v", "prefill/index_threshold.v"
PREFILL, RUNS = "prefill/prefill_kernel.v", "prefill/prefill_sequencer.v"
LOADER, OUTPUT = "prefill/tile_loader.v", "prefill/attention_output.v"

MUTANTS: Mapping[str, Mutant] = {
    "truncates_instead_of_rounding": Mutant(
        LANES,
        "rounded = (outer[j] + 45'sd65536) >>> 17;",
        "rounded = outer[j] >>> 17;",
        "random_mix",
    ),
    "wraps_instead_of_saturating": Mutant(
        LANES,
        "updated[j] = sum > STATE_MAX ? STATE_MAX[26:0]",
        "updated[j] = sum > STATE_MAX ? sum[26:0]",
        "saturation_is_counted",
    ),
    "counts_negative_saturation_not": Mutant(
        LANES,
        "clamped = sum > STATE_MAX || sum < STATE_MIN;",
        "clamped = sum > STATE_MAX;",
        "saturation_is_counted",
    ),
    "keeps_the_sums_of_the_pass_before": Mutant(
        LANES, "first_4 ? 48'sd0 : w_accumulator[j]", "w_accumulator[j]", "random_mix"
    ),
    "rounds_the_output_down": Mutant(
        FINISH, "dot_product_7 + 59'sd2097152", "dot_product_7", "random_mix"
    ),
    "lets_beta_exceed_one": Mutant(
        "decode/decode_gates.v",
        "record_12[49:32] > 18'd131072 ? 18'd131072 : record_12[49:32]",
        "record_12[49:32]",
        "gate_limits",
    ),
    "uses_tiled_key_heads": Mutant(
        CORE,
        "QK_SLOTS == 1 ? 0 : slot / GROUP_RATIO",
        "QK_SLOTS == 1 ? 0 : slot % QK_SLOTS",
        "value_heads_use_their_key_head",
        parameters={"H_ITER": 4},
    ),
    "clears_all_heads_but_the_last": Mutant(
        CORE,
        "walk_end_32 = head_base_32 + LAST_VALUE_HEAD_32",
        "walk_end_32 = head_base_32 + LAST_VALUE_HEAD_32 - 1",
        "clear_isolates_sequences",
    ),
    "reset_clears_one_context": Mutant(
        CORE,
        "walk_end <= LAST_HEAD_32[HEAD_WIDTH-1:0];",
        "walk_end <= LAST_VALUE_HEAD_32[HEAD_WIDTH-1:0];",
        "unused_contexts_are_clear",
    ),
    "ignores_back_pressure": Mutant(
        "decode/decode_output.v",
        "written && (!read_valid || m_axis_tready)",
        "written",
        "back_pressure",
    ),
    "starts_a_pass_without_gates": Mutant(
        CORE,
        "inputs_ready = qk_ready != 3'd0 && v_loaded != 3'd0 && v_gated != 3'd0;",
        "inputs_ready = qk_ready != 3'd0 && v_loaded != 3'd0;",
        "random_mix",
    ),
    "bursts_cross_pages": Mutant(
        "common/axi_burst_planner.v",
        "page_limit > MAX_BURST[11:0] ? MAX_BURST[11:0] : page_limit",
        "MAX_BURST[11:0]",
        "random_runs",
        bench=DECODE_KERNEL,
    ),
    "done_before_the_last_answer": Mutant(
        "common/axi_write_mover.v",
        "pending || in_burst || m_axi_wvalid || unanswered != NONE",
        "pending || in_burst || m_axi_wvalid",
        "done_comes_after_the_last_answer",
        bench=DECODE_KERNEL,
    ),
    "does_not_see_write_errors": Mutant(
        "common/axi_write_mover.v",
        "if (answer && m_axi_bresp != 2'b00) error <= 1'b1;",
        "",
        "memory_errors",
        bench=DECODE_KERNEL,
    ),
    "uses_a_lost_context": Mutant(
        SEQUENCER,
        "else if (context_is_lost && (is_decode || is_dump)) verdict = CONTEXT_LOST;",
        "",
        "bad_state_is_refused",
        bench=DECODE_KERNEL,
    ),
    "fabric_product_drops_a_sign": Mutant(
        "prefill/mac_array.v",
        "sign_minus_twice[j] = SIGN_OFFSET - two;",
        "sign_minus_twice[j] = SIGN_OFFSET + two;",
        "random_tasks",
        bench=MATRIX_UNIT,
    ),
    "fabric_product_carries_its_offset": Mutant(
        "prefill/mac_array.v",
        "sign_none = digit_3 == 2'd0 ? SIGN_OFFSET : 10'd0;",
        "sign_none = 10'd0;",
        "random_tasks",
        bench=MATRIX_UNIT,
    ),
    "sums_are_a_bit_too_narrow": Mutant(
        "prefill/matrix_strip.v",
        "(DEPTH_WIDTH + 16)",
        "(DEPTH_WIDTH + 15)",
        "extremes",
        bench=MATRIX_UNIT,
    ),
    "next_task_overwrites_a_result": Mutant(
        "prefill/matrix_strip.v",
        "running && !(at_last && held_occupied)",
        "running",
        "random_tasks",
        bench=MATRIX_UNIT,
    ),
    "mask_is_off_by_one": Mutant(
        SOFTMAX,
        "nothing_2[i] = row < column ||",
        "nothing_2[i] = row <= column ||",
        "attention",
        TILE_ENGINE,
    ),
    "masked_keys_set_the_exponent": Mutant(
        SOFTMAX, "if (row >= column && score_3[i]", "if (score_3[i]", "attention", TILE_ENGINE
    ),
    "scores_are_truncated": Mutant(
        SOFTMAX,
        "value[0] && !clip}",
        "1'b0}",
        "attention",
        TILE_ENGINE,
    ),
    "scores_have_no_limit": Mutant(
        SOFTMAX,
        "clip = clip || value[27:24] != {4{sign}} || value[23:14] == {10{!sign}};",
        "clip = 1'b0;",
        "attention",
        TILE_ENGINE,
    ),
    "probability_wraps_at_the_peak": Mutant(
        SOFTMAX,
        "(probability[8] ? 8'd255 : probability[7:0])",
        "probability[7:0]",
        "attention",
        TILE_ENGINE,
    ),
    "statistics_weigh_the_keys": Mutant(
        SOFTMAX,
        "minus_weight = {13'd0, scoring_statistics ? 4'd0 : v_shift_2, 8'd0};",
        "minus_weight = {13'd0, v_shift_2, 8'd0};",
        "statistics",
        TILE_ENGINE,
    ),
    "diagonal_counts_as_near": Mutant(
        SOFTMAX,
        "if (i >= column) far[i]",
        "if (i > column) far[i]",
        "statistics",
        TILE_ENGINE,
    ),
    "old_sum_is_not_aligned": Mutant(
        "prefill/row_statistics.v",
        "rounded(old_sum_2, shift_keep)",
        "old_sum_2",
        "attention",
        # Few rows have a peak that rises after their first tile.
        replace(TILE_ENGINE, options={"prompts": 20, "blocks": 4}),
    ),
    "slot_keeps_the_sum_of_the_block_before": Mutant(
        "prefill/row_statistics.v",
        "held = first_1 ? NO_TILE : old_1;",
        "held = old_1;",
        "attention",
        TILE_ENGINE,
    ),
    "offset_of_p_is_not_added_back": Mutant(
        ACCUMULATOR,
        "pv = sum_1[i] + offset;",
        "pv = sum_1[i];",
        "attention",
        TILE_ENGINE,
    ),
    "accumulator_keeps_its_scale": Mutant(
        ACCUMULATOR,
        "kept_2[i] = old >>> s[3:0];",
        "kept_2[i] = old;",
        "attention",
        TILE_ENGINE,
    ),
    "output_rows_keep_the_drop_of_another": Mutant(
        OUTPUT,
        "store_row <= store_row + 1'b1;",
        "store_row <= store_row;",
        "attention",
        TILE_ENGINE,
    ),
    "slot_is_given_back_too_early": Mutant(
        OUTPUT,
        "slot_release <= word_comes && !reading;",
        "slot_release <= begin_block;",
        "slow_outputs",
        TILE_ENGINE,
    ),
    "buffer_is_reused_while_jobs_are_left": Mutant(
        LOADER,
        "visits_open > 4'd1 && jobs_left[release_buffer] == 8'd0;",
        "visits_open > 4'd1;",
        "attention",
        TILE_ENGINE,
    ),
    "query_block_is_used_before_it_is_there": Mutant(
        "prefill/tile_issue.v",
        "wire loaded = k_loaded[s_job_buffer] && q_loaded[s_job_slot[SLOT_BITS-1:0]] &&",
        "wire loaded = k_loaded[s_job_buffer] &&",
        "attention",
        TILE_ENGINE,
    ),
    "value_sums_miss_the_first_key": Mutant(
        "prefill/block_parameters.v",
        "(v_word == 9'd0 ? 16'sd0 : held) + value;",
        "(v_word == 9'd0 ? 16'sd0 : held + value);",
        "attention",
        TILE_ENGINE,
    ),
    "visit_is_given_before_it_is_checked": Mutant(
        READER,
        "if (give) given_pointer <= write_pointer;",
        "given_pointer <= write_pointer;",
        "broken_lists",
        JOB_READER,
    ),
    "window_may_end_with_open_slots": Mutant(
        READER, "|| closed_pairs != due_pairs;", ";", "broken_lists", JOB_READER
    ),
    "use_of_the_record_before_is_missed": Mutant(
        READER,
        "!none_yet && block == last_block ? last_left : left_read;",
        "left_read;",
        "broken_lists",
        JOB_READER,
    ),
    "broken_list_leaves_its_beats": Mutant(
        READER, "DRAIN: if (beats_left == 24'd0)", "DRAIN:", "broken_lists", JOB_READER
    ),
    "hot_half_takes_the_threshold_itself": Mutant(
        DIRECTORY,
        "left_after > hot_threshold;",
        "left_after >= hot_threshold;",
        "random_lists",
        KV_CACHE,
    ),
    "hot_block_finds_no_cold_line": Mutant(
        DIRECTORY,
        "wanted && !keep_hot && cold_available;",
        "wanted && !is_hot && cold_available;",
        "random_lists",
        KV_CACHE,
    ),
    "live_line_gets_another_block": Mutant(
        DIRECTORY,
        "wanted && !keep_hot && cold_available;",
        "wanted && !keep_hot;",
        "random_lists",
        KV_CACHE,
    ),
    "lines_of_the_head_before_are_found": Mutant(
        DIRECTORY,
        "<= {1'b0, {LINE_BITS{1'b0}}, uses_value};",
        "<= {present, entry_line, uses_value};",
        "random_lists",
        KV_CACHE,
    ),
    "line_is_written_by_all_visits": Mutant(
        STREAM,
        "write <= move && now_keep;",
        "write <= move && !now_from_line;",
        "random_lists",
        KV_CACHE,
    ),
    "visit_begins_before_it_was_asked_for": Mutant(
        STREAM,
        "load = level != unasked && (!active",
        "load = level != 5'd0 && (!active",
        "random_lists",
        KV_CACHE,
    ),
    "head_has_no_representative_block": Mutant(
        PREFILL, "{1'b0, run_blocks} + 13'd1", "{1'b0, run_blocks}", "random_runs", PREFILL_KERNEL
    ),
    "kv_heads_share_their_query_heads": Mutant(
        RUNS,
        "first_head <= first_head + {16'd0, run_group};",
        "first_head <= first_head + 20'd1;",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "ends_before_the_last_answer": Mutant(
        RUNS,
        "attending && reader_is_done && quiet;",
        "attending && reader_is_done && units_idle;",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "ragged_block_is_a_token_short": Mutant(
        RUNS,
        "BLOCK[7:0] - 8'd1 - remainder;",
        "BLOCK[7:0] - remainder;",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "packs_words_from_the_top": Mutant(
        "prefill/word_packer.v",
        "<= {s_axis_tdata, m_axis_tdata[BUS_WIDTH-1:32]};",
        "<= {m_axis_tdata[BUS_WIDTH-33:0], s_axis_tdata};",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "counts_steps_of_both_phases_as_one": Mutant(
        "prefill/prefill_counters.v",
        "attended_steps = attending ? unit_steps : 64'd0;",
        "attended_steps = unit_steps;",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "failed_run_leaves_its_units": Mutant(
        RUNS, "units_reset     = cancel;", "units_reset     = 1'b0;", "list_faults", PREFILL_SHELL
    ),
    "list_without_room_is_written": Mutant(
        PREFILL,
        "list_is_too_long     <= generator_list_words > {2'd0, run_job_stride[31:2]};",
        "list_is_too_long     <= 1'b0;",
        "list_faults",
        PREFILL_SHELL,
    ),
    "list_is_read_beyond_its_room": Mutant(
        PREFILL,
        "request_fits = list_read_end <= {1'b0, run_job_stride};",
        "request_fits = list_read_end[32:31] == 2'd0;",
        "list_faults",
        PREFILL_SHELL,
    ),
    "broken_list_is_no_failure": Mutant(
        RUNS, "if (attending && bad_job)", "if (1'b0)", "list_faults", PREFILL_SHELL
    ),
    "first_tile_joins_the_last_run": Mutant(
        "prefill/index_row_bank.v",
        "opens_1 ? 47'd0 : statistics_1[46:0]",
        "statistics_1[46:0]",
        "random_runs",
        INDEX_GENERATOR,
    ),
    "near_keys_at_the_distance_of_far_ones": Mutant(
        "prefill/index_scores.v",
        "if (closes_10) near_before <= near_10;",
        "if (closes_10) near_before <= far_10;",
        "random_runs",
        INDEX_GENERATOR,
    ),
    "scale_of_the_next_block": Mutant(
        POOLING,
        "    scale <= pass_scale;",
        "    scale <= scale_3 - {1'b0, excess_10};",
        "random_runs",
        INDEX_GENERATOR,
    ),
    "keys_of_a_ragged_block_are_averaged_as_whole": Mutant(
        "prefill/index_generator.v",
        "key_block == last_block ? ragged_tokens",
        "1'b0 ? ragged_tokens",
        "random_runs",
        INDEX_GENERATOR,
    ),
    "pooled_query_is_overwritten": Mutant(
        "prefill/index_generator.v",
        "pool_query - rows_scored < 12'd2",
        "pool_query - rows_scored < 12'd3",
        "random_runs",
        QUERY_AWARE,
    ),
    "equal_entries_are_all_taken": Mutant(
        THRESHOLD,
        "      MARK: if (valid_1) ties <= ties_left;\n",
        "",
        "random_runs",
        QUERY_AWARE,
    ),
    "blocks_of_score_0_are_not_all": Mutant(
        "prefill/index_selection.v",
        "start && !query_aware && !take_all",
        "start && !query_aware",
        "shortest_prompts",
        INDEX_GENERATOR,
    ),
    "row_of_the_map_keeps_the_end_of_another": Mutant(
        "prefill/index_map.v",
        "filled = lane == 7'd0 ? {MAP_LANES * 25{1'b0}} : gathered;",
        "filled = gathered;",
        "random_runs",
        QUERY_AWARE,
    ),
    "last_word_of_a_beat_is_not_summed": Mutant(
        "common/beat_checksum.v",
        "for (i = 0; i < WORDS; i = i + 1)",
        "for (i = 0; i < WORDS - 1; i = i + 1)",
        "sums",
        BEAT_CHECKSUM,
    ),
    "checksum_keeps_a_beat_of_the_run_before": Mutant(
        "common/beat_checksum.v",
        "total_valid <= parts_valid && !clear;",
        "total_valid <= parts_valid;",
        "sums",
        BEAT_CHECKSUM,
    ),
    "check_beats_wait_for_the_unit": Mutant(
        "prefill/block_check.v",
        "s_axis_tready = is_check || m_axis_tready;",
        "s_axis_tready = m_axis_tready;",
        "blocks",
        BLOCK_CHECK,
    ),
    "block_that_was_cut_off_goes_on": Mutant(
        "prefill/block_check.v", "if (!rst_n || flush)", "if (!rst_n)", "cut_off", BLOCK_CHECK
    ),
    "result_block_has_no_check_word": Mutant(
        "common/result_block.v",
        "summing ? 32'd0 : 32'd0 - checksum;",
        "32'd0;",
        "random_runs",
        DECODE_KERNEL,
    ),
    "checksum_of_outputs_is_of_announced_beats": Mutant(
        "decode/decode_kernel.v",
        "m_axi_o_wvalid && m_axi_o_wready && m_axi_o_wstrb[0];",
        "m_axi_o_wvalid && m_axi_o_wstrb[0];",
        "random_runs",
        DECODE_KERNEL,
    ),
    "checksum_of_values_is_that_of_keys": Mutant(
        PREFILL,
        ".data    (m_axi_v_rdata),",
        ".data    (m_axi_k_rdata),",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "waiting_beat_is_overtaken": Mutant(
        "common/skid_buffer.v",
        "spare_valid ? spare : s_axis_tdata",
        "s_axis_tdata",
        "random_stalls",
        SKID_BUFFER,
    ),
    "fifo_takes_one_too_many": Mutant(
        "common/stream_fifo.v",
        "s_axis_tready = !level[POINTER_BITS]",
        "s_axis_tready = level <= DEPTH[POINTER_BITS:0]",
        "capacity",
        STREAM_FIFO,
    ),
    "burst_is_asked_for_without_room": Mutant(
        "common/axi_read_mover.v", "room >= need", "room != 18'd0", "blocked_sink", READ_MOVER
    ),
    "cancel_does_not_wait_for_memory": Mutant(
        "common/axi_read_mover.v",
        "cancelling <= stopping && awaited != NONE;",
        "cancelling <= 1'b0;",
        "cancelled",
        READ_MOVER,
    ),
    "awaited_beats_survive_a_reset": Mutant(
        "common/axi_read_mover.v",
        "      awaited       <= NONE;\n",
        "",
        "cancelled",
        READ_MOVER,
    ),
    "function_is_rounded_down": Mutant(
        "common/quadratic.v", " + 30'sd8;", ";", "every_segment", QUADRATIC
    ),
    "coefficient_has_a_wrong_digit": Mutant(
        "common/quadratic_rom.v",
        "72'h0c9e36e60ecd2164c0",
        "72'h0c9e36e60ecd2174c0",
        "every_segment",
        QUADRATIC,
    ),
    "delayed_flags_survive_a_reset": Mutant(
        "common/delay_line.v",
        "if (RESET != 0 && !rst_n) line <= {(WIDTH * CYCLES) {1'b0}};\n        else line",
        "line",
        "random_mix",
    ),
    "dump_ends_after_one_head": Mutant(
        "decode/decode_dump.v",
        "all_read <= last_head;",
        "all_read <= 1'b1;",
        "dump_after_load_is_the_identity",
    ),
    "scale_of_a_half_is_taken": Mutant(
        "decode/decode_load.v",
        "s_axis_tdata[24:0] <= 25'h0800000",
        "s_axis_tdata[24:0] < 25'h0800000",
        "bad_scale_is_refused",
    ),
    "odd_and_even_powers_are_swapped": Mutant(
        "decode/decode_normalise.v",
        "odd_6 ? root_odd : root_even",
        "odd_6 ? root_even : root_odd",
        "random_mix",
    ),
    "unit_vector_is_truncated": Mutant(
        "decode/decode_unit_vector.v",
        "(extended + (49'sd1 <<< (count - 6'd1))) >>> count",
        "extended >>> count",
        "random_mix",
    ),
    "sum_of_squares_goes_on": Mutant(
        "decode/decode_qk.v",
        "qq_3 <= (first_2 ? 38'd0 : qq_3) + qq_2;",
        "qq_3 <= qq_3 + qq_2;",
        "random_mix",
    ),
    "last_rows_take_the_shift_of_a_token": Mutant(
        "decode/decode_head_slot.v",
        "settle_rows ? pending_shift : shift_before[row_bundle]",
        "shift_before[row_bundle]",
        "random_mix",
    ),
    "run_begins_before_the_acknowledgement": Mutant(
        "decode/decode_control.v",
        "start = ap_start && !done;",
        "start = ap_start;",
        "control_protocol",
        KERNEL_SHELL,
    ),
    "all_outputs_count_as_stalls": Mutant(
        "decode/decode_kernel.v",
        ".core_output_waits  (o_tvalid && !write_tready),",
        ".core_output_waits  (o_tvalid),",
        "random_runs",
        DECODE_KERNEL,
    ),
    "checksum_of_v_is_that_of_qk": Mutant(
        "decode/decode_kernel.v",
        ".data    (m_axi_v_rdata),",
        ".data    (m_axi_qk_rdata),",
        "random_runs",
        DECODE_KERNEL,
    ),
    "interrupt_ignores_its_enable": Mutant(
        "prefill/prefill_control.v",
        "interrupt_enable && (event_done || event_ready)",
        "event_done || event_ready",
        "control_protocol",
        PREFILL_SHELL,
    ),
    "all_columns_are_at_the_first": Mutant(
        "prefill/block_address.v",
        "* {19'd0, columns} + {20'd0, s_request_column};",
        "* {19'd0, columns};",
        "random_runs",
        PREFILL_KERNEL,
    ),
    "all_parts_of_a_word_go_to_the_first": Mutant(
        "prefill/block_buffer.v",
        "[write_part*PART_WIDTH+:PART_WIDTH]",
        "[0+:PART_WIDTH]",
        "attention",
        TILE_ENGINE,
    ),
    "keys_come_from_the_buffer_of_another_visit": Mutant(
        "prefill/tile_operands.v",
        "{k_buffer, k_channel}",
        "{{BUFFER_WIDTH{1'b0}}, k_channel}",
        "attention",
        TILE_ENGINE,
    ),
    "diagonal_is_not_causal": Mutant(
        "prefill/tile_engine.v",
        "diagonal ? 9'sd0 : BLOCK_32[8:0]",
        "BLOCK_32[8:0]",
        "attention",
        TILE_ENGINE,
    ),
    "column_that_waits_is_replaced": Mutant(
        "prefill/matrix_drain.v",
        "advance = m_ready || !m_valid;",
        "advance = 1'b1;",
        "random_tasks",
        MATRIX_UNIT,
    ),
    "columns_of_the_ports_are_swapped": Mutant(
        "prefill/matrix_unit.v",
        "result_kind[n] ? values_column : scores_column",
        "result_kind[n] ? scores_column : values_column",
        "random_tasks",
        MATRIX_UNIT,
    ),
    "all_cycles_count_as_prefetches": Mutant(
        "prefill/kv_cache.v",
        "count_prefetches + {31'd0, k_ahead};",
        "count_prefetches + 32'd1;",
        "random_lists",
        KV_CACHE,
    ),
    "line_is_given_twice": Mutant(
        "prefill/kv_free_lines.v",
        "top <= stack[below[",
        "top <= stack[height[",
        "random_lists",
        KV_CACHE,
    ),
    "share_is_rounded_down": Mutant(
        "prefill/index_divider.v",
        "product_2 + 58'h40000000;",
        "product_2;",
        "softmax_rows",
        SOFTMAX_UNIT,
    ),
    "position_of_a_one_is_off_by_two": Mutant(
        "prefill/index_leading_one.v",
        "missing[1] = 1'b1;",
        "missing[1] = 1'b0;",
        "softmax_rows",
        SOFTMAX_UNIT,
    ),
    "weight_is_rounded_down": Mutant(
        "prefill/index_softmax.v",
        "({2'b0, power_6} + half) >> whole_6;",
        "{2'b0, power_6} >> whole_6;",
        "softmax_rows",
        SOFTMAX_UNIT,
    ),
    "dot_product_goes_on": Mutant(
        "prefill/index_dot.v",
        "(opens[4] ? 38'sd0 : dot_5) + sum_4;",
        "dot_5 + sum_4;",
        "dot_scores",
        DOT_UNIT,
    ),
    "mean_is_not_halved": Mutant(
        "prefill/index_divergence.v",
        "(sum_11 ? {1'b0, LN_2} : 31'd0)",
        "31'd0",
        "divergences",
        DIVERGENCE_UNIT,
    ),
    "last_job_of_a_row_is_not_marked": Mutant(
        "prefill/index_emitter.v",
        "{3'd0, job_query == block, 1'b0,",
        "{3'd0, 1'b0, 1'b0,",
        "random_runs",
        INDEX_GENERATOR,
    ),
    "rows_of_the_map_are_one_too_late": Mutant(
        "prefill/index_scan.v",
        "pair_row = last_row[11:0] - {5'd0, count} + 12'd1;",
        "pair_row = last_row[11:0] - {5'd0, count};",
        "random_runs",
        QUERY_AWARE,
    ),
    "all_lanes_take_a_score": Mutant(
        "prefill/index_score_memory.v",
        "write && write_lane == N[11:0]",
        "write",
        "random_runs",
        INDEX_GENERATOR,
    ),
}
