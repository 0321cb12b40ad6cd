"""A concordance as a file: aligned text, CSV, JSON or a page, by the extension of the file name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.cells import cell_len

from polyseme.errors import OptionError
from polyseme.files.atomic import AnyPath, check_output, whole_file
from polyseme.keyword_in_context.keyword_lines import Concordance
from polyseme.plots.concordance_page import PageLine, concordance_page
from polyseme.plots.word_uses import Keyword, shown_keyword
from polyseme.printable import visible

ORDERS = {
    "text": "text",
    "left": "words on the left",
    "right": "words on the right",
    "similarity": "similarity",
    "sense": "sense",
}
"""As the page names them."""


def check_concordance_output(output: AnyPath, *, force: bool) -> None:
    """Refuse an output to which no concordance could be written. Call this before any work."""
    if Path(output).suffix.lower() not in WRITERS:
        raise OptionError(f"The output must end in {', '.join(WRITERS)}. Got {str(output)!r} instead.")
    check_output(output, force=force)


def write_concordance(result: Concordance, output: AnyPath, *, force: bool = False) -> None:
    """Write a concordance as `.txt`, `.csv`, `.html` or `.json`, atomically."""
    with whole_file(output, force=force) as path:
        path.write_bytes(WRITERS[Path(output).suffix.lower()](result).encode("utf-8", "surrogatepass"))


def text_lines(result: Concordance) -> Iterator[Keyword]:
    """The lines as plain text, with the matches, in brackets, in one column.

    Characters that terminals would obey are escaped: lines are read there.
    """
    keywords = list(map(shown_keyword, result.keywords()))
    labels = [visible(_label(line.id, line.cosine, line.sense), one_line=True) for line in result.lines]
    label_width = max(map(cell_len, labels), default=0)
    margin = max((cell_len(keyword.before) for keyword in keywords), default=0)
    for label, (before, match, after) in zip(labels, keywords, strict=True):
        left = f"{label}{' ' * (label_width - cell_len(label))}  {' ' * (margin - cell_len(before))}{before}"
        yield Keyword(left, f"[{match}]", after.rstrip())


def _label(id: str, cosine: float | None, sense: int | None) -> str:
    if cosine is not None:
        return f"{cosine:.3f}  {id}"
    return id if sense is None else f"{sense}  {id}"


def _csv(result: Concordance) -> str:
    """One row per line; offsets count in the whole text."""
    by_vector = {"similarity": ["cosine"], "sense": ["sense"]}.get(result.sort, [])
    fields = list(dict.fromkeys(name for line in result.lines for name in line.fields))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "start", "end", *by_vector, "left", "match", "right", *fields])
    for line, (before, match, after) in zip(result.lines, result.keywords(), strict=True):
        numbers = [getattr(line, name) for name in by_vector]
        beside = [_cell(line.fields.get(name)) for name in fields]
        writer.writerow(
            [line.id, line.offset + line.start, line.offset + line.end, *numbers, before, match, after, *beside]
        )
    return text.getvalue()


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _html(result: Concordance) -> str:
    lines = [
        PageLine(line.id, keyword, line.cosine, line.sense)
        for line, keyword in zip(result.lines, result.keywords(), strict=True)
    ]
    return concordance_page(result.query, result.headline, lines, order=ORDERS[result.sort], notes=[result.explanation])


def _json(result: Concordance) -> str:
    return json.dumps(asdict(result), ensure_ascii=False, indent=1, default=str) + "\n"


WRITERS: Mapping[str, Callable[[Concordance], str]] = {
    ".txt": lambda result: "".join(f"{''.join(line)}\n" for line in text_lines(result)),
    ".csv": _csv,
    ".html": _html,
    ".json": _json,
}
"""By the extension of the output."""
