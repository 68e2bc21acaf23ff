# SPDX-License-Identifier: Apache-2.0
"""The shipped language model: its recorded figures, its carried state, and its generation."""

import dataclasses
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fastdelta import language_model
from fastdelta.language_model import LanguageModel, LanguageModelWeights, bits_per_byte
from fastdelta.language_model.model import load_weights
from fastdelta.reference.layer import Float32Array, FloatRecurrence

PASSAGE = language_model.held_out_text()[:300]
PACKAGE = files("fastdelta.language_model")


@cache
def shipped_weights() -> LanguageModelWeights:
    return load_weights()


@cache
def shipped_arrays() -> dict[str, npt.NDArray[Any]]:
    with (PACKAGE / "weights.npz").open("rb") as file, np.load(file) as arrays:
        return dict(arrays)


def fresh_model() -> LanguageModel:
    return LanguageModel(shipped_weights())


def test_recorded_bits_per_byte_are_reproduced_and_beat_the_five_gram() -> None:
    text = language_model.held_out_text()
    recorded = language_model.training_record()["bits_per_byte"]["excerpt"]
    assert recorded["bytes"] == len(text)
    measured = bits_per_byte(fresh_model().forward(text)[:-1], text[1:])
    assert measured == pytest.approx(recorded["model"], abs=1e-4)
    assert measured < recorded["5_gram"] - 0.1


def test_record_describes_the_shipped_files() -> None:
    record = language_model.training_record()
    arrays = shipped_arrays()
    assert record["training"]["parameters"] == sum(array.size for array in arrays.values())
    assert record["training"]["steps"] == record["training"]["planned_steps"]
    held_out = record["bits_per_byte"]["held_out"]
    assert held_out["model"] < held_out["5_gram"] - 0.1


def test_shipped_files_are_small_and_weights_are_float16() -> None:
    sizes = [len((PACKAGE / name).read_bytes()) for name in ("weights.npz", "held_out.txt")]
    assert sum(sizes) <= 4 * 2**20
    assert {str(array.dtype) for array in shipped_arrays().values()} == {"float16"}
    np.testing.assert_array_equal(
        shipped_weights().head, shipped_arrays()["head"].astype(np.float32)
    )


def test_shape_is_that_of_a_grouped_gated_delta_net() -> None:
    shape = shipped_weights().shape
    assert shape.layers >= 2
    assert shape.layer.group_ratio == 2
    assert shape.layer.conv_kernel == 4
    assert shape.layer.head_dim in (16, 32, 64, 128)
    assert shipped_weights().a_log.shape == (shape.layers, shape.layer.value_heads)
    assert shipped_weights().dt_bias.shape == (shape.layers, shape.layer.value_heads)


def test_held_out_text_is_whole_lines_of_plain_text() -> None:
    text = language_model.held_out_text()
    assert 12_000 < len(text) <= 16_384
    assert text.startswith(b"Now it came to pass in the days when the judges ruled")
    assert text.endswith(b"\n")
    assert text.isascii()


@pytest.mark.parametrize("split", [0, 1, 2, 3, 150, 299, 300])
def test_text_split_at_any_byte_equals_the_whole(split: int) -> None:
    whole = fresh_model().forward(PASSAGE)
    model = fresh_model()
    pieces = [model.forward(PASSAGE[:split]), model.forward(PASSAGE[split:])]
    # Only the order of sums in the matrix products differs.
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=0, atol=1e-3)


def test_byte_by_byte_equals_the_whole() -> None:
    model = fresh_model()
    steps = [model.forward(PASSAGE[i : i + 1]) for i in range(len(PASSAGE))]
    np.testing.assert_allclose(
        np.concatenate(steps), fresh_model().forward(PASSAGE), rtol=0, atol=1e-3
    )


def test_second_text_after_reset_equals_it_alone() -> None:
    alone = fresh_model().forward(PASSAGE)
    model = fresh_model()
    model.forward(b"Another text that came before.\n")
    assert np.abs(model.forward(PASSAGE) - alone).max() > 0.1
    model.reset()
    np.testing.assert_array_equal(model.forward(PASSAGE), alone)


def test_new_model_clears_a_recurrence_that_was_used_before() -> None:
    weights = shipped_weights()
    recurrence = FloatRecurrence(weights.a_log, weights.dt_bias)
    first = LanguageModel(weights, recurrence).forward(PASSAGE)
    np.testing.assert_array_equal(LanguageModel(weights, recurrence).forward(PASSAGE), first)


def test_later_bytes_do_not_change_earlier_expectations() -> None:
    changed = PASSAGE[:200] + b"#" * 100
    np.testing.assert_allclose(
        fresh_model().forward(changed)[:200],
        fresh_model().forward(PASSAGE)[:200],
        rtol=0,
        atol=1e-4,
    )


def test_single_and_double_precision_recurrences_agree() -> None:
    weights, text = shipped_weights(), language_model.held_out_text()[:2_001]
    double = FloatRecurrence(weights.a_log, weights.dt_bias, dtype=np.float64)
    logits = LanguageModel(weights, double).forward(text)
    reference = fresh_model().forward(text)
    difference = bits_per_byte(logits[:-1], text[1:]) - bits_per_byte(reference[:-1], text[1:])
    assert abs(difference) < 1e-5
    assert np.mean(logits.argmax(axis=1) == reference.argmax(axis=1)) >= 0.999


def test_bits_per_byte_notices_a_recurrence_without_memory() -> None:
    class Forgetful(FloatRecurrence):
        def __call__(self, layer_index: int, *inputs: Float32Array) -> Float32Array:
            self.clear()
            return super().__call__(layer_index, *inputs)

    weights, text = shipped_weights(), language_model.held_out_text()[:150]
    model = LanguageModel(weights, Forgetful(weights.a_log, weights.dt_bias))
    forgetful = np.concatenate([model.forward(text[i : i + 1]) for i in range(len(text))])
    remembering = fresh_model().forward(text)
    assert bits_per_byte(forgetful[:-1], text[1:]) > bits_per_byte(remembering[:-1], text[1:]) + 0.1


def test_greedy_generation_is_deterministic_and_follows_the_logits() -> None:
    model = fresh_model()
    continuation = model.generate(PASSAGE, 40)
    assert len(continuation) == 40
    assert model.generate(PASSAGE, 40) == continuation
    assert language_model.generate(PASSAGE, 40) == continuation
    logits = fresh_model().forward(PASSAGE + continuation)
    chosen = logits[len(PASSAGE) - 1 : -1].argmax(axis=1)
    assert np.mean(chosen == np.frombuffer(continuation, np.uint8)) >= 0.95


def test_generation_uses_the_given_recurrence_for_every_layer() -> None:
    weights = shipped_weights()
    calls = []

    class Recorder(FloatRecurrence):
        def __call__(self, layer_index: int, *inputs: Float32Array) -> Float32Array:
            calls.append((layer_index, len(inputs[0])))
            return super().__call__(layer_index, *inputs)

    recorder = Recorder(weights.a_log, weights.dt_bias)
    continuation = language_model.generate(PASSAGE, 3, recurrence=recorder)
    assert continuation == language_model.generate(PASSAGE, 3)
    layers = range(weights.shape.layers)
    assert calls == [(layer, tokens) for tokens in (len(PASSAGE), 1, 1) for layer in layers]


def test_drawn_generation_depends_on_the_seed_alone() -> None:
    draws = [fresh_model().generate(PASSAGE, 30, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    cold = fresh_model().generate(PASSAGE, 20, temperature=1e-6, seed=1)
    assert cold == fresh_model().generate(PASSAGE, 20)


def test_continuation_is_text() -> None:
    continuation = language_model.generate(PASSAGE, 120)
    assert set(continuation) <= set(language_model.held_out_text())
    assert b" " in continuation


def test_generation_of_nothing_and_bad_arguments() -> None:
    model = fresh_model()
    assert model.generate(PASSAGE, 0) == b""
    with pytest.raises(ValueError, match="prompt is empty"):
        model.generate(b"", 5)
    with pytest.raises(ValueError, match="length is -1"):
        model.generate(PASSAGE, -1)
    for temperature in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature is"):
            model.generate(PASSAGE, 1, temperature=temperature)


def test_bits_per_byte_of_known_distributions() -> None:
    uniform = np.zeros((3, 256), np.float32)
    assert bits_per_byte(uniform, b"abc") == pytest.approx(8)
    halves = np.full((2, 256), -np.inf, np.float32)
    halves[:, [97, 98]] = 3.0
    assert bits_per_byte(halves, b"ab") == pytest.approx(1)
    huge = np.zeros((1, 256), np.float32)
    huge[0, 97] = 1e30
    assert bits_per_byte(huge, b"a") == 0
    for logits, following in ((uniform, b"ab"), (uniform[:0], b""), (uniform[:, :9], b"abc")):
        with pytest.raises(ValueError, match="expected one row of 256"):
            bits_per_byte(logits, following)


def test_weight_files_of_something_else_are_refused(tmp_path: Path) -> None:
    arrays = shipped_arrays()

    def load(changed: dict[str, Any]) -> None:
        with (tmp_path / "weights.npz").open("wb") as file:
            np.savez(file, **changed)
        load_weights(tmp_path / "weights.npz")

    load(arrays)
    with pytest.raises(ValueError, match="not the weights of this model"):
        load({"something": np.zeros(3, np.float16)})
    with pytest.raises(ValueError, match=r"lacks \['final_norm'\]"):
        load({name: array for name, array in arrays.items() if name != "final_norm"})
    with pytest.raises(ValueError, match=r"unknown \['extra'\]"):
        load(arrays | {"extra": np.zeros(1, np.float16)})
    with pytest.raises(ValueError, match="weight head has shape"):
        load(arrays | {"head": arrays["head"][:, :9]})
    with pytest.raises(FileNotFoundError):
        load_weights(tmp_path / "nothing.npz")


def test_bad_shapes_and_weights_are_refused() -> None:
    weights = shipped_weights()
    with pytest.raises(ValueError, match="layers is 0"):
        dataclasses.replace(weights.shape, layers=0)
    with pytest.raises(ValueError, match="blocks given; expected"):
        dataclasses.replace(weights, blocks=weights.blocks[:-1])
