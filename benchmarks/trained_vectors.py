"""Static vectors trained by our recipes beside gensim's: words per second, and correlations with rated similarity.

    POLYSEME_DATA=… python benchmarks/trained_vectors.py [TEXTS...] [--recipes skip-gram cbow fasttext glove]
        [--rounds 1] [--epochs 5] [--threads 2] [--buckets 2000000] [--figures FILE]

Without TEXTS, wiki-00.txt.xz of POLYSEME_DATA/corpus is read.

Both read the same words, those of the corpus that polyseme builds of the texts (lower case, words that occur five times
at least), with the settings of the recipe: width 100, window 5, 5 noise words, and of each its rate and subsampling.
GloVe, which gensim does not have, is trained for its own 25 epochs of pairs. Rounds alternate, each with another seed.
Seconds are those of training alone, after both have their vocabulary; polyseme's include its checkpoints and
evaluations. CPU seconds are less disturbed by other work on the machine. Spearman's correlations of cosines are with
the ratings of SCWS and CoSimLex (the mean of a pair's two contexts) in POLYSEME_DATA/tasks.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Figure, add_figures_option, data_folder, machine, need, publish, ratio, table

import polyseme
from polyseme.corpus.corpus import Corpus
from polyseme.verbs.corpus import build_corpus
from polyseme.verbs.pretrain import pretrain

COLUMNS = {"scws/ratings.txt.xz": (1, 3, (7,), 0), "cosimlex/cosimlex_en.tsv.xz": (0, 1, (4, 5), 1)}
"""The two words, the ratings, and the lines of a head."""
GENSIM: Mapping[str, Callable[..., Any]] = {
    "skip-gram": lambda **more: models().Word2Vec(sg=1, alpha=0.025, sample=1e-3, **more),
    "cbow": lambda **more: models().Word2Vec(sg=0, alpha=0.05, sample=1e-3, **more),
    "fasttext": lambda **more: models().FastText(
        sg=1, alpha=0.05, sample=1e-4, ns_exponent=0.5, min_n=3, max_n=6, **more
    ),
}


def models() -> Any:
    """Gensim's classes."""
    import gensim.models

    return gensim.models


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--recipes", nargs="+", default=["skip-gram"], choices=[*GENSIM, "glove"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--buckets", type=int, default=2_000_000)
    add_figures_option(parser)
    settings = parser.parse_args()
    need("gensim", "scipy")
    texts = settings.texts or [data_folder("corpus") / "wiki-00.txt.xz"]
    for name in COLUMNS:
        data_folder("tasks", name)
    torch.set_num_threads(settings.threads)
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        options: dict[str, Any] = {"tokenizer": "words", "frame": "lm", "lowercase": True, "min_count": 5}
        corpus = build_corpus(texts, output=folder / "corpus", vocab_size=400_000, **options)
        n_words = write_lines(corpus, folder / "lines.txt")
        lines = [line for recipe in settings.recipes for line in lines_of(recipe, folder, n_words, settings)]
    print(machine("gensim", "torch"))
    print(f"{n_words:,} words of training text, {settings.epochs} epochs, medians of {settings.rounds}\n")
    head = ["recipe", "library", "seconds", "CPU seconds", "words/s", "times gensim's", "SCWS", "CoSimLex"]
    print(table(head, lines))


def lines_of(recipe: str, folder: Path, n_words: int, settings: argparse.Namespace) -> list[list[str]]:
    """Of the table: polyseme and gensim, where that has the recipe."""
    routes = {"polyseme": ours, **({"gensim": theirs} if recipe in GENSIM else {})}
    rows: dict[str, list[list[float]]] = {name: [] for name in routes}
    for seed in range(settings.rounds):
        for name, train in routes.items():
            rows[name].append(train(recipe, folder, settings, seed))
            print(recipe, name, seed, [f"{each:.4g}" for each in rows[name][-1]], flush=True)
    if "gensim" in routes:
        publish([figure_of(recipe, rows)], settings.figures)
    medians = {name: [statistics.median(each) for each in zip(*rows[name], strict=True)] for name in rows}
    return [
        [
            recipe,
            name,
            f"{seconds:.0f}",
            f"{cpu:.0f}",
            f"{settings.epochs * n_words / seconds:,.0f}" if recipe in GENSIM else "",
            f"{medians['gensim'][0] / seconds:.2f}" if recipe in GENSIM else "",
            *(f"{each:.3f}" for each in correlations),
        ]
        for name, (seconds, cpu, *correlations) in medians.items()
    ]


def figure_of(recipe: str, rows: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """The ratio of seconds, with the correlations, of what each library's rounds gave."""
    every = {name: [row[0] for row in each] for name, each in rows.items()}
    cpu, scws, cosimlex = (
        {name: statistics.median(row[column] for row in each) for name, each in rows.items()} for column in (1, 2, 3)
    )
    note = (
        f"SCWS {scws['polyseme']:.3f} and {scws['gensim']:.3f}, CoSimLex {cosimlex['polyseme']:.3f} and "
        f"{cosimlex['gensim']:.3f}; CPU time {cpu['polyseme'] / cpu['gensim']:.2f} × gensim's"
    )
    return ratio(every, "gensim", "polyseme", what=f"train {recipe} vectors", peer="gensim", note=note)


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


def ours(recipe: str, folder: Path, settings: argparse.Namespace, seed: int) -> list[float]:
    """Seconds, CPU seconds, and the two correlations."""
    cpu = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        bill: Any = pretrain(
            folder / "corpus",
            recipe=recipe,
            output=folder / "run",
            budget=None if recipe == "glove" else f"{settings.epochs}epochs",
            shape={"width": 100, **({"n_buckets": settings.buckets} if recipe == "fasttext" else {})},
            seed=seed,
            device="cpu",
            force=True,
        )
    cpu = time.process_time() - cpu
    model: Any = polyseme.load(folder / "run")
    known = set(model.bundle.tokenizer.words)
    return [bill.seconds, cpu, *scores(known, lambda word: model.embed([word])[0].vectors[0])]


def theirs(recipe: str, folder: Path, settings: argparse.Namespace, seed: int) -> list[float]:
    """The same of gensim, which reads the lines of a file by several threads."""
    more = {"bucket": settings.buckets} if recipe == "fasttext" else {}
    model = GENSIM[recipe](vector_size=100, min_count=1, workers=settings.threads, seed=seed + 1, **more)
    model.build_vocab(corpus_file=str(folder / "lines.txt"))
    began, cpu = time.perf_counter(), time.process_time()
    amounts = {"total_words": model.corpus_total_words, "total_examples": model.corpus_count}
    model.train(corpus_file=str(folder / "lines.txt"), epochs=settings.epochs, **amounts)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return [seconds, cpu, *scores(set(model.wv.index_to_key), lambda word: model.wv[word])]


def scores(known: set[str], vector: Callable[[str], Any]) -> list[float]:
    """Spearman's correlation of cosines with the ratings of each set, over the pairs whose words are known."""
    from scipy.stats import spearmanr

    results = []
    for name, (one, other, ratings, n_head) in COLUMNS.items():
        with lzma.open(Path(os.environ["POLYSEME_DATA"], "tasks", name), "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file][n_head:]
        pairs = [(line[one].lower(), line[other].lower(), line) for line in lines]
        pairs = [pair for pair in pairs if {*pair[:2]} <= known]
        vectors = {word: vector(word) for word in {word for pair in pairs for word in pair[:2]}}
        cosines = [cosine(vectors[first], vectors[second]) for first, second, _ in pairs]
        rated = [statistics.fmean(float(line[rating]) for rating in ratings) for *_, line in pairs]
        results.append(float(spearmanr(cosines, rated).statistic))
    return results


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two vectors; 0 where one is zero."""
    return float(np.dot(one, other) / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12))


if __name__ == "__main__":
    main()
