"""A model without half of its attention heads beside the whole one: pieces per second, parameters and bytes.

MiniLM's shape (6 layers of 12 heads, width 384) or another, with random weights and pieces, packed inference, rows of
one length. Both models take turns in one run; the ratio of medians is what counts.

    python benchmarks/pruned.py [--device cpu|cuda] [--share 0.5] [--lengths 32 128] [--layers 6] [--width 384]
                                [--figures FILE]
"""

from __future__ import annotations

import argparse

import torch
from measure import add_figures_option, alternate, machine, publish, ratio, table
from packed import synced

from polyseme.bundle import Bundle, new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.pruning.head_removal import HeadPlace, attentions_of, heads_of, without_heads


def models_of(settings: argparse.Namespace) -> dict[str, Bundle]:
    """The whole model, and the one without the last heads of each layer."""
    shape = {"n_layers": settings.layers, "width": settings.width, "inner_width": 4 * settings.width}
    config = FAMILIES["bert"].base().replace(**shape, n_heads=settings.heads, n_pieces=30_000)
    whole = new_bundle(FAMILIES["bert"], config, []).to(settings.device, getattr(torch, settings.dtype)).eval()
    n_gone = round(settings.share * settings.heads)
    gone = [HeadPlace(at, head) for at, each in attentions_of(whole).items() for head in heads_of(each)[-n_gone:]]
    return {"whole": whole, "pruned": without_heads(whole, gone)}


def main() -> None:
    """Measure and print the table."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--dtype", default="bfloat16" if gpu else "float32")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--pieces", type=int, default=65536 if gpu else 4096, help="of a batch")
    parser.add_argument("--rounds", type=int, default=11)
    add_figures_option(parser)
    settings = parser.parse_args()
    print(machine("torch"), f"{settings.layers} x {settings.width}, {settings.heads} heads, {settings.dtype}")

    models = models_of(settings)
    sizes = {name: bundle.n_parameters() for name, bundle in models.items()}
    encoders = {name: build_inference_encoder(bundle.encoder) for name, bundle in models.items()}
    for encoder in encoders.values():
        encoder.prepare()
    rows, figures = [], []
    for length in settings.lengths:
        lengths = [length] * (settings.pieces // length)
        batch = PackedRows(torch.randint(5, 30_000, (sum(lengths),), device=settings.device), None, lengths)
        runs = {
            name: synced(lambda e=encoder, b=batch: e(b, [-1]), settings.device) for name, encoder in encoders.items()
        }
        every: dict[str, list[float]] = {}
        seconds = alternate(runs, settings.rounds, warm_ups=dict.fromkeys(runs, 2), every=every)
        what = f"embed without {settings.share:.0%} of the heads, rows of {length}"
        figures.append(ratio(every, "whole", "pruned", what=what, peer="polyseme, all heads"))
        for name, taken in seconds.items():
            times_as_fast = f"{seconds['whole'] / taken:.2f}"
            rows.append([str(length), name, f"{sizes[name]:,}", f"{sum(lengths) / taken / 1e3:,.1f}k", times_as_fast])
    print(table(["row length", "model", "parameters", "pieces/s", "times as fast as the whole one"], rows) + "\n")
    publish(figures, settings.figures)


if __name__ == "__main__":
    main()
