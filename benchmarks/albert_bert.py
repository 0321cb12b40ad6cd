"""ALBERT beside BERT of the same depth and width: speed and memory of a training step and of inference, as ratios.

Random weights and pieces, rows of one length, no dropout; AdamW keeps two numbers per parameter. Both models take turns
in one run; the ratio of medians is what counts. `--size base` takes the published base sizes.

    python benchmarks/albert_bert.py [--device cpu|cuda] [--size small|base] [--rows 8] [--length 128] [--figures FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from measure import add_figures_option, alternate, machine, publish, ratio, table

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.recipes.published_sizes import SIZES
from polyseme.types import Batch

SHAPES = {"small": {"n_layers": 12, "width": 256, "n_heads": 4, "inner_width": 1024}, "base": {}}


def models_of(size: str, device: str) -> dict[str, Bundle]:
    """BERT, and ALBERT with a narrow table and one set of weights for all layers."""
    changes = SHAPES[size]
    return {
        name: new_bundle(FAMILIES[family], SIZES[f"{family}-base"].config.replace(**changes), ["masked"]).to(device)
        for name, family in (("BERT", "bert"), ("ALBERT", "albert"))
    }


def step_of(bundle: Bundle, batch: Batch) -> Callable[[], object]:
    """A training step: forward, loss over 15% of the pieces, backward, AdamW."""
    optimizer = torch.optim.AdamW(bundle.parameters(), lr=1e-4, foreach=True)
    bundle.train()
    n_targets = batch.pieces.numel() * 15 // 100
    targets = batch.pieces.flatten()[:n_targets]

    def step() -> None:
        states = bundle.encoder(batch, layers=[-1])[-1].flatten(0, 1)[:n_targets]
        bundle.outputs["masked"].loss(states, targets).mean().backward()  # type: ignore[operator]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def reading_of(bundle: Bundle, batch: Batch) -> Callable[[], object]:
    """The forward pass alone."""

    def read() -> None:
        bundle.eval()
        with torch.inference_mode():
            bundle.encoder(batch, layers=[-1])

    return read


def timed(run: Callable[[], object], device: str) -> Callable[[], None]:
    """The run until its last kernel has ended."""

    def whole() -> None:
        run()
        if device != "cpu":
            torch.cuda.synchronize()

    return whole


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SHAPES, default="small")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=11)
    add_figures_option(parser)
    settings = parser.parse_args()
    print(machine("torch"), f"size {settings.size}, {settings.rows} rows of {settings.length}, {settings.device}, fp32")
    torch.manual_seed(0)
    models = models_of(settings.size, settings.device)
    shape = (settings.rows, settings.length)
    batch = Batch(pieces=torch.randint(5, 30_000, shape, device=settings.device), lengths=None)
    parameters = {name: bundle.n_parameters() for name, bundle in models.items()}
    rows = [
        ["parameters", *(f"{each:,}" for each in parameters.values()), _ratio(parameters)],
        ["weights, gradients and AdamW's state, MiB", *(f"{each * 16 / 2**20:.0f}" for each in parameters.values()),
         _ratio(parameters)],
    ]  # fmt: skip
    figures = []
    for what, made in (("training step, s", step_of), ("forward pass, s", reading_of)):
        runs = {name: timed(made(bundle, batch), settings.device) for name, bundle in models.items()}
        every: dict[str, list[float]] = {}
        seconds = alternate(runs, settings.rounds, warm_ups=dict.fromkeys(runs, 2), every=every)
        figures.append(
            ratio(every, "BERT", "ALBERT", what=f"ALBERT, {what.removesuffix(', s')}", peer="polyseme, BERT")
        )
        rows.append([what, *(f"{each:.3f}" for each in seconds.values()), _ratio(seconds)])
    print(table(["", *models, "BERT / ALBERT"], rows) + "\n")
    publish(figures, settings.figures)


def _ratio(values: dict[str, float] | dict[str, int]) -> str:
    return f"{values['BERT'] / values['ALBERT']:.2f}"


if __name__ == "__main__":
    main()
