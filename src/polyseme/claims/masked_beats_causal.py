"""With fine-tuning, a masked language model beats one that reads from left to right."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, glue, standard_rows

CLAIM = Claim(
    name="masked-beats-causal",
    text="With fine-tuning, a masked language model beats one that reads from left to right.",
    source="Devlin et al. 2019, Table 5",
    runs=(
        "The standard model pretrained by masking and from left to right at equal operations, each fine-tuned to "
        "five tasks of GLUE."
    ),
    rule=Rule(conditions=(above("masked", "causal", GLUE),)),
    run=standard_rows("masked", "causal", then=(glue,)),
    data=GLUE_DATA,
    minutes=30,
    small_minutes=45,
    small_lacks=SMALL_LACKS,
)
