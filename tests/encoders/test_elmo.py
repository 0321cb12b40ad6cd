"""ELMo's biLM equals the original, layer by layer, with and without carried state; and what a two-way encoder must."""

from __future__ import annotations

import dataclasses
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from conformance.cases import redrawn
from golden_elmo import GOLDEN, WITHIN, arrays, content, golden_bundle
from polyseme.api import Model
from polyseme.convert.elmo import FAMILY, SIZES
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.encoders.packed_recurrent import PIECES_AT_ONCE, PackedRecurrent
from polyseme.encoders.recurrent import TwoWay, TwoWayState
from polyseme.errors import ModelError, OptionError
from polyseme.parts.memory_and_cache import Memory
from polyseme.text.documents import make_document
from polyseme.types import Batch
from references import assert_close, ragged_batch, real
from tiny_models import tiny_model

BATCHES = content("activations/batches")["batches"]


def batch_of(bundle: Any, sentences: list[list[str]]) -> Batch:
    """Sentences with their markers, padded with no characters."""
    tokenizer = bundle.tokenizer
    rows = [tokenizer.frame(tokenizer.encode(make_document(words)).ids).ids for words in sentences]
    lengths = torch.tensor([len(row) for row in rows])
    pieces = torch.zeros(len(rows), int(lengths.max()), tokenizer.max_characters, dtype=torch.long)
    for row, ids in zip(pieces, rows, strict=True):
        row[: len(ids)] = torch.from_numpy(ids)
    return Batch(pieces, lengths)


# --- the golden files -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Of words longer than 48 bytes:polyseme.PolysemeWarning")
@pytest.mark.parametrize("carried", [True, False], ids=["carried", "reset"])
@pytest.mark.parametrize("model", ["allennlp", "random"])
def test_every_layer_and_state_equals_the_reference(model: str, carried: bool) -> None:
    bundle = golden_bundle(model)
    way = "carry" if carried else "reset"
    golden = arrays(f"activations/{way}") if model == "allennlp" else arrays("random/two-layer-relu.expected")
    prefix = "" if model == "allennlp" else f"{way}."
    held: Memory = bundle.encoder.new_memory(4)
    for number, sentences in enumerate(BATCHES):
        batch = batch_of(bundle, sentences)
        rows = torch.arange(len(sentences))
        start = held.select(rows) if carried else bundle.encoder.new_memory(len(sentences))
        with torch.no_grad():
            states = bundle.encoder(batch, memory=start)
        for layer in range(3):
            expected = golden[f"{prefix}batch{number}.layer{layer}"]
            assert states[layer].shape == expected.shape
            assert float((states[layer] - expected)[real(batch)].abs().max()) < WITHIN
        assert isinstance(states.memory, TwoWayState)
        held = held.put(rows, states.memory) if carried else states.memory
        assert isinstance(held, TwoWayState)
        for name, part in (("state_hidden", "outputs"), ("state_memory", "cells")):
            expected = golden[f"{prefix}batch{number}.{name}"]
            both = [torch.stack(getattr(half, part)) for half in (held.forwards, held.backwards)]
            assert float((torch.cat(both, dim=-1)[:, : expected.shape[1]] - expected).abs().max()) < WITHIN


@pytest.mark.parametrize("model", ["allennlp", "bilm-tf"])
def test_the_original_s_embeddings_with_carried_state(model: str) -> None:
    """As its own test runs: ten batches of three, one after another, through `embed`."""
    loaded = Model(golden_bundle(model))
    sentences = content(f"{model}/sentences")
    files = [h5py.File(GOLDEN / model / f"lm_embeddings_{row}.hdf5", "r") for row in range(3)]
    for number in range(10):
        rows = [sentences[row][number].split() for row in range(3)]
        found = loaded.embed(rows, carry_state=True)
        for file, embedded in zip(files, found, strict=True):
            expected = np.concatenate(list(file[str(number)][()]), axis=-1)
            assert embedded.vectors.shape == expected.shape
            assert np.abs(embedded.vectors - expected).max() < WITHIN
    for file in files:
        file.close()


def test_the_original_s_vectors_of_words() -> None:
    """Also of the markers, given as words."""
    words = (GOLDEN / "allennlp" / "vocab_test.txt").read_text(encoding="utf-8").split("\n")
    assert {"<S>", "</S>"} <= set(words)
    with h5py.File(GOLDEN / "allennlp" / "elmo_token_embeddings.hdf5", "r") as file:
        expected = file["embedding"][()]
    found = Model(golden_bundle("allennlp")).embed([[word] for word in words], layer=0)
    vectors = np.concatenate([each.vectors for each in found])
    assert np.abs(vectors - np.concatenate([expected, expected], axis=-1)).max() < WITHIN


@pytest.mark.filterwarnings("ignore:Of words longer than 48 bytes:polyseme.PolysemeWarning")
def test_embed_equals_the_reference_without_carried_state() -> None:
    loaded, golden = Model(golden_bundle("allennlp")), arrays("activations/reset")
    texts = [words for batch in BATCHES for words in batch]
    found = iter(loaded.embed(texts, layer="all"))
    for number, sentences in enumerate(BATCHES):
        for row, words in enumerate(sentences):
            vectors = next(found).vectors
            for layer in range(3):
                expected = golden[f"batch{number}.layer{layer}"][row, 1 : 1 + len(words)].numpy()
                assert np.abs(vectors[:, layer] - expected).max() < WITHIN


# --- carried state ----------------------------------------------------------------------------------------------------


def test_state_is_carried_only_when_asked_for_and_can_be_forgotten() -> None:
    model = tiny_model("elmo")
    fresh = model.embed("Dawn broke.")[0].vectors
    np.testing.assert_array_equal(model.embed("Dawn broke.")[0].vectors, fresh)
    first = model.embed("Dawn broke.", carry_state=True)[0].vectors
    second = model.embed("Dawn broke.", carry_state=True)[0].vectors
    np.testing.assert_allclose(first, fresh, atol=1e-6)
    assert np.abs(second - first).max() > 1e-2
    np.testing.assert_allclose(model.embed("Dawn broke.")[0].vectors, fresh, atol=1e-6)
    model.forget()
    np.testing.assert_allclose(model.embed("Dawn broke.", carry_state=True)[0].vectors, fresh, atol=1e-6)


def test_more_texts_than_a_batch_has_go_on_from_each_other() -> None:
    """The 65th text goes on from the first."""
    model = tiny_model("elmo")
    texts = [f"Dawn broke {number} times." for number in range(66)]
    found = model.embed(texts, carry_state=True)
    model.forget()
    model.embed(texts[:64], carry_state=True)
    for text, expected in zip(model.embed(texts[64:], carry_state=True), found[64:], strict=True):
        np.testing.assert_allclose(text.vectors, expected.vectors, atol=1e-6)


def test_an_encoder_without_state_cannot_carry_it() -> None:
    with pytest.raises(OptionError, match="no state to carry"):
        tiny_model("bert").embed("Dawn broke.", carry_state=True)


# --- a two-way encoder ------------------------------------------------------------------------------------------------


def small() -> TwoWay:
    encoder = redrawn(build_encoder(FAMILY.tiny()), torch.float64)
    assert isinstance(encoder, TwoWay)
    return encoder


def test_states_are_forward_and_backward_over_one_token_layer() -> None:
    encoder = small()
    batch = ragged_batch(encoder.config)
    with torch.no_grad():
        whole = encoder(batch)
        one, other = (half(batch) for half in encoder.halves())
    for layer in range(4):
        assert torch.equal(whole[layer], torch.cat([one[layer], other[layer]], dim=-1))
    assert torch.equal(one[0], other[0])


@pytest.mark.parametrize("backward", [False, True], ids=["forward half", "backward half"])
def test_two_parts_with_memory_equal_one_pass(backward: bool) -> None:
    """The forward half from the start, the backward half from the end, each row of its own length."""
    encoder = small()
    half = encoder.halves()[backward]
    batch = ragged_batch(encoder.config, lengths=(9, 5, 2))
    assert batch.lengths is not None
    parts = [
        Batch(batch.pieces[:, :4], batch.lengths.clamp(max=4)),
        Batch(batch.pieces[:, 4:], (batch.lengths - 4).clamp(min=0)),
    ]
    with torch.no_grad():
        whole = half(batch, memory=half.new_memory(3))
        memory, found = half.new_memory(3), {}
        for number in (1, 0) if backward else (0, 1):
            states = half(parts[number], memory=memory)
            memory, found[number] = states.memory, states
    for layer in range(4):
        joined = torch.cat([found[0][layer], found[1][layer]], dim=1)
        assert_close(joined[real(batch)], whole[layer][real(batch)], 1e-12)
    assert whole.memory is not None
    assert memory.lengths.tolist() == [9, 5, 2]
    for name, tensor in whole.memory.tensors().items():
        assert_close(memory.tensors()[name], tensor, 1e-12)


def test_a_memory_of_another_kind_or_size_is_refused() -> None:
    encoder = small()
    batch = ragged_batch(encoder.config)
    with pytest.raises(ModelError, match="its memory is of both halves"):
        encoder(batch, memory=encoder.forwards.new_memory(4))
    with pytest.raises(ModelError, match="of 3 rows and the batch of 4"):
        encoder(batch, memory=encoder.new_memory(3))
    with pytest.raises(ModelError, match=r"come as \[rows, pieces, characters\]. Got 2 axes"):
        encoder(Batch(batch.pieces[:, :, 0], batch.lengths))


# --- inference --------------------------------------------------------------------------------------------------------


def flat_rows(encoder: TwoWay, lengths: tuple[int, ...]) -> tuple[PackedRows, Batch]:
    batch = ragged_batch(encoder.config, lengths=lengths)
    return PackedRows(batch.pieces[real(batch)], None, list(lengths)), batch


@pytest.mark.parametrize("at_once", [1, 6, 40, 2048])
def test_stretches_equal_the_forward_pass(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PIECES_AT_ONCE, "cpu", at_once)
    encoder = small()
    rows, batch = flat_rows(encoder, (1, 3, 3, 7, 20, 31))
    inference = build_inference_encoder(encoder)
    assert isinstance(inference, PackedRecurrent)
    with torch.no_grad():
        expected = encoder(batch)
    for layers in ("all", [0], [1, -1]):
        found = inference(rows, layers)
        assert found.keys() == ({0, 1, 2, 3} if layers == "all" else {layer % 4 for layer in layers})
        for layer, vectors in found.items():
            assert_close(vectors, expected[layer][real(batch)], 1e-12)


@pytest.mark.parametrize("at_once", [5, 2048])
def test_carrying_equals_the_memory_of_the_forward_pass(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PIECES_AT_ONCE, "cpu", at_once)
    encoder = small()
    inference = PackedRecurrent(encoder)
    memory: Memory | None = None
    held = encoder.new_memory(4)
    for lengths in ((9, 2, 5), (3, 8), (1, 2, 11, 4)):
        rows, batch = flat_rows(encoder, lengths)
        chosen = torch.arange(len(lengths))
        with torch.no_grad():
            expected = encoder(batch, memory=held.select(chosen))
        assert expected.memory is not None
        held = held.put(chosen, expected.memory)
        found, memory = inference.carry(rows, "all", memory)
        for layer in range(4):
            assert_close(found[layer], expected[layer][real(batch)], 1e-12)
    assert memory is not None
    for name, tensor in held.tensors().items():
        assert_close(memory.tensors()[name], tensor, 1e-12)


def test_the_characters_of_a_word_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("elmo")
    looked_at: list[int] = []
    tokens = model.bundle.encoder.tokens
    assert isinstance(tokens, torch.nn.Module)
    hook = tokens.register_forward_hook(lambda module, given, out: looked_at.append(len(given[0])))
    found = model.embed(["the crane saw the crane", "a crane saw the law " * 900])
    hook.remove()
    assert sum(looked_at) == 5 + 2  # the, crane, saw, a, law, and the markers
    expected = model.embed("the crane saw the crane")[0].vectors
    np.testing.assert_allclose(found[0].vectors, expected, atol=1e-5)


def test_a_long_text_has_no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last word of any text know of each other."""
    monkeypatch.setitem(PIECES_AT_ONCE, "cpu", 16)
    model = tiny_model("elmo")
    encoder = model.bundle.encoder.double()
    words = ["dawn", *["broke"] * 60]
    rows = model.embed([words, ["dusk", *words[1:]]], layer=1)
    difference = np.abs(rows[0].vectors - rows[1].vectors)
    forward, backward = np.split(difference, [encoder.config.widths[1] // 2], axis=1)
    assert forward[20].max() > 1e-4, "the forward half knows of the first word"
    assert backward[1:].max() < 1e-14, "the backward half does not, but for rounding"


# --- the releases -----------------------------------------------------------------------------------------------------


def test_the_releases_have_as_many_layers_and_widths_as_published() -> None:
    for config in SIZES.values():
        assert config.depth == 2
        assert config.direction == "two-way"
    assert SIZES["elmo-original"].widths == (1024, 1024, 1024)
    assert SIZES["elmo-original"].matrix_weights > 75_000_000
    assert dataclasses.replace(SIZES["elmo-small"], width=256, token_width=256).widths == (512, 512, 512)
