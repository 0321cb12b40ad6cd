"""All of BLiMP (67,000 pairs) with a causal and a masked model: the time it takes, and the accuracy per paradigm.

Models are given, or have random weights in the sizes of GPT-2 small and BERT base, with their vocabularies: that shows
the speed, with accuracies near chance. On a GPU in bf16 unless --dtype says otherwise; on a CPU 670 pairs unless
--pairs says otherwise. With --exact, 2,000 pairs are also scored in fp32, and the difference is printed.

    POLYSEME_DATA=… python benchmarks/score.py [--causal PATH] [--masked PATH] [--paradigms] [--pairs 67000]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from measure import data_folder, machine, table

from polyseme.api import DTYPES, Model, load
from polyseme.bundle import new_bundle
from polyseme.convert.families import FAMILIES
from polyseme.datasets import minimal_pairs as blimp
from polyseme.datasets.benchmark import find_data
from polyseme.datasets.minimal_pairs import PairSet
from polyseme.metrics.pair_accuracy import pair_figures
from polyseme.parts.device import find_device
from polyseme.recipes.published_sizes import get_size
from polyseme.scoring.benchmark_items import PairScores, score_pairs
from polyseme.scoring.choose_scorer import scorer_of
from polyseme.scoring.scorer import Scorer
from polyseme.text.tokenizer_files import load_tokenizer

RANDOM = {"causal": ("gpt2", "gpt2", "gpt2"), "masked": ("bert", "bert-base", "bert-base-uncased")}
"""Family, size and vocabulary of the random models that are used if none is given."""

PAIRS_ON_CPU = 670
"""Scored on a CPU where nothing else is asked for: ten of each paradigm."""


def random_model(kind: str, data: Path, device: str, dtype: str) -> Model:
    """A model of a published size with random weights."""
    family, size, vocabulary = RANDOM[kind]
    tokenizer = load_tokenizer(data / "vocab" / vocabulary, frame=FAMILIES[family].frame)
    config = get_size(size).config.replace(n_pieces=tokenizer.n_pieces)
    torch.manual_seed(0)
    bundle = new_bundle(FAMILIES[family], config, [kind], tokenizer)
    return Model(bundle.to(device=device, dtype=DTYPES[dtype]).eval(), path=f"random {size}")


def scored(model: Model, sets: list[PairSet], hide: str, batch_pieces: int | None) -> tuple[Scorer, PairScores, float]:
    """The scores of all pairs, and the seconds they took, including tokenization."""
    scorer = scorer_of(model.bundle, hide=hide, batch_pieces=batch_pieces, precision=model.precision)
    if scorer.device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    [scores] = score_pairs(scorer, sets)
    return scorer, scores, time.perf_counter() - started


def main() -> None:
    """Score and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--causal", help="a model folder (default: random weights)")
    parser.add_argument("--masked", help="a model folder (default: random weights)")
    parser.add_argument("--only", choices=["causal", "masked"])
    parser.add_argument("--hide", nargs="+", default=["word", "piece"], help="for the masked model")
    parser.add_argument(
        "--pairs", type=int, help="score about this many pairs, evenly spaced (default: all, on a CPU 670)"
    )
    parser.add_argument("--batch-pieces", type=int)
    parser.add_argument("--dtype", default="bf16" if torch.cuda.is_available() else "fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--paradigms", action="store_true", help="print the accuracy of each paradigm")
    parser.add_argument("--exact", action="store_true", help="also score 2,000 pairs in fp32 and compare")
    options = parser.parse_args()
    data = data_folder()
    device = find_device(options.device)
    n_pairs = options.pairs or (PAIRS_ON_CPU if torch.device(device).type == "cpu" else None)

    started = time.perf_counter()
    [every] = blimp.read_blimp(find_data(data, "blimp", blimp.FILES))
    print(f"{machine('torch', 'tokenizers')}; read in {time.perf_counter() - started:.1f} s\n")
    step = 1 if n_pairs is None else max(len(every.pairs) // n_pairs, 1)
    sets = [PairSet(every.name, every.levels, every.pairs[::step])]

    rows, results = [], {}
    for kind in ("causal", "masked"):
        if options.only not in (None, kind):
            continue
        for hide in ["word"] if kind == "causal" else options.hide:
            named = getattr(options, kind)
            dtype = options.dtype
            model = load(named, device=device, dtype=dtype) if named else random_model(kind, data, device, dtype)
            scored(model, [PairSet(every.name, every.levels, sets[0].pairs[:500])], hide, options.batch_pieces)
            scorer, scores, seconds = scored(model, sets, hide, options.batch_pieces)
            figures = pair_figures(sets, [scores])
            results[f"{model.path}, {scorer.description}"] = figures
            differs = ""
            if options.exact and dtype != "fp32":
                full = load(named, device=device) if named else random_model(kind, data, device, "fp32")
                few = [PairSet(every.name, every.levels, sets[0].pairs[:: max(len(sets[0].pairs) // 2000, 1)])]
                half, whole = (
                    np.array([good - bad for good, bad in scored(each, few, hide, options.batch_pieces)[1]])
                    for each in (model, full)
                )
                differs = f"{np.abs(half - whole).mean():.4f} nats, {100 * ((half > 0) != (whole > 0)).mean():.2f}%"
            rows.append(
                [
                    Path(model.path).name,
                    scorer.description,
                    dtype,
                    f"{len(sets[0].pairs):,}",
                    f"{seconds:.1f}",
                    f"{scorer.tally.pieces / 1e6:.2f}M",
                    f"{scorer.tally.pieces / seconds / 1e6:.2f}M",
                    f"{scorer.tally.flops / seconds / 1e12:.1f}",
                    f"{100 * (figures['all']['accuracy'] or 0):.1f}",
                    differs,
                ]
            )
    head = [
        "model",
        "scoring",
        "dtype",
        "pairs",
        "seconds",
        "pieces",
        "pieces/s",
        "TFLOP/s",
        "BLiMP",
        "difference to fp32, changed verdicts",
    ]
    print(table(head, rows))
    levels = ("field", "paradigm") if options.paradigms else ("field",)
    lines = [line for line in next(iter(results.values())).lines if line.level in levels]
    figures = [
        [f"**{line.name}**" if line.level == "field" else line.name, f"{line.n:,}"]
        + [f"{100 * (each.lines[number].figures['accuracy'] or 0):.1f}" for each in results.values()]
        for number, line in enumerate(next(iter(results.values())).lines)
        if line in lines
    ]
    print("\n" + table(["paradigm", "pairs", *results], figures))


if __name__ == "__main__":
    main()
