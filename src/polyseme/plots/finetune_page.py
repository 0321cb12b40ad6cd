"""The report of a fine-tuning as a page: scores by seed, curves, layer weights, confusions, errors, settings, cost.

`TaskPage` is a plain record of the content; empty sections are left out. Scores are fractions and are shown ×100.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyseme.plots.charts import BARS_STYLE, CHART_STYLE, Bar, Curve, Dot, bars_table, dots_chart, lines_chart
from polyseme.plots.confusion_matrix import CONFUSION_STYLE, confusion_table
from polyseme.plots.html_page import escaped, page
from polyseme.plots.share_curve import ScoreCurve
from polyseme.types import Confusion

MOST_CHARACTERS = 700
"""Of the text of an error; longer texts are truncated with an ellipsis."""
_STYLE = """
section { margin-bottom: 1.4rem } .beside { display: grid; gap: .6rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)) } h3 { font-size: .95rem; margin: .5rem 0 .2rem }
.wide { overflow-x: auto } .note { font-style: normal; padding: .35rem .7rem; background: var(--soft);
  border-left: 4px solid var(--line); margin: .25rem 0 }
table.rows { table-layout: auto; width: auto } .rows td, .rows th { padding: .15rem 1.6rem .15rem 0; text-align: left;
  font-variant-numeric: tabular-nums; white-space: nowrap } .rows th { border-bottom: 2px solid var(--line) }
.big { font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums }
.error { border-top: 1px solid var(--line); padding: .5rem 0; max-width: 60rem; overflow-wrap: anywhere }
.error .summary { font-size: .9rem } .error .text { white-space: pre-wrap; margin: .15rem 0 }
.tagged { display: inline-block; margin: .1rem .45rem .1rem 0; vertical-align: top; line-height: 1.25 }
.tagged small { display: block; font-size: .72rem }
.tagged small:not([class]) { color: var(--faint) }
.right { color: #2c8a52 } .wrong { color: #c2453c }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem 1.2rem; margin: .3rem 0;
  font-size: .92rem } dt { color: var(--faint) } dd { margin: 0; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums }
""".strip()


@dataclass(frozen=True, kw_only=True)
class SeedScores:
    """One metric on one split, with one value per seed."""

    metric: str
    split: str
    values: Mapping[str, float | None]
    """By seed, as fractions; None: the run was not scored."""
    failed: Sequence[str] = ()
    """Seeds of runs that failed to learn. They count in the median and the standard deviation, as is usual."""
    baseline: float | None = None
    """The score of a model that learned nothing."""
    baseline_name: str = ""
    """What such a model answers: the majority label, the mean."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Curves over one pair of axes."""

    heading: str
    x: str
    y: str
    curves: Sequence[Curve]


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """Scores against the number of training items."""

    heading: str
    curves: Sequence[ScoreCurve]
    table: Sequence[Sequence[str]]
    """The same in figures, under a header."""


@dataclass(frozen=True, kw_only=True)
class TaskError:
    """An error of the model."""

    gold: str
    predicted: str
    text: str = ""
    second: str = ""
    words: Sequence[tuple[str, str, str]] = ()
    """In tagging: each word with its gold tag and the predicted one, in place of the text."""
    probability: float | None = None
    """The probability of the prediction."""
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class MixWeights:
    """The learned weights of the layers in a scalar mix, which sum to 1 for each seed."""

    layers: Sequence[str]
    shares: Sequence[Sequence[float]]
    """One row per seed, one weight per layer."""
    gammas: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """The content of the page, in order."""

    title: str
    lead: str = ""
    """One sentence: the model and the data."""
    scores: Sequence[SeedScores] = ()
    ensemble: Sequence[Sequence[str]] = ()
    """Of several models, the figures of each and of all together, under a header."""
    shares: LearningCurve | None = None
    curves: Sequence[Curves] = ()
    confusion: Confusion | None = None
    mix: MixWeights | None = None
    errors: Sequence[TaskError] = ()
    n_errors: int = 0
    """The number of all errors."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    """Notes for reading the numbers: samples, repairs, dev instead of test."""


def task_page(shown: TaskPage) -> str:
    """The page, self-contained and without scripts."""
    sections = [
        _section("Scores", _side_by_side([_scores(each) for each in shown.scores])),
        _section("Several models", _table(shown.ensemble) if shown.ensemble else ""),
        _section("Learning curve", "" if shown.shares is None else _shares(shown.shares)),
        _section("Learning", _side_by_side([_curves(each) for each in shown.curves])),
        _section("Shares of the layers", "" if shown.mix is None else _mix(shown.mix)),
        _section("Confusions", "" if shown.confusion is None else confusion_table(shown.confusion)),
        _section(_errors_heading(shown), "".join(map(_error, shown.errors))),
        _section(
            "Settings and cost" if shown.cost else "Settings",
            _side_by_side([_pairs(each) for each in (shown.settings, shown.cost) if each]),
        ),
    ]
    body = "\n".join(
        [
            f"<h1>{escaped(shown.title)}</h1>",
            *([f"<p>{escaped(shown.lead)}</p>"] if shown.lead else []),
            *(f'<p class="note">{escaped(note)}</p>' for note in shown.notes),
            *filter(None, sections),
        ]
    )
    return page(shown.title, body, style=f"{_STYLE}\n{CHART_STYLE}\n{BARS_STYLE}\n{CONFUSION_STYLE}")


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{escaped(heading)}</h2>{content}</section>" if content else ""


def _side_by_side(parts: Sequence[str]) -> str:
    columns = [f"<div>{part}</div>" for part in parts if part]
    return f'<div class="beside">{"".join(columns)}</div>' if columns else ""


def _scores(scores: SeedScores) -> str:
    values = {seed: value for seed, value in scores.values.items() if value is not None}
    heading = f"<h3>{escaped(_name(scores.metric))} on {escaped(scores.split)}</h3>"
    if not values:
        return f'{heading}<p class="faint">No run was scored.</p>'
    middle = statistics.median(values.values())
    low, high = min(values.values()), max(values.values())
    facts = [f"of {len(values)} seed{'s' * (len(values) > 1)}"]
    if len(values) > 1:
        spread = statistics.stdev(values.values())
        facts[0] = f"median {facts[0]}"
        facts += [f"from {_percent(low)} to {_percent(high)} (best)", f"standard deviation {_percent(spread)}"]
    unscored = len(scores.values) - len(values)
    hollow = " (hollow)" if len(values) > 1 else ""
    facts += [f"{len(scores.failed)} failed to learn{hollow}"] if scores.failed else []
    facts += [f"{unscored} not scored"] if unscored else []
    if scores.baseline is not None:
        answers = f" ({scores.baseline_name})" if scores.baseline_name else ""
        facts.append(f"baseline{answers} {_percent(scores.baseline)}")
    dots = [
        Dot(f"seed {seed}: {_percent(value)}", 100 * value, hollow=seed in scores.failed)
        for seed, value in values.items()
    ]
    chart = dots_chart(dots, median=100 * middle, label=f"{scores.metric} by seed") if len(values) > 1 else ""
    note = f'<p class="faint">{escaped(scores.note)}</p>' if scores.note else ""
    return f'{heading}<p><span class="big">{_percent(middle)}</span> {escaped("; ".join(facts))}</p>{chart}{note}'


def _shares(shares: LearningCurve) -> str:
    drawn = []
    for curve in shares.curves:
        several = any(point.high > point.low for point in curve.points)
        for name, value in (("median", 1), ("lowest", 2), ("highest", 3)) if several else (("median", 1),):
            points = [(float(point.n_items), point[value]) for point in curve.points]
            drawn.append(Curve(name=f"{curve.name}, {name}", points=points, group=curve.name))
    chart = lines_chart(drawn, x="training items", y=_name(shares.heading), log=True)
    return f"{chart}{_table(shares.table)}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of figures under a header."""
    header, *lines = (
        "".join(f"<{cell}>{escaped(each)}</{cell}>" for each in row)
        for cell, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
    )
    table = f'<table class="rows"><tr>{header}</tr>{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'
    return f'<div class="wide">{table}</div>'


def _curves(curves: Curves) -> str:
    chart = lines_chart(curves.curves, x=curves.x, y=_name(curves.y))
    return chart and f"<h3>{escaped(_name(curves.heading))}</h3>{chart}"


def _mix(mix: MixWeights) -> str:
    if not mix.shares:
        return ""
    bars = []
    for layer, shares in zip(mix.layers, zip(*mix.shares, strict=True), strict=True):
        interval = (min(shares), max(shares)) if len(shares) > 1 else ()
        bars.append(Bar(layer, statistics.median(shares), *interval))
    facts = "The line marks equal shares of all layers"
    facts += "; bars are medians over seeds, strokes go from the lowest to the highest" if len(mix.shares) > 1 else ""
    if mix.gammas:
        facts += f"; γ {', '.join(f'{gamma:.2f}' for gamma in mix.gammas)}"
    return f'{bars_table(bars, baseline=1 / len(mix.layers))}<p class="faint">{escaped(facts)}.</p>'


def _errors_heading(shown: TaskPage) -> str:
    if shown.n_errors <= len(shown.errors):
        return f"Errors ({len(shown.errors):,})"
    return f"Worst errors ({len(shown.errors):,} of {shown.n_errors:,})"


def _error(error: TaskError) -> str:
    sure = "" if error.probability is None else f", at {_percent(error.probability)}%"
    place = f'<span class="faint">{escaped(error.place)}</span>'
    if error.words:
        n_wrong = sum(gold != predicted for _, gold, predicted in error.words)
        summary = f'<div class="summary">{n_wrong} of {len(error.words)} tags are wrong {place}</div>'
        words = "".join(map(_tagged_word, error.words))
        return f'<div class="error">{summary}<div class="text" dir="auto">{words}</div></div>'
    summary = (
        f'<div class="summary"><span class="wrong">{escaped(error.predicted)}</span>{sure}; right is '
        f'<span class="right">{escaped(error.gold)}</span> {place}</div>'
    )
    texts = [f'<div class="text" dir="auto">{escaped(_cut(text))}</div>' for text in (error.text, error.second) if text]
    return f'<div class="error">{summary}{"".join(texts)}</div>'


def _tagged_word(word: tuple[str, str, str]) -> str:
    spelled, gold, predicted = map(escaped, word)
    if gold == predicted:
        return f'<span class="tagged">{spelled}<small>{gold}</small></span>'
    marks = f'<small class="wrong">{predicted}</small><small class="right">{gold}</small>'
    return f'<span class="tagged">{spelled}{marks}</span>'


def _pairs(settings: Mapping[str, Any]) -> str:
    rows = [
        f"<dt>{escaped(str(name))}</dt><dd>{escaped(_format_value(value))}</dd>" for name, value in settings.items()
    ]
    return f"<dl>{''.join(rows)}</dl>"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS].rstrip()} …"


def _name(metric: str) -> str:
    return metric.replace("_", " ")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")


def _format_value(value: Any) -> str:
    """A setting as text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_value(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_format_value, value))
    return json.dumps(value, ensure_ascii=False, default=str)
