"""Texts and tables in memory are read as files with the same content would be; files stay files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import datasets
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.rows import read_rows
from polyseme.text.documents import make_document
from polyseme.text.sentences import split_sentences

COLUMNS: dict[str, list[Any]] = {
    "key": ["k1", "k2", "k3"],
    "text": ["Dawn broke.", "", "The vase broke."],
    "stars": [1, 2, None],
    "tokens": [["a", "b"], [], ["c"]],
}
RECORDS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
TABLES: dict[str, Callable[[], Any]] = {
    "mapping": lambda: COLUMNS,
    "records": lambda: RECORDS,
    "generator": lambda: iter(RECORDS),
    "pandas": lambda: pd.DataFrame(COLUMNS, index=[7, 7, 9]),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "datasets": lambda: datasets.Dataset.from_dict(COLUMNS),
    "datasets, streamed": lambda: datasets.Dataset.from_dict(COLUMNS).to_iterable_dataset(),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_read_as_the_file_with_its_rows(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    for options in ({"field": "text"}, {"field": "tokens", "id_field": "key", "fields": "all"}):
        rows = list(read_rows(TABLES[kind](), **options))
        expected = list(read_rows(path, **options))
        assert [(row.content, row.id) for row in rows] == [(row.content, row.id) for row in expected]
        assert [dict(row.fields) for row in rows] == [dict(row.fields) for row in expected]
        assert str(rows[1].place).endswith(", row 2")


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_without_the_named_column_is_refused_with_the_nearest(kind: str) -> None:
    for options in ({"field": "txt"}, {"field": "text", "id_field": "txt"}, {"field": "text", "fields": ["txt"]}):
        with pytest.raises(InputError, match=r"there is no field 'txt'\. Did you mean 'text'\? There are: key, text"):
            read_rows(TABLES[kind](), **options)


def test_where_several_columns_are_texts_one_must_be_named() -> None:
    with pytest.raises(InputError, match=r"3 fields can be the text: key, text, tokens\. Name one"):
        list(read_rows(pd.DataFrame(COLUMNS)))
    assert [row.content for row in read_rows(pd.DataFrame({"id": ["x"], "said": ["a"]}))] == ["a"]


@pytest.mark.parametrize(
    "texts",
    [
        ["Dawn broke.", "She said so."],
        ("Dawn broke.", "She said so."),
        (text for text in ("Dawn broke.", "She said so.")),
        pd.Series(["Dawn broke.", "She said so."], index=[3, 3]),
        pl.Series(["Dawn broke.", "She said so."]),
        np.array(["Dawn broke.", "She said so."]),
        pa.chunked_array([["Dawn broke."], ["She said so."]]),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_by_themselves(texts: Any) -> None:
    rows = read_rows(texts)
    assert [(row.content, row.id) for row in rows] == [("Dawn broke.", "1"), ("She said so.", "2")]
    assert rows.done == rows.total == 2


def test_given_words_and_documents() -> None:
    given = make_document("Dawn broke.", id="d1", fields={"mood": "good"})
    rows = list(read_rows([["Do", "n't"], given, "Go on."]))
    assert [(row.content, row.id) for row in rows] == [(["Do", "n't"], "1"), ("Dawn broke.", "d1"), ("Go on.", "3")]
    assert rows[1].fields == {"mood": "good"}
    assert rows[1].spans == [(0, 4), (5, 10), (10, 11)]


def test_texts_are_split_into_sentences_where_that_is_asked_for() -> None:
    rows = read_rows(["Dawn broke. Day came."], split="sentence", sentences=split_sentences)
    assert [(row.content, row.id) for row in rows] == [("Dawn broke.", "1.1"), ("Day came.", "1.2")]


def test_names_of_files_stay_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").write_text("a\n")
    (tmp_path / "two.txt").write_text("b\n")
    for sources in ("one", ["one"], [Path("one")], ["one", "two.txt"], ["*.txt"], "*", "."):
        assert not isinstance(inputs_of(sources), InMemory)
    assert [row.content for row in read_rows(["one", "two.txt"])] == ["a", "b"]
    for missing in ("three", ["three.txt"], [Path("three")], ["one", "thre.csv.gz"], ["texts/three"]):
        with pytest.raises(InputError, match=r"no file t\S* \(looked"):
            read_rows(missing)


def test_a_list_that_is_neither_names_nor_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("a\n")
    with pytest.raises(InputError, match=r"the name of a file in it, 'data', and strings that are none, as 'A film'"):
        read_rows(["A film", "data"])
    assert [row.content for row in read_rows({"text": ["A film", "data"]})] == ["A film", "data"]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (datasets.DatasetDict({"train": datasets.Dataset.from_dict(COLUMNS)}), r"several splits.*data\['train'\]"),
        (pl.DataFrame(COLUMNS).lazy(), "collect"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "2 columns have the name 'text'"),
        ({"text": ["a", "b"], "stars": [1]}, "as many values each. Got: text 2, stars 1"),
        (b"Dawn broke.", "decode them"),
        (7, "Got a int"),
        ([7, "a text"], "text 1: this is a number"),
        (["a text", None], "text 2: this is null"),
        ([["a", 7]], "text 1: this is a list"),
        (pd.DataFrame({"text": ["a", np.nan]}), r"DataFrame, row 2: the field 'text' is null"),
        ([], "nothing to read"),
        (pd.DataFrame({"text": []}), None),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(data: Any, match: str | None) -> None:
    if match is None:
        assert list(read_rows(data)) == []
        return
    with pytest.raises(InputError, match=match):
        list(read_rows(data))


def test_options_about_files_are_refused() -> None:
    for option in ({"format": "csv"}, {"delimiter": ";"}, {"words": "surface"}, {"split": "paragraph"}):
        with pytest.raises(OptionError, match=f"'{next(iter(option))}' is about files"):
            read_rows(["A film"], **option)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'field' is about files"):
        read_rows(["A film"], field="text")


# --- rows that cannot be read -----------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, dict[str, Any], list[Any], list[str]]] = {
    "in.txt": (b"one\nt\xffwo\nthree\n", {}, ["one", "three"], ["line 2: byte 5"]),
    "in.jsonl": (
        b'{"text": "one"}\n{"text": 7}\n{"tex\n{"text": ["a", " "]}\n{"text": "five", "more": 1}\n',
        {},
        ["one", "five"],
        ["line 2: the field 'text' is a number", "line 3: this is not JSON", "line 4: word 1 of the list"],
    ),
    "in.csv": (
        b'text,n\none,1\ntwo\n"thr"ee,3\nfour,4\n',
        {"field": "text"},
        ["one", "four"],
        ["line 3: there is 1 field", "line 4: the double quote"],
    ),
    "in.conll": (b"a X\n\nb\nc X\n\nd X\n", {}, [["a"], ["d"]], ["line 3: the line has"]),
    "in.conllu": (
        b"1\ta" + b"\t_" * 8 + b"\n\n1\tb\n\n# text = d\n1\tc" + b"\t_" * 8 + b"\n\n1\td" + b"\t_" * 8 + b"\n",
        {},
        [["a"], ["d"]],
        ["line 3: CoNLL-U has 10 columns", "line 6: the words of the sentence do not add up"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_rows_that_cannot_be_read_are_skipped_each_with_its_line(name: str, tmp_path: Path) -> None:
    content, options, expected, reports = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=reports[0].partition(":")[0]):
        list(read_rows(path, **options))
    with pytest.warns(PolysemeWarning) as said:
        rows = list(read_rows(path, on_error="skip", **options))
    assert [row.content for row in rows] == expected
    messages = [str(each.message) for each in said]
    assert len(messages) == len(reports) + 1
    for message, report in zip(messages, reports, strict=False):
        assert message.startswith(f"Skipped: {path}, {report}")
    assert messages[-1] == f"{len(reports)} row{'s were' if len(reports) > 1 else ' was'} skipped, as reported above."


def test_rows_of_a_frame_are_skipped_and_the_others_keep_their_numbers() -> None:
    frame = pd.DataFrame({"text": ["one", None, "three"]})
    with pytest.warns(PolysemeWarning, match=r"row 2: the field 'text' is null|1 row was skipped"):
        assert [(row.content, row.id) for row in read_rows(frame, on_error="skip")] == [("one", "1"), ("three", "3")]


def test_a_quote_that_is_never_closed_is_not_skipped(tmp_path: Path) -> None:
    """It would take every row behind it along."""
    path = tmp_path / "in.csv"
    path.write_text('text\n"one\ntwo\nthree\n')
    with pytest.raises(InputError, match="not closed to the end of the file"):
        list(read_rows(path, on_error="skip"))
