"""`polyseme finetune`, `predict`, `evaluate` of a fitted model: files in, a folder out, and what is refused."""

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
from polyseme.model_folder import save_bundle
from polyseme.transfer import predict_files as predicting
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS

DATA = os.environ.get("POLYSEME_DATA", "")
QUICK = ("--epochs", "1", "--batch-size", "16", "--device", "cpu")


def write_table(path: Path, n: int, *, seed: int = 0, kind: str = "classify") -> Path:
    draw = random.Random(seed)
    items = [MAKERS[kind][0](draw) for _ in range(n)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(["review", "other", "stars"])
        writer.writerows([item.text, item.second or "", item.gold] for item in items)
    return path


def write_conll(path: Path, n: int, *, seed: int = 0) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    draw = random.Random(seed)
    items = [MAKERS["tag"][0](draw) for _ in range(n)]
    lines = [
        line for item in items for line in (*(f"{w}\t{t}" for w, t in zip(item.words, item.gold, strict=True)), "")
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_rte(folder: Path, labels: list[str]) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"{number}\tthe crane\ta fish\t{label}\n" for number, label in enumerate(labels))
        (folder / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)


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
        learning_rate=3e-3,
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
        learning_rate=1e-2,
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
    with pytest.warns(PolysemeWarning, match="1 text was cut to 40 pieces"):
        found = polyseme.predict(text, model=stars, device="cpu").predictions
    assert len(found) == 2


# --- what is refused --------------------------------------------------------------------------------------------------


TABLE = ("--text", "review", "--label", "stars")
REFUSED: dict[str, tuple[str, dict[str, str], tuple[str, ...], str]] = {
    "a typo in a benchmark": ("rtee", {}, ("--data", "."), "Did you mean 'rte'?"),
    "a typo in a kind": ("clasify", {"train": "review,stars\na,x\n"}, TABLE, "Did you mean 'classify'?"),
    "a typo in a rate": (
        "classify",
        {"train": "review,stars\na,x\n"},
        (*TABLE, "--cost-rates", "kg=1"),
        "no rate 'kg'",
    ),
    "a rate that is no number": (
        "classify",
        {"train": "review,stars\n" + "b,x\nc,y\n" * 9},
        (*TABLE, "--cost-rates", "kg_per_kwh=much"),
        "must be a number",
    ),
    "a benchmark without its data": ("rte", {}, (), "name the folder"),
    "a benchmark with files": ("rte", {"train": "review,stars\na,x\n"}, (), "the kind of the task"),
    "no file to learn from": ("classify", {}, (), "nothing to learn"),
    "one class only": ("classify", {"train": "review,stars\na,x\nb,x\nc,x\n"}, TABLE, "one label 'x' (the first: "),
    "a label for each item": (
        "classify",
        {"train": "review,stars\n" + "".join(f"the {number},l{number}\n" for number in range(12))},
        TABLE,
        "has 12 labels on 12 training items",
    ),
    "ragged columns": ("classify", {"train": "review,stars\na,x\nb,y,z\n"}, TABLE, "train.csv, line 3"),
    "an empty text": ("classify", {"train": "review,stars\na,x\n,y\n" + "b,x\nc,y\n" * 20}, TABLE, "train.csv, line 3"),
    "no label": ("classify", {"train": "review,stars\na,x\nb,\n" + "b,x\nc,y\n" * 20}, TABLE, "train.csv, line 3"),
    "a column that is not there": ("classify", {"train": "review,star\na,x\nb,y\n"}, TABLE, "'star'"),
    "labels of dev that train lacks": (
        "classify",
        {"train": "review,stars\n" + "b,x\nc,y\n" * 9, "dev": "review,stars\na,x\nb,strange\n"},
        TABLE,
        "dev.csv, line 3: dev has 1 label that train lacks: 'strange'",
    ),
    "a head of another task": (
        "classify",
        {"train": "review,stars\n" + "b,x\nc,y\n" * 9},
        (*TABLE, "--head", "bilstm-crf"),
        "crf",
    ),
    "a head that is not there": (
        "classify",
        {"train": "review,stars\na,x\nb,y\n"},
        (*TABLE, "--head", "crff"),
        "'crf'",
    ),
    "an answer that is not in the passage": (
        "span",
        {
            "train": json.dumps(
                {
                    "version": "1.1",
                    "data": [
                        {
                            "title": "t",
                            "paragraphs": [
                                {
                                    "context": "the crane broke",
                                    "qas": [
                                        {
                                            "id": "q7",
                                            "question": "who ?",
                                            "answers": [{"text": "fish", "answer_start": 3}],
                                        }
                                    ],
                                }
                            ],
                        }
                    ],
                }
            )
        },
        (),
        "q7",
    ),
    "an invalid sequence of tags": (
        "tag",
        {"train": "the\tB-x\ncrane\tI-x\n\nit\tO\nfell\tI-y\n\na\tB-x\n\n"},
        ("--label", "2"),
        "train.conll, line 5: 'I-y' may not stand after 'O' in BIO",
    ),
    "an invalid sequence in BILOU": (
        "tag",
        {"train": "the\tB-x\ncrane\tL-x\n\nit\tU-x\nfell\tL-y\n\n"},
        ("--label", "2"),
        "train.conll, line 5: 'L-y' may not stand after 'U-x' in BILOU",
    ),
    "BILOU and BIOES in one file": (
        "tag",
        {"train": "the\tB-x\ncrane\tE-x\n\nit\tU-x\n\n"},
        ("--label", "2"),
        "train.conll, line 4: 'U-x' is no tag of BIOES",
    ),
    "tags turned into BILOU": (
        "tag",
        {"train": "the\tB-x\ncrane\tI-x\n\n"},
        ("--label", "2", "--scheme", "BILOU"),
        "Ask for BIOES",
    ),
    "a share below one item per class": (
        "classify",
        {"train": "text,label\n" + "".join(f"a crane {n},good\na vase {n},bad\n" for n in range(30))},
        ("--train-share", "1%,100%"),
        "takes 2. The smallest that works is 2 (3.71%)",
    ),
    "a share of nothing": ("classify", {"train": "text,label\na,b\nc,d\n"}, ("--train-share", "few"), "Got 'few'"),
    "words and a classifier of texts": (
        "tag",
        {"train": "the\tO\ncrane\tX\n\na\tO\nvase\tX\n\n"},
        ("--label", "2", "--ulmfit"),
        "ULMFiT classifies texts, and tag is a task of words",
    ),
    "ragged tags": ("tag", {"train": "the\tO\ncrane\n\n"}, ("--label", "2"), "train.conll, line 2"),
}
ENDINGS = {"tag": "conll", "span": "json"}


@pytest.mark.parametrize("what", REFUSED)
def test_tasks_that_cannot_be(
    what: str, tiny: Path, tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trained: one paragraph, with the line where there is one, and no folder."""
    monkeypatch.chdir(tmp_path)
    task, files, options, said = REFUSED[what]
    given = []
    for split, content in files.items():
        name = f"{split}.{ENDINGS.get(task, 'csv')}"
        (tmp_path / name).write_text(content)
        given += [f"--{split}", name]
    line = ("finetune", task, *given, *options, "-m", tiny, "-o", tmp_path / "model", *QUICK)
    assert said in refuse(*line, folder=tmp_path)


def test_ulmfit_wants_a_language_model(tmp_path: Path, refuse: Refuse) -> None:
    """An encoder without outputs, such as a sentence model, has never predicted a word."""
    encoder = tiny_model("bert").bundle.copied()
    encoder.outputs.clear()
    save_bundle(encoder, tmp_path / "encoder")
    train = write_table(tmp_path / "train.csv", 30)
    line = ("finetune", "classify", "--train", train, "--text", "review", "--label", "stars", "--ulmfit", *QUICK)
    said = refuse(*line, "-m", tmp_path / "encoder", "-o", tmp_path / "model", folder=tmp_path)
    assert "this model predicts no words" in said
    assert "recipe awd-lstm" in said
    curve = ("--train-share", "50%,100%")
    assert said == refuse(*line, *curve, "-m", tmp_path / "encoder", "-o", tmp_path / "model", folder=tmp_path)


def test_tags_in_bilou_are_learnt_as_bioes(tiny: Path, tmp_path: Path, run: Run) -> None:
    sentence = "the\tO\ncrane\tU-bird\nof\tO\na\tB-place\nfish\tI-place\nhouse\tL-place\n\n"
    (tmp_path / "train.conll").write_text(sentence * 8)
    line = ("--train", tmp_path / "train.conll", "--dev", tmp_path / "dev.conll", "--label", "2")
    (tmp_path / "dev.conll").write_text(sentence * 2)
    model = ("-m", tiny, "-o", tmp_path / "model", "--head", "bilstm-crf", "--frozen", "--inner-width", "8")
    ended = run("finetune", "tag", *line, *model, *QUICK)
    assert ended.code == 0, ended.err
    assert "Tags were turned from BILOU into BIOES." in ended.out
    card = json.loads((tmp_path / "model" / "polyseme.json").read_text())["task"]
    assert card["labels"] == ["O", "S-bird", "B-place", "I-place", "E-place"]


def test_predictions_that_cannot_be(tiny: Path, stars: Path, tmp_path: Path, refuse: Refuse) -> None:
    text = tmp_path / "new.txt"
    text.write_text("the crane\n")
    assert "without a head" in refuse("predict", text, "-m", tiny, folder=tmp_path)
    assert ".conll holds one tag per word" in refuse(
        "predict", text, "-m", stars, "-o", tmp_path / "o.conll", folder=tmp_path
    )
    assert "End the name" in refuse("predict", text, "-m", stars, "-o", tmp_path / "o.docx", folder=tmp_path)
    assert "reads one text" in refuse("predict", text, "-m", stars, "--second", "x", folder=tmp_path)


def test_a_head_of_another_task(tagger: Path, tmp_path: Path, refuse: Refuse) -> None:
    write_rte(tmp_path / "rte", ["entailment", "not_entailment"])
    said = refuse("evaluate", "rte", "-m", tagger, "--data", tmp_path, folder=tmp_path)
    assert "made for task 'tag'" in said
