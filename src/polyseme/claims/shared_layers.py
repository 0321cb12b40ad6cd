"""Layers that share their weights need less memory, and compute as much as others."""

from __future__ import annotations

import functools
import time
from statistics import median

import torch

from polyseme.api import load
from polyseme.claims.claim import Claim
from polyseme.claims.lab import Lab, of_row, with_measured
from polyseme.claims.rule import Rule, above
from polyseme.claims.standard_model import pretrain_rows, row_length
from polyseme.sweeps.sweep_report import Figure, RunResult
from polyseme.types import Batch

WEIGHTS, SECONDS = "million weights of the layers", "seconds of a forward pass"
ROWS = ("shared layers", "own layers")
TURNS, N_ROWS = 15, 32


def run(lab: Lab) -> list[RunResult]:
    """Both models in turn, on the same rows; of each the median time."""
    runs = pretrain_rows(lab, ROWS)
    return [
        with_measured(of_row(runs, row, seed), each)
        for seed in lab.seeds
        for row, each in zip(ROWS, _both(lab, runs, seed), strict=True)
    ]


@torch.inference_mode()
def _both(lab: Lab, runs: list[RunResult], seed: int) -> list[RunResult]:
    figures: dict[str, dict[str, Figure]] = {}

    def figures_of(row: str) -> dict[str, Figure]:
        if not figures:
            models = {each: load(lab.model(of_row(runs, each, seed)), device=lab.device).bundle for each in ROWS}
            seconds: dict[str, list[float]] = {each: [] for each in ROWS}
            n_pieces = min(bundle.text_tokenizer.n_pieces for bundle in models.values())
            rng = torch.Generator().manual_seed(seed)
            pieces = torch.randint(n_pieces, (N_ROWS, row_length(lab)), generator=rng)
            for _ in range(TURNS):
                for each, bundle in models.items():
                    began = time.perf_counter()
                    top = bundle.encoder(Batch(pieces.to(bundle.device)), layers=[-1])[-1]
                    float(top[0, 0, 0])  # waits for a GPU
                    seconds[each].append(time.perf_counter() - began)
            for each, bundle in models.items():
                weights = {id(one): one.numel() for group in bundle.encoder.layer_groups()[1:] for one in group}
                figures[each] = {
                    WEIGHTS: Figure(value=sum(weights.values()) / 1e6),
                    SECONDS: Figure(value=median(seconds[each])),
                }
        return figures[row]

    return [lab.measure(row, seed, functools.partial(figures_of, row)) for row in ROWS]


CLAIM = Claim(
    name="sharing-saves-memory-not-time",
    text="Sharing the weights of all layers saves memory, and hardly any time.",
    source="Lan et al. 2020, Tables 1 and 2",
    runs=(
        "The standard masked model with one set of weights for all layers, and with one for each; forward passes "
        "in turn."
    ),
    rule=Rule(
        conditions=(
            above("own layers", "shared layers", WEIGHTS),
            above("shared layers", "own layers", SECONDS, factor=0.9),
        )
    ),
    run=run,
    data=("corpus",),
    minutes=8,
    small_minutes=30,
    small_lacks="More than two layers, so that half of the weights go.",
)
