"""A published table: select systems, get records for pandas, show it, write it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from polyseme.errors import OptionError, nearest
from polyseme.papers.figures import Figure, TableData, tables
from polyseme.result_tables import ResultList, ShownAsTable, Table

MARK = "?"
"""Marks a figure that was found in no source."""
SHORT = {
    "accuracy": "acc",
    "matthews": "mcc",
    "spearman": "ρ",
    "pearson": "r",
    "answer_f1": "F1",
    "span_f1": "F1",
    "f1": "F1",
    "exact_match": "EM",
    "average": "mean",
    "perplexity": "ppl",
    "bleu": "BLEU",
    "uas": "UAS",
    "flops": "FLOPs",
}
"""Short names of metrics, for the heads of columns."""


class Part(NamedTuple):
    """The rows of one split."""

    split: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, repr=False)
class PublishedTable(ShownAsTable):
    """A table of the papers; `pandas.DataFrame(table.records())` has one row per figure."""

    name: str
    title: str
    description: str
    figures: tuple[Figure, ...]
    systems: Mapping[str, Mapping[str, Any]]
    """Facts about systems besides figures: dates, families, parents."""
    columns: tuple[tuple[str, str], ...]
    """Tasks and metrics in their order."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: TableData) -> PublishedTable:
        """The table of a file."""
        return cls(
            **{each: getattr(data, each) for each in ("name", "title", "description", "figures", "systems", "columns")}
        )

    @property
    def n_checked(self) -> int:
        """How many figures were found in a source."""
        return sum(bool(figure.checked) and not figure.counted for figure in self.figures)

    def only(self, systems: str | Sequence[str]) -> PublishedTable:
        """The table of those systems whose names contain one of these strings, in any case."""
        parts = [systems] if isinstance(systems, str) else list(systems)
        known = dict.fromkeys(figure.system for figure in self.figures)
        chosen = {name for name in known if any(each.casefold() in name.casefold() for each in parts)}
        for each in parts:
            if not any(each.casefold() in name.casefold() for name in known):
                raise OptionError(f"The table {self.name} has no system {each!r}. {nearest(each, list(known))}")
        return replace(self, figures=tuple(figure for figure in self.figures if figure.system in chosen))

    def with_figures(self, figures: Iterable[Figure], *notes: str) -> PublishedTable:
        """The table with additional figures and notes."""
        both = (*self.figures, *figures)
        columns = tuple(dict.fromkeys((*self.columns, *((each.task, each.metric) for each in both))))
        return replace(self, figures=both, columns=columns, notes=(*self.notes, *notes))

    # --- display ------------------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """The table as text: a part per split, a row per system, a column per task and metric."""
        parts = []
        for split in dict.fromkeys(figure.split for figure in self.figures):
            figures = [figure for figure in self.figures if figure.split == split]
            there = {(figure.task, figure.metric) for figure in figures}
            columns = [column for column in self.columns if column in there]
            rows = []
            for system in dict.fromkeys(figure.system for figure in figures):
                own = [figure for figure in figures if figure.system == system]
                cells = [[each for each in own if (each.task, each.metric) == column] for column in columns]
                rows.append((system, *map(cell_text, cells)))
            parts.append(Part(split, ("system", *(column_head(*column) for column in columns)), rows))
        return parts

    def lines(self) -> list[str]:
        """Description, notes and sources, and the meaning of the mark."""
        lines = [self.description] if self.description else []
        lines += list(self.notes)
        by_source: dict[tuple[str, str], list[str]] = {}
        for figure in self.figures:
            if figure.counted:
                continue
            noted = by_source.setdefault((figure.source, figure.checked), [])
            if figure.note and figure.note not in noted:
                noted.append(figure.note)
        for (source, checked), notes in by_source.items():
            origin = f"found in {checked}" if checked else f"from memory, marked {MARK}"
            lines.append(f"{source}: {origin}." + "".join(f" {note[:1].upper()}{note[1:]}." for note in notes))
        return lines

    def table(self) -> Table:
        parts = self.parts()
        header, rows = ("", ()) if not parts else (parts[0].header, parts[0].rows)
        more = f" {len(parts) - 1} more parts: see parts()." if len(parts) > 1 else ""
        title = f"{self.title}{f' ({parts[0].split})' if parts and parts[0].split else ''}"
        short = Table.of(title, header, rows, lambda row: row)
        return Table(title=title, header=header, rows=short.rows, note=f"{self.summary()}{more}")

    def summary(self) -> str:
        """The number of figures, and how many of them were found in a source."""
        n_counted = sum(figure.counted for figure in self.figures)
        counted = f" {n_counted:,} more are counted here." if n_counted else ""
        return f"{len(self.figures) - n_counted:,} figures, {self.n_checked:,} of them found in a source.{counted}"

    # --- formats ------------------------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Any]]:
        """One mapping per figure, all with the same names."""
        return [asdict(figure) for figure in self.figures]

    def to_json(self) -> dict[str, Any]:
        """The whole table as JSON values."""
        return {
            "table": self.name,
            "title": self.title,
            "description": self.description,
            "notes": list(self.notes),
            "systems": {name: dict(known) for name, known in self.systems.items()},
            "figures": self.records(),
        }

    def json(self) -> str:
        """The text of a JSON file."""
        return json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n"

    def csv(self, delimiter: str = ",") -> str:
        """The text of a CSV file, one line per figure."""
        written = io.StringIO()
        writer = csv.DictWriter(written, list(Figure.__dataclass_fields__), delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records())
        return written.getvalue()

    def markdown(self) -> str:
        """The text of a Markdown file: the parts, then description, notes and sources."""
        parts = []
        for part in self.parts():
            lines = [part.header, ("---",) * len(part.header), *part.rows]
            of_split = [f"On {part.split}:", ""] if part.split else []
            parts.append("\n".join([*of_split, *(f"| {' | '.join(line)} |" for line in lines)]))
        return "\n\n".join([f"# {self.title}", *parts, self.summary(), *self.lines()]) + "\n"


def column_head(task: str, metric: str) -> str:
    """The head of the column of a task and a metric."""
    return f"{task} {SHORT.get(metric, metric)}".strip()


def cell_text(figures: Sequence[Figure]) -> str:
    """The values of all sources in one cell, different ones side by side.

    >>> of = {"table": "t", "system": "s", "task": "", "metric": "m", "paper": "p", "year": 2019, "venue": "v"}
    >>> cell_text([Figure(value=41.8, checked="paper", **of), Figure(value=41.0, checked="", **of)])
    '41.8 / 41.0?'
    >>> cell_text([Figure(value=1995, checked="", **{**of, "metric": "year"})])
    '1995?'
    """
    texts: dict[str, bool] = {}
    for figure in figures:
        number = str(round(figure.value)) if figure.metric == "year" else number_text(figure.value)
        text = f"{number} {figure.unit}".rstrip()
        texts[text] = texts.get(text, False) or bool(figure.checked) or figure.counted
    return " / ".join(text if checked else f"{text}{MARK}" for text, checked in texts.items())


def number_text(value: float) -> str:
    """A number as tables show it.

    >>> [number_text(each) for each in (91.0, 8.63, 12, 14e6, 768648884, 1.9e20, 626155, 6e-5)]
    ['91.0', '8.63', '12', '14M', '768.6M', '1.9e20', '626,155', '6e-05']
    >>> number_text(-3.2)
    '−3.2'
    """
    if value < 0:
        return f"−{number_text(-value)}"
    if value >= 1e13:
        return f"{value:.3g}".replace("e+", "e")
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    if value >= 1000:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,}"
    return str(value)


def list_tables() -> ResultList[PublishedTable]:
    """Every table, shown one line each."""

    def shown(listed: Sequence[PublishedTable]) -> Table:
        rows = [(each.name, len(each.figures), each.n_checked, each.title) for each in listed]
        return Table(title=f"{len(listed)} tables", header=("table", "figures", "checked", "what"), rows=rows)

    return ResultList([PublishedTable.of(each) for each in tables().values()], shown)


def read_table(name: str) -> PublishedTable:
    """A table by its name; an unknown one is refused with the nearest."""
    if name not in tables():
        raise OptionError(f"There is no published table {name!r}. {nearest(name, list(tables()))}")
    return PublishedTable.of(tables()[name])
