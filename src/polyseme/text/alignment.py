"""Which pieces make up which word, by their offsets in the text; where they are in the text that the words come from;
and which words have unknown pieces.

Shapes: n pieces, W words. All offsets are `[start, end)` in one text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme.types import Document, Pieces, Tokenizer

Ints = NDArray[np.int64]


def align(spans: Ints, offsets: Ints) -> Ints:
    """The first and last piece of each word: those that share a character with it.

    `spans` [n, 2] are the offsets of the pieces and `offsets` [W, 2] those of the words, both in order. A piece may
    belong to two words. A word without a piece gets as its first piece the index where one would be inserted, and
    one less as its last.
    """
    # Normalizers may swap marks, so that spans are not quite in order: pieces between two of a word belong to it too.
    starts = np.minimum.accumulate(spans[::-1, 0])[::-1]
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.searchsorted(ends, offsets[:, 0], side="right")
    last = np.searchsorted(starts, offsets[:, 1], side="left") - 1
    return np.stack([first, last], axis=1)


def insert_missing(ids: Ints, spans: Ints, words: Ints, offsets: Ints, placeholder: int) -> tuple[Ints, Ints, Ints]:
    """Give each word that has no piece the piece `placeholder`, at its offsets: new ids, spans and words.

    >>> ids, spans, words = insert_missing(np.array([7, 8]), np.array([[0, 1], [4, 5]]),
    ...                                    np.array([[0, 0], [1, 0], [1, 1]]), np.array([[0, 1], [2, 3], [4, 5]]), 9)
    >>> ids.tolist(), spans.tolist(), words.tolist()
    ([7, 9, 8], [[0, 1], [2, 3], [4, 5]], [[0, 0], [1, 1], [2, 2]])
    """
    empty = np.flatnonzero(words[:, 0] > words[:, 1])
    if not len(empty):
        return ids, spans, words
    positions = words[empty, 0]
    words = words + np.searchsorted(positions, words, side="right")
    words[empty] = (positions + np.arange(len(empty)))[:, None]
    return np.insert(ids, positions, placeholder), np.insert(spans, positions, offsets[empty], axis=0), words


def spans_in_original(document: Document, spans: Ints) -> Ints:
    """Offsets of pieces in a document's text, [n, 2], as offsets in its original text, if it has one.

    A part of a word that the original does not spell has all that the original has for the word. The blank before a
    word is what the original has between the two, which may be nothing.

    >>> from polyseme.text.documents import make_document
    >>> document = make_document(["do", "n't", "au"], spans=[(0, 2), (2, 5), (6, 9)], original="don't aux")
    >>> spans_in_original(document, np.array([[0, 2], [2, 4], [4, 6], [6, 8]])).tolist()
    [[0, 2], [2, 3], [3, 5], [5, 9]]
    """
    if document.original is None or not len(spans):
        return spans
    offsets = np.array([(word.start, word.end) for word in document.words], dtype=np.int64)
    original = np.array(document.original.spans, dtype=np.int64)
    alike = np.diff(offsets)[:, 0] == np.diff(original)[:, 0]
    shift = original[:, 0] - offsets[:, 0]
    starts, ends = spans.T
    word = np.maximum(np.searchsorted(offsets[:, 0], starts, side="right") - 1, 0)
    following = np.minimum(word + 1, len(offsets) - 1)
    between = np.minimum(original[word, 1], original[following, 0])
    inside = np.where(alike[word], starts + shift[word], original[word, 0])
    first = np.where(starts < offsets[word, 1], inside, between)
    word = np.maximum(np.searchsorted(offsets[:, 0], ends, side="left") - 1, 0)
    last = np.where(alike[word] & (ends < offsets[word, 1]), ends + shift[word], original[word, 1])
    return np.stack([first, np.maximum(first, last)], axis=1)


def count_unknown(
    encoded: Sequence[Pieces], tokenizer: Tokenizer, only: Sequence[tuple[int, int]] | None = None
) -> int:
    """The number of words with the unknown piece among their pieces.

    `only` restricts the count to a range `[start, end)` of the pieces of each text. Words without a piece of their own,
    which got the unknown piece as a placeholder (`Pieces.n_unknown`), are not counted.
    """
    unknown = tokenizer.specials.get("unknown")
    if unknown is None or not len(encoded) or encoded[0].ids.ndim > 1:
        return 0
    positions = np.flatnonzero(np.concatenate([pieces.ids for pieces in encoded]) == unknown)
    if not len(positions):
        return 0
    starts = np.cumsum([0, *map(len, encoded)])
    if only is not None:
        owners = np.searchsorted(starts, positions, side="right") - 1
        runs = np.array(only, dtype=np.int64).reshape(-1, 2)[owners] + starts[owners, None]
        positions = positions[(runs[:, 0] <= positions) & (positions < runs[:, 1])]
    words = np.concatenate([pieces.words + start for pieces, start in zip(encoded, starts, strict=False)])
    is_unknown = np.searchsorted(positions, words[:, 0]) < np.searchsorted(positions, words[:, 1], side="right")
    return max(int(np.count_nonzero(is_unknown)) - sum(pieces.n_unknown for pieces in encoded), 0)
