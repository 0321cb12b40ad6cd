"""Fields of the input in an output: no name is refused, in Parquet types are kept, and one row per word is a table."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.vector_files import FORMATS, Fitter, open_writer, opened, read_vectors
from polyseme.files.vectors_long import check_numbers, long_format
from polyseme.types import EmbeddedDocument, Word

every_format = pytest.mark.parametrize("suffix", sorted(FORMATS))


def document(name: str, words: list[str], /, **fields: Any) -> EmbeddedDocument:
    ends = np.cumsum([len(word) + 1 for word in words], dtype=np.int64) - 1
    starts = ends - np.array([len(word) for word in words], np.int64)
    return EmbeddedDocument(
        text=" ".join(words),
        words=[Word(word, int(a), int(b)) for word, a, b in zip(words, starts, ends, strict=True)],
        id=name,
        fields=fields,
        offsets=np.stack([starts, ends], axis=1),
        vectors=np.arange(3 * len(words), dtype=np.float32).reshape(-1, 3) / 7,
    )


def written(path: Path, *chunks: list[EmbeddedDocument]) -> Path:
    with open_writer(path) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return path


VALUES: dict[str, Any] = {
    "stars": 4,
    "share": 0.5,
    "good": True,
    "mood": "glad",
    "none": None,
    "tags": ["A", "B"],
    "nested": [{"first": 1, "form": "don't"}],
}


@every_format
def test_fields_keep_their_types(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"out{suffix}", [document("1", ["a", "b"], **VALUES)], [document("2", ["c"], **VALUES)])
    for back in read_vectors(path):
        assert back.fields == VALUES
        assert {name: type(value) for name, value in back.fields.items()} == {n: type(v) for n, v in VALUES.items()}


def test_parquet_has_columns_of_those_types(tmp_path: Path) -> None:
    day = datetime.date(2020, 2, 29)
    schema = pq.read_schema(written(tmp_path / "out.parquet", [document("1", ["a"], **VALUES, day=day)]))
    kinds = {name: str(schema.field(name).type) for name in (*VALUES, "day")}
    assert kinds == {
        "stars": "int64",
        "share": "double",
        "good": "bool",
        "mood": "string",
        "none": "string",
        "tags": "list<element: string>",
        "nested": "list<element: struct<first: int64, form: string>>",
        "day": "date32[day]",
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([None, 3], [None, 3]),
        ([[], [{"a": 1}]], [[], [{"a": 1}]]),
        ([1, "n/a"], ["1", "n/a"]),
        ([True, 1], ["true", "1"]),
        ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        ([{}, 1], ["{}", "1"]),
        ([2**70, 1], [str(2**70), "1"]),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["one chunk", "two chunks"])
def test_values_of_different_types_have_the_narrowest_that_holds_all(
    tmp_path: Path, values: list[Any], expected: list[Any], apart: bool
) -> None:
    documents = [document(str(number), ["a"], value=value) for number, value in enumerate(values)]
    chunks = [[each] for each in documents] if apart else [documents]
    path = written(tmp_path / "out.parquet", *chunks)
    assert pq.read_table(path)["value"].to_pylist() == expected
    assert [back.id for back in read_vectors(path)] == ["0", "1"]
    np.testing.assert_array_equal([each.vectors for each in read_vectors(path)], [each.vectors for each in documents])
    assert list(tmp_path.iterdir()) == [path]


@every_format
def test_no_name_of_a_field_is_refused(tmp_path: Path, suffix: str) -> None:
    fields = {"id": "7", "text": "x", "vectors": 1, "fields.id": "own", "": "nameless", "plain": 1}
    with pytest.warns(PolysemeWarning, match="is called") as said:
        path = written(tmp_path / f"out{suffix}", [document("1", ["a"], **fields), document("2", ["b"], **fields)])
    assert len(said) == 5
    assert "The field 'id' is called 'fields.id' in the output, which has one of its own." in str(said[0].message)
    [first, _] = read_vectors(path)
    assert first.id == "1"
    assert first.fields == {
        "fields.id": "7",
        "fields.text": "x",
        "fields.vectors": 1,
        "fields.fields.id": "own",
        "unnamed": "nameless",
        "plain": 1,
    }


@every_format
def test_a_field_that_comes_late_is_kept_too(tmp_path: Path, suffix: str) -> None:
    """As the comments of a treebank do: `# newpar` is where a paragraph begins, and nowhere else."""
    chunks = [[document("1", ["a"])], [document("2", ["b"], newpar="p1")], [document("3", ["c"], other=2)]]
    path = written(tmp_path / f"out{suffix}", *chunks)
    values = [{name: value for name, value in back.fields.items() if value is not None} for back in read_vectors(path)]
    assert values == [{}, {"newpar": "p1"}, {"other": 2}]


# --- one row per word -------------------------------------------------------------------------------------------------

SENTENCES = [
    document("s1", ["Dawn", "broke", "."], upos=["NOUN", "VERB", "PUNCT"], genre="news", stars=4),
    document("s2", [], upos=[], genre="news", stars=None),
    document("s3", ["Say", '"no,\tthanks"'], upos=["VERB", "X"], genre="a,b", stars=2),
]


def long(path: Path, *chunks: list[EmbeddedDocument], columns: tuple[str, ...] = (), per: Any = "word") -> Path:
    fitter = Fitter(per=per)
    with opened(path, long_format(path, columns), fitter, force=False, provenance={"model": "m"}, per=per) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_one_row_per_word(tmp_path: Path, suffix: str) -> None:
    path = long(tmp_path / f"out{suffix}", SENTENCES[:1], SENTENCES[1:])
    delimiter = {".csv": ",", ".tsv": "\t"}.get(suffix)
    frame = pd.read_parquet(path) if delimiter is None else pd.read_csv(path, sep=delimiter)
    assert frame["id"].tolist() == ["s1", "s1", "s1", "s3", "s3"]
    assert frame["position"].tolist() == [1, 2, 3, 1, 2]
    assert frame["word"].tolist() == ["Dawn", "broke", ".", "Say", '"no,\tthanks"']
    assert frame["upos"].tolist() == ["NOUN", "VERB", "PUNCT", "VERB", "X"]
    assert frame["genre"].tolist() == ["news"] * 3 + ["a,b"] * 2
    assert frame["stars"].tolist() == [4, 4, 4, 2, 2]
    expected = np.concatenate([each.vectors for each in SENTENCES])
    if delimiter is None:
        vectors = np.stack(frame["vector"].tolist())
        assert frame.columns.tolist()[-1] == "vector"
    else:
        assert frame.columns.tolist()[-3:] == ["v0", "v1", "v2"]
        vectors = frame[["v0", "v1", "v2"]].to_numpy(np.float32)
    np.testing.assert_array_equal(vectors, expected)
    with pytest.raises((InputError, OptionError)):
        read_vectors(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_are_chosen(tmp_path: Path, suffix: str) -> None:
    path = long(tmp_path / f"out{suffix}", SENTENCES, columns=("word", "id", "upos", "v2", "text"))
    frame = pl.read_csv(path) if suffix == ".csv" else pl.read_parquet(path)
    assert frame.columns == ["word", "id", "upos", "v2", "text"]
    assert frame["v2"].to_list() == pytest.approx([2 / 7, 5 / 7, 8 / 7, 2 / 7, 5 / 7])
    assert frame["text"][1] == "Dawn broke ."
    with pytest.raises(OptionError, match=r"There is no column 'v3'\. Did you mean 'v2'"):
        check_numbers(("word", "v2", "v3"), (3,))
    check_numbers(("v1_2",), (2, 3))
    with pytest.raises(OptionError, match="no column 'v2_0'"):
        check_numbers(("v2_0",), (2, 3))


def test_all_layers_and_one_vector_per_text(tmp_path: Path) -> None:
    layers = EmbeddedDocument(**{**vars(SENTENCES[0]), "vectors": np.ones((3, 2, 2), np.float32)})
    assert pl.read_csv(long(tmp_path / "out.csv", [layers])).columns[-4:] == ["v0_0", "v0_1", "v1_0", "v1_1"]
    texts = [
        EmbeddedDocument(**{**vars(each), "words": [], "vectors": np.full((1, 2), 3, np.float32)}) for each in SENTENCES
    ]
    path = long(tmp_path / "texts.csv", texts, per="text")
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "text", "upos", "genre", "stars", "v0", "v1"]
    assert rows[2] == ["s2", "", "[]", "news", "", "3", "3"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_texts_without_words_have_no_rows(tmp_path: Path, suffix: str) -> None:
    path = long(tmp_path / f"out{suffix}", [SENTENCES[1]])
    frame = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert frame.shape[0] == 0
    assert frame.columns.tolist()[:3] == ["id", "position", "word"]


def test_long_parquet_says_where_it_comes_from(tmp_path: Path) -> None:
    schema = pq.read_schema(long(tmp_path / "out.parquet", SENTENCES))
    assert schema.metadata[b"polyseme"] == b'{"model": "m"}'
    assert schema.field("vector").type == pa.list_(pa.field("element", pa.float32()), 3)
