"""Masks that are drawn each time beat masks that are fixed, when a text is read several times."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import GLUE, GLUE_DATA, glue, standard_rows

CLAIM = Claim(
    name="dynamic-masking",
    text="Masks that are drawn each time beat masks that are fixed, when a text is read several times.",
    source="Liu et al. 2019, Table 1",
    runs=(
        "The standard masked model with new masks in each epoch, and with one fixed copy of each row, fine-tuned "
        "to five tasks of GLUE."
    ),
    rule=Rule(conditions=(above("masked", "one static mask", GLUE),)),
    run=standard_rows("masked", "one static mask", then=(glue,)),
    data=GLUE_DATA,
    minutes=30,
)
