# SPDX-License-Identifier: Apache-2.0
"""The demo of the prefill engine: a real model reads a real text and says its first token.

gemma-3-270m (extra ``gemma``) reads a passage; the layers that see the whole past run on the card,
everything else in FP32 on the host. The model in FP32 throughout reads the same passage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastdelta.accelerator import Accelerator
from fastdelta.bench.decode import ASSUMED_CLOCK_MHZ, Progress
from fastdelta.bench.prefill import default_min_budget
from fastdelta.errors import InputError
from fastdelta.gemma import (
    FullAttention,
    GemmaCheckpoint,
    GemmaModel,
    load_checkpoint,
    passages,
)
from fastdelta.prefill.accelerator import PrefillAccelerator
from fastdelta.prefill.attention import AcceleratorAttention, ModelAttention
from fastdelta.prefill.results import PrefillResult
from fastdelta.reference.sparse_index import SelectionParameters
from fastdelta.shapes import PrefillShape

DEFAULT_PROMPT_TOKENS = 1024
MODEL_BOARD = "model"
"""Name of a board in whose place the bit-exact model computes; it counts no cycles."""

_SHOWN_TOKENS = 60  # at the end of the passage


@dataclass(frozen=True)
class FirstToken:
    """First token after one passage.

    Attributes
    ----------
    passage : str
        End of what was read.
    token, reference : str
        Through the card and in FP32.
    same : bool
        Whether they are the same token.
    rank : int
        Place of the FP32 model's token among those through the card, 0 for the first.
    logit_difference : float
        Root mean square of the difference of all logits.
    margin : float
        By how much the FP32 model's first token is ahead of its second, in logits.
    layers : dict
        Result of each layer that ran on the card.
    host_seconds, reference_seconds : float
        Wall-clock time of the two models, the simulation included.
    """

    passage: str
    token: str
    reference: str
    same: bool
    rank: int
    logit_difference: float
    margin: float
    layers: dict[int, PrefillResult]
    host_seconds: float
    reference_seconds: float

    @property
    def kernel_cycles(self) -> int | None:
        """Cycles of the kernel in all of these layers; None without a card."""
        return sum(result.cycles.total for result in self.layers.values()) or None


@dataclass(frozen=True)
class FirstTokenReport:
    """What the demo found.

    Attributes
    ----------
    tokens : int
        Length of each passage.
    selection : SelectionParameters
        Rule by which the blocks were chosen.
    passages : tuple of FirstToken
    board : str
    simulated : bool
    clock_mhz : float
    clock_assumed : bool
    setup_seconds : float
        Of opening the card.
    """

    tokens: int
    selection: SelectionParameters
    passages: tuple[FirstToken, ...]
    board: str
    simulated: bool
    clock_mhz: float
    clock_assumed: bool
    setup_seconds: float

    @property
    def same_tokens(self) -> int:
        """Passages after which both say the same token."""
        return sum(passage.same for passage in self.passages)

    def milliseconds(self, passage: FirstToken) -> float | None:
        """Kernel time of a passage at the clock; None without a card."""
        cycles = passage.kernel_cycles
        return None if cycles is None else cycles / (1000 * self.clock_mhz)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        return {
            "demo": "first token",
            "simulated": self.simulated,
            "board": self.board,
            "model": "gemma-3-270m",
            "tokens": self.tokens,
            "selection": asdict(self.selection),
            "clock_mhz_assumed" if self.clock_assumed else "clock_mhz": self.clock_mhz,
            "same_tokens": self.same_tokens,
            "passages": [
                {
                    "end": passage.passage,
                    "token": passage.token,
                    "reference_token": passage.reference,
                    "same": passage.same,
                    "rank": passage.rank,
                    "logit_difference": passage.logit_difference,
                    "margin": passage.margin,
                    "kernel_cycles": passage.kernel_cycles,
                    "kernel_milliseconds": self.milliseconds(passage),
                    "layers": {
                        str(layer): {
                            "cycles": asdict(result.cycles),
                            "density": result.density,
                            "mpu_utilisation": result.mpu_utilisation,
                        }
                        for layer, result in passage.layers.items()
                    },
                    "seconds": {"card": passage.host_seconds, "fp32": passage.reference_seconds},
                }
                for passage in self.passages
            ],
            "seconds": {"setup": self.setup_seconds},
        }


def run_first_token(
    *,
    board: str | int = "sim-u280",
    tokens: int = DEFAULT_PROMPT_TOKENS,
    count: int = 1,
    shape: PrefillShape | None = None,
    gamma: float = 0.9,
    tau: float = 0.1,
    min_budget: int | None = None,
    clock_mhz: float = ASSUMED_CLOCK_MHZ,
    progress: Progress | None = None,
    open_engine: Callable[..., PrefillAccelerator] | None = None,
    **options: Any,
) -> FirstTokenReport:
    """Let gemma-3-270m read passages of real text, and compare its first token with FP32.

    Parameters
    ----------
    board : str or int
        As for `fastdelta.Accelerator.open`; or ``"model"``, the bit-exact model in place of a
        card, which counts no cycles.
    tokens : int
        Length of each passage, at least 2.
    count : int
        Number of passages.
    shape : PrefillShape, optional
        Parameters of the kernel; by default the full engine with the model's head dimension.
    gamma, tau, min_budget
        As for `PrefillAccelerator.prefill`; the minimum budget is by default the paper's 1,024
        tokens, or half of a shorter passage.
    clock_mhz : float
        Clock to assume for the simulated card; a real card's own is used.
    progress : callable, optional
        Told how far the demo is.
    open_engine : callable, optional
        Opens the engine in place of `fastdelta.Accelerator.open`.
    **options
        Of the card, such as ``read_latency``.

    Raises
    ------
    MissingToolError
        If the extra ``gemma`` is not installed.
    InputError
        If the text is too short for the passages, or another argument cannot be used.
    """
    if not (clock_mhz > 0 and math.isfinite(clock_mhz)):
        raise InputError(f"clock_mhz is {clock_mhz}; give a clock above 0 MHz")
    tell = progress or (lambda *_: None)
    tell("loading gemma-3-270m", 0, 1)
    checkpoint = load_checkpoint()
    tell("loading gemma-3-270m", 1, 1)
    try:
        prompts = passages(checkpoint.tokenizer, tokens, count)
    except ValueError as error:
        raise InputError(str(error)) from error
    shape = shape or PrefillShape(head_dim=checkpoint.weights.shape.head_dim)
    budget = default_min_budget(tokens) if min_budget is None else min_budget
    selection = SelectionParameters(gamma, tau, budget, None, shape.block)
    began = time.perf_counter()
    with ExitStack() as stack:
        attention: AcceleratorAttention | ModelAttention
        own_clock, simulated = None, True
        if board == MODEL_BOARD:
            attention = ModelAttention(selection)
        else:
            tell("opening the card", 0, 1)
            opener = open_engine or Accelerator.open
            engine = stack.enter_context(opener("prefill", board=board, shape=shape, **options))
            tell("opening the card", 1, 1)
            own_clock, simulated = engine.provenance.clock_mhz, engine.provenance.simulated
            attention = AcceleratorAttention(engine, selection)
        setup_seconds = time.perf_counter() - began
        found = []
        for number, prompt in enumerate(prompts):
            tell("passages", number, len(prompts))
            found.append(compare_first_token(checkpoint, prompt, attention))
            tell("passages", number + 1, len(prompts))
    return FirstTokenReport(
        tokens=tokens,
        selection=selection,
        passages=tuple(found),
        board=str(board),
        simulated=simulated,
        clock_mhz=own_clock or clock_mhz,
        clock_assumed=own_clock is None,
        setup_seconds=setup_seconds,
    )


def compare_first_token(
    checkpoint: GemmaCheckpoint, prompt: list[int], attention: FullAttention
) -> FirstToken:
    """Let the model read a prompt with an attention, and in FP32."""
    began = time.perf_counter()
    found = GemmaModel(checkpoint.weights, attention).next_token(prompt)
    middle = time.perf_counter()
    expected = GemmaModel(checkpoint.weights).next_token(prompt)
    ended = time.perf_counter()
    best = np.sort(expected.logits)[-2:]
    tokenizer = checkpoint.tokenizer
    return FirstToken(
        passage=tokenizer.decode(prompt[-_SHOWN_TOKENS:]),
        token=tokenizer.decode([found.token]),
        reference=tokenizer.decode([expected.token]),
        same=found.token == expected.token,
        rank=int(np.count_nonzero(found.logits > found.logits[expected.token])),
        logit_difference=float(np.sqrt(np.mean((found.logits - expected.logits) ** 2))),
        margin=float(best[1] - best[0]),
        layers=dict(attention.results) if isinstance(attention, AcceleratorAttention) else {},
        host_seconds=middle - began,
        reference_seconds=ended - middle,
    )
