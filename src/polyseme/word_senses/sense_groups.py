"""The senses of a word: groups of its uses, the evidence for their number, names, examples and a map."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polyseme.bundle import Bundle
from polyseme.cost import Cost, Tally
from polyseme.embedding.flow import Embedder
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.encoders.inference import Precision
from polyseme.errors import OptionError
from polyseme.extras import later
from polyseme.plots.html_page import framed_page
from polyseme.plots.word_uses import Use
from polyseme.result_tables import ShownAsTable, Table
from polyseme.text.word_forms import form
from polyseme.verb_options.word_options import SensesOptions
from polyseme.word_senses.clustering import (
    HINT,
    MIN_EASE,
    MIN_EASE_IN_CONTEXT,
    SAME_DISTANCE,
    SAME_DISTANCE_IN_CONTEXT,
    Count,
    Labels,
    center_vectors,
    cluster,
    count_senses,
    distinct_rows,
    order_by_size,
)
from polyseme.word_senses.gather_uses import index_settings, use_embedder
from polyseme.word_senses.gloss_match import NearGloss, nearest_glosses
from polyseme.word_senses.index import View, layer_name, view_to_json
from polyseme.word_senses.nearest_neighbors import Floats, unit
from polyseme.word_senses.projection import find_map
from polyseme.word_senses.saved_senses import SavedSenses, load_senses
from polyseme.word_senses.sense_names import N_FILLED, name_of, replacements, telling_neighbors
from polyseme.word_senses.uses_of_word import UsesOfWord, refuse_if_single, uses_of_word
from polyseme.word_senses.wordnet import WordNet

MOST_COMPARED = 1000
"""Uses that are compared pairwise; of more, a sample is clustered and the others join the nearest sampled use."""
N_EXAMPLES = 5
ID_DIGITS = 6
TIE = 1e-5
"""Cosines that differ by less are equal."""


@dataclass(frozen=True)
class SenseUse(Use):
    """A use of the word, with its sense and its place on the map."""

    id: str
    """Of the text: as in the file it came from."""
    sense: int
    """Counted from 1, the most frequent first."""
    x: float
    y: float
    cosine: float = 0.0
    """To the mean of its sense, both without the mean of all uses if there are several senses."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of the text: those that were requested."""


@dataclass(frozen=True, kw_only=True)
class Sense:
    """A group of uses, with what describes it."""

    id: str
    """The word and a hash of the most typical use. It stays the same for the same group in any order and number, and
    where the senses are applied to other texts."""
    name: str
    """Replacements and neighbors, in short; empty where nothing tells the group apart."""
    n_uses: int
    neighbors: list[str]
    """Words near the uses of this sense that are rare near those of others, the most telling first."""
    replacements: list[str]
    """Words that a masked language model puts in the place of the word."""
    glosses: list[NearGloss]
    """WordNet's meanings of the word that are nearest, on request."""
    mean: list[float] = field(repr=False)
    """The mean vector of its uses, without that of all uses: by it other uses get this sense."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Senses(ShownAsTable):
    """The uses of a word in groups."""

    word: str
    source: str
    n_senses: int
    explanation: str
    """The evidence for the number of senses, in words."""
    ease: tuple[float, ...]
    """How much more easily than a cloud without senses the uses fall into 2, 3, … groups; see `clustering`."""
    senses: list[Sense]
    """The most frequent first; of senses that were applied, in their own order."""
    uses: list[SenseUse]
    """In the order of the text."""
    examples: list[list[int]]
    """For each sense the indices of its most typical uses in `uses`, best first."""
    notes: list[str]
    """What else there is to know: where names come from, what WordNet lacks."""
    layer: str
    pool: str
    context: int
    """Words on each side whose vectors count."""
    map: str
    center: list[float] = field(repr=False)
    """The mean vector of all uses."""
    view: dict[str, Any] = field(repr=False)
    """What the vectors are of: the model's fingerprint, layer and pooling."""
    cost: Cost

    @property
    def headline(self) -> str:
        """The number of senses and uses; only the uses if the number of senses was not estimated."""
        uses = f"{len(self.uses):,} use{'' if len(self.uses) == 1 else 's'}"
        if self.n_senses == 1 and not self.ease:
            return uses
        return f"{self.n_senses} sense{'' if self.n_senses == 1 else 's'} in {uses}"

    def table(self) -> Table:
        """The senses, each with its most typical use."""
        return Table(
            title=f"{self.word} in {self.source}: {self.headline}",
            header=("sense", "uses", "id", "name", "typical use"),
            rows=[
                (number, sense.n_uses, sense.id, sense.name, self.uses[typical[0]].text if typical else "")
                for number, (sense, typical) in enumerate(zip(self.senses, self.examples, strict=True), start=1)
            ],
            note=self.explanation,
        )

    def _repr_html_(self) -> str:
        """For notebooks: the page, with the map and all uses."""
        page: str = later("polyseme.word_senses.result_files").page_of(self)
        return framed_page(page)

    def of(self, sense: int) -> list[SenseUse]:
        """The uses of one sense, counted from 1."""
        return [use for use in self.uses if use.sense == sense]


def senses_of(
    bundle: Bundle | None,
    options: SensesOptions,
    *,
    namer: Bundle | None = None,
    wordnet: WordNet | None = None,
    precision: Precision = "own",
    model: str = "",
) -> Senses:
    """Group the uses of the word of `options`, in any case.

    Without a bundle, vectors are read from an index or a file of vectors. `namer` is a masked language model for names;
    `wordnet` gives glosses; `model` is what an index names as its model.
    """
    started = time.perf_counter()
    draw, word, context = find_map(options.map), options.word.strip(), options.context
    if not word:
        raise OptionError("The word whose senses are looked for is empty or blank. Give a word.")
    saved = None if options.apply is None else load_senses(options.apply, word)
    if saved is not None and options.n_senses is not None:
        raise OptionError(f"The number of senses is that of {options.apply}. Leave n_senses out, or apply out.")
    embedder, view = _embedder(bundle, options, precision)
    if context < 0:
        raise OptionError(f"The words of the context must be 0 or more. Got {context} instead.")
    word_uses = uses_of_word(
        word, options.source, options.index, embedder, view, context=context, **index_settings(options, model)
    )
    if saved is not None:
        saved.check_fits(word_uses.view, context, word_uses.name)
    groups = _group_uses(word_uses, word, options) if saved is None else _assign_uses(word_uses, saved)
    notes: list[str] = []
    if saved is not None:
        descriptions: Sequence[Mapping[str, Any]] = saved.senses
    else:
        descriptions, notes = _describe_senses(word, groups, namer=namer, wordnet=wordnet, embedder=embedder)
    points = draw(word_uses.vectors, options.seed)
    tally = Tally() if embedder is None else embedder.tally
    return Senses(
        word=word,
        source=word_uses.name,
        n_senses=groups.n_groups,
        explanation=groups.assignment.explanation,
        ease=groups.assignment.count.ease,
        senses=[
            Sense(**each, n_uses=size, mean=_numbers(mean))
            for each, size, mean in zip(descriptions, groups.sizes(), groups.means, strict=True)
        ],
        uses=[
            SenseUse(use.text, use.start, use.end, id, int(label) + 1, float(x), float(y), float(near[label]), fields)
            for id, use, fields, label, near, (x, y) in zip(
                word_uses.ids, word_uses.uses, word_uses.fields, groups.labels, groups.cosines(), points, strict=True
            )
        ],
        examples=groups.examples,
        notes=notes,
        layer=str(options.layer) if bundle is not None else layer_name(word_uses.view.layer),
        pool=word_uses.view.pool,
        context=context,
        map=options.map,
        center=_numbers(groups.center),
        view=view_to_json(word_uses.view),
        cost=tally.cost(time.perf_counter() - started, torch.device("cpu") if embedder is None else embedder.device),
    )


def _embedder(
    bundle: Bundle | None, options: SensesOptions, precision: Precision
) -> tuple[Embedder, View] | tuple[None, None]:
    if bundle is None:
        return None, None
    embedder = use_embedder(bundle, options, precision=precision)
    return embedder, View(fingerprint=fingerprint(bundle, precision), layer=embedder.choice, pool=embedder.pool)


@dataclass(frozen=True)
class _Groups:
    """The uses of a word, the sense of each, and what the vectors of each sense have in common."""

    word_uses: UsesOfWord
    assignment: SenseAssignment
    n_groups: int
    center: Floats
    """[D]: the mean of all vectors."""
    means: Floats
    """[K, D]: for each group the mean of its vectors without the center, at length 1."""

    @property
    def labels(self) -> Labels:
        return self.assignment.labels

    @cached_property
    def examples(self) -> list[list[int]]:
        """For each group its most typical uses."""
        return examples(self.word_uses.vectors, self.labels, n_groups=self.n_groups)

    def sizes(self) -> list[int]:
        sizes: list[int] = np.bincount(self.labels, minlength=self.n_groups).tolist()
        return sizes

    def cosines(self) -> Floats:
        """[N, K]: each use against the mean of each group; of a single group, against the center."""
        vectors = self.word_uses.vectors
        rest, directions = (
            (vectors - self.center, self.means) if self.n_groups > 1 else (vectors, unit(self.center)[None])
        )
        cosines: Floats = unit(rest) @ directions.T
        return cosines


def _group_uses(word_uses: UsesOfWord, word: str, options: SensesOptions) -> _Groups:
    """Find the senses among the uses."""
    refuse_if_single(word, word_uses.uses, word_uses.name)
    check_n_senses(options.n_senses, len(word_uses))
    scale = typical_distance(word_uses.vectors, word_uses.others)
    in_context = options.context > 0
    assignment = group(
        word_uses.vectors,
        options.n_senses,
        seed=options.seed,
        scale=scale,
        same=SAME_DISTANCE_IN_CONTEXT if in_context else SAME_DISTANCE,
        min_ease=MIN_EASE_IN_CONTEXT if in_context else MIN_EASE,
    )
    n_groups = int(assignment.labels.max()) + 1
    return _Groups(word_uses, assignment, n_groups, *_means(word_uses.vectors, assignment.labels))


def _assign_uses(word_uses: UsesOfWord, saved: SavedSenses) -> _Groups:
    """Give each use the nearest of the senses of a file."""
    labels, count = saved.assign(word_uses.vectors), Count(len(saved.senses), (), len(word_uses))
    assignment = SenseAssignment(labels, count, saved.explanation)
    return _Groups(word_uses, assignment, len(saved.senses), saved.center, saved.means)


def _means(vectors: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """The mean of all vectors [D], and for each group that of its vectors without it, at length 1 [K, D]."""
    center = vectors.mean(axis=0)
    rest = unit(vectors - center)
    means = [rest[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)]
    return center, unit(np.stack(means))


def _describe_senses(
    word: str, groups: _Groups, *, namer: Bundle | None, wordnet: WordNet | None, embedder: Embedder | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """The description of each sense except its size and mean; and notes."""
    word_uses, labels = groups.word_uses, groups.labels
    around = telling_neighbors(word_uses.uses, labels.tolist(), word_uses.background)
    filled: list[list[str]] = [[] for _ in range(groups.n_groups)]
    if namer is not None:
        more = examples(word_uses.vectors, labels, n_examples=N_FILLED)
        filled = replacements(namer, word, [[word_uses.uses[place] for place in members] for members in more])
    glosses: list[list[NearGloss]] = [[] for _ in range(groups.n_groups)]
    note = None
    if wordnet is not None and embedder is not None:
        glosses, note = nearest_glosses(wordnet, word, embedder, groups.means, groups.center)
    descriptions = [
        {
            "id": _id(word, [word_uses.uses[place] for place in _medoids(word_uses.vectors, labels == label)]),
            "name": name_of(replacing, neighbors),
            "neighbors": neighbors,
            "replacements": replacing,
            "glosses": near,
        }
        for label, (replacing, neighbors, near) in enumerate(zip(filled, around, glosses, strict=True))
    ]
    return descriptions, [note] if note else []


def _numbers(vector: Floats) -> list[float]:
    """A vector for a file of text."""
    return [round(number, 6) for number in vector.tolist()]


def _id(word: str, medoids: Sequence[Use]) -> str:
    """The word and a hash of its most typical use; of several that are equally typical, the lowest hash."""
    hashes = [hashlib.sha256(f"{use.start} {use.text}".encode("utf-8", "surrogatepass")).hexdigest() for use in medoids]
    return f"{form(word)}:{min(hashes)[:ID_DIGITS]}"


def _medoids(vectors: Floats, members: NDArray[np.bool_]) -> list[int]:
    """The members with the highest mean cosine to all members: one, but for ties."""
    typical = vectors @ vectors[members].mean(axis=0)
    ties: list[int] = np.flatnonzero(members & (typical >= typical[members].max() - TIE)).tolist()
    return ties


@dataclass(frozen=True)
class SenseAssignment:
    """The sense of each use (counted from 0), and the evidence for the number of senses."""

    labels: Labels
    count: Count
    explanation: str


def group(
    vectors: Floats,
    n_senses: int | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    same: float = SAME_DISTANCE,
    min_ease: float = MIN_EASE,
) -> SenseAssignment:
    """Group vectors of length 1 into `n_senses` groups, or into as many as there seem to be senses."""
    rng = np.random.default_rng(seed)
    drawn = np.arange(len(vectors))
    if len(vectors) > MOST_COMPARED:
        drawn = np.sort(rng.permutation(len(vectors))[:MOST_COMPARED])
    distinct = drawn[distinct_rows(vectors[drawn], scale, same=same)]
    count = count_senses(vectors[distinct], rng, min_ease=min_ease)
    n_groups = n_senses or count.n_senses
    parted = vectors[distinct if n_groups <= len(distinct) else drawn]
    labels = cluster(center_vectors(parted), n_groups, rng)[_nearest_rows(vectors, parted)]
    return SenseAssignment(order_by_size(labels), count, _explanation(count, n_senses, len(drawn), len(vectors)))


def examples(
    vectors: Floats, labels: Labels, n_examples: int = N_EXAMPLES, *, n_groups: int | None = None
) -> list[list[int]]:
    """For each group the members with the highest mean cosine to all members; the first is its medoid."""
    result: list[list[int]] = []
    for label in range(int(labels.max()) + 1 if n_groups is None else n_groups):
        members = np.flatnonzero(labels == label)
        if not len(members):
            result.append([])
            continue
        typical = vectors[members] @ vectors[members].mean(axis=0)
        result.append(members[np.argsort(-typical, kind="stable")[:n_examples]].tolist())
    return result


def check_n_senses(n_senses: int | None, n_uses: int) -> None:
    """Refuse a number of senses that uses cannot have."""
    if n_senses is not None and not 1 <= n_senses <= min(n_uses, MOST_COMPARED):
        raise OptionError(
            f"The number of senses must be from 1 to that of the uses, {n_uses:,} (and {MOST_COMPARED:,} at most). "
            f"Got {n_senses} instead."
        )


def typical_distance(vectors: Floats, others: Floats) -> float:
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
