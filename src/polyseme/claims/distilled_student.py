"""DistilBERT's claim: the table of experiments/distillation.py, which has a rule from before its results."""

from __future__ import annotations

from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/distillation.py"
CLAIMS = (
    script_claim(
        SCRIPT,
        name="distilled-student",
        text=(
            "A distilled student with half of the layers keeps 95% of its teacher, and beats the same shape from "
            "scratch."
        ),
        source="Sanh et al. 2019, Table 1 (97%)",
        runs=(
            "The packaged encoder distilled to 6 of its 12 layers, and 6 layers from scratch, each fine-tuned to five "
            "tasks."
        ),
        minutes=30,
        seeds=1,
    ),
)
