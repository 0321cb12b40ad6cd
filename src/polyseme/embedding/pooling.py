"""From the pieces of a word to its vector: first, last, mean, max, ends, outer-ends.

Shapes: N pieces, W words; vectors are [N, …, D].
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from polyseme.config import EncoderConfig
from polyseme.errors import OptionError, PolysemeWarning, nearest
from polyseme.files.vector_files import Per
from polyseme.types import EmbeddedDocument

Pooling = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Vectors of pieces, first and last piece of each word [W] → vectors of words."""


def first(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The word's first piece."""
    return vectors[begins]


def last(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The word's last piece."""
    return vectors[ends]


def mean(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The mean of the word's pieces."""
    counts = ends - begins + 1
    if bool((counts == 1).all()):
        return vectors[begins]
    owner, pieces = _members(begins, counts)
    sums = vectors.new_zeros(len(begins), *vectors.shape[1:]).index_add_(0, owner, vectors[pieces])
    return sums / counts.to(vectors.dtype).view(-1, *[1] * (vectors.dim() - 1))


def maximum(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The largest value of the word's pieces, number by number."""
    owner, pieces = _members(begins, ends - begins + 1)
    lowest = vectors.new_full((len(begins), *vectors.shape[1:]), float("-inf"))
    index = owner.view(-1, *[1] * (vectors.dim() - 1)).expand(-1, *vectors.shape[1:])
    return lowest.scatter_reduce_(0, index, vectors[pieces], "amax")


def both_ends(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The forward half at the word's end, the backward half at its start."""
    forward, _ = vectors[ends].chunk(2, dim=-1)
    _, backward = vectors[begins].chunk(2, dim=-1)
    return torch.cat([forward, backward], dim=-1)


def outer_ends(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
    """The forward half after the piece that follows the word, the backward half after the one that precedes it (Flair).

    Rows have a marker at both ends, so that there is always such a piece.
    """
    return both_ends(vectors, begins - 1, ends + 1)


POOLINGS: Mapping[str, Pooling] = {
    "first": first,
    "last": last,
    "mean": mean,
    "max": maximum,
    "ends": both_ends,
    "outer-ends": outer_ends,
}


def parse_pooling(name: str, config: EncoderConfig, widths: Sequence[int] = ()) -> Pooling:
    """What a user's `--pool` means for an encoder; `widths` are those of layers that are side by side in a vector."""
    if name not in POOLINGS:
        raise OptionError(f"There is no pooling {name!r}. {nearest(name, POOLINGS)}")
    if name == "ends" and config.direction != "two-way":
        raise OptionError("Pooling 'ends' joins a forward and a backward model; this encoder is not two-way. Use mean.")
    if name == "outer-ends" and config.usual_pooling != name:
        raise OptionError(
            "Pooling 'outer-ends' takes the states beside a word from a forward and a backward model of characters "
            f"(Flair), and this encoder is none. Use {config.usual_pooling}."
        )
    pooling = POOLINGS[name]
    return _by_layer(pooling, widths) if len(widths) > 1 and name in ("ends", "outer-ends") else pooling


def _by_layer(pooling: Pooling, widths: Sequence[int]) -> Pooling:
    """The same for each of several layers in one vector: halves are a layer's, not those of all together."""

    def pool(vectors: Tensor, begins: Tensor, ends: Tensor) -> Tensor:
        return torch.cat([pooling(layer, begins, ends) for layer in vectors.split(list(widths), dim=-1)], dim=-1)

    return pool


def _members(begins: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Every piece of every word: whose it is, and which piece; a piece of two words comes twice."""
    owner = torch.repeat_interleave(torch.arange(len(begins), device=begins.device), counts)
    starts = counts.cumsum(0) - counts
    within = torch.arange(len(owner), device=begins.device) - starts[owner]
    return owner, begins[owner] + within


# --- one vector per text ----------------------------------------------------------------------------------------------


def check_per(per: str) -> None:
    """Refuse a unit that vectors are not computed for."""
    if per not in get_args(Per):
        raise OptionError(f"There is no per {per!r}. {nearest(str(per), get_args(Per))}")


def per_text(documents: Iterable[EmbeddedDocument]) -> list[EmbeddedDocument]:
    """Documents with one vector each, [1, …], and without words. A text that has no words gets zeros.

    The vector is the mean of the words', or the one that a pooling over all pieces has put in their place.
    """
    return [_pooled(document) for document in documents]


def warn_wordless(count: int) -> None:
    """Report, once, that some texts have no words that a vector could be the mean of."""
    warnings.warn(
        f"{count:,} text{' has' if count == 1 else 's have'} no words; the vector of such a text is zeros.",
        PolysemeWarning,
        stacklevel=3,
    )


def _pooled(document: EmbeddedDocument) -> EmbeddedDocument:
    vectors = document.vectors
    mean = vectors.mean(axis=0, dtype=np.float64) if len(vectors) else np.zeros(vectors.shape[1:])
    return dataclasses.replace(
        document, words=(), offsets=document.offsets[:0], vectors=mean.astype(vectors.dtype)[None]
    )
