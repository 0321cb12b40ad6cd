"""A word's type against its uses: how alike its uses are by layer, and its neighbors without and with context.

Without context a word has one vector; its neighbors are those of Peters et al. (2018), Table 4, left column. In context
each use has its own, and its nearest uses are the right column. The uses themselves come from texts, or from sentences.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.analysis.layers_of_words import WORDS_AT_ONCE, LayersOfWords, Texts
from polyseme.analysis.moments import Array, Directions, explained_by_first, mean_cosine, unit_vectors
from polyseme.analysis.use_sample import Reservoir
from polyseme.analysis.word_uses_findings import LayerOfUses, NearTo, Neighbor, WordUsesFindings
from polyseme.bundle import Bundle
from polyseme.cost import Tally
from polyseme.embedding.flow import Embedder, warn_unread
from polyseme.embedding.model_fingerprint import fingerprint
from polyseme.encoders.inference import Precision, build_inference_encoder
from polyseme.errors import InputError
from polyseme.files.reading_options import TextOptions
from polyseme.packaged_models import model_name
from polyseme.plots.word_uses import Use, WordUses
from polyseme.text.documents import make_document
from polyseme.text.word_forms import form, times
from polyseme.types import Document
from polyseme.verb_options.uses_options import WordUsesOptions
from polyseme.word_senses.build_index import open_index
from polyseme.word_senses.gather_uses import index_settings, use_embedder
from polyseme.word_senses.index import UseIndex, View
from polyseme.word_senses.nearest_neighbors import nearest, unit
from polyseme.word_senses.similar_uses import near_uses
from polyseme.word_senses.uses_of_word import refuse_if_absent

N_NEAR = 6
"""Uses of the matrix whose nearest uses are listed."""


@dataclass(frozen=True)
class UsedModel:
    """A model, its path and its precision."""

    bundle: Bundle
    path: str = ""
    precision: Precision = "own"


def word_uses(options: WordUsesOptions, model: UsedModel, static: UsedModel | None = None) -> WordUsesFindings:
    """The uses of a word by layer, as a matrix and beside their neighbors; `static` gives those without context."""
    started = time.perf_counter()
    packed = build_inference_encoder(model.bundle.encoder, model.precision)
    settings: dict[str, Any] = {"precision": model.precision, "inference": packed}
    at_layer, at_0 = (use_embedder(model.bundle, options, layer=layer, **settings) for layer in (options.layer, 0))
    layers = LayersOfWords(
        model.bundle, name=model.path, pool=options.pool, batch_pieces=options.batch_pieces, **settings
    )
    sentences = [_use_in_sentence(options.word, sentence) for sentence in options.sentence]
    in_texts = _UsesInTexts(options.word, Reservoir(options.max_uses, random.Random(options.seed)))
    name = "the sentences"
    if options.source is not None:
        texts = Texts(options.source, options.changed(TextOptions), sys.maxsize)
        name = texts.name()
        for documents in texts.chunks():
            for document in documents:
                in_texts.read(document)
        refuse_if_absent(options.word, in_texts.uses.items, name, in_texts.seen)
    vectors = _vectors(layers, in_texts.uses.items or sentences, options.seed)
    chosen = sentences or _most_different(in_texts.uses.items, at_layer, options.shown)
    in_context, alone = (_cosines(chosen, each) for each in (at_layer, at_0))
    warn_unread(layers.embedder.tally)
    static_neighbors: list[Neighbor] = []
    near: list[NearTo] = []
    if options.source is not None:
        views = [
            View(fingerprint=fingerprint(model.bundle, model.precision), layer=each.choice, pool=each.pool)
            for each in (at_layer, at_0)
        ]
        at_layer.tally = Tally(pieces=at_layer.tally.pieces, flops=at_layer.tally.flops)  # of the texts alone
        index_of = index_settings(options, model.path)
        with open_index(options.source, options.index, [at_layer, at_0], views, **index_of) as index:
            static_neighbors = _static_neighbors(options, index, static)
            near = [_near_to(each, index, at_layer, options.near) for each in chosen[:N_NEAR]]
    largest = max(layers.embedder.tally, at_layer.tally, key=lambda tally: tally.words)
    tally = Tally(documents=largest.documents, words=largest.words)
    for each in (layers.embedder, at_layer, at_0):
        tally.add(Tally(pieces=each.tally.pieces, flops=each.tally.flops))
    return WordUsesFindings(
        model=model.path,
        data=f"{name}: {in_texts.uses.n or len(sentences):,} uses of {options.word!r}",
        seeds=(options.seed,),
        notes=_notes(options, in_texts, sentences, static),
        cost=tally.cost(time.perf_counter() - started, at_layer.device),
        word=options.word,
        layer=_named_layer(options.layer, model.bundle.config.depth),
        layers=vectors,
        matrix=WordUses(word=options.word, uses=[_use(*each) for each in chosen], in_context=in_context, alone=alone),
        static=model_name(static.path) if static is not None else "layer 0, averaged over uses",
        static_neighbors=static_neighbors,
        near=near,
    )


def _named_layer(layer: str | int, depth: int) -> str:
    """A layer as pages name it: a number counted from the bottom, or the combination that was requested.

    >>> _named_layer("-1", 6), _named_layer(0, 6), _named_layer("mean:1:4", 6)
    ('6', '0', 'mean:1:4')
    """
    number = str(layer)
    return str(depth + 1 + int(number)) if number.removeprefix("-").isdecimal() and int(number) < 0 else number


# --- which uses -------------------------------------------------------------------------------------------------------

Place = tuple[Document, int]
"""A document and the position of a word in it."""


@dataclass
class _UsesInTexts:
    """The uses of a word in texts, at most so many of them, drawn with equal chances."""

    word: str
    uses: Reservoir[Place]
    seen: dict[str, int] = field(default_factory=dict)
    """Forms of other words, while the word has not occurred."""

    def read(self, document: Document) -> None:
        for position, word_form in enumerate(map(form, document.words)):
            if word_form == form(self.word):
                self.uses.add((document, position))
            elif not self.uses.n:
                self.seen[word_form] = self.seen.get(word_form, 0) + 1


def _use_in_sentence(word: str, sentence: str) -> Place:
    document = make_document(sentence)
    for position, each in enumerate(document.words):
        if form(each) == form(word):
            return document, position
    advice = "Give a sentence with its form." if len(make_document(word).words) == 1 else "Name a single word."
    raise InputError(f"The word {word!r} does not occur in the sentence {sentence!r}. {advice}")


def _use(document: Document, position: int) -> Use:
    original = document.in_original()
    word = original.words[position]
    return Use(original.text, word.start, word.end)


def _most_different(places: Sequence[Place], embedder: Embedder, n: int) -> list[Place]:
    """Uses that differ: the most central first, then each time the one farthest from those before; in reading order."""
    cosines = _cosines(places, embedder)
    chosen = [int(cosines.sum(axis=1).argmax())]
    while len(chosen) < min(n, len(places)):
        nearness = cosines[:, chosen].max(axis=1)
        nearness[chosen] = np.inf
        chosen.append(int(nearness.argmin()))
    return [places[each] for each in sorted(chosen)]


# --- figures ----------------------------------------------------------------------------------------------------------


def _vectors(layers: LayersOfWords, places: Sequence[Place], seed: int) -> list[LayerOfUses]:
    """The figures of every layer; anisotropy is that of all words of the texts with the uses."""
    rng = random.Random(seed)
    directions = [Directions(width) for width in layers.widths]
    uses: list[list[Array]] = [[] for _ in layers.widths]
    others: list[list[Array]] = [[] for _ in layers.widths]
    documents: dict[int, tuple[Document, list[int]]] = {}
    for document, position in places:
        documents.setdefault(id(document), (document, []))[1].append(position)
    n_texts = 0
    for chunk in _chunks(list(documents.values())):
        lengths = [len(document.words) for document, _ in chunk]
        starts = np.cumsum([0, *lengths])
        rows = [int(start) + at for start, (_, positions) in zip(starts, chunk, strict=False) for at in positions]
        random_rows = [
            int(start) + rng.randrange(len(document.words))
            for start, (document, positions) in zip(starts, chunk, strict=False)
            for _ in positions
        ]
        for number, layer in enumerate(layers([document for document, _ in chunk])):
            directions[number].add(layer, lengths, n_texts)
            uses[number].append(layer[rows])
            others[number].append(layer[random_rows])
        n_texts += len(chunk)
    of_layers = [np.concatenate(each) for each in uses]
    return [
        _layer(number, vectors, np.concatenate(others[number]), of_layers[0], directions[number].anisotropy)
        for number, vectors in enumerate(of_layers)
    ]


def _layer(number: int, vectors: Array, others: Array, tokens: Array, anisotropy: float) -> LayerOfUses:
    units, n = unit_vectors(vectors), len(vectors)
    total = units.sum(axis=0)
    left = np.array([mean_cosine(total - each, n - 1) for each in units]) if n > 2 else np.full(1, math.nan)
    squares = float((vectors.astype(np.float64) ** 2).sum()) or math.nan
    mean, static = vectors.mean(axis=0, dtype=np.float64), unit_vectors(tokens.mean(axis=0, dtype=np.float64))
    fits = tokens.shape[1] == vectors.shape[1]
    return LayerOfUses(
        layer=number,
        similarity=mean_cosine(total, n),
        similarity_error=math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum())),
        anisotropy=anisotropy,
        explained_by_layer_0=float(((vectors.astype(np.float64) @ static) ** 2).sum()) / squares if fits else math.nan,
        explained_by_mean=n * float(mean @ mean) / squares,
        explained_by_component=explained_by_first(vectors),
        explained_of_random=explained_by_first(others),
    )


def _chunks(documents: Sequence[tuple[Document, list[int]]]) -> list[list[tuple[Document, list[int]]]]:
    chunks: list[list[tuple[Document, list[int]]]] = [[]]
    for each in documents:
        if sum(len(document.words) for document, _ in chunks[-1]) >= WORDS_AT_ONCE:
            chunks.append([])
        chunks[-1].append(each)
    return chunks


def _at(places: Sequence[Place], embedder: Embedder) -> Array:
    """[n, D]: the vectors of uses."""
    documents = list({id(document): document for document, _ in places}.values())
    embedded = dict(zip(map(id, documents), embedder(documents), strict=True))
    return np.stack([embedded[id(document)].vectors[position] for document, position in places])


def _cosines(places: Sequence[Place], embedder: Embedder) -> Array:
    units = unit_vectors(_at(places, embedder))
    cosines: Array = units @ units.T
    return cosines


# --- neighbors --------------------------------------------------------------------------------------------------------


def _static_neighbors(options: WordUsesOptions, index: UseIndex, static: UsedModel | None) -> list[Neighbor]:
    """The words of the texts whose context-free vectors are nearest to the word's; none if it has no such vector."""
    forms, means = index.form_means(1)
    if static is not None:
        embedder = Embedder(static.bundle, precision=static.precision)
        means = unit(np.concatenate([each.vectors for each in embedder([make_document([each]) for each in forms])]))
    counts = index.forms()
    own = forms.index(form(options.word))
    if not means[own].any():
        return []
    allowed: NDArray[np.bool_] = np.asarray(means.any(axis=1))
    allowed[own] = False
    near = nearest(means, means[own], options.top, allowed)
    return [
        Neighbor(forms[row], cosine, counts[forms[row]])
        for row, cosine in zip(near.rows.tolist(), near.cosines.tolist(), strict=True)
    ]


def _near_to(place: Place, index: UseIndex, embedder: Embedder, top: int) -> NearTo:
    """The uses, of any word, that are nearest to a use, which itself is left out."""
    use = _use(*place)
    allowed = np.ones(len(index), dtype=np.bool_)
    allowed[index.rows_of(use.text, use.start, use.end)] = False
    [query] = unit(_at([place], embedder))
    return NearTo(use, near_uses(index, query, 0, top, allowed))


def _notes(
    options: WordUsesOptions, in_texts: _UsesInTexts, sentences: Sequence[Place], static: UsedModel | None
) -> list[str]:
    notes = [
        "Similarity is the mean cosine of all pairs of uses; its error is a jackknife over uses. Anisotropy is the "
        "mean cosine of all pairs of words in the texts with these uses. Explained is the share of the uses' squared "
        "length that lies along one vector. There are as many random words as uses."
    ]
    n_uses = in_texts.uses.n if options.source is not None else len(sentences)
    if n_uses == 1:
        notes.append(f"The word {options.word!r} occurs {times(1)}, so that no uses are compared. Give a longer text.")
    if in_texts.uses.n > len(in_texts.uses.items):
        notes.append(f"{len(in_texts.uses.items):,} of its {in_texts.uses.n:,} uses were sampled.")
    if static is not None:
        notes.append(f"Context-free neighbors are words of the texts that have a vector in {model_name(static.path)}.")
    return notes
