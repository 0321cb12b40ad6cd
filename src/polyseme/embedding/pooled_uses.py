"""A word's vector beside what all uses of the word so far have in common (pooled Flair; Akbik et al. 2019).

Behind the vector of each use comes the minimum, mean or maximum, number by number, of the vectors of all uses of the
same word up to this one, itself included, in the order of the texts. So a rare name first met in a poor context has
little there, and more wherever it comes again. The result depends on the order of the texts, and on what one run has
read: the memory begins empty with each run. (In Flair, a word also sees the other texts of its batch.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.errors import OptionError, nearest
from polyseme.types import EmbeddedDocument

Array = NDArray[Any]

_JOINED: Mapping[str, Callable[[Array, Array], Array]] = {"min": np.minimum, "mean": np.add, "max": np.maximum}
"""How one more use is added to what is remembered of a word; of the mean, that is the sum."""


class PooledUses:
    """Documents with vectors → the same with vectors twice as wide. Words are the same if they are spelled alike."""

    def __init__(self, kind: str) -> None:
        if kind not in _JOINED:
            raise OptionError(f"Uses of a word cannot be pooled by {kind!r}. {nearest(str(kind), _JOINED)}")
        self.kind = kind
        self._memory: dict[str, Array] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, documents: Sequence[EmbeddedDocument]) -> list[EmbeddedDocument]:
        """The next documents of a run."""
        return [dataclasses.replace(document, vectors=self._pooled(document)) for document in documents]

    def _pooled(self, document: EmbeddedDocument) -> Array:
        pooled = np.empty_like(document.vectors)
        for place, (word, vector) in enumerate(zip(map(str, document.words), document.vectors, strict=True)):
            before = self._memory.get(word)
            own = vector.astype(np.float64) if self.kind == "mean" else vector.copy()
            self._memory[word] = own if before is None else _JOINED[self.kind](before, own)
            self._counts[word] = self._counts.get(word, 0) + 1
            count = self._counts[word] if self.kind == "mean" else 1
            pooled[place] = self._memory[word] / count
        return np.concatenate([document.vectors, pooled], axis=-1)
