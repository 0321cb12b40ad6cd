"""Results as files in one of several formats, chosen by the ending of the output's name.

A room that writes results has a table of its formats: an ending → the function that makes the content of the file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.files.atomic import AnyPath, check_output, whole_file

Formats = Mapping[str, Callable[[Any], str | bytes]]
PICTURES = (".png", ".svg")


def check_result_output(
    output: AnyPath | None, formats: Formats, *, force: bool, inputs: Iterable[AnyPath | None] = ()
) -> None:
    """Refuse an output that could not be written; to be called before any work. None: nothing is written."""
    if output is None:
        return
    ending = Path(output).suffix.lower()
    if ending not in formats:
        raise OptionError(f"The output must end in {', '.join(formats)}. Got {str(output)!r} instead.")
    check_output(output, force=force, inputs=inputs)
    if ending in PICTURES and formats.keys() >= {*PICTURES}:  # of results with both, matplotlib draws the pictures
        require("matplotlib", extra="plots")


def write_result(result: Any, output: AnyPath | None, formats: Formats, *, force: bool = False) -> None:
    """Write a result, whole or not at all. None: nothing is written."""
    if output is None:
        return
    content = formats[Path(output).suffix.lower()](result)
    with whole_file(output, force=force) as path:
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


def json_text(content: Any, default: Callable[[Any], Any] | None = None) -> str:
    """The text of a JSON file; `default` makes JSON of values that are none."""
    return json.dumps(content, ensure_ascii=False, indent=1, default=default) + "\n"


def table_text(records: Sequence[Mapping[str, Any]], delimiter: str = ",") -> str:
    """The text of a CSV file, or with a tab as the delimiter of a TSV file: one line per record, after their names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()
