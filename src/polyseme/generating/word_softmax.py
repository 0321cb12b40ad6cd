"""The words of a softmax over whole words, where words are read by their characters (ELMo).

Any word can be read, but only those of the vocabulary can be guessed; the others are guessed as the unknown word.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyseme.text.character_tokenizer import MARKERS, UNKNOWN, CharacterTokenizer

Ints = NDArray[np.int64]


class WordTable:
    """Words by number: first those of the vocabulary, as the softmax numbers them, then others as they are met."""

    def __init__(self, tokenizer: CharacterTokenizer) -> None:
        self.tokenizer = tokenizer
        self.n_words = len(tokenizer.vocabulary or ())
        """Words of the softmax."""
        self._words = list(tokenizer.vocabulary or ())
        self._numbers = {word: number for number, word in enumerate(self._words)}
        self._room = tokenizer.max_characters - 2
        self._spellings: dict[bytes, int] = {}
        for number, word in enumerate(self._words):
            if word not in MARKERS:
                self._spellings.setdefault(word.encode("utf-8")[: self._room], number)
        begin, end = MARKERS
        self.begin = self._numbers[begin]
        self.end = self._numbers[end]
        self.unknown = self._numbers[UNKNOWN]

    def __getitem__(self, number: int) -> str:
        return self._words[number]

    def number(self, word: str) -> int:
        """The number of a word; one that is new gets the next."""
        if word not in self._numbers:
            self._numbers[word] = len(self._words)
            self._words.append(word)
        return self._numbers[word]

    def characters(self, numbers: Ints) -> Ints:
        """[…] → […, C]: how words are spelled, each word once."""
        distinct, which = np.unique(numbers, return_inverse=True)
        spelled = self.tokenizer.spell([self._words[number] for number in distinct.tolist()])
        return spelled[which.reshape(numbers.shape)]

    def guessed(self, spelled: Ints) -> Ints:
        """[n, C] → [n]: as which word of the softmax each spelled one is guessed."""
        if not len(spelled):
            return np.zeros(0, np.int64)
        distinct, which = np.unique(spelled, axis=0, return_inverse=True)
        numbers = [self._guessed(row) for row in distinct]
        return np.array(numbers, dtype=np.int64)[which.reshape(-1)]

    def _guessed(self, row: Ints) -> int:
        word = self.tokenizer.pieces([row.tolist()])[0]
        if word in MARKERS and int(row[1]) == MARKERS[word]:
            return self._numbers[word]
        inside = row[(row >= 1) & (row <= 256)] - 1
        return self._spellings.get(bytes(inside.astype(np.uint8)), self.unknown)
