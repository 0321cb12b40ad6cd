"""Users' files in: a path, or `-` for standard input, to rows.

The ending of a file says how it is read. `READERS` is the list; a new format is a file in this room and a line there.
Endings that are not in it are read as plain text, except those of formats with a structure of their own
(`STRUCTURED`): taking their lines for texts would be wrong without anyone noticing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from polyseme.errors import InputError
from polyseme.files.lines import lines_of
from polyseme.files.rows import Place, Row
from polyseme.files.source import Reading, Source, open_source

STRUCTURED = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".conll", ".conllu", ".xml", ".html")


def read_rows(given: str | os.PathLike[str]) -> Reading[Row]:
    """The rows of a file, streamed. What can be seen to be wrong at once is refused here, before the first row."""
    source = open_source(given)
    if source.suffix in STRUCTURED and source.suffix not in READERS:
        source.close()
        raise InputError(
            f"{source.name}: files ending in {source.suffix} are not read. Plain text is, one text a line; put the "
            "texts into a .txt file. If each line of the file is to be taken as a text, give it on standard input (-)."
        )
    return Reading(source, READERS.get(source.suffix, _plain)(source))


def _plain(source: Source) -> Iterator[Row]:
    """One text a line; its id is the number of the line, counted from 1."""
    return (Row(line.text, str(line.number), Place(source.name, line.number)) for line in lines_of(source))


READERS: Mapping[str, Callable[[Source], Iterator[Row]]] = {
    "": _plain,
    ".txt": _plain,
}
"""From the ending of a file, in small letters and without that of its compression, to how its rows are read."""
