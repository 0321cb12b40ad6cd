"""A table in memory as a file, for work that reads files several times and in several processes: building a corpus.

The file is named after its content, so that the same table is the same file when the work is resumed; it goes when the
work ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyseme.files.atomic import whole_file
from polyseme.files.in_memory import InMemory, inputs_of
from polyseme.files.rows import read_rows

FIELD = "text"


@contextlib.contextmanager
def on_disk(sources: Any, field: str | None) -> Iterator[tuple[Any, str | None]]:
    """Sources and the field of their texts: names of files as they are, a frame, a dataset or a column as a file.

    A list of strings is one of names here.
    """
    table = _table_of(sources)
    if table is None:
        yield sources, field
        return
    lines = [json.dumps({FIELD: row.content}) for row in read_rows(table, field=field)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]
    path = Path(tempfile.gettempdir()) / f"polyseme-texts-{digest}.jsonl"
    with whole_file(path, force=True) as new_file:
        new_file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        yield str(path), FIELD
    finally:
        if os.environ.get("WORLD_SIZE", "1") == "1":  # under torchrun, other processes may still read it
            path.unlink(missing_ok=True)


def _table_of(sources: Any) -> InMemory | None:
    if sources is None or isinstance(sources, str | os.PathLike | Mapping):  # a mapping has sources by their names
        return None
    if isinstance(sources, list | tuple) and all(isinstance(each, str | os.PathLike) for each in sources):
        return None
    inputs = inputs_of(sources)
    return inputs if isinstance(inputs, InMemory) else None
