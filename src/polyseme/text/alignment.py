"""Which pieces make up which word, by their places in the text.

Shapes: n pieces, W words. All offsets are `[start, end)` in one text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def align(spans: Ints, offsets: Ints) -> Ints:
    """The first and last piece of each word: those that share a character with it.

    `spans` [n, 2] are the places of the pieces and `offsets` [W, 2] those of the words, both in order. One piece may
    serve two words. A word that no piece touches comes out with its first piece, where one would have to be put in,
    after its last.
    """
    # Normalizers may swap marks, so that spans are not quite in order: pieces between two of a word belong to it too.
    starts = np.minimum.accumulate(spans[::-1, 0])[::-1]
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.searchsorted(ends, offsets[:, 0], side="right")
    last = np.searchsorted(starts, offsets[:, 1], side="left") - 1
    return np.stack([first, last], axis=1)


def put_in(ids: Ints, spans: Ints, words: Ints, offsets: Ints, stand_in: int) -> tuple[Ints, Ints, Ints]:
    """Give each word that has no piece the piece `stand_in`, at its place: new ids, spans and words.

    >>> ids, spans, words = put_in(np.array([7, 8]), np.array([[0, 1], [4, 5]]),
    ...                            np.array([[0, 0], [1, 0], [1, 1]]), np.array([[0, 1], [2, 3], [4, 5]]), 9)
    >>> ids.tolist(), spans.tolist(), words.tolist()
    ([7, 9, 8], [[0, 1], [2, 3], [4, 5]], [[0, 0], [1, 1], [2, 2]])
    """
    empty = np.flatnonzero(words[:, 0] > words[:, 1])
    if not len(empty):
        return ids, spans, words
    places = words[empty, 0]
    words = words + np.searchsorted(places, words, side="right")
    words[empty] = (places + np.arange(len(empty)))[:, None]
    return np.insert(ids, places, stand_in), np.insert(spans, places, offsets[empty], axis=0), words
