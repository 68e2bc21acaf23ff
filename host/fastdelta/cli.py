# SPDX-License-Identifier: Apache-2.0
"""The command ``fastdelta``.

Tables for people go to standard output, or JSON in their place with ``--json -``; progress and
errors go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fastdelta._version import __version__
from fastdelta.bench.decode import (
    ASSUMED_CLOCK_MHZ,
    DEFAULT_TOKENS,
    DecodeBenchReport,
    bench_decode,
)
from fastdelta.bench.prefill import DEFAULT_TOKENS as DEFAULT_PREFILL_TOKENS
from fastdelta.bench.prefill import PrefillBenchReport, bench_prefill
from fastdelta.bench.prompts import Prompt, gemma_prompt, synthetic_prompt
from fastdelta.bench.soak import (
    DEFAULT_PREFILL_THREADS,
    DEFAULT_PROCESSES,
    SoakReport,
    run_soak,
)
from fastdelta.bench.soak import DEFAULT_SECONDS as DEFAULT_SOAK_SECONDS
from fastdelta.demo.decode import DEFAULT_READ_BYTES, DEFAULT_WRITE_BYTES, DemoReport, run_demo
from fastdelta.demo.prefill import (
    DEFAULT_PROMPT_TOKENS,
    MODEL_BOARD,
    FirstTokenReport,
    run_first_token,
)
from fastdelta.devices import DeviceList, list_devices
from fastdelta.doctor import Diagnosis, State, diagnose, need_of
from fastdelta.errors import FastdeltaError, InputError, MissingToolError
from fastdelta.report.build import ReportSettings, build_report
from fastdelta.report.page import render_page
from fastdelta.sensors import Energy
from fastdelta.shapes import DecodeShape, PrefillShape

FULL_SHAPE = DecodeShape()
DEFAULT_READ_LATENCY = 64
DEFAULT_REPORT_FOLDER = Path("build/report")
SHOWN_BYTES = 480  # of the passage
SHOWN_CHARACTERS = 20  # of the end of a text in a table

app = typer.Typer(
    help="Accelerators for long-context language models on a real or a simulated Alveo card.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Measure an engine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

Tell = Callable[[str, int, int], None]

BoardOption = Annotated[
    str, typer.Option(help="sim-u55c, sim-u280, u55c, u280, or the index of a real card.")
]
ClockOption = Annotated[
    float, typer.Option(help="Clock in MHz to assume for a simulated card's microseconds.")
]
LatencyOption = Annotated[int, typer.Option(help="Simulated memory: cycles until data comes.")]
OverlayOption = Annotated[
    Path | None, typer.Option(help="The xclbin to load on a real card; its manifest is beside it.")
]
PromptTokensOption = Annotated[int, typer.Option(help="Tokens of the text for gemma-3-270m.")]
JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - in place of tables."),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastdelta {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options before the command."""


@bench_app.command("decode")
def bench_decode_command(
    board: BoardOption = "sim-u55c",
    h_iter: Annotated[
        str, typer.Option(help="Value heads computed at once; several with commas.")
    ] = str(FULL_SHAPE.h_iter),
    qk_heads: Annotated[int, typer.Option(help="Query/key heads.")] = FULL_SHAPE.qk_heads,
    group_ratio: Annotated[
        int, typer.Option(help="Value heads per query/key head.")
    ] = FULL_SHAPE.group_ratio,
    head_dim: Annotated[int, typer.Option(help="Dimension of a head.")] = FULL_SHAPE.head_dim,
    contexts: Annotated[int, typer.Option(help="Resident states.")] = FULL_SHAPE.contexts,
    bus_width: Annotated[
        int, typer.Option(help="Bits of the memory ports.")
    ] = FULL_SHAPE.bus_width,
    tokens: Annotated[int, typer.Option(help="Tokens of the long run.")] = DEFAULT_TOKENS,
    overlay: OverlayOption = None,
    read_latency: LatencyOption = DEFAULT_READ_LATENCY,
    seed: Annotated[int, typer.Option(help="Seed of inputs and simulated stalls.")] = 0,
    clock_mhz: ClockOption = ASSUMED_CLOCK_MHZ,
    json_file: JsonOption = None,
) -> None:
    """Measure cycles per token, first-token latency and error of the decode engine.

    The default is the full shape: 16 query/key heads, 32 value heads, dimension 128.
    """
    shapes = _shapes(
        h_iter,
        qk_heads=qk_heads,
        group_ratio=group_ratio,
        head_dim=head_dim,
        contexts=contexts,
        bus_width=bus_width,
    )
    options = _card_options(board, read_latency=read_latency, overlay=overlay)
    reports = []
    for shape in shapes:
        with _progress(f"H_ITER {shape.h_iter}: ") as tell:
            reports.append(
                bench_decode(
                    shape,
                    board=_board(board),
                    tokens=tokens,
                    seed=seed,
                    clock_mhz=clock_mhz,
                    progress=tell,
                    **options,
                )
            )
    records = [report.to_dict() for report in reports]
    _output(records if len(records) > 1 else records[0], json_file, decode_table(reports))


@bench_app.command("prefill")
def bench_prefill_command(
    board: BoardOption = "sim-u280",
    tokens: Annotated[int, typer.Option(help="Tokens of the prompt.")] = DEFAULT_PREFILL_TOKENS,
    source: Annotated[
        str,
        typer.Option(help="gemma (a real model on real text; extra gemma), or synthetic."),
    ] = "gemma",
    layer: Annotated[int, typer.Option(help="Layer of gemma, counted from 0: 5, 11, 17.")] = 5,
    heads: Annotated[int, typer.Option(help="Query heads (synthetic).")] = 4,
    kv_heads: Annotated[int, typer.Option(help="KV heads (synthetic).")] = 1,
    head_dim: Annotated[
        int | None, typer.Option(help="Channels of a head: 128 for synthetic, 256 for gemma.")
    ] = None,
    gamma: Annotated[float, typer.Option(help="Share of the attention to cover.")] = 0.9,
    tau: Annotated[float, typer.Option(help="Query-aware below this divergence.")] = 0.1,
    min_budget: Annotated[
        int | None,
        typer.Option(help="Fewest tokens of columns; by default 1,024 or half of the prompt."),
    ] = None,
    max_budget: Annotated[int | None, typer.Option(help="Most tokens of columns.")] = None,
    window: Annotated[
        int | None, typer.Option(help="Query blocks worked on together; by default all that fit.")
    ] = None,
    compare_cache: Annotated[
        bool, typer.Option(help="Read the prompt once more without the KV cache.")
    ] = True,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Another size of the kernel, such as array_rows=8."
        ),
    ] = None,
    overlay: OverlayOption = None,
    read_latency: LatencyOption = DEFAULT_READ_LATENCY,
    seed: Annotated[int, typer.Option(help="Seed of made-up prompts and simulated stalls.")] = 0,
    clock_mhz: ClockOption = ASSUMED_CLOCK_MHZ,
    json_file: JsonOption = None,
) -> None:
    """Measure cycles, blocks, error and memory traffic of the prefill engine on one prompt.

    The default is the full engine: blocks of 128 tokens, twelve 32 x 32 arrays.
    """
    with _progress() as tell:
        tell("prompt", 0, 1)
        prompt = _prompt(source, tokens, layer, heads, kv_heads, head_dim, seed)
        tell("prompt", 1, 1)
        report = bench_prefill(
            prompt,
            _prefill_shape(prompt.q.shape[2], sizes or []),
            board=_board(board),
            gamma=gamma,
            tau=tau,
            min_budget=min_budget,
            max_budget=max_budget,
            window=window,
            compare_cache=compare_cache,
            seed=seed,
            clock_mhz=clock_mhz,
            progress=tell,
            **_card_options(board, read_latency=read_latency, overlay=overlay),
        )
    _output(report.to_dict(), json_file, prefill_table(report))


@bench_app.command("first-token")
def bench_first_token_command(
    board: Annotated[
        str,
        typer.Option(
            help=f"As for the other commands, or {MODEL_BOARD}: the bit-exact model, no cycles."
        ),
    ] = "sim-u280",
    passages: Annotated[int, typer.Option(help="Passages of real text.")] = 10,
    tokens: PromptTokensOption = DEFAULT_PROMPT_TOKENS,
    gamma: Annotated[float, typer.Option(help="Share of the attention to cover.")] = 0.9,
    tau: Annotated[float, typer.Option(help="Query-aware below this divergence.")] = 0.1,
    min_budget: Annotated[
        int | None,
        typer.Option(help="Fewest tokens of columns; by default 1,024 or half of a passage."),
    ] = None,
    overlay: OverlayOption = None,
    read_latency: LatencyOption = DEFAULT_READ_LATENCY,
    clock_mhz: ClockOption = ASSUMED_CLOCK_MHZ,
    json_file: JsonOption = None,
) -> None:
    """Count the passages after which gemma-3-270m says the same first token as in FP32.

    Its full-attention layers run on the card, all else in FP32 on the host (extra gemma).
    """
    with _progress() as tell:
        report = run_first_token(
            board=_board(board),
            tokens=tokens,
            count=passages,
            gamma=gamma,
            tau=tau,
            min_budget=min_budget,
            clock_mhz=clock_mhz,
            progress=tell,
            **_card_options(board, read_latency=read_latency, overlay=overlay),
        )
    _output(report.to_dict(), json_file, first_token_table(report))


@bench_app.command("soak")
def bench_soak_command(
    seconds: Annotated[float, typer.Option(help="How long.")] = DEFAULT_SOAK_SECONDS,
    processes: Annotated[
        int, typer.Option(help="Processes, each with two cards of its own.")
    ] = DEFAULT_PROCESSES,
    prefill_threads: Annotated[
        int, typer.Option(help="Threads of a process that call its prefill engine.")
    ] = DEFAULT_PREFILL_THREADS,
    decode_board: Annotated[str, typer.Option(help="Simulated card for decode.")] = "sim-u55c",
    prefill_board: Annotated[str, typer.Option(help="Simulated card for prefill.")] = "sim-u280",
    seed: Annotated[int, typer.Option(help="Seed of what is called when.")] = 0,
    json_file: JsonOption = None,
) -> None:
    """Load simulated cards from threads and processes; check every result, buffers and memory.

    Shapes are small: this is a test of the host. A wrong result, a buffer that is left or a process
    that grows ends it with code 1.
    """
    with _progress() as tell:
        report = run_soak(
            seconds,
            processes=processes,
            prefill_threads=prefill_threads,
            decode_board=decode_board,
            prefill_board=prefill_board,
            seed=seed,
            progress=tell,
        )
    _output(report.to_dict(), json_file, soak_table(report))
    if not report.passed:
        raise typer.Exit(1)


@app.command("demo")
def demo_command(
    board: BoardOption = "sim-u55c",
    read_bytes: Annotated[int, typer.Option(help="Bytes of the passage.")] = DEFAULT_READ_BYTES,
    write_bytes: Annotated[int, typer.Option(help="Bytes to write.")] = DEFAULT_WRITE_BYTES,
    read_latency: LatencyOption = DEFAULT_READ_LATENCY,
    seed: Annotated[int, typer.Option(help="Seed of the bytes that are drawn.")] = 0,
    clock_mhz: ClockOption = ASSUMED_CLOCK_MHZ,
    bench: Annotated[
        bool, typer.Option(help="Measure the full decode shape afterwards, with H_ITER 8.")
    ] = True,
    first_token: Annotated[
        bool, typer.Option(help="Let gemma-3-270m read a text on the prefill engine as well.")
    ] = True,
    prompt_tokens: PromptTokensOption = DEFAULT_PROMPT_TOKENS,
    json_file: JsonOption = None,
) -> None:
    """Let language models read real text on the card: one continues it, one says its first token.

    The first has Gated DeltaNet layers and runs on the decode engine; the second is gemma-3-270m
    (extra gemma), whose full-attention layers run on the prefill engine.
    """
    options = _card_options(board, read_latency=read_latency)
    with _progress() as tell:
        report = run_demo(
            board=_board(board),
            read_bytes=read_bytes,
            write_bytes=write_bytes,
            seed=seed,
            clock_mhz=clock_mhz,
            progress=tell,
            **options,
        )
    if json_file != "-":
        console = Console()
        for part in demo_tables(report):
            console.print(part)
    record: dict[str, Any] = {"demo": report.to_dict()}
    tables = []
    if bench:
        with _progress("full shape: ") as tell:
            full = bench_decode(
                FULL_SHAPE,
                board=_board(board),
                clock_mhz=clock_mhz,
                progress=tell,
                **options,
            )
        record["bench"] = full.to_dict()
        tables.append(decode_table([full]))
    if first_token:
        try:
            with _progress("first token: ") as tell:
                read = run_first_token(
                    board=_board(board),
                    tokens=prompt_tokens,
                    clock_mhz=clock_mhz,
                    progress=tell,
                    **options,
                )
        except MissingToolError as error:
            Console(stderr=True, highlight=False).print(Text(f"first token left out: {error}"))
        else:
            record["first_token"] = read.to_dict()
            tables.append(first_token_table(read))
    _output(record, json_file, *tables)


@app.command("doctor")
def doctor_command(
    board: Annotated[
        str | None,
        typer.Option(help="Board that must be usable; without it, one kind of card is enough."),
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option(help="An xclbin to check against its manifest and the card.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Say what is missing for a real or a simulated card, and how to get it.

    Ends with code 1 if the board that was named, or every kind of card, cannot be used.
    """
    diagnosis = diagnose(overlay)
    _output(diagnosis.to_dict(), json_file, doctor_table(diagnosis))
    if not any(diagnosis.usable(need) for need in need_of(board)):
        raise typer.Exit(1)


@app.command("devices")
def devices_command(json_file: JsonOption = None) -> None:
    """List the cards that can be opened, real and simulated."""
    listed = list_devices()
    _output(listed.to_dict(), json_file, devices_table(listed))


def doctor_table(diagnosis: Diagnosis) -> Table:
    """Return the findings for people."""
    usable = {True: "can be used", False: "cannot be used"}
    table = Table(
        title=f"Real cards {usable[diagnosis.usable('card')]}, "
        f"simulated cards {usable[diagnosis.usable('simulation')]}",
        title_justify="left",
    )
    for heading in ("check", "state", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    colours = {State.OK: "green", State.NOT_CHECKED: "yellow"}
    for finding in diagnosis.findings:
        state = Text(finding.state, style=colours.get(finding.state, "red"))
        table.add_row(Text(finding.check), state, Text(finding.found), Text(finding.remedy))
    return table


def devices_table(listed: DeviceList) -> Table:
    """Return the cards for people."""
    table = Table(caption=listed.note, caption_justify="left")
    table.add_column("--board")
    table.add_column("name", overflow="fold")
    table.add_column("card")
    table.add_column("memory", justify="right")
    for device in listed.devices:
        memory = "-" if device.memory_bytes is None else f"{device.memory_bytes >> 30} GiB"
        table.add_row(str(device.board), device.name, device.card or "no overlays", memory)
    return table


def decode_table(reports: Sequence[DecodeBenchReport]) -> Table:
    """Return the figures of the decode bench for people, one column a configuration."""
    first = reports[0]
    shape = first.provenance["config"]
    where = _where(first.provenance, first.clock_mhz)
    table = Table(
        title=f"Decode of one Gated DeltaNet layer: {shape['qk_heads']} query/key heads, "
        f"{shape['qk_heads'] * shape['group_ratio']} value heads, d = {shape['head_dim']}",
        caption=where,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    for report in reports:
        table.add_column(f"H_ITER {report.provenance['config']['h_iter']}", justify="right")
    simulated = "simulated tokens per second" if first.clock_assumed else "tokens per second"
    rows: dict[str, Callable[[DecodeBenchReport], str]] = {
        "cycles per token, steady state": lambda r: f"{r.cycles_per_token:,.1f}",
        "paper's cycles per token": lambda r: (
            f"{r.paper_cycles_per_token:,}" if r.paper_cycles_per_token else "-"
        ),
        "first token, cycles from start to done": lambda r: f"{r.first_token_latency_cycles:,}",
        f"microseconds per token at {first.clock_mhz:g} MHz": lambda r: (
            f"{r.microseconds_per_token:.2f}"
        ),
        "relative L2 error against FP64": lambda r: f"{r.rel_l2_error:.1e}",
        "equal to the bit-exact model": lambda r: "yes" if r.bit_exact else "NO",
        "saturations": lambda r: f"{r.saturations}",
        f"{simulated}": lambda r: f"{r.tokens_per_wall_second:,.0f}",
        "host's share of a call, microseconds": lambda r: _microseconds(r.host_overhead.total_us),
        "of it, a kernel that does nothing": lambda r: _microseconds(r.host_overhead.do_nothing_us),
        "joules per token, all of the card": lambda r: _joules(r.energy),
    }
    for name, value in rows.items():
        table.add_row(name, *(value(report) for report in reports))
    return table


def prefill_table(report: PrefillBenchReport) -> Table:
    """Return the figures of the prefill bench for people."""
    result, shape = report.result, report.result.shape
    heads = result.index_set.heads
    source = ", ".join(f"{key} {value}" for key, value in report.source.items() if key != "kind")
    table = Table(
        title=f"Prefill of {result.tokens:,} tokens, {heads} query heads on {result.kv_heads} KV "
        f"heads, d = {shape.head_dim}, blocks of {shape.block} ({report.source['kind']}: {source})",
        caption=_where(result.provenance.to_dict(), report.clock_mhz),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    table.add_column("engine", justify="right")
    table.add_column("beside", justify="right")
    moved = sum(result.memory_bytes.values())
    without = report.uncached and sum(report.uncached.memory_bytes.values())
    same = {None: "-", True: "yes", False: "NO"}
    patterns = [pattern.value for pattern in result.patterns if pattern is not None]
    rows = [
        ("cycles of index generation", f"{result.cycles.index:,}", ""),
        ("cycles of attention", f"{result.cycles.attention:,}", ""),
        ("cycles from start to done", f"{result.cycles.total:,}", ""),
        (f"milliseconds at {report.clock_mhz:g} MHz", f"{report.milliseconds:.3f}", ""),
        ("index generation / attention", f"{100 * report.index_to_attention:.1f} %", ""),
        ("matrix unit busy with selected tiles", f"{100 * result.mpu_utilisation:.1f} %", ""),
        ("KV cache hit rate", f"{100 * result.cache_hit_rate:.1f} %", ""),
        ("bytes moved; without cache", f"{moved:,}", f"{without:,}" if without else "-"),
        ("same output without cache", same[report.cache_changes_nothing], ""),
        (
            "density of blocks; FlexPrefill's rule",
            f"{report.chosen.density:.3f}",
            f"{report.flexprefill.density:.3f}",
        ),
        (
            "attention covered; FlexPrefill's rule",
            f"{report.chosen.attention_mass:.4f}",
            f"{report.flexprefill.attention_mass:.4f}",
        ),
        (
            "the same; same rule in FP64",
            f"{report.chosen.attention_mass:.4f}",
            f"{report.float_rule.attention_mass:.4f}",
        ),
        ("Jaccard index of blocks and that rule's", f"{report.index_jaccard:.4f}", ""),
        (
            "relative L2 error; plain INT8",
            f"{report.rel_l2_error:.4f}",
            f"{report.rel_l2_error_plain_int8:.4f}",
        ),
        ("equal to the bit-exact model", same[report.bit_exact], ""),
        ("patterns", ", ".join(f"{patterns.count(p)} {p}" for p in dict.fromkeys(patterns)), ""),
        ("simulated cycles per second", f"{report.cycles_per_wall_second:,.0f}", ""),
        ("joules per token, all of the card", _joules(report.energy), ""),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def soak_table(report: SoakReport) -> Table:
    """Return what the soak bench did and found, for people."""
    table = Table(
        title=f"Soak: {sum(report.calls.values()):,} calls from {len(report.processes)} processes "
        f"in {report.seconds:.0f} s: {'passed' if report.passed else 'FAILED'}",
        caption="SIMULATED: cards with small kernels. Every result is compared with the models.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    table.add_column("", justify="right")
    for kind, calls in report.calls.items():
        table.add_row(kind, f"{calls:,}")
    table.add_section()
    table.add_row("wrong results", f"{report.wrong}")
    table.add_row("errors", f"{report.errors}")
    table.add_row("buffers left on closed cards", f"{report.leaked_buffers}")
    for number, process in enumerate(report.processes):
        memory = f"{process.warm_mib:.1f} to {process.final_mib:.1f} MiB ({process.growth:+.2%})"
        table.add_row(f"process {number}: resident after warm-up and at the end", memory)
    for fault in report.faults:
        table.add_row(Text(fault), "")
    return table


def first_token_table(report: FirstTokenReport) -> Table:
    """Return the first tokens for people, one row a passage."""
    where = (
        _where({"simulated": report.simulated, "board": report.board}, report.clock_mhz)
        + " The cycles are those of the full-attention layers alone; all else runs on the host."
        if report.board != MODEL_BOARD
        else "Computed by the bit-exact model: no card, no cycles."
    )
    table = Table(
        title=f"First token of gemma-3-270m after {report.tokens:,} tokens: the same as in FP32 "
        f"after {report.same_tokens} of {len(report.passages)} passages",
        caption=where,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("end of the text", min_width=SHOWN_CHARACTERS + 4, no_wrap=True)
    table.add_column("card")
    table.add_column("FP32")
    table.add_column("logits\ndiffer", justify="right")
    table.add_column("kernel\ncycles", justify="right")
    table.add_column(f"ms at\n{report.clock_mhz:g} MHz", justify="right")
    for passage in report.passages:
        milliseconds = report.milliseconds(passage)
        table.add_row(
            Text("... " + " ".join(passage.passage[-SHOWN_CHARACTERS:].split())),
            Text(repr(passage.token)),
            Text(repr(passage.reference)),
            f"{passage.logit_difference:.2f}",
            f"{passage.kernel_cycles:,}" if passage.kernel_cycles else "-",
            "-" if milliseconds is None else f"{milliseconds:.3f}",
        )
    return table


def demo_tables(report: DemoReport) -> tuple[Panel, Table]:
    """Return text and figures of the demo for people."""
    shown = report.passage[-SHOWN_BYTES:].partition("\n")[2] or report.passage[-SHOWN_BYTES:]
    text = Text("... " + shown, style="dim")
    text.append(report.continuation, style="bold")
    panel = Panel(
        text, title="end of what was read (dim) and what was written (bold)", title_align="left"
    )
    config = report.provenance["config"]
    table = Table(
        title=f"Language model of {report.layers} Gated DeltaNet layers, every recurrence on the "
        f"card: {config['qk_heads']} query/key heads, "
        f"{config['qk_heads'] * config['group_ratio']} value heads, d = {config['head_dim']}",
        caption=_where(report.provenance, report.clock_mhz),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    table.add_column("card", justify="right")
    table.add_column("FP32", justify="right")
    table.add_row(
        f"bits per byte over {report.read_bytes} bytes",
        f"{report.bits_per_byte:.5f}",
        f"{report.reference_bits_per_byte:.5f}",
    )
    table.add_row("same next byte expected", f"{100 * report.next_byte_agreement:.2f} %", "")
    same = report.continuation == report.reference_continuation
    table.add_row("same continuation written", "yes" if same else "no", "")
    table.add_row("saturations", f"{report.counters.saturations}", "")
    table.add_row("cycles per token and layer", f"{report.cycles_per_token:,.1f}", "")
    table.add_row(
        f"microseconds per token and layer at {report.clock_mhz:g} MHz",
        f"{report.microseconds_per_token:.2f}",
        "",
    )
    return panel, table


def _microseconds(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.0f}"


@app.command("report")
def report_command(
    output: Annotated[
        Path, typer.Option(help="Folder of index.html and report.json.")
    ] = DEFAULT_REPORT_FOLDER,
    size: Annotated[
        str, typer.Option(help="full, or small: seconds in place of minutes, nothing to quote.")
    ] = "full",
    json_file: JsonOption = None,
) -> None:
    """Measure, model and collect all figures, and write them as one HTML page (extra report).

    Decode and prefill engines on the simulated card, whole models by the performance model, number
    formats on real models, resources by synthesis, each beside the papers' tables.
    """
    sizes = {"full": ReportSettings, "small": ReportSettings.small}
    if size not in sizes:
        raise typer.BadParameter(f"--size is {size!r}; allowed are {', '.join(sizes)}")
    with _progress() as tell:
        report = build_report(sizes[size](), progress=tell)
    record = report.to_dict()
    if json_file == "-":
        _output(record, json_file)
        return
    page = render_page(report)
    output.mkdir(parents=True, exist_ok=True)
    _output(record, json_file or str(output / "report.json"))
    (output / "index.html").write_text(page, encoding="utf-8")
    Console(highlight=False).print(Text(str(output / "index.html")))


@app.command("regress")
def regress_command(
    plan: Annotated[
        str, typer.Option(help="smoke, nightly or full: which tests, how often.")
    ] = "smoke",
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each random test, in place of the plan's.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes at once; by default one for each core.")
    ] = None,
    match: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only tests or testpoints named so; * is any.")
    ] = "",
    rerun: Annotated[
        str, typer.Option(metavar="SEED_LINE", help="Only the job of this line, with waves.")
    ] = "",
    seed: Annotated[
        int | None, typer.Option(help="What all seeds follow from; a report says its own.")
    ] = None,
    coverage: Annotated[
        str | None, typer.Option(help="Code coverage: line, toggle or none; by default the plan's.")
    ] = None,
    waves: Annotated[int, typer.Option(help="How many failures to run again with waves.")] = 3,
    scheduler: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Dask scheduler, or local for a cluster of this one."),
    ] = "",
    output: Annotated[
        Path | None, typer.Option(help="Folder of the reports; by default build/regression.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Run the simulations of a plan in parallel, and report (extra verif).

    The exit code is 0 when everything passed.
    """
    try:
        from fastdelta_verif.regression.session import OUTPUT, Request, RequestError, regress
    except ImportError as error:
        raise MissingToolError(
            f"{error}; regressions need a checkout of the repository with fastdelta[sim,verif]"
        ) from error
    if coverage not in (None, "none", "line", "toggle"):
        raise typer.BadParameter(f"--coverage is {coverage!r}; allowed are line, toggle, none")
    request = Request(
        plan=plan,
        seeds=seeds,
        jobs=jobs or os.cpu_count() or 1,
        match=match,
        rerun=rerun,
        seed=seed,
        coverage="" if coverage == "none" else coverage,
        scheduler=scheduler,
        output=output or OUTPUT,
        waves=waves,
    )
    try:
        report, code = regress(request, Console(stderr=True, highlight=False))
    except RequestError as error:
        raise InputError(str(error)) from error
    if json_file == "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    elif json_file is not None:
        Path(json_file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    raise typer.Exit(code)


def _joules(energy: Energy) -> str:
    joules = energy.joules_per_token
    return "no sensors" if joules is None else f"{joules:.2e}"


def _where(provenance: dict[str, Any], clock_mhz: float) -> str:
    if provenance["simulated"]:
        return (
            f"SIMULATED: cycles of the RTL on {provenance['board']}; {clock_mhz:g} MHz is assumed, "
            "not measured."
        )
    return f"Measured on {provenance['board']} at {clock_mhz:g} MHz."


def _shapes(h_iter: str, **sizes: int) -> list[DecodeShape]:
    values = h_iter.split(",")
    if not all(value.isdecimal() for value in values):
        raise typer.BadParameter(f"--h-iter is {h_iter!r}; give numbers, such as 8 or 2,4,8,16")
    try:
        return [DecodeShape(h_iter=int(value), **sizes) for value in values]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _prompt(
    source: str,
    tokens: int,
    layer: int,
    heads: int,
    kv_heads: int,
    head_dim: int | None,
    seed: int,
) -> Prompt:
    if source == "gemma":
        if head_dim not in (None, 256):
            raise typer.BadParameter(f"--head-dim is {head_dim}; gemma has 256")
        return gemma_prompt(tokens, layer)
    if source == "synthetic":
        return synthetic_prompt(tokens, head_dim or 128, heads=heads, kv_heads=kv_heads, seed=seed)
    raise typer.BadParameter(f"--source is {source!r}; allowed are gemma and synthetic")


def _prefill_shape(head_dim: int, sizes: Sequence[str]) -> PrefillShape:
    values = {}
    for size in sizes:
        name, _, value = size.partition("=")
        if not value.isdecimal():
            raise typer.BadParameter(f"--set is {size!r}; give NAME=VALUE, such as array_rows=8")
        values[name] = int(value)
    try:
        return PrefillShape(**{"head_dim": head_dim, **values})
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error


def _board(name: str) -> str | int:
    return int(name) if name.isdecimal() else name


def _card_options(board: str, *, read_latency: int, overlay: Path | None = None) -> dict[str, Any]:
    """Return options that only a simulated card has, and the overlay if one is given."""
    options: dict[str, Any] = {} if overlay is None else {"overlay": overlay}
    if board.startswith("sim-"):
        options["read_latency"] = read_latency
    return options


def _output(record: object, json_file: str | None, *tables: Table) -> None:
    text = json.dumps(record, indent=2, allow_nan=False)
    if json_file == "-":
        sys.stdout.write(text + "\n")
        return
    if json_file is not None:
        Path(json_file).write_text(text + "\n", encoding="utf-8")
    console = Console()
    for table in tables:
        console.print(table)


@contextmanager
def _progress(prefix: str = "") -> Iterator[Tell]:
    """Show bars on standard error, one for each thing that is going on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(prefix + what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield tell


def main() -> None:
    """Run the command line; errors that the package foresees end it with their message."""
    try:
        app()
    except FastdeltaError as error:
        Console(stderr=True, highlight=False).print(Text(f"fastdelta: {error}", style="red"))
        sys.exit(1)
