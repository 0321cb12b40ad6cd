"""A generator of a quarter to a half of the model is better than one of its size."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, glue, standard_rows

CLAIM = Claim(
    name="generator-size",
    text="A generator of a quarter to a half of the model is better than one of its size.",
    source="Clark et al. 2020, Figure 3",
    runs=(
        "The standard ELECTRA with generators of a quarter, a half and all of its width, fine-tuned to five tasks "
        "of GLUE."
    ),
    rule=Rule(
        conditions=(
            above("generator 1/4", "generator 1", GLUE),
            above("replaced", "generator 1", GLUE),
        )
    ),
    run=standard_rows("replaced", "generator 1/4", "generator 1", then=(glue,)),
    data=GLUE_DATA,
    minutes=45,
    small_minutes=70,
    small_lacks=SMALL_LACKS,
)
