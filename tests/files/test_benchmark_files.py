"""The files of the field read as their makers count them."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyseme.files.rows import read_rows


@pytest.mark.parametrize(("part", "n_sentences", "n_words"), [("dev", 2_001, 25_147), ("test", 2_077, 25_094)])
def test_ewt(data: Path, part: str, n_sentences: int, n_words: int) -> None:
    rows = list(read_rows(data / "tasks" / "ud-ewt" / f"en_ewt-ud-{part}.conllu.xz"))
    assert len(rows) == len({row.id for row in rows}) == n_sentences
    assert sum(len(row.content) for row in rows) == n_words


def test_surface_tokens_of_ewt_are_the_words_of_its_text(data: Path) -> None:
    rows = list(read_rows(data / "tasks" / "ud-ewt" / "en_ewt-ud-dev.conllu.xz", words="surface"))
    for row in rows:
        text = row.text or ""
        assert "".join("".join(row.content).split()) == "".join(text.split())
        assert [text[start:end] for start, end in row.spans or ()] == list(row.content)


@pytest.mark.parametrize(("part", "n_sentences"), [("train", 3_394), ("dev", 1_009), ("test", 1_287)])
def test_wnut(data: Path, part: str, n_sentences: int) -> None:
    rows = list(read_rows(data / "tasks" / "wnut17" / f"{part}.conll.xz", fields=("2",)))
    assert len(rows) == n_sentences
    n_entities = sum(tag.startswith("B-") for row in rows for tag in row.fields["2"])
    assert n_entities == {"train": 1_975, "dev": 836, "test": 1_079}[part]
    assert part != "train" or any(word.startswith("#") for row in rows for word in row.content)


def test_wikigold(data: Path) -> None:
    rows = list(read_rows(data / "tasks" / "wikigold", fields=("2", "document")))
    assert len(rows) == 1_152 + 263 + 281
    assert sum(len(row.content) for row in rows) == 39_007
    assert len({(row.id.partition(":")[0], row.fields["document"]) for row in rows}) == 101 + 22 + 22
    assert not any("-DOCSTART-" in row.content for row in rows)


def test_tables_with_and_without_quotes(data: Path) -> None:
    gap = data / "tasks" / "gap" / "gap-development.tsv.xz"
    assert sum(1 for _ in read_rows(gap, field="Text", id_field="ID")) == 2_000
    mrpc = data / "tasks" / "mrpc" / "dev.tsv"
    assert sum(1 for _ in read_rows(mrpc, field="sentence1", quotes="none")) == 408


def test_json_lines(data: Path) -> None:
    assert sum(1 for _ in read_rows(data / "tasks" / "lambada" / "lambada_test.jsonl.xz")) == 5_153
