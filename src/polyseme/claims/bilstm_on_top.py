"""What a left-to-right model lacks, a BiLSTM above it recovers in part."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab, of_row, pretraining_rows
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import SMALL_LACKS, pretrain_rows
from polyseme.sweeps.sweep_report import RunResult

F1 = "wnut17 span_f1 on dev"
ROWS = {
    "masked": ("masked", "linear"),
    "left to right": ("causal", "linear"),
    "left to right, BiLSTM on top": ("causal", "bilstm"),
}


def run(lab: Lab) -> list[RunResult]:
    """Both models fine-tuned to named entities, the causal one also under a BiLSTM."""
    runs = pretrain_rows(lab, ["masked", "causal"])
    fitted = [
        lab.finetune(row, seed, "wnut17", model=lab.model(of_row(runs, start, seed)), head=head, epochs=5)
        for row, (start, head) in ROWS.items()
        for seed in lab.seeds
    ]
    return [*pretraining_rows(runs), *fitted]


CLAIM = Claim(
    name="bilstm-recovers",
    text=(
        "A BiLSTM on top of a left-to-right model recovers a part, but not all, of what masking gives on tags of words."
    ),
    source="Devlin et al. 2019, Table 5 (SQuAD 88.5, 77.8, 84.9)",
    runs=(
        "The standard masked and causal models fine-tuned to named entities (WNUT-17), and the causal one under a "
        "BiLSTM."
    ),
    rule=Rule(
        conditions=(
            above("left to right, BiLSTM on top", "left to right", F1),
            above("masked", "left to right, BiLSTM on top", F1),
        )
    ),
    run=run,
    data=("corpus", "tasks/wnut17"),
    minutes=15,
    small_minutes=60,
    small_lacks=SMALL_LACKS,
)
