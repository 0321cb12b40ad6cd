"""Results as short tables: in a terminal as text, in a notebook as HTML, and never hundreds of lines.

A result derives from `ShownAsTable` and says what its table is; as a dataclass it has `repr=False`.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from polyseme.printable import visible

MOST_ROWS = 10
"""Rows that are shown; of more, the first and the last ones."""
MOST_CHARACTERS = 60
"""Of a cell."""

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is shown of a result."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    note: str = ""
    width: int = MOST_CHARACTERS
    """Characters of a cell that are shown."""

    @classmethod
    def of(
        cls, title: str, header: Sequence[str], items: Sequence[Item], row: Callable[[Item], Sequence[Any]]
    ) -> Table:
        """One row per item; of many, the first and the last, with a row of dots between."""
        if len(items) <= MOST_ROWS:
            return cls(title=title, header=header, rows=[row(each) for each in items])
        first, last = items[: MOST_ROWS - 3], items[-2:]
        dots = ["…"] * len(header)
        return cls(title=title, header=header, rows=[*map(row, first), dots, *map(row, last)])

    def text(self) -> str:
        """Lines of columns under a title.

        >>> print(Table(title="2 words", header=("word", "count"), rows=[("dawn", 3), ("vase", 12)]).text())
        2 words
        word  count
        dawn  3
        vase  12
        """
        lines = [[cell(each, self.width) for each in line] for line in ([self.header] if self.header else [])]
        lines += [[cell(each, self.width) for each in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        columns = ["  ".join(each.ljust(width) for each, width in zip(line, widths, strict=True)) for line in lines]
        beside = [visible(each) for each in (self.title, self.note)]
        return "\n".join([beside[0], *(line.rstrip() for line in columns), *filter(None, beside[1:])])

    def html(self) -> str:
        """The same as a table of HTML; every text is escaped."""
        head = "".join(f"<th style='text-align:left'>{self._escaped(each)}</th>" for each in self.header)
        cells = (
            "".join(f"<td style='text-align:left'>{self._escaped(each)}</td>" for each in row) for row in self.rows
        )
        rows = "".join(f"<tr>{row}</tr>" for row in cells)
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{html.escape(self.title)}</b></p><table><tr>{head}</tr>{rows}</table>{note}"

    def _escaped(self, value: Any) -> str:
        return html.escape(cell(value, self.width))


class ShownAsTable(ABC):
    """A result that is shown as a table."""

    @abstractmethod
    def table(self) -> Table:
        """What is shown."""

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str | None:
        """For notebooks."""
        return self.table().html()


class ResultList(ShownAsTable, list[Item]):
    """A list of results, shown as a table."""

    def __init__(self, items: Iterable[Item], table: Callable[[Sequence[Item]], Table]) -> None:
        super().__init__(items)
        self._table = table

    def table(self) -> Table:
        return self._table(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def cell(value: Any, width: int = MOST_CHARACTERS) -> str:
    r"""A value in one short line.

    >>> cell(0.12345678), cell("two\nlines"), cell(None)
    ('0.1235', 'two lines', '')
    """
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else visible(" ".join(str(value).split()))
    return f"{text[: width - 1]}…" if len(text) > width else text


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "text"), counted(1200, "text")
    ('1 text', '1,200 texts')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
