"""Which field is the text, which the id, and what goes beside: alike for every format that has fields."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyseme.errors import InputError, OptionError
from polyseme.files.rows import Row, read_rows

COLUMNS = {"key": ["k1", "k2"], "text": ["one", "two"], "mood": ["good", "bad"]}


def write_jsonl(path: Path) -> None:
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_table(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, dialect="excel-tab" if path.suffix == ".tsv" else "excel")
        writer.writerows([list(COLUMNS), *zip(*COLUMNS.values(), strict=True)])


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table(COLUMNS), path)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    ".jsonl": write_jsonl,
    ".csv": write_table,
    ".tsv": write_table,
    ".parquet": write_parquet,
}


@pytest.fixture(params=WRITERS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"in{request.param}"
    WRITERS[request.param](path)
    return path


def test_the_text_alone(table: Path) -> None:
    rows = list(read_rows(table, field="text"))
    assert [(row.content, row.id, row.fields) for row in rows] == [("one", "1", {}), ("two", "2", {})]


def test_an_id_and_fields_beside(table: Path) -> None:
    rows = list(read_rows(table, field="text", id_field="key", fields=["mood"]))
    assert [(row.id, row.fields) for row in rows] == [("k1", {"mood": "good"}), ("k2", {"mood": "bad"})]


def test_all_fields_beside(table: Path) -> None:
    assert next(read_rows(table, field="text", fields="all")).fields == {"key": "k1", "mood": "good"}
    assert next(read_rows(table, field="text", id_field="key", fields="all")).fields == {"mood": "good"}


@pytest.mark.parametrize("options", [{"field": "txt"}, {"field": "text", "id_field": "kee"}])
def test_a_field_that_is_not_there_is_refused_with_the_nearest(table: Path, options: dict[str, str]) -> None:
    with pytest.raises(
        InputError, match=rf"{table.name}.*no field '(txt|kee)'\. Did you mean '(text|key)'\? There are"
    ):
        list(read_rows(table, **options))


def test_a_field_beside_that_is_not_there_is_refused(table: Path) -> None:
    with pytest.raises(InputError, match=r"no field 'mod'\. Did you mean 'mood'"):
        list(read_rows(table, field="text", fields=("mod",)))


def test_where_there_are_several_texts_one_must_be_named(table: Path) -> None:
    with pytest.raises(
        InputError, match=r"3 fields can be the text: key, text, mood\. Name one with --field \(field=…\)\."
    ):
        list(read_rows(table))


def test_the_only_text_need_not_be_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"n": 1, "said": "a", "tags": [1]}\n')
    assert next(read_rows(path)).content == "a"
    pq.write_table(pa.table({"n": [1], "said": ["b"], "id": ["x"]}), tmp_path / "in.parquet")
    assert next(read_rows(tmp_path / "in.parquet", id_field="id")).content == "b"
    assert next(read_rows(tmp_path / "in.parquet")).content == "b"
    (tmp_path / "prompts.jsonl").write_text('{"id": "p0", "prompt": "c"}\n')
    assert next(read_rows(tmp_path / "prompts.jsonl")).content == "c"


def test_a_later_line_without_a_field_beside_has_none(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a", "mood": 1}\n{"text": "b"}\n')
    assert [row.fields for row in read_rows(path, field="text", fields=("mood",))] == [{"mood": 1}, {"mood": None}]


def test_nested_fields(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"doc": {"id": 7, "body": {"words": ["a", "b"]}}}\n')
    row = next(read_rows(path, field="doc.body.words", id_field="doc.id", fields=("doc.id",)))
    assert (row.content, row.id, row.fields) == (["a", "b"], "7", {"doc.id": 7})
    pq.write_table(pa.table({"doc": [{"id": 7, "body": {"words": ["a", "b"]}}]}), tmp_path / "in.parquet")
    assert next(read_rows(tmp_path / "in.parquet", field="doc.body.words", id_field="doc.id")) == Row(
        ["a", "b"], "7", row.place._replace(name=str(tmp_path / "in.parquet"), unit="row")
    )


# --- CoNLL -----------------------------------------------------------------------------------------------------------

CONLL = "-DOCSTART- O\n\n# a comment here\nNew B\nYork I\n\n-DOCSTART- O\n\nit O\n"


def test_columns_of_conll(tmp_path: Path) -> None:
    path = tmp_path / "in.conll"
    path.write_text(CONLL)
    rows = list(read_rows(path, fields="all"))
    assert [row.content for row in rows] == [["New", "York"], ["it"]]
    assert [row.fields for row in rows] == [
        {"2": ["B", "I"], "document": 1, "comments": ["# a comment here"]},
        {"2": ["O"], "document": 2, "comments": []},
    ]
    assert [row.place.line for row in rows] == [4, 9]
    assert [row.fields for row in read_rows(path, field=2, fields=("1",))] == [{"1": ["New", "York"]}, {"1": ["it"]}]
    with pytest.raises(InputError, match="no field '3'"):
        list(read_rows(path, fields=("3",)))


@pytest.mark.parametrize("field", ["word", "0", "-1"])
def test_columns_of_conll_have_numbers(tmp_path: Path, field: str) -> None:
    path = tmp_path / "in.conll"
    path.write_text(CONLL)
    with pytest.raises(OptionError, match=f"a number from 1 on. Got '{field}'"):
        read_rows(path, field=field)


TREEBANK = """\
# newdoc id = d1
# sent_id = s1
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
3.1\tthere\t_\t_\t_\t_\t_\t_\t3:obl\t_
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\t_
"""
EMPTY_NODE = dict.fromkeys(("lemma", "upos", "xpos", "feats", "head", "deprel", "misc"), "_")


def test_a_treebank(tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text(TREEBANK)
    first, second = read_rows(path, fields=("ranges", "empty_nodes"))
    assert (first.content, first.id, first.place.line) == (["Do", "n't", "go", "."], "s1", 5)
    assert first.fields == {
        "ranges": [{"first": 1, "last": 2, "form": "Don't", "misc": "_"}],
        "empty_nodes": [{**EMPTY_NODE, "id": "3.1", "form": "there", "deps": "3:obl"}],
    }
    assert (second.content, second.id) == (["Yes"], "2")
    assert second.fields == {"ranges": [], "empty_nodes": []}
    assert [row.fields for row in read_rows(path)] == [{}, {}], "fields that nobody named are in no output"


def test_words_of_a_treebank_point_into_its_text(tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text(TREEBANK)

    def places(**options: Any) -> list[tuple[str | None, list[str]]]:
        rows = read_rows(path, **options)
        return [(row.text, [(row.text or "")[start:end] for start, end in row.spans or ()]) for row in rows]

    assert places() == [("Don't go.", ["Do", "n't", "go", "."]), ("Yes", ["Yes"])]
    assert places(words="surface") == [("Don't go.", ["Don't", "go", "."]), ("Yes", ["Yes"])]
    assert places(field="lemma") == [(None, []), (None, [])]  # lemmas do not stand in the text
    path.write_text(
        "# text = Il va  au bal\n1\tIl" + "\t_" * 8 + "\n2\tva" + "\t_" * 8 + "\n3-4\tau" + "\t_" * 8 + "\n3\tà"
        + "\t_" * 8 + "\n4\tle" + "\t_" * 8 + "\n5\tbal" + "\t_" * 8 + "\n"
    )  # fmt: skip
    assert places() == [("Il va  au bal", ["Il", "va", "au", "au", "bal"])]
    path.write_text("# text = other\n1\tYes" + "\t_" * 8 + "\n")
    assert places(check_text=False) == [(None, [])]


def test_surface_tokens_of_a_treebank(tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text(TREEBANK)
    first = next(read_rows(path, words="surface", fields=("upos", "newdoc id")))
    assert first.content == ["Don't", "go", "."]
    assert first.fields["upos"] == ["_", "VERB", "PUNCT"]
    assert first.fields["newdoc id"] == "d1"


def test_columns_and_comments_of_a_treebank(tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text(TREEBANK)
    assert [row.content for row in read_rows(path, field="lemma")] == [["do", "not", "go", "."], ["yes"]]
    assert [row.content for row in read_rows(path, field=3)] == [["do", "not", "go", "."], ["yes"]]
    assert next(read_rows(path, id_field="newdoc id")).id == "d1"
    assert [row.fields["newdoc id"] for row in read_rows(path, fields=("newdoc id",))] == ["d1", None]
    everything = next(read_rows(path, fields="all")).fields
    assert everything["sent_id"] == "s1"
    assert everything["deprel"] == ["aux", "advmod", "root", "punct"]
    assert "form" not in everything
    with pytest.raises(OptionError, match=r"no column 'lema'\. Did you mean 'lemma'"):
        read_rows(path, field="lema")
    with pytest.raises(InputError, match=r"line 5: there is no field 'uppos'\. Did you mean 'upos'"):
        list(read_rows(path, fields=("uppos",)))
    with pytest.raises(InputError, match=r"line 11: there is no field 'sent_id'"):
        list(read_rows(path, id_field="sent_id"))


def test_comments_that_stand_alone_belong_to_the_next_sentence(tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text("# newdoc id = d1\n\n# sent_id = s1\n1\tYes" + "\t_" * 8 + "\n\n# newdoc\n")
    assert [row.fields["newdoc id"] for row in read_rows(path, fields=("newdoc id",))] == ["d1"]
    path = tmp_path / "in.conll"
    path.write_text("#begin document (a)\n\n# a comment here\nNew B\n\n#end document\n")
    assert [row.fields for row in read_rows(path, fields=("comments",))] == [
        {"comments": ["#begin document (a)", "# a comment here"]}
    ]
