"""The formats of input, one file each: a function `read(source, request)` that yields the rows of a source.

What the first bytes or lines show to be wrong is refused by the call itself, the rest when it is met. `READERS` is the
list: a new format is a file here and a line there. Endings that are not in it are read as plain text, except those of
formats with a structure of their own (`STRUCTURED`): taking their lines for texts would be wrong without anyone
noticing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from polyseme.files.reading_options import RowRequest
    from polyseme.files.rows import Row
    from polyseme.files.source import Source


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How one format is read."""

    home: str
    """The module of `readers/` and the function in it; loaded when first needed, since Parquet brings Arrow."""
    endings: tuple[str, ...]
    takes: frozenset[str]
    """The options that mean something for this format."""

    def load(self) -> Callable[[Source, RowRequest], Iterator[Row]]:
        module, _, function = self.home.partition(":")
        loaded = importlib.import_module(f"polyseme.files.readers.{module}")
        return cast("Callable[[Source, RowRequest], Iterator[Row]]", getattr(loaded, function))


FIELDS = frozenset({"field", "id_field", "fields"})
_LINES = frozenset({"max_text_bytes"})
"""Options of what is read line by line."""
READERS: Mapping[str, Reader] = {
    "text": Reader(home="plain:read", endings=(".txt", ".text"), takes=_LINES | {"split"}),
    "jsonl": Reader(home="jsonl:read", endings=(".jsonl", ".ndjson"), takes=FIELDS | _LINES),
    "csv": Reader(home="delimited:read_csv", endings=(".csv",), takes=FIELDS | _LINES | {"quotes", "delimiter"}),
    "tsv": Reader(home="delimited:read_tsv", endings=(".tsv", ".tab"), takes=FIELDS | _LINES | {"quotes", "delimiter"}),
    "parquet": Reader(home="parquet:read", endings=(".parquet", ".pq"), takes=FIELDS),
    "conll": Reader(home="conll:read", endings=(".conll", ".bio", ".iob"), takes=_LINES | {"field", "fields"}),
    "conllu": Reader(home="conllu:read", endings=(".conllu",), takes=FIELDS | _LINES | {"words", "check_text"}),
}
"""From the name of a format to how it is read."""

ENDINGS: Mapping[str, str] = {ending: name for name, reader in READERS.items() for ending in reader.endings}
"""From the ending of a file, in small letters and without that of its compression, to the name of its format."""

STRUCTURED = (".json", ".xml", ".html", ".htm", ".rtf", ".yaml", ".yml", ".conllup")
"""Endings of formats with a structure of their own for which there is no reader."""
