"""BERT's, RoBERTa's and ALBERT's input formats: the table of experiments/input_formats.py, with its rules."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.script_rules import script_rule

SCRIPT = "experiments/input_formats.py"
CLAIMS = (
    Claim(
        name="next-sentence-helps",
        text="Predicting the next sentence helps.",
        source="Devlin et al. 2019, Table 5",
        runs="The rows segment-pair with and without the next sentence of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="single-sentences-hurt",
        text="Pairs of single sentences are worse inputs than pairs of segments.",
        source="Liu et al. 2019, Table 2",
        runs="The rows sentence-pair and segment-pair with the next sentence of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="full-sentences-no-worse",
        text="Full sentences without the next sentence are no worse than BERT's pairs of segments.",
        source="Liu et al. 2019, Table 2",
        runs="The rows full-sentences and segment-pair with the next sentence of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="documents-no-worse",
        text="Rows that keep to one document are no worse than rows that cross documents.",
        source="Liu et al. 2019, Table 2",
        runs="The rows doc-sentences and full-sentences of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="sentence-order-better",
        text="Predicting the order of sentences is better than predicting the next one.",
        source="Lan et al. 2020, Table 5",
        runs="The rows segment-pair with sentence order and with the next sentence of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
)
