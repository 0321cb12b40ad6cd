"""Edges: spans of users' files, the marks that heads read, long texts, and the head itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import polyseme
from polyseme.errors import InputError, ModelError
from polyseme.heads.edge_head import FIRST, SECOND
from polyseme.heads.head import Features
from polyseme.heads.head_config import HeadConfig
from polyseme.tasks.edge import span_of
from polyseme.tasks.encoder_rows import RowMaker
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS, build_head
from tiny_models import tiny_model
from transfer.small_tasks import small_task

TEXT = "the crane broke the vase"


@pytest.mark.parametrize(("value", "span"), [("crane", (4, 9)), ("4:9", (4, 9)), ([4, 9], (4, 9)), ("vase", (20, 24))])
def test_a_span_in_a_file(value: object, span: tuple[int, int]) -> None:
    assert span_of(Item(text=TEXT), "first_span", value, "here") == span


def test_a_span_of_words() -> None:
    assert span_of(Item.of_words(TEXT.split()), "first_span", [1, 3], "here") == (4, 15)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("the", "occurs 2 times"),
        ("it", "occurs nowhere"),
        ("4:99", "from 4 to 99, and its text has 24 characters"),
        ([9, 4], "from 9 to 4"),
        (7, "must be .start, end., start:end, or the span itself. Got 7"),
        ("", "Got ''"),
    ],
)
def test_a_span_that_is_none(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        span_of(Item(text=TEXT), "first_span", value, "here")
    with pytest.raises(InputError, match="from word 4 to 9, and there are 5 words"):
        span_of(Item.of_words(TEXT.split()), "first_span", [4, 9], "here")


def test_marks_are_of_words_that_a_span_touches() -> None:
    item = Item(text=TEXT, spans=((6, 11), (4, 9)))
    assert KINDS["edge"].marked(item).marks == (0, FIRST | SECOND, FIRST, 0, 0)
    pair = KINDS["edge-pair"].marked(Item(text="a vase", second="it broke", spans=((2, 6), (3, 8))))
    assert (pair.marks, pair.second_marks) == ((0, FIRST), (0, SECOND))
    with pytest.raises(InputError, match="has no word in it"):
        KINDS["edge"].marked(Item(text=TEXT, spans=((3, 4), (4, 9))))


def test_of_a_long_text_what_is_around_the_spans_is_read() -> None:
    bundle = tiny_model("bert").bundle
    assert bundle.tokenizer is not None
    kind, maker = KINDS["edge"], RowMaker(bundle.tokenizer, bundle.config, 12)
    text = " ".join(["fish"] * 30 + ["crane", "broke", "vase"] + ["fish"] * 30)
    start = text.index("crane")
    item = kind.marked(Item(text=text, spans=((start, start + 5), (text.index("vase"), text.index("vase") + 4))))
    [[row]] = kind.rows(maker, [item])
    marks = item.marks[row.first_word : row.first_word + row.n_words]
    assert len(row.text) <= 12
    assert [mark for mark in marks if mark] == [FIRST, SECOND]
    assert maker.tally.texts == 1
    far = kind.marked(Item(text=text, spans=((0, 4), (len(text) - 4, len(text)))))
    with pytest.raises(InputError, match="pieces apart, and a row has room for"):
        kind.rows(maker, [far])


@pytest.mark.parametrize("kind", ["edge", "edge-pair"])
def test_only_words_in_the_spans_decide(kind: str) -> None:
    torch.manual_seed(0)
    head = build_head(HeadConfig(kind=kind, width=4, labels=("no", "yes"), separate_rows=kind == "edge-pair")).eval()
    words, mask = torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    marks = torch.tensor([[FIRST, FIRST, 0, SECOND, 0]] * 2)
    second = {"second": words.flip(1), "second_mask": mask, "second_marks": marks} if kind == "edge-pair" else {}
    before = head(Features(words=words, mask=mask, marks=marks, **second))
    other = words.clone()
    other[:, 2], other[:, 4] = 9.0, -9.0
    torch.testing.assert_close(head(Features(words=other, mask=mask, marks=marks, **second)), before)
    other[:, 0] += 1.0
    assert not torch.allclose(head(Features(words=other, mask=mask, marks=marks, **second)), before)
    with pytest.raises(ModelError, match="Got no marks"):
        head(Features(words=words, mask=mask, **second))


def test_the_cosine_head_learns_a_threshold_and_knows_its_kinds() -> None:
    settings = {"frozen": True, "head": "cosine", "layer": "0", "epochs": 4, "learning_rate": 0.05, "batch_size": 16}
    done = polyseme.finetune(small_task("edge-pair", n_train=32, n_dev=8), model=tiny_model("bert"), **settings)  # type: ignore[arg-type]
    assert all(len(error["spans"]) == 2 for error in done.errors.worst)
    assert done.seeds[0].curve[-1]["loss"] < done.seeds[0].curve[0]["loss"]
    with pytest.raises(ModelError, match="it is for edge, edge-pair, not for task 'pair'"):
        polyseme.finetune(small_task("pair", n_train=16, n_dev=8), model=tiny_model("bert"), **settings)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="a threshold between two labels"):
        build_head(HeadConfig(kind="edge", width=4, labels=("a", "b", "c"), body="cosine"))


def test_a_file_of_one_s_own_and_predictions(tmp_path: Path) -> None:
    items = small_task("edge", n_train=24, n_dev=0).splits["train"]
    file = tmp_path / "edges.jsonl"
    rows = [
        {"text": item.text, "mention": list(item.spans[0]), "span_b": list(item.spans[1]), "label": item.gold}
        for item in items
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = tiny_model("bert")
    polyseme.finetune(
        "edge", train=file, first_span="mention", model=model, epochs=1, output=tmp_path / "m", device="cpu"
    )
    polyseme.predict(file, model=tmp_path / "m", output=tmp_path / "out.tsv", device="cpu")
    header, first, *_ = (tmp_path / "out.tsv").read_text().splitlines()
    assert header.split("\t")[:6] == ["id", "text", "first_span", "second_span", "label", "probability"]
    text, (start, end) = items[0].text, items[0].spans[0]
    assert first.split("\t")[1:3] == [text, text[start:end]]
    figures = polyseme.evaluate(str(file), model=tmp_path / "m", device="cpu")["all"]
    assert figures["accuracy"] is not None
