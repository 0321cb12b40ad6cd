"""SQuAD (Rajpurkar et al. 2016, 2018): questions on a passage, each with its answers in it, or with none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyseme.datasets.benchmark import Benchmark, Files, Read
from polyseme.datasets.tab_separated import Said
from polyseme.errors import InputError
from polyseme.files.rows import shown
from polyseme.files.source import READ_ERRORS, open_source
from polyseme.tasks.items import Answer, Item


def read_squad(files: Files, *, repair: bool = False) -> Read:
    """The questions of each split."""
    said = Said()
    splits: dict[str, Sequence[Item]] = {
        split: list(squad_items(file, said, repair=repair)) for split, file in files.items()
    }
    return Read(splits, notes=list(said.notes()))


def squad_items(file: Path, said: Said, *, repair: bool = False) -> Iterator[Item]:
    """The questions of a file in SQuAD's own layout. The answers of v2.0's `is_impossible` are none.

    Args:
        file: JSON, plain or compressed.
        said: takes down what was repaired.
        repair: whether an answer that does not stand where it should is looked for elsewhere in the passage.
    """
    for item, entry in _questions(file):
        yield replace(item, gold=_gold(entry, item, said, repair))


def squad_questions(file: Path) -> Iterator[Item]:
    """The same without a look at answers, which may be missing or wrong: what is to be predicted."""
    for item, _ in _questions(file):
        yield item


def _questions(file: Path) -> Iterator[tuple[Item, dict[str, Any]]]:
    """Each question with its passage, and the entry that it stands in."""
    data = _json(file)
    articles = data.get("data") if isinstance(data, dict) else None
    if not isinstance(articles, list):
        raise InputError(f"{file} is not laid out as SQuAD is: an object with a list 'data' of articles.")
    for article in articles:
        title = str(article.get("title", "")) if isinstance(article, dict) else ""
        for number, paragraph in enumerate(_list(article, "paragraphs", f"{file}, an article"), start=1):
            place = f"{file}, paragraph {number} of {title!r}"
            passage = paragraph.get("context")
            if not isinstance(passage, str):
                raise InputError(f"{place}: it has no 'context', which is the passage.")
            for entry in _list(paragraph, "qas", place):
                yield _question(entry, passage, file, title), entry


def _question(entry: dict[str, Any], passage: str, file: Path, title: str) -> Item:
    id_ = str(entry.get("id", ""))
    place = f"{file}, question {id_}"
    asked = entry.get("question")
    if not isinstance(asked, str) or not asked.strip():
        raise InputError(f"{place}: it has no 'question', or an empty one.")
    return Item(text=passage, second=asked, id=id_, place=place, fields={"title": title} if title else {})


def _gold(entry: dict[str, Any], item: Item, said: Said, repair: bool) -> tuple[Answer, ...] | None:
    """The answers of a question; None where it is not said whether there are any."""
    if entry.get("is_impossible"):
        return ()
    if entry.get("answers") is None:
        return None
    return tuple(
        found_answer(item.text, each.get("text"), each.get("answer_start"), item.place, said, repair=repair)
        for each in _list(entry, "answers", item.place)
    )


def found_answer(passage: str, text: Any, start: Any, place: object, said: Said, *, repair: bool = False) -> Answer:
    """An answer that stands in the passage; without a start, where it first does."""
    if not isinstance(text, str) or not text:
        raise InputError(f"{place}: the text of an answer is empty or missing. A question without an answer has none.")
    if start is None:
        start = passage.find(text)
        if start < 0:
            raise InputError(f"{place}: the answer {shown(text)!r} does not stand in its passage.")
        if passage.find(text, start + 1) >= 0:
            said.of("an answer that stands in the passage more than once, of which the first place was taken", place)
        return Answer(start, text)
    if isinstance(start, int) and start >= 0 and passage.startswith(text, start):
        return Answer(start, text)
    others = _places(passage, text)
    if repair and others and isinstance(start, int):
        said.of("an answer that does not stand where it should, of which the nearest place was taken", place)
        return Answer(min(others, key=lambda at: abs(at - start)), text)
    there = f"It stands at {', '.join(map(str, others[:3]))}" if others else "It stands nowhere in it"
    stands = passage[start : start + len(text)] if isinstance(start, int) and start >= 0 else ""
    advice = ": have it looked for with --repair (repair=True)." if others else "."
    raise InputError(
        f"{place}: the answer {shown(text)!r} does not stand at character {start} of its passage, where there is "
        f"{shown(stands)!r}. {there}{advice}"
    )


def _places(passage: str, text: str) -> list[int]:
    found = [passage.find(text)]
    while found[-1] >= 0:
        found.append(passage.find(text, found[-1] + 1))
    return found[:-1]


def _list(holder: Any, name: str, place: str) -> list[Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InputError(f"{place}: there is no list {name!r} of objects in it, as SQuAD has.")
    return value


def _json(file: Path) -> Any:
    source = open_source(file)
    try:
        return json.loads(source.stream.read())
    except READ_ERRORS as error:
        raise source.explain(error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8, at byte {error.start}.") from error
    except (json.JSONDecodeError, RecursionError) as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{file} is not JSON: it breaks{where} ({error}).") from error
    finally:
        source.close()


SQUAD: tuple[Benchmark, ...] = (
    Benchmark(
        name="squad",
        kind="span",
        about="where in the passage is the answer? (v1.1)",
        metrics=("answer_f1", "exact_match"),
        folders=("squad", "SQuAD", "squad1.1"),
        files={
            "train": ("train-v1.1.json", "train-v1.1-*.json"),
            "dev": ("dev-v1.1.json",),
            "test": ("test-v1.1.json",),
        },
        reader=read_squad,
    ),
    Benchmark(
        name="squad2",
        kind="span",
        about="where in the passage is the answer, if there is one? (v2.0)",
        metrics=("answer_f1", "exact_match"),
        folders=("squad", "squad2", "SQuAD", "squad2.0"),
        files={
            "train": ("train-v2.0.json", "train-v2.0-*.json"),
            "dev": ("dev-v2.0.json",),
            "test": ("test-v2.0.json",),
        },
        reader=read_squad,
    ),
)
