"""Detecting replaced pieces beats predicting masked ones at equal operations."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, glue, standard_rows

CLAIM = Claim(
    name="replaced-beats-masked",
    text="Detecting replaced pieces beats predicting masked ones at equal operations.",
    source="Clark et al. 2020, Table 1 and Figure 2",
    runs=(
        "ELECTRA and BERT of the standard size, fine-tuned to five tasks of GLUE; the operations of the generator "
        "are counted."
    ),
    rule=Rule(conditions=(above("replaced", "masked", GLUE),)),
    run=standard_rows("replaced", "masked", then=(glue,)),
    data=GLUE_DATA,
    minutes=30,
    small_minutes=45,
    small_lacks=SMALL_LACKS,
    observed=(
        "experiments/pretraining_table.py: electra-small and a masked model of its size, two seeds (docs: Pretraining)."
    ),
)
