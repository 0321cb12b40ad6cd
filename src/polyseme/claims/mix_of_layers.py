"""A frozen encoder is read better by a learned mix of its layers than from its top layer."""

from __future__ import annotations

from typing import Any

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab
from polyseme.claims.rule import Rule, above
from polyseme.sweeps.sweep_report import RunResult

ACCURACY = "ud-ewt word_accuracy on test"
MIX, TOP = "mix of all layers", "top layer"


def run(lab: Lab) -> list[RunResult]:
    """A linear head over either, for parts of speech."""
    options: dict[str, Any] = {
        "model": "minilm",
        "frozen": True,
        "head": "linear",
        "epochs": 5,
        "cache": lab.folder / "vectors",
    }
    return [
        lab.finetune(row, seed, "ud-ewt", layer=layer, **options)
        for row, layer in ((MIX, "mix"), (TOP, "-1"))
        for seed in lab.seeds
    ]


CLAIM = Claim(
    name="mix-beats-top",
    text="A learned mix of all layers is a better frozen vector than the top layer.",
    source="Peters et al. 2018, Table 2",
    runs=(
        "Parts of speech of UD-EWT by a linear head over the frozen MiniLM: a mix of its seven layers, or the top one."
    ),
    rule=Rule(conditions=(above(MIX, TOP, ACCURACY),)),
    run=run,
    data=("tasks/ud-ewt",),
    device="cpu",
    minutes=15,
    scales=False,
    observed=(
        "docs/transfer.md has one line of a mix beside a top layer on UD-EWT; experiments/probing.py has all layers."
    ),
)
