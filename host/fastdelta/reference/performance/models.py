# SPDX-License-Identifier: Apache-2.0
"""Whole models on the kernels: attention of every layer, from a sample of its KV heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fastdelta.errors import InputError
from fastdelta.reference.index_sets import SyntheticIndexSet, synthetic_index_set
from fastdelta.reference.performance.decode import decode_performance
from fastdelta.reference.performance.memory import MemoryTiming
from fastdelta.reference.performance.prefill import EXACT_JOBS, Progress, prefill_performance
from fastdelta.reference.performance.results import DecodePerformance, PrefillPerformance
from fastdelta.reference.sparse_index import IndexSet
from fastdelta.shapes import DecodeShape, PrefillShape


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a transformer with gated feed-forward layers.

    Attributes
    ----------
    name
    layers, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary
        As in the model's published configuration.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.heads // self.kv_heads

    def linear_macs(self, tokens: int) -> int:
        """Products of all linear layers for a prompt, and of the vocabulary for its last token."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.feed_forward
        return self.layers * layer * tokens + self.hidden * self.vocabulary


PREFILL_MODELS: dict[str, ModelShape] = {
    model.name: model
    for model in (
        ModelShape("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128_256),
        ModelShape("Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128_256),
        ModelShape("Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, 151_936),
    )
}
"""Models of the FAST-Prefill paper; its "Qwen2.5-1B" does not exist, this is the nearest."""


@dataclass(frozen=True)
class DecodeModel:
    """Gated DeltaNet layers of a model: how many, and the size of each."""

    name: str
    layers: int
    qk_heads: int
    value_heads: int
    head_dim: int

    def shape(self, h_iter: int = 8, bus_width: int = 512) -> DecodeShape:
        """Kernel for one layer."""
        return DecodeShape(
            head_dim=self.head_dim,
            qk_heads=self.qk_heads,
            group_ratio=self.value_heads // self.qk_heads,
            h_iter=h_iter,
            bus_width=bus_width,
        )


DECODE_MODELS: dict[str, DecodeModel] = {"Qwen3-Next": DecodeModel("Qwen3-Next", 36, 16, 32, 128)}
"""Models with Gated DeltaNet layers, by name."""

Indices = Literal["synthetic", "dense"] | Callable[[int, int], SyntheticIndexSet | IndexSet]


@dataclass(frozen=True)
class ModelPrefillPerformance:
    """Attention of a whole model over a prompt.

    Attributes
    ----------
    model
    sample
        What was modelled: some KV heads of one layer.
    index_cycles, attention_cycles
        Of all layers and KV heads, scaled from the sample.
    memory_bytes
        Bytes of all layers over each port, scaled likewise.
    linear_macs
        Products of the linear layers, which are not the kernel's.
    linear_cycles_ideal
        Cycles that they would take on the matrix unit if it were always busy: a bound, not built.
    """

    model: ModelShape
    sample: PrefillPerformance
    index_cycles: int
    attention_cycles: int
    memory_bytes: dict[str, int]
    linear_macs: int
    linear_cycles_ideal: float

    @property
    def total_cycles(self) -> int:
        """Cycles of both phases of all layers."""
        return self.index_cycles + self.attention_cycles

    def milliseconds(self, clock_mhz: float) -> float:
        """Time of the attention of all layers at a clock."""
        return self.total_cycles / (1000 * clock_mhz)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON types."""
        return {
            **asdict(self),
            "sample": self.sample.to_dict(),
            "total_cycles": self.total_cycles,
        }


def model_shape(model: ModelShape, tokens: int, **sizes: Any) -> PrefillShape:
    """Return the default prefill kernel for a model, with room for so many tokens.

    Parameters
    ----------
    model : ModelShape
    tokens : int
    **sizes
        Other parameters of `PrefillShape`.
    """
    given = {"head_dim": model.head_dim, **sizes}
    block = PrefillShape(**given).block
    blocks = max(-(-tokens // block), 256)
    sizes.setdefault("max_blocks", 1 << (blocks - 1).bit_length())
    sizes.setdefault("map_entries", sizes["max_blocks"] * (sizes["max_blocks"] + 1) // 2)
    return PrefillShape(**{"head_dim": model.head_dim, **sizes})


def model_prefill_performance(
    model: ModelShape,
    tokens: int,
    shape: PrefillShape | None = None,
    memory: MemoryTiming | None = None,
    *,
    indices: Indices = "synthetic",
    sample_kv_heads: int = 1,
    cache: bool = True,
    window: int | None = None,
    seed: int = 0,
    exact_jobs: int = EXACT_JOBS,
    progress: Progress | None = None,
) -> ModelPrefillPerformance:
    """Model the attention of all layers of a model over a prompt.

    Parameters
    ----------
    model : ModelShape
    tokens : int
    shape : PrefillShape, optional
        By default the default kernel with room for the prompt (`model_shape`).
    memory : MemoryTiming, optional
    indices : {"synthetic", "dense"} or callable
        Blocks of the sampled heads: made up, all, or what is called with tokens and heads returns.
    sample_kv_heads : int
        KV heads that are modelled; the other heads and layers are taken to be like them.
    cache, window
        As for `prefill_performance`.
    seed : int
        Of blocks that are made up.
    exact_jobs : int
        As for `prefill_performance`.
    progress : callable, optional
        Told what is done, steps done, and steps in all.

    Raises
    ------
    InputError
        If more KV heads are to be sampled than there are, or the arguments do not fit the kernel.
    """
    if not 1 <= sample_kv_heads <= model.kv_heads:
        raise InputError(f"sample_kv_heads={sample_kv_heads}; {model.name} has {model.kv_heads}")
    shape = shape or model_shape(model, tokens)
    heads = sample_kv_heads * model.group
    aware: tuple[bool, ...] = (False,) * heads
    mode: Literal["index", "dense"] = "index"
    made: SyntheticIndexSet | IndexSet
    if callable(indices):
        made = indices(tokens, heads)
    elif indices == "synthetic":
        made = synthetic_index_set(tokens, heads=heads, seed=seed)
    else:
        made, mode = IndexSet.dense(heads, shape.blocks(tokens)), "dense"
    if isinstance(made, SyntheticIndexSet):
        aware = made.query_aware
    sample = prefill_performance(
        made if isinstance(made, IndexSet) else made.index_set,
        shape,
        memory,
        tokens=tokens,
        kv_heads=sample_kv_heads,
        mode=mode,
        window=window,
        cache=cache,
        query_aware=aware,
        exact_jobs=exact_jobs,
        progress=progress,
    )
    factor = model.layers * model.kv_heads / sample_kv_heads
    macs = model.linear_macs(tokens)
    return ModelPrefillPerformance(
        model=model,
        sample=sample,
        index_cycles=round(factor * sample.cycles.index),
        attention_cycles=round(factor * sample.cycles.attention),
        memory_bytes={name: round(factor * size) for name, size in sample.memory_bytes.items()},
        linear_macs=macs,
        linear_cycles_ideal=macs / shape.macs_per_cycle,
    )


def model_decode_performance(
    model: DecodeModel, memory: MemoryTiming | None = None, *, h_iter: int = 8, tokens: int = 64
) -> tuple[DecodePerformance, float]:
    """Model one Gated DeltaNet layer; return it, and cycles per token of all one after another."""
    layer = decode_performance(model.shape(h_iter), memory, tokens=tokens)
    return layer, model.layers * layer.cycles_per_token
