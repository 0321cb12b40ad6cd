"""What the writers that users have put into a file comes out of it again, letter by letter."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from polyseme.files.rows import read_rows

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1)
WORDS = st.lists(WORD, max_size=8)
NUMBERS_MAY_BE_TEXTS = pytest.mark.filterwarnings("ignore:.* is a number in all rows")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round_trips")


@given(
    rows=st.lists(st.one_of(TEXT, WORDS), min_size=1), ascii_only=st.booleans(), ending=st.sampled_from(["\n", "\r\n"])
)
def test_jsonl(folder: Path, rows: list[Any], ascii_only: bool, ending: str) -> None:
    path = folder / "in.jsonl"
    made = [json.dumps({"n": n, "text": row}, ensure_ascii=ascii_only) for n, row in enumerate(rows)]
    path.write_bytes("".join(line + ending for line in made).encode())
    back = list(read_rows(path, field="text", id_field="n"))
    assert [row.content for row in back] == rows
    assert [row.id for row in back] == [str(n) for n in range(len(rows))]


@NUMBERS_MAY_BE_TEXTS
@given(
    rows=st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1),
    suffix=st.sampled_from([".csv", ".tsv"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    terminator=st.sampled_from(["\n", "\r\n"]),
)
def test_tables(folder: Path, rows: list[tuple[str, str, str]], suffix: str, quoting: int, terminator: str) -> None:
    path = folder / f"in{suffix}"
    if terminator == "\n" and quoting == csv.QUOTE_MINIMAL:  # here csv writes \r without quotes, before \n, too
        rows = [(left, text, right.rstrip("\r")) for left, text, right in rows]
    made = io.StringIO()
    delimiter = {".csv": ",", ".tsv": "\t"}[suffix]
    writer = csv.writer(made, delimiter=delimiter, quoting=quoting, lineterminator=terminator)  # type: ignore[arg-type]
    writer.writerows([("left", "text", "right"), *rows])
    path.write_bytes(made.getvalue().encode())
    back = list(read_rows(path, field="text", fields="all"))
    assert [(row.fields["left"], row.content, row.fields["right"]) for row in back] == rows
    n_before = [sum(field.count("\n") for row in rows[:n] for field in row) for n in range(len(rows))]
    assert [row.place.line for row in back] == [n + 2 + before for n, before in enumerate(n_before)]


@NUMBERS_MAY_BE_TEXTS
@given(rows=st.lists(TEXT.filter(str.strip), min_size=1))
def test_one_column(folder: Path, rows: list[str]) -> None:
    path = folder / "one.csv"
    made = io.StringIO()
    csv.writer(made).writerows([["text"], *([row] for row in rows)])
    path.write_bytes(made.getvalue().encode())
    assert [row.content for row in read_rows(path)] == rows


@given(
    texts=st.lists(TEXT, min_size=1),
    words=WORDS,
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    group=st.integers(1, 5),
)
def test_parquet(folder: Path, texts: list[str], words: list[str], kind: pa.DataType, group: int) -> None:
    path = folder / "in.parquet"
    table = pa.table({"text": pa.array(texts).cast(kind), "words": [words] * len(texts), "n": range(len(texts))})
    pq.write_table(table, path, row_group_size=group)
    back = read_rows(path, field="text", id_field="n", fields=("words",))
    assert [(row.content, row.id, row.fields["words"]) for row in back] == [
        (text, str(n), words) for n, text in enumerate(texts)
    ]
    assert back.done == back.total
    assert [row.content for row in read_rows(path, field="words")] == [words] * len(texts)


SENTENCES = st.lists(st.lists(WORD, min_size=1, max_size=8), min_size=1)


@given(sentences=SENTENCES, separator=st.sampled_from(["\t", " "]), gap=st.integers(1, 3))
def test_conll(folder: Path, sentences: list[list[str]], separator: str, gap: int) -> None:
    # "# O _" before any other word: with blanks between, that is taken for a comment
    assume(separator == "\t" or not all(word.startswith("#") for word in sentences[0]))
    path = folder / "in.conll"
    made = ["".join(f"{word}{separator}O{separator}_\n" for word in sentence) for sentence in sentences]
    path.write_bytes(("\n" * gap).join(made).encode())
    assert [row.content for row in read_rows(path)] == sentences


@given(sentences=SENTENCES, spaces=st.lists(st.booleans(), min_size=8, max_size=8))
def test_treebanks(folder: Path, sentences: list[list[str]], spaces: list[bool]) -> None:
    made = []
    for sentence in sentences:
        pairs = list(zip(sentence, spaces, strict=False))
        made.append(f"# text = {''.join(word + ' ' * space for word, space in pairs).strip()}\n")
        for number, (word, space) in enumerate(pairs, start=1):
            made.append(f"{number}\t{word}" + "\t_" * 7 + ("\t_\n" if space else "\tSpaceAfter=No\n"))
        made.append("\n")
    path = folder / "in.conllu"
    path.write_bytes("".join(made).encode())
    assert [row.content for row in read_rows(path)] == sentences
