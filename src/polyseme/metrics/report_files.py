"""The report of an evaluation as a file, by the ending of its name.

JSON, a table (.tsv), one line per item (.jsonl), a page (.html), or a picture of bars (.png, .svg). The report of a
run's curve is written alike: its table has the lines of every model, its .jsonl one line per model, its picture curves.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from polyseme.errors import OptionError
from polyseme.files.result_formats import Formats, json_text
from polyseme.metrics.evaluation_report import Line, Report, format_figure, notes_of, title_of
from polyseme.plots.charts import BARS_STYLE, CHART_STYLE, Bar, Curve, bars_figure, bars_table, lines_chart
from polyseme.plots.curve_figure import curves_figure
from polyseme.plots.html_page import escaped, page
from polyseme.plots.similarity_heatmaps import figure_bytes

MOST_BARS = 80
"""The most groups that a picture shows; of more, it shows the wider ones above them."""
MOST_CURVES = 20
"""The most groups that have a curve; if there are more, only the widest have one."""
WORDS_SEEN = "words seen"
_STYLE = """
table.figures { table-layout: auto; width: auto; margin: 1rem 0 } .figures td, .figures th { padding: .15rem .7rem;
  text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.figures td:nth-child(2) { white-space: normal; overflow-wrap: normal; min-width: 8rem } .scroll { overflow-x: auto }
.figures th { border-bottom: 2px solid var(--line);
  cursor: help } .figures td:nth-child(-n+2), .figures th:nth-child(-n+2) { text-align: left }
.figures tr.all td { font-weight: 650 } .figures tr.wide td { background: var(--soft) }
table.points td, table.points th { text-align: right }
""".strip()


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


def _json(report: Report) -> str:
    content = asdict(report)
    del content["items"]
    return json_text(content)


def _jsonl(report: Report) -> str:
    records: Iterable[Mapping[str, Any]] = map(asdict, report.curve) if report.curve else report.items
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _tsv(report: Report) -> str:
    written = io.StringIO()
    writer = csv.writer(written, delimiter="\t", lineterminator="\n")
    seen = ("words", "pieces", "step") if report.curve else ()
    writer.writerow([*seen, "level", "name", "parent", "n", *report.columns])
    rows: list[tuple[tuple[int, ...], Line]] = [((), line) for line in report.lines]
    if report.curve:
        rows = [((each.words, each.pieces, each.step), line) for each in report.curve for line in each.lines]
    for numbers, line in rows:
        figures = ["" if line.figures[name] is None else f"{line.figures[name]:.6f}" for name in report.columns]
        writer.writerow([*numbers, line.level, line.name, line.parent, line.n, *figures])
    return written.getvalue()


def _html(report: Report) -> str:
    title = title_of(report)
    bars = bars_of(report) if report.shares else []
    head = "".join(
        f'<th title="{escaped(explanation)}">{escaped(name.replace("_", " "))}</th>'
        for name, explanation in report.columns.items()
    )
    kinds = {0: "all", 1: "wide"} if any(line.depth for line in report.lines) else {}
    rows = "".join(
        f'<tr class="{kinds.get(line.depth, "")}"><td>{escaped(line.level)}'
        f"</td><td>{escaped(line.name)}</td><td>{line.n:,}</td>"
        + "".join(f"<td>{format_figure(name, line.figures[name])}</td>" for name in report.columns)
        + "</tr>"
        for line in report.lines
    )
    body = "\n".join(
        [
            f"<h1>{escaped(title)}</h1>",
            *(f'<p class="faint">{escaped(note)}</p>' for note in notes_of(report)),
            _curve_in_page(report) if report.curve else "",
            bars_table(bars, baseline=report.baseline) if bars else "",
            f'<div class="scroll"><table class="figures"><tr><th>level</th><th>name</th><th>n</th>{head}</tr>{rows}'
            "</table></div>",
            *(
                f'<p class="faint">{escaped(name.replace("_", " "))}: {escaped(explanation)}.</p>'
                for name, explanation in report.columns.items()
            ),
        ]
    )
    return page(title, body, style=f"{_STYLE}\n{BARS_STYLE}\n{CHART_STYLE}")


def curves_of(report: Report) -> list[Curve]:
    """The first figure of each group against words: of the widest groups, and those within them if they are few."""
    lines = [line for line in report.lines if line.depth <= 1]
    lines = lines if len(lines) <= MOST_CURVES else report.widest
    factor = 100.0 if report.shares else 1.0
    curves = []
    for line in lines:
        figures = [(float(point.words), point.first_figure(line)) for point in report.curve]
        points = [(words, factor * value) for words, value in figures if value is not None]
        curves.append(Curve(line.name, points, (line.parent or report.lines[0].name) if line.depth else line.name))
    return curves


def _figure_name(report: Report) -> str:
    name = next(iter(report.columns)).replace("_", " ")
    return f"{name} (%)" if report.shares else name


def _curve_in_page(report: Report) -> str:
    """The curves, and a table of what they show."""
    name = next(iter(report.columns))
    groups = [line for line in report.lines if line.depth <= 1]
    head = "".join(f"<th>{escaped(each)}</th>" for each in ("words", "pieces", "step", *(g.name for g in groups)))
    rows = "".join(
        f"<tr><td>{point.words:,}</td><td>{point.pieces:,}</td><td>{point.step:,}</td>"
        + "".join(f"<td>{format_figure(name, point.first_figure(group))}</td>" for group in groups)
        + "</tr>"
        for point in report.curve
    )
    chart = lines_chart(
        [curve._replace(group="") for curve in curves_of(report)], x=WORDS_SEEN, y=_figure_name(report), log=True
    )
    table = f'<div class="scroll"><table class="figures points"><tr>{head}</tr>{rows}</table></div>'
    return f"<h2>{escaped(_figure_name(report))} against {WORDS_SEEN}</h2>{chart}{table}<h2>The last model</h2>"


def _picture(report: Report, format: Literal["png", "svg"]) -> bytes:
    if report.curve:
        note = f"{len(report.curve)} models of one run; scored {report.method}"
        baseline = None if report.baseline is None else 100 * report.baseline
        figure = curves_figure(
            curves_of(report),
            title=title_of(report),
            x=WORDS_SEEN,
            y=_figure_name(report),
            note=note,
            baseline=baseline,
        )
        return figure_bytes(figure, format)
    bars = bars_of(report)
    if not report.shares or not bars:
        raise OptionError(f"There is nothing in a report of {report.evaluation} that bars could show.")
    name = next(iter(report.columns))
    every = ", ".join(f"{line.name} {format_figure(name, line.figures[name])}" for line in report.widest)
    intervals = "; lines are intervals of 95%" if any(bar.low is not None for bar in bars) else ""
    note = f"{name.replace('_', ' ')}: {every}{intervals}; scored {report.method}"
    figure = bars_figure(bars, title=title_of(report), note=note, baseline=report.baseline)
    return figure_bytes(figure, format)


FORMATS: Formats = {
    ".json": _json,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".html": _html,
    ".png": lambda report: _picture(report, "png"),
    ".svg": lambda report: _picture(report, "svg"),
}
"""From the ending of an output to what it holds."""
