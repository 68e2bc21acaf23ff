# SPDX-License-Identifier: Apache-2.0
"""The byte-level Gated DeltaNet language model, in numpy FP32, with a replaceable recurrence.

Every block is ``x + GatedDelta(norm(x))`` and then ``x + SwiGLU(norm(x))``; bytes are embedded,
and a final norm and a linear head give the logits of the next byte. The weights are stored as
float16, and the model uses exactly these values, widened to float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.reference.layer import (
    Float32Array,
    FloatRecurrence,
    GatedDeltaLayerShape,
    GatedDeltaLayerState,
    GatedDeltaLayerWeights,
    Recurrence,
    check_float32,
    gated_delta_layer,
    rms_norm,
    silu,
)

BYTE_VALUES = 256

SHIPPED_WEIGHTS = "weights.npz"


@dataclass(frozen=True)
class LanguageModelShape:
    """Sizes of the model.

    Attributes
    ----------
    layers : int
        Number of blocks.
    mlp_hidden : int
        Inner width of the SwiGLU of each block.
    layer : GatedDeltaLayerShape
        Sizes of the Gated DeltaNet layer of each block.
    """

    layers: int
    mlp_hidden: int
    layer: GatedDeltaLayerShape

    def __post_init__(self) -> None:
        for name in ("layers", "mlp_hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= 1")

    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array of one block outside its Gated DeltaNet layer."""
        hidden = self.layer.hidden
        return {
            "layer_norm": (hidden,),
            "mlp_norm": (hidden,),
            "mlp_gate": (hidden, self.mlp_hidden),
            "mlp_up": (hidden, self.mlp_hidden),
            "mlp_down": (self.mlp_hidden, hidden),
        }

    def outer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array outside the blocks."""
        hidden = self.layer.hidden
        return {
            "embedding": (BYTE_VALUES, hidden),
            "final_norm": (hidden,),
            "head": (hidden, BYTE_VALUES),
        }

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array of the model by its name in the weight file."""
        shapes = self.outer_shapes()
        for index in range(self.layers):
            block = self.block_shapes() | self.layer.weight_shapes()
            shapes |= {array_name(index, name): shape for name, shape in block.items()}
        return shapes

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "LanguageModelShape":
        """Infer the sizes from the arrays of a weight file.

        Raises
        ------
        ValueError
            If arrays are missing, or are not those of this model.
        """
        try:
            hidden, qkvz_outputs = arrays[array_name(0, "in_proj_qkvz")].shape
            (value_heads,) = arrays[array_name(0, "a_log")].shape
            (head_dim,) = arrays[array_name(0, "output_norm")].shape
            _, conv_kernel = arrays[array_name(0, "conv")].shape
            _, mlp_hidden = arrays[array_name(0, "mlp_up")].shape
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"these are not the weights of this model ({error}); load a file that "
                "fastdelta.language_model.train wrote"
            ) from error
        layers = sum(name.endswith(".a_log") for name in arrays)
        qk_heads = qkvz_outputs // (2 * head_dim) - value_heads
        layer = GatedDeltaLayerShape(hidden, qk_heads, value_heads, head_dim, conv_kernel)
        return cls(layers, mlp_hidden, layer)


def array_name(layer_index: int, name: str) -> str:
    """Return the name in the weight file of an array of one block."""
    return f"blocks.{layer_index}.{name}"


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """Weights of one block, float32; projections are stored [inputs, outputs]."""

    layer_norm: Float32Array
    layer: GatedDeltaLayerWeights
    mlp_norm: Float32Array
    mlp_gate: Float32Array
    mlp_up: Float32Array
    mlp_down: Float32Array


@dataclass(frozen=True, eq=False)
class LanguageModelWeights:
    """All weights of the model, float32."""

    shape: LanguageModelShape
    embedding: Float32Array
    blocks: tuple[BlockWeights, ...]
    final_norm: Float32Array
    head: Float32Array

    def __post_init__(self) -> None:
        if len(self.blocks) != self.shape.layers:
            raise ValueError(f"{len(self.blocks)} blocks given; expected {self.shape.layers}")
        check_float32(vars(self), self.shape.outer_shapes())
        for block in self.blocks:
            check_float32(vars(block), self.shape.block_shapes())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "LanguageModelWeights":
        """Build the weights from the arrays of a weight file, widened to float32."""
        shape = LanguageModelShape.of_arrays(arrays)
        missing = shape.array_shapes().keys() - arrays.keys()
        unknown = arrays.keys() - shape.array_shapes().keys()
        if missing or unknown:
            raise ValueError(
                f"weight file lacks {sorted(missing)} and has unknown {sorted(unknown)}; load a "
                "file that fastdelta.language_model.train wrote"
            )
        wide = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
        blocks = []
        for index in range(shape.layers):
            layer = {n: wide[array_name(index, n)] for n in shape.layer.weight_shapes()}
            outside = {n: wide[array_name(index, n)] for n in shape.block_shapes()}
            layer_weights = GatedDeltaLayerWeights(shape.layer, **layer)
            blocks.append(BlockWeights(layer=layer_weights, **outside))
        outer = {name: wide[name] for name in shape.outer_shapes()}
        return cls(shape=shape, blocks=tuple(blocks), **outer)

    @property
    def a_log(self) -> Float32Array:
        """Decay constants of all layers, [layers, value_heads], as a `Recurrence` needs them."""
        return np.stack([block.layer.a_log for block in self.blocks])

    @property
    def dt_bias(self) -> Float32Array:
        """Decay biases of all layers, [layers, value_heads], as a `Recurrence` needs them."""
        return np.stack([block.layer.dt_bias for block in self.blocks])


def load_weights(path: Path | None = None) -> LanguageModelWeights:
    """Load a weight file; by default the one shipped with the package.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not a weight file of this model.
    """
    source = files("fastdelta.language_model") / SHIPPED_WEIGHTS if path is None else path
    with source.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return LanguageModelWeights.from_arrays(dict(arrays))


class LanguageModel:
    """The language model at one place of one text: weights, recurrence and carried state.

    Parameters
    ----------
    weights : LanguageModelWeights
    recurrence : Recurrence, optional
        Runs the recurrent core of every layer; by default the FP32 reference. The model clears
        it, and from then on expects to be its only user.
    """

    def __init__(self, weights: LanguageModelWeights, recurrence: Recurrence | None = None) -> None:
        self.weights = weights
        if recurrence is None:
            recurrence = FloatRecurrence(weights.a_log, weights.dt_bias)
        self._recurrence = recurrence
        self.reset()

    def reset(self) -> None:
        """Start a new text: forget the recurrent states and the convolution histories."""
        self._recurrence.clear()
        initial = GatedDeltaLayerState.initial(self.weights.shape.layer)
        self._layer_states = [initial] * self.weights.shape.layers

    def forward(self, text: bytes) -> Float32Array:
        """Read on, and return what is expected after every byte read.

        Parameters
        ----------
        text : bytes
            Continues what was read since `reset`; may be empty.

        Returns
        -------
        array [len(text), 256], float32
            Row ``t`` has the logits of the byte after ``text[t]``.
        """
        weights = self.weights
        x = weights.embedding[np.frombuffer(text, np.uint8)]
        for index, block in enumerate(weights.blocks):
            y, self._layer_states[index] = gated_delta_layer(
                rms_norm(x, block.layer_norm),
                block.layer,
                self._layer_states[index],
                layer_index=index,
                recurrence=self._recurrence,
            )
            x = x + y
            y = rms_norm(x, block.mlp_norm)
            x = x + (silu(y @ block.mlp_gate) * (y @ block.mlp_up)) @ block.mlp_down
        logits: Float32Array = rms_norm(x, weights.final_norm) @ weights.head
        return logits

    def generate(
        self, prompt: bytes, length: int, *, temperature: float = 0.0, seed: int = 0
    ) -> bytes:
        """Read a prompt as a new text and continue it.

        Parameters
        ----------
        prompt : bytes
            At least one byte.
        length : int
            Number of bytes to write.
        temperature : float
            0 takes the most likely byte; otherwise bytes are drawn from the softmax of the
            logits divided by it.
        seed : int
            Seed of the draws; the same arguments give the same text.

        Returns
        -------
        bytes
            The continuation, without the prompt.
        """
        if not prompt:
            raise ValueError("the prompt is empty; give at least one byte to continue")
        if length < 0:
            raise ValueError(f"length is {length}; it must be >= 0")
        if not (np.isfinite(temperature) and temperature >= 0):
            raise ValueError(f"temperature is {temperature}; it must be finite and >= 0")
        random = np.random.default_rng(seed)
        self.reset()
        logits = self.forward(prompt)[-1]
        written = bytearray()
        while len(written) < length:
            if temperature > 0:
                # Gumbel's trick: the largest of logit/T + noise is a draw from the softmax.
                following = np.argmax(logits / temperature + random.gumbel(size=BYTE_VALUES))
            else:
                following = np.argmax(logits)
            written.append(int(following))
            if len(written) < length:
                logits = self.forward(bytes(written[-1:]))[-1]
        return bytes(written)


def bits_per_byte(logits: Float32Array, following: bytes) -> float:
    """Return the mean code length of some bytes under the logits that predict them.

    Parameters
    ----------
    logits : array [bytes, 256]
        For a whole text that `LanguageModel.forward` read: all rows but the last.
    following : bytes
        The byte after each row: for a whole text all bytes but the first.
    """
    if logits.shape != (len(following), BYTE_VALUES) or not following:
        raise ValueError(
            f"logits have shape {logits.shape} for {len(following)} bytes; expected one row of "
            f"{BYTE_VALUES} for each byte, and at least one"
        )
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    chosen = exact[np.arange(len(following)), np.frombuffer(following, np.uint8)]
    nats = np.log(np.sum(np.exp(exact), axis=1)) - chosen
    return float(np.mean(nats) / np.log(2))
