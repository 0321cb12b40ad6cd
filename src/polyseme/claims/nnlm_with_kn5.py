"""A neural model of words and counts of n-grams know different things: their mixture beats the n-grams alone."""

from __future__ import annotations

import numpy as np

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Figures, Lab
from polyseme.claims.rule import Rule, above
from polyseme.claims.word_models import DATA, NATS, SMALL_LACKS, log_probs, mean_surprisal, score_row, word_models
from polyseme.scoring.mixture import fit_weights, mix_log_probs
from polyseme.sweeps.sweep_report import RunResult

PARTS = ("NNLM", "KN5")
MIXED = "NNLM with KN5"


def run(lab: Lab) -> list[RunResult]:
    """Both models, and their mixture with weights that are fitted to the validation file."""
    runs = word_models(lab, PARTS)

    def mixture(_: str, seed: int) -> Figures:
        valid, test = (
            np.stack([log_probs(lab, runs, row, seed, split) for row in PARTS]) for split in ("valid", "test")
        )
        return {NATS: mean_surprisal(mix_log_probs(test, fit_weights(valid).weights))}

    rows = [score_row(lab, runs, row, seed) for row in PARTS for seed in lab.seeds]
    return [*rows, *lab.measure_rows([MIXED], mixture)]


CLAIM = Claim(
    name="nnlm-with-kn5",
    text="A neural language model mixed with n-grams beats n-grams, and beats the neural model alone.",
    source="Bengio et al. 2003, Tables 1 and 2",
    runs="Kneser–Ney 5-grams, Bengio's model and their mixture on WikiText-2, each read on the same words of test.",
    rule=Rule(conditions=(above("KN5", MIXED, NATS), above("NNLM", MIXED, NATS))),
    run=run,
    data=DATA,
    minutes=6,
    small_minutes=15,
    small_lacks=SMALL_LACKS,
    observed="experiments/wikitext2.py: one seed (docs: N-grams).",
)
