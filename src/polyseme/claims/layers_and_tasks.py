"""Which layer knows what: the table of experiments/probing.py, which has a rule from before its results."""

from __future__ import annotations

from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/probing.py"
CLAIMS = (
    script_claim(
        SCRIPT,
        name="tags-below-senses",
        text="In Transformers, parts of speech are found lower in the stack than word senses and coreference.",
        source="Tenney, Das and Pavlick 2019, Figures 1 and 2",
        runs="Linear probes on every layer of the three packaged models, and their mix, beside random weights.",
        minutes=30,
    ),
    script_claim(
        SCRIPT,
        name="tags-below-senses-bilm",
        text="In a biLM, parts of speech are found in the lower layer, and word senses in the upper one.",
        source="Peters et al. 2018, Tables 5 and 6",
        runs="The same probes on a small ELMo, and on the encoder of CoVe.",
        minutes=10,
    ),
)
