"""One word in two corpora: measures, a test, the senses that grew and shrank, and a map of its uses."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import Cost
from polyseme.encoders.inference import Precision
from polyseme.errors import OptionError
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.result_tables import ShownAsTable, Table
from polyseme.text.word_forms import form
from polyseme.two_corpora.measures import Numbers, WordUsesVectors
from polyseme.two_corpora.significance import (
    BOOTSTRAPS,
    LEVEL,
    MIN_GROUPS,
    PERMUTATIONS,
    Exchange,
    Measure,
    bootstrapped,
    interval,
    observed,
    p_value,
    permuted,
)
from polyseme.two_corpora.use_samples import read_corpora, refuse_missing, sampled_uses
from polyseme.verb_options.word_options import CompareOptions
from polyseme.word_senses.gather_uses import use_embedder
from polyseme.word_senses.nearest_neighbors import Floats, unit
from polyseme.word_senses.projection import find_map
from polyseme.word_senses.sense_groups import check_n_senses, group, typical_distance
from polyseme.word_senses.sense_names import telling_neighbors

MAX_USES = 1000
"""Uses of the word that are drawn from each corpus, unless another number is given."""
N_EXAMPLES = 3
_ENDS = (LEVEL / 2, 1 - LEVEL / 2)

Pair = tuple[int, int]


@dataclass(frozen=True)
class ComparedUse(Use):
    """A use of the word in one of the corpora."""

    id: str
    """Of the text: as in the file it came from."""
    corpus: int
    """1 or 2."""
    sense: int
    """Counted from 1, the most frequent in both corpora together first."""
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class SenseChange:
    """A sense and its share of the uses in each corpus."""

    sense: int
    neighbors: list[str]
    """Words around its uses that are rare around those of other senses, the most telling first."""
    n_uses: Pair
    shares: tuple[float, float]
    low: float | None
    """Of the bootstrap interval (95%) of the difference between the shares, second minus first."""
    high: float | None
    examples: tuple[list[int], list[int]]
    """For each corpus the indices of its most typical uses in `uses`, best first."""

    @property
    def change(self) -> float:
        """The share in the second corpus minus that in the first."""
        return self.shares[1] - self.shares[0]

    @property
    def direction(self) -> str:
        """Whether the share grew or shrank, if the interval excludes no change."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return ""
        return "grew" if self.change > 0 else "shrank"


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ShownAsTable):
    """The uses of one word in two corpora."""

    word: str
    sources: tuple[str, str]
    counts: Pair
    """How often the word occurs in each corpus."""
    n_uses: Pair
    """Uses that were drawn and compared."""
    n_groups: Pair
    """Groups of texts that they come from: documents, or single texts."""
    difference: Measure
    """APD minus the mean distance between uses of different groups within the corpora; about 0 without a difference."""
    apd: Measure
    """Average pairwise distance; tested by the difference."""
    prt: Measure
    """Prototype distance."""
    jsd: Measure
    """Jensen–Shannon divergence of the senses, in bits."""
    explanation: str
    """How the difference was tested, or why it was not."""
    senses_explanation: str
    """The evidence for the number of senses."""
    senses: list[SenseChange]
    uses: list[ComparedUse]
    draws: list[float]
    """The differences of the permutations, in ascending order; empty if not tested."""
    layer: str
    pool: str
    map: str
    cost: Cost

    def table(self) -> Table:
        """The measures."""
        names = ("difference", "APD", "PRT", "JSD")
        measures = (self.difference, self.apd, self.prt, self.jsd)
        rows = [
            (name, each.value, each.expected, each.p, each.low, each.high)
            for name, each in zip(names, measures, strict=True)
        ]
        corpora = " and ".join(f"{source} ({count:,})" for source, count in zip(self.sources, self.counts, strict=True))
        senses = "; ".join(
            f"sense {each.sense} {100 * each.shares[0]:.0f}% → {100 * each.shares[1]:.0f}%" for each in self.senses
        )
        return Table(
            title=f"{self.word} in {corpora}: {self.headline}",
            header=("", "value", "expected", "p", "low", "high"),
            rows=rows,
            note=senses,
        )

    @property
    def headline(self) -> str:
        """Whether the word differs, in a sentence."""
        p = self.difference.p
        if p is None:
            return "not tested"
        return f"{'the uses differ' if p < LEVEL else 'no difference was found'} (p {format_p(p)})"


def compare_word(
    bundle: Bundle, sources: Sequence[Sources], options: CompareOptions, *, precision: Precision = "own"
) -> Comparison:
    """Compare the uses of the word of `options`, in any case, in two corpora."""
    started = time.perf_counter()
    draw_map = find_map(options.map)
    word = (options.word or "").strip()
    if not word:
        raise OptionError("The word to compare is blank. Give a word, or none, to compare all frequent words.")
    embedder = use_embedder(bundle, options, precision=precision)
    corpora = read_corpora(sources, options, word)
    if not all(corpus.counts[form(word)] for corpus in corpora):
        refuse_missing(word, read_corpora([corpus.source for corpus in corpora], options))
    rng = np.random.default_rng(options.seed)
    with sampled_uses(
        corpora, [form(word)], embedder, max_uses=options.max_uses or MAX_USES, group_by=options.group_by, rng=rng,
        with_others=True, progress=options.progress,
    ) as samples:  # fmt: skip
        [rows] = samples.rows
        vectors, others = np.array(samples.vectors[rows]), unit(samples.vectors[samples.others])
        corpus, groups = samples.column("corpus", rows), samples.column("group", rows)
        keywords = samples.uses(rows)
    check_n_senses(options.n_senses, len(rows))
    directions = unit(vectors)
    grouped = group(directions, options.n_senses, seed=options.seed, scale=typical_distance(directions, others))
    exchange = Exchange(corpus, groups)
    tested = min(exchange.n_groups) >= MIN_GROUPS
    measured = WordUsesVectors(vectors, groups, grouped.labels)
    values = observed(measured, exchange)
    draws = permuted(measured, exchange, PERMUTATIONS, rng) if tested else None
    resampled = bootstrapped(measured, exchange, BOOTSTRAPS, rng) if tested else None
    points = draw_map(directions, options.seed)
    n_uses = (int((corpus == 0).sum()), int((corpus == 1).sum()))
    return Comparison(
        word=word,
        sources=(corpora[0].name, corpora[1].name),
        counts=(corpora[0].counts[form(word)], corpora[1].counts[form(word)]),
        n_uses=n_uses,
        n_groups=exchange.n_groups,
        difference=_measure(
            values.difference, draws and draws.difference, resampled and resampled.difference, floor=None
        ),
        apd=_measure(values.apd, None, resampled and resampled.apd),
        prt=_measure(values.prt, draws and draws.prt, resampled and resampled.prt),
        jsd=_measure(values.jsd, draws.jsd if draws and grouped.labels.any() else None, resampled and resampled.jsd),
        explanation=explain_test(exchange.n_groups, tested),
        senses_explanation=grouped.explanation,
        senses=_senses(
            [use for _, use in keywords], directions, corpus, grouped.labels, exchange, rng if tested else None
        ),
        uses=[
            ComparedUse(use.text, use.start, use.end, id, int(of) + 1, int(label) + 1, float(x), float(y))
            for (id, use), of, label, (x, y) in zip(keywords, corpus, grouped.labels, points, strict=True)
        ],
        draws=[] if draws is None else np.sort(draws.difference).round(5).tolist(),
        layer=str(options.layer),
        pool=embedder.pool,
        map=options.map,
        cost=embedder.tally.cost(time.perf_counter() - started, embedder.device),
    )


def explain_test(n_groups: Pair, tested: bool) -> str:
    """How a word was tested, or why it was not."""
    groups = f"{n_groups[0]:,} + {n_groups[1]:,}"
    if not tested:
        return (
            f"There is no p-value: the word occurs in {groups} texts (or documents), and the test needs at least "
            f"{MIN_GROUPS} in each corpus. Give more text."
        )
    return (
        f"The {groups} texts (or documents) with the word were exchanged between the corpora {PERMUTATIONS:,} times; "
        f"p is the share of exchanges after which the corpora differ as much. Intervals (95%) are from {BOOTSTRAPS:,} "
        "bootstrap samples of the same texts."
    )


def format_p(p: float) -> str:
    """A p-value after "p": `= 0.032`, `< 0.001`.

    >>> format_p(0.0316), format_p(1 / 1001)
    ('= 0.032', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _measure(
    values: Numbers, draws: Numbers | None, resampled: Numbers | None, *, floor: float | None = 0.0
) -> Measure:
    """The observed value (the only one of `values`), tested against permutations, with a bootstrap interval."""
    value = float(values[0])
    if not math.isfinite(value):
        return Measure(None, None, None, None, None)
    low, high = (None, None) if resampled is None else interval(value, resampled, floor=floor)
    if draws is None:
        return Measure(value, None, None, low, high)
    return Measure(value, float(draws.mean()), p_value(value, draws), low, high)


def _senses(
    uses: Sequence[Use],
    directions: Floats,
    corpus: NDArray[np.int64],
    labels: NDArray[np.int64],
    exchange: Exchange,
    rng: np.random.Generator | None,
) -> list[SenseChange]:
    """The senses with their shares; with intervals if there is a generator to draw bootstrap samples with."""
    one_hot = np.eye(int(labels.max()) + 1)[labels]
    counts = np.stack([one_hot[corpus == number].sum(axis=0) for number in (0, 1)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    changes = None
    if rng is not None:
        [(first, second)] = exchange.bootstraps(BOOTSTRAPS, rng)
        changes = second @ one_hot / second.sum(axis=1)[:, None] - first @ one_hot / first.sum(axis=1)[:, None]
    neighbors = telling_neighbors(uses, labels.tolist())
    result = []
    for sense in range(counts.shape[1]):
        low, high = (None, None) if changes is None else np.quantile(changes[:, sense], _ENDS).tolist()
        members = [np.flatnonzero((labels == sense) & (corpus == number)) for number in (0, 1)]
        center = directions[labels == sense].mean(axis=0)
        typical = [rows[np.argsort(-(directions[rows] @ center), kind="stable")[:N_EXAMPLES]] for rows in members]
        result.append(
            SenseChange(
                sense=sense + 1,
                neighbors=neighbors[sense],
                n_uses=(len(members[0]), len(members[1])),
                shares=(float(shares[0, sense]), float(shares[1, sense])),
                low=low,
                high=high,
                examples=(typical[0].tolist(), typical[1].tolist()),
            )
        )
    return result
