"""ELECTRA's and SpanBERT's ablations: the table of experiments/objective_ablations.py, with its rule."""

from __future__ import annotations

from polyseme.claims.claim import Claim
from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/objective_ablations.py"


def _claim(name: str, text: str, source: str, rows: str) -> Claim:
    """A claim that compares two rows of the table."""
    runs = f"The rows {rows} of the table, 12 layers of 256."
    return script_claim(SCRIPT, name=name, text=text, source=source, runs=runs, minutes=20, seeds=2)


CLAIMS = (
    _claim(
        "all-tokens",
        "Restoring all pieces, copied ones too, beats predicting masked ones at equal operations.",
        "Clark et al. 2020, Table 5 (84.3 and 82.2)",
        "All-Tokens MLM and BERT",
    ),
    _claim(
        "replaced-inputs",
        "Replacing pieces by a generator's, instead of [MASK], helps a little: the mismatch costs some.",
        "Clark et al. 2020, Table 5 (82.4 and 82.2)",
        "Replace MLM and BERT",
    ),
    _claim("spans-beat-pieces", "Masking spans beats masking single pieces.", "Joshi et al. 2020", "spans and BERT"),
    _claim(
        "boundaries-add-to-spans",
        "Predicting spans from their boundaries, too, adds to masking them.",
        "Joshi et al. 2020",
        "spans and boundaries, and spans,",
    ),
)
