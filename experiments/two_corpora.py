"""`polyseme compare` on corpora of which the truth is known: two halves of one corpus, and a planted change.

(1) Documents of Wikipedia are dealt into two halves, at random. No word differs between them but by chance: of all
words with at least 20 uses in each half, how many have p < 0.05? The test exchanges documents; beside it, the result if
single uses are exchanged, as if they were independent. Documents are dealt several times.

(2) In one half, the uses of 20 words are swapped in pairs: each is written where the other was. How many of the 20 are
found, at p < 0.05 and after the adjustment for all words compared?

The vectors are computed once and kept:

    POLYSEME_DATA=... python experiments/two_corpora.py --keep uses/ [--documents 800] [-m MODEL]
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tables import machine, table

import polyseme
from polyseme.two_corpora.measures import WordUsesVectors
from polyseme.two_corpora.significance import (
    LEVEL,
    MIN_GROUPS,
    PERMUTATIONS,
    Exchange,
    adjusted,
    observed,
    p_value,
    permuted,
)
from polyseme.two_corpora.use_samples import Samples, frequent_words, read_corpus, sampled_uses
from polyseme.word_senses.nearest_neighbors import unit
from polyseme.word_senses.sense_groups import group

SEED = 0
MIN_USES = 20
MAX_USES = 50
N_PLANTED = 20
DEALS = 20
"""How often the documents are dealt into halves."""
N_DRAWS = 199
"""Permutations of each word between halves: enough for the level of 0.05."""
WITH_SENSES = 200
"""Words of which JSD is tested, since clustering takes longest."""


def documents(n_documents: int) -> list[str]:
    path = Path(os.environ["POLYSEME_DATA"]) / "corpus" / "wiki-00.txt.xz"
    text = lzma.decompress(path.read_bytes()).decode()
    texts = [each for each in text.split("\n\n") if each.strip()]
    order = np.random.default_rng(SEED).permutation(len(texts))[:n_documents]
    return [texts[at] for at in order]


def embed(model: str | None, texts: Sequence[str], folder: Path) -> None:
    """Write uses of all frequent words, and those of the planted words, into a folder."""
    embedder = polyseme.load(model, device="cpu").embedder()
    middle = len(texts) // 2
    with tempfile.TemporaryDirectory() as temporary:
        first, second, changed = (Path(temporary) / name for name in ("first.txt", "second.txt", "changed.txt"))
        first.write_text("\n\n".join(texts[:middle]), encoding="utf-8")
        second.write_text("\n\n".join(texts[middle:]), encoding="utf-8")
        corpora = [read_corpus(each, {}) for each in (first, second)]
        words, _ = frequent_words(corpora, min_uses=MIN_USES, max_words=10**6)
        rng = np.random.default_rng(SEED)
        planted = rng.permutation(words)[:N_PLANTED].tolist()
        changed.write_text(swapped(second.read_text(encoding="utf-8"), planted), encoding="utf-8")
        folder.mkdir(parents=True)
        np.save(folder / "planted.npy", planted)
        settings = {"max_uses": MAX_USES, "group_by": "blocks", "rng": rng}
        with sampled_uses([corpora[0], read_corpus(changed, {})], planted, embedder, **settings) as samples:
            save(folder / "planted.npz", samples)
        with sampled_uses(corpora, words, embedder, **settings) as samples:
            save(folder / "halves.npz", samples)


def swapped(text: str, words: Sequence[str]) -> str:
    """The text with each pair of words in each other's places, in any case."""
    partner = {word: words[at ^ 1] for at, word in enumerate(words)}
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))

    def other(match: re.Match[str]) -> str:
        new = partner[match[0].casefold()]
        return new.capitalize() if match[0][0].isupper() else new

    return re.sub(rf"(?<![\w'])(?:{pattern})(?![\w'])", other, text, flags=re.IGNORECASE)


def save(path: Path, samples: Samples) -> None:
    every = np.arange(len(samples.vectors))
    columns = {name: samples.column(name, every) for name in ("word", "corpus", "group")}
    np.savez(path, words=np.array(samples.words), vectors=samples.vectors, **columns)


class Uses:
    """The uses in a file, word by word."""

    def __init__(self, path: Path) -> None:
        arrays = dict(np.load(path))
        order = np.argsort(arrays["word"], kind="stable")
        self.words = arrays["words"].tolist()
        ends = np.searchsorted(arrays["word"][order], np.arange(1, len(self.words)))
        self.rows = np.split(order, ends)
        self.vectors, self.corpus, self.group = arrays["vectors"], arrays["corpus"], arrays["group"]


def p_values(
    vectors: np.ndarray, corpus: np.ndarray, groups: np.ndarray, seed: Sequence[int],
    senses: np.ndarray | None = None, *, n_draws: int = N_DRAWS,
) -> dict[str, float] | None:  # fmt: skip
    """By measure; None where a corpus has too few groups."""
    exchange = Exchange(corpus, groups)
    if min(exchange.n_groups) < MIN_GROUPS:
        return None
    uses = WordUsesVectors(vectors, groups, senses)
    values, draws = observed(uses, exchange), permuted(uses, exchange, n_draws, np.random.default_rng(seed))
    measures = {"APD": "difference", "PRT": "prt"} | ({} if senses is None or not senses.any() else {"JSD": "jsd"})
    return {name: p_value(float(getattr(values, each)[0]), getattr(draws, each)) for name, each in measures.items()}


def halves(uses: Uses) -> list[list[str]]:
    """Rows of a table: how many words have p < 0.05 between halves of one corpus."""
    rates: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for deal in range(DEALS):
        names = np.unique(uses.group)
        dealt = dict(zip(names.tolist(), np.random.default_rng([SEED, deal]).integers(0, 2, len(names)), strict=True))
        corpus = uses.corpus if deal == 0 else np.array([dealt[each] for each in uses.group.tolist()])
        counts: dict[tuple[str, str], list[bool]] = {}
        for number, rows in enumerate(uses.rows):
            vectors, groups = uses.vectors[rows], uses.group[rows]
            with_senses = deal == 0 and number % max(len(uses.rows) // WITH_SENSES, 1) == 0
            senses = group(unit(vectors)).labels if with_senses else None
            for unit_name, units in (("documents", groups), ("uses", np.arange(len(rows))))[: 2 if deal == 0 else 1]:
                ps = p_values(vectors, corpus[rows], units, [SEED, deal, number], senses)
                for name, p in (ps or {}).items():
                    counts.setdefault((name, unit_name), []).append(p < LEVEL)
        print(f"deal {deal + 1} of {DEALS}", file=sys.stderr, flush=True)
        for key, below in counts.items():
            rates.setdefault(key, []).append((sum(below), len(below)))
    return [
        [
            name,
            unit_name,
            f"{np.mean([n_tests for _, n_tests in each]):,.0f}",
            f"{100 * each[0][0] / each[0][1]:.1f}",
            f"{100 * np.mean([n / n_tests for n, n_tests in each]):.1f}" if len(each) > 1 else "",
            " to ".join(f"{100 * end(n / n_tests for n, n_tests in each):.1f}" for end in (min, max)[: len(each)]),
        ]
        for (name, unit_name), each in sorted(rates.items())
    ]


def planted(changed: Uses, uses: Uses) -> list[list[str]]:
    """Rows of a table: the planted words with their p, raw and adjusted for all words."""
    everything = {
        word: p_values(uses.vectors[rows], uses.corpus[rows], uses.group[rows], [SEED, 0, number], n_draws=PERMUTATIONS)
        for number, (word, rows) in enumerate(zip(uses.words, uses.rows, strict=True))
    }
    many = 10 * PERMUTATIONS
    found = {}
    for number, (word, rows) in enumerate(zip(changed.words, changed.rows, strict=True)):
        exchange = Exchange(changed.corpus[rows], changed.group[rows])
        measured = WordUsesVectors(changed.vectors[rows], changed.group[rows])
        value = observed(measured, exchange)
        draws = permuted(measured, exchange, many, np.random.default_rng([SEED, number]))
        found[word] = (value, p_value(float(value.difference[0]), draws.difference), exchange.n_groups)
    raw = {word: ps["APD"] for word, ps in everything.items() if ps is not None} | {
        word: p for word, (_, p, _) in found.items()
    }
    raised = dict(zip(raw, adjusted(list(raw.values())), strict=True))
    rows = [
        [
            word,
            changed.words[at ^ 1],
            f"{n_groups[0]} + {n_groups[1]}",
            f"{value.apd[0]:.3f}",
            f"{value.difference[0]:.3f}",
            f"{value.prt[0]:.3f}",
            f"{p:.4f}",
            f"{raised[word]:.4f}",
        ]
        for at, (word, (value, p, n_groups)) in enumerate(found.items())
    ]
    n_raw = sum(p < LEVEL for _, p, _ in found.values())
    n_adjusted = sum(raised[word] < LEVEL for word in found)
    others = [raised[word] < LEVEL for word in raised if word not in found]
    print(
        f"Of {len(found)} planted words {n_raw} have p < {LEVEL}, {n_adjusted} after the adjustment for {len(raw):,} "
        f"words; of the {len(others):,} other words {sum(others)} do.\n"
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model folder (default: MiniLM, from the extra 'demo')")
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--keep", type=Path, required=True, help="a folder for the vectors; read if it exists")
    settings = parser.parse_args()
    started = time.perf_counter()
    if not settings.keep.exists():
        embed(settings.model, documents(settings.documents), settings.keep)
        print(f"embedded in {time.perf_counter() - started:.0f} s", flush=True)
    uses = Uses(settings.keep / "halves.npz")
    print(f"{len(uses.words):,} words with {MIN_USES} uses in each half, of which at most {MAX_USES} are drawn.\n")
    head = ["measure", "exchanged", "words tested", "p < 0.05, first deal, %", f"mean of {DEALS} deals", "deals"]
    print(table(head, halves(uses)) + "\n")
    head = ["word", "swapped with", "documents", "APD", "difference", "PRT", "p", "adjusted p"]
    print(table(head, planted(Uses(settings.keep / "planted.npz"), uses)))
    print(f"\n{machine('torch', 'numpy')}; {time.perf_counter() - started:.0f} s; seed {SEED}.")


if __name__ == "__main__":
    main()
