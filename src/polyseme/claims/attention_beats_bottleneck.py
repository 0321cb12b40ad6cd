"""A decoder that sees only the encoder's last state must have all of a sentence in one vector."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab
from polyseme.claims.rule import Condition, Rule, Term, above
from polyseme.claims.translators import BLEU, DATA, LONG, SHORT, translators
from polyseme.sweeps.sweep_report import RunResult

ATTENTION, ALONE = "attention", "last state"


def run(lab: Lab) -> list[RunResult]:
    """Both translators."""
    return translators(lab, [ALONE, ATTENTION])


CLAIM = Claim(
    name="attention-beats-bottleneck",
    text="Attention over the source beats its last state alone, and more so in longer sentences.",
    source="Bahdanau et al. 2015, Figure 2",
    runs="Two recurrent stacks from English to German on Multi30k, with attention and without it, at equal operations.",
    rule=Rule(
        conditions=(
            above(ATTENTION, ALONE, BLEU),
            Condition(
                terms=(Term(ATTENTION, LONG), Term(ALONE, LONG, -1), Term(ATTENTION, SHORT, -1), Term(ALONE, SHORT)),
            ),
        ),
    ),
    run=run,
    data=DATA,
    minutes=12,
    small_minutes=25,
    small_lacks="Translators that can translate: stacks this small, after one reading, get few sentences right.",
    observed="experiments/seq2seq.py: one seed (docs: Pretraining).",
)
