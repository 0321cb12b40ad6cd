"""Offsets in the results of every verb point into a treebank's `# text`, not into its words with blanks between."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polyseme
from cli.commands import Run
from tiny_models import tiny_model

TEXTS = {"one": "I don't eat (fish).", "two": "Il va au marché (fish).", "three": 'The "fish" swam, the fish!'}
TOKENS = {
    "one": "1 I,2-3 don't,2 do,3 n't,4 eat,5 (-,6 fish-,7 )-,8 .",
    "two": "1 Il,2 va,3-4 au,3 à,4 le,5 marché,6 (-,7 fish-,8 )-,9 .",
    "three": '1 The,2 "-,3 fish-,4 ",5 swam-,6 ;,7 the,8 fish-,9 !',
}
"""The lines of each sentence, by number and form; no blank follows a `-`. The comma of a sentence is a `;` here."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lines: list[str] = []
    for id, tokens in TOKENS.items():
        lines += [f"# sent_id = {id}", f"# text = {TEXTS[id]}"]
        for number, form in (token.split() for token in tokens.split(",")):
            word = form.removesuffix("-").replace(";", ",")
            misc = "SpaceAfter=No" if form.endswith("-") else "_"
            lines.append("\t".join([number, word, word.lower(), *"_" * 6, misc]))
        lines.append("")
    path = tmp_path / "in.conllu"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def in_text(row: dict[str, str]) -> str:
    """What a row's offsets point at."""
    return TEXTS[row["id"]][int(row["start"]) : int(row["end"])]


def uses(content: Any) -> Iterator[dict[str, Any]]:
    """All records of a JSON file that have a text and offsets in it."""
    if isinstance(content, dict):
        if {"text", "start", "end"} <= content.keys():
            yield content
        content = list(content.values())
    for each in content if isinstance(content, list) else []:
        yield from uses(each)


def test_score_by_word_and_by_piece(run: Run, source: Path, tiny: Path, tmp_path: Path) -> None:
    for by in ("word", "piece"):
        assert run("score", source, "-m", tiny, "-o", tmp_path / f"{by}.csv", "--by", by, "--device", "cpu").code == 0
    spelled = [(row["word"], in_text(row)) for row in rows(tmp_path / "word.csv")]
    assert [pair for pair in spelled if pair[0] != pair[1]] == [("à", "au"), ("le", "au")]
    assert len(spelled) == 8 + 9 + 9
    for row in rows(tmp_path / "piece.csv"):
        assert row["id"] == "two" or in_text(row).lower() == row["piece"].removeprefix("##")


def test_score_as_json_lines_and_by_byte(run: Run, source: Path, tiny: Path, tmp_path: Path) -> None:
    for by in ("word", "byte"):
        ended = run("score", source, "-m", tiny, "-o", tmp_path / f"{by}.jsonl", "--by", by, "--device", "cpu")
        assert ended.code == 0
    by_word, by_byte = (
        [json.loads(line) for line in (tmp_path / f"{by}.jsonl").read_text(encoding="utf-8").splitlines()]
        for by in ("word", "byte")
    )
    for words, text_bytes in zip(by_word, by_byte, strict=True):
        text = TEXTS[words["id"]]
        assert words["text"] == text
        assert words["words"][:1] == [text[slice(*words["offsets"][0])]]
        assert bytes(text_bytes["bytes"]).decode() == text
        assert math.isclose(sum(text_bytes["log_probs"]), sum(words["log_probs"]), rel_tol=1e-9)


@pytest.mark.parametrize("index", [False, True])
def test_senses_and_similar(run: Run, source: Path, tiny: Path, tmp_path: Path, index: bool) -> None:
    indexed = ["--index", tmp_path / "index"] if index else []
    given = ["--in", source, "-m", tiny, *indexed, "--device", "cpu", "--fields", "lemma", "-o"]
    assert run("senses", "fish", *given, tmp_path / "senses.json").code == 0
    ended = run("similar", 'The "[fish]" swam, the fish!', *given, tmp_path / "similar.json")
    assert ended.code == 0
    assert "The marked use itself occurs once" in ended.err
    assert "ranges" not in ended.out
    for name in ("senses", "similar"):
        found = list(uses(json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))))
        assert {each["text"] for each in found} == set(TEXTS.values())
        fish = [each for each in found if each["text"][each["start"] : each["end"]] == "fish"]
        assert len(fish) == (4 if name == "senses" else 1 + 3)  # of similar the marked use, and those without it
        assert [use["fields"] for use in fish if "fields" in use] == [{"lemma": "fish"}] * (
            len(fish) - (name != "senses")
        )


@pytest.mark.parametrize("sort", ["text", "sense"])
@pytest.mark.parametrize(
    ("query", "spelled"),
    [
        (["fish"], "fish"),
        (["do n't"], "don't"),
        (["n't", "--match", "lemma"], "n't"),
        ([r"eat \(", "--match", "pattern"], "eat ("),
    ],
)
def test_concordance(
    run: Run, source: Path, tiny: Path, tmp_path: Path, query: list[str], spelled: str, sort: str
) -> None:
    more = ["-m", tiny, "--device", "cpu", "--n-senses", 1] if sort == "sense" else []
    more += ["--fields", "form"]
    ended = run("concordance", *query, "--in", source, "--sort", sort, *more, "-o", tmp_path / "lines.csv")
    assert ended.code == 0
    lines = rows(tmp_path / "lines.csv")
    assert list(map(in_text, lines)) == [spelled] * (4 if spelled == "fish" else 1)
    forms = {"don't": '["do", "n\'t"]', "eat (": '["eat", "("]'}
    assert {line["form"] for line in lines} == {forms.get(spelled, spelled)}


def test_compare(run: Run, source: Path, tiny: Path, tmp_path: Path) -> None:
    given = ["--in", source, "--in", source, "-m", tiny, "--device", "cpu", "-o", tmp_path / "fish.json"]
    assert run("compare", "fish", *given).code == 0
    found = list(uses(json.loads((tmp_path / "fish.json").read_text(encoding="utf-8"))))
    assert {each["text"] for each in found} == set(TEXTS.values())
    assert {each["text"][each["start"] : each["end"]] for each in found} == {"fish"}


def test_byte_level_pieces(source: Path) -> None:
    for each in polyseme.score(source, model=tiny_model("gpt2")).texts:
        if each.id != "two":
            parts = [each.text[start:end] for start, end in each.spans.tolist()]
            assert "".join(parts).replace(" ", "") == each.text.replace(" ", "")
            assert " f" in parts if each.id == "three" else " f" not in parts
