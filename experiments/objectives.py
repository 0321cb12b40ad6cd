"""Three objectives at one size and one budget: masked, replaced and causal, pretrained on the same text.

    python experiments/objectives.py TEXTS...|CORPUS -o runs/ [--budget 4min] [--only masked] [--keep-models]

Trains each with `polyseme.pretrain`, keeps its log and ledger, and prints a table. `--draw` makes the plot and the
table from what was kept:

    python experiments/objectives.py -o runs/ --draw docs/assets/objectives.svg

The objectives of the other Transformers, permuted (XLNet), denoising (BART) and spans (T5), each with its tiny recipe:

    python experiments/objectives.py TEXTS...|CORPUS -o runs/ --others --budget 2min --draw runs/others.svg
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

import polyseme
from polyseme.corpus.corpus import ABOUT, Corpus

SIZE = {"n_layers": 12, "width": 384, "n_heads": 6, "inner_width": 1536, "max_positions": 512}
NO_DROPOUT = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "embedding_dropout_rate": 0.0}
CAREFUL = {"learning_rate": 5e-4, "optimizer": "adamw", "warmup": 0.1}
"""A post-norm stack does not learn at the learning rate of a pre-norm one."""
RUNS: dict[str, dict[str, Any]] = {
    "masked": {"recipe": "bert-mini", "batch_size": 512, "length": 128, **CAREFUL},
    "replaced": {"recipe": "electra-small", "batch_size": 512, "length": 128, **CAREFUL},
    "causal": {"recipe": "gpt-tiny", "batch_size": 512, "length": 128, "learning_rate": 1e-3},
}
OTHERS: dict[str, dict[str, Any]] = {
    "permuted": {"recipe": "xlnet-tiny"},
    "denoising": {"recipe": "bart-tiny"},
    "spans": {"recipe": "t5-tiny"},
}
VOCAB_SIZE = 16384
PREDICTS = {"masked": "masked", "replaced": "masked", "causal": "causal", **{name: name for name in OTHERS}}
"""The part of the loss that predicts pieces: for the replaced objective, the generator's."""


def train(name: str, texts: list[str], folder: Path, budget: str, keep_models: bool) -> None:
    """One run; its log, its ledger and figures of its corpus are kept."""
    run = folder / f"{name}.run"
    shape = None if name in OTHERS else {**SIZE, **NO_DROPOUT}
    polyseme.pretrain(
        texts,
        output=run,
        budget=budget,
        vocab_size=None if (Path(texts[0]) / ABOUT).is_file() else VOCAB_SIZE,
        shape=shape,
        evaluate_every=250,
        workers=2,
        force=True,
        **{**RUNS, **OTHERS}[name],
    )
    own = run / "corpus"
    corpus = Corpus.open(own if own.is_dir() else texts[0])
    counts = corpus.counts("held")
    results = folder / name
    results.mkdir(exist_ok=True)
    for file in ("log.jsonl", "ledger.json", "run.json"):
        shutil.copy(run / file, results / file)
    about = {
        "unigram_entropy": corpus.unigram_entropy("held"),
        "train_pieces": corpus.n_pieces("train"),
        "held_pieces": counts.pieces,
        "held_bytes": counts.bytes,
    }
    (results / "corpus.json").write_text(json.dumps(about, indent=2) + "\n")
    if keep_models:
        for each in ("model", "generator"):
            if (run / each).is_dir():
                polyseme.load(run / each, dtype="bf16").save(results / each, shard_size=15_000_000, force=True)


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """What was kept of a run."""
    results = folder / name
    if not (results / "log.jsonl").is_file():
        return None
    log = [json.loads(line) for line in (results / "log.jsonl").read_text().splitlines()]
    files = {file: json.loads((results / f"{file}.json").read_text()) for file in ("ledger", "run", "corpus")}
    return {"log": log, **files}


def print_table(folder: Path) -> None:
    """Print held-out losses and costs."""
    runs = {name: run for name in PREDICTS if (run := read(folder, name)) is not None}
    _head("objective", "steps", "pieces read", "held-out loss", "predicting pieces", "unigram entropy", "bits per byte")
    for name, run in runs.items():
        last = [line for line in run["log"] if "held_out" in line][-1]
        predicted, corpus = last["held_out"][PREDICTS[name]], run["corpus"]
        bits = predicted / math.log(2) * corpus["held_pieces"] / corpus["held_bytes"]
        print(
            f"| {name} | {last['step']:,} | {last['pieces'] / 1e6:,.0f}M | {last['held_out']['loss']:.3f} | "
            f"{predicted:.3f} | {corpus['unigram_entropy']:.3f} | {f'{bits:.3f}' if name == 'causal' else ''} |"
        )
    print()
    _head("objective", "FLOPs", "seconds", "utilization", "kWh", "kg CO2e", "price")
    for name, run in runs.items():
        ledger = run["ledger"]
        share = ledger["flops"] / ledger["available_flops"] if ledger["available_flops"] else math.nan
        print(
            f"| {name} | {ledger['flops']:.2e} | {ledger['seconds']:.0f} | {share:.0%} | {ledger['kwh']:.4f} | "
            f"{ledger['kg_co2e']:.4f} | {ledger['price']:.3f} {ledger['currency']} |"
        )


def _head(*names: str) -> None:
    print(f"| {' | '.join(names)} |\n|{' --- |' * len(names)}")


def draw(folder: Path, path: str) -> None:
    """Curves of predicting pieces on held-out text, against pieces read and against the unigram entropy."""
    mpl.rcParams["svg.hashsalt"] = "polyseme"
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for name in PREDICTS:
        run = read(folder, name)
        if run is None:
            continue
        held = [line for line in run["log"] if "held_out" in line]
        losses = [line["held_out"][PREDICTS[name]] for line in held]
        label = f"{name} ({'generator' if name == 'replaced' else 'model'})"
        [line] = axes[0].plot([each["pieces"] / 1e6 for each in held], losses, marker=".", label=label)
        axes[1].plot([each["seconds"] for each in held], losses, marker=".", color=line.get_color())
        axes[0].axhline(run["corpus"]["unigram_entropy"], color=line.get_color(), linestyle=":", linewidth=1)
    axes[0].set(xlabel="pieces read (millions)", ylabel="held-out loss of predicting a piece (nats)")
    axes[1].set(xlabel="seconds")
    axes[0].legend(frameon=False, title="dotted: unigram entropy")
    figure.savefig(path)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--budget", default="4min")
    parser.add_argument("--only", choices=PREDICTS, action="append")
    parser.add_argument("--others", action="store_true", help="train the objectives of the other Transformers instead")
    parser.add_argument("--keep-models", action="store_true")
    parser.add_argument("--learning-rate", type=float, help="replaces the learning rates in this file")
    parser.add_argument("--draw", metavar="FILE")
    settings = parser.parse_args()
    settings.output.mkdir(parents=True, exist_ok=True)
    if settings.learning_rate is not None:
        for run in (*RUNS.values(), *OTHERS.values()):
            run["learning_rate"] = settings.learning_rate
    if settings.texts:
        for name in settings.only or (OTHERS if settings.others else RUNS):
            train(name, settings.texts, settings.output, settings.budget, settings.keep_models)
    print_table(settings.output)
    if settings.draw:
        draw(settings.output, settings.draw)


if __name__ == "__main__":
    main()
