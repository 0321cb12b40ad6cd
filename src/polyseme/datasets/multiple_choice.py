"""Multiple choice: ARC (Clark et al. 2018), CommonsenseQA (Talmor et al. 2019), SWAG (Zellers et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.datasets.benchmark import Benchmark, file_reader, text_lines
from polyseme.errors import InputError
from polyseme.files.rows import Place, Row, read_rows
from polyseme.files.source import suffixes
from polyseme.tasks.choose import answer_index
from polyseme.tasks.items import Item, ReadingLog

_ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def choice_items(file: Path, log: ReadingLog) -> list[Item]:
    """The questions of a file: JSON lines, as published or as a list of choices and an index, or SWAG's CSV."""
    if suffixes(str(file))[0] == ".csv":
        return _swag_items(file)
    with read_rows(file, field=_text_field(file), fields="all") as rows:
        return [_json_item(row) for row in rows]


def _text_field(file: Path) -> str:
    """The field of the question: the official files have it within `question`, SWAG's cut calls it the context."""
    first = next((line.text for line in text_lines(file) if line.text.strip()), "")
    if '"stem"' in first:
        return "question.stem"
    return "context" if '"context"' in first else "question"


def _json_item(row: Row) -> Item:
    choices, names = _choices(row)
    key = row.fields.get("answerKey", row.fields.get("answer"))
    return Item(
        text=_read_number(row.content, row.place),
        choices=choices,
        gold=None if key in (None, "") else answer_index(key, choices, row.place, names=names),
        id=str(row.fields.get("id") or row.id),
        place=str(row.place),
    )


def _read_number(text: str | Sequence[str], place: Place) -> str:
    if not isinstance(text, str):
        raise InputError(f"{place}: the question must be a text. Got a list instead.")
    return text


def _choices(row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The choices and what they are called, if they are: a list of texts, of objects, or an object of two lists."""
    question = row.fields.get("question")
    listed: Any = question.get("choices") if isinstance(question, Mapping) else row.fields.get("choices")
    if isinstance(listed, Mapping):
        listed = [
            {"text": text, "label": label}
            for text, label in zip(listed.get("text", ()), listed.get("label", ()), strict=False)
        ]
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{row.place}: there is no list 'choices'.")
    names = tuple(str(each["label"]) for each in listed if isinstance(each, Mapping) and "label" in each)
    texts: tuple[Any, ...] = tuple(each.get("text") if isinstance(each, Mapping) else each for each in listed)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{row.place}: choice {number} is empty, or no text.")
    return texts, names if len(names) == len(texts) else ()


def _swag_items(file: Path) -> list[Item]:
    with read_rows(file, format="csv", field="startphrase", fields="all") as rows:
        return [_swag_item(row) for row in rows]


def _swag_item(row: Row) -> Item:
    missing = [name for name in _ENDINGS if not row.fields.get(name)]
    if missing:
        raise InputError(f"{row.place}: {missing[0]!r} is missing or empty. SWAG has four endings per row.")
    choices = tuple(row.fields[name] for name in _ENDINGS)
    key = row.fields.get("label")
    gold = None if key in (None, "") else answer_index(key, choices, row.place)
    text = _read_number(row.content, row.place)
    return Item(text=text, choices=choices, gold=gold, id=row.id, place=str(row.place))


def _arc(name: str, description: str) -> Benchmark:
    short = name.lower()
    return Benchmark(
        name=f"arc-{short}",
        kind="choose",
        description=description,
        metrics=("accuracy",),
        folders=("arc", "ARC", "ARC-V1-Feb2018-2", "ARC-V1-Feb2018"),
        files={
            split: (f"{short}.{split}.jsonl", f"ARC-{name}-{theirs}.jsonl", f"ARC-{name}/ARC-{name}-{theirs}.jsonl")
            for split, theirs in (("train", "Train"), ("dev", "Dev"), ("test", "Test"))
        },
        reader=file_reader(choice_items),
    )


CHOICES: tuple[Benchmark, ...] = (
    _arc("Easy", "science questions for schools, four choices"),
    _arc("Challenge", "the science questions that retrieval gets wrong"),
    Benchmark(
        name="csqa",
        kind="choose",
        description="what everybody knows, five choices",
        metrics=("accuracy",),
        folders=("csqa", "CommonsenseQA", "commonsenseqa"),
        files={
            "train": ("train.jsonl", "train_rand_split.jsonl"),
            "dev": ("dev.jsonl", "dev_rand_split.jsonl"),
            "test": ("test.jsonl", "test_rand_split_no_answers.jsonl"),
        },
        reader=file_reader(choice_items),
    ),
    Benchmark(
        name="swag",
        kind="choose",
        description="what comes next, four endings",
        metrics=("accuracy",),
        folders=("swag", "SWAG", "swagaf/data"),
        files={
            "train": ("train.csv", "train.sample.jsonl", "train.jsonl"),
            "dev": ("val.csv", "val.sample.jsonl", "val.jsonl"),
            "test": ("test.csv",),
        },
        reader=file_reader(choice_items),
    ),
)
