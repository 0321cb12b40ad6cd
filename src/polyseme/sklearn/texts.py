"""What users of scikit-learn give as texts: lists, Series, arrays, any iterable; and as labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from polyseme.errors import InputError
from polyseme.text.given import given_document
from polyseme.types import Document

Texts = Iterable[str] | Iterable[Sequence[str]] | Iterable[Document]


class GivenError(InputError, ValueError):
    """Texts or labels that nothing can be learnt from: a `ValueError`, too, since scikit-learn promises one."""


def documents(texts: Any) -> Iterator[Document]:
    """The texts with their words, one after another; what only looks like texts is refused."""
    n_dimensions = getattr(texts, "ndim", 1)
    if isinstance(texts, (str, bytes, Document)) or not isinstance(texts, Iterable):
        raise InputError(f"The texts must come as a list or another iterable. Got one {type(texts).__name__} instead.")
    if n_dimensions != 1:
        raise InputError(
            f"The texts must come one after another. Got a {type(texts).__name__} with {n_dimensions} dimensions: "
            "choose one column, as in frame['text']."
        )
    return (given_document(text, position) for position, text in enumerate(texts))
