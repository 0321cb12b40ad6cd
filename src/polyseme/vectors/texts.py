"""One vector a text: the mean of its words' vectors."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from typing import get_args

import numpy as np

from polyseme.errors import OptionError, PolysemeWarning, nearest
from polyseme.files.sink import Per
from polyseme.types import Embedded


def check_per(per: str) -> None:
    """Refuse what vectors cannot be asked for."""
    if per not in get_args(Per):
        raise OptionError(f"There is no per {per!r}. {nearest(str(per), get_args(Per))}")


def per_text(documents: Iterable[Embedded]) -> list[Embedded]:
    """Documents with one vector each, [1, …], and without words. A text that has no words gets zeros."""
    return [_pooled(document) for document in documents]


def warn_wordless(count: int) -> None:
    """Say, once, that some texts have no words that a vector could be the mean of."""
    warnings.warn(
        f"{count:,} text{' has' if count == 1 else 's have'} no words; the vector of such a text is zeros.",
        PolysemeWarning,
        stacklevel=3,
    )


def _pooled(document: Embedded) -> Embedded:
    vectors = document.vectors
    mean = vectors.mean(axis=0, dtype=np.float64) if len(vectors) else np.zeros(vectors.shape[1:])
    return dataclasses.replace(
        document, words=(), offsets=document.offsets[:0], vectors=mean.astype(vectors.dtype)[None]
    )
