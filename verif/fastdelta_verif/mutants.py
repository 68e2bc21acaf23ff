# SPDX-License-Identifier: Apache-2.0
"""Seeded faults of the decode RTL: the bench must catch every one of them.

A mutant replaces one piece of text in a copy of ``rtl/``. It stands for a mistake that a person
could make, and names the test that must fail on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastdelta_verif.build import REPOSITORY, Design, rtl_sources
from fastdelta_verif.designs import BASE, decode_core, decode_kernel


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
        Test that catches the fault, of the core or, for files around it, of the kernel.
    parameters
        Parameters other than those of the base design.
    kernel
        Whether the test is one of the kernel.
    """

    file: str
    old: str
    new: str
    test: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    kernel: bool = False

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
        return self._design(rtl_sources("decode", folder))

    def original(self) -> Design:
        """Return the design without the fault."""
        return self._design(rtl_sources("decode"))

    def _design(self, sources: tuple[Path, ...]) -> Design:
        make = decode_kernel if self.kernel else decode_core
        # Icarus needs no compilation, and these designs are small.
        return make({**BASE, **self.parameters}, simulator="icarus", sources=sources)


LANES, FINISH = "decode/decode_lanes.v", "decode/decode_finish.v"
CORE, SEQUENCER = "decode/decode_core.v", "decode/decode_sequencer.v"

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
        kernel=True,
    ),
    "done_before_the_last_answer": Mutant(
        "common/axi_write_mover.v",
        "pending || in_burst || m_axi_wvalid || unanswered != NONE",
        "pending || in_burst || m_axi_wvalid",
        "done_comes_after_the_last_answer",
        kernel=True,
    ),
    "does_not_see_write_errors": Mutant(
        "common/axi_write_mover.v",
        "if (answer && m_axi_bresp != 2'b00) error <= 1'b1;",
        "",
        "memory_errors",
        kernel=True,
    ),
    "uses_a_lost_context": Mutant(
        SEQUENCER,
        "else if (context_is_lost && (is_decode || is_dump)) verdict = CONTEXT_LOST;",
        "",
        "bad_state_is_refused",
        kernel=True,
    ),
}
