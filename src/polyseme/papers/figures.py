"""The figures of the tables: one record each, read from the files.

A file has tables, a table has blocks. A block holds the figures of one source: columns (`task: metric`, or a metric
alone) and a row per system. A cell is a number, null, or an object with the number and fields of `Figure` of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).parent
FILES = ("scores", "ablations", "language_models", "inside", "costs", "sizes", "family_tree")
"""The files of tables, in their order."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a paper, or of another source that repeats it."""

    table: str
    system: str
    task: str
    """Empty for figures of the system itself, such as its parameters or its cost."""
    metric: str
    """Of scores, as `metrics.task_metrics.METRICS` names it; "average" for a mean that the paper gives."""
    value: float
    """As printed; scores are in percent."""
    unit: str = ""
    """The unit, if the metric does not imply it: "TPU v3 chips"."""
    split: str = ""
    paper: str
    """Authors and year."""
    year: int
    venue: str
    place: str = ""
    """Place in the paper, such as "Table 1"; empty: unknown."""
    checked: str
    """Kind and name of the source in which the value was found: "readme: google-research/bert"; empty: in none."""
    counted: bool = False
    """Whether polyseme counted it."""
    note: str = ""

    @property
    def source(self) -> str:
        """Paper and place: `Devlin et al. 2019, Table 1`."""
        return f"{self.paper}, {self.place}" if self.place else self.paper


@dataclass(frozen=True, kw_only=True)
class TableData:
    """A table of a file."""

    name: str
    title: str
    description: str
    for_benchmarks: bool
    """Whether its figures are those of whole systems, for comparison with results of the same benchmark."""
    systems: Mapping[str, Mapping[str, Any]]
    """Facts about systems besides figures: dates, families, parents."""
    figures: tuple[Figure, ...]
    columns: tuple[tuple[str, str], ...]
    """Tasks and metrics in their order."""


@cache
def tables() -> Mapping[str, TableData]:
    """All tables by name, in the order of the files."""
    papers = json.loads((HERE / "papers.json").read_text(encoding="utf-8"))
    return {
        each["name"]: TableData(
            name=each["name"],
            title=each["title"],
            description=each["description"],
            for_benchmarks=each.get("for_benchmarks", False),
            systems=each.get("systems", {}),
            figures=tuple(_figures(each["name"], each["blocks"], papers)),
            columns=tuple(dict.fromkeys(_column(name) for block in each["blocks"] for name in block["columns"])),
        )
        for file in FILES
        for each in json.loads((HERE / "tables" / f"{file}.json").read_text(encoding="utf-8"))["tables"]
    }


def table_names() -> tuple[str, ...]:
    """The names of all tables."""
    return tuple(tables())


def figures_of(table: str) -> tuple[Figure, ...]:
    """The figures of a table, in its order."""
    return tables()[table].figures


def _figures(table: str, blocks: Sequence[Mapping[str, Any]], papers: Mapping[str, Any]) -> Iterator[Figure]:
    for block in blocks:
        paper = papers[block["paper"]]
        of_block = {name: block[name] for name in ("split", "place", "checked", "note") if name in block}
        of_block |= {name: paper[name] for name in ("paper", "year", "venue")}
        for system, cells in block["rows"].items():
            for column, cell in zip(block["columns"], cells, strict=True):
                if cell is not None:
                    task, metric = _column(column)
                    own = cell if isinstance(cell, Mapping) else {"value": cell}
                    yield Figure(table=table, system=system, task=task, metric=metric, **{**of_block, **own})


def _column(name: str) -> tuple[str, str]:
    """The task and the metric of a column."""
    task, _, metric = name.rpartition(": ")
    return task, metric


# --- figures for benchmarks -------------------------------------------------------------------------------------------


def benchmark_figures(task: str, metric: str, *, split: str | None = None) -> list[Figure]:
    """The figures of whole systems for a task by one metric, of one split or of all."""
    return [
        figure
        for table in tables().values()
        if table.for_benchmarks
        for figure in table.figures
        if (figure.task, figure.metric) == (task, metric) and split in (None, figure.split)
    ]


def mean_of_tasks(system: str, tasks: Sequence[tuple[str, str]], *, split: str = "test") -> float | None:
    """The mean of a system's figures over (task, metric); None if one is missing."""
    figures = [
        [each for each in benchmark_figures(task, metric, split=split) if each.system == system]
        for task, metric in tasks
    ]
    return fmean(of_task[0].value for of_task in figures) if figures and all(figures) else None
