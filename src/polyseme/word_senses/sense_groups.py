"""The senses of a word in a text: groups of its uses, the evidence for their number, examples and a map."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import Cost
from polyseme.embedding.flow import Embedder
from polyseme.encoders.inference import Precision
from polyseme.errors import InputError, OptionError
from polyseme.files.rows import Row, read_rows
from polyseme.files.source import Reading
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.text.sentences import split_sentences
from polyseme.text.word_forms import form
from polyseme.types import Document, Progress
from polyseme.word_senses.build_index import gather, source_name, use_embedder
from polyseme.word_senses.clustering import (
    HINT,
    Count,
    Labels,
    by_size,
    centered,
    cluster,
    count_senses,
    distinct_rows,
)
from polyseme.word_senses.nearest_neighbors import Floats, unit
from polyseme.word_senses.projection import find_map

MOST_COMPARED = 1000
"""Uses that are compared pairwise; of more, a sample is clustered and the others join the nearest sampled use."""
N_EXAMPLES = 5


@dataclass(frozen=True)
class SenseUse(Use):
    """A use of the word, with its sense and its place on the map."""

    id: str
    """Of the text: as in the file it came from."""
    sense: int
    """Counted from 1, the most frequent first."""
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Senses:
    """The uses of a word in groups."""

    word: str
    source: str
    n_senses: int
    explanation: str
    """The evidence for the number of senses, in words."""
    ease: tuple[float, ...]
    """How much more easily than a cloud without senses the uses fall into 2, 3, … groups; see `clustering`."""
    uses: list[SenseUse]
    """In the order of the text."""
    examples: list[list[int]]
    """For each sense the indices of its most typical uses in `uses`, best first."""
    layer: str
    pool: str
    map: str
    cost: Cost

    @property
    def headline(self) -> str:
        """The number of senses and uses; only the uses if the number of senses was not estimated."""
        uses = f"{len(self.uses):,} use{'' if len(self.uses) == 1 else 's'}"
        if self.n_senses == 1 and not self.ease:
            return uses
        return f"{self.n_senses} sense{'' if self.n_senses == 1 else 's'} in {uses}"

    def of(self, sense: int) -> list[SenseUse]:
        """The uses of one sense, counted from 1."""
        return [use for use in self.uses if use.sense == sense]


def senses_of(
    bundle: Bundle,
    word: str,
    source: Sources,
    *,
    layer: str | int = -1,
    pool: str = "mean",
    n_senses: int | None = None,
    map: str = "pca",
    seed: int = 0,
    batch_pieces: int | None = None,
    precision: Precision = "own",
    reading: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Senses:
    """Group the uses of a word, in any case, in the texts of `source`; `n_senses` sets the number of groups."""
    started = time.perf_counter()
    draw = find_map(map)
    if not word.strip():
        raise OptionError(f"The word whose senses are looked for is {'blank' if word else 'empty'}. Give a word.")
    embedder = use_embedder(bundle, layer, pool=pool, batch_pieces=batch_pieces, precision=precision)
    with read_rows(source, **(reading or {}), sentences=split_sentences) as rows:
        name = source_name(rows)
        ids, uses, vectors, others = _uses_of(word.strip(), rows, embedder, progress)
    _check_number(n_senses, len(uses))
    grouped = group(vectors, n_senses, seed=seed, scale=_scale(vectors, others))
    points = draw(vectors, seed)
    return Senses(
        word=word.strip(),
        source=name,
        n_senses=int(grouped.labels.max()) + 1,
        explanation=grouped.explanation,
        ease=grouped.count.ease,
        uses=[
            SenseUse(use.text, use.start, use.end, id, int(label) + 1, float(x), float(y))
            for id, use, label, (x, y) in zip(ids, uses, grouped.labels, points, strict=True)
        ],
        examples=examples(vectors, grouped.labels),
        layer=str(layer),
        pool=pool,
        map=map,
        cost=embedder.tally.cost(time.perf_counter() - started, embedder.device),
    )


@dataclass(frozen=True)
class Grouped:
    """The sense of each use (counted from 0), and the evidence for the number of senses."""

    labels: Labels
    count: Count
    explanation: str


def group(vectors: Floats, n_senses: int | None = None, *, seed: int = 0, scale: float = 1.0) -> Grouped:
    """Group vectors of length 1 into `n_senses` groups, or into as many as there seem to be senses."""
    rng = np.random.default_rng(seed)
    drawn = np.arange(len(vectors))
    if len(vectors) > MOST_COMPARED:
        drawn = np.sort(rng.permutation(len(vectors))[:MOST_COMPARED])
    distinct = drawn[distinct_rows(vectors[drawn], scale)]
    count = count_senses(vectors[distinct], rng)
    n_groups = n_senses or count.n_senses
    parted = vectors[distinct if n_groups <= len(distinct) else drawn]
    labels = cluster(centered(parted), n_groups, rng)[_nearest_rows(vectors, parted)]
    return Grouped(by_size(labels), count, _explanation(count, n_senses, len(drawn), len(vectors)))


def examples(vectors: Floats, labels: Labels, n_examples: int = N_EXAMPLES) -> list[list[int]]:
    """For each group the members with the highest mean cosine to all members; the first is its medoid."""
    result = []
    for label in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == label)
        typical = vectors[members] @ vectors[members].mean(axis=0)
        result.append(members[np.argsort(-typical, kind="stable")[:n_examples]].tolist())
    return result


def _uses_of(
    word: str, rows: Reading[Row], embedder: Embedder, progress: Progress | None
) -> tuple[list[str], list[Use], Floats, Floats]:
    """The word's uses with the ids of their texts and their vectors; and vectors of other words, one per text."""
    word_form = form(word)
    seen: dict[str, int] = {}
    """Other forms with their counts, for the message if the word does not occur."""

    def places(document: Document) -> list[int]:
        forms = [form(each) for each in document.words]
        matches = [place for place, each in enumerate(forms) if each == word_form]
        if not matches:
            for each in forms:
                seen[each] = seen.get(each, 0) + 1
            return []
        others = [place for place, each in enumerate(forms) if each != word_form]
        return [*matches, others[len(document.text) % len(others)]] if others else matches

    ids: list[str] = []
    uses: list[Use] = []
    vectors: list[Floats] = []
    others: list[Floats] = []
    for chunk in gather(rows, [embedder], places, progress):
        unit_vectors = iter(unit(chunk.vectors[0]))
        for document, words in zip(chunk.documents, chunk.words, strict=True):
            for each in words:
                vector = next(unit_vectors)
                if form(each) != word_form:
                    others.append(vector)
                    continue
                ids.append(document.id)
                uses.append(Use(document.text, each.start, each.end))
                vectors.append(vector)
    _refuse_if_rare(word, uses, source_name(rows), seen)
    return ids, uses, np.stack(vectors), np.stack(others) if others else np.empty((0, vectors[0].size), np.float32)


def _refuse_if_rare(word: str, uses: Sequence[Use], name: str, seen: Mapping[str, int]) -> None:
    """Refuse a word that does not occur, or occurs only once: it has no senses to distinguish."""
    if not uses:
        close = difflib.get_close_matches(form(word), seen, n=3, cutoff=0.7)
        candidates = ", ".join(f"{each!r} ({'once' if seen[each] == 1 else f'{seen[each]:,} times'})" for each in close)
        raise InputError(
            f"The word {word!r} does not occur in {name}."
            + (f" There is: {candidates}." if close else "")
            + " Words are found by their form, whatever their case: name the form that the text has."
        )
    if len(uses) == 1:
        before, match, after = uses[0].keyword(30)
        raise InputError(
            f"The word {word!r} occurs only once in {name} ({before}{match}{after}): its senses are found by comparing "
            "uses, so at least 2 are needed. Give a longer text."
        )


def _check_number(n_senses: int | None, n_uses: int) -> None:
    if n_senses is not None and not 1 <= n_senses <= min(n_uses, MOST_COMPARED):
        raise OptionError(
            f"The number of senses must be from 1 to that of the uses, {n_uses:,} (and {MOST_COMPARED:,} at most). "
            f"Got {n_senses} instead."
        )


def _scale(vectors: Floats, others: Floats) -> float:
    """The typical distance between uses of different words: the median over uses of the word and of other words."""
    if not len(others):
        return 1.0
    return float(np.median(1 - vectors[:MOST_COMPARED] @ others[:MOST_COMPARED].T))


def _nearest_rows(vectors: Floats, among: Floats) -> NDArray[np.int64]:
    """For each vector the nearest row of `among`."""
    blocks = (vectors[start : start + MOST_COMPARED] for start in range(0, len(vectors), MOST_COMPARED))
    return np.concatenate([(block @ among.T).argmax(axis=1) for block in blocks])


def _explanation(count: Count, n_senses: int | None, n_compared: int, n_uses: int) -> str:
    text = count.sentence()
    if n_senses is not None:
        text = text.removesuffix(HINT).rstrip()
        estimate = f"By itself polyseme finds {count.n_senses} sense{'' if count.n_senses == 1 else 's'}: "
        text = f"The number was given. {estimate if count.ease else ''}{text}"
    if n_compared < n_uses:
        text += f" Of {n_uses:,} uses {n_compared:,} were drawn and compared; the others join the nearest of these."
    return text
