# SPDX-License-Identifier: Apache-2.0
"""The real model: GGUF file, tokenizer, forward pass with replaceable attention, and passages."""

import dataclasses
import sys
from functools import cache
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdelta.errors import MissingToolError
from fastdelta.gemma import (
    GemmaCheckpoint,
    GemmaModel,
    GemmaShape,
    GemmaTokenizer,
    GemmaWeights,
    float_full_attention,
    load_checkpoint,
    passages,
)
from fastdelta.gemma.attention import sliding_window_attention
from fastdelta.gemma.gguf_file import GgufFile, StoredTensor
from fastdelta.gemma.model import gelu, rotary_embedding
from fastdelta.gemma.weights import SLIDING_ROPE_BASE, WEIGHTS_PACKAGE, GemmaBlockWeights
from fastdelta.language_model import held_out_text
from fastdelta.reference.attention import dense_causal_attention
from fastdelta.reference.layer import RMS_NORM_EPSILON, Float32Array

Float64Array = npt.NDArray[np.float64]

TINY = GemmaShape(
    vocabulary=50,
    layers=7,
    hidden=16,
    mlp_hidden=24,
    heads=4,
    kv_heads=2,
    head_dim=8,
    sliding_window=3,
    rope_base=1e6,
)
FULL_LAYER = 5
SLIDING_REACH = (TINY.layers - 1) * (TINY.sliding_window - 1)
"""How far back a token sees through all sliding-window layers of TINY together."""

ENGLISH = (
    "The lighthouse stood at the end of a long pier, and every evening the keeper climbed its "
    "stairs to light the lamp. In winter the wind was so strong that he had to hold on to the "
    "railing with both hands. He had lived there for thirty years, and he knew the name of every "
    "ship that passed."
)


@cache
def checkpoint() -> GemmaCheckpoint:
    return load_checkpoint()


def random_array(rng: np.random.Generator, *shape: int) -> Float32Array:
    return rng.normal(size=shape).astype(np.float32)


def float32_tensor(values: Float32Array) -> StoredTensor:
    kind = int(gguf.GGMLQuantizationType.F32)
    return StoredTensor(values.shape, kind, values.view(np.uint8))


def tiny_weights(shape: GemmaShape = TINY) -> GemmaWeights:
    rng = np.random.default_rng(20)
    blocks = tuple(
        GemmaBlockWeights(
            **{
                name: random_array(rng, *sizes) / np.float32(np.sqrt(sizes[0]))
                if len(sizes) == 2
                else 1 + np.float32(0.3) * random_array(rng, *sizes)
                for name, sizes in shape.block_shapes().items()
            }
        )
        for _ in range(shape.layers)
    )
    embedding = float32_tensor(random_array(rng, shape.vocabulary, shape.hidden))
    final_norm = 1 + np.float32(0.3) * random_array(rng, shape.hidden)
    return GemmaWeights(shape, embedding, blocks, final_norm)


def tiny_prompt(tokens: int) -> list[int]:
    return np.random.default_rng(21).integers(0, TINY.vocabulary, tokens).tolist()


def plain_attention(q: Float32Array, k: Float32Array, v: Float32Array, window: int) -> Float64Array:
    """Attention as its definition reads: one query after the other, in FP64."""
    o = np.empty(q.shape)
    for head, token in np.ndindex(q.shape[:2]):
        kv_head = head // (len(q) // len(k))
        past = slice(max(0, token - window + 1), token + 1)
        scores = k[kv_head, past].astype(np.float64) @ q[head, token] / np.sqrt(q.shape[2])
        weights = np.exp(scores - scores.max())
        o[head, token] = weights @ v[kv_head, past] / weights.sum()
    return o


def plain_model(weights: GemmaWeights, prompt: list[int]) -> Float64Array:
    """Return all logits by the equations of the paper, in FP64, with rotations as complex factors.

    It shares nothing with the model but the weights.
    """
    shape = weights.shape
    tokens = len(prompt)

    def norm(x: Float64Array, weight: Float32Array) -> Float64Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + float(RMS_NORM_EPSILON)) * weight

    def rotate(x: Float64Array, base: float) -> Float64Array:
        half = shape.head_dim // 2
        speeds = base ** (-2 * np.arange(half) / shape.head_dim)
        turns = np.exp(1j * np.outer(np.arange(tokens), speeds))
        turned = (x[..., :half] + 1j * x[..., half:]) * turns
        return np.concatenate([turned.real, turned.imag], axis=-1)

    table = weights.embedding.data.view(np.float32).astype(np.float64)
    x = table[prompt] * np.sqrt(shape.hidden)
    for index, block in enumerate(weights.blocks):
        full = (index + 1) % 6 == 0
        base = shape.rope_base if full else SLIDING_ROPE_BASE
        y = norm(x, block.attention_norm)
        q, k, v = (
            np.stack(np.split(y @ projection, heads, axis=1))
            for projection, heads in (
                (block.q_projection, shape.heads),
                (block.k_projection, shape.kv_heads),
                (block.v_projection, shape.kv_heads),
            )
        )
        q, k = rotate(norm(q, block.q_norm), base), rotate(norm(k, block.k_norm), base)
        o = plain_attention(q, k, v, tokens if full else shape.sliding_window)
        x = x + norm(np.concatenate(o, axis=1) @ block.output_projection, block.post_attention_norm)
        y = norm(x, block.mlp_norm)
        gate = y @ block.mlp_gate
        gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        x = x + norm((gate * (y @ block.mlp_up)) @ block.mlp_down, block.post_mlp_norm)
    return norm(x, weights.final_norm) @ table.T


# The forward pass, on a small model with random weights.


def test_model_follows_the_equations_of_the_paper() -> None:
    weights, prompt = tiny_weights(), tiny_prompt(30)
    expected = plain_model(weights, prompt)
    model = GemmaModel(weights)
    np.testing.assert_allclose(model.logits(model.forward(prompt)), expected, atol=2e-4)
    prediction = model.next_token(prompt)
    np.testing.assert_allclose(prediction.logits, expected[-1], atol=2e-4)
    assert prediction.token == np.argmax(expected[-1])


def test_bits_per_token_are_the_mean_code_length() -> None:
    weights, prompt = tiny_weights(), tiny_prompt(30)
    logits = plain_model(weights, prompt)[:-1]
    log_probability = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -log_probability[np.arange(29), prompt[1:]].mean() / np.log(2)
    assert GemmaModel(weights).bits_per_token(prompt) == pytest.approx(expected, rel=1e-4)


def test_blocks_of_vocabulary_and_tokens_give_the_same_logits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights, prompt = tiny_weights(), tiny_prompt(12)
    model = GemmaModel(weights)
    logits, bits = model.next_token(prompt).logits, model.bits_per_token(prompt)
    monkeypatch.setattr("fastdelta.gemma.model._VOCABULARY_ROWS", 7)
    monkeypatch.setattr("fastdelta.gemma.model._MLP_TOKENS", 5)
    np.testing.assert_allclose(model.next_token(prompt).logits, logits, atol=1e-4)
    assert model.bits_per_token(prompt) == pytest.approx(bits, rel=1e-5)


def test_prefix_does_not_depend_on_what_follows() -> None:
    model, prompt = GemmaModel(tiny_weights()), tiny_prompt(40)
    changed = prompt[:25] + [(token + 1) % TINY.vocabulary for token in prompt[25:]]
    before, after = model.forward(prompt), model.forward(changed)
    np.testing.assert_allclose(after[:25], before[:25], atol=1e-5)
    assert np.abs(after[25:] - before[25:]).max(axis=1).min() > 1e-2


def test_window_ends_where_it_should() -> None:
    shape = dataclasses.replace(TINY, layers=1)
    model, prompt = GemmaModel(tiny_weights(shape)), tiny_prompt(20)
    changed = prompt.copy()
    changed[10] = (prompt[10] + 1) % TINY.vocabulary
    difference = np.abs(model.forward(changed) - model.forward(prompt)).max(axis=1)
    seen = np.arange(10, 10 + TINY.sliding_window)
    assert difference[seen].min() > 1e-3
    assert np.delete(difference, seen).max() < 1e-6


def test_only_the_full_attention_layer_carries_beyond_the_windows() -> None:
    weights, prompt = tiny_weights(), tiny_prompt(SLIDING_REACH + 6)
    changed = [(prompt[0] + 1) % TINY.vocabulary, *prompt[1:]]

    def influence(model: GemmaModel) -> Float32Array:
        return np.abs(model.forward(changed) - model.forward(prompt)).max(axis=1)

    beyond = slice(SLIDING_REACH + 1, None)
    assert influence(GemmaModel(weights))[beyond].min() > 1e-4
    without = influence(GemmaModel(weights, lambda _layer, q, _k, _v: np.zeros_like(q)))
    assert without[beyond].max() < 1e-6
    assert without[0] > 1e-2


def test_full_attention_gets_what_capture_returns() -> None:
    weights = tiny_weights(dataclasses.replace(TINY, layers=13))
    prompt = tiny_prompt(15)
    calls = {}

    def recording(layer_index: int, q: Float32Array, k: Float32Array, v: Float32Array):
        calls[layer_index] = (q.copy(), k.copy(), v.copy())
        return float_full_attention(layer_index, q, k, v)

    model = GemmaModel(weights, recording)
    final = model.forward(prompt)
    np.testing.assert_array_equal(final, GemmaModel(weights).forward(prompt))
    assert list(calls) == [5, 11] == list(weights.shape.full_attention_layers)
    captured = model.capture(prompt, (11, 0, 5))
    assert sorted(captured) == [0, 5, 11]
    for layer, (q, k, v) in calls.items():
        assert q.shape == (4, 15, 8)
        assert k.shape == v.shape == (2, 15, 8)
        np.testing.assert_array_equal(captured[layer].q, q)
        np.testing.assert_array_equal(captured[layer].k, k)
        np.testing.assert_array_equal(captured[layer].v, v)


def test_capture_computes_nothing_after_its_last_layer() -> None:
    def broken(_layer: int, _q: Float32Array, _k: Float32Array, _v: Float32Array) -> Float32Array:
        raise RuntimeError("attention of a layer that is only captured")

    weights, prompt = tiny_weights(), tiny_prompt(10)
    captured = GemmaModel(weights, broken).capture(prompt, (FULL_LAYER,))[FULL_LAYER]
    expected = GemmaModel(weights).capture(prompt, (FULL_LAYER, FULL_LAYER + 1))[FULL_LAYER]
    np.testing.assert_array_equal(captured.q, expected.q)
    with pytest.raises(RuntimeError, match="only captured"):
        GemmaModel(weights, broken).capture(prompt, (FULL_LAYER + 1,))


def test_attention_of_a_wrong_shape_or_dtype_is_refused() -> None:
    weights, prompt = tiny_weights(), tiny_prompt(4)
    with pytest.raises(ValueError, match=r"layer 5 returned float32 of shape \(4, 3, 8\)"):
        GemmaModel(weights, lambda _layer, q, _k, _v: q[:, 1:]).forward(prompt)
    with pytest.raises(ValueError, match="layer 5 returned float64"):
        GemmaModel(weights, lambda _layer, q, _k, _v: q.astype(float)).forward(prompt)


def test_capture_and_prompts_are_checked() -> None:
    model = GemmaModel(tiny_weights())
    for layers in ((), (7,), (-1, 2)):
        with pytest.raises(ValueError, match="at least one, each 0 to 6"):
            model.capture([1, 2], layers)
    for prompt in ([], [[1, 2]], [0.5]):
        with pytest.raises(ValueError, match="one or more token numbers"):
            model.forward(prompt)
    for prompt in ([-1], [50]):
        with pytest.raises(ValueError, match="allowed are 0 to 49"):
            model.forward(prompt)
    with pytest.raises(ValueError, match="at least two are needed"):
        model.bits_per_token([1])
    with pytest.raises(ValueError, match="length is -1"):
        model.generate([1], -1)


def test_generation_takes_the_most_likely_token_each_time() -> None:
    weights, prompt = tiny_weights(), tiny_prompt(5)
    text = list(prompt)
    for _ in range(3):
        text.append(int(np.argmax(plain_model(weights, text)[-1])))
    assert GemmaModel(weights).generate(prompt, 3) == text[5:]


@pytest.mark.parametrize("tokens", [1, 127, 128, 300])
@pytest.mark.parametrize("window", [1, 2, 100, 128, 129, 512])
def test_sliding_window_attention(tokens: int, window: int) -> None:
    rng = np.random.default_rng(tokens + window)
    q = 3 * random_array(rng, 4, tokens, 8)
    k, v = random_array(rng, 2, tokens, 8), random_array(rng, 2, tokens, 8)
    o = sliding_window_attention(q, k, v, window)
    assert o.dtype == np.float32
    np.testing.assert_allclose(o, plain_attention(q, k, v, window), atol=1e-5)
    if window >= tokens:
        np.testing.assert_allclose(o, dense_causal_attention(q, k, v), atol=1e-5)


def test_sliding_window_attention_refuses_shapes_that_do_not_fit() -> None:
    q, k = np.zeros((4, 3, 8), np.float32), np.zeros((2, 3, 8), np.float32)
    with pytest.raises(ValueError, match="window is 0"):
        sliding_window_attention(q, k, k, 0)
    for wrong in (k[:, 1:], k[..., 1:], np.zeros((3, 3, 8), np.float32)):
        with pytest.raises(ValueError, match="k and v must be alike"):
            sliding_window_attention(q, wrong, wrong, 2)


@pytest.mark.parametrize("base", [1e4, 1e6])
def test_rotation_keeps_lengths_and_makes_products_depend_on_distance(base: float) -> None:
    rng = np.random.default_rng(3)
    tokens = 4000
    q, k = (np.repeat(random_array(rng, 1, 1, 64), tokens, axis=1) for _ in range(2))
    turned_q, turned_k = rotary_embedding(q, base), rotary_embedding(k, base)
    np.testing.assert_array_equal(turned_q[:, 0], q[:, 0])
    np.testing.assert_allclose(
        np.linalg.norm(turned_q, axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-5
    )
    for distance in (0, 1, 900):
        products = np.sum(turned_q[0, distance:] * turned_k[0, : tokens - distance], axis=-1)
        np.testing.assert_allclose(products, products[0], atol=2e-4)
    assert np.abs(turned_q[0, 1] - turned_q[0, 0]).max() > 0.1


def test_rotation_turns_each_plane_at_its_own_speed() -> None:
    x = np.zeros((1, 3, 4), np.float32)
    x[..., 0] = x[..., 1] = 1  # one unit vector in each of the planes (0, 2) and (1, 3)
    angles = 2 * np.array([1, 10_000.0**-0.5])
    expected = [*np.cos(angles), *np.sin(angles)]
    np.testing.assert_allclose(rotary_embedding(x, 10_000)[0, 2], expected, rtol=1e-6)


def test_gelu() -> None:
    # The tanh form is within 5e-4 of x times the normal distribution function.
    x = np.array([-30, -1, 0, 1, 2, 30], np.float32)
    exact = [0, -0.158655, 0, 0.841345, 1.954500, 30]
    np.testing.assert_allclose(gelu(x), exact, atol=5e-4)


def test_shapes_and_weights_are_checked() -> None:
    for change, message in (
        ({"heads": 3}, "must be a multiple"),
        ({"head_dim": 7}, "needs it even"),
        ({"layers": 0}, "layers is 0; it must be >= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(TINY, **change)
    weights = tiny_weights()
    with pytest.raises(ValueError, match="6 blocks given; expected 7"):
        dataclasses.replace(weights, blocks=weights.blocks[1:])
    with pytest.raises(ValueError, match="embedding has shape"):
        dataclasses.replace(weights, embedding=float32_tensor(np.zeros((49, 16), np.float32)))
    broken = dataclasses.replace(weights.blocks[0], q_norm=np.full(8, np.nan, np.float32))
    with pytest.raises(ValueError, match="q_norm has NaN"):
        dataclasses.replace(weights, blocks=(broken, *weights.blocks[1:]))


# The GGUF file.


def write_gguf(path: Path) -> tuple[bytes, Float32Array]:
    """Write a small file with the writer of the package `gguf`."""
    values = random_array(np.random.default_rng(4), 3, 64)
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_uint32("an.integer", 7)
    writer.add_float32("a.float", 0.5)
    writer.add_bool("a.bool", True)
    writer.add_array("some.strings", ["a", "\u2581b", ""])
    writer.add_array("some.numbers", [1, 2, 300])
    writer.add_tensor("plain", values)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("quantised", gguf.quantize(values, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes(), values


def test_gguf_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    contents, values = write_gguf(tmp_path / "small.gguf")
    file = GgufFile.parse(contents)
    assert file.metadata["general.architecture"] == "gemma3"
    assert file.metadata["an.integer"] == 7
    assert file.metadata["a.float"] == 0.5
    assert file.metadata["a.bool"] is True
    assert file.metadata["some.strings"] == ["a", "\u2581b", ""]
    assert file.metadata["some.numbers"].tolist() == [1, 2, 300]
    np.testing.assert_array_equal(file.tensors["plain"].dequantise(), values)
    quantised = file.tensors["quantised"]
    assert quantised.shape == (3, 64)
    rounded = quantised.dequantise()
    np.testing.assert_allclose(rounded, values, atol=np.abs(values).max() / 250)
    np.testing.assert_array_equal(quantised.dequantise(np.array([2, 0])), rounded[[2, 0]])
    np.testing.assert_array_equal(quantised.dequantise(slice(1, 3)), rounded[1:])


def test_damaged_gguf_file_is_refused(tmp_path: Path) -> None:
    contents, _ = write_gguf(tmp_path / "small.gguf")
    for end in (4, 6, 30, 100, len(contents) // 2, len(contents) - 65):
        with pytest.raises(ValueError, match="ends early"):
            GgufFile.parse(contents[:end])
    with pytest.raises(ValueError, match="expected b'GGUF'"):
        GgufFile.parse(b"PK\x03\x04" + contents[4:])
    with pytest.raises(ValueError, match="version is 9"):
        GgufFile.parse(contents[:4] + b"\x09" + contents[5:])


def test_other_models_are_refused(tmp_path: Path) -> None:
    contents, _ = write_gguf(tmp_path / "small.gguf")
    file = GgufFile.parse(contents)
    with pytest.raises(ValueError, match="tokenizer in the file"):
        GemmaTokenizer.of_metadata(file.metadata)
    with pytest.raises(ValueError, match="holds a model 'llama'; expected 'gemma3'"):
        GemmaShape.of_metadata({"general.architecture": "llama"})


@pytest.mark.parametrize("package", [WEIGHTS_PACKAGE, "gguf"])
def test_missing_package_says_how_to_install_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # makes the import fail
    with pytest.raises(MissingToolError, match=rf"{package}.*pip install 'fastdelta\[gemma\]'"):
        load_checkpoint()


# The tokenizer.


def small_tokenizer() -> GemmaTokenizer:
    ordinary = {"a": -9, "b": -9, "\u2581": -9, "ab": -1, "aab": -2, "aa": -3, "\u2581ab": -4}
    entries = [("<bos>", 0, 3), *((piece, score, 1) for piece, score in ordinary.items())]
    entries += [("\n", 0, 4), ("\n\n", 0, 4), ("  ", 0, 4)]
    entries += [(f"<0x{value:02X}>", 0, 6) for value in range(256)]
    return GemmaTokenizer(*zip(*entries, strict=True), bos=0)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("aab", [5]),  # a+ab, because ab goes first
        ("aaa", [6, 1]),  # the leftmost of two equal unions
        ("aaab", [1, 5]),  # ab, then a+ab; the remaining a cannot join aab
        (" ab", [7]),
        ("a b", [1, 3, 2]),
        ("\n\n\n", [9, 8]),  # the longest symbol at each place
        ("ab   ab", [4, 10, 7]),
        ("c", [11 + ord("c")]),
        ("a\u00e9", [1, 11 + 0xC3, 11 + 0xA9]),
    ],
)
def test_merging_by_hand(text: str, pieces: list[int]) -> None:
    tokenizer = small_tokenizer()
    assert tokenizer.encode(text, bos=False) == pieces
    assert tokenizer.encode(text) == [0, *pieces]
    assert tokenizer.decode([0, *pieces]) == text


def test_bytes_that_are_no_text_are_replaced_and_unknown_tokens_refused() -> None:
    tokenizer = small_tokenizer()
    assert tokenizer.decode([1, 11 + 0xC3, 2]) == "a\ufffdb"
    for token in (-1, 267):
        with pytest.raises(ValueError, match="not one of 0 to 266"):
            tokenizer.decode([token])
    with pytest.raises(ValueError, match="1 of the 256 byte tokens"):
        GemmaTokenizer(["<bos>", "<0x41>"], [0, 0], [3, 6], bos=0)
    with pytest.raises(ValueError, match="one of each"):
        GemmaTokenizer(["<bos>"], [0, 0], [3], bos=0)
    with pytest.raises(ValueError, match="bos is 1"):
        GemmaTokenizer(["<bos>"], [0], [3], bos=1)


def test_tokens_are_those_of_sentencepiece() -> None:
    # Made with sentencepiece 0.2.3 on the same vocabulary.
    tokenizer = checkpoint().tokenizer
    assert tokenizer.encode("The capital of France is") == [2, 818, 5279, 529, 7001, 563]
    assert tokenizer.encode("def f(x):\n\treturn  x \u0378<b>", bos=False) == [
        *(2063, 517, 236769, 236781, 1473, 107, 255968, 2060, 138),
        *(236781, 236743, 443, 422, 200),
    ]


@settings(deadline=None)  # the first example loads the model
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"), max_size=60))
def test_any_text_comes_back(text: str) -> None:
    tokenizer = checkpoint().tokenizer
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_real_text_comes_back_and_is_short() -> None:
    text = held_out_text().decode()
    tokenizer = checkpoint().tokenizer
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert len(tokens) < len(text) / 3.5


# The real model.


def test_checkpoint_is_gemma_3_270m() -> None:
    weights = checkpoint().weights
    assert weights.shape == GemmaShape(262_144, 18, 640, 2048, 4, 1, 256, 512, 1e6)
    assert weights.shape.full_attention_layers == (5, 11, 17)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        # Logits that transformers 5.23.0 (Gemma3ForCausalLM, FP32) gives with the same weights.
        (
            "The capital city of France is called",
            {9079: 19.8302, 236743: 18.4073, 506: 17.8863, 1834: 16.81},
        ),
        # 790 tokens, more than the sliding window.
        (
            ", ".join(str(number) for number in range(180)) + ",",
            {236743: 23.5, 236770: 12.1495, 138: 11.991, 532: 11.8503},
        ),
    ],
    ids=["short", "longer than the window"],
)
def test_logits_are_those_of_transformers(prompt: str, expected: dict[int, float]) -> None:
    model = GemmaModel(checkpoint().weights)
    prediction = model.next_token(checkpoint().tokenizer.encode(prompt))
    likeliest = np.argsort(prediction.logits)[::-1][:4].tolist()
    assert likeliest == list(expected)
    assert prediction.token == likeliest[0]
    np.testing.assert_allclose(
        prediction.logits[likeliest], list(expected.values()), rtol=0, atol=2e-3
    )


def test_model_continues_a_sentence() -> None:
    tokenizer = checkpoint().tokenizer
    model = GemmaModel(checkpoint().weights)
    prompt = tokenizer.encode("The first president of the United States was George")
    assert tokenizer.decode(model.generate(prompt, 2)).startswith(" Washington")


def test_model_finds_english_likelier_than_its_words_in_disorder() -> None:
    tokenizer = checkpoint().tokenizer
    model = GemmaModel(checkpoint().weights)
    words = ENGLISH.split()
    np.random.default_rng(5).shuffle(words)
    ordered = model.bits_per_token(tokenizer.encode(ENGLISH))
    disordered = model.bits_per_token(tokenizer.encode(" ".join(words)))
    assert ordered < 4.7
    assert disordered > ordered + 3


# Passages.


def test_passages_are_different_pieces_of_the_text() -> None:
    tokenizer, text = checkpoint().tokenizer, held_out_text().decode()
    found = passages(tokenizer, 1024, 10)
    assert len({tuple(passage) for passage in found}) == 10
    for passage in found:
        assert len(passage) == 1024
        assert passage[0] == tokenizer.bos
        read = tokenizer.decode(passage)
        place = text.find(read)
        assert place == 0 or text[place - 1] == "\n"
    assert text.startswith(tokenizer.decode(found[0]))


def test_a_passage_has_4096_tokens() -> None:
    tokenizer = checkpoint().tokenizer
    (passage,) = passages(tokenizer, 4096)
    assert held_out_text().decode().startswith(tokenizer.decode(passage))
    assert len(passage) == 4096


def test_passages_that_cannot_be_given_are_refused() -> None:
    tokenizer = checkpoint().tokenizer
    with pytest.raises(ValueError, match="passages of 5000 tokens are asked for; the text has"):
        passages(tokenizer, 5000)
    with pytest.raises(ValueError, match="different places to start"):
        passages(tokenizer, 64, 1000)
    for tokens, count in ((1, 1), (64, 0)):
        with pytest.raises(ValueError, match="allowed are >= 2 and >= 1"):
            passages(tokenizer, tokens, count)
