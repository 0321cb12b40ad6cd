"""Several models side by side: a word's vector is the concatenation of theirs (flair's stacked embeddings).

Models have their own tokenizers, so they meet at words: each cuts a document into its own pieces and windows, and the
vectors of words, or of texts, are concatenated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.cost import Tally
from polyseme.embedding.flow import CarriedMemory, Embedder, warn_unread
from polyseme.errors import OptionError
from polyseme.types import Document, EmbeddedDocument, OnBatch, Pieces

OF_ALL = ("documents", "words", "wordless")
"""What a tally counts of documents, once for all models; the rest adds up."""


class WordEmbedder(Protocol):
    """What embeds files: one model (`flow.Embedder`), or several (`SideBySide`)."""

    tally: Tally
    shape: tuple[int, ...]
    dtype: Any
    device: torch.device
    batch_pieces: int
    pool: str
    """How the pieces of a word are pooled."""

    @property
    def carried(self) -> CarriedMemory | None:
        """The state that texts leave to others, if any."""

    @property
    def depends_on_order(self) -> bool:
        """Whether a vector depends on texts that were read before."""

    def encode(self, documents: Sequence[Document]) -> Sequence[Any]:
        """The pieces of each document, as `embed` takes them."""

    def embed(
        self, documents: Sequence[Document], encoded: Sequence[Any], on_batch: OnBatch | None = None
    ) -> list[EmbeddedDocument]:
        """Documents in these pieces, with their vectors."""

    def prepare(self) -> None:
        """Prepare for much work."""

    def warn_unread(self) -> None:
        """Report, once, which words were not read as they are."""


class SideBySide:
    """Embedders of several models, by their names, used as one."""

    def __init__(self, members: Mapping[str, Embedder]) -> None:
        for name, member in members.items():
            if len(member.shape) > 1:
                raise OptionError(
                    f"Layer 'all' gives a word several vectors, and those of {name} are to be concatenated. "
                    f"Name one layer, or several as one: {name}@concat:0:-1."
                )
        self.members = dict(members)
        each = list(members.values())
        self.shape = (sum(member.shape[0] for member in each),)
        self.dtype = np.result_type(*(member.dtype for member in each))
        self.device = each[0].device
        self.batch_pieces = each[0].batch_pieces
        self.pool = ",".join(dict.fromkeys(member.pool for member in each))
        self.carried: CarriedMemory | None = None
        self.depends_on_order = any(member.depends_on_order for member in each)
        self.tally = Tally()

    def encode(self, documents: Sequence[Document]) -> list[tuple[Pieces, ...]]:
        """The pieces of each document, by each model."""
        return list(zip(*(member.encode(documents) for member in self.members.values()), strict=True))

    def embed(
        self, documents: Sequence[Document], encoded: Sequence[tuple[Pieces, ...]], on_batch: OnBatch | None = None
    ) -> list[EmbeddedDocument]:
        """Documents with the vectors of all models, in the order of the models."""
        results: list[list[EmbeddedDocument]] = []
        for number, (name, member) in enumerate(self.members.items()):
            before = member.tally.copy()
            last = number + 1 == len(self.members)
            results.append(member.embed(documents, [each[number] for each in encoded], on_batch if last else None))
            self._count(name, member.tally.since(before), first=number == 0)
        return [replace(one[0], vectors=_joined(one, self.dtype)) for one in zip(*results, strict=True)]

    def __call__(self, documents: Sequence[Document], on_batch: OnBatch | None = None) -> list[EmbeddedDocument]:
        """One chunk."""
        return self.embed(documents, self.encode(documents), on_batch)

    def prepare(self) -> None:
        """Prepare all of them."""
        for member in self.members.values():
            member.prepare()

    def warn_unread(self) -> None:
        """Report what each of them did not read as it is."""
        for name in self.members:
            vanished, unknown = (int(self.tally.sums.get(f"{part} by {name}", 0)) for part in ("vanished", "unknown"))
            tally = Tally(words=self.tally.words, vanished=vanished, unknown=unknown)
            warn_unread(tally, tokenizer=f"The tokenizer of {name}")

    def _count(self, name: str, more: Tally, *, first: bool) -> None:
        for part in ("vanished", "unknown"):
            more.sums[f"{part} by {name}"] = getattr(more, part)
            setattr(more, part, 0)
        for part in () if first else OF_ALL:
            setattr(more, part, 0)
        self.tally.add(more)


def _joined(documents: Sequence[EmbeddedDocument], dtype: Any) -> NDArray[Any]:
    return np.concatenate([each.vectors.astype(dtype, copy=False) for each in documents], axis=-1)


def named_models(model: str) -> list[tuple[str, str | None]]:
    """Models with commas between them, each perhaps with its layer.

    >>> named_models("glove.txt, models/elmo@mix:last3:1")
    [('glove.txt', None), ('models/elmo', 'mix:last3:1')]
    """
    listed = [name.strip() for name in model.split(",")]
    parts = [name.rpartition("@") for name in listed]
    named: list[tuple[str, str | None]] = [(name, layer) if at else (layer, None) for name, at, layer in parts]
    for (name, layer), written in zip(named, listed, strict=True):
        if not name or layer == "":
            raise OptionError(
                "Several models are names with commas between them, each perhaps with its layer: "
                f"glove.txt,models/elmo@-1. Got {written!r} among them."
            )
    if len(set(named)) < len(named):
        raise OptionError(f"A model is listed twice with one layer in {model!r}. Leave one out.")
    return named
