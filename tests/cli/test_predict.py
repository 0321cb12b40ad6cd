"""What `polyseme predict` reads besides a text, and what it keeps: columns of training, marks, SQuAD, fields."""

from __future__ import annotations

import csv
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.errors import InputError, OptionError, PolysemeWarning
from polyseme.files.rows import read_rows
from polyseme.transfer import predict_files as predicting
from transfer.small_tasks import BAD, GOOD, OTHERS, pair, span, tag

CPU: dict[str, Any] = {"device": "cpu"}
LEARNT: dict[str, Any] = {"epochs": 1, "batch_size": 16, "frozen": True, **CPU}


def roles(n: int, seed: int) -> list[dict[str, Any]]:
    """Sentences of which the marked word alone has a tag of its own, so that the mark must be read."""
    draw = random.Random(seed)
    made = []
    for _ in range(n):
        words = [draw.choice((*GOOD, *BAD, *OTHERS)) for _ in range(draw.randrange(3, 6))]
        at = draw.randrange(len(words))
        marks = [int(number == at) for number in range(len(words))]
        made.append({"forms": words, "gold": ["V" if mark else "O" for mark in marks], "is_verb": marks})
    return made


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_rows(path: Path, header: list[str], rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerows([header, *rows])
    return path


def squad(*answers: Any) -> dict[str, Any]:
    asked = [{"id": f"q{n}", "question": f"which {word} ?", "answers": list(answers)} for n, word in enumerate(GOOD)]
    return {"data": [{"title": "Birds", "paragraphs": [{"context": "the crane broke a vase", "qas": asked}]}]}


@pytest.fixture(scope="module")
def labeller(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles")
    polyseme.finetune(
        "tag",
        train=write_lines(folder / "train.jsonl", roles(96, 0)),
        text="forms",
        label="gold",
        marks="is_verb",
        head="linear",
        layer=0,
        learning_rate=0.05,
        model=tiny,
        output=folder / "model",
        **{**LEARNT, "epochs": 6},
    )
    return folder / "model"


@pytest.fixture(scope="module")
def pairs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    draw = random.Random(1)
    items = [pair(draw) for _ in range(40)]
    rows = [["0", item.text, str(item.second), item.gold] for item in items]
    train = write_rows(folder / "train.tsv", ["number", "one", "other", "same"], rows)
    polyseme.finetune(
        "pair", train=train, text="one", second="other", label=4, model=tiny, output=folder / "model", **LEARNT
    )
    return folder / "model"


@pytest.fixture(scope="module")
def answering(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answering")
    draw = random.Random(1)
    items = [span(draw) for _ in range(30)]
    rows = [
        {"context": item.text, "question": item.second, "answer": item.gold[0].text, "at": item.gold[0].start}
        for item in items
    ]
    train = write_lines(folder / "train.jsonl", rows)
    polyseme.finetune("span", train=train, start="at", model=tiny, output=folder / "model", **LEARNT)
    return folder / "model"


@pytest.fixture(scope="module")
def tagger(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    draw = random.Random(1)
    items = [tag(draw) for _ in range(40)]
    train = write_lines(folder / "train.jsonl", [{"words": item.words, "tags": item.gold} for item in items])
    polyseme.finetune("tag", train=train, model=tiny, output=folder / "model", **LEARNT)
    return folder / "model"


# --- marks ------------------------------------------------------------------------------------------------------------


def test_marks_are_read_as_in_training(labeller: Path, tmp_path: Path, run: Run) -> None:
    rows = roles(20, 9)
    new = write_lines(tmp_path / "new.jsonl", [{"forms": row["forms"], "is_verb": row["is_verb"]} for row in rows])
    found = polyseme.predict(new, model=labeller, **CPU).predictions
    assert [list(each.label) for each in found] == [row["gold"] for row in rows]
    evaluated = polyseme.evaluate(str(write_lines(tmp_path / "test.jsonl", rows)), model=labeller, **CPU)
    assert evaluated.lines[0].figures["word_accuracy"] == 1.0
    other = write_lines(tmp_path / "o.jsonl", [{"w": row["forms"], "verb": row["is_verb"], "x": "y"} for row in rows])
    ended = run("predict", other, "-m", labeller, "--field", "w", "--marks", "verb", "--device", "cpu")
    assert [json.loads(line)["tags"] for line in ended.out.splitlines()] == [row["gold"] for row in rows]


def test_marks_in_conll(labeller: Path, tmp_path: Path) -> None:
    rows = roles(5, 10)
    lines = [
        "".join(f"{word}\tx\t{'V' if mark else '-'}\n" for word, mark in zip(row["forms"], row["is_verb"], strict=True))
        for row in rows
    ]
    (tmp_path / "new.conll").write_text("\n".join(lines))
    found = polyseme.predict(tmp_path / "new.conll", marks="3", model=labeller, **CPU).predictions
    assert [list(each.label) for each in found] == [row["gold"] for row in rows]


def test_changed_marks_are_judged_again(labeller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "CHUNK_TEXTS", 5)
    rows = roles(10, 11)
    new, judge = write_lines(tmp_path / "new.jsonl", rows), predicting.judge

    def stop(*arguments: Any, **settings: Any) -> Any:
        if len(list((tmp_path / "out.jsonl.unfinished").glob("0*.json"))) == 1:
            raise KeyboardInterrupt
        return judge(*arguments, **settings)

    monkeypatch.setattr(predicting, "judge", stop)
    with pytest.raises(KeyboardInterrupt):
        polyseme.predict(new, model=labeller, output=tmp_path / "out.jsonl", **CPU)
    monkeypatch.setattr(predicting, "judge", judge)
    for row in rows:
        for name in ("is_verb", "gold"):
            row[name] = row[name][::-1]
    write_lines(new, rows)
    with pytest.warns(PolysemeWarning, match="the input has changed there"):
        polyseme.predict(new, model=labeller, output=tmp_path / "out.jsonl", **CPU)
    assert [json.loads(line)["tags"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        row["gold"] for row in rows
    ]


def test_marks_that_cannot_be(labeller: Path, tagger: Path, tmp_path: Path, refuse: Refuse) -> None:
    def refused(rows: list[dict[str, Any]], *options: object, model: Path = labeller) -> str:
        new = write_lines(tmp_path / "new.jsonl", rows)
        return refuse("predict", new, "-m", model, "--device", "cpu", *options, folder=tmp_path)

    words = ["the", "crane", "broke"]
    assert "needs the field with the marks" in refused([{"forms": words}])
    given = ("--field", "forms", "--marks", "m")
    assert "line 1: there are 3 words and 2 marks" in refused([{"forms": words, "m": [0, 1]}], *given)
    assert "must be a list with one for each word" in refused([{"forms": words, "m": "010"}], *given)
    assert "must be a list of words" in refused([{"forms": "the crane", "m": [0, 1]}], *given)
    assert "line 1: a mark is 7, and the model knows those from 0 to 1" in refused(
        [{"forms": words, "m": [0, 7, 0]}], *given
    )
    assert "no use for marks" in refused([{"forms": words, "m": [0, 1, 0]}], *given, model=tagger)
    (tmp_path / "new.txt").write_text("the crane broke\n")
    said = refuse("predict", tmp_path / "new.txt", "-m", labeller, "--device", "cpu", folder=tmp_path)
    assert "needs the field with the marks" in said


# --- the columns of training ------------------------------------------------------------------------------------------


def test_columns_are_those_of_training(pairs: Path, answering: Path, tmp_path: Path) -> None:
    rows = [["the crane", "x", "a fish"], ["a vase", "y", "the beer"]]
    new = write_rows(tmp_path / "new.tsv", ["one", "others", "other"], rows)
    found = polyseme.predict(new, model=pairs, **CPU).predictions
    named = polyseme.predict(new, model=pairs, field="one", second="other", **CPU).predictions
    assert [(each.text, each.second) for each in found] == [("the crane", "a fish"), ("a vase", "the beer")]
    assert found == named
    turned = polyseme.predict(new, model=pairs, field="other", second="one", **CPU).predictions
    assert [each.text for each in turned] == ["a fish", "the beer"]
    usual = [["which ?", "7", "the crane"]]  # columns that nobody named have the names they had in training
    asked = write_rows(tmp_path / "asked.csv", ["question", "number", "context"], usual)
    [each] = polyseme.predict(asked, model=answering, **CPU).predictions
    assert (each.text, each.second) == ("the crane", "which ?")


def test_choices_are_those_of_training(tiny: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = []
    for row in range(24):
        right = draw.randrange(2)
        words = [draw.choice(GOOD if number == right else BAD) for number in range(2)]
        rows.append([f"the crane broke {row}", *words, str(right)])
    train = write_rows(tmp_path / "train.csv", ["asked", "a", "b", "right"], rows)
    columns: Any = {"text": "asked", "choices": ["a", "b"], "label": "right"}
    polyseme.finetune("choose", train=train, model=tiny, output=tmp_path / "model", **columns, **LEARNT)
    new = write_rows(tmp_path / "new.csv", ["b", "a", "asked"], [["fish", "vase", "which ?"]])
    with pytest.raises(OptionError, match=r"In training they were 'a', 'b', of which the input lacks some. Name them"):
        polyseme.predict(write_rows(tmp_path / "other.csv", ["a", "asked"], [["x", "y"]]), model=tmp_path / "model")
    named = polyseme.predict(new, model=tmp_path / "model", field="asked", choices=["a", "b"], **CPU)
    assert polyseme.predict(new, model=tmp_path / "model", **CPU).predictions == named.predictions


def test_columns_that_are_not_there_must_be_named(pairs: Path, tmp_path: Path) -> None:
    new = write_rows(tmp_path / "new.tsv", ["one", "second"], [["the crane", "a fish"]])
    with pytest.raises(OptionError, match=r"needs the field with the second text. .*'other'.*--second"):
        polyseme.predict(new, model=pairs, **CPU)
    new = write_rows(tmp_path / "new.tsv", ["first", "other"], [["the crane", "a fish"]])
    with pytest.raises(InputError, match=r"2 fields can be the text"):
        polyseme.predict(new, model=pairs, **CPU)
    new = write_lines(tmp_path / "new.jsonl", [{"one": "the crane", "other": "a fish"}, {"one": "the crane"}])
    with pytest.raises(InputError, match=r"line 2: 'other' must be a text. Got None"):
        polyseme.predict(new, model=pairs, **CPU)


def test_all_fields_are_kept_beside_columns_that_are_nested_or_missing(pairs: Path, tmp_path: Path) -> None:
    rows = [{"one": "the crane", "meta": {"b": "a fish"}}, {"one": "the crane"}]
    settings: Any = {"model": pairs, "second": "meta.b", "fields": "all", **CPU}
    [found] = polyseme.predict(write_lines(tmp_path / "new.jsonl", rows[:1]), **settings).predictions
    assert (found.second, found.fields) == ("a fish", {"meta": {"b": "a fish"}})
    with pytest.raises(InputError, match=r"line 2: 'meta.b' must be a text. Got None"):
        polyseme.predict(write_lines(tmp_path / "new.jsonl", rows), **settings)


def test_a_single_column_may_have_any_name(tagger: Path, tmp_path: Path) -> None:
    new = write_lines(tmp_path / "new.jsonl", [{"forms": ["the", "crane"]}])
    assert polyseme.predict(new, model=tagger, **CPU).predictions[0].words == ("the", "crane")
    (tmp_path / "new.conll").write_text("the\tO\ncrane\tG\n")
    assert polyseme.predict(tmp_path / "new.conll", model=tagger, **CPU).predictions[0].words == ("the", "crane")


# --- SQuAD ------------------------------------------------------------------------------------------------------------


def test_questions_in_squads_layout(answering: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "CHUNK_TEXTS", 4)
    file = tmp_path / "s.json"
    file.write_text(json.dumps(squad({"text": "gone", "answer_start": 0})))  # a gold answer is not looked at
    told: list[tuple[int, int | None]] = []
    found = polyseme.predict(file, model=answering, progress=lambda *each: told.append(each), **CPU).predictions
    assert [(each.id, each.second) for each in found] == [(f"q{n}", f"which {word} ?") for n, word in enumerate(GOOD)]
    assert all(each.text == "the crane broke a vase" and each.label in each.text for each in found)
    size = file.stat().st_size
    assert told == [(0, size), (size * 4 // 6, size), (size, size)]
    run("predict", file, "-m", answering, "-o", tmp_path / "o.jsonl", "--fields", "title", "--device", "cpu")
    records = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [record["label"] for record in records] == [each.label for each in found]
    assert all(record["fields"] == {"title": "Birds"} for record in records)


def test_squads_layout_is_for_questions(answering: Path, tagger: Path, tmp_path: Path, refuse: Refuse) -> None:
    file = tmp_path / "s.json"
    file.write_text(json.dumps(squad()))
    line = ("predict", file, "--device", "cpu", "-m")
    assert "files ending in .json are not read" in refuse(*line, tagger, folder=tmp_path)
    assert "'field' has no use" in refuse(*line, answering, "--field", "context", folder=tmp_path)
    assert "'second' has no use" in refuse(*line, answering, "--second", "question", folder=tmp_path)
    assert "no field 'titel'. Did you mean 'title'" in refuse(*line, answering, "--fields", "titel", folder=tmp_path)
    (tmp_path / "t.csv").write_text("context,question\na,b\n")
    assert "by themselves" in refuse(*line, answering, tmp_path / "t.csv", folder=tmp_path)
    file.write_text('{"data": [7]}')
    assert "no list 'paragraphs'" in refuse(*line, answering, folder=tmp_path)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_tables_keep_the_second_text_and_the_fields(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "CHUNK_TEXTS", 2)
    rows = [["a", "the crane", "a fish", "no"], ["b", "a\tvase", "the beer", "yes"], ["c", "flat", "ball", "no"]]
    new = write_rows(tmp_path / "new.csv", ["key", "one", "other", "label"], rows)
    polyseme.predict(new, model=pairs, id_field="key", output=tmp_path / "p.tsv", **CPU)
    with (tmp_path / "p.tsv").open() as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert list(table[0]) == ["id", "text", "second", "label", "probability", "p(no)", "p(yes)"]
    assert [row["second"] for row in table] == ["a fish", "the beer", "ball"]
    for fields, names in (("label", ["fields.label"]), (["key", "label"], ["key", "fields.label"])):
        polyseme.predict(new, model=pairs, fields=fields, output=tmp_path / "p.tsv", force=True, **CPU)
        with (tmp_path / "p.tsv").open() as file:
            table = list(csv.DictReader(file, delimiter="\t"))
        assert list(table[0])[7:] == names
        assert [row["fields.label"] for row in table] == ["no", "yes", "no"]
    polyseme.predict(new, model=pairs, fields="all", output=tmp_path / "p.tsv", force=True, **CPU)
    with (tmp_path / "p.tsv").open() as file:
        assert list(csv.DictReader(file, delimiter="\t").fieldnames or ())[7:] == ["key", "other", "fields.label"]


def test_all_fields_of_lines_that_differ(tagger: Path, tmp_path: Path) -> None:
    rows = [{"words": ["the", "crane"], "tags": ["O", "G"], "note": None}, {"words": ["fish"], "late": 1, "tags": {}}]
    new = write_lines(tmp_path / "new.jsonl", rows)
    with pytest.warns(PolysemeWarning, match=r"'late'.*are left out of p.tsv"):
        polyseme.predict(new, model=tagger, fields="all", output=tmp_path / "p.tsv", **CPU)
    with (tmp_path / "p.tsv").open() as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert list(table[0]) == ["id", "position", "word", "tag", "probability", "tags", "note"]
    assert [(row["word"], row["tags"], row["note"]) for row in table] == [
        ("the", "O", ""),
        ("crane", "G", ""),
        ("fish", "{}", ""),
    ]


@pytest.mark.filterwarnings("ignore:.* read as the unknown piece:polyseme.errors.PolysemeWarning")
def test_conll_keeps_fields_in_comments(tagger: Path, tmp_path: Path) -> None:
    rows = [
        {"words": ["#the", "crane"], "by": "Ann\tB", "year": 1999, "key": "x"},
        {"words": ["fish"], "by": None, "year": [1, 2], "key": "y"},
    ]
    new = write_lines(tmp_path / "new.jsonl", rows)
    settings: Any = {"model": tagger, "field": "words", "id_field": "key", **CPU}
    polyseme.predict(new, output=tmp_path / "p.conll", fields=["by", "year"], **settings)
    with read_rows(tmp_path / "p.conll", fields="comments") as read:
        found = [(list(row.content), row.fields["comments"]) for row in read]
    assert found == [
        (["#the", "crane"], ["# id = x", "# by = Ann B", "# year = 1999"]),
        (["fish"], ["# id = y", "# by =", "# year = [1, 2]"]),
    ]
    polyseme.predict(new, output=tmp_path / "q.conll", **settings)
    assert [line[0] for line in (tmp_path / "q.conll").read_text().split("\n") if line] == ["#", "c", "f"]


def test_empty_texts_have_no_sentence_in_conll(tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("the crane\n\n\nfish\n")
    with pytest.warns(PolysemeWarning, match=r"2 empty texts have no sentence in out.conll"):
        polyseme.predict(tmp_path / "new.txt", model=tagger, output=tmp_path / "out.conll", **CPU)
    with read_rows(tmp_path / "out.conll") as read:
        assert [list(row.content) for row in read] == [["the", "crane"], ["fish"]]
    assert "\n\n\n" not in (tmp_path / "out.conll").read_text()
    (tmp_path / "new.txt").write_text("the crane\nfish\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyseme.predict(tmp_path / "new.txt", model=tagger, output=tmp_path / "out.conll", force=True, **CPU)
