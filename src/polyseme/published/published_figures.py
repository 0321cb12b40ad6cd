"""Published figures to hold a result against, read from one data file that names paper, table and split of each.

A figure on test and one on dev are two things: `beside` never mixes them without saying so.
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
    """As `metrics.METRICS` names it; "average" for a mean that the paper gives."""
    value: float
    """In percent, as papers print it."""
    split: str
    paper: str
    where: str
    """The venue."""
    table: str | None
    """None: not known."""
    unconfirmed: str = ""
    """What of it could not be found again: "table", "split", "value"; empty: it was compared with the paper's table."""
    note: str = ""

    @property
    def source(self) -> str:
        """Where it stands, in words: `Devlin et al. 2019, Table 1`, and what of that is unconfirmed."""
        short = self.paper.partition(",")[0]
        found = f"{short}, {self.table}" if self.table else short
        return f"{found} ({self.unconfirmed} unconfirmed)" if self.unconfirmed else found


@cache
def published() -> tuple[Published, ...]:
    """All figures, in the order of the file."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    papers = content["papers"]
    return tuple(Published(**{**row, **papers[row["paper"]]}) for row in content["rows"])


def beside(task: str, metric: str, *, split: str | None = None) -> list[Published]:
    """The figures of a task by one metric; those of one split, or of every one, each with its own named."""
    return [row for row in published() if (row.task, row.metric) == (task, metric) and split in (None, row.split)]


def mean_over(model: str, tasks: Sequence[tuple[str, str]], *, split: str = "test") -> float | None:
    """The mean of a model's figures over (task, metric); None where one is missing."""
    found = [next(_figures(model, task, metric, split), None) for task, metric in tasks]
    given = [value for value in found if value is not None]
    return fmean(given) if given and len(given) == len(found) else None


def _figures(model: str, task: str, metric: str, split: str) -> Iterator[float]:
    return (row.value for row in beside(task, metric, split=split) if row.model == model)
