# SPDX-License-Identifier: Apache-2.0
"""A real model for the prefill engine: gemma-3-270m, from the optional extra ``gemma``.

``checkpoint = load_checkpoint()`` reads the installed package; ``checkpoint.tokenizer`` turns text
into tokens, and ``GemmaModel(checkpoint.weights, full_attention)`` reads them, with any
`FullAttention` in the layers that see the whole past. `passages` gives real text.
"""

from fastdelta.gemma.model import (
    AttentionInputs,
    FullAttention,
    GemmaModel,
    Prediction,
    float_full_attention,
)
from fastdelta.gemma.passages import passages
from fastdelta.gemma.tokenizer import GemmaTokenizer
from fastdelta.gemma.weights import GemmaCheckpoint, GemmaShape, GemmaWeights, load_checkpoint

__all__ = [
    "AttentionInputs",
    "FullAttention",
    "GemmaCheckpoint",
    "GemmaModel",
    "GemmaShape",
    "GemmaTokenizer",
    "GemmaWeights",
    "Prediction",
    "float_full_attention",
    "load_checkpoint",
    "passages",
]
