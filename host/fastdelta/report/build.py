# SPDX-License-Identifier: Apache-2.0
"""Collect the figures of a report: benches on the simulated card, models, references, files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any, Literal

from fastdelta._version import __version__
from fastdelta.bench.decode import Progress
from fastdelta.bench.prompts import Prompt, gemma_prompt, synthetic_prompt
from fastdelta.report import sections
from fastdelta.report.records import Report, Section
from fastdelta.shapes import SMALL_DECODE, SMALL_PREFILL, DecodeShape, PrefillShape

ENGINES: tuple[Literal["decode", "prefill"], ...] = ("decode", "prefill")


@dataclass(frozen=True)
class ReportSettings:
    """What a report measures; the defaults are the full page.

    Attributes
    ----------
    decode_shapes
        Decode kernels, one for each H_ITER.
    decode_tokens
        Tokens of a long run.
    prefill_shape
        Prefill kernel; `prefill_dsp_shape` is the same with the DSP half of its matrix unit.
    prefill_dsp_shape
        That kernel.
    source
        Prompts of the simulated prefill runs: layers of gemma-3-270m, or made up.
    layers
        Layers of gemma, or seeds of what is made up.
    prompt_tokens
        Tokens of these prompts.
    min_budget
        Fewest tokens of columns to select.
    models, lengths
        Models and prompt lengths in tokens of the modelled times to first token.
    narrow_tokens
        Prompt length at which the model of the paper's ablations is given less bandwidth.
    scheme_tokens
        Tokens over which INT8 schemes are compared.
    text_bytes
        Bytes that the language model reads with each format of its state.
    """

    decode_shapes: tuple[DecodeShape, ...] = field(
        default_factory=lambda: tuple(DecodeShape(h_iter=h) for h in (2, 4, 8, 16))
    )
    decode_tokens: int = 64
    prefill_shape: PrefillShape = field(default_factory=lambda: PrefillShape(head_dim=256))
    prefill_dsp_shape: PrefillShape = field(
        default_factory=lambda: PrefillShape(head_dim=256, lut_arrays=0, array_columns=16)
    )
    source: Literal["gemma", "synthetic"] = "gemma"
    layers: tuple[int, ...] = (5, 11, 17)
    prompt_tokens: int = 1024
    min_budget: int = 512
    models: tuple[str, ...] = ("Llama-3.2-1B", "Llama-3.2-3B", "Qwen2.5-1.5B")
    lengths: tuple[int, ...] = (4096, 8192, 16_384, 32_768, 65_536, 131_072)
    narrow_tokens: int = 16_384
    scheme_tokens: int = 1024
    text_bytes: int = 4096

    @classmethod
    def small(cls) -> ReportSettings:
        """Return settings that take seconds: small kernels, short prompts, made-up tensors."""
        return cls(
            decode_shapes=(SMALL_DECODE,),
            decode_tokens=40,
            prefill_shape=SMALL_PREFILL,
            prefill_dsp_shape=SMALL_PREFILL,
            source="synthetic",
            layers=(1,),
            prompt_tokens=230,
            min_budget=48,
            models=("Llama-3.2-1B",),
            lengths=(4096,),
            narrow_tokens=4096,
            scheme_tokens=230,
            text_bytes=256,
        )

    def prompt(self, layer: int, tokens: int) -> Prompt:
        """Return a prompt for the prefill kernel."""
        if self.source == "gemma":
            return gemma_prompt(tokens, layer)
        return synthetic_prompt(tokens, self.prefill_shape.head_dim, heads=4, seed=layer)


def build_report(
    settings: ReportSettings | None = None, *, progress: Progress | None = None
) -> Report:
    """Measure, model and collect everything that `settings` names.

    Parameters
    ----------
    settings : ReportSettings, optional
        By default the full page, which takes minutes.
    progress : callable, optional
        Told what is going on, steps done, and steps in all.

    Raises
    ------
    MissingToolError
        If the simulated card or gemma cannot be used.
    """
    settings = settings or ReportSettings()
    tell = progress or (lambda *_: None)
    timings: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        timings[name] = timings.get(name, 0.0) + time.perf_counter() - began

    parts: list[Section] = []
    makers: Mapping[str, Callable[[], Section]] = {
        "first token": lambda: sections.first_token(settings, tell),
        "prefill": lambda: sections.prefill(settings, tell),
        "decode": lambda: sections.decode(settings, tell),
        "accuracy": lambda: sections.accuracy(settings, tell),
        "resources": lambda: sections.resources([synthesis(kernel) for kernel in ENGINES]),
    }
    for number, (name, make) in enumerate(makers.items()):
        tell("sections", number, len(makers))
        with timed(name):
            parts.append(make())
    parts.append(sections.roofline(settings, parts))
    parts.append(sections.not_claimed())
    tell("sections", len(makers), len(makers))
    return Report(
        settings=asdict(settings),
        versions={"fastdelta": __version__},
        sections=tuple(parts),
        timings=timings,
    )


def synthesis(kernel: Literal["decode", "prefill"]) -> dict[str, Any]:
    """Return the committed synthesis figures of a kernel (``tools/synthesise_units.py``)."""
    text = files("fastdelta.report").joinpath(f"{kernel}_synthesis.json").read_text("utf-8")
    record: dict[str, Any] = json.loads(text)
    return record
