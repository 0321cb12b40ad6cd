"""Objectives for sentence encoders, side by side: does language modeling teach one LSTM more than its rivals?

    python experiments/rival_objectives.py multi30k -o runs/ [--budget 3min] [--seeds 5]
    python experiments/rival_objectives.py documents -o runs/ [--words 380000]
    python experiments/rival_objectives.py table

`multi30k` pretrains by translation, as an autoencoder and as a language model on the English side of Multi30k's 29,000
training pairs; `documents` by skip-thoughts, as an autoencoder and as a language model on as many words of wiki-00 and
books-00, in the order of the documents. Each has the same budget of time. Then the frozen encoder is read out for TREC
and a sample of IMDb under a linear head (5 seeds), beside the same encoder with random weights. POLYSEME_DATA names the
folder of the data; results are kept in `experiments/results/rival_objectives/`. `--objectives` runs some of them, so
that several processes with output folders of their own can share the work; `random` goes with `autoencoder`, whose
shape it has.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

from sentence_encoders import RANDOM, Encoders, itself, keep, markdown, neighbors, sentences_of, transfer
from tables import data_folder, lines_of

RESULTS = Path(__file__).parent / "results" / "rival_objectives"
SETS = {
    "multi30k": ("translation", "autoencoder", "language-model", RANDOM),
    "documents": ("skip-thoughts", "autoencoder", "language-model", RANDOM),
}
TASKS = ("trec", "imdb")
CORPUS = ("wiki-00.txt.xz", "books-00.txt.xz")


def pretrain_multi30k(encoders: Encoders, limit: int | None) -> None:
    folder = data_folder() / "multi30k"
    english, german = (lines_of(folder / f"train.{side}")[:limit] for side in ("en", "de"))
    encoders.tokenizers([*english, *german])
    encoders.pretrain("translation", pairs=list(zip(english, german, strict=True)))
    encoders.pretrain("autoencoder", pairs=itself(english))
    encoders.pretrain("language-model", lines=english)


def pretrain_documents(encoders: Encoders, words: int) -> None:
    documents: list[list[str]] = []
    for name in CORPUS:  # half of the words from each
        with lzma.open(data_folder().parent / "corpus" / name, "rt", encoding="utf-8") as file:
            documents += sentences_of(file.read().split("\n\n"), words // len(CORPUS))
    lines = [sentence for document in documents for sentence in document]
    encoders.tokenizers(lines)
    encoders.pretrain("skip-thoughts", pairs=neighbors(documents))
    encoders.pretrain("autoencoder", pairs=itself(lines))
    encoders.pretrain("language-model", lines=[" ".join(document) for document in documents])


def main() -> None:
    """Pretrain and transfer one set, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=(*SETS, "table"))
    parser.add_argument("-o", "--output", type=Path, default=Path("runs"))
    parser.add_argument("--budget", default="3min")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument(
        "--words", type=int, default=380_000, help="of documents: as many as Multi30k's English side has"
    )
    parser.add_argument("--limit", type=int, help="pairs of multi30k, to try the script out")
    parser.add_argument("--objectives", nargs="+", choices=sorted({*SETS["multi30k"], *SETS["documents"]}))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.set != "table":
        chosen = options.objectives or SETS[options.set]
        if RANDOM in chosen and "autoencoder" not in chosen:
            parser.error("random weights have the shape of the autoencoder: name both")
        encoders = Encoders(
            options.output / options.set,
            objectives=chosen,
            budget=options.budget,
            width=options.width,
            device=options.device,
        )
        if options.set == "multi30k":
            pretrain_multi30k(encoders, options.limit)
        else:
            pretrain_documents(encoders, options.words)
        if RANDOM in chosen:
            encoders.random_start("autoencoder")
        for objective in chosen:
            for task in options.tasks:
                settings = {"seeds": options.seeds, "device": options.device, "epochs": options.epochs}
                result = transfer(encoders.run(objective), task, frozen=True, **settings)
                keep(options.results, f"{options.set} {task}.{objective}", result)
    for name, rows in SETS.items():
        print(f"\n{markdown(options.results, rows, [f'{name} {task}' for task in TASKS])}")


if __name__ == "__main__":
    main()
