"""A report as the record that `plots.task_page` draws."""

from __future__ import annotations

from typing import Any

from polyseme.plots.charts import Curve
from polyseme.plots.confusion import Confusion
from polyseme.plots.task_page import Curves, MixWeights, SeedScores, TaskError, TaskPage, task_page
from polyseme.transfer.report import FinetuneReport


def page_of(report: FinetuneReport) -> str:
    """The report as one page, whole in itself."""
    return task_page(page_record(report))


def page_record(report: FinetuneReport) -> TaskPage:
    """What the page of a report shows."""
    many = len(report.seeds)
    sampled = f" Samples of the published splits: {', '.join(report.sampled)}." if report.sampled else ""
    lead = f"{report.model}, {report.how}, {many} seed{'' if many == 1 else 's'}.{sampled}"
    return TaskPage(
        title=f"{report.task}: {report.kind}",
        lead=lead,
        scores=_scores(report),
        curves=_curves(report),
        confusion=_confusion(report),
        mix=_mix(report),
        errors=[_error(report.kind, each) for each in report.errors.worst],
        n_errors=report.errors.n,
        settings={name: value for name, value in report.settings.items() if value is not None},
        cost=dict(zip(("work", "computing", "energy"), report.ledger.lines(), strict=False)),
        notes=report.notes,
    )


def _scores(report: FinetuneReport) -> list[SeedScores]:
    found = []
    for split in report.splits:
        chosen = "dev chose the step and the seed that is kept" if split == "dev" else "scored once"
        for metric in report.split(split):
            values = {
                str(each.seed): (each.dev if split == "dev" else each.others[split])[metric] for each in report.seeds
            }
            found.append(
                SeedScores(
                    metric=metric,
                    split=f"{split}, a sample" if split in report.sampled else split,
                    values=values,
                    failed=[str(each.seed) for each in report.seeds if not each.learnt],
                    chance=report.baseline.get(metric) if split == "dev" else None,
                    note=chosen,
                )
            )
    return found


def _curves(report: FinetuneReport) -> list[Curves]:
    first = report.metrics[0]

    def curve(seed: Any, value: Any) -> Curve:
        points = [(float(each["step"]), float(value(each))) for each in seed.curve]
        return Curve(name=f"seed {seed.seed}", points=points)

    if not any(each.curve for each in report.seeds):
        return []
    losses = [curve(each, lambda point: point["loss"]) for each in report.seeds]
    scores = [curve(each, lambda point: 100 * point["dev"][first]) for each in report.seeds]
    return [
        Curves(heading="Loss on train", x="step", y="loss", curves=losses),
        Curves(heading=f"{first} on dev", x="step", y=first, curves=scores),
    ]


def _confusion(report: FinetuneReport) -> Confusion | None:
    if report.confusion is None:
        return None
    return Confusion(labels=tuple(report.confusion["labels"]), counts=report.confusion["counts"])


def _mix(report: FinetuneReport) -> MixWeights | None:
    mixes = [each.mix for each in report.seeds if each.mix is not None]
    if not mixes:
        return None
    return MixWeights(
        layers=list(mixes[0]["shares"]),
        shares=[list(each["shares"].values()) for each in mixes],
        gammas=[each["gamma"] for each in mixes],
    )


def _error(kind: str, error: Any) -> TaskError:
    gold, predicted = _spelled(error["gold"]), _spelled(error["predicted"])
    if kind == "tag":
        words = list(zip(error["words"], error["gold"], error["predicted"], strict=True))
        return TaskError(gold=gold, predicted=predicted, words=words, place=error["place"])
    second = error.get("second") or " | ".join(error.get("choices", ()))
    return TaskError(
        gold=gold,
        predicted=predicted,
        text=error["text"],
        second=second,
        probability=error["probability"],
        place=error["place"],
    )


def _spelled(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.3f}" if isinstance(value, float) else str(value) or "none"
