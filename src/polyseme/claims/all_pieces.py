"""ELECTRA is better because it learns from all pieces, and not from the 15% that were chosen."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, glue, standard_rows

CLAIM = Claim(
    name="all-pieces",
    text="ELECTRA is better because it learns from all pieces, and not from the 15% that were chosen.",
    source="Clark et al. 2020, Table 5",
    runs=(
        "The standard ELECTRA, and the same with a loss over the chosen pieces alone, fine-tuned to five tasks of GLUE."
    ),
    rule=Rule(conditions=(above("replaced", "replaced, 15% judged", GLUE),)),
    run=standard_rows("replaced", "replaced, 15% judged", then=(glue,)),
    data=GLUE_DATA,
    minutes=30,
    small_minutes=45,
    small_lacks=SMALL_LACKS,
)
