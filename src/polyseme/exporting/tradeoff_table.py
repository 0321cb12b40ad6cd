"""What the forms of a task model cost: score, seconds and bytes, over the same items.

Seconds are medians over rounds in which the forms take turns, so that what else the machine does weighs on all alike.
Sampling errors are standard deviations over samples of the items with replacement, the same for every form: the error
of a change against the first form is that of the difference on the same items.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyseme.exporting.model_forms import Form
from polyseme.metrics.evaluation_report import Figures, Line
from polyseme.metrics.task_metrics import METRICS, measure
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.types import Progress

SAMPLES = 200
"""Samples of the items that sampling errors are taken over."""


class FormMeasurement(NamedTuple):
    """A form, what it answered, and how long each round took."""

    form: Form
    answers: list[Any]
    seconds: list[float]


def take_turns(
    forms: Sequence[Form], items: Sequence[Item], rounds: int, progress: Progress | None = None
) -> list[FormMeasurement]:
    """Let every form predict all items: once for its answers, to warm up, and then in `rounds` that are timed."""
    measured = [FormMeasurement(form, [], []) for form in forms]
    n_runs = len(forms) * (1 + rounds)
    for run in range(n_runs):
        each = measured[run % len(forms)]

        def of_all(done: int, total: int | None, run: int = run) -> None:
            if progress is not None:
                progress(run * len(items) + done, n_runs * len(items))

        started = time.perf_counter()
        predictions = each.form.predictor.in_chunks(items, of_all)
        if run < len(forms):
            each.answers.extend(prediction.label for prediction in predictions)
        else:
            each.seconds.append(time.perf_counter() - started)
    return measured


def tradeoff_figures(measured: Sequence[FormMeasurement], items: Sequence[Item], metric: str) -> Figures:
    """One line per form, the first of which the others are compared with."""
    model = measured[0].form.predictor.model
    head, kind = model.head.config, KINDS[model.config.kind]
    golds = [kind.comparable_gold(head, item) for item in items]

    def score(answers: Sequence[Any], places: Sequence[int] | None = None) -> float:
        chosen = range(len(items)) if places is None else places
        gold, answered = [golds[place] for place in chosen], [answers[place] for place in chosen]
        return measure([metric], gold, answered, labels=head.labels)[metric]

    rng = np.random.default_rng(0)
    samples = [rng.integers(len(items), size=len(items)).tolist() for _ in range(SAMPLES)]
    sampled = np.array([[score(each.answers, places) for places in samples] for each in measured])
    scores = [score(each.answers) for each in measured]
    seconds = [statistics.median(each.seconds) for each in measured]
    lines = [
        Line(
            "form",
            each.form.name,
            len(items),
            {
                metric: scores[number],
                "error": _spread(sampled[number]),
                "change": scores[number] - scores[0] if number else None,
                "change error": _spread(sampled[number] - sampled[0]) if number else None,
                "seconds": seconds[number],
                "speed": seconds[0] / seconds[number],
                "megabytes": each.form.n_bytes / 1e6,
            },
        )
        for number, each in enumerate(measured)
    ]
    first = measured[0].form.name
    columns = {
        metric: METRICS[metric].description,
        "error": "sampling error of the score",
        "change": f"score less that of {first}",
        "change error": "sampling error of the change, on the same items",
        "seconds": "median time to predict all items, tokenizing included",
        "speed": f"the time of {first} by the form's own",
        "megabytes": "all files that predictions need",
    }
    return Figures(columns=columns, lines=lines, items=_records(measured, items, kind.shown_gold))


def _spread(values: Any) -> float | None:
    """The standard deviation; none where some sample has no score."""
    return float(values.std()) if np.isfinite(values).all() else None


def _records(
    measured: Sequence[FormMeasurement], items: Sequence[Item], shown: Callable[[Item], Any]
) -> list[dict[str, Any]]:
    return [
        {"form": each.form.name, "id": item.id, "text": item.text, "gold": shown(item), "predicted": answer}
        for each in measured
        for item, answer in zip(items, each.answers, strict=True)
    ]
