"""The work of `prune`: how much each head matters, models without ever more of them, and the one that was requested."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from polyseme.bundle import Bundle
from polyseme.pruning.head_importance import (
    gradient_importance,
    least_important,
    most_removable,
    normalize_by_layer,
    number_of_heads,
    shares_of,
)
from polyseme.pruning.head_removal import Attentions, HeadPlace, attentions_of, heads_of, without_heads
from polyseme.pruning.learned_gates import gate_importance
from polyseme.pruning.pruning_report import HeadFigure, PrunedPoint, PruningReport
from polyseme.pruning.pruning_subject import Subject, finite
from polyseme.types import Progress

Method = Literal["gradient", "gates"]


@dataclass(frozen=True, kw_only=True)
class PruningPlan:
    """What is requested."""

    heads: str | float | int
    method: Method = "gradient"
    at_least: int = 1
    """Heads that every layer keeps."""
    reestimate: bool = False
    """Whether importance is computed again at each point of the curve."""
    points: int = 9
    """Of the curve, besides the whole model and the one that was requested."""
    each_head: bool = False
    """Whether heads are also judged one by one."""
    gate_steps: int = 200
    seed: int = 0


@dataclass
class PruneResult:
    """The model without heads, and the report."""

    bundle: Bundle
    report: PruningReport


def prune_heads(
    bundle: Bundle, subject: Subject, plan: PruningPlan, *, name: str, progress: Progress | None = None
) -> PruneResult:
    """Remove the heads that matter least; the given model stays as it is."""
    started = time.perf_counter()
    attentions = attentions_of(bundle, subject.parts)
    total = sum(each.n_heads for each in attentions.values())
    n_remove = number_of_heads(plan.heads, attentions, at_least=plan.at_least)
    most = most_removable(attentions, plan.at_least)
    numbers = sorted({n_remove, *shares_of(plan.points, total, most)})
    if plan.method == "gates":
        importance = gate_importance(
            subject, bundle, n_remove, steps=plan.gate_steps, seed=plan.seed, progress=progress
        )
    else:
        importance = normalize_by_layer(gradient_importance(subject, bundle, progress))
    n_steps = len(numbers) + 1 + (2 * total if plan.each_head else 0)
    steps = _Steps(progress, n_steps)
    points = [_point(subject, bundle, 0, total)]
    steps.done()
    order: list[HeadPlace] = []
    requested, current = bundle, bundle
    for n in numbers:
        order += _choose_heads(subject, current, importance, n - len(order), plan)
        current = without_heads(bundle, order)
        points.append(_point(subject, current, n, total))
        if n == n_remove:
            requested, removed = current, list(order)
        steps.done()
    single = _measure_single_heads(subject, bundle, attentions, steps) if plan.each_head else ()
    report = PruningReport(
        model=name,
        measured=subject.description,
        metric=subject.metric,
        higher_is_better=subject.higher_is_better,
        method=plan.method,
        importance=importance,
        removed=removed,
        left={at: tuple(heads_of(each)) for at, each in attentions_of(requested).items()},
        points=points,
        single=single,
        cost=subject.tally.cost(time.perf_counter() - started, bundle.device),
    )
    return PruneResult(requested, report)


def _choose_heads(
    subject: Subject, current: Bundle, importance: Mapping[HeadPlace, float], n: int, plan: PruningPlan
) -> list[HeadPlace]:
    """The heads of a model that go next; by what is known of the whole one, or by what holds of this one."""
    attentions = attentions_of(current, subject.parts)
    present = {HeadPlace(at, head) for at, each in attentions.items() for head in heads_of(each)}
    judged = {place: value for place, value in importance.items() if place in present}
    if plan.reestimate and plan.method == "gradient" and len(judged) < len(importance):
        judged = normalize_by_layer(gradient_importance(subject, current))
    return least_important(judged, n, attentions, at_least=plan.at_least)


def _point(subject: Subject, bundle: Bundle, n: int, total: int) -> PrunedPoint:
    return PrunedPoint(
        removed=n, share=n / total, figures=finite(subject.figures(bundle)), n_parameters=bundle.n_parameters()
    )


def _measure_single_heads(
    subject: Subject, bundle: Bundle, attentions: Attentions, steps: _Steps
) -> Sequence[HeadFigure]:
    """Without each head, and with each as the only one of its layer."""
    figures = []
    for at, attention in attentions.items():
        for head in heads_of(attention):
            others = [HeadPlace(at, other) for other in heads_of(attention) if other != head]
            without = finite(subject.figures(without_heads(bundle, [HeadPlace(at, head)])))
            steps.done()
            alone = finite(subject.figures(without_heads(bundle, others)))
            steps.done()
            figures.append(HeadFigure(place=HeadPlace(at, head), without=without, alone=alone))
    return figures


class _Steps:
    """Evaluations that are done, for whoever watches."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.n = progress, total, 0

    def done(self) -> None:
        self.n += 1
        if self.progress is not None:
            self.progress(self.n, self.total)
