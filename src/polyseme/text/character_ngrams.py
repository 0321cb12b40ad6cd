"""The character n-grams of a word, hashed into buckets as fastText does it.

The hash is 32-bit FNV-1a over the bytes of UTF-8, each widened as a *signed* char: bytes from 128 on carry ones in
their upper 24 bits. The original program does so, and its models depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

BEGIN, END = "<", ">"
"""The boundaries that are put around a word."""
_START, _PRIME, _BITS = 2166136261, 16777619, 0xFFFFFFFF
_WIDENED = [byte if byte < 128 else byte | 0xFFFFFF00 for byte in range(256)]


@dataclass(frozen=True)
class CharacterNgrams:
    """Which buckets the n-grams of a word are in."""

    min_ngram: int
    max_ngram: int
    n_buckets: int
    buckets: Sequence[int] | None = None
    """The buckets that a pruned table has rows for, in the order of their rows; None: all, in their own order."""
    _row_of: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_row_of", {bucket: row for row, bucket in enumerate(self.buckets or ())})

    @property
    def n_rows(self) -> int:
        """Rows of the table that are of buckets."""
        return self.n_buckets if self.buckets is None else len(self.buckets)

    def bucket(self, row: int) -> int:
        """The bucket of a row."""
        return row if self.buckets is None else self.buckets[row]

    def of(self, word: str) -> list[tuple[int, int, int]]:
        """Row among the buckets, and [start, end) in the word, of each n-gram that has a row, in fastText's order.

        >>> ngrams = CharacterNgrams(3, 3, 100)
        >>> [word[start:end] for word in ["where"] for _, start, end in ngrams.of(word)]
        ['wh', 'whe', 'her', 'ere', 're']
        """
        characters = [character.encode("utf-8", "replace") for character in f"{BEGIN}{word}{END}"]
        n = len(characters)
        rows = []
        for first in range(n):
            value = _START
            for last in range(first, min(first + self.max_ngram, n)):
                for byte in characters[last]:
                    value = ((value ^ _WIDENED[byte]) * _PRIME) & _BITS
                if last - first + 1 < self.min_ngram or (last == first and first in (0, n - 1)):
                    continue  # a boundary alone is no n-gram
                bucket = value % self.n_buckets
                row = bucket if self.buckets is None else self._row_of.get(bucket)
                if row is not None:
                    rows.append((row, max(first - 1, 0), min(last, n - 2)))
        return rows
