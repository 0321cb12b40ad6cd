"""How a task is put to a model that writes: an item's texts, each behind words that say what it is, as one text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme.types import Pieces


def prompt_of(name: str, kind: str) -> tuple[str, ...]:
    """What stands before each text of an item, as T5 has it; a task of one's own is called as its file is.

    >>> prompt_of("rte", "pair"), prompt_of("reviews.csv", "classify")
    (('rte sentence1: ', 'sentence2: '), ('reviews sentence: ',))
    """
    name = name.partition(".")[0] or kind
    if kind == "pair":
        return f"{name} sentence1: ", "sentence2: "
    return (f"{name} sentence: ",)


def joined(prompt: Sequence[str], texts: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The whole that is read, and where in it the texts stand.

    >>> joined(("a: ", "b: "), ("Dawn", "broke"))
    ('a: Dawn b: broke', [(3, 7), (11, 16)])
    """
    whole, places = "", []
    for each, text in zip(prompt, texts, strict=True):
        whole += f"{' ' if whole else ''}{each}"
        places.append((len(whole), len(whole) + len(text)))
        whole += text
    return whole, places


def within(pieces: Pieces, places: Sequence[tuple[int, int]]) -> list[NDArray[np.int64]]:
    """Which pieces of the whole are of each text; the others are the prompts'."""
    ends = pieces.spans[:, 1]
    return [np.flatnonzero((ends > start) & (ends <= end)) for start, end in places]
