"""`view`: the cosine of every word to a chosen use, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import polyseme
from polyseme.errors import InputError, OutputError
from polyseme.text.documents import make_document
from polyseme.text.words import split_words
from polyseme.types import EmbeddedDocument
from polyseme.word_senses import similarity_view as view_module
from polyseme.word_senses.similarity_view import view
from tiny_models import tiny_model


def embedded(text: str, vectors: Any) -> EmbeddedDocument:
    words = split_words(text)
    offsets = np.array([(word.start, word.end) for word in words], dtype=np.int64).reshape(-1, 2)
    return EmbeddedDocument(text=text, words=words, offsets=offsets, vectors=np.array(vectors, dtype=np.float32))


EAST, NORTH, WEST, NOWHERE = (1, 0), (0, 1), (-1, 0), (0, 0)
DAWN = embedded("Dawn broke", [NORTH, EAST])
VASE = embedded("The vase Broke", [WEST, (3, 3), (5, 0)])


def test_words_are_compared_with_the_chosen_use() -> None:
    found = view([DAWN, VASE], to="broke")
    assert (found.word, found.use) == ("broke", (0, 1))
    np.testing.assert_allclose(found.cosines[0], [0, 1], atol=1e-12)
    np.testing.assert_allclose(found.cosines[1], [-1, 0.5**0.5, 1], atol=1e-12)
    assert 'title="0.71">vase</span>' in found.html
    assert 'title="1.00">broke</b>' in found.html
    assert "<style>" in found._repr_html_() == found.html


def test_one_document_may_come_alone() -> None:
    np.testing.assert_allclose(view(DAWN, to="Dawn").cosines[0], [1, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("to", "use"), [("Broke", (1, 2)), ("BROKE", (0, 1)), (0, (0, 0)), (1, (0, 1)), ((1, 1), (1, 1)), ("vase", (1, 1))]
)
def test_a_use_is_chosen_by_its_word_or_its_place(to: Any, use: tuple[int, int]) -> None:
    found = view([DAWN, VASE], to=to)
    assert found.use == use
    assert found.word == [DAWN, VASE][use[0]].words[use[1]]


def test_of_several_uses_the_first_is_taken_and_that_is_said() -> None:
    found = view([DAWN, DAWN], to="broke")
    assert found.use == (0, 1)
    assert "one of its 2 uses here" in found.html
    assert "uses here" not in view(DAWN, to="broke").html


def test_a_word_whose_vector_is_zero_has_no_cosine() -> None:
    found = view(embedded("Dawn broke", [NOWHERE, EAST]), to="broke")
    np.testing.assert_array_equal(found.cosines[0], [np.nan, 1])
    assert "no cosine" in found.html


def test_a_document_without_words_is_an_empty_line() -> None:
    found = view([embedded("", np.zeros((0, 2))), DAWN], to="broke")
    assert [len(each) for each in found.cosines] == [0, 2]
    assert found.html.count("<p ") == 2


@pytest.mark.parametrize(("position", "start"), [(0, 0), (25, 23), (49, 46)])
def test_of_many_words_those_around_the_use_are_shown(
    monkeypatch: pytest.MonkeyPatch, position: int, start: int
) -> None:
    monkeypatch.setattr(view_module, "MOST_WORDS", 4)
    text = " ".join(f"w{number}" for number in range(50))
    found = view([embedded(text, [EAST] * 50), DAWN], to=position)
    shown = [number for number in range(50) if f">w{number}<" in found.html.partition("<p ")[2]]
    assert shown == list(range(start, start + 4))
    assert "4 of 52 words are shown." in found.html
    assert len(found.cosines[0]) == 50


@pytest.mark.parametrize(
    ("documents", "to", "said"),
    [
        (DAWN, "brook", "The word 'brook' is not among the words to view. Did you mean 'broke'?"),
        (DAWN, "xyz", "The word 'xyz' is not among the words to view."),
        (DAWN, 2, "There is no word 2 in document 0: it has 2, counted from 0."),
        (DAWN, -1, "There is no word -1 in document 0"),
        (DAWN, (1, 0), "There is no document 1: there are 1"),
        ([], "broke", "There are no words to view."),
        ([make_document("Dawn broke")], "broke", "Got a Document at 0."),
        (["Dawn broke"], "broke", "as embed returns them. Got a str at 0."),
        ([DAWN, embedded("a", [(1, 2, 3)])], "broke", "Document 1 has vectors of width 3, and the first of width 2."),
        (embedded("a", [[EAST, WEST]]), "a", "Embed with one layer."),
        (embedded("a b", [EAST, NOWHERE]), "b", "The vector of 'b' is zero"),
    ],
)
def test_what_cannot_be_viewed_is_refused(documents: Any, to: Any, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        view(documents, to=to)
    assert said in str(refusal.value)


def test_a_view_is_saved_as_a_page_of_its_own(tmp_path: Path) -> None:
    found = view(embedded("Dawn <b> \ud800", [NORTH] * 5), to="Dawn")
    found.save(tmp_path / "view.html")
    page = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert found.html in page
    assert "script-src 'none'" in page
    with pytest.raises(OutputError):
        found.save(tmp_path / "view.html")
    found.save(tmp_path / "view.html", force=True)


def test_what_embed_returns_is_viewed() -> None:
    [found] = tiny_model("bert").embed("Dawn broke, and the vase broke.")
    shown = polyseme.view(found, to="broke")
    assert shown.cosines[0][1] == pytest.approx(1)
    assert shown.cosines[0].tolist() == pytest.approx(by_definition(found.vectors, 1))
    assert len(repr(shown)) < 80


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("Dawn broke, and the vase broke as it fell.", "broke"),
        ("We broke even", "broke"),
        ("It is so", "It"),
    ],
)
def test_a_document_shows_itself_by_its_most_telling_word(text: str, chosen: str) -> None:
    [found] = tiny_model("bert").embed(text)
    assert found._repr_html_() == view(found, to=chosen).html


def test_a_word_without_a_direction_is_not_chosen() -> None:
    document = embedded("Dawn broke the vase", [EAST, NOWHERE, (np.nan, 1), NORTH])
    assert document._repr_html_() == view(document, to="Dawn").html


@pytest.mark.parametrize(
    "settings", [{"layer": "all"}, {"per": "text"}, {"texts": ""}], ids=["all layers", "per text", "no words"]
)
def test_a_document_with_nothing_to_compare_shows_itself_as_it_did(settings: dict[str, Any]) -> None:
    [found] = tiny_model("bert").embed(**{"texts": "Dawn broke.", **settings})
    assert found._repr_html_() is None
    assert embedded("Dawn broke", [NOWHERE, NOWHERE])._repr_html_() is None


def by_definition(vectors: NDArray[Any], chosen: int) -> list[float]:
    to = vectors[chosen].astype(float)
    return [float(np.dot(each, to) / np.sqrt(np.dot(each, each) * np.dot(to, to))) for each in vectors.astype(float)]
