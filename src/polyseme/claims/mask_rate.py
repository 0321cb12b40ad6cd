"""Masking 40% of the pieces is better than masking 15%."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, blimp, glue, standard_rows

CLAIM = Claim(
    name="mask-rate-40",
    text="Masking 40% of the pieces is better than masking 15%.",
    source="Wettig et al. 2023 (of large models)",
    runs="The standard masked model at both rates, fine-tuned to five tasks of GLUE.",
    rule=Rule(conditions=(above("mask rate 0.4", "masked", GLUE),)),
    run=standard_rows("masked", "mask rate 0.4", then=(glue, blimp)),
    data=(*GLUE_DATA, "tasks/blimp"),
    minutes=32,
    small_minutes=50,
    small_lacks=SMALL_LACKS,
)
