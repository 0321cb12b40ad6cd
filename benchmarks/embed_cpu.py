"""Word vectors on the CPU: polyseme beside the `transformers` pipeline and sentence-transformers, same model, same run.

2,000 sentences of UD-EWT with MiniLM (6 × 384). The peers run in fp32, not compiled, in the order of the input (which
sentence-transformers sorts by length) and the pipeline also sorted by length; with --compiled sentence-transformers
runs compiled, too. polyseme runs in fp32 and, where the processor has instructions for them, in bf16 and int8, with the
cosine to fp32. Runs alternate; medians, with the processor's time beside. The share of the matrix-product peak counts
real pieces only, those of a repeated text once, against the fastest packed fp32 product of the same run.
`--sentences 500 --rounds 3` is a load of two minutes. ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 measures what a
processor without AVX-512 would do.

    POLYSEME_DATA=... python benchmarks/embed_cpu.py [--sentences 2000] [--rounds 5] [--model minilm] [--compiled]
                                                     [--all-dtypes] [--batches 1 8 32] [--figures FILE]
"""

from __future__ import annotations

import argparse
import logging
import lzma
import os
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from measure import (
    Figure,
    add_figures_option,
    alternate,
    data_folder,
    machine,
    need,
    publish,
    ratio,
    table,
)

import polyseme
from polyseme.convert.hub import find_model
from polyseme.cost import forward_flops
from polyseme.parts import quantized_linear
from polyseme.parts.inference_linear import Product

OURS = "polyseme, every word"
PIPELINE = "transformers pipeline"
SENTENCES = "sentence-transformers"
FLOORS = {"AVX2": (2.9, 1.8), "AVX512": (3.2, 2.1)}
"""By instruction set: the least expected speed, as multiples of the pipeline's and of sentence-transformers'."""


def sentences(count: int) -> list[str]:
    """Sentences of mixed length, in the treebank's order."""
    path = data_folder("tasks", "ud-ewt") / "en_ewt-ud-train.conllu.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        texts = [line[len("# text = ") :].strip() for line in file if line.startswith("# text = ")]
    return texts[:count]


def peak(rounds: int = 15) -> float:
    """FLOP/s of the best packed fp32 product among the model's shapes and larger ones."""
    best = 0.0
    for width, inner in ((384, 1152), (384, 1536), (1536, 384), (1024, 1024), (2048, 2048)):
        for rows in (1024, 2048, 4096):
            x = torch.randn(rows, width)
            product = Product(torch.nn.Linear(width, inner))
            product.pack(rows)
            times = []
            with torch.inference_mode():
                for _ in range(rounds):
                    started = time.perf_counter()
                    product(x)
                    times.append(time.perf_counter() - started)
            best = max(best, 2.0 * rows * width * inner / statistics.median(times))
    return best


def figures_of(every: Mapping[str, Sequence[float]], capability: str, notes: Mapping[str, str]) -> list[Figure]:
    """The ratios to report.

    Args:
        every: the seconds of each route in each round.
        capability: the instruction set, which decides the floors.
        notes: cosines to fp32, by dtype.
    """
    of_pipeline, of_sentences = FLOORS.get(capability, (None, None))

    def best(name: str, *, tuned: bool) -> str:
        """The fastest route of a peer: as it comes, or with its rows sorted or its model compiled."""
        routes = [each for each in every if each.startswith(name) and ("sorted" in each or "compiled" in each) == tuned]
        return min(routes, key=lambda each: statistics.median(every[each]), default="")

    rows = [
        (best(PIPELINE, tuned=False), of_pipeline),
        (best(PIPELINE, tuned=True), None),
        (best(SENTENCES, tuned=False), of_sentences),
        (best(SENTENCES, tuned=True), None),
    ]
    what = f"embed every word, fp32, {capability}"
    figures = [ratio(every, peer, OURS, what=what, peer=peer, floor=floor) for peer, floor in rows if peer]
    for dtype, note in notes.items():
        what = f"embed every word, {dtype}"
        figures.append(ratio(every, OURS, f"{OURS}, {dtype}", what=what, peer="polyseme, fp32", note=note))
    return figures


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--compiled", action="store_true", help="also run sentence-transformers compiled")
    parser.add_argument(
        "--all-dtypes", action="store_true", help="also run bf16 and int8 on processors without instructions for them"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="batch sizes of the pipeline")
    add_figures_option(parser)
    settings = parser.parse_args()
    need("transformers", "sentence_transformers")
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.WARNING)

    from sentence_transformers import SentenceTransformer
    from transformers import pipeline

    folder = str(find_model(settings.model))
    texts = sentences(settings.sentences)
    model = polyseme.load(folder, device="cpu")
    encoded = [model.pieces(text).ids for text in texts]
    n_pieces = sum(map(len, encoded))
    distinct = {tuple(ids): len(ids) for ids in encoded}  # a repeated text is computed once
    flops = forward_flops(model.bundle.config, distinct.values())

    extract = pipeline("feature-extraction", model=folder, device="cpu", dtype=torch.float32)
    sentence_model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    runs = {
        f"{PIPELINE}, input order, batches of {size}": lambda size=size: extract(texts, batch_size=size)
        for size in settings.batches
    }
    by_length = sorted(texts, key=len)
    runs[f"{PIPELINE}, sorted by length, batches of 32"] = lambda: extract(by_length, batch_size=32)
    runs[f"{SENTENCES}, token embeddings"] = lambda: sentence_model.encode(
        texts, output_value="token_embeddings", show_progress_bar=False
    )
    runs[f"{SENTENCES}, sentence vectors"] = lambda: sentence_model.encode(texts, show_progress_bar=False)
    if settings.compiled:
        compiled_model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
        compiled_model[0].auto_model.compile(dynamic=True)
        runs[f"{SENTENCES}, sentence vectors, compiled"] = lambda: compiled_model.encode(texts, show_progress_bar=False)
    runs[OURS] = lambda: model.embed(texts)
    fast = {"bf16": quantized_linear.bf16_is_fast(), "int8": quantized_linear.int8_is_fast()}
    reduced = {
        dtype: polyseme.load(folder, device="cpu", dtype=dtype)
        for dtype, is_fast in fast.items()
        if is_fast or settings.all_dtypes
    }
    for dtype, each in reduced.items():
        runs[f"{OURS}, {dtype}"] = lambda each=each: each.embed(texts)
    processor: dict[str, float] = {}
    every: dict[str, list[float]] = {}
    seconds = alternate(runs, settings.rounds, processor=processor, every=every)

    ours = seconds[OURS]
    print(machine("torch", "transformers", "sentence-transformers"))
    print(f"{len(texts):,} sentences, {n_pieces:,} pieces, medians of {settings.rounds} alternating runs\n")
    rows = [
        [name, f"{taken:.2f}", f"{processor[name]:.2f}", f"{n_pieces / taken:,.0f}", f"{taken / ours:.2f}"]
        for name, taken in seconds.items()
    ]
    print(table(["route", "seconds", "of processor", "pieces/s", "× polyseme's time"], rows))
    highest = peak()
    print(
        f"\npolyseme: {flops / ours / 1e9:.0f} GFLOP/s, {flops / ours / highest:.0%} of the best packed product "
        f"({highest / 1e9:.0f} GFLOP/s)"
    )
    exact = np.concatenate([document.vectors for document in model.embed(texts)])
    notes = {}
    for dtype, each in reduced.items():
        near = np.concatenate([document.vectors for document in each.embed(texts)])
        cosines = (near * exact).sum(1) / np.linalg.norm(near, axis=1) / np.linalg.norm(exact, axis=1)
        notes[dtype] = f"cosine to fp32 mean {cosines.mean():.5f}, min {cosines.min():.4f}"
        if not fast[dtype]:
            notes[dtype] += " (this processor has no instructions for it)"
    print()
    publish(figures_of(every, torch.backends.cpu.get_cpu_capability(), notes), settings.figures)


if __name__ == "__main__":
    main()
