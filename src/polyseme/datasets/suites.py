"""Suites: tasks that are reported together, in one table, beside published figures.

A suite is a list of tasks, one or several strategies of fitting a model, the published models that are shown
beside, and the tasks that its mean is over. `SUITES` is the one list; a new suite is one more entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    dev_items: int | None = None
    """Most dev items, likewise."""
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
    description: str = ""
    """What the strategies are, for those who read the table."""
    evaluation: str = ""
    """The evaluation (`verbs.evaluate.EVALUATIONS`) by which a language model is scored, and nothing is fitted."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tasks."""
        return tuple(task.name for task in self.tasks)


def _of_elmo(
    name: str, head: str, epochs: int, batch_size: int, train: int | None = None, differs: str = ""
) -> SuiteTask:
    """A task of ELMo's, in few and large steps, so that all six take minutes on a GPU."""
    settings = {"head": head, "inputs": "char-cnn", "epochs": epochs, "batch_size": batch_size, "learning_rate": 2e-3}
    return SuiteTask(name=name, settings=settings, train_items=train, dev_items=train and 2000, differs=differs)


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
            name="elmo-six",
            noun="ELMo's six tasks",
            tasks=(
                _of_elmo(
                    "squad", "bilstm-attention", 8, 64, 3000, "part of 44 training articles of 442, and part of dev"
                ),
                _of_elmo("snli", "bilstm-attention", 6, 128, 8000, "8,000 of 549,367 training pairs, and part of dev"),
                _of_elmo("srl", "bilstm", 8, 128, 8000, "PropBank on the English Web Treebank; published on OntoNotes"),
                replace(
                    _of_elmo("gap", "bilstm", 10, 64),
                    published_as="coref",
                    published_metric="average",
                    differs="names and pronouns in pairs; published is the average F1 of coreference on OntoNotes",
                ),
                replace(
                    _of_elmo("wikigold", "bilstm-crf", 15, 32),
                    published_as="conll",
                    differs="entities of Wikipedia; published on CoNLL-2003",
                ),
                _of_elmo("sst5", "bcn", 8, 128),
            ),
            strategies=(
                Strategy(name="baseline", settings={"model": "none"}),
                Strategy(name="+ vectors", settings={"frozen": True}),
            ),
            description=(
                "Baseline is the head over learned word vectors and a character CNN, or over the inputs that are set, "
                "without a model; + vectors has the model's vectors beside these, frozen, its layers mixed by learned "
                "weights."
            ),
            mean_over=("squad", "snli", "srl", "gap", "wikigold", "sst5"),
            shown_models=("baseline of 2018", "ELMo"),
            prefers_test=True,
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
            description="Cosine is a threshold on the cosine of the two vectors, frozen has a hidden layer over them.",
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
