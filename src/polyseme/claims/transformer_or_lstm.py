"""Transformers beat LSTMs at equal operations; on two million words one may expect the LSTM to win."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab
from polyseme.claims.rule import Rule, above
from polyseme.claims.word_models import DATA, NATS, SMALL_LACKS, score_row, word_models
from polyseme.sweeps.sweep_report import RunResult

ROWS = ("Transformer", "LSTM")


def run(lab: Lab) -> list[RunResult]:
    """Both models."""
    runs = word_models(lab, ROWS)
    return [score_row(lab, runs, row, seed) for row in ROWS for seed in lab.seeds]


CLAIM = Claim(
    name="transformer-or-lstm",
    text="A Transformer language model beats an LSTM at equal operations.",
    source="Kaplan et al. 2020, Figure 7 (of larger texts)",
    runs="Both on WikiText-2, with dropout and equal operations. Its text is small, and the LSTM is expected to win.",
    rule=Rule(conditions=(above("LSTM", "Transformer", NATS),)),
    run=run,
    data=DATA,
    minutes=8,
    small_minutes=20,
    small_lacks=(
        f"{SMALL_LACKS} After 300 steps neither model is as good as 5-grams (the claim nnlm-with-kn5): it shows which "
        "learns sooner, not which ends lower."
    ),
    observed="experiments/wikitext2.py: one seed, at equal time (docs: N-grams).",
)
