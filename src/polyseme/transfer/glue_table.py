"""GLUE as one table: our figures on dev beside the published ones on test, and never without saying so.

GLUE's test labels are not public. A task of two figures counts in the mean with its first: F1 of MRPC and QQP,
Spearman of STS-B, as BERT's paper gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from polyseme.datasets.named_benchmarks import BENCHMARKS, SUITES
from polyseme.published import beside, mean_over
from polyseme.transfer.finetune_report import FinetuneReport, Summary

TASKS = SUITES["glue"]
"""GLUE's nine, in its order."""
SHORT = ("cola", "sst2", "mrpc", "stsb", "rte")
"""The tasks whose training sets are whole here, over which means are compared."""
SHOWN_MODELS = ("ELMo", "GPT", "BERT-base")
UNCONFIRMED = "?"
"""Behind a published figure that could not be found again in its paper."""


@dataclass(frozen=True, kw_only=True)
class GlueReport:
    """The reports of all tasks, by name."""

    model: str
    mode: str
    reports: Mapping[str, FinetuneReport]
    notes: tuple[str, ...] = field(default=())

    def figure(self, task: str) -> float:
        """The median on dev of a task's first metric."""
        return self.reports[task].dev[counted(task)].median

    def mean(self, tasks: Sequence[str] = SHORT) -> float | None:
        """The mean over some tasks; None where one is missing."""
        if not all(task in self.reports for task in tasks):
            return None
        return fmean(self.figure(task) for task in tasks)

    def seed_means(self, tasks: Sequence[str] = SHORT) -> Summary | None:
        """The mean over some tasks as each seed has it, over the seeds that all of them have; None where there is none.

        Seeds of different tasks share nothing but their number; what varies from seed to seed does so in the mean.
        """
        if not all(task in self.reports for task in tasks):
            return None
        by_seed = [{each.seed: each.dev[counted(task)] for each in self.reports[task].seeds} for task in tasks]
        shared = [seed for seed in by_seed[0] if all(seed in figures for figures in by_seed)]
        return Summary.of([fmean(figures[seed] for figures in by_seed) for seed in shared]) if shared else None

    @property
    def columns(self) -> tuple[str, ...]:
        """What the table's columns are called: ours is of dev, the others are of test."""
        ours = (f"{self.mode} (dev, median)", "lowest", "highest", "spread", "failed")
        return ("task", "figure", *ours, *(f"{each} (test)" for each in SHOWN_MODELS))

    def rows(self) -> list[tuple[str, ...]]:
        """The table, in percent; `*` marks a task trained on, or scored on, a sample."""
        table = []
        for task, report in self.reports.items():
            mark = "*" if {"train", "dev"} & set(report.sampled) else ""
            for metric, summary in report.dev.items():
                ours = [f"{100 * summary.median:.1f}", *_range(summary)]
                theirs = [_published(model, task, metric) for model in SHOWN_MODELS]
                failed = f"{report.n_failed} of {len(report.seeds)}"
                table.append((f"{task}{mark}", metric, *ours, failed, *theirs))
        mean = self.mean()
        if mean is not None:
            means = [_mean(model) for model in SHOWN_MODELS]
            ranged = self.seed_means()
            ours = [f"{100 * mean:.1f}", *(("", "", "") if ranged is None else _range(ranged))]
            table.append(("mean of " + ", ".join(SHORT), "", *ours, "", *means))
        return table

    def lines(self) -> list[str]:
        """What must be known to read the table."""
        lines = [
            "Ours are medians over seeds on dev, which also chose the weights; the published ones are on test: not the "
            "same thing. Spread is the standard deviation over seeds."
        ]
        if self.seed_means() is not None:
            lines.append("The mean is of the medians; its range and spread are over the mean as each seed has it.")
        if any({"train", "dev"} & set(report.sampled) for report in self.reports.values()):
            lines.append("* trained or scored on a sample of the published split.")
        if any(UNCONFIRMED in cell for row in self.rows() for cell in row):
            lines.append("? published, but unconfirmed: not found again in the paper.")
        return [*lines, *self.notes]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "mode": self.mode,
            "mean": self.mean(),
            "mean_over": list(SHORT),
            "seed_means": None if (means := self.seed_means()) is None else asdict(means),
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows()],
            "notes": self.lines(),
            "reports": {name: report.to_json() for name, report in self.reports.items()},
        }

    def markdown(self) -> str:
        """The table for a page."""
        lines = [list(self.columns), ["---"] * len(self.columns), *map(list, self.rows())]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n" + "\n".join(self.lines()) + "\n"


def counted(task: str) -> str:
    """The metric by which a task counts in the mean."""
    return BENCHMARKS[task].metrics[0]


def _range(summary: Summary) -> list[str]:
    return [f"{100 * value:.1f}" for value in (summary.lowest, summary.highest, summary.spread)]


def _published(model: str, task: str, metric: str) -> str:
    figure = next((row for row in beside(task, metric, split="test") if row.model == model), None)
    return "" if figure is None else f"{figure.value:.1f}{UNCONFIRMED if figure.unconfirmed else ''}"


def _mean(model: str) -> str:
    """The mean of what is published of a model."""
    mean = mean_over(model, [(task, counted(task)) for task in SHORT])
    return "" if mean is None else f"{mean:.1f}"
