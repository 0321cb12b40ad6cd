"""Which uses of which words are compared: drawn while words are counted, before any vector is computed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from polyseme.text.word_forms import form


@dataclass
class UseSample:
    """Counts the forms of words, and keeps a reservoir of the places of each: memory grows with different words only.

    A place is the number of a word among all words that were read.
    """

    max_uses: int
    seed: int
    counts: dict[str, int] = field(default_factory=dict)
    n_words: int = 0
    n_texts: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._places: dict[str, list[int]] = {}

    def read(self, words: Iterable[str]) -> None:
        """Count in the words of a text."""
        self.n_texts += 1
        for word in words:
            word_form = form(word)
            count = self.counts.get(word_form, 0)
            places = self._places.setdefault(word_form, [])
            if count < self.max_uses:
                places.append(self.n_words)
            elif (slot := self._rng.randrange(count + 1)) < self.max_uses:
                places[slot] = self.n_words
            self.counts[word_form] = count + 1
            self.n_words += 1

    def drawn(self, max_types: int, min_uses: int) -> Mapping[str, list[int]]:
        """Forms that occur so often, at most so many, drawn with equal chances, with the places of their uses."""
        frequent = sorted(each for each, count in self.counts.items() if count >= min_uses)
        chosen = random.Random(self.seed).sample(frequent, min(max_types, len(frequent)))
        return {each: sorted(self._places[each]) for each in sorted(chosen)}
