"""Heads that a model can lose: the table of experiments/pruning.py, which has a rule from before its results."""

from __future__ import annotations

from polyseme.claims.script_rules import script_claim

SCRIPT = "experiments/pruning.py"
CLAIMS = (
    script_claim(
        SCRIPT,
        name="heads-can-go",
        text=(
            "A large part of a fine-tuned model's attention heads, 40%, can be removed at no more than a point of "
            "accuracy."
        ),
        source="Michel, Levy and Neubig 2019 (20 to 40% of the heads of BERT and of a translator)",
        runs=(
            "MiniLM and the packaged encoder, fine-tuned to QNLI; heads are removed by their gradients, and at random."
        ),
        minutes=12,
        seeds=1,
    ),
)
