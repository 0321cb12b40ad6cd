"""The report of an evaluation: figures in lines, the widest group first; written by the ending of the output.

JSON, a table (.tsv), one line per item (.jsonl), a page (.html), or a picture of bars (.png, .svg).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from polyseme.cost import Cost
from polyseme.errors import OptionError
from polyseme.extras import require
from polyseme.files.atomic import check_output, whole_file
from polyseme.metrics.task_metrics import METRICS
from polyseme.plots.charts import BARS_STYLE, Bar, bars_figure, bars_table
from polyseme.plots.html_page import escaped, page
from polyseme.plots.similarity_heatmaps import figure_bytes

AnyPath = str | PathLike[str]
MOST_BARS = 80
"""Of so many groups a picture is made at most; beyond that, of the wider ones above them."""
_STYLE = """
table.figures { table-layout: auto; width: auto; margin: 1rem 0 } .figures td, .figures th { padding: .15rem .7rem;
  text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.figures th { border-bottom: 2px solid var(--line);
  cursor: help } .figures td:nth-child(-n+2), .figures th:nth-child(-n+2) { text-align: left }
.figures tr.all td { font-weight: 650 } .figures tr.wide td { background: var(--soft) }
""".strip()


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
    chance: float | None = None
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
class Report(Figures):
    """The figures of an evaluation, with what they are of and how they came about."""

    evaluation: str
    model: str
    how: str
    """In words, how the model was scored."""
    notes: Sequence[str] = ()
    cost: Cost | None = None


def check_report_output(output: AnyPath, *, force: bool) -> None:
    """Refuse an output that could not be written; to be called before any work."""
    if _ending(output) not in FORMATS:
        raise OptionError(f"A report is written as {', '.join(FORMATS)}. Got {str(output)!r} instead.")
    if _ending(output) in (".png", ".svg"):
        require("matplotlib", extra="plots")
    check_output(output, force=force)


def write_report(report: Report, output: AnyPath, *, force: bool = False) -> None:
    """Write a report, whole or not at all."""
    with whole_file(output, force=force) as path:
        path.write_bytes(FORMATS[_ending(output)](report))


def spelled(name: str, value: float | None) -> str:
    """A figure as tables have it: shares in percent, counts whole."""
    if value is None:
        return ""
    if name in ("low", "high", "spread") or (name in METRICS and name != "log_loss"):
        return f"{100 * value:.1f}"
    if name == "ties":
        return f"{value:.0f}"
    return f"{value:,.2f}"


def bars_of(report: Report) -> list[Bar]:
    """The narrowest groups of which a picture has room for all, with those above them as groups of bars."""
    lines = report.lines
    follows = [line.depth for line in lines[1:]] + [0]
    for depth in range(max(line.depth for line in lines), -1, -1):
        narrow = [
            line
            for line, after in zip(lines, follows, strict=True)
            if line.depth == depth or (line.depth < depth and after <= line.depth)
        ]
        if len(narrow) <= MOST_BARS:
            return [bar for line in narrow if (bar := _bar(line)) is not None]
    return []


def _bar(line: Line) -> Bar | None:
    value = next(iter(line.figures.values()))
    if value is None:
        return None
    return Bar(line.name, value, line.figures.get("low"), line.figures.get("high"), line.parent)


def _json(report: Report) -> bytes:
    content = asdict(report)
    del content["items"]
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogatepass")


def _jsonl(report: Report) -> bytes:
    lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in report.items)
    return "".join(lines).encode("utf-8", "surrogatepass")


def _tsv(report: Report) -> bytes:
    written = io.StringIO()
    writer = csv.writer(written, delimiter="\t", lineterminator="\n")
    writer.writerow(["level", "name", "parent", "n", *report.columns])
    for line in report.lines:
        figures = ["" if line.figures[name] is None else f"{line.figures[name]:.6f}" for name in report.columns]
        writer.writerow([line.level, line.name, line.parent, line.n, *figures])
    return written.getvalue().encode("utf-8", "surrogatepass")


def _html(report: Report) -> bytes:
    title = title_of(report)
    bars = bars_of(report) if report.shares else []
    head = "".join(
        f'<th title="{escaped(explanation)}">{escaped(name.replace("_", " "))}</th>'
        for name, explanation in report.columns.items()
    )
    rows = "".join(
        f'<tr class="{"all" if line.depth == 0 else "wide" if line.depth == 1 else ""}"><td>{escaped(line.level)}'
        f"</td><td>{escaped(line.name)}</td><td>{line.n:,}</td>"
        + "".join(f"<td>{spelled(name, line.figures[name])}</td>" for name in report.columns)
        + "</tr>"
        for line in report.lines
    )
    body = "\n".join(
        [
            f"<h1>{escaped(title)}</h1>",
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes_of(report)),
            bars_table(bars, baseline=report.chance) if bars else "",
            f'<table class="figures"><tr><th>level</th><th>name</th><th>n</th>{head}</tr>{rows}</table>',
            *(
                f'<p class="faint">{escaped(name.replace("_", " "))}: {escaped(explanation)}.</p>'
                for name, explanation in report.columns.items()
            ),
        ]
    )
    return page(title, body, style=f"{_STYLE}\n{BARS_STYLE}").encode("utf-8")


def title_of(report: Report) -> str:
    """What was evaluated, in short."""
    return f"{report.evaluation}: {Path(report.model).name or report.model}"


def notes_of(report: Report) -> list[str]:
    """The notes of a report, besides its figures."""
    cost = [report.cost.line() + "."] if report.cost is not None else []
    return [f"Scored {report.how}.", *report.notes, *cost]


def _picture(report: Report, format: str) -> bytes:
    bars = bars_of(report)
    if not report.shares or not bars:
        raise OptionError(f"There is nothing in a report of {report.evaluation} that bars could show.")
    every = ", ".join(f"{line.name} {spelled('accuracy', line.figures['accuracy'])}" for line in report.widest)
    note = f"accuracy: {every}; lines are intervals of 95%; scored {report.how}"
    figure = bars_figure(bars, title=title_of(report), note=note, baseline=report.chance)
    return figure_bytes(figure, "svg" if format == "svg" else "png")


FORMATS: Mapping[str, Callable[[Report], bytes]] = {
    ".json": _json,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".html": _html,
    ".png": lambda report: _picture(report, "png"),
    ".svg": lambda report: _picture(report, "svg"),
}
"""From the ending of an output to what it holds."""


def _ending(output: AnyPath) -> str:
    return Path(output).suffix.lower()
