# SPDX-License-Identifier: Apache-2.0
"""The Gated DeltaNet layer of Qwen3-Next around the recurrence, in numpy FP32.

``hidden -> projections -> short convolution -> recurrence -> gated RMSNorm -> output projection``.
The recurrence is a parameter, so that the same layer runs on the float reference, on the bit-exact
model, or on an accelerator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastdelta.reference.gated_delta import (
    FloatArray,
    FloatType,
    decay_and_write_gates,
    gated_delta_recurrence,
)

Float32Array = npt.NDArray[np.float32]

RMS_NORM_EPSILON = np.float32(1e-6)


@dataclass(frozen=True)
class GatedDeltaLayerShape:
    """Sizes of one layer.

    Attributes
    ----------
    hidden : int
        Width of the residual stream.
    qk_heads, value_heads : int
        Query/key heads and value heads; value heads are a multiple of query/key heads.
    head_dim : int
        Length of a query, key and value.
    conv_kernel : int
        Taps of the causal convolution.
    """

    hidden: int
    qk_heads: int
    value_heads: int
    head_dim: int
    conv_kernel: int = 4

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; it must be >= 1")
        if self.value_heads % self.qk_heads:
            raise ValueError(
                f"{self.value_heads} value heads cannot share {self.qk_heads} query/key heads "
                "evenly; the number of value heads must be a multiple"
            )

    @property
    def group_ratio(self) -> int:
        """Value heads per query/key head."""
        return self.value_heads // self.qk_heads

    @property
    def value_channels(self) -> int:
        """Width of all value heads side by side."""
        return self.value_heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Width of q, k and v side by side, which pass through the convolution."""
        return 2 * self.qk_heads * self.head_dim + self.value_channels

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of `GatedDeltaLayerWeights`."""
        return {
            "in_proj_qkvz": (self.hidden, self.conv_channels + self.value_channels),
            "in_proj_ba": (self.hidden, 2 * self.value_heads),
            "conv": (self.conv_channels, self.conv_kernel),
            "a_log": (self.value_heads,),
            "dt_bias": (self.value_heads,),
            "output_norm": (self.head_dim,),
            "out_proj": (self.value_channels, self.hidden),
        }


@dataclass(frozen=True, eq=False)
class GatedDeltaLayerWeights:
    """Weights of one layer, float32; projections are stored [inputs, outputs].

    Attributes
    ----------
    in_proj_qkvz : array [hidden, outputs]
        Outputs per query/key head: q, k (head_dim each), then v and z (group_ratio x head_dim
        each), as in Qwen3-Next.
    in_proj_ba : array [hidden, 2 x value_heads]
        Outputs per query/key head: b, then a (group_ratio each).
    conv : array [conv_channels, conv_kernel]
        One filter per channel of q, k, v (all q heads first); the last tap is the present token.
    a_log, dt_bias : array [value_heads]
        Constants of the decay.
    output_norm : array [head_dim]
        Weight of the norm of the recurrence's output.
    out_proj : array [value_channels, hidden]
    """

    shape: GatedDeltaLayerShape
    in_proj_qkvz: Float32Array
    in_proj_ba: Float32Array
    conv: Float32Array
    a_log: Float32Array
    dt_bias: Float32Array
    output_norm: Float32Array
    out_proj: Float32Array

    def __post_init__(self) -> None:
        check_float32(vars(self), self.shape.weight_shapes())


@dataclass(frozen=True, eq=False)
class GatedDeltaLayerState:
    """What a layer itself carries from token to token; the recurrent state is the recurrence's.

    Attributes
    ----------
    conv_history : array [conv_kernel - 1, conv_channels], float32
        Last inputs of the convolution, oldest first.
    """

    conv_history: Float32Array

    @classmethod
    def initial(cls, shape: GatedDeltaLayerShape) -> "GatedDeltaLayerState":
        """Return the state at the start of a sequence."""
        return cls(np.zeros((shape.conv_kernel - 1, shape.conv_channels), np.float32))


class Recurrence(Protocol):
    """The recurrent core of all layers of a model; it keeps the states and the gate constants."""

    def __call__(
        self,
        layer_index: int,
        q: Float32Array,
        k: Float32Array,
        v: Float32Array,
        a: Float32Array,
        b: Float32Array,
    ) -> Float32Array:
        """Advance the state of one layer by some tokens and return the outputs.

        Parameters
        ----------
        layer_index : int
            Which layer's state and constants to use, from 0.
        q, k : array [tokens, qk_heads, head_dim]
            As the convolution leaves them, not normalised.
        v : array [tokens, value_heads, head_dim]
        a, b : array [tokens, value_heads]
            Raw inputs of the decay and write gates.

        Returns
        -------
        array [tokens, value_heads, head_dim], float32
        """

    def clear(self) -> None:
        """Set the states of all layers to zero: the next token starts a new sequence."""


class FloatRecurrence:
    """The float reference as a `Recurrence`.

    Parameters
    ----------
    a_log, dt_bias : array [layers, value_heads]
        Gate constants of every layer.
    dtype : float32 or float64
        Precision of gates and recurrence; outputs are float32 in any case.
    """

    def __init__(
        self, a_log: Float32Array, dt_bias: Float32Array, *, dtype: FloatType = np.float32
    ) -> None:
        if a_log.ndim != 2 or a_log.shape != dt_bias.shape:
            raise ValueError(
                f"a_log has shape {a_log.shape} and dt_bias {dt_bias.shape}; "
                "both must be [layers, value_heads]"
            )
        self._a_log = a_log
        self._dt_bias = dt_bias
        self._dtype = dtype
        self._states: list[FloatArray | None] = [None] * len(a_log)

    def __call__(
        self,
        layer_index: int,
        q: Float32Array,
        k: Float32Array,
        v: Float32Array,
        a: Float32Array,
        b: Float32Array,
    ) -> Float32Array:
        """Advance one layer; see `Recurrence`."""
        log_decay, beta = decay_and_write_gates(
            a, b, self._a_log[layer_index], self._dt_bias[layer_index], dtype=self._dtype
        )
        o, self._states[layer_index] = gated_delta_recurrence(
            q, k, v, log_decay, beta, state=self._states[layer_index], dtype=self._dtype
        )
        return o.astype(np.float32)

    def clear(self) -> None:
        """Set the states of all layers to zero."""
        self._states = [None] * len(self._a_log)


def gated_delta_layer(
    hidden: Float32Array,
    weights: GatedDeltaLayerWeights,
    state: GatedDeltaLayerState,
    *,
    layer_index: int,
    recurrence: Recurrence,
) -> tuple[Float32Array, GatedDeltaLayerState]:
    """Run one layer over some tokens of a sequence.

    Parameters
    ----------
    hidden : array [tokens, hidden], float32
        Input after the block's norm; zero tokens are allowed.
    weights : GatedDeltaLayerWeights
    state : GatedDeltaLayerState
        As the previous call on this sequence returned it, or `GatedDeltaLayerState.initial`.
    layer_index : int
        Passed on to the recurrence.
    recurrence : Recurrence
        Its state of this layer advances by the same tokens.

    Returns
    -------
    array [tokens, hidden], float32
        Output, before the residual addition.
    GatedDeltaLayerState
        State after the last token.

    Raises
    ------
    ValueError
        If `hidden`, or what the recurrence returns, has the wrong shape.
    """
    shape = weights.shape
    if hidden.ndim != 2 or hidden.shape[1] != shape.hidden:
        raise ValueError(f"hidden has shape {hidden.shape}; expected [tokens, {shape.hidden}]")
    tokens = len(hidden)
    heads, ratio, head_dim = shape.qk_heads, shape.group_ratio, shape.head_dim

    qkvz = (hidden @ weights.in_proj_qkvz).reshape(tokens, heads, 2 * (1 + ratio) * head_dim)
    q, k, v, z = np.split(qkvz, np.cumsum([head_dim, head_dim, ratio * head_dim]), axis=2)
    ba = (hidden @ weights.in_proj_ba).reshape(tokens, heads, 2, ratio)
    b, a = (ba[:, :, index].reshape(tokens, shape.value_heads) for index in (0, 1))

    qkv = np.concatenate(
        [part.reshape(tokens, part.shape[1] * part.shape[2]) for part in (q, k, v)], axis=1
    )
    qkv, conv_history = causal_short_convolution(qkv, weights.conv, state.conv_history)
    q, k, v = np.split(qkv, np.cumsum([heads * head_dim, heads * head_dim]), axis=1)
    o = recurrence(
        layer_index,
        q.reshape(tokens, heads, head_dim),
        k.reshape(tokens, heads, head_dim),
        v.reshape(tokens, shape.value_heads, head_dim),
        a,
        b,
    )
    if o.shape != (tokens, shape.value_heads, head_dim):
        raise ValueError(
            f"the recurrence returned shape {o.shape} for layer {layer_index}; "
            f"expected {(tokens, shape.value_heads, head_dim)}"
        )
    gated = rms_norm(o, weights.output_norm) * silu(z.reshape(o.shape))
    output = gated.reshape(tokens, shape.value_channels) @ weights.out_proj
    return output, GatedDeltaLayerState(conv_history)


def causal_short_convolution(
    x: Float32Array, filters: Float32Array, history: Float32Array
) -> tuple[Float32Array, Float32Array]:
    """Filter each channel over its own past, then apply SiLU.

    Parameters
    ----------
    x : array [tokens, channels], float32
    filters : array [channels, kernel], float32
        The last tap is the present token.
    history : array [kernel - 1, channels], float32
        Inputs before the first token, oldest first.

    Returns
    -------
    array [tokens, channels], float32
    array [kernel - 1, channels], float32
        History for the next call.
    """
    tokens, kernel = len(x), filters.shape[1]
    padded = np.concatenate([history, x])
    y = np.zeros_like(x)
    for tap in range(kernel):
        y += padded[tap : tap + tokens] * filters[:, tap]
    return silu(y), padded[tokens:].copy()


def rms_norm(x: Float32Array, weight: Float32Array) -> Float32Array:
    """Scale vectors to unit root mean square over the last axis, then by `weight`."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    normalised: Float32Array = x / np.sqrt(mean_square + RMS_NORM_EPSILON) * weight
    return normalised


def silu(x: Float32Array) -> Float32Array:
    """Return ``x sigmoid(x)``, with a sigmoid that cannot overflow."""
    activated: Float32Array = x * (np.float32(0.5) * (np.float32(1) + np.tanh(np.float32(0.5) * x)))
    return activated


def check_float32(arrays: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights that are missing, not float32, of another shape than given, or not finite."""
    for name, shape in shapes.items():
        array = arrays.get(name)
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"weight {name} is {found}; expected a float32 array of shape {shape}")
        if array.shape != shape:
            raise ValueError(f"weight {name} has shape {array.shape}; expected {shape}")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"weight {name} has NaN or infinite values")
