"""A bounded sample of text, evenly from all over the input, to train a tokenizer on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyseme.corpus.documents import TextSource
from polyseme.corpus.sides import PairSource
from polyseme.errors import InputError

_PART = 1 << 14
"""Bytes of a document that are taken or left together."""


@dataclass(frozen=True)
class Sample:
    """Texts, and how much of the whole they are."""

    texts: list[str]
    n_bytes: int
    n_all: int

    @property
    def told(self) -> str:
        """In words."""
        if self.n_bytes == self.n_all:
            return f"all of the text, {_megabytes(self.n_bytes)}"
        return f"a sample of {_megabytes(self.n_bytes)} from all over the text, which has {_megabytes(self.n_all)}"


def sample_of(sources: Sequence[TextSource | PairSource], most: int, limit: int | None = None) -> Sample:
    """About `most` bytes of text at most.

    Of every stretch of the input the same share is taken, counted by how far one has come in the files: a part is taken
    where less has been taken than is due by then. So there is no need to know beforehand how much text there is.
    """
    total = sum(source.total for source in sources) or 1
    texts: list[str] = []
    n_bytes = n_all = before = 0
    for source in sources:
        n_source = 0
        for stretch in source.stretches():
            n_stretch = sum(map(len, stretch.texts))
            n_all += n_stretch
            n_source += n_stretch
            due = most * min((before + stretch.done) / total, 1.0)
            for text in stretch.texts:
                if n_bytes >= due:
                    break
                taken = text[: max(int(due - n_bytes), _PART)]
                texts.append(taken.decode(errors="ignore"))
                n_bytes += len(taken)
            if limit is not None and n_source >= limit:
                break
        before += source.total
    if not texts:
        raise InputError("There is no text to train a tokenizer on: all documents are empty. Give files with text.")
    return Sample(texts, n_bytes, n_all)


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 100_000 else f"{n_bytes:,} bytes"
