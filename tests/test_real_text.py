"""The real MiniLM over real sentences: equal to the reference, and each word's vector its own (rules 2 and 9)."""

from __future__ import annotations

import lzma
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import polyseme
from polyseme.api import Model
from polyseme.types import EmbeddedDocument

Array = NDArray[Any]
N_SENTENCES = 50
TOLERANCE = 1e-5
"""Of the largest value of the layer compared."""


@pytest.fixture(scope="module")
def sentences(data: Path) -> list[str]:
    """Sentences of the English Web Treebank as they were written: mail, reviews, forums, of 1 to 60 words."""
    with lzma.open(data / "tasks" / "ud-ewt" / "en_ewt-ud-dev.conllu.xz", "rt", encoding="utf-8") as file:
        texts = [line.removeprefix("# text = ").rstrip("\n") for line in file if line.startswith("# text = ")]
    return random.Random(0).sample(texts, N_SENTENCES)


@pytest.fixture(scope="module")
def minilm() -> Model:
    return polyseme.load("minilm", device="cpu")


@pytest.fixture(scope="module")
def together(minilm: Model, sentences: list[str]) -> list[EmbeddedDocument]:
    """All sentences in one call, all layers."""
    return minilm.embed(sentences, layer="all")


class Reference:
    """What `transformers` makes of one sentence at a time."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoTokenizer, BertModel

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = BertModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()

    def __call__(self, text: str) -> tuple[Array, Array, Array]:
        """Ids [n], places in the text [n, 2], states [layers, n, D]."""
        encoded = self.tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        places = encoded.pop("offset_mapping")[0].numpy()
        with torch.no_grad():
            states = self.model(**encoded, output_hidden_states=True).hidden_states
        return encoded["input_ids"][0].numpy(), places, torch.cat(states).numpy()


@pytest.fixture(scope="module")
def expected(minilm: Model, sentences: list[str]) -> list[tuple[Array, Array, Array]]:
    reference = Reference(minilm.path)
    return [reference(text) for text in sentences]


def assert_same_layers(found: Array, wanted: Array) -> None:
    """[…, layers, D] or [layers, …, D], moved so that layers come first; to 1e-5 of each layer's largest value."""
    assert found.shape == wanted.shape
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * np.abs(theirs).max())


def by_layer(documents: list[EmbeddedDocument]) -> Array:
    """[layers, words, D]"""
    return np.concatenate([each.vectors for each in documents]).transpose(1, 0, 2)


# --- equal to the reference -------------------------------------------------------------------------------------------


def test_every_layer_of_every_sentence_equals_the_reference(
    minilm: Model, sentences: list[str], expected: list[tuple[Array, Array, Array]]
) -> None:
    for text, (ids, _, states) in zip(sentences, expected, strict=True):
        found = minilm.pieces(text)
        assert found.ids.tolist() == ids.tolist()
        assert_same_layers(found.states, states)


def test_word_vectors_are_the_reference_pooled_by_hand(
    together: list[EmbeddedDocument], expected: list[tuple[Array, Array, Array]]
) -> None:
    by_hand = []
    for embedded, (_, places, states) in zip(together, expected, strict=True):
        for word in embedded.words:
            of_word = [n for n, (start, end) in enumerate(places) if start < word.end and word.start < end]
            assert of_word
            by_hand.append(states[:, of_word].mean(axis=1))
    assert_same_layers(by_layer(together), np.stack(by_hand, axis=1))


# --- same word, same context, same vector -----------------------------------------------------------------------------


def test_alone_or_together(minilm: Model, sentences: list[str], together: list[EmbeddedDocument]) -> None:
    alone = [minilm.embed(text, layer="all")[0] for text in sentences]
    assert_same_layers(by_layer(alone), by_layer(together))


def test_in_any_order(minilm: Model, sentences: list[str], together: list[EmbeddedDocument]) -> None:
    order = random.Random(1).sample(range(N_SENTENCES), N_SENTENCES)
    shuffled = minilm.embed([sentences[place] for place in order], layer="all")
    back = sorted(zip(order, shuffled, strict=True), key=lambda pair: pair[0])
    assert_same_layers(by_layer([each for _, each in back]), by_layer(together))


@pytest.mark.parametrize("batch_pieces", [1, 64, 10**9])
def test_in_batches_of_any_size(
    minilm: Model, sentences: list[str], together: list[EmbeddedDocument], batch_pieces: int
) -> None:
    found = minilm.embed(sentences, layer="all", batch_pieces=batch_pieces)
    assert_same_layers(by_layer(found), by_layer(together))


def test_among_strangers(minilm: Model, sentences: list[str], together: list[EmbeddedDocument]) -> None:
    """A long document and an empty one beside it change no sentence."""
    found = minilm.embed([" ".join(sentences * 2), *sentences[:20], ""], layer="all")
    assert len(found[0].words) > 1000
    assert_same_layers(by_layer(found[1:21]), by_layer(together[:20]))


# --- context ----------------------------------------------------------------------------------------------------------


def test_a_word_has_as_many_vectors_as_it_has_contexts(minilm: Model) -> None:
    """Layer 0 tells apart only where *broke* stands; the top layer knows the two senses that are alike."""
    texts = ["Sandy broke the law.", "Sandy broke the rules.", "Sandy broke the vase."]

    def similarity(layer: int) -> Array:
        vectors = np.stack([each.vectors[1] for each in minilm.embed(texts, layer=layer)])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors @ vectors.T

    np.testing.assert_allclose(similarity(0), 1, atol=1e-5)
    top = similarity(-1)
    assert top[0, 1] > top[0, 2]
    assert top[0, 1] > top[1, 2]
