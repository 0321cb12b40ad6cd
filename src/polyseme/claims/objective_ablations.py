"""ELECTRA's and SpanBERT's ablations: the table of experiments/objective_ablations.py, with its rule."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.script_rules import script_rule

SCRIPT = "experiments/objective_ablations.py"
CLAIMS = (
    Claim(
        name="all-tokens",
        text="Restoring all pieces, copied ones too, beats predicting masked ones at equal operations.",
        source="Clark et al. 2020, Table 5 (84.3 and 82.2)",
        runs="The rows All-Tokens MLM and BERT of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="replaced-inputs",
        text="Replacing pieces by a generator's, instead of [MASK], helps a little: the mismatch costs some.",
        source="Clark et al. 2020, Table 5 (82.4 and 82.2)",
        runs="The rows Replace MLM and BERT of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="spans-beat-pieces",
        text="Masking spans beats masking single pieces.",
        source="Joshi et al. 2020",
        runs="The rows spans and BERT of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
    Claim(
        name="boundaries-add-to-spans",
        text="Predicting spans from their boundaries, too, adds to masking them.",
        source="Joshi et al. 2020",
        runs="The rows spans and boundaries, and spans, of the table, 12 layers of 256.",
        rule=script_rule(SCRIPT),
        script=SCRIPT,
        minutes=20,
        seeds=2,
    ),
)
