"""The two searches of SentencePiece: the likeliest pieces of a text (unigram), and merges of characters (BPE).

Both equal the library's, including the rounding of sums: the library adds up 32-bit scores from the beginning of a
text. If two segmentations of 3,000 are equally likely, rounding decides, and so the sum of all scores before it.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_UNKNOWN_PENALTY = 10.0
_SMALLEST = 2.0**-126
"""The smallest normal 32-bit number, which the library takes for the lowest one."""


_Nodes = dict[str, tuple["_Nodes", float | None, int]]
"""A trie: for each character the nodes below it, and score and id of the piece that ends there."""
_NONE: _Nodes = {}

TIE_MARGIN = 1e-3
"""Sums of scores that differ by less count as tied: after another text their order may be another.

This holds for texts of up to about 1,000 words. In longer ones the library's sums have lost so many digits that it
takes less likely pieces, which is not imitated.
"""
Cut = tuple[int, int, int]
"""A piece of a text: its id, its start and its end."""


class Cuts(NamedTuple):
    """The pieces of a text."""

    pieces: list[Cut]
    scores: tuple[float, ...] = ()
    has_ties: bool = False
    """Whether other pieces are about as likely, so that the text before decides."""


def add_up(so_far: float, scores: Iterable[float]) -> float:
    """The sum, as it is rounded after each number."""
    return float(np.add.accumulate(np.array([so_far, *scores], np.float32))[-1])


class LikeliestPieces:
    """The unigram model: the pieces whose scores have the largest sum."""

    def __init__(self, scores: Mapping[str, tuple[int, float]], user_defined: Mapping[str, int], unknown: int) -> None:
        scores = {text: (id, _single(score)) for text, (id, score) in scores.items()}
        normal = [score for _, score in scores.values()]
        highest = max([_SMALLEST, *normal])
        self._unknown = unknown
        self._unknown_score = _single(min(normal, default=0.0) - _UNKNOWN_PENALTY)
        self._scores = {unknown: self._unknown_score}
        self._longest = max(map(len, (*scores, *user_defined)), default=0)
        self._rounded = array("f", [0.0])
        """A place for one number, which rounds it to 32 bits."""
        self._roots: _Nodes = {}
        for text, (id, score) in scores.items():
            self._add(text, id, score)
        for text, id in user_defined.items():
            self._add(text, id, _single(len(text.encode()) * highest - 0.1))

    def cut(self, text: str, so_far: float = 0.0) -> Cuts:
        """The pieces of a text, unknown characters one by one; `so_far` is the sum of the scores before it."""
        size = len(text)
        best, rounded, has_ties = array("f", bytes(4 * (size + 1))), self._rounded, False
        best[0] = so_far
        starts = [-1] * (size + 1)
        ids = [self._unknown] * (size + 1)
        for start in range(size):
            so_far, nodes, end, is_known = best[start], self._roots, start, False
            for char in text[start : start + self._longest]:
                node = nodes.get(char)
                if node is None:
                    break
                nodes, score, id = node
                end += 1
                if score is None:
                    continue
                is_known = is_known or end == start + 1
                score += so_far
                if starts[end] >= 0:
                    if score <= best[end]:
                        has_ties = has_ties or score > best[end] - TIE_MARGIN
                        continue
                    rounded[0] = score
                    has_ties = has_ties or score < best[end] + TIE_MARGIN
                    if rounded[0] <= best[end]:
                        continue
                best[end], starts[end], ids[end] = score, start, id
            if not is_known:
                rounded[0] = self._unknown_score + so_far
                if starts[start + 1] < 0 or rounded[0] > best[start + 1]:
                    best[start + 1], starts[start + 1], ids[start + 1] = rounded[0], start, self._unknown
        cuts: list[Cut] = []
        end = size
        while end:
            cuts.append((ids[end], starts[end], end))
            end = starts[end]
        cuts.reverse()
        return Cuts(cuts, tuple([self._scores[id] for id, _, _ in cuts]), has_ties)

    def _add(self, text: str, id: int, score: float) -> None:
        nodes = self._roots
        for char in text[:-1]:
            node = nodes.setdefault(char, (_NONE, None, -1))
            if node[0] is _NONE:
                node = nodes[char] = ({}, node[1], node[2])
            nodes = node[0]
        self._scores[id] = score
        nodes[text[-1]] = (nodes.get(text[-1], (_NONE,))[0], score, id)


class MergedPieces:
    """Byte-pair encoding: of two neighbors that make up a piece, those with the highest score are merged first."""

    def __init__(self, scores: Mapping[str, tuple[int, float]], user_defined: Mapping[str, int], unknown: int) -> None:
        self._table = dict(scores)
        self._user_defined = user_defined
        self._symbols = re.compile("|".join([*map(re.escape, by_length(user_defined)), "(?s:.)"]))
        self._unknown = unknown

    def cut(self, text: str, so_far: float = 0.0) -> Cuts:
        """The pieces of a text; user-defined ones are never merged with others. `so_far` has no effect."""
        symbols = [match[0] for match in self._symbols.finditer(text)]
        is_whole = [symbol in self._user_defined for symbol in symbols]
        before, after = list(range(-1, len(symbols) - 1)), list(range(1, len(symbols) + 1))
        agenda: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left < 0 or right >= len(symbols) or is_whole[left] or is_whole[right]:
                return
            piece = symbols[left] + symbols[right]
            if piece in self._table:
                heapq.heappush(agenda, (-self._table[piece][1], left, right, piece))

        for right in range(1, len(symbols)):
            propose(right - 1, right)
        while agenda:
            _, left, right, piece = heapq.heappop(agenda)
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != piece:
                continue  # one of the two was merged with another meanwhile
            symbols[left], symbols[right] = piece, ""
            after[left] = after[right]
            if after[right] < len(symbols):
                before[after[right]] = left
            propose(before[left], left)
            propose(left, after[left])
        return self._placed(symbols)

    def _placed(self, symbols: Sequence[str]) -> Cuts:
        cuts: list[Cut] = []
        start = 0
        for symbol in filter(None, symbols):
            id = self._user_defined.get(symbol)
            if id is None:
                id = self._table.get(symbol, (self._unknown,))[0]
            cuts.append((id, start, start + len(symbol)))
            start += len(symbol)
        return Cuts(cuts)


def by_length(pieces: Mapping[str, int]) -> list[str]:
    """The longest first, as alternatives of a pattern have to be."""
    return sorted(pieces, key=len, reverse=True)


def _single(number: float) -> float:
    """The 32-bit number that is nearest."""
    return array("f", [number])[0]
