"""Dot-product attention learns better when its scores are divided by √d_k."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import LOSS, standard_rows

CLAIM = Claim(
    name="scaled-attention",
    text="Dot-product attention learns better when its scores are divided by √d_k.",
    source="Vaswani et al. 2017, section 3.2.1",
    runs="The standard causal model with heads of 64, and the same with a scale of 1, at equal operations.",
    rule=Rule(conditions=(above("causal, unscaled", "causal", LOSS),)),
    run=standard_rows("causal", "causal, unscaled"),
    data=("corpus",),
    minutes=6,
    small_minutes=25,
    small_lacks="Deep stacks, where attention that saturates costs most, and what it costs in a task.",
)
