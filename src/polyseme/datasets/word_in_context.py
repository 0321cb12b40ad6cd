"""Words in context (Pilehvar and Camacho-Collados 2019): does a word mean the same in two sentences?

Its own files have one line per pair, with the numbers of the word's tokens, and labels in a file beside; SuperGLUE's
are JSON lines with characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyseme.datasets.benchmark import UNLABELED, Benchmark, BenchmarkData, Files, text_lines
from polyseme.errors import InputError
from polyseme.files.rows import Place, Row, excerpt, read_rows
from polyseme.files.source import suffixes
from polyseme.tasks.items import Item
from polyseme.tasks.splits import split_files

LABELS = ("F", "T")
"""Whether the meaning is the same."""
_COLUMNS = ("word", "part of speech", "places", "sentence 1", "sentence 2")


def read_wic(files: Files) -> BenchmarkData:
    """The pairs of each split."""
    splits = {}
    for split, file in files.items():
        items = list(_json_items(file) if suffixes(str(file))[0] == ".jsonl" else _items(file, split))
        labeled = any(item.gold is not None for item in items)
        splits[split if labeled else split + UNLABELED] = items
    return BenchmarkData(dict(splits))


def _items(file: Path, split: str) -> Iterator[Item]:
    gold_file = split_files(file.parent, {split: (f"{split}.gold.txt",)}).get(split)
    golds = None if gold_file is None else [line for line in text_lines(gold_file) if line.text.strip()]
    lines = [line for line in text_lines(file) if line.text.strip()]
    if golds is not None and len(golds) != len(lines):
        raise InputError(f"{file} has {len(lines):,} pairs, and {gold_file} has {len(golds):,} labels.")
    for number, line in enumerate(lines):
        place = Place(str(file), line.number)
        cells = line.text.rstrip("\n").split("\t")
        if len(cells) != len(_COLUMNS):
            raise InputError(f"{place}: the columns are {len(cells)}, and there should be: {', '.join(_COLUMNS)}.")
        word, part, places, one, two = cells
        numbers = places.split("-")
        if len(numbers) != 2 or not all(each.isdecimal() for each in numbers):
            raise InputError(
                f"{place}: the places of the word must be two numbers, as in 2-1. Got {excerpt(places)!r}."
            )
        gold = None if golds is None else golds[number].text.strip()
        if gold is not None and gold not in LABELS:
            raise InputError(f"{gold_file}, line {golds[number].number}: {excerpt(gold)!r} is neither T nor F.")  # type: ignore[index]
        spans = tuple(_token(text, int(at), place) for text, at in zip((one, two), numbers, strict=True))
        yield Item(
            text=one,
            second=two,
            spans=spans,
            gold=gold,
            id=str(number + 1),
            place=str(place),
            fields={"word": word, "part_of_speech": part},
        )


def _token(text: str, number: int, place: Place) -> tuple[int, int]:
    """The characters of a token, counted from 0 between blanks."""
    tokens = text.split(" ")
    if number >= len(tokens):
        raise InputError(f"{place}: the word should be token {number}, from 0 on, of {len(tokens)}: {excerpt(text)!r}.")
    start = sum(len(token) + 1 for token in tokens[:number])
    return start, start + len(tokens[number])


def _json_items(file: Path) -> Iterator[Item]:
    with read_rows(file, field="sentence1", fields="all") as rows:
        for row in rows:
            second = row.fields.get("sentence2")
            if not isinstance(second, str):
                raise InputError(f"{row.place}: 'sentence2' must be a text. Got {second!r} instead.")
            label = row.fields.get("label")
            yield Item(
                text=str(row.content),
                second=second,
                spans=(_characters(row, 1, str(row.content)), _characters(row, 2, second)),
                gold=None if label is None else LABELS[str(label).lower() in ("true", "1", "t")],
                id=str(row.fields.get("idx", row.id)),
                place=str(row.place),
                fields={"word": row.fields.get("word")},
            )


def _characters(row: Row, which: int, text: str) -> tuple[int, int]:
    start, end = (row.fields.get(f"{name}{which}") for name in ("start", "end"))
    places: tuple[Any, Any] = (_number(start), _number(end))
    if None in places or not 0 <= places[0] < places[1] <= len(text):
        raise InputError(
            f"{row.place}: start{which} and end{which} must be in sentence{which}, of {len(text)} characters. Got "
            f"{start!r} and {end!r}."
        )
    return places


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else None


WORD_IN_CONTEXT: tuple[Benchmark, ...] = (
    Benchmark(
        name="wic",
        kind="edge-pair",
        description="does the word mean the same in the two sentences? (SuperGLUE)",
        metrics=("accuracy",),
        folders=("wic", "WiC", "WiC_dataset"),
        files={
            "train": ("train.data.txt", "train.jsonl"),
            "dev": ("dev.data.txt", "val.jsonl"),
            "test": ("test.data.txt", "test.jsonl"),
        },
        labels=LABELS,
        reader=read_wic,
    ),
)
