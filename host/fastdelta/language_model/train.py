# SPDX-License-Identifier: Apache-2.0
"""Train the language model and write what the package ships (needs the extra ``train``).

``python -m fastdelta.language_model.train`` reads the corpus (see `corpus`), trains with torch on
the CPU, and writes ``weights.npz`` (float16), ``held_out.txt`` (the excerpt that demo and tests
read) and ``training_record.json`` (how it was trained, and its bits per byte beside those of a
byte 5-gram). The figures in the record come from the numpy model with the float16 weights, not
from torch. The shipped files were made by this command with its default options, interrupted and
resumed where the record says so; the steps before that ran on two threads and towards 4,000 steps,
in which the learning rate is the same so far. ``--resume`` goes on from the exported weights with
new optimiser moments; on a busy machine one thread is best, as threads that wait for each other
gain nothing.

The recurrence is trained in its chunkwise-parallel form: inside a chunk, the deltas
``D = [dv_1 .. dv_C]`` solve the unit lower triangular system ``(I + L) D = beta (V - exp(c) K S)``
with ``L_ij = beta_i exp(c_i - c_j) k_i.k_j`` for ``j < i`` and ``c`` the summed log decays (Yang
et al., arXiv 2406.06484 and 2412.06464). Hidden matrices are optimised by Muon, everything else by
Adam. Every row of a batch reads on where it stopped, with its state, and jumps to a random place
with a cleared state now and then, so that both fresh and long-carried states are trained.
"""

import json
import math
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses
import typer

from fastdelta.language_model.corpus import Corpus, excerpt, load_corpus
from fastdelta.language_model.model import (
    BYTE_VALUES,
    SHIPPED_WEIGHTS,
    LanguageModel,
    LanguageModelShape,
    LanguageModelWeights,
    array_name,
    bits_per_byte,
)
from fastdelta.language_model.ngram import NGramModel
from fastdelta.reference.gated_delta import L2_NORM_EPSILON, gated_delta_recurrence
from fastdelta.reference.layer import RMS_NORM_EPSILON, GatedDeltaLayerShape

SHAPE = LanguageModelShape(
    layers=3,
    mlp_hidden=512,
    layer=GatedDeltaLayerShape(hidden=192, qk_heads=2, value_heads=4, head_dim=32),
)

RECORD = "training_record.json"
EXCERPT = "held_out.txt"
EXCERPT_BYTES = 16_384
BASELINE_ORDER = 5

_CHUNK = 32
_JUMP_PROBABILITY = 1 / 8
_WARMUP_STEPS = 50
_CONSTANT_SHARE = 0.4
_MUON_LEARNING_RATE = 0.01
_MUON_WEIGHT_DECAY = 0.01
_ADAM_LEARNING_RATE = 0.004
_GRADIENT_NORM = 1.0
_MUON_ARRAYS = ("in_proj_qkvz", "out_proj", "mlp_gate", "mlp_up", "mlp_down")

Parameters = dict[str, torch.Tensor]
LayerState = tuple[torch.Tensor, torch.Tensor]
"""Recurrent state [batch, value_heads, d, d] and convolution history [batch, channels, taps-1]."""


def initial_parameters(shape: LanguageModelShape, seed: int) -> Parameters:
    """Draw initial weights; every block starts as the identity, every output as a uniform guess.

    Decay rates and step sizes are drawn as in flash-linear-attention: A uniform in 1 to 16, dt
    log-uniform in 0.001 to 0.1.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, size in shape.array_shapes().items():
        match name.rsplit(".", 1)[-1]:
            case "embedding":
                array = torch.randn(size, generator=generator)
            case "head" | "out_proj" | "mlp_down":
                array = torch.zeros(size)
            case "layer_norm" | "mlp_norm" | "output_norm" | "final_norm":
                array = torch.ones(size)
            case "conv":
                array = 0.3 * torch.randn(size, generator=generator)
                array[:, -1] += 0.5
            case "a_log":
                array = torch.log(1 + 15 * torch.rand(size, generator=generator))
            case "dt_bias":
                step = torch.exp(
                    math.log(1e-3) + math.log(1e2) * torch.rand(size, generator=generator)
                )
                array = step + torch.log(-torch.expm1(-step))  # inverse of softplus
            case _:
                array = 0.5 * size[0] ** -0.5 * torch.randn(size, generator=generator)
        parameters[name] = array.requires_grad_()
    return parameters


def initial_state(shape: LanguageModelShape, batch: int) -> list[LayerState]:
    """Return the state of every layer at the start of a text."""
    layer = shape.layer
    return [
        (
            torch.zeros(batch, layer.value_heads, layer.head_dim, layer.head_dim),
            torch.zeros(batch, layer.conv_channels, layer.conv_kernel - 1),
        )
        for _ in range(shape.layers)
    ]


def chunked_gated_delta(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    chunk: int = _CHUNK,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the recurrence in chunks; equal to `gated_delta_recurrence` up to rounding.

    Parameters
    ----------
    q, k, v : tensor [batch, value_heads, tokens, d]
        Unit-norm q (scaled by 1/sqrt(d)) and k, repeated to the value heads; tokens are a
        multiple of `chunk`.
    log_decay, beta : tensor [batch, value_heads, tokens]
    state : tensor [batch, value_heads, d, d]
        Key index first.

    Returns
    -------
    tensor [batch, value_heads, tokens, d]
        Outputs.
    tensor [batch, value_heads, d, d]
        State after the last token.
    """
    batch, heads, tokens, dim = q.shape
    chunks = tokens // chunk
    q, k, v = (x.reshape(batch, heads, chunks, chunk, dim) for x in (q, k, v))
    decay = log_decay.reshape(batch, heads, chunks, chunk).cumsum(-1)
    beta = beta.reshape(batch, heads, chunks, chunk, 1)

    causal = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    # Masked before the exponential: above the diagonal it would overflow.
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(~causal, -torch.inf).exp()
    since_start = decay.exp()[..., None]
    until_end = (decay[..., -1:] - decay).exp()[..., None]
    whole = decay[..., -1:].exp()[..., None]

    keys = k.transpose(-1, -2)
    system = torch.eye(chunk) + ((beta * k) @ keys * between).tril(-1)
    right = torch.cat((beta * v, beta * k * since_start), -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    values, retrievals = solved.split(dim, -1)
    within = q @ keys * between
    q = q * since_start
    keys = (k * until_end).transpose(-1, -2)

    outputs = []
    for n in range(chunks):
        delta = values[:, :, n] - retrievals[:, :, n] @ state
        outputs.append(q[:, :, n] @ state + within[:, :, n] @ delta)
        state = whole[:, :, n] * state + keys[:, :, n] @ delta
    return torch.stack(outputs, 2).reshape(batch, heads, tokens, dim), state


def next_byte_logits(
    parameters: Parameters,
    shape: LanguageModelShape,
    tokens: torch.Tensor,
    state: list[LayerState],
) -> tuple[torch.Tensor, list[LayerState]]:
    """Return logits [batch, tokens, 256] and the state to read on with, detached."""
    x = parameters["embedding"][tokens]
    carried = []
    for index in range(shape.layers):
        weights = {
            name: parameters[array_name(index, name)]
            for name in shape.block_shapes() | shape.layer.weight_shapes()
        }
        y, layer_state = _layer(weights, shape.layer, _norm(x, weights["layer_norm"]), state[index])
        carried.append(layer_state)
        x = x + y
        y = _norm(x, weights["mlp_norm"])
        x = x + (F.silu(y @ weights["mlp_gate"]) * (y @ weights["mlp_up"])) @ weights["mlp_down"]
    return _norm(x, parameters["final_norm"]) @ parameters["head"], carried


def _layer(
    weights: Parameters, shape: GatedDeltaLayerShape, x: torch.Tensor, state: LayerState
) -> tuple[torch.Tensor, LayerState]:
    batch, tokens, _ = x.shape
    heads, ratio, dim = shape.qk_heads, shape.group_ratio, shape.head_dim
    recurrent, history = state
    qkvz = (x @ weights["in_proj_qkvz"]).reshape(batch, tokens, heads, -1)
    *qkv, z = qkvz.split((dim, dim, ratio * dim, ratio * dim), -1)
    b, a = (
        gate.reshape(batch, tokens, -1).transpose(1, 2)
        for gate in (x @ weights["in_proj_ba"]).reshape(batch, tokens, heads, 2, ratio).unbind(3)
    )
    flat = torch.cat([part.reshape(batch, tokens, -1) for part in qkv], -1).transpose(1, 2)
    padded = torch.cat((history, flat), 2)
    mixed = F.silu(F.conv1d(padded, weights["conv"][:, None], groups=shape.conv_channels))
    q, k, v = (
        part.reshape(batch, -1, dim, tokens).transpose(2, 3)
        for part in mixed.split((heads * dim, heads * dim, shape.value_channels), 1)
    )
    q, k = (
        (
            part * torch.rsqrt(part.square().sum(-1, keepdim=True) + L2_NORM_EPSILON)
        ).repeat_interleave(ratio, 1)
        for part in (q, k)
    )
    log_decay = -weights["a_log"].exp()[:, None] * F.softplus(a + weights["dt_bias"][:, None])
    o, recurrent = chunked_gated_delta(q * dim**-0.5, k, v, log_decay, b.sigmoid(), recurrent)
    o = _norm(o.transpose(1, 2), weights["output_norm"])
    gated = o * F.silu(z.reshape(batch, tokens, shape.value_heads, dim))
    history = padded[:, :, tokens:]
    return gated.reshape(batch, tokens, -1) @ weights["out_proj"], (
        recurrent.detach(),
        history.detach(),
    )


def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, weight.shape, weight, float(RMS_NORM_EPSILON))


class _Reader:
    """Rows of consecutive windows of a text, each row at a place of its own."""

    def __init__(self, text: bytes, batch: int, window: int, seed: int) -> None:
        self._text = np.frombuffer(text, np.uint8).astype(np.int64)
        self._window = window
        self._random = np.random.default_rng(seed)
        self._places = self._random.integers(len(text) - window, size=batch)

    def next_windows(self, state: list[LayerState]) -> torch.Tensor:
        """Return windows [batch, window + 1]; clear the state of the rows that jumped."""
        last = len(self._text) - self._window
        for row, place in enumerate(self._places):
            if place >= last or self._random.random() < _JUMP_PROBABILITY:
                self._places[row] = self._random.integers(last)
                for recurrent, history in state:
                    recurrent[row] = 0
                    history[row] = 0
        windows = np.stack([self._text[p : p + self._window + 1] for p in self._places])
        self._places += self._window
        return torch.from_numpy(windows)


def check_chunked_form(seed: int) -> float:
    """Compare the chunked form with the float reference; return the relative L2 error.

    Raises
    ------
    RuntimeError
        If they differ by more than FP32 rounding explains.
    """
    random = np.random.default_rng(seed)
    layer = SHAPE.layer
    tokens, heads, dim = 4 * _CHUNK, layer.value_heads, layer.head_dim
    q, k = (random.normal(size=(tokens, layer.qk_heads, dim)) for _ in range(2))
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    v = random.normal(size=(tokens, heads, dim))
    log_decay = -np.exp(random.uniform(-8, 4, size=(tokens, heads)))
    beta = random.uniform(size=(tokens, heads))
    state = random.normal(size=(heads, dim, dim))
    expected = gated_delta_recurrence(
        q, k, v, log_decay, beta, state=state, normalise=False, dtype=np.float64
    )

    def by_head(x: npt.NDArray[np.float64]) -> torch.Tensor:
        repeated = np.repeat(x, heads // x.shape[1], axis=1)
        return torch.tensor(repeated.swapaxes(0, 1)[None], dtype=torch.float32)

    o, after = chunked_gated_delta(
        by_head(q) * dim**-0.5,
        by_head(k),
        by_head(v),
        by_head(log_decay),
        by_head(beta),
        torch.tensor(state[None], dtype=torch.float32),
    )
    found = (o[0].numpy().swapaxes(0, 1), after[0].numpy())
    error = max(
        float(np.linalg.norm(f - e) / np.linalg.norm(e))
        for f, e in zip(found, expected, strict=True)
    )
    if not error < 1e-5:
        raise RuntimeError(f"chunked form is off the reference by {error:.1e} relative (L2)")
    return error


def float16_arrays(parameters: Parameters) -> dict[str, npt.NDArray[np.float16]]:
    """Round the parameters to what the weight file stores."""
    return {name: array.detach().numpy().astype(np.float16) for name, array in parameters.items()}


def text_bits_per_byte(arrays: dict[str, npt.NDArray[np.float16]], text: bytes) -> float:
    """Return the bits per byte that the numpy model with these arrays needs for a text."""
    model = LanguageModel(LanguageModelWeights.from_arrays(arrays))
    return bits_per_byte(model.forward(text)[:-1], text[1:])


def _optimisers(parameters: Parameters) -> list[tuple[torch.optim.Optimizer, float]]:
    """Return the optimisers, each with the highest learning rate it is to have."""
    by_muon = [p for name, p in parameters.items() if name.endswith(_MUON_ARRAYS)]
    by_adam = [p for name, p in parameters.items() if not name.endswith(_MUON_ARRAYS)]
    muon = torch.optim.Muon(
        by_muon,
        lr=_MUON_LEARNING_RATE,
        weight_decay=_MUON_WEIGHT_DECAY,
        adjust_lr_fn="match_rms_adamw",
    )
    adam = torch.optim.Adam(by_adam, betas=(0.9, 0.98))
    return [(muon, _MUON_LEARNING_RATE), (adam, _ADAM_LEARNING_RATE)]


def _load_progress(directory: Path, parameters: Parameters) -> dict[str, Any]:
    """Copy exported weights into the parameters and return the progress recorded with them."""
    with np.load(directory / SHIPPED_WEIGHTS) as arrays, torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(arrays[name].astype(np.float32)))
    progress: dict[str, Any] = json.loads((directory / RECORD).read_text())["training"]
    return progress


def _export(
    directory: Path, parameters: Parameters, corpus: Corpus, progress: dict[str, Any]
) -> None:
    arrays = float16_arrays(parameters)
    with (directory / SHIPPED_WEIGHTS).open("wb") as file:
        np.savez(file, **arrays)
    shipped = excerpt(corpus.held_out, EXCERPT_BYTES)
    (directory / EXCERPT).write_bytes(shipped)
    baseline = NGramModel(corpus.train, BASELINE_ORDER)
    record = {
        "training": progress
        | {"parameters": sum(array.size for array in arrays.values()), "torch": torch.__version__},
        "corpus_sha256": corpus.sha256(),
        "bits_per_byte": {
            part: {
                "bytes": len(text),
                "model": round(text_bits_per_byte(arrays, text), 5),
                f"{BASELINE_ORDER}_gram": round(baseline.bits_per_byte(text), 5),
            }
            for part, text in (("held_out", corpus.held_out), ("excerpt", shipped))
        },
    }
    (directory / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    typer.echo(json.dumps(record["bits_per_byte"]))


def train(
    output: Annotated[Path, typer.Option(help="folder that receives the files")],
    steps: Annotated[int, typer.Option(help="optimiser steps", min=1)] = 2500,
    batch: Annotated[int, typer.Option(help="rows of a batch", min=1)] = 16,
    window: Annotated[int, typer.Option(help="bytes of a row, a multiple of 32", min=32)] = 256,
    seed: Annotated[int, typer.Option(help="seed of weights and of the reading order")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads", min=1)] = 1,
    export_every: Annotated[int, typer.Option(help="steps between exports", min=1)] = 500,
    resume: Annotated[bool, typer.Option(help="go on from the files in the folder")] = False,
) -> None:
    """Train the byte-level language model and write weights, excerpt and record."""
    if window % _CHUNK:
        raise typer.BadParameter(f"window is {window}; it must be a multiple of {_CHUNK}")
    torch.set_num_threads(threads)
    # Strong decays drive states into subnormal numbers, on which a CPU is 100 times slower.
    torch.set_flush_denormal(True)
    typer.echo(f"chunked form against the reference: {check_chunked_form(seed):.1e} relative")
    corpus = load_corpus()
    output.mkdir(parents=True, exist_ok=True)

    parameters = initial_parameters(SHAPE, seed)
    first, minutes_before, resumed_at = 1, 0.0, []
    if resume:
        earlier = _load_progress(output, parameters)
        first, minutes_before = earlier["steps"] + 1, earlier["minutes"]
        resumed_at = [*earlier["resumed_at"], earlier["steps"]]
    optimisers = _optimisers(parameters)
    reader = _Reader(corpus.train, batch, window, seed + first - 1)
    state = initial_state(SHAPE, batch)
    start = time.monotonic()
    smoothed = math.log2(BYTE_VALUES)
    for step in range(first, steps + 1):
        done = step - first + 1
        rate = min(1.0, done / _WARMUP_STEPS, (steps + 1 - step) / ((1 - _CONSTANT_SHARE) * steps))
        windows = reader.next_windows(state)
        logits, state = next_byte_logits(parameters, SHAPE, windows[:, :-1], state)
        loss = F.cross_entropy(logits.reshape(-1, BYTE_VALUES), windows[:, 1:].reshape(-1))
        for optimiser, learning_rate in optimisers:
            optimiser.param_groups[0]["lr"] = learning_rate * rate
            optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), _GRADIENT_NORM)
        for optimiser, _ in optimisers:
            optimiser.step()
        smoothed += (loss.item() / math.log(2) - smoothed) * max(0.02, 1 / done)
        seconds = time.monotonic() - start
        if step % 50 == 0:
            speed = done * batch * window / seconds
            typer.echo(f"step {step}: {smoothed:.3f} bits per training byte, {speed:.0f} bytes/s")
        if step % export_every == 0 or step == steps:
            validation = text_bits_per_byte(float16_arrays(parameters), corpus.validation)
            typer.echo(f"validation: {validation:.4f} bits per byte")
            progress = {
                "steps": step,
                "planned_steps": steps,
                "batch": batch,
                "window": window,
                "bytes_read": step * batch * window,
                "seed": seed,
                "minutes": round(minutes_before + seconds / 60, 1),
                "resumed_at": resumed_at,
            }
            _export(output, parameters, corpus, progress)


if __name__ == "__main__":
    typer.run(train)
