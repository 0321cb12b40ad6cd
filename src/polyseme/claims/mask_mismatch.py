"""That [MASK] is never seen in fine-tuning costs little.

Without random and kept pieces the result is the same within a point.
"""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, SMALL_LACKS, glue, standard_rows

CLAIM = Claim(
    name="mask-mismatch",
    text=(
        "That [MASK] is never seen in fine-tuning costs little: without random and kept pieces the result is the "
        "same within a point."
    ),
    source="Devlin et al. 2019, Table 8",
    runs="The standard masked model with the usual 80/10/10, and with [MASK] always, fine-tuned to five tasks of GLUE.",
    rule=Rule(conditions=(above("always [MASK]", "masked", GLUE, bound=-0.01),)),
    run=standard_rows("masked", "always [MASK]", then=(glue,)),
    data=GLUE_DATA,
    minutes=30,
    small_minutes=45,
    small_lacks=SMALL_LACKS,
)
