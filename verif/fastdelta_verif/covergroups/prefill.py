# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of the units of the prefill engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fastdelta.prefill.job_lists import JobFields
from fastdelta.reference.functions import OFFSET_BITS, ONE, Function
from fastdelta.reference.index_model import POOLED_SCORE_FRACTION
from fastdelta.reference.job_reader_model import ListShape
from fastdelta.reference.kv_cache_model import Decision, Tier, Visit
from fastdelta.reference.sparse_index import IndexSet
from fastdelta_verif.agents.handshake import AFTER_GAP, THROTTLES, WAITED
from fastdelta_verif.coverage import CoverageModel
from fastdelta_verif.covergroups import (
    NO_SOME,
    SIMULATORS,
    Coverage,
    cross,
    rhythms,
    rhythms_at_once,
    share_of,
)
from fastdelta_verif.environments.index_engine import KINDS as PROMPTS
from fastdelta_verif.environments.index_engine import IndexCase
from fastdelta_verif.job_lists import FAULTS

KINDS = ("scores", "values")
FORMS = ("dsp", "lut")
GROUPS = ("1", "2", "3", "4 to 8")
BLOCKS = ("1", "2", "3 to 8", "9 and more")


def steps_bin(steps: int) -> str:
    """Return the bin of the steps of a task."""
    return str(steps) if steps < 3 else "3 to 63" if steps < 64 else "64 and more"


def group_bin(group: int) -> str:
    """Return the bin of the query heads of a KV head."""
    return str(group) if group < 4 else GROUPS[-1]


def blocks_bin(blocks: int) -> str:
    """Return the bin of the blocks of a prompt."""
    return str(blocks) if blocks < 3 else "3 to 8" if blocks < 9 else "9 and more"


def window_bin(window: int, blocks: int) -> str:
    """Return how a window fits the blocks of a prompt."""
    if window == 1:
        return "one block"
    if window >= blocks:
        return "all blocks"
    return "ragged last" if blocks % window else "whole ones"


WINDOWS = ("one block", "all blocks", "ragged last", "whole ones")
TOKENS = (
    "one",
    "below a block",
    "whole blocks",
    "ragged, one token",
    "ragged, all but one",
    "ragged",
)


def tokens_bin(tokens: int, block: int) -> str:
    """Return how tokens fill the blocks of a prompt."""
    rest = tokens % block
    if tokens == 1:
        return "one"
    if rest == 0:
        return "whole blocks"
    if tokens < block:
        return "below a block"
    return {1: "ragged, one token", block - 1: "ragged, all but one"}.get(rest, "ragged")


# ------------------------------------------------------------------ matrix unit

MAC_ARRAY = CoverageModel(
    "mac_array",
    {
        "products": cross(FORMS, ("each pair of signed bytes",)),
        "stalls": cross(FORMS, THROTTLES, THROTTLES),
        "steps": cross(FORMS, ("1", "2", "3 to 63", "64 and more")),
        "next_last_step": cross(FORMS, ("as early as may be", "later")),
        "longest_sums": cross(FORMS, (17, 24, 32), ("lowest", "highest")),
        "operands": cross(FORMS, ("-128 and -128", "-128 and 127", "others")),
        "simulator": SIMULATORS,
    },
)

MATRIX_UNIT = CoverageModel(
    "matrix_unit",
    {
        "steps": cross(KINDS, ("1", "2", "3 to 63", "64 and more")),
        "stalls": cross(("tasks", *KINDS), THROTTLES),
        "after": cross(KINDS, KINDS),
        "server": (0, 1, 2, 3),
        "fabric_arrays": ("none", "some", "all"),
        "operand_latency": (1, 2, 3, 16),
        "arrays": ("4x4", "8x8", "3x5", "16x16", "32x32"),
        "extremes": cross(KINDS, ("256 steps", "the most steps")),
        "blocked_port": KINDS,
        "tasks_inside": ("fewer than servers", "more than servers"),
        "utilisation": ("64", "128", "256", "job of 64", "job of 128", "job of 256"),
        "latency": cross(KINDS, ("one step", "more")),
        "reset": ("idle", "in a task", "results wait"),
        "rhythm": (*rhythms("task", *KINDS),),
        "simulator": SIMULATORS,
    },
)


# ------------------------------------------------------------------ special functions

QUADRATIC = CoverageModel(
    "quadratic",
    {
        "argument": cross(
            [function.name for function in Function],
            ("first segment", "middle segments", "last segment"),
            ("start", "lower half", "middle", "upper half", "end"),
        )
    },
)


def sample_quadratic(
    coverage: Coverage, function: Function, arguments: npt.NDArray[np.int64]
) -> None:
    """Sample the arguments of a function."""
    size, half = 1 << OFFSET_BITS, 1 << (OFFSET_BITS - 1)
    segment, offset = arguments // size, arguments % size
    last = ONE // size - 1
    where = np.select([segment == 0, segment == last], [0, 2], 1)
    place = np.select([offset == 0, offset < half, offset == half, offset < size - 1], range(4), 4)
    segments = ("first segment", "middle segments", "last segment")
    places = ("start", "lower half", "middle", "upper half", "end")
    for s, p in np.unique(np.stack([where, place]), axis=1).T.tolist():
        coverage.hit("argument", (function.name, segments[s], places[p]))


# ------------------------------------------------------------------ tile engine

OPERANDS = ("random", "from floats")
OUTPUT_FRACTION = 8  # bits of an output below those of a value
TILE_ENGINE = CoverageModel(
    "tile_engine",
    {
        "work": ("attention", "statistics", "pooling", "slow outputs", "at full size"),
        "tokens": cross(("attention", "statistics"), TOKENS),
        "operands": cross(("attention", "statistics"), OPERANDS),
        "group": GROUPS,
        "blocks": ("1", "2", "3 to 8"),
        "window": WINDOWS,
        "kv_blocks_of_a_row": ("one", "some", "all"),
        "tile": ("diagonal", "below it"),
        "visit": ("one job", "several jobs"),
        "representative_rows": ("one block", "straddle two", "fewer than a block"),
        "query_multiplier": ("zero", "others"),
        "query_exponent": ("lowest", "between", "highest"),
        "output": ("lowest", "between", "zero", "highest"),
        "block_size": (8, 16, 24, 32, 64, 128),
        "head_dim": (16, 32, 48, 64, 128, 256),
        "servers": (1, 3, 4),
        "kv_buffers": (2, 3, 4, 8),
        "tiles": (2, 3, 4, 8),
        "reset": ("waiting for operands", "in tiles", "with outputs"),
        "rhythm": (
            *rhythms("job", "q_request", "k", "v", "o_request", "o"),
            *rhythms_at_once("q"),  # asked for when there is place
        ),
        "simulator": SIMULATORS,
    },
)


class TileEngineCoverage(Coverage):
    """Samples prompts of the tile engine."""

    def parameters(self, values: Mapping[str, int]) -> None:
        """Sample the parameters of the design."""
        self.hit("block_size", values["ROW_ARRAYS"] * values["ARRAY_ROWS"])
        self.hit("head_dim", values["HEAD_DIM"])
        self.hit("servers", values["STRIPS"])
        self.hit("kv_buffers", values["KV_BUFFERS"])
        self.hit("tiles", values["TILES"])

    def prompt(self, work: str, kind: str, tokens: int, group: int, block: int) -> None:
        """Sample a prompt that is measured or attended."""
        self.hit("tokens", (work, tokens_bin(tokens, block)))
        self.hit("operands", (work, kind))
        self.hit("group", group_bin(group))
        self.hit("blocks", blocks_bin(-(-tokens // block)))

    def jobs(self, fields: JobFields, window: int, blocks: int) -> None:
        """Sample the jobs of a KV head."""
        self.hit("window", window_bin(window, blocks))
        same = fields.kv_block == fields.query_block
        for tile, seen in (("diagonal", same), ("below it", ~same)):
            if seen.any():
                self.hit("tile", tile)
        keys = np.stack([fields.query_block // window, fields.kv_block])
        _, sizes = np.unique(keys, axis=1, return_counts=True)
        for visit, seen in (("one job", sizes == 1), ("several jobs", sizes > 1)):
            if seen.any():
                self.hit("visit", visit)

    def rows(self, index_set: IndexSet, group: int, blocks: int) -> None:
        """Sample how many KV blocks the query blocks have."""
        counts = np.diff(index_set.offsets).reshape(group, blocks)
        most = np.arange(1, blocks + 1)
        for name, seen in (
            ("one", (counts == 1) & (most > 1)),
            ("some", (counts > 1) & (counts < most)),
            ("all", (counts == most) & (most > 1)),
        ):
            if seen.any():
                self.hit("kv_blocks_of_a_row", name)

    def outputs(self, outputs: npt.NDArray[np.int16]) -> None:
        """Sample expected outputs."""
        low, high = -128 << OUTPUT_FRACTION, 127 << OUTPUT_FRACTION  # of equal values in a row
        for name, seen in (
            ("lowest", outputs == low),
            ("highest", outputs == high),
            ("zero", outputs == 0),
            ("between", (outputs > low) & (outputs < high) & (outputs != 0)),
        ):
            if seen.any():
                self.hit("output", name)


# ------------------------------------------------------------------ job reader

JOB_READER = CoverageModel(
    "job_reader",
    {
        "list": ("legal", "broken", "legal after a broken one"),
        "fault": tuple(FAULTS),
        "visits_before_fault": NO_SOME,
        "blocks": BLOCKS,
        "group": GROUPS,
        "window": WINDOWS,
        "slots": ("not all", "all in use"),
        "density": ("one block a row", "some", "all"),
        "visit": ("one job", "several jobs", "fills the slots"),
        "padding_of_uses": NO_SOME,
        "padding_of_jobs": NO_SOME,
        "greatest_use": ("read", "one more refused"),
        "rate": ("visits of one job", "visits that fill the slots"),
        "blocked": ("jobs", "visits", "visits at the end"),
        "reset": ("before a beat", "in the list", "after the list"),
        "latency": ("1", "up to 30", "up to 200"),
        "bus_width": (64, 128, 512),
        "rhythm": (
            *rhythms("beat", "job", "visit"),
            *cross(("request",), (AFTER_GAP, WAITED)),  # two of a list
        ),
        "simulator": SIMULATORS,
    },
)


class JobReaderCoverage(Coverage):
    """Samples job lists."""

    def shape(self, shape: ListShape, slots: int) -> None:
        """Sample the shape of a list."""
        self.hit("blocks", blocks_bin(shape.blocks))
        self.hit("group", group_bin(shape.group))
        self.hit("window", window_bin(shape.window, shape.blocks))
        self.hit("slots", "all in use" if shape.group * shape.window == slots else "not all")
        self.hit("padding_of_uses", NO_SOME[shape.blocks % 16 > 0])

    def legal(self, jobs: int, visits: Sequence[int], shape: ListShape, slots: int) -> None:
        """Sample a legal list: its jobs and the jobs of each visit."""
        most = shape.group * shape.blocks * (shape.blocks + 1) // 2
        if shape.blocks > 1:
            least = shape.group * shape.blocks
            rows = "one block a row" if jobs == least else "all" if jobs == most else "some"
            self.hit("density", rows)
        self.hit("padding_of_jobs", NO_SOME[jobs % 16 > 0])
        for size in set(visits):
            self.hit("visit", "one job" if size == 1 else "several jobs")
            if size == slots:
                self.hit("visit", "fills the slots")


# ------------------------------------------------------------------ KV cache

TIERS = tuple(tier.value for tier in Tier)
SOURCES = ("memory", "line")
KV_CACHE = CoverageModel(
    "kv_cache",
    {
        "decision": (
            *cross(("miss",), ("to hot", "to cold", "bypass", "last use")),
            *cross(("hit",), ("kept", "given back")),
            ("off", "miss"),
        ),
        # A block that ought to be hot goes to the cold half when the hot one is full.
        "full_half": ("hot full, to cold", "both full, bypass"),
        "uses_left_to_threshold": ("below", "equal", "one more", "above"),
        "threshold": ("0", "between", "65535"),
        "line_reuse": ("read right after it was written", "written right after it was read"),
        "order": cross(SOURCES, SOURCES),
        "k_only": ("cache is empty", "between visits"),
        "visit_jobs": ("1", "several"),
        "live_lines": ("none", "some", "all"),
        "prefetches": NO_SOME,
        "list": ("whole", "cut short"),
        "lines": (2, 4, 8, 16),
        "both_ways": ("fewer from memory",),
        "rate": cross(SOURCES, SOURCES),
        "latency": SOURCES,
        "blocked": ("k", "v"),
        "reset": ("idle", "with live lines", "before a line"),
        "counters": ("go on", "cleared"),
        "memory_latency": ("1", "up to 10", "up to 120"),
        "rhythm": (
            *rhythms("k_request", "v_request", "s_k", "s_v", "m_k", "m_v"),
            # A decision takes more than a cycle.
            *cross(("visit",), (AFTER_GAP, WAITED)),
        ),
        "simulator": SIMULATORS,
    },
)


class KVCacheCoverage(Coverage):
    """Samples the decisions of a KV cache."""

    def begin(self, threshold: int) -> None:
        """Note the start of a KV head, with an empty cache."""
        self._before = ""
        self._written = self._freed = False
        self._block = -1
        at_end = {0: "0", 0xFFFF: "65535"}
        self.hit("threshold", at_end.get(threshold, "between"))

    def decision(
        self, visit: Visit, decision: Decision, left: int, threshold: int, *, live: int, lines: int
    ) -> None:
        """Sample a decision.

        Parameters
        ----------
        visit, decision
            What was asked for and what the cache does.
        left
            Uses of the block that are left.
        threshold
            Of the hot half.
        live, lines
            Lines that hold a block after it, and all.
        """
        if visit.k_only:
            self.hit("k_only", "between visits" if live else "cache is empty")
            return
        kept = decision.admitted
        if decision.hit:
            self.hit("decision", ("hit", "given back" if decision.freed else "kept"))
        elif kept is not None:
            self.hit("decision", ("miss", f"to {kept.value}"))
        else:
            self.hit("decision", ("miss", "bypass" if left else "last use"))
        if not decision.hit and left:
            above = "one more" if left == threshold + 1 else "above"
            below = "equal" if left == threshold else "below"
            self.hit("uses_left_to_threshold", above if left > threshold else below)
            if left > threshold and kept is not Tier.HOT:
                self.hit("full_half", "both full, bypass" if kept is None else "hot full, to cold")
        source = "line" if decision.hit else "memory"
        if self._before:
            self.hit("order", (self._before, source))
        if self._written and decision.hit and visit.block == self._block:
            self.hit("line_reuse", "read right after it was written")
        if self._freed and kept is not None:
            self.hit("line_reuse", "written right after it was read")
        self._before, self._block = source, visit.block
        self._written, self._freed = kept is not None, decision.freed
        self.hit("visit_jobs", "1" if visit.jobs == 1 else "several")
        self.hit("live_lines", share_of(live, lines))


# ------------------------------------------------------------------ index generation

PATTERNS = ("vertical-slash", "query-aware")
WHOLE = 1 << 16  # gamma of all blocks
RUNS = ("vertical-slash", "query-aware", "both")
INDEX_GENERATOR = CoverageModel(
    "index_generator",
    {
        "dense": (*cross(BLOCKS, ("uses padded",)), ("9 and more", "uses whole")),
        "dense_window": WINDOWS,
        "dense_group": GROUPS,
        "prompt": cross(PATTERNS, PROMPTS),
        "heads": (
            *cross(RUNS[:2], ("1", "2", "3 and more")),
            *cross(("both",), ("2", "3 and more")),
        ),
        "tokens": cross(PATTERNS, TOKENS),
        "blocks": BLOCKS,
        "window": WINDOWS,
        "gamma": cross(PATTERNS, ("1", "between", "all but one", "all")),
        "limit": ("0", "between", "all"),
        "budget": ("none", "at least some", "at most some", "as many"),
        "selected": ("at most two a row", "some", "all"),
        "shortest": cross(PATTERNS, ("one token", "one block", "several blocks")),
        "map": ("fits", "just fits", "overflows", "not needed"),
        "cycles": PATTERNS,
        "reset": ("in tiles", "after the tiles"),
        "block_size": (8, 16, 24, 128),
        "rhythm": (*rhythms("job", "visit", "list"),),
        "simulator": SIMULATORS,
    },
)


def gamma_bin(gamma: int) -> str:
    """Return the bin of a coverage."""
    return {1: "1", WHOLE - 1: "all but one", WHOLE: "all"}.get(gamma, "between")


class IndexCoverage(Coverage):
    """Samples runs of the index generator."""

    def dense(self, blocks: int, group: int, window: int) -> None:
        """Sample a run of the dense mode."""
        padded = "uses padded" if blocks % 16 else "uses whole"
        self.hit("dense", (blocks_bin(blocks), padded))
        self.hit("dense_window", window_bin(window, blocks))
        self.hit("dense_group", group_bin(group))

    def case(self, case: IndexCase, kind: str) -> None:
        """Sample a run with the kind of its prompt."""
        aware, settings = len(case.query_aware), case.parameters
        run = RUNS[0] if not aware else RUNS[1] if aware == case.group else RUNS[2]
        group = str(case.group) if case.group < 3 else "3 and more"
        self.hit("heads", (run, group))
        patterns = PATTERNS if run == "both" else (run,)
        for pattern in patterns:
            self.hit("prompt", (pattern, kind))
            self.hit("tokens", (pattern, tokens_bin(case.tokens, case.shape.block)))
            self.hit("gamma", (pattern, gamma_bin(settings.gamma)))
        self.hit("blocks", blocks_bin(case.blocks))
        self.hit("window", window_bin(case.window, case.blocks))
        limits = {0: "0", 1 << 24: "all"}
        self.hit("limit", limits.get(settings.divergence_limit, "between"))
        least, most = settings.min_blocks, min(settings.max_blocks, case.blocks)
        if least:
            self.hit("budget", "as many" if least >= most else "at least some")
        else:
            self.hit("budget", "at most some" if most < case.blocks else "none")
        if case.blocks > 3:
            pairs, rows = len(case.index_set.columns), case.group * case.blocks
            all_pairs = rows * (case.blocks + 1) // 2
            few = "at most two a row" if pairs <= 2 * rows else "some"
            self.hit("selected", "all" if pairs == all_pairs else few)
        if aware:
            self.hit("map", "overflows" if case.overflows else "fits")


EXPONENTS = ("stay", "wander", "leap")
INDEX_UNITS = CoverageModel(
    "index_units",
    {
        "row_exponents": EXPONENTS,
        "rows_without_a_key": NO_SOME,
        "row_sums": ("least", "most", "others"),
        "score_blocks": ("1", "2", "3 to 8", "9 and more"),
        "replay": ("in order", "in another order"),
        "rows_a_cycle": (2, 8),
        "pooled": cross(("keys", "queries"), PROMPTS),
        "pooled_tokens": cross(("keys", "queries"), ("whole blocks", "ragged last")),
        "pooled_beats": cross(("keys", "queries"), ("back to back", "with gaps")),
        "pooled_words": ("one a block", "several", "not full"),
        "dot_score": ("lowest", "between", "highest"),
        "dot_shift": ("left", "right"),
        "dot_mantissas": ("largest", "others"),
        "dot_words": ("full", "not full"),
        "softmax_row": ("one score", "equal", "close", "far apart", "extreme"),
        "softmax_rows": ("alone", "one after the other"),
        "divergence": ("equal", "close", "random", "disjoint"),
        "divergence_value": ("zero", "others"),
        "divergence_blocks": ("1", "2", "3 to 8", "9 and more"),
        "threshold": (("count", 40), ("best", 40), ("count", 25), ("best", 25), ("pairs", 25)),
        "threshold_gamma": ("1", "between", "met exactly", "all but one", "all"),
        "threshold_entries": ("one", "equal ones", "all different"),
        "threshold_wanted": ("none", "some", "all"),
    },
)


class IndexUnitsCoverage(Coverage):
    """Samples runs of the units of the index generator."""

    def blocks(self, point: str, blocks: int) -> None:
        """Sample a number of blocks."""
        self.hit(point, blocks_bin(blocks))

    def words(self, point: str, head_dim: int, lanes: int) -> None:
        """Sample how a vector fills its words."""
        whole = "one a block" if head_dim <= lanes else "several"
        self.hit(point, "not full" if head_dim % lanes else whole)

    def dots(
        self,
        scores: npt.NDArray[np.int64],
        query_scale: np.integer,
        key_scales: npt.NDArray[np.int64],
    ) -> None:
        """Sample the scores of a row, and the scales that they were made of."""
        info = np.iinfo(np.int32)
        for name, seen in (
            ("lowest", scores == info.min),
            ("highest", scores == info.max),
            ("between", (scores > info.min) & (scores < info.max)),
        ):
            if seen.any():
                self.hit("dot_score", name)
        for scale in (key_scales + query_scale).tolist():
            self.hit("dot_shift", "left" if scale < POOLED_SCORE_FRACTION else "right")

    def softmax(self, row: npt.NDArray[np.int64]) -> None:
        """Sample a row of scores, which have 16 fraction bits."""
        spread = int(row.max() - row.min()) >> 16
        if len(row) == 1:
            name = "one score"
        elif (row == row[0]).all():
            name = "equal"
        else:
            name = "close" if spread < 1 else "far apart" if spread < 1 << 14 else "extreme"
        self.hit("softmax_row", name)

    def threshold(self, mode: int, bits: int, entries: npt.NDArray[np.int64]) -> None:
        """Sample the entries that a threshold is searched of."""
        self.hit("threshold", (("count", "best", "pairs")[mode], bits))
        different = len(np.unique(entries)) == len(entries)
        several = "all different" if different else "equal ones"
        self.hit("threshold_entries", "one" if len(entries) == 1 else several)

    def gamma(self, gamma: int, *, met: bool) -> None:
        """Sample a coverage, and whether a running sum meets it exactly."""
        self.hit("threshold_gamma", "met exactly" if met else gamma_bin(gamma))
