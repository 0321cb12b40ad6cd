"""GAP, Winograd's schemas and words in context: edges between spans, and readings that a language model compares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gap_files import ROW, changed, gap
from polyseme.datasets.coreference import FULL, PARTIAL, find_mention, read_gap, read_wnli, read_wsc
from polyseme.datasets.named_benchmarks import read_benchmark
from polyseme.errors import InputError


def test_a_row_of_gap_is_two_edges(tmp_path: Path) -> None:
    gap(tmp_path / "gap", ROW)
    read = read_benchmark("gap", tmp_path)
    assert (read.kind, read.grouped_by) == ("edge", "gender")
    edges = [(item.text[slice(*item.spans[0])], item.text[slice(*item.spans[1])]) for item in read.splits["train"]]
    assert edges == [("Ada", "she"), ("Eve", "she")]
    assert [item.gold for item in read.splits["train"]] == ["true", "false"]
    assert {item.fields["gender"] for item in read.splits["train"]} == {"feminine"}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"B_offset": "9"}, "line 2: B should be 'Eve' at character 9 of its text, and there is 've '"),
        ({"A_offset": "x"}, "A-offset must be a whole number. Got 'x'"),
        ({"A_coref": "maybe"}, "TRUE or FALSE. Got 'maybe'"),
        ({"Pronoun": "before", "Pronoun_offset": "12"}, "'before' is no pronoun of GAP"),
    ],
)
def test_a_span_that_is_not_in_its_text(cells: dict[str, str], message: str, tmp_path: Path) -> None:
    gap(tmp_path / "gap", changed(**cells))
    with pytest.raises(InputError) as error:
        read_benchmark("gap", tmp_path)
    assert message in str(error.value)
    assert "gap-development.tsv" in str(error.value)


def test_readings_of_gap_are_of_rows_in_which_a_name_is_right(tmp_path: Path) -> None:
    partial, full = read_gap([gap(tmp_path / "gap", ROW, changed(ID="d-2", A_coref="FALSE"))])
    assert (partial.name, full.name) == (PARTIAL, FULL)
    [pair] = full.pairs
    assert (pair.good, pair.bad) == ("Ada met Eve before Ada left.", ("Ada met Eve before Eve left.",))
    assert pair.groups == ("feminine",)
    assert partial.pairs[0].last_words == 2, "left and the stop"
    assert "1 rows left out" in full.notes[0]


def test_readings_of_a_schema(tmp_path: Path) -> None:
    rows = [
        {"before": "The man couldn't lift his son because", "pronoun": "he", "after": "was so heavy.",
         "candidates": ["The man", "The son"], "label": 1, "wsc273": True},
        {"before": "Jim nodded toward", "pronoun": "his", "after": "glass", "candidates": ["Jim", "The guards"],
         "label": 0, "wsc273": True},
        {"before": "x", "pronoun": "It", "after": "y", "candidates": ["a", "b"], "label": 0, "wsc273": False},
    ]  # fmt: skip
    file = tmp_path / "wsc283.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    partial, full = read_wsc([file])
    assert [(pair.good, pair.bad[0]) for pair in full.pairs] == [
        ("The man couldn't lift his son because the son was so heavy.",
         "The man couldn't lift his son because the man was so heavy."),
        ("Jim nodded toward Jim's glass", "Jim nodded toward the guards' glass"),
    ]  # fmt: skip
    assert [pair.last_words for pair in partial.pairs] == [4, 1]
    assert "not among the 273" in full.notes[0]


def test_hypotheses_of_one_premise_are_readings(tmp_path: Path) -> None:
    """Also across files; of several that do not hold, the one that shares the most words is taken."""
    premise = "The man lifted his son because he was tired."
    rows = [("1", "The man was tired."), ("0", "The man lifted the man."), ("0", "The son was tired.")]
    (tmp_path / "train.tsv").write_text(
        "label\tsentence1\tsentence2\n" + "".join(f"{label}\t{premise}\t{second}\n" for label, second in rows)
    )
    (tmp_path / "dev.tsv").write_text(
        f"label\tsentence1\tsentence2\n1\t{premise}\tThe man was tired.\n1\tIt ended.\tThe day ended.\n"
    )
    files = [tmp_path / "train.tsv", tmp_path / "dev.tsv"]
    partial, full = read_wnli(files)
    [pair] = full.pairs
    assert (pair.good, pair.bad) == (f"{premise} The man was tired.", (f"{premise} The son was tired.",))
    assert [each.last_words for each in partial.pairs] == [3], "was, tired and the stop"
    assert full.notes == ("1 hypotheses left out whose premise has no other that does not hold.",)
    files[1].write_text(f"label\tsentence1\tsentence2\nyes\t{premise}\tThe man was tired.\n")
    with pytest.raises(InputError, match=r"dev\.tsv, line 2: a hypothesis of WNLI has the label 0 or 1\. Got 'yes'"):
        read_wnli(files)


def test_edges_of_schemas_name_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "wsc").mkdir()
    row = {"text": "The bee sat on the flower as it ate it.", "pronoun": "it", "candidates": ["The bee", "the nectar"],
           "label": 0}  # fmt: skip
    for name in ("dpr_train", "dpr_test"):
        (tmp_path / "wsc" / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    read = read_benchmark("wsc", tmp_path)
    [edge] = read.splits["train"]
    assert edge.text[slice(*edge.spans[1])] == "it"
    assert edge.spans[1][0] == row["text"].index("it ate")  # type: ignore[attr-defined]
    assert any("not in the text" in note for note in read.notes)
    assert any("more than once" in note for note in read.notes)
    assert find_mention("a suitcase", "the trophy") is None


def wic(folder: Path, line: str, gold: str = "T") -> None:
    folder.mkdir(exist_ok=True)
    for split in ("train", "dev"):
        (folder / f"{split}.data.txt").write_text(line + "\n")
        (folder / f"{split}.gold.txt").write_text(gold + "\n")


def test_words_in_context_are_edges_between_two_texts(tmp_path: Path) -> None:
    wic(tmp_path / "wic", "carry\tV\t2-1\tYou must carry it .\tSound carries well .")
    [item] = read_benchmark("wic", tmp_path).splits["train"]
    assert item.text[slice(*item.spans[0])] == "carry"
    assert (item.second or "")[slice(*item.spans[1])] == "carries"
    assert item.gold == "T"


@pytest.mark.parametrize(
    ("line", "gold", "message"),
    [
        ("carry\tV\t2-9\tYou must carry it .\tSound carries well .", "T", "token 9, from 0 on, of 4"),
        ("carry\tV\t2\tYou must carry it .\tSound carries well .", "T", "two numbers, as in 2-1. Got '2'"),
        ("carry\tV\t2-1\tYou must carry it .", "T", "the columns are 4"),
        ("carry\tV\t2-1\tYou must carry it .\tSound carries well .", "X", "'X' is neither T nor F"),
        ("carry\tV\t2-1\tYou must carry it .\tSound carries well .", "T\nF", "1 pairs, and"),
    ],
)
def test_words_in_context_that_cannot_be(line: str, gold: str, message: str, tmp_path: Path) -> None:
    wic(tmp_path / "wic", line, gold)
    with pytest.raises(InputError, match=message):
        read_benchmark("wic", tmp_path)


def test_superglue_s_words_in_context(tmp_path: Path) -> None:
    row = {"word": "bat", "sentence1": "A bat.", "sentence2": "The bat flew.", "start1": 2, "end1": 5, "start2": 4,
           "end2": 7, "label": False}  # fmt: skip
    (tmp_path / "wic").mkdir()
    for name in ("train", "val"):
        (tmp_path / "wic" / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    [item] = read_benchmark("wic", tmp_path).splits["dev"]
    assert (item.gold, item.spans) == ("F", ((2, 5), (4, 7)))
    (tmp_path / "wic" / "val.jsonl").write_text(json.dumps({**row, "end2": 99}) + "\n")
    with pytest.raises(InputError, match="start2 and end2 must be in sentence2, of 13 characters"):
        read_benchmark("wic", tmp_path)
