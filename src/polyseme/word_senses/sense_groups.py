"""The senses of a word in a text: groups of its uses, how many and why, with examples and a map."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme import files
from polyseme.bundle import Bundle
from polyseme.cost import Cost
from polyseme.embedding.embed_files import cost_so_far
from polyseme.embedding.flow import Embedder
from polyseme.encoders.inference import Precision
from polyseme.errors import InputError, OptionError
from polyseme.files.rows import Row
from polyseme.files.source import Reading
from polyseme.files.source_paths import Sources
from polyseme.plots.word_uses import Use
from polyseme.text.sentences import split_sentences
from polyseme.types import Document, Progress
from polyseme.word_senses.clustering import Count, Labels, by_size, centered, count_senses, distinct_rows, part
from polyseme.word_senses.gather_uses import form, gather, told_name
from polyseme.word_senses.nearest_neighbors import Floats, unit
from polyseme.word_senses.projection import find_map

MOST_COMPARED = 1000
"""Uses that are compared each with each; of more, so many are drawn, and the others go with the nearest of them."""
N_EXAMPLES = 5


@dataclass(frozen=True)
class SenseUse:
    """A use of the word, with its sense and its place on the map."""

    text: str
    start: int
    end: int
    """The word is `text[start:end]`."""
    id: str
    """Of the text: as in the file it came from."""
    sense: int
    """Counted from 1, the most frequent first."""
    x: float
    y: float

    @property
    def use(self) -> Use:
        return Use(self.text, self.start, self.end)


@dataclass(frozen=True, kw_only=True)
class Senses:
    """The uses of a word in groups."""

    word: str
    source: str
    n_senses: int
    how: str
    """How the number of senses was found, in words."""
    ease: tuple[float, ...]
    """How many times as easily as a cloud without senses the uses fall into 2, 3, … groups; see `vectors.counting`."""
    uses: list[SenseUse]
    """In the order of the text."""
    examples: list[list[int]]
    """Of each sense some uses, by their places in `uses`: those most like the others of it, the most typical first."""
    layer: str
    pool: str
    map: str
    cost: Cost

    @property
    def headline(self) -> str:
        """How many senses there are in how many uses, or that there is no telling."""
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
    """Group the uses of a word, whatever its case, in the texts of `source`; `n_senses` sets the number of groups."""
    started = time.perf_counter()
    draw = find_map(map)
    if not word.strip():
        raise OptionError(f"The word whose senses are looked for is {'blank' if word else 'empty'}. Give a word.")
    embedder = Embedder(bundle, layer=layer, pool=pool, batch_pieces=batch_pieces, precision=precision)
    if embedder.choice.how == "all":
        raise OptionError(f"A use is compared by one vector, and layer {layer!r} gives it several. Use concat:a:b.")
    with files.read_rows(source, **(reading or {}), sentences=split_sentences) as rows:
        name = told_name(rows)
        ids, uses, vectors, others = _uses_of(word.strip(), rows, embedder, progress)
    _check_number(n_senses, len(uses))
    grouped = group(vectors, n_senses, seed=seed, scale=_scale(vectors, others))
    points = draw(vectors, seed)
    return Senses(
        word=word.strip(),
        source=name,
        n_senses=int(grouped.labels.max()) + 1,
        how=grouped.how,
        ease=grouped.count.ease,
        uses=[
            SenseUse(use.text, use.start, use.end, id, int(label) + 1, float(x), float(y))
            for id, use, label, (x, y) in zip(ids, uses, grouped.labels, points, strict=True)
        ],
        examples=examples(vectors, grouped.labels),
        layer=str(layer),
        pool=pool,
        map=map,
        cost=cost_so_far(embedder, time.perf_counter() - started),
    )


@dataclass(frozen=True)
class Grouped:
    """Which use has which sense (counted from 0), and how the number of senses was found."""

    labels: Labels
    count: Count
    how: str


def group(vectors: Floats, n_senses: int | None = None, *, seed: int = 0, scale: float = 1.0) -> Grouped:
    """Group vectors of length 1, into as many groups as there seem to be senses, or as are asked for."""
    rng = np.random.default_rng(seed)
    drawn = np.arange(len(vectors))
    if len(vectors) > MOST_COMPARED:
        drawn = np.sort(rng.permutation(len(vectors))[:MOST_COMPARED])
    distinct = drawn[distinct_rows(vectors[drawn], scale)]
    count = count_senses(vectors[distinct], rng)
    wanted = n_senses or count.n_senses
    parted = vectors[distinct if wanted <= len(distinct) else drawn]
    labels = part(centered(parted), wanted, rng)[_nearest_rows(vectors, parted)]
    return Grouped(by_size(labels), count, _how(count, n_senses, len(drawn), len(vectors)))


def examples(vectors: Floats, labels: Labels, n_examples: int = N_EXAMPLES) -> list[list[int]]:
    """Of each group the members with the highest mean cosine to its members: the first is its medoid."""
    found = []
    for label in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == label)
        typical = vectors[members] @ vectors[members].mean(axis=0)
        found.append(members[np.argsort(-typical, kind="stable")[:n_examples]].tolist())
    return found


def _uses_of(
    word: str, rows: Reading[Row], embedder: Embedder, progress: Progress | None
) -> tuple[list[str], list[Use], Floats, Floats]:
    """The word's uses with the ids of their texts and their vectors; and vectors of other words, one a text."""
    wanted = form(word)
    seen: dict[str, int] = {}
    """Forms that are not the wanted one, with how often they occur: for the message if it is not there."""

    def places(document: Document) -> list[int]:
        forms = [form(each) for each in document.words]
        its = [place for place, each in enumerate(forms) if each == wanted]
        if not its:
            for each in forms:
                seen[each] = seen.get(each, 0) + 1
            return []
        others = [place for place, each in enumerate(forms) if each != wanted]
        return [*its, others[len(document.text) % len(others)]] if others else its

    ids: list[str] = []
    uses: list[Use] = []
    vectors: list[Floats] = []
    others: list[Floats] = []
    for some in gather(rows, [embedder], places, progress):
        found = iter(unit(some.vectors[0]))
        for document, its in zip(some.documents, some.words, strict=True):
            for each in its:
                vector = next(found)
                if form(each) != wanted:
                    others.append(vector)
                    continue
                ids.append(document.id)
                uses.append(Use(document.text, each.start, each.end))
                vectors.append(vector)
    _refuse_if_rare(word, uses, told_name(rows), seen)
    return ids, uses, np.stack(vectors), np.stack(others) if others else np.empty((0, vectors[0].size), np.float32)


def _refuse_if_rare(word: str, uses: Sequence[Use], name: str, seen: Mapping[str, int]) -> None:
    """A word that does not occur, or only once, has no senses to tell apart."""
    if not uses:
        close = difflib.get_close_matches(form(word), seen, n=3, cutoff=0.7)
        told = ", ".join(f"{each!r} ({'once' if seen[each] == 1 else f'{seen[each]:,} times'})" for each in close)
        raise InputError(
            f"The word {word!r} does not occur in {name}."
            + (f" There is: {told}." if close else "")
            + " Words are found by their form, whatever their case: name the form that the text has."
        )
    if len(uses) == 1:
        before, found, after = uses[0].keyword(30)
        raise InputError(
            f"The word {word!r} occurs only once in {name} ({before}{found}{after}): its senses are found by comparing "
            "uses, so at least 2 are needed. Give a longer text."
        )


def _check_number(n_senses: int | None, n_uses: int) -> None:
    if n_senses is not None and not 1 <= n_senses <= min(n_uses, MOST_COMPARED):
        raise OptionError(
            f"The number of senses must be from 1 to that of the uses, {n_uses:,} (and {MOST_COMPARED:,} at most). "
            f"Got {n_senses} instead."
        )


def _scale(vectors: Floats, others: Floats) -> float:
    """The distance at which uses of different words typically lie: the median over uses of the word and other words."""
    if not len(others):
        return 1.0
    return float(np.median(1 - vectors[:MOST_COMPARED] @ others[:MOST_COMPARED].T))


def _nearest_rows(vectors: Floats, among: Floats) -> NDArray[np.int64]:
    """For each vector the nearest row of `among`."""
    blocks = (vectors[start : start + MOST_COMPARED] for start in range(0, len(vectors), MOST_COMPARED))
    return np.concatenate([(block @ among.T).argmax(axis=1) for block in blocks])


def _how(count: Count, n_senses: int | None, n_compared: int, n_uses: int) -> str:
    said = count.sentence()
    if n_senses is not None:
        found = f"By itself polyseme finds {count.n_senses} sense{'' if count.n_senses == 1 else 's'}: "
        said = f"The number was given. {found if count.ease else ''}{said}"
    if n_compared < n_uses:
        said += f" Of {n_uses:,} uses {n_compared:,} were drawn and compared; the others go with the nearest of these."
    return said
