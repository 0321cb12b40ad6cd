"""The result of a sweep: the figures of every run, and of every point of the grid over its seeds; and what all cost."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from polyseme.config import Config
from polyseme.errors import InputError, OptionError, nearest
from polyseme.files.atomic import AnyPath
from polyseme.json_reading import load_json
from polyseme.plots.html_page import framed_page
from polyseme.plots.sweep_picture import PictureFigure, PicturePoint, sweep_page, sweep_picture
from polyseme.result_tables import ShownAsTable, Table, counted
from polyseme.sweeps.grid import format_value
from polyseme.training.energy_ledger import Ledger, duration

Unit = Literal["share", "nats", ""]
State = Literal["finished", "failed", "unfinished"]
MADE_BY = "polyseme sweep"


@dataclass(frozen=True, kw_only=True)
class Figure(Config):
    """A figure of one run."""

    value: float
    unit: Unit = ""
    """Shares are fractions, and are shown in percent."""
    error: float | None = None
    """The standard error that comes of the number of items it was measured on; None: not known."""


@dataclass(frozen=True, kw_only=True)
class RunCost(Config):
    """What a run cost, with all that followed it."""

    seconds: float = 0.0
    """Of its processes, one after another."""
    kwh: float = 0.0
    kwh_estimated: float = 0.0
    kg_co2e: float = 0.0
    price: float = 0.0
    currency: str = "USD"

    @classmethod
    def of(cls, ledger: Ledger, *, side_by_side: int = 1) -> RunCost:
        """By a ledger; the energy that a device took for several runs at once is divided among them."""
        energy = {name: getattr(ledger, name) / side_by_side for name in ("kwh", "kwh_estimated", "kg_co2e", "price")}
        return cls(seconds=ledger.total_seconds or ledger.seconds, currency=ledger.currency, **energy)

    def add(self, other: RunCost) -> RunCost:
        """Both together."""
        names = [each.name for each in dataclasses.fields(self) if each.name != "currency"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return RunCost(**sums, currency=self.currency)

    def line(self) -> str:
        """In words."""
        energy = "measured" if not self.kwh_estimated else "estimated"
        return (
            f"{duration(self.seconds)} of computing, {self.kwh:.3g} kWh ({energy}), {self.kg_co2e:.3g} kg of CO₂e, "
            f"{self.price:.3g} {self.currency}"
        )


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of one run."""

    name: str
    settings: Mapping[str, Any]
    """Of those that vary, or the name of the row."""
    seed: int
    folder: str
    state: State = "unfinished"
    figures: Mapping[str, Figure] = field(default_factory=dict)
    cost: RunCost = field(default_factory=RunCost)
    message: str = ""
    """Why it failed or stopped."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    version: str = ""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunResult:
        """The result of `asdict`."""
        figures = {name: Figure.from_json(each) for name, each in content["figures"].items()}
        tuples = {name: tuple(content[name]) for name in ("notes", "warnings")}
        return cls(**{**content, **tuples, "figures": figures, "cost": RunCost.from_json(content["cost"])})


class Summary(NamedTuple):
    """A figure over the seeds of a point."""

    mean: float
    spread: float
    """The standard deviation over seeds; 0 of one."""
    n: int
    error: float | None
    """The standard error that comes of the number of items, which more seeds do not make smaller."""
    values: tuple[float, ...]
    unit: Unit

    def text(self) -> str:
        """As tables have it: shares in percent, with the spread over seeds."""
        return self._text(f" ± {self._number(self.spread)}" if self.n > 1 else "")

    def _text(self, spread: str) -> str:
        return f"{self._number(self.mean)}{spread}"

    def _number(self, value: float) -> str:
        if self.unit == "share":
            return f"{100 * value:.1f}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


class Difference(NamedTuple):
    """By how much a figure of one point is above that of another."""

    value: float
    seed_error: float
    """The standard error over seeds."""
    item_error: float | None
    """The one that comes of the number of items, as if both had been measured on different ones."""


class SweepPoint(NamedTuple):
    """The runs of one point of the grid."""

    settings: Mapping[str, Any]
    runs: Sequence[RunResult]

    @property
    def label(self) -> str:
        """Its settings in one line."""
        return ", ".join(
            f"{name}={format_value(value)}" if name != "row" else value for name, value in self.settings.items()
        )

    def summary(self, figure: str) -> Summary | None:
        """A figure over the seeds that have it; None: no run has."""
        figures = [run.figures[figure] for run in self.runs if figure in run.figures]
        if not figures:
            return None
        values = tuple(each.value for each in figures)
        errors = [each.error for each in figures if each.error is not None]
        return Summary(
            statistics.fmean(values),
            statistics.stdev(values) if len(values) > 1 else 0.0,
            len(values),
            statistics.fmean(errors) if errors else None,
            values,
            figures[0].unit,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(ShownAsTable):
    """The results of a sweep."""

    verb: str
    title: str
    """What was run, in short."""
    runs: tuple[RunResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the settings that vary."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.settings))

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of all figures, in the order in which runs have them."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.figures))

    @property
    def points(self) -> list[SweepPoint]:
        """The points of the grid, each with its runs."""
        points: dict[str, SweepPoint] = {}
        for run in self.runs:
            key = format_value(run.settings)
            points[key] = SweepPoint(run.settings, [*(points[key].runs if key in points else ()), run])
        return list(points.values())

    def point(self, **settings: Any) -> SweepPoint:
        """The one point that has these settings."""
        for name in settings:
            if name not in self.settings:
                raise OptionError(f"The sweep does not vary {name!r}. {nearest(name, self.settings)}")
        fitting = [
            each for each in self.points if all(each.settings.get(name) == value for name, value in settings.items())
        ]
        if len(fitting) != 1:
            labels = "; ".join(each.label for each in (fitting or self.points))
            raise OptionError(
                f"The sweep has {len(fitting)} points with {settings}, and one is meant. There are: {labels}."
            )
        return fitting[0]

    def summary(self, figure: str, **settings: Any) -> Summary:
        """A figure over the seeds of one point."""
        summary = self.point(**settings).summary(figure)
        if summary is None:
            raise OptionError(f"No run with {settings} has a figure {figure!r}. {nearest(figure, self.figures)}")
        return summary

    def difference(self, figure: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Difference:
        """By how much a figure of the first point is above that of the second, with both sampling errors."""
        one, other = self.summary(figure, **first), self.summary(figure, **second)
        over_seeds = math.hypot(*(each.spread / math.sqrt(each.n) for each in (one, other)))
        items = None if one.error is None or other.error is None else math.hypot(one.error, other.error)
        return Difference(one.mean - other.mean, over_seeds, items)

    @property
    def cost(self) -> RunCost:
        """Of all runs together."""
        total = RunCost(currency=self.runs[0].cost.currency if self.runs else "USD")
        for run in self.runs:
            total = total.add(run.cost)
        return total

    def of_state(self, state: State) -> list[RunResult]:
        """The runs that are finished, failed or unfinished."""
        return [run for run in self.runs if run.state == state]

    # --- the table ----------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...]:
        """What the table's columns are called."""
        return (*self.settings, "runs", *self.figures, "minutes per run")

    def rows(self) -> list[tuple[str, ...]]:
        """One row per point: means over seeds, with standard deviations."""
        return [self._row(point) for point in self.points]

    def _row(self, point: SweepPoint) -> tuple[str, ...]:
        finished = [run for run in point.runs if run.state == "finished"]
        summaries = [point.summary(name) for name in self.figures]
        minutes = statistics.fmean(run.cost.seconds for run in finished) / 60 if finished else None
        return (
            *(format_value(point.settings[name]) if name in point.settings else "" for name in self.settings),
            f"{len(finished)} of {len(point.runs)}",
            *("" if each is None else each.text() for each in summaries),
            "" if minutes is None else f"{minutes:.1f}",
        )

    def table(self) -> Table:
        return Table.of(self.title, self.columns, self.rows(), lambda row: row)

    def _repr_html_(self) -> str:
        return framed_page(self.page())

    def lines(self) -> list[str]:
        """What must be known to read the table, runs that failed, and the cost of all."""
        lines = []
        if any(len(point.runs) > 1 for point in self.points):
            lines.append("Means over seeds; ± is the standard deviation over seeds.")
        if any(figure.unit == "share" for run in self.runs for figure in run.figures.values()):
            lines.append("Shares are in percent.")
        errors = [self._items(name) for name in self.figures]
        if any(errors):
            lines.append(f"Standard errors by the number of items: {', '.join(each for each in errors if each)}.")
        lines += self.notes
        lines += list(dict.fromkeys(note for run in self.runs for note in run.notes))
        warned = [run for run in self.runs if run.warnings]
        if warned:
            first = f"{warned[0].name}: {warned[0].warnings[0]}"
            lines.append(f"{counted(len(warned), 'run')} with warnings, which the JSON file has. The first, {first}")
        versions = sorted({run.version for run in self.runs if run.version})
        if len(versions) > 1:
            lines.append(f"Runs are of several versions of polyseme: {', '.join(versions)}.")
        lines += [f"{run.name} failed: {run.message}" for run in self.of_state("failed")]
        unfinished = self.of_state("unfinished")
        if unfinished:
            lines.append(f"{counted(len(unfinished), 'run')} unfinished: the same command resumes the sweep.")
        return [*lines, f"{counted(len(self.of_state('finished')), 'run')}: {self.cost.line()}."]

    def _items(self, name: str) -> str:
        summaries = [summary for point in self.points if (summary := point.summary(name)) is not None]
        errors = [each.error for each in summaries if each.error is not None]
        if not errors:
            return ""
        return f"{name} {100 * max(errors):.1f}" if summaries[0].unit == "share" else f"{name} {max(errors):.3f}"

    # --- what is written ----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Every run, and the table."""
        return {
            MADE_BY: self.verb,
            "title": self.title,
            "runs": [dataclasses.asdict(run) for run in self.runs],
            "notes": list(self.notes),
            "cost": self.cost.to_json(),
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows()],
            "points": [
                {
                    "settings": dict(point.settings),
                    "figures": {
                        name: summary._asdict() for name in self.figures if (summary := point.summary(name)) is not None
                    },
                }
                for point in self.points
            ],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Sweep:
        """The sweep of `to_json`."""
        return cls(
            verb=content[MADE_BY],
            title=content["title"],
            runs=tuple(RunResult.from_json(run) for run in content["runs"]),
            notes=tuple(content["notes"]),
        )

    @classmethod
    def read(cls, path: AnyPath) -> Sweep:
        """The sweep whose files have this name: NAME.html or NAME.json."""
        file = Path(path).with_suffix(".json")
        try:
            return cls.from_json(load_json(file, kind=dict))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is no result of a sweep ({type(error).__name__}: {error}).") from None

    def tsv(self) -> str:
        """One line per run."""
        written = io.StringIO()
        writer = csv.writer(written, delimiter="\t", lineterminator="\n")
        writer.writerow([*self.settings, "seed", "state", *self.figures, "seconds", "kwh", "price", "folder"])
        for run in self.runs:
            settings = [format_value(run.settings[name]) if name in run.settings else "" for name in self.settings]
            values = [f"{run.figures[name].value:.6f}" if name in run.figures else "" for name in self.figures]
            costs = [f"{run.cost.seconds:.1f}", f"{run.cost.kwh:.6g}", f"{run.cost.price:.6g}"]
            writer.writerow([*settings, run.seed, run.state, *values, *costs, run.folder])
        return written.getvalue()

    def picture(self) -> str:
        """An SVG file: every figure against the settings, with the spread over seeds."""
        return sweep_picture(self.title, self.settings, self.picture_figures())

    def page(self) -> str:
        """A page with the picture and the table."""
        return sweep_page(self.title, self.settings, self.picture_figures(), self.columns, self.rows(), self.lines())

    def picture_figures(self) -> list[PictureFigure]:
        """Every figure with its points, as pictures take it."""
        drawn = []
        for name in self.figures:
            points = []
            for point in self.points:
                summary = point.summary(name)
                if summary is not None and math.isfinite(summary.mean):
                    factor = 100.0 if summary.unit == "share" else 1.0
                    values = [factor * value for value in summary.values]
                    points.append(
                        PicturePoint(
                            dict(point.settings), point.label, factor * summary.mean, factor * summary.spread, values
                        )
                    )
                    unit = {"share": "%", "nats": "nats", "": ""}[summary.unit]
            if points:
                drawn.append(PictureFigure(f"{name} ({unit})" if unit else name, points))
        return drawn
