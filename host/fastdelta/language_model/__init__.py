# SPDX-License-Identifier: Apache-2.0
"""A small byte-level Gated DeltaNet language model: real weights and text for the decode engine.

`load_weights` and `LanguageModel` are all that inference needs; the weights and a held-out
excerpt are shipped. The other modules made them: `corpus`, `train`, and the baseline `ngram`.
"""

import json
from importlib.resources import files
from typing import Any

from fastdelta.language_model.model import (
    LanguageModel,
    LanguageModelShape,
    LanguageModelWeights,
    bits_per_byte,
    load_weights,
)
from fastdelta.reference.layer import Recurrence

__all__ = [
    "LanguageModel",
    "LanguageModelShape",
    "LanguageModelWeights",
    "bits_per_byte",
    "generate",
    "held_out_text",
    "load_weights",
    "training_record",
]


def held_out_text() -> bytes:
    """Return the shipped excerpt of the held-out books (16 KB of ASCII, whole lines)."""
    return (files(__name__) / "held_out.txt").read_bytes()


def training_record() -> dict[str, Any]:
    """Return how the shipped weights were trained, and their recorded bits per byte."""
    record: dict[str, Any] = json.loads((files(__name__) / "training_record.json").read_text())
    return record


def generate(
    prompt: bytes,
    length: int,
    *,
    recurrence: Recurrence | None = None,
    temperature: float = 0.0,
    seed: int = 0,
) -> bytes:
    """Continue a text with the shipped model; see `LanguageModel.generate`.

    Parameters
    ----------
    prompt : bytes
        At least one byte.
    length : int
        Number of bytes to write.
    recurrence : Recurrence, optional
        Runs the recurrent core; by default the FP32 reference.
    temperature : float
        0 takes the most likely byte; otherwise bytes are drawn from the softmax of the logits
        divided by it.
    seed : int
        Seed of the draws.
    """
    model = LanguageModel(load_weights(), recurrence)
    return model.generate(prompt, length, temperature=temperature, seed=seed)
