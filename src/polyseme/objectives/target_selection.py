"""Which places of a row become targets: single pieces, whole words, or spans of words.

Every function takes the places that may be chosen, `allowed` [R, T], how many of them to choose in each row, `n_chosen`
[R], and the rows' random keys, and gives [R, T], true where a place is chosen. No row depends on the rows beside it.

Shapes: R rows, T pieces of a row, W words of a row, L words of the longest span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus.random_keys import Bools, Floats, Ints, Keys, uniform

SomeType = TypeVar("SomeType", bound=np.generic)

LAST = 2.0
"""Sorts behind every number from 0 to 1."""


def count_targets(allowed: Bools, rate: float) -> Ints:
    """[R]: the share `rate` of the allowed places, rounded, and one at least where there is any."""
    n_allowed = allowed.sum(axis=1, dtype=np.int64)
    n_chosen: Ints = np.minimum(np.maximum(np.rint(rate * n_allowed).astype(np.int64), 1), n_allowed)
    return n_chosen


def most(length: int, rate: float) -> int:
    """How many places any row of this length may have chosen: the width of the arrays."""
    return max(round(rate * length), 1)


def choose_pieces(allowed: Bools, n_chosen: Ints, keys: Keys) -> Bools:
    """Exactly so many places, each set of them as likely as any other."""
    n_most = int(n_chosen.max(initial=0))
    chosen = np.zeros_like(allowed)
    if not n_most:
        return chosen
    numbers = uniform(keys, "places", allowed.shape[1])
    numbers[~allowed] = LAST
    if n_most < allowed.shape[1]:
        first = np.argpartition(numbers, n_most - 1, axis=1)[:, :n_most]
    else:
        first = np.broadcast_to(np.arange(allowed.shape[1]), allowed.shape)
    if (n_chosen < n_most).any():  # the lowest ones of each row, where some rows want fewer
        order = np.argsort(np.take_along_axis(numbers, first, axis=1), axis=1)
        first = np.take_along_axis(first, order, axis=1)
        taken = np.arange(n_most)[None] < n_chosen[:, None]
        rows, slots = np.nonzero(taken)
        chosen[rows, first[rows, slots]] = True
    else:
        np.put_along_axis(chosen, first, True, axis=1)
    return chosen


@dataclass
class Words:
    """The words of rows, as far as their places are allowed; a word cut by the edge of a row counts as one."""

    number: Ints
    """[R, T]: the number of each place's word in its row; it means something only where the place is allowed."""
    lengths: Ints
    """[R, W]: how many pieces each word has; 0 where a row has no more words."""
    stretch: Ints
    """[R, W]: words of one number are side by side, with no special piece between them."""


def words_of(allowed: Bools, starts: Bools) -> Words:
    """A word begins where the corpus says so, and after what is not allowed."""
    n_rows, n_places = allowed.shape
    before = np.zeros_like(allowed)
    before[:, 1:] = allowed[:, :-1]
    begins = allowed & (starts | ~before)
    number = np.cumsum(begins, axis=1) - 1
    flat = number + np.arange(n_rows)[:, None] * n_places
    lengths = np.bincount(flat[allowed], minlength=n_rows * n_places).reshape(n_rows, n_places)
    n_words = int(begins.sum(axis=1).max(initial=0))
    stretch = np.full((n_rows, n_places), -1, dtype=np.int64)
    rows, places = np.nonzero(begins)
    stretch[rows, number[rows, places]] = np.cumsum(~allowed, axis=1)[rows, places]
    return Words(np.maximum(number, 0), lengths[:, :n_words], stretch[:, :n_words])


def choose_words(allowed: Bools, starts: Bools, n_chosen: Ints, keys: Keys) -> Bools:
    """Whole words in random order; one that is longer than the rest of `n_chosen` is passed over."""
    words = words_of(allowed, starts)
    order = _random_order(words, allowed.shape[1], keys)
    lengths = np.take_along_axis(words.lengths, order, axis=1)
    left = n_chosen.copy()
    fits = np.zeros(lengths.T.shape, dtype=np.bool_)
    for turn, length in enumerate(np.ascontiguousarray(lengths.T)):
        fits[turn] = (length <= left) & (length > 0)
        left -= length * fits[turn]
        if not left.any():
            break
    chosen = np.zeros(lengths.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, fits.T, axis=1)
    return _by_place(words, chosen) & allowed


def choose_spans(
    allowed: Bools, starts: Bools, n_chosen: Ints, keys: Keys, *, shape: float, longest: int
) -> tuple[Bools, Ints]:
    """Spans of whole words (SpanBERT), and for each place the number of the word that its span begins with.

    Spans begin at words in random order. Their lengths in words are geometric with `shape`, up to `longest`; a span
    ends earlier before a special piece, a word that is chosen already, and a word longer than what is left.
    """
    words = words_of(allowed, starts)
    n_words = words.lengths.shape[1]
    order = _random_order(words, allowed.shape[1], keys)
    sizes = span_lengths(uniform(keys, "span lengths", allowed.shape[1])[:, :n_words], shape=shape, longest=longest)
    reach = np.arange(longest)
    room = ((0, 0), (0, longest))
    lengths, stretch = np.pad(words.lengths, room), np.pad(words.stretch, room, constant_values=-1)
    chosen = np.zeros(lengths.shape, dtype=np.bool_)
    group = np.zeros(lengths.shape, dtype=np.int64)
    left = n_chosen.copy()
    rows = np.flatnonzero(left)
    for turn in range(n_words):
        rows = rows[left[rows] > 0]
        if not len(rows):
            break
        first = order[rows, turn]
        across = rows[:, None]
        span = first[:, None] + reach  # [R, L]
        its_lengths = lengths[across, span]
        good = ~chosen[across, span] & (its_lengths > 0)
        good &= stretch[across, span] == stretch[rows, first][:, None]
        good &= (reach < sizes[rows, first][:, None]) & (np.cumsum(its_lengths, axis=1) <= left[rows][:, None])
        good = np.logical_and.accumulate(good, axis=1)
        at, step = np.nonzero(good)
        chosen[rows[at], span[at, step]] = True
        group[rows[at], span[at, step]] = first[at]
        left[rows] -= (its_lengths * good).sum(axis=1)
    return _by_place(words, chosen) & allowed, _by_place(words, group)


def span_lengths(numbers: Floats, *, shape: float, longest: int) -> Ints:
    """Geometric numbers from 1 to `longest`, those beyond it left out: the mean is 3.8 with SpanBERT's .2 and 10."""
    if shape == 1.0:
        return np.ones(numbers.shape, dtype=np.int64)
    stay = 1.0 - shape
    sizes: Ints = 1 + np.floor(np.log1p(-numbers * (1.0 - stay**longest)) / np.log(stay)).astype(np.int64)
    return np.clip(sizes, 1, longest)


def _random_order(words: Words, n_places: int, keys: Keys) -> Ints:
    """[R, W]: the words of each row in random order, then those that are not there."""
    numbers = uniform(keys, "words", n_places)[:, : words.lengths.shape[1]]
    return np.argsort(np.where(words.lengths > 0, numbers, LAST), axis=1, kind="stable")


def _by_place(words: Words, of_words: NDArray[SomeType]) -> NDArray[SomeType]:
    """What holds for words, [R, W], for their places, [R, T]."""
    if not of_words.shape[1]:
        return np.zeros(words.number.shape, dtype=of_words.dtype)
    return np.take_along_axis(of_words, words.number, axis=1)
