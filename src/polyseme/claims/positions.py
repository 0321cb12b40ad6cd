"""Sinusoids need no training and serve as well as positions that are learned."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab
from polyseme.claims.rule import Rule, above
from polyseme.claims.translators import BLEU, DATA, translators
from polyseme.sweeps.sweep_report import RunResult


def run(lab: Lab) -> list[RunResult]:
    """Both kinds of positions."""
    return translators(lab, ["sinusoidal", "learned"])


CLAIM = Claim(
    name="positions-alike",
    text="Sinusoidal and learned positions give nearly the same translations, within a point of BLEU.",
    source="Vaswani et al. 2017, Table 3, row E",
    runs="A Transformer from English to German on Multi30k with either kind of positions, at equal operations.",
    rule=Rule(
        conditions=(above("learned", "sinusoidal", BLEU, bound=-1.0), above("sinusoidal", "learned", BLEU, bound=-1.0))
    ),
    run=run,
    data=DATA,
    minutes=12,
)
