# SPDX-License-Identifier: Apache-2.0
"""Index sets of long prompts: those of a real model, and made up ones that are fitted to them.

`recorded_index_set` gives the blocks that the kernel's rule chooses for the full-attention layers
of gemma-3-270m reading real text, up to the longest prompt that was read. `synthetic_index_set`
makes up others of any length. Both rest on a record of the heads that
``python -m fastdelta.reference.index_sets --write`` makes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.errors import InputError
from fastdelta.reference.fixed_point import IntArray
from fastdelta.reference.sparse_index import (
    BoolArray,
    IndexSet,
    SelectionParameters,
    block_coverage_selection,
    coverage_count,
    vertical_slash_map,
)

RECORD = Path(__file__).with_name("index_sets.json")
LENGTHS = (4096, 8192, 16384, 32768)
"""Prompts of the record, in tokens; in shorter ones the minimum budget says what is chosen."""

BLOCK = 128
GAMMA, TAU, MIN_BUDGET = 0.9, 0.1, 1024
PAIRS_TOKENS = 8192
"""Longest prompt whose heads are also made query-aware, which needs all their queries."""

BINS = 10
_CORRELATIONS = np.linspace(0, 0.95, 20)
_DRAWS = 4

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class HeadRecord:
    """What the rule chose for one query head of the real model.

    Attributes
    ----------
    tokens, layer, head
        Where; the layer is counted from 0.
    divergence
        Of estimate and scores, in nats: below tau squared a head is query-aware.
    covering
        Columns, and distances, that cover gamma of the attention of the last queries, before the
        minimum budget.
    columns, distances
        Chosen ones, as hexadecimal numbers with a bit for each block.
    pairs
        Pairs of the query-aware map, had the head been query-aware; None for long prompts.
    """

    tokens: int
    layer: int
    head: int
    divergence: float
    covering: tuple[int, int]
    columns: str
    distances: str
    pairs: int | None

    @property
    def blocks(self) -> int:
        """Blocks of the prompt."""
        return -(-self.tokens // BLOCK)

    @property
    def query_aware(self) -> bool:
        """Whether the rule calls the head query-aware."""
        return self.divergence < TAU**2

    def chosen_columns(self) -> IntArray:
        """Block columns, ascending."""
        return _from_bits(self.columns, self.blocks)

    def chosen_distances(self) -> IntArray:
        """Block distances, ascending."""
        return _from_bits(self.distances, self.blocks)


@dataclass(frozen=True)
class IndexSetFit:
    """Fit of the heads of the real model, from which index sets are made up.

    Attributes
    ----------
    intercept, slope, spread
        ``log covering = intercept + slope log blocks + spread z`` of the columns, z from N(0, 1)
        for each head.
    distance_ratio, distance_spread
        Mean and standard deviation of the logarithm of distances over columns that cover.
    mirrored, adjacent
        Share of the distances s for which column ``blocks - 1 - s`` is chosen too, and of those
        for which only a neighbour of it is. Together they are nearly all, because both are chosen
        from the attention of the last queries.
    positions
        Share of the blocks that are columns, by tenths of the prompt, block 0 left out.
    correlation
        Of neighbouring blocks: a block is a column if a normal variable of this correlation is
        above a threshold that depends on its tenth.
    query_aware_share
        Share of heads that are query-aware at tau 0.1.
    pair_intercept, pair_slope
        ``log pairs = intercept + slope log blocks`` of a query-aware map.
    """

    intercept: float
    slope: float
    spread: float
    distance_ratio: float
    distance_spread: float
    mirrored: float
    adjacent: float
    positions: tuple[float, ...]
    correlation: float
    query_aware_share: float
    pair_intercept: float
    pair_slope: float


# ---------------------------------------------------------------- measurement


def real_text() -> str:
    """Return the text that is read: the topics of Python's own help, in alphabetical order.

    About 110,000 tokens of technical English that come with every Python; the record was made
    with that of Python 3.11.
    """
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def measure_heads(lengths: Sequence[int] = LENGTHS) -> list[HeadRecord]:
    """Read real text with gemma-3-270m and apply the kernel's rule, in floating point.

    Parameters
    ----------
    lengths : sequence of int
        Prompts in tokens; all begin at the start of `real_text`. 32,768 tokens take minutes.

    Raises
    ------
    MissingToolError
        If the extra ``gemma`` is not installed.
    """
    from fastdelta.gemma import GemmaModel, load_checkpoint

    checkpoint = load_checkpoint()
    tokens = checkpoint.tokenizer.encode(real_text()[: 6 * max(lengths)])
    model = GemmaModel(checkpoint.weights)
    layers = checkpoint.weights.shape.full_attention_layers
    records: list[HeadRecord] = []
    for length in lengths:
        for layer, inputs in model.capture(tokens[:length], layers).items():
            records += head_records(inputs.q, inputs.k, layer)
    return records


def head_records(
    q: npt.NDArray[np.float32], k: npt.NDArray[np.float32], layer: int
) -> list[HeadRecord]:
    """Apply the kernel's rule to queries [heads, tokens, d] and keys [kv_heads, tokens, d]."""
    tokens = k.shape[1]
    blocks = -(-tokens // BLOCK)
    chosen = block_coverage_selection(
        q, k, SelectionParameters(GAMMA, 0.0, MIN_BUDGET, None, BLOCK), dtype=np.float32
    )
    pairs: list[int | None] = [None] * len(q)
    if tokens <= PAIRS_TOKENS:
        aware = block_coverage_selection(
            q, k, SelectionParameters(GAMMA, 1.0, 0, None, BLOCK), dtype=np.float32
        )
        pairs = [len(head.query_aware_pairs) for head in aware.heads]
    records = []
    for number, head in enumerate(chosen.heads):
        assert head.scores is not None
        covering = (
            coverage_count(head.scores.vertical, GAMMA),
            coverage_count(head.scores.slash, GAMMA),
        )
        records.append(
            HeadRecord(
                tokens,
                layer,
                number,
                round(head.divergence, 5),
                covering,
                _to_bits(head.columns, blocks),
                _to_bits(head.distances, blocks),
                pairs[number],
            )
        )
    return records


def _to_bits(chosen: IntArray, blocks: int) -> str:
    mask = np.zeros(blocks, np.bool_)
    mask[chosen] = True
    return np.packbits(mask).tobytes().hex()


def _from_bits(text: str, blocks: int) -> IntArray:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=blocks)
    return np.flatnonzero(bits)


# ---------------------------------------------------------------- fit


def fit_heads(records: Sequence[HeadRecord]) -> IndexSetFit:
    """Fit the heads of a record.

    Counts by least squares in logarithms; positions by counting; the correlation by drawing sets
    of columns with each of 20 correlations and taking the one whose columns have as many
    neighbours that are columns too.
    """
    blocks = np.array([record.blocks for record in records])
    covering = np.array([record.covering for record in records])
    slope, intercept = np.polyfit(np.log(blocks), np.log(covering[:, 0]), 1)
    residual = np.log(covering[:, 0]) - intercept - slope * np.log(blocks)
    ratio = np.log(covering[:, 1] / covering[:, 0])
    available, used = np.zeros((2, BINS))
    mirrored = adjacent = distances = neighbours = followed = 0
    for record in records:
        columns, size = record.chosen_columns(), record.blocks
        others = columns[columns > 0]
        available += np.bincount(_bin(np.arange(1, size), size), minlength=BINS)
        used += np.bincount(_bin(others, size), minlength=BINS)
        far = record.chosen_distances()
        far = far[far > 0]
        distances += len(far)
        exact, near = _mirrors(columns, size)
        mirrored += int(exact[far].sum())
        adjacent += int(near[far].sum())
        neighbours += int(np.isin(others + 1, columns).sum())
        followed += len(others)
    positions = tuple(float(x) for x in used / available)
    pairs = [(record.blocks, record.pairs) for record in records if record.pairs]
    pair_slope, pair_intercept = np.polyfit(
        [math.log(size) for size, _ in pairs], [math.log(number) for _, number in pairs], 1
    )
    return IndexSetFit(
        intercept=float(intercept),
        slope=float(slope),
        spread=float(residual.std()),
        distance_ratio=float(ratio.mean()),
        distance_spread=float(ratio.std()),
        mirrored=mirrored / distances,
        adjacent=adjacent / distances,
        positions=positions,
        correlation=_fit_correlation(records, positions, neighbours / followed),
        query_aware_share=sum(record.query_aware for record in records) / len(records),
        pair_intercept=float(pair_intercept),
        pair_slope=float(pair_slope),
    )


def _bin(block: IntArray, blocks: int) -> IntArray:
    return np.minimum(block * BINS // blocks, BINS - 1)


def _fit_correlation(
    records: Sequence[HeadRecord], positions: Sequence[float], wanted: float
) -> float:
    """Correlation at which the share of columns that a column follows is nearest to `wanted`."""

    def followed(rho: float) -> float:
        random = np.random.default_rng(0)
        neighbours = number = 0
        for record in _DRAWS * list(records):
            columns = _draw_columns(
                random, record.blocks, len(record.chosen_columns()), positions, rho
            )
            others = columns[columns > 0]
            neighbours += int(np.isin(others + 1, columns).sum())
            number += len(others)
        return neighbours / number

    return float(min(_CORRELATIONS.tolist(), key=lambda rho: abs(followed(rho) - wanted)))


# ---------------------------------------------------------------- made up index sets


def _draw_columns(
    random: np.random.Generator,
    blocks: int,
    count: int,
    positions: Sequence[float],
    rho: float,
) -> IntArray:
    """Draw block 0 and `count` - 1 others, ascending."""
    innovations = random.standard_normal(blocks)
    noise = np.empty(blocks)
    noise[0] = innovations[0]
    scale = math.sqrt(1 - rho * rho)
    for block in range(1, blocks):
        noise[block] = rho * noise[block - 1] + scale * innovations[block]
    normal = NormalDist()
    threshold = np.array([normal.inv_cdf(min(max(p, 0.001), 0.999)) for p in positions])
    score = noise + threshold[_bin(np.arange(blocks), blocks)]
    score[0] = math.inf
    return np.sort(np.argsort(-score, kind="stable")[:count])


@dataclass(frozen=True, eq=False)
class SyntheticIndexSet:
    """Blocks made up for a layer, and the pattern of each query head."""

    index_set: IndexSet
    query_aware: tuple[bool, ...]


def synthetic_index_set(
    tokens: int,
    *,
    heads: int,
    seed: int = 0,
    min_budget: int = MIN_BUDGET,
    query_aware_share: float | None = None,
    density_scale: float = 1.0,
    fit: IndexSetFit | None = None,
) -> SyntheticIndexSet:
    """Make up the blocks that the kernel's rule would choose, at gamma 0.9 and block 128.

    For each head: a number of columns from the power law of the fit, within the budget, heads
    spread evenly over its distribution; columns drawn with the fit's weight for each tenth of the
    prompt and its correlation of neighbours, block 0 always; about as many distances, most of
    them the mirror images of columns or beside one, distance 0 always. A query-aware head has the
    minimum budget of columns and distances, and pairs: as many as the power law of the fit says,
    drawn by row with the same weights over the row.

    Fitted to one small model and one text (`fitted`, `recorded_heads`); at other lengths than
    theirs the power law is an extrapolation. Other models may well be sparser: the FAST-Prefill
    paper's draft illustrates with 6 % of the blocks at 128K tokens. `density_scale` makes the
    counts smaller, to see what that does.

    Parameters
    ----------
    tokens, heads : int
    seed : int
        The same arguments give the same set.
    min_budget : int
        Fewest tokens of the columns, and of the distances, of a head.
    query_aware_share : float, optional
        Share of heads that are query-aware; by default that of the fit.
    density_scale : float
        Factor of the number of columns, distances and pairs.
    fit : IndexSetFit, optional
        By default the recorded one.
    """
    if tokens < 1 or heads < 1 or not density_scale > 0:
        raise InputError(
            f"tokens={tokens}, heads={heads}, density_scale={density_scale}; all must be above 0"
        )
    fit = fit or fitted()
    random = np.random.default_rng(seed)
    blocks = -(-tokens // BLOCK)
    least = min(-(-min_budget // BLOCK), blocks)
    share = fit.query_aware_share if query_aware_share is None else query_aware_share
    # Stratified, so that a few heads stand for many: each has its own part of the distribution.
    quantiles = (random.permutation(heads) + random.uniform(1e-9, 1, heads)) / heads
    maps, patterns = [], []
    for quantile in quantiles.tolist():
        aware = bool(random.random() < share)
        level = fit.intercept + fit.slope * math.log(blocks)
        level += fit.spread * NormalDist().inv_cdf(quantile)
        covering = density_scale * math.exp(level)
        ratio = fit.distance_ratio + fit.distance_spread * random.standard_normal()
        count, far = (
            1 if aware else round(number) for number in (covering, covering * math.exp(ratio))
        )
        count, far = (min(max(number, least, 1), blocks) for number in (count, far))
        columns = _draw_columns(random, blocks, count, fit.positions, fit.correlation)
        distances = _draw_distances(random, blocks, far, columns, fit)
        chosen = vertical_slash_map(columns, distances, blocks)
        if aware:
            chosen = chosen | _draw_pairs(random, blocks, fit, density_scale)
        maps.append(chosen)
        patterns.append(aware)
    return SyntheticIndexSet(IndexSet.from_mask(np.stack(maps)), tuple(patterns))


def _draw_distances(
    random: np.random.Generator, blocks: int, count: int, columns: IntArray, fit: IndexSetFit
) -> IntArray:
    """Draw distance 0 and `count` - 1 others: mirror images of columns, their neighbours, any."""
    exact, near = _mirrors(columns, blocks)
    weight = np.zeros(blocks)
    for kind, share in (
        (exact, fit.mirrored),
        (near, fit.adjacent),
        (~exact & ~near, 1 - fit.mirrored - fit.adjacent),
    ):
        weight[kind] = share / max(int(kind.sum()), 1)
    # Exponential races with these rates: the first `count` are a draw without replacement.
    race = random.standard_exponential(blocks) / np.maximum(weight, 1e-12)
    race[0] = -1.0
    return np.sort(np.argsort(race, kind="stable")[:count])


def _mirrors(columns: IntArray, blocks: int) -> tuple[BoolArray, BoolArray]:
    """Distances that are the mirror image of a column, and those that only lie beside one."""
    exact, near = np.zeros((2, blocks), np.bool_)
    exact[blocks - 1 - columns] = True
    near[1:] |= exact[:-1]
    near[:-1] |= exact[1:]
    return exact, near & ~exact


def _draw_pairs(
    random: np.random.Generator, blocks: int, fit: IndexSetFit, density_scale: float
) -> BoolArray:
    wanted = density_scale * math.exp(fit.pair_intercept + fit.pair_slope * math.log(blocks))
    share = min(wanted / (blocks * (blocks + 1) / 2), 1.0)
    weights = np.array(fit.positions) / np.mean(fit.positions)
    row = np.arange(blocks)[:, np.newaxis]
    place = np.minimum(np.arange(blocks) * BINS // (row + 1), BINS - 1)
    pairs: BoolArray = random.random((blocks, blocks)) < share * weights[place]
    return pairs & np.tri(blocks, dtype=np.bool_)


# ---------------------------------------------------------------- record


@cache
def recorded_heads() -> tuple[HeadRecord, ...]:
    """Heads of the record."""
    heads = json.loads(RECORD.read_text(encoding="utf-8"))["heads"]
    return tuple(HeadRecord(**{**head, "covering": tuple(head["covering"])}) for head in heads)


@cache
def fitted() -> IndexSetFit:
    """Return the fit of the record."""
    values: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))["fit"]
    return IndexSetFit(**{**values, "positions": tuple(values["positions"])})


def recorded_index_set(tokens: int, layer: int | None = None) -> IndexSet:
    """Return the blocks of the real model, heads of one layer or of all in their order.

    Raises
    ------
    InputError
        If no prompt of that length, or no such layer, was read.
    """
    heads = [
        head
        for head in recorded_heads()
        if head.tokens == tokens and (layer is None or head.layer == layer)
    ]
    if not heads:
        lengths = sorted({head.tokens for head in recorded_heads()})
        layers = sorted({head.layer for head in recorded_heads()})
        raise InputError(
            f"no record of {tokens} tokens, layer {layer}; there are {lengths} tokens, layers "
            f"{layers}"
        )
    return IndexSet.from_mask(
        np.stack(
            [
                vertical_slash_map(head.chosen_columns(), head.chosen_distances(), head.blocks)
                for head in heads
            ]
        )
    )


def write_record(records: Sequence[HeadRecord], path: Path = RECORD) -> None:
    """Write the heads, a line each, and their fit."""
    lines = ",\n".join(json.dumps(asdict(record)) for record in records)
    fit = json.dumps(asdict(fit_heads(records)))
    path.write_text(f'{{"fit": {fit},\n"heads": [\n{lines}\n]}}\n', encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Read the text with the model; print the fit, or write the record."""
    parser = argparse.ArgumentParser(
        "python -m fastdelta.reference.index_sets", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="write the record")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=LENGTHS, help="lengths of the prompts"
    )
    options = parser.parse_args(arguments)
    records = measure_heads(options.tokens)
    if options.write:
        write_record(records)
    fit = fit_heads(records)
    for item in fields(fit):
        sys.stdout.write(f"{item.name} = {getattr(fit, item.name)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
