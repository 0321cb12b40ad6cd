"""The geometry of layers, against its definitions computed at once with plain loops."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import polyseme
from polyseme.analysis import layers_of_words
from polyseme.analysis.moments import CrossMoments, Directions, explained_by_first
from polyseme.analysis.use_sample import UseSample
from polyseme.api import Model
from polyseme.errors import InputError, ModelError, OptionError
from polyseme.types import EmbeddedDocument
from tiny_models import tiny_model

Array = NDArray[Any]
TEXTS = [
    "The vase broke.",
    "Dawn broke.",
    "The news broke; the tire is flat.",
    "A crane caught a fish.",
    "I saw a crane, and the beer is flat.",
    "Sandy broke the law.",
]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers_of_words, "WORDS_AT_ONCE", 7)


def cosine(one: Array, other: Array) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def mean_of_pairs(vectors: Array) -> float:
    return float(np.mean([cosine(one, other) for one, other in itertools.combinations(vectors, 2)]))


def cka_at_once(first: Array, second: Array) -> float:
    """By Gram matrices, as Kornblith et al. define it."""
    center = np.eye(len(first)) - 1 / len(first)
    one, other = (center @ (each @ each.T) @ center for each in (first, second))
    return float(np.trace(one @ other) / np.sqrt(np.trace(one @ one) * np.trace(other @ other)))


def doubles(documents: list[EmbeddedDocument]) -> list[Array]:
    return [each.vectors.astype(np.float64) for each in documents]


# --- sums -------------------------------------------------------------------------------------------------------------


def test_cka_added_up_equals_the_definition_at_once() -> None:
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(60, width)) @ rng.normal(size=(width, width)) + 50 for width in (5, 8, 3)]
    moments = CrossMoments([5, 8, 3])
    for part in np.split(np.arange(60), [1, 7, 40]):
        moments.add([each[part] for each in sets])
    for row, column in itertools.product(range(3), repeat=2):
        assert moments.cka(row, column) == pytest.approx(cka_at_once(sets[row], sets[column]), rel=1e-10)
    rotation, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    moments = CrossMoments([5, 5])
    moments.add([sets[0], 3 * sets[0] @ rotation + 1])
    assert moments.cka(0, 1) == pytest.approx(1, abs=1e-10)


def test_anisotropy_is_the_mean_cosine_of_all_pairs_and_zero_vectors_have_none() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(40, 6)) + 0.5
    vectors[3] = 0
    directions = Directions(6)
    directions.add(vectors[:25], [10, 15], first=0)
    directions.add(vectors[25:], [14, 1], first=2)
    assert directions.anisotropy == pytest.approx(mean_of_pairs(np.delete(vectors, 3, axis=0)), rel=1e-10)
    assert directions.n_zero == 1
    parts = [np.arange(10), np.arange(10, 25), np.arange(25, 39), np.array([39])]
    left = np.array([mean_of_pairs(np.delete(vectors, np.union1d(part, [3]), axis=0)) for part in parts])
    assert directions.anisotropy_error == pytest.approx(np.sqrt(3 / 4 * ((left - left.mean()) ** 2).sum()), rel=1e-8)


def test_a_removal_takes_out_the_mean_and_the_first_components() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(50, 6)) * [9, 5, 1, 1, 1, 1] + 20
    moments = CrossMoments([6])
    moments.add([vectors])
    left = moments.removal(0, 2)(vectors)
    centered = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    np.testing.assert_allclose(left, centered - centered @ axes[:2].T @ axes[:2], atol=1e-9)


def test_explained_variance_is_that_of_singular_values() -> None:
    vectors = np.random.default_rng(3).normal(size=(7, 12))
    sizes = np.linalg.svd(vectors, compute_uv=False) ** 2
    assert explained_by_first(vectors) == pytest.approx(sizes[0] / sizes.sum())
    assert explained_by_first(np.ones((4, 3))) == pytest.approx(1)


def test_uses_are_drawn_with_equal_chances_by_a_seed() -> None:
    taken = np.zeros(40)
    for seed in range(400):
        sample = UseSample(max_uses=10, seed=seed)
        sample.read(["word"] * 40)
        [places] = sample.drawn(5, 2).values()
        assert len(set(places)) == 10
        taken[places] += 1
    assert np.abs(taken - 100).max() < 45  # five standard deviations
    sample = UseSample(max_uses=3, seed=1)
    sample.read(["Dawn", "broke", "dawn", "once"])
    sample.read(["broke"])
    assert sample.drawn(9, 2) == {"broke": [1, 4], "dawn": [0, 2]}
    assert len(sample.drawn(1, 2)) == 1


# --- the verb ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
def test_all_figures_equal_their_definitions(model: Model) -> None:
    found = polyseme.geometry(model=model, source=TEXTS, min_uses=2, remove_components=1)
    assert [each.layer for each in found.layers] == [0, 1, 2, 3] * 2
    layers = [doubles(model.embed(TEXTS, layer=layer)) for layer in range(4)]
    forms = [word.casefold() for document in model.embed(TEXTS) for word in document.words]
    types = sorted({each for each in forms if forms.count(each) > 1})
    for number, documents in enumerate(layers):
        words = np.concatenate(documents)
        centered = words - words.mean(axis=0)
        _, _, axes = np.linalg.svd(centered, full_matrices=False)
        left = centered - centered @ axes[:1].T @ axes[:1]
        starts = np.cumsum([len(each) for each in documents])[:-1]
        for figures, vectors in ((found.layers[number], words), (found.layers[4 + number], left)):
            anisotropy = mean_of_pairs(vectors)
            uses = [vectors[[at for at, each in enumerate(forms) if each == word]] for word in types]
            of_texts = [
                np.mean([cosine(word, text.mean(axis=0)) for word in text]) for text in np.split(vectors, starts)
            ]
            assert figures.norm == pytest.approx(np.linalg.norm(vectors, axis=1).mean(), rel=1e-4)
            assert figures.anisotropy == pytest.approx(anisotropy, abs=1e-4)
            assert figures.self_similarity.mean == pytest.approx(np.mean([*map(mean_of_pairs, uses)]), abs=1e-4)
            assert figures.intra_sentence.mean == pytest.approx(np.mean(of_texts), abs=1e-4)
            assert figures.explained.mean == pytest.approx(np.mean([*map(explained_by_first, uses)]), abs=1e-4)
            assert figures.self_similarity.adjusted == pytest.approx(
                figures.self_similarity.mean - anisotropy, abs=1e-4
            )
        for other, vectors in enumerate(map(np.concatenate, layers)):
            assert found.cka[number][other] == pytest.approx(cka_at_once(words, vectors), abs=1e-4)


@pytest.mark.parametrize("family", ["static", "elmo", "flair", "awd-lstm", "gpt2"])
def test_every_layer_of_every_encoder(family: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"width": 20} if family == "awd-lstm" else {}  # layers of two widths
    model = tiny_model(family, **changes)
    found = polyseme.geometry(model=model, source=TEXTS, min_uses=2, output=tmp_path / "geometry.html")
    depth = model.bundle.config.depth
    assert len(found.records()) == 2 * (depth + 1)
    assert np.shape(found.cka) == (depth + 1, depth + 1)
    np.testing.assert_allclose(np.diag(found.cka), 1, atol=1e-9)
    assert "<script" not in (tmp_path / "geometry.html").read_text(encoding="utf-8")
    assert ("<svg" in (tmp_path / "geometry.html").read_text(encoding="utf-8")) == (depth > 0)


def test_a_model_against_itself_and_with_one_layer_moved(model: Model) -> None:
    same = polyseme.geometry(model=model, source=TEXTS, against=model)
    assert [each.states for each in same.changes] == [0] * 4
    assert [each.weights for each in same.changes] == [0] * 4
    assert max(abs(each.one_minus_cka) for each in same.changes) < 1e-6
    moved = tiny_model("bert")
    with torch.no_grad():
        for parameter in moved.bundle.encoder.layer_groups()[2]:
            parameter.mul_(1.5)
    found = polyseme.geometry(model=moved, source=TEXTS, against=model)
    assert [each.weights for each in found.changes] == pytest.approx([0, 0, 0.5, 0], abs=1e-6)
    assert [each.states > 1e-3 for each in found.changes] == [False, False, True, True]
    assert [each.one_minus_cka > 1e-4 for each in found.changes] == [False, False, True, True]
    assert found.to_json()["changes"][2]["weights"] == pytest.approx(0.5)


def test_models_with_other_pieces_are_aligned_by_words(model: Model) -> None:
    other = tiny_model("gpt2")
    found = polyseme.geometry(model=model, source=TEXTS, against=other)
    own, theirs = ([np.concatenate(doubles(each.embed(TEXTS, layer=at))) for at in (0, 2)] for each in (model, other))
    assert found.cka_against[2][2] == pytest.approx(cka_at_once(own[1], theirs[1]), abs=1e-4)
    assert found.cka_against[0][2] == pytest.approx(cka_at_once(own[0], theirs[1]), abs=1e-4)
    assert not found.changes
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["cka_against"] == found.cka_against


def test_few_words_are_said_to_be_few(model: Model) -> None:
    found = polyseme.geometry(model=model, source=["Dawn broke."], max_words=2)
    assert "±" not in found.rows()[0][3]
    for words in ("only one text", "No word occurs 5", "CKA is biased"):
        assert any(words in note for note in found.notes)
    assert found.records()[0]["self_similarity"] is None
    assert "nan" not in found.html()
    with pytest.raises(InputError, match="has 1 word,"):
        polyseme.geometry(model=model, source=["Dawn"])


def test_what_cannot_be_measured_is_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="at most 31 components"):
        polyseme.geometry(model=model, source=TEXTS, remove_components=32)
    with pytest.raises(OptionError, match="'min_uses' must be at least 2"):
        polyseme.geometry(model=model, source=TEXTS, min_uses=1)
    arpa = tmp_path / "words.arpa"
    arpa.write_text("\\data\\\nngram 1=4\n\n\\1-grams:\n-0.5 <unk>\n-0.5 <s>\n-0.5 </s>\n-0.5 dawn\n\n\\end\\\n")
    with pytest.raises(ModelError, match="no encoder"):
        polyseme.geometry(model=arpa, source=TEXTS)
