"""A word's type against its uses, against plain loops over the vectors that `embed` gives."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import polyseme
from polyseme.api import Model
from polyseme.errors import InputError, OptionError
from tiny_models import tiny_model

Array = NDArray[Any]
TEXTS = [
    "The vase broke.",
    "Dawn broke.",
    "The news broke; the tire is flat.",
    "A crane caught a fish.",
    "Sandy broke the law, and dawn broke.",
    "I saw a crane.",
]
TOP = 3


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert")


def units_of(model: Model, layer: int) -> tuple[list[str], Array]:
    """All words of the texts, and their vectors at length 1."""
    documents = model.embed(TEXTS, layer=layer)
    vectors = np.concatenate([each.vectors for each in documents]).astype(np.float64)
    words = [word.casefold() for each in documents for word in each.words]
    return words, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_figures_by_layer_equal_their_definitions(model: Model) -> None:
    found = polyseme.uses("Broke", model=model, source=TEXTS)
    with_word = [text for text in TEXTS if "broke" in text]
    documents = [model.embed(with_word, layer=layer) for layer in range(4)]
    rows = [word == "broke" for each in documents[0] for word in each.words]
    layers = [np.concatenate([each.vectors for each in of_layer]).astype(np.float64) for of_layer in documents]
    static = layers[0][rows].mean(axis=0)
    for figures, vectors in zip(found.layers, layers, strict=True):
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        uses, squares = vectors[rows], (vectors[rows] ** 2).sum()
        pairs = [float(one @ other) for one, other in itertools.combinations(units[rows], 2)]
        every = [float(one @ other) for one, other in itertools.combinations(units, 2)]
        assert figures.similarity == pytest.approx(np.mean(pairs), abs=1e-5)
        assert figures.anisotropy == pytest.approx(np.mean(every), abs=1e-5)
        along = (uses @ static / np.linalg.norm(static)) ** 2
        assert figures.explained_by_layer_0 == pytest.approx(along.sum() / squares, abs=1e-5)
        left = ((uses - uses.mean(axis=0)) ** 2).sum() / squares
        assert figures.explained_by_mean == pytest.approx(1 - left, abs=1e-5)
        sizes = np.linalg.svd(uses, compute_uv=False) ** 2
        assert figures.explained_by_component == pytest.approx(sizes[0] / sizes.sum(), abs=1e-5)
        assert figures.explained_by_mean <= figures.explained_by_component + 1e-9
    assert found.data == "the list of texts: 5 uses of 'Broke'"


def test_neighbors_without_and_with_context_are_the_nearest(model: Model) -> None:
    found = polyseme.uses("broke", model=model, source=TEXTS, top=4, near=TOP, shown=3, layer=2)
    words, units = units_of(model, 0)
    means = {
        form: units[[at for at, word in enumerate(words) if word == form]].mean(axis=0) for form in dict.fromkeys(words)
    }
    own = means.pop("broke")
    cosines = {form: float(mean @ own / np.linalg.norm(mean) / np.linalg.norm(own)) for form, mean in means.items()}
    best = sorted(cosines, key=lambda form: -cosines[form])[:4]
    assert [each.word for each in found.static_neighbors] == best
    assert [each.cosine for each in found.static_neighbors] == pytest.approx([cosines[each] for each in best], abs=1e-5)
    _, units = units_of(model, 2)
    places = [(text, word) for text, each in zip(TEXTS, model.embed(TEXTS), strict=True) for word in each.words]
    assert len(found.near) == 3
    for use, near in found.near:
        [row] = [at for at, (text, word) in enumerate(places) if (text, word.start) == (use.text, use.start)]
        expected = sorted(np.delete(units @ units[row], row))[::-1][:TOP]
        assert [each.cosine for each in near] == pytest.approx(expected, abs=1e-5)
        assert all((each.text, each.start) != (use.text, use.start) for each in near)


def test_a_static_model_gives_the_neighbors_without_context(model: Model) -> None:
    static = tiny_model("static")
    found = polyseme.uses("dawn", model=model, source=TEXTS, static=static, top=3)
    forms = sorted(set(units_of(model, 0)[0]))
    vectors = np.concatenate([each.vectors for each in static.embed([[form] for form in forms])]).astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = dict(zip(forms, units @ units[forms.index("dawn")], strict=True))
    del cosines["dawn"]
    assert [each.word for each in found.static_neighbors] == sorted(cosines, key=lambda form: -cosines[form])[:3]


def test_the_matrix_is_of_given_sentences_or_of_the_uses_that_differ_most(model: Model, tmp_path: Path) -> None:
    sentences = ["Dawn broke.", "We broke even.", "The vase broke."]
    found = polyseme.uses("broke", model=model, sentence=sentences, layer=1, output=tmp_path / "broke.json")
    vectors = [model.embed(text, layer=1)[0].vectors[at] for text, at in zip(sentences, (1, 1, 2), strict=True)]
    units = np.stack([each / np.linalg.norm(each) for each in vectors])
    np.testing.assert_allclose(found.matrix.in_context, units @ units.T, atol=1e-5)
    assert (found.near, found.static_neighbors) == ([], [])
    assert json.loads((tmp_path / "broke.json").read_text())["matrix"]["uses"][1]["text"] == "We broke even."
    both = polyseme.uses("broke", model=model, source=TEXTS, shown=2)
    assert len(both.matrix.uses) == 2
    every = polyseme.uses("broke", model=model, source=TEXTS)
    central = int(every.matrix.in_context.sum(axis=1).argmax())
    farthest = int(every.matrix.in_context[central].argmin())
    assert both.matrix.uses == [every.matrix.uses[at] for at in sorted((central, farthest))]


def test_a_draw_is_reported_and_repeatable(model: Model) -> None:
    first, second = (polyseme.uses("broke", model=model, source=TEXTS, max_uses=2, seed=3) for _ in range(2))
    assert first.records() == second.records()
    assert "2 of its 5 uses were sampled." in first.notes
    assert first.seeds == (3,)
    assert (first.layer, polyseme.uses("broke", model=model, source=TEXTS, layer="mean:0:1").layer) == ("3", "mean:0:1")


@pytest.mark.parametrize("family", ["static", "elmo", "gpt2"])
def test_every_encoder_has_uses(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    hostile = ["A <b>crane"] if family == "gpt2" else []  # whose pieces are bytes: nothing is unknown
    found = polyseme.uses("crane", model=model, source=[*TEXTS, *hostile], output=tmp_path / "crane.html")
    assert len(found.records()) == model.bundle.config.depth + 1
    page = (tmp_path / "crane.html").read_text(encoding="utf-8")
    assert "A <b>crane</b>" in page
    assert ("&lt;b&gt;<b>crane</b>" in page) == bool(hostile)
    assert "<b>crane<" not in page.replace("<b>crane</b>", "")
    if family == "static":
        assert found.layers[0].similarity == pytest.approx(1)


def test_one_use_is_said_to_be_one(model: Model) -> None:
    found = polyseme.uses("vase", model=model, source=TEXTS)
    assert any("occurs once, so that no uses are compared" in note for note in found.notes)
    assert found.records()[0]["similarity"] is None
    assert found.near[0].near
    assert "nan" not in found.html()
    json.dumps(found.to_json(), allow_nan=False)


def test_bad_input_is_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'brok' does not occur in .* There is: 'broke' \(5 times\)"):
        polyseme.uses("brok", model=model, source=TEXTS)
    with pytest.raises(OptionError, match="Layer '9' is not there"):
        polyseme.uses("broke", model=model, source=TEXTS, layer=9)
    with pytest.raises(InputError, match=r"does not occur in the sentence 'Dawn came\.'"):
        polyseme.uses("broke", model=model, sentence="Dawn came.")
    with pytest.raises(InputError, match=r"'broke off' does not occur in .* Name a single word\."):
        polyseme.uses("broke off", model=model, sentence="He broke off.")
    with pytest.raises(OptionError, match="Name texts with --in"):
        polyseme.uses("broke", model=model)
    with pytest.raises(OptionError, match="leave out index and static"):
        polyseme.uses("broke", model=model, sentence="Dawn broke.", static=model)
    with pytest.raises(OptionError, match="'shown' must be at least 2"):
        polyseme.uses("broke", model=model, source=TEXTS, shown=1)
    polyseme.embed(TEXTS, model=model, output=tmp_path / "vectors.parquet")
    with pytest.raises(OptionError, match="has vectors of one layer"):
        polyseme.uses("broke", model=model, source=tmp_path / "vectors.parquet")
