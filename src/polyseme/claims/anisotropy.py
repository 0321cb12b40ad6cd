"""Anisotropy by height: the table of experiments/geometry.py, which has a rule from before its results."""

from __future__ import annotations

from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/geometry.py"
CLAIMS = (
    script_claim(
        SCRIPT,
        name="anisotropy-grows",
        text="Vectors of random words are more alike in each higher layer.",
        source="Ethayarajh 2019, Figure 1",
        runs="Three samples of 100,000 words in the packaged models and a small ELMo, beside random weights.",
        minutes=10,
    ),
)
