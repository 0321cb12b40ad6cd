"""Rows of two segments: what they are made of, how often the second is random, and what cannot give any."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from corpus.conftest import sentence_pair_rows
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowOptions
from polyseme.corpus.sentence_pair_rows import SentencePairRows, SentencePairs
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.types import Rows
from polyseme.verbs.corpus import build_corpus

FIELDS = ("pieces", "starts", "special", "keys", "segments", "lengths", "next_labels")

pytestmark = pytest.mark.filterwarnings("ignore::polyseme.errors.PolysemeWarning")


def epoch_of(source: SentencePairRows, epoch: int = 0) -> Rows:
    return source.rows(np.arange(source.n_rows) + epoch * source.n_rows)


def documents_of(corpus: Corpus, split: str = "train") -> list[list[int]]:
    """The pieces of each document, without its separator."""
    shard = corpus.shards(split)[0]
    ends = shard.ends.tolist()
    return [shard.pieces[begin : end - 1].tolist() for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def places_in(documents: list[list[int]], stretch: list[int]) -> set[tuple[int, int]]:
    """Where a stretch of pieces stands: documents, and the places in them at which it begins."""
    n = len(stretch)
    return {
        (number, place)
        for number, pieces in enumerate(documents)
        for place in range(len(pieces) - n + 1)
        if pieces[place : place + n] == stretch
    }


def segments_of(rows: Rows, row: int) -> list[list[int]]:
    inside = ~rows.special[row]
    assert rows.segments is not None
    return [rows.pieces[row][inside & (rows.segments[row] == segment)].tolist() for segment in (0, 1)]


def test_rows_are_framed_and_padded_as_berts(corpus: Corpus) -> None:
    rows = epoch_of(sentence_pair_rows(corpus, length=40))
    specials = corpus.tokenizer.specials
    assert rows.lengths is not None
    for row, length in enumerate(rows.lengths.tolist()):
        first, second = segments_of(rows, row)
        framed = corpus.tokenizer.frame(np.array(first), np.array(second))
        assert first
        assert second
        assert rows.pieces[row, :length].tolist() == framed.ids.tolist()
        assert rows.segments[row, :length].tolist() == framed.segments.tolist()
        assert (rows.pieces[row, length:] == specials["pad"]).all()
        assert (rows.segments[row, length:] == 0).all()
        assert rows.special[row, length:].all()
    assert rows.lengths.max() == 40
    assert (rows.lengths == 40).mean() > 0.4


def test_the_second_segment_follows_or_is_of_another_document(corpus: Corpus) -> None:
    rows = epoch_of(sentence_pair_rows(corpus, length=200))
    documents = documents_of(corpus)
    n_checked = 0
    for row, label in enumerate(rows.next_labels.tolist()):
        first, second = segments_of(rows, row)
        if len(first) < 8 or len(second) < 8 or rows.lengths[row] == 200:  # found elsewhere by chance, or truncated
            continue
        ones, others = places_in(documents, first), places_in(documents, second)
        assert ones
        assert others
        after = {(number, place + len(first)) for number, place in ones}
        if label == 0 and not after & others:
            continue  # one of the rows that are made short
        n_checked += 1
        assert bool(after & others) == (label == 0)
        if label == 1:
            assert {number for number, _ in others} - {number for number, _ in ones}
    assert n_checked > 40


def test_half_of_the_rows_are_random_and_other_ones_in_every_epoch(corpus: Corpus) -> None:
    source = sentence_pair_rows(corpus, length=30)
    labels = np.stack([epoch_of(source, epoch).next_labels for epoch in range(8)])
    assert abs(labels.mean() - 0.5) < 5 * np.sqrt(0.25 / labels.size)
    contents = {epoch_of(source, epoch).pieces.tobytes() for epoch in range(8)}
    assert len(contents) == 8


def test_with_the_same_cuts_an_epoch_only_has_another_order(corpus: Corpus) -> None:
    source = SentencePairs(same_cuts=True).rows(corpus, RowOptions(length=30))
    first, second = ({row.tobytes() for row in epoch_of(source, epoch).pieces} for epoch in (0, 1))
    assert first == second
    assert not np.array_equal(epoch_of(source, 0).pieces, epoch_of(source, 1).pieces)


@pytest.mark.parametrize("name", ["corpus", "weighted"])
def test_a_row_is_the_same_in_any_batch(name: str, request: pytest.FixtureRequest) -> None:
    source = sentence_pair_rows(request.getfixturevalue(name), length=30, seed=4)
    indices = np.random.default_rng(0).integers(0, 3 * source.n_rows, 40)
    together = source.rows(indices)
    for place, index in enumerate(indices.tolist()):
        alone = source.rows(np.array([index]))
        for field in FIELDS:
            assert np.array_equal(getattr(together, field)[place], getattr(alone, field)[0]), field


def test_weights_decide_how_often_a_source_is_read(weighted: Corpus) -> None:
    source = sentence_pair_rows(weighted, length=30)
    once = source.rows_by_source
    assert source.n_rows == round(2.5 * once[0]) + round(0.5 * once[1])
    held = sentence_pair_rows(weighted, "held", length=30)
    assert held.n_rows == held.rows_by_source.sum()
    assert np.array_equal(epoch_of(held, 0).pieces, epoch_of(held, 3).pieces)


def built(tmp_path: Path, text: str, **options: object) -> Corpus:
    (tmp_path / "text.txt").write_text(text)
    with warnings.catch_warnings(action="ignore", category=PolysemeWarning):
        return build_corpus(tmp_path / "text.txt", output=tmp_path / "c", vocab_size=60, **options)  # type: ignore[arg-type]


def test_text_without_pairs_is_refused_in_one_paragraph(tmp_path: Path) -> None:
    one = built(tmp_path, "\n\n".join(f"The vase number {n} broke at dawn." for n in range(30)))
    with pytest.raises(InputError, match=r"none has two sentences\. Give running text.*--documents.*next=nsp") as error:
        sentence_pair_rows(one)
    assert "\n" not in str(error.value)
    (tmp_path / "b").mkdir()
    other = built(tmp_path / "b", "The vase broke. Dawn came. " * 30, held_out=0.0)
    with pytest.raises(InputError, match="has only one document"):
        sentence_pair_rows(other)
    with pytest.raises(OptionError, match="no room for two segments"):
        sentence_pair_rows(other, length=4)


def test_documents_of_one_sentence_are_warned_of_and_held_out_text_without_pairs_too(tmp_path: Path) -> None:
    texts = ["The vase broke.", *(f"Dawn {n} came. The vase broke. News came." for n in range(20))]
    corpus = built(
        tmp_path, "\n\n".join(text.replace("vase", f"vase number {n}") for n, text in enumerate(texts)), held_out=0.0
    )
    with pytest.warns(PolysemeWarning, match="1 of 21 documents .train. have only one sentence"):
        source = sentence_pair_rows(corpus, length=30)
    assert source.n_rows > 0
    assert sentence_pair_rows(corpus, "held", length=30).n_rows == 0
