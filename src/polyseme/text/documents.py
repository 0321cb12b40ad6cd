"""Texts in any form that a user may pass (strings, lists of words, documents, alone or many), to documents."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import InputError, PolysemeWarning
from polyseme.text.words import split_words
from polyseme.types import Document, Original, Word

_LOOKED_AT = 100
"""Texts that may be names of files: of more, only the first are looked at."""
_LONGEST_NAME = 256
_SURROGATE = re.compile("[\ud800-\udfff]")


def make_document(
    text: str | Sequence[str],
    id: str = "",
    fields: Mapping[str, Any] | None = None,
    *,
    spans: Sequence[tuple[int, int]] | None = None,
    original: str | None = None,
) -> Document:
    """A document from raw text, which is split into words, or from a list of words, which are not changed.

    The text of a list of words is the words joined by blanks; results point into the `original` text, where that is
    known, at `spans`. Of raw text, `spans` are its words where it is not to be split. Lone surrogates, which no
    tokenizer can read, are replaced by U+FFFD, with a warning.
    """
    if isinstance(text, str):
        [text] = _readable([text])
        words = split_words(text) if spans is None else [Word(text[start:end], start, end) for start, end in spans]
        return Document(text=text, words=words, id=id, fields=fields or {})
    strings = _readable([_checked(word, position) for position, word in enumerate(text)])
    words = []
    start = 0
    for word in strings:
        words.append(Word(word, start, start + len(word)))
        start += len(word) + 1
    source = None if original is None or spans is None else Original(_readable([original])[0], spans)
    return Document(text=" ".join(strings), words=words, id=id, fields=fields or {}, pretokenized=True, original=source)


def document_chunks(documents: Iterable[Document], characters: int) -> Iterator[list[Document]]:
    """As many documents at a time as have at least so many characters together; the last ones may have fewer."""
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document.text)
        if size >= characters:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def to_documents(texts: Any) -> list[Document]:
    """The documents of an argument `texts`; a string is one text."""
    if isinstance(texts, (str, Document)):
        texts = [texts]
    if isinstance(texts, Mapping | bytes) or hasattr(texts, "columns"):
        advice = {"dict": "Give its values", "bytes": "Decode them first"}.get(type(texts).__name__)
        raise InputError(
            f"What is embedded must be texts. Got a {type(texts).__name__} instead. "
            f"{advice or 'Choose one column, as in frame[' + repr('text') + ']'}."
        )
    try:
        items = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
        _warn_of_files(items[:_LOOKED_AT])
    except TypeError:
        raise InputError(f"What is embedded must be texts. Got a {type(texts).__name__} instead.") from None
    return [to_document(text, position) for position, text in enumerate(items)]


def _warn_of_files(texts: Sequence[Any]) -> None:
    """Warn where a text is the name of a file that is there: most likely its content was meant."""
    for text in texts:
        is_name = isinstance(text, str) and 0 < len(text) < _LONGEST_NAME and "\n" not in text and "\0" not in text
        if is_name and Path(text).suffix and Path(text).is_file():
            warnings.warn(
                f"The text {text!r} is the name of a file, and was read as a text. To read files, give them to a "
                f"function of polyseme: polyseme.embed({text!r}, …).",
                PolysemeWarning,
                stacklevel=4,
            )
            return


def to_document(text: Any, position: int) -> Document:
    """One text as a document: a string is split into words, a list has words. Errors name its `position`."""
    if isinstance(text, Document):
        return _check_words(text, position)
    if isinstance(text, str):
        return make_document(text, id=str(position))
    if isinstance(text, bytes):
        raise InputError(f"Text {position} must be a string or a list of words. Got bytes instead: decode them first.")
    try:
        words = list(text)
    except TypeError:
        raise InputError(
            f"Text {position} must be a string or a list of words. Got a {type(text).__name__} instead."
        ) from None
    try:
        return make_document(words, id=str(position))
    except InputError as error:
        raise InputError(f"Text {position}: {error}") from None


def string_to_document(text: Any) -> Document:
    """The document of a text that must be a string."""
    if not isinstance(text, str):
        raise InputError(f"The text must be a string. Got a {type(text).__name__} instead.")
    return make_document(text)


def _check_words(document: Document, position: int) -> Document:
    start = end = 0
    for word in document.words:
        if not (start <= word.start < word.end <= len(document.text) and end <= word.end):
            raise InputError(
                f"Text {position}: its words must be in its text, in order. Got {str(word)!r} at {word.start} to "
                f"{word.end}, after one at {start} to {end}."
            )
        start, end = word.start, word.end
    return document


def _checked(word: object, position: int) -> str:
    if not isinstance(word, str):
        raise InputError(
            f"Word {position} of the list (counted from 0) must be a string. Got {word!r}, a {type(word).__name__}."
        )
    if not word or word.isspace():
        raise InputError(
            f"Word {position} of the list (counted from 0) is {'blank' if word else 'empty'}: {word!r}. "
            "Leave it out, or give something in its place: every word gets a vector."
        )
    return word


def _readable(texts: list[str]) -> list[str]:
    """The texts with U+FFFD for lone surrogates, with one warning for all of them."""
    if not any(not text.isascii() and _SURROGATE.search(text) for text in texts):
        return texts
    warnings.warn(
        "The text has lone surrogates, halves of characters that no tokenizer can read; each is read as U+FFFD.",
        PolysemeWarning,
        stacklevel=3,
    )
    return [_SURROGATE.sub("\ufffd", text) for text in texts]
