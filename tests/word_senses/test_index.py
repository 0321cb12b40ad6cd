"""An index of uses: what it finds, what it keeps, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyseme
from damage import flip_bit
from polyseme.api import Model
from polyseme.embedding.model_fingerprint import differences, fingerprint
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.text.marked_word import MarkedText
from polyseme.text.word_forms import form
from polyseme.text.words import split_words
from polyseme.word_senses import index as index_module
from polyseme.word_senses.index import load_index
from polyseme.word_senses.nearest_neighbors import unit
from polyseme.word_senses.similar_uses import Similar
from text.samples import texts, write_marks
from tiny_models import tiny_model

SENTENCES = [
    "A crane caught a fish.",
    "The Crane picked up the steel beam.",
    "",
    "I saw a crane.",
    "Dawn broke. The news broke.",
    "A crane caught a fish.",
]


@cache
def model() -> Model:
    return tiny_model("bert")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return path


def similar(text: str, source: Path | None = None, **options: Any) -> Similar:
    return polyseme.similar(text, source=source, model=model(), **options)


def test_uses_are_found_as_their_cosines_say(source: Path) -> None:
    found = similar("One [crane] broke a beam.", source, top=100)
    query = next(
        vector for word, vector in zip(*_words_and_vectors("One crane broke a beam."), strict=True) if word == "crane"
    )
    expected = {
        (text, word.start): float(vector @ query / np.linalg.norm(vector) / np.linalg.norm(query))
        for text in SENTENCES
        for word, vector in zip(*_words_and_vectors(text), strict=True)
    }
    every = [*(found.near.same or []), *(found.near.other or [])]
    assert len(every) == sum(len(split_words(text)) for text in SENTENCES) == found.n_uses
    for use in every:
        assert use.text[use.start : use.end] == use.word
        assert use.cosine == pytest.approx(expected[use.text, use.start], abs=1e-5)
        assert SENTENCES[int(use.id) - 1] == use.text
    for near in (found.near.same or [], found.near.other or []):
        assert [use.cosine for use in near] == sorted((use.cosine for use in near), reverse=True)


def test_uses_of_the_word_are_compared_without_their_mean_if_there_are_enough(tmp_path: Path) -> None:
    lines = [f"{start} crane {end}" for start in ("A", "The", "I saw a") for end in ("broke.", "caught a fish.")]
    (tmp_path / "cranes.txt").write_text("\n".join(lines), encoding="utf-8")
    found = similar("One [crane] broke a beam.", tmp_path / "cranes.txt")
    vectors = unit(np.stack([_vector_of("crane", line) for line in lines]))
    query = unit(_vector_of("crane", "One crane broke a beam."))
    expected = unit(vectors - vectors.mean(axis=0)) @ unit(query - vectors.mean(axis=0))
    assert found.near.center
    for use in found.near.same or []:
        assert use.cosine == pytest.approx(expected[int(use.id) - 1], abs=1e-4)
    plain = similar("One [crane] broke a beam.", tmp_path / "cranes.txt", center=False)
    assert not plain.near.center
    for use in plain.near.same or []:
        assert use.cosine == pytest.approx(float(vectors[int(use.id) - 1] @ query), abs=1e-4)


def _vector_of(word: str, text: str) -> Any:
    return dict(zip(*_words_and_vectors(text), strict=True))[word]


def _words_and_vectors(text: str) -> tuple[list[str], Any]:
    [document] = model().embed([text])
    return document.words, document.vectors


def test_uses_of_the_word_itself_whatever_its_case_and_of_others_are_kept_apart(source: Path) -> None:
    found = similar("One [CRANE] broke.", source, top=100)
    assert [use.word for use in found.near.same or []].count("Crane") == 1
    assert {form(use.word) for use in found.near.same or []} == {"crane"}
    assert "crane" not in {form(use.word) for use in found.near.other or []}
    assert found.n_same == 4
    assert similar("One [crane] broke.", source, same_word=True).near.other is None
    assert similar("One [crane] broke.", source, same_word=False).near.same is None


def test_the_marked_use_itself_is_left_out_and_counted(source: Path) -> None:
    found = similar("A [crane] caught a fish.", source, top=100)
    assert found.n_left_out == 2
    assert len(found.near.same or []) == 2
    assert all(use.text != "A crane caught a fish." for use in found.near.same or [])
    assert similar("A crane caught a [fish].", source, same_word=False).n_left_out == 2


def test_the_neighbors_without_context_stand_beside(source: Path) -> None:
    found = similar("A [crane] broke.", source, against=0, top=1)
    assert found.against is not None
    assert found.against.layer == "0"
    [alone] = found.against.same or []
    assert alone.text == "A crane caught a fish."  # at the same place: at layer 0 it is the same
    assert alone.cosine == pytest.approx(1, abs=1e-6)


def test_several_words_can_be_marked_together(source: Path) -> None:
    with pytest.warns(PolysemeWarning, match="'steel beam' does not occur"):
        found = similar("The [steel beam] broke.", source)
    assert found.near.same == []
    assert found.near.other


def test_a_word_that_is_not_there_or_only_as_the_marked_use_is_said(source: Path) -> None:
    with pytest.warns(PolysemeWarning, match=r"'heron' does not occur in .*sentences.txt \(\d+ words\)"):
        assert similar("A [heron].", source).near.same == []
    with pytest.warns(PolysemeWarning, match="'saw' occurs in .* only as the marked use itself"):
        similar("I [saw] a crane.", source)
    with pytest.raises(InputError, match=r"'heron' does not occur.*Look among other words"):
        similar("A [heron].", source, same_word=True)


@pytest.mark.parametrize(("options", "message"), [({"top": 0}, "at least 1"), ({"layer": "all"}, "one vector")])
def test_what_cannot_be_is_refused(source: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        similar("A [crane].", source, **options)


def test_a_text_without_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control.txt").write_text("\x1b\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no words in it"):
        similar("A [crane].", tmp_path / "control.txt")


@settings(max_examples=25)
@given(st.lists(texts.map(lambda text: " ".join(text.split())), min_size=1, max_size=4), st.data())
def test_every_use_of_any_text_finds_its_copy(
    tmp_path_factory: pytest.TempPathFactory, given: list[str], data: st.DataObject
) -> None:
    lines = [line for line in given if "\x00" not in line and split_words(line)]
    if not lines:
        return
    path = tmp_path_factory.mktemp("any") / "texts.txt"
    path.write_bytes("\n".join(["More to come.", *lines]).encode())  # a mark of byte order is one at the start alone
    text = data.draw(st.sampled_from(lines))
    word = data.draw(st.sampled_from(split_words(text)))
    if word == "MASK":
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        found = similar(write_marks(MarkedText(text, word.start, word.end)), path, top=1000)
    assert found.n_left_out == lines.count(text)
    assert found.n_left_out + len(found.near.same or []) + len(found.near.other or []) == found.n_uses


# --- kept in a folder ------------------------------------------------------------------------------------------------


def test_an_index_that_was_kept_finds_the_same(source: Path, tmp_path: Path) -> None:
    made = similar("One [crane] broke.", source, index=tmp_path / "uses", against=0)
    source.unlink()
    asked = similar("One [crane] broke.", index=tmp_path / "uses", against=0)
    assert asked.near == made.near
    assert asked.against == made.against
    assert similar("One [crane] broke.", index=tmp_path / "uses").near == made.near
    assert asked.cost.words == 1
    assert len(load_index(tmp_path / "uses")) == made.n_uses


def test_an_index_of_another_model_is_refused_with_what_differs(source: Path, tmp_path: Path) -> None:
    similar("A [crane].", source, index=tmp_path / "uses")
    other = tiny_model("bert")
    next(other.bundle.encoder.parameters()).data[0, 0] += 1
    with pytest.raises(ModelError, match=r"differs in weights\. Query it with the model"):
        polyseme.similar("A [crane].", index=tmp_path / "uses", model=other)
    with pytest.raises(ModelError, match="differs in tokenizer, config, weights"):
        polyseme.similar("A [crane].", index=tmp_path / "uses", model=tiny_model("roberta"))
    with pytest.raises(ModelError, match="differs in config, weights"):
        polyseme.similar("A [crane].", index=tmp_path / "uses", model=tiny_model("bert", n_layers=2))
    with pytest.raises(ModelError, match=r"differs in layer \(3 there, 1 here\)\. "):
        similar("A [crane].", index=tmp_path / "uses", layer=1)
    with pytest.raises(ModelError, match=r"differs in layer \(3 there, mix:last2:0.5,0.25 here\)"):
        similar("A [crane].", index=tmp_path / "uses", layer="mix:last2:0.5,0.25")
    with pytest.raises(ModelError, match=r"differs in pooling \(mean there, max here\)"):
        similar("A [crane].", index=tmp_path / "uses", pool="max")
    with pytest.raises(ModelError, match="differs in precision"):
        polyseme.similar("A [crane].", index=tmp_path / "uses", model=Model(tiny_model("bert").bundle.double()))


def test_uses_are_compared_by_another_model_too(tmp_path: Path) -> None:
    """With vectors of words alone, every use of a word is alike; an index holds both, each with its own origin."""
    source = tmp_path / "cranes.txt"
    source.write_text("A crane broke.\n" * 4 + "The crane saw a fish.\n" * 4, encoding="utf-8")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("crane 1 0 0\nfish 0.9 0.1 0\nbeam 0 1 0\na 0 0 1\n", encoding="utf-8")
    with pytest.warns(PolysemeWarning, match="The other model's tokenizer has no pieces for"):
        result = similar("A [crane].", source, against=str(vectors), index=tmp_path / "uses")
    assert result.against is not None
    assert result.against.same
    assert [use.cosine for use in result.against.same] == pytest.approx([1.0] * len(result.against.same))
    assert (result.near.center, result.against.center) == (True, False)
    assert (result.against.model, result.against.layer) == (str(vectors), "-1")
    alone = similar("A [crane].", source)
    assert result.near == alone.near
    assert result.cost.pieces > alone.cost.pieces
    assert similar("A [crane].", index=tmp_path / "uses", against=f"{vectors}@0").against is not None
    by_model = similar("A [crane].", source, against=tiny_model("roberta"), top=1)
    itself = polyseme.similar("A [crane].", source=source, model=tiny_model("roberta"), top=1)
    assert by_model.against is not None
    assert by_model.against.other == itself.near.other
    with pytest.warns(PolysemeWarning) as warned:
        similar("The crane [broke].", source, against=str(vectors))
    assert "vectors.txt has no vector for 'broke'" in str(warned[0].message)
    with pytest.raises(OptionError, match="one other layer or model"):
        similar("A [crane].", source, against="a,b")
    with pytest.raises(ModelError, match=r"no model at 'vectos\.txt'"):
        similar("A [crane].", source, against="vectos.txt")


def test_the_same_layer_by_another_name_is_the_same(source: Path, tmp_path: Path) -> None:
    similar("A [crane].", source, index=tmp_path / "uses", layer=-1)
    assert similar("A [crane].", index=tmp_path / "uses", layer="3").near.same


def test_an_index_of_another_text_is_refused_and_replaced_only_by_force(source: Path, tmp_path: Path) -> None:
    similar("A [crane].", source, index=tmp_path / "uses")
    assert similar("A [crane].", source, index=tmp_path / "uses").cost.words == 1
    source.write_text("A crane.\nA crane flew.\n")
    with pytest.raises(InputError, match=r"was made of .*sentences.txt, \d+ bytes, and --in is .* 23 bytes"):
        similar("A [crane].", source, index=tmp_path / "uses")
    assert similar("A [crane].", source, index=tmp_path / "uses", force=True).n_uses == 7
    assert similar("A [crane].", index=tmp_path / "uses").n_uses == 7


def test_a_folder_that_is_no_index_is_never_replaced(source: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear …")
    with pytest.raises(InputError, match="is no index, and is not replaced"):
        similar("A [crane].", source, index=tmp_path / "letters", force=True)
    assert (tmp_path / "letters" / "dear.txt").exists()
    (tmp_path / "empty").mkdir()
    assert similar("A [crane].", source, index=tmp_path / "empty").n_uses


def test_neither_text_nor_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a text nor an index.*--in"):
        similar("A [crane].")
    with pytest.raises(InputError, match=r"There is no index .*uses\. .*--in"):
        similar("A [crane].", index=tmp_path / "uses")


def test_a_damaged_index_is_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "uses"
    similar("A [crane].", source, index=folder)
    vectors = (folder / "vectors-0.f32").read_bytes()
    (folder / "vectors-0.f32").write_bytes(vectors[:-4])
    with pytest.raises(InputError, match=r"damaged .*vectors-0.f32 is not as it was written.*--force"):
        load_index(folder)
    (folder / "vectors-0.f32").write_bytes(vectors)
    for name in ("vectors-0.f32", "texts.arrow", "uses.arrow", "forms.arrow"):
        whole = (folder / name).read_bytes()
        flip_bit(folder / name)
        with pytest.raises(InputError, match=f"{name} is not as it was written"):
            load_index(folder)
        (folder / name).write_bytes(whole)
    assert len(load_index(folder))
    (folder / "uses.arrow").write_bytes(b"")
    with pytest.raises(InputError, match="damaged"):
        load_index(folder)
    card = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**card, "format": 7}))
    with pytest.raises(InputError, match="not of the format"):
        load_index(folder)


def test_nothing_is_left_of_an_index_that_could_not_be_made(source: Path, tmp_path: Path) -> None:
    source.write_bytes(b"fine\n\xff\xfe\xff not\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"UTF-8|line 2"):
        similar("A [crane].", source, index=tmp_path / "uses")
    assert sorted(tmp_path.iterdir()) == before


def test_past_the_limit_a_graph_is_kept_and_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch")
    exact = similar("One [crane] broke.", source, top=3)
    monkeypatch.setattr(index_module, "EXACT_UP_TO", 10)
    found = similar("One [crane] broke.", source, index=tmp_path / "uses", top=3)
    assert (tmp_path / "uses" / "graph-0.usearch").exists()
    assert not found.exact
    assert exact.exact
    for one, other in ((found.near.same, exact.near.same), (found.near.other, exact.near.other)):
        assert [dataclasses.replace(use, cosine=0) for use in one or []] == [
            dataclasses.replace(use, cosine=0) for use in other or []
        ]
        assert [use.cosine for use in one or []] == pytest.approx([use.cosine for use in other or []], abs=1e-5)


def test_a_fingerprint_tells_which_part_differs() -> None:
    one = fingerprint(model().bundle)
    assert one == fingerprint(tiny_model("bert").bundle)
    assert differences(one, fingerprint(model().bundle, "int8")) == ["precision"]
