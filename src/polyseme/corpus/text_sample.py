"""A bounded sample of text, evenly from all over the input, to train a tokenizer on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from polyseme.corpus.document_reader import TextSource
from polyseme.corpus.parallel_text import PairSource
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
    where less has been taken than is due by then. So there is no need to know beforehand how much text there is. With
    its last stretch all of a source is due, however far its reader says to have come.
    """
    total = sum(source.total for source in sources) or 1
    taken = _Taken()
    n_all = before = 0
    for source in sources:
        n_source = 0
        left: list[bytes] = []
        for stretch in source.stretches():
            n_stretch = sum(map(len, stretch.texts))
            n_all += n_stretch
            n_source += n_stretch
            left = taken.take(stretch.texts, most * min((before + stretch.done) / total, 1.0))
            if limit is not None and n_source >= limit:
                break
        before += source.total
        taken.take(left, most * min(before / total, 1.0))
    if not taken.texts:
        raise InputError("There is no text to train a tokenizer on: all documents are empty. Give files with text.")
    return Sample(taken.texts, taken.n_bytes, n_all)


@dataclass
class _Taken:
    """What has been taken so far."""

    texts: list[str] = field(default_factory=list)
    n_bytes: int = 0

    def take(self, texts: list[bytes], due: float) -> list[bytes]:
        """Take of texts until as much has been taken as is due; those that are left."""
        for number, text in enumerate(texts):
            if self.n_bytes >= due:
                return texts[number:]
            part = text[: max(int(due - self.n_bytes), _PART)]
            self.texts.append(part.decode(errors="ignore"))
            self.n_bytes += len(part)
        return []


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 100_000 else f"{n_bytes:,} bytes"
