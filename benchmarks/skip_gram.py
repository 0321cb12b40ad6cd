"""Skip-gram with negative sampling beside gensim's: words per second, and correlations with judgments of similarity.

    POLYSEME_DATA=… python benchmarks/skip_gram.py TEXTS... [--rounds 1] [--epochs 5] [--threads 2]

Both read the same words, those of the corpus that polyseme builds of the texts (lower case, words that occur five times
at least), with the same settings: width 100, window 5, 5 noise words, subsampling at 1e-3, 5 epochs from a rate of
0.025. Rounds alternate, each with another seed. Seconds are those of training alone, after both have their vocabulary;
polyseme's include its checkpoints and evaluations. Spearman's correlations of cosines are with the ratings of SCWS and
CoSimLex (the mean of a pair's two contexts) in POLYSEME_DATA/tasks.
"""

from __future__ import annotations

import argparse
import logging
import lzma
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gensim.models import Word2Vec
from measure import machine, table
from scipy.stats import spearmanr

from polyseme.bundle import load_bundle
from polyseme.corpus.corpus import Corpus
from polyseme.verbs.corpus import build_corpus
from polyseme.verbs.pretrain import pretrain

COLUMNS = {"scws/ratings.txt.xz": (1, 3, (7,), 0), "cosimlex/cosimlex_en.tsv.xz": (0, 1, (4, 5), 1)}
"""The two words, the ratings, and the lines of a head."""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    logging.disable(logging.INFO)
    rows: dict[str, list[list[float]]] = {"polyseme": [], "gensim": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        options: dict[str, Any] = {"tokenizer": "words", "frame": "lm", "lowercase": True, "min_count": 5}
        corpus = build_corpus(settings.texts, output=folder / "corpus", vocab_size=400_000, **options)
        n_words = write_lines(corpus, folder / "lines.txt")
        for seed in range(settings.rounds):
            for name, train in (("polyseme", ours), ("gensim", theirs)):
                rows[name].append(train(folder, n_words, settings, seed))
                print(name, seed, [f"{each:.4g}" for each in rows[name][-1]], flush=True)
    print(machine("gensim", "torch"))
    print(f"{n_words:,} words of training text, {settings.epochs} epochs, medians of {settings.rounds}\n")
    medians = {name: [statistics.median(each) for each in zip(*rows[name], strict=True)] for name in rows}
    head = ["library", "seconds", "CPU seconds", "words/s", "times gensim's", "SCWS", "CoSimLex"]
    lines = [
        [
            name,
            f"{seconds:.0f}",
            f"{cpu:.0f}",
            f"{settings.epochs * n_words / seconds:,.0f}",
            f"{medians['gensim'][0] / seconds:.2f}",
            *(f"{each:.3f}" for each in correlations),
        ]
        for name, (seconds, cpu, *correlations) in medians.items()
    ]
    print(table(head, lines))


def write_lines(corpus: Corpus, path: Path) -> int:
    """The training text as lines of words, one per document, without unknown words; how many words there are."""
    names, special = corpus.tokenizer.pieces(range(corpus.tokenizer.n_pieces)), set(corpus.tokenizer.specials.values())
    n_words = 0
    with path.open("w", encoding="utf-8") as file:
        for shard in corpus.shards("train"):
            for document in np.split(np.asarray(shard.pieces), shard.ends[:-1]):
                words = [names[piece] for piece in document.tolist() if piece not in special]
                n_words += len(words)
                file.write(" ".join(words) + "\n")
    return n_words


def ours(folder: Path, n_words: int, settings: argparse.Namespace, seed: int) -> list[float]:
    """Seconds, CPU seconds, and the two correlations."""
    cpu = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        bill: Any = pretrain(
            folder / "corpus",
            recipe="skip-gram",
            output=folder / "run",
            budget=f"{settings.epochs}epochs",
            seed=seed,
            device="cpu",
            force=True,
        )
    cpu = time.process_time() - cpu
    bundle: Any = load_bundle(folder / "run")
    return [bill.seconds, cpu, *scores(bundle.tokenizer.words, bundle.encoder.table.detach().numpy())]


def theirs(folder: Path, n_words: int, settings: argparse.Namespace, seed: int) -> list[float]:
    """The same of gensim, which reads the lines of a file by several threads."""
    model = Word2Vec(vector_size=100, sg=1, min_count=1, workers=settings.threads, seed=seed + 1)
    model.build_vocab(corpus_file=str(folder / "lines.txt"))
    began, cpu = time.perf_counter(), time.process_time()
    amounts = {"total_words": model.corpus_total_words, "total_examples": model.corpus_count}
    model.train(corpus_file=str(folder / "lines.txt"), epochs=settings.epochs, **amounts)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return [seconds, cpu, *scores(model.wv.index_to_key, model.wv.vectors)]


def scores(words: Sequence[str], vectors: Any) -> list[float]:
    """Spearman's correlation of cosines with the ratings of each set, over the pairs whose words are known."""
    rows = {word: row for row, word in enumerate(words)}
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    results = []
    for name, (one, other, ratings, n_head) in COLUMNS.items():
        with lzma.open(Path(os.environ["POLYSEME_DATA"], "tasks", name), "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file][n_head:]
        known = [line for line in lines if {line[one].lower(), line[other].lower()} <= rows.keys()]
        cosines = [float(units[rows[line[one].lower()]] @ units[rows[line[other].lower()]]) for line in known]
        rated = [statistics.fmean(float(line[rating]) for rating in ratings) for line in known]
        results.append(float(spearmanr(cosines, rated).statistic))
    return results


if __name__ == "__main__":
    main()
