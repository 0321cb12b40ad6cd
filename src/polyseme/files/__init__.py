"""Users' files, in and out: rows of text to read, vectors to write, and nothing half-written.

Names are loaded when they are first used: reading plain text needs neither NumPy nor Arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyseme.files.atomic import check_output, whole_file, whole_folder
    from polyseme.files.lines import Line, read_lines
    from polyseme.files.row_reader import read_rows
    from polyseme.files.rows import Place, Row
    from polyseme.files.source import Reading
    from polyseme.files.vector_files import VectorWriter, open_writer, read_about, read_vectors

_HOMES = {
    "check_output": "atomic",
    "whole_file": "atomic",
    "whole_folder": "atomic",
    "Line": "lines",
    "Reading": "source",
    "read_lines": "lines",
    "read_rows": "row_reader",
    "Place": "rows",
    "Row": "rows",
    "VectorWriter": "vector_files",
    "open_writer": "vector_files",
    "read_about": "vector_files",
    "read_vectors": "vector_files",
}

__all__ = [
    "Line",
    "Place",
    "Reading",
    "Row",
    "VectorWriter",
    "check_output",
    "open_writer",
    "read_about",
    "read_lines",
    "read_rows",
    "read_vectors",
    "whole_file",
    "whole_folder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
