"""The result of a fine-tuning, over all its seeds: figures, curves, confusions, errors, and what it cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from polyseme.plots.charts import Curve
from polyseme.plots.finetune_page import Curves, LearningCurve, MixWeights, SeedScores, TaskError, TaskPage, task_page
from polyseme.plots.html_page import framed_page
from polyseme.plots.share_curve import share_curve
from polyseme.tasks.items import Item
from polyseme.tasks.kind import Kind
from polyseme.tasks.kinds import KINDS
from polyseme.tasks.predictions import Judgment
from polyseme.training.energy_ledger import Ledger
from polyseme.transfer.seed_results import SeedFigures
from polyseme.transfer.share_points import SharePoint, align_columns, score_curves, share_table
from polyseme.types import Confusion

TOGETHER = "together"
"""In an ensemble, the mean of the models' probabilities."""
MOST_ERRORS = 20
SHOWN = 400
"""Characters of a text that a report shows."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One figure over all seeds."""

    median: float
    lowest: float
    highest: float
    spread: float
    """The standard deviation; 0 of one seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Over some values.

        >>> Summary.of([0.5, 0.7, 0.6])
        Summary(median=0.6, lowest=0.5, highest=0.7, spread=0.09999999999999998)
        """
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(median=statistics.median(values), lowest=min(values), highest=max(values), spread=spread)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """What the model got wrong."""

    n: int = 0
    """How many there are in all."""
    worst: Sequence[Mapping[str, Any]] = ()
    """The worst of them, the worst first."""


@dataclass(frozen=True, kw_only=True, repr=False)
class FinetuneReport:
    """A fine-tuning in figures. All are fractions."""

    task: str
    kind: str
    model: str
    mode: str
    """frozen, tuned or distilled"""
    metrics: tuple[str, ...]
    """The first is what dev chose by."""
    seeds: tuple[SeedFigures, ...]
    best_seed: int
    """Whose weights are kept."""
    baseline: Mapping[str, float]
    """What knowing no text scores on dev (`Kind.baseline`)."""
    sizes: Mapping[str, int]
    """Items of each split."""
    sampled: tuple[str, ...] = ()
    """Splits that are samples of the published ones."""
    labels: tuple[str, ...] = ()
    confusion: Mapping[str, Any] | None = None
    """Of the kept weights on dev: labels, and counts with one row per gold label."""
    errors: Errors = field(default_factory=Errors)
    """Those of the kept weights on dev."""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    ledger: Ledger
    versions: Mapping[str, str] = field(default_factory=dict)
    baseline_name: str = ""
    """What the baseline answers: the majority label, the mean (`Kind.baseline_name`)."""
    curve: tuple[SharePoint, ...] = ()
    """Of a learning curve, every share of the training items; the other figures are those of the largest."""
    ensemble: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """Of several models, the figures of each one's best seed and of all together, by split; confusions and errors are
    those of all together, and the other figures those of the best model on dev."""

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """For notebooks: the page of the report, with curves, confusions and errors."""
        return framed_page(page_of(self))

    @property
    def n_failed(self) -> int:
        """Seeds that did not learn: no better than the baseline, or a loss that is NaN or infinite."""
        return sum(not each.learned for each in self.seeds)

    @property
    def dev(self) -> dict[str, Summary]:
        """Each metric on dev over all seeds."""
        return self.split("dev")

    @property
    def splits(self) -> tuple[str, ...]:
        """Those with figures, dev first."""
        return ("dev", *self.seeds[0].others)

    def split(self, name: str) -> dict[str, Summary]:
        """Each metric on a split over all seeds."""
        each = [one.dev if name == "dev" else one.others[name] for one in self.seeds]
        return {metric: Summary.of([figures[metric] for figures in each]) for metric in each[0]}

    @property
    def best(self) -> SeedFigures:
        """The seed whose weights are kept."""
        return next(each for each in self.seeds if each.seed == self.best_seed)

    def to_json(self) -> dict[str, Any]:
        """Everything, and what follows from it."""
        return {
            **asdict(self),
            "ledger": self.ledger.to_json(),
            "summary": {name: {key: asdict(each) for key, each in self.split(name).items()} for name in self.splits},
            "n_failed": self.n_failed,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FinetuneReport:
        """The report of `to_json`."""
        fields = {name: each for name, each in content.items() if name not in ("summary", "n_failed")}
        fields["seeds"] = tuple(SeedFigures(**each) for each in fields["seeds"])
        fields["ledger"] = Ledger.from_json(fields["ledger"])
        fields["errors"] = Errors(**fields["errors"])
        fields["curve"] = tuple(SharePoint.from_json(each) for each in fields.get("curve", ()))
        for name in ("metrics", "sampled", "labels", "notes"):
            fields[name] = tuple(fields[name])
        return cls(**fields)

    def lines(self) -> list[str]:
        """For the terminal: figures of dev and of test each on lines of their own, and called so."""
        many = len(self.seeds)
        best = "the best model on dev, " if self.ensemble else ""
        lines = [f"{self.task}, {self.mode}, {many} seed{'' if many == 1 else 's'}: {best}{self.model}"]
        for split in self.splits:
            chosen = " (chose the weights)" if split == "dev" else " (scored once)"
            mark = ", a sample" if split in self.sampled else ""
            figures = [f"{name} {_figure(each, many)}" for name, each in self.split(split).items()]
            lines.append(f"  {split}{mark}{chosen}: {'; '.join(figures)}")
        figures = [f"{name} {100 * value:.1f}" for name, value in self.baseline.items()]
        answers = f" ({self.baseline_name})" if self.baseline_name else ""
        lines.append(f"  baseline on dev{answers}: {'; '.join(figures)}")
        if self.n_failed:
            lines.append(f"  {self.n_failed} of {many} runs failed to learn")
        if self.curve:
            over = f", medians over {many} seeds" if many > 1 else ""
            lines.append(f"  learning curve, {self.metrics[0].replace('_', ' ')}{over}:")
            lines += [f"    {line}" for line in align_columns(share_table(self.curve, self.splits, self.metrics[0]))]
        if self.ensemble:
            lines.append("  models alone, and together by the mean of their probabilities:")
            lines += [f"    {line}" for line in align_columns(ensemble_table(self))]
        lines += [f"  note: {note}" for note in self.notes]
        return lines + [f"  {line}" for line in self.ledger.lines()]


def ensemble_table(report: FinetuneReport) -> list[list[str]]:
    """One row per model and one for all together, under a header; figures of dev first."""
    columns = [(split, metric) for split in report.splits for metric in report.metrics]
    rows = [["model", *(f"{metric.replace('_', ' ')}, {split}" for split, metric in columns)]]
    for name, figures in report.ensemble.items():
        rows.append([name, *(f"{100 * figures[split][metric]:.1f}" for split, metric in columns)])
    return rows


def _figure(summary: Summary, many: int) -> str:
    if many == 1:
        return f"{100 * summary.median:.1f}"
    return (
        f"{100 * summary.median:.1f} median ({100 * summary.lowest:.1f} to {100 * summary.highest:.1f}, "
        f"spread {100 * summary.spread:.1f})"
    )


def worst_errors(kind: str, items: Sequence[Item], judgments: Sequence[Judgment], labels: Sequence[str]) -> Errors:
    """What the model was most wrong about, as its kind of task orders errors (`Kind.badness`)."""
    judged = KINDS[kind]
    scored = [
        (judged.badness(item, each, labels), item, each)
        for item, each in zip(items, judgments, strict=True)
        if item.gold is not None
    ]
    wrong = sorted((each for each in scored if each[0] > 0), key=lambda each: -each[0])
    worst = [_error(judged, *each, labels) for each in wrong[:MOST_ERRORS]]
    return Errors(n=len(wrong), worst=worst)


def _error(kind: Kind, badness: float, item: Item, judgment: Judgment, labels: Sequence[str]) -> dict[str, Any]:
    gold, predicted = kind.shown_gold(item), judgment.answer
    error: dict[str, Any] = {
        "text": item.text[:SHOWN],
        "gold": list(gold) if isinstance(gold, tuple) else gold,
        "predicted": list(predicted) if isinstance(predicted, tuple) else predicted,
        "badness": badness,
        "probability": kind.confidence(judgment, labels),
        "place": item.place,
        "id": item.id,
    }
    if item.second is not None:
        error["second"] = item.second[:SHOWN]
    if item.choices:
        error["choices"] = [choice[:SHOWN] for choice in item.choices]
    if kind.has_spans:
        error["spans"] = list(kind.span_strings(item))
    if kind.labels_words:
        error["words"] = list(item.words)
    return error


# --- the page ---------------------------------------------------------------------------------------------------------


def page_of(report: FinetuneReport) -> str:
    """The report as one page, whole in itself."""
    return task_page(page_record(report))


def page_record(report: FinetuneReport) -> TaskPage:
    """What the page of a report shows."""
    many = len(report.seeds)
    sampled = f" Samples of the published splits: {', '.join(report.sampled)}." if report.sampled else ""
    best = f"The best on dev of {len(report.ensemble) - 1} models that answer together: " if report.ensemble else ""
    lead = f"{best}{report.model}, {report.mode}, {many} seed{'' if many == 1 else 's'}.{sampled}"
    return TaskPage(
        title=f"{report.task}: {report.kind}",
        lead=lead,
        scores=_scores(report),
        ensemble=ensemble_table(report) if report.ensemble else (),
        shares=_shares(report),
        curves=_curves(report),
        confusion=None if report.confusion is None else Confusion(**report.confusion),
        mix=_mix(report),
        errors=[_page_error(each) for each in report.errors.worst],
        n_errors=report.errors.n,
        settings={name: value for name, value in report.settings.items() if value is not None},
        cost=dict(zip(("work", "computing", "energy"), report.ledger.lines(), strict=False)),
        notes=report.notes,
    )


def curve_split(report: FinetuneReport) -> str:
    """The split whose scores the picture of a learning curve shows: one that chose nothing, where there is one."""
    return "test" if "test" in report.splits else report.splits[0]


def curve_picture(report: FinetuneReport) -> str:
    """The learning curve as an SVG file."""
    split, metric = curve_split(report), report.metrics[0]
    return share_curve(
        score_curves(report.curve, split, metric),
        title=f"{report.task}: {report.model}",
        y=f"{metric.replace('_', ' ')} on {split}",
        baseline=100 * report.baseline[metric] if split == "dev" else None,
    )


def _shares(report: FinetuneReport) -> LearningCurve | None:
    if not report.curve:
        return None
    split, metric = curve_split(report), report.metrics[0]
    return LearningCurve(
        heading=f"{metric} on {split}",
        curves=score_curves(report.curve, split, metric),
        table=share_table(report.curve, report.splits, metric),
    )


def _scores(report: FinetuneReport) -> list[SeedScores]:
    scores = []
    for split in report.splits:
        chosen = "dev chose the step and the seed that is kept" if split == "dev" else "scored once"
        for metric in report.split(split):
            values = {
                str(each.seed): (each.dev if split == "dev" else each.others[split])[metric] for each in report.seeds
            }
            scores.append(
                SeedScores(
                    metric=metric,
                    split=f"{split}, a sample" if split in report.sampled else split,
                    values=values,
                    failed=[str(each.seed) for each in report.seeds if not each.learned],
                    baseline=report.baseline.get(metric) if split == "dev" else None,
                    baseline_name=report.baseline_name,
                    note=chosen,
                )
            )
    return scores


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


def _mix(report: FinetuneReport) -> MixWeights | None:
    mixes = [each.mix for each in report.seeds if each.mix is not None]
    if not mixes:
        return None
    return MixWeights(
        layers=list(mixes[0]["shares"]),
        shares=[list(each["shares"].values()) for each in mixes],
        gammas=[each["gamma"] for each in mixes],
    )


def _page_error(error: Any) -> TaskError:
    gold, predicted = _format_value(error["gold"]), _format_value(error["predicted"])
    if error.get("words"):
        words = list(zip(error["words"], error["gold"], error["predicted"], strict=True))
        return TaskError(gold=gold, predicted=predicted, words=words, place=error["place"])
    second = error.get("second") or " | ".join(error.get("choices", ()))
    if error.get("spans"):
        second = f"{second} ({' – '.join(error['spans'])})".lstrip()
    return TaskError(
        gold=gold,
        predicted=predicted,
        text=error["text"],
        second=second,
        probability=error["probability"],
        place=error["place"],
    )


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.3f}" if isinstance(value, float) else str(value) or "none"
