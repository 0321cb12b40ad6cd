"""The page on transfer: its code runs as it stands there, over small files and a tiny model, and does what it says."""

from __future__ import annotations

import csv
import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from polyseme.cli import main
from tiny_models import tiny_model
from transfer import small_tasks

PAGE = Path(__file__).parents[2] / "docs" / "transfer.md"


def blocks() -> list[tuple[str, str, int]]:
    """Language, code and line of each block that has a language."""
    page = PAGE.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return [(each[1], each[2], page[: each.start()].count("\n") + 2) for each in found]


def write_files(folder: Path) -> None:
    """Everything that the page names."""
    draw = random.Random(0)
    (folder / "models").mkdir()
    tiny_model("bert").save(folder / "models" / "mine")
    rte = folder / "data" / "tasks" / "rte"
    rte.mkdir(parents=True)
    names = {"yes": "entailment", "no": "not_entailment"}
    for split, size in (("train", 16), ("dev", 8)):
        pairs = [small_tasks.pair(draw) for _ in range(size)]
        rows = [f"{number}\t{item.text}\t{item.second}\t{names[item.gold]}" for number, item in enumerate(pairs)]
        (rte / f"{split}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    for name, size in (("reviews.csv", 40), ("more.csv", 5)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "stars"])
            writer.writerows([item.text, item.gold] for item in (small_tasks.classify(draw) for _ in range(size)))
    for name, size in (("train.conll", 20), ("dev.conll", 8), ("test.conll", 8)):
        tagged = [small_tasks.tag(draw) for _ in range(size)]
        marks = {"G": "B-GOOD", "B": "B-BAD", "O": "O"}
        lines = [
            "\n".join(f"{word}\t{marks[tag]}" for word, tag in zip(item.words, item.gold, strict=True))
            for item in tagged
        ]
        (folder / name).write_text("\n\n".join(lines) + "\n")
    questions = [small_tasks.span(draw) for _ in range(12)]
    asked = [
        {
            "context": item.text,
            "qas": [
                {
                    "id": str(number),
                    "question": item.second,
                    "answers": [{"text": answer.text, "answer_start": answer.start} for answer in item.gold],
                }
            ],
        }
        for number, item in enumerate(questions)
    ]
    (folder / "squad.json").write_text(json.dumps({"data": [{"title": "words", "paragraphs": asked}]}))
    words = (*small_tasks.GOOD, *small_tasks.BAD, *small_tasks.OTHERS)
    (folder / "glove.txt").write_text("".join(f"{word} {number} 1 -0.5\n" for number, word in enumerate(words)))
    (folder / "new.txt").write_text("The crane broke.\nA flat tire is bad news.\n")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """All blocks, one after another: the folder they ran in, and what the code has left."""
    folder = tmp_path_factory.mktemp("page")
    write_files(folder)
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, code, line in blocks():
            if language == "python":
                exec(compile("\n" * (line - 1) + code, str(PAGE), "exec"), names)
            else:
                for command in code.splitlines():
                    program, *arguments = shlex.split(command, comments=True)
                    assert program == "polyseme"
                    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
                    assert result.exit_code == 0, f"{command}: {result.output}"
                    names[arguments[0]] = result.output
    return folder, names


def test_every_block_is_run() -> None:
    assert {language for language, _, _ in blocks()} == {"python", "sh"}


def test_models_are_made(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = ran
    for name in ("rte", "stars", "ner", "qa"):
        made = {each.name for each in (folder / "models" / name).iterdir()}
        assert made >= {"model.safetensors", "head.safetensors", "polyseme.json", "report.json", "report.html"}


def test_predictions_are_written(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, names = ran
    tagged = (folder / "tagged.conll").read_text().splitlines()
    assert " ".join(line.split("\t")[0] for line in tagged) == "The crane broke .  A flat tire is bad news . "
    lines = [json.loads(line) for line in (folder / "stars.jsonl").read_text().splitlines()]
    assert len(lines) == len(names["result"].predictions) == 5
    assert [each["label"] for each in lines] == [each.label for each in names["result"].predictions]
    assert "span f1" in names["evaluate"]


def test_the_report(ran: tuple[Path, dict[str, Any]]) -> None:
    _, names = ran
    assert len(names["report"].seeds) == 2
    assert sum(names["report"].best.mix["shares"].values()) == pytest.approx(1)
    assert "rte" in names["benchmark"]
    assert "BERT-base (test)" in " ".join(names["benchmark"].split())


def test_estimators_and_networks(ran: tuple[Path, dict[str, Any]]) -> None:
    _, names = ran
    assert names["classifier"].predict_proba(["a fine beam"]).shape == (1, 2)
    assert [len(tags) for tags in names["tagger"].predict([["The", "record", "broke"]])] == [3]
    assert names["scores"](names["states"])[names["mask"]].shape == (5, 5)
