"""All frequent words in two corpora: which differ most, and which by more than chance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import Cost
from polyseme.encoders.inference import Precision
from polyseme.errors import InputError, OptionError
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.result_tables import ShownAsTable, Table
from polyseme.two_corpora.measures import WordUsesVectors
from polyseme.two_corpora.significance import (
    BOOTSTRAPS,
    LEVEL,
    MIN_GROUPS,
    PERMUTATIONS,
    Exchange,
    adjusted,
    bootstrapped,
    interval,
    observed,
    p_value,
    permutations_needed,
    permuted,
)
from polyseme.two_corpora.use_samples import Corpus, Samples, frequent_words, read_corpora, sampled_uses
from polyseme.verb_options.word_options import CompareOptions
from polyseme.word_senses.gather_uses import use_embedder
from polyseme.word_senses.nearest_neighbors import unit
from polyseme.word_senses.sense_groups import group

MAX_USES = 100
"""Uses of each word that are drawn from each corpus, unless another number is given."""
N_LINES = 4
"""Lines of each listed word from each corpus."""
_PAIRS = 1000
"""Uses by which the typical distance between words is estimated."""


@dataclass(frozen=True)
class TellingUse(Use):
    """A use that is nearer to the uses of its own corpus than to those of the other."""

    id: str


@dataclass(frozen=True, kw_only=True)
class WordDifference:
    """A word in two corpora."""

    word: str
    counts: tuple[int, int]
    """How often the word occurs in each corpus."""
    n_groups: tuple[int, int]
    """Groups of texts that the uses compared come from: documents, or single texts."""
    difference: float
    """APD minus the mean distance between uses of different groups within the corpora; about 0 without a difference."""
    apd: float
    """Average pairwise distance."""
    prt: float
    """Prototype distance."""
    p: float | None
    """Of the permutation test of the difference; None if the word occurs in too few texts."""
    p_adjusted: float | None
    """Adjusted for the number of words compared (Benjamini–Hochberg)."""
    low: float | None = None
    """Of the bootstrap interval (95%) of the difference; of listed words."""
    high: float | None = None
    jsd: float | None = None
    """Jensen–Shannon divergence of the senses, in bits; of listed words."""
    n_senses: int | None = None
    """Of listed words."""
    lines: tuple[Sequence[TellingUse], Sequence[TellingUse]] = ((), ())
    """For each corpus the uses that are most unlike those of the other; of listed words."""

    @property
    def effect(self) -> float:
        """The difference as a share of APD: 0 where the corpora do not differ, 1 where each has a single use."""
        return self._share(self.difference)

    @property
    def effect_interval(self) -> tuple[float, float] | None:
        """The bootstrap interval (95%) of the effect; of listed words."""
        return None if self.low is None or self.high is None else (self._share(self.low), self._share(self.high))

    def _share(self, difference: float) -> float:
        return difference / self.apd if self.apd else 0.0

    @property
    def differs(self) -> bool:
        """Whether the adjusted p is below 0.05."""
        return self.p_adjusted is not None and self.p_adjusted < LEVEL


@dataclass(frozen=True, kw_only=True, repr=False)
class Differences(ShownAsTable):
    """All frequent words of two corpora, those that differ most first."""

    sources: tuple[str, str]
    words: list[WordDifference]
    """All words compared: those that differ significantly by their effect, then the others by their p."""
    top: int
    """Words that are listed with intervals, senses and lines."""
    n_frequent: int
    """Words that are frequent enough to be compared."""
    min_uses: int
    max_uses: int
    layer: str
    pool: str
    cost: Cost

    def table(self) -> Table:
        """The words, those that differ most first."""
        header = ("word", "uses", "uses", "effect", "apd", "prt", "p", "adjusted p")
        return Table.of(
            f"{self.sources[0]} and {self.sources[1]}: {self.headline}", header, self.words,
            lambda each: (each.word, *each.counts, each.effect, each.apd, each.prt, each.p, each.p_adjusted),
        )  # fmt: skip

    @property
    def n_differing(self) -> int:
        return sum(word.differs for word in self.words)

    @property
    def headline(self) -> str:
        """How many words were compared, and how many differ."""
        return (
            f"{self.n_differing:,} of {len(self.words):,} words differ at a false discovery rate of {100 * LEVEL:.0f}%"
        )

    @property
    def explanation(self) -> str:
        """Which words were compared, and how."""
        left_out = self.n_frequent - len(self.words)
        untested = sum(word.p is None for word in self.words)
        parts = [
            f"Compared: words with at least {self.min_uses:,} uses in each corpus, of which at most {self.max_uses:,} "
            "each were drawn.",
            f"Less frequent ones that were left out: {left_out:,}." if left_out else "",
            f"In fewer than {MIN_GROUPS} texts of a corpus and without a p-value: {untested:,}." if untested else "",
            f"p is the share of at least {PERMUTATIONS:,} exchanges of texts between the corpora after which they "
            "differ as much, then adjusted for the number of words (Benjamini–Hochberg).",
        ]
        return " ".join(filter(None, parts))

    @property
    def listed(self) -> list[WordDifference]:
        """The words at the top."""
        return self.words[: self.top]


@dataclass(frozen=True)
class _Word:
    """The uses of a word in both corpora."""

    vectors: NDArray[Any]
    corpus: NDArray[np.int64]
    groups: NDArray[np.int64]

    @staticmethod
    def of(samples: Samples, rows: NDArray[np.int64]) -> _Word:
        return _Word(np.array(samples.vectors[rows]), samples.column("corpus", rows), samples.column("group", rows))

    def p(self, n_draws: int, rng: np.random.Generator) -> float:
        exchange, uses = Exchange(self.corpus, self.groups), WordUsesVectors(self.vectors, self.groups)
        return p_value(float(observed(uses, exchange).difference[0]), permuted(uses, exchange, n_draws, rng).difference)


def compare_words(
    bundle: Bundle, sources: Sequence[Sources], options: CompareOptions, *, precision: Precision = "own"
) -> Differences:
    """Compare all words that are frequent in both corpora."""
    started = time.perf_counter()
    top, min_uses, max_words = options.top, options.min_uses, options.max_words
    for name, number in (("top", top), ("min_uses", min_uses), ("max_words", max_words)):
        if number < (2 if name == "min_uses" else 1):
            raise OptionError(f"The option {name!r} must be at least {2 if name == 'min_uses' else 1}. Got {number}.")
    embedder = use_embedder(bundle, options, precision=precision)
    corpora = read_corpora(sources, options)
    words, n_frequent = frequent_words(corpora, min_uses=min_uses, max_words=max_words)
    if not words:
        raise InputError(
            f"No word has {min_uses} uses both in {corpora[0].name} and in {corpora[1].name}: there is nothing to "
            "compare. Give longer corpora, or lower the number with --min-uses (min_uses=…)."
        )
    rng = np.random.default_rng(options.seed)
    max_uses = options.max_uses or MAX_USES
    with sampled_uses(
        corpora, words, embedder, max_uses=max_uses, group_by=options.group_by, rng=rng, progress=options.progress
    ) as samples:
        differences = _test_words(samples, corpora, rng)
        scale = _typical_distance(samples, rng)
        rows_of = dict(zip(samples.words, samples.rows, strict=True))
        differences[:top] = [_add_details(each, samples, rows_of[each.word], scale, rng) for each in differences[:top]]
    return Differences(
        sources=(corpora[0].name, corpora[1].name),
        words=differences,
        top=top,
        n_frequent=n_frequent,
        min_uses=min_uses,
        max_uses=max_uses,
        layer=str(options.layer),
        pool=embedder.pool,
        cost=embedder.tally.cost(time.perf_counter() - started, embedder.device),
    )


def _test_words(samples: Samples, corpora: Sequence[Corpus], rng: np.random.Generator) -> list[WordDifference]:
    """All words with their measures and p-values, in order.

    A word with the lowest p that so many permutations can give is tested again with as many as the adjustment needs.
    """
    measured: list[WordDifference] = []
    p_values: list[float | None] = []
    for word, rows in zip(samples.words, samples.rows, strict=True):
        uses = _Word.of(samples, rows)
        exchange = Exchange(uses.corpus, uses.groups)
        values = observed(WordUsesVectors(uses.vectors, uses.groups), exchange)
        tested = min(exchange.n_groups) >= MIN_GROUPS
        p_values.append(uses.p(PERMUTATIONS, rng) if tested else None)
        measured.append(
            WordDifference(
                word=word,
                counts=(corpora[0].counts[word], corpora[1].counts[word]),
                n_groups=exchange.n_groups,
                difference=float(np.nan_to_num(values.difference[0])),
                apd=float(values.apd[0]),
                prt=float(values.prt[0]),
                p=None,
                p_adjusted=None,
            )
        )
    lowest = [at for at, p in enumerate(p_values) if p is not None and p < 1.5 / (1 + PERMUTATIONS)]
    n_tests = sum(p is not None for p in p_values)
    n_draws = permutations_needed(n_tests, len(lowest))
    if n_draws > PERMUTATIONS:
        for at in lowest:
            p_values[at] = _Word.of(samples, samples.rows[at]).p(n_draws, rng)
    raised = iter(adjusted([p for p in p_values if p is not None]))
    result = [
        each if p is None else replace(each, p=p, p_adjusted=next(raised))
        for each, p in zip(measured, p_values, strict=True)
    ]
    return sorted(result, key=_rank)


def _rank(word: WordDifference) -> tuple[bool, float, float]:
    return (not word.differs, 0.0 if word.differs else 2.0 if word.p is None else word.p, -word.effect)


def _typical_distance(samples: Samples, rng: np.random.Generator) -> float:
    """The median distance between uses of different words, for `group`."""
    rows = rng.integers(0, len(samples.vectors), size=(2, _PAIRS))
    words = samples.column("word", rows[0]), samples.column("word", rows[1])
    first, second = (unit(samples.vectors[each]) for each in rows)
    distances = (1 - (first * second).sum(axis=1))[words[0] != words[1]]
    return float(np.median(distances)) if len(distances) else 1.0


def _add_details(
    word: WordDifference, samples: Samples, rows: NDArray[np.int64], scale: float, rng: np.random.Generator
) -> WordDifference:
    """The word with its interval, senses and lines."""
    uses = _Word.of(samples, rows)
    directions = unit(uses.vectors)
    labels = group(directions, scale=scale).labels
    exchange = Exchange(uses.corpus, uses.groups)
    measured = WordUsesVectors(uses.vectors, uses.groups, labels)
    low = high = None
    if word.p is not None:
        low, high = interval(word.difference, bootstrapped(measured, exchange, BOOTSTRAPS, rng).difference, floor=None)
    means = [directions[uses.corpus == number].mean(axis=0) for number in (0, 1)]
    lines = []
    for number in (0, 1):
        own = np.flatnonzero(uses.corpus == number)
        telling = own[np.argsort(-(directions[own] @ (means[number] - means[1 - number])), kind="stable")[:N_LINES]]
        lines.append([TellingUse(use.text, use.start, use.end, id) for id, use in samples.uses(rows[telling])])
    return replace(
        word,
        low=low,
        high=high,
        jsd=float(observed(measured, exchange).jsd[0]),
        n_senses=int(labels.max()) + 1,
        lines=(lines[0], lines[1]),
    )
