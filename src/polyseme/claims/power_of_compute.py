"""The loss of the best model falls as a power of the operations that it may take."""

from __future__ import annotations

import numpy as np

from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab
from polyseme.claims.rule import Condition, Rule, Term
from polyseme.claims.standard_model import GPT, LOSS
from polyseme.sweeps.grid import ROW
from polyseme.sweeps.sweep_report import Figure, RunResult

WIDTHS = {64: 2, 128: 3, 192: 4, 256: 6, 384: 8}
"""Width → layers."""
BUDGETS = (1.5e14, 5e14, 1.5e15, 5e15)
SMALL_WIDTHS = {32: 1, 64: 2, 128: 2}
SMALL_BUDGETS = (1e12, 3e12, 9e12)
EXPLAINED, EXPONENT = "share explained by a line", "minus the exponent"
FIT = "line through the best"


def run(lab: Lab) -> list[RunResult]:
    """Causal models of several sizes with several budgets, and of each seed the line through the best logarithms."""
    widths, budgets = (SMALL_WIDTHS, SMALL_BUDGETS) if lab.small else (WIDTHS, BUDGETS)
    shapes = {
        width: {"n_layers": n_layers, "width": width, "n_heads": max(width // 64, 1), "inner_width": 4 * width}
        for width, n_layers in widths.items()
    }
    rows = {
        f"{flops:g} operations, width {width}": {**GPT, "shape": shape, "budget": lab.budget(flops, "flops")}
        for flops in budgets
        for width, shape in shapes.items()
    }
    texts = lab.texts("wiki-00") if lab.small else lab.texts()
    runs = lab.sweep(
        "compute",
        "pretrain",
        texts,
        rows=rows,
        length=64 if lab.small else 128,
        vocab_size=4096 if lab.small else 16_384,
    )

    def fit(_: str, seed: int) -> dict[str, Figure]:
        lowest = [
            min(
                run.figures[LOSS].value
                for run in runs
                if run.seed == seed and run.settings[ROW].startswith(f"{flops:g} ")
            )
            for flops in budgets
        ]
        x, y = np.log(budgets), np.log(lowest)
        slope, intercept = np.polyfit(x, y, 1)
        explained = 1 - float(np.var(y - slope * x - intercept) / np.var(y))
        return {EXPLAINED: Figure(value=explained, unit="share"), EXPONENT: Figure(value=-float(slope))}

    return [*runs, *lab.measure_rows([FIT], fit)]


CLAIM = Claim(
    name="power-of-compute",
    text="The loss of the best model is a power of the operations of its training.",
    source="Kaplan et al. 2020, Figure 1 (exponent −0.050); Brown et al. 2020, Figure 3.1 (−0.048)",
    runs="Causal models of five sizes with four budgets from 1.5e14 to 5e15; a line through the lowest log losses.",
    rule=Rule(
        conditions=(Condition(terms=(Term(FIT, EXPLAINED),), bound=0.95), Condition(terms=(Term(FIT, EXPONENT),))),
        note="The exponent is reported beside the papers', whose vocabulary and text are others.",
    ),
    run=run,
    data=("corpus",),
    minutes=30,
    small_minutes=60,
    small_lacks="More than one order of magnitude: three budgets are nearly on a line whatever the law is.",
)
