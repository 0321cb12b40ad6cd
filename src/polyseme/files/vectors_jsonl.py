"""Vectors as JSON lines: one line per document, for whatever reads JSON; large, and slow beside the other formats.

    {"id": "1", "text": "Dawn broke.", "words": ["Dawn", …], "offsets": [[0, 4], …], "vectors": [[0.1, …], …],
     "polyseme": {"about": {…}, "dtype": "float32", "shape": [384]}}

Fields that were kept stand under `fields`. Where a text has one vector, `vector` takes the place of words, offsets and
vectors. Numbers have as many digits as it takes to get exactly the same ones back; one that is none is written as
Python does (NaN, Infinity). What is under `polyseme` is the same on every line, so that a line can stand alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from polyseme.errors import InputError
from polyseme.files.vector_files import Format, Per, Provenance, foreign_file_error, unreadable
from polyseme.json_reading import parse_json
from polyseme.types import EmbeddedDocument, Word

OWN_KEY = "polyseme"
_NOT_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class JsonlSink:
    """Documents to lines of JSON."""

    def __init__(self, path: Path, provenance: Provenance, per: Per = "word") -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._provenance = provenance
        self._per = per

    def write(self, documents: Sequence[EmbeddedDocument]) -> None:
        for document in documents:
            self._file.write(self._line(document))

    def finish(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # the reason is on its way to the user already
            self._file.close()

    def _line(self, document: EmbeddedDocument) -> str:
        line: dict[str, Any] = {"id": document.id, "text": document.text}
        if self._per == "word":
            line |= {"words": list(document.words), "offsets": document.offsets.tolist()}
        if document.fields:
            line["fields"] = dict(document.fields)
        vectors = document.vectors
        own = {"about": self._provenance, "dtype": vectors.dtype.name, "shape": vectors.shape[1:]}
        parts = [
            json.dumps(line, ensure_ascii=False, default=str)[:-1],
            f'"vectors": {_spelled(vectors)}' if self._per == "word" else f'"vector": {_spelled(vectors[0])}',
            f'"{OWN_KEY}": {json.dumps(own, ensure_ascii=False, sort_keys=True)}}}\n',
        ]
        return ", ".join(parts)


def read_jsonl(name: str) -> Iterator[EmbeddedDocument]:
    """The documents of a file that `JsonlSink` wrote, one in memory at a time."""
    read_jsonl_provenance(name)
    return _documents(name)


def read_jsonl_provenance(name: str) -> dict[str, Any]:
    """How the vectors of a file came about."""
    for line in _lines(name):
        try:
            first = _parsed(line)
        except ValueError as error:
            raise unreadable(name, "lines of JSON", error) from error
        own = first.get(OWN_KEY) if isinstance(first, dict) else None
        if not isinstance(own, dict) or not isinstance(own.get("about"), dict):
            break
        provenance: dict[str, Any] = own["about"]
        return provenance
    raise foreign_file_error(name, OWN_KEY)


def _spelled(vectors: NDArray[Any]) -> str:
    """Nested lists of the shortest numbers that read back the same."""
    numbers: list[str] = pa.array(np.ascontiguousarray(vectors).reshape(-1)).cast(pa.string()).to_pylist()
    if not np.isfinite(vectors).all():
        numbers = [_NOT_NUMBERS.get(number, number) for number in numbers]
    for width in reversed(vectors.shape[1:]):
        numbers = [f"[{', '.join(numbers[at : at + width])}]" for at in range(0, len(numbers), width)]
    return f"[{', '.join(numbers)}]"


def _lines(name: str) -> Iterator[str]:
    try:
        with Path(name).open(encoding="utf-8", newline="\n") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is damaged: {error}") from error


def _parsed(line: str) -> Any:
    return parse_json(line, parse_int=_whole)


def _whole(digits: str) -> int | float:
    """A whole number; -0 is one, too."""
    return -0.0 if digits == "-0" else int(digits)


def _documents(name: str) -> Iterator[EmbeddedDocument]:
    for number, line in enumerate(_lines(name), start=1):
        try:
            yield _document(_parsed(line))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{name}, line {number}, is damaged: {error}") from error


def _document(line: dict[str, Any]) -> EmbeddedDocument:
    own = line[OWN_KEY]
    stored = [line["vector"]] if "vector" in line else line["vectors"]
    shape, dtype = [int(width) for width in own["shape"]], np.dtype(own["dtype"])
    if dtype.kind != "f":
        raise ValueError(f"vectors are floating-point numbers, and here they are called {dtype}")
    offsets = np.array(line.get("offsets", []), np.int64).reshape(-1, 2)
    return EmbeddedDocument(
        id=line["id"],
        text=line["text"],
        words=[Word(word, *place) for word, place in zip(line.get("words", []), offsets.tolist(), strict=True)],
        fields=line.get("fields", {}),
        offsets=offsets,
        vectors=np.array(stored, dtype).reshape(len(stored), *shape),
    )


FORMAT = Format(sink=JsonlSink, read=read_jsonl, read_provenance=read_jsonl_provenance)
