"""A concordance as a file: aligned text, CSV, JSON or a page, by the extension of the file name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.cells import cell_len

from polyseme.files.result_formats import Formats, json_text
from polyseme.keyword_in_context.keyword_lines import Concordance
from polyseme.plots.concordance_page import PageLine, concordance_page
from polyseme.plots.word_uses import Keyword, printable_keyword
from polyseme.printable import visible

ORDERS = {
    "text": "text",
    "left": "words on the left",
    "right": "words on the right",
    "similarity": "similarity",
    "sense": "sense",
}
"""As the page names them."""


def text_lines(result: Concordance) -> Iterator[Keyword]:
    """The lines as plain text, with the matches, in brackets, in one column.

    Characters that terminals would obey are escaped: lines are read there.
    """
    keywords = list(map(printable_keyword, result.keywords()))
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


FORMATS: Formats = {
    ".txt": lambda result: "".join(f"{''.join(line)}\n" for line in text_lines(result)),
    ".csv": _csv,
    ".html": _html,
    ".json": lambda result: json_text(asdict(result), default=str),
}
