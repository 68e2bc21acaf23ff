# SPDX-License-Identifier: Apache-2.0
"""A card as the recurrent core of a model, with one context for each layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.accelerator import Accelerator
from fastdelta.decode.accelerator import DecodeAccelerator
from fastdelta.decode.results import KernelCounters
from fastdelta.errors import InputError
from fastdelta.reference.layer import Float32Array, FloatRecurrence, GatedDeltaLayerShape
from fastdelta.results import Seconds
from fastdelta.shapes import DecodeShape

MAX_H_ITER = 16

VALUE_PEAK = 4.0
"""Magnitude that v should stay below in units of its value scale: then the state stays below 32."""


def decode_shape(layer: GatedDeltaLayerShape, layers: int, **sizes: int) -> DecodeShape:
    """Return the decode kernel that fits a model: one context a layer.

    Parameters
    ----------
    layer : GatedDeltaLayerShape
        Shape of each layer.
    layers : int
        Number of layers.
    **sizes
        Other fields of `DecodeShape`; by default as many heads as possible are computed at once.
    """
    ratio = layer.group_ratio
    legal = [
        h
        for h in range(1, MAX_H_ITER + 1)
        if layer.value_heads % h == 0 and (h % ratio == 0 or ratio % h == 0)
    ]
    return DecodeShape(
        **{
            "head_dim": layer.head_dim,
            "qk_heads": layer.qk_heads,
            "group_ratio": ratio,
            "h_iter": max(legal),
            "contexts": layers,
            **sizes,
        }
    )


class ValueRange(FloatRecurrence):
    """The float reference, which also notes how large v becomes.

    Attributes
    ----------
    peaks : array [layers, value_heads]
        Largest magnitude of v so far.
    """

    def __init__(self, a_log: Float32Array, dt_bias: Float32Array) -> None:
        super().__init__(a_log, dt_bias)
        self.peaks = np.zeros_like(a_log)

    def __call__(
        self,
        layer_index: int,
        q: Float32Array,
        k: Float32Array,
        v: Float32Array,
        a: Float32Array,
        b: Float32Array,
    ) -> Float32Array:
        """Advance one layer; see `fastdelta.reference.layer.Recurrence`."""
        if len(v):
            np.maximum(
                self.peaks[layer_index],
                np.abs(v).max(axis=(0, 2)),
                out=self.peaks[layer_index],
            )
        return super().__call__(layer_index, q, k, v, a, b)

    def value_exponents(self) -> npt.NDArray[np.int64]:
        """Return the value exponents, [layers, value_heads], that suit what was seen."""
        exponents: npt.NDArray[np.int64] = np.ceil(
            np.log2(np.maximum(self.peaks, 1e-9) / VALUE_PEAK)
        ).astype(np.int64)
        return exponents


class AcceleratorRecurrence:
    """`fastdelta.reference.layer.Recurrence` on a card; layer i uses context i.

    Parameters
    ----------
    accelerator : DecodeAccelerator
        Opened with the gate constants of the layers.
    layers : int
        Number of layers.

    Attributes
    ----------
    tokens, kernel_cycles : int
        Tokens (counted once a layer) and cycles since `reset_figures`.
    counters : KernelCounters
        Events since then.
    seconds : Seconds
        Times of the host since then.
    """

    def __init__(self, accelerator: DecodeAccelerator, layers: int) -> None:
        if layers > accelerator.shape.contexts:
            raise InputError(
                f"the model has {layers} layers and the kernel {accelerator.shape.contexts} "
                "contexts; open it with one context for each layer"
            )
        self.accelerator = accelerator
        self._layers = layers
        self.reset_figures()

    def reset_figures(self) -> None:
        """Count tokens, cycles and events anew."""
        self.tokens = 0
        self.kernel_cycles = 0
        self.counters = KernelCounters()
        self.seconds = Seconds()

    @property
    def cycles_per_token(self) -> float:
        """Cycles per token of one layer, start-up of each run included."""
        return self.kernel_cycles / self.tokens

    def __call__(
        self,
        layer_index: int,
        q: Float32Array,
        k: Float32Array,
        v: Float32Array,
        a: Float32Array,
        b: Float32Array,
    ) -> Float32Array:
        """Advance one layer on the card."""
        result = self.accelerator.decode(q, k, v, a, b, context=layer_index)
        self.tokens += result.tokens
        self.kernel_cycles += result.kernel_cycles
        self.counters += result.counters
        self.seconds += result.seconds
        return result.output

    def clear(self) -> None:
        """Set the states of all layers to zero."""
        for layer in range(self._layers):
            self.accelerator.clear(layer)


def open_recurrence(
    layer: GatedDeltaLayerShape,
    a_log: Float32Array,
    dt_bias: Float32Array,
    *,
    board: str | int = "sim-u55c",
    **options: Any,
) -> AcceleratorRecurrence:
    """Open a card for the layers of a model; close it with ``recurrence.accelerator.close()``.

    Parameters
    ----------
    layer : GatedDeltaLayerShape
        Shape of each layer.
    a_log, dt_bias : array [layers, value_heads]
        Gate constants of every layer.
    board : str or int
        As for `Accelerator.open`.
    **options
        As for `Accelerator.open`.
    """
    layers = len(a_log)
    accelerator = Accelerator.open(
        "decode",
        board=board,
        shape=decode_shape(layer, layers),
        a_log=a_log,
        dt_bias=dt_bias,
        **options,
    )
    return AcceleratorRecurrence(accelerator, layers)
