"""Cloze sets: at which rank a model has the right answer, among all whole words or among given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from polyseme.datasets.cloze import ClozeItem
from polyseme.errors import InputError, OptionError, nearest
from polyseme.filling.fill_text import MAX_PIECES, check_max_pieces
from polyseme.filling.filled_masks import Filler, FillRequest, MaskedText
from polyseme.types import Progress

Among = Literal["words", "answers"]
"""What answers are ranked among: all whole words, or the answers of their group."""
TOP = 10
"""Words that are listed for an item."""


@dataclass(frozen=True)
class ClozeAnswer:
    """What a model has at the mask of an item."""

    rank: int
    """Of the first right answer, from 1; 0: it is not listed."""
    words: tuple[str, ...]
    """The likeliest ones."""


def check_among(among: str) -> None:
    """Refuse what answers cannot be ranked among."""
    if among not in get_args(Among):
        raise OptionError(f"Answers are not ranked among {among!r}. {nearest(str(among), get_args(Among))}")


def cloze_answers(
    filler: Filler,
    items: Sequence[ClozeItem],
    *,
    among: Among = "words",
    max_pieces: int | None = None,
    progress: Progress | None = None,
) -> list[ClozeAnswer]:
    """The rank of each item's answer. An item that brings candidates is ranked among these."""
    check_among(among)
    check_max_pieces(max_pieces)
    of_group: dict[str | None, dict[str, None]] = {}
    for item in items:
        of_group.setdefault(item.group, {}).update(dict.fromkeys(item.answers))
    answers = []
    for done, item in enumerate(items, start=1):
        targets = item.candidates or (tuple(of_group[item.group]) if among == "answers" else ())
        text = MaskedText.read(item.text)
        request = FillRequest(text=text, top=TOP, targets=targets, max_pieces=max_pieces or MAX_PIECES)
        try:
            words = [each.words[0] for each in filler(request)]
        except InputError as error:
            raise InputError(f"{item.place}: {error}") from None
        answers.append(ClozeAnswer(_rank(filler, text, item, words, as_given=bool(targets)), tuple(words[:TOP])))
        if progress is not None:
            progress(done, len(items))
    return answers


def _rank(filler: Filler, text: MaskedText, item: ClozeItem, words: Sequence[str], *, as_given: bool) -> int:
    """Where the first right word is; the model's own words are in the spelling that its tokenizer gives them."""
    right = set(item.answers) if as_given else {filler.as_written(text.before(0), answer) for answer in item.answers}
    return next((rank for rank, word in enumerate(words, start=1) if word in right), 0)
