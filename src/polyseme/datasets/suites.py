"""Suites: tasks that are reported together, in one table, beside published figures.

A suite is a list of tasks, one or several strategies of fitting a model, the published models that are shown
beside, and the tasks that its mean is over. `SUITES` is the one list; a new suite is one more entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyseme.datasets.glue import GLUE


@dataclass(frozen=True, kw_only=True)
class SuiteTask:
    """A task of a suite."""

    name: str
    """A benchmark (`named_benchmarks.BENCHMARKS`); in a suite that is scored, a group of the evaluation's report."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options of `finetune` for it, unless the user sets them."""
    train_items: int | None = None
    """Most training items, unless the user says otherwise; None: all."""
    published_as: str = ""
    """The task of the published figures beside it, where that is another."""
    published_metric: str = ""
    """Their metric, where that is another."""
    differs: str = ""
    """How its data differs from that of the published figures; empty: it is the same."""

    def published(self, metric: str) -> tuple[str, str]:
        """The task and the metric of the published figures beside a metric of this one."""
        return self.published_as or self.name, self.published_metric or metric


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How a model is fitted to the tasks."""

    name: str = ""
    """Empty where there is only one: frozen or tuned, as the user says."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options of `finetune` that it consists of."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tasks that are reported together."""

    name: str
    noun: str
    """What it is called in a sentence: "GLUE"."""
    tasks: tuple[SuiteTask, ...]
    strategies: tuple[Strategy, ...] = (Strategy(),)
    """Of several, the others are compared with the first."""
    mean_over: tuple[str, ...]
    """The tasks that the mean is over, as far as they were run."""
    shown_models: tuple[str, ...] = ()
    """Models whose published figures are shown."""
    prefers_test: bool = False
    """Whether a task's figure is that of its test split, where it has one; otherwise it is that of dev."""
    evaluation: str = ""
    """The evaluation (`verbs.evaluate.EVALUATIONS`) by which a language model is scored, and nothing is fitted."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tasks."""
        return tuple(task.name for task in self.tasks)


SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            name="glue",
            noun="GLUE",
            tasks=tuple(SuiteTask(name=benchmark.name) for benchmark in GLUE),
            mean_over=("cola", "sst2", "mrpc", "stsb", "rte"),
            shown_models=("ELMo", "GPT", "BERT-base"),
        ),
        Suite(
            name="wic",
            noun="WiC",
            tasks=(SuiteTask(name="wic"),),
            strategies=(
                Strategy(name="cosine", settings={"frozen": True, "head": "cosine", "learning_rate": 0.02}),
                Strategy(name="frozen", settings={"frozen": True, "head": "mlp"}),
                Strategy(name="tuned", settings={"frozen": False, "head": "linear"}),
            ),
            mean_over=(),
            shown_models=("ELMo", "context2vec", "BERT-large", "BERT-large, tuned"),
            prefers_test=True,
        ),
        Suite(
            name="babylm",
            noun="BabyLM",
            tasks=(SuiteTask(name="blimp"), SuiteTask(name="supplement")),
            mean_over=("blimp", "supplement"),
            evaluation="babylm",
        ),
    )
}
"""All of them, by name. GLUE's mean is over the tasks whose training sets are small enough to be tuned on whole."""
