"""Cloze sets: texts with one mask and the word that belongs there, as JSON lines (LAMA; Petroni et al. 2019).

| field | |
|---|---|
| `text`, `masked_sentence`, or the first of `masked_sentences` | the text with one `[MASK]` |
| `template` and `sub_label` | instead of a text: `[X]` is the subject, `[Y]` the mask |
| `answer`, `answers` or `obj_label` | the word, or several of which each is right |
| `candidates` | optional: the words that the answer is compared with |
| `group`, `relation` or `predicate_id` | optional: what items are counted together |
| `id` or `uuid` | optional |

Other fields are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme.datasets.benchmark import text_lines
from polyseme.errors import InputError
from polyseme.files.rows import Place, excerpt
from polyseme.json_reading import parse_json
from polyseme.text.piece_texts import find_masks
from polyseme.text.tokenizer import MASK_TEXT

FILES = ("*.jsonl",)
_TEXTS = ("text", "masked_sentence", "masked_sentences")
_ANSWERS = ("answer", "answers", "obj_label")
_GROUPS = ("group", "relation", "predicate_id")
_IDS = ("id", "uuid")


@dataclass(frozen=True)
class ClozeItem:
    """A text with one mask, and what belongs there."""

    text: str
    answers: tuple[str, ...]
    """Each of them is right."""
    group: str | None
    candidates: tuple[str, ...]
    """What the answer is compared with; none: any word."""
    id: str
    place: str
    """Where it is, for messages."""


def read_cloze(files: Sequence[Path]) -> list[ClozeItem]:
    """The items of files, in order."""
    items: list[ClozeItem] = []
    for file in files:
        for line in text_lines(file):
            if line.text.strip():
                items.append(_item(line.text, str(Place(str(file), line.number)), str(len(items) + 1)))
    return items


def _item(line: str, place: str, number: str) -> ClozeItem:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise InputError(f"{place}: this is no line of JSON ({error}). A cloze set has one object per line.") from None
    if not isinstance(record, Mapping):
        raise InputError(f"{place}: a line must be an object with text and answer. Got {excerpt(line)} instead.")
    text = _text(record, place)
    n_masks = len(find_masks(text))
    if n_masks != 1:
        raise InputError(
            f"{place}: the text must have one {MASK_TEXT}, and has {n_masks or 'none'}: {excerpt(text)!r}."
        )
    candidates = _words(record, ("candidates",), place) if record.get("candidates") is not None else ()
    answers = _words(record, _ANSWERS, place)
    if candidates and not set(answers) & set(candidates):
        raise InputError(f"{place}: the answer {answers[0]!r} is not among the candidates.")
    group, id = _first_field(record, _GROUPS), _first_field(record, _IDS)
    return ClozeItem(text, answers, None if group is None else str(group), candidates, str(id or number), place)


def _text(record: Mapping[str, Any], place: str) -> str:
    text = _first_field(record, _TEXTS)
    if isinstance(text, list) and text:
        text = text[0]
    template, subject = record.get("template"), record.get("sub_label")
    if text is None and isinstance(template, str) and isinstance(subject, str):
        text = template.replace("[X]", subject).replace("[Y]", MASK_TEXT)
    if not isinstance(text, str):
        raise InputError(
            f"{place}: there is no text. An item needs one of {', '.join(_TEXTS)}, or template and sub_label. "
            f"There are: {', '.join(record) or 'no fields'}."
        )
    return text


def _words(record: Mapping[str, Any], names: Sequence[str], place: str) -> tuple[str, ...]:
    value = _first_field(record, names)
    if value is None:
        raise InputError(
            f"{place}: there is no answer. An item needs one of {', '.join(names)}. There are: {', '.join(record)}."
        )
    words = value if isinstance(value, list) else [value]
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        name = next(name for name in names if record.get(name) is not None)
        raise InputError(f"{place}: {name!r} must be a word or a list of words. Got {value!r} instead.")
    return tuple(dict.fromkeys(word.strip() for word in words))


def _first_field(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)
