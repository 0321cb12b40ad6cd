"""Which uses of which words are compared: drawn while words are counted, before any vector is computed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from polyseme.text.word_forms import form

Item = TypeVar("Item")


class Reservoir(Generic[Item]):
    """At most so many of the items that come, drawn with equal chances however many there are."""

    def __init__(self, size: int, rng: random.Random) -> None:
        self.items: list[Item] = []
        self.n = 0
        """The number of uses so far."""
        self._size, self._rng = size, rng

    def add(self, item: Item) -> None:
        if self.n < self._size:
            self.items.append(item)
        elif (slot := self._rng.randrange(self.n + 1)) < self._size:
            self.items[slot] = item
        self.n += 1


@dataclass
class UseSample:
    """Counts the forms of words, and keeps a reservoir of the places of each: memory grows with different words only.

    A place is the number of a word among all words that were read.
    """

    max_uses: int
    seed: int
    places: dict[str, Reservoir[int]] = field(default_factory=dict)
    n_words: int = 0
    n_texts: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def read(self, words: Iterable[str]) -> None:
        """Count in the words of a text."""
        self.n_texts += 1
        for word in words:
            word_form = form(word)
            if word_form not in self.places:
                self.places[word_form] = Reservoir(self.max_uses, self._rng)
            self.places[word_form].add(self.n_words)
            self.n_words += 1

    def drawn(self, max_types: int, min_uses: int) -> Mapping[str, list[int]]:
        """Forms that occur so often, at most so many, drawn with equal chances, with the places of their uses."""
        frequent = sorted(each for each, places in self.places.items() if places.n >= min_uses)
        chosen = random.Random(self.seed).sample(frequent, min(max_types, len(frequent)))
        return {each: sorted(self.places[each].items) for each in sorted(chosen)}
