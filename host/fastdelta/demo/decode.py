# SPDX-License-Identifier: Apache-2.0
"""The demo: a language model reads a passage that it never saw, and continues it on the card.

The host does embeddings, projections, convolutions and norms; the kernel does every recurrence.
The FP32 reference reads the same passage, and their agreement is what the demo reports.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastdelta.bench.decode import ASSUMED_CLOCK_MHZ, Progress
from fastdelta.decode.recurrence import ValueRange, open_recurrence
from fastdelta.decode.results import KernelCounters
from fastdelta.errors import InputError
from fastdelta.language_model import LanguageModel, bits_per_byte, held_out_text, load_weights
from fastdelta.reference.layer import Float32Array
from fastdelta.results import Seconds

DEFAULT_READ_BYTES = 2048
DEFAULT_WRITE_BYTES = 240
TEMPERATURE = 0.5
CALIBRATION_BYTES = 256
"""Bytes at the start of the passage from which the value scales of the heads are set."""

_PIECE = 64  # bytes that a model reads at a time, so that progress can be told


@dataclass(frozen=True)
class DemoReport:
    """What the demo found.

    Attributes
    ----------
    passage, continuation, reference_continuation : str
        What was read, and what the card and the FP32 reference wrote after it, with the same
        random draws.
    bits_per_byte, reference_bits_per_byte : float
        Of the passage, through the card and in FP32.
    next_byte_agreement : float
        Fraction of the passage's bytes after which both expect the same byte.
    cycles_per_token : float
        Kernel cycles that one layer takes for one byte, while reading.
    cycles_per_byte, writing_cycles_per_byte : float
        The same for all layers, while reading many bytes in a run and while writing one by one.
    """

    passage: str
    continuation: str
    reference_continuation: str
    bits_per_byte: float
    reference_bits_per_byte: float
    next_byte_agreement: float
    read_bytes: int
    written_bytes: int
    layers: int
    cycles_per_token: float
    cycles_per_byte: float
    writing_cycles_per_byte: float
    counters: KernelCounters
    seconds: Seconds
    setup_seconds: float
    run_seconds: float
    clock_mhz: float
    clock_assumed: bool
    provenance: dict[str, Any]

    @property
    def bits_per_byte_difference(self) -> float:
        """Through the card minus FP32."""
        return self.bits_per_byte - self.reference_bits_per_byte

    @property
    def microseconds_per_token(self) -> float:
        """Kernel time that one layer takes for one byte, at the clock."""
        return self.cycles_per_token / self.clock_mhz

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        clock = "clock_mhz_assumed" if self.clock_assumed else "clock_mhz"
        provenance = {key: value for key, value in self.provenance.items() if key != "clock_mhz"}
        return {
            "demo": "language model",
            "simulated": provenance.pop("simulated"),
            "board": provenance.pop("board"),
            "passage": self.passage,
            "continuation": self.continuation,
            "reference_continuation": self.reference_continuation,
            "bits_per_byte": self.bits_per_byte,
            "reference_bits_per_byte": self.reference_bits_per_byte,
            "bits_per_byte_difference": self.bits_per_byte_difference,
            "next_byte_agreement": self.next_byte_agreement,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "layers": self.layers,
            "cycles_per_token": self.cycles_per_token,
            "cycles_per_byte": self.cycles_per_byte,
            "writing_cycles_per_byte": self.writing_cycles_per_byte,
            "microseconds_per_token": self.microseconds_per_token,
            clock: self.clock_mhz,
            "counters": asdict(self.counters),
            "seconds": {
                "setup": self.setup_seconds,
                "run": self.run_seconds,
                **asdict(self.seconds),
            },
            **provenance,
        }


def run_demo(
    *,
    board: str | int = "sim-u55c",
    read_bytes: int = DEFAULT_READ_BYTES,
    write_bytes: int = DEFAULT_WRITE_BYTES,
    seed: int = 0,
    clock_mhz: float = ASSUMED_CLOCK_MHZ,
    progress: Progress | None = None,
    **options: Any,
) -> DemoReport:
    """Let the shipped model read the shipped held-out text through a card, and continue it.

    Parameters
    ----------
    board : str or int
        As for `fastdelta.Accelerator.open`.
    read_bytes : int
        Bytes of the text to read, at least 2; the passage ends after the last space among them.
    write_bytes : int
        Bytes to write, at least 1.
    seed : int
        Seed of the bytes drawn.
    clock_mhz : float
        Clock to assume for the simulated card; a real card's own is used.
    progress : callable, optional
        Told how far the demo is.
    **options
        Of the card, as for `fastdelta.Accelerator.open`.
    """
    text = held_out_text()
    if not 2 <= read_bytes <= len(text):
        raise InputError(f"read_bytes is {read_bytes}; allowed are 2 to {len(text)}")
    if write_bytes < 1:
        raise InputError(f"write_bytes is {write_bytes}; it must be at least 1")
    tell = progress or (lambda *_: None)
    passage = text[: text.rfind(b" ", 1, read_bytes) + 1] or text[:read_bytes]
    weights = load_weights()
    calibration = ValueRange(weights.a_log, weights.dt_bias)
    LanguageModel(weights, calibration).forward(passage[:CALIBRATION_BYTES])
    tell("opening the card", 0, 1)
    began = time.perf_counter()
    recurrence = open_recurrence(
        weights.shape.layer,
        weights.a_log,
        weights.dt_bias,
        board=board,
        value_exponent=calibration.value_exponents(),
        **options,
    )
    with recurrence.accelerator as engine:
        setup_seconds = time.perf_counter() - began
        tell("opening the card", 1, 1)
        began = time.perf_counter()
        on_card = LanguageModel(weights, recurrence)
        logits = read(on_card, passage, tell, "reading on the card")
        read_cycles, read_tokens = recurrence.kernel_cycles, recurrence.tokens
        written = write(on_card, logits[-1], write_bytes, seed, tell, "writing on the card")
        run_seconds = time.perf_counter() - began
        own_clock = engine.provenance.clock_mhz
        provenance = engine.provenance.to_dict()
    float_model = LanguageModel(weights)
    reference = read(float_model, passage, tell, "reading in FP32")
    reference_written = write(
        float_model, reference[-1], write_bytes, seed, tell, "writing in FP32"
    )
    layers = weights.shape.layers
    return DemoReport(
        passage=passage.decode("ascii"),
        continuation=written.decode("latin-1"),
        reference_continuation=reference_written.decode("latin-1"),
        bits_per_byte=bits_per_byte(logits[:-1], passage[1:]),
        reference_bits_per_byte=bits_per_byte(reference[:-1], passage[1:]),
        next_byte_agreement=next_byte_agreement(logits, reference),
        read_bytes=len(passage),
        written_bytes=write_bytes,
        layers=layers,
        cycles_per_token=read_cycles / read_tokens,
        cycles_per_byte=read_cycles / len(passage),
        writing_cycles_per_byte=(recurrence.kernel_cycles - read_cycles) / max(write_bytes - 1, 1),
        counters=recurrence.counters,
        seconds=recurrence.seconds,
        setup_seconds=setup_seconds,
        run_seconds=run_seconds,
        clock_mhz=own_clock or clock_mhz,
        clock_assumed=own_clock is None,
        provenance=provenance,
    )


def read(model: LanguageModel, text: bytes, tell: Progress, what: str) -> Float32Array:
    """Let a model read a text from the start; return the logits after each byte [bytes, 256]."""
    model.reset()
    pieces: list[Float32Array] = []
    for start in range(0, len(text), _PIECE):
        pieces.append(model.forward(text[start : start + _PIECE]))
        tell(what, min(start + _PIECE, len(text)), len(text))
    return np.concatenate(pieces)


def write(
    model: LanguageModel,
    logits: Float32Array,
    length: int,
    seed: int,
    tell: Progress,
    what: str,
) -> bytes:
    """Let a model go on from the logits [256] of the next byte, drawing bytes with a seed."""
    random = np.random.default_rng(seed)
    written = bytearray()
    while True:
        # Gumbel's trick: the largest of logit / temperature + noise is a draw from the softmax.
        noise = random.gumbel(size=logits.size)
        written.append(int(np.argmax(logits / TEMPERATURE + noise)))
        tell(what, len(written), length)
        if len(written) == length:
            return bytes(written)
        logits = model.forward(bytes(written[-1:]))[-1]


def next_byte_agreement(logits: Float32Array, others: Float32Array) -> float:
    """Return the fraction of rows whose most likely byte is the same."""
    return float(np.mean(logits.argmax(axis=1) == others.argmax(axis=1)))
