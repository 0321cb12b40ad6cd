"""A fitted model predicts on what is in memory, for every kind of task, as it does on the file with the same rows."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import polyseme
from polyseme.errors import InputError, ModelError, OptionError, PolysemeWarning
from polyseme.tasks.items import Item
from polyseme.text.documents import to_documents
from tiny_models import tiny_model
from transfer.small_tasks import MAKERS, small_task

OPTIONS: dict[str, Any] = {"epochs": 1, "batch_size": 16, "frozen": True, "device": "cpu", "layer": 0}


def pairs_of(kind: str, items: list[Item]) -> list[Any]:
    """Items as one would type them."""
    if kind == "tag":
        return [list(item.words) for item in items]
    if item_spans := [item.spans for item in items if item.spans]:
        texts = [(item.text,) if item.second is None else (item.text, item.second) for item in items]
        return [(*text, *map(list, spans)) for text, spans in zip(texts, item_spans, strict=True)]
    if kind == "choose":
        return [(item.text, list(item.choices)) for item in items]
    return [item.text if item.second is None else (item.text, item.second) for item in items]


def records_of(kind: str, items: list[Item]) -> list[dict[str, Any]]:
    records = [
        {"text": list(item.words) or item.text, "second": item.second, "choices": list(item.choices)} for item in items
    ]
    for record, item in zip(records, items, strict=True):
        record |= {name: list(span) for name, span in zip(("first_span", "second_span"), item.spans, strict=False)}
    spans = ("first_span", "second_span")
    edges = {"edge": ("text", *spans), "edge-pair": ("text", "second", *spans)}
    used = {**edges, "tag": ("text",), "classify": ("text",), "choose": ("text", "choices")}.get(
        kind, ("text", "second")
    )
    return [{name: record[name] for name in used} for record in records]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for each kind, little trained."""
    folder = tmp_path_factory.mktemp("fitted")
    for kind in MAKERS:
        polyseme.finetune(
            small_task(kind, n_train=32, n_dev=8), model=tiny_model("bert"), output=folder / kind, **OPTIONS
        )
    return folder


@pytest.mark.parametrize("kind", MAKERS)
def test_texts_lists_frames_and_files_say_the_same(kind: str, fitted: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    items = [MAKERS[kind][0](draw) for _ in range(6)]
    records = records_of(kind, items)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    named = {name: name for name in ("second", "choices", "first_span", "second_span")} | {"field": "text"}
    named = {role: name for role, name in named.items() if name in records[0] or role == "field"}
    expected = polyseme.predict(path, model=fitted / kind, device="cpu", **named).predictions  # type: ignore[arg-type]
    model = polyseme.load(fitted / kind, device="cpu")
    for predictions in (
        model.predict(pairs_of(kind, items)),
        model.predict(records),
        model.predict(pd.DataFrame(records), **named),  # type: ignore[arg-type]
        polyseme.predict(pairs_of(kind, items), model=fitted / kind, device="cpu").predictions,
        polyseme.predict(iter(records), model=model).predictions,
    ):
        assert [each.label for each in predictions] == [each.label for each in expected]
        for ours, theirs in zip(predictions, expected, strict=True):
            assert ours.probability == pytest.approx(theirs.probability)
        assert [each.id for each in predictions] == [str(number) for number in range(1, 7)]


def test_predictions_on_a_frame_go_to_a_file_with_its_fields(fitted: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["the crane broke .", "a vase"], "stars": [1, 5]})
    result = polyseme.predict(frame, model=fitted / "classify", fields="all", output=tmp_path / "out.jsonl")
    assert result.predictions == []
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["text"], line["fields"]) for line in lines] == [
        ("the crane broke .", {"stars": 1}),
        ("a vase", {"stars": 5}),
    ]


def test_fields_of_predictions_keep_their_types_in_parquet(fitted: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["the crane", "a vase"], "id": [7, 8], "tags": [["a"], []], "share": [0.5, None]})
    with pytest.warns(PolysemeWarning, match="'id' is called 'fields.id'"):
        polyseme.predict(frame, model=fitted / "classify", field="text", fields="all", output=tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["id"].to_pylist() == ["1", "2"]
    assert table["fields.id"].to_pylist() == [7, 8]
    assert table["tags"].to_pylist() == [["a"], []]
    assert table["share"].to_pylist() == [0.5, None]


def test_many_predictions_are_a_short_table(fitted: Path) -> None:
    predictions = polyseme.load(fitted / "classify", device="cpu").predict(["a vase"] * 60)
    assert len(repr(predictions).splitlines()) == 12
    assert repr(predictions[0]).startswith("Prediction('")
    result = polyseme.predict([["a", "vase"]], model=fitted / "tag", device="cpu")
    first, header, row, cost = repr(result).splitlines()
    assert (first, header.split()) == ("1 prediction, task tag", ["id", "label", "probability", "text"])
    assert re.match(r"1 +a/\S+ vase/\S+ +a vase", row)
    assert cost.startswith("1 text, 2 words, ")


@pytest.mark.parametrize("kind", MAKERS)
def test_words_and_pieces_are_counted_as_embed_counts_them(kind: str, fitted: Path) -> None:
    """Frozen vectors of words are made of pieces, specials included."""
    items = [MAKERS[kind][0](random.Random(3))] * 2
    texts = [text for item in items for text in (list(item.words) or item.text, item.second, *item.choices) if text]
    cost = polyseme.predict(pairs_of(kind, items), model=fitted / kind, device="cpu").cost
    model = polyseme.load(fitted / kind, device="cpu")
    assert model.task_model[0].config.frozen
    embedder = model.embedder()
    embedder(to_documents(texts))
    assert (cost.words, cost.pieces) == (embedder.tally.words, embedder.tally.pieces)
    assert cost.pieces > cost.words


def test_a_loaded_model_shares_its_encoder_with_its_head(fitted: Path) -> None:
    model = polyseme.load(fitted / "classify", device="cpu")
    assert model.task_model[0].bundle is model.bundle
    doubled = polyseme.load(fitted / "classify", device="cpu", dtype="fp64")
    assert doubled.predict(["a vase"])[0].label == model.predict(["a vase"])[0].label


def test_what_a_kind_of_task_cannot_read_is_refused(fitted: Path) -> None:
    with pytest.raises(InputError, match=r"text 2: a model for task 'pair' reads pairs.*Got 'b' instead"):
        polyseme.load(fitted / "pair", device="cpu").predict([("a", "b"), "b"])
    with pytest.raises(InputError, match="'choose' reads pairs of a question and a list of choices"):
        polyseme.load(fitted / "choose", device="cpu").predict(["a"])
    with pytest.raises(InputError, match=r"no field 'review'"):
        polyseme.load(fitted / "classify", device="cpu").predict(pd.DataFrame({"text": ["a"]}), field="review")
    with pytest.raises(OptionError, match="needs the field with the second"):
        polyseme.load(fitted / "pair", device="cpu").predict(pd.DataFrame({"text": ["a"], "other": ["b"]}))
    with pytest.raises(OptionError, match="loaded already"):
        polyseme.predict(["a"], model=polyseme.load(fitted / "classify", device="cpu"), device="cpu")
    with pytest.raises(ModelError, match="comes from no folder"):
        tiny_model("bert").predict(["a"])


def test_rows_that_cannot_be_judged_are_skipped(fitted: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a", "second": "b"}\n{"text": "a", "second": 7}\n{"text": "a", "second": "c"}\n')
    with pytest.warns(PolysemeWarning, match=r"line 2: 'second' must be a text|1 row was skipped"):
        done = polyseme.predict(path, model=fitted / "pair", field="text", second="second", on_error="skip")
    assert [each.id for each in done.predictions] == ["1", "3"]


def test_a_task_is_learned_and_evaluated_from_frames() -> None:
    items = small_task("classify", n_train=48, n_dev=16).splits
    frames = {
        split: pd.DataFrame(
            {"review": [item.text for item in items[split]], "mood": [item.gold for item in items[split]]}
        )
        for split in ("train", "dev")
    }
    options = {**OPTIONS, "text": "review", "label": "mood", "model": tiny_model("bert")}
    report = polyseme.finetune("classify", train=frames["train"], dev=frames["dev"], **options)
    lists = polyseme.finetune(small_task("classify", n_train=48, n_dev=16), **{**OPTIONS, "model": tiny_model("bert")})
    assert report.best.dev["accuracy"] == lists.best.dev["accuracy"]
    with pytest.raises(InputError, match=r"no field 'mod'\. Did you mean 'mood'"):
        polyseme.finetune("classify", train=frames["train"], **{**options, "label": "mod"})
    with pytest.raises(OptionError, match="both train and dev"):
        polyseme.finetune("classify", train=frames["train"], dev=frames["train"], **options)
    with pytest.raises(InputError, match="a table with a column of labels"):
        polyseme.finetune("classify", train=["A great film"], **options)


def test_a_task_model_is_evaluated_on_a_frame(fitted: Path) -> None:
    frame = pd.DataFrame({"text": ["the crane", "a vase"], "label": ["good", "bad"]})
    report = polyseme.evaluate(frame, model=fitted / "classify", device="cpu")
    assert report.lines[0].n == 2
    with pytest.raises(OptionError, match="a model with a task's head"):
        polyseme.evaluate(frame, device="cpu")
