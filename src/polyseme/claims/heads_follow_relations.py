"""Attention heads that follow dependency relations.

The table of experiments/heads.py, which has a rule from before its results.
"""

from __future__ import annotations

from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/heads.py"
CLAIMS = (
    script_claim(
        SCRIPT,
        name="heads-follow-relations",
        text="Single attention heads follow the direct object and the determiner, better than any fixed offset does.",
        source="Clark et al. 2019, Table 1",
        runs=(
            "The heads of the packaged models, chosen on UD-EWT's training sentences and read on test, beside random "
            "weights."
        ),
        minutes=10,
        seeds=3,
    ),
)
