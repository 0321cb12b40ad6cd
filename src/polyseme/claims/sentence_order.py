"""Whether one segment follows another shows in its topic; whether both are in order does not."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab, with_measured
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import pretrain_rows
from polyseme.errors import InputError
from polyseme.sweeps.grid import ROW
from polyseme.sweeps.sweep_report import Figure, RunResult
from polyseme.training.effects import read_log

NEXT = "loss of the second task"
ROWS = ("next sentence", "sentence order")


def run(lab: Lab) -> list[RunResult]:
    """Both tasks, each with the held-out loss of the pairs alone: a coin has 0.693 nats."""

    def with_loss(run: RunResult) -> RunResult:
        def figures() -> dict[str, Figure]:
            held_out = [line["held_out"] for line in read_log(lab.model(run)) if "held_out" in line]
            if not held_out:
                raise InputError(
                    f"The claim {lab.claim!r} compares losses on held-out pairs of segments, and {run.name} has none: "
                    f"{' '.join(run.warnings) or 'its log holds no evaluation.'} Give it a text of more documents."
                )
            return {NEXT: Figure(value=held_out[-1]["next"], unit="nats")}

        return with_measured(run, lab.measure(run.settings[ROW], run.seed, figures))

    return [with_loss(run) for run in pretrain_rows(lab, ROWS)]


CLAIM = Claim(
    name="sentence-order-harder",
    text="Telling the order of two segments is harder than telling whether one follows the other.",
    source="Lan et al. 2020, section 3.1",
    runs="The standard masked model on pairs of segments with either second task, whose held-out losses are compared.",
    rule=Rule(conditions=(above("sentence order", "next sentence", NEXT),)),
    run=run,
    data=("corpus",),
    minutes=8,
    small_minutes=30,
    small_lacks=(
        "Anything beyond the loss: a model this small may tell neither, and both losses are then those of a coin."
    ),
)
