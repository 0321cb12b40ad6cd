"""`polyseme finetune`, `predict`, `evaluate` of a fitted model, `glue`: files in, a folder out, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import random
from pathlib import Path

import pyarrow.parquet
import pytest

import polyseme
from cli.commands import Refuse, Run
from polyseme.errors import PolysemeWarning
from polyseme.transfer import predicting
from transfer.small_tasks import MAKERS

DATA = os.environ.get("POLYSEME_DATA", "")
QUICK = ("--epochs", "1", "--batch", "16", "--device", "cpu")


def write_table(path: Path, n: int, *, seed: int = 0, kind: str = "classify") -> Path:
    draw = random.Random(seed)
    items = [MAKERS[kind][0](draw) for _ in range(n)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(["review", "other", "stars"])
        writer.writerows([item.text, item.second or "", item.gold] for item in items)
    return path


def write_conll(path: Path, n: int, *, seed: int = 0) -> Path:
    draw = random.Random(seed)
    items = [MAKERS["tag"][0](draw) for _ in range(n)]
    lines = [
        line for item in items for line in (*(f"{w}\t{t}" for w, t in zip(item.words, item.gold, strict=True)), "")
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def stars(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stars")
    polyseme.finetune(
        "classify",
        train=write_table(folder / "train.csv", 80),
        text="review",
        label="stars",
        model=tiny,
        output=folder / "model",
        epochs=2,
        rate=3e-3,
        device="cpu",
    )
    return folder / "model"


@pytest.fixture(scope="module")
def tagger(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    polyseme.finetune(
        "tag",
        train=write_conll(folder / "train.conll", 60),
        dev=write_conll(folder / "dev.conll", 20, seed=1),
        label=2,
        head="bilstm-crf",
        inner_width=8,
        frozen=True,
        model=tiny,
        output=folder / "model",
        epochs=3,
        rate=1e-2,
        device="cpu",
    )
    return folder / "model"


def test_a_table_of_ones_own(tiny: Path, tmp_path: Path, run: Run) -> None:
    train, test = write_table(tmp_path / "train.csv", 60), write_table(tmp_path / "test.csv", 20, seed=1)
    ended = run(
        *("finetune", "classify", "--train", train, "--test", test, "--text", "review", "--label", "stars"),
        *("-m", tiny, "-o", tmp_path / "model", "--seeds", "2", *QUICK),
    )
    assert ended.code == 0
    assert "2 seeds" in ended.out
    assert "dev (chose the weights): accuracy" in ended.out
    assert "test (scored once): accuracy" in ended.out
    assert "set aside" in ended.out  # a dev split was made
    assert "rate 0.0001: an encoder narrower" in ended.out
    assert "kWh" in ended.out
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "head.safetensors",
        "polyseme.json",
        "report.json",
        "report.html",
    } <= names
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert [each["seed"] for each in report["seeds"]] == [0, 1]
    card = json.loads((tmp_path / "model" / "polyseme.json").read_text())["task"]
    assert card["labels"] == ["bad", "good"]


def test_columns_count_from_one_and_json(tiny: Path, tmp_path: Path, run: Run) -> None:
    train = write_table(tmp_path / "train.tsv", 40, kind="pair")
    ended = run(
        *("finetune", "pair", "--train", train, "--text", "1", "--second", "2", "--label", "3"),
        *("-m", tiny, "--json", *QUICK),
    )
    assert json.loads(ended.out)["kind"] == "pair"


def test_predictions_of_tables_in_every_format(stars: Path, tmp_path: Path, run: Run) -> None:
    source = write_table(tmp_path / "new.csv", 30, seed=5)
    shown = run("predict", source, "--field", "review", "-m", stars, "--device", "cpu")
    records = [json.loads(line) for line in shown.out.splitlines()]
    texts = [row["review"] for row in csv.DictReader(source.read_text().splitlines())]
    assert [record["text"] for record in records] == texts
    assert all(sum(record["probabilities"].values()) == pytest.approx(1) for record in records)
    for name in ("p.jsonl", "p.tsv", "p.parquet"):
        ended = run("predict", source, "--field", "review", "-m", stars, "-o", tmp_path / name, "--device", "cpu")
        assert "30 texts" in ended.err
    assert [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()] == records
    lines = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()]
    assert lines[0] == ["id", "text", "label", "probability", "p(bad)", "p(good)"]
    assert [line[2] for line in lines[1:]] == [record["label"] for record in records]
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [row["label"] for row in table] == [record["label"] for record in records]


def test_tags_as_conll(tagger: Path, tmp_path: Path, run: Run) -> None:
    text = tmp_path / "new.txt"
    text.write_text("the crane broke\n\na fish, the beer\n")
    run("predict", text, "-m", tagger, "-o", tmp_path / "out.conll", "--device", "cpu")
    blocks = [block.strip() for block in (tmp_path / "out.conll").read_text().split("\n\n") if block.strip()]
    assert [line.split("\t")[0] for line in blocks[0].splitlines()] == ["the", "crane", "broke"]
    assert [line.split("\t")[0] for line in blocks[1].splitlines()] == ["a", "fish", ",", "the", "beer"]
    given = write_conll(tmp_path / "given.conll", 10, seed=3)
    run("predict", given, "--field", "1", "-m", tagger, "-o", tmp_path / "tagged.conll", "--device", "cpu")
    words = [line.partition("\t")[0] for line in given.read_text().splitlines()]
    assert [line.partition("\t")[0] for line in (tmp_path / "tagged.conll").read_text().splitlines()] == words


def test_predicting_goes_on_where_it_was_stopped(
    stars: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "CHUNK_TEXTS", 10)
    source = write_table(tmp_path / "new.csv", 35, seed=6)
    line = ("predict", source, "--field", "review", "-m", stars, "--device", "cpu", "-o")
    run(*line, tmp_path / "whole.jsonl")
    judge, calls = predicting.judge, 0

    def stopping(*arguments: object, **settings: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return judge(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(predicting, "judge", stopping)
    with pytest.raises(KeyboardInterrupt):
        polyseme.predict(source, field="review", model=stars, output=tmp_path / "out.jsonl", device="cpu")
    assert not (tmp_path / "out.jsonl").exists()
    monkeypatch.setattr(predicting, "judge", judge)
    with pytest.warns(PolysemeWarning, match="20 texts"):
        polyseme.predict(source, field="review", model=stars, output=tmp_path / "out.jsonl", device="cpu")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not (tmp_path / "out.jsonl.unfinished").exists()


def test_evaluated_on_a_file_with_labels(stars: Path, tagger: Path, tmp_path: Path, run: Run) -> None:
    test = write_table(tmp_path / "test.csv", 40, seed=7)
    ended = run("evaluate", test, "-m", stars, "--json", "--device", "cpu")
    figures = json.loads(ended.out)["lines"][0]["figures"]
    found = polyseme.predict(test, field="review", model=stars, device="cpu").predictions
    golds = [row["stars"] for row in csv.DictReader(test.read_text().splitlines())]
    right = sum(each.label == gold for each, gold in zip(found, golds, strict=True))
    assert figures["accuracy"] == pytest.approx(right / 40)
    ended = run("evaluate", write_conll(tmp_path / "test.conll", 20, seed=8), "-m", tagger, "--device", "cpu")
    assert "word accuracy" in ended.out


def test_what_is_cut_is_said(stars: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("the crane broke " * 50 + "\nthe fish\n")
    with pytest.warns(PolysemeWarning, match="1 texts were cut to 40 pieces"):
        found = polyseme.predict(text, model=stars, device="cpu").predictions
    assert len(found) == 2


# --- what is refused --------------------------------------------------------------------------------------------------


def test_tasks_that_cannot_be(tiny: Path, tmp_path: Path, refuse: Refuse) -> None:
    def fit(*arguments: object) -> str:
        return refuse("finetune", *arguments, "-m", tiny, "-o", tmp_path / "model", *QUICK, folder=tmp_path)

    train = write_table(tmp_path / "train.csv", 20)
    assert "Did you mean 'rte'?" in fit("rtee", "--data", tmp_path)
    assert "name the folder" in fit("rte")
    assert "nothing to learn" in fit("classify")
    assert "the kind of the task" in fit("rte", "--train", train)
    one = tmp_path / "one.csv"
    one.write_text("review,stars\na,x\nb,x\nc,x\n")
    assert "one label 'x'" in fit("classify", "--train", one, "--text", "review", "--label", "stars")
    many = tmp_path / "many.csv"
    many.write_text("review,stars\n" + "".join(f"the {number},l{number}\n" for number in range(12)))
    assert "12 labels" in fit("classify", "--train", many, "--text", "review", "--label", "stars", "--dev", train)
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("review,stars\na,x\nb,y,z\n")
    assert "line 3" in fit("classify", "--train", ragged, "--text", "review", "--label", "stars")
    empty = tmp_path / "empty.csv"
    empty.write_text("review,stars\na,x\n,y\n" + "b,x\nc,y\n" * 20)
    assert "line 3" in fit("classify", "--train", empty, "--text", "review", "--label", "stars")
    dev = tmp_path / "dev.csv"
    dev.write_text("review,stars\na,good\nb,strange\n")
    assert "'strange'" in fit("classify", "--train", train, "--dev", dev, "--text", "review", "--label", "stars")
    tags = tmp_path / "tags.conll"
    tags.write_text("the\tI-x\ncrane\tB-x\nfell\tI-y\n\na\tB-x\n\n")
    assert "tags.conll" in fit("tag", "--train", tags, "--label", "2", "--scheme", "BIO")
    squad = tmp_path / "squad.json"
    answer = {"text": "fish", "answer_start": 3}
    asked = {"context": "the crane broke", "qas": [{"id": "1", "question": "who ?", "answers": [answer]}]}
    squad.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [asked]}]}))
    assert "passage" in fit("span", "--train", squad)


def test_predictions_that_cannot_be(tiny: Path, stars: Path, tmp_path: Path, refuse: Refuse) -> None:
    text = tmp_path / "new.txt"
    text.write_text("the crane\n")
    assert "without a head" in refuse("predict", text, "-m", tiny, folder=tmp_path)
    assert ".conll holds a tag a word" in refuse(
        "predict", text, "-m", stars, "-o", tmp_path / "o.conll", folder=tmp_path
    )
    assert "End the name" in refuse("predict", text, "-m", stars, "-o", tmp_path / "o.docx", folder=tmp_path)
    assert "reads one text" in refuse("predict", text, "-m", stars, "--second", "x", folder=tmp_path)


def test_a_head_of_another_task(tagger: Path, tmp_path: Path, refuse: Refuse) -> None:
    folder = tmp_path / "rte"
    folder.mkdir()
    for split in ("train", "dev"):
        rows = "".join(
            f"{number}\tthe crane\ta fish\t{label}\n" for number, label in enumerate(["entailment", "not_entailment"])
        )
        (folder / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
    said = refuse("evaluate", "rte", "-m", tagger, "--data", tmp_path, folder=tmp_path)
    assert "made for task 'tag'" in said


# --- glue -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA, reason="POLYSEME_DATA is not set")
def test_glue_is_one_table(tiny: Path, tmp_path: Path, run: Run) -> None:
    line = ("glue", "-m", tiny, "--data", Path(DATA) / "tasks", "--tasks", "wnli", "-o", tmp_path / "glue")
    ended = run(*line, "--frozen", "--layer", "-1", *QUICK)
    assert "(test)" in ended.out
    assert "not the same thing" in ended.out
    assert (tmp_path / "glue" / "wnli" / "head.safetensors").is_file()
    again = run(*line, "--frozen", "--layer", "-1", *QUICK)
    assert again.out == ended.out
    before = (tmp_path / "glue" / "glue.json").read_bytes()
    other = run(*line, "--frozen", "--layer", "0", *QUICK)
    assert other.code == 2
    assert "layer" in other.err
    assert (tmp_path / "glue" / "glue.json").read_bytes() == before
