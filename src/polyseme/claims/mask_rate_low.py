"""Masking 5% of the pieces is too little: the model learns less from the same work."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import BLIMP, blimp, standard_rows

CLAIM = Claim(
    name="mask-rate-5",
    text="Masking 5% of the pieces is too little: the model learns less from the same work.",
    source="Devlin et al. 2019, section 3.1; Wettig et al. 2023",
    runs="The standard masked model at 5% and 15%, scored by BLiMP.",
    rule=Rule(conditions=(above("masked", "mask rate 0.05", BLIMP),)),
    run=standard_rows("masked", "mask rate 0.05", then=(blimp,)),
    data=("corpus", "tasks/blimp"),
    minutes=8,
    small_minutes=30,
    small_lacks="Minimal pairs are few, and a model of this size knows only frequent words.",
)
