"""Predicting the next sentence adds little: without it the result is no more than a point lower."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, glue, standard_rows

CLAIM = Claim(
    name="next-sentence-adds-little",
    text="Predicting the next sentence adds little: without it the result is no more than a point lower.",
    source="Liu et al. 2019, Table 2 (Devlin et al. 2019, Table 5, found the opposite)",
    runs=(
        "The standard masked model on pairs of segments, with and without the next sentence, fine-tuned to five "
        "tasks of GLUE."
    ),
    rule=Rule(conditions=(above("pairs alone", "next sentence", GLUE, bound=-0.01),)),
    run=standard_rows("pairs alone", "next sentence", then=(glue,)),
    data=GLUE_DATA,
    minutes=30,
    small_minutes=45,
    small_lacks=SMALL_LACKS,
)
