"""The report of an evaluation: figures in lines, the widest group first; of a run, also of the models it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polyseme.cost import Cost
from polyseme.metrics.task_metrics import METRICS
from polyseme.packaged_models import model_name
from polyseme.result_tables import ShownAsTable, Table


@dataclass(frozen=True)
class Line:
    """The figures of a group, or of all."""

    level: str
    """What the group is: all, set, field, paradigm, …"""
    name: str
    n: int
    """How many items it has."""
    figures: Mapping[str, float | None]
    parent: str = ""
    """The group one level up, where there is one."""
    depth: int = 0
    """How far down it is: all is 0."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a metric makes of answers."""

    columns: Mapping[str, str]
    """The name of each figure, and what it is."""
    lines: Sequence[Line]
    shares: bool = True
    """Whether the first figure is a share from 0 to 1, which a bar can show."""
    baseline: float | None = None
    """What that share would be by chance."""
    items: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """One record per item."""

    @property
    def widest(self) -> list[Line]:
        """The lines of the widest groups: all, or each set where sets are reported by themselves."""
        return [line for line in self.lines if line.depth == 0]

    def __getitem__(self, name: str) -> Mapping[str, float | None]:
        """The figures of a group by its name; `all` for all."""
        for line in self.lines:
            if line.name == name:
                return line.figures
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The figures of a model that a run kept, after so many words."""

    words: int
    pieces: int
    step: int
    model: str
    lines: Sequence[Line]

    def first_figure(self, line: Line) -> float | None:
        """The first figure of the group that `line` is, at this point."""
        theirs = next((each for each in self.lines if (each.name, each.parent) == (line.name, line.parent)), None)
        return None if theirs is None else next(iter(theirs.figures.values()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(ShownAsTable, Figures):
    """The figures of an evaluation, with what they are of and how they came about."""

    evaluation: str
    model: str
    method: str
    """In words, how the model was scored."""
    notes: Sequence[str] = ()
    cost: Cost | None = None
    curve: Sequence[CurvePoint] = ()
    """Of a run: one point per model that it kept, by words; the report's own lines are those of the last."""

    def table(self) -> Table:
        def row(line: Line) -> tuple[str, ...]:
            figures = (format_figure(name, line.figures.get(name)) for name in self.columns)
            return ("  " * line.depth + line.name, f"{line.n:,}", *figures)

        table = Table.of(title_of(self), ("group", "items", *self.columns), self.lines, row)
        return replace(table, note=" ".join(notes_of(self)))


def format_figure(name: str, value: float | None) -> str:
    """A figure as tables have it: shares in percent, counts whole."""
    if value is None:
        return ""
    if (
        name in ("low", "high", "spread", "error", "change", "change error")
        or "accuracy" in name
        or name.partition(" (")[0] in METRICS
    ):
        return f"{100 * value:.1f}"
    if name == "ties":
        return f"{value:.0f}"
    return f"{value:,.2f}"


def title_of(report: Report) -> str:
    """What was evaluated, in short."""
    return f"{report.evaluation}: {model_name(report.model)}"


def notes_of(report: Report) -> list[str]:
    """The notes of a report, besides its figures."""
    cost = [report.cost.line() + "."] if report.cost is not None else []
    return [f"Scored {report.method}.", *report.notes, *cost]
