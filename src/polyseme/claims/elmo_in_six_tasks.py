"""ELMo's vectors beside a task's own inputs improve six tasks, with the same head."""

from __future__ import annotations

import functools

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab, of_row, pretraining_rows
from polyseme.claims.lm_vectors_in_taggers import LONG, bilms
from polyseme.claims.rule import Rule, above
from polyseme.datasets.suites import SUITES
from polyseme.metrics.sampling_error import sampling_error
from polyseme.sweeps.sweep_report import Figure, RunResult
from polyseme.verbs.benchmark import benchmark

SUITE = SUITES["elmo-six"]
BEFORE, AFTER = (strategy.name for strategy in SUITE.strategies)


def run(lab: Lab) -> list[RunResult]:
    """Of each task both strategies, with each seed."""
    runs = bilms(lab, [LONG])

    def figures(task: str, strategy: str, seed: int) -> Figures:
        report = benchmark(
            SUITE.name,
            model=lab.model(of_row(runs, LONG, seed)),
            data=lab.tasks,
            tasks=[task],
            seeds=[seed],
            device=lab.device,
            output=lab.folder / f"elmo-six-{task}-{seed}",
        )
        result = report.result(task, strategy)
        value = result.summary().median
        error = sampling_error(result.metric, value, result.sizes.get(result.split, 0))
        return {task: Figure(value=value, unit="share", error=error)}

    fitted = [
        row
        for task in SUITE.names
        for row in lab.measure_rows((BEFORE, AFTER), functools.partial(figures, task), shared=f"elmo-six.{task}")
    ]
    return [*pretraining_rows(runs), *fitted]


CLAIM = Claim(
    name="elmo-in-six-tasks",
    text="Frozen vectors of a biLM beside a task's own inputs improve all of six tasks.",
    source="Peters et al. 2018, Table 1",
    runs="ELMo's six tasks with a head over learned words and characters, alone and beside a small ELMo, read frozen.",
    rule=Rule(conditions=tuple(above(AFTER, BEFORE, task) for task in SUITE.names)),
    run=run,
    data=("corpus", "tasks/squad", "tasks/snli", "tasks/srl", "tasks/gap", "tasks/sst", "tasks/wikigold"),
    minutes=90,
    observed="experiments/elmo_six.py: three seeds of heads over GloVe, one of each model (docs: Transfer).",
)
