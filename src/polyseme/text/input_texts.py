"""What users give as texts: strings, lists of words, documents, alone or many; all become documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyseme.errors import InputError
from polyseme.text.words import document
from polyseme.types import Document


def given_documents(texts: Any) -> list[Document]:
    """The documents in what a user gave as texts; one string is one text."""
    if isinstance(texts, (str, Document)):
        texts = [texts]
    if isinstance(texts, Mapping | bytes) or hasattr(texts, "columns"):
        advice = {"dict": "Give its values", "bytes": "Decode them first"}.get(type(texts).__name__)
        raise InputError(
            f"What is embedded must be texts. Got a {type(texts).__name__} instead. "
            f"{advice or 'Choose one column, as in frame[' + repr('text') + ']'}."
        )
    try:
        each = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
    except TypeError:
        raise InputError(f"What is embedded must be texts. Got a {type(texts).__name__} instead.") from None
    return [given_document(text, position) for position, text in enumerate(each)]


def given_document(text: Any, position: int) -> Document:
    """One of them, known by its position where something is wrong with it: a string is split, a list is words."""
    if isinstance(text, Document):
        return _in_order(text, position)
    if isinstance(text, str):
        return document(text, id=str(position))
    if isinstance(text, bytes):
        raise InputError(f"Text {position} must be a string or a list of words. Got bytes instead: decode them first.")
    try:
        words = list(text)
    except TypeError:
        raise InputError(
            f"Text {position} must be a string or a list of words. Got a {type(text).__name__} instead."
        ) from None
    try:
        return document(words, id=str(position))
    except InputError as error:
        raise InputError(f"Text {position}: {error}") from None


def given_text(text: Any) -> Document:
    """A text that can only be a string."""
    if not isinstance(text, str):
        raise InputError(f"The text must be a string. Got a {type(text).__name__} instead.")
    return document(text)


def _in_order(given: Document, position: int) -> Document:
    start = end = 0
    for word in given.words:
        if not (start <= word.start < word.end <= len(given.text) and end <= word.end):
            raise InputError(
                f"Text {position}: its words must stand in its text, in order. Got {str(word)!r} at {word.start} to "
                f"{word.end}, after one at {start} to {end}."
            )
        start, end = word.start, word.end
    return given
