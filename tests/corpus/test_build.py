from __future__ import annotations

import gzip
import json
import lzma
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.texts import made_up
from polyseme.corpus import build, tokenizer_choice
from polyseme.corpus import document_reader as documents
from polyseme.corpus.corpus import Corpus
from polyseme.corpus.document_reader import DocumentStretch
from polyseme.corpus.shards import SPLITS, dtype_for
from polyseme.corpus.tokenizer_training import sample_of
from polyseme.errors import PolysemeWarning
from polyseme.verbs.corpus import build_corpus


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def texts_of(corpus: Corpus, split: str) -> list[list[int]]:
    """The pieces of each document, separators included."""
    found = []
    for shard in corpus.shards(split):
        edges = [0, *shard.ends.tolist()]
        found += [shard.pieces[a:b].tolist() for a, b in pairwise(edges)]
    return found


def expected_pieces(corpus: Corpus, texts: list[str]) -> list[list[int]]:
    separator = [] if corpus.separator is None else [corpus.separator]
    backend = corpus.tokenizer.backend
    return [backend.encode(text, add_special_tokens=False).ids + separator for text in texts]


def test_every_document_is_on_one_side_in_order_with_its_pieces(corpus: Corpus, text: Path):
    texts = text.read_text(encoding="utf-8").split("\n\n")
    train, held = texts_of(corpus, "train"), texts_of(corpus, "held")
    assert len(train) == corpus.n_documents("train")
    assert len(held) == corpus.n_documents("held")
    assert 3 <= len(held) <= 30
    merged: list[list[int]] = []
    for pieces in expected_pieces(corpus, texts):
        side = train if train and train[0] == pieces else held
        merged.append(side.pop(0))
    assert merged == expected_pieces(corpus, texts)
    assert not train
    assert not held


def test_counts(corpus: Corpus, text: Path):
    texts = text.read_text(encoding="utf-8").split("\n\n")
    assert corpus.bytes == sum(len(one.encode()) for one in texts)
    counts = corpus.counts("train")
    shard = corpus.shards("train")[0]
    assert counts.pieces == corpus.n_pieces("train") == len(shard.pieces)
    assert counts.words == int(shard.starts().sum()) - counts.documents
    assert counts.sentences == len(shard.sentences)
    begins = {0, *shard.ends[:-1].tolist()}
    assert begins <= set(shard.sentences.tolist())
    assert np.all(np.diff(shard.sentences) > 0)
    assert shard.pieces.dtype == np.uint16
    corpus.check()


def test_unigram_entropy(corpus: Corpus):
    for split in SPLITS:
        counted = Counter(piece for pieces in texts_of(corpus, split) for piece in pieces if piece != corpus.separator)
        n = sum(counted.values())
        expected = -sum(k / n * math.log(k / n) for k in counted.values())
        assert corpus.unigram_entropy(split) == pytest.approx(expected, rel=1e-12)


def test_large_vocabularies_take_four_bytes():
    assert [dtype_for(n).itemsize for n in (2, 1 << 16, (1 << 16) + 1)] == [2, 2, 4]


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_any_number_of_workers_gives_the_same_files(
    kind: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "STRETCH", 4000)
    made = [
        build_corpus(text, output=tmp_path / f"{n}", tokenizer=kind, vocab_size=300, workers=n).folder for n in (1, 3)
    ]
    assert contents(made[0]) == contents(made[1])


def test_built_twice_from_different_starts_is_the_same(text: Path, tmp_path: Path, corpus: Corpus):
    other = build_corpus(text, output=tmp_path / "c", vocab_size=300, held_out=0.1)
    assert contents(other.folder) == contents(corpus.folder)
    assert other.fingerprint == corpus.fingerprint
    third = build_corpus(text, output=tmp_path / "d", vocab_size=299, held_out=0.1)
    assert third.fingerprint != corpus.fingerprint


def test_a_given_tokenizer_is_used_as_it_is(text: Path, tmp_path: Path, corpus: Corpus):
    other = build_corpus(text, output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer", held_out=0.1)
    assert other.tokenizer.fingerprint == corpus.tokenizer.fingerprint
    assert other.fingerprint == corpus.fingerprint


# --- what a document is ----------------------------------------------------------------------------------------------

LINES = "Ren ren.\nTas lo.\n\n\n \t\nDu mi.\r\n\r\nPo ka.\n"


def documents_of(corpus: Corpus) -> list[str]:
    return [corpus.tokenizer.decode(pieces) for split in SPLITS for pieces in texts_of(corpus, split)]


@pytest.mark.parametrize(
    ("unit", "expected", "said"),
    [
        (None, ["ren ren. tas lo.", "du mi.", "po ka."], None),
        ("line", ["ren ren.", "tas lo.", "du mi.", "po ka."], "4 empty documents"),
        ("file", ["ren ren. tas lo. du mi. po ka."], None),
    ],
)
def test_documents_of_plain_text(
    unit: str | None, expected: list[str], said: str | None, tmp_path: Path, corpus: Corpus
):
    for block in (3, 7, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(documents, "_BLOCK", block)
            (tmp_path / "a.txt").write_bytes(LINES.encode())
            settings = {"tokenizer": corpus.folder / "tokenizer", "documents": unit, "held_out": 0, "force": True}
            if said:
                with pytest.warns(PolysemeWarning, match=said):
                    made = build_corpus(tmp_path / "a.txt", output=tmp_path / "c", **settings)
            else:
                made = build_corpus(tmp_path / "a.txt", output=tmp_path / "c", **settings)
        assert documents_of(made) == expected


def test_every_format_and_packing_gives_the_same_documents(tmp_path: Path, corpus: Corpus):
    texts = made_up(12, seed=11)
    plain = "\n\n".join(texts).encode()
    (tmp_path / "a.txt").write_bytes(plain)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(plain))
    (tmp_path / "d.txt.zst").write_bytes(pa.compress(plain, "zstd", asbytes=True))
    (tmp_path / "e.jsonl").write_text("".join(json.dumps({"body": one, "n": 1}) + "\n" for one in texts))
    pq.write_table(pa.table({"body": texts, "other": texts}), tmp_path / "f.parquet")
    rows = (
        "id,body\n" + "".join(f'{n},"{one.replace(chr(34), chr(34) * 2)}"\n' for n, one in enumerate(texts))
    ).encode()
    (tmp_path / "g.csv").write_bytes(rows)
    folder = tmp_path / "folder"
    folder.mkdir()
    for n, one in enumerate(texts):
        (folder / f"{n:03}.txt").write_text(one, encoding="utf-8")
    found = {}
    for path in sorted(tmp_path.iterdir()):
        field = "body" if path.suffix in (".jsonl", ".parquet", ".csv") else None
        unit = "file" if path.is_dir() else None
        made = build_corpus(
            path,
            output=tmp_path.parent / f"{tmp_path.name}-{path.name}",
            tokenizer=corpus.folder / "tokenizer",
            field=field,
            documents=unit,
        )
        found[path.name] = made.fingerprint
    assert len(found) == 8
    assert len(set(found.values())) == 1, found


# --- the split -------------------------------------------------------------------------------------------------------


def test_equal_documents_are_on_one_side(tmp_path: Path, corpus: Corpus):
    texts = made_up(40, seed=12)
    (tmp_path / "a.txt").write_text("\n\n".join(texts * 3), encoding="utf-8")
    made = build_corpus(
        tmp_path / "a.txt", output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer", held_out=0.3, seed=5
    )
    train, held = ({tuple(one) for one in texts_of(made, split)} for split in SPLITS)
    assert train
    assert held
    assert train.isdisjoint(held)
    assert made.n_documents("train") + made.n_documents("held") == 120
    other = build_corpus(
        tmp_path / "a.txt", output=tmp_path / "d", tokenizer=corpus.folder / "tokenizer", held_out=0.3, seed=6
    )
    assert {tuple(one) for one in texts_of(other, "held")} != held


@pytest.mark.parametrize(("share", "n_held"), [(1e-9, 2), (0.999999999, 4), (0.0, 0)])
def test_both_sides_have_a_document_where_that_can_be(share: float, n_held: int, tmp_path: Path, corpus: Corpus):
    texts = made_up(3, seed=13)
    (tmp_path / "a.txt").write_text("\n\n".join(texts * 2), encoding="utf-8")
    made = build_corpus(
        tmp_path / "a.txt", output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer", held_out=share
    )
    assert made.n_documents("held") == n_held
    assert made.n_documents("train") == 6 - n_held
    made.check()
    train, held = ({tuple(one) for one in texts_of(made, split)} for split in SPLITS)
    assert train.isdisjoint(held)
    assert made.bytes == 2 * sum(len(one.encode()) for one in texts)
    for split in SPLITS:
        shard = made.shards(split)[0]
        assert shard.counts.words == int(shard.starts().sum()) - shard.counts.documents
        assert shard.counts.bytes == (0 if not shard.counts.documents else shard.counts.bytes) >= 0
    if n_held == 2:
        [text] = {one for one in texts if tuple(expected_pieces(made, [one])[0]) in held}
        assert made.counts("held").bytes == 2 * len(text.encode())


def test_one_document_is_trained_on_and_that_is_noted(tmp_path: Path, corpus: Corpus):
    (tmp_path / "a.txt").write_text("Ren lo mi.", encoding="utf-8")
    with pytest.warns(PolysemeWarning, match=r"No document is held out, since there is only one.*--documents line"):
        made = build_corpus(tmp_path / "a.txt", output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer")
    assert made.n_documents("train") == 1
    assert made.n_documents("held") == 0
    assert "No document is held out" in made.notes[0]


# --- sources ---------------------------------------------------------------------------------------------------------


def test_weights_by_name(tmp_path: Path, corpus: Corpus):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(made_up(5, seed=ord(name))), encoding="utf-8")
    settings = {"tokenizer": corpus.folder / "tokenizer", "held_out": 0}
    given = [f"x=2.5:{tmp_path}/a.txt", f"{tmp_path}/c.txt", f"x=2.5:{tmp_path}/b.txt"]
    made = build_corpus(given, output=tmp_path / "o", **settings)
    assert [(each.name, each.weight, len(each.files)) for each in made.sources] == [("x", 2.5, 2), ("text", 1.0, 1)]
    same = build_corpus(
        {"x": ([tmp_path / "a.txt", tmp_path / "b.txt"], 2.5), "text": (tmp_path / "c.txt", 1)},
        output=tmp_path / "p",
        **settings,
    )
    assert same.fingerprint == made.fingerprint
    heavier = build_corpus([given[0].replace("2.5", "3"), given[1]], output=tmp_path / "q", **settings)
    assert heavier.fingerprint != made.fingerprint


def test_the_field_of_records_beside_plain_text(tmp_path: Path, corpus: Corpus):
    (tmp_path / "a.txt").write_text("Ren lo mi.", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"body": "Tas po.", "other": "Du."}\n', encoding="utf-8")
    given = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    made = build_corpus(given, output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer", field="body", held_out=0)
    assert made.bytes == len("Ren lo mi.Tas po.")


def test_a_limit_of_text(text: Path, tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "STRETCH", 3000)
    made = build_corpus(text, output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer", limit=10_000)
    assert 10_000 <= made.bytes < 20_000


def test_long_documents_are_cut_at_a_lines_end(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "LONGEST", 200)
    lines = [f"{word} lo mi ren." for word in ("ka", "po", "du") * 20]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.warns(PolysemeWarning, match="too long"):
        made = build_corpus(tmp_path / "a.txt", output=tmp_path / "c", tokenizer=corpus.folder / "tokenizer")
    assert made.n_documents("train") + made.n_documents("held") > 2
    whole = expected_pieces(made, ["\n".join(lines)])[0][:-1]
    assert sorted(whole) == sorted(
        piece for split in SPLITS for pieces in texts_of(made, split) for piece in pieces if piece != made.separator
    )


@pytest.mark.parametrize("separated_by", [None, "line", "file"])
@pytest.mark.parametrize("text", ["中" * 1000, "Ren lô mi. " * 300], ids=["without blanks", "with blanks"])
def test_text_without_line_ends_is_cut_between_characters(
    text: str, separated_by: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However long it is, and wherever the blocks end in which the file is read; between words, if there are any."""
    monkeypatch.setattr(documents, "LONGEST", 200)
    monkeypatch.setattr(documents, "_BLOCK", 61)
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    [source] = documents.text_sources([tmp_path / "a.txt"], documents=separated_by, field=None, format=None)
    parts = [part.decode() for stretch in source.stretches() for part in stretch.texts]
    assert "".join(parts) == text
    assert len(parts) > 10
    if " " in text:
        assert all(part.strip().split(" ")[0] in ("Ren", "lô", "mi.") for part in parts)


# --- the tokenizer's sample ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The text gives a vocabulary")
def test_a_small_file_of_parquet_is_in_the_tokenizers_sample(text: Path, tmp_path: Path):
    pq.write_table(pa.table({"text": ["Zyx wvu.", "Wvu zyx zyx."]}), tmp_path / "small.parquet")
    for given in ([tmp_path / "small.parquet"], [text, f"small=1:{tmp_path}/small.parquet"]):
        made = build_corpus(given, output=tmp_path / f"c{len(given)}", vocab_size=300, held_out=0)
        [tokenizer] = made.folder.glob("tokenizer/tokenizer.json")
        assert "x" in json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]


def test_all_of_a_source_is_due_at_its_end():
    """However far its reader says to have come."""

    class Slow:
        total = 1000

        def stretches(self):
            yield DocumentStretch([b"a" * 400, b"b" * 400], 0)
            yield DocumentStretch([b"c" * 100, b"d" * 100], 0)

    sample = sample_of([Slow(), Slow()], 2000)  # type: ignore[list-item]
    assert sample.texts == ["c" * 100, "d" * 100, "a" * 400, "b" * 400, "c" * 100, "d" * 100]


def test_the_tokenizer_is_trained_on_a_sample_and_that_is_said(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "STRETCH", 3000)
    seen: list[int] = []
    train = tokenizer_choice.train_tokenizer

    def listening(kind: str, texts: list[str], **settings: object) -> object:
        seen.append(sum(len(one.encode()) for one in texts))
        return train(kind, texts, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(tokenizer_choice, "train_tokenizer", listening)
    made = build_corpus(text, output=tmp_path / "c", vocab_size=200, sample=20_000)
    assert 10_000 <= seen[0] <= 21_000
    assert "a sample of" in made.notes[0]
    whole = build_corpus(text, output=tmp_path / "d", vocab_size=200)
    assert seen[1] == whole.bytes
    assert "all of the text" in whole.notes[0]


def test_a_vocabulary_larger_than_the_text_can_give_is_said(text: Path, tmp_path: Path):
    with pytest.warns(PolysemeWarning, match=r"fewer than the 30,522 requested"):
        made = build_corpus(text, output=tmp_path / "c")
    assert made.tokenizer.n_pieces < 30_522
    assert any("fewer than" in note for note in made.notes)


def test_progress_is_told_in_bytes_of_files(text: Path, tmp_path: Path, corpus: Corpus):
    told: list[tuple[int, int | None]] = []
    build_corpus(
        text,
        output=tmp_path / "c",
        tokenizer=corpus.folder / "tokenizer",
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1] == (text.stat().st_size, text.stat().st_size)


def test_again_takes_what_is_there(text: Path, tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch):
    settings = {"output": tmp_path / "c", "tokenizer": corpus.folder / "tokenizer"}
    first = build_corpus(text, **settings)
    monkeypatch.setattr(build, "unfinished_corpus", None)
    assert build_corpus(text, **settings, reuse=True).fingerprint == first.fingerprint
