"""Packed inference beside the padded forward pass of the same encoder, at the sentence lengths of UD-EWT.

Four kinds of positions: learned (bert), buckets (t5), relative (xlnet), rotary with local windows (modernbert), all of
one shape. Padded rows run in batches of 32 as they come, and sorted by length in batches of as many pieces as a packed
batch has. Weights and pieces are random; padding does not count as pieces. Without POLYSEME_DATA, lengths are drawn
from the quantiles of UD-EWT in this file.

    python benchmarks/packed.py [--device cpu|cuda] [--layers 6] [--width 384] [--rows 2000] [--kinds bert t5]
                                [--figures FILE]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import torch
from embed_gpu import lengths_of
from measure import add_figures_option, alternate, machine, publish, ratio, table

from polyseme.convert.families import FAMILIES
from polyseme.encoders.encoder import Encoder
from polyseme.encoders.encoder_kinds import build_encoder
from polyseme.encoders.inference import PackedRows, build_inference_encoder
from polyseme.types import Batch

KINDS = ("bert", "t5", "xlnet", "modernbert")
QUANTILES = (
    3, 3, 3, 5, 5, 6, 6, 7, 8, 8, 10, 10, 11, 12, 12, 14, 15, 15, 16, 16, 18, 19, 19, 20, 22, 23, 23, 24, 25, 27, 28,
    29, 31, 32, 34, 36, 38, 42, 48, 55, 178,
)  # fmt: skip
"""Pieces of UD-EWT's training sentences at every fortieth: 1.3 per word, and two specials."""


def lengths_drawn(count: int) -> list[int]:
    """Row lengths, in the order in which rows come."""
    if "POLYSEME_DATA" in os.environ:
        return lengths_of("UD-EWT", count)
    draws = torch.rand(count, generator=torch.Generator().manual_seed(1)) * (len(QUANTILES) - 1)
    lower = torch.tensor(QUANTILES[:-1])[draws.long()]
    upper = torch.tensor(QUANTILES[1:])[draws.long()]
    return (lower + (draws % 1) * (upper - lower)).round().long().tolist()


def encoder_of(kind: str, settings: argparse.Namespace) -> Encoder:
    """An encoder of a family's kind, of this shape."""
    shape = {"n_layers": settings.layers, "width": settings.width, "inner_width": 4 * settings.width}
    more = {"n_heads": settings.width // 64 if settings.width >= 256 else 4, "n_pieces": 30_000, "head_width": None}
    encoder = build_encoder(FAMILIES[kind].base().replace(**shape, **more))
    return encoder.to(settings.device, getattr(torch, settings.dtype)).eval()


def batched(lengths: list[int], n_pieces: int) -> list[list[int]]:
    """As many rows, in this order, as have so many pieces together."""
    batches: list[list[int]] = [[]]
    for length in lengths:
        if sum(batches[-1]) + length > n_pieces:
            batches.append([])
        batches[-1].append(length)
    return [each for each in batches if each]


def padded(batches: list[list[int]], device: str) -> list[Batch]:
    """Rows padded to the longest of each batch."""
    return [
        Batch(torch.randint(5, 30_000, (len(each), max(each)), device=device), torch.tensor(each, device=device))
        for each in batches
    ]


def synced(run: Callable[[], object], device: str) -> Callable[[], None]:
    """The same without gradients, ending when the device has."""

    def whole() -> None:
        with torch.inference_mode():
            run()
        if device == "cuda":
            torch.cuda.synchronize()

    return whole


def main() -> None:
    """Measure and print the table."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--dtype", default="bfloat16" if gpu else "float32")
    parser.add_argument("--layers", type=int, default=12 if gpu else 6)
    parser.add_argument("--width", type=int, default=768 if gpu else 384)
    parser.add_argument("--rows", type=int, default=4000 if gpu else 1000)
    parser.add_argument("--batch-pieces", type=int, default=65536 if gpu else 4096)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    add_figures_option(parser)
    settings = parser.parse_args()
    print(machine("torch"), f"{settings.layers} x {settings.width}, {settings.dtype}")

    lengths = lengths_drawn(settings.rows)
    by_length = batched(sorted(lengths), settings.batch_pieces)
    as_they_come = [lengths[start : start + 32] for start in range(0, len(lengths), 32)]
    rows, figures = [], []
    for kind in settings.kinds:
        encoder = encoder_of(kind, settings)
        inference = build_inference_encoder(encoder)
        inference.prepare()
        packed = [
            PackedRows(torch.randint(5, 30_000, (sum(each),), device=settings.device), None, each) for each in by_length
        ]
        routes = {
            "padded, batches of 32 as they come": padded(as_they_come, settings.device),
            "padded, sorted by length": padded(by_length, settings.device),
        }
        runs: dict[str, Callable[[], object]] = {
            name: synced(lambda b=each, e=encoder: [e(batch, layers=[-1]) for batch in b], settings.device)
            for name, each in routes.items()
        }
        runs["packed"] = synced(lambda b=packed, i=inference: [i(batch, [-1]) for batch in b], settings.device)
        every: dict[str, list[float]] = {}
        seconds = alternate(runs, settings.rounds, warm_ups=dict.fromkeys(runs, 2), every=every)
        figures += [
            ratio(every, route, "packed", what=f"encoder, packed rows, {kind}", peer=f"polyseme, {route}")
            for route in routes
        ]
        rate = {name: sum(lengths) / taken for name, taken in seconds.items()}
        for name, value in rate.items():
            rows.append([kind, name, f"{value / 1e3:,.1f}k", f"{rate['packed'] / value:.2f}"])
    print(table(["encoder", "route", "pieces/s", "packed is so many times as fast"], rows) + "\n")
    publish(figures, settings.figures)


if __name__ == "__main__":
    main()
