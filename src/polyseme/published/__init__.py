"""Published figures to compare results with, from one data file that names the paper, table and split of each.

Figures on test and on dev are different things: each figure has its split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

FILE = Path(__file__).with_name("published.json")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A figure of a paper."""

    model: str
    task: str
    metric: str
    """As `metrics.task_metrics.METRICS` names it; "average" for a mean that the paper gives."""
    value: float
    """In percent, as papers print it."""
    split: str
    paper: str
    where: str
    """The venue."""
    table: str | None
    """None: not known."""
    unconfirmed: str = ""
    """The parts that could not be confirmed: "table", "split", "value"; empty: compared with the paper's table."""
    note: str = ""

    @property
    def source(self) -> str:
        """The source in words: `Devlin et al. 2019, Table 1`, and its unconfirmed parts."""
        short = self.paper.partition(",")[0]
        source = f"{short}, {self.table}" if self.table else short
        return f"{source} ({self.unconfirmed} unconfirmed)" if self.unconfirmed else source


@cache
def published() -> tuple[Published, ...]:
    """All figures, in the order of the file."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    papers = content["papers"]
    return tuple(Published(**{**row, **papers[row["paper"]]}) for row in content["rows"])


def beside(task: str, metric: str, *, split: str | None = None) -> list[Published]:
    """The figures of a task by one metric, of one split or of all."""
    return [row for row in published() if (row.task, row.metric) == (task, metric) and split in (None, row.split)]


def mean_over(model: str, tasks: Sequence[tuple[str, str]], *, split: str = "test") -> float | None:
    """The mean of a model's figures over (task, metric); None if one is missing."""
    figures = [next(_figures(model, task, metric, split), None) for task, metric in tasks]
    known = [figure for figure in figures if figure is not None]
    return fmean(known) if known and len(known) == len(figures) else None


def _figures(model: str, task: str, metric: str, split: str) -> Iterator[float]:
    return (row.value for row in beside(task, metric, split=split) if row.model == model)
