"""The bottleneck: translation through one vector, with attention, by a Transformer; BLEU by the length of the source.

    python experiments/seq2seq.py row none -o runs/              # one row each: none, attention, transformer
    python experiments/seq2seq.py row attention -o runs/ --draw attention.svg
    python experiments/seq2seq.py row transformer -o runs/
    python experiments/seq2seq.py table [--draw docs/assets/bottleneck.svg]

A row trains on Multi30k, English to German (POLYSEME_DATA names the data folder), translates the test set of 2016 with
a beam, and writes its figures to experiments/results/seq2seq/ROW-seedN.json: BLEU by sacrebleu of the whole set and of
five parts of equally many sentences by the words of their sources, and the cost. The table prints all rows and draws
BLEU by length.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import sacrebleu
from matplotlib import pyplot as plt
from tables import data_folder, lines_of, machine, table
from translation import TEST, draw, train, translate

import polyseme
from polyseme.corpus.corpus import Corpus

RESULTS = Path(__file__).parent / "results" / "seq2seq"
ROWS: dict[str, tuple[str, str]] = {
    "none": ("seq2seq", "LSTM, last state only"),
    "attention": ("seq2seq-attention", "LSTM with attention"),
    "transformer": ("transformer-tiny", "Transformer"),
}
"""Row → recipe, and its name in the table."""
N_PARTS = 5


def figures(run: Path, output: Path, beam: int) -> dict[str, Any]:
    """BLEU of all translations and by length of their sources, the held-out loss and the cost."""
    sources, references = (lines_of(data_folder() / "multi30k" / f"{TEST}.{side}") for side in ("en", "de"))
    hypotheses = output.read_text(encoding="utf-8").splitlines()
    if len(hypotheses) != len(references):
        raise SystemExit(f"{output} has {len(hypotheses)} lines, but there are {len(references)} references.")
    bleu = sacrebleu.metrics.BLEU()
    score = bleu.corpus_score(hypotheses, [references]).score
    words = np.array([len(source.split()) for source in sources])
    parts = []
    for part in np.array_split(np.argsort(words, kind="stable"), N_PARTS):
        texts = [[side[n] for n in part.tolist()] for side in (hypotheses, references)]
        lengths = words[part]
        of_part = sacrebleu.metrics.BLEU().corpus_score(texts[0], [texts[1]]).score
        parts.append(
            {"first": int(lengths.min()), "last": int(lengths.max()), "mean": float(lengths.mean()), "bleu": of_part}
        )
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = [line["held_out"]["loss"] for line in log if "held_out" in line]
    ledger = json.loads((run / "ledger.json").read_text())
    return {
        "bleu": score,
        "signature": str(bleu.get_signature()),
        "beam": beam,
        "by_length": parts,
        "held_out": {"last": losses[-1], "lowest": min(losses)},
        "unigram_entropy": Corpus.open(run / "corpus").unigram_entropy("held"),
        "cost": {name: ledger[name] for name in ("steps", "pieces", "seconds", "flops", "kwh", "device")},
        "machine": machine("sacrebleu"),
    }


def row(settings: argparse.Namespace) -> None:
    """Train one row, translate, and write its figures."""
    recipe, _ = ROWS[settings.row]
    folder = settings.output / f"{settings.row}-seed{settings.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "ende.run"
    if not settings.translate_only:
        more = dict(each.split("=", 1) for each in settings.set)
        shape = {name: json.loads(value) if value[:1].isdigit() else value for name, value in more.items()}
        options = {"batch_size": settings.batch_size, "vocab_size": settings.vocab_size, "shape": shape or None}
        chosen = {name: value for name, value in options.items() if value is not None}
        run = train(folder, settings.budget, settings.device, recipe=recipe, seed=settings.seed, **chosen)
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
    output = translate(run, folder, settings.beam, settings.device)
    found = {"row": settings.row, "recipe": recipe, "seed": settings.seed, **figures(run, output, settings.beam)}
    settings.results.mkdir(parents=True, exist_ok=True)
    path = settings.results / f"{settings.row}-seed{settings.seed}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    by_length = ", ".join(f"{part['first']}–{part['last']}: {part['bleu']:.1f}" for part in found["by_length"])
    print(f"{settings.row}: BLEU {found['bleu']:.1f} ({by_length}) → {path}")
    if settings.draw is not None:
        [source], [target] = lines_of(folder / f"{TEST}.en")[:1], lines_of(output)[:1]
        draw(polyseme.load(run, device="cpu"), source, target, settings.draw)


def print_table(settings: argparse.Namespace) -> None:
    """Print all rows, the mean over seeds each, and draw BLEU by length."""
    found = defaultdict(list)
    for path in sorted(settings.results.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found[result["row"]].append(result)
    if not found:
        raise SystemExit(f"{settings.results} holds no results. Run rows first: python experiments/seq2seq.py row none")
    present = [name for name in ROWS if name in found]
    parts = found[present[0]][0]["by_length"]
    heads = [f"{part['first']}–{part['last']} words" for part in parts]
    lines, curves = [], {}
    for name in present:
        results = found[name]
        curves[name] = [fmean(each["by_length"][number]["bleu"] for each in results) for number in range(len(parts))]
        costs = [each["cost"] for each in results]
        lines.append(
            (
                ROWS[name][1],
                f"{fmean(each['bleu'] for each in results):.1f}",
                *(f"{value:.1f}" for value in curves[name]),
                f"{fmean(each['held_out']['last'] for each in results):.3f}",
                f"{fmean(each['steps'] for each in costs):,.0f}",
                f"{fmean(each['seconds'] for each in costs):.0f}",
                f"{fmean(each['kwh'] for each in costs):.4f}",
                str(len(results)),
            )
        )
    print(table(("", "BLEU", *heads, "held-out loss", "steps", "seconds", "kWh", "seeds"), lines))
    print(f"\n{found[present[0]][0]['signature']}; trained on {found[present[0]][0]['cost']['device']}")
    if settings.draw is not None:
        draw_lengths(parts, curves, settings.draw)


def draw_lengths(parts: list[dict[str, Any]], curves: dict[str, list[float]], picture: Path) -> None:
    """BLEU against the words of the source, one curve for each row."""
    figure, axis = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for name, values in curves.items():
        axis.plot([part["mean"] for part in parts], values, marker="o", label=ROWS[name][1])
    axis.set_xlabel("words of the source (means of fifths of the test set)")
    axis.set_ylabel("BLEU")
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)


def main() -> None:
    """One row, or the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("row", help="train and evaluate one row")
    one.add_argument("row", choices=list(ROWS))
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--budget", default="3min")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--beam", type=int, default=4)
    one.add_argument("--device", default="auto")
    one.add_argument("--batch-size", type=int)
    one.add_argument("--vocab-size", type=int)
    one.add_argument("--set", action="append", default=[], help="a change of the encoder's config: width=64")
    one.add_argument("--translate-only", action="store_true", help="use the existing run")
    one.set_defaults(run=row)
    whole = commands.add_parser("table", help="print all rows, draw BLEU by length")
    whole.set_defaults(run=print_table)
    for command in (one, whole):
        command.add_argument("--results", type=Path, default=RESULTS)
        command.add_argument("--draw", type=Path, help="an .svg or .png: a row's attention, or BLEU by length")
    settings = parser.parse_args()
    settings.run(settings)


if __name__ == "__main__":
    main()
