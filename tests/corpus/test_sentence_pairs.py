"""Rows of pairs and of whole sentences: what they are made of, how often a pair is none, and what cannot give any."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from corpus.conftest import sentence_pair_rows
from corpus.epochs import epoch_of
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import Layout, RowOptions, RowSource
from polyseme.corpus.sentence_pair_rows import SentencePairs
from polyseme.corpus.whole_sentence_rows import WholeSentences
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.types import Rows
from polyseme.verbs.corpus import build_corpus

LAYOUTS: dict[str, Layout] = {
    "segment-pair": SentencePairs(),
    "segment-pair, order": SentencePairs(others="swapped"),
    "sentence-pair": SentencePairs(unit="sentence"),
    "sentence-pair, order": SentencePairs(unit="sentence", others="swapped"),
    "full-sentences": WholeSentences(),
    "doc-sentences": WholeSentences(across_documents=False),
}
PAIRS = [name for name in LAYOUTS if "pair" in name]
FIELDS = ("pieces", "starts", "special", "keys", "segments", "lengths", "documents", "positions", "next_labels")
every_layout = pytest.mark.parametrize("name", LAYOUTS)
every_pair = pytest.mark.parametrize("name", PAIRS)

pytestmark = pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")


def rows_of(name: str, corpus: Corpus, split: str = "train", **options: Any) -> RowSource:
    return LAYOUTS[name].rows(corpus, RowOptions(split=split, **options))


class Input(NamedTuple):
    """One input of a row, without its specials."""

    row: int
    size: int
    stretches: list[list[int]]
    label: int | None


def inputs_of(rows: Rows, corpus: Corpus) -> list[Input]:
    """The inputs of rows; checked are frames, padding, positions and labels."""
    found = []
    assert rows.lengths is not None
    for row, length in enumerate(rows.lengths.tolist()):
        numbers = np.where(np.arange(rows.pieces.shape[1]) < length, 0, -1)
        numbers = numbers if rows.documents is None else rows.documents[row]
        n_inputs = int(numbers.max()) + 1
        labels = [None] * n_inputs if rows.next_labels is None else rows.next_labels[row].tolist()
        assert set(labels[n_inputs:]) <= {-1}
        for number in range(n_inputs):
            places = np.flatnonzero(numbers == number)
            assert (np.diff(places) == 1).all()
            if rows.positions is not None:
                assert rows.positions[row, places].tolist() == list(range(len(places)))
            if labels[0] is not None:
                assert rows.next_places[row, number] == places[0]
            if rows.segments is None:
                stretches = [rows.pieces[row, places[1:-1]].tolist()]
            else:
                inside = places[~rows.special[row, places]]
                stretches = [rows.pieces[row, inside[rows.segments[row, inside] == each]].tolist() for each in (0, 1)]
            framed = corpus.tokenizer.frame(*(np.array(each) for each in stretches))
            assert all(stretches)
            assert rows.pieces[row, places].tolist() == framed.ids.tolist()
            if rows.segments is not None:
                assert rows.segments[row, places].tolist() == framed.segments.tolist()
            found.append(Input(row, len(places), stretches, labels[number]))
        assert (rows.pieces[row, length:] == corpus.tokenizer.specials["pad"]).all()
        assert rows.special[row, length:].all()
    return found


def documents_of(corpus: Corpus) -> list[str]:
    """The pieces of each document, without its separator, as `written`."""
    shard = corpus.shards("train")[0]
    ends = shard.ends.tolist()
    return [written(shard.pieces[begin : end - 1].tolist()) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def sentences_of(corpus: Corpus) -> list[set[int]]:
    """Where the sentences of each document begin in it, and where the last one ends."""
    shard = corpus.shards("train")[0]
    ends = shard.ends.tolist()
    begins = np.asarray(shard.sentences)
    return [
        {*(begins[(begins >= begin) & (begins < end)] - begin).tolist(), end - begin - 1}
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def written(pieces: list[int]) -> str:
    return f" {' '.join(map(str, pieces))} "


def places_in(documents: list[str], stretch: list[int]) -> set[tuple[int, int]]:
    """Where a stretch of pieces stands in written documents: their numbers, and the places at which it begins."""
    return {
        (number, document.count(" ", 0, found.start()))
        for number, document in enumerate(documents)
        for found in re.finditer(f"(?={written(stretch)})", document)
    }


@every_layout
def test_inputs_are_framed_padded_and_kept_apart(name: str, corpus: Corpus) -> None:
    rows = epoch_of(rows_of(name, corpus, length=40))
    inputs = inputs_of(rows, corpus)
    assert rows.lengths is not None
    assert rows.lengths.max() == 40
    per_row = np.bincount([each.row for each in inputs])
    several = name.startswith(("sentence-pair", "doc-sentences"))
    assert (per_row.max() > 1) == several == (rows.documents is not None)
    assert rows_of(name, corpus, length=40).mean_length == pytest.approx(rows.lengths[:512].mean())
    if name == "segment-pair":
        assert (rows.lengths == 40).mean() > 0.4


@every_pair
def test_the_second_part_follows_or_is_of_another_document_or_both_are_swapped(name: str, corpus: Corpus) -> None:
    length = 200
    rows = epoch_of(rows_of(name, corpus, length=length))
    documents, n_checked = documents_of(corpus), [0, 0]
    for each in inputs_of(rows, corpus)[:120]:
        first, second = each.stretches
        if min(len(first), len(second)) < 8 or each.size == length:  # found elsewhere by chance, or truncated
            continue
        ones, others = places_in(documents, first), places_in(documents, second)
        assert ones
        assert others
        follows = bool({(number, place + len(first)) for number, place in ones} & others)
        precedes = bool({(number, place + len(second)) for number, place in others} & ones)
        assert follows == (each.label == 0)
        assert precedes == (each.label == 1 and "order" in name)
        if each.label == 1 and "order" not in name:
            assert {number for number, _ in others} - {number for number, _ in ones}
        n_checked[each.label or 0] += 1
    assert min(n_checked) > 15


@every_pair
def test_half_of_the_pairs_are_none_and_other_ones_in_every_epoch(name: str, corpus: Corpus) -> None:
    source = rows_of(name, corpus, length=30)
    epochs = [epoch_of(source, epoch) for epoch in range(6)]
    labels = np.concatenate([rows.next_labels[rows.next_labels >= 0] for rows in epochs])
    assert abs(labels.mean() - 0.5) < 5 * np.sqrt(0.25 / labels.size)
    assert len({rows.pieces.tobytes() for rows in epochs}) == 6


def test_one_row_of_segments_in_ten_is_short_and_of_whole_sentences(corpus: Corpus) -> None:
    """As in BERT's program: the row ends with the sentence that reaches a random length."""
    length, n_short, n_long = 90, 0, 0
    documents, sentences = documents_of(corpus), sentences_of(corpus)
    source = rows_of("segment-pair", corpus, length=length)
    for epoch in range(3):
        for each in inputs_of(epoch_of(source, epoch), corpus):
            text = each.stretches[0] + each.stretches[1]
            if each.label == 1 or len(text) < 8:
                continue
            if each.size == length:
                n_long += 1
                continue
            places = places_in(documents, text)
            assert any({place, place + len(text)} <= sentences[number] for number, place in places)
            n_short += all(place + len(text) < max(sentences[number]) for number, place in places)
    assert n_long > 60  # rows at the end of a document are shorter for another reason
    assert 0.05 < n_short / (n_short + n_long) < 0.16


@pytest.mark.parametrize("name", ["full-sentences", "doc-sentences"])
@pytest.mark.parametrize("length", [12, 60])
def test_rows_of_whole_sentences_hold_all_of_the_text_once(name: str, length: int, corpus: Corpus) -> None:
    source = rows_of(name, corpus, length=length)
    inputs = inputs_of(epoch_of(source), corpus)
    separator, documents, sentences = corpus.separator, documents_of(corpus), sentences_of(corpus)
    text = sorted(int(piece) for document in documents for piece in document.split())
    assert sorted(piece for each in inputs for piece in each.stretches[0] if piece != separator) == text
    crossing = sum(separator in each.stretches[0] for each in inputs)
    assert (crossing > 0) == (name == "full-sentences")
    if name == "doc-sentences" and length == 60:
        for each in inputs[:60]:
            places = places_in(documents, each.stretches[0])
            assert any({place, place + len(each.stretches[0])} <= sentences[number] for number, place in places)
        full, apart = (rows_of(each, corpus, length=length).mean_length for each in ("full-sentences", name))
        assert apart > 0.85 * full  # as many pieces in a step, in more inputs


@every_pair
def test_with_the_same_cuts_an_epoch_only_has_another_order(name: str, corpus: Corpus) -> None:
    layout = LAYOUTS[name]
    assert isinstance(layout, SentencePairs)
    source = SentencePairs(same_cuts=True, unit=layout.unit, others=layout.others).rows(corpus, RowOptions(length=30))
    first, second = ({row.tobytes() for row in epoch_of(source, epoch).pieces} for epoch in (0, 1))
    assert first == second
    assert not np.array_equal(epoch_of(source, 0).pieces, epoch_of(source, 1).pieces)


@every_layout
@pytest.mark.parametrize("fixture", ["corpus", "weighted"])
def test_a_row_is_the_same_in_any_batch(name: str, fixture: str, request: pytest.FixtureRequest) -> None:
    source = rows_of(name, request.getfixturevalue(fixture), length=30, seed=4)
    indices = np.random.default_rng(0).integers(0, 3 * source.n_rows, 25)
    together = source.rows(indices)
    for place, index in enumerate(indices.tolist()):
        alone = source.rows(np.array([index]))
        for field in FIELDS:
            ours, theirs = getattr(together, field), getattr(alone, field)
            assert (ours is None) == (theirs is None)
            assert ours is None or np.array_equal(ours[place], theirs[0]), field


@every_layout
def test_weights_decide_how_often_a_source_is_read(name: str, weighted: Corpus) -> None:
    source = rows_of(name, weighted, length=30)
    once = source.rows_by_source  # type: ignore[attr-defined]
    assert source.n_rows == round(2.5 * once[0]) + round(0.5 * once[1])
    held = rows_of(name, weighted, "held", length=30)
    assert held.n_rows == held.rows_by_source.sum()  # type: ignore[attr-defined]
    assert np.array_equal(epoch_of(held, 0).pieces, epoch_of(held, 3).pieces)


def built(tmp_path: Path, text: str, **options: object) -> Corpus:
    (tmp_path / "text.txt").write_text(text)
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        return build_corpus(tmp_path / "text.txt", output=tmp_path / "c", vocab_size=60, **options)  # type: ignore[arg-type]


def test_text_without_pairs_is_refused_in_one_paragraph(tmp_path: Path) -> None:
    one = built(tmp_path, "\n\n".join(f"The vase number {n} broke at dawn." for n in range(30)))
    for name in PAIRS:
        with pytest.raises(
            InputError, match=r"none has two sentences\. Give running text.*--documents.*next=null"
        ) as e:
            rows_of(name, one)
        assert "\n" not in str(e.value)
    (tmp_path / "b").mkdir()
    other = built(tmp_path / "b", "The vase broke. Dawn came. " * 30, held_out=0.0)
    with pytest.raises(InputError, match="has only one document"):
        sentence_pair_rows(other)
    assert rows_of("segment-pair, order", other, length=30).n_rows > 5  # whose order one document tells
    with pytest.raises(OptionError, match="no room for two segments"):
        sentence_pair_rows(other, length=4)
    with pytest.raises(OptionError, match="no room for text"):
        rows_of("full-sentences", other, length=2)


def test_documents_of_one_sentence_are_warned_of_and_held_out_text_without_pairs_too(tmp_path: Path) -> None:
    texts = ["The vase broke.", *(f"Dawn {n} came. The vase broke. News came." for n in range(20))]
    corpus = built(
        tmp_path, "\n\n".join(text.replace("vase", f"vase number {n}") for n, text in enumerate(texts)), held_out=0.0
    )
    for name in PAIRS:
        with pytest.warns(PolysemeWarning, match="1 of 21 documents .train. have only one sentence"):
            source = rows_of(name, corpus, length=30)
        assert source.n_rows > 0
        assert rows_of(name, corpus, "held", length=30).n_rows == 0
