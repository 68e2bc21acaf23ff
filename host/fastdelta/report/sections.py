# SPDX-License-Identifier: Apache-2.0
"""The sections of a report, each with the figures that its benches, models and files give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastdelta.bench.accuracy import compare_int8_schemes, compare_state_formats
from fastdelta.bench.decode import ASSUMED_CLOCK_MHZ, Progress, bench_decode
from fastdelta.bench.prefill import PrefillBenchReport, bench_prefill
from fastdelta.report import papers
from fastdelta.report.papers import CARDS, DECODE_PAPER, PREFILL_PAPER
from fastdelta.report.records import (
    Column,
    Kind,
    Line,
    Picture,
    Section,
    Table,
    Value,
    table_of,
)
from fastdelta.shapes import DecodeShape, PrefillShape

if TYPE_CHECKING:
    from fastdelta.reference.performance import (
        CalibrationError,
        MemoryTiming,
        ModelPrefillPerformance,
    )
    from fastdelta.report.build import ReportSettings

REPORT = "fastdelta report"
CLOCK = ASSUMED_CLOCK_MHZ
PSEUDO_CHANNEL_GB_S = 14.375  # of HBM2, by AMD's UG1393
PSEUDO_CHANNEL_BYTES = PSEUDO_CHANNEL_GB_S * 1000 / CLOCK  # a cycle
CACHE_BYTES = 16 << 20  # of the modelled kernels, as in the paper's ablation
RESOURCES = ("LUT", "FF", "DSP", "BRAM36", "URAM")
SHARES = (1, 2, 4, 8, 16, 32)  # of a pseudo-channel
LIMIT = 0.8  # share of a card that a design may take


def first_token(settings: ReportSettings, tell: Progress) -> Section:
    """Model the attention of whole models, to their first token, by length."""
    from fastdelta.reference.performance import PREFILL_MODELS, MemoryTiming, model_shape

    memory = MemoryTiming.uniform(bytes_per_cycle=PSEUDO_CHANNEL_BYTES)
    rows: list[list[Value]] = []
    lines: list[Line] = []
    error = ""
    total = len(settings.models) * len(settings.lengths)
    for model in settings.models:
        sizes = PREFILL_MODELS[model]
        line_bytes = 2 * PrefillShape().block * sizes.head_dim
        times: list[float] = []
        for tokens in settings.lengths:
            tell("models to their first token", len(rows), total)
            shape = model_shape(sizes, tokens, cache_lines=CACHE_BYTES // line_bytes)
            dsp = replace(shape, lut_arrays=0, array_columns=shape.array_columns // 2)
            ours = _modelled(model, tokens, shape, memory)
            uncached = _modelled(model, tokens, shape, memory, cache=False)
            halved = _modelled(model, tokens, dsp, memory)
            layer = ours.sample
            moved, without = sum(ours.memory_bytes.values()), sum(uncached.memory_bytes.values())
            times.append(ours.milliseconds(CLOCK))
            rows.append(
                [
                    model,
                    tokens,
                    times[-1],
                    uncached.milliseconds(CLOCK) / times[-1],
                    halved.milliseconds(CLOCK) / times[-1],
                    100 * layer.density,
                    100 * layer.cache_hit_rate,
                    moved / 2**30,
                    100 * (1 - moved / without),
                    100 * layer.mpu_utilisation,
                    100 * ours.index_cycles / ours.attention_cycles,
                    ours.linear_cycles_ideal / (1000 * CLOCK),
                ]
            )
            error = _error(layer.calibration)
        x = tuple(float(tokens) for tokens in settings.lengths)
        lines.append(Line(model, Kind.MODELLED, REPORT, x, tuple(times)))
    tell("models to their first token", total, total)
    table = table_of(
        "first_token",
        "Attention of all layers up to the first token",
        [
            Column("model"),
            Column("tokens"),
            _modelled_column(f"ms at {CLOCK:g} MHz", 1),
            _modelled_column("time without cache / with", 2),
            _modelled_column("time with DSP arrays alone / hybrid", 2),
            _modelled_column("density, %", 1),
            _modelled_column("cache hit rate, %", 1),
            _modelled_column("GiB moved", 2),
            _modelled_column("bytes saved by the cache, %", 1),
            _modelled_column("matrix unit busy, %", 1),
            _modelled_column("index / attention cycles, %", 1),
            _modelled_column("linear layers at the arrays' peak, ms", 1),
        ],
        rows,
        [
            error,
            "Blocks are those of a synthetic generator fitted to gemma-3-270m, not of these "
            "models.",
            f"Each memory port has one HBM pseudo-channel of its own, {PSEUDO_CHANNEL_GB_S} GB/s; "
            f"{CLOCK:g} MHz is assumed. Linear layers do not run on this engine: their time is "
            "products over the peak of the matrix unit, and not part of the other columns.",
        ],
    )
    source = f"{PREFILL_PAPER}, section V; Llama-3.2-3B"
    beside = table_of(
        "first_token_paper",
        "The paper's ablations beside these, longest prompt",
        [
            Column("what"),
            _modelled_column("here", 2),
            Column("paper", Kind.PAPER, source, 2),
        ],
        _ablations(settings, rows),
        [
            "The paper gives no absolute time, and its 2.5 is for whole models with linear layers. "
            "One pseudo-channel a port brings a block in little more than the time of one job, "
            "and a visit has several jobs: there the cache saves bytes and no time. The table "
            "below narrows the ports.",
        ],
    )
    narrow = _narrow_ports(settings, tell)
    picture = Picture(
        "first_token",
        "Attention of all layers up to the first token",
        "tokens of the prompt",
        f"milliseconds at {CLOCK:g} MHz",
        tuple(lines),
        x_scale="log",
        y_scale="log",
        x_ticks=tuple((float(n), f"{n // 1024}K") for n in settings.lengths),
    )
    lengths = tuple(float(n) for n in settings.lengths)
    paper_rate = (100 * papers.CACHE_HIT_RATE,) * len(lengths)
    rates = Picture(
        "cache",
        "KV cache: visits that find their block",
        "tokens of the prompt",
        "hit rate, %",
        (
            *(
                Line(model, Kind.MODELLED, REPORT, lengths, _rates(rows, model))
                for model in settings.models
            ),
            Line("paper, 16 MB, 3B", Kind.PAPER, source, lengths, paper_rate),
        ),
        x_scale="log",
        x_ticks=tuple((float(n), f"{n // 1024}K") for n in settings.lengths),
    )
    return Section(
        "first-token",
        "Time to the first token",
        "What the prefill engine would take for the attention of whole models, from its "
        "performance model: hybrid matrix unit with and without the KV cache, and with the half "
        "of the arrays that uses DSP blocks alone.",
        (table, beside, narrow),
        (picture, rates),
    )


def _narrow_ports(settings: ReportSettings, tell: Progress) -> Table:
    """Model what the cache gains when K and V come more slowly than in one pseudo-channel each."""
    from fastdelta.reference.performance import PREFILL_MODELS, MemoryTiming, model_shape

    model, tokens = ablation_model(settings), settings.narrow_tokens
    sizes = PREFILL_MODELS[model]
    lines = CACHE_BYTES // (2 * PrefillShape().block * sizes.head_dim)
    shape = model_shape(sizes, tokens, cache_lines=lines)
    rows: list[list[Value]] = []
    for number, share in enumerate(SHARES):
        tell("narrower ports", number, len(SHARES))
        memory = MemoryTiming.uniform(bytes_per_cycle=PSEUDO_CHANNEL_BYTES / share)
        ours = _modelled(model, tokens, shape, memory)
        bare = _modelled(model, tokens, shape, memory, cache=False)
        rows.append(
            [
                f"1 / {share}",
                PSEUDO_CHANNEL_BYTES / share,
                ours.milliseconds(CLOCK),
                bare.milliseconds(CLOCK),
                bare.total_cycles / ours.total_cycles,
                100 * ours.sample.mpu_utilisation,
                100 * bare.sample.mpu_utilisation,
            ]
        )
    tell("narrower ports", len(SHARES), len(SHARES))
    return table_of(
        "narrow_ports",
        f"{model}, {tokens:,} tokens: what the cache gains with less bandwidth",
        [
            Column("of a pseudo-channel, each port"),
            Column("bytes a cycle", Kind.SHEET, "AMD UG1393", 1),
            _modelled_column(f"ms at {CLOCK:g} MHz", 1),
            _modelled_column("ms without cache", 1),
            _modelled_column("time without cache / with", 2),
            _modelled_column("matrix unit busy, %", 1),
            _modelled_column("the same without cache, %", 1),
        ],
        rows,
    )


def _error(calibration: CalibrationError) -> str:
    """Say how far the performance model is from the RTL."""
    if not calibration.held_out:
        return "The model has not been compared with the RTL."
    return (
        f"Error of the model's cycles against the RTL, over {calibration.held_out} configurations "
        f"of {calibration.configurations} that it was not fitted to: median "
        f"{100 * calibration.median:.2f} %, worst {100 * calibration.worst:.2f} %."
    )


def ablation_model(settings: ReportSettings) -> str:
    """Return the model of the paper's ablations, or the first one if it is not among ours."""
    paper = "Llama-3.2-3B"
    return paper if paper in settings.models else settings.models[0]


def _rates(rows: Iterable[Sequence[Value]], model: str) -> tuple[float, ...]:
    """Return the cache hit rates of a model by length."""
    return tuple(float(row[6] or 0) for row in rows if row[0] == model)


def _ablations(settings: ReportSettings, rows: Sequence[Sequence[Value]]) -> list[list[Value]]:
    """Return the longest prompt of the paper's model beside its figures."""
    model = ablation_model(settings)
    row = next(r for r in reversed(rows) if r[0] == model)
    rate = float(row[6] or 0)
    return [
        [f"{model}: time without cache / with", row[3], papers.CACHE_SPEED_UP],
        [f"{model}: time with DSP arrays alone / hybrid", row[4], papers.HYBRID_SPEED_UP],
        [f"{model}: cache hit rate, %", rate, 100 * papers.CACHE_HIT_RATE],
    ]


def _modelled(
    model: str, tokens: int, shape: PrefillShape, memory: MemoryTiming, *, cache: bool = True
) -> ModelPrefillPerformance:
    from fastdelta.reference.performance import PREFILL_MODELS, model_prefill_performance

    return model_prefill_performance(PREFILL_MODELS[model], tokens, shape, memory, cache=cache)


def _modelled_column(name: str, decimals: int) -> Column:
    return Column(name, Kind.MODELLED, REPORT, decimals)


def prefill(settings: ReportSettings, tell: Progress) -> Section:
    """Measure layers on the simulated prefill engine, hybrid and with DSP arrays alone."""
    rows: list[list[Value]] = []
    command = prefill_command(settings)
    for layer in settings.layers:
        prompt = settings.prompt(layer, settings.prompt_tokens)
        report = bench_prefill(
            prompt, settings.prefill_shape, min_budget=settings.min_budget, progress=tell
        )
        dsp = None
        if layer == settings.layers[0]:
            dsp = bench_prefill(
                prompt,
                settings.prefill_dsp_shape,
                min_budget=settings.min_budget,
                compare_cache=False,
                progress=tell,
            )
        rows.append(_prefill_row(layer, report, dsp))
    dsp_sizes = _changes(settings.prefill_shape, settings.prefill_dsp_shape)
    simulated = {
        name: Column(name, Kind.SIMULATED, command, decimals)
        for name, decimals in (
            ("index cycles", None),
            ("attention cycles", None),
            ("matrix unit busy, %", 1),
            ("cache hits, %", 1),
            ("MiB moved", 2),
            ("MiB without cache", 2),
            ("cycles without cache / with", 3),
        )
    }
    table = table_of(
        "prefill",
        f"One layer of {settings.prompt_tokens:,} tokens on the simulated card",
        [
            Column("layer" if settings.source == "gemma" else "seed"),
            *simulated.values(),
            Column("DSP arrays alone: cycles / hybrid's", Kind.SIMULATED, command + dsp_sizes, 3),
            Column("density", Kind.SIMULATED, command, 3),
            Column("attention covered", Kind.COMPUTED, command, 3),
            Column("error", Kind.COMPUTED, command, 4),
            Column("error, plain INT8", Kind.COMPUTED, command, 4),
            Column("equal to the bit-exact model", Kind.SIMULATED, command),
        ],
        rows,
        [
            "Memory of the simulated card gives a beat a cycle on each port, after 64 cycles.",
            "Error: relative L2 against FP64 over the same blocks.",
        ],
    )
    where = "gemma-3-270m on real text" if settings.source == "gemma" else "made-up tensors"
    return Section(
        "prefill",
        "Prefill engine, layer by layer",
        f"Layers of {where}, read by the RTL on the simulated card.",
        (table,),
    )


def prefill_command(settings: ReportSettings) -> str:
    """Return the command that gives the figures of a row, whose first column it names."""
    shape = settings.prefill_shape
    options = f"--tokens {settings.prompt_tokens} --min-budget {settings.min_budget}"
    if settings.source == "gemma":
        prompt = "--layer LAYER"
    else:
        prompt = f"--source synthetic --head-dim {shape.head_dim} --seed SEED"
    sizes = _changes(PrefillShape(), shape)
    return f"fastdelta bench prefill {prompt} {options}{sizes}"


def _prefill_row(
    layer: int, report: PrefillBenchReport, dsp: PrefillBenchReport | None
) -> list[Value]:
    result, bare = report.result, report.uncached
    assert bare is not None
    mib = 2**20
    return [
        layer,
        result.cycles.index,
        result.cycles.attention,
        100 * result.mpu_utilisation,
        100 * result.cache_hit_rate,
        sum(result.memory_bytes.values()) / mib,
        sum(bare.memory_bytes.values()) / mib,
        bare.cycles.total / result.cycles.total,
        None if dsp is None else dsp.result.cycles.total / result.cycles.total,
        report.chosen.density,
        report.chosen.attention_mass,
        report.rel_l2_error,
        report.rel_l2_error_plain_int8,
        report.bit_exact and (dsp is None or dsp.bit_exact),
    ]


def _changes(shape: PrefillShape, other: PrefillShape) -> str:
    """Return the options that make `other` of `shape`; the head dimension has one of its own."""
    pairs = zip(vars(shape).items(), vars(other).values(), strict=True)
    return "".join(
        f" --set {name}={new}" for (name, old), new in pairs if new != old and name != "head_dim"
    )


def decode(settings: ReportSettings, tell: Progress) -> Section:
    """Measure tokens on the simulated decode engine by H_ITER, beside model and paper."""
    from fastdelta.reference.performance import decode_performance

    rows: list[list[Value]] = []
    error = ""
    for shape in settings.decode_shapes:
        report = bench_decode(shape, tokens=settings.decode_tokens, progress=tell)
        model = decode_performance(shape, tokens=settings.decode_tokens)
        paper = shape == DecodeShape(h_iter=shape.h_iter)
        microseconds = papers.DECODE_MICROSECONDS.get(shape.h_iter) if paper else None
        rows.append(
            [
                shape.h_iter,
                report.cycles_per_token,
                report.first_token_latency_cycles,
                report.microseconds_per_token,
                report.first_token_latency_cycles / CLOCK,
                model.cycles_per_token,
                model.first_token_cycles,
                papers.DECODE_CYCLES.get(shape.h_iter) if paper else None,
                microseconds,
                microseconds / report.microseconds_per_token if microseconds else None,
                report.rel_l2_error,
                report.bit_exact,
            ]
        )
        error = _error(model.calibration)
    h_iters = ",".join(str(shape.h_iter) for shape in settings.decode_shapes)
    first = settings.decode_shapes[0]
    sizes = "".join(
        f" --{name.replace('_', '-')} {value}"
        for name, value in vars(first).items()
        if name != "h_iter" and value != getattr(DecodeShape(), name)
    )
    command = f"fastdelta bench decode --h-iter {h_iters}{sizes} --tokens {settings.decode_tokens}"
    paper_source = f"{DECODE_PAPER}, table IV (HLS estimates)"
    table = table_of(
        "decode",
        "One token of a layer, by H_ITER",
        [
            Column("H_ITER"),
            Column("cycles per token", Kind.SIMULATED, command, 1),
            Column("one token alone, cycles", Kind.SIMULATED, command),
            Column(f"us per token at {CLOCK:g} MHz", Kind.SIMULATED, command, 2),
            Column(f"one token alone, us at {CLOCK:g} MHz", Kind.SIMULATED, command, 2),
            Column("cycles per token", Kind.MODELLED, REPORT, 1),
            Column("one token alone, cycles", Kind.MODELLED, REPORT),
            Column("cycles per token", Kind.PAPER, paper_source),
            Column("us per token at 300 MHz", Kind.PAPER, paper_source, 1),
            Column("paper / here", Kind.SIMULATED, command, 1),
            Column("error", Kind.COMPUTED, command),
            Column("equal to the bit-exact model", Kind.SIMULATED, command),
        ],
        rows,
        [
            error,
            f"{CLOCK:g} MHz is assumed for the simulated card. The paper placed and routed "
            "H_ITER 2 alone, at 263 MHz (161.7 us a token). Its host calls the kernel once for "
            "each token: one token alone is the closer comparison.",
            f"Its GPU baseline: {papers.H100_DECODE_MICROSECONDS:g} us a token on an H100, an "
            "unfused PyTorch step.",
        ],
    )
    x = tuple(float(row[0] or 0) for row in rows)
    lines = [
        Line("steady state", Kind.SIMULATED, command, x, _column(rows, 3)),
        Line("one token alone", Kind.SIMULATED, command, x, _column(rows, 4)),
    ]
    beside = [row for row in rows if row[8] is not None]
    if beside:
        lines.append(
            Line("paper", Kind.PAPER, paper_source, _column(beside, 0), _column(beside, 8))
        )
    picture = Picture(
        "decode",
        "Microseconds a token and layer",
        "H_ITER, value heads computed at once",
        f"microseconds at {CLOCK:g} MHz",
        tuple(lines),
        x_scale="log",
        y_scale="log",
        x_ticks=tuple((value, f"{value:g}") for value in x),
    )
    return Section(
        "decode",
        "Decode engine, microseconds a token",
        "One layer of Qwen3-Next's Gated DeltaNet on the simulated card, the state resident.",
        (table,),
        (picture,),
    )


def _column(rows: Iterable[Sequence[Value]], place: int) -> tuple[float, ...]:
    return tuple(float(row[place] or 0) for row in rows)


def accuracy(settings: ReportSettings, tell: Progress) -> Section:
    """Compare INT8 schemes on real tensors, and formats of the state on a real language model."""
    prompts = [
        (str(layer), settings.prompt(layer, settings.scheme_tokens)) for layer in settings.layers
    ]
    schemes = compare_int8_schemes(prompts, progress=tell)
    int8 = table_of(
        "int8_schemes",
        "Error of dense attention in INT8, relative L2 against FP64",
        [
            Column("layer of gemma-3-270m" if settings.source == "gemma" else "seed"),
            Column("plain INT8", Kind.COMPUTED, REPORT, 4),
            Column("plain, centred and rotated", Kind.COMPUTED, REPORT, 4),
            Column("this engine's operands alone", Kind.COMPUTED, REPORT, 4),
            Column("this engine", Kind.COMPUTED, REPORT, 4),
            Column("plain / this engine", Kind.COMPUTED, REPORT, 1),
        ],
        [
            [
                row.source,
                row.plain,
                row.rotated,
                row.operands,
                row.engine,
                row.plain / row.engine,
            ]
            for row in schemes
        ],
        [
            f"{settings.scheme_tokens:,} tokens, all causal blocks of 128. Plain: scale per block, "
            "P against the row maximum. This engine: docs/numerics.md.",
        ],
    )
    source = f"{PREFILL_PAPER}, table III"
    ruler = table_of(
        "ruler",
        "RULER averages of the paper, not measured here",
        [
            Column("model"),
            Column("FlexPrefill BF16", Kind.PAPER, source, 2),
            Column("FlexPrefill INT8", Kind.PAPER, source, 2),
            Column("FAST-Prefill", Kind.PAPER, source, 2),
        ],
        [[model, *values] for model, values in papers.RULER_AVERAGE.items()],
        ["INT8 costs the paper 14 to 28 points; no such benchmark was run on this engine."],
    )
    formats = compare_state_formats(settings.text_bytes, progress=tell)
    states = table_of(
        "state_formats",
        f"Language model of Gated DeltaNet layers, {settings.text_bytes:,} bytes of held-out text",
        [
            Column("format of the state"),
            Column("bits per byte", Kind.COMPUTED, REPORT, 5),
            Column("same next byte expected, %", Kind.COMPUTED, REPORT, 2),
            Column("error of the logits", Kind.COMPUTED, REPORT),
        ],
        [
            [row.name, row.bits_per_byte, 100 * row.same_next_byte, row.logit_error]
            for row in formats
        ],
        [
            "The state is rounded after every token, everything else is FP64; compared with an "
            "FP64 state. The engine stores 27 bits. The RTL on the same model: fastdelta demo.",
            "Differences of bits per byte between formats are smaller than what they say about a "
            "model: the errors of the logits tell the formats apart.",
        ],
    )
    bars = tuple(
        Line(
            name,
            Kind.COMPUTED,
            REPORT,
            tuple(float(n) for n in range(len(schemes))),
            tuple(values),
            "bars",
        )
        for name, values in (
            ("plain INT8", [row.plain for row in schemes]),
            ("plain, centred and rotated", [row.rotated for row in schemes]),
            ("this engine's operands alone", [row.operands for row in schemes]),
            ("this engine", [row.engine for row in schemes]),
        )
    )
    picture = Picture(
        "int8_schemes",
        "Error of dense attention in INT8",
        "layer" if settings.source == "gemma" else "seed",
        "relative L2 error",
        bars,
        x_ticks=tuple((float(n), row.source) for n, row in enumerate(schemes)),
    )
    return Section(
        "accuracy",
        "Accuracy",
        "What number formats cost, on the tensors of real models.",
        (int8, ruler, states),
        (picture,),
    )


def resources(records: Sequence[Mapping[str, Any]]) -> Section:
    """Put the synthesis figures of kernels beside cards and papers."""
    tables: list[Table] = []
    pictures: list[Picture] = []
    for record in records:
        name, paper, source = _paper_resources(record)
        tables += _resource_tables(record, name, paper, source)
        pictures.append(_resource_picture(record, name, paper, source))
    return Section(
        "resources",
        "Resources",
        "The full kernels through Yosys, unit by unit, each mapped once and multiplied by its "
        "instances. The shells of the cards, clocks and routing are in no figure.",
        tuple(tables),
        tuple(pictures),
    )


def _paper_resources(record: Mapping[str, Any]) -> tuple[str, dict[str, Value], str]:
    """Return the card of a kernel, what the paper takes of it, and where the paper says so."""
    if record["kernel"] == "prefill":
        return "U280", dict(papers.PREFILL_RESOURCES), f"{PREFILL_PAPER}, table II"
    h_iter = int(record["parameters"]["H_ITER"])
    bram, dsp, ff, lut = papers.DECODE_RESOURCES[h_iter]
    card = CARDS["U55C"]
    paper: dict[str, Value] = {
        "LUT": round(lut / 100 * card["LUT"]),
        "FF": round(ff / 100 * card["FF"]),
        "DSP": dsp,
        "BRAM36": bram / 2,
        "URAM": None,
    }
    return "U55C", paper, f"{DECODE_PAPER}, table VI, H_ITER {h_iter}"


def _resource_tables(
    record: Mapping[str, Any], name: str, paper: Mapping[str, Value], source: str
) -> list[Table]:
    kernel, command, card = record["kernel"], record["command"], CARDS[name]
    sizes = ", ".join(f"{key} {value}" for key, value in record["parameters"].items())
    columns = [Column(kind, Kind.SYNTHESISED, command) for kind in RESOURCES]
    totals = record["totals"]
    over = [kind for kind in RESOURCES if totals[kind] > LIMIT * card[kind]]
    verdict = (
        f"More than {100 * LIMIT:.0f} % of the {name}: {', '.join(over)}."
        if over
        else f"Nothing is above {100 * LIMIT:.0f} % of the {name}."
    )
    units = table_of(
        f"{kernel}_units",
        f"{kernel} kernel ({sizes}), all instances of each unit without its parts",
        [Column("unit"), Column("instances"), *columns],
        [
            [unit["unit"], unit["instances"], *(unit[kind] for kind in RESOURCES)]
            for unit in record["units"]
        ],
        [
            record["flow"] + "; LUT within some 40 %, LUT and FF upper bounds beside DSP blocks.",
            *(
                f"Sums and restarts of {unit} are packed into its DSP blocks, by Yosys' pass for "
                "the 7 series: it has none for UltraScale+."
                for unit in record["packed"]
            ),
        ],
    )
    rows: list[list[Value]] = []
    for kind in RESOURCES:
        published = paper[kind]
        rows.append(
            [
                kind,
                totals[kind],
                100 * totals[kind] / card[kind],
                published,
                None if published is None else 100 * float(published) / card[kind],
                card[kind],
            ]
        )
    whole = table_of(
        f"{kernel}_resources",
        f"{kernel} kernel ({sizes}) beside the {name} and the paper",
        [
            Column("resource"),
            Column("this kernel", Kind.SYNTHESISED, command),
            Column("% of the card", Kind.SYNTHESISED, command, 1),
            Column("paper", Kind.PAPER, source),
            Column("% of the card", Kind.PAPER, source, 1),
            Column(name, Kind.SHEET, "AMD DS963, DS978"),
        ],
        rows,
        [verdict],
    )
    return [whole, units]


def _resource_picture(
    record: Mapping[str, Any], name: str, paper: Mapping[str, Value], source: str
) -> Picture:
    card = CARDS[name]
    x = tuple(float(n) for n in range(len(RESOURCES)))
    ours = tuple(100 * record["totals"][kind] / card[kind] for kind in RESOURCES)
    theirs = tuple(100 * float(paper[kind] or 0) / card[kind] for kind in RESOURCES)
    return Picture(
        f"{record['kernel']}_resources",
        f"{record['kernel']} kernel: share of the {name}",
        "",
        "% of the card",
        (
            Line("this kernel", Kind.SYNTHESISED, record["command"], x, ours, "bars"),
            Line("paper", Kind.PAPER, source, x, theirs, "bars"),
        ),
        x_ticks=tuple(zip(x, RESOURCES, strict=True)),
    )


def roofline(settings: ReportSettings, parts: Sequence[Section]) -> Section:
    """Draw both engines below their rooflines, with the figures of the other sections."""
    tables = {table.name: table for part in parts for table in part.tables}
    shape = settings.prefill_shape
    ports = 5 * PSEUDO_CHANNEL_BYTES
    points = tables["prefill"]
    columns = [column.name for column in points.columns]
    heads_macs = shape.macs_per_cycle
    x, y = [], []
    for row in points.rows:
        values = dict(zip(columns, row, strict=True))
        busy, moved = float(values["matrix unit busy, %"] or 0), float(values["MiB moved"] or 0)
        cycles = float(values["attention cycles"] or 0)
        macs = busy / 100 * heads_macs * cycles
        x.append(macs / (moved * 2**20))
        y.append(macs / cycles)
    source = points.columns[1].source
    prefill_picture = _roofline_picture(
        "prefill_roofline",
        "Prefill engine",
        heads_macs,
        ports,
        "5 HBM pseudo-channels",
        [Line("attention of a layer", Kind.SIMULATED, source, tuple(x), tuple(y), "points")],
    )
    lines = []
    names: list[str] = []
    decode_table = tables["decode"]
    for decode_shape, row in zip(settings.decode_shapes, decode_table.rows, strict=True):
        macs = 3 * decode_shape.value_heads * decode_shape.head_dim**2
        moved_bytes = (
            decode_shape.qk_token_bytes + decode_shape.v_token_bytes + decode_shape.o_token_bytes
        )
        names.append(f"H_ITER {decode_shape.h_iter}")
        lines.append((macs / moved_bytes, macs / float(row[1] or 1)))
    largest = max(settings.decode_shapes, key=lambda one: one.h_iter)
    peak = 3 * largest.h_iter * largest.head_dim
    state_bytes = 2 * 4 * largest.value_heads * largest.head_dim**2
    streamed = 3 * largest.value_heads * largest.head_dim**2 / state_bytes
    decode_picture = _roofline_picture(
        "decode_roofline",
        f"Decode engine, H_ITER {largest.h_iter} and below",
        peak,
        3 * PSEUDO_CHANNEL_BYTES,
        "3 HBM pseudo-channels",
        [
            Line(
                "a token, state on the chip",
                Kind.SIMULATED,
                decode_table.columns[1].source,
                tuple(point[0] for point in lines),
                tuple(point[1] for point in lines),
                "points",
                tuple(names),
            ),
            Line(
                "an FP32 state in memory, the most there can be",
                Kind.COMPUTED,
                REPORT,
                (streamed,),
                (min(float(peak), streamed * 3 * PSEUDO_CHANNEL_BYTES),),
                "points",
            ),
        ],
    )
    return Section(
        "roofline",
        "Rooflines",
        "Products a cycle over products for each byte that is moved. Slopes: one HBM "
        f"pseudo-channel ({PSEUDO_CHANNEL_GB_S} GB/s, {PSEUDO_CHANNEL_BYTES:.1f} bytes a cycle at "
        f"{CLOCK:g} MHz) for each memory port; the simulated card gives a beat of 64 bytes a "
        "cycle, so that a point may lie above the slope.",
        (),
        (prefill_picture, decode_picture),
    )


def _roofline_picture(
    name: str,
    title: str,
    peak: float,
    bytes_per_cycle: float,
    channels: str,
    lines: Sequence[Line],
) -> Picture:
    intensities = [x for line in lines for x in line.x]
    ridge = peak / bytes_per_cycle
    low, high = min([*intensities, ridge]) / 4, max([*intensities, ridge]) * 4
    source = "peak of the kernel's parameters; AMD UG1393"
    roof = Line(
        f"peak and {channels}",
        Kind.SHEET,
        source,
        (low, ridge, high),
        (low * bytes_per_cycle, float(peak), float(peak)),
        "limit",
    )
    return Picture(
        name,
        title,
        "products for each byte of memory traffic",
        "products a cycle",
        (*lines, roof),
        x_scale="log",
        y_scale="log",
    )


def not_claimed() -> Section:
    """Say what the page does not show."""
    return Section(
        "not-claimed",
        "What is not claimed",
        "No card has run this: no clock, timing closure, power or placement is known, and times "
        "are cycles at a clock that is named beside them. Nothing was synthesised with Vivado. "
        "Modelled figures of whole models cover their attention alone, over blocks of a synthetic "
        "generator. RULER and other benchmarks of answers were not run. More in "
        "docs/not_claimed.md.",
    )
