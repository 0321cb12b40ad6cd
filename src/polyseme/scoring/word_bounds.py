"""Where words end, by what may come next: word probabilities that are proper ones (Pimentel and Meister 2024).

Where a piece carries the blank before its word (`Ġthe`), the product over a word's pieces does not say that the word
has ended: that is known only from the next piece, whose probability is counted with the next word. So the products of
all words that may come next do not sum to 1. The correction moves the probability that a word begins to the one before:

    p(word | before) = Π p(piece | …) · p(some word begins | before, word) / p(some word begins | before)

The end of a text counts as a beginning, too. Any text may begin with its first word, which has no denominator. Where
pieces mark the end of words (`the</w>`), or are words, both factors are 1.

Which pieces begin a word depends on what words are. In a list of words it is the pieces with a blank, and those of no
text. In raw text, which is cut into words by `text.words`, it is also those that would be cut off behind the word
before, such as a full stop after a letter.

Shapes: n pieces of a document, V pieces in the vocabulary, K sets of pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError, nearest
from polyseme.scoring.target_rows import Ints, WordBounds
from polyseme.scoring.text_scores import Floats, pieces_of_word
from polyseme.text.piece_texts import PieceTexts
from polyseme.text.words import split_words
from polyseme.types import Document, Pieces

WordProbability = Literal["pieces", "corrected"]
"""How a word's probability follows from those of its pieces."""
Bools = NDArray[np.bool_]

_LETTER, _DIGIT, _BLANK = "a", "1", ""
"""What stands for all words that end in a letter or a digit; and for words with blanks around them."""


def check_word_probability(word_probability: str) -> None:
    """Refuse what is no way to make a word's probability."""
    if word_probability not in get_args(WordProbability):
        raise OptionError(
            f"There is no word probability {word_probability!r}. "
            f"{nearest(str(word_probability), get_args(WordProbability))}"
        )


class WordEnds:
    """The pieces that begin a new word behind a word, for each kind of word; `n_pieces` are the output's."""

    def __init__(self, texts: PieceTexts, n_pieces: int) -> None:
        self.texts = texts
        self.n_pieces = n_pieces
        self._numbers: dict[str, int] = {}
        self._sets: list[Bools] = []

    @property
    def sets(self) -> Bools:
        """[K, V]"""
        return np.stack(self._sets) if self._sets else np.zeros((0, self.n_pieces), np.bool_)

    def kinds(self, document: Document, pieces: Pieces) -> Ints:
        """[n + 1]: the number of the set at each piece that begins a word after another, and at the end; -1 elsewhere.

        Where two words share a piece, there is no bound that a piece could begin.
        """
        kinds = np.full(len(pieces) + 1, -1, dtype=np.int64)
        for number, word in enumerate(document.words):
            is_last = number + 1 == len(document.words)
            place = len(pieces) if is_last else pieces_of_word(pieces, number + 1)[0]
            if place <= int(pieces.words[number, 1]):
                continue
            kind = self._kind(str(word), in_list=document.pretokenized)
            if is_last or self._sets[kind][int(pieces.ids[place])]:
                kinds[place] = kind
        return kinds

    def _kind(self, word: str, *, in_list: bool) -> int:
        last = word[-1]
        if in_list and self.texts.blanks_matter:
            key = _BLANK
        else:
            key = _LETTER if last.isalpha() else _DIGIT if last.isdigit() else last
        if key not in self._numbers:
            self._numbers[key] = len(self._sets)
            self._sets.append(self._set(key))
        return self._numbers[key]

    def _set(self, last: str) -> Bools:
        """[V]: the pieces that begin a word behind one that ends so. Rows of the output without a piece do, too."""
        begins = np.ones(self.n_pieces, np.bool_)
        cut: dict[str, bool] = {}
        for id, text in enumerate(self.texts.texts[: self.n_pieces]):
            first = text[:2]
            if self.texts.special[id] or text[:1].isspace():
                continue
            if first not in cut:
                cut[first] = last != _BLANK and _cuts(last, first)
            begins[id] = cut[first]
        return begins


def _cuts(last: str, first: str) -> bool:
    """Whether text that begins so is a word of its own behind this character; half a character is not."""
    if not first or first[0] == "\ufffd":
        return False
    words = split_words(last + first)
    return bool(words) and words[0].end <= len(last)


def corrections(pieces: Pieces, bounds: Floats) -> Floats:
    """[n_words]: what is added to each word's log-probability, from the bounds [n + 1] at its pieces and at the end."""
    n_words = len(pieces.words)
    places = [pieces_of_word(pieces, number)[0] for number in range(1, n_words)]
    at = np.nan_to_num(bounds[np.array([*places, len(pieces)], dtype=np.int64)]) if n_words else np.zeros(0)
    result: Floats = at - np.concatenate([[0.0], at[:-1]]) if n_words else at
    return result


def bounds_of(kinds: Sequence[Ints], sets: Bools) -> WordBounds:
    """The kinds of several documents, one after another."""
    return WordBounds(np.concatenate(kinds) if len(kinds) else np.zeros(0, np.int64), sets)
