"""Texts in pairs: read line by line, kept side by side, several in a row."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.conftest import packed_rows, parallel_rows
from corpus.epochs import epoch_of
from corpus.texts import made_up
from polyseme.corpus import build
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.layout import RowOptions
from polyseme.corpus.padded_pairs import PaddedPairs
from polyseme.corpus.parallel_text import NOBODY, pair_sources
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.types import Rows
from polyseme.verbs.corpus import build_corpus

SETTINGS: dict[str, Any] = {"tokenizer": "byte-bpe", "frame": "transformer", "vocab_size": 400}


def write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def lines() -> tuple[list[str], list[str]]:
    """Pairs of which the one side is the other with its words turned round, and one word more."""
    source = [line for text in made_up(60, seed=4) for line in text.splitlines()]
    return source, [" ".join(["Mehr", *reversed(line.split())]) for line in source]


@pytest.fixture(scope="module")
def pairs(lines: tuple[list[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("pairs")
    source, target = (write(folder, name, side) for name, side in zip("ab", lines, strict=True))
    return build_corpus(source=source, target=target, output=folder / "c", held_out=0.2, **SETTINGS)


def texts_of(rows: Rows, corpus: Corpus) -> list[tuple[str, str]]:
    """Every pair of some rows, decoded."""
    assert rows.target is not None
    assert rows.documents is not None
    found = []
    for row, documents in enumerate(rows.documents):
        for number in range(int(documents.max()) + 1):
            sides = []
            for side in (rows, rows.target):
                assert side.documents is not None
                sides.append(corpus.tokenizer.decode(side.pieces[row][side.documents[row] == number]))
            found.append((sides[0], sides[1]))
    return found


# --- a corpus of two sides -------------------------------------------------------------------------------------------


def test_every_pair_is_there_once_on_one_side_of_the_split(pairs: Corpus, lines: tuple[list[str], list[str]]) -> None:
    assert pairs.sides == ("source", "target")
    found = [texts_of(epoch_of(parallel_rows(pairs, split, length=400)), pairs) for split in ("train", "held")]
    assert sorted(found[0] + found[1]) == sorted(zip(*lines, strict=True))
    assert len(found[1]) == pairs.n_documents("held") == pytest.approx(0.2 * len(lines[0]), rel=0.4)
    assert pairs.n_documents("train") == len(found[0])
    by_side = [pairs.counts("train", side) for side in pairs.sides]
    assert by_side[0].documents == by_side[1].documents == len(found[0])
    assert pairs.n_pieces("train") == sum(counts.pieces for counts in by_side)
    assert pairs.unigram_entropy() == pairs.unigram_entropy(side="target") != pairs.unigram_entropy(side="source")
    pairs.check()


def test_several_packed_files_and_pairs_to_hold_out_by_name(lines: tuple[list[str], list[str]], tmp_path: Path) -> None:
    named: dict[str, Any] = {}
    for side, its in zip(("source", "target"), lines, strict=True):
        parts = [write(tmp_path, f"{side}1", its[:50]), tmp_path / f"{side}2.xz"]
        parts[1].write_bytes(lzma.compress("".join(f"{line}\n" for line in its[50:90]).encode()))
        named[side] = parts
        named[f"held_{side}"] = write(tmp_path, f"held.{side}", its[90:100])
    corpus = build_corpus(**named, output=tmp_path / "c", **SETTINGS)
    held, train = (texts_of(epoch_of(parallel_rows(corpus, split, length=400)), corpus) for split in ("held", "train"))
    assert held == list(zip(lines[0][90:100], lines[1][90:100], strict=True))
    assert sorted(train) == sorted(zip(lines[0][:90], lines[1][:90], strict=True))
    again = build_corpus(**named, output=tmp_path / "c", reuse=True, **SETTINGS)
    assert again.fingerprint == corpus.fingerprint


def test_workers_change_nothing(pairs: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "STRETCH", 1)  # so that workers start before there is work
    folder = pairs.folder.parent
    named = {"source": folder / "a", "target": folder / "b"}
    again = build_corpus(**named, output=tmp_path / "c", held_out=0.2, workers=2, tokenizer=pairs.folder / "tokenizer")  # type: ignore[arg-type]
    for side in pairs.sides:
        for split in ("train", "held"):
            one, other = (each.shards(split, side)[0] for each in (pairs, again))
            assert np.array_equal(one.pieces, other.pieces)
            assert np.array_equal(one.ends, other.ends)


def test_one_pair_is_held_out_where_chance_held_out_none(tmp_path: Path) -> None:
    one, other = write(tmp_path, "a", ["one", "two", "three"]), write(tmp_path, "b", ["eins", "zwei", "drei"])
    corpus = build_corpus(
        source=one, target=other, output=tmp_path / "c", held_out=1e-9, **{**SETTINGS, "vocab_size": 261}
    )
    held, train = (texts_of(epoch_of(parallel_rows(corpus, split)), corpus) for split in ("held", "train"))
    assert len(held) == 1
    assert sorted(held + train) == [("one", "eins"), ("three", "drei"), ("two", "zwei")]


def test_lines_that_are_empty_on_both_sides_are_left_out_and_said(tmp_path: Path) -> None:
    one, other = write(tmp_path, "a", ["one", "", "three"]), write(tmp_path, "b", ["eins", " ", "drei"])
    with pytest.warns(PolysemeWarning, match="1 empty document was left out"):
        corpus = build_corpus(
            source=one, target=other, output=tmp_path / "c", held_out=0, **{**SETTINGS, "vocab_size": 261}
        )
    assert corpus.n_documents() == 2


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (["a", "b", "c"], ["a", "b"], r"b has 2 lines, and \S+a continues with line 3"),
        (["a"], ["a", "b", "c"], r"a has 1 lines, and \S+b continues with line 2"),
        (["a", "b"], ["a", ""], r"b, line 2: it is empty, and line 2 of \S+a is not. A source needs its target"),
        (["a", " ", "c"], ["a", "b", "c"], r"a, line 2: it is empty"),
    ],
)
def test_sides_that_do_not_match_are_refused_by_line(
    one: list[str], other: list[str], said: str, tmp_path: Path
) -> None:
    source, target = write(tmp_path, "a", one), write(tmp_path, "b", other)
    with pytest.raises(InputError, match=said):
        build_corpus(source=source, target=target, output=tmp_path / "c", **SETTINGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_sides_that_are_not_named_as_they_should_be_are_refused(pairs: Corpus, tmp_path: Path) -> None:
    a, b = (pairs.folder.parent / name for name in "ab")
    with pytest.raises(OptionError, match=r"'source' was given without 'target'.*--source … --target"):
        build_corpus(source=a, output=tmp_path / "c")
    with pytest.raises(OptionError, match="'held_target' was given without 'held_source'"):
        build_corpus(source=a, target=b, held_target=b, output=tmp_path / "c")
    with pytest.raises(OptionError, match="by themselves and in pairs"):
        build_corpus(a, source=a, target=b, output=tmp_path / "c")
    with pytest.raises(OptionError, match="'documents' is not for pairs"):
        build_corpus(source=a, target=b, documents="line", output=tmp_path / "c")
    with pytest.raises(OptionError, match="nothing to read"):
        build_corpus(output=tmp_path / "c")
    with pytest.raises(InputError, match=r"equally many files\. Got 2 of the one and 1"):
        build_corpus(source=[a, b], target=b, output=tmp_path / "c")
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"plain text, one text per line\. Got \S+x\.jsonl \(jsonl\)"):
        pair_sources(tmp_path / "x.jsonl", b, None, None)
    with pytest.raises(OptionError, match="is of texts in pairs, and has no side 'text'"):
        packed_rows(pairs)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_hold_whole_pairs_framed_and_apart(pairs: Corpus) -> None:
    layout = parallel_rows(pairs, length=60)
    with pytest.warns(PolysemeWarning, match=r"[\d,]+ of [\d,]+ pairs \(train\) are longer than a row of 60 pieces"):
        rows = epoch_of(layout)
    end, pad = (pairs.tokenizer.specials[role] for role in ("end", "pad"))
    for side in (rows, rows.target):
        assert side is not None
        assert side.documents is not None
        assert side.positions is not None
        assert side.pieces.shape == (layout.n_rows, 60)
        assert (side.pieces[side.documents == NOBODY] == pad).all()
        assert side.special[side.documents == NOBODY].all()
        for row in range(len(side.pieces)):
            for number in range(int(side.documents[row].max()) + 1):
                places = np.flatnonzero(side.documents[row] == number)
                assert np.array_equal(side.positions[row, places], np.arange(len(places)))
                assert np.array_equal(places, places[0] + np.arange(len(places)))
                assert (side.pieces[row, places] == end).sum() == 1
                assert side.pieces[row, places[-1]] == end
                assert side.special[row, places].tolist() == [False] * (len(places) - 1) + [True]
    assert rows.target is not None
    assert np.array_equal(rows.documents.max(axis=1), rows.target.documents.max(axis=1))  # type: ignore[union-attr]
    full = max((rows.documents >= 0).mean(), (rows.target.documents >= 0).mean())  # type: ignore[operator]
    assert full > 0.6


def test_rows_come_in_another_order_in_every_epoch_and_a_row_is_the_same_in_any_batch(pairs: Corpus) -> None:
    layout = parallel_rows(pairs, length=200, seed=3)
    first, second = (texts_of(epoch_of(layout, epoch), pairs) for epoch in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)
    together = layout.rows(np.array([5, 2, layout.n_rows + 1]))
    for place, index in enumerate((5, 2, layout.n_rows + 1)):
        alone = parallel_rows(pairs, length=200, seed=3).rows(np.array([index]))
        for one, other in ((alone, together), (alone.target, together.target)):
            for name in ("pieces", "starts", "special", "keys", "documents", "positions"):
                assert np.array_equal(getattr(one, name)[0], getattr(other, name)[place]), name
    assert texts_of(epoch_of(parallel_rows(pairs, length=200, seed=4)), pairs) != first
    held = parallel_rows(pairs, "held", length=200)
    assert texts_of(epoch_of(held, 0), pairs) == texts_of(epoch_of(held, 7), pairs)


def test_rows_that_hold_no_pair_are_refused(pairs: Corpus) -> None:
    with pytest.warns(PolysemeWarning, match="left out"), pytest.raises(OptionError, match="no pair that fits"):
        parallel_rows(pairs, length=4).rows(np.array([0]))


# --- one pair in a row -----------------------------------------------------------------------------------------------


def one_in_a_row(corpus: Corpus, split: str = "train", **options: Any) -> Any:
    return PaddedPairs().rows(corpus, RowOptions(**{"split": split, "length": 400, "batch_size": 8, **options}))


def decoded(rows: Rows, corpus: Corpus) -> list[tuple[str, ...]]:
    assert rows.target is not None
    return [
        tuple(
            corpus.tokenizer.decode(side.pieces[row, : side.lengths[row]])  # type: ignore[index]
            for side in (rows, rows.target)
        )
        for row in range(len(rows.pieces))
    ]


def test_a_row_of_one_pair_is_the_same_in_any_batch_but_for_padding(pairs: Corpus) -> None:
    layout = one_in_a_row(pairs, seed=3)
    indices = np.arange(2 * layout.n_rows + 5)
    together = decoded(layout.rows(indices), pairs)
    some = [2 * layout.n_rows + 3, 7, layout.n_rows + 1, 0]
    assert decoded(one_in_a_row(pairs, seed=3).rows(np.array(some)), pairs) == [together[index] for index in some]
    first, second = together[: layout.n_rows], together[layout.n_rows : 2 * layout.n_rows]
    assert len(set(first)) == len(first) == layout.n_rows
    assert layout.n_rows % 8 == 0
    assert 0 <= pairs.n_documents("train") - layout.n_rows < 8
    assert first != second
    held = one_in_a_row(pairs, "held")
    assert held.n_rows == pairs.n_documents("held")
    assert decoded(held.rows(np.array([2, held.n_rows])), pairs) == [
        texts_of(epoch_of(parallel_rows(pairs, "held", length=400)), pairs)[number] for number in (2, 0)
    ]


def test_steps_hold_pairs_of_like_length_and_little_padding(pairs: Corpus) -> None:
    layout = one_in_a_row(pairs)
    end, pad = (pairs.tokenizer.specials[role] for role in ("end", "pad"))
    shares, n_real = [], 0
    for start in range(0, layout.n_rows, 8):
        rows = layout.rows(np.arange(start, start + 8))
        for side in (rows, rows.target):
            assert side.documents is None
            assert side.positions is None
            assert side.pieces.shape[1] % 8 == 0
            real = np.arange(side.pieces.shape[1])[None] < side.lengths[:, None]
            assert (side.pieces[~real] == pad).all()
            assert (side.pieces[np.arange(8), side.lengths - 1] == end).all()
            shares.append(real.mean())
            n_real += int(real.sum())
    assert np.mean(shares) > 0.7
    assert layout.mean_length == pytest.approx(n_real / (2 * layout.n_rows), rel=0.05)


def test_a_step_with_few_pairs_and_one_with_none_that_fits(pairs: Corpus) -> None:
    few = one_in_a_row(pairs, batch_size=10_000)
    assert few.n_rows == pairs.n_documents("train")
    assert sorted(decoded(few.rows(np.arange(few.n_rows)), pairs)) == sorted(
        texts_of(epoch_of(parallel_rows(pairs, length=400)), pairs)
    )
    with pytest.warns(PolysemeWarning, match="left out"), pytest.raises(OptionError, match="no pair that fits"):
        one_in_a_row(pairs, length=4).rows(np.array([0]))
