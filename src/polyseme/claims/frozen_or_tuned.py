"""Whether to freeze or to tune depends on the pair of model and task."""

from __future__ import annotations

from itertools import product

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab
from polyseme.claims.rule import Condition, Rule, Term
from polyseme.sweeps.sweep_report import RunResult

MODELS = {"MiniLM": "minilm", "the encoder in the box": "english-encoder"}
TASKS = {"stsb": "stsb spearman on dev", "cola": "cola matthews on dev"}
"""Sentence similarity, for which MiniLM was trained, and acceptability, for which it was not."""


def run(lab: Lab) -> list[RunResult]:
    """Every pair, frozen and tuned."""
    return [
        lab.finetune(f"{name}, {task}, {'frozen' if frozen else 'tuned'}", seed, task, model=model, frozen=frozen)
        for (name, model), task, frozen in product(MODELS.items(), TASKS, (True, False))
        for seed in lab.seeds
    ]


def _gain(model: str, task: str, sign: int) -> tuple[Term, Term]:
    """What tuning adds over freezing."""
    return Term(f"{model}, {task}, tuned", TASKS[task], sign), Term(f"{model}, {task}, frozen", TASKS[task], -sign)


CLAIM = Claim(
    name="frozen-or-tuned",
    text="What tuning adds over a frozen model depends on the model and the task.",
    source="Peters, Ruder and Smith 2019, Table 2",
    runs="MiniLM and the packaged encoder on STS-B and CoLA, frozen and tuned: between tasks, then between models.",
    rule=Rule(
        conditions=(
            Condition(terms=(*_gain("MiniLM", "cola", 1), *_gain("MiniLM", "stsb", -1))),
            Condition(terms=(*_gain("the encoder in the box", "stsb", 1), *_gain("MiniLM", "stsb", -1))),
        )
    ),
    run=run,
    data=("tasks/stsb", "tasks/cola"),
    minutes=8,
    scales=False,
    observed="docs/transfer.md has a table of MiniLM and three models of ours, frozen and tuned.",
)
